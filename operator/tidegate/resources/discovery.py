"""What a policy keeps of new partitions (``discovery``), and its status."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, StrictBool, WithJsonSchema

from tidegate.resources import durations
from tidegate.resources.base import ResourceModel
from tidegate.resources.durations import format_duration, parse_duration
from tidegate.resources.fields import Count, Duration, Timestamp, cel_at_most_ten_years, duration_must
from tidegate.resources.rules import Facet, Rule, cel_matches, described, problem

_OR_NEGATIVE: Final = f"{durations.ACCEPTED}, or 0 or a negative one for off"
_OFF: Final = rf"0|-([0-9]{{1,9}}|{durations.PATTERN})"
"""Flink's property is a number of milliseconds, of which 0 and negative ones turn discovery off."""


class NewPartitions(StrEnum):
    """Where a partition found after the first discovery begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class Repair(StrEnum):
    """What to do where an unmanaged owner began at the end before its start was committed."""

    BACKFILL = "Backfill"
    REPORT = "Report"


def _interval(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return max(value, timedelta(0))
    if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
        return timedelta(0)
    text = value if isinstance(value, str) else ""
    if len(text) <= durations.MAX_LENGTH and re.fullmatch(_OFF, text):
        return timedelta(0)
    try:
        return parse_duration(text)
    except ValueError:
        raise problem(_OR_NEGATIVE) from None


Interval = Annotated[
    timedelta,
    BeforeValidator(_interval),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": durations.MAX_LENGTH}, mode="validation"),
    Facet(
        (
            Rule(
                f"type(self) == int ? self <= 0 : ({cel_matches('string(self)', _OFF)} "
                f"|| ({cel_at_most_ten_years('string(self)')}))",
                _OR_NEGATIVE,
            ),
        )
    ),
]
"""A duration; 0 for all that turn something off."""


InFlight = Annotated[
    Duration,
    duration_must(
        lambda value: value <= timedelta(minutes=2),
        "duration(self) <= duration('2m')",
        "must be at most 2m, as a Backfill has five minutes",
    ),
]


class DiscoverySpec(ResourceModel):
    """FLIP-288."""

    interval: Interval = parse_duration("200ms")
    """How often to look for new partitions. 0s or a negative value, such as -1, turns discovery off."""

    new_partitions: NewPartitions = NewPartitions.EARLIEST
    """Where the group begins to read partitions found after the first discovery: earliest means their start, latest
    their end, and none wherever the consumers' own setting says."""

    repair: Repair = Repair.BACKFILL
    """What to do if a consumer without the agent was faster and began at the end of a partition. Backfill resets the
    partition to its start; Report only reports it."""

    in_flight: InFlight | None = None
    """How long an application without the agent may keep records before it commits them, if that is done by hand. A
    Backfill waits longer than that, so that no late commit overwrites the start."""


class NewPartition(ResourceModel):
    """A new partition."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    seen_at: Timestamp | None = None
    """When it was first seen, by the broker's clock."""


class DiscoveredTopic(ResourceModel):
    """A topic that was discovered."""

    name: str
    """The topic's name."""

    topic_id: str
    """The topic's id. It distinguishes a topic that was created again from the earlier one."""

    initial: Count
    """Partitions below this number were there at the first discovery."""

    settled: Count
    """Partitions below this number are settled: their start has been taken care of."""

    before: str | None = None
    """The id of the earlier topic with this name."""


MAX_NEWEST: Final = 20
MAX_DISCOVERED_TOPICS: Final = 10_000
"""Keeps the resource below what the API server takes (1.5 MiB) with names of the usual length."""


class DiscoveryStatus(ResourceModel):
    """What the discovery of new partitions has found."""

    initial_discovery_finished: StrictBool = False
    """Whether the first discovery has finished."""

    selection: (
        Annotated[tuple[Annotated[str, described("A topic's name or pattern.")], ...], Field(max_length=100)] | None
    ) = None
    """No longer written: the policy's memory has it, a ConfigMap named after the policy. What an earlier version has
    written here is still read."""

    assigned: Count | None = None
    """How many partitions have an owner."""

    unassigned_initial: Count | None = None
    """How many partitions of the first discovery had no owner yet."""

    starts_committed: Count | None = None
    """How many new partitions had their start committed before they had an owner."""

    began_at_end: Count | None = None
    """How many new partitions an owner had begun to read at the end before their start was committed."""

    backfilled: Count | None = None
    """How many of these were reset to their start."""

    newest: Annotated[tuple[NewPartition, ...], Field(max_length=MAX_NEWEST)] = ()
    """The partitions that were found last, the newest first."""

    topics: Annotated[tuple[DiscoveredTopic, ...], Field(max_length=MAX_DISCOVERED_TOPICS)] = ()
    """No longer written: the policy's memory has it, a ConfigMap named after the policy. What an earlier version has
    written here is still read."""
