"""The partitions of a mirror that one process copies: a task for each, a few threads, and one look for all of them at
what the source has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.mirror.copier import Copier
from tidegate.mirror.ports import MirrorCluster, ProducerIdStore
from tidegate.mirror.states import Mirror
from tidegate.offset_mirror.course import NEVER, WHEN_GROWN, Course, Limits, PartitionCopying
from tidegate.offset_mirror.looking import Looks
from tidegate.offset_mirror.topics import Copied
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_DEFECT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Clusters:
    """The mirror's own connections, and its producer ids."""

    source: MirrorCluster
    target: MirrorCluster
    ids: ProducerIdStore


class Followed(Protocol):
    """One partition: how its copy gets on."""

    @property
    def offset(self) -> int | None: ...

    def saw(self, bounds: LogBounds, before: int | None, at_s: float) -> bool: ...

    def seen(self) -> Course: ...

    def differs(self, reason: str) -> None: ...

    def doubt(self) -> None: ...

    def end(self) -> None: ...

    @property
    def is_going_on(self) -> bool: ...


@dataclass(slots=True)
class Partition:
    """``task``: what copies it in this process, if anything does."""

    of: Copied
    copying: Followed
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    waits: bool = False
    """Whether it has copied all that it knows of."""
    task: asyncio.Task[None] | None = None

    def drop(self) -> None:
        self.copying.end()
        if self.task is not None:
            self.task.cancel()


async def kept(name: str, what: str, run: Callable[[], Coroutine[None, None, None]]) -> None:
    """Again after a defect of the code, so that one partition or one look can't stop the rest."""
    while True:
        task: asyncio.Task[None] = asyncio.create_task(run(), name=f"mirror {name}: {what}")
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled() or task.exception() is None:
            return
        _log.error("%s: %s ended with an unexpected error", name, what, exc_info=task.exception())
        await asyncio.sleep(_DEFECT_S)


class Partitions:
    """Belongs to the event loop's thread. ``threads``: those that copy; ``patient_executor``: for calls about all
    partitions; ``differs``: where a copy is known to differ from the source, and how; ``look_s``: how often the ends
    of a source that does not grow are asked for."""

    def __init__(
        self,
        clusters: Clusters,
        limits: Limits,
        threads: Executor,
        patient_executor: Executor,
        name: str,
        look_s: float,
        differs: Callable[[TopicPartition], str] = lambda _: "",
    ) -> None:
        self._clusters = clusters
        self._limits = limits
        self._threads = threads
        self._patient = patient_executor
        self._name = name
        self._look_s = look_s
        self._differs = differs
        self._partitions: dict[TopicPartition, Partition] = {}
        self._dropped: list[tuple[str, Followed]] = []
        """With their topics; a step of each may still be under way."""
        self._ids: tuple[int, ...] = ()
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the source's ends could not be read the last time."""
        return self._trouble

    def copy(self, wanted: Mapping[TopicPartition, Copied], ids: tuple[int, ...]) -> None:
        """These partitions and no others. ``ids``: the producer ids that are known."""
        self._ids = ids
        for partition in [p for p, known in self._partitions.items() if _mark(wanted.get(p)) != _mark(known.of)]:
            self._drop(self._partitions.pop(partition))
        for partition, topic in wanted.items():
            if partition not in self._partitions:
                self._partitions[partition] = self._begun(partition, topic)

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, partition: TopicPartition) -> Partition | None:
        return self._partitions.get(partition)

    def items(self) -> Iterable[tuple[TopicPartition, Partition]]:
        return self._partitions.items()

    def courses(self) -> list[Course]:
        return [each.copying.seen() for each in self._partitions.values()]

    def renew(self, partition: TopicPartition) -> None:
        """Begin it anew."""
        known = self._partitions[partition]
        self._drop(known)
        self._partitions[partition] = self._begun(partition, known.of)

    @property
    def ending(self) -> frozenset[str]:
        """The topics to whose copies a step that is under way may still append, though they are not copied any more."""
        self._dropped = [(topic, copying) for topic, copying in self._dropped if copying.is_going_on]
        return frozenset(topic for topic, _ in self._dropped)

    def _drop(self, partition: Partition) -> None:
        partition.drop()
        self._dropped.append((partition.of.source.name, partition.copying))

    def end(self) -> tuple[list[Followed], list[asyncio.Future[Any]]]:
        """Take no further step, and forget all. Returns what was followed, and what is still on its way."""
        known = [*self._partitions.values()]
        for partition in known:
            partition.drop()
        self._partitions.clear()
        return [each.copying for each in known], [each.task for each in known if each.task is not None]

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _begun(self, partition: TopicPartition, topic: Copied) -> Partition:
        clusters = self._clusters
        copier = Copier(
            Mirror(
                ids=self._ids,
                compacts=topic.compacts,
                filler_key=topic.filler_key,
                adopted=topic.adopted[partition.partition] if partition.partition < len(topic.adopted) else 0,
            ),
            clusters.source.source(partition, topic.source.topic_id),
            clusters.target.target(partition),
            clusters.ids,
        )
        copying = PartitionCopying(partition, copier, self._limits)
        begun = Partition(topic, copying)
        if reason := self._differs(partition):
            copying.differs(reason)

        async def run() -> None:
            await self._copy(begun, copying)

        task = kept(self._name, str(partition), run)
        begun.task = asyncio.create_task(task, name=f"mirror {self._name}: {partition}")
        return begun

    async def _copy(self, partition: Partition, copying: PartitionCopying) -> None:
        while True:
            partition.grown.clear()
            pause_s = await in_thread(self._threads, copying.go_on)
            if pause_s == NEVER:
                return
            if pause_s == WHEN_GROWN:
                partition.waits = True
                await partition.grown.wait()
                partition.waits = False
            elif pause_s:
                await asyncio.sleep(pause_s)

    async def follow(self) -> None:
        """What the source has, for all partitions at once; for ever."""
        looks = Looks(self._look_s)
        while True:
            grown = await self._look()
            await asyncio.sleep(looks.next_s(len(self._partitions), grown))

    async def _look(self) -> int:
        """How many partitions have waited for what there is to copy now."""
        before = {partition: each.copying.offset for partition, each in self._partitions.items()}
        at_s = self._limits.now_s()
        try:
            bounds = await in_thread(self._patient, self._clusters.source.told_bounds, tuple(before))
        except KafkaFailure as failure:
            self._trouble = str(failure)
            for each in self._partitions.values():
                each.grown.set()  # one partition without a leader must not hold up the others
            return 0
        self._trouble = self._silent(before.keys() - bounds.keys())
        grown = 0
        for partition, known in self._partitions.items():
            found = bounds.get(partition)
            if found is not None and known.copying.saw(found, before.get(partition), at_s):
                grown += known.waits
                known.grown.set()
            elif found is None:
                known.grown.set()  # it says itself what it meets with
        return grown

    @staticmethod
    def _silent(partitions: Collection[TopicPartition]) -> str:
        if not partitions:
            return ""
        return f"the source does not say where {len(partitions)} partition(s) end, such as {min(partitions)}"


def partitions_of(topics: Collection[Copied]) -> dict[TopicPartition, Copied]:
    """Each partition of these topics, with its topic."""
    return {TopicPartition(each.source.name, n): each for each in topics for n in range(each.source.partitions)}


def _mark(topic: Copied | None) -> object:
    """What a partition is begun anew for."""
    if topic is None:
        return None
    return topic.source.topic_id, topic.target.topic_id, topic.compacts
