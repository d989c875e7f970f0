"""Resources with the statuses that the operator's own decisions write, in every state that a person may find them in.

Each says how it is to be read: by kstatus, and by Argo CD. ``python tests/support/written_resources.py`` writes them
into ``integrations/argocd`` as the test data of its Lua scripts, in Argo CD's layout.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from support.fake_kafka import FakeClock
from support.fake_kube import FakeKube
from support.kstatus import KStatus
from tidegate.connection import status as connections
from tidegate.connection.allow import GROUP_NOT_ALLOWED, STORAGE_NOT_ALLOWED
from tidegate.connection.live import LiveConnections
from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey, HoldKey
from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.jobs.storage import Folder
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Broker, Cluster, Group, GroupState, GroupType, Member, Topic, TopicPartition
from tidegate.kube.ports import RESETS
from tidegate.offset_backup import document as backups
from tidegate.offset_backup import status as backup
from tidegate.offset_backup.order import Order
from tidegate.offset_mirror import status as mirror
from tidegate.offset_mirror.counting import counted
from tidegate.offset_mirror.course import Course
from tidegate.offset_reset.approval_status import said as approval_status
from tidegate.pause import plan as pause
from tidegate.pause.holds import hold_of, holder
from tidegate.policy.draft import Draft
from tidegate.policy.parts import Parts
from tidegate.policy.requesting import Requesting
from tidegate.policy.template import reset_spec
from tidegate.reset.applying.replay import Replayed
from tidegate.reset.binding import digest_of
from tidegate.reset.model.fleet import FleetCounts, FleetPlan, GroupPlan, GroupTrouble
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest, Until
from tidegate.reset.model.result import RunResult, Standstill
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs import approval_effect, decisions, reasons, seen
from tidegate.reset.store import Run
from tidegate.resources.approval import ApprovalStatus, OffsetResetApprovalSpec, OffsetResetApprovalStatus
from tidegate.resources.base import NOT_LOOKED_AT, ResourceModel, SpecModel, parse_spec
from tidegate.resources.conditions import BACKED_UP, EFFECTIVE, RETAINED, Refusal, with_condition
from tidegate.resources.connection import AllowSpec, ConnectionStatus, KafkaConnectionSpec
from tidegate.resources.mirror_failover import FailedOverTopic, FailoverPhase, MirrorFailover
from tidegate.resources.offset_backup import OffsetBackupSpec, OffsetBackupStatus
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus, OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.replay import Then
from tidegate.resources.reset import EarlierReset, Engine, RequestedReset, ResetPhase, Way
from tidegate.service.metrics import Metrics

CUSTOMIZATIONS: Final = (
    Path(__file__).resolve().parents[2] / "integrations" / "argocd" / "resource_customizations" / "tidegate.io"
)

_NOW: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_GENERATION: Final = 3


@dataclass(frozen=True, slots=True)
class Written:
    """``name``: of the test data's file. ``argo``: Argo CD's health status; ``says``: its message, or the type of the
    condition whose message it is."""

    name: str
    body: Mapping[str, Any]
    kstatus: KStatus
    argo: str
    says: str = "Ready"

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def message(self) -> str:
        conditions = {c["type"]: c["message"] for c in self.body["status"].get("conditions", ())}
        return str(conditions.get(self.says, self.says))


@dataclass(frozen=True, slots=True)
class _Kind:
    kind: str
    name: str
    spec: Mapping[str, Any]
    model: type[SpecModel]

    def body(
        self,
        status: ResourceModel | Mapping[str, Any],
        *,
        spec: Mapping[str, Any] | None = None,
        generation: int = _GENERATION,
        deleting: bool = False,
    ) -> dict[str, Any]:
        given = {**self.spec, **(spec or {})}
        parse_spec(self.model, {"spec": given})
        metadata: dict[str, Any] = {"name": self.name, "namespace": "payments", "generation": generation}
        if deleting:
            metadata |= {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["foregroundDeletion"]}
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": self.kind,
            "metadata": metadata,
            "spec": given,
            "status": _filled(status.to_json()) if isinstance(status, ResourceModel) else dict(status),
        }


def _filled(status: Mapping[str, Any]) -> dict[str, Any]:
    """Without the lists that are empty: what nobody reads need not be kept in every file."""
    return {name: value for name, value in status.items() if value != []}


_NO_WORD: Final = "the operator has not seen this generation yet"
_GOING: Final = "it is being deleted"


def _everywhere(kind: _Kind, settled: ResourceModel) -> Iterator[Written]:
    """What may be found of each kind."""
    yield Written("not_looked_at", kind.body(NOT_LOOKED_AT), KStatus.IN_PROGRESS, "Progressing", _NO_WORD)
    changed = kind.body(settled, generation=_GENERATION + 1)
    yield Written("changed_since", changed, KStatus.IN_PROGRESS, "Progressing", _NO_WORD)
    yield Written("deleting", kind.body(settled, deleting=True), KStatus.TERMINATING, "Progressing", _GOING)


# --- KafkaConnection --------------------------------------------------------------------------------------------------

_CONNECTION: Final = _Kind("KafkaConnection", "prod", {"bootstrapServers": "kafka-0.kafka:9092"}, KafkaConnectionSpec)


def _connections() -> Iterator[Written]:
    cluster = Cluster("Zm9vYmFyYmF6cXV4MTIzNA", (Broker(0, "kafka-0.kafka", 9092),))

    def status(seen: Cluster | connections.Trouble) -> ConnectionStatus:
        return connections.status_of(ConnectionStatus(), seen, generation=_GENERATION, now=_NOW)

    def written(name: str, reason: str, message: str, *, needs_help: bool, kstatus: KStatus, argo: str) -> Written:
        trouble = connections.Trouble(reason, message, needs_help)
        return Written(name, _CONNECTION.body(status(trouble)), kstatus, argo)

    yield from _everywhere(_CONNECTION, status(cluster))
    yield Written("connected", _CONNECTION.body(status(cluster)), KStatus.CURRENT, "Healthy")
    yield written(
        "kafka_unavailable",
        connections.KAFKA_UNAVAILABLE,
        "kafka-0.kafka:9092 does not answer",
        needs_help=False,
        kstatus=KStatus.IN_PROGRESS,
        argo="Progressing",
    )
    yield written(
        "not_authorized",
        connections.NOT_AUTHORIZED,
        "the principal lacks Describe on the cluster",
        needs_help=True,
        kstatus=KStatus.FAILED,
        argo="Degraded",
    )


# --- ConsumerGroupPause -----------------------------------------------------------------------------------------------

_GROUP: Final = "payments-eu"
_PAUSE: Final = _Kind(
    "ConsumerGroupPause",
    "inc-4711",
    {
        "connectionRef": {"name": "prod"},
        "group": _GROUP,
        "partitions": [{"topic": "orders"}],
        "reason": "INC-4711 poison record",
        "resumeAfter": "2h",
    },
    ConsumerGroupPauseSpec,
)
_PARTITIONS: Final = tuple(TopicPartition("orders", number) for number in range(2))
_OWNER: Final = Member("payments-1-9d1f", "payments-1", "/10.0.0.7", None, frozenset(_PARTITIONS))
_GROUP_SEEN: Final = Group(_GROUP, GroupState.STABLE, GroupType.CLASSIC, "range", (_OWNER,))


def _pause_spec(**changes: Any) -> ConsumerGroupPauseSpec:
    return parse_spec(ConsumerGroupPauseSpec, {"spec": {**_PAUSE.spec, **changes}})


def _gates(*, held: bool = True, acked: bool = False) -> Gates:
    gates, hold = Gates(), hold_of(_pause_spec(), "payments/inc-4711")
    for epoch, partition in enumerate(_PARTITIONS, 1):
        if held:
            gates.take(HoldKey(_GROUP, "orders", partition.partition, holder("conn", "uid")), hold, epoch)
        if acked:
            key = AckKey(_GROUP, "orders", partition.partition)
            gates.acks = {**gates.acks, key: (Ack(epoch, 42, _OWNER.member_id),)}
    return gates


def _paused(gates: Gates, *, spec: ConsumerGroupPauseSpec | None = None, **changes: Any) -> PauseStatus:
    """What a pass writes; where owners are waited for, what the pass after ``patient`` writes."""
    topics = changes.pop("topics", {"orders": Topic("orders", "id", len(_PARTITIONS))})
    patient = changes.pop("patient", timedelta(0))
    seen = pause.Seen(
        uid="uid",
        name="payments/inc-4711",
        generation=_GENERATION,
        created=_NOW,
        spec=spec or _pause_spec(),
        status=PauseStatus(),
        now=_NOW,
        observed=pause.Observed("prod", "conn", changes.pop("allow", AllowSpec()), topics, _GROUP_SEEN, gates),
        has_finalizer=True,
    )
    first = pause.decide(replace(seen, **changes))
    if not patient:
        return first.status
    later = replace(seen, status=first.status, waits=first.waits, rows=first.rows, now=_NOW + patient, **changes)
    return pause.decide(later).status


def _pauses() -> Iterator[Written]:
    in_progress, failed, current = KStatus.IN_PROGRESS, KStatus.FAILED, KStatus.CURRENT
    closed, open_ = _gates(acked=True), _gates(held=False)
    settled = _paused(closed)
    suspended = {"suspend": True}
    away = Refusal(pause.WAITING_FOR_CONNECTION, "KafkaConnection prod is not ready: its cluster does not answer")
    topics_wrong = Refusal(pause.CONTROL_TOPICS_UNUSABLE, "topic __tidegate has 3 partitions: delete it")
    yield from _everywhere(_PAUSE, settled)

    def row(name: str, status: PauseStatus, kstatus: KStatus, argo: str, **spec: Any) -> Written:
        return Written(name, _PAUSE.body(status, spec=spec), kstatus, argo)

    yield row("pausing", _paused(_gates()), in_progress, "Progressing")
    yield row("paused", settled, current, "Healthy")
    yield row("members_without_agent", _paused(_gates(), patient=timedelta(seconds=6)), failed, "Degraded")
    yield row("topic_missing", _paused(open_, topics={}), in_progress, "Progressing")
    yield row("kafka_away", _paused(closed, observed=None, waiting=away), in_progress, "Progressing")
    yield row("control_topics_unusable", _paused(open_, observed=None, unusable=topics_wrong), failed, "Degraded")
    yield row("group_not_allowed", _paused(open_, allow=AllowSpec(groups=("other",))), failed, "Degraded")
    yield row("resuming", _paused(closed, spec=_pause_spec(suspend=True)), in_progress, "Progressing", **suspended)
    yield row("suspended", _paused(open_, spec=_pause_spec(suspend=True)), current, "Suspended", **suspended)
    over = _paused(open_, status=settled.model_copy(update={"resumes_at": _NOW, "resume_after": timedelta(hours=2)}))
    yield row("time_over", over, current, "Healthy")


# --- OffsetReset ------------------------------------------------------------------------------------------------------

_ID: Final = "replay-2026-11-20"
_NAME: Final = f"payments-{_ID}"
_TO: Final = {"to": {"timestamp": "2026-11-20T14:00:00Z"}}
_RESET: Final = _Kind(
    "OffsetReset",
    _NAME,
    # An empty object shows whether a script that hands the resource back keeps it one.
    {"connectionRef": {"name": "prod"}, "group": _GROUP, "evidence": {}, **_TO},
    OffsetResetSpec,
)
_REQUEST: Final = RunRequest(
    run_uid=f"uid/{_NAME}",
    run_id=_NAME,
    group_id=_GROUP,
    connection=Connection("kafka-0.kafka:9092"),
    selections=(),
    target=ToOffset(10),
    settings=ApplySettings(deadline=_NOW + timedelta(minutes=15)),
)
_PLAN: Final = Plan(
    _NAME,
    _GROUP,
    _NOW,
    (PartitionPlan("orders", 0, "id", committed=50, target=10, earliest=0, latest=60),),
)
_BEGUN: Final = OffsetResetStatus(
    run_uid=f"uid/{_NAME}",
    phase=ResetPhase.PENDING,
    started_at=_NOW,
    engine=Engine.SPARK,
    application=f"{_NAME}-1",
)
_AT_WORK: Final = seen.RunnerSeen(Engine.SPARK, RunnerStatus(RunnerState.RUNNING), started_here=True)
_DIED: Final = seen.RunnerSeen(
    Engine.SPARK, RunnerStatus(RunnerState.EXITED, "OOMKilled"), started_here=True, fenced=2, died_at=_NOW
)


@dataclass(frozen=True, slots=True)
class _ResetSeen:
    status: OffsetResetStatus = field(default_factory=OffsetResetStatus)
    spec: OffsetResetSpec = field(default_factory=lambda: parse_spec(OffsetResetSpec, {"spec": _RESET.spec}))
    run: Run | None = None
    runner: seen.RunnerSeen | None = None
    start: seen.Start | None = None
    replay: Replayed | None = None

    def decided(self) -> OffsetResetStatus:
        observed = seen.Seen(
            uid="uid",
            run_id=_NAME,
            generation=_GENERATION,
            spec=self.spec,
            status=self.status,
            now=_NOW,
            run_document=f"{_NAME}-5f2c0d6e",
            run=replace(self.run, digest=digest_of(self.run)) if self.run is not None else None,
            runner=self.runner,
            start=self.start,
            replay=self.replay,
            has_finalizer=self.run is not None,
        )
        return decisions.decide(observed).status


def _at_work(*phases: ResetPhase, plan: Plan | None = _PLAN, request: RunRequest = _REQUEST) -> OffsetResetStatus:
    journal = tuple(Progress(phase, _NOW, 1) for phase in phases)
    return _ResetSeen(_BEGUN, run=Run(request, 1, plan, journal), runner=_AT_WORK).decided()


def _replaying() -> OffsetResetStatus:
    """No job is at work; the group has read half of what is replayed."""
    [partition] = _PLAN.partitions
    plan = replace(_PLAN, partitions=(replace(partition, end=50),))
    request = replace(_REQUEST, until=Until(Then.RETURN, timedelta(hours=6), records=40))
    journal = tuple(Progress(phase, _NOW, 1) for phase in (ResetPhase.PAUSING, ResetPhase.REPLAYING))
    runner = seen.RunnerSeen(Engine.DIRECT, RunnerStatus(RunnerState.EXITED), started_here=True)
    read = Replayed(
        records=40, read=20, partitions=1, reached=0, waits_for="orders-0 at 30 of 50: it is paused (INC-4711)"
    )
    return _ResetSeen(_BEGUN, run=Run(request, 1, plan, journal), runner=runner, replay=read).decided()


def _ended(phase: ResetPhase, reason: str, message: str) -> OffsetResetStatus:
    result = RunResult(phase, reason, message, _NOW, way=Way.BARRIER, standstill=Standstill(0.5, 1.25))
    run = Run(
        _REQUEST,
        1,
        _PLAN,
        (Progress(ResetPhase.PLANNING, _NOW, 1), Progress(ResetPhase.PAUSING, _NOW, 1)),
        result=result,
    )
    return _ResetSeen(_BEGUN, run=run).decided()


def _succeeded() -> OffsetResetStatus:
    return _ended(ResetPhase.SUCCEEDED, "Applied", "1 partition(s) of group payments-eu moved, by way Barrier")


def _failed() -> OffsetResetStatus:
    return _ended(ResetPhase.FAILED, "NotAuthorized", "Read on topic orders is missing")


def _refused() -> OffsetResetStatus:
    refusal = Refusal(GROUP_NOT_ALLOWED, "KafkaConnection prod does not allow group payments-eu")
    return _ResetSeen(start=seen.Start(refusal=refusal)).decided()


def _awaiting_approval() -> OffsetResetStatus:
    manual = replace(_REQUEST, manual_approval=True)
    return _at_work(ResetPhase.PLANNING, ResetPhase.AWAITING_APPROVAL, request=manual)


def _resets() -> Iterator[Written]:
    in_progress, failed, current = KStatus.IN_PROGRESS, KStatus.FAILED, KStatus.CURRENT
    yield from _everywhere(_RESET, _succeeded())

    def row(name: str, status: OffsetResetStatus, kstatus: KStatus, argo: str, **spec: Any) -> Written:
        return Written(name, _RESET.body(status, spec=spec), kstatus, argo)

    def waits(reason: str, message: str) -> OffsetResetStatus:
        return _ResetSeen(start=seen.Start(waits_for=Refusal(reason, message))).decided()

    yield row("pending", _ResetSeen(start=seen.Start(request=_REQUEST)).decided(), in_progress, "Progressing")
    behind = waits(reasons.WAITING_FOR_RESET, "waits for OffsetReset older")
    yield row("waiting_for_reset", behind, in_progress, "Progressing")
    in_line = waits(reasons.WAITING_FOR_QUOTA, "KafkaConnection kafka allows 2 reset(s) at once, and 2 run")
    yield row("waiting_for_quota", in_line, in_progress, "Progressing")
    suspended = waits(reasons.SUSPENDED, "spec.suspend is true: the reset goes ahead once it is false")
    yield row("suspended", suspended, in_progress, "Suspended", suspend=True)
    yield row("refused", _refused(), failed, "Degraded")
    yield row("planning", _at_work(ResetPhase.PLANNING, plan=None), in_progress, "Progressing")
    yield row("awaiting_approval", _awaiting_approval(), in_progress, "Suspended")
    for phase in (ResetPhase.PAUSING, ResetPhase.APPLYING, ResetPhase.VERIFYING, ResetPhase.RESUMING):
        yield row(phase.value.lower(), _at_work(ResetPhase.PLANNING, phase), in_progress, "Progressing")
    yield row("replaying", _replaying(), in_progress, "Progressing")
    died = _BEGUN.model_copy(update={"application": f"{_NAME}-2"})
    restarting = _ResetSeen(died, run=Run(_REQUEST, 2, _PLAN, (Progress(ResetPhase.PAUSING, _NOW, 2),)), runner=_DIED)
    yield row("job_restarting", restarting.decided(), in_progress, "Progressing")
    yield row("succeeded", _succeeded(), current, "Healthy")
    yield row("failed", _failed(), failed, "Degraded")
    overwritten = _ended(ResetPhase.ROLLED_BACK, "Overwritten", "owners committed over the target; it was put back")
    yield row("rolled_back", overwritten, failed, "Degraded")


def _fleets() -> Iterator[Written]:
    fleet = replace(_RESET, spec={"connectionRef": {"name": "prod"}, "groups": ["payments-*"], **_TO})
    spec = parse_spec(OffsetResetSpec, {"spec": fleet.spec})
    request = replace(_REQUEST, group_id="", manual_approval=True, fleet=FleetRequest(("payments-*",)))
    plan = FleetPlan(
        _NAME,
        _NOW,
        (
            GroupPlan(_GROUP, partitions=1, moved=1, records_replayed=40),
            GroupPlan("payments-us", partitions=1, moved=1, records_replayed=40),
            GroupPlan("payments-x", refused="NothingToReset", message="group payments-x has no offsets"),
        ),
    )

    def row(name: str, run: Run, kstatus: KStatus, argo: str) -> Written:
        status = _ResetSeen(_BEGUN, spec=spec, run=run, runner=_AT_WORK).decided()
        return Written(name, fleet.body(status), kstatus, argo)

    awaiting = Run(request, 1, journal=(Progress(ResetPhase.PLANNING, _NOW, 1),), fleet=plan)
    yield row("fleet_awaiting_approval", awaiting, KStatus.IN_PROGRESS, "Suspended")
    counted = Progress(ResetPhase.APPLYING, _NOW, 1, counts=FleetCounts(reset=1))
    applying = replace(awaiting, approved=True, journal=(*awaiting.journal, counted))
    yield row("fleet_applying", applying, KStatus.IN_PROGRESS, "Progressing")
    trouble = GroupTrouble("payments-us", "NotAuthorized", "may not write offsets of group payments-us")
    message = "Group payments-us: may not write offsets of group payments-us. 1 of 3 groups reset, 1 failed"
    ended = RunResult(ResetPhase.FAILED, "GroupsFailed", message, _NOW, counts=FleetCounts(1, 1, 0, (trouble,)))
    yield row("fleet_failed", replace(applying, result=ended), KStatus.FAILED, "Degraded")


# --- OffsetResetPolicy ------------------------------------------------------------------------------------------------

_POLICY: Final = _Kind(
    "OffsetResetPolicy",
    "payments",
    {"connectionRef": {"name": "prod"}, "group": _GROUP, "discovery": {}, "reset": {"id": _ID, **_TO}},
    OffsetResetPolicySpec,
)


def _asked(
    reset: OffsetResetStatus | None = None, *, kind: _Kind = _POLICY, status: PolicyStatus | None = None
) -> PolicyStatus:
    """What a pass over the policy writes, where its OffsetReset says this, or where there is none."""
    kube, owner = FakeKube(), {"kind": kind.kind, "name": kind.name, "uid": "uid", "controller": True}
    policy = kind.body(PolicyStatus())
    policy["metadata"]["uid"] = "uid"
    if reset is not None:
        there = {**_RESET.body(reset), "spec": dict(reset_spec(policy))}
        there["metadata"] |= {"uid": "of-reset", "ownerReferences": [owner]}
        kube.restore(there, RESETS)
    before = (status or PolicyStatus()).model_copy(update={"observed_generation": _GENERATION})
    draft = Draft(before, _GENERATION, _NOW)
    with ThreadPoolExecutor(1) as pool:
        parts = Parts(kube, LiveConnections(), pool, pool, FakeClock(_NOW), Metrics())
        asyncio.run(Requesting(parts).ask(policy, parse_spec(OffsetResetPolicySpec, policy), draft))
    return draft.status


def _policies() -> Iterator[Written]:
    in_progress, failed, current = KStatus.IN_PROGRESS, KStatus.FAILED, KStatus.CURRENT
    succeeded = _asked(_succeeded())
    yield from _everywhere(_POLICY, succeeded)

    def row(name: str, status: PolicyStatus, kstatus: KStatus, argo: str, says: str = "Ready") -> Written:
        return Written(name, _POLICY.body(status), kstatus, argo, says)

    keeps = replace(_POLICY, spec={name: value for name, value in _POLICY.spec.items() if name != "reset"})
    yield Written("no_reset", keeps.body(_asked(kind=keeps)), current, "Healthy")
    yield row("waiting_for_connection", _asked(), in_progress, "Progressing")
    yield row("refused", _asked(_refused()), failed, "Degraded")
    yield row("awaiting_approval", _asked(_awaiting_approval()), in_progress, "Suspended")
    yield row("applying", _asked(_at_work(ResetPhase.PLANNING, ResetPhase.APPLYING)), in_progress, "Progressing")
    yield row("succeeded", succeeded, current, "Healthy")
    # The policy itself is as it is to be; its OffsetReset is Degraded.
    yield row("reset_failed", _asked(_failed()), current, "Healthy")
    of_another = RequestedReset(id="older", name="payments-older", phase=ResetPhase.SUCCEEDED)
    ended = PolicyStatus(reset=of_another, history=(EarlierReset(id=_ID, phase=ResetPhase.SUCCEEDED),))
    yield row("ran_before", _asked(status=ended), current, "Healthy")
    in_flight = RequestedReset(id=_ID, phase=ResetPhase.APPLYING, started_at=_NOW)
    yield row("begun_by_earlier_version", _asked(status=PolicyStatus(reset=in_flight)), failed, "Degraded")
    place_going = with_condition(
        succeeded.conditions,
        RETAINED,
        False,
        reason="ExpiresSoon",
        message="the first of 4 offset(s) expires at 2026-11-22T08:00:00Z",
        generation=_GENERATION,
        now=_NOW,
    )
    going = succeeded.model_copy(update={"conditions": place_going})
    yield row("offsets_expire_soon", going, current, "Degraded", RETAINED)


# --- OffsetResetApproval ----------------------------------------------------------------------------------------------

_APPROVAL: Final = _Kind(
    "OffsetResetApproval",
    f"{_NAME}-5f2c0d6e",
    {"reset": _NAME, "plan": "0" * 64, "approver": "ann@example.org"},
    OffsetResetApprovalSpec,
)


def _approvals() -> Iterator[Written]:
    spec = parse_spec(OffsetResetSpec, {"spec": {**_RESET.spec, "approval": "Manual"}})
    awaiting = _awaiting_approval()
    of_plan = approval_effect.Approval(_APPROVAL.name, "uid", _NOW, _NAME, awaiting.digest or "", "ann@example.org")
    by = ApprovalStatus(name=of_plan.name, uid="uid", approver=of_plan.approver, approved_at=_NOW)
    approved = awaiting.model_copy(update={"approved_digest": of_plan.plan, "approval": by})
    by_another = approved.model_copy(update={"approval": by.model_copy(update={"uid": "another", "name": "another"})})

    def row(
        name: str, reset: OffsetResetStatus | None, kstatus: KStatus, argo: str, plan: str = of_plan.plan
    ) -> Written:
        seen_reset = None if reset is None else approval_effect.ResetSeen(spec, reset)
        stands = approval_effect.effect_of(replace(of_plan, plan=plan), seen_reset, separate=True)
        status = approval_status(OffsetResetApprovalStatus(), stands, _GENERATION, _NOW)
        return Written(name, _APPROVAL.body(status, spec={"plan": plan}), kstatus, argo, EFFECTIVE)

    effective = row("approved", approved, KStatus.CURRENT, "Healthy")
    yield from _everywhere(_APPROVAL, OffsetResetApprovalStatus.model_validate(effective.body["status"]))
    yield effective
    requested = awaiting.model_copy(update={"requester": "bob@example.org"})
    yield row("taking_effect", requested, KStatus.IN_PROGRESS, "Progressing")
    yield row("plan_not_made", OffsetResetStatus(), KStatus.IN_PROGRESS, "Progressing")
    yield row("reset_not_found", None, KStatus.FAILED, "Degraded")
    yield row("other_plan", requested, KStatus.FAILED, "Degraded", "1" * 64)
    own = awaiting.model_copy(update={"requester": of_plan.approver})
    yield row("approver_is_requester", own, KStatus.FAILED, "Degraded")
    yield row("already_approved", by_another, KStatus.FAILED, "Degraded")


# --- OffsetBackup -----------------------------------------------------------------------------------------------------

_BACKUP: Final = _Kind(
    "OffsetBackup",
    "nightly",
    {
        "connectionRef": {"name": "prod"},
        "schedule": "1h",
        "storage": {"folder": {"claim": "backups", "path": "offsets"}},
    },
    OffsetBackupSpec,
)
_STORED: Final = Folder(Path("/var/lib/tidegate/claims/backups/offsets"))


def _backups() -> Iterator[Written]:
    spec = parse_spec(OffsetBackupSpec, _BACKUP.body({}))
    newest = backups.Backup(_STORED, "cluster", _NOW, _NOW, f"{_STORED.uri}/data", groups=12, offsets=96, size=4096)
    unread = replace(newest, unread=1, unread_says="payments-x: may not describe group payments-x")
    asked = backups.Asked(1, _NOW)
    order = Order(Connection("kafka-0.kafka:9092"), _STORED, "uid", _NOW, "nightly-backup-0a1b2c3d-1")
    next_hour = _NOW + timedelta(hours=1)

    def before(status: OffsetBackupStatus | None = None, now: datetime = _NOW) -> backup.Before:
        return backup.Before(status or OffsetBackupStatus(), _GENERATION, now)

    def stands(made: backups.Backup | None, now: datetime = _NOW) -> OffsetBackupStatus:
        result = None if made is None else backups.Result(_NOW, made)
        document = backups.Document(order, asked, result)
        standing = backup.BackupStanding(document, made, None if made is None else next_hour)
        return backup.backed_up(before(OffsetBackupStatus(since=_NOW), now), spec, standing).status

    def row(name: str, status: OffsetBackupStatus, kstatus: KStatus, argo: str, **changes: Any) -> Written:
        return Written(name, _BACKUP.body(status, spec=changes), kstatus, argo, says=BACKED_UP)

    in_progress, failed, current = KStatus.IN_PROGRESS, KStatus.FAILED, KStatus.CURRENT
    taken = stands(newest)
    yield from _everywhere(_BACKUP, taken)
    yield row("first_backup", stands(None), in_progress, "Progressing")
    yield row("backup_taken", taken, current, "Healthy")
    yield row("backup_late", stands(newest, _NOW + timedelta(hours=3)), in_progress, "Degraded")
    yield row("groups_unread", stands(unread), in_progress, "Degraded")
    away = "KafkaConnection prod is not ready (KafkaUnavailable): waiting for it"
    waiting = backup.waiting(before(taken), spec, away).status
    yield Written("waiting_for_connection", _BACKUP.body(waiting), in_progress, "Progressing")
    not_allowed = Refusal(
        STORAGE_NOT_ALLOWED,
        "spec.storage.folder.claim: KafkaConnection prod does not allow PersistentVolumeClaim backups: add it to "
        "allow.claims there",
    )
    yield row("storage_not_allowed", backup.refused(before(), not_allowed).status, failed, "Degraded")
    yield row("suspended", backup.suspended(before(taken), spec, None).status, current, "Suspended", suspend=True)


# --- OffsetMirror -----------------------------------------------------------------------------------------------------

_MIRROR: Final = _Kind(
    "OffsetMirror",
    "to-new",
    {"source": {"name": "old"}, "target": {"name": "new"}, "topics": {"include": ["orders"]}},
    OffsetMirrorSpec,
)


def _mirrors() -> Iterator[Written]:
    topic = MirroredTopicStatus(
        name="orders", source_id="Q0tV0gT6Sxe9Gq8dRk1zJw", target_id="x", partitions=1, state=CopyState.WAITING
    )
    partition = TopicPartition("orders", 0)
    same, drift = Course(partition, 100, 100, 0.0), "the records at offset 7 differ"
    before = mirror.Before(OffsetMirrorStatus(producer_ids=(1000,)), _GENERATION, _NOW)

    def stands(course: Course, **standing: Any) -> OffsetMirrorStatus:
        result = counted([course], [topic], 1.0)
        return mirror.copying(before, mirror.MirrorStanding(result, ("c", "d"), **standing)).status

    def row(name: str, status: OffsetMirrorStatus, kstatus: KStatus, argo: str, **changes: Any) -> Written:
        return Written(name, _MIRROR.body(status, spec=changes), kstatus, argo)

    in_progress, failed, current = KStatus.IN_PROGRESS, KStatus.FAILED, KStatus.CURRENT
    in_sync = stands(same)
    yield from _everywhere(_MIRROR, in_sync)
    yield row("in_sync", in_sync, current, "Healthy")
    yield row("seeding", stands(replace(same, offset=40, copied_at_s=None)), in_progress, "Progressing")
    yield row("drifted", stands(replace(same, stopped=drift, drifted=True)), failed, "Degraded")
    yield row("stopped", stands(replace(same, stopped="the target refuses: 10")), failed, "Degraded")
    away = "KafkaConnection new is not ready (KafkaUnavailable): waiting for it"
    known = replace(before, status=in_sync)
    yield row("waiting_for_connection", mirror.waiting(known, away).status, in_progress, "Progressing")
    same_cluster = Refusal(mirror.SAME_CLUSTER, "KafkaConnections old and new reach the same cluster, c")
    yield row("same_cluster", mirror.refused(before, same_cluster).status, failed, "Degraded")
    yield row("suspended", mirror.suspended(known).status, current, "Suspended", suspend=True)
    lacks = (
        "the copies of 1 partition(s) lack 7 offset(s), such as orders-0, which lacks 7. Stop what writes to the source"
    )
    draining = mirror.draining(known, mirror.Told(in_sync), lacks).status
    yield row("failover_draining", draining, in_progress, "Progressing", failover={})
    begun = MirrorFailover(phase=FailoverPhase.FENCING, fence_id=7)
    yield row("failover_fencing", mirror.fencing(known, begun).status, in_progress, "Progressing", failover={})
    ended = FailedOverTopic(name="orders", ends=(100,), lacks=(0,))
    done = MirrorFailover(
        phase=FailoverPhase.DONE, fence_id=7, at=_NOW, source_answered=True, not_copied=0, topics=(ended,)
    )
    yield row("failed_over", mirror.failed_over(known, done).status, current, "Healthy", failover={})


def written() -> tuple[Written, ...]:
    """All of them."""
    of_groups = (*_pauses(), *_policies(), *_resets(), *_fleets(), *_approvals(), *_backups())
    return (*_connections(), *of_groups, *_mirrors())


# --- Argo CD's layout -------------------------------------------------------------------------------------------------


def argo_files() -> dict[Path, str]:
    """The text of each kind's test data and ``health_test.yaml``, by path."""
    files: dict[Path, str] = {}
    tests: dict[str, list[dict[str, Any]]] = {}
    bodies: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in written():
        bodies[each.kind, each.name] = each.body
        inside = f"testdata/{each.name}.yaml"
        files[CUSTOMIZATIONS / each.kind / inside] = _yaml(each.body)
        health = {"status": each.argo, "message": each.message}
        tests.setdefault(each.kind, []).append({"healthStatus": health, "inputPath": inside})
    for kind, rows in tests.items():
        files[CUSTOMIZATIONS / kind / "health_test.yaml"] = _yaml({"tests": rows})
    for (kind, name), body in _for_actions(bodies).items():
        files[CUSTOMIZATIONS / kind / "actions" / "testdata" / f"{name}.yaml"] = _yaml(body)
    return files


def _for_actions(bodies: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    """What actions are tried on, and what is to come of it: the resource as it is then, or what is created."""
    paused, suspended = (bodies["ConsumerGroupPause", name] for name in ("paused", "suspended"))
    awaiting = dict(bodies["OffsetReset", "awaiting_approval"])
    awaiting["metadata"] = awaiting["metadata"] | {"uid": "0b7f6c1e-5f0e-4d5a-9f55-2f4b8a1c3d2e"}
    owner = {"apiVersion": awaiting["apiVersion"], "kind": awaiting["kind"]} | {
        name: awaiting["metadata"][name] for name in ("name", "uid")
    }
    digest = awaiting["status"]["digest"]
    approval = {
        "apiVersion": awaiting["apiVersion"],
        "kind": "OffsetResetApproval",
        "metadata": {"name": f"{_NAME}-{digest}", "namespace": "payments", "ownerReferences": [owner]},
        "spec": {"reset": _NAME, "plan": digest, "approver": "system:serviceaccount:argocd:argocd-server"},
    }
    parse_spec(OffsetResetApprovalSpec, approval)
    return {
        ("ConsumerGroupPause", "paused"): paused,
        ("ConsumerGroupPause", "suspended"): suspended,
        ("ConsumerGroupPause", "let_go"): {**paused, "spec": paused["spec"] | {"suspend": True}},
        ("ConsumerGroupPause", "paused_again"): {**suspended, "spec": suspended["spec"] | {"suspend": False}},
        ("OffsetReset", "awaiting_approval"): awaiting,
        ("OffsetReset", "approval"): [{"k8sOperation": "create", "unstructuredObj": approval}],
        ("OffsetReset", "succeeded"): bodies["OffsetReset", "succeeded"],
        ("OffsetReset", "not_looked_at"): bodies["OffsetReset", "not_looked_at"],
    }


def _yaml(value: Any) -> str:
    plain = json.loads(json.dumps(value))
    return str(yaml.safe_dump(plain, sort_keys=False, width=120))


def main() -> None:
    """Write them, and remove what is of no state any more."""
    wanted = argo_files()
    for path in set(CUSTOMIZATIONS.glob("**/testdata/*.yaml")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
