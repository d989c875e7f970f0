"""An application on ``confluent_kafka`` that runs the agent, beside the operator's end of the two topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any, Self

from confluent_kafka import DeserializingConsumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.processes import eventually
from support.limits import write_limit
from support.obeyed import acked
from tidegate.control.records import Ack, Hold, HoldKey, LimitKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition as Partition
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent import process
from tidegate_agent.adapters.confluent import ManagedConsumer, ManagedProducer
from tidegate_agent.own_clients import plain
from tidegate_agent.settings import Settings

PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}


class ManagedDeserializingConsumer(ManagedConsumer, DeserializingConsumer):  # type: ignore[misc]
    """As ``DeserializingConsumer`` is where the agent comes in before the library."""


class Production:
    """Records into both partitions, some fifty a second, until the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 2) -> None:
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self._thread = threading.Thread(target=self._run, args=(topic, partitions), daemon=True)

    def _run(self, topic: str, partitions: int) -> None:
        number = 0
        while not self._stop.wait(0.02):
            for partition in range(partitions):
                self._producer.produce(topic, str(number).encode(), partition=partition)
            number += 1
            self._producer.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)


class Application:
    """A poll loop in a thread. ``commit``: auto, sync, async, message, store, none, or ``transaction``.

    ``hold_s``: how long it keeps a record before it commits it, where it commits by message.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        protocol: str = "range",
        style: str = "poll",
        commit: str = "auto",
        by_hand: bool = False,
        tells_revocations: bool = False,
        hold_s: float = 0.0,
        kind: type[Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.topic, self.style, self.commit, self.hold_s = topic, style, commit, hold_s
        self.delivered: list[tuple[float, int, int]] = []
        self.revoked: list[dict[int, int]] = []
        """Where it stood in the partitions of each revocation that it was told of."""
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._do: list[Callable[[Any], Any]] = []
        cls = kind or (ManagedDeserializingConsumer if style == "deserializing" else ManagedConsumer)
        self.consumer = cls(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": commit in ("auto", "store"),
                "enable.auto.offset.store": commit != "store",
                "auto.commit.interval.ms": 300,
                **({} if by_hand else PROTOCOLS[protocol]),
                **(config or {}),
            }
        )
        if by_hand:
            self.consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        elif tells_revocations:
            self.consumer.subscribe([topic], on_revoke=self._on_revoke)
        else:
            self.consumer.subscribe([topic])
        self._producer: Any = None
        if commit == "transaction":
            self._producer = ManagedProducer({"bootstrap.servers": bootstrap, "transactional.id": group})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._producer is not None:
                self._producer.init_transactions(30)
            while not self._stop.is_set():
                while self._do:
                    self._do.pop(0)(self.consumer)
                messages = self._poll()
                now = time.time()
                self.delivered += [(now, m.partition(), m.offset()) for m in messages]
                if messages:
                    self._commit(messages)
            self.consumer.close()
        except BaseException as error:
            self.error = error
            raise

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        assert set(partitions) <= set(consumer.assignment())
        self.revoked.append({p.partition: p.offset for p in consumer.position(partitions)})
        consumer.commit(asynchronous=False)

    def _poll(self) -> list[Any]:
        if self.style == "consume":
            found = self.consumer.consume(50, 0.3)
        else:
            one = self.consumer.poll(0.3)
            found = [] if one is None else [one]
        return [message for message in found if message.error() is None]

    def _commit(self, messages: list[Any]) -> None:
        if self.hold_s:
            self._stop.wait(self.hold_s)
        match self.commit:
            case "sync":
                self.consumer.commit(asynchronous=False)
            case "async":
                self.consumer.commit()
            case "message":
                for message in {message.partition(): message for message in messages}.values():
                    self.consumer.commit(message=message, asynchronous=False)
            case "store":
                for message in messages:
                    self.consumer.store_offsets(message)
            case "transaction":
                self._producer.begin_transaction()
                offsets = self.consumer.position(self.consumer.assignment())
                metadata = self.consumer.consumer_group_metadata()
                self._producer.send_offsets_to_transaction([p for p in offsets if p.offset >= 0], metadata, 10)
                self._producer.commit_transaction(10)

    def do(self, action: Callable[[Any], Any]) -> Any:
        """Have the application do this between two polls; its result. From outside it would wait for a gap in them."""
        outcome: Queue[Any] = Queue()
        self._do.append(lambda consumer: outcome.put(action(consumer)))
        return outcome.get(timeout=20)

    @property
    def owned(self) -> set[int]:
        return {partition.partition for partition in self.do(lambda consumer: consumer.assignment())}

    @property
    def member(self) -> str:
        name: str = self.do(lambda consumer: consumer.memberid())
        return name

    def offsets(self, partition: int, since: float = 0.0) -> list[int]:
        return [offset for t, p, offset in list(self.delivered) if p == partition and t > since]

    def wait_flowing(self, *partitions: int, since: float | None = None, timeout: float = 40) -> None:
        after = time.time() if since is None else since

        def flows() -> bool:
            assert self.error is None, self.error
            return all(self.offsets(partition, after) for partition in partitions)

        assert eventually(flows, timeout), f"{partitions} do not flow"

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def links_of_its_own(settings: Settings | None = None) -> Iterator[None]:
    """Consumers that are made meanwhile share their links with no others, and these end with it."""
    before, own = process._process, process._Process(settings=settings)
    process._process = own
    try:
        yield
    finally:
        process._process = before
        for link in own.links.values():
            link.close()


class Scene:
    """A topic of two partitions with records coming in, a group, and a control topic of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        connection = Connection(bootstrap, control_topic=f"__c-{group}")
        self.settings = Settings(control_topic=connection.control_topic)
        self._kafka = KafkaClient(connection)
        self.control = self._kafka.control
        assert self.control.ensure() == ()
        self._outside = plain(ManagedConsumer)({"bootstrap.servers": bootstrap, "group.id": group})
        self._writer: Any = None
        self.applications: list[Application] = []
        self._production = Production(bootstrap, topic)
        self._production.__enter__()

    def application(self, **options: Any) -> Application:
        made = Application(self.bootstrap, self.group, self.topic, **options)
        self.applications.append(made)
        return made

    def key(self, partition: int, holder: str = "test") -> HoldKey:
        return HoldKey(self.group, self.topic, partition, holder)

    def hold(self, *partitions: int, drain_s: float = 20.0, holder: str = "test") -> int:
        """The newest epoch."""
        hold = Hold("a test", round(drain_s * 1000))
        return max(self.control.hold({self.key(p, holder): hold for p in partitions}).values())

    def release(self, *partitions: int, holder: str = "test") -> None:
        self.control.release([self.key(p, holder) for p in partitions])

    def limit(self, partition: int, offset: int | None) -> int:
        """The record's epoch; ``None`` removes it."""
        key = LimitKey(self.group, self.topic, partition, "test")
        return write_limit(self.bootstrap, self.settings.control_topic, key, offset)

    def acked(self, partition: int, epoch: int | None = None) -> Ack | None:
        return acked(self.control.read([self.group]), self.group, Partition(self.topic, partition), epoch)

    def wait_acked(self, *partitions: int, timeout: float = 20, epoch: int | None = None) -> Ack:
        """The first one's ack."""
        assert eventually(lambda: all(self.acked(p, epoch) for p in partitions), timeout), "not acked"
        ack = self.acked(partitions[0], epoch)
        assert ack is not None
        return ack

    def pause(self, *partitions: int, drain_s: float = 20.0) -> Ack:
        self.hold(*partitions, drain_s=drain_s)
        return self.wait_acked(*partitions)

    def committed(self, partition: int) -> int:
        asked = [TopicPartition(self.topic, partition)]
        offset: int = self._outside.committed(asked, 20)[0].offset
        return offset

    def reset(self, partition: int, offset: int) -> None:
        """As a gated reset does it: one transaction, until it is visible."""
        if self._writer is None:
            self._writer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"reset-{self.group}"})
            self._writer.init_transactions(30)
        self._writer.begin_transaction()
        metadata = self._outside.consumer_group_metadata()
        self._writer.send_offsets_to_transaction([TopicPartition(self.topic, partition, offset)], metadata, 10)
        self._writer.commit_transaction(10)
        assert eventually(lambda: self.committed(partition) == offset, 90)

    def recreate_topic(self) -> None:
        """Deleted with its records, and created again with others; its name and its partitions stay."""
        self._production.__exit__()
        self.admin.delete_topics([self.topic], operation_timeout=20)[self.topic].result(20)

        def created() -> bool:
            """False while the old one is still on its way out."""
            error = self.admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].exception(20)
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if error is not None:
                raise error
            return True

        assert eventually(created, 60), "the old topic does not go away"
        self._production = Production(self.bootstrap, self.topic)
        self._production.__enter__()

    def close(self) -> None:
        for application in self.applications:
            application.close()
        self._production.__exit__()
        self._outside.close()
        self._kafka.close()
