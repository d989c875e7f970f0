"""How a fleet is reset in waves."""

from __future__ import annotations

from datetime import timedelta

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import CountOrPercent, Duration


class RolloutSpec(ResourceModel):
    """A fleet in waves: the groups in the order of their ids, so many at a time."""

    wave_size: CountOrPercent
    """How many groups are in a wave: a number, or a percentage of the groups that have a plan, such as 10%, rounded up.
    The next wave begins when every group of the current wave has succeeded, and Kafka has reported how many of its
    partitions are not yet seen to be read from their targets."""

    pause: Duration = timedelta(0)
    """How long nothing is reset between two waves. The reset's deadline has to be long enough for all waves and
    pauses."""
