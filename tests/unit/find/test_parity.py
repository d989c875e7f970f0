"""What comparing two logs offset by offset says about carrying offsets over."""

from __future__ import annotations

import json

import pytest

from tidegate.cli.parity import _table
from tidegate.find.parity import Difference, LogPair, Parity, as_json
from tidegate.kafka.model import LogBounds, TopicPartition

ORDERS = TopicPartition("orders", 0)


def parity(
    here: tuple[int, int] = (0, 10),
    there: tuple[int, int] = (0, 10),
    compared: int = 10,
    compacted: bool = False,
    **first: int,
) -> Parity:
    pair = LogPair(ORDERS, TopicPartition("old.orders", 0), LogBounds(*here), LogBounds(*there), compacted)
    return Parity(pair, compared, {Difference(name): offset for name, offset in first.items()})


@pytest.mark.parametrize(
    ("found", "carries_over", "says"),
    [
        (parity(), True, "the same"),
        (parity(here=(2, 8)), True, "the same; 2 offsets are not here yet; 2 offsets at the start are no longer here"),
        (parity(compared=4, Value=4, OnlyThere=9), False, "differs from offset 4 on: the values are not the same"),
        (parity(compared=4, Timestamp=4, Value=4), False, "differs from offset 4 on: the times are not the same"),
        (parity(compared=9, OnlyHere=3), False, "differs from offset 3 on: a record that the other cluster lacks"),
        (parity(compared=9, compacted=True, OnlyHere=3), True, "the same"),
        (parity(compared=9, compacted=True, OnlyHere=3, Key=5), False, "differs from offset 5 on"),
        (parity(here=(0, 4), there=(6, 9), compared=0), False, "nothing to compare"),
        (parity(here=(7, 7), there=(7, 7), compared=0), True, "the same"),
        (parity(compared=0, compacted=True), True, "the same"),
        (parity(compared=0, compacted=True, OnlyHere=3, OnlyThere=5), False, "nothing to compare"),
    ],
)
def test_offsets_carry_over_where_no_record_says_otherwise(found: Parity, carries_over: bool, says: str) -> None:
    assert found.carries_over is carries_over
    assert found.verdict.startswith(says)


def test_it_is_said_to_a_person_and_to_a_program() -> None:
    found = [parity(), parity(compared=4, Value=4)]

    header, same, differs = _table(found).splitlines()
    assert header.split() == ["TOPIC", "PARTITION", "OFFSETS", "OTHER-OFFSETS", "COMPARED", "CARRIES-OVER", "VERDICT"]
    assert same.split()[:6] == ["orders", "0", "0-10", "0-10", "10", "yes"]
    assert differs.endswith("no            differs from offset 4 on: the values are not the same")
    told = json.loads(as_json(found))
    assert told["carriesOver"] is False
    assert [p["firstDivergence"] for p in told["partitions"]] == [None, 4]
    assert told["partitions"][1]["difference"] == "Value"
