"""Reading the control and ack topics, from their start and on: gates, and the acks that agents give."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.control.acks import Acks
from tidegate.control.codec import Unreadable, decode
from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey
from tidegate.control.topics import REREAD_AFTER_S
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.codes import UNKNOWN_PARTITION
from tidegate.kafka_client.control_description import describe_existing, topic_id
from tidegate.kafka_client.librdkafka import failure, log_append_time, silent_logger
from tidegate.kafka_client.log_offsets import LATEST, LogOffsets
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.kafka_client.wire import Wire

_TIMEOUT_S: Final = 15.0
_STALLED_S: Final = 5.0
"""Without a record, though there are some: the connection is broken."""
_MADE_S: Final = 3.0
"""Until every broker has heard of a new topic."""
_POLL_S: Final = 0.05
_BATCH: Final = 1000

# A topic that was deleted while it was read: the next call sees that. And librdkafka looks for the coordinator of the
# group that it wants named, though nothing is joined or committed: no right on that group is needed.
_PASSING: Final = UNKNOWN_PARTITION | {KafkaError.GROUP_AUTHORIZATION_FAILED}


class ControlReader:
    """What the two topics hold, as far as it was read. Connects on first use; calls must not overlap."""

    def __init__(self, connection: Connection, names: tuple[str, str], wire: Wire, log_offsets: LogOffsets) -> None:
        """``names``: of the control topic and of the ack topic."""
        self._connection = connection
        self._wire = wire
        self._log_offsets = log_offsets
        self._names = names
        self.taken = 0
        """How many records were read so far, by whomever."""
        self.is_whole = False
        """Whether what is known is all that there was at the last reading, which did not fail."""
        self._closed = False
        self._consumer: Consumer | None = None
        self._ids: tuple[str, ...] = ()
        self._next: dict[tuple[str, int], int] = {}
        self._current_s = 0.0
        """As of when both topics were read to their ends, or were begun to be (monotonic seconds)."""
        self._moved_s = 0.0
        """When the last record came."""
        self._end = 0
        """The control topic's log end offset, as it was at some time before now."""
        self._gates = Gates()
        self._acks = Acks()
        self._acks_of: tuple[str, ...] = ()
        """The ids of the topics that ``_acks`` is of."""
        self._unreadable: Counter[str] = Counter()

    @property
    def exist(self) -> bool:
        """Whether there were both topics when they were read last."""
        return bool(self._ids) and all(self._ids)

    @property
    def unreadable(self) -> int:
        return self._unreadable.total()

    def gates(self, groups: Collection[str]) -> Gates:
        """As they were read last, with the acks of these groups."""
        return self._gates.copy(self._acks.of(groups), heard=self._acks.heard)

    def keeps(self, groups: Collection[str]) -> bool:
        """Whether acks of all of these were kept already when the topics were read last."""
        return self._acks.keeps(groups)

    def acks_ahead(self) -> Collection[AckKey]:
        """Acks of epochs that the control topic has not come to."""
        return self._acks.ahead()

    def close(self) -> None:
        self._closed = True
        self._forget()

    def refresh(self, groups: Collection[str]) -> None:
        """Read to the ends. Raises ``KafkaFailure``s.

        Acks are kept of groups that were named here once.
        """
        if self._closed:
            raise Unavailable(f"read topic {self._names[0]}: the connection was closed")
        now_s = time.monotonic()
        if now_s - self._current_s > REREAD_AFTER_S:
            self._forget()
        described = describe_existing(self._wire, self._names)
        ids = tuple(topic_id(described[n]) if n in described else "" for n in self._names)
        if ids != self._ids:
            self._begin(described, ids)
        if self._acks.ask(groups) and self._consumer is not None:
            self._rewind_acks(self._consumer)
        if self._consumer is not None:
            self._catch_up(self._consumer)
        self._current_s = now_s
        self.is_whole = True

    def wait(self, wait_s: float) -> None:
        """Wait for a new record, up to so long, and not at all where there are no topics. Raises ``KafkaFailure``s."""
        if self._consumer is not None:
            self._take(self._consumer, wait_s)

    def _begin(self, described: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """Read from the start whatever topics there are: they were created, or deleted and created anew."""
        self._forget()
        self._ids, self._current_s = ids, time.monotonic()
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
                    # The last records of a compacted log, or of a transaction, may not be there: it tells that there
                    # is nothing more. A position may still be that from before the topic was read again.
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    # What a fenced operator could not commit is not there.
                    "isolation.level": "read_committed",
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
        self.is_whole = False
        self._acks.rewind()
        self._unreadable[self._names[1]] = 0
        self._next |= {partition: 0 for partition in self._next if partition[0] == self._names[1]}
        consumer.assign([ClientTopicPartition(*p, at or OFFSET_BEGINNING) for p, at in self._next.items()])

    def _forget(self) -> None:
        self.is_whole = False
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None
        self._acks.rewind()
        self._ids, self._next, self._end, self._gates, self._unreadable = (), {}, 0, Gates(), Counter()

    def _catch_up(self, consumer: Consumer) -> None:
        """Read to the ends as they are now."""
        deadline = time.monotonic() + _TIMEOUT_S
        ends = self._known_ends()
        while any(self._next[partition] > end for partition, end in ends.items()):
            # A leader that lags behind has told it; or brokers have lost what was read, which the consumer finds out.
            if time.monotonic() > deadline:
                raise self._lost(self._names[0])
            self._take(consumer, _POLL_S)
            ends = self._known_ends()
        while any(self._next[partition] < end for partition, end in ends.items()):
            if (now_s := time.monotonic()) > deadline:
                raise self._late(ends, now_s)
            self._take(consumer, _POLL_S)

    def _late(self, ends: Mapping[tuple[str, int], int], now_s: float) -> Unavailable:
        """The ends were not reached in time. As long as records come, the next call goes on from here: whoever may
        write acks must not keep everybody from ever reaching the end."""
        self.is_whole = False
        if now_s - self._moved_s < _STALLED_S:
            name = next(name for (name, number), end in ends.items() if self._next[name, number] < end)
            left = sum(max(0, end - self._next[partition]) for partition, end in ends.items())
            return Unavailable(
                f"read topic {name}: its end was not reached within {_TIMEOUT_S:.0f} s, and up to {left:,} records are "
                "left, which are being read"
            )
        self._forget()  # the next call connects anew, with what the files of the connection hold by then
        return Unavailable(f"read topic {self._names[0]}: its end was not reached within {_TIMEOUT_S:.0f} s")

    def _lost(self, topic: str) -> Unavailable:
        """Brokers have lost records of it that were read. Offsets are used again, as in another topic: the next call
        reads all of it anew, and believes no acks of what the control topic does not reach any more."""
        self._forget()
        self._acks_of = ()
        return Unavailable(f"read topic {topic}: brokers have lost records of it, and it is read from its start again")

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

    def _take(self, consumer: Consumer, wait_s: float) -> None:
        try:
            # consume() alone would wait for a full batch.
            first = consumer.poll(wait_s)
            messages = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
        except KafkaException as error:
            raise failure(error.args[0], f"read topic {self._names[0]}") from error
        acks: list[tuple[AckKey, Ack | None, int, int]] = []
        for message in messages:
            topic, number, offset = message.topic(), message.partition(), message.offset()
            problem = message.error()
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                if problem.retriable() or problem.code() in _PASSING:
                    continue
                # It is said once for each assignment, and the records do not come: the next call begins anew.
                self._forget()
                name = topic or self._names[0]
                raise failure(problem, f"read topic {name}", *on_topics("Read", [name]))
            if topic is None or number is None or offset is None:
                continue
            if problem is not None:
                self._next[topic, number] = max(offset, self._next[topic, number])
                continue
            if offset < self._next[topic, number]:
                raise self._lost(topic)
            self.taken += 1
            self._moved_s = time.monotonic()
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
                self._gates.take(key, value, offset, log_append_time(message))
        self._take_acks(acks)

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
