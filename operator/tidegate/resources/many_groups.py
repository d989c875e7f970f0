"""What a policy's status says of many groups, and of other policies for the same ones."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Count, Timestamp

MAX_WORST: Final = 10


class TroubledGroup(ResourceModel):
    """One group."""

    group: str
    """The group's id."""

    reason: str
    """What is wrong, as the condition Retained or RecordStuck would say it of the group alone; LookFailed where it
    could not be looked at."""

    expires_at: Timestamp | None = None
    """When the first of its offsets would expire if nothing were done."""

    message: Annotated[str, Field(max_length=300)] = ""
    """What is wrong, for people."""


class ManyGroupsStatus(ResourceModel):
    """The groups of a policy with groups. The rest of them is in the metrics, and in tidegate groups --retention."""

    selected: Count
    """How many groups are selected by groups, without exclude, and allowed by the KafkaConnection."""

    overridden: Count
    """Of how many of them something is kept by a more specific policy instead."""

    troubled: Count
    """How many of them something is wrong with."""

    worst: Annotated[tuple[TroubledGroup, ...], Field(max_length=MAX_WORST)] = ()
    """The ten of those that need somebody most, the worst first."""


class Overlap(ResourceModel):
    """Another policy that asks for the same, of groups that both select."""

    policy: str
    """Its name."""

    part: str
    """What both ask for: discovery, which includes latest, retention, or stuckRecords."""

    groups: Count
    """Of how many groups."""

    example: str
    """The first of them."""


Overlaps = Annotated[tuple[Overlap, ...], Field(max_length=MAX_WORST)]
