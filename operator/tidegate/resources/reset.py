"""One reset: what is asked for, and what is told of its run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from tidegate.resources.base import (
    Count,
    Duration,
    PartitionSelections,
    PositiveDuration,
    ResourceModel,
    Timestamp,
    problem,
)
from tidegate.resources.durations import parse_duration
from tidegate.resources.targets import ResetTo, RunId


class Approval(StrEnum):
    """``MANUAL`` waits for the annotation ``tidegate.io/approve: <status.reset.digest>`` once the plan is made."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Engine(StrEnum):
    """Where a run is carried out. ``AUTO``: by Spark where a runner is configured, otherwise in the operator."""

    AUTO = "Auto"
    SPARK = "Spark"
    DIRECT = "Direct"


class FailurePolicy(StrEnum):
    """What becomes of a fleet's other groups when one fails. ``ISOLATE``: they are reset; ``ALL``: all are put back."""

    ISOLATE = "Isolate"
    ALL = "All"


class EvidenceLevel(StrEnum):
    """``COUNTS``: histograms by the brokers' time index; ``RECORDS``: also what reading records by Spark tells.
    ``AUTO``: as ``RECORDS`` where approval is Manual, as ``NONE`` where nobody waits for it.
    """

    AUTO = "Auto"
    NONE = "None"
    COUNTS = "Counts"
    RECORDS = "Records"


class EvidenceSpec(ResourceModel):
    """What is gathered about a plan for whoever approves it. ``max_records``: how many are read at most, beyond which
    the rest is estimated; ``show_values``: what is in keys and values may be stored in the plan's ConfigMap.
    """

    level: EvidenceLevel = EvidenceLevel.AUTO
    show_values: StrictBool = False
    max_records: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] = 1_000_000
    timeout: PositiveDuration = parse_duration("1m")

    @model_validator(mode="after")
    def _values_are_of_records(self) -> Self:
        if self.show_values and self.level in (EvidenceLevel.NONE, EvidenceLevel.COUNTS):
            raise problem("showValues needs records to be read: use level Records or Auto, or leave showValues out")
        return self


class ResetOptions(ResourceModel):
    """What is reset, to where and how. ``partitions`` absent: all partitions of the topics. ``failure_policy``: a
    fleet's; else ``ISOLATE``."""

    partitions: PartitionSelections | None = None
    to: ResetTo
    approval: Approval = Approval.AUTOMATIC
    engine: Engine = Engine.AUTO
    drain_timeout: Duration = parse_duration("30s")
    in_flight: Duration = timedelta(0)
    max_standstill: PositiveDuration = parse_duration("30s")
    deadline: PositiveDuration = parse_duration("15m")
    evidence: EvidenceSpec | None = None
    failure_policy: FailurePolicy | None = None

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        complaints = tuple(self._complaints())
        if complaints:
            raise problem("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        if self.engine is Engine.DIRECT and self.to.kind.needs_spark:
            yield "targets record, cluster and snapshot need Spark: use engine Auto or Spark"
        if self.in_flight and 2 * self.in_flight + timedelta(seconds=30) > self.deadline:
            yield (
                "deadline must be at least twice inFlight plus 30s: owners are held for inFlight, and then watched for "
                "as long; shorten inFlight or raise deadline"
            )


class ResetSpec(ResetOptions):
    """One run that a policy asks for."""

    id: RunId

    def _complaints(self) -> Iterator[str]:
        if self.to.undo == self.id:
            yield "to.undo must name the id of an earlier run, not this reset's own id: give this reset a new id"
        yield from super()._complaints()


class ResetPhase(StrEnum):
    """The phases of a run, as ``tidegate.reset.model.Phase`` names them."""

    PENDING = "Pending"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    PAUSING = "Pausing"
    APPLYING = "Applying"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"


class ResetWay(StrEnum):
    """How the offsets were changed, as ``tidegate.reset.model.Way`` names it."""

    DIRECT = "Direct"
    GATED = "Gated"
    BARRIER = "Barrier"
    LEADING = "Leading"
    HANDOVER = "Handover"


class PlanStatus(ResourceModel):
    """The plan in numbers. ``config_map`` has all of it; ``from_`` and ``to`` span the records replayed or skipped."""

    config_map: str | None = None
    partitions: Count | None = None
    moved: Count | None = None
    unchanged: Count | None = None
    clamped: Count | None = None
    records_replayed: Count | None = None
    records_skipped: Count | None = None
    from_: Annotated[Timestamp | None, Field(alias="from")] = None
    to: Timestamp | None = None


class StandstillStatus(ResourceModel):
    """How long partitions stood still, measured: the median one and the longest."""

    p50: Duration
    max: Duration


class SearchStatus(ResourceModel):
    """How far a search through records has come: offsets looked at, of those between the bounds, and how fast."""

    records_read: Count
    records_total: Count
    records_per_second: Count
    percent: Count


class GroupFailure(ResourceModel):
    """A group of a fleet that has no plan, or was not reset."""

    group: str
    reason: str
    message: str


MAX_GROUP_FAILURES: Final = 20


class FleetStatus(ResourceModel):
    """A fleet's groups, counted. ``refused``: those without a plan; ``failures``: the first of these and of ``failed``.

    ``reset``: those that stand at their targets; ``put_back``: those that did, or were about to.
    """

    groups: Count
    refused: Count = 0
    reset: Count = 0
    failed: Count = 0
    put_back: Count = 0
    failures: Annotated[tuple[GroupFailure, ...], Field(max_length=MAX_GROUP_FAILURES)] = ()


class RunStatus(ResourceModel):
    """How a run stands. ``run_uid`` tells it from a run of the same name of any other resource.

    ``digest``: SHA-256, in hex, of what was asked and of the plan, as far as there is one; the annotation
    ``tidegate.io/approve`` has to name it. ``approved_digest``: the one that was approved.
    """

    run_uid: str | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    engine: Engine | None = None
    way: ResetWay | None = None
    application: str | None = None
    search: SearchStatus | None = None
    fleet: FleetStatus | None = None
    plan: PlanStatus | None = None
    digest: str | None = None
    approved_digest: str | None = None
    standstill: StandstillStatus | None = None
    redone: Count | None = None
    begun: Count | None = None
    waiting: Count | None = None


class ResetStatus(RunStatus):
    """A policy's newest run."""

    id: str
    phase: ResetPhase


class RunHistory(ResourceModel):
    """A finished run. ``plan`` is its ConfigMap; ``digest``: SHA-256, in hex, of what that says of the run's request,
    plan and result. An undo of the run goes by nothing else."""

    id: str
    phase: ResetPhase
    finished_at: Timestamp | None = None
    records_replayed: Count | None = None
    records_skipped: Count | None = None
    plan: str | None = None
    digest: str | None = None
