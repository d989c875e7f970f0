"""The snapshot of a group's places: what is written reads the same, and only so much is written."""

from __future__ import annotations

import json
import math
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.names import TOPIC_NAME
from tidegate.kafka.offset_retention import Commit
from tidegate.retention.last_offsets import PACKED, PLAIN, Place, Places, TooLarge, decode, encode

NAMES = st.text(f"{string.ascii_letters}{string.digits}._-", min_size=1, max_size=20).filter(TOPIC_NAME.fullmatch)
TIMES = st.none() | st.integers(0, 2**53)
PLACES = st.builds(
    Places,
    rows=st.dictionaries(
        st.builds(TopicPartition, NAMES, st.integers(0, 10_000)),
        st.builds(
            Place,
            commit=st.builds(Commit, st.integers(0, 2**63 - 1), st.text(max_size=20)),
            topic_id=st.text(string.ascii_letters, max_size=22),
            seen_ms=st.integers(0, 2**53),
            committed_after_ms=TIMES,
            kept_ms=TIMES,
            lasts_until_ms=TIMES,
            lost_ms=TIMES,
            hidden_ms=TIMES,
            last_seen_ms=TIMES,
        ),
        max_size=5,
    ),
    looked_ms=TIMES,
    occupied_ms=TIMES,
    vacant=st.booleans(),
)


def many(count: int) -> Places:
    names = random.Random(5)
    return Places(
        {
            TopicPartition(f"topic-{names.getrandbits(64)}", n): Place(Commit(names.getrandbits(40)), "id", n)
            for n in range(count)
        }
    )


@given(PLACES)
def test_what_is_written_reads_the_same(places: Places) -> None:
    assert decode(encode(places, "payments"), "payments") == places


def test_many_offsets_are_compressed_and_read_the_same() -> None:
    places = many(20_000)

    data = encode(places, "payments")

    assert list(data) == [PACKED]
    assert len(data[PACKED]) < 1_000_000
    assert decode(data, "payments") == places


ROW = {"topic": "orders", "partition": 0, "offset": 3, "topicId": "id", "seenMs": 1}
WRITTEN = {"group": "payments", "lookedMs": 1, "occupiedMs": None, "vacant": True, "offsets": [ROW]}
WRONG = [{"lookedMs": "soon"}, {"lookedMs": math.inf}, {"occupiedMs": -1}, {"occupiedMs": [1]}, {"offsets": [3]}]
WRONG_ROW: list[dict[str, object]] = [
    {"partition": math.inf},
    {"partition": -1},
    {"offset": math.nan},
    {"offset": "3"},
    {"seenMs": 10**400},
    {"keptMs": "1"},
    {"lostMs": True},
    {"lastsUntilMs": math.inf},
    {"committedAfterMs": {}},
    {"topic": "\ud800"},
    {"topic": ""},
    {"topic": "or ders"},
    {"topic": 3},
    {"metadata": "\ud800"},
]


def test_few_offsets_stay_readable() -> None:
    assert encode(many(3), "payments")[PLAIN].count("\n") == 5


def test_more_than_fits_is_refused_with_the_numbers() -> None:
    noise = random.Random(7)
    rows = {p: Place(Commit(1, "".join(noise.choices(string.printable, k=500))), "id", 1) for p in many(3_000).rows}

    with pytest.raises(TooLarge, match="3,000 offsets take"):
        encode(Places(rows), "payments")


def test_another_groups_snapshot_says_nothing() -> None:
    assert decode(encode(many(3), "payments"), "refunds") == Places()


@pytest.mark.parametrize(
    "data",
    [
        *({PLAIN: json.dumps({**WRITTEN, **change})} for change in WRONG),
        *({PLAIN: json.dumps({**WRITTEN, "offsets": [{**ROW, **change}]})} for change in WRONG_ROW),
    ],
    ids=ascii,
)
def test_wrong_numbers_and_names_are_a_value_error(data: dict[str, str]) -> None:
    assert len(decode({PLAIN: json.dumps(WRITTEN)}, "payments").rows) == 1
    with pytest.raises(ValueError, match="not a snapshot of offsets"):
        decode(data, "payments")


@pytest.mark.parametrize(
    "data",
    [{}, {PLAIN: "{}"}, {PLAIN: "["}, {PLAIN: "[]"}, {PACKED: "%"}, {PACKED: "YWJj"}, {PLAIN: '{"group": "payments"}'}],
    ids=str,
)
def test_anything_else_is_a_value_error(data: dict[str, str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is for the log
        decode(data, "payments")
