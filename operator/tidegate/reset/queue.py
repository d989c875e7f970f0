"""Who may reset a partition when several policies would: what is under way goes on, then the older goes first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidegate.kafka.model import Topic, TopicPartition
from tidegate.kafka.names import matches, overlap
from tidegate.reset.model import Selection


@dataclass(frozen=True, slots=True)
class Claim:
    """A policy that would reset, or is resetting, partitions of groups. ``partitions`` ``None``: any of them.

    ``groups``: names or patterns. A group whose own name has a ``*`` may wait for more than it has to.
    """

    uid: str
    holder: str
    """Namespace and name, for a person."""
    created: datetime
    cluster_id: str
    groups: tuple[str, ...]
    partitions: frozenset[TopicPartition] | None
    under_way: bool

    @property
    def precedence(self) -> tuple[bool, datetime, str]:
        """Smaller goes first. A run that has begun is never interrupted by an older policy."""
        return (not self.under_way, self.created, self.uid)

    def meets(self, other: Claim) -> bool:
        """Whether both want a partition for the same group of the same cluster."""
        if self.cluster_id != other.cluster_id:
            return False
        if not any(overlap(mine, theirs) for mine in self.groups for theirs in other.groups):
            return False
        return self.partitions is None or other.partitions is None or bool(self.partitions & other.partitions)


def blocker(mine: Claim, others: Iterable[Claim]) -> Claim | None:
    """The claim to wait for: the first of those that meet mine and go before it."""
    ahead = [o for o in others if o.uid != mine.uid and o.meets(mine) and o.precedence < mine.precedence]
    return min(ahead, key=lambda claim: claim.precedence, default=None)


def claimed(selections: Iterable[Selection], topics: Mapping[str, Topic]) -> frozenset[TopicPartition] | None:
    """The partitions that selections stand for; ``None`` without any: all of the group's, whatever they are."""
    chosen = tuple(selections)
    if not chosen:
        return None
    return frozenset(
        partition
        for selection in chosen
        for topic in topics.values()
        if matches(topic.name, selection.topic)
        for partition in topic.all_partitions()
        if selection.partitions is None or partition.partition in selection.partitions
    )
