"""All that a run was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from tidegate.kafka.connection import Connection
from tidegate.reset.model.targets import Target
from tidegate.resources.replay import Then
from tidegate.resources.reset import FailurePolicy


@dataclass(frozen=True, slots=True)
class Waves:
    """A fleet in waves of ``groups`` each, or, where that is 0, of ``percent`` of the groups that have a plan; with a
    ``pause`` between the end of one and the begin of the next."""

    groups: int = 0
    percent: int = 0
    pause: timedelta = timedelta(0)


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
    waves: Waves | None = None


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
class PlanLimits:
    """How much a plan may do; ``None``: any number. ``set_by``: the KafkaConnection that says so."""

    set_by: str
    partitions: int | None = None
    records_replayed: int | None = None


@dataclass(frozen=True, slots=True)
class Until:
    """Where a replay ends: before the first record at or after ``at``, before ``offset``, or after so many ``records``
    from the target; one of them is set. ``within``: how long it may take."""

    then: Then
    within: timedelta
    at: datetime | None = None
    offset: int | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """All that a run needs to know; without secrets. ``run_uid`` is unique over all runs of all resources.

    ``fleet``: it is of many groups; then ``group_id`` is empty, and each has a run of its own. ``asked_by``: who asked
    for it, for whoever finds what it holds. ``connection_uid``: of the KafkaConnection that it goes through; empty
    where no operator asked for it. ``observed``: its connection only observes, so its plan is not applied unless it is
    approved later (``manual_approval``), and planning changes nothing, not even in groups of Tidegate's own.
    ``limits``: what its plan may do at most; of a fleet, the plan of all groups together.
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
    observed: bool = False
    limits: PlanLimits | None = None
    until: Until | None = None
    """The replay ends."""
    dead_letter: str = ""
    """The topic to which the records that are skipped are copied in the same transaction; empty: nowhere."""
