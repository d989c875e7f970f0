"""The control and ack topics on a real cluster (``tidegate.control.ports``)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.control.acks import Acks
from tidegate.control.gates import Gates
from tidegate.control.records import (
    CLOCK_VALUE,
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    PartitionKey,
    PartitionSeen,
    Unreadable,
    Value,
    decode,
    encode_key,
    encode_value,
)
from tidegate.control.topics import (
    ACKS_CONFIG,
    CONTROL_CONFIG,
    EXTRA_CONFIG,
    TopicFacts,
    acks_topic,
    complaints,
)
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.cluster_requests import create_topics, describe_topics, topic_settings
from tidegate.kafka_client.codes import UNKNOWN_PARTITION, check
from tidegate.kafka_client.librdkafka import failure, silent_logger
from tidegate.kafka_client.log_offsets import LATEST, LogOffsets
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.kafka_client.topic_ids import topic_id_of_bytes
from tidegate.kafka_client.wire import Wire

_TIMEOUT_S: Final = 15.0
_DELIVERY_S: Final = 30.0
_MADE_S: Final = 3.0
"""Until every broker has heard of a new topic."""
_POLL_S: Final = 0.05
_BATCH: Final = 1000
_WRITTEN_AT_ONCE: Final = 5000
"""Records of discovery, for whoever wants to write a hold meanwhile, and for the producer's queue."""
_DEFAULT_REPLICATION: Final = 3
_TOPIC_ALREADY_EXISTS: Final = 36

# A topic that was deleted while it was read: the next call sees that. And librdkafka looks for the coordinator of the
# group that it wants named, though nothing is joined or committed: no right on that group is needed.
_PASSING: Final = UNKNOWN_PARTITION | {KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class _Appended:
    """Where and when a record was appended, by the broker; ``at_ms``: absent where timestamps are not its own."""

    offset: int
    at_ms: int | None


class KafkaControlTopics:
    """Implements ``tidegate.control.ports.ControlTopics``. Connects on first use; thread-safe."""

    def __init__(self, connection: Connection, wire: Wire, log_offsets: LogOffsets) -> None:
        self._connection = connection
        self._wire = wire
        self._log_offsets = log_offsets
        self._names = (connection.control_topic, acks_topic(connection.control_topic))
        self._lock = threading.Lock()
        # Apart from the other: a write that waits for a broker must not hold up those who only look.
        self._write_lock = threading.Lock()
        self._closed = False
        self._producer: Producer | None = None
        self._producer_id = ""
        self._consumer: Consumer | None = None
        self._ids: tuple[str, ...] = ()
        self._next: dict[tuple[str, int], int] = {}
        self._end = 0
        """The control topic's log end offset, as it was at some time before now."""
        self._gates = Gates()
        self._acks = Acks()
        self._acks_of: tuple[str, ...] = ()
        """The ids of the topics that ``_acks`` is of."""
        self._unreadable: Counter[str] = Counter()

    @property
    def exist(self) -> bool:
        return bool(self._ids) and all(self._ids)

    @property
    def unreadable(self) -> int:
        return self._unreadable.total()

    def close(self) -> None:
        with self._lock, self._write_lock:
            self._closed = True
            self._forget()
            self._producer = None

    # --- the topics ---------------------------------------------------------------------------------------------------

    def ensure(self) -> tuple[str, ...]:
        with self._lock:
            facts = self._facts()
            missing = [name for name in self._names if name not in facts]
            if missing:
                self._create(missing)
                facts = self._described_facts()
            self._forget_stale_acks()
            return complaints(*(facts[name] for name in self._names))

    def _create(self, names: list[str]) -> None:
        what = f"create topic {' and '.join(names)}"
        factor = self._connection.control_replication_factor
        if factor is None:
            factor = min(_DEFAULT_REPLICATION, len(describe_topics(self._wire, [], what=what).brokers))
        settings = {n: (CONTROL_CONFIG if n == self._names[0] else ACKS_CONFIG) | EXTRA_CONFIG for n in names}
        made = create_topics(self._wire, settings, partitions=1, replication_factor=factor, what=what)
        for name, (code, said) in made.items():
            if code != _TOPIC_ALREADY_EXISTS:
                check(code, f"create topic {name}", *on_topics("Create", [name]), said=said)

    def _described_facts(self) -> dict[str, TopicFacts]:
        """Of both topics: a broker hears of a new topic some moments after the controller has made it."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            facts = self._facts()
            left = [name for name in self._names if name not in facts]
            if not left:
                return facts
            if time.monotonic() > deadline:
                raise Unavailable(f"topic {left[0]} was created, but cannot be described yet")
            time.sleep(_POLL_S)

    def _facts(self) -> dict[str, TopicFacts]:
        described = self._describe()
        if not described:
            return {}
        what = "read the settings of topic"
        facts = {}
        for name, (code, config) in topic_settings(self._wire, described, what=f"{what}s").items():
            check(code, f"{what} {name}", *on_topics("DescribeConfigs", [name]))
            topic = described[name]
            facts[name] = TopicFacts(
                name=name,
                topic_id=_id(topic),
                partitions=len(topic.partitions),
                replication_factor=min((len(p.replica_nodes) for p in topic.partitions), default=0),
                config=config,
            )
        return facts

    def _describe(self) -> dict[str, Any]:
        """Those of the two topics that exist (``MetadataResponseTopic``)."""
        found = {}
        for topic in describe_topics(self._wire, self._names, what=f"describe topic {self._names[0]}").topics:
            if topic.error_code not in UNKNOWN_PARTITION:
                check(topic.error_code, f"describe topic {topic.name}", *on_topics("Describe", [topic.name]))
                found[topic.name] = topic
        return found

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        with self._lock:
            self._refresh(groups, wait_s)
            return self._gates.copy(self._acks.of(groups), heard=self._acks.heard)

    def _refresh(self, groups: Collection[str], wait_s: float) -> None:
        if self._closed:
            raise Unavailable(f"read topic {self._names[0]}: the connection was closed")
        described = self._describe()
        ids = tuple(_id(described[n]) if n in described else "" for n in self._names)
        if ids != self._ids:
            self._begin(described, ids)
        if self._acks.ask(groups) and self._consumer is not None:
            self._rewind_acks(self._consumer)
        if self._consumer is not None:
            self._catch_up(self._consumer, wait_s)
        elif wait_s > 0:
            time.sleep(min(wait_s, _POLL_S))

    def _begin(self, described: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """Read from the start whatever topics there are: they were created, or deleted and created anew."""
        self._forget()
        self._ids = ids
        if ids != self._acks_of:
            self._acks.topic_recreated()
            self._acks_of = ids
        if not described:
            return
        self._consumer = Consumer(
            librdkafka_config(
                self._connection,
                **{
                    # A group id is mandatory in librdkafka; nothing is ever joined or committed with it.
                    "group.id": "tidegate-control",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_uncommitted",
                    "allow.auto.create.topics": False,
                    "fetch.wait.max.ms": 500,
                    "fetch.error.backoff.ms": 50,
                },
            ),
            logger=silent_logger(),
        )
        partitions = [(n, p.partition_index) for n in self._names if n in described for p in described[n].partitions]
        self._next = dict.fromkeys(partitions, 0)
        self._consumer.assign([ClientTopicPartition(name, p, OFFSET_BEGINNING) for name, p in partitions])

    def _rewind_acks(self, consumer: Consumer) -> None:
        """Read the ack topic from its start again: it may speak of groups that nobody had asked about."""
        self._acks.rewind()
        self._unreadable[self._names[1]] = 0
        self._next |= {partition: 0 for partition in self._next if partition[0] == self._names[1]}
        consumer.assign([ClientTopicPartition(*p, at or OFFSET_BEGINNING) for p, at in self._next.items()])

    def _forget(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None
        self._acks.rewind()
        self._ids, self._next, self._end, self._gates, self._unreadable = (), {}, 0, Gates(), Counter()

    def _catch_up(self, consumer: Consumer, wait_s: float) -> None:
        """Read to the ends as they are now; then wait for more where nothing was read."""
        deadline = time.monotonic() + _TIMEOUT_S
        ends = self._known_ends()
        read = 0
        while any(self._next[partition] < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise Unavailable(f"read topic {self._names[0]}: its end was not reached within {_TIMEOUT_S:.0f} s")
            read += self._take(consumer, _POLL_S)
        patience = time.monotonic() + wait_s
        while not read and time.monotonic() < patience:
            read += self._take(consumer, min(_POLL_S, wait_s))

    def _known_ends(self) -> dict[tuple[str, int], int]:
        """``_ends``, also of topics that the brokers do not know yet."""
        deadline = time.monotonic() + _MADE_S
        while True:
            try:
                return self._ends()
            except UnknownPartitions as error:
                if time.monotonic() > deadline:
                    name = min(error.partitions).topic
                    raise Unavailable(f"read topic {name}: it is being deleted, or was made just now") from error
            time.sleep(_POLL_S)

    def _ends(self) -> dict[tuple[str, int], int]:
        """Asked for on other connections than the consumer's, which are busy waiting for new records."""
        asked = {TopicPartition(*partition): LATEST for partition in self._next}
        found = self._log_offsets.at(asked, f"read the end of topic {self._names[0]}")
        ends = {(partition.topic, partition.partition): end for partition, end in found.items()}
        self._end = max((end for (name, _), end in ends.items() if name == self._names[0]), default=0)
        return ends

    def _take(self, consumer: Consumer, wait_s: float) -> int:
        taken = 0
        try:
            # consume() alone would wait for a full batch.
            first = consumer.poll(wait_s)
            messages = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
        except KafkaException as error:
            raise failure(error.args[0], f"read topic {self._names[0]}") from error
        acks: list[tuple[AckKey, Ack | None, int, int]] = []
        for message in messages:
            problem = message.error()
            if problem is not None:
                if problem.retriable() or problem.code() in _PASSING:
                    continue
                # It is said once for each assignment, and the records do not come: the next call begins anew.
                self._forget()
                name = message.topic() or self._names[0]
                raise failure(problem, f"read topic {name}", *on_topics("Read", [name]))
            topic, number, offset = message.topic(), message.partition(), message.offset()
            if topic is None or number is None or offset is None:
                continue
            taken += 1
            self._next[topic, number] = offset + 1
            try:
                key, value = decode(message.key(), message.value())
            except Unreadable:
                self._unreadable[topic] += 1
                continue
            # Each kind counts in its own topic only: whoever may write acks sets no holds.
            if isinstance(key, AckKey) is not (topic == self._names[1]):
                self._unreadable[topic] += 1
            elif isinstance(key, AckKey):
                acks.append((key, value if isinstance(value, Ack) else None, number, offset))
            else:
                self._gates.take(key, value, offset, _log_append_time(message))
        self._take_acks(acks)
        if not messages:
            # The last records of a compacted log may be gone: the position tells that there is nothing more.
            for position in consumer.position([ClientTopicPartition(*p) for p in self._next]):
                if position.offset is not None and position.offset > self._next[position.topic, position.partition]:
                    self._next[position.topic, position.partition] = position.offset
        return taken

    def _take_acks(self, records: Collection[tuple[AckKey, Ack | None, int, int]]) -> None:
        """Acks with their partitions and offsets, which are judged by the control topic's end: as it was when a record
        came, which it may have to be asked for."""
        decided = self._acks.is_decided
        if not all(ack is None or decided(ack, number, at, self._end) for _, ack, number, at in records):
            try:
                self._known_ends()
            except KafkaFailure:
                # They were taken off the consumer's queue: read again, from the start.
                self._forget()
                raise
        for _, _, number, at in records:
            self._acks.looked(number, at + 1, self._end)
        for record in records:
            self._acks.take(*record)

    # --- writing ------------------------------------------------------------------------------------------------------

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        records = dict(_encoded(key, hold) for key, hold in holds.items())
        with self._write_lock:
            appended = self._write(self._names[0], records)
            # Epoch 0 is what an agent says of an open gate when it has found no control record: no hold may have it.
            first = [key for key, at in appended.items() if at.offset == 0]
            appended |= self._write(self._names[0], {key: records[key] for key in first})
        return {key: appended[encode_key(key)].offset for key in holds}

    def release(self, keys: Iterable[HoldKey]) -> None:
        self._take_back(keys)

    def _take_back(self, keys: Iterable[Key]) -> None:
        tombstones = dict(_encoded(key, None) for key in keys)
        with self._write_lock:
            if self._names[0] in self._describe():
                self._write(self._names[0], tombstones)

    def claim(self, key: ClaimKey, claim: Claim) -> None:
        record = dict([_encoded(key, claim)])
        with self._write_lock:
            topic = self._describe().get(self._names[0])
            if topic is not None and len(topic.partitions) != 1:
                raise Refused(
                    f"claim group {key.group}: topic {topic.name} has {len(topic.partitions)} partitions, not one"
                )
            [appended] = self._write(self._names[0], record).values()
        if appended.at_ms is None:
            raise Refused(f"claim group {key.group}: {self._without_clock}")

    def withdraw(self, keys: Iterable[ClaimKey]) -> None:
        self._take_back(keys)

    @property
    def _without_clock(self) -> str:
        return f"the records of topic {self._names[0]} do not carry the broker's clock"

    def write_partitions(self, records: Mapping[PartitionKey, PartitionSeen | None]) -> None:
        left = iter([_encoded(key, seen) for key, seen in records.items()])
        while some := dict(islice(left, _WRITTEN_AT_ONCE)):
            with self._write_lock:
                self._write(self._names[0], some)

    def write_clock(self) -> int:
        key = encode_key(ClockKey())
        with self._write_lock:
            at_ms = self._write(self._names[0], {key: CLOCK_VALUE})[key].at_ms
        if at_ms is None:
            raise Refused(f"read the broker's clock: {self._without_clock}")
        return at_ms

    def _forget_stale_acks(self) -> None:
        """Needs Write on the ack topic, which only this case does."""
        self._refresh((), 0.0)
        stale = self._acks.ahead()
        if stale:
            with self._write_lock:
                self._write(self._names[1], dict.fromkeys(map(encode_key, stale)))

    def _write(self, name: str, records: Mapping[bytes, bytes | None]) -> dict[bytes, _Appended]:
        """Write values by key, as bytes."""
        if not records:
            return {}
        what = f"write {len(records)} record(s) to topic {name}"
        appended: dict[bytes, _Appended] = {}
        failures: list[KafkaError] = []
        producer = self._writer(name, what)

        def delivered(error: KafkaError | None, message: Message) -> None:
            key, offset = message.key(), message.offset()
            if error is not None:
                failures.append(error)
            elif isinstance(key, bytes) and offset is not None:
                appended[key] = _Appended(offset, _log_append_time(message))

        try:
            for key, value in records.items():
                producer.produce(name, value, key, on_delivery=delivered)
            producer.flush(_DELIVERY_S)
        except (KafkaException, SystemError) as error:
            # confluent_kafka calls the delivery callbacks with a fatal error already pending, which Python then reports
            # as a SystemError with that as its cause.
            raised = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(raised, KafkaException):
                raise
            failures.insert(0, raised.args[0])
        if failures:
            # What was in the same batch may be there; whoever asked writes all of it again, which changes nothing. An
            # idempotent producer that failed for good (no right to write to any topic, say) is of no use any more.
            self._producer = None
            raise failure(failures[0], what, *on_topics("Write", [name]))
        if len(appended) < len(records):
            # Whether they are there is unknown; writing them again changes nothing but their epochs.
            self._producer = None
            raise Unavailable(f"{what}: no answer in {_DELIVERY_S:.0f} s")
        return appended

    def _writer(self, name: str, what: str) -> Producer:
        """A producer for the topic as it is now: one that knew an earlier topic of this name waits for that in vain."""
        if self._closed:
            raise Unavailable(f"{what}: the connection was closed")
        topic = self._describe().get(name)
        if topic is None:
            raise Unavailable(f"{what}: there is no such topic")
        topic_id = f"{name} {_id(topic)}"
        if self._producer is None or self._producer_id != topic_id:
            self._producer_id = topic_id
            self._producer = Producer(
                librdkafka_config(
                    self._connection,
                    **{
                        "enable.idempotence": True,
                        "linger.ms": 0,
                        # Thousands of records of discovery hardly differ, and every agent reads them all.
                        "compression.type": "gzip",
                        "message.timeout.ms": int(_DELIVERY_S * 1000 * 0.9),
                        "allow.auto.create.topics": False,
                    },
                ),
                logger=silent_logger(),
            )
        return self._producer


def _id(topic: Any) -> str:
    return topic_id_of_bytes(topic.topic_id.bytes)


def _encoded(key: Key, value: Value) -> tuple[bytes, bytes | None]:
    """A record as bytes that everybody reads. Raises ``Refused``."""
    try:
        record = encode_key(key), encode_value(value)
        decode(*record)
    except (Unreadable, UnicodeEncodeError) as error:
        raise Refused(f"write a record to the control topic: {error}") from None
    return record


def _log_append_time(message: Message) -> int | None:
    """Epoch milliseconds by the broker's clock; ``None`` where the topic has other timestamps."""
    kind, at_ms = message.timestamp()
    return at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None
