"""A policy's ``stuckRecords``: records that a group's consumers do not get past; and their status."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field, StrictBool

from tidegate.resources.base import ResourceModel
from tidegate.resources.dead_letter import DeadLetterSpec
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import Count, Duration, Timestamp, duration_must
from tidegate.resources.rules import rule

MAX_STUCK: Final = 20
SKIP_PREFIX: Final = "skip-"
"""Of the ids of resets that skip stuck records: their OffsetResets are named <policy>-skip-<digest>."""

_After = Annotated[
    Duration,
    duration_must(
        lambda after: after >= timedelta(seconds=5), "duration(self) >= duration('5s')", "must be 5s or longer"
    ),
]


class StuckRecordsSpec(ResourceModel):
    """How records are found that the group's consumers do not get past."""

    after: _After = parse_duration("20s")
    """How long a partition's committed offset must not move, while its log grows and the same member owns it, before
    its next record is reported. The time is longer for partitions that are usually read in larger steps: at least three
    times the longest interval between two commits that was seen. A partition is judged only after its committed offset
    was seen moving five times."""

    prepare_skip: StrictBool = False
    """If true, an OffsetReset is created that would skip the record. It changes nothing unless somebody approves it,
    and is deleted if the group gets past the record without it. No OffsetReset is created if several partitions are
    stuck and it isn't known which of them holds up the consumer."""

    dead_letter: DeadLetterSpec | None = None
    """Where the prepared OffsetReset copies the record before the group skips it. Without this field, the record is not
    copied."""

    @rule(
        "!has(self.deadLetter) || self.prepareSkip",
        "deadLetter is for the OffsetReset that prepareSkip creates: set prepareSkip, or remove deadLetter",
    )
    def _dead_letters_are_of_a_skip(self) -> bool:
        return self.dead_letter is None or self.prepare_skip


class StuckRecord(ResourceModel):
    """A record that consumers do not get past. If several partitions of one member are stuck, it is one of the records
    that may hold up the member."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    offset: Count
    """The offset of the record that would be read next."""

    committed: Count
    """The committed offset. It is smaller than offset if the offsets between them have no records."""

    since: Timestamp
    """Since when the committed offset has not moved while the log grows."""

    timestamp: Timestamp | None = None
    """The record's timestamp."""

    size: Count
    """How many bytes its key and value have."""

    headers: Count | None = None
    """How many headers it has. Absent if the name of one is not UTF-8."""

    one_of: Count | None = None
    """How many partitions of the same member are stuck, if it isn't known which of them holds up the member."""

    skip: str | None = None
    """The OffsetReset that would skip the record, if somebody approves it."""


class StuckRecordsStatus(ResourceModel):
    """Which records the group's consumers do not get past, as far as known."""

    watched: Count | None = None
    """How many partitions with a committed offset have an owner."""

    judged: Count | None = None
    """How many of them have been watched long enough to be judged."""

    stuck: Count | None = None
    """How many partitions are stuck at a record."""

    records: Annotated[tuple[StuckRecord, ...], Field(max_length=MAX_STUCK)] = ()
    """The first of these records, those that have been stuck longest first."""
