"""Trials of replays that end: a live group whose members run the agent is replayed up to an end, and returns.

A replay is two resets to a trial's history: to the targets, and once the replay has ended to where the group goes on.
So the independent checker judges both, and what was lost; what is judged here besides is the end itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from support.deliveries import Delivery, Partition
from support.history import Phase, Place, ResetBegin, ResetEnd
from support.reset_trial import Cell, Trial, execute_and_die
from tidegate.clock import SystemClock
from tidegate.control.records import Hold, HoldKey
from tidegate.control.standing import standings
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.applying.replay import HELD, look
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest, Selection, Until
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.resources.replay import Then
from tidegate.resources.reset import ResetPhase, Way

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Replay:
    """One that is over. Offsets by partition: the first that was replayed, the first that was not, where the group goes
    on; times in epoch seconds: when the run first touched the group, and when it was over."""

    targets: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    goals: Mapping[Partition, int]
    touched_at: float
    over_at: float
    result: RunResult


def replay(
    trial: Trial,
    *,
    back: int = 60,
    records: int = 30,
    then: Then = Then.RETURN,
    dies_in: Collection[ResetPhase] = (),
    dies_after_it_in: Collection[ResetPhase] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> Replay:
    """Replay half of the partitions: ``records`` of each, from ``back`` before what is committed.

    ``dies_in``: the phases in which a writer is killed, each at its first entry of it, until one lives;
    ``dies_after_it_in``: the same once the replay has ended. ``meanwhile``: called once the group reads from its
    targets.
    """
    partitions = trial.random.sample(trial.partitions, max(2, len(trial.partitions) // 2))
    committed = trial.committed()
    targets = {p: max(0, committed[p] - back) for p in partitions}
    rows = tuple(PartitionOffset(*p, o) for p, o in sorted(targets.items()))
    numbers = frozenset(number for _, number in partitions)
    name = f"replay-{time.time_ns()}"
    request = replace(
        trial.ask(name, FromFile(rows, "trial"), (Selection(trial.topic, numbers),)),
        until=Until(then, timedelta(minutes=5), records=records),
    )
    store = trial.store(request)
    trial.tell(ResetBegin(time.time(), f"{name}-to", tuple(Place(*p, o) for p, o in sorted(targets.items()))))
    for phase in dies_in:
        execute_and_die(trial.folder, request.run_uid, phase)
    assert _carry_out(request, store) is None, store.load().result
    trial.tell(ResetEnd(time.time(), f"{name}-to", Phase.SUCCEEDED))
    run = store.load()
    assert run.plan is not None
    assert run.last is not None
    assert run.last.phase is ResetPhase.REPLAYING
    ends = {(p.topic, p.partition): o for p, o in run.plan.ends.items()}
    before = {(b.topic, b.partition): b.offset for b in run.last.before}
    goals = {p: before[p] if then is Then.RETURN else ends[p] for p in ends}
    meanwhile()
    _wait_until_over(trial, request, store)
    touched = next(p.at.timestamp() for p in run.journal if p.round > 0)
    trial.tell(ResetBegin(time.time(), f"{name}-back", tuple(Place(*p, o) for p, o in sorted(goals.items()))))
    for phase in dies_after_it_in:
        execute_and_die(trial.folder, request.run_uid, phase)
    result = _carry_out(request, store)
    assert result is not None
    if result.reason == HELD:
        _pause_for_a_while(trial, request, store)
    over = time.time()
    trial.tell(ResetEnd(over, f"{name}-back", Phase(result.phase), result.message))
    return Replay(targets, ends, goals, touched, over, result)


def _carry_out(request: RunRequest, store: DirectoryRunStore) -> RunResult | None:
    kafka = KafkaClient(request.connection)
    try:
        return job.execute(store, kafka, SystemClock())
    finally:
        kafka.close()


def _pause_for_a_while(trial: Trial, request: RunRequest, store: DirectoryRunStore) -> None:
    """What the operator does, and then whoever deletes the pause."""
    plan, control = store.load().plan, trial.kafka.control
    assert plan is not None
    pause = {HoldKey(trial.group, p.topic, p.partition, "pause/trial/end"): Hold("here", 5_000) for p in plan.ends}
    control.hold(pause)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        group = trial.kafka.groups([trial.group])[trial.group]
        found = standings(control.read([trial.group]), group, list(plan.ends))
        if all(each.is_paused for each in found.values()):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    job.keep_limits(store, trial.kafka, SystemClock(), lifted=True)
    assert limits_left(trial) == len(pause)
    assert trial.committed() | {(p.topic, p.partition): end for p, end in plan.ends.items()} == trial.committed()
    control.release(list(pause))


def _wait_until_over(trial: Trial, request: RunRequest, store: DirectoryRunStore) -> None:
    plan = store.load().plan
    assert plan is not None
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look(trial.kafka, plan, request.run_uid)).is_over:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def faults(replay: Replay, records: Collection[Delivery]) -> list[str]:
    """What is wrong with the end of a replay, by what members were given until the group had gone on: nothing from the
    end on, everything before it once, and then exactly where it goes on."""
    found = []
    for partition, target in replay.targets.items():
        end, goal = replay.ends[partition], replay.goals[partition]
        given = [d.offset for d in records if (d.topic, d.partition) == partition and d.t > replay.touched_at]
        # Up to the gate's closing the old owner may read on where it was.
        since = next((n for n, offset in enumerate(given) if offset == target), None)
        if since is None:
            found.append(f"{partition}: nobody began at {target}")
            continue
        if given[since : since + end - target] != list(range(target, end)):
            found.append(f"{partition}: not {target} to {end - 1}, but {given[since : since + end - target + 1]}")
        after = given[since + end - target :]
        if after and after[0] != goal:
            found.append(f"{partition}: {after[0]} came after the end at {end}, not {goal}")
    return found


def limits_left(trial: Trial) -> int:
    """Of the trial's group."""
    gates = trial.kafka.control.read()
    return sum(key.group == trial.group for key in (*gates.limits, *gates.holds))


def replays(bootstrap: str, cell: Cell, folder: Path, times: int, *, joins: bool = False, **how: Any) -> None:
    """That many times, and nothing is missing: by the checker, which knows of no agent and of no limit.

    ``joins``: another member comes during each replay.
    """
    with Trial(bootstrap, cell, folder, seed=times, name="replayed") as trial:
        for _ in range(times):
            trial.wait_settled(0.5)

            def meanwhile() -> None:
                if joins:
                    trial.fleet.add()
                    trial.wait_settled(0.5)

            done = replay(trial, meanwhile=meanwhile, **how)
            assert done.result.phase is ResetPhase.SUCCEEDED, done.result
            assert done.result.way is Way.GATED, done.result
            trial.wait_current()
            assert faults(done, trial.records()) == []
            assert limits_left(trial) == 0
        assert trial.complaints() == ()
