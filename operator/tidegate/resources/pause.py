"""``ConsumerGroupPause``: partitions of a group are paused until it is deleted or suspended, or its time is over."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.base import PartitionSelections, ResourceModel, SharedConnectionRef, SpecModel, StatusModel
from tidegate.resources.conditions import Conditions
from tidegate.resources.connect import ConnectorRef
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import Count, Duration, GroupId, PositiveDuration, ResourceName, Timestamp
from tidegate.resources.leading import LeaderSeat, LeadingSpec
from tidegate.resources.rules import Transition, immutable, matching, rule, unique


class PauseMethod(StrEnum):
    """``AUTO``: by the agent or, where owners have none and workloads are named for the whole group, by scaling."""

    AUTO = "Auto"
    AGENT = "Agent"
    SCALE = "Scale"
    CONNECT = "Connect"
    LEADING = "Leading"


class WorkloadRef(ResourceModel):
    """One workload of this namespace."""

    api_version: Annotated[
        str,
        matching(
            r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+",
            "must be an API version such as apps/v1, at most 253 characters",
            most=253,
        ),
    ]
    """The workload's API version, such as apps/v1."""

    kind: Annotated[
        str,
        matching(
            r"[A-Z][A-Za-z0-9]*", "must be a kind such as Deployment or StatefulSet, at most 63 characters", most=63
        ),
    ]
    """The workload's kind, such as Deployment."""

    name: ResourceName
    """The workload's name."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


WorkloadRefs = Annotated[
    tuple[WorkloadRef, ...],
    Field(min_length=1, max_length=10),
    unique("must name each workload once: remove the repeated entry", "api_version", "kind", "name"),
]


_ADDRESS: Final = ("method", "connector", "connectionRef")


def _is_by(method: PauseMethod, spec: Any) -> bool:
    return isinstance(spec, dict) and spec.get("method") == method


class ConsumerGroupPauseSpec(SpecModel):
    """What is paused, how, and for how long."""

    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            "self.method == 'Connect' ? oldSelf.method == 'Connect' && self.connectionRef == oldSelf.connectionRef && "
            "(has(self.connector) ? has(oldSelf.connector) && self.connector == oldSelf.connector : true) : "
            "oldSelf.method != 'Connect'",
            "method Connect, connector and connectionRef cannot be changed, so that what was stopped is found again: "
            "make another ConsumerGroupPause",
            lambda old, new: (
                not any(_is_by(PauseMethod.CONNECT, spec) for spec in (old, new))
                or all(old.get(field) == new.get(field) for field in _ADDRESS)
            ),
        ),
        Transition(
            "self.method == 'Leading' ? oldSelf.method == 'Leading' && self.connectionRef == oldSelf.connectionRef : "
            "oldSelf.method != 'Leading'",
            "method Leading and its connectionRef cannot be changed, so that the group that is led is found again: "
            "make another ConsumerGroupPause",
            lambda old, new: (
                not any(_is_by(PauseMethod.LEADING, spec) for spec in (old, new))
                or all(old.get(field) == new.get(field) for field in ("method", "connectionRef"))
            ),
        ),
    )

    connection_ref: SharedConnectionRef
    """The KafkaConnection through which the group is reached."""

    group: Annotated[GroupId, immutable("make another ConsumerGroupPause for the other group")]
    """The id of the consumer group. It cannot be changed."""

    partitions: PartitionSelections | None = None
    """The partitions to pause. Without this field, all partitions of all topics that the group subscribes to or has
    offsets for. If a topic is named without partition numbers, partitions added to it later are paused too."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """For people: why the group is paused."""

    resume_after: PositiveDuration | None = None
    """How long the pause lasts, such as 2h, counted from the resource's creation or, if this field is changed later,
    from when the operator has seen the change. Without it and resumeAt, it lasts until the resource is deleted."""

    resume_at: Timestamp | None = None
    """When the partitions resume, such as 2026-11-21T12:00:00Z. It cannot be used with resumeAfter."""

    drain_timeout: Duration = parse_duration("30s")
    """How long a managed consumer may take to finish the records that it has already handed to the application, before
    its gate closes."""

    method: PauseMethod = PauseMethod.AUTO
    """How the partitions are paused. Agent pauses single partitions in consumers that run the agent. Scale sets the
    replicas of the named workloads to 0 and back. Auto uses Agent; if consumers of the group run no agent, it uses
    Scale, provided that workloads are named but no partitions. Connect stops a sink connector of Kafka Connect, and
    with it the whole group. Leading works for a classic group of any clients: a member of the operator leads it and
    assigns the partitions to nobody. If the operator is away for status.failsOpenAfter, they are read again."""

    workload_ref: WorkloadRef | None = None
    """The workload of this namespace whose pods are the group's consumers, for the method Scale. It must have replicas
    that can be scaled."""

    workload_refs: WorkloadRefs | None = None
    """The same for a group whose consumers belong to several workloads. It cannot be used with workloadRef."""

    connector: ConnectorRef | None = None
    """The sink connector whose tasks are the group's consumers, for the method Connect. The group's id is connect-
    followed by the connector's name, unless the connector sets another one."""

    leading: LeadingSpec | None = None
    """Settings for the method Leading."""

    suspend: StrictBool = False
    """If true, the partitions are resumed while the resource is kept."""

    @property
    def workloads(self) -> tuple[WorkloadRef, ...]:
        """The workloads that are named, in either way."""
        return (self.workload_ref,) if self.workload_ref is not None else self.workload_refs or ()

    @rule(
        "!(has(self.resumeAfter) && has(self.resumeAt))",
        "resumeAfter and resumeAt exclude each other: remove one of them",
    )
    def _one_end(self) -> bool:
        return self.resume_after is None or self.resume_at is None

    @rule(
        "!(has(self.workloadRef) && has(self.workloadRefs))",
        "workloadRef and workloadRefs exclude each other: put all workloads into workloadRefs",
    )
    def _workloads_in_one_place(self) -> bool:
        return self.workload_ref is None or self.workload_refs is None

    @rule(
        "self.method != 'Scale' || has(self.workloadRef) || has(self.workloadRefs)",
        "method Scale needs workloadRef or workloadRefs: name the workloads whose replicas go to 0",
    )
    def _something_to_scale(self) -> bool:
        return self.method is not PauseMethod.SCALE or bool(self.workloads)

    @rule(
        "self.method != 'Scale' || !has(self.partitions)",
        "method Scale pauses the whole group: remove partitions, or use method Agent",
    )
    def _whole_group_is_scaled(self) -> bool:
        return self.method is not PauseMethod.SCALE or self.partitions is None

    @rule(
        "(self.method == 'Connect') == has(self.connector)",
        "method Connect and connector belong together: name the sink connector, or remove it and use another method",
    )
    def _connector_to_stop(self) -> bool:
        return (self.method is PauseMethod.CONNECT) == (self.connector is not None)

    @rule(
        "self.method == 'Leading' || !has(self.leading)",
        "leading is for method Leading: remove it, or use that method",
    )
    def _led_where_asked(self) -> bool:
        return self.method is PauseMethod.LEADING or self.leading is None

    @rule(
        "self.method != 'Leading' || (!has(self.workloadRef) && !has(self.workloadRefs))",
        "method Leading leads a group and scales nothing: remove workloadRef and workloadRefs",
    )
    def _nothing_is_scaled_while_led(self) -> bool:
        return self.method is not PauseMethod.LEADING or not self.workloads

    @rule(
        "self.method != 'Connect' || !has(self.partitions)",
        "method Connect stops the whole connector, not single partitions of it: remove partitions",
    )
    def _whole_connector_is_stopped(self) -> bool:
        return self.method is not PauseMethod.CONNECT or self.partitions is None

    @rule(
        "self.method != 'Connect' || (!has(self.workloadRef) && !has(self.workloadRefs))",
        "method Connect stops a connector and scales nothing: remove workloadRef and workloadRefs",
    )
    def _nothing_is_scaled_beside(self) -> bool:
        return self.method is not PauseMethod.CONNECT or not self.workloads


# --- status -----------------------------------------------------------------------------------------------------------


class PausePhase(StrEnum):
    PENDING = "Pending"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    RESUMED = "Resumed"
    DEGRADED = "Degraded"


class PausedPartition(ResourceModel):
    """One partition."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    phase: PausePhase
    """The phase of this partition."""

    offset: Annotated[StrictInt, Field(ge=-1)] | None = None
    """The offset of the first record that its owner has not read. It is -1 if nothing is committed."""

    lag: Count | None = None
    """How many records there are from that offset to the end of the log."""

    member: str | None = None
    """The member that owns it."""

    since: Timestamp | None = None
    """Since when it is paused."""


class UnmanagedMember(ResourceModel):
    """One member of the group."""

    member_id: str
    """The member's id in the group."""

    client_id: str | None = None
    """The client.id that the member's application has set."""

    host: str | None = None
    """Where the member connects from."""


class PausedScaledObject(ResourceModel):
    """KEDA's ScaledObject of a workload."""

    name: str
    """The name of the ScaledObject."""

    paused_replicas: str | None = None
    """The value that its annotation autoscaling.keda.sh/paused-replicas had before the pause. It is restored. Absent if
    there was none."""


class ScaledWorkload(ResourceModel):
    """One workload.

    It is kept at 0 replicas; what it goes back to is written before anything is done to it.
    """

    api_version: str
    """The workload's API version."""

    kind: str
    """The workload's kind."""

    name: str
    """The workload's name."""

    uid: str
    """The workload's uid. It distinguishes a workload that was created again from the old one."""

    phase: PausePhase
    """The phase of this workload. Paused means that its replicas are 0. Degraded means that somebody else keeps
    changing them."""

    replicas: Count
    """How many replicas it gets back."""

    scaled_down: Count = 0
    """How often in a row its replicas were set to 0, each time less than an hour after the time before."""

    scaled_down_at: Timestamp | None = None
    """When its replicas were last set to 0."""

    scaled_object: PausedScaledObject | None = None
    """KEDA's ScaledObject of the workload, which is paused so that it does not scale the workload."""

    @property
    def ref(self) -> WorkloadRef:
        return WorkloadRef(api_version=self.api_version, kind=self.kind, name=self.name)


class ConnectorGoal(StrEnum):
    """What somebody has asked a connector to be."""

    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPED = "Stopped"


class StoppedConnector(ResourceModel):
    """The sink connector that is stopped; what it goes back to is written before anything is done to it."""

    cluster: str
    """The name of its Connect cluster in the KafkaConnection."""

    name: str
    """The connector's name."""

    connection_uid: str
    """The uid of the KafkaConnection. It distinguishes one that was created again from the old one."""

    phase: PausePhase
    """The phase of this connector: Paused once Connect has stopped it, Degraded while somebody keeps resuming it."""

    state: ConnectorGoal
    """The state to which it goes back. A connector that somebody else had stopped or paused before stays so."""

    workers: str | None = None
    """A digest of the URL at which it was stopped."""

    stopped: Count = 0
    """How often in a row it was stopped, each time less than an hour after the time before."""

    stopped_at: Timestamp | None = None
    """When it was last stopped."""


class PauseStatus(StatusModel):
    """The phase of the pause."""

    phase: PausePhase | None = None
    """The phase of the pause. Degraded means that some partitions that should be paused are not, and the conditions say
    why."""

    method: PauseMethod | None = None
    """How the partitions are paused."""

    paused: str | None = None
    """How many partitions are paused, out of all, such as 4/4."""

    partitions_paused: Count | None = None
    """How many partitions are paused."""

    partitions_total: Count | None = None
    """How many partitions are to be paused."""

    resumes_at: Timestamp | None = None
    """When the partitions resume by themselves."""

    resume_after: Duration | None = None
    """The spec's resumeAfter from which resumesAt was calculated."""

    partitions: Annotated[tuple[PausedPartition, ...], Field(max_length=200)] = ()
    """The partitions one by one, the first 200 of them."""

    partitions_omitted: Count | None = None
    """How many partitions are not listed above."""

    unmanaged_members: Annotated[tuple[UnmanagedMember, ...], Field(max_length=200)] = ()
    """The members that run no agent, and so cannot be paused partition by partition."""

    workloads: Annotated[tuple[ScaledWorkload, ...], Field(max_length=20)] = ()
    """The workloads whose replicas are set to 0 for this pause, and the replicas that they get back."""

    connector: StoppedConnector | None = None
    """The sink connector that is stopped for this pause, and the state to which it goes back."""

    leader: LeaderSeat | None = None
    """The operator's member that leads the group for this pause, with the method Leading."""

    fails_open_after: Duration | None = None
    """With the method Leading: how long after the operator's last sign of life the partitions are read again."""

    conditions: Conditions = ()
    """Ready is True when the state that this generation asks for is reached. Reconciling and Stalled are present while
    they are true. Paused says whether all partitions are paused."""
