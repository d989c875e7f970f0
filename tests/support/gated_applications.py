"""Applications over aiokafka and kafka-python with the agent in them, in threads of the test's process.

Each polls as its ``style`` says, notes what it is given, and commits as its ``commit`` says:

* ``auto``: not at all; the client does
* ``manual``: each batch's offsets, once it has been worked on for ``work_s``
* ``position``: by a commit without offsets, after each batch
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka.consumer
import aiokafka.consumer.consumer
import kafka.consumer.group
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from devstack.processes import eventually
from support.limits import write_limit
from support.obeyed import acked
from tidegate.control.records import Ack, Hold, HoldKey, LimitKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent.adapters import aiokafka as aiokafka_adapter
from tidegate_agent.adapters import kafka_python as kafka_python_adapter
from tidegate_agent.control import ControlLink
from tidegate_agent.own_clients import connection_settings
from tidegate_agent.settings import Settings

PATIENCE_S: Final = 90.0
TELLING_S: Final = 10.0
_POLL_MS: Final = 500
_WRITE_EACH_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Given:
    """A record that the application was given; ``at``: ``time.monotonic``."""

    at: float
    topic: str
    partition: int
    offset: int


@dataclass
class Job:
    """What an application does. ``poll_ms``: how long Java's polls may take."""

    bootstrap: str
    group: str
    topics: Sequence[str]
    settings: Settings
    commit: str = "auto"
    style: str = "batch"
    work_s: float = 0.0
    poll_ms: int = 100
    assigned_by_hand: Sequence[tuple[str, int]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    links: list[ControlLink] = field(default_factory=list)

    def client_config(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": self.commit == "auto",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 10_000,
            "auto_commit_interval_ms": 500,
            "fetch_max_wait_ms": 100,
            **self.config,
        }

    def link(self, config: Mapping[str, Any]) -> ControlLink:
        made = ControlLink(connection_settings(config), self.settings.control_topic, self.settings.acks_topic)
        self.links.append(made)
        return made

    def close_links(self) -> None:
        """Nobody waits for it: a link ends when its reader's poll does."""
        for link in self.links:
            threading.Thread(target=link.close, daemon=True).start()


class Application:
    """One consumer in a thread of its own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.given: list[Given] = []
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._asked: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """As an application ends that knows how to: the consumer is closed."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the application does not end"

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """What the question says of the consumer, asked in its thread between two polls."""
        future: Future[Any] = Future()
        self._asked.put((question, future))
        return future.result(PATIENCE_S)

    @property
    def log(self) -> str:
        """What its process has written, where that is another one than the test's."""
        return ""

    def member_id(self) -> str:
        """As its group knows it."""
        found: str = self.ask(lambda consumer: consumer.group_metadata().member_id)
        return found

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (the test looks at it)
            self.errors.append(error)

    def _work(self) -> None:
        raise NotImplementedError

    def _note(self, record: Any) -> None:
        self.given.append(Given(time.monotonic(), record.topic, record.partition, record.offset))

    def _questions(self) -> Iterator[tuple[Callable[[Any], Any], Future[Any]]]:
        while not self._asked.empty():
            yield self._asked.get()


class KafkaPythonApplication(Application):
    """Styles: ``batch`` (poll), ``record`` (iteration)."""

    def _work(self) -> None:
        job = self.job
        plain = kafka.consumer.group.KafkaConsumer
        kind = kafka_python_adapter.consumer_class(plain, job.settings, job.link)
        timeout = {"consumer_timeout_ms": _POLL_MS} if job.style == "record" else {}
        consumer = kind(**job.client_config(), **timeout)
        try:
            if job.assigned_by_hand:
                consumer.assign([KafkaPartition(*p) for p in job.assigned_by_hand])
            else:
                consumer.subscribe(list(job.topics))
            while not self._stopping.is_set():
                for question, future in self._questions():
                    future.set_result(question(consumer))
                for batch in self._batches(consumer):
                    self._handle(consumer, batch)
        finally:
            consumer.close()

    def _batches(self, consumer: Any) -> Iterator[list[Any]]:
        if self.job.style == "record":
            for record in consumer:
                self._note(record)
                yield [record]
                if self._stopping.is_set() or not self._asked.empty():
                    return
        else:
            records = [r for batch in consumer.poll(_POLL_MS).values() for r in batch]
            for record in records:
                self._note(record)
            if records:
                yield records

    def _handle(self, consumer: Any, batch: list[Any]) -> None:
        if self.job.work_s:
            self._stopping.wait(self.job.work_s)
        if self.job.commit == "position":
            consumer.commit()
        elif self.job.commit == "manual":
            offsets = {KafkaPartition(r.topic, r.partition): OffsetAndMetadata(r.offset + 1, "", -1) for r in batch}
            consumer.commit(offsets)


class AiokafkaApplication(Application):
    """Styles: ``batch`` (getmany), ``one`` (getone), ``record`` (async for)."""

    def member_id(self) -> str:
        found: str = self.ask(lambda consumer: consumer._coordinator.member_id)
        return found

    def _work(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        job = self.job
        plain = aiokafka.consumer.consumer.AIOKafkaConsumer
        kind = aiokafka_adapter.consumer_class(plain, job.settings, job.link)
        topics = () if job.assigned_by_hand else tuple(job.topics)
        consumer = kind(*topics, **job.client_config())
        if job.assigned_by_hand:
            consumer.assign([AioPartition(*p) for p in job.assigned_by_hand])
        await consumer.start()
        reader = asyncio.create_task(self._read(consumer))
        try:
            while not self._stopping.is_set() and not reader.done():
                for question, future in self._questions():
                    answer = question(consumer)
                    future.set_result(await answer if asyncio.iscoroutine(answer) else answer)
                await asyncio.sleep(0.02)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await consumer.stop()
        if not reader.cancelled() and reader.exception() is not None:
            raise AssertionError("the reader ended") from reader.exception()

    async def _read(self, consumer: Any) -> None:
        if self.job.style == "record":
            async for record in consumer:
                self._note(record)
                await self._handle(consumer, [record])
        while True:
            if self.job.style == "one":
                batch = [await consumer.getone()]
            else:
                records = await consumer.getmany(timeout_ms=_POLL_MS)
                batch = [record for found in records.values() for record in found]
            for record in batch:
                self._note(record)
            if batch:
                await self._handle(consumer, batch)

    async def _handle(self, consumer: Any, batch: list[Any]) -> None:
        if self.job.work_s:
            await asyncio.sleep(self.job.work_s)
        if self.job.commit == "position":
            await consumer.commit()
        elif self.job.commit == "manual":
            await consumer.commit({AioPartition(r.topic, r.partition): r.offset + 1 for r in batch})


KINDS: Final[Mapping[str, type[Application]]] = {
    "aiokafka": AiokafkaApplication,
    "kafka-python": KafkaPythonApplication,
}


@contextmanager
def parts_replaced() -> Iterator[None]:
    """The parts of both clients that the adapters replace, for as long as this lasts."""
    holders = (
        aiokafka.consumer.consumer,
        aiokafka_adapter.fetcher,
        aiokafka_adapter.subscription_state,
        kafka.consumer.group,
        kafka_python_adapter.subscription_state,
    )
    before = [(holder, dict(vars(holder))) for holder in holders]
    aiokafka_adapter.replace_parts(aiokafka.consumer.consumer)
    kafka_python_adapter.replace_parts(kafka.consumer.group)
    try:
        yield
    finally:
        for holder, names in before:
            vars(holder).update(names)


class Scene:
    """A topic that is written to all the time, a control topic of its own unless it is given one, and applications of
    one group.

    Partition 0 is the one that is paused; the others show that nothing else is.
    """

    def __init__(
        self, bootstrap: str, topic: str, name: str, *, writes: bool = True, control_topic: str | None = None
    ) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, f"g-{name}"
        connection = Connection(bootstrap, control_topic=control_topic or f"__c-{name}")
        self.settings = Settings(control_topic=connection.control_topic)
        self.client = KafkaClient(connection)
        self.control = self.client.control
        assert self.control.ensure() == ()
        # No hold is the first record of a control topic.
        self.control.hold({HoldKey("nobody", "nothing", 0, "scene"): Hold()})
        self.applications: list[Application] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._partitions = len(self._admin.list_topics(topic, timeout=20).topics[topic].partitions)
        self._ending = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        if writes:
            self._writer.start()

    def close(self) -> None:
        self._ending.set()
        for application in self.applications:
            application.stop()
            application.job.close_links()
        if self._writer.is_alive():
            self._writer.join(PATIENCE_S)
        self.client.close()
        for application in self.applications:
            assert not application.errors, application.errors

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        while not self._ending.wait(_WRITE_EACH_S):
            for partition in range(self._partitions):
                producer.produce(self.topic, b"x", partition=partition)
            producer.poll(0)
        producer.flush(10)

    def write(self, count: int, partition: int = 0) -> None:
        """So many records, all there when this returns."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            producer.produce(self.topic, b"x", partition=partition)
        assert producer.flush(20) == 0

    # --- applications -------------------------------------------------------------------------------------------------

    def application(self, kind: str | Callable[[Job], Application], **job: Any) -> Application:
        """Started. ``kind``: of `KINDS`, or what makes the application of a job."""
        make = KINDS[kind] if isinstance(kind, str) else kind
        made = make(Job(self.bootstrap, self.group, [self.topic], self.settings, **job))
        self.applications.append(made)
        made.start()
        return made

    def flowing(self, *partitions: int, since: float | None = None, by: Sequence[Application] = ()) -> None:
        """Until each partition (absent: all) was given to somebody since (absent: now)."""
        since = time.monotonic() if since is None else since
        wanted = set(partitions or range(self._partitions))
        self.until(lambda: wanted <= {g.partition for g in self.given(by) if g.at > since}, f"{wanted} flow")

    def given(self, by: Sequence[Application] = ()) -> list[Given]:
        found = [given for application in by or self.applications for given in list(application.given)]
        return sorted(found, key=lambda given: given.at)

    def offsets(self, partition: int = 0, since: float = 0.0, by: Sequence[Application] = ()) -> list[int]:
        return [g.offset for g in self.given(by) if g.partition == partition and g.at > since]

    def until(self, reached: Callable[[], bool], what: str | Callable[[], str], seconds: float = PATIENCE_S) -> None:
        def looked() -> bool:
            broken = [error for application in self.applications for error in application.errors]
            assert not broken, broken
            return reached()

        if not eventually(looked, seconds, every=0.01):
            logs = dict.fromkeys(application.log for application in self.applications)
            missed = what if isinstance(what, str) else what()
            raise AssertionError("\n".join([f"not within {seconds} s: {missed}", *filter(None, logs)]))

    # --- gates --------------------------------------------------------------------------------------------------------

    def hold(self, partition: int = 0, *, holder: str = "test", drain_s: float = 20.0) -> int:
        """The hold's epoch."""
        key = HoldKey(self.group, self.topic, partition, holder)
        return self.control.hold({key: Hold("a test", round(drain_s * 1000))})[key]

    def release(self, partition: int = 0, *, holder: str = "test") -> None:
        self.control.release([HoldKey(self.group, self.topic, partition, holder)])

    def limit(self, offset: int | None, partition: int = 0) -> int:
        """Of the holder "test"; ``None`` removes it. The record's offset in the control topic."""
        key = LimitKey(self.group, self.topic, partition, "test")
        return write_limit(self.bootstrap, self.settings.control_topic, key, offset)

    def acked(self, epoch: int, partition: int = 0, *, seconds: float = PATIENCE_S) -> Ack:
        """The ack of this epoch or a later one, once it is there."""
        found: list[Ack] = []

        def there() -> bool:
            ack = acked(self.control.read([self.group]), self.group, TopicPartition(self.topic, partition), epoch)
            if ack is not None:
                found.append(ack)
            return bool(found)

        self.until(there, f"an ack of epoch {epoch}", seconds)
        return found[0]

    def close_gate(self, partition: int = 0, **hold: Any) -> Ack:
        return self.acked(self.hold(partition, **hold), partition)

    def is_still(self, ack: Ack, since: float, partition: int = 0) -> None:
        """Nothing of the partition was given or committed since it was acked, while the others went on."""
        assert self.offsets(partition, since) == []
        assert self.committed(partition) == (ack.offset if ack.offset >= 0 else None)

    def delivered_up_to(self, ack: Ack, partition: int = 0) -> None:
        """What was given of the partition is what was acked; another process may tell it a little later."""
        self.until(
            lambda: self.offsets(partition)[-1:] == [ack.offset - 1],
            lambda: f"partition {partition} given up to {ack.offset}; the last were {self.offsets(partition)[-5:]}",
            TELLING_S,
        )

    # --- offsets ------------------------------------------------------------------------------------------------------

    def committed(self, partition: int = 0) -> int | None:
        asked = ConsumerGroupTopicPartitions(self.group, [ClientPartition(self.topic, partition)])
        [future] = self._admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=20).values()
        [found] = future.result(25).topic_partitions
        return found.offset if found.offset >= 0 else None

    def reset(self, offset: int, partition: int = 0) -> None:
        """As a run resets it: by a transaction, beside the group's owners."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"reset-{self.group}"})
        producer.init_transactions(20)
        producer.begin_transaction()
        outsider = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        metadata = outsider.consumer_group_metadata()
        producer.send_offsets_to_transaction([ClientPartition(self.topic, partition, offset)], metadata, 20)
        producer.commit_transaction(20)
        outsider.close()
        self.until(lambda: self.committed(partition) == offset, f"the reset to {offset} is visible")
