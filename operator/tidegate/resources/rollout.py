"""How a fleet is reset in waves."""

from __future__ import annotations

from datetime import timedelta

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import CountOrPercent, Duration


class RolloutSpec(ResourceModel):
    """A fleet in waves: the groups in the order of their ids, so many at a time."""

    wave_size: CountOrPercent
    """How many groups are in a wave: a number, or a percentage of the groups that have a plan, such as 10%, rounded up.
    The next wave begins when every group of this one has succeeded, and it is known of how many partitions it is not
    seen yet that they are read from their targets."""

    pause: Duration = timedelta(0)
    """How long nothing is reset between two waves. The deadline has to be long enough for all of them."""
