"""What discovery remembers of a policy's group beyond its process, as a document of the policy's memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.control.records import PartitionSeen
from tidegate.discovery.state import DiscoveryState, KnownTopic
from tidegate.kafka.model import TopicPartition
from tidegate.resources.discovery import DiscoveryStatus

PART: Final = "discovery"

Untold = tuple[tuple[str, int, int, PartitionSeen | None], ...]
"""Of new partitions that are taken care of, and of which agents were not told yet: topic, first and last number, and
when they were made; ``None``: that is not known."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of new partitions: whose start was committed, where an owner had begun at the end, which of those were reset."""

    starts_committed: int = 0
    began_at_end: int = 0
    backfilled: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """``selection``: the policy's topics then; ``None``: those that the group reads. ``allowed``: what its connection
    allowed of them; ``None``: that was not noted. ``cluster_id``: of the cluster that it is about; empty: that was not
    noted, either. ``untold``: what a later process has to tell agents, who would take a new partition of which they are
    told nothing for one that was there at first."""

    state: DiscoveryState = field(default_factory=DiscoveryState)
    selection: tuple[str, ...] | None = None
    counts: Counts = field(default_factory=Counts)
    allowed: tuple[str, ...] | None = None
    cluster_id: str = ""
    untold: Untold = ()

    def here(self, cluster_id: str) -> Remembered:
        """What of it holds in this cluster: of another one's topics nothing, though some have the same names. What is
        there by the first look is old."""
        is_of_another = self.cluster_id and cluster_id and self.cluster_id != cluster_id
        return Remembered(counts=self.counts) if is_of_another else self


def encode(remembered: Remembered) -> dict[str, Any]:
    state, counts = remembered.state, remembered.counts
    return {
        "finished": state.initial_discovery_finished,
        "selection": None if remembered.selection is None else list(remembered.selection),
        **({"allowed": list(remembered.allowed)} if remembered.allowed is not None else {}),
        "topics": {name: _row(known) for name, known in sorted(state.topics.items())},
        "counts": [counts.starts_committed, counts.began_at_end, counts.backfilled],
        **({"gone": dict(state.gone)} if state.gone else {}),
        **({"cluster": remembered.cluster_id} if remembered.cluster_id else {}),
        **({"untold": [_untold_row(*each) for each in remembered.untold]} if remembered.untold else {}),
    }


def _row(known: KnownTopic) -> list[Any]:
    row: list[Any] = [known.topic_id, known.initial, known.settled]
    if known.before or known.above:
        row.append(" ".join(known.before))  # an earlier version has written one id
    if known.above:
        row.append(sorted(known.above))
    return row


def _known(row: Sequence[Any]) -> KnownTopic:
    before = tuple(str(row[3]).split()) if len(row) > 3 else ()
    known = KnownTopic(str(row[0]), _partitions(row[1]), _partitions(row[2]), before)
    return known.settle([_partitions(number) for number in row[4]]) if len(row) > 4 else known


def decode(document: Mapping[str, Any]) -> Remembered:
    """What :func:`encode` wrote. Raises ``ValueError`` for anything else."""
    try:
        topics = {str(name): _known(row) for name, row in document["topics"].items()}
        selection, allowed = document["selection"], document.get("allowed")
        gone = {str(topic_id): _partitions(known) for topic_id, known in document.get("gone", {}).items()}
        return Remembered(
            DiscoveryState(bool(document["finished"]), topics, gone),
            None if selection is None else tuple(map(str, selection)),
            Counts(*map(_whole, document["counts"])),
            None if allowed is None else tuple(map(str, allowed)),
            str(document.get("cluster", "")),
            _untold(document.get("untold", ())),
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"what discovery has stored can't be read: {error!r}") from error


def untold_of(partitions: Mapping[TopicPartition, PartitionSeen | None]) -> Untold:
    """By ranges: what came together has the same bounds."""
    found: list[tuple[str, int, int, PartitionSeen | None]] = []
    for partition in sorted(partitions):
        topic, number, seen = partition.topic, partition.partition, partitions[partition]
        if found and (found[-1][0], found[-1][2] + 1, found[-1][3]) == (topic, number, seen):
            found[-1] = (topic, found[-1][1], number, seen)
        else:
            found.append((topic, number, number, seen))
    return tuple(found)


def _untold_row(topic: str, first: int, last: int, seen: PartitionSeen | None) -> list[Any]:
    return [topic, first, last, *([] if seen is None else [seen.seen_ms, seen.seen_absent_ms])]


def _untold(rows: Sequence[Sequence[Any]]) -> Untold:
    """In order, and each partition once: so many would else be gone through as often as somebody likes."""
    found: list[tuple[str, int, int, PartitionSeen | None]] = []
    for row in rows:
        topic, first, last, seen = str(row[0]), _partitions(row[1]), _partitions(row[2]), None
        if len(row) > 3:
            seen = PartitionSeen(_whole(row[3]), None if row[4] is None else _whole(row[4]))
        if found and (topic, first) <= (found[-1][0], found[-1][2]):
            raise ValueError("partitions that agents are to be told of are not in order")
        found.append((topic, first, last, seen))
    return tuple(found)


def _partitions(value: object) -> int:
    """As many as a topic can have: Kafka's numbers have 32 bits."""
    return _whole(value, 2**31)


def _whole(value: object, limit: int = 2**53) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError("a number is not a whole number from 0 on, or is too large")
    return value


def merged(ours: Remembered, earlier: Remembered) -> Remembered:
    """``earlier``: what an earlier version has written after a downgrade, so that both know something.

    What is settled for one of them must not be found again. Which topics both of them could see is not known.
    """
    topics = {**ours.state.topics}
    for name, theirs in earlier.state.topics.items():
        known = topics.get(name)
        if known is not None and known.topic_id == theirs.topic_id:
            initial, settled = max(known.initial, theirs.initial), max(known.settled, theirs.settled)
            topics[name] = replace(known, initial=initial, settled=settled).settle(known.above | theirs.above)
        elif known is None or not known.is_before(theirs.topic_id):
            topics[name] = theirs if known is None or theirs.before else replace(theirs, before=(known.topic_id,))
    counts = Counts(
        max(ours.counts.starts_committed, earlier.counts.starts_committed),
        max(ours.counts.began_at_end, earlier.counts.began_at_end),
        max(ours.counts.backfilled, earlier.counts.backfilled),
    )
    finished = ours.state.initial_discovery_finished or earlier.state.initial_discovery_finished
    state = DiscoveryState(finished, topics, ours.state.gone)
    return Remembered(state, earlier.selection, counts, cluster_id=ours.cluster_id, untold=ours.untold)


def of_status(status: DiscoveryStatus) -> Remembered:
    """What an earlier version of Tidegate has left in the policy's status."""
    topics = {
        t.name: KnownTopic(t.topic_id, t.initial, t.settled, tuple((t.before or "").split())) for t in status.topics
    }
    return Remembered(
        DiscoveryState(status.initial_discovery_finished, topics),
        status.selection,
        Counts(status.starts_committed or 0, status.began_at_end or 0, status.backfilled or 0),
    )
