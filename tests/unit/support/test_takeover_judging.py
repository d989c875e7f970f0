"""What is found where leaders are killed and frozen: each judge is shown what it has to complain of."""

from __future__ import annotations

from typing import Any

import pytest

from support.deliveries import Delivery
from support.takeover.judging import (
    HoldRecord,
    Mark,
    Standing,
    Write,
    applied_twice,
    flapping_pause,
    flapping_reset,
    late_writes,
    left_held,
    lost_holds,
    read_twice,
    read_while_paused,
    told_twice,
)
from support.takeover.plan import EPISODES, Fault, Moment, PauseMoment

JOURNAL = ["Planning", "Pausing", "Verifying", "Pausing", "Verifying"]
PAUSE = Standing("p", "hold", ("orders", 3), paused=10.0, let_go=20.0)


def status(phase: str, **conditions: str) -> dict[str, Any]:
    return {"phase": phase, "conditions": [{"type": kind, "status": said} for kind, said in conditions.items()]}


def paused(**more: Any) -> dict[str, Any]:
    return {**status("Paused", Ready="True", Paused="True"), "paused": "1/1", "partitions": [{"since": "1"}], **more}


def test_every_moment_is_aimed_at_with_every_fault() -> None:
    assert len(EPISODES) == 20
    assert {(e.fault, e.moment) for e in EPISODES} == {(fault, moment) for fault in Fault for moment in Moment}
    assert {(e.fault, e.pause) for e in EPISODES} == {(fault, pause) for fault in Fault for pause in PauseMoment}


@pytest.mark.parametrize(
    ("phases", "complaint"),
    [
        (["Pending", "Planning", "Pausing", "Verifying", "Succeeded"], ""),
        (["Pending", "Pausing", "Verifying", "Pausing", "Verifying", "Succeeded"], ""),
        (["Pending", "Succeeded"], ""),
        (["Pending", "Verifying", "Planning", "Succeeded"], "its status went Pending → Verifying → Planning"),
        (["Pausing", "Verifying", "Pausing", "Verifying", "Pausing"], "and its run Planning → Pausing → Verifying"),
        (["Planning", "Applying", "Succeeded"], "its status went Planning → Applying"),
        (["Planning", "Succeeded", "Pausing"], "went on after an end"),
        (["Planning", "Failed", "Succeeded"], "went on after an end"),
    ],
)
def test_a_status_follows_the_journal_of_its_run(phases: list[str], complaint: str) -> None:
    found = list(flapping_reset("r", [status(phase) for phase in phases], JOURNAL))

    assert [complaint in text for text in found] == ([True] if complaint else [])


def test_a_reset_is_complete_once_and_never_stalled() -> None:
    there_and_back = [status("Planning", Complete=said) for said in ("Unknown", "True", "Unknown")]
    stalled = [status("Planning", Stalled="True")]
    failed = [status("Failed", Stalled="True")]

    assert not list(flapping_reset("r", there_and_back[:2], JOURNAL))
    assert "Unknown → True → Unknown" in next(flapping_reset("r", there_and_back, JOURNAL))
    assert "stalled" in next(flapping_reset("r", stalled, JOURNAL))
    assert not list(flapping_reset("r", failed, JOURNAL))


@pytest.mark.parametrize(
    ("statuses", "complaint"),
    [
        ([status("Pausing"), paused(), paused(), status("Resuming"), status("Resumed")], ""),
        ([paused(), status("Resuming")], ""),
        ([paused(), status("Pausing"), paused()], "Paused → Pausing → Paused"),
        ([paused(), status("Degraded")], "Paused → Degraded"),
        ([paused(), paused(paused="0/1")], "paused was 1/1 → 0/1"),
        ([paused(), paused(partitions=[{"since": "2"}])], "it said since ['1'] → ['2']"),
        ([paused(), paused(conditions=[{"type": "Ready", "status": "True"}])], "condition Paused was True → "),
    ],
)
def test_a_pause_goes_forward_and_stays(statuses: list[dict[str, Any]], complaint: str) -> None:
    found = list(flapping_pause("p", statuses))

    assert [complaint in text for text in found] == ([True] if complaint else [])


def test_an_event_is_recorded_once() -> None:
    assert not list(told_twice("p", ["Pausing", "Paused"]))
    assert len(list(told_twice("p", ["Pausing", "Paused", "Pausing"]))) == 1


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([(5.0, True), (20.1, False)], ""),
        ([], "never written"),
        ([(5.0, True)], "was held"),
        ([(5.0, True), (19.5, False)], "0.500 s before its end"),
        ([(5.0, True), (12.0, True), (20.1, False)], "held, held, released"),
        ([(5.0, True), (12.0, False), (13.0, True), (20.1, False)], "held, released, held, released"),
        ([(5.0, True), (20.1, False), (20.2, False)], "held, released, released"),
    ],
)
def test_a_hold_is_written_once_and_released_once(records: list[tuple[float, bool]], complaint: str) -> None:
    told = [HoldRecord(t, "hold", holds) for t, holds in records] + [HoldRecord(1.0, "another", False)]

    found = list(lost_holds([PAUSE], told))

    assert [complaint in text for text in found] == ([True] if complaint else [])


def test_nothing_is_held_in_the_end() -> None:
    records = [HoldRecord(1.0, "a", True), HoldRecord(1.0, "b", True), HoldRecord(2.0, "a", False)]

    assert list(left_held(records)) == ["b is held still"]


def test_nothing_is_read_while_a_pause_stands_and_nothing_twice() -> None:
    def read(t: float, partition: int = 3, offset: int = 0) -> Delivery:
        return Delivery(t, "m", "orders", partition, offset, None)

    assert not list(read_while_paused([PAUSE], [read(9.9), read(15.0, partition=2), read(20.1)]))
    assert len(list(read_while_paused([PAUSE], [read(9.9), read(15.0)]))) == 1
    assert not list(read_twice("g", [read(1.0), read(2.0, offset=1), read(3.0, partition=2)]))
    assert "1 records" in next(read_twice("g", [read(1.0), read(2.0)]))


@pytest.mark.parametrize(
    ("marks", "once", "complaint"),
    [
        ([(1.0, 1)], True, ""),
        ([(1.0, 1), (2.0, 2)], True, ""),
        ([(1.0, 1), (1.5, 1), (2.0, 2)], False, ""),
        ([], True, ""),
        ([(1.0, 1), (1.5, 1)], True, "a round twice: [1, 1]"),
        ([(1.0, 1), (2.0, 3)], True, "its journal has [1, 2]"),
        ([(1.0, 2), (2.0, 1)], False, "in the order [2, 1]"),
        ([(1.0, 1), (9.0, 2)], False, "1.000 s after its end"),
    ],
)
def test_what_a_run_commits_belongs_to_it(marks: list[tuple[float, int]], once: bool, complaint: str) -> None:
    found = list(applied_twice("r", [Mark(*mark) for mark in marks], {1, 2}, 8.0, once=once))

    assert [complaint in text for text in found] == ([True] if complaint else [])


def test_who_wakes_after_others_lead_changes_nothing() -> None:
    before, refused, others = (
        Write(4.9, "a", "update", "leases/l", 200),
        Write(5.1, "a", "update", "offsetresets/r/status", 409),
        Write(5.2, "b", "update", "offsetresets/r/status", 200),
    )
    late = Write(5.2, "a", "update", "offsetresets/r/status", 200)

    assert not list(late_writes("a", 5.0, [before, refused, others]))
    assert list(late_writes("a", 5.0, [before, late])) == ["a, 0.200 s after it woke: update offsetresets/r/status"]
