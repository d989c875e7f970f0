"""What a policy keeps for its group: ``latest``, ``discovery``, ``consumers`` and ``retention``; and their status."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from tidegate.resources.base import (
    Count,
    Duration,
    ResourceModel,
    Timestamp,
    matching,
    problem,
    unique,
)
from tidegate.resources.durations import format_duration, parse_duration


def _off_or_duration(value: Any) -> timedelta | None:
    if value in (-1, "-1") and not isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise problem(f"{error}, or -1 for off") from None


class LatestSpec(ResourceModel):
    """KIP-1327: partitions up to this age begin at their start. ``max_age`` absent, or -1 on the wire: off."""

    max_age: Annotated[
        timedelta | None,
        BeforeValidator(_off_or_duration),
        PlainSerializer(lambda age: None if age is None else format_duration(age), when_used="json"),
        WithJsonSchema({"x-kubernetes-int-or-string": True}),
    ] = None


class NewPartitions(StrEnum):
    """Where a partition found after the first discovery begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class Repair(StrEnum):
    """What to do where an unmanaged owner began at the end before its start was committed."""

    BACKFILL = "Backfill"
    REPORT = "Report"


class DiscoverySpec(ResourceModel):
    """FLIP-288. ``interval`` 0 turns it off."""

    interval: Duration = parse_duration("200ms")
    new_partitions: NewPartitions = NewPartitions.EARLIEST
    repair: Repair = Repair.BACKFILL


_LABEL_VALUE: Final = matching(
    r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
    "must be a label value: letters, digits, '-', '_' and '.', at most 63 characters",
    least=0,
    most=63,
)

_LABEL_KEY: Final = matching(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "must be a label key such as app or app.kubernetes.io/name",
    most=317,
)

LabelKey = Annotated[str, _LABEL_KEY]

LabelValue = Annotated[str, _LABEL_VALUE]


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(ResourceModel):
    """``metav1.LabelSelectorRequirement``."""

    key: LabelKey
    operator: SelectorOperator
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()

    @model_validator(mode="after")
    def _values_fit_operator(self) -> Self:
        if (self.operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)) != bool(self.values):
            raise problem("operators In and NotIn need values, Exists and DoesNotExist take none: change one of them")
        return self


class Selector(ResourceModel):
    """``metav1.LabelSelector``; an empty one would select every pod of the namespace and is refused."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    match_expressions: Annotated[tuple[SelectorRequirement, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise problem("must not be empty: it would select every pod of the namespace; add matchLabels")
        return self


class Rollout(StrEnum):
    """``RESTART``: workloads are rolled when the setting changes; ``WHEN_NEXT``: it waits for their next pods."""

    RESTART = "Restart"
    WHEN_NEXT = "WhenNext"


class ConsumerFormat(StrEnum):
    """Whose names the settings are given under. ``PYTHON``: Tidegate's agent, which comes with them; ``JAVA``: those of
    the three frameworks at once. ``tidegate.inject.environment`` has the names.
    """

    PYTHON = "Python"
    JAVA = "Java"
    SPRING = "Spring"
    QUARKUS = "Quarkus"
    CONNECT = "Connect"


ContainerName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "must be a container's name: lower-case letters, digits and '-', at most 63 characters",
        most=63,
    ),
]


class ConsumersSpec(ResourceModel):
    """The pods that get the policy's settings injected. ``containers`` empty: each pod's main container."""

    selector: Selector
    format: ConsumerFormat = ConsumerFormat.PYTHON
    containers: Annotated[
        tuple[ContainerName, ...],
        Field(max_length=16),
        unique(str, "must not repeat a container: remove the second one"),
    ] = ()
    rollout: Rollout = Rollout.RESTART


class RetentionSpec(ResourceModel):
    """KIP-211: ``guard`` keeps the offsets of a group without members; ``warn_before`` their end an Event says so."""

    guard: StrictBool = True
    warn_before: Duration = parse_duration("24h")


class NewPartition(ResourceModel):
    topic: str
    partition: Count
    seen_at: Timestamp | None = None


class DiscoveredTopic(ResourceModel):
    """What is known of one topic: those of its partitions below ``initial`` were there at the first discovery, those
    below ``settled`` are taken care of. ``before``: the id of the topic that had this name before.
    """

    name: str
    topic_id: str
    initial: Count
    settled: Count
    before: str | None = None


MAX_NEWEST: Final = 20

MAX_DISCOVERED_TOPICS: Final = 10_000
"""Keeps the resource below what the API server takes (1.5 MiB) with names of the usual length."""


class DiscoveryStatus(ResourceModel):
    """``selection``: the policy's topics that this is about, absent: those that the group reads.

    ``unassigned_initial``: partitions there at the first discovery that nobody owned yet.

    ``starts_committed``: new partitions whose start was committed for the group; ``began_at_end``: those that an owner
    had begun at the end before; ``backfilled``: those of them that were sent back to their start.
    """

    initial_discovery_finished: StrictBool = False
    selection: Annotated[tuple[str, ...], Field(max_length=100)] | None = None
    assigned: Count | None = None
    unassigned_initial: Count | None = None
    starts_committed: Count | None = None
    began_at_end: Count | None = None
    backfilled: Count | None = None
    newest: Annotated[tuple[NewPartition, ...], Field(max_length=MAX_NEWEST)] = ()
    topics: Annotated[tuple[DiscoveredTopic, ...], Field(max_length=MAX_DISCOVERED_TOPICS)] = ()


class RetentionStatus(ResourceModel):
    """``state`` is the group's, in Kafka's words; ``expires_at`` when the first of its offsets would go if nothing were
    done: ``exact``, or at the earliest.

    ``offsets``: those looked after; ``kept``: those of them with a retention of their own. ``snapshot``: the ConfigMap
    with the last known ones.
    """

    state: str | None = None
    expires_at: Timestamp | None = None
    exact: StrictBool = False
    guarded: StrictBool = False
    offsets: Count | None = None
    kept: Count | None = None
    renewed_at: Timestamp | None = None
    snapshot: str | None = None


class InjectionStatus(ResourceModel):
    """The pods that ``consumers`` selects. ``setting``: what they are to have, by its hash.

    ``stale``: those that have another setting, or none; ``refused``: those that can't have it. ``stale_before``: how
    many were stale when the last one was evicted; ``futile``: how many evictions in a row made no difference, after
    which the next one waits until ``retry_at``.
    """

    setting: str | None = None
    pods: Count | None = None
    injected: Count | None = None
    stale: Count | None = None
    refused: Count | None = None
    stale_before: Count | None = None
    futile: Count | None = None
    retry_at: Timestamp | None = None
