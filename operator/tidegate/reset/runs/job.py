"""One run, from its stored request to its stored result: the same code in a Spark executor and in the operator.

May be started again at any point, by anybody: each start is an attempt, which takes over from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthorized, Unavailable, UnknownPartitions
from tidegate.reset.applying.apply import GroupReset
from tidegate.reset.applying.claim import GroupClaim
from tidegate.reset.applying.gates import open_gates_of
from tidegate.reset.applying.replay import HELD
from tidegate.reset.applying.timing import Pace, Tuning
from tidegate.reset.evidence import Evidence
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress, Searched
from tidegate.reset.model.request import EvidenceLevel, RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.planning.counts import gather_counts
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs.quota import size_of, too_large
from tidegate.reset.store import RunStore, StaleAttempt
from tidegate.resources.reset import ResetPhase

T = TypeVar("T")

_HALT_TRANSACTION_S: Final = 60.0
"""Of a writer that only ends others' transactions and begins none."""

Tell = Callable[[Searched], None]
Planner = Callable[[RunRequest, datetime, Tell], Plan]
"""Gets the time at which the plan is made, and whom to tell how far a search has come. ``Tell`` raises
``StaleAttempt``."""
Gatherer = Callable[[RunRequest, Plan], Evidence]


def execute(store: RunStore, kafka: Kafka, clock: Clock, *, tuning: Tuning | None = None) -> RunResult | None:
    """``carry_out`` with one connection, in this process."""
    return carry_out(
        store,
        clock,
        plan=lambda request, now, _: make_plan(request, kafka, now),
        apply=lambda attempt: apply_or_replay(store, attempt, kafka, clock, tuning=tuning),
        gather=lambda request, plan: gather_counts(request, plan, kafka, clock),
    )


def carry_out(
    store: RunStore, clock: Clock, *, plan: Planner, apply: Callable[[int], RunResult | None], gather: Gatherer
) -> RunResult | None:
    """Plan if there is no plan yet, apply, verify, store the result. ``apply`` gets the attempt's number.

    ``None``: the plan waits for approval, or the group reads on to the end of its replay. Raises ``StaleAttempt`` when
    a later attempt has taken over.

    Evidence is gathered where nothing waits for it, and where nothing is lost should it end this process: while the
    plan waits for approval, or after the run.
    """
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.plan is None:
        refusal = plan_run(store, attempt, clock, plan)
        if refusal is not None:
            return refusal
    if run.request.limits is not None and (beyond := _beyond_limits(store, attempt, clock)) is not None:
        return beyond
    if run.request.manual_approval and not run.approved:
        if run.last is None or run.last.phase is not ResetPhase.AWAITING_APPROVAL:
            store.append(Progress(ResetPhase.AWAITING_APPROVAL, clock.now(), attempt), attempt=attempt)
            gather_evidence(store, attempt, gather)
        # Whatever the document says by now: approval is the operator's to tell, to the job that it starts.
        return None
    result = apply(attempt)
    if result is not None:
        gather_evidence(store, attempt, gather)
    return result


def _beyond_limits(store: RunStore, attempt: int, clock: Clock) -> RunResult | None:
    """The stored result where the stored plan does more than it may. Whoever asked can look at it."""
    run = store.load()
    refused = too_large(size_of(run.plan), run.request.limits) if run.plan is not None else None
    if refused is None:
        return None
    result = unplanned(refused, clock.now())
    store.finish(result, attempt=attempt)
    return result


def gather_evidence(store: RunStore, attempt: int, gather: Gatherer) -> None:
    """Gather and store what was asked for, unless it is there."""
    run = store.load()
    if run.plan is not None and run.evidence is None and run.request.evidence.level is not EvidenceLevel.NONE:
        store.write_evidence(gather(run.request, run.plan), attempt=attempt)


def plan_run(store: RunStore, attempt: int, clock: Clock, planner: Planner) -> RunResult | None:
    """Make and store the plan; the stored result instead when it was refused."""
    request = store.load().request
    store.append(Progress(ResetPhase.PLANNING, clock.now(), attempt), attempt=attempt)

    def tell(searched: Searched) -> None:
        store.append(Progress(ResetPhase.PLANNING, clock.now(), attempt, searched=searched), attempt=attempt)

    try:
        plan = while_away(lambda: planner(request, clock.now(), tell), request, clock)
    except (PlanRefused, KafkaFailure) as failure:
        result = unplanned(failure, clock.now())
    else:
        store.write_plan(plan, attempt=attempt)
        return None
    store.finish(result, attempt=attempt)
    return result


def why_unplanned(failure: PlanRefused | KafkaFailure) -> tuple[str, str]:
    """Reason (PascalCase) and message for a plan that could not be made."""
    if isinstance(failure, PlanRefused):
        return failure.reason, failure.message
    reason = {NotAuthorized: "NotAuthorized", UnknownPartitions: "UnknownPartitions"}.get(
        type(failure), "KafkaUnavailable" if isinstance(failure, Unavailable) else "RefusedByKafka"
    )
    return reason, str(failure)


def unplanned(failure: PlanRefused | KafkaFailure, at: datetime) -> RunResult:
    """How a run without a plan ends."""
    reason, message = why_unplanned(failure)
    return RunResult(ResetPhase.FAILED, reason, f"{message}. Nothing was changed", at)


def apply_run(store: RunStore, attempt: int, kafka: Kafka, clock: Clock) -> RunResult:
    """``apply_or_replay`` for a plan without ends: others only the operator carries out. Raises ``ValueError`` too."""
    result = apply_or_replay(store, attempt, kafka, clock)
    if result is None:
        raise ValueError("a replay that ends is carried out by the operator")
    return result


def apply_or_replay(
    store: RunStore, attempt: int, kafka: Kafka, clock: Clock, *, tuning: Tuning | None = None
) -> RunResult | None:
    """Apply the stored plan as it is. ``None``: the group reads on to the end of its replay, or does still.

    The run keeps its claim on the group while that lapses: so it learns whether another run has had the group since.
    Raises ``StaleAttempt`` when a later attempt has taken over.
    """
    reset = group_reset(store, attempt, kafka, clock, tuning)
    try:
        result = reset.apply()
    except Fenced as fenced:
        raise StaleAttempt(str(fenced)) from fenced
    if result is not None:
        store.finish(result, attempt=attempt)
        reset.release()
    return result


def keep_limits(store: RunStore, kafka: Kafka, clock: Clock, *, lifted: bool = False) -> None:
    """Write the limits of a replay again: the control topic may have been lost. ``lifted``: take those back of a group
    that has stayed at its end, and is paused there by now. Raises ``KafkaFailure``."""
    run = store.load()
    if run.plan is not None and (run.result is None or run.result.reason == HELD):
        group_reset(store, run.attempt, kafka, clock, None).keep_limits(lifted=lifted)


def settle(
    store: RunStore,
    kafka: Kafka,
    clock: Clock,
    *,
    reason: str,
    message: str,
    watches_on: bool = False,
    tuning: Tuning | None = None,
) -> RunResult:
    """End a run for good, whatever it has done: fence its writer, put back what it committed, store the result.

    ``watches_on``: nothing is undone where all is done and only owners' next commits are awaited; those are watched to
    the end.
    """
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.plan is None:
        result = RunResult(ResetPhase.FAILED, reason, f"{message}. Nothing was changed", clock.now())
        store.finish(result, attempt=attempt)
        return result
    reset = group_reset(store, attempt, kafka, clock, tuning)
    result = reset.take_over(reason, message, watches_on=watches_on)
    store.finish(result, attempt=attempt)
    reset.release()
    return result


def fence(store: RunStore, kafka: Kafka, clock: Clock) -> None:
    """End what a dead writer of the run left open in Kafka, so that no consumer waits for it. Raises ``KafkaFailure``:
    then it has to be done again."""
    run = store.load()
    if run.plan is not None and run.result is None:
        group_reset(store, run.attempt, kafka, clock, None).fence()


def halt(kafka: Kafka, clock: Clock, run_uid: str, runs: Mapping[str, str]) -> None:
    """End what a job left open in Kafka, without asking the run's document: open transactions, then closed gates.

    ``runs``: the uid of each group's run, by group. A group that another run has is left to that one, which has ended
    the job's transaction. Raises ``KafkaFailure``: then it has to be done again.
    """
    for group_id, uid in runs.items():
        claim = GroupClaim(
            kafka, Pace(clock, Tuning(), None), group_id, uid, "a run that the operator is ending", lambda _: None
        )
        if claim.take_now():
            with closing(kafka.writer(group_id, transaction_timeout_s=_HALT_TRANSACTION_S)) as writer:
                writer.fence()
        claim.release()
    open_gates_of(kafka.control, run_uid)


def group_reset(store: RunStore, attempt: int, kafka: Kafka, clock: Clock, tuning: Tuning | None) -> GroupReset:
    """The writer of the stored plan. Raises ``ValueError`` where there is none yet."""
    run = store.load()
    if run.plan is None:
        raise ValueError(f"run {run.request.run_uid} has no plan yet")
    return GroupReset(run, run.plan, attempt, store, kafka, clock, tuning)


def while_away(call: Callable[[], T], request: RunRequest, clock: Clock) -> T:
    """Try again while Kafka does not answer, until the run's deadline."""
    deadline = request.settings.deadline
    while True:
        try:
            return call()
        except Unavailable:
            if deadline is None or clock.now() > deadline:
                raise
            clock.sleep(1.0)
