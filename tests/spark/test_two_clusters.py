"""A group's place is carried from one real broker to another by real Spark: nothing skipped, doubles as foretold."""

from __future__ import annotations

import itertools
import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from support.stack_fixtures import MakeTopic, Unique, topics_of
from tidegate.find.parity import Difference
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromCluster
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase
from tidegate.spark.job import carry_out
from tidegate.spark.parity import compare_logs, find_pairs

FIRST = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MATCH = ("timestamp", "key", "value", "header:trace")


@pytest.fixture(scope="module")
def kafka_there() -> Iterator[KafkaCluster]:
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
def make_topic_there(kafka_there: KafkaCluster, unique: Unique) -> Iterator[MakeTopic]:
    yield from topics_of(kafka_there, unique)


@dataclass
class Mirrored:
    """A topic on both clusters. ``copies``: partition and offset here by origin, all of them."""

    name: str
    written: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


class Mirror:
    """Writes topics there and copies them here, as a mirror at least once would."""

    def __init__(self, there: KafkaCluster, here: KafkaCluster, seed: int) -> None:
        self._there = there
        self._here = here
        self._rng = random.Random(seed)
        self._numbers = itertools.count()

    def write(self, topic: str, partitions: int, records: int, *, transactions: bool = False) -> Mirrored:
        """One record a second, in transactions of ten, every fourth of which is aborted."""
        made = Mirrored(topic)
        settings = {"transactional.id": f"{topic}-writer"} if transactions else {}
        producer = Producer({"bootstrap.servers": self._there.bootstrap, **settings})
        if transactions:
            producer.init_transactions()
        for first in range(0, records, 10):
            if transactions:
                producer.begin_transaction()
            for n in range(first, min(first + 10, records)):
                at = int((FIRST + timedelta(seconds=n)).timestamp() * 1000)
                for p in range(partitions):
                    value = f"{next(self._numbers)}"
                    producer.produce(topic, value, f"k{p}-{n % 7}", p, timestamp=at, headers={"trace": value.encode()})
            producer.flush(30)
            if transactions:
                producer.abort_transaction() if first % 40 == 30 else producer.commit_transaction()
        assert producer.flush(30) == 0
        return made

    def copy(self, made: Mirrored, partitions: int, *, restart: bool, upto: float = 1.0, to: str = "") -> None:
        """Everything, aborted records as well; with ``restart`` the middle third twice. By key where counts differ.
        ``to``: what the topic is called here, where that is another name."""
        read = records_of(self._there.bootstrap, made.name)
        there = {p for p, _ in read}
        producer = Producer({"bootstrap.servers": self._here.bootstrap})

        def delivered(error: Any, message: Any, origin: tuple[int, int]) -> None:
            assert error is None, error
            made.copies[origin].append((message.partition(), message.offset()))

        for p in sorted(there):
            mine = [(offset, m) for (q, offset), m in sorted(read.items()) if q == p]
            mine = mine[: round(len(mine) * upto)]
            made.written[p] = [offset for offset, _ in mine]
            third = len(mine) // 3
            for offset, m in [*mine[: 2 * third], *(mine[third : 2 * third] if restart else []), *mine[2 * third :]]:
                producer.produce(
                    to or made.name,
                    m.value(),
                    m.key(),
                    p if len(there) == partitions else sum(m.key()) % partitions,
                    timestamp=m.timestamp()[1],
                    headers=m.headers(),
                    on_delivery=lambda error, message, origin=(p, offset): delivered(error, message, origin),
                )
        assert producer.flush(30) == 0


def records_of(bootstrap: str, topic: str) -> dict[tuple[int, int], Any]:
    """Every record of a topic, those of aborted transactions too."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    left = set(reader.list_topics(topic, 10).topics[topic].partitions)
    reader.assign([ClientTopicPartition(topic, p, 0) for p in left])
    found: dict[tuple[int, int], Any] = {}
    while left:
        message = reader.poll(30)
        assert message is not None, f"{topic} does not answer"
        if message.error() is None:
            found[message.partition(), message.offset()] = message
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left.discard(message.partition())
    reader.close()
    return found


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [ClientTopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while True:
        [future] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
        if all(p.error is None for p in future.result(30).topic_partitions):
            return
        assert datetime.now(UTC) < deadline, "no offsets topic after 30 s"


def checkpoint_key(group: str, topic: str, partition: int) -> bytes:
    texts = [struct.pack(">H", len(text)) + text.encode() for text in (group, topic)]
    return b"".join(texts) + struct.pack(">i", partition)


def checkpoint(version: int, upstream: int, downstream: int) -> bytes:
    return struct.pack(">hqqH", version, upstream, downstream, 0)


def run(spark: Any, folder: Path, request: RunRequest) -> tuple[RunResult, Run]:
    store = DirectoryRunStore(folder, "run")
    store.create(request)
    result = carry_out(spark, store.location)
    assert result is not None
    return result, store.load()


def test_a_group_goes_on_here_where_it_stood_over_there(
    spark: Any,
    kafka: KafkaCluster,
    kafka_there: KafkaCluster,
    make_topic: MakeTopic,
    make_topic_there: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    mirror, group = Mirror(kafka_there, kafka, 7), unique("group")
    plain, keyed, exact, late = (unique(name) for name in ("plain", "keyed", "exact", "late"))
    shapes = {plain: (2, 2, True), keyed: (2, 3, True), exact: (1, 1, False), late: (1, 1, False)}
    # Topics are called as MirrorMaker 2 calls them where there is a copy of such a name.
    alias = unique("old")
    called = {name: f"{alias}.{name}" if name == late else name for name in shapes}
    made: dict[str, Mirrored] = {}
    committed: dict[TopicPartition, int] = {}
    for name, (there, here, restart) in shapes.items():
        make_topic_there(there, name=name)
        make_topic(here, name=called[name])
        made[name] = mirror.write(name, there, 120, transactions=name == plain)
        mirror.copy(made[name], here, restart=restart, upto=0.5 if name == late else 1, to=called[name])
        for p in range(there):
            committed[TopicPartition(name, p)] = 70 + 5 * p
    commit(kafka_there.bootstrap, group, committed)

    # A checkpoint that would skip records, beside one of another version.
    checkpoints = make_topic(1, name=f"{alias}.checkpoints.internal", config={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(checkpoints, checkpoint(0, 65, 75), checkpoint_key(group, exact, 0))
    producer.produce(checkpoints, checkpoint(1, 65, 60), checkpoint_key(group, called[late], 0))
    assert producer.flush(30) == 0

    target = FromCluster(Connection(kafka_there.bootstrap), group, MATCH, timedelta(minutes=5), alias)
    selections = tuple(Selection(name) for name in called.values())
    request = RunRequest(f"{group}/r1", "r1", group, Connection(kafka.bootstrap), selections, target)
    result, stored = run(spark, tmp_path, request)

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert stored.plan is not None
    targets = stored.plan.targets
    assert set(targets) == {TopicPartition(called[n], q) for n, (_, here, _) in shapes.items() for q in range(here)}
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        assert client.committed(group) == targets
    twice = {}
    for name, m in made.items():
        done = [
            (o, at) for o, copies in m.copies.items() for at in copies if o[1] < committed[TopicPartition(name, o[0])]
        ]
        still = [
            (o, at) for o, copies in m.copies.items() for at in copies if o[1] >= committed[TopicPartition(name, o[0])]
        ]
        assert [o for o, (q, at) in still if at < targets[TopicPartition(called[name], q)]] == [], f"skipped in {name}"
        twice[name] = sum(at >= targets[TopicPartition(called[name], q)] for _, (q, at) in done)
    # The first open record is never done: where nothing was copied twice, nothing is read twice but what is missing.
    assert twice[exact] == twice[late] == 0
    assert targets[TopicPartition(exact, 0)] == 70
    assert targets[TopicPartition(called[late], 0)] == 60
    notes = "\n".join(stored.plan.notes)
    assert f"{called[late]}-0: 10" in notes, notes
    assert f"not used: {exact}-0: 75, taken 70" in notes, notes
    assert f"unchanged, since the same records have the same offsets in the other cluster: {exact}-0" in notes, notes
    assert f"at most {sum(twice.values()) + 10:,} that group {group} has read" in notes, notes


def test_the_first_offset_that_differs_is_named_and_offsets_carry_over_where_none_does(
    spark: Any,
    kafka: KafkaCluster,
    kafka_there: KafkaCluster,
    make_topic: MakeTopic,
    make_topic_there: MakeTopic,
    unique: Unique,
) -> None:
    mirror = Mirror(kafka_there, kafka, 7)
    same, begun, wrong, compacted = (unique(name) for name in ("same", "begun", "wrong", "compacted"))
    for name in (same, begun, wrong, compacted):
        make_topic_there(1, name=name)
        make_topic(1, name=name, config={"cleanup.policy": "compact"} if name == compacted else {})
        made = mirror.write(name, 1, 60)
        if name in (same, begun):
            mirror.copy(made, 1, restart=False, upto=0.5 if name == begun else 1)
    # One record less, so that all behind it are one offset off; and one that is another.
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for (_, offset), m in sorted(records_of(kafka_there.bootstrap, wrong).items()):
        if offset != 41:
            producer.produce(wrong, m.value(), m.key(), 0, timestamp=m.timestamp()[1])
    for (_, offset), m in sorted(records_of(kafka_there.bootstrap, compacted).items()):
        value = b"another" if offset == 20 else m.value()
        producer.produce(compacted, value, m.key(), 0, timestamp=m.timestamp()[1])
    assert producer.flush(30) == 0

    here, there = Connection(kafka.bootstrap), Connection(kafka_there.bootstrap)
    pairs = find_pairs(here, there, [Selection(name) for name in (same, begun, wrong, compacted)])
    found = {p.pair.here.topic: p for p in compare_logs(spark, here, there, pairs)}

    assert [p.carries_over for p in found.values()] == [True, True, False, False]
    assert (found[same].compared, found[same].verdict) == (60, "the same")
    assert found[begun].verdict == "the same; 30 offsets are not here yet"
    assert found[wrong].divergence == (41, Difference.TIMESTAMP)
    assert found[compacted].divergence == (20, Difference.VALUE)
    assert found[compacted].compared == 60


def test_what_transactions_have_aborted_or_left_open_is_not_compared(
    spark: Any,
    kafka: KafkaCluster,
    kafka_there: KafkaCluster,
    make_topic: MakeTopic,
    make_topic_there: MakeTopic,
    unique: Unique,
) -> None:
    """An OffsetMirror leaves the offsets of aborted records without any that is seen."""
    topic, at = unique("aborted"), int(FIRST.timestamp() * 1000)
    make_topic_there(1, name=topic)
    make_topic(1, name=topic)
    producers = []
    for cluster in (kafka, kafka_there):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
        producers.append(producer)
        producer.init_transactions()
        for value in (b"committed", cluster.bootstrap.encode(), b"committed"):
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(topic, value, b"k", 0, timestamp=at)
            assert producer.flush(30) == 0
            producer.commit_transaction() if value == b"committed" else producer.abort_transaction()
    producers[1].begin_transaction()
    producers[1].produce(topic, b"open", b"k", 0, timestamp=at)
    assert producers[1].flush(30) == 0

    here, there = Connection(kafka.bootstrap), Connection(kafka_there.bootstrap)
    [found] = compare_logs(spark, here, there, find_pairs(here, there, [Selection(topic)]))
    producers[1].abort_transaction()

    assert (found.compared, found.verdict) == (20, "the same")
