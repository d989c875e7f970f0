"""One mirror, as it copies: its partitions' tasks, what looks after the source's ends, and what carries groups over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidegate.kafka.connection import Authentication
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.offset_mirror.carrier import Carrier
from tidegate.offset_mirror.carrying import NOTES, Notes
from tidegate.offset_mirror.comparing import Comparing
from tidegate.offset_mirror.course import Course, Limits
from tidegate.offset_mirror.exclusive import Verdict, Writers, judged, own_principal
from tidegate.offset_mirror.partitions import Clusters, Followed, Partitions, kept, partitions_of
from tidegate.offset_mirror.reported import ReportedPartitions, Reports
from tidegate.offset_mirror.rows import with_drift
from tidegate.offset_mirror.topics import Copied
from tidegate.resources.offset_mirror import CarriedGroups, OffsetMirrorStatus
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_THREADS: Final = 4
"""Of one mirror: each may hold what one Fetch brings, some MiB."""
_CLOSING_S: Final = 5.0
_CARRIED_AGAIN_S: Final = 60.0
_CARRIED_AGAIN_AT_THE_END_S: Final = 5.0
"""While a failover waits for it."""
_ACLS_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Carrying:
    """How groups are carried over. ``selects``: which; ``notes``: where it is noted."""

    interval_s: float
    selects: Callable[[str], bool]
    notes: Notes = NOTES


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the copies are compared with the source, a place each ``interval_s``."""

    interval_s: float
    comparing: Comparing


class Copying:
    """Belongs to the event loop's thread. ``patient_executor``: for calls about all partitions or groups."""

    def __init__(
        self,
        clusters: Clusters,
        limits: Limits,
        carrying: Carrying | None,
        sampling: Sampling,
        patient_executor: Executor,
        now: Callable[[], datetime],
        name: str,
        look_s: float,
        reports: Reports | None = None,
        late: Collection[asyncio.Future[Any]] = (),
    ) -> None:
        """``look_s``: how often the ends of a source that does not grow are asked for, for all partitions at once;
        ``reports``: of the job that copies; absent: this process does; ``late``: see :attr:`late`, of what followed the
        mirror before, in this process."""
        self._look_s = look_s
        self._clusters = clusters
        self._limits = limits
        self._carrying = carrying
        self._sampling = sampling
        self._patient = patient_executor
        self._now = now
        self._name = name
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mirror")
        of_partitions = (clusters, limits, self._threads, patient_executor, name, look_s, self._differs)
        self._partitions = (
            Partitions(*of_partitions) if reports is None else ReportedPartitions(*of_partitions, reports)
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._carrying_now: asyncio.Future[CarriedGroups] | None = None
        self._ended = False
        self.adopts: frozenset[str] = frozenset()
        self.mirrored: frozenset[str] = frozenset()
        self.ids_at_rest: dict[str, str] = {}
        self.courses_at_rest: list[Course] = []
        """Where the copies ended when it was stopped; what was on its way then may have come since."""
        self._late = {*late}
        self._is_ending = False
        self._endings = 0
        """How many failovers have been asked for, of which all but the last were taken back."""
        self._carried_for = 0
        """For which of them the groups were carried over last."""
        self._carry_now = asyncio.Event()
        self.groups: CarriedGroups | None = None
        self._groups_trouble = ""
        self._writers: Writers | KafkaFailure | None = None
        self._has_asked_who_writes = False

    @property
    def clusters(self) -> Clusters:
        return self._clusters

    @property
    def comparing(self) -> Comparing:
        return self._sampling.comparing

    def exclusive(self, authentication: Authentication) -> Verdict | None:
        """Whether others may write the copies; ``None``: it was not asked yet. ``authentication``: at the target."""
        return judged(self._writers, own_principal(authentication)) if self._has_asked_who_writes else None

    @property
    def heard(self) -> int:
        """Of how many tasks of the job that copies something was heard lately; 0 where none does."""
        return self._partitions.heard if isinstance(self._partitions, ReportedPartitions) else 0

    @property
    def is_lost(self) -> bool:
        """Whether some task of the job that copies is taken for lost."""
        return isinstance(self._partitions, ReportedPartitions) and self._partitions.lost

    @property
    def trouble(self) -> str:
        """Why the source's ends, or the groups, could not be read the last time."""
        return self._partitions.trouble or self._groups_trouble

    def keeps_groups(self) -> str:
        """Why a failover that waits for this must not end it: some group has not been carried over as it stands;
        otherwise nothing. From the first call on, what can't be told of a group counts, which otherwise waits for the
        next time: a failover would find it at the end, and all this would be ended and begun each time."""
        if not self._is_ending:
            self._is_ending, self._endings = True, self._endings + 1
            self._carry_now.set()
        if self._carrying is None:
            return ""
        if self.groups is None or self._carried_for != self._endings:
            return self._groups_trouble or "the groups are being carried over once more"
        return not_carried(self.groups)

    def goes_on(self) -> None:
        """No failover is asked for, or it was taken back: one group of which something can't be told must not keep the
        others from being carried over."""
        self._is_ending = False

    def start(self) -> None:
        self._spawn("follow", self._partitions.follow)
        self._spawn("compare", self._compare)
        self._spawn("ask who may write", self._ask_who_writes)
        if self._carrying is not None:
            self._spawn("carry", self._carry)

    def copy(
        self,
        topics: Collection[Copied],
        ids: tuple[int, ...],
        adopts: frozenset[str] = frozenset(),
        mirrored: frozenset[str] = frozenset(),
    ) -> None:
        """These topics and no others. ``ids``: the producer ids that are known; ``adopts``: all topics that were taken
        over from a failover, also those that are still being prepared; ``mirrored``: all that have a copy, also those
        that must not be copied on."""
        self.adopts, self.mirrored = adopts, mirrored
        self._partitions.copy(partitions_of(topics), ids)

    def courses(self) -> list[Course]:
        return self._partitions.courses()

    def source_ids(self) -> dict[str, str]:
        """By topic that is copied, its id at the source."""
        return {partition.topic: each.of.source.topic_id for partition, each in self._partitions.items()}

    def may_append_to(self, status: OffsetMirrorStatus) -> frozenset[str]:
        """The topics to whose copies this process may append by a place that it knows: all that have a copy while
        something is late."""
        late = {row.name for row in status.topics if row.target_id} if self.late else set[str]()
        return frozenset({*self.source_ids(), *self._partitions.ending, *late})

    async def stop(self) -> None:
        """Send nothing more, and wait some seconds for what is on its way: afterwards nothing is written, unless a
        broker has not answered by then."""
        self._ended = True
        self.ids_at_rest = self.source_ids()
        partitions, tasks = self._partitions.end()
        for task in self._tasks:
            task.cancel()
        loop = asyncio.get_running_loop()
        steps: asyncio.Future[None] = loop.run_in_executor(None, self._threads.shutdown)
        ending: list[asyncio.Future[Any]] = [*self._tasks, *tasks, steps]
        if self._carrying_now is not None:
            ending.append(self._carrying_now)
        _, late = await asyncio.wait(ending, timeout=_CLOSING_S)
        self._late |= late
        self._rest(partitions)
        await loop.run_in_executor(None, self._close)

        def is_over(_: asyncio.Future[Any]) -> None:
            self._rest(partitions)
            loop.run_in_executor(None, self._close)  # it may have connected anew

        for each in late:
            each.add_done_callback(is_over)

    def _rest(self, partitions: Collection[Followed]) -> None:
        """Not before the steps that were under way have ended: one may have found that its copy has drifted."""
        self.courses_at_rest = [each.seen() for each in partitions]

    @property
    def late(self) -> Collection[asyncio.Future[Any]]:
        """What was on its way when this was stopped, or what followed the mirror before, and has not been answered or
        given up yet."""
        return [each for each in self._late if not each.done()]

    def carrier(self, clusters: Clusters, may_write: Callable[[], bool]) -> Carrier | None:
        """What carries groups over between these clusters, if any are."""
        if self._carrying is None:
            return None
        selects, now_s = self._carrying.selects, self._limits.now_s
        return Carrier(
            clusters.source, clusters.target, selects, may_write, now_s, self._now, notes=self._carrying.notes
        )

    def _close(self) -> None:
        self._clusters.source.close()
        self._clusters.target.close()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _spawn(self, what: str, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self._tasks.append(asyncio.create_task(kept(self._name, what, run), name=f"mirror {self._name}: {what}"))

    def _differs(self, partition: TopicPartition) -> str:
        found = self.comparing.different.get(partition)
        return "" if found is None else found.message

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(self._sampling.interval_s)
            await self._compare_one()

    async def _compare_one(self) -> None:
        comparing = self.comparing
        ends = [(partition, each.copying.offset or 0) for partition, each in self._partitions.items()]
        chosen = comparing.choose([end for end in ends if end[1]])
        known = None if chosen is None else self._partitions.get(chosen[0])
        if chosen is None or known is None:
            return
        partition, offset = chosen
        end, rested = known.copying.offset, known.waits
        found = await in_thread(self._threads, comparing.place, partition, offset, known.of)
        if self._partitions.get(partition) is not known:
            return
        at_rest = rested and known.waits and known.copying.offset == end
        if end is not None and comparing.ends_elsewhere(end, at_rest=at_rest):
            # It has lost records, as by an unclean election, or somebody else has written to it. While the source is
            # idle, nothing else would show it.
            known.copying.doubt()
            known.grown.set()
        if found is None:
            return
        differed = partition in comparing.different
        comparing.note(partition, offset, found)
        differs = comparing.different.get(partition)
        if differs is not None and not differed:
            _log.error("the copy of %s is stopped: %s", partition, differs.message)
            known.copying.differs(differs.message)
            known.grown.set()
        elif differed and differs is None:
            self._partitions.renew(partition)

    async def _ask_who_writes(self) -> None:
        while True:
            topics = sorted({partition.topic for partition, _ in self._partitions.items()})
            if topics:
                try:
                    self._writers = await in_thread(self._patient, self._clusters.target.writers, topics)
                except KafkaFailure as failure:
                    self._writers = failure
                self._has_asked_who_writes = True
            await asyncio.sleep(_ACLS_S if topics else self._look_s)

    def _may_write(self) -> bool:
        return not self._ended and self._limits.may_write()

    async def _carry(self) -> None:
        carrier = self.carrier(self._clusters, self._may_write)
        if self._carrying is None or carrier is None:
            raise TypeError("no groups are carried over")
        while True:
            ends = {c.partition: c.offset for c in self.courses() if c.offset is not None and not c.drifted}
            source_ids = self.source_ids()
            whole, ending = self._is_ending, self._endings
            self._carry_now.clear()
            # While nothing is known of a copy, nothing is known of how far a group may go. And a commit that is late
            # would set a group back to what is not noted any more: as somebody else's, it would stay for good.
            if ends and not self.late:
                try:
                    # Whoever ends this waits for the call itself, which can't be cancelled.
                    carrying = (ends, source_ids, self.adopts, self.mirrored)
                    self._carrying_now = asyncio.ensure_future(
                        in_thread(self._patient, carrier.carry, *carrying, whole=whole)
                    )
                    self.groups, self._groups_trouble = await asyncio.shield(self._carrying_now), ""
                    self._carried_for = ending if whole else self._carried_for
                except KafkaFailure as failure:
                    self._groups_trouble = str(failure)
            # A failover does not wait for the next time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._until_carried_s(self._carrying.interval_s)):
                    await self._carry_now.wait()

    def _until_carried_s(self, interval_s: float) -> float:
        if self.groups is None:
            return self._look_s
        waits = self._is_ending and self._carried_for != self._endings
        if not self.groups.failed and not self._groups_trouble and not waits:
            return interval_s
        # One that could not be carried over keeps a failover from ending.
        return min(interval_s, _CARRIED_AGAIN_AT_THE_END_S if self._is_ending else _CARRIED_AGAIN_S)


def is_late(stopped: Copying | None) -> bool:
    """Whether something that was on its way when the copying was stopped has not been answered or given up yet."""
    return stopped is not None and bool(stopped.late)


def not_carried(groups: CarriedGroups | None) -> str:
    """How many groups could not be carried over, and why; nothing where all were."""
    if groups is None or not groups.failed:
        return ""
    return f"{groups.failed} group(s) could not be carried over: {groups.failure}"


def with_found(status: OffsetMirrorStatus, stopped: Copying | None) -> OffsetMirrorStatus:
    """With what ``stopped`` had found when it was, and no pass has written yet: another process would not know it."""
    if stopped is None:
        return status
    told, before = stopped.comparing.told, () if status.parity is None else status.parity.different
    if told.different != before:
        parity = (status.parity or told).model_copy(update={"different": told.different})
        status = status.model_copy(update={"parity": parity})
    return with_drift(status, stopped.courses_at_rest)
