"""aiokafka's and kafka-python's consumers obey gates: the same scenes for both, on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from devstack import KafkaCluster
from support import gate_scenes
from support.clients import ConsumerFleet
from support.gated_applications import (
    AiokafkaApplication,
    Application,
    Job,
    KafkaPythonApplication,
    Scene,
    parts_replaced,
)
from support.stack_fixtures import MakeTopic, Unique
from tidegate_agent.adapters import aiokafka as aiokafka_adapter
from tidegate_agent.adapters import kafka_python as kafka_python_adapter

pytestmark = pytest.mark.at_once(6)

KINDS = ("aiokafka", "kafka-python")
STYLES = [("aiokafka", "batch"), ("aiokafka", "one"), ("aiokafka", "record")]
STYLES += [("kafka-python", "batch"), ("kafka-python", "record")]


@pytest.fixture
def scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Iterator[Scene]:
    with parts_replaced():
        made = Scene(kafka.bootstrap, make_topic(2), unique("gated"))
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("commit", ["auto", "manual", "position"])
@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_a_paused_partition_stands_still_and_goes_on_where_it_was(
    scene: Scene, kind: str, style: str, commit: str
) -> None:
    start = partial(scene.application, kind, style=style, commit=commit)
    gate_scenes.it_stands_still_and_goes_on_where_it_was(scene, start)


@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_a_limit_is_where_it_closes_and_goes_on_once_it_is_removed(scene: Scene, kind: str, style: str) -> None:
    gate_scenes.a_limit_is_where_it_closes(scene, partial(scene.application, kind, style=style))


@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_a_limit_within_a_batch_is_where_it_closes(scene: Scene, kind: str, style: str) -> None:
    gate_scenes.a_limit_within_a_batch_is_where_it_closes(scene, partial(scene.application, kind, style=style))


@pytest.mark.parametrize(("kind", "style"), [("aiokafka", "batch"), ("kafka-python", "record")])
def test_a_limit_behind_the_marker_of_a_transaction_is_reached_though_no_record_comes(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, kind: str, style: str
) -> None:
    """The end of a log that nobody writes to, say: the next record would be at the limit or after it."""
    with parts_replaced():
        scene = Scene(kafka.bootstrap, make_topic(1), unique("marked"), writes=False)
        try:
            producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": scene.topic})
            producer.init_transactions(20)
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(scene.topic, b"x", partition=0)
            producer.commit_transaction(20)
            epoch = scene.limit(11)
            scene.application(kind, style=style)
            scene.until(lambda: scene.acked(epoch).offset >= 11, "the limit is reached")
            assert scene.offsets() == list(range(10))
        finally:
            scene.close()


@pytest.mark.parametrize(("kind", "style"), STYLES)
@pytest.mark.parametrize("commit", ["auto", "manual"])
def test_a_reset_while_paused_is_where_it_goes_on(scene: Scene, kind: str, style: str, commit: str) -> None:
    start = partial(scene.application, kind, style=style, commit=commit)
    gate_scenes.after_a_reset_it_goes_on_at_the_target(scene, start)


@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_the_only_record_since_it_goes_on_is_waited_for(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, kind: str, style: str
) -> None:
    with parts_replaced():
        scene = Scene(kafka.bootstrap, make_topic(1), unique("single"), writes=False)
        try:
            scene.write(30)
            application = scene.application(kind, style=style, config={"enable_auto_commit": False})
            scene.until(lambda: scene.offsets()[-1:] == [29], "all is delivered")
            application.ask(lambda consumer: consumer.commit())
            scene.close_gate()
            scene.reset(29)
            scene.release()
            scene.until(lambda: len(scene.offsets()) == 31, "the last one is delivered again")
            epoch = scene.hold()
            application.ask(lambda consumer: consumer.commit())
            assert scene.acked(epoch).offset == 30
        finally:
            scene.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("play", gate_scenes.AT_ANY, ids=lambda play: play.__name__)
def test_gates_are_obeyed(scene: Scene, kind: str, play: gate_scenes.Play) -> None:
    play(scene, partial(scene.application, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_drain_time_out_at_most_what_was_in_hand_comes_twice(scene: Scene, kind: str) -> None:
    # aiokafka's is driven by its loop; kafka-python's acks when it polls, and then it has committed all it had.
    gate_scenes.after_the_drain_time_out_only_what_was_in_hand_comes_twice(
        scene, partial(scene.application, kind), always_twice=kind != "kafka-python"
    )


def exactly_once_aiokafka(scene: Scene) -> Application:
    class ExactlyOnce(AiokafkaApplication):
        async def _handle(self, _consumer: Any, batch: list[Any]) -> None:
            producer = self.__dict__.get("producer")
            if producer is None:
                kind = aiokafka_adapter.producer_class(AIOKafkaProducer)
                name = f"eos-{self.job.group}"
                producer = self.__dict__["producer"] = kind(bootstrap_servers=self.job.bootstrap, transactional_id=name)
                await producer.start()
            async with producer.transaction():
                await asyncio.sleep(self.job.work_s)
                offsets = {AioPartition(r.topic, r.partition): r.offset + 1 for r in batch}
                await producer.send_offsets_to_transaction(offsets, self.job.group)
            if self._stopping.is_set():
                await producer.stop()

    return started(scene, ExactlyOnce)


def exactly_once_kafka_python(scene: Scene) -> Application:
    class ExactlyOnce(KafkaPythonApplication):
        def _handle(self, consumer: Any, batch: list[Any]) -> None:
            producer = self.__dict__.get("producer")
            if producer is None:
                kind = kafka_python_adapter.producer_class(KafkaProducer)
                name = f"eos-{self.job.group}"
                producer = self.__dict__["producer"] = kind(bootstrap_servers=self.job.bootstrap, transactional_id=name)
                producer.init_transactions()
            producer.begin_transaction()
            time.sleep(self.job.work_s)
            offsets = {KafkaPartition(r.topic, r.partition): OffsetAndMetadata(r.offset + 1, "", -1) for r in batch}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            if self._stopping.is_set():
                producer.close()

    return started(scene, ExactlyOnce)


def started(scene: Scene, kind: type[Application]) -> Application:
    application = kind(Job(scene.bootstrap, scene.group, [scene.topic], scene.settings, commit="eos", work_s=0.3))
    scene.applications.append(application)
    application.start()
    return application


@pytest.mark.parametrize("start", [exactly_once_aiokafka, exactly_once_kafka_python])
def test_an_exactly_once_application_drains_by_its_transactions(
    scene: Scene, start: Callable[[Scene], Application]
) -> None:
    gate_scenes.it_drains_by_its_transactions(scene, lambda: start(scene))


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_behind_transactions_markers_drain_at_once(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, kind: str
) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(20)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.commit_transaction(20)
    with parts_replaced():
        scene = Scene(kafka.bootstrap, topic, unique("gated"), writes=False)
        try:
            # Offsets 0, 2, 4 are records, 1, 3, 5 are markers: the client's position is 6, the application commits 5.
            application = scene.application(kind, commit="manual")
            scene.until(lambda: scene.committed() == 5, "all is read and committed")
            assert scene.acked(scene.hold(drain_s=60.0), seconds=10.0).offset == 5
            scene.release()
            application.stop()
        finally:
            scene.close()
    assert scene.offsets() == [0, 2, 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("commit", ["auto", "sync"])
def test_a_consumer_killed_while_it_closes_is_replaced_by_one_that_is_closed(
    scene: Scene, kind: str, commit: str
) -> None:
    with fleet(scene, kind, commit) as consumers:
        consumers.wait_assigned([(scene.topic, 0), (scene.topic, 1)])
        scene.until(lambda: consumers.last_delivery((scene.topic, 0)) is not None, "it reads")
        epoch = scene.hold()
        consumers.kill_process(0)
        consumers.add("second")
        ack = scene.acked(epoch)
        acked_at = time.time()
        scene.until(lambda: any(d.partition == 1 for d in consumers.records(acked_at)), "the other flows")
        assert [d for d in consumers.records(acked_at) if d.partition == 0] == []
        assert scene.committed() == (ack.offset if ack.offset >= 0 else None)
        scene.reset(3)
        scene.release()
        scene.until(lambda: any(d.partition == 0 for d in consumers.records(acked_at)), "it goes on")
        assert next(d.offset for d in consumers.records(acked_at) if d.partition == 0) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_killed_while_it_opens_is_replaced_by_one_that_goes_on_at_the_target(
    scene: Scene, kind: str
) -> None:
    with fleet(scene, kind, "auto") as consumers:
        consumers.wait_assigned([(scene.topic, 0), (scene.topic, 1)])
        scene.until(lambda: consumers.last_delivery((scene.topic, 0)) is not None, "it reads")
        scene.close_gate()
        scene.reset(3)
        since = time.time()
        scene.release()
        consumers.kill_process(0)
        consumers.add("second")
        scene.until(
            lambda: any(d.member == "second" and d.partition == 0 for d in consumers.records(since)), "it reads"
        )
        given = [d for d in consumers.records(since) if d.partition == 0]
        assert given[0].offset == 3
        again = next(d.offset for d in given if d.member == "second")
        assert again <= max([3, *(d.offset + 1 for d in given if d.member != "second")])


def fleet(scene: Scene, kind: str, commit: str) -> ConsumerFleet:
    return ConsumerFleet(
        kind,
        scene.bootstrap,
        scene.group,
        [scene.topic],
        ["first"],
        commit=commit,
        session_s=6.0,
        heartbeat_s=0.5,
        auto_commit_interval_s=0.5,
        agent=True,
        control_topic=scene.settings.control_topic,
    )
