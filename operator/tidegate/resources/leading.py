"""What is said of groups that are led: before, and in a status."""

from __future__ import annotations

from enum import StrEnum

from pydantic import StrictInt

from tidegate.resources.base import ResourceModel


class FailOpen(StrEnum):
    """Whether partitions may be read again while nobody withholds them."""

    ALLOW = "Allow"
    NEVER = "Never"


class LeadingSpec(ResourceModel):
    """What is to be said before a group is led."""

    fail_open: FailOpen = FailOpen.ALLOW
    """Whether the partitions may be read again when the operator has been away for status.failsOpenAfter. With Never,
    the method Leading is refused, because it can't prevent that."""


class LeaderSeat(ResourceModel):
    """The operator's own member that leads the group. Another process of the operator continues as the same member."""

    member_id: str
    """The member's id in the group."""

    generation: StrictInt
    """The last generation of the group that it has led."""

    assignor: str
    """The group's assignor."""

    connection_uid: str
    """The uid of the KafkaConnection. It distinguishes one that was created again from the old one."""
