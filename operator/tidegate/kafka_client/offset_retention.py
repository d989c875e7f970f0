"""Expiry and keeping of committed offsets on a real cluster (``tidegate.kafka.offset_retention``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import GroupNotEmpty, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import Committed, TopicPartition
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import OFFSETS_TOPIC, GroupLog, follow, key_prefixes, partition_of, with_tail
from tidegate.kafka.offset_retention import Commit, Commits
from tidegate.kafka.rights import Resource, Right, on_group, on_topics
from tidegate.kafka_client.cluster_requests import broker_settings, describe_topics
from tidegate.kafka_client.codes import HAS_MEMBERS, NO_ERROR, UNKNOWN_PARTITION, check
from tidegate.kafka_client.librdkafka import failure, silent_logger
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST, LogOffsets
from tidegate.kafka_client.offset_requests import (
    commits_of,
    delete_offsets,
    offset_commit_request,
    offset_fetch_request,
    stable_commits_of,
    takes_retention,
)
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.kafka_client.wire import Wire

_GONE: Final = frozenset({3, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID"""

_READ_S: Final = 10.0
_READ_BYTES: Final = 128 * 1024 * 1024
"""How long, and how much of its topic, one reading of the coordinator's log may take."""
_READ_LOG: Final = Right("Read", Resource.TOPIC, OFFSETS_TOPIC)
_BATCH: Final = 10_000
_POLL_S: Final = 0.1


class KafkaOffsetRetention:
    """Implements ``tidegate.kafka.offset_retention.OffsetRetention``. Connects on first use; thread-safe."""

    def __init__(
        self, connection: Connection, wire: Wire, log_offsets: LogOffsets, refuse: Callable[[str], None]
    ) -> None:
        """``refuse``: raises what keeps this process from committing."""
        self._connection = connection
        self._refuse = refuse
        self._wire = wire
        self._log_offsets = log_offsets

    # --- looking ------------------------------------------------------------------------------------------------------

    def settings(self) -> RetentionSettings:
        needs = Right("DescribeConfigs", Resource.CLUSTER)
        configs = broker_settings(self._wire, what="read the brokers' retention of offsets", needs=needs)
        found = [_settings(config) for config in configs]
        return RetentionSettings(min(s.retention_ms for s in found), max(s.check_interval_ms for s in found))

    def commits(self, group_id: str) -> Commits:
        what = f"read the committed offsets of group {group_id}"
        [answer] = self._wire.exchange(
            group_id, lambda: offset_fetch_request(group_id), code_of=_code_of_fetch, what=what
        )
        return _commits(commits_of(answer))

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Commits]:
        return {group_id: _commits(told) for group_id, told in stable_commits_of(self._wire, group_ids).items()}

    # --- the coordinator's log ----------------------------------------------------------------------------------------

    def log(self, group_id: str, since: GroupLog) -> GroupLog:
        what = f"read the log of group {group_id} ({OFFSETS_TOPIC})"
        partitions = self._partitions(what)
        if partitions == 0:
            return GroupLog(complete=True)
        partition = TopicPartition(OFFSETS_TOPIC, partition_of(group_id, partitions))
        start = self._offset(partition, EARLIEST, what)
        decided = self._offset(partition, LATEST, what, read_committed=True)
        end = self._offset(partition, LATEST, what)
        if not start <= since.read_to <= decided:
            # Nothing was read yet; or records went unread, or those that were read are no longer there.
            since = GroupLog(read_to=start)
        deadline = time.monotonic() + _READ_S
        records, read_to = self._read(partition, group_id, since.read_to, decided, "read_committed", deadline, what)
        log = follow(since, group_id, records, read_to=read_to, complete=read_to >= decided)
        if not log.complete:
            return log
        # Everything behind the first open transaction of any group waits for it; what is not a transaction's counts.
        records, read_to = self._read(partition, group_id, log.read_to, end, "read_uncommitted", deadline, what)
        return with_tail(log, group_id, records, complete=read_to >= end)

    def _partitions(self, what: str) -> int:
        """Of the offsets topic; 0 before the first commit, which makes it."""
        [topic] = describe_topics(self._wire, [OFFSETS_TOPIC], what=what).topics
        if topic.error_code in UNKNOWN_PARTITION:
            return 0
        check(topic.error_code, what, _READ_LOG)
        return len(topic.partitions)

    def _offset(self, partition: TopicPartition, at: int, what: str, *, read_committed: bool = False) -> int:
        try:
            return self._log_offsets.at({partition: at}, what, _READ_LOG, read_committed=read_committed)[partition]
        except UnknownPartitions as error:
            raise Unavailable(f"{what}: the topic was made just now") from error

    def _read(
        self,
        partition: TopicPartition,
        group_id: str,
        begin: int,
        end: int,
        isolation: str,
        deadline: float,
        what: str,
    ) -> tuple[list[tuple[bytes, bytes | None]], int]:
        """This group's records from ``begin`` to ``end``, or as far as the bounds allow; and how far that was."""
        if begin >= end:
            return [], begin
        reader = Consumer(
            librdkafka_config(
                self._connection,
                **{
                    # A group id is mandatory in librdkafka; nothing is ever joined or committed with it.
                    "group.id": "tidegate-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": isolation,
                    "queued.max.messages.kbytes": 16384,
                    "allow.auto.create.topics": False,
                },
            ),
            logger=silent_logger(),
        )
        prefixes = key_prefixes(group_id)
        read_to, read_bytes = begin, 0
        records: list[tuple[bytes, bytes | None]] = []
        try:
            reader.assign([ClientTopicPartition(partition.topic, partition.partition, begin)])
            while read_to < end and read_bytes < _READ_BYTES and time.monotonic() < deadline:
                # consume() alone would wait for a full batch.
                first = reader.poll(_POLL_S)
                for message in [] if first is None else [first, *reader.consume(_BATCH, 0)]:
                    problem, offset = message.error(), message.offset()
                    if problem is not None:
                        if problem.code() == KafkaError._PARTITION_EOF:
                            # Behind the last record there may be markers, which are never handed out.
                            read_to = max(read_to, end)
                        # librdkafka looks for the coordinator of the group that it wants named, which needs no right.
                        elif problem.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not problem.retriable():
                            raise failure(problem, what, _READ_LOG)
                        continue
                    key, value = message.key(), message.value()
                    read_to = read_to if offset is None else max(read_to, offset + 1)
                    read_bytes += len(key or b"") + len(value or b"")
                    if isinstance(key, bytes) and key.startswith(prefixes):
                        records.append((key, value if isinstance(value, bytes) else None))
        except KafkaException as error:
            raise failure(error.args[0], what, _READ_LOG) from error
        finally:
            reader.close()
        return records, read_to

    # --- committing ---------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        wanted: Mapping[TopicPartition, Commit],
        found: Mapping[TopicPartition, Commit],
        *,
        retention_ms: int,
    ) -> frozenset[TopicPartition]:
        what = f"keep {len(wanted)} offset(s) of group {group_id}"
        if not takes_retention(self._wire):
            raise Refused(f"{what}: the brokers take no explicit retention any more (OffsetCommit v2 to v4)")
        now = self.commits(group_id)
        still = {p: c for p, c in wanted.items() if p not in now.pending and now.offsets.get(p) == found.get(p)}
        if not still:
            return frozenset()
        self._refuse(what)
        # Only the coordinator's door is between these two. Whatever was committed after the look above and before our
        # commit is in the first answer; what is committed later comes after us.
        fetched, answer = self._wire.exchange(
            group_id,
            lambda: offset_fetch_request(group_id),
            lambda: offset_commit_request(
                group_id, {p: (c.offset, c.metadata) for p, c in still.items()}, retention_ms
            ),
            code_of=_code_of,
            what=what,
        )
        committed = _committed(answer, group_id, what)
        before = _commits(commits_of(fetched))
        just_before = before.offsets
        deleted = {p for p in committed & found.keys() if p not in just_before and p not in before.pending}
        if deleted:
            # Somebody deleted it in that moment, and ours has brought it back: it is to be gone.
            delete_offsets(self._wire, group_id, deleted)
        overtaken = {p: just_before[p] for p in committed if just_before.get(p, found.get(p)) != found.get(p)}
        if overtaken:
            # Somebody committed in that moment, and ours has come on top: theirs has to stand.
            self.commit(group_id, overtaken, {p: still[p] for p in overtaken}, retention_ms=retention_ms)
        return committed - overtaken.keys() - deleted


def _settings(config: Mapping[str, str]) -> RetentionSettings:
    minutes, interval = config["offsets.retention.minutes"], config["offsets.retention.check.interval.ms"]
    return RetentionSettings.of_minutes(int(minutes), int(interval))


def _commits(told: tuple[Mapping[TopicPartition, Committed], frozenset[TopicPartition]]) -> Commits:
    commits, pending = told
    return Commits({p: Commit(told.offset, told.metadata) for p, told in commits.items()}, pending)


def _code_of_fetch(answer: Any) -> int:
    return int(answer.groups[0].error_code)


def _code_of(answer: Any) -> int:
    """Of a fetch or a commit: the first error code there is."""
    if hasattr(answer, "groups"):
        return _code_of_fetch(answer)
    codes = (int(row.error_code) for topic in answer.topics for row in topic.partitions)
    return next((code for code in codes if code != NO_ERROR), NO_ERROR)


def _committed(answer: Any, group_id: str, what: str) -> frozenset[TopicPartition]:
    """The partitions that were; those that are gone were not. Raises ``GroupNotEmpty`` and what else was answered."""
    committed: set[TopicPartition] = set()
    for topic in answer.topics:
        for row in topic.partitions:
            partition, code = TopicPartition(topic.name, row.partition_index), int(row.error_code)
            if code in HAS_MEMBERS:
                raise GroupNotEmpty(f"{what}: it has members")
            if code not in _GONE:
                check(code, f"{what} ({partition})", on_group("Read", group_id), *on_topics("Read", [topic.name]))
                committed.add(partition)
    return frozenset(committed)
