"""What has to hold for a plan whose skipped records are copied to a dead-letter topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.kafka.model import Topic
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.planning.refusals import NOT_COPIED, PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.resources.dead_letter import MOST_COPIED

_SEVERAL = "or remove deadLetter to skip the records without a copy"


def with_dead_letters(plan: Plan, topic: str, there: Mapping[str, Topic]) -> Plan:
    """The plan, with a note on what is copied where. ``there``: the dead-letter topic, where it exists. Raises
    ``PlanRefused``."""
    why = _why_not(plan, topic, there)
    if why is not None:
        raise PlanRefused(NOT_COPIED, f"deadLetter: {why}")
    records = sum(p.skipped for p in plan.partitions)
    note = (
        f"Skipped records ({records} offset(s)) are copied to dead-letter topic {topic} first, in the same "
        "transaction; if they can't be copied, nothing is skipped"
    )
    return replace(plan, notes=(*plan.notes, note))


def _why_not(plan: Plan, topic: str, there: Mapping[str, Topic]) -> str | None:
    if topic not in there:
        return (
            f"topic {topic} does not exist, or the principal may not describe it: create it, or grant that permission"
        )
    if any(p.topic == topic for p in plan.partitions):
        return f"topic {topic} is the one that is reset, so its consumers would be given the record again"
    others = [p.topic_partition for p in plan.partitions if not _skips(p)]
    if others:
        return f"nothing is skipped in {listed(others)}: reset the other partitions, {_SEVERAL}"
    skipped = sum(p.skipped for p in plan.partitions)
    if skipped > MOST_COPIED:
        return f"{skipped:,} offsets would be skipped, but at most {MOST_COPIED} are copied: skip fewer, {_SEVERAL}"
    return None


def _skips(plan: PartitionPlan) -> bool:
    """Whether it is known what is skipped: from the committed offset to the target."""
    return plan.committed is not None and plan.committed < plan.target
