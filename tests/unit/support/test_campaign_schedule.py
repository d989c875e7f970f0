"""Schedules of the campaign are drawn from their seed alone, and all of what may happen does happen."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from support.campaign.schedule import (
    BROKERS,
    EVERYTHING_FROM,
    SESSION_S,
    Carrier,
    FaultKind,
    Schedule,
    Step,
    can_commit_by_transactions,
    draw,
)
from support.clients import ClientKind, CommitMode, GroupProtocol
from support.clients.options import TRANSACTIONAL
from support.life_story import TargetKind
from support.reset_trial import FIRST_CLIENTS, UNSUPPORTED
from tidegate.resources.reset import ResetPhase

SEEDS = range(600)
MORE = range(EVERYTHING_FROM, EVERYTHING_FROM + 600)


@pytest.fixture(scope="module")
def schedules() -> list[Schedule]:
    return [draw(seed) for seed in SEEDS]


def test_a_seed_is_the_same_schedule_each_time(schedules: list[Schedule]) -> None:
    random.seed(1)

    assert [draw(seed) for seed in reversed(SEEDS)] == schedules[::-1]
    assert len({str(schedule).partition(":")[2] for schedule in schedules}) == len(SEEDS)


def test_a_schedule_keeps_its_meaning() -> None:
    """Whoever changes the drawing changes what a seed in the table means: this is where it shows."""
    assert [draw(seed).digest for seed in (0, 1, 2)] == ["6931f794", "08d8a4cf", "94b309b2"]


def test_everything_happens_somewhere(schedules: list[Schedule]) -> None:
    cells = [schedule.cell for schedule in schedules]
    runs = [run for schedule in schedules for run in schedule.runs]
    steps = [step for schedule in schedules for step in schedule.steps]
    faults = [fault for schedule in schedules for fault in schedule.faults]

    assert {cell.kind for cell in cells} == set(FIRST_CLIENTS)
    assert {cell.protocol for cell in cells} == set(GroupProtocol)
    assert {cell.static for cell in cells} == {cell.agent for cell in cells} == {False, True}
    not_drawn = {CommitMode.NONE, CommitMode.TRANSACTIONS, CommitMode.ABORTS}
    assert {cell.commit for cell in cells} == set(CommitMode) - not_drawn
    assert {cell.members for cell in cells} == {1, 2, 3}
    assert {run.to.kind for run in runs} == set(TargetKind)
    assert {run.carrier for run in runs} == set(Carrier)
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {fault.phase for fault in faults} == {None, ResetPhase.PLANNING, ResetPhase.PAUSING, ResetPhase.VERIFYING}
    assert {fault.victim for fault in faults if fault.kind.is_of_broker} == set(range(BROKERS))
    assert {len(step.runs) for step in steps} == {0, 1, 2, 3}
    assert {len(step.faults) for step in steps} == {0, 1, 2}
    assert any(step.paused and step.runs for step in steps)


def test_all_clients_and_ways_to_commit_are_drawn_from_a_seed_on() -> None:
    cells = [draw(seed).cell for seed in MORE]
    by_transactions = [cell for cell in cells if cell.commit in (CommitMode.TRANSACTIONS, CommitMode.ABORTS)]

    assert {cell.kind for cell in cells} == set(ClientKind)
    assert {cell.commit for cell in cells} == set(CommitMode) - {CommitMode.NONE}
    assert {cell.kind for cell in by_transactions} == TRANSACTIONAL
    assert len(by_transactions) > len(cells) / 20
    assert all(can_commit_by_transactions(cell) for cell in by_transactions)
    assert "transactions of 2 s" in {draw(seed).application for seed in MORE}


def test_no_client_is_rare(schedules: list[Schedule]) -> None:
    often = Counter(schedule.cell.kind for schedule in schedules)

    assert min(often.values()) > len(SEEDS) / len(FIRST_CLIENTS) / 2


def test_most_schedules_leave_the_brokers_alone(schedules: list[Schedule]) -> None:
    share = sum(schedule.wants_brokers_alone for schedule in schedules) / len(SEEDS)

    assert 0.1 < share < 0.4


def test_nothing_is_asked_for_that_cannot_be(schedules: list[Schedule]) -> None:
    for schedule in schedules:
        cell = schedule.cell
        assert (cell.kind, cell.assignor or "") not in UNSUPPORTED
        assert len({run.name for run in schedule.runs}) == len(schedule.runs)
        for step in schedule.steps:
            assert step.runs or step.paused or step.faults or step.rest_s >= 0
            assert {*step.paused} <= {*range(cell.partitions)}, schedule
            assert all({*run.partitions} <= {*range(cell.partitions)} and run.partitions for run in step.runs), schedule
            assert cell.agent or not step.paused, schedule
            assert sum(fault.kind.is_of_broker for fault in step.faults) <= 1, schedule
            for fault in step.faults:
                assert step.runs or not fault.kind.is_of_writer, schedule
                assert fault.phase is None or step.runs[fault.run].carrier is Carrier.JOB, schedule


def test_an_undo_is_of_an_earlier_job(schedules: list[Schedule]) -> None:
    for schedule in schedules:
        over: dict[str, object] = {}
        for step in schedule.steps:
            for run in step.runs:
                if run.to.kind is TargetKind.UNDO:
                    undone = over[str(run.to.value)]
                    assert getattr(undone, "carrier", None) is Carrier.JOB, schedule
                    assert getattr(undone, "partitions", None) == run.partitions, schedule
            over |= {run.name: run for run in step.runs}


def test_nobody_knows_when_a_backfill_acts_so_it_has_its_partitions_for_itself(schedules: list[Schedule]) -> None:
    for step in (step for schedule in schedules for step in schedule.steps):
        for run in step.runs:
            if run.carrier is Carrier.BACKFILL:
                assert run.to.kind is TargetKind.EARLIEST
                assert not any({*run.partitions} & {*other.partitions} for other in step.runs if other is not run)


def test_who_may_crash_is_missed_soon(schedules: list[Schedule]) -> None:
    for schedule in schedules:
        crashes = any(fault.kind is FaultKind.CONSUMER_KILLED for fault in schedule.faults)
        classic = schedule.cell.protocol is GroupProtocol.CLASSIC
        assert schedule.cell.session_s == (SESSION_S if crashes and classic else None), schedule


def test_a_late_committer_says_how_late(schedules: list[Schedule]) -> None:
    for cell in (schedule.cell for schedule in schedules):
        assert (cell.in_flight_s > cell.hold_s) == (cell.commit is CommitMode.WORKER), cell


def test_a_schedule_says_what_happens() -> None:
    said = str(draw(3))

    assert said.startswith("seed 3: ")
    for step in draw(3).steps:
        assert str(step) in said
    assert str(Step((), (1, 2), (), 0.5)) == "pause 1,2"
