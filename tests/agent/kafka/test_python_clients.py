"""aiokafka's and kafka-python's consumers obey gates: the same scenes for both, on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from devstack import KafkaCluster
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


def is_whole(offsets: list[int]) -> bool:
    """Each record once, in order, none left out."""
    return all(after == before + 1 for before, after in pairwise(offsets))


@pytest.mark.parametrize("commit", ["auto", "manual", "position"])
@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_a_paused_partition_stands_still_and_goes_on_where_it_was(
    scene: Scene, kind: str, style: str, commit: str
) -> None:
    application = scene.application(kind, style=style, commit=commit)
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    assert ack.offset == scene.offsets()[-1] + 1
    member = application.ask(lambda c: c._coordinator.member_id if kind == "aiokafka" else c.group_metadata().member_id)
    assert ack.member == member != ""
    for _ in range(3):
        scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


@pytest.mark.parametrize(("kind", "style"), STYLES)
def test_a_limit_is_where_it_closes_and_goes_on_once_it_is_removed(scene: Scene, kind: str, style: str) -> None:
    application = scene.application(kind, style=style, commit="auto")
    scene.flowing()
    limit = scene.close_gate().offset + 40
    epoch = scene.limit(limit)
    scene.release()  # which is read after the limit
    scene.until(lambda: scene.acked(epoch).offset >= limit, "the limit is reached")
    ack = scene.acked(epoch)
    closed_at = time.monotonic()
    for _ in range(3):
        scene.flowing(1)
    assert ack.offset == limit
    assert scene.offsets()[-1] == limit - 1
    assert scene.offsets(0, closed_at) == []
    assert scene.committed() == limit
    scene.limit(None)
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


@pytest.mark.parametrize(("kind", "style"), STYLES)
@pytest.mark.parametrize("commit", ["auto", "manual"])
def test_a_reset_while_paused_is_where_it_goes_on(scene: Scene, kind: str, style: str, commit: str) -> None:
    application = scene.application(kind, style=style, commit=commit)
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    ack = scene.close_gate()
    target = ack.offset - 20
    scene.reset(target)
    scene.flowing(1)
    assert scene.committed() == target
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0, since=released_at)
    application.stop()
    again = scene.offsets(0, released_at)
    assert again[0] == target
    assert is_whole(again)
    assert is_whole(scene.offsets(1))
    assert scene.committed() == again[-1] + 1


@pytest.mark.parametrize("kind", KINDS)
def test_closing_a_consumer_commits_nothing_of_a_paused_partition(scene: Scene, kind: str) -> None:
    application = scene.application(kind)
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    scene.reset(7)
    application.stop()
    assert scene.committed() == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebalance_while_paused_commits_nothing_and_the_new_owner_stays_paused(scene: Scene, kind: str) -> None:
    first = scene.application(kind)
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    scene.reset(7)
    since = time.monotonic()
    second = scene.application(kind)
    scene.until(
        lambda: {g.partition for g in scene.given([second]) if g.at > since} != set() or owns_0(second), "joined"
    )
    scene.flowing(1)
    assert scene.offsets(0, since) == []
    assert scene.committed() == 7
    epoch = scene.hold(holder="another")
    scene.acked(epoch)
    for holder in ("test", "another"):
        scene.release(holder=holder)
    scene.flowing(0)
    first.stop()
    assert scene.offsets(0, since)[0] == 7


def owns_0(application: object) -> bool:
    return any(tp.partition == 0 for tp in application.ask(lambda c: c.assignment()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_starts_reads_its_gates_first(scene: Scene, kind: str) -> None:
    epoch = scene.hold()
    scene.application(kind)
    scene.flowing(1)
    ack = scene.acked(epoch)
    assert ack.offset in (-1, 0), "auto-commit may have committed where it would begin"
    assert scene.offsets() == []
    scene.release()
    scene.flowing(0)
    assert scene.offsets()[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_each_assigned_partition_is_acked_as_open(scene: Scene, kind: str) -> None:
    scene.application(kind)
    scene.flowing()
    for partition in (0, 1):
        assert scene.acked(0, partition).member != ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_application_finishes_what_it_has_in_hand(scene: Scene, kind: str) -> None:
    application = scene.application(kind, commit="manual", work_s=1.0)
    scene.flowing()
    epoch = scene.hold()
    ack = scene.acked(epoch)
    assert ack.offset == scene.offsets()[-1] + 1 == scene.committed()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_drain_time_out_at_most_what_was_in_hand_comes_twice(scene: Scene, kind: str) -> None:
    # aiokafka's is driven by its loop; kafka-python's acks when it polls, and then it has committed all it had.
    application = scene.application(kind, commit="manual", work_s=2.0)
    scene.until(lambda: (scene.committed() or 0) > 0, "it commits")
    scene.flowing(0)
    ack = scene.close_gate(drain_s=0.2)
    acked_at = time.monotonic()
    before = scene.offsets()
    scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.release()
    scene.flowing(0)
    application.stop()
    offsets = scene.offsets()
    assert set(range(offsets[-1] + 1)) == set(offsets)
    twice = [offset for offset in set(offsets) if offsets.count(offset) > 1]
    assert all(ack.offset <= offset <= before[-1] for offset in twice), (ack, twice)
    assert twice or kind == "kafka-python"


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_that_the_application_paused_goes_on_when_both_let_go(scene: Scene, kind: str) -> None:
    application = scene.application(kind)
    scene.flowing()
    application.ask(lambda c: c.pause(*partition_0(c)))
    paused_at = time.monotonic()
    ack = scene.close_gate()
    scene.release()
    scene.acked(ack.epoch + 1)
    scene.flowing(1)
    assert application.ask(lambda c: [tp.partition for tp in c.paused()]) == [0]
    assert scene.offsets(0, paused_at) == []
    second = scene.close_gate()
    application.ask(lambda c: c.resume(*partition_0(c)))
    scene.flowing(1)
    scene.is_still(second, paused_at)
    assert application.ask(lambda c: c.paused()) == set()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


def partition_0(consumer: object) -> list[object]:
    return [tp for tp in consumer.assignment() if tp.partition == 0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_application_sought_while_paused_is_kept_unless_it_is_reset(scene: Scene, kind: str) -> None:
    application = scene.application(kind)
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    application.ask(lambda c: c.seek(partition_0(c)[0], 3))
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    assert scene.offsets(0, released_at)[0] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_assigned_by_hand_is_paused_too(scene: Scene, kind: str) -> None:
    application = scene.application(kind, assigned_by_hand=[(scene.topic, 0), (scene.topic, 1)])
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    assert ack.member == ""
    scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.reset(5)
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0, released_at)[0] == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_while_the_application_still_works_lets_it_go_on(scene: Scene, kind: str) -> None:
    application = scene.application(kind, commit="manual", work_s=1.5)
    scene.flowing()
    scene.hold()
    scene.release()
    scene.flowing(0)
    scene.hold()
    scene.flowing(1)
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


@pytest.mark.parametrize("kind", KINDS)
def test_gates_opened_and_closed_in_quick_succession_lose_and_repeat_nothing(scene: Scene, kind: str) -> None:
    application = scene.application(kind)
    scene.flowing()
    for _ in range(8):
        scene.hold()
        scene.release()
        scene.hold(holder="another")
        scene.flowing(1)
        scene.release(holder="another")
    scene.close_gate()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


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
    application = start(scene)
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    assert ack.offset == scene.offsets()[-1] + 1
    scene.reset(2)
    for _ in range(3):
        scene.flowing(1)
    assert scene.committed() == 2
    assert scene.offsets(0, acked_at) == []
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0, released_at)[0] == 2
    assert is_whole(scene.offsets(0, released_at))
    assert is_whole(scene.offsets(1))


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
