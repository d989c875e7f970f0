"""The real Kafka behind ``tidegate.kafka.ports``: raw requests; confluent_kafka for records."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.control.standing import managed_members
from tidegate.kafka import streams
from tidegate.kafka.assignments import LEADER_CLIENT_ID
from tidegate.kafka.capabilities import CONSUMER_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT, Capabilities
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import NotAuthorized, Unavailable, UnknownPartitions
from tidegate.kafka.model import (
    Broker,
    Cluster,
    Committed,
    Features,
    Group,
    GroupState,
    GroupType,
    Keeping,
    LogBounds,
    Offsets,
    Range,
    Record,
    RecordHead,
    Topic,
    TopicPartition,
)
from tidegate.kafka.rights import Right, on_topics
from tidegate.kafka_client.audit_log import KafkaAuditLog
from tidegate.kafka_client.cluster_requests import (
    MetadataBrokers,
    broker_apis,
    describe_topics,
    keeping_of,
    topic_settings,
    topics_metadata,
)
from tidegate.kafka_client.codes import check
from tidegate.kafka_client.control import KafkaControlTopics
from tidegate.kafka_client.fenced_writer import WriterProcess
from tidegate.kafka_client.group_descriptions import alive_by_listing, describe_groups
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.librdkafka import failure, is_about_its_group, silent_logger
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST, LogOffsets
from tidegate.kafka_client.membership import KafkaMembership
from tidegate.kafka_client.metadata import read_topics, topics_start
from tidegate.kafka_client.offset_requests import commits_of_many, fetch_many, fetch_offsets
from tidegate.kafka_client.offset_retention import KafkaOffsetRetention
from tidegate.kafka_client.own_rights import lacking
from tidegate.kafka_client.probe import TRANSACTION_S, KafkaCapabilities, KafkaProbe
from tidegate.kafka_client.record_heads import heads_of
from tidegate.kafka_client.settings import BadConnection, kafka_python_config, librdkafka_config
from tidegate.kafka_client.topic_watch import KafkaTopicWatch
from tidegate.kafka_client.whole_records import records_of
from tidegate.kafka_client.wire import Wire
from tidegate.kafka_client.writer import KafkaOffsetWriter
from tidegate.resources.connection import GroupKind

_CONTENTS_TIMEOUT_S: Final = 60.0
SETTINGS_REFUSED: Final = "the connection's settings are refused: "
T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaClient:
    """Implements ``tidegate.cluster.Kafka``. Connects on first use; thread-safe."""

    def __init__(self, connection: Connection, operator: str = "", process: WriterProcess | None = None) -> None:
        """``operator``: the uid of the KafkaConnection, for an operator that reconciles it: of its processes only the
        newest may write the control topic (``tidegate.control.ports``). Empty for runs and commands. ``process``: this
        process, the same for all of its connections, which writes no offsets either once another has taken its place;
        without it the client counts as a process of its own.

        Raises ``BadConnection`` for settings that either client library refuses.
        """
        try_settings(connection)
        self._connection = connection
        self._wire = Wire(connection)
        self._joiner = Wire(connection)
        self._log_offsets = LogOffsets(self._wire)
        self._membership = KafkaMembership(self._wire, self._joiner, self, lambda: Wire(connection), self._leader)
        process = process or WriterProcess()
        self._refuse = process.refuse
        self._control = KafkaControlTopics(connection, self._wire, self._log_offsets, operator, process)
        self._retention = KafkaOffsetRetention(connection, self._wire, self._log_offsets, process.refuse)
        probe = KafkaProbe(
            connection.control_topic,
            self._wire,
            lambda: Wire(connection),
            lambda name: self.writer(name, transaction_timeout_s=TRANSACTION_S),
            self.topics,
        )
        self._capabilities = KafkaCapabilities(lambda: broker_apis(self._wire), probe.of)
        self._closed: Callable[[], None] | None = None

    def sharing(self, closed: Callable[[], None]) -> KafkaClient:
        """Another client on these connections, that joins groups by a connection of its own: a join blocks it.

        ``closed`` is told, once, when that client is closed, which leaves these connections open.
        """
        other = copy.copy(self)
        other._joiner = Wire(self._connection)
        other._membership = KafkaMembership(
            self._wire, other._joiner, other, lambda: Wire(self._connection), other._leader
        )
        other._closed = closed
        return other

    def _leader(self) -> Wire:
        properties = {**self._connection.properties, "client.id": LEADER_CLIENT_ID}
        return Wire(replace(self._connection, properties=properties))

    @property
    def membership(self) -> KafkaMembership:
        return self._membership

    @property
    def control(self) -> KafkaControlTopics:
        return self._control

    @property
    def retention(self) -> KafkaOffsetRetention:
        return self._retention

    @property
    def audit(self) -> KafkaAuditLog:
        return KafkaAuditLog(self._wire)

    def topic_watch(self) -> KafkaTopicWatch:
        return KafkaTopicWatch(MetadataBrokers(Wire(self._connection)))

    def writer(self, group_id: str, *, transaction_timeout_s: float, purpose: str = "") -> KafkaOffsetWriter:
        return KafkaOffsetWriter(
            self._wire,
            group_id,
            transaction_timeout_s=transaction_timeout_s,
            purpose=purpose,
            refuse=self._refuse,
        )

    def close(self) -> None:
        self._joiner.close()
        if self._closed is not None:
            told, self._closed = self._closed, _nothing
            told()
            return
        self._control.close()
        self._wire.close()

    # --- looking ------------------------------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        told = describe_topics(self._wire, [], what=f"describe the cluster at {self._connection.bootstrap_servers}")
        return Cluster(
            cluster_id=told.cluster_id,
            brokers=tuple(sorted((Broker(b.node_id, b.host, b.port) for b in told.brokers), key=lambda b: b.node_id)),
            # The pause RPCs of KIP-1249 have no number yet.
            features=Features(
                consumer_protocol=self._wire.supports(CONSUMER_GROUP_HEARTBEAT),
                streams_protocol=self._wire.supports(STREAMS_GROUP_HEARTBEAT),
            ),
        )

    def capabilities(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:
        return self._capabilities.of(kinds, probe=probe)

    def lacking(self, rights: Collection[Right]) -> Collection[Right]:
        return lacking(self._wire, rights)

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        if names is not None and not names:
            return {}
        answer = topics_metadata(self._wire, names)
        return read_topics(answer, topics_start(answer))

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        groups = describe_groups(self._wire, group_ids)
        # A streams or share group answers a consumer group's describe as if it were dead, and so does a KIP-848 group
        # of brokers that cannot describe one yet.
        if any(g.state is GroupState.DEAD for g in groups.values()):
            groups |= alive_by_listing(groups, list_groups(self._wire))
        return groups

    def group_ids(self) -> frozenset[str]:
        return frozenset(
            row.group_id
            for row in list_groups(self._wire)
            if row.type != GroupType.SHARE and row.protocol_type in ("", "consumer")
        )

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        return fetch_offsets(self._wire, group_id, partitions, stable=stable)[0]

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        return fetch_many(self._wire, group_ids)

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        """As ``committed_of``, with leader epochs and metadata."""
        return commits_of_many(self._wire, group_ids)

    def committed_by_streams(self, group_ids: Collection[str]) -> frozenset[str]:
        found = self.commits_of(group_ids) if group_ids else {}
        return frozenset(g for g, commits in found.items() if streams.committed(c.metadata for c in commits.values()))

    def managed_members(self, group_id: str) -> frozenset[str]:
        try:
            return managed_members(self._control.read([group_id]), group_id)
        except NotAuthorized:
            # Whoever resets unmanaged groups only needs no right on the two topics.
            return frozenset()

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return fetch_offsets(self._wire, group_id, partitions, stable=True)[1]

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        earliest = self._log_offsets.at(dict.fromkeys(partitions, EARLIEST), "read the start of the logs")
        latest = self._log_offsets.at(dict.fromkeys(partitions, LATEST), "read the end of the logs")
        # Read one after the other: retention or DeleteRecords may have moved the start past the end we saw.
        return {p: LogBounds(min(earliest[p], latest[p]), latest[p]) for p in partitions}

    def last_stable_offsets(self, partitions: Collection[TopicPartition], *, as_told: bool = False) -> Offsets:
        ends, what = dict.fromkeys(partitions, LATEST), "read the end of the logs"
        if as_told:
            return self._log_offsets.told(ends, what, read_committed=True)
        return self._log_offsets.at(ends, what, read_committed=True)

    def compacted(self, topics: Collection[str]) -> Mapping[str, bool]:
        """Whether compaction removes records of a topic (``cleanup.policy``); topics whose settings the principal may
        not read (DescribeConfigs) are absent."""
        return {name: kept.is_compacted for name, kept in self._read_settings(topics, keeping_of).items()}

    def keeping(self, topic: str) -> Keeping | None:
        return next(iter(self._read_settings([topic], keeping_of).values()), None)

    def _read_settings(self, topics: Collection[str], read: Callable[[Mapping[str, str]], T]) -> dict[str, T]:
        """By topic; those whose settings the principal may not read are left out."""
        found: dict[str, T] = {}
        if not topics:
            return found
        for name, (code, settings) in topic_settings(self._wire, topics, what="read the settings of topics").items():
            with contextlib.suppress(NotAuthorized):
                check(code, f"read the settings of topic {name}", *on_topics("DescribeConfigs", [name]))
                found[name] = read(settings)
        return found

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        found = self._log_offsets.at({p: _epoch_ms(at) for p, at in times.items()}, "look up offsets by time")
        return {p: (offset if offset >= 0 else None) for p, offset in found.items()}

    def contents(self, topic: str) -> Mapping[bytes, bytes]:
        """The last value by key of a small compacted topic; what was deleted, or has no key, is absent. Raises
        ``UnknownPartitions``."""
        found: dict[bytes, bytes] = {}
        left = {p for p, b in self.log_bounds(self._partitions(topic)).items() if b.earliest < b.latest}
        reader = self._reader("read_committed")
        deadline = time.monotonic() + _CONTENTS_TIMEOUT_S
        try:
            reader.assign([ClientTopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in left])
            while left:
                message = reader.poll(1.0)
                if message is None:
                    if time.monotonic() > deadline:
                        raise Unavailable(f"topic {topic} was not read to its end in {_CONTENTS_TIMEOUT_S:.0f} s")
                    continue
                error, key, value = message.error(), message.key(), message.value()
                if error is None:
                    if key is not None and value is not None:
                        found[key] = value
                    elif key is not None:
                        found.pop(key, None)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(TopicPartition(topic, message.partition() or 0))
                elif not is_about_its_group(error):
                    raise failure(error, f"read topic {topic}", *on_topics("Read", [topic]))
        except KafkaException as error:
            raise failure(error.args[0], f"read topic {topic}", *on_topics("Read", [topic])) from error
        finally:
            reader.close()
        return found

    def _partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        topics = self.topics([topic])
        if topic not in topics:
            raise UnknownPartitions(frozenset({TopicPartition(topic, 0)}))
        return topics[topic].all_partitions()

    def _reader(self, isolation: str) -> Consumer:
        """Reads from assigned positions to the ends. A group id is mandatory in librdkafka; nothing is ever joined or
        committed with it."""
        return Consumer(
            librdkafka_config(
                self._connection,
                **{
                    "group.id": "tidegate-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": isolation,
                    "queued.max.messages.kbytes": 4096,
                    "fetch.message.max.bytes": 65536,
                    "allow.auto.create.topics": False,
                },
            ),
            logger=silent_logger(),
        )

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        bounds = self.log_bounds(list(positions))
        wanted = {p: max(at, bounds[p].earliest) for p, at in positions.items() if at < bounds[p].latest}
        if not wanted:
            return {}
        reader = self._reader("read_uncommitted")
        times: dict[TopicPartition, datetime] = {}
        try:
            reader.assign([ClientTopicPartition(p.topic, p.partition, at) for p, at in wanted.items()])
            left = set(wanted)
            quiet_polls = 0
            while left and quiet_polls < 10:
                message = reader.poll(1.0)
                if message is None:
                    quiet_polls += 1
                    continue
                quiet_polls = 0
                partition = TopicPartition(message.topic() or "", message.partition() or 0)
                if partition not in left:
                    continue
                left.discard(partition)
                reader.pause([ClientTopicPartition(partition.topic, partition.partition)])
                if message.error() is None:
                    kind, stamp = message.timestamp()
                    if kind != 0 and stamp >= 0:
                        # Producers may write any time, also one that no calendar has.
                        with contextlib.suppress(ValueError, OverflowError):
                            times[partition] = datetime.fromtimestamp(stamp / 1000, UTC)
        except KafkaException as error:
            raise failure(error.args[0], "read the timestamps of records") from error
        finally:
            reader.close()
        return times

    def next_records(self, positions: Offsets) -> Mapping[TopicPartition, RecordHead]:
        bounds = self.log_bounds(list(positions))
        wanted = {p: max(at, bounds[p].earliest) for p, at in positions.items() if at < bounds[p].latest}
        return heads_of(self._reader("read_committed"), wanted) if wanted else {}

    def records(
        self, partition: TopicPartition, span: Range, *, committed: bool, most_bytes: int
    ) -> tuple[Record, ...]:
        bounds = self.log_bounds([partition])[partition]
        there = Range(max(span.start, bounds.earliest), min(span.end, bounds.latest))
        if there.size <= 0:
            return ()
        isolation = "read_committed" if committed else "read_uncommitted"
        return records_of(self._reader(isolation), partition, there, most_bytes)


def _nothing() -> None:
    """It was told before."""


def try_settings(connection: Connection) -> None:
    """Both client libraries are given the connection's properties; what they refuse is told before the first use.

    Raises ``BadConnection``.
    """
    try:
        # It does not wait for a broker, and is gone again at once.
        Producer(librdkafka_config(connection), logger=silent_logger())
        kafka_python_config(connection)
    except KafkaException as error:
        raise BadConnection(f"{SETTINGS_REFUSED}{error.args[0].str()}") from error
    except TypeError as error:
        raise BadConnection(f"{SETTINGS_REFUSED}{error}") from error


def _epoch_ms(at: datetime) -> int:
    """The first whole millisecond at or after ``at``, exactly: no record from before it may be found."""
    return -((_EPOCH - at) // timedelta(milliseconds=1))
