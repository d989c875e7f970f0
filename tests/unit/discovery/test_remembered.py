"""What discovery remembers: one document, and what two versions of Tidegate have written."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tidegate.control.records import PartitionSeen
from tidegate.discovery.remembered import Counts, Remembered, decode, encode, merged, untold_of
from tidegate.discovery.state import DiscoveryState, KnownTopic
from tidegate.kafka.model import TopicPartition


def remembered(**topics: KnownTopic) -> Remembered:
    return Remembered(DiscoveryState(True, topics), ("*",), Counts(1, 2, 3), ("orders", "re*"))


def test_what_is_encoded_is_decoded() -> None:
    written = remembered(orders=KnownTopic("a", 2, 3), refunds=KnownTopic("c", 0, 1, ("b",)))
    above = {
        "audit": KnownTopic("d", 1, 2, (), frozenset({3, 5})),
        "gone": KnownTopic("e", 1, 2, ("f", "g"), frozenset({9})),
    }

    assert decode(json.loads(json.dumps(encode(remembered(**above))))) == remembered(**above)
    assert decode(json.loads(json.dumps(encode(written)))) == written
    assert decode(encode(Remembered())) == Remembered()
    elsewhere = Remembered(DiscoveryState(True, {}, {"g": 4, "a": 2}), cluster_id="c")
    decoded = decode(json.loads(json.dumps(encode(elsewhere))))
    assert decoded == elsewhere
    assert list(decoded.state.gone) == ["g", "a"]


def test_what_agents_were_not_told_is_kept_by_ranges() -> None:
    early, late = PartitionSeen(7_000, 6_000), PartitionSeen(9_000)
    partitions = {
        **{TopicPartition("orders", number): early for number in range(2, 5_000)},
        TopicPartition("orders", 5_000): late,
        TopicPartition("orders", 5_002): late,
        TopicPartition("refunds", 0): None,
    }

    ranges = untold_of(partitions)

    assert ranges == (
        ("orders", 2, 4_999, early),
        ("orders", 5_000, 5_000, late),
        ("orders", 5_002, 5_002, late),
        ("refunds", 0, 0, None),
    )
    written = Remembered(untold=ranges)
    assert decode(json.loads(json.dumps(encode(written)))) == written


@pytest.mark.parametrize(
    "rows",
    [
        [["a", 0, 3], ["a", 3, 4]],
        [["b", 0, 0], ["a", 1, 1]],
        [["a", 0, 2**31]],
        [["a", -1, 0]],
        [["a", 0, 0, 1.5, None]],
        [["a", 0, 0, 7]],
        ["text"],
        [7],
        {"a": 1},
        7,
    ],
)
def test_what_nobody_has_written_of_what_agents_were_not_told_is_refused(rows: Any) -> None:
    document = json.loads(json.dumps(encode(Remembered()))) | {"untold": rows}

    with pytest.raises(ValueError, match="what discovery has stored can't be read"):
        decode(document)


def test_of_two_versions_the_larger_numbers_hold_for_each_topic_id() -> None:
    ours = remembered(
        orders=KnownTopic("a", 2, 5, (), frozenset({7})), refunds=KnownTopic("b", 1, 1), audit=KnownTopic("d", 1, 1)
    )
    earlier = Remembered(
        DiscoveryState(
            True,
            {
                "orders": KnownTopic("a", 4, 4, (), frozenset({5})),
                "refunds": KnownTopic("c", 0, 1),
                "new": KnownTopic("e", 3, 3),
            },
        ),
        ("*",),
        Counts(4, 0, 3),
    )

    both = merged(ours, earlier)

    assert both.state.topics == {
        "orders": KnownTopic("a", 4, 6, (), frozenset({7})),
        "refunds": KnownTopic("c", 0, 1, ("b",)),
        "audit": KnownTopic("d", 1, 1),
        "new": KnownTopic("e", 3, 3),
    }
    assert (both.counts, both.selection, both.allowed) == (Counts(4, 2, 3), ("*",), None)


def test_a_topic_that_the_earlier_version_knew_before_it_was_made_anew_is_the_newer_one() -> None:
    ours = remembered(refunds=KnownTopic("c", 0, 1, ("b",)))

    assert merged(ours, remembered(refunds=KnownTopic("b", 1, 1))).state == ours.state


@pytest.mark.parametrize(
    "change",
    [
        {"topics": {"orders": ["a", math.inf, 1]}},
        {"topics": {"orders": ["a", math.nan, 1]}},
        {"topics": {"orders": ["a", "two", 1]}},
        {"topics": {"orders": ["a", 0, -1]}},
        {"topics": {"orders": ["a", 10**400, 1]}},
        {"topics": {"orders": ["a", 0, 2**31]}},
        {"topics": {"orders": ["a", 2**31, 1]}},
        {"gone": {"b": 2**31}},
        {"topics": {"orders": ["a"]}},
        {"topics": {"orders": ["a", 0, 1, "", 2]}},
        {"topics": {"orders": ["a", 0, 1, "", [2, -1]]}},
        {"topics": {"orders": 3}},
        {"topics": ["orders"]},
        {"counts": [1, 2, math.inf]},
        {"counts": [1, 2, -3]},
        {"counts": [1, 2, 2**53]},
        {"counts": [1, 2, 3, 4]},
        {"counts": 1},
        {"selection": 7},
        {"allowed": True},
    ],
    ids=str,
)
def test_a_document_that_was_changed_into_nonsense_is_a_value_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="what discovery has stored can't be read"):
        decode({**encode(remembered(orders=KnownTopic("a", 2, 3))), **change})
