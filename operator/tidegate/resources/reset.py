"""One reset: what is asked for, and what is told of its run."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.approval import ApprovalStatus
from tidegate.resources.base import PartitionSelections, ResourceModel
from tidegate.resources.durations import parse_duration
from tidegate.resources.evidence import EvidenceSpec
from tidegate.resources.fields import Count, Duration, PositiveDuration, Timestamp, UserName, cel_is_duration
from tidegate.resources.replay import ReplayStatus
from tidegate.resources.rollout import RolloutSpec
from tidegate.resources.rules import rule
from tidegate.resources.targets import ResetTo, RunId, TargetKind


class ApprovalMode(StrEnum):
    """``MANUAL`` waits for an ``OffsetResetApproval`` of the plan once that is made."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Engine(StrEnum):
    """Where a run is carried out. ``AUTO``: by Spark where records have to be read, otherwise in the operator."""

    AUTO = "Auto"
    SPARK = "Spark"
    DIRECT = "Direct"


class FailurePolicy(StrEnum):
    """What becomes of a fleet's other groups when one fails. ``ISOLATE``: they are reset; ``ALL``: all are put back."""

    ISOLATE = "Isolate"
    ALL = "All"


class _Named(ResourceModel):
    id: RunId
    """The reset's own name, such as replay-2026-11-20. A reset runs once for each id, as an OffsetReset that is named
    after the policy and the id. to.undo refers to a reset by its id."""


class ResetOptions(ResourceModel):
    """What is reset, to where and how."""

    partitions: PartitionSelections | None = None
    """The partitions to reset. Without this field, all partitions of the topics."""

    to: ResetTo
    """The target. Set exactly one of its fields. A target outside the log is moved to the nearer end of the log, and
    the plan says so."""

    approval: ApprovalMode = ApprovalMode.AUTOMATIC
    """Automatic applies the plan as soon as it is made. Manual waits for an OffsetResetApproval that names the
    OffsetReset and the digest of its plan, which is in the OffsetReset's status."""

    requester: UserName | None = None
    """The user name of whoever asks for the reset. The chart's ValidatingAdmissionPolicy accepts only the user name of
    whoever writes the resource, except from accounts that may name somebody else. With approval Manual, it requires
    this field if the approver has to be somebody else."""

    engine: Engine = Engine.AUTO
    """Where the run is carried out. Spark uses a Spark application; Direct uses the operator itself. Auto uses Spark,
    if Spark is configured, where records have to be read: for evidence of level Records, and for the targets record,
    cluster and backup. It also uses Spark if the OffsetReset has spark. Otherwise it uses the operator, which is
    quicker. The targets record, cluster and backup need Spark."""

    drain_timeout: Duration = parse_duration("30s")
    """How long a managed consumer may take to finish the records that it has already handed to the application, before
    its gate closes."""

    in_flight: Duration = timedelta(0)
    """How long an application without the agent may keep records before it commits them. The run waits longer than
    that, so that no late commit overwrites a target. In a KIP-848 group, where members can't be held, it looks for
    such commits instead, and is rolled back if they do not stop."""

    max_standstill: PositiveDuration = parse_duration("30s")
    """How long, in addition to inFlight, the members of a classic group wait in a rebalance of the run for a member
    that does not rejoin. After that, all members are removed from the group. The waiting members rejoin at once, the
    others when they can. All of them begin at the committed offsets, so what they had not committed is read again. The
    run's message says that this happened."""

    deadline: PositiveDuration = parse_duration("15m")
    """How long the whole run may take, including the wait for an approval. A run that is not finished by then is
    stopped and rolled back, unless all its targets are in place and it only waits for the owners' next commits."""

    evidence: EvidenceSpec | None = None
    """What is gathered about the plan for whoever approves it. The command tidegate plan shows it. It is gathered while
    the plan waits for approval, or after the run, and never delays a run or makes it fail."""

    failure_policy: FailurePolicy | None = None
    """What happens to the other groups of a fleet when one group fails. Isolate resets them, as happens without this
    field; All rolls back every group."""

    rollout: RolloutSpec | None = None
    """Resets a fleet in waves. Once a group fails, no other group is begun: groups not begun stay as they are. Groups
    already reset stay reset or, with failurePolicy All, are rolled back. Without this field, all groups are reset as
    soon as possible."""

    ttl_after_finished: Duration | None = None
    """How long the OffsetReset is kept after its end. Without this field, it is kept until somebody deletes it. For
    some time after that, by default a week, the reset can still be undone."""

    @rule(
        "self.engine != 'Direct' || (!has(self.to.record) && !has(self.to.cluster) && !has(self.to.backup))",
        "targets record, cluster and backup need Spark: use engine Auto or Spark",
    )
    def _engine_finds_the_target(self) -> bool:
        return self.engine is not Engine.DIRECT or not self.to.kind.needs_spark

    @rule(
        f"!{cel_is_duration('self.inFlight')} || !{cel_is_duration('self.deadline')} || "
        "duration(self.inFlight) == duration('0s') || "
        "duration(self.inFlight) + duration(self.inFlight) + duration('30s') <= duration(self.deadline)",
        "deadline must be at least twice inFlight plus 30s: owners are held for inFlight and then watched for "
        "as long again; shorten inFlight or raise deadline",
    )
    def _deadline_is_long_enough(self) -> bool:
        return not self.in_flight or 2 * self.in_flight + timedelta(seconds=30) <= self.deadline


OF_ONE_GROUP: Final = (TargetKind.CLUSTER, TargetKind.CONFIG_MAP, TargetKind.BACKUP)
"""Targets that a fleet can't have."""


class ResetSpec(ResetOptions, _Named):
    """One reset that a policy asks for: a template of the OffsetReset that the operator creates."""

    @rule(
        "!has(self.to.undo) || self.to.undo != self.id",
        "to.undo must name the id of an earlier run, not this reset's own id: give this reset a new id",
    )
    def _undoes_another_run(self) -> bool:
        return self.to.undo != self.id


class ResetPhase(StrEnum):
    """How far a run has come: ``status.phase`` of an OffsetReset."""

    PENDING = "Pending"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    PAUSING = "Pausing"
    APPLYING = "Applying"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    REPLAYING = "Replaying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"

    @property
    def is_final(self) -> bool:
        return self in (ResetPhase.SUCCEEDED, ResetPhase.FAILED, ResetPhase.ROLLED_BACK)


def has_ended(phase: ResetPhase | None) -> bool:
    """Whether a run in this phase is over; ``None``: it was never told of."""
    return phase is not None and phase.is_final


class Way(StrEnum):
    """How a group's offsets are changed. Reads ``Direct``, an earlier version's word for ``UNOWNED``, too."""

    UNOWNED = "Unowned"
    GATED = "Gated"
    BARRIER = "Barrier"
    LEADING = "Leading"
    HANDOVER = "Handover"

    @classmethod
    def _missing_(cls, value: object) -> Way | None:
        return cls.UNOWNED if value == UNOWNED_BEFORE else None


UNOWNED_BEFORE: Final = "Direct"
"""How an earlier version spelled ``Way.UNOWNED``, when an engine had that name as well."""


class PlanStatus(ResourceModel):
    """The plan in numbers."""

    config_map: str | None = None
    """The ConfigMap that holds the whole plan and the committed offsets before the run."""

    partitions: Count | None = None
    """How many partitions the run covers."""

    moved: Count | None = None
    """How many of them get a different offset."""

    unchanged: Count | None = None
    """How many of them already have their target as committed offset."""

    clamped: Count | None = None
    """How many targets lay outside the log and were moved to the nearer end of the log."""

    records_replayed: Count | None = None
    """How many records are read again: as planned, and once a reset of one group has succeeded, from where the group
    stood when it was moved."""

    records_skipped: Count | None = None
    """How many records are never read: as planned, and once a reset of one group has succeeded, from where the group
    stood when it was moved."""

    from_: Annotated[Timestamp | None, Field(alias="from")] = None
    """The time of the oldest record that is read again or skipped, as planned."""

    to: Timestamp | None = None
    """The time of the newest record that is read again or skipped, as planned."""


class StandstillStatus(ResourceModel):
    """How long partitions stood still, measured: the median one and the longest."""

    p50: Duration
    """The median over the partitions, such as 450ms."""

    max: Duration
    """The longest of all partitions, such as 1s200ms."""


class SearchStatus(ResourceModel):
    """How far a search through records has come: offsets looked at, of those between the bounds, and how fast."""

    records_read: Count
    """Offsets searched."""

    records_total: Count
    """Offsets between the limits; a search ends earlier if it finds a match."""

    records_per_second: Count
    """Offsets searched per second, since the search began."""

    percent: Count
    """recordsRead as a percentage of recordsTotal."""


class GroupFailure(ResourceModel):
    """A group that was refused or failed."""

    group: str
    """The group's id."""

    reason: str
    """Why, in one word for programs."""

    message: str
    """What is wrong and what to do, for people."""


MAX_GROUP_FAILURES: Final = 20


class FleetStatus(ResourceModel):
    """A fleet's groups, counted."""

    groups: Count
    """How many groups the run covers."""

    refused: Count = 0
    """How many of them have no plan, and are left as they are."""

    reset: Count = 0
    """How many of them have their targets."""

    failed: Count = 0
    """How many of them could not be reset."""

    put_back: Count = 0
    """How many of them were rolled back, or not begun, because another group failed."""

    wave: Count | None = None
    """With rollout, the number of the wave that was begun last, counted from 1; 0 before the first wave."""

    waves: Count | None = None
    """With rollout, how many waves there are."""

    not_begun: Count | None = None
    """With rollout, how many groups are in waves that have not begun; at the end, how many groups were not begun, not
    counting those in putBack."""

    failures: Annotated[tuple[GroupFailure, ...], Field(max_length=MAX_GROUP_FAILURES)] = ()
    """The first groups that were refused or failed."""


class RunStatus(ResourceModel):
    """How a run stands."""

    run_uid: str | None = None
    """Distinguishes this run from every other run of any resource, even from one with the same name."""

    started_at: Timestamp | None = None
    """When the run began."""

    finished_at: Timestamp | None = None
    """When the run ended."""

    engine: Engine | None = None
    """Where the run was carried out."""

    way: Way | None = None
    """The strategy by which the offsets were changed. Unowned commits the targets of partitions that nobody owns. Gated
    closes the gates of managed consumers. Barrier holds the group in a rebalance. Handover sends LeaveGroup in the
    owners' names, so that they release their partitions. Leading is for owners that kept their positions in spite of
    that: as the group's leader, Tidegate assigns the partitions to nobody for one generation."""

    application: str | None = None
    """The name of the Spark application."""

    search: SearchStatus | None = None
    """With the target record, the progress of the search through records. It is kept after the search has finished."""

    fleet: FleetStatus | None = None
    """Counts of a fleet's groups. The plan's ConfigMap names all of the groups."""

    plan: PlanStatus | None = None
    """The plan in numbers."""

    digest: str | None = None
    """The SHA-256 digest, in hex, of the request and, once there is one, of the plan. An OffsetResetApproval with this
    value approves the plan. If the ConfigMap has another digest, the run ends as Forged."""

    requester: str | None = None
    """Who asked for the reset, according to its spec when it began. Absent if the spec named nobody."""

    approved_digest: str | None = None
    """The digest that was approved. Absent until then."""

    approval: ApprovalStatus | None = None
    """The OffsetResetApproval that approved the plan, and its approver."""

    standstill: StandstillStatus | None = None
    """The measured times for which partitions were stalled."""

    redone: Count | None = None
    """How many partitions were reset again because an owner had overwritten the target, or may have done so while Kafka
    was down."""

    replay: ReplayStatus | None = None
    """How far a replay with an end (spec.until) has come. Present once the group has its targets. After the replay has
    ended, this is its last known state."""

    begun: Count | None = None
    """How many partitions were known, when the run ended, to be read from their target on. This is known from a commit
    past the target, or from the agent's ack."""

    waiting: Count | None = None
    """For how many partitions that was not known, although they have an owner and records to read. They include
    partitions whose consumers commit rarely or have stopped polling, and partitions that a pause holds. The message of
    a run of one group names one of them."""


class RequestedReset(ResourceModel):
    """The reset that the policy asks for, or asked for last."""

    id: str
    """Its id, from the spec."""

    name: str | None = None
    """The OffsetReset in the same namespace, whose status has all the details. It may have been deleted since it ended.
    Absent if the reset had run and its OffsetReset was gone before this policy could follow it."""

    phase: ResetPhase | None = None
    """Its phase. Succeeded, Failed and RolledBack are final. Absent if the reset has run, but how it ended is not known
    any more."""

    started_at: Timestamp | None = None
    """When it began."""

    finished_at: Timestamp | None = None
    """When it ended."""

    records_replayed: Count | None = None
    """How many records the group reads again because of it."""

    records_skipped: Count | None = None
    """How many records the group skips because of it."""


class EarlierReset(ResourceModel):
    """A reset that was run by an earlier version of Tidegate."""

    id: str
    """Its id."""

    phase: ResetPhase
    """How it ended."""

    finished_at: Timestamp | None = None
    """When it ended."""
