"""A fleet's run, from its stored request to its stored result.

The runs of its groups are those of ``tidegate.reset.runs.job``.

May be started again at any point, by anybody, as those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol, TypeVar, assert_never

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import Fenced, KafkaFailure, Unavailable
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.binding import Binding, Check, EndBinding, NoBinding
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.model.fleet import FleetCounts, FleetPlan, GroupPlan, Roster
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress, Searched
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import Phase, RunResult
from tidegate.reset.model.targets import Undo
from tidegate.reset.planning.cluster_view import read_ahead
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import job
from tidegate.reset.runs.fleet import (
    Apply,
    Begin,
    End,
    Keep,
    PutBack,
    Release,
    Settle,
    Step,
    counts,
    group_document,
    group_plan,
    group_request,
    group_run_uid,
    has_begun,
    held_result,
    is_kept,
    next_step,
    put_back_by,
    refused_fleet,
    roster_of,
)
from tidegate.reset.runs.request import NOT_PUT_BACK, Refusal, undo_target
from tidegate.reset.store import ForgedRun, Run, RunNotFound, RunStore, StaleAttempt

FLEET_THREADS: Final = 8
"""Groups that one process resets side by side, each through a connection of its own: mostly each is waited for."""

_TELL_EVERY_S: Final = 1.0

_T = TypeVar("_T")

OpenGroup = Callable[[str, Check], RunStore]
"""The document of the run with this uid, beneath the fleet's, and what it has to be."""

PlanGroups = Callable[[Sequence[RunRequest], datetime, job.Tell], Iterator[Plan | PlanRefused | KafkaFailure]]
"""A plan for each request, in their order. Raises ``PlanRefused`` for what concerns the whole fleet, and nothing that
concerns one group only."""


class Coordinator(Protocol):
    """Whoever a fleet's groups are reset for."""

    def check(self) -> None:
        """Before each group. Raises ``StaleAttempt`` when the fleet was taken over, whose groups are another's then."""
        ...

    def ended(self, succeeded: bool) -> None:
        """After each group. Raises ``StaleAttempt``."""
        ...


class Resets(Protocol):
    """Resets groups, several side by side or one after another."""

    def apply(self, groups: Mapping[str, RunStore], coordinator: Coordinator, *, hold: bool) -> bool:
        """``apply_group`` for each, by its id. With ``hold``, none is begun after one has failed.

        Returns whether all stand at their targets. Raises what one raised, after the others that were begun have ended.
        """
        ...

    def settle(self, groups: Mapping[str, RunStore], coordinator: Coordinator, reason: str, message: str) -> None:
        """``settle_group`` for each."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a fleet is carried out through. ``open_undone``: documents beneath that of the run which is undone.

    ``readers``: how many groups' documents are read or written at a time.
    """

    open_group: OpenGroup
    open_undone: OpenGroup
    group_ids: Callable[[], Collection[str]]
    plan: PlanGroups
    resets: Resets
    clock: Clock
    readers: int = 16


def carry_out(store: RunStore, parts: Parts) -> RunResult | None:
    """``job.carry_out`` of a fleet. ``None``: the plan waits for approval. Raises ``StaleAttempt``."""
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.fleet is None:
        refusal = _plan(store, attempt, parts)
        if refusal is not None:
            return refusal
        run = store.load()
    if run.request.manual_approval and not run.approved:
        if run.last is None or run.last.phase is not Phase.AWAITING_APPROVAL:
            store.append(Progress(Phase.AWAITING_APPROVAL, parts.clock.now(), attempt), attempt=attempt)
        return None
    return _go_on(store, attempt, parts)


def settle(store: RunStore, parts: Parts, *, reason: str, message: str) -> RunResult:
    """End a fleet's run for good. A fleet that was decided to be kept is finished, any other is put back."""
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.fleet is None:
        result = RunResult(Phase.FAILED, reason, f"{message}. Nothing was changed", parts.clock.now())
        store.finish(result, attempt=attempt)
        return result
    if not is_kept(run) and put_back_by(run) is None:
        phase = Phase.VERIFYING if has_begun(run) else Phase.PLANNING
        store.append(Progress(phase, parts.clock.now(), attempt, message=message, putting_back=reason), attempt=attempt)
    return _go_on(store, attempt, parts)


# --- planning ---------------------------------------------------------------------------------------------------------


def _plan(store: RunStore, attempt: int, parts: Parts) -> RunResult | None:
    """Make and store the plan; the stored result instead when the fleet was refused."""
    clock, run = parts.clock, store.load()
    store.append(Progress(Phase.PLANNING, clock.now(), attempt), attempt=attempt)

    def tell(searched: Searched) -> None:
        store.append(Progress(Phase.PLANNING, clock.now(), attempt, searched=searched), attempt=attempt)

    try:
        roster = run.roster
        if roster is None:
            # A fleet that undoes another has its groups named.
            named = run.request.fleet is not None and run.request.fleet.groups is not None
            there = () if named else job.while_away(parts.group_ids, run.request, clock)
            roster = roster_of(run.request, there, clock.now())
            store.write_roster(roster, attempt=attempt)
        plan = _planned(run.request, roster, attempt, parts, tell)
        store.write_fleet_plan(plan, attempt=attempt)
        refused = refused_fleet(run.request, plan)
        if refused is not None:
            raise refused
    except (PlanRefused, KafkaFailure) as failure:
        result = job.unplanned(failure, clock.now())
    else:
        return None
    store.finish(result, attempt=attempt)
    return result


def _planned(request: RunRequest, roster: Roster, attempt: int, parts: Parts, tell: job.Tell) -> FleetPlan:
    """Every group's plan is in its document before any is in the fleet's.

    What an earlier attempt has planned is kept; the first one finds no plan but its own. Raises ``ForgedRun``.
    """
    found: dict[str, GroupPlan] = {}
    asked: dict[str, tuple[RunRequest, RunStore]] = {}

    def ask(group_id: str) -> None:
        wanted = _group_request(request, group_id, parts)
        if isinstance(wanted, Refusal):
            found[group_id] = GroupPlan(group_id, refused=wanted.reason, message=wanted.message)
            return
        store = parts.open_group(wanted.run_uid, NoBinding())
        there = store.create(wanted)
        if there.request != wanted or (there.plan is not None and attempt == 1):
            raise ForgedRun(f"{store.location} is of none of this fleet's jobs: see who wrote it")
        if there.plan is not None:
            found[group_id] = group_plan(there.plan, there.digest)
        else:
            asked[group_id] = (wanted, store)

    def keep(planned: tuple[str, Plan | PlanRefused | KafkaFailure]) -> None:
        group_id, plan = planned
        if isinstance(plan, Plan):
            store = asked[group_id][1]
            store.write_plan(plan, attempt=store.begin_attempt())
            found[group_id] = group_plan(plan, store.load().digest)
        else:
            reason, message = job.why_unplanned(plan)
            found[group_id] = GroupPlan(group_id, refused=reason, message=message)

    _for_all(roster.groups, ask, parts)
    names = sorted(asked)
    plans = parts.plan([asked[group_id][0] for group_id in names], roster.at, tell)
    _for_all(list(zip(names, plans, strict=True)), keep, parts)
    return FleetPlan(request.run_id, roster.at, tuple(found[group_id] for group_id in roster.groups), roster.notes)


def _group_request(request: RunRequest, group_id: str, parts: Parts) -> RunRequest | Refusal:
    target = request.target
    if not isinstance(target, Undo):
        return group_request(request, group_id, target)
    fleet = request.fleet
    if fleet is None:
        raise ValueError("only a fleet's run has groups")
    try:
        undone_uid = group_run_uid(fleet.undoes_uid, group_id)
        undone = parts.open_undone(undone_uid, EndBinding(dict(fleet.ends).get(group_id, ""))).load()
    except RunNotFound:
        undone = None
    back = undo_target(target.run_id, undone)
    return back if isinstance(back, Refusal) else group_request(request, group_id, back)


# --- applying ---------------------------------------------------------------------------------------------------------


def _go_on(store: RunStore, attempt: int, parts: Parts) -> RunResult:
    """Step by step until it has ended. Each step is decided from what is stored, and may be taken again."""
    clock = parts.clock
    while True:
        run = store.load()
        if run.result is not None:
            return run.result
        if run.fleet is None:
            raise ValueError(f"fleet {run.request.run_uid} has no plan yet")
        opened = _opened(run, run.fleet, parts)
        groups = _loaded(opened, parts) if has_begun(run) else {}
        step = next_step(run, groups, clock.now())
        teller = _Teller(store, attempt, clock, counts(run, groups))
        if isinstance(step, Apply | Settle | Release):
            # Before the step, so that a writer that was taken over is told before it touches a group.
            teller.tell(Phase.RESUMING if is_kept(run) else _PHASES[type(step)])
        match step:
            case Begin():
                store.append(Progress(Phase.APPLYING, clock.now(), attempt), attempt=attempt)
            case Apply(groups=names, hold=hold):
                parts.resets.apply({g: opened[g] for g in names}, teller, hold=hold)
            case PutBack(reason, message):
                intent = Progress(Phase.VERIFYING, clock.now(), attempt, message=message, putting_back=reason)
                store.append(intent, attempt=attempt)
            case Keep():
                message = "every group stands at its targets"
                store.append(Progress(Phase.RESUMING, clock.now(), attempt, message=message), attempt=attempt)
            case Settle(groups=names, reason=reason, message=message):
                parts.resets.settle({g: opened[g] for g in names}, teller, reason, message)
            case Release(groups=names):
                _for_all([opened[name] for name in names], _release, parts)
            case End(result):
                store.finish(result, attempt=attempt)
            case _:
                assert_never(step)


_PHASES: Final[Mapping[type[Step], Phase]] = {
    Apply: Phase.APPLYING,
    Settle: Phase.VERIFYING,
    Release: Phase.RESUMING,
}


class _Teller:
    """Implements ``Coordinator``: counts groups as they end, and notes it at most once a second. Thread-safe."""

    def __init__(self, store: RunStore, attempt: int, clock: Clock, counted: FleetCounts) -> None:
        self._store = store
        self._attempt = attempt
        self._clock = clock
        self._counts = counted
        self._phase = Phase.APPLYING
        self._told_at_s = clock.monotonic()
        self._lock = threading.Lock()

    def tell(self, phase: Phase) -> None:
        self._phase = phase
        self._write()

    def check(self) -> None:
        newest = self._store.load().attempt
        if newest != self._attempt:
            raise StaleAttempt(f"attempt {self._attempt} of a fleet's run was followed by attempt {newest}")

    def ended(self, succeeded: bool) -> None:
        with self._lock:
            counted = self._counts
            if self._phase is Phase.VERIFYING:
                self._counts = replace(counted, put_back=counted.put_back + 1)
            elif succeeded:
                self._counts = replace(counted, reset=counted.reset + 1)
            else:
                self._counts = replace(counted, failed=counted.failed + 1)
            if self._clock.monotonic() - self._told_at_s >= _TELL_EVERY_S:
                self._write()

    def _write(self) -> None:
        self._told_at_s = self._clock.monotonic()
        line = Progress(self._phase, self._clock.now(), self._attempt, counts=self._counts)
        self._store.append(line, attempt=self._attempt)


def _opened(fleet: Run, plan: FleetPlan, parts: Parts) -> dict[str, RunStore]:
    """The documents of the groups that have a plan."""
    uid = fleet.request.run_uid
    return {g: parts.open_group(group_run_uid(uid, g), Binding(digest)) for g, digest in plan.digests.items()}


def _loaded(opened: Mapping[str, RunStore], parts: Parts) -> dict[str, Run]:
    found: dict[str, Run] = {}

    def load(group_id: str) -> None:
        found[group_id] = opened[group_id].load()

    _for_all(sorted(opened), load, parts)
    return found


def _for_all(items: Sequence[_T], do: Callable[[_T], None], parts: Parts) -> None:
    """Several at a time. Raises what the first raised; then not all are done."""

    def done(item: _T) -> bool:
        do(item)
        return True

    side_by_side(items, done, threads=parts.readers)


def _release(group: RunStore) -> None:
    attempt = group.begin_attempt()
    held = held_result(group.load())
    if held is None:
        raise ValueError(f"{group.location} holds no result, though its fleet is kept")
    group.finish(held, attempt=attempt)


# --- one group --------------------------------------------------------------------------------------------------------


def apply_group(store: RunStore, kafka: Kafka, clock: Clock, *, hold: bool, tuning: Tuning | None = None) -> bool:
    """Reset one group by its stored plan, unless that is done; whether it stands at its targets.

    ``hold``: a success is not its result yet, and it keeps its claim, which lapses: where it is put back later, that
    tells whether another run has had the group meanwhile. Raises as ``tidegate.reset.runs.job.apply_run``.
    """
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result.phase is Phase.SUCCEEDED
    if hold and held_result(run) is not None:
        return True
    reset = job.group_reset(store, attempt, kafka, clock, tuning)
    try:
        result = reset.apply()
    except Fenced as fenced:
        raise StaleAttempt(str(fenced)) from fenced
    succeeded = result.phase is Phase.SUCCEEDED
    if hold and succeeded:
        message = "it waits for the other groups of its fleet"
        line = Progress(Phase.RESUMING, clock.now(), attempt, way=result.way, message=message, held=result)
        store.append(line, attempt=attempt)
    else:
        store.finish(result, attempt=attempt)
        reset.release()
    return succeeded


def settle_group(
    store: RunStore, kafka: Kafka, clock: Clock, reason: str, message: str, *, tuning: Tuning | None = None
) -> RunResult:
    """``tidegate.reset.runs.job.settle``, without asking Kafka where the run has not got to its first transaction."""
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is None and not was_touched(run):
        result = RunResult(Phase.FAILED, reason, f"{message}. Nothing was changed", clock.now())
        store.finish(result, attempt=attempt)
        return result
    return job.settle(store, kafka, clock, reason=reason, message=message, tuning=tuning)


def was_touched(run: Run) -> bool:
    """Whether a transaction of this run may have been begun."""
    return any(line.round > 0 for line in run.journal)


def undone_groups(earlier: Run, groups: Callable[[str], Run | None]) -> tuple[str, ...]:
    """The groups whose offsets an earlier run of a fleet has left changed, sorted. ``groups``: its runs, by group."""
    if earlier.fleet is None:
        return ()
    results = {g: run.result for g in earlier.fleet.planned if (run := groups(g)) is not None}
    return tuple(
        sorted(
            g
            for g, result in results.items()
            if result is not None and (result.phase is Phase.SUCCEEDED or result.reason == NOT_PUT_BACK)
        )
    )


def side_by_side(items: Sequence[_T], do: Callable[[_T], bool], *, threads: int) -> bool:
    """``do`` each, which says whether others may be begun; none is after one that raised. Raises what the first did.

    Returns whether all were done, and said so.
    """
    over = threading.Event()

    def one(item: _T) -> None:
        if over.is_set():
            return
        go_on = False
        try:
            go_on = do(item)
        finally:
            if not go_on:
                over.set()

    with ThreadPoolExecutor(threads, thread_name_prefix="fleet") as pool:
        done = [pool.submit(one, item) for item in items]
    for future in done:
        future.result()
    return not over.is_set()


class SideBySide:
    """Implements ``Resets`` in threads. ``lend``: a connection for one thread at a time."""

    def __init__(
        self,
        lend: Callable[[], AbstractContextManager[Kafka]],
        clock: Clock,
        *,
        threads: int,
        tuning: Tuning | None = None,
    ) -> None:
        self._lend = lend
        self._clock = clock
        self._threads = threads
        self._tuning = tuning

    def apply(self, groups: Mapping[str, RunStore], coordinator: Coordinator, *, hold: bool) -> bool:
        unended: list[KafkaFailure] = []
        failed: list[str] = []

        def reset(group: RunStore) -> bool:
            coordinator.check()
            succeeded = False
            try:
                with self._lend() as kafka:
                    succeeded = apply_group(group, kafka, self._clock, hold=hold, tuning=self._tuning)
            except KafkaFailure as failure:
                # Its gates could not be opened, so it is not over; the next job goes on with it.
                unended.append(failure)
            else:
                coordinator.ended(succeeded)
            if not succeeded:
                failed.append(group.location)
            return succeeded or not hold

        side_by_side(list(groups.values()), reset, threads=self._threads)
        if unended:
            raise unended[0]
        return not failed

    def settle(self, groups: Mapping[str, RunStore], coordinator: Coordinator, reason: str, message: str) -> None:
        def end(group: RunStore) -> bool:
            coordinator.check()
            with self._lend() as kafka:
                settle_group(group, kafka, self._clock, reason, message, tuning=self._tuning)
            coordinator.ended(False)
            return True

        side_by_side(list(groups.values()), end, threads=self._threads)


# --- in one process ---------------------------------------------------------------------------------------------------

_PLAN_TRIES: Final = 5


def plan_together(kafka: ClusterReader) -> PlanGroups:
    """States and offsets of all groups are read at once, and each partition's log once. The times of the records that
    would be replayed are not looked up: one would be read for each partition of each group."""

    def plan(
        requests: Sequence[RunRequest], now: datetime, tell: job.Tell
    ) -> Iterator[Plan | PlanRefused | KafkaFailure]:
        if not requests:
            return
        try:
            reader = read_ahead(kafka, requests, now)
        except KafkaFailure as failure:
            if len(requests) == 1 or not _answers(kafka):
                yield from [failure] * len(requests)
                return
            # Whose failure it is, is found by halves.
            half = len(requests) // 2
            yield from plan(requests[:half], now, tell)
            yield from plan(requests[half:], now, tell)
            return
        for request in requests:
            try:
                yield make_plan(request, reader, now)
            except (PlanRefused, KafkaFailure) as failure:
                yield failure

    return plan


def _answers(kafka: ClusterReader) -> bool:
    try:
        kafka.topics()
    except KafkaFailure:
        return False
    return True


def patiently(plan: PlanGroups, clock: Clock) -> PlanGroups:
    """Groups that a rebalance hides, or whose coordinator is away, are planned again, a few times; where nothing is to
    be had of any of them, until the deadline."""

    def again(
        requests: Sequence[RunRequest], now: datetime, tell: job.Tell
    ) -> Iterator[Plan | PlanRefused | KafkaFailure]:
        found = list(plan(requests, now, tell))
        deadline = next((r.settings.deadline for r in requests), None) or now
        tries = 1
        while hidden := [n for n, answer in enumerate(found) if isinstance(answer, Unavailable)]:
            is_away = len(hidden) == len(found) and clock.now() < deadline
            if tries >= _PLAN_TRIES and not is_away:
                break
            tries += 1
            clock.sleep(1.0)
            for n, answer in zip(hidden, plan([requests[n] for n in hidden], now, tell), strict=True):
                found[n] = answer
        yield from found

    return again


def beneath(document: str, confines: Confines, open_document: Callable[[str], RunStore]) -> OpenGroup:
    """The groups' documents beneath the one of a fleet's run, each within its confines."""

    def opened(uid: str, check: Check) -> RunStore:
        group_id = uid.split("/", 2)[2]
        return ConfinedRunStore(open_document(group_document(document, uid)), confines.of_group(uid, group_id), check)

    return opened


def parts_of(
    document: str,
    confines: Confines,
    undoes: str,
    open_document: Callable[[str], RunStore],
    kafka: Kafka,
    clock: Clock,
    resets: Resets,
) -> Parts:
    """A fleet in this process. ``document``: of its run, ``undoes``: of the one it undoes; each group's are beneath."""
    return Parts(
        open_group=beneath(document, confines, open_document),
        open_undone=beneath(undoes, confines, open_document),
        group_ids=kafka.group_ids,
        plan=patiently(plan_together(kafka), clock),
        resets=resets,
        clock=clock,
    )


def fence(store: RunStore, parts: Parts, kafka: Kafka) -> None:
    """``tidegate.reset.runs.job.fence`` for every group that was begun and has not ended."""
    run = store.load()
    if run.fleet is None or run.result is not None or not has_begun(run):
        return
    opened = _opened(run, run.fleet, parts)
    for group_id, group in _loaded(opened, parts).items():
        if was_touched(group) and group.result is None:
            job.fence(opened[group_id], kafka, parts.clock)
