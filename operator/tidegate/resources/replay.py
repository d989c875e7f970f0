"""A reset whose replay ends: where, what comes then, and how far it has come."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictInt

from tidegate.resources.base import ResourceModel
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import Count, PositiveDuration, Timestamp
from tidegate.resources.rules import cel_exactly_one, rule
from tidegate.resources.targets import Offset


class Then(StrEnum):
    """Where a group goes on once its replay has ended: ``RETURN``, where it was before; ``CONTINUE``, at the end;
    ``PAUSE``, at the end too, once a ConsumerGroupPause of the run is gone."""

    RETURN = "Return"
    CONTINUE = "Continue"
    PAUSE = "Pause"


class EndKind(StrEnum):
    """The members of ``until`` that say where the replay ends, as they are written."""

    TIMESTAMP = "timestamp"
    OFFSET = "offset"
    RECORDS = "records"


MOST_RECORDS: Final = 2**63 - 1


class UntilSpec(ResourceModel):
    """Where a replay ends, partition by partition: before the first record that is not read any more."""

    timestamp: Timestamp | None = None
    """Before the first record at or after this time. If there is none, at the end that the log has when the plan is
    made."""

    offset: Offset | None = None
    """Before this offset, in every partition."""

    records: Annotated[StrictInt, Field(ge=1, le=MOST_RECORDS)] | None = None
    """After this many offsets of each partition, counted from the target."""

    then: Then = Then.RETURN
    """Where the group continues once every partition has reached the end of its replay. Return: where it was before the
    replay. Continue: at that end. Pause: at that end as well, but its partitions stay paused: the operator creates a
    ConsumerGroupPause, named like the OffsetReset with -end added, which lasts until it or the OffsetReset is deleted.
    Until all partitions have reached their end, those that have are paused."""

    within: PositiveDuration = parse_duration("24h")
    """How long the replay may take, counted from when the group has its targets. After that the run is rolled back: the
    group returns to where it was before the replay."""

    @rule(
        cel_exactly_one(EndKind),
        f"must have exactly one of {', '.join(EndKind)}: keep one and remove the others",
    )
    def _one_end(self) -> bool:
        return sum(value is not None for value in (self.timestamp, self.offset, self.records)) == 1


class ReplayStatus(ResourceModel):
    """How far a replay that ends has come. Counted are offsets, by what owners have committed and what their agents
    say."""

    records: Count
    """How many offsets lie between the targets and the ends of the replay, in all partitions."""

    read: Count
    """How many of them have been read."""

    percent: Count
    """read as a percentage of records, rounded down."""

    progress: str
    """The progress as people read it, such as 42% (1/8 partitions)."""

    partitions: Count
    """How many partitions are replayed."""

    reached: Count
    """How many of them have reached their end. They are paused there until all have."""

    started_at: Timestamp
    """When the replay began."""

    ends_by: Timestamp
    """When the run is rolled back if the replay has not ended by then."""

    estimated_end: Timestamp | None = None
    """When the replay is expected to end, judged by its speed so far. Absent while that is not known."""

    waits_for: str | None = None
    """For people: what the first partition that has not reached its end is waiting for, or why the group is not paused
    at the end yet. Absent if nothing is waited for."""
