"""A process with 1..n ordinary Python consumers: ``python -m support.clients.worker '<JSON>'``.

The argument: ``{"kind", "topics", "commit", "commit_every_s", "hold_s", "members": [{"name", "config", "delay_s"}]}``.

Standard output, one JSON object a line: ``t`` (epoch seconds), ``m`` (member), ``e`` and, by ``e``:

* ``record``: ``r`` = ``[[t, partition, offset, topic, CRC-32 of key and value], ...]``
* ``assign`` | ``revoke`` | ``lost``: ``p`` = ``[[topic, partition], ...]``
* ``commit``: ``o`` = ``[[topic, partition, offset, error or null], ...]``, ``error`` = name or null
* ``error`` | ``died`` (an exception that ended the member): ``error`` = text
* ``ready`` (subscribed) and ``closed``: nothing more

Standard input, one command a line: ``start {"name", "config", "delay_s"}``, ``fork {...}`` (in a forked process
of its own, while this one's members go on), ``stop <member>``, ``stop`` (all). Its end stops all members gracefully and
ends the process, within 20 s in any case: a process never outlives the one that started it.

Each record is reported before the poll loop goes on, so what a killed process had been given is known (a record may be
missing from the report only if the kill fell between its delivery and the write, some microseconds).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

Partition = tuple[str, int]
Row = tuple[float, int, int, str, int]

SHUTDOWN_S = 20.0
_POLL_S = 0.1
# A leader of kafka-python 3.0.12 that joins again because it learned of partitions never finishes that when a poll's
# time is over between the assignment and the answer to it: need_rejoin() is false by then, and no later poll takes the
# answer. The member sends no heartbeats any more and never comes back (0.1 s: in about one of 700 pairs of members).
_KAFKA_PYTHON_POLL_S = 1.0
_BY_TRANSACTIONS = ("transactions", "aborts")
_TOKENS = "sasl_oauth_token_provider"
_TOKEN_S = 3600


def _crc(key: bytes | None, value: bytes | None) -> int:
    return zlib.crc32(value or b"", zlib.crc32(key or b""))


class Reporter:
    """Writes event lines to standard output; used by all threads."""

    def __init__(self, out: BinaryIO) -> None:
        self._lock = threading.Lock()
        self._out = out

    def event(self, member: str, event: str, **fields: Any) -> None:
        line = json.dumps({"t": time.time(), "m": member, "e": event, **fields}, separators=(",", ":")) + "\n"
        with self._lock:
            self._out.write(line.encode())
            self._out.flush()

    def records(self, member: str, batch: list[Row]) -> None:
        """Report `batch` and empty it."""
        if batch:
            self.event(member, "record", r=batch)
            batch.clear()

    def partitions(self, member: str, event: str, partitions: Iterable[Any]) -> None:
        self.event(member, event, p=sorted((p.topic, p.partition) for p in partitions))

    def commit(self, member: str, offsets: Mapping[Partition, int], error: str | None = None) -> None:
        self.offsets(member, "commit", offsets, error)

    def offsets(self, member: str, event: str, offsets: Mapping[Partition, int], error: str | None = None) -> None:
        rows = [(topic, partition, offset, error) for (topic, partition), offset in sorted(offsets.items())]
        self.event(member, event, o=rows, error=error)


@dataclass(frozen=True, slots=True)
class Job:
    """What all members of this process do."""

    kind: str
    topics: tuple[str, ...]
    commit: str
    commit_every_s: float
    hold_s: float


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One consumer and its library's settings."""

    name: str
    config: dict[str, Any]
    delay_s: float


class Uncommitted:
    """Which offsets the application has to commit by hand, and since when.

    Records are gathered into batches of `commit_every_s`; a batch is due that long after its first record, or, for a
    ``worker``, after `hold_s`. ``sync`` and ``async`` commits name no offsets: they are of what is owned by then.
    """

    def __init__(self, job: Job) -> None:
        self._by_hand = job.commit in ("sync", "async", "worker", *_BY_TRANSACTIONS)
        self._gather_s = job.commit_every_s
        self._due_s = job.hold_s if job.commit == "worker" else job.commit_every_s
        self._batches: deque[tuple[float, dict[Partition, int]]] = deque()

    def received(self, now: float, topic: str, partition: int, offset: int) -> None:
        if not self._by_hand:
            return
        if not self._batches or now - self._batches[-1][0] >= self._gather_s:
            self._batches.append((now, {}))
        self._batches[-1][1][topic, partition] = offset + 1

    def lost(self, partitions: Iterable[Any]) -> None:
        """Forget what was received of them."""
        gone = {(p.topic, p.partition) for p in partitions}
        for _, offsets in self._batches:
            for partition in gone & offsets.keys():
                del offsets[partition]

    def due(self, now: float) -> dict[Partition, int]:
        """The offsets whose time has come, taken out; empty when there are none."""
        offsets: dict[Partition, int] = {}
        while self._batches and now - self._batches[0][0] >= self._due_s:
            offsets.update(self._batches.popleft()[1])
        return offsets


class Turns:
    """The transactions of a member, one after the other: when the one that is open ends, and how."""

    def __init__(self, job: Job) -> None:
        self._open_s = job.hold_s
        self._aborts = job.commit == "aborts"
        self._ended = 0
        self._since: float | None = None

    @property
    def is_open(self) -> bool:
        return self._since is not None

    def begun(self, now: float) -> None:
        self._since = now

    def is_due(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self._open_s

    def ended(self) -> bool:
        """It is over; whether it is to be committed."""
        self._since = None
        self._ended += 1
        return not (self._aborts and self._ended % 2 == 0)


class Stopping(Protocol):
    """``threading.Event`` as a member sees it."""

    def is_set(self) -> bool: ...


def consume_librdkafka(spec: MemberSpec, job: Job, report: Reporter, stopping: Stopping) -> None:
    """An ordinary poll loop over ``confluent_kafka.Consumer``."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    name = spec.name
    batch: list[Row] = []
    uncommitted = Uncommitted(job)

    def rebalanced(event: str) -> Callable[[Any, Sequence[Any]], None]:
        def listener(_consumer: Any, partitions: Sequence[Any]) -> None:
            if transactions is not None and event != "assign":
                uncommitted.lost(partitions)
            report.records(name, batch)
            report.partitions(name, event, partitions)

        return listener

    def committed(error: Any, partitions: Sequence[Any] | None) -> None:
        rows = [(p.topic, p.partition, p.offset, p.error.name() if p.error else None) for p in partitions or ()]
        report.event(name, "commit", o=rows, error=error.name() if error else None)

    consumer = Consumer({**spec.config, "on_commit": committed})
    transactions = LibrdkafkaTransactions(consumer, spec, job, report) if job.commit in _BY_TRANSACTIONS else None
    consumer.subscribe(
        list(job.topics),
        on_assign=rebalanced("assign"),
        on_revoke=rebalanced("revoke"),
        on_lost=rebalanced("lost"),
    )
    report.event(name, "ready")
    try:
        while not stopping.is_set():
            message = consumer.poll(_POLL_S)
            while message is not None:
                if message.error():
                    report.event(name, "error", error=str(message.error()))
                else:
                    now = time.time()
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    batch.append((now, partition, offset, topic, _crc(message.key(), message.value())))
                    uncommitted.received(now, topic, partition, offset)
                message = consumer.poll(0) if len(batch) < 500 else None
            report.records(name, batch)
            if transactions is not None:
                transactions.go_on(uncommitted)
                continue
            due = uncommitted.due(time.time())
            if not due:
                continue
            try:
                if job.commit == "sync":
                    committed(None, consumer.commit(asynchronous=False))
                elif job.commit == "async":
                    consumer.commit(asynchronous=True)
                else:
                    consumer.commit(offsets=[TopicPartition(*p, o) for p, o in due.items()], asynchronous=True)
            except KafkaException as refused:
                report.commit(name, due, refused.args[0].name())
    finally:
        if transactions is not None:
            transactions.stop()
        consumer.close()


class LibrdkafkaTransactions:
    """A member's exactly-once side: what it commits, it commits by transactions."""

    def __init__(self, consumer: Any, spec: MemberSpec, job: Job, report: Reporter) -> None:
        from confluent_kafka import Producer

        self._consumer = consumer
        self._name = spec.name
        self._report = report
        self._turns = Turns(job)
        self._producer = Producer(
            {
                "bootstrap.servers": spec.config["bootstrap.servers"],
                "transactional.id": f"{spec.config['group.id']}-{spec.name}-{time.time_ns()}",
            }
        )
        self._producer.init_transactions(SHUTDOWN_S)

    def stop(self) -> None:
        if self._turns.is_open:
            self._producer.abort_transaction(SHUTDOWN_S)

    def go_on(self, uncommitted: Uncommitted) -> None:
        """Between two polls."""
        from confluent_kafka import KafkaException, TopicPartition

        now = time.time()
        if self._turns.is_due(now):
            end = self._producer.commit_transaction if self._turns.ended() else self._producer.abort_transaction
            end(SHUTDOWN_S)
        due = {} if self._turns.is_open else uncommitted.due(now)
        if not due:
            return
        self._producer.begin_transaction()
        offsets = [TopicPartition(*p, o) for p, o in due.items()]
        try:
            member = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, member, SHUTDOWN_S)
        except KafkaException as refused:
            self._report.commit(self._name, due, refused.args[0].name())
            self._producer.abort_transaction(SHUTDOWN_S)
        else:
            self._turns.begun(now)


def consume_kafka_python(spec: MemberSpec, job: Job, report: Reporter, stopping: Stopping) -> None:
    """An ordinary poll loop over ``kafka.KafkaConsumer``."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    name = spec.name
    uncommitted = Uncommitted(job)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            report.partitions(name, "assign", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            self._gone("revoke", revoked)

        def on_partitions_lost(self, lost: Any) -> None:
            self._gone("lost", lost)

        def _gone(self, event: str, partitions: Any) -> None:
            report.partitions(name, event, partitions)
            if job.commit in ("sync", "async"):
                uncommitted.lost(partitions)

    def committed(offsets: Mapping[Any, Any], response: Any) -> None:
        error = type(response).__name__ if isinstance(response, Exception) else None
        report.commit(name, {(p.topic, p.partition): o.offset for p, o in offsets.items()}, error)

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    config = _with_tokens(job.kind, _with_assignor_classes(spec.config, assignors))
    consumer = KafkaConsumer(**config, default_offset_commit_callback=committed)
    consumer.subscribe(list(job.topics), listener=Listener())
    report.event(name, "ready")
    try:
        while not stopping.is_set():
            try:
                polled = consumer.poll(timeout_ms=int(_KAFKA_PYTHON_POLL_S * 1000))
            except KafkaError as failed:
                report.event(name, "error", error=repr(failed))
                continue
            now = time.time()
            _report_polled(polled, now, name, report, uncommitted)
            due = uncommitted.due(now)
            if not due:
                continue
            try:
                if job.commit == "sync":
                    consumer.commit()
                    report.commit(name, due)
                elif job.commit == "async":
                    consumer.commit_async(callback=committed)
                else:
                    offsets = {KafkaPythonPartition(*p): OffsetAndMetadata(o, "", -1) for p, o in due.items()}
                    consumer.commit_async(offsets, callback=committed)
            except KafkaError as refused:
                report.commit(name, due, type(refused).__name__)
    finally:
        consumer.close(timeout_ms=int(SHUTDOWN_S * 500))


async def consume_aiokafka(spec: MemberSpec, job: Job, report: Reporter, stopping: Stopping) -> None:
    """An ordinary poll loop over ``aiokafka.AIOKafkaConsumer``."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka import TopicPartition as AioPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    name = spec.name
    uncommitted = Uncommitted(job)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            report.partitions(name, "assign", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            report.partitions(name, "revoke", revoked)
            if job.commit in ("sync", "async"):
                uncommitted.lost(revoked)

    async def commit(due: Mapping[Partition, int], offsets: Mapping[Any, int] | None) -> None:
        try:
            await consumer.commit(offsets)
        except KafkaError as refused:
            report.commit(name, due, type(refused).__name__)
        else:
            report.commit(name, due)

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    config = _with_tokens(job.kind, _with_ssl_context(_with_assignor_classes(spec.config, assignors)))
    consumer = AIOKafkaConsumer(**config)
    transactions = AiokafkaTransactions(spec, job, report) if job.commit in _BY_TRANSACTIONS else None
    consumer.subscribe(list(job.topics), listener=Listener())
    await consumer.start()
    if transactions is not None:
        await transactions.start()
    report.event(name, "ready")
    in_flight: set[asyncio.Task[None]] = set()
    try:
        while not stopping.is_set():
            try:
                polled = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=500)
            except KafkaError as failed:
                report.event(name, "error", error=repr(failed))
                continue
            now = time.time()
            _report_polled(polled, now, name, report, uncommitted)
            if transactions is not None:
                await transactions.go_on(uncommitted)
                continue
            due = uncommitted.due(now)
            if not due:
                continue
            explicit = None
            if job.commit == "worker":
                # aiokafka refuses a commit as a whole when it names a partition that is not this member's any more
                owned = {(p.topic, p.partition) for p in consumer.assignment()}
                gone = {p: o for p, o in due.items() if p not in owned}
                due = {p: o for p, o in due.items() if p in owned}
                if gone:
                    report.commit(name, gone, "IllegalStateError")
                explicit = {AioPartition(*p): o for p, o in due.items()}
                if not due:
                    continue
            if job.commit == "sync":
                await commit(due, explicit)
            else:
                task = asyncio.create_task(commit(due, explicit))
                in_flight.add(task)
                task.add_done_callback(in_flight.discard)
    finally:
        await asyncio.gather(*in_flight)
        if transactions is not None:
            await transactions.stop()
        await consumer.stop()


class AiokafkaTransactions:
    """As `LibrdkafkaTransactions`. aiokafka names no member as it sends offsets."""

    def __init__(self, spec: MemberSpec, job: Job, report: Reporter) -> None:
        from aiokafka import AIOKafkaProducer

        self._name = spec.name
        self._group = spec.config["group_id"]
        self._report = report
        self._turns = Turns(job)
        self._sent: dict[Partition, int] = {}
        self._producer = AIOKafkaProducer(
            bootstrap_servers=spec.config["bootstrap_servers"],
            transactional_id=f"{self._group}-{spec.name}-{time.time_ns()}",
        )

    async def start(self) -> None:
        await self._producer.start()

    async def stop(self) -> None:
        if self._turns.is_open:
            await self._producer.abort_transaction()
            self._over()
        await self._producer.stop()

    async def go_on(self, uncommitted: Uncommitted) -> None:
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        now = time.time()
        if self._turns.is_due(now):
            commits = self._turns.ended()
            await (self._producer.commit_transaction() if commits else self._producer.abort_transaction())
            self._over()
        due = {} if self._turns.is_open else uncommitted.due(now)
        if not due:
            return
        await self._producer.begin_transaction()
        try:
            offsets = {TopicPartition(*p): o for p, o in due.items()}
            self._report.offsets(self._name, "sent", due)
            self._sent = due
            await self._producer.send_offsets_to_transaction(offsets, self._group)
        except KafkaError as refused:
            self._report.commit(self._name, due, type(refused).__name__)
            await self._producer.abort_transaction()
            self._over()
        else:
            self._turns.begun(now)

    def _over(self) -> None:
        self._report.offsets(self._name, "over", self._sent)
        self._sent = {}


def _with_assignor_classes(config: dict[str, Any], classes: Mapping[str, type]) -> dict[str, Any]:
    named = config.get("partition_assignment_strategy")
    return config if named is None else {**config, "partition_assignment_strategy": tuple(classes[n] for n in named)}


def _with_ssl_context(config: dict[str, Any]) -> dict[str, Any]:
    """aiokafka takes a context where kafka-python takes the files' names."""
    from aiokafka.helpers import create_ssl_context

    files = {name: config[f"ssl_{name}"] for name in ("cafile", "certfile", "keyfile") if f"ssl_{name}" in config}
    if not files:
        return config
    rest = {name: value for name, value in config.items() if name.removeprefix("ssl_") not in files}
    return {**rest, "ssl_context": create_ssl_context(**files)}


def _unsigned_token(user: str) -> str:
    """A JSON web token (RFC 7519) whose ``sub`` is the user."""
    now = int(time.time())
    parts: list[dict[str, Any]] = [{"alg": "none"}, {"sub": user, "iat": now, "exp": now + _TOKEN_S}]
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)


def _with_tokens(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """With a provider where a consumer's arguments have the name of its user: JSON has no objects to give."""
    user = config.get(_TOKENS)
    if user is None:
        return config
    return {**config, _TOKENS: _of_aiokafka(user) if kind == "aiokafka" else _of_kafka_python(user)}


def _of_aiokafka(user: str) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            await asyncio.sleep(0)  # one that asks a server lets the loop go on, too
            return _unsigned_token(user)

    return Provider()


def _of_kafka_python(user: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return _unsigned_token(user)

    return Provider()


def _report_polled(
    polled: Mapping[Any, Sequence[Any]], now: float, name: str, report: Reporter, uncommitted: Uncommitted
) -> None:
    batch: list[Row] = []
    for partition, records in polled.items():
        for record in records:
            crc = _crc(record.key, record.value)
            batch.append((now, partition.partition, record.offset, partition.topic, crc))
            uncommitted.received(now, partition.topic, partition.partition, record.offset)
    report.records(name, batch)


class ThreadHost:
    """Members as threads."""

    def __init__(self, job: Job, report: Reporter) -> None:
        self._job = job
        self._report = report
        self._consume = {"librdkafka": consume_librdkafka, "kafka-python": consume_kafka_python}[job.kind]
        self._members: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def start(self, spec: MemberSpec) -> None:
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(spec, stopping), name=spec.name, daemon=True)
        self._members[spec.name] = (thread, stopping)
        thread.start()

    def stop(self, name: str | None) -> None:
        for member, (_, stopping) in self._members.items():
            if name is None or member == name:
                stopping.set()

    def join(self, deadline: float) -> bool:
        for thread, _ in self._members.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread, _ in self._members.values())

    def _run(self, spec: MemberSpec, stopping: threading.Event) -> None:
        if stopping.wait(spec.delay_s):
            return
        try:
            self._consume(spec, self._job, self._report, stopping)
        except BaseException as failed:
            self._report.event(spec.name, "died", error=repr(failed))
            raise
        finally:
            self._report.event(spec.name, "closed")


class LoopHost:
    """Members as tasks of one event loop, which runs in a thread of its own."""

    def __init__(self, job: Job, report: Reporter) -> None:
        self._job = job
        self._report = report
        self._members: dict[str, tuple[Any, threading.Event]] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def start(self, spec: MemberSpec) -> None:
        stopping = threading.Event()
        future = asyncio.run_coroutine_threadsafe(self._run(spec, stopping), self._loop)
        self._members[spec.name] = (future, stopping)

    def stop(self, name: str | None) -> None:
        for member, (_, stopping) in self._members.items():
            if name is None or member == name:
                stopping.set()

    def join(self, deadline: float) -> bool:
        import concurrent.futures

        _, running = concurrent.futures.wait(
            [future for future, _ in self._members.values()], max(0.0, deadline - time.monotonic())
        )
        return not running

    async def _run(self, spec: MemberSpec, stopping: threading.Event) -> None:
        await asyncio.sleep(spec.delay_s)
        try:
            if not stopping.is_set():
                await consume_aiokafka(spec, self._job, self._report, stopping)
        except BaseException as failed:
            self._report.event(spec.name, "died", error=repr(failed))
            raise
        finally:
            self._report.event(spec.name, "closed")


class Children:
    """Forked processes, one member each, which end when this one closes their pipes, or ends itself."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pipes: dict[int, int] = {}

    def start(self, spec: MemberSpec) -> None:
        ending, pipe = os.pipe()
        pid = os.fork()
        if pid:
            os.close(ending)
            self._pipes[pid] = pipe
            return
        try:
            for inherited in (pipe, *self._pipes.values()):
                os.close(inherited)
            # Of its own: a thread of the parent's may just have had the lock of the other.
            host = _host(self._job, Reporter(os.fdopen(os.dup(1), "wb")))
            host.start(spec)
            os.read(ending, 1)
            host.stop(None)
            host.join(time.monotonic() + SHUTDOWN_S)
        finally:
            os._exit(0)

    def stop(self) -> None:
        for pipe in self._pipes.values():
            os.close(pipe)

    def join(self, deadline: float) -> None:
        """Those that do not end in time are killed."""
        for pid in self._pipes:
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)


def _host(job: Job, report: Reporter) -> ThreadHost | LoopHost:
    return LoopHost(job, report) if job.kind == "aiokafka" else ThreadHost(job, report)


def _let_libraries_log() -> None:
    """To standard error, the end of which a test that fails shows: there they tell when they join and leave."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s[%(levelname)s]: %(message)s"))
    for library in ("kafka", "aiokafka"):
        logger = logging.getLogger(library)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)


def _member(given: Mapping[str, Any]) -> MemberSpec:
    return MemberSpec(given["name"], given["config"], given["delay_s"])


def main(argument: str) -> int:
    """Run until standard input ends; 1 when a member did not close in time."""
    given = json.loads(argument)
    job = Job(given["kind"], tuple(given["topics"]), given["commit"], given["commit_every_s"], given["hold_s"])
    _let_libraries_log()
    host, children = _host(job, Reporter(sys.stdout.buffer)), Children(job)
    for member in given["members"]:
        host.start(_member(member))
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        match command:
            case "start":
                host.start(_member(json.loads(rest)))
            case "fork":
                children.start(_member(json.loads(rest)))
            case "stop":
                host.stop(rest or None)
            case _:
                raise ValueError(f"unknown command {line!r}")
    host.stop(None)
    children.stop()
    deadline = time.monotonic() + SHUTDOWN_S
    is_ended = host.join(deadline)
    children.join(deadline)
    return 0 if is_ended else 1


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # a client's own threads must not keep a stopped process alive
