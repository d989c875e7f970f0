"""What a pass sees of a pause, and what it may do about it: the values that the decisions are made of and in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypedDict

from tidegate.connect.ports import ConnectCluster, Connector, TargetState
from tidegate.control.gates import Gates
from tidegate.kafka.model import Group, Offsets, Topic, TopicPartition
from tidegate.kube.loop import rest_s
from tidegate.kube.ports import KubeEvent
from tidegate.kube.workloads import Scale, ScaledObject
from tidegate.leading.leaders import Look
from tidegate.leading.pacing import Report
from tidegate.pause.holds import HoldChanges
from tidegate.resources.conditions import Refusal
from tidegate.resources.connection import AllowSpec
from tidegate.resources.leading import LeaderSeat
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PausedPartition,
    PauseStatus,
    ScaledWorkload,
    StoppedConnector,
    WorkloadRef,
)

# --- what is seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Whom a partition waits for since when; ``member`` is empty for an owner that nobody can name."""

    member: str
    epoch: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """Kafka as a look has found it. ``connection``: the KafkaConnection's name and uid.

    ``committed``: all offsets of the group, where they were asked for, as they always are with ``log_ends``: of the
    partitions in the status.
    """

    connection: str
    connection_uid: str
    allow: AllowSpec
    topics: Mapping[str, Topic]
    group: Group
    gates: Gates
    committed: Offsets = field(default_factory=dict)
    log_ends: Offsets | None = None


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A workload as a look has found it. ``scale`` ``None``: there is none of this name, unless ``trouble`` says why
    it can't be seen.

    ``others``: what other pauses have recorded of it. ``zeroed``, ``annotated``: since its record was written, this
    process has had the answer that its replicas are 0, or that KEDA is told to keep away from it.
    """

    scale: Scale | None = None
    scaled_object: ScaledObject | None = None
    trouble: Refusal | None = None
    others: tuple[ScaledWorkload, ...] = ()
    zeroed: bool = False
    annotated: bool = False


@dataclass(frozen=True, slots=True)
class LookedAtConnector:
    """A sink connector as a look has found it. ``connector`` ``None``: there is none of this name, unless ``trouble``
    says why it can't be seen.

    ``connection_uid``: of the KafkaConnection that names ``cluster``. ``can_stop`` ``None``: it was not asked, as it is
    before the first stop only. ``others``: what other pauses have recorded of it.

    Of this process's own requests: ``asked``: to what the workers have agreed last, ``is_recent``: just now.
    ``unanswered``: what was not agreed to after that, and why. ``may_stop_yet``: a request to stop was not answered,
    and workers may have kept it.
    """

    connection_uid: str = ""
    cluster: ConnectCluster | None = None
    connector: Connector | None = None
    trouble: Refusal | None = None
    can_stop: bool | None = None
    others: tuple[StoppedConnector, ...] = ()
    asked: TargetState | None = None
    is_recent: bool = False
    unanswered: tuple[TargetState, Refusal] | None = None
    may_stop_yet: bool = False


@dataclass(frozen=True, slots=True)
class LookedAtLead:
    """How the pause's group is led. ``session_s``: how long the partitions stay withheld without a sign of life of us.

    ``is_out_of_reach``: this process leads nothing for the pause, and its connection is not open. ``is_stopped``: since
    the pause has ended, this process has asked for nothing to be withheld for it. ``is_asked``: it has asked for
    something to be withheld.
    """

    look: Look = field(default_factory=Look)
    session_s: float = 0.0
    is_out_of_reach: bool = False
    is_stopped: bool = False
    is_asked: bool = False

    @property
    def report(self) -> Report:
        return self.look.report

    @property
    def wanted(self) -> frozenset[TopicPartition] | None:
        return self.look.wanted


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what. ``unmanaged``: for a first word of an owner, before it counts as one without the
    agent. ``overdue``: beyond the drain time-out, for an owner with the agent. ``leaving``: for the members of a group
    whose workloads are at 0 replicas; pods may take their time to end, and Kafka waits for those that did not say
    good-bye. ``deletion``: for Kafka, or for a workload that can't be scaled, before a pause that is deleted goes
    without having let go of it."""

    unmanaged: timedelta = timedelta(seconds=5)
    overdue: timedelta = timedelta(seconds=15)
    leaving: timedelta = timedelta(minutes=2)
    deletion: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Tick:
    """Seconds until the next look: while owners are just letting go, while something is under way, and otherwise.

    ``least_rest_s``: where what may happen next is told of, by a look that shows something new of the group or its
    gates. ``rest_s``: where all is paused besides; the longer, the more pauses there are.
    """

    quick_s: float = 0.2
    active_s: float = 1.0
    idle_s: float = 10.0
    pauses: int = 1

    @property
    def rest_s(self) -> float:
        return rest_s(self.least_rest_s, self.pauses)

    @property
    def least_rest_s(self) -> float:
        """Not below the 30 s after which the lag is told anew."""
        return 6 * self.idle_s


@dataclass(frozen=True, slots=True)
class Seen:
    """One pause as a pass finds it. ``name``: namespace and name.

    ``invalid``: why the spec can't be read; then ``spec`` is ``None``. ``observed`` ``None``: Kafka can't be seen now,
    and ``waiting`` says why. ``observing``: why nothing is done, where its connection only observes or is frozen.
    ``not_for_it``: why its connection may not be used; with ``observed`` where it held something.
    ``unusable``: what is wrong with the control topics; ``try_again``: it may be mended by now, and only writing tells.
    ``rows``: all of the last decision's, of which the status has the first; empty where it has all, ``None`` before
    this process's first.
    ``workloads``: those that the status names and, where it is paused by scaling, those of the spec.
    """

    uid: str
    name: str
    generation: int
    created: datetime
    spec: ConsumerGroupPauseSpec | None
    status: PauseStatus
    now: datetime
    observed: Observed | None = None
    waiting: Refusal | None = None
    observing: Refusal | None = None
    not_for_it: Refusal | None = None
    unusable: Refusal | None = None
    try_again: bool = False
    invalid: str = ""
    abandoned: bool = False
    deleting_since: datetime | None = None
    has_finalizer: bool = False
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    rows: tuple[PausedPartition, ...] | None = None
    workloads: Mapping[WorkloadRef, LookedAt] = field(default_factory=dict)
    connector: LookedAtConnector = LookedAtConnector()
    leading: LookedAtLead = LookedAtLead()
    patience: Patience = Patience()
    tick: Tick = Tick()


# --- what is done -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the pause until its holds are released."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """It holds nothing: it may go."""


@dataclass(frozen=True, slots=True)
class ChangeHolds:
    """Write and release holds in the control topic."""

    changes: HoldChanges


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Set the replicas of a workload, unless it was changed since it was seen."""

    workload: WorkloadRef
    seen: Scale
    replicas: int


@dataclass(frozen=True, slots=True)
class TellKeda:
    """Set the annotation by which KEDA keeps away from a workload, or put back what it said (``None``: nothing)."""

    workload: WorkloadRef
    seen: ScaledObject
    paused_replicas: str | None


@dataclass(frozen=True, slots=True)
class SetConnector:
    """Ask Connect's workers for a state of a connector."""

    cluster: ConnectCluster
    name: str
    state: TargetState


@dataclass(frozen=True, slots=True)
class LeadGroup:
    """Lead the group, and give these partitions to nobody; ``known``: the seat that an earlier process has noted."""

    group: str
    partitions: frozenset[TopicPartition]
    known: LeaderSeat | None


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Withhold nothing of the group for this pause any more."""

    group: str
    known: LeaderSeat | None


Action = AddFinalizer | RemoveFinalizer | ChangeHolds | SetReplicas | TellKeda | SetConnector | LeadGroup | StopLeading


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write, what to tell, then at most one action. ``again_after_s`` 0: look again at once.

    ``waits`` and ``rows`` are for the next pass. ``obeyed``: partitions whose owner has acked their hold.
    """

    status: PauseStatus
    action: Action | None = None
    happenings: tuple[KubeEvent, ...] = ()
    again_after_s: float = 60.0
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    obeyed: frozenset[TopicPartition] = frozenset()
    rows: tuple[PausedPartition, ...] = ()

    @property
    def paused_since(self) -> datetime | None:
        """Since when the partition that has stood still for longest does so."""
        rows = self.rows or self.status.partitions
        return min((row.since for row in rows if row.since is not None), default=None)


class Stamp(TypedDict):
    generation: int
    now: datetime
