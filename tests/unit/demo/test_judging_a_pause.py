"""The demo's second verdict can end badly in each way in which a pause can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo.pausing import PauseFacts, Reading, judge_pause
from support.clients import Event, EventKind
from support.deliveries import Delivery, Partition

PAUSED: Partition = ("access-log", 0)
OTHER: Partition = ("access-log", 1)
QUIET: Partition = ("access-log", 2)
"""Has no record while the first one is paused."""
FACTS = PauseFacts(
    owners={PAUSED: "Java"},
    applied_at=10.0,
    paused_at=10.5,
    stopped_at={PAUSED: 100},
    reset_began=12.0,
    phase="Succeeded",
    way="Gated",
    message="",
    targets={PAUSED: 40},
    expected={PAUSED: 40},
    ends={PAUSED: 110, OTHER: 170, QUIET: 7},
    released_at=20.0,
    flowed_at=21.0,
)


def _reading(
    *, during: tuple[Delivery, ...] = (), first: int = 40, others_until: int = 250, moves: tuple[Event, ...] = ()
) -> Reading:
    paused = [Delivery(o * 0.1, "c0", *PAUSED, o) for o in range(100)]
    again = [Delivery(20.5 + (o - first) * 0.01, "c0", *PAUSED, o) for o in range(first, 120)]
    others = [Delivery(o * 0.1, "c1", *OTHER, o) for o in range(others_until)]
    quiet = [Delivery(o * 0.1, "c1", *QUIET, o) for o in range(7)]
    acked = {PAUSED: range(120), OTHER: range(250), QUIET: range(7)}
    given = [*paused, *during, *again, *others, *quiet]
    events = [Event(1.0, "Java", EventKind.ASSIGN, (PAUSED,)), *moves]
    return Reading(given, events, acked, {PAUSED: 120, OTHER: 250, QUIET: 7})


def _wrong(facts: PauseFacts, read: Reading) -> list[str]:
    return [f.sentence for f in judge_pause(facts, read) if f.passed is False]


def test_a_pause_that_holds_is_well() -> None:
    assert not _wrong(FACTS, _reading())
    stood = judge_pause(FACTS, _reading())[0].sentence
    assert stood.startswith("partition 0 of fraud-watch, with a Java consumer, was paused at offset 100 for 9.5 s")


@pytest.mark.parametrize("kind", [EventKind.ASSIGN, EventKind.REVOKE, EventKind.LOST])
def test_a_rebalance_meanwhile_is_wrong(kind: EventKind) -> None:
    told = _wrong(FACTS, _reading(moves=(Event(15.0, "Java", kind, (OTHER,)),)))

    assert told == [f"fraud-watch: a rebalance moved partitions meanwhile: Java: {kind}"]


def test_a_rebalance_before_or_after_is_none_of_its_business() -> None:
    later, commit = Event(21.1, "Java", EventKind.REVOKE, (OTHER,)), Event(15.0, "Java", EventKind.COMMIT)

    assert not _wrong(FACTS, _reading(moves=(later, commit)))


def test_a_record_of_the_paused_partition_is_wrong() -> None:
    leak = Delivery(15.0, "c0", *PAUSED, 100)

    assert "1 records of access-log-0 were delivered while it was paused" in _wrong(FACTS, _reading(during=(leak,)))


def test_others_that_stop_as_well_are_wrong() -> None:
    assert "other partitions stalled meanwhile: access-log-1" in _wrong(FACTS, _reading(others_until=169))


def test_others_that_had_nothing_to_deliver_show_nothing() -> None:
    facts = replace(FACTS, ends={PAUSED: 110, OTHER: 100, QUIET: 7})

    assert any("nothing was delivered" in s for s in _wrong(facts, _reading(others_until=100)))


def test_going_on_elsewhere_than_at_the_target_is_wrong() -> None:
    assert any("partition 0 went on at 41, not at its target 40" in s for s in _wrong(FACTS, _reading(first=41)))


def test_a_target_other_than_the_records_say_is_wrong() -> None:
    assert any("target 40" in s for s in _wrong(replace(FACTS, expected={PAUSED: 39}), _reading()))


def test_a_reset_that_failed_is_wrong() -> None:
    assert any("Failed" in s for s in _wrong(replace(FACTS, phase="Failed"), _reading()))


def test_offsets_short_of_the_end_are_wrong() -> None:
    read = _reading()

    behind = replace(read, committed={**read.committed, OTHER: 249})
    assert any("the end of these partitions was not committed" in s for s in _wrong(FACTS, behind))
