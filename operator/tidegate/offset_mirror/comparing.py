"""Compares a mirror's copies with their sources, one place at a time, for as long as it copies.

A writer looks at the end of a copy before it goes on. What lies further back was compared when it was written; that it
still is what the source has only reading it again shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable
from datetime import datetime
from random import Random
from typing import Final

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.mirror.batches import Unreadable
from tidegate.mirror.comparison import Sample, sample
from tidegate.mirror.model import Interrupted
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.topics import Copied
from tidegate.printable import visible
from tidegate.resources.offset_mirror import DifferentPlace, MirrorParity, OffsetMirrorStatus

_log = logging.getLogger(__name__)

_MOST: Final = 10
"""Of the places that differ, which are kept and compared again."""


class Comparing:
    """:meth:`place` is for one thread at a time; all else belongs to the event loop's thread."""

    def __init__(
        self,
        source: MirrorCluster,
        target: MirrorCluster,
        now: Callable[[], datetime],
        known: Iterable[DifferentPlace] = (),
        random: Random | None = None,
    ) -> None:
        """``known``: places that differed when they were compared last, by another process maybe."""
        self._clusters = (source, target)
        self._now = now
        self._random = random or Random()  # noqa: S311
        self._since = now()
        self._at: datetime | None = None
        self._places = self._records = 0
        self._again = False
        self._starts: dict[TopicPartition, int] = {}
        self._copy_end: int | None = None
        self.different = {TopicPartition(one.topic, one.partition): one for one in known}

    @property
    def told(self) -> MirrorParity:
        return MirrorParity(
            since=self._since.replace(microsecond=0),
            places=self._places,
            records=self._records,
            at=None if self._at is None else self._at.replace(microsecond=0),
            different=tuple(self.different[partition] for partition in self._told_of()),
        )

    def _told_of(self) -> list[TopicPartition]:
        """One of each topic before any second one: what is not told of, another process does not know, and it would
        take the topic's copy for one that does not differ."""
        known = sorted(self.different)
        firsts = {partition.topic: partition for partition in reversed(known)}
        ordered = sorted(known, key=lambda partition: firsts[partition.topic] != partition)
        return sorted(ordered[:_MOST])

    def keep(self, topics: Container[str]) -> None:
        """Of other topics nothing is known any more: nobody asks for their copies, or they are other ones by now. A
        copy that is only being made ready anew still differs."""
        self.different = {p: place for p, place in self.different.items() if p.topic in topics}
        self._starts = {p: start for p, start in self._starts.items() if p.topic in topics}

    def choose(self, ends: Collection[tuple[TopicPartition, int]]) -> tuple[TopicPartition, int] | None:
        """Where to compare next; ``ends``: of the copies that are known to have something. Every other time it is a
        place that differed."""
        self._again = not self._again
        if self.different and (self._again or not ends):
            partition = self._random.choice(sorted(self.different))
            return partition, self._differs_at(partition)
        if not ends:
            return None
        partition, end = self._random.choice(sorted(ends))
        start = self._starts.get(partition, 0)
        return (partition, self._random.randrange(start, end)) if start < end else None

    def place(self, partition: TopicPartition, offset: int, topic: Copied) -> Sample | None:
        """Compare the two clusters from that offset on; where they differ, twice. ``None``: one did not answer, or has
        nothing there."""
        self._copy_end = None
        try:
            found = self._compared(partition, offset, topic)
            if found is not None and found.reason is not None:
                found = self._compared(partition, offset, topic)
        except (KafkaFailure, Unreadable) as failure:
            _log.info("%s cannot be compared at offset %d: %s", partition, offset, failure)
            return None
        return found

    def _compared(self, partition: TopicPartition, offset: int, topic: Copied) -> Sample | None:
        source, target = self._clusters
        theirs = source.source(partition, topic.source.topic_id).read(offset)
        if isinstance(theirs, Interrupted):
            return None
        # Read after the source: what was deleted there since may be gone here, and not the other way round.
        ours = target.source(partition, topic.target.topic_id).read(offset)
        if isinstance(ours, Interrupted):
            return None
        self._copy_end = ours.last_stable
        start = self._starts[partition] = max(theirs.log_start, ours.log_start)
        if start >= ours.last_stable:
            return Sample(0)  # nothing that the copy had can differ any more
        # Where one of them has nothing, the other may still have what it should not.
        return sample(theirs, ours, compacts=topic.compacts) if theirs.data and ours.data else None

    def ends_elsewhere(self, end: int, *, at_rest: bool) -> bool:
        """Whether the copy that was compared last ended before ``end``, where it was known to end before that; or
        behind it, though nothing was written to it meanwhile (``at_rest``)."""
        found = self._copy_end
        return found is not None and (found < end or (at_rest and found > end))

    def note(self, partition: TopicPartition, offset: int, found: Sample) -> None:
        """Count what was found, and keep the first place of each copy that differs until it no longer does."""
        self._at = self._now()
        self._places += found.records > 0 or found.reason is not None
        self._records += found.records
        kept = self.different.get(partition)
        if found.reason is None and kept is not None and offset == self._differs_at(partition):
            del self.different[partition]
        if found.reason is not None and kept is None:
            said = visible(found.reason)[:500]
            self.different[partition] = DifferentPlace(
                topic=partition.topic,
                partition=partition.partition,
                offset=offset if found.at is None else found.at,
                message=said,
            )

    def _differs_at(self, partition: TopicPartition) -> int:
        """From where on it differs: what comes before may have been deleted meanwhile, and the difference not."""
        return max(self.different[partition].offset, self._starts.get(partition, 0))


def differed(stopped: Comparing | None, status: OffsetMirrorStatus) -> Collection[DifferentPlace]:
    """Where copies differed last. ``stopped``: what compared them in this process, which knows of more places than the
    status tells."""
    if stopped is not None:
        return tuple(stopped.different.values())
    return () if status.parity is None else status.parity.different
