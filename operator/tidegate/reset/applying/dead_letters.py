"""Records that a run skips are copied to a dead-letter topic, in the transaction that skips them (ADR 62).

So either both happen or neither, whenever its writer dies. They are read while the group still goes on; a record that
can't be copied ends the run before anybody has let go, or with its transaction aborted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Range, Record, Topic, TopicPartition
from tidegate.kafka.ports import GroupTransaction
from tidegate.kafka.rights import on_topics, to_grant
from tidegate.reset.applying.failures import NotCopied, PlanOutdated
from tidegate.reset.applying.state import RunState
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.resources.dead_letter import MOST_COPIED

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of all records of a run: they are held in memory, and many runs may be at it."""

_COPY_S: Final = 4.0
"""How long copies may take: less than their transaction lasts."""
_INCLUDE_S: Final = 1.5

HEADER: Final = "__tidegate.errors."
"""As ``DeadLetterQueueReporter`` of Kafka Connect and the dead letters of Kafka Streams (KIP-1034) name their headers,
which say where a record comes from as well; values are text."""


class DeadLetters:
    """Of one run on one group, for one writer of it. Does nothing where the run copies nothing."""

    def __init__(self, kafka: Kafka, clock: Clock, request: RunRequest, plan: Plan, state: RunState) -> None:
        self._kafka = kafka
        self._clock = clock
        self._request = request
        self._plan = plan
        self._state = state
        self.topic = request.dead_letter
        self._copies: dict[TopicPartition, tuple[Record, ...]] = {}
        """By the partition that they go to."""
        self._starts: dict[TopicPartition, int] = {}
        """From which offsets on they were read."""
        self._why_not: NotCopied | NotAuthorized | None = NotCopied(self.topic, "nothing was read yet")
        """Why there are no copies; ``None``: there are."""
        self._count: int | None = None
        """How many copies this writer has last put into a transaction; ``None``: it was at none."""

    def gather(self, before: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int]) -> None:
        """Read what lies between where the group is and its targets. Raises ``NotCopied``, ``KafkaFailure``,
        and ``PlanOutdated`` where the group has got past a target."""
        if not self.topic:
            return
        topic = self._described({p.topic for p in targets})
        spans = {p: self._span(p, before.get(p), target) for p, target in sorted(targets.items())}
        offsets = sum(span.size for span in spans.values())
        if offsets > MOST_COPIED:
            raise NotCopied(self.topic, f"{offsets:,} offsets would be skipped, but at most {MOST_COPIED} are copied")
        copies: dict[TopicPartition, tuple[Record, ...]] = {}
        left = MOST_BYTES
        for source, span in spans.items():
            records = self._records(source, span, left)
            left -= sum(record.size for record in records)
            to = _copied_to(source, topic)
            copies[to] = (*copies.get(to, ()), *(self._marked(source, record) for record in records))
        self._check_kept(record for records in copies.values() for record in records)
        # Whether they can be written shows before anybody has let go, as far as it can.
        self._kafka.log_bounds(list(copies))
        self._starts = {p: span.start for p, span in spans.items()}
        self._copies, self._why_not = copies, None

    def _described(self, sources: Collection[str]) -> Topic:
        """The dead-letter topic. Raises ``NotCopied``, also where one of the ``sources`` is not that of the plan any
        more, and ``NotAuthorized`` without the right to write to it."""
        topics = self._kafka.topics({self.topic, *sources})
        found = topics.get(self.topic)
        if found is None:
            raise NotCopied(self.topic, "there is no such topic, or the principal may not describe it")
        ids = {p.topic: p.topic_id for p in self._plan.partitions}
        others = sorted(name for name in sources if name not in topics or topics[name].topic_id != ids[name])
        if others:
            raise NotCopied(self.topic, f"topic {others[0]} was deleted or created again since the plan was made")
        needed = on_topics("Write", [self.topic])
        if self._kafka.lacking(needed):
            what = f"the principal may not copy records to dead-letter topic {self.topic}"
            raise NotAuthorized(f"{what}{to_grant(needed, None)}")
        return found

    def _check_kept(self, records: Iterable[Record]) -> None:
        """Copies have the timestamps of their records, by which retention removes them: it may within minutes. Not
        known where the topic's settings can't be read. Raises ``NotCopied``."""
        try:
            kept = self._kafka.keeping(self.topic)
        except Refused:
            return  # not every broker tells settings
        if kept is None:
            return
        if kept.is_compacted:
            raise NotCopied(
                self.topic,
                "the topic is compacted (cleanup.policy), and a later record with the same key would remove the copy",
            )
        if kept.retention_ms < 0 or kept.by_append_time:
            return
        first_ms = self._clock.now().timestamp() * 1000 - kept.retention_ms
        old = [record for record in records if 0 <= record.at_ms < first_ms]
        if old:
            raise NotCopied(
                self.topic,
                f"the record at offset {old[0].offset} is older than the retention of topic {self.topic} (retention.ms "
                f"is {kept.retention_ms}), so its copy would be deleted at once",
            )

    def _span(self, partition: TopicPartition, start: int | None, target: int) -> Range:
        if partition.topic == self.topic:
            raise NotCopied(self.topic, "it is the topic that is reset")
        if start is None:
            raise NotCopied(self.topic, f"the group has no committed offset in {partition}")
        if start > target:
            raise _passed(partition, target, start)
        return Range(start, target)

    def _records(self, source: TopicPartition, span: Range, most_bytes: int) -> tuple[Record, ...]:
        if span.size == 0:
            return ()
        try:
            stable = self._kafka.last_stable_offsets([source])[source]
            everything = {r.offset for r in self._kafka.records(source, span, committed=False, most_bytes=most_bytes)}
            committed = self._kafka.records(source, span, committed=True, most_bytes=most_bytes)
        except Refused as refused:
            raise NotCopied(self.topic, str(refused)) from refused
        # Now, as what is deleted while it is read is left out.
        begin = self._kafka.log_bounds([source])[source].earliest
        if begin > span.start:
            raise NotCopied(
                self.topic, f"{source} has been deleted up to offset {begin}, but the group is at {span.start}"
            )
        others = sorted(everything - {r.offset for r in committed})
        if others:
            still_open = "belongs to a transaction that is still open, or comes after one"
            how = still_open if others[0] >= stable else "belongs to a transaction that was aborted"
            raise NotCopied(self.topic, f"the record {source}@{others[0]} {how}")
        if not committed:
            raise NotCopied(self.topic, f"there is no record from {source}@{span.start} to {span.end - 1}")
        return committed

    def _marked(self, source: TopicPartition, record: Record) -> Record:
        """With headers that say where it comes from, after its own."""
        request = self._request
        told = {
            "topic": source.topic,
            "partition": str(source.partition),
            "offset": str(record.offset),
            "group": request.group_id,
            "reset": request.run_id,
            "run": request.run_uid,
        }
        added = tuple((f"{HEADER}{name}", text.encode()) for name, text in told.items())
        return Record(record.offset, record.at_ms, record.key, record.value, (*record.headers, *added))

    def gather_again(self, before: Mapping[TopicPartition, int]) -> None:
        """For a transaction that is made once more because it may be hanging: see :meth:`append`. Raises
        ``Unavailable``."""
        try:
            self.gather(before, self._plan.targets)
        except (NotCopied, NotAuthorized) as failure:
            self._copies, self._why_not = {}, failure

    def append(self, transaction: GroupTransaction, *, hanging: bool = False) -> None:
        """Before the offsets and the marker: where those are in a transaction, the copies are.

        ``hanging``: one of the run hangs that has sent its marker, so it has copies, which this one's end decides.
        Records that can't be read any more are left out then. Raises as :meth:`gather`.
        """
        if not self.topic or self._state.putting_back is not None:
            return
        if self._why_not is not None and not hanging:
            raise self._why_not
        if not hanging:
            self._check_starts()
        try:
            for partition in self._where():
                transaction.include(partition, timeout_s=_COPY_S)
                transaction.copy(partition, self._copies.get(partition, ()), timeout_s=_COPY_S)
        except Refused as refused:
            raise NotCopied(self.topic, str(refused)) from refused
        self._count = sum(map(len, self._copies.values())) or (None if hanging else 0)

    def _check_starts(self) -> None:
        """What lies before the records that were read is not skipped: the group may have gone back since. Nor is it set
        back where it has got past them by itself. Raises ``NotCopied`` and ``PlanOutdated``."""
        now = self._kafka.committed(self._request.group_id, list(self._starts))
        for partition, start in self._starts.items():
            at = now.get(partition)
            if at is None or at < start:
                stands = (
                    "it no longer has a committed offset there" if at is None else f"its committed offset is now {at}"
                )
                raise NotCopied(self.topic, f"the group has gone back from offset {start} in {partition}: {stands}")
            if at > self._plan.targets[partition]:
                raise _passed(partition, self._plan.targets[partition], at)

    def include(self, transaction: GroupTransaction) -> None:
        """Have the end of a transaction decide what an earlier one of its producer has left open in the dead-letter
        topic, see ``abort_records``. Raises ``KafkaFailure``."""
        for partition in self._where() if self.topic else ():
            transaction.include(partition, timeout_s=_INCLUDE_S)

    def decide(self, transaction: GroupTransaction) -> None:
        """The same for a transaction that will be aborted. Where that fails it is as it was."""
        with contextlib.suppress(KafkaFailure):
            self.include(transaction)

    def _where(self) -> list[TopicPartition]:
        """To which partitions of the dead-letter topic the run copies."""
        if self._copies:
            return sorted(self._copies)
        found = self._kafka.topics([self.topic]).get(self.topic)
        return sorted({_copied_to(p, found) for p in self._plan.targets}) if found is not None else []

    def note(self, *, skipped: bool) -> str:
        """The end of the result's message. ``skipped``: a transaction of the run is known to have been committed."""
        if not self.topic or not skipped or self._count == 0:
            return ""
        them = "what it skips was" if self._count is None else f"{self._count} record(s) were"
        return f"; {them} copied to dead-letter topic {self.topic}, and the copies stay there"


def _passed(partition: TopicPartition, target: int, committed: int) -> PlanOutdated:
    return PlanOutdated(
        f"the group has passed the target of {partition} since the plan was made, so nothing is left to skip: target "
        f"{target}, committed {committed}"
    )


def _copied_to(source: TopicPartition, topic: Topic) -> TopicPartition:
    """The partition with the same number, as dead letters of Spring for Apache Kafka go to."""
    return TopicPartition(topic.name, source.partition % topic.partitions)
