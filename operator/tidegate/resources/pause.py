"""``ConsumerGroupPause``: partitions of a group stand still until it is deleted, suspended, or its time is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from tidegate.resources.base import (
    ConnectionRef,
    Count,
    Duration,
    GroupId,
    PartitionSelections,
    PositiveDuration,
    Problem,
    ResourceModel,
    ResourceName,
    SpecModel,
    StatusModel,
    Timestamp,
    Transition,
    matching,
    problem,
    unique,
)
from tidegate.resources.conditions import Conditions
from tidegate.resources.durations import parse_duration


class PauseMethod(StrEnum):
    """``AUTO``: by the agent or, where owners have none and workloads are named for the whole group, by scaling."""

    AUTO = "Auto"
    AGENT = "Agent"
    SCALE = "Scale"


class WorkloadRef(ResourceModel):
    """A workload with a scale subresource in the same namespace."""

    api_version: Annotated[
        str,
        matching(
            r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+",
            "must be an API version such as apps/v1, at most 253 characters",
            most=253,
        ),
    ]
    kind: Annotated[
        str,
        matching(
            r"[A-Z][A-Za-z0-9]*", "must be a kind such as Deployment or StatefulSet, at most 63 characters", most=63
        ),
    ]
    name: ResourceName

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


WorkloadRefs = Annotated[
    tuple[WorkloadRef, ...],
    Field(min_length=1, max_length=10),
    unique(
        lambda workload: (workload.api_version, workload.kind, workload.name),
        "must name each workload once: remove the repeated entry",
    ),
]


def _group_is_immutable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Problem | None:
    if old["group"] == new["group"]:
        return None
    return Problem("spec.group", "is immutable: make another ConsumerGroupPause for the other group")


class ConsumerGroupPauseSpec(SpecModel):
    """``ConsumerGroupPause.spec``. ``partitions`` absent: all that the group subscribes to or has offsets for.

    ``workload_ref`` is a short way to write ``workload_refs`` of one.
    """

    connection_ref: ConnectionRef
    group: GroupId
    partitions: PartitionSelections | None = None
    reason: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    resume_after: PositiveDuration | None = None
    resume_at: Timestamp | None = None
    drain_timeout: Duration = parse_duration("30s")
    method: PauseMethod = PauseMethod.AUTO
    workload_ref: WorkloadRef | None = None
    workload_refs: WorkloadRefs | None = None
    suspend: StrictBool = False

    transitions: ClassVar[tuple[Transition, ...]] = (_group_is_immutable,)

    @property
    def workloads(self) -> tuple[WorkloadRef, ...]:
        """The workloads that are named, in either way."""
        return (self.workload_ref,) if self.workload_ref is not None else self.workload_refs or ()

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        complaints = tuple(self._complaints())
        if complaints:
            raise problem("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        if self.resume_after is not None and self.resume_at is not None:
            yield "resumeAfter and resumeAt exclude each other: remove one of them"
        if self.workload_ref is not None and self.workload_refs is not None:
            yield "workloadRef and workloadRefs exclude each other: put all workloads into workloadRefs"
        if self.method is PauseMethod.SCALE and not self.workloads:
            yield "method Scale needs workloadRef or workloadRefs: name the workloads whose replicas go to 0"
        if self.method is PauseMethod.SCALE and self.partitions is not None:
            yield "method Scale pauses the whole group: remove partitions, or use method Agent"


# --- status -----------------------------------------------------------------------------------------------------------


class PausePhase(StrEnum):
    PENDING = "Pending"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    RESUMED = "Resumed"
    DEGRADED = "Degraded"


class PausedPartition(ResourceModel):
    """One partition. ``offset`` is where its owner stopped, ``lag`` what has piled up behind it, ``since`` when."""

    topic: str
    partition: Count
    phase: PausePhase
    offset: Annotated[StrictInt, Field(ge=-1)] | None = None
    lag: Count | None = None
    member: str | None = None
    since: Timestamp | None = None


class UnmanagedMember(ResourceModel):
    """A member of the group that runs no agent, and so cannot be paused partition by partition."""

    member_id: str
    client_id: str | None = None
    host: str | None = None


class PausedScaledObject(ResourceModel):
    """KEDA's ScaledObject of a workload. ``paused_replicas``: what its annotation said before; absent: it had none."""

    name: str
    paused_replicas: str | None = None


class ScaledWorkload(ResourceModel):
    """A workload that is kept at 0 replicas, and what it goes back to: written before anything is done to it.

    ``uid`` tells it from another one of its name. ``scaled_down``: how often within an hour its replicas were set to
    0, the last time at ``scaled_down_at``.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    phase: PausePhase
    replicas: Count
    scaled_down: Count = 0
    scaled_down_at: Timestamp | None = None
    scaled_object: PausedScaledObject | None = None

    @property
    def ref(self) -> WorkloadRef:
        return WorkloadRef(api_version=self.api_version, kind=self.kind, name=self.name)


class PauseStatus(StatusModel):
    """``ConsumerGroupPause.status``. ``paused`` is "partitions paused/in all", for the printer column.

    ``resume_after``: the ``spec.resumeAfter`` that ``resumes_at`` was made of. ``workloads``: those that are at 0
    replicas for this pause, or about to be.
    """

    phase: PausePhase | None = None
    method: PauseMethod | None = None
    paused: str | None = None
    partitions_paused: Count | None = None
    partitions_total: Count | None = None
    resumes_at: Timestamp | None = None
    resume_after: Duration | None = None
    partitions: Annotated[tuple[PausedPartition, ...], Field(max_length=200)] = ()
    partitions_omitted: Count | None = None
    unmanaged_members: Annotated[tuple[UnmanagedMember, ...], Field(max_length=200)] = ()
    workloads: Annotated[tuple[ScaledWorkload, ...], Field(max_length=20)] = ()
    conditions: Conditions = ()
