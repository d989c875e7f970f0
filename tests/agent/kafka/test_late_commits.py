"""Records in hand while their partition is taken away, reset and given back: to commit them does not undo the reset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

import aiokafka.consumer.consumer
import kafka.consumer.group
import pytest
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import TopicPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from agent.kafka.confluent_application import links_of_its_own
from devstack import KafkaCluster
from support.gated_applications import Job, Scene, parts_replaced
from support.stack_fixtures import MakeTopic, Unique
from tidegate_agent.adapters import aiokafka as aiokafka_adapter
from tidegate_agent.adapters import kafka_python as kafka_python_adapter
from tidegate_agent.adapters.confluent import ManagedConsumer

pytestmark = pytest.mark.at_once(6)

WITHIN_S = 90.0


class Client(Protocol):
    """One consumer that commits by hand; the topic has one partition."""

    def take(self) -> int:
        """The next record's offset."""

    def leave(self) -> None:
        """Give the partition back; the consumer goes on."""

    def join(self) -> None: ...

    def commit(self, offset: int) -> None: ...

    def close(self) -> None: ...


def first(take: Callable[[], int | None]) -> int:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if (offset := take()) is not None:
            return offset
    raise AssertionError(f"no record within {WITHIN_S} s")


class Confluent:
    def __init__(self, job: Job) -> None:
        self._job = job
        config = {"bootstrap.servers": job.bootstrap, "group.id": job.group, "auto.offset.reset": "earliest"}
        self._consumer = ManagedConsumer({**config, "enable.auto.commit": False})
        self.join()

    def take(self) -> int:
        def one() -> int | None:
            message = self._consumer.poll(0.1)
            return message.offset() if message is not None and message.error() is None else None

        return first(one)

    def leave(self) -> None:
        self._consumer.unsubscribe()
        while self._consumer.assignment():
            self._consumer.poll(0.05)

    def join(self) -> None:
        self._consumer.subscribe(list(self._job.topics))

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(self._job.topics[0], 0, offset)], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, job: Job) -> None:
        self._job = job
        kind = kafka_python_adapter.consumer_class(kafka.consumer.group.KafkaConsumer, job.settings, job.link)
        self._consumer = kind(**job.client_config(), max_poll_records=1)
        self.join()

    def take(self) -> int:
        def one() -> int | None:
            return next((r.offset for batch in self._consumer.poll(100).values() for r in batch), None)

        return first(one)

    def leave(self) -> None:
        self._consumer.unsubscribe()

    def join(self) -> None:
        self._consumer.subscribe(list(self._job.topics))

    def commit(self, offset: int) -> None:
        self._consumer.commit({KafkaPartition(self._job.topics[0], 0): OffsetAndMetadata(offset, "", -1)})

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.new_event_loop()
        kind = aiokafka_adapter.consumer_class(aiokafka.consumer.consumer.AIOKafkaConsumer, job.settings, job.link)

        async def started() -> Any:
            consumer = kind(**job.client_config())
            consumer.subscribe(list(job.topics))
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(started())

    def _wait(self, what: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(what, WITHIN_S))

    def take(self) -> int:
        offset: int = self._wait(self._consumer.getone()).offset
        return offset

    def leave(self) -> None:
        async def leave() -> None:
            self._consumer.unsubscribe()

        self._wait(leave())

    def join(self) -> None:
        async def join() -> None:
            self._consumer.subscribe(list(self._job.topics))

        self._wait(join())

    def commit(self, offset: int) -> None:
        self._wait(self._consumer.commit({AioPartition(self._job.topics[0], 0): offset}))

    def close(self) -> None:
        self._wait(self._consumer.stop())
        self._loop.close()


@pytest.fixture
def scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Iterator[Scene]:
    with parts_replaced():
        made = Scene(kafka.bootstrap, make_topic(1), unique("late"))
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("target", [3, 12])
@pytest.mark.parametrize("kind", [Confluent, KafkaPython, Aiokafka])
def test_what_was_in_hand_is_not_committed_once_the_partition_is_back(
    scene: Scene, kind: Callable[[Job], Client], target: int
) -> None:
    job = Job(scene.bootstrap, scene.group, [scene.topic], scene.settings, commit="manual")
    with links_of_its_own(scene.settings), closing(kind(job)) as client:
        while client.take() < 9:
            pass
        client.leave()
        scene.hold()
        scene.reset(target)
        scene.release()
        client.join()
        assert client.take() == target
        client.commit(10)
        assert scene.committed() == target
        client.commit(target + 1)
        assert scene.committed() == target + 1
    job.close_links()
