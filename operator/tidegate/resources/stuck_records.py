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
    """For how long a partition's committed offset has to stand, while its log grows and one member owns it, before its
    next record is reported. It is longer for partitions that are usually read in larger steps: at least three times the
    longest that was seen. A partition is judged once its committed offset was seen moving five times."""

    prepare_skip: StrictBool = False
    """Whether an OffsetReset is created that would skip the record. It changes nothing unless somebody approves it, and
    is deleted once the group gets past the record by itself. None is created where several partitions stand and it
    isn't known which of them holds up the consumer."""

    dead_letter: DeadLetterSpec | None = None
    """Where the prepared OffsetReset copies the record before the group skips it. Without this field, nowhere."""

    @rule(
        "!has(self.deadLetter) || self.prepareSkip",
        "deadLetter is of the OffsetReset that prepareSkip prepares: set prepareSkip, or remove deadLetter",
    )
    def _dead_letters_are_of_a_skip(self) -> bool:
        return self.dead_letter is None or self.prepare_skip


class StuckRecord(ResourceModel):
    """One record, or where several partitions of one member stand, one of those that may hold it up."""

    topic: str
    """The topic's name."""

    partition: Count
    """The partition's number."""

    offset: Count
    """The offset of the record that would be read next."""

    committed: Count
    """The committed offset. It is smaller where the offsets up to the record have no records."""

    since: Timestamp
    """Since when the partition stands while its log grows."""

    timestamp: Timestamp | None = None
    """The record's timestamp."""

    size: Count
    """How many bytes its key and value have."""

    headers: Count | None = None
    """How many headers it has; absent where the name of one is not UTF-8."""

    one_of: Count | None = None
    """How many partitions of the same member stand, where it isn't known which of them holds it up."""

    skip: str | None = None
    """The OffsetReset that would skip it, if somebody approves it."""


class StuckRecordsStatus(ResourceModel):
    """Which records the group's consumers do not get past, as far as known."""

    watched: Count | None = None
    """How many partitions with a committed offset have an owner."""

    judged: Count | None = None
    """Of how many of them enough was seen to judge them."""

    stuck: Count | None = None
    """How many partitions stand at a record."""

    records: Annotated[tuple[StuckRecord, ...], Field(max_length=MAX_STUCK)] = ()
    """The first of them, those that stand longest first."""
