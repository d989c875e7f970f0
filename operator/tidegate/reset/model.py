"""The values of a reset: where to (targets), what it would do (plan), what was asked (request), how it went (result).

Only values; pydantic reads and writes them as JSON (``tidegate.reset.codec``), because they travel between the
operator, the Spark driver and its executors. One module, because most who use it take values of several of these kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from tidegate.jobs.storage import Storage
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition

# --- targets: a closed set, matched exhaustively ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToEarliest:
    kind: Literal["earliest"] = "earliest"


@dataclass(frozen=True, slots=True)
class ToLatest:
    kind: Literal["latest"] = "latest"


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int
    kind: Literal["offset"] = "offset"


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first record at or after ``at``; the end of the log when there is none."""

    at: datetime
    kind: Literal["timestamp"] = "timestamp"


@dataclass(frozen=True, slots=True)
class ByDuration:
    """As ``ToTimestamp`` with the time ``ago`` before the plan was made."""

    ago: timedelta
    kind: Literal["duration"] = "duration"


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Relative to the committed offset; negative goes back."""

    records: int
    kind: Literal["shiftBy"] = "shiftBy"


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class FromFile:
    """Offsets named one by one: the CSV that ``kafka-consumer-groups --export`` writes."""

    offsets: tuple[PartitionOffset, ...]
    source: str
    kind: Literal["configMap"] = "configMap"


@dataclass(frozen=True, slots=True)
class FromGroup:
    """Where another group of the same cluster stands."""

    group_id: str
    kind: Literal["group"] = "group"


@dataclass(frozen=True, slots=True)
class FromCluster:
    """Where a group of another cluster stands, translated by records that are the same in ``match``: ``timestamp``,
    ``key``, ``value``, ``header:<name>``.

    ``window``: how much time around the group's place is compared at least. ``alias``: MirrorMaker 2's of that cluster.
    ``allowed_topics``: what may be read there.
    """

    connection: Connection
    group_id: str
    match: tuple[str, ...]
    window: timedelta
    alias: str | None = None
    allowed_topics: tuple[str, ...] = ("*",)
    kind: Literal["cluster"] = "cluster"


@dataclass(frozen=True, slots=True)
class FromBackup:
    """Where the group stood in the newest backup that was read to its end by ``at``; ``None``: the newest of all."""

    storage: Storage
    at: datetime | None = None
    kind: Literal["backup"] = "backup"


@dataclass(frozen=True, slots=True)
class Undo:
    """Where the group stood before an earlier run. ``topic_ids`` are those of that run: a recreated topic is refused.

    ``before`` lists only partitions that had a commit; ``absent`` those that had none.
    """

    run_id: str
    before: tuple[PartitionOffset, ...]
    absent: tuple[TopicPartition, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()
    kind: Literal["undo"] = "undo"


class NoMatch(StrEnum):
    """What becomes of a partition in which no record is found: it stays, goes to the end, or there is no plan."""

    KEEP = "Keep"
    END = "End"
    FAIL = "Fail"


class SchemaFormat(StrEnum):
    """How a record's value is encoded."""

    JSON = "Json"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What values hold. ``text``: the schema, in the format's words; ``source``: where it was read, for a person."""

    format: SchemaFormat
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class ToRecord:
    """The first record for which ``where``, a Spark SQL condition, holds; ``after``: behind the last one.

    ``since`` and ``until`` bound the records looked at by their timestamps, ``until`` excluded.
    """

    where: str
    since: datetime | None = None
    until: datetime | None = None
    after: bool = False
    no_match: NoMatch = NoMatch.KEEP
    schema: RecordSchema | None = None
    kind: Literal["record"] = "record"


Target = (
    ToEarliest
    | ToLatest
    | ToOffset
    | ToTimestamp
    | ByDuration
    | ShiftBy
    | FromFile
    | FromGroup
    | FromCluster
    | FromBackup
    | Undo
    | ToRecord
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What Spark has found, for a target that needs that.

    ``offsets``: by partition, ``None`` where there is no such record; a partition that was not looked at is absent.
    ``notes``: for the plan, sentences for a person without a full stop.
    """

    offsets: Mapping[TopicPartition, int | None]
    notes: tuple[str, ...] = ()


# --- plan -------------------------------------------------------------------------------------------------------------


class Clamped(StrEnum):
    """The asked offset was outside the log and was moved to the named end of it."""

    EARLIEST = "Earliest"
    LATEST = "Latest"


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition: where the group is, where it would go, and what lies between.

    ``committed`` is ``None`` without a commit; then nothing is counted as replayed or skipped.
    ``span_from`` and ``span_to`` are the timestamps of the records at the lower and the upper end of the range that
    would be replayed or skipped, where they were looked up and exist.
    """

    topic: str
    partition: int
    topic_id: str
    committed: int | None
    target: int
    earliest: int
    latest: int
    clamped: Clamped | None = None
    span_from: datetime | None = None
    span_to: datetime | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def moves(self) -> bool:
        return self.committed != self.target

    @property
    def replayed(self) -> int:
        """Records (offsets) that would be read again."""
        return max(0, self.committed - self.target) if self.committed is not None else 0

    @property
    def skipped(self) -> int:
        """Records (offsets) that would never be read."""
        return max(0, self.target - self.committed) if self.committed is not None else 0


class Way(StrEnum):
    """How a group's offsets are changed (design: "How a live group's offsets are changed")."""

    DIRECT = "Direct"
    GATED = "Gated"
    BARRIER = "Barrier"
    LEADING = "Leading"
    HANDOVER = "Handover"


@dataclass(frozen=True, slots=True)
class Plan:
    """Targets with their evidence. Sorted by topic and partition. ``notes`` are sentences for a person."""

    run_id: str
    group_id: str
    made_at: datetime
    partitions: tuple[PartitionPlan, ...]
    way: Way | None = None
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> dict[TopicPartition, int]:
        return {p.topic_partition: p.target for p in self.partitions}

    @property
    def moved(self) -> int:
        return sum(p.moves for p in self.partitions)

    @property
    def unchanged(self) -> int:
        return sum(not p.moves for p in self.partitions)

    @property
    def clamped(self) -> int:
        return sum(p.clamped is not None for p in self.partitions)

    @property
    def records_replayed(self) -> int:
        return sum(p.replayed for p in self.partitions)

    @property
    def records_skipped(self) -> int:
        return sum(p.skipped for p in self.partitions)


# --- fleet ------------------------------------------------------------------------------------------------------------


class FailurePolicy(StrEnum):
    """What becomes of a fleet's other groups when one fails: they are reset, or all are put back."""

    ISOLATE = "Isolate"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """Which groups a fleet is of: those that match ``patterns`` and are allowed; ``groups``: by name, for an undo.

    ``undoes``: the document of the fleet's run that is undone, where it is one, and ``undoes_uid`` that run's uid.
    ``ends``: by group, the digest of how its run ended then (``tidegate.reset.binding.digest_of_end``).
    """

    patterns: tuple[str, ...]
    failure_policy: FailurePolicy = FailurePolicy.ISOLATE
    allowed_groups: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] | None = None
    undoes: str = ""
    undoes_uid: str = ""
    ends: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Roster:
    """A fleet's groups, sorted, as they were at ``at``, which is also the time their plans count from.

    ``notes``: what was left out, sentences for a person without a full stop.
    """

    at: datetime
    groups: tuple[str, ...]
    notes: tuple[str, ...] = ()


def span(parts: Iterable[PartitionPlan | GroupPlan]) -> tuple[datetime | None, datetime | None]:
    """The earliest and the latest of the times that are known."""
    parts = tuple(parts)
    starts = [p.span_from for p in parts if p.span_from is not None]
    ends = [p.span_to for p in parts if p.span_to is not None]
    return min(starts, default=None), max(ends, default=None)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group's plan in numbers, or ``refused``: why it has none (PascalCase), which ``message`` explains."""

    group_id: str
    partitions: int = 0
    moved: int = 0
    clamped: int = 0
    records_replayed: int = 0
    records_skipped: int = 0
    span_from: datetime | None = None
    span_to: datetime | None = None
    way: Way | None = None
    refused: str = ""
    message: str = ""
    digest: str = ""
    """Of the group's own run (``tidegate.reset.binding.digest_of``), which is the only one that is carried out."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What is approved: every group of the roster, in its order. Each group's own document has its targets."""

    run_id: str
    made_at: datetime
    groups: tuple[GroupPlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def digests(self) -> dict[str, str]:
        """Of the groups that have a plan."""
        return {g.group_id: g.digest for g in self.groups if not g.refused}

    @property
    def planned(self) -> tuple[str, ...]:
        return tuple(g.group_id for g in self.groups if not g.refused)

    @property
    def refused(self) -> tuple[GroupPlan, ...]:
        return tuple(g for g in self.groups if g.refused)

    @property
    def partitions(self) -> int:
        return sum(g.partitions for g in self.groups)

    @property
    def unchanged(self) -> int:
        return self.partitions - self.moved

    @property
    def moved(self) -> int:
        return sum(g.moved for g in self.groups)

    @property
    def clamped(self) -> int:
        return sum(g.clamped for g in self.groups)

    @property
    def records_replayed(self) -> int:
        return sum(g.records_replayed for g in self.groups)

    @property
    def records_skipped(self) -> int:
        return sum(g.records_skipped for g in self.groups)


# --- request ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions of topics whose name matches ``topic`` (a name, or a pattern with ``*``); ``None``: all of them."""

    topic: str
    partitions: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """How a reset is applied.

    ``in_flight``: how long an application may hold records before it commits them. ``drain_timeout``: how long managed
    consumers may take to finish what they were given. ``max_standstill``: how long the members of a group may stand
    still at a join that some of them do not come to, besides ``in_flight``. ``deadline``: when the run has to be over,
    by the operator's clock.
    """

    in_flight: timedelta = timedelta(0)
    deadline: datetime | None = None
    drain_timeout: timedelta = timedelta(seconds=30)
    max_standstill: timedelta = timedelta(seconds=30)


class EvidenceLevel(StrEnum):
    """How much is gathered for whoever approves a plan: nothing; histograms by the brokers' time index; or also what
    the records themselves tell."""

    NONE = "None"
    COUNTS = "Counts"
    RECORDS = "Records"


@dataclass(frozen=True, slots=True)
class EvidenceSettings:
    """``max_records``: as many are read at most. ``show_values``: keys and values may be stored and shown, cut."""

    level: EvidenceLevel = EvidenceLevel.NONE
    show_values: bool = False
    max_records: int = 1_000_000
    timeout: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """All that a run needs to know; without secrets. ``run_uid`` is unique over all runs of all resources.

    ``fleet``: it is of many groups; then ``group_id`` is empty, and each has a run of its own. ``asked_by``: who asked
    for it, for whoever finds what it holds. ``connection_uid``: of the KafkaConnection that it goes through; empty
    where no operator asked for it.
    """

    run_uid: str
    run_id: str
    group_id: str
    connection: Connection
    selections: tuple[Selection, ...]
    """Empty: what the group subscribes to or has offsets for."""
    target: Target
    settings: ApplySettings = field(default_factory=ApplySettings)
    allowed_topics: tuple[str, ...] = ("*",)
    manual_approval: bool = False
    evidence: EvidenceSettings = field(default_factory=EvidenceSettings)
    fleet: FleetRequest | None = None
    asked_by: str = ""
    connection_uid: str = ""


# --- progress and result ----------------------------------------------------------------------------------------------


class Phase(StrEnum):
    """``status.phase`` of an OffsetReset."""

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

    @property
    def is_final(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a search through records has come: offsets looked at, those there are to look at, and how fast."""

    read: int
    total: int
    per_second: int


@dataclass(frozen=True, slots=True)
class GroupTrouble:
    """Why one group of a fleet was not reset."""

    group_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """A fleet's groups by outcome; those not yet ended are in none. ``troubles``: the first of those not reset."""

    reset: int = 0
    failed: int = 0
    put_back: int = 0
    troubles: tuple[GroupTrouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of a run's journal, written *before* the step it names: a successor knows what may have happened.

    ``before``: committed offsets just before the first commit of the run (partitions without one are absent).
    ``releasing``: ids of members made to let go. ``round``: 1 for the first commit, counted up when a partition is done
    again. ``again``: of the round's partitions, those that are known to need another one.
    """

    phase: Phase
    at: datetime
    attempt: int
    way: Way | None = None
    round: int = 0
    before: tuple[PartitionOffset, ...] = ()
    releasing: tuple[str, ...] = ()
    pending: tuple[TopicPartition, ...] = ()
    again: tuple[TopicPartition, ...] = ()
    message: str = ""
    putting_back: str = ""
    """The reason (PascalCase) for which the run's offsets are being put back; empty while it goes forward."""
    claim: int | None = None
    """Under which claim on the group a round is done, by its epoch; ``None``: by a version that knew none."""
    waits_for: str = ""
    """Why nothing goes on for now, for a person; the next line takes the place of this one."""
    searched: Searched | None = None
    """Takes the place of the line before it, where that tells of the same search."""
    held: RunResult | None = None
    """Of a fleet's group: how it ends if its fleet is kept."""
    counts: FleetCounts | None = None


def noted(journal: Sequence[Progress], progress: Progress) -> tuple[Progress, ...]:
    """The journal with one more line. A step that is tried again is in it once."""
    kept = tuple(journal)
    if not kept:
        return (progress,)
    last = kept[-1]
    if last == progress:
        return kept
    searching = progress.searched is not None and last.searched is not None
    counting = progress.counts is not None and last.counts is not None
    if searching or counting or last.waits_for:
        kept = kept[:-1]
    if last.waits_for and kept and progress == replace(kept[-1], at=progress.at, before=progress.before):
        # Where the group stood before may have been looked up anew.
        return (*kept[:-1], progress) if progress.before else kept
    return (*kept, progress)


@dataclass(frozen=True, slots=True)
class Standstill:
    """Seconds from the moment a partition's owner was made to let go until it had the partition again, by partition."""

    p50_s: float
    max_s: float


MAX_UNREAD = 10
"""Partitions that a result names of those it counts as waiting."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. ``phase`` is final. ``reason`` is PascalCase, for the condition."""

    phase: Phase
    reason: str
    message: str
    finished_at: datetime
    way: Way | None = None
    rounds: int = 0
    redone: int = 0
    """Partitions that had to be done again because an owner overwrote the target, or may have while Kafka was away."""
    standstill: Standstill | None = None
    begun: int | None = None
    """Partitions whose owners are known to go on from the target: by a commit beyond it, or by the agent's word."""
    waiting: int | None = None
    """Partitions that have an owner and records to read, of which that was not known yet when the run ended.

    Both are ``None`` where a run has not succeeded, or could not look.
    """
    unread: tuple[str, ...] = ()
    """The first ``MAX_UNREAD`` of those, each with its owner, as people read it; in a fleet with its group."""
    before: tuple[PartitionOffset, ...] = ()
    counts: FleetCounts | None = None
    ends: tuple[tuple[str, str], ...] = ()
    """Of a fleet: by group, the digest of how its run ended (``tidegate.reset.binding.digest_of_end``)."""
