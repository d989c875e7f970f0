"""The real Kafka behind ``tidegate.kafka.ports``: confluent_kafka, and the wire requests it lacks."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from tidegate.control.standing import managed_members
from tidegate.kafka.client_config import BadConnection, librdkafka_config
from tidegate.kafka.codes import UNKNOWN_PARTITION, WITHOUT_LEADER
from tidegate.kafka.connection import Connection
from tidegate.kafka.control import KafkaControlTopics
from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, NotAuthorized, Unavailable, UnknownPartitions
from tidegate.kafka.membership import KafkaMembership
from tidegate.kafka.model import (
    Broker,
    Cluster,
    Committed,
    Features,
    Group,
    GroupState,
    GroupType,
    LogBounds,
    Member,
    Offsets,
    Topic,
    TopicPartition,
)
from tidegate.kafka.offset_retention import KafkaOffsetRetention
from tidegate.kafka.rights import Right, on_group, on_topics
from tidegate.kafka.topic_ids import topic_id_text
from tidegate.kafka.topic_watch import KafkaTopicWatch
from tidegate.kafka.wire import Wire
from tidegate.kafka.writer import KafkaOffsetWriter, failure, silent_logger

_TIMEOUT_S: Final = 15.0
_CONTENTS_TIMEOUT_S: Final = 60.0
_RETIRED: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RETRY_PAUSE_S: Final = 0.1
_STATES: Final = {
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.DEAD: GroupState.DEAD,
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING: GroupState.PREPARING_REBALANCE,
    ConsumerGroupState.COMPLETING_REBALANCING: GroupState.COMPLETING_REBALANCE,
}
# API keys of ApiVersions: ConsumerGroupHeartbeat (KIP-848), StreamsGroupHeartbeat (KIP-1071). The pause RPCs of
# KIP-1249 have no number yet.
_CONSUMER_GROUP_HEARTBEAT: Final = 68
_STREAMS_GROUP_HEARTBEAT: Final = 88


class KafkaClient:
    """Implements ``tidegate.kafka.ports.Kafka``. Connects on first use; thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._refusal: str | None = None
        self._awake = False
        self._patience_s = min(_TIMEOUT_S, int(connection.properties.get("socket.timeout.ms", "15000")) / 1000)
        try:
            self._admin = AdminClient(librdkafka_config(connection, error_cb=self._heard), logger=silent_logger())
        except KafkaException as error:
            raise BadConnection(f"the connection's settings are refused: {error.args[0].str()}") from error
        except TypeError as error:
            raise BadConnection(f"the connection's settings are refused: {error}") from error
        self._describer: AdminClient | None = None
        """Asks the groups' coordinators, and nothing else: see ``groups``."""
        self._retired: deque[AdminClient] = deque(maxlen=_RETIRED)
        self._wire = Wire(connection)
        self._joiner = Wire(connection)
        self._membership = KafkaMembership(self._wire, self._joiner, self)
        self._control = KafkaControlTopics(connection, self._admin)
        self._retention = KafkaOffsetRetention(connection, self._admin, self._wire)

    @property
    def membership(self) -> KafkaMembership:
        return self._membership

    @property
    def control(self) -> KafkaControlTopics:
        return self._control

    @property
    def retention(self) -> KafkaOffsetRetention:
        return self._retention

    def topic_watch(self) -> KafkaTopicWatch:
        return KafkaTopicWatch(Wire(self._connection))

    def writer(self, group_id: str, *, transaction_timeout_s: float, purpose: str = "") -> KafkaOffsetWriter:
        return KafkaOffsetWriter(
            self._connection,
            self._admin,
            self._wire,
            group_id,
            transaction_timeout_s=transaction_timeout_s,
            purpose=purpose,
        )

    def close(self) -> None:
        self._control.close()
        self._joiner.close()
        self._wire.close()

    def _heard(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error.str()

    def _failure(self, error: KafkaError, what: str, *needs: Right) -> KafkaFailure:
        """As ``failure``, but a time-out behind which the brokers refused us says so."""
        failed = failure(error, what, *needs)
        if not isinstance(failed, Unavailable):
            return failed
        for client in (self._admin, self._describer):
            if client is not None:
                client.poll(0)  # serves _heard
        refusal, self._refusal = self._refusal, None
        return NotAuthenticated(f"{what}: {refusal}") if refusal is not None else failed

    def _described(self, client: AdminClient) -> Any:
        """The cluster's description. A new client lets 50 ms go by before it lists topics, or describes groups, for the
        first time (librdkafka 2.16), but not where a broker has answered it already. Raises ``KafkaException``."""
        described = client.describe_cluster(request_timeout=self._patience_s).result(_TIMEOUT_S + 5)
        self._awake = self._awake or client is self._admin
        return described

    # --- looking ------------------------------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        what = f"describe the cluster at {self._connection.bootstrap_servers}"
        try:
            described = self._described(self._admin)
        except KafkaException as error:
            raise self._failure(error.args[0], what) from error
        return Cluster(
            cluster_id=described.cluster_id,
            brokers=tuple(sorted((Broker(n.id, n.host, n.port) for n in described.nodes), key=lambda b: b.node_id)),
            features=Features(
                consumer_protocol=self._wire.supports(_CONSUMER_GROUP_HEARTBEAT),
                streams_protocol=self._wire.supports(_STREAMS_GROUP_HEARTBEAT),
            ),
        )

    def topics(self) -> Mapping[str, Topic]:
        what = f"list the topics at {self._connection.bootstrap_servers}"
        try:
            if not self._awake:
                self._described(self._admin)
            names = [
                name for name in self._admin.list_topics(timeout=self._patience_s).topics if not name.startswith("__")
            ]
        except KafkaException as error:
            raise self._failure(error.args[0], what) from error
        if not names:
            return {}
        futures = self._admin.describe_topics(TopicCollection(names), request_timeout=self._patience_s)
        topics: dict[str, Topic] = {}
        for name, future in futures.items():
            try:
                described = future.result(_TIMEOUT_S + 5)
            except KafkaException as error:
                if error.args[0].code() in UNKNOWN_PARTITION:
                    continue  # deleted between the two requests
                raise self._failure(error.args[0], f"describe topic {name}", *on_topics("Describe", [name])) from error
            if not described.is_internal:
                topics[name] = Topic(name, topic_id_text(described.topic_id), len(described.partitions))
        return topics

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        """A coordinator that is just moving is waited for, as the client libraries do for their own requests.

        A client whose request was under way when its broker died may never find the coordinator again once that broker
        is back (librdkafka 2.16): after a time-out another one is asked. The old one is kept for a while, and requests
        are not given up early: what is still on its way would abort the process
        (``rd_kafka_enq_once_del_source_return``).
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._describe_groups(group_ids)
            except Unavailable as error:
                if isinstance(error, NotAuthenticated) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_PAUSE_S)

    def _describe_groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        if not group_ids:
            return {}
        describer = self._describer
        if describer is None:
            config = librdkafka_config(self._connection, error_cb=self._heard)
            describer = self._describer = AdminClient(config, logger=silent_logger())
            try:
                self._described(describer)
            except KafkaException as error:
                raise self._failure(error.args[0], f"describe {len(group_ids)} group(s)") from error
        futures = describer.describe_consumer_groups(list(group_ids), request_timeout=self._patience_s)
        groups: dict[str, Group] = {}
        for group_id, future in futures.items():
            try:
                groups[group_id] = _group(future.result(_TIMEOUT_S + 5))
            except KafkaException as error:
                code = error.args[0].code()
                if code != KafkaError.GROUP_ID_NOT_FOUND:
                    needs = on_group("Describe", group_id)
                    failed = self._failure(error.args[0], f"describe group {group_id}", needs)
                    if code == KafkaError._TIMED_OUT and self._describer is describer:
                        self._retired.append(describer)
                        self._describer = None
                    raise failed from error
                groups[group_id] = Group(group_id, GroupState.DEAD, GroupType.UNKNOWN)
        # A streams or share group answers a consumer group's describe as if it were dead.
        if any(g.state is GroupState.DEAD for g in groups.values()):
            types = self._wire.group_types()
            for group_id, group in groups.items():
                kind = types.get(group_id, "")
                if group.state is GroupState.DEAD and kind in (GroupType.STREAMS, GroupType.SHARE):
                    groups[group_id] = Group(group_id, GroupState.UNKNOWN, GroupType(kind))
        return groups

    def group_ids(self) -> frozenset[str]:
        return frozenset(
            row.group_id
            for row in self._wire.list_groups()
            if row.type != GroupType.SHARE and row.protocol_type in ("", "consumer")
        )

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        return self._wire.fetch_offsets(group_id, partitions, stable=stable)[0]

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        return self._wire.fetch_many(group_ids)

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        """As ``committed_of``, with leader epochs and metadata."""
        return self._wire.commits_of_many(group_ids)

    def managed_members(self, group_id: str) -> frozenset[str]:
        try:
            return managed_members(self._control.read([group_id]), group_id)
        except NotAuthorized:
            # Whoever resets unmanaged groups only needs no right on the two topics.
            return frozenset()

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return self._wire.fetch_offsets(group_id, partitions, stable=True)[1]

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        earliest = self._list_offsets({p: OffsetSpec.earliest() for p in partitions}, "read the start of the logs")
        latest = self._list_offsets({p: OffsetSpec.latest() for p in partitions}, "read the end of the logs")
        # Read one after the other: retention or DeleteRecords may have moved the start past the end we saw.
        return {p: LogBounds(min(earliest[p], latest[p]), latest[p]) for p in partitions}

    def last_stable_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where each log ends for readers of committed records: before the first that an open transaction has written,
        or at its end (ListOffsets, isolation level read_committed). Raises ``UnknownPartitions``."""
        specs = {p: OffsetSpec.latest() for p in partitions}
        return self._list_offsets(specs, "read the end of the logs", isolation=IsolationLevel.READ_COMMITTED)

    def compacted(self, topics: Collection[str]) -> Mapping[str, bool]:
        """Whether compaction removes records of a topic (``cleanup.policy``); topics whose settings the principal may
        not read (DescribeConfigs) are absent."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
        found: dict[str, bool] = {}
        if not resources:
            return found
        for resource, future in self._admin.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            what = f"read the settings of topic {resource.name}"
            try:
                policy = future.result(_TIMEOUT_S + 5).get("cleanup.policy")
            except KafkaException as error:
                failed = self._failure(error.args[0], what, *on_topics("DescribeConfigs", [resource.name]))
                if not isinstance(failed, NotAuthorized):
                    raise failed from error
            else:
                found[resource.name] = policy is not None and "compact" in (policy.value or "")
        return found

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        specs = {p: OffsetSpec.for_timestamp(_epoch_ms(at)) for p, at in times.items()}
        found = self._list_offsets(specs, "look up offsets by time")
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
                else:
                    raise self._failure(error, f"read topic {topic}", *on_topics("Read", [topic]))
        except KafkaException as error:
            raise self._failure(error.args[0], f"read topic {topic}", *on_topics("Read", [topic])) from error
        finally:
            reader.close()
        return found

    def _partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        topics = self.topics()
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
            raise self._failure(error.args[0], "read the timestamps of records") from error
        finally:
            reader.close()
        return times

    def _list_offsets(
        self,
        specs: Mapping[TopicPartition, Any],
        what: str,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        request = {ClientTopicPartition(p.topic, p.partition): spec for p, spec in specs.items()}
        futures = self._admin.list_offsets(request, isolation_level=isolation, request_timeout=self._patience_s)
        offsets: dict[TopicPartition, int] = {}
        unknown: set[TopicPartition] = set()
        for key, future in futures.items():
            partition = TopicPartition(key.topic, key.partition)
            try:
                offsets[partition] = future.result(_TIMEOUT_S + 5).offset
            except KafkaException as error:
                if error.args[0].code() not in WITHOUT_LEADER:
                    needs = on_topics("Describe", [partition.topic])
                    raise self._failure(error.args[0], f"{what} ({partition})", *needs) from error
                unknown.add(partition)
        if unknown:
            topics = self.topics()
            missing = {p for p in unknown if p.topic not in topics or p.partition >= topics[p.topic].partitions}
            if not missing:
                raise Unavailable(f"{what}: {min(unknown)} has no leader at the moment")
            raise UnknownPartitions(frozenset(missing))
        return offsets


def _group(described: Any) -> Group:
    state = _STATES.get(described.state, GroupState.UNKNOWN)
    if described.state is not None and state is GroupState.UNKNOWN:
        name = described.state.name.replace("_", "").lower()
        state = next((s for s in GroupState if s.value.lower() == name), GroupState.UNKNOWN)
    members = tuple(
        Member(
            member_id=m.member_id,
            client_id=m.client_id,
            host=m.host,
            group_instance_id=m.group_instance_id or None,
            assignment=frozenset(
                TopicPartition(p.topic, p.partition) for p in (m.assignment.topic_partitions if m.assignment else ())
            ),
        )
        for m in described.members
    )
    if described.type is ConsumerGroupType.CONSUMER:
        kind = GroupType.CONSUMER
    elif described.is_simple_consumer_group and not members:
        kind = GroupType.SIMPLE
    else:
        kind = GroupType.CLASSIC
    return Group(described.group_id, state, kind, described.partition_assignor or "", members)


def _epoch_ms(at: datetime) -> int:
    """The first whole millisecond at or after ``at``, exactly: no record from before it may be found."""
    return -((_EPOCH - at) // timedelta(milliseconds=1))
