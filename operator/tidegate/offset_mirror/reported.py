"""The partitions of a mirror that a job copies, as the operator follows them: by what its tasks say, and by what both
clusters say themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.offset_mirror.course import Course, Limits
from tidegate.offset_mirror.partitions import Clusters, Partition, Partitions
from tidegate.offset_mirror.progress import Progress
from tidegate.offset_mirror.report import BEAT_S, FIRST_ID, LastWords, Report, Row
from tidegate.offset_mirror.topics import Copied
from tidegate.threads import in_thread

SILENT_S: Final = 10.0
"""After which it is said that nothing was heard of a partition."""
LOST_S: Final = 120.0
"""After which a task of which something was heard is taken for lost, with its job: one that has ended leaves its share
to nobody for as long as the other tasks go on."""
_REPORTED_S: Final = 3 * BEAT_S
"""After which what a task says was surely seen later than what it is compared with."""
_CLAIM_S: Final = 5.0
"""Between two producer ids that are claimed because a report asks for them: one is good for a minute at least."""
_NOTHING: Final = Row()


@dataclass(frozen=True, slots=True)
class Reports:
    """``read``: what all tasks of the job have said last, of its newest launch; blocking. ``last``: what was heard of
    them before, by whoever followed the mirror in this process. ``wrote``: told how many records and bytes its tasks
    have written since the last report."""

    read: Callable[[], Sequence[Report]]
    last: Callable[[], LastWords]
    wrote: Callable[[int, int], None]


class ReportedCopying:
    """One partition. Belongs to the event loop's thread."""

    def __init__(self, partition: TopicPartition, now_s: Callable[[], float]) -> None:
        self._partition = partition
        self._now_s = now_s
        self._row = _NOTHING
        self._heard_at_s: float | None = None
        self._target_end: int | None = None
        self._target_start = self._source_start = 0
        self._beyond: tuple[int, float] | None = None
        """Where the target's log ended behind what the task had said, and when that was seen first."""
        self._difference = ""
        self._progress = Progress()

    @property
    def offset(self) -> int | None:
        """Up to where the copy agrees with the source, by its task; never more than the target has."""
        if self._row.offset is None or self._target_end is None:
            return None
        return min(self._row.offset, self._target_end)

    def heard(self, row: Row, at_s: float) -> None:
        self._row, self._heard_at_s = row, at_s

    def lies(self, target: LogBounds) -> None:
        """The target's log is there."""
        self._target_start, self._target_end = target.earliest, target.latest
        said = self._row.offset
        if self._beyond is not None and (said is None or said >= self._beyond[0]):
            self._beyond = None
        if self._beyond is None and said is not None and said < target.latest:
            self._beyond = target.latest, self._now_s()

    def saw(self, bounds: LogBounds, before: int | None, at_s: float) -> bool:
        """The source's log, asked for at ``at_s`` when the copy ended at ``before``."""
        self._progress.source_end = bounds.latest
        self._source_start = max(self._source_start, bounds.earliest)
        if before is None or bounds.latest >= before:
            self._progress.saw(bounds.latest, at_s)
        return False

    def differs(self, reason: str) -> None:
        """Somewhere it is not what the source has."""
        self._difference = reason

    def doubt(self) -> None:
        """Where the target's log ends is asked for all the time; the task goes by what it knows."""

    def end(self) -> None:
        """It is not followed any more."""

    @property
    def is_going_on(self) -> bool:
        """Nothing is copied in this process."""
        return False

    def seen(self) -> Course:
        """What is as old as what was heard last does not become younger by itself; nor does what has more at its start
        than the source, as records that the source has deleted, or more at its end than the task has written."""
        strange = self._strange()
        if self._heard_at_s is not None and self._target_start >= self._source_start and not strange:
            self._progress.settle(self.offset, self._heard_at_s)
        row, progress = self._row, self._progress
        return Course(
            self._partition,
            self.offset,
            progress.source_end,
            progress.copied_at_s,
            self._difference or row.stopped,
            bool(self._difference) or row.drifted,
            self._silence() or row.trouble or strange,
            row.producer_id,
        )

    def _strange(self) -> str:
        """What the copy has that its task does not know of, though it has reported since: it looks at the end again
        only once the source grows."""
        if self._beyond is None or self._heard_at_s is None or self._heard_at_s - self._beyond[1] <= _REPORTED_S:
            return ""
        return (
            f"the copy ends at offset {self._target_end} at the target, and its task has written it up to "
            f"{self._row.offset}: somebody else may have written to it"
        )

    def _silence(self) -> str:
        if self._heard_at_s is None:
            return "no task of the job has reported on it yet"
        age_s = self._now_s() - self._heard_at_s
        return f"no task of the job has reported on it for {age_s:.0f} s" if age_s > SILENT_S else ""


class ReportedPartitions(Partitions):
    """Nothing is copied in this process."""

    def __init__(
        self,
        clusters: Clusters,
        limits: Limits,
        threads: Executor,
        patient_executor: Executor,
        name: str,
        look_s: float,
        differs: Callable[[TopicPartition], str],
        reports: Reports,
    ) -> None:
        super().__init__(clusters, limits, threads, patient_executor, name, look_s, differs)
        self._reports = reports
        self._claimed_at_s: float | None = None
        self._reads_since_s: float | None = None
        """Since when all reports could be read, without a break."""
        self._launch = ""
        """Of the reports that were read last."""
        self._followed: dict[TopicPartition, ReportedCopying] = {}

    def _begun(self, partition: TopicPartition, topic: Copied) -> Partition:
        followed = self._followed[partition] = ReportedCopying(partition, self._limits.now_s)
        if reason := self._differs(partition):
            followed.differs(reason)
        # What was said before it was followed counts from when it is said again.
        return Partition(topic, followed)

    def copy(self, wanted: Mapping[TopicPartition, Copied], ids: tuple[int, ...]) -> None:
        super().copy(wanted, ids)
        self._followed = {p: each for p, each in self._followed.items() if p in wanted}

    @property
    def heard(self) -> int:
        """Of how many tasks something was heard lately."""
        now_s = self._limits.now_s()
        return sum(now_s - at_s <= SILENT_S for _, at_s in self._heard())

    @property
    def lost(self) -> bool:
        """Whether some task has said nothing for long, though it could have been heard. One that has never said
        anything may wait for a place, which another job would not have either."""
        since_s, now_s = self._reads_since_s, self._limits.now_s()
        if since_s is None:
            return False
        said = [(report, at_s) for report, at_s in self._last_words() if report.attempt]
        heard = [since_s if at_s is None else max(at_s, since_s) for _, at_s in said]
        return any(now_s - at_s > LOST_S for at_s in heard)

    def _heard(self) -> list[tuple[Report, float]]:
        """What the tasks have said last, of those that have said something since this process listens."""
        return [(report, at_s) for report, at_s in self._last_words() if at_s is not None]

    def _last_words(self) -> list[tuple[Report, float | None]]:
        """Of the newest launch: one read may have come too late, with reports of the one before."""
        return [words for (launch, _), words in self._reports.last().items() if launch == self._launch]

    async def _look(self) -> int:
        """The reports first, then where the target's logs end, then where the source's do."""
        asked = tuple(self._followed)
        try:
            reports, now_s = await in_thread(self._patient, self._reports.read), self._limits.now_s()
            self._reads_since_s = now_s if self._reads_since_s is None else self._reads_since_s
            self._hear(reports, now_s)
            await self._claim()
            ends = await in_thread(self._patient, self._clusters.target.told_bounds, asked, stable=False)
        except KafkaFailure as failure:
            self._trouble, self._reads_since_s = str(failure), None
            return 0
        for partition, bounds in ends.items():
            if partition in self._followed:
                self._followed[partition].lies(bounds)
        await super()._look()
        said = next((report.trouble for report, _ in self._heard() if report.trouble), "")
        self._trouble = self._trouble or said
        return 0

    def _hear(self, reports: Sequence[Report], at_s: float) -> None:
        last = self._reports.last()
        self._launch = next((report.launch for report in reports), "")
        for place, report in enumerate(reports):
            key = report.launch, place
            if key not in last:
                last[key] = (report, None)
            before, _ = last[key]
            if not report.attempt or _mark(report) == _mark(before):
                continue
            last[key] = (report, at_s)
            is_same = _mark(report)[:2] == _mark(before)[:2]
            records, size = (before.records, before.size) if is_same else (0, 0)
            self._reports.wrote(max(0, report.records - records), max(0, report.size - size))
            for partition, row in report.rows.items():
                if partition in self._followed:
                    self._followed[partition].heard(row, at_s)

    async def _claim(self) -> None:
        """Whoever may write reports could ask for ids without end: so not for one after the other at once."""
        wanted = {report.wants_id_after for report, _ in self._heard()} - {None}
        now_s = self._limits.now_s()
        if not wanted or (self._claimed_at_s is not None and now_s - self._claimed_at_s < _CLAIM_S):
            return
        self._claimed_at_s = now_s
        for after in wanted:
            await in_thread(self._patient, self._clusters.ids.claim, None if after == FIRST_ID else after)


def _mark(report: Report) -> tuple[str, int, int]:
    return report.launch, report.attempt, report.beat
