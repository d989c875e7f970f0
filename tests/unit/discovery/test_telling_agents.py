"""What of a topic's partitions is written for agents, and how often a cluster is looked at."""

from __future__ import annotations

import pytest

from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery import ages
from tidegate.discovery.ages import Ages
from tidegate.discovery.state import KnownTopic, least_interval_s
from tidegate.kafka.model import Topic

FIRST = PartitionSeen(initial=True)
LATER = PartitionSeen(7_000, 6_000)


def key(number: int) -> PartitionKey:
    return PartitionKey("orders", "id", number)


def lacking(
    settled: int, *, written: dict[int, PartitionSeen], seen: dict[int, PartitionSeen], partitions: int = 1_000
) -> dict[int, bool]:
    """By number of the partitions that are to be written, whether they were there at first."""
    ages = Ages(written={key(n): told for n, told in written.items()}, seen={key(n): told for n, told in seen.items()})
    known = KnownTopic("id", 0, settled)
    return {k.partition: told.initial for k, told in ages.lacking("orders", known, partitions).items()}


@pytest.mark.parametrize(
    ("settled", "written", "seen", "told"),
    [
        (0, {}, {}, {}),
        (50, {}, {}, {49: True}),
        (50, {49: FIRST}, {}, {}),
        (50, {49: LATER}, {}, {48: True}),
        (52, {49: FIRST}, {50: LATER, 51: LATER}, {50: False, 51: False}),
        (52, {49: FIRST, 51: LATER}, {}, {50: True}),
        (3, {0: FIRST, 1: FIRST, 2: FIRST}, {}, {}),
        (6, {1: FIRST, 4: LATER}, {5: LATER}, {3: True, 5: False}),
    ],
)
def test_the_highest_that_was_there_at_first_is_told_and_each_that_came_later(
    settled: int, written: dict[int, PartitionSeen], seen: dict[int, PartitionSeen], told: dict[int, bool]
) -> None:
    assert lacking(settled, written=written, seen=seen) == told


def test_of_partitions_that_there_are_not_nothing_is_told() -> None:
    """What is settled is remembered in a ConfigMap, which somebody may have edited."""
    assert lacking(2_000, written={}, seen={}, partitions=3) == {2: True}


@pytest.mark.parametrize(("topics", "partitions", "at_least_s"), [(0, 0, 0.0), (400, 10, 0.19), (5_000, 10, 2.3)])
def test_the_larger_a_cluster_is_the_less_often_it_is_looked_at(
    topics: int, partitions: int, at_least_s: float
) -> None:
    least_s = least_interval_s([Topic(f"topic-{n}", "id", partitions) for n in range(topics)])

    assert least_s == pytest.approx(at_least_s, abs=0.05)


def test_when_partitions_came_of_topics_that_nobody_remembers_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "_MANY", 3)
    known = Ages(seen={PartitionKey("t", f"id-{number}", 0): LATER for number in range(5)})

    known.forget_others({"id-4"})

    assert known.seen == {PartitionKey("t", "id-4", 0): LATER}
