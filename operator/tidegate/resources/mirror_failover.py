"""The end of an ``OffsetMirror``: that it is asked for, and what had been copied by then."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictBool

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Count, Timestamp
from tidegate.resources.rules import described, list_map

MOST_TOPICS: Final = 200
"""In one mirror: its status has a row for each."""


class FailoverSpec(ResourceModel):
    """That the copying ends for good, so that the copies can be written by others."""

    accept_loss: StrictBool = False
    """If true, the copying ends even if the copies lack records of the source, or if the source does not answer. If
    false, it does not end until the copies have all records."""


class MirrorRef(ResourceModel):
    """An OffsetMirror of the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The OffsetMirror's name."""


class FailoverPhase(StrEnum):
    """How far a failover is."""

    FENCING = "Fencing"
    """Nothing is copied any more. What may still be on its way is refused, partition by partition."""
    DONE = "Done"
    """Nothing that was on its way can arrive any more: the copies may be written."""


class FailedOverTopic(ResourceModel):
    """Where the copying of a topic ended."""

    name: str
    """The topic's name."""

    ends: Annotated[
        tuple[Annotated[int, described("By partition, the offset after the last that was copied.")], ...],
        Field(max_length=100_000),
    ]
    """Where the copies of its partitions ended; 0 for a partition that was never copied. Empty if the copy was
    deleted."""

    lacks: (
        Annotated[
            tuple[Annotated[int, described("By partition, how many offsets the source had beyond the end.")], ...],
            Field(max_length=100_000),
        ]
        | None
    ) = None
    """How much was not copied. Absent if that is not known: either the source did not answer, or unknown says why."""

    message: str = ""
    """What is wrong with the copy."""

    unknown: str = ""
    """Why it is not known what was not copied, although the source answered."""


class MirrorFailover(ResourceModel):
    """The end of the copying."""

    phase: FailoverPhase
    """How far the failover has come."""

    fence_id: Count
    """The id of the producer that marks the ends of the copies."""

    at: Timestamp | None = None
    """When the failover was done."""

    source_answered: StrictBool = False
    """Whether, after the copying had ended, the source reported where its logs end."""

    not_copied: Count | None = None
    """How many offsets the source had beyond the ends of the copies, in all. Absent if that is not known for every
    topic: then the number is at least the sum for the topics for which it is known."""

    topics: Annotated[tuple[FailedOverTopic, ...], Field(max_length=MOST_TOPICS), list_map("name")] = ()
    """Where the copies ended. While the phase is Fencing, only for topics that are done."""
