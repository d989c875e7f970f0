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
    """Whether it ends although the copies lack records of the source, or the source does not answer. False: it is
    waited until the copies have all of them."""


class MirrorRef(ResourceModel):
    """An OffsetMirror of the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name."""


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
    """Where the copies of its partitions ended; 0 for one that was never copied. Empty where the copy was deleted."""

    lacks: (
        Annotated[
            tuple[Annotated[int, described("By partition, how many offsets the source had beyond the end.")], ...],
            Field(max_length=100_000),
        ]
        | None
    ) = None
    """What was not copied. Absent where that is not known: unknown says why, or the source did not answer."""

    message: str = ""
    """What is wrong with the copy."""

    unknown: str = ""
    """Why it is not known what was not copied, where the source answered."""


class MirrorFailover(ResourceModel):
    """The end of the copying."""

    phase: FailoverPhase
    """How far it is."""

    fence_id: Count
    """The id of the producer that marks the ends of the copies."""

    at: Timestamp | None = None
    """When it was done."""

    source_answered: StrictBool = False
    """Whether the source told where its logs end, after the copying had ended."""

    not_copied: Count | None = None
    """How many offsets the source had beyond the ends of the copies, in all. Absent where that is not known of every
    topic: then it is at least what the topics lack of which it is known."""

    topics: Annotated[tuple[FailedOverTopic, ...], Field(max_length=MOST_TOPICS), list_map("name")] = ()
    """Where the copies ended; while the phase is Fencing, of those topics that are done."""
