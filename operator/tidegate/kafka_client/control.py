"""The control and ack topics on a real cluster (``tidegate.control.ports``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from tidegate.control.codec import CLOCK_VALUE, encode_key
from tidegate.control.gates import Gates
from tidegate.control.records import (
    Claim,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
)
from tidegate.control.topics import ACKS_CONFIG, CONTROL_CONFIG, EXTRA_CONFIG, TopicFacts, complaints
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable, one_more
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.cluster_requests import create_topics, describe_topics
from tidegate.kafka_client.codes import check
from tidegate.kafka_client.control_description import describe_existing, topic_facts
from tidegate.kafka_client.control_reader import ControlReader
from tidegate.kafka_client.control_writer import Appended, ControlWriter, encoded
from tidegate.kafka_client.fenced_writer import FencedWriter, WriterProcess
from tidegate.kafka_client.log_offsets import LogOffsets
from tidegate.kafka_client.shared_writes import Records, SharedWrites
from tidegate.kafka_client.wire import Wire

_MADE_KNOWN_S: Final = 15.0
_POLL_S: Final = 0.02
_WRITTEN_AT_ONCE: Final = 5000
"""Records of discovery, for whoever wants to write a hold meanwhile, and for the producer's queue."""
_DEFAULT_REPLICATION: Final = 3
_TOPIC_ALREADY_EXISTS: Final = 36


class KafkaControlTopics:
    """Implements ``tidegate.control.ports.ControlTopics``. Connects on first use; thread-safe."""

    def __init__(
        self,
        connection: Connection,
        wire: Wire,
        log_offsets: LogOffsets,
        operator: str = "",
        process: WriterProcess | None = None,
    ) -> None:
        """``operator``: as whose newest process it writes, see ``control_transactional_id``; empty: as nobody's.
        ``process``: which of them this is; without it one of its own."""
        self._connection = connection
        self._wire = wire
        self._names = (connection.control_topic, connection.acks_topic)
        self._lock = threading.Lock()
        self._read_s = 0.0
        """When the newest reading began that has ended well."""
        self._failure: KafkaFailure | None = None
        """Of the newest reading, and when it began."""
        self._failed_s = 0.0
        self._ensure_lock = threading.Lock()
        self._ensured: tuple[float, tuple[str, ...]] | None = None
        """When the newest ``ensure`` began that has ended well, and its answer."""
        self._unensured: tuple[float, KafkaFailure] | None = None
        """The same of the newest that has failed."""
        self._reader = ControlReader(connection, self._names, wire, log_offsets)
        self._writer = ControlWriter(connection, self._names, wire)
        self._fenced = FencedWriter(wire, self._names[0], operator, process or WriterProcess()) if operator else None
        # Apart from reading: a write that waits for a broker must not hold up those who only look.
        self._writes = SharedWrites(self._append)

    @property
    def exist(self) -> bool:
        return self._reader.exist

    @property
    def unreadable(self) -> int:
        return self._reader.unreadable

    def close(self) -> None:
        with self._lock, self._writes.turn:
            self._reader.close()
            self._writer.close()
            if self._fenced is not None:
                self._fenced.close()

    # --- the topics ---------------------------------------------------------------------------------------------------

    def ensure(self) -> tuple[str, ...]:
        asked_s = time.monotonic()
        with self._ensure_lock:
            # Of many who ask at once most have waited for one that began after they had asked.
            if self._ensured is not None and self._ensured[0] > asked_s:
                return self._ensured[1]
            if self._unensured is not None and self._unensured[0] > asked_s:
                raise one_more(self._unensured[1])
            began_s = time.monotonic()
            try:
                found = self._made_sure()
            except KafkaFailure as failure:
                self._unensured = began_s, one_more(failure)
                raise
            self._ensured = began_s, found
            return found

    def _made_sure(self) -> tuple[str, ...]:
        facts = topic_facts(self._wire, self._names)
        missing = [name for name in self._names if name not in facts]
        if missing:
            self._create(missing)
            facts = self._described_facts()
        if self._fenced is not None:
            self._fenced.take_over()
        self._forget_stale_acks()
        return complaints(*(facts[name] for name in self._names))

    def confirm(self) -> None:
        if self._fenced is not None:
            self._fenced.confirm()

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
        deadline = time.monotonic() + _MADE_KNOWN_S
        while True:
            facts = topic_facts(self._wire, self._names)
            left = [name for name in self._names if name not in facts]
            if not left:
                return facts
            if time.monotonic() > deadline:
                raise Unavailable(f"topic {left[0]} was created, but cannot be described yet")
            time.sleep(_POLL_S)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        asked_s = time.monotonic()
        with self._lock:
            # Of many who ask at once most have waited for somebody's reading that began after they had asked.
            before = self._reader.taken
            is_newer = self._read_s > asked_s and self._reader.is_whole
            if wait_s or not is_newer or not self._reader.keeps(groups):
                self._refresh(groups, asked_s)
            if not wait_s or self._reader.taken > before:
                return self._reader.gates(groups)
        # Many may wait at once, and others ask meanwhile: nobody waits for the sum of it.
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            with self._lock:
                if self._reader.taken > before or not self._reader.is_whole:
                    break
                self._reader.wait(min(_POLL_S, left_s))
            if not self.exist:
                time.sleep(min(_POLL_S, left_s))
        with self._lock:
            if not self._reader.is_whole:
                # Somebody else's reading has failed meanwhile, and what it has left says less than there is.
                self._refresh(groups, asked_s)
            return self._reader.gates(groups)

    def _refresh(self, groups: Collection[str], asked_s: float) -> None:
        """Read anew, unless that has failed since ``asked_s``: many who wait for one another do not wait for the sum of
        their time-outs."""
        if self._failure is not None and self._failed_s > asked_s:
            raise one_more(self._failure)
        began_s = time.monotonic()
        try:
            self._reader.refresh(groups)
        except KafkaFailure as failure:
            self._failure, self._failed_s = one_more(failure), began_s
            raise
        self._failure, self._read_s = None, began_s

    # --- writing ------------------------------------------------------------------------------------------------------

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        appended = self._append_after_first(dict(encoded(key, hold) for key, hold in holds.items()))
        return {key: appended[encode_key(key)].offset for key in holds}

    def limit(self, limits: Mapping[LimitKey, Limit]) -> Mapping[LimitKey, int]:
        appended = self._append_after_first(dict(encoded(key, limit) for key, limit in limits.items()))
        return {key: appended[encode_key(key)].offset for key in limits}

    def _append_after_first(self, records: Records) -> dict[bytes, Appended]:
        appended = dict(self._writes.write(records))
        # Epoch 0 is what an agent says of an open gate when it has found no control record: no hold may have it.
        first = [key for key, at in appended.items() if at.offset == 0]
        return appended | self._writes.write({key: records[key] for key in first})

    def _append(self, records: Records) -> dict[bytes, Appended]:
        if self._fenced is not None:
            return self._fenced.write(records)
        return self._writer.write(self._names[0], records)

    def release(self, keys: Iterable[HoldKey | LimitKey]) -> None:
        self._take_back(keys)

    def _take_back(self, keys: Iterable[Key]) -> None:
        tombstones = dict(encoded(key, None) for key in keys)
        if self._names[0] in describe_existing(self._wire, self._names):
            self._writes.write(tombstones)

    def claim(self, key: ClaimKey, claim: Claim) -> None:
        record = dict([encoded(key, claim)])
        topic = describe_existing(self._wire, self._names).get(self._names[0])
        if topic is not None and len(topic.partitions) != 1:
            raise Refused(
                f"claim group {key.group}: topic {topic.name} has {len(topic.partitions)} partitions, not one"
            )
        [appended] = self._writes.write(record).values()
        if appended.at_ms is None:
            raise Refused(f"claim group {key.group}: {self._without_clock}")

    def withdraw(self, keys: Iterable[ClaimKey]) -> None:
        self._take_back(keys)

    @property
    def _without_clock(self) -> str:
        return f"the records of topic {self._names[0]} do not carry the broker's clock"

    def write_partitions(self, records: Mapping[PartitionKey, PartitionSeen | None]) -> None:
        left = iter([encoded(key, seen) for key, seen in records.items()])
        while some := dict(islice(left, _WRITTEN_AT_ONCE)):
            self._writes.write(some)

    def note_runs(self, records: Mapping[RunKey, Run | None]) -> None:
        self._writes.write(dict(encoded(key, run) for key, run in records.items()))

    def write_clock(self) -> int:
        key = encode_key(ClockKey())
        at_ms = self._writes.write({key: CLOCK_VALUE})[key].at_ms
        if at_ms is None:
            raise Refused(f"read the broker's clock: {self._without_clock}")
        return at_ms

    def _forget_stale_acks(self) -> None:
        """Needs Write on the ack topic, which only this case does."""
        with self._lock:
            self._reader.refresh(())
            stale = self._reader.acks_ahead()
        if stale:
            with self._writes.turn:
                self._writer.write(self._names[1], dict.fromkeys(map(encode_key, stale)))
