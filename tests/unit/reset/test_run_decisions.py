"""What is done next about a reset, as a table: given what is seen, when decided, then this action and this status."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.numbers import OFFSET_MAX
from tidegate.reset.applying.replay import CONTINUED
from tidegate.reset.binding import digest_of, digest_of_end
from tidegate.reset.model.fleet import FleetCounts, FleetPlan, GroupPlan, GroupTrouble
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest, Until, Waves
from tidegate.reset.model.result import RunResult, Standstill
from tidegate.reset.model.targets import PartitionOffset, ToOffset
from tidegate.reset.runs import reasons
from tidegate.reset.runs.actions import (
    AddFinalizer,
    Approve,
    CreateRun,
    Decision,
    Fence,
    Halt,
    Launch,
    RemoveFinalizer,
    TakeOver,
)
from tidegate.reset.runs.approval_effect import Approval
from tidegate.reset.runs.decisions import decide
from tidegate.reset.runs.seen import RunnerSeen, Seen, Start
from tidegate.reset.store import Run
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import Refusal, find_condition
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.replay import Then
from tidegate.resources.reset import Engine, ResetPhase, Way

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DOCUMENT = "p-one-0000"


SPEC = parse_spec(
    OffsetResetSpec, {"spec": {"connectionRef": {"name": "kafka"}, "group": "payments", "to": {"offset": 10}}}
)
REQUEST = RunRequest(
    run_uid="uid/one",
    run_id="one",
    group_id="payments",
    connection=Connection("127.0.0.1:9092"),
    selections=(),
    target=ToOffset(10),
    settings=ApplySettings(deadline=NOW + timedelta(minutes=10)),
)
PLAN = Plan("one", "payments", NOW, (PartitionPlan("t", 0, "id", committed=50, target=10, earliest=0, latest=100),))
STARTED = OffsetResetStatus(
    run_uid="uid/one", phase=ResetPhase.PENDING, started_at=NOW - timedelta(minutes=1), engine=Engine.DIRECT
)
WORKING = STARTED.model_copy(update={"phase": ResetPhase.APPLYING, "application": f"{DOCUMENT}-1"})
RUNNING = RunnerSeen(Engine.DIRECT, RunnerStatus(RunnerState.RUNNING), started_here=True)
DEAD = RunnerSeen(Engine.DIRECT, RunnerStatus(RunnerState.EXITED, "boom"), started_here=True, died_at=NOW)
LOST = RunnerSeen(Engine.DIRECT, RunnerStatus(RunnerState.LOST))
SUCCESS = RunResult(
    ResetPhase.SUCCEEDED, "Applied", "done", NOW, way=Way.BARRIER, standstill=Standstill(0.5, 1.25), begun=1, waiting=0
)


def progress(phase: ResetPhase, attempt: int = 1) -> Progress:
    return Progress(phase, NOW, attempt)


PLANNING = Run(REQUEST, 1, None, (progress(ResetPhase.PLANNING),))
APPLYING = Run(REQUEST, 1, PLAN, (progress(ResetPhase.PLANNING), progress(ResetPhase.APPLYING)))
MANUAL = replace(REQUEST, manual_approval=True)
AWAITING = Run(MANUAL, 1, PLAN, (progress(ResetPhase.PLANNING), progress(ResetPhase.AWAITING_APPROVAL)))


APPROVED = replace(AWAITING, approved=True)
WAITS_FOR_ITS_TURN = Progress(ResetPhase.AWAITING_APPROVAL, NOW, 2, waits_for="another run has the group")


def approved(run: Run) -> Approval:
    return Approval("yes", "uid-yes", NOW, "one", digest_of(run), "ann")


def seen(**changes: object) -> Seen:
    base = Seen(
        uid="uid",
        run_id="one",
        generation=3,
        spec=SPEC,
        status=OffsetResetStatus(),
        now=NOW,
        run_document=DOCUMENT,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def under_way(status: OffsetResetStatus = WORKING, **changes: object) -> Seen:
    run = changes.get("run")
    if isinstance(run, Run):
        changes["run"] = replace(run, digest=digest_of(run))
    return seen(**{"status": status, "has_finalizer": True, **changes})


def condition(decision: Decision, name: str) -> tuple[str, str] | None:
    """(status, reason)"""
    found = find_condition(decision.status.conditions, name)
    return None if found is None else (found.status.value, found.reason)


CASES = {
    # name: (seen, the action, (Ready's status and reason), the phase in the status afterwards)
    "the spec can't be read": (seen(spec=None, invalid="spec.group: no"), None, ("False", "InvalidSpec"), None),
    "a refusal": (
        seen(start=Start(refusal=Refusal("GroupNotAllowed", "no"))),
        None,
        ("False", "GroupNotAllowed"),
        "Pending",
    ),
    "a policy's id that was executed before": (
        seen(start=Start(refusal=Refusal("AlreadyRan", "no"))),
        None,
        ("False", "AlreadyRan"),
        "Failed",
    ),
    "begun, and its id turns out to be another's": (
        under_way(STARTED, start=Start(refusal=Refusal("AlreadyRan", "no"))),
        None,
        ("False", "AlreadyRan"),
        "Failed",
    ),
    "there is nothing to undo, and never will be": (
        seen(start=Start(refusal=Refusal("UndoRunNotFound", "no"))),
        None,
        ("False", "UndoRunNotFound"),
        "Failed",
    ),
    "another reset is first": (
        seen(start=Start(waits_for=Refusal(reasons.WAITING_FOR_RESET, "for x"))),
        None,
        ("False", "WaitingForReset"),
        "Pending",
    ),
    "it may begin: intent first": (seen(start=Start(request=REQUEST)), None, ("False", "Pending"), "Pending"),
    "begun: finalizer next": (
        under_way(STARTED, has_finalizer=False, start=Start(request=REQUEST)),
        AddFinalizer(),
        None,
        "Pending",
    ),
    "stored: finalizer next": (
        under_way(STARTED, has_finalizer=False, run=Run(REQUEST), runner=LOST),
        AddFinalizer(),
        ("False", "Planning"),
        "Planning",
    ),
    "begun, held: document next": (
        under_way(STARTED, start=Start(request=REQUEST)),
        CreateRun(REQUEST),
        None,
        "Pending",
    ),
    "begun, then the connection went": (
        under_way(STARTED, start=Start(waits_for=Refusal(reasons.WAITING_FOR_CONNECTION, "kafka"))),
        None,
        ("False", "WaitingForConnection"),
        "Pending",
    ),
    "begun, past its deadline, never stored": (
        under_way(STARTED.model_copy(update={"started_at": NOW - timedelta(hours=1)}), start=Start(request=REQUEST)),
        None,
        ("False", "DeadlineExceeded"),
        "Failed",
    ),
    "stored: first launch": (
        under_way(STARTED, run=Run(REQUEST), runner=LOST),
        Launch(f"{DOCUMENT}-1"),
        ("False", "Planning"),
        "Planning",
    ),
    "no connection yet: first launch": (
        under_way(STARTED, run=Run(REQUEST), runner=LOST, connected=False),
        None,
        ("False", "WaitingForConnection"),
        "Planning",
    ),
    "no connection yet: died": (
        under_way(run=APPLYING, runner=DEAD, connected=False),
        None,
        ("False", "WaitingForConnection"),
        "Applying",
    ),
    "no connection, and its job runs": (
        under_way(run=APPLYING, runner=RUNNING, connected=False),
        None,
        ("False", "Applying"),
        "Applying",
    ),
    "launch written down, never started": (
        under_way(run=Run(REQUEST), runner=LOST),
        Launch(f"{DOCUMENT}-1"),
        ("False", "Planning"),
        "Planning",
    ),
    "at work": (under_way(run=APPLYING, runner=RUNNING), None, ("False", "Applying"), "Applying"),
    "died: fence": (under_way(run=APPLYING, runner=DEAD), Fence(1), ("False", "Applying"), "Applying"),
    "gone with the operator before: fence": (
        under_way(run=APPLYING, runner=LOST),
        Fence(1),
        ("False", "Applying"),
        "Applying",
    ),
    "died, fenced: the second at once": (
        under_way(run=APPLYING, runner=replace(DEAD, fenced=1)),
        Launch(f"{DOCUMENT}-2"),
        ("False", "Applying"),
        "Applying",
    ),
    "died again: a pause first": (
        under_way(
            WORKING.model_copy(update={"application": f"{DOCUMENT}-4"}), run=APPLYING, runner=replace(DEAD, fenced=4)
        ),
        None,
        ("False", "JobRestarting"),
        "Applying",
    ),
    "died again, the pause is over": (
        under_way(
            WORKING.model_copy(update={"application": f"{DOCUMENT}-4"}),
            run=APPLYING,
            runner=replace(DEAD, fenced=4, died_at=NOW - timedelta(seconds=5)),
        ),
        Launch(f"{DOCUMENT}-5"),
        ("False", "Applying"),
        "Applying",
    ),
    "waits for approval": (
        under_way(run=AWAITING, runner=replace(DEAD, status=RunnerStatus(RunnerState.EXITED))),
        None,
        ("False", "AwaitingApproval"),
        "AwaitingApproval",
    ),
    "an approval of another plan": (
        under_way(run=AWAITING, runner=LOST, approval=approved(PLANNING)),
        None,
        ("False", "AwaitingApproval"),
        "AwaitingApproval",
    ),
    "approved": (
        under_way(run=AWAITING, runner=LOST, approval=approved(AWAITING)),
        Approve(),
        ("False", "AwaitingApproval"),
        "AwaitingApproval",
    ),
    "approved, and another reset of the group is under way": (
        under_way(
            run=AWAITING,
            runner=LOST,
            approval=approved(AWAITING),
            behind=Refusal(reasons.WAITING_FOR_RESET, "x is resetting it"),
        ),
        None,
        ("False", "WaitingForReset"),
        "AwaitingApproval",
    ),
    "approved and said so, then the process died": (
        under_way(
            WORKING.model_copy(update={"approved_digest": digest_of(AWAITING)}),
            run=AWAITING,
            runner=LOST,
        ),
        Approve(),
        ("False", "AwaitingApproval"),
        "AwaitingApproval",
    ),
    "approved and noted: next launch, no fence": (
        under_way(run=replace(AWAITING, approved=True), runner=replace(DEAD, fenced=0)),
        Launch(f"{DOCUMENT}-2"),
        None,
        "AwaitingApproval",
    ),
    "approved, and the job that was to apply it died before it said anything: fence": (
        under_way(
            WORKING.model_copy(update={"application": f"{DOCUMENT}-2"}),
            run=replace(APPROVED, attempt=2),
            runner=DEAD,
        ),
        Fence(2),
        None,
        "AwaitingApproval",
    ),
    "approved, and the job that was to apply it died while it waited for its turn: fence": (
        under_way(
            WORKING.model_copy(update={"application": f"{DOCUMENT}-2"}),
            run=replace(APPROVED, attempt=2, journal=(*AWAITING.journal, WAITS_FOR_ITS_TURN)),
            runner=DEAD,
        ),
        Fence(2),
        None,
        "AwaitingApproval",
    ),
    "past the deadline, the job has a moment": (
        under_way(run=APPLYING, runner=RUNNING, now=NOW + timedelta(minutes=10, seconds=2)),
        None,
        ("False", "Applying"),
        "Applying",
    ),
    "its document is gone: its job is ended and its gates are opened first": (
        under_way(run=None),
        Halt(briefly=True),
        ("False", "RunLost"),
        "Applying",
    ),
    "its document is gone, and all that worked on it was ended": (
        under_way(run=None, halted=True),
        None,
        ("False", "RunLost"),
        "Failed",
    ),
    "its document is gone, and its gates could not be opened": (
        under_way(run=None, unhalted="nobody answers"),
        None,
        ("False", "RunLost"),
        "Failed",
    ),
    "its document was gone before its plan was approved: nothing is held": (
        under_way(WORKING.model_copy(update={"phase": ResetPhase.AWAITING_APPROVAL}), run=None),
        None,
        ("False", "RunLost"),
        "Failed",
    ),
    "its document is somebody else's": (
        under_way(foreign="not ours"),
        Halt(briefly=True),
        ("False", "ForeignRun"),
        "Applying",
    ),
    "its document is somebody else's, and all that worked on it was ended": (
        under_way(foreign="not ours", halted=True),
        None,
        ("False", "ForeignRun"),
        "Failed",
    ),
    "succeeded": (
        under_way(run=replace(APPLYING, result=SUCCESS)),
        None,
        ("True", "Applied"),
        "Succeeded",
    ),
    "rolled back": (
        under_way(run=replace(APPLYING, result=replace(SUCCESS, phase=ResetPhase.ROLLED_BACK, reason="DidNotHold"))),
        None,
        ("False", "DidNotHold"),
        "RolledBack",
    ),
    "ended: let go": (
        under_way(WORKING.model_copy(update={"phase": ResetPhase.SUCCEEDED})),
        RemoveFinalizer(),
        None,
        "Succeeded",
    ),
    "ended and let go: rest": (
        seen(status=WORKING.model_copy(update={"phase": ResetPhase.SUCCEEDED})),
        None,
        ("True", "Succeeded"),
        "Succeeded",
    ),
    "its document is forged: what works on it is ended first": (
        under_way(forged="no"),
        Halt(),
        ("False", "Forged"),
        "Applying",
    ),
    "its document is forged, and all that worked on it was ended": (
        under_way(forged="no", halted=True),
        None,
        ("False", "Forged"),
        "Failed",
    ),
    "its job has found a forged document": (
        under_way(
            run=replace(APPLYING, result=SUCCESS),
            runner=replace(DEAD, status=RunnerStatus(RunnerState.EXITED, "other digest", forged=True)),
        ),
        Halt(),
        ("False", "Forged"),
        "Applying",
    ),
    "a document that was there beforehand": (seen(forged="no"), None, ("False", "Forged"), None),
    "deleted at rest": (seen(deleting_since=NOW), None, None, None),
    "deleted, nothing stored": (under_way(STARTED, deleting_since=NOW), RemoveFinalizer(), None, "Pending"),
    "deleted in mid-run, abandoned": (
        under_way(run=APPLYING, deleting_since=NOW, abandoned=True),
        Halt(briefly=True),
        None,
        "Applying",
    ),
    "deleted in mid-run, abandoned, its gates are open": (
        under_way(run=APPLYING, deleting_since=NOW, abandoned=True, halted=True),
        RemoveFinalizer(),
        None,
        "Applying",
    ),
    "deleted in mid-run, abandoned, its gates could not be opened": (
        under_way(run=APPLYING, deleting_since=NOW, abandoned=True, unhalted="nobody answers"),
        RemoveFinalizer(),
        None,
        "Applying",
    ),
    "deleted before its plan was approved, abandoned: nothing is held": (
        under_way(
            WORKING.model_copy(update={"phase": ResetPhase.AWAITING_APPROVAL}),
            run=AWAITING,
            deleting_since=NOW,
            abandoned=True,
        ),
        RemoveFinalizer(),
        None,
        "AwaitingApproval",
    ),
    "deleted in mid-run, out of patience": (
        under_way(run=APPLYING, deleting_since=NOW - timedelta(minutes=2, seconds=1)),
        Halt(briefly=True),
        None,
        "Applying",
    ),
    "deleted in mid-run, out of patience, its gates are open": (
        under_way(run=APPLYING, deleting_since=NOW - timedelta(minutes=2, seconds=1), halted=True),
        RemoveFinalizer(),
        None,
        "Applying",
    ),
    "deleted, and its document is gone": (
        under_way(run=None, deleting_since=NOW),
        Halt(briefly=True),
        ("False", "RunLost"),
        "Applying",
    ),
    "deleted, its document is gone, and all that worked on it was ended": (
        under_way(run=None, halted=True, deleting_since=NOW),
        RemoveFinalizer(),
        ("False", "RunLost"),
        "Failed",
    ),
    "deleted, its document is gone, and nobody answers": (
        under_way(run=None, deleting_since=NOW, unhalted="nobody answers"),
        RemoveFinalizer(),
        ("False", "RunLost"),
        "Failed",
    ),
    "deleted with a forged document, abandoned, and nobody answers": (
        under_way(forged="no", deleting_since=NOW, abandoned=True, unhalted="nobody answers"),
        RemoveFinalizer(),
        None,
        "Applying",
    ),
    "deleted, and its document is somebody else's": (
        under_way(foreign="not ours", halted=True, deleting_since=NOW),
        RemoveFinalizer(),
        ("False", "ForeignRun"),
        "Failed",
    ),
    "deleted with a forged document": (
        under_way(forged="no", deleting_since=NOW),
        Halt(),
        ("False", "Forged"),
        "Applying",
    ),
    "deleted with a forged document, all of which was ended": (
        under_way(forged="no", halted=True, deleting_since=NOW),
        RemoveFinalizer(),
        ("False", "Forged"),
        "Failed",
    ),
    "deleted in mid-run, settled": (
        under_way(run=replace(APPLYING, result=SUCCESS), deleting_since=NOW),
        RemoveFinalizer(),
        None,
        "Succeeded",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_next_step(name: str) -> None:
    given, action, ready, phase = CASES[name]

    decision = decide(given)

    assert decision.action == action
    if ready is not None:
        assert condition(decision, "Ready") == ready
    assert (decision.status.phase.value if decision.status.phase else None) == phase
    assert decision.status.observed_generation == given.generation


@pytest.mark.parametrize("name", ["it may begin: intent first", "begun: finalizer next", "stored: finalizer next"])
def test_what_takes_no_time_is_followed_by_the_next_step_at_once(name: str) -> None:
    assert decide(CASES[name][0]).again_after_s == 0


TAKEN_OVER = {
    "deadline": (under_way(run=APPLYING, runner=RUNNING, now=NOW + timedelta(minutes=11)), "DeadlineExceeded"),
    "deadline, job dead": (
        under_way(run=APPLYING, runner=DEAD, now=NOW + timedelta(minutes=10, seconds=1)),
        "DeadlineExceeded",
    ),
    "deadline, unapproved": (
        under_way(run=AWAITING, runner=LOST, approval=approved(AWAITING), now=NOW + timedelta(minutes=11)),
        "DeadlineExceeded",
    ),
    "deleted": (under_way(run=APPLYING, runner=RUNNING, deleting_since=NOW), "Deleted"),
    "deleted, at the end of its time": (
        under_way(run=APPLYING, runner=RUNNING, deleting_since=NOW - timedelta(minutes=2)),
        "Deleted",
    ),
    "deleted, with more time": (
        under_way(
            run=APPLYING,
            runner=RUNNING,
            deleting_since=NOW - timedelta(minutes=4),
            deletion_limit=timedelta(minutes=5),
        ),
        "Deleted",
    ),
    "too many launches": (
        under_way(
            WORKING.model_copy(update={"application": f"{DOCUMENT}-12"}), run=APPLYING, runner=replace(DEAD, fenced=12)
        ),
        "JobFailed",
    ),
}


@pytest.mark.parametrize("name", TAKEN_OVER)
def test_a_run_is_taken_over(name: str) -> None:
    given, reason = TAKEN_OVER[name]

    action = decide(given).action

    assert isinstance(action, TakeOver)
    assert action.reason == reason


def test_an_unreadable_spec_does_not_end_a_run_under_way() -> None:
    assert decide(under_way(spec=None, invalid="x", run=APPLYING, runner=RUNNING)).action is None


def test_deciding_again_changes_nothing() -> None:
    for name, (given, _, _, _) in CASES.items():
        once = decide(given)
        again = decide(replace(given, status=once.status, now=given.now))
        if again.action == once.action and once.again_after_s > 0:
            assert again.status == once.status, name


def test_the_generation_alone_moves_on_when_a_finished_reset_rests() -> None:
    ended = decide(under_way(run=replace(APPLYING, result=SUCCESS))).status

    decision = decide(seen(status=ended, generation=4, now=NOW + timedelta(days=1)))

    found = find_condition(decision.status.conditions, "Ready")
    assert found is not None
    assert (found.reason, found.message, found.observed_generation) == ("Applied", "done", 4)
    assert found.last_transition_time == NOW
    assert decision.happenings == ()


def test_the_result_is_in_the_status() -> None:
    status = decide(under_way(run=replace(APPLYING, result=SUCCESS))).status

    told = status.to_json()
    assert [c["type"] for c in told.pop("conditions")] == ["ReadFromTarget", "Complete", "Ready"]
    assert told == {
        "observedGeneration": 3,
        "runUid": "uid/one",
        "phase": "Succeeded",
        "startedAt": "2026-11-21T11:59:00Z",
        "finishedAt": "2026-11-21T12:00:00Z",
        "engine": "Direct",
        "way": "Barrier",
        "application": f"{DOCUMENT}-1",
        "plan": {
            "configMap": DOCUMENT,
            "partitions": 1,
            "moved": 1,
            "unchanged": 0,
            "clamped": 0,
            "recordsReplayed": 40,
            "recordsSkipped": 0,
        },
        "digest": digest_of(APPLYING),
        "standstill": {"p50": "500ms", "max": "1s250ms"},
        "redone": 0,
        "begun": 1,
        "waiting": 0,
        "resultDigest": digest_of_end(digest_of(APPLYING), SUCCESS),
    }


@pytest.mark.parametrize(
    ("result", "counts"),
    [
        (replace(SUCCESS, before=(PartitionOffset("t", 0, 55),)), (45, 0, 1)),
        (replace(SUCCESS, before=(PartitionOffset("t", 0, 10),)), (0, 0, 0)),
        (replace(SUCCESS, before=(PartitionOffset("t", 0, 3),)), (0, 7, 1)),
        (replace(SUCCESS, before=()), (40, 0, 1)),
        (replace(SUCCESS, phase=ResetPhase.ROLLED_BACK, before=(PartitionOffset("t", 0, 55),)), (40, 0, 1)),
    ],
    ids=["read on meanwhile", "went back itself", "went back further", "not known", "rolled back: as planned"],
)
def test_what_was_read_again_counts_from_where_the_group_stood_when_it_was_moved(
    result: RunResult, counts: tuple[int, int, int]
) -> None:
    plan = decide(under_way(run=replace(APPLYING, result=result))).status.plan

    assert plan is not None
    assert (plan.records_replayed, plan.records_skipped, plan.moved) == counts


def test_no_count_is_larger_than_an_api_server_takes() -> None:
    """The offsets of a document may have been made up."""
    far = tuple(replace(PLAN.partitions[0], partition=n, committed=OFFSET_MAX, target=0) for n in range(3))

    plan = decide(under_way(run=replace(APPLYING, plan=replace(PLAN, partitions=far)))).status.plan

    assert plan is not None
    assert plan.records_replayed == OFFSET_MAX


@pytest.mark.parametrize(
    ("known", "status", "reason", "said"),
    [
        ({"begun": 3, "waiting": 0}, "True", "Reading", "3 partition(s) were read from their targets"),
        ({"begun": None, "waiting": None}, "Unknown", "NotLookedAt", "Kafka did not say"),
        (
            {"begun": 1, "waiting": 3, "unread": ("t-1 by billing at /10.0.0.7", "t-2, as the group is rebalancing")},
            "Unknown",
            "NotKnownYet",
            "it was not yet known whether 3 partition(s) were read from their targets: t-1 by billing at /10.0.0.7, "
            "t-2, as the group is rebalancing and 1 more. These",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_condition_says_who_has_not_read_from_a_target(
    known: dict[str, Any], status: str, reason: str, said: str
) -> None:
    result = replace(SUCCESS, **known)

    decided = decide(under_way(run=replace(APPLYING, result=result))).status

    condition = find_condition(decided.conditions, "ReadFromTarget")
    assert condition is not None
    assert (condition.status, condition.reason) == (status, reason)
    assert said in condition.message


def test_of_a_run_that_changed_nothing_no_condition_says_who_reads() -> None:
    result = replace(SUCCESS, phase=ResetPhase.ROLLED_BACK, reason="Overwritten", begun=None, waiting=None)

    decided = decide(under_way(run=replace(APPLYING, result=result))).status

    assert find_condition(decided.conditions, "ReadFromTarget") is None


def test_one_that_was_rolled_back_has_failed() -> None:
    result = replace(SUCCESS, phase=ResetPhase.ROLLED_BACK, reason="Overwritten", begun=None, waiting=None)

    decided = decide(under_way(run=replace(APPLYING, result=result)))

    assert condition(decided, "Complete") == ("False", "Overwritten")
    assert condition(decided, "Failed") == ("True", "Overwritten")


def test_each_phase_of_the_journal_is_told_under_a_key_of_its_own() -> None:
    journal = (
        progress(ResetPhase.PLANNING),
        progress(ResetPhase.APPLYING),
        progress(ResetPhase.VERIFYING),
        progress(ResetPhase.APPLYING),
        progress(ResetPhase.VERIFYING),
    )
    run = Run(REQUEST, 1, PLAN, journal, result=SUCCESS)

    happenings = decide(under_way(run=run)).happenings

    assert [h.reason for h in happenings] == ["Planning", "Applying", "Verifying", "Succeeded"]
    assert len({h.key for h in happenings}) == 4


def test_the_status_says_what_a_run_waits_for() -> None:
    waits = replace(progress(ResetPhase.APPLYING), waits_for="Kafka does not answer: no route")
    decision = decide(under_way(run=replace(APPLYING, journal=(*APPLYING.journal, waits)), runner=RUNNING))
    said = find_condition(decision.status.conditions, "Complete")
    assert said is not None
    assert said.message.endswith("Waiting: Kafka does not answer: no route")


def test_the_status_says_that_a_run_is_being_rolled_back() -> None:
    back = Progress(ResetPhase.VERIFYING, NOW, 1, round=2, putting_back="Overwritten", message="owners still go on")
    run = replace(APPLYING, journal=(*APPLYING.journal, back))

    decision = decide(under_way(run=run, runner=RUNNING))

    said = find_condition(decision.status.conditions, "Complete")
    assert said is not None
    assert said.message == "reset one of group payments is being rolled back (Verifying): owners still go on"


@pytest.mark.parametrize("line", [None, WAITS_FOR_ITS_TURN])
def test_nobody_is_asked_to_approve_what_is_approved(line: Progress | None) -> None:
    journal = (*AWAITING.journal, *([line] if line is not None else ()))

    decision = decide(under_way(run=replace(APPROVED, attempt=2, journal=journal), runner=RUNNING))

    said = find_condition(decision.status.conditions, "Complete")
    assert said is not None
    assert "is approved" in said.message
    assert "create an OffsetResetApproval" not in said.message
    assert ("another run has the group" in said.message) == (line is not None)
    assert not [h for h in decision.happenings if h.reason == "AwaitingApproval"]


def test_undo_goes_to_where_the_owners_let_go() -> None:
    """Past what the first intent wrote down: the owners committed once more when they let go."""
    from tidegate.reset.model.targets import Undo
    from tidegate.reset.runs.request import undo_target

    intent = replace(
        progress(ResetPhase.PAUSING),
        before=(PartitionOffset("t", 0, 50),),
        pending=(TopicPartition("t", 0), TopicPartition("t", 1)),
    )
    partitions = tuple(PartitionPlan("t", n, "id", 50, 10, 0, 100) for n in (0, 1))
    plan = replace(PLAN, partitions=partitions)
    run = Run(REQUEST, 1, plan, (intent,), result=replace(SUCCESS, before=(PartitionOffset("t", 0, 57),)))

    target = undo_target("one", run)

    assert target == Undo("one", (PartitionOffset("t", 0, 57),), (TopicPartition("t", 1),), (("t", "id"),))
    assert isinstance(undo_target("one", None), Refusal)
    failed = replace(run, result=replace(SUCCESS, phase=ResetPhase.FAILED, reason="DeadlineExceeded"))
    assert isinstance(undo_target("one", failed), Refusal)
    assert isinstance(
        undo_target("one", replace(run, result=replace(SUCCESS, phase=ResetPhase.FAILED, reason="NotPutBack"))), Undo
    )


FLEET = replace(MANUAL, group_id="", fleet=FleetRequest(("payments-*",)))
FLEET_PLAN = FleetPlan(
    "one",
    NOW,
    (
        GroupPlan("payments-a", 2, 1, records_replayed=40, span_from=NOW - timedelta(hours=1), span_to=NOW),
        GroupPlan("payments-b", 1, 1, records_skipped=7),
        GroupPlan("payments-c", refused="TopicNotAllowed", message="no"),
    ),
)


def test_a_fleets_plan_is_approved_as_one() -> None:
    awaiting = Run(FLEET, 1, None, (progress(ResetPhase.AWAITING_APPROVAL),), fleet=FLEET_PLAN)

    waits = decide(under_way(run=awaiting, runner=DEAD))
    approves = decide(under_way(run=awaiting, runner=DEAD, approval=approved(awaiting)))

    assert (waits.action, approves.action) == (None, Approve())
    reset = waits.status
    assert reset.plan is not None
    assert reset.fleet is not None
    assert reset.phase is ResetPhase.AWAITING_APPROVAL
    assert (reset.plan.partitions, reset.plan.moved, reset.plan.unchanged) == (3, 2, 1)
    assert (reset.plan.records_replayed, reset.plan.records_skipped, reset.plan.to) == (40, 7, NOW)
    assert (reset.fleet.groups, reset.fleet.refused) == (3, 1)
    [message] = [c.message for c in waits.status.conditions if c.type == "Complete"]
    assert "of groups payments-* is planned (2 group(s) and 1 without a plan, 3 partition(s)" in message


def test_a_fleets_status_names_the_first_groups_only() -> None:
    counted = FleetCounts(970, 30, 0, tuple(GroupTrouble(f"g{n}", "Overwritten", "no") for n in range(20)))
    ended = Run(FLEET, 1, None, (), replace(SUCCESS, phase=ResetPhase.FAILED, counts=counted), True, fleet=FLEET_PLAN)

    reset = decide(under_way(run=ended, runner=DEAD)).status

    assert reset.fleet is not None
    assert (reset.phase, reset.fleet.reset, reset.fleet.failed) == (ResetPhase.FAILED, 970, 30)
    assert len(reset.fleet.failures) == 20
    assert reset.fleet.failures[0].group == "payments-c"


WAVES = replace(
    FLEET, manual_approval=False, fleet=FleetRequest(("payments-*",), waves=Waves(groups=1, pause=timedelta(minutes=5)))
)


def paused(until: datetime, *, attempt: int = 1, pauses: int = 1) -> Run:
    """A fleet that has ended its job for a pause, after so many waves; ``attempt``: of the newest job."""
    lines = [
        line
        for wave in range(1, pauses + 1)
        for line in (
            replace(progress(ResetPhase.APPLYING), wave=wave, message=f"wave {wave} of 2 begins"),
            replace(progress(ResetPhase.APPLYING), wave=wave, message="paused", paused_until=until),
        )
    ]
    return Run(WAVES, attempt, None, (progress(ResetPhase.APPLYING), *lines), fleet=FLEET_PLAN)


def at_launch(number: int) -> OffsetResetStatus:
    return WORKING.model_copy(update={"application": f"{DOCUMENT}-{number}"})


def test_a_pause_is_not_taken_for_a_death_and_ends_by_the_time_that_was_written_down() -> None:
    until = NOW + timedelta(minutes=5)

    early = decide(under_way(run=paused(until), runner=DEAD))
    late = decide(under_way(run=paused(until), runner=DEAD, now=until))
    lost = decide(under_way(run=paused(until), runner=LOST, now=until + timedelta(hours=1)))

    assert (early.action, early.again_after_s) == (None, 300)
    assert condition(early, "Complete") == ("Unknown", "Applying")
    assert late.action == Launch(f"{DOCUMENT}-2")
    assert lost.action == TakeOver(reasons.DEADLINE_EXCEEDED, "reset one passed its deadline: it had not ended in time")


def test_the_jobs_of_a_replay_that_ends_are_not_counted_as_deaths() -> None:
    """Each may have found Kafka away while the group stands at its ends."""
    request = replace(REQUEST, until=Until(Then.CONTINUE, timedelta(hours=1), records=5))
    replaying = Progress(ResetPhase.REPLAYING, NOW, 1, round=1)
    ending = Progress(ResetPhase.PAUSING, NOW, 20, round=2, putting_back=CONTINUED, message="the replay has ended")
    run = Run(request, plan=PLAN, journal=(replaying, ending), attempt=20)
    died = replace(DEAD, fenced=20, died_at=NOW - timedelta(minutes=1))

    again = decide(under_way(at_launch(20), run=run, runner=died))
    over = decide(under_way(at_launch(20), run=run, runner=died, now=NOW + timedelta(minutes=16)))

    assert again.action == Launch(f"{DOCUMENT}-21")
    assert isinstance(over.action, TakeOver)
    assert (over.action.reason, "did not move its group on" in over.action.message) == (reasons.REPLAY_TIMED_OUT, True)


def test_the_jobs_of_waves_are_not_counted_as_deaths() -> None:
    run = paused(NOW, attempt=2, pauses=20)
    alive = replace(DEAD, fenced=21, died_at=NOW - timedelta(minutes=1))

    dead = decide(under_way(at_launch(21), run=run, runner=replace(alive, fenced=20)))
    again = decide(under_way(at_launch(21), run=run, runner=alive))
    given_up = decide(under_way(at_launch(32), run=run, runner=replace(alive, fenced=32)))

    assert (dead.action, again.action) == (Fence(21), Launch(f"{DOCUMENT}-22"))
    assert given_up.action == TakeOver(reasons.JOB_FAILED, "the job of reset one ended 12 times without a result: boom")


def test_a_job_that_never_begins_its_wave_is_not_started_for_ever() -> None:
    run = paused(NOW)
    dead = replace(DEAD, died_at=NOW)

    at_once = decide(under_way(at_launch(1), run=run, runner=dead))
    slower = decide(under_way(at_launch(6), run=run, runner=dead))
    given_up = decide(under_way(at_launch(13), run=run, runner=replace(dead, fenced=13)))

    assert at_once.action == Launch(f"{DOCUMENT}-2")
    assert slower.action == Fence(6)
    assert isinstance(given_up.action, TakeOver)


def test_a_job_that_never_begins_what_was_approved_is_not_started_for_ever() -> None:
    run = APPROVED

    at_once = decide(under_way(at_launch(1), run=run, runner=DEAD))
    slower = decide(under_way(at_launch(6), run=run, runner=DEAD))
    again = decide(under_way(at_launch(12), run=run, runner=replace(DEAD, died_at=NOW - timedelta(minutes=1))))
    given_up = decide(under_way(at_launch(13), run=run, runner=replace(DEAD, fenced=13)))

    assert at_once.action == Launch(f"{DOCUMENT}-2")
    assert slower.action == Fence(6)
    assert again.action == Launch(f"{DOCUMENT}-13")
    assert isinstance(given_up.action, TakeOver)
    assert given_up.action.reason == reasons.JOB_FAILED


def test_waves_are_told_of_once_each_and_so_is_a_stop() -> None:
    run = paused(NOW, pauses=2)
    stop = replace(progress(ResetPhase.APPLYING), wave=2, message="Wave 2 of 2: group b: no", stopped=True)
    stopped = replace(run, journal=(*run.journal, stop))

    told = decide(under_way(run=stopped, runner=RUNNING))

    assert [(h.type.value, h.reason, h.message) for h in told.happenings][:3] == [
        ("Normal", "WaveBegun", "wave 1 of 2 begins"),
        ("Normal", "WaveBegun", "wave 2 of 2 begins"),
        ("Warning", "RolloutStopped", "Wave 2 of 2: group b: no"),
    ]
    assert len({h.key for h in told.happenings}) == len(told.happenings)
    fleet = told.status.fleet
    assert fleet is not None
    assert (fleet.wave, fleet.waves, fleet.not_begun) == (2, 2, 0)
