"""What a policy's status says of many groups, and of other policies for the same ones."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Count, Timestamp

MAX_WORST: Final = 10


class TroubledGroup(ResourceModel):
    """A group that something is wrong with."""

    group: str
    """The group's id."""

    reason: str
    """What is wrong: the reason that the condition Retained or RecordStuck would have for this group alone, or
    LookFailed if the group could not be looked at."""

    expires_at: Timestamp | None = None
    """When the first of its offsets would expire if nothing were done."""

    message: Annotated[str, Field(max_length=300)] = ""
    """What is wrong, for people."""


class ManyGroupsStatus(ResourceModel):
    """The groups of a policy with groups. The rest of them is in the metrics, and in tidegate groups --retention."""

    selected: Count
    """How many groups are selected by groups, not left out by exclude, and allowed by the KafkaConnection."""

    overridden: Count
    """For how many of them a more specific policy keeps something instead of this one."""

    troubled: Count
    """How many of them have something wrong with them."""

    worst: Annotated[tuple[TroubledGroup, ...], Field(max_length=MAX_WORST)] = ()
    """The ten of them that most need attention, the worst first."""


class Overlap(ResourceModel):
    """Another policy that asks for the same, for groups that both policies select."""

    policy: str
    """The other policy's name."""

    part: str
    """What both policies ask for: discovery (which includes latest), retention, or stuckRecords."""

    groups: Count
    """For how many groups both ask for it."""

    example: str
    """The first of these groups."""


Overlaps = Annotated[tuple[Overlap, ...], Field(max_length=MAX_WORST)]
