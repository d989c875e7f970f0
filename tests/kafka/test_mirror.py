"""A partition is copied to another cluster with the same offsets: real brokers, random logs, killed writers."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devstack import KafkaCluster
from devstack.processes import eventually
from support.mirror import writer_process
from support.mirror.random_topic import COMPACTED, RandomTopic
from support.mirror.writers import Pair, Writers, come_to, kill
from support.needs import starts
from support.stack_fixtures import MakeTopic, Unique, topics_of
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import mirror_clients
from tidegate.kafka_client import mirror_requests as requests
from tidegate.kafka_client.mirror_clients import MirrorTarget
from tidegate.kafka_client.wire import Wire
from tidegate.mirror import transitions
from tidegate.mirror.batches import Stamp, read_batches, restamped
from tidegate.mirror.model import Appended, Done, Interrupted, Tail
from tidegate.mirror.records import filler
from tidegate.mirror.states import Way

BOTH_CLEAN = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
"""A compacted target has to forget what filled the offsets before the source's start."""
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "300"}
REPLICATED = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
@starts("kafka")
def elsewhere() -> Iterator[KafkaCluster]:
    """The other cluster."""
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
def make_copy(elsewhere: KafkaCluster, unique: Unique) -> Iterator[MakeTopic]:
    yield from topics_of(elsewhere, unique)


def end_of_log(kafka: KafkaCluster, topic: str) -> int:
    with closing(Wire(Connection(kafka.bootstrap))) as wire:
        return writer_process.end_of(wire, topic)


def copied(pair: Pair, folder: Path, *, compacts: bool = False, way: Way = Way.MARKERS) -> str:
    """What became of it, by a writer in this process."""
    with (
        closing(Wire(Connection(pair.source))) as theirs,
        closing(Wire(Connection(pair.target))) as ours,
    ):
        copier = writer_process.copier(theirs, ours, pair.topic, pair.copy, folder, compacts=compacts, way=way)
        return writer_process.run(copier, writer_process.end_of(theirs, pair.topic))


@pytest.mark.parametrize(
    ("compacts", "way"),
    [(False, Way.MARKERS), (True, Way.MARKERS), (False, Way.TRANSACTIONS)],
    ids=["", "compacted", "by transactions"],
)
def test_a_random_log_is_copied(
    compacts: bool,
    way: Way,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
    make_copy: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic(config=COMPACTED if compacts else {})
    copy = make_copy(config=BOTH_CLEAN if compacts else {})
    pair = Pair(kafka.bootstrap, topic, elsewhere.bootstrap, copy)
    log = RandomTopic(kafka.bootstrap, topic, seed=7, compacts=compacts)
    log.write(600)
    if compacts:
        log.compact()
    else:
        log.delete_before(100)

    assert copied(pair, tmp_path, compacts=compacts, way=way).startswith("done")
    pair.assert_equal()

    log.write(100)
    assert copied(pair, tmp_path, compacts=compacts, way=way).startswith("done")
    pair.assert_equal()


def test_nothing_is_sent_on_another_connection_than_that_on_which_the_end_was_read(
    kafka: KafkaCluster, make_topic: MakeTopic
) -> None:
    partition = TopicPartition(make_topic(), 0)
    with closing(Wire(Connection(kafka.bootstrap))) as wire:
        target = MirrorTarget(wire, partition)
        assert target.tail(1) == Tail(0, 0)
        batch = restamped(filler(3, None), Stamp(10**6, 0, 0))
        wire.close()

        assert isinstance(target.append((batch,)), Interrupted)
        assert isinstance(target.write_markers(10**6, 0, 1), Interrupted)
        assert target.tail(1) == Tail(0, 0)
        assert target.append((batch,)) == Appended((0,))


def test_a_topic_that_takes_only_small_batches_is_filled_up_to_its_start(
    kafka: KafkaCluster, elsewhere: KafkaCluster, make_topic: MakeTopic, make_copy: MakeTopic, tmp_path: Path
) -> None:
    pair = Pair(kafka.bootstrap, make_topic(), elsewhere.bootstrap, make_copy(config={"max.message.bytes": "2000"}))
    with closing(Wire(Connection(kafka.bootstrap))) as wire:
        source = MirrorTarget(wire, TopicPartition(pair.topic, 0))
        source.tail(1)
        assert source.append((restamped(filler(6000, None), Stamp(10**6, 0, 0)),)) == Appended((0,))
        assert source.delete_records(6000) == Done()
        assert source.append((restamped(filler(1, None), Stamp(10**6, 0, 6000)),)) == Appended((6000,))

    assert copied(pair, tmp_path).startswith("done")
    pair.assert_equal()


def test_a_topic_that_gives_records_other_times_is_drift_at_once(
    kafka: KafkaCluster, elsewhere: KafkaCluster, make_topic: MakeTopic, make_copy: MakeTopic, tmp_path: Path
) -> None:
    copy = make_copy(config={"message.timestamp.type": "LogAppendTime"})
    pair = Pair(kafka.bootstrap, make_topic(), elsewhere.bootstrap, copy)
    RandomTopic(kafka.bootstrap, pair.topic, seed=7).write(20)

    said = copied(pair, tmp_path)

    assert said.startswith("stopped")
    assert "LogAppendTime" in said


def test_of_a_long_tail_the_last_batches_are_kept(
    kafka: KafkaCluster, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_clients, "_MOST_OF_A_TAIL", 1000)
    partition = TopicPartition(make_topic(), 0)
    with closing(Wire(Connection(kafka.bootstrap))) as wire:
        target = MirrorTarget(wire, partition)
        target.tail(1)
        for sequence in range(0, 120, 3):
            assert target.append((restamped(filler(3, None), Stamp(10**6, 0, sequence)),)) == Appended((sequence,))
        tail = target.tail(2000)

    assert isinstance(tail, Tail)
    kept = [*read_batches(tail.data)]
    assert (kept[-1].next_offset, kept[0].base_offset) == (tail.end, tail.window)
    assert 5 <= len(kept) < 40
    assert len(tail.data) <= 1000


@pytest.mark.nightly
def test_a_mirror_outlives_the_epochs_of_its_producer_id(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "ROLL_EPOCH", 20)

    assert copied(pair, tmp_path).startswith("done")

    assert len(list(tmp_path.iterdir())) > 2
    pair.assert_equal()


@pytest.mark.nightly
def test_a_mirror_goes_on_after_the_broker_has_forgotten_its_producer(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    topic = make_topic()
    log = RandomTopic(kafka.bootstrap, topic, seed=3)
    with KafkaCluster.start(properties=FORGETFUL) as cluster, closing(Wire(Connection(cluster.bootstrap))) as wire:
        copy = next(topics_of(cluster, unique))()
        pair = Pair(kafka.bootstrap, topic, cluster.bootstrap, copy)
        producers = requests.describe_producers(TopicPartition(copy, 0))

        def forgotten() -> bool:
            leader = requests.leader_of(wire, TopicPartition(copy, 0), "look")
            answer = wire.ask(leader, producers, what="look", timeout_s=5)
            return not requests.listed(answer).active_producers

        for empties in (False, True, False):
            log.write(300)
            if empties:
                log.delete_before(end_of_log(kafka, topic))
            assert copied(pair, tmp_path).startswith("done")
            pair.assert_equal()
            assert eventually(forgotten, 30)


@pytest.fixture
def pair(kafka: KafkaCluster, elsewhere: KafkaCluster, make_topic: MakeTopic, make_copy: MakeTopic) -> Pair:
    """A topic with records, and an empty one."""
    topic = make_topic()
    RandomTopic(kafka.bootstrap, topic, seed=11).write(3000)
    return Pair(kafka.bootstrap, topic, elsewhere.bootstrap, make_copy())


@pytest.mark.parametrize(
    ("kills", "way"),
    [
        (3, Way.MARKERS),
        pytest.param(60, Way.MARKERS, marks=pytest.mark.nightly),
        pytest.param(20, Way.TRANSACTIONS, marks=pytest.mark.nightly),
    ],
)
def test_a_writer_may_be_killed_in_any_state(kills: int, way: Way, pair: Pair, tmp_path: Path) -> None:
    rnd = random.Random(kills)
    with Writers(pair, tmp_path, way) as writers:
        for _ in range(kills):
            process = writers.start()
            come_to(process, rnd.randrange(1, 400 // kills))
            kill(process)

        assert come_to(writers.start(), sys.maxsize).startswith("done")
    pair.assert_equal()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_a_frozen_writer_finds_that_another_went_on(seed: int, pair: Pair, tmp_path: Path) -> None:
    """Whoever is behind the other one gives up, or both end. Where it was frozen just when it sent the last marker of a
    gap, that is seen."""
    rnd = random.Random(seed)
    with Writers(pair, tmp_path) as writers:
        zombie = writers.start()
        come_to(zombie, rnd.randrange(5, 60))
        zombie.send_signal(signal.SIGSTOP)
        successor = writers.start()
        come_to(successor, rnd.randrange(1, 60))
        zombie.send_signal(signal.SIGCONT)
        ends = [come_to(zombie, sys.maxsize), come_to(successor, sys.maxsize)]

    if not any("drifted=True" in end for end in ends):
        assert any(end.startswith("done") for end in ends), ends
        pair.assert_equal()


class Trouble:
    """What can happen to a cluster of three brokers while a partition is copied to it."""

    def __init__(self, cluster: KafkaCluster, rnd: random.Random) -> None:
        self._cluster = cluster
        self._random = rnd

    def killed_broker(self) -> None:
        broker = self._random.choice(self._cluster.brokers)
        self._cluster.kill(broker)
        time.sleep(self._random.uniform(0, 6))  # within and after the election
        self._cluster.restart(broker)

    def stopped_broker(self) -> None:
        self._cluster.restart(self._random.choice(self._cluster.brokers))

    def frozen_broker(self) -> None:
        pid = self._cluster.pid(self._random.choice(self._cluster.brokers))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(0, 8))
        os.kill(pid, signal.SIGCONT)

    @property
    def kinds(self) -> tuple[Callable[[], None], ...]:
        return self.killed_broker, self.stopped_broker, self.frozen_broker


@pytest.mark.nightly
@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("seed", range(6))
def test_brokers_and_writers_may_be_killed_at_once(
    seed: int,
    way: Way,
    kafka3: KafkaCluster,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    make_topic3: MakeTopic,
    tmp_path: Path,
) -> None:
    """A killed broker may write a transaction's marker twice; where that was the last one of a gap, it is seen."""
    rnd = random.Random(seed)
    topic = make_topic()
    RandomTopic(kafka.bootstrap, topic, seed=seed).write(3000)
    pair = Pair(kafka.bootstrap, topic, kafka3.bootstrap, make_topic3(replication_factor=3, config=REPLICATED))
    trouble = Trouble(kafka3, rnd)
    with Writers(pair, tmp_path, way) as writers:
        for _ in range(6):
            process = writers.start()
            come_to(process, rnd.randrange(1, 30))
            rnd.choice(trouble.kinds)()
            if rnd.random() < 0.5:
                come_to(process, rnd.randrange(1, 30))
            kill(process)
        kafka3.wait_ready()
        end = come_to(writers.start(), sys.maxsize)

    if way is Way.TRANSACTIONS and "drifted=True" in end:
        return
    assert end.startswith("done"), end
    pair.assert_equal()
