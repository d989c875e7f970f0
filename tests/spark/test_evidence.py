"""Evidence gathered by real Spark from a real broker, against what was produced."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support.stack_fixtures import topics_of
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.codec import encode_evidence
from tidegate.reset.evidence import Amount, Evidence, HistogramSource
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import EvidenceLevel, EvidenceSettings, RunRequest
from tidegate.reset.model.targets import RecordSchema, ToOffset, ToRecord
from tidegate.resources.targets import SchemaFormat
from tidegate.spark import evidence as module
from tidegate.spark.evidence import gather

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIRST = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Made:
    """A record as it was produced; ``offset`` within its partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    at: datetime


@dataclass(frozen=True)
class World:
    bootstrap: str
    topic: str
    logs: dict[int, list[Made]]

    def plan(self, *moves: tuple[int, int | None, int]) -> Plan:
        """(partition, committed, target); with the times of the first and the last record that moves."""
        rows = []
        for partition, committed, target in moves:
            low, high = sorted((committed if committed is not None else target, target))
            times = [m.at for m in self.logs[partition] if low <= m.offset < high]
            end = max(m.offset for m in self.logs[partition]) + 1
            rows.append(
                PartitionPlan(
                    *(self.topic, partition, "id", committed, target, 0, end),
                    span_from=times[0] if times else None,
                    span_to=times[-1] if times else None,
                )
            )
        return Plan("r1", "g", FIRST, tuple(rows))

    def request(self, **settings: Any) -> RunRequest:
        evidence = EvidenceSettings(**{"level": EvidenceLevel.RECORDS, **settings})
        return RunRequest("uid/r1", "r1", "g", Connection(self.bootstrap), (), ToOffset(1), evidence=evidence)

    def between(self, partition: int, start: int, end: int) -> list[Made]:
        return [m for m in self.logs[partition] if start <= m.offset < end]


def expected(offsets: int, made: list[Made]) -> Amount:
    """Keys apart, which are approximate."""
    return Amount(
        offsets=offsets,
        looked_at=offsets,
        records=len(made),
        bytes=sum(len(m.key or b"") + len(m.value or b"") for m in made),
        keys=None,
        without_key=sum(m.key is None for m in made),
        tombstones=sum(m.value is None for m in made),
    )


@pytest.fixture(scope="module")
def world(kafka: KafkaCluster) -> Iterator[World]:
    """Partition 0: 2,000 records, one a minute, a little out of order. 1: 500 in a committed transaction, then 100
    of an aborted one, then 400 more. 2: 4 records, one of which would drive a terminal, and one
    is of the year 33658."""
    with contextmanager(topics_of)(kafka, lambda _="": f"evidence-{uuid.uuid4().hex[:8]}") as make_topic:
        any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        yield produced(kafka.bootstrap, make_topic(3, config=any_time))


def produced(bootstrap: str, topic: str) -> World:
    logs: dict[int, list[Made]] = {0: [], 1: [], 2: []}
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(by: Producer, partition: int, offset: int, key: bytes | None, value: bytes | None, at: datetime) -> None:
        by.produce(topic, value, key, partition, timestamp=int(at.timestamp() * 1000))
        logs[partition].append(Made(offset, key, value, at))

    for n in range(2_000):
        at = FIRST + timedelta(minutes=n - (n % 7 == 3) * 2)
        send(producer, 0, n, None if n % 50 == 0 else b"k%d" % (n % 700), None if n % 40 == 0 else b"v" * (n % 90), at)
    send(producer, 2, 0, b"a\x1b[2J", b"<script>\xff\x00", FIRST)
    send(producer, 2, 1, b"secret-key", b"secret-value " * 40, FIRST)
    send(producer, 2, 2, b"secret-key", None, FIRST)
    producer.produce(topic, b"far off", None, 2, timestamp=10**15)
    logs[2].append(Made(3, None, b"far off", FIRST))
    assert producer.flush(30) == 0
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    transactional.init_transactions(30)
    offset = 0
    for count, commit in ((500, True), (100, False), (400, True)):
        transactional.begin_transaction()
        for n in range(offset, offset + count):
            if commit:
                send(transactional, 1, n, b"t%d" % n, b"12345", FIRST + timedelta(seconds=n))
            else:
                transactional.produce(topic, b"never", partition=1)
        assert transactional.flush(30) == 0  # what is not sent before an abort never is
        (transactional.commit_transaction if commit else transactional.abort_transaction)(30)
        offset += count + 1  # the marker
    return World(bootstrap, topic, logs)


def gathered(spark: Any, world: World, plan: Plan, **settings: Any) -> Evidence:
    return gather(spark, world.request(**settings), plan, SystemClock(), lambda: False)


def test_what_is_read_is_counted_exactly(spark: Any, world: World) -> None:
    evidence = gathered(spark, world, world.plan((0, 1_900, 100), (1, 10, 900), (2, 1, 1)))

    [topic] = evidence.topics
    assert topic.replayed is not None
    assert topic.skipped is not None
    back, on = world.between(0, 100, 1_900), world.between(1, 10, 900)
    assert replace(topic.replayed, keys=None) == expected(1_800, back)
    assert replace(topic.skipped, keys=None) == expected(890, on)
    assert len(on) == 788  # 100 were aborted, two offsets are markers
    assert topic.replayed.keys == pytest.approx(len({m.key for m in back} - {None}), rel=0.06)
    assert topic.skipped.keys == pytest.approx(788, rel=0.06)
    assert evidence.read == 2_588
    histogram = topic.histogram
    assert histogram is not None
    assert histogram.source is HistogramSource.RECORDS
    assert histogram.replayed == tuple(
        sum(in_bucket(histogram.start, histogram.width, len(histogram.replayed), m.at) == n for m in back)
        for n in range(len(histogram.replayed))
    )
    assert sum(histogram.skipped) == 788
    assert evidence.notes == ()


def in_bucket(start: datetime, width: timedelta, count: int, at: datetime) -> int:
    return min(max((at - start) // width, 0), count - 1)


def test_a_part_is_read_where_there_is_too_much_and_the_rest_estimated(spark: Any, world: World) -> None:
    evidence = gathered(spark, world, world.plan((0, 2_000, 0)), max_records=400)

    [topic] = evidence.topics
    assert topic.replayed is not None
    assert topic.replayed.looked_at == topic.replayed.records == 400
    assert topic.replayed.is_sampled
    all_bytes = expected(2_000, world.between(0, 0, 2_000)).bytes
    assert topic.replayed.estimated_bytes == pytest.approx(all_bytes, rel=0.1)
    assert topic.histogram is not None
    assert (topic.histogram.source, sum(topic.histogram.replayed)) == (HistogramSource.INDEX, 2_000)
    assert evidence.notes == (
        "Read were 400 of 2,000 offsets, spread over 1 of 1 partitions (maxRecords): bytes are estimated by them, and "
        "there may be more different keys",
    )


def test_samples_stand_beside_each_target_and_hide_what_is_in_them(spark: Any, world: World) -> None:
    plan = world.plan((0, 500, 1_000), (1, 400, 501), (2, 3, 1))
    evidence = gathered(spark, world, plan)

    sides = [(s.partition, s.offset, s.from_target) for s in evidence.samples]
    # Offset 500 of partition 1 is a marker, and 501 to 601 were aborted: nothing is near enough behind the target.
    assert sides == [
        *((0, 998, False), (0, 999, False), (0, 1_000, True), (0, 1_001, True)),
        *((1, 498, False), (1, 499, False)),
        *((2, 0, False), (2, 1, True), (2, 2, True)),
    ]
    stored = encode_evidence(evidence)
    for hidden in ("secret", "k300", "script", "\\u001b"):
        assert hidden not in stored
    last, tombstone = evidence.samples[-2:]
    assert last.key is not None
    assert tombstone.key is not None
    assert last.key.digest == tombstone.key.digest != evidence.samples[-3].key
    assert (last.key.bytes, last.value and last.value.bytes, tombstone.value) == (10, 520, None)
    again = gathered(spark, world, plan).samples[-1].key
    assert again is not None
    assert again.digest != tombstone.key.digest  # another salt


def test_values_are_shown_cut_and_escaped_where_the_policy_says_so(spark: Any, world: World) -> None:
    evidence = gathered(spark, world, world.plan((2, 3, 1)), show_values=True)

    first, second, third = evidence.samples
    assert first.key is not None
    assert first.value is not None
    assert (first.key.text, first.value.text, first.value.cut) == ("a\\x1b[2J", "<script>\\xff\\x00", False)
    assert second.value is not None
    assert second.value.text == ("secret-value " * 40)[:200]
    assert (second.value.cut, second.value.bytes) == (True, 520)
    assert third.key is not None
    assert (third.key.text, third.value) == ("secret-key", None)
    assert "\x1b" not in json.loads(encode_evidence(evidence))["samples"][0]["key"]["text"]


def test_a_time_that_no_calendar_has_is_left_out(spark: Any, world: World) -> None:
    with closing(KafkaClient(Connection(world.bootstrap))) as client:
        assert client.record_times({TopicPartition(world.topic, 2): 3}) == {}
    evidence = gathered(spark, world, world.plan((2, 4, 3)))

    assert [(s.offset, s.at) for s in evidence.samples] == [(1, FIRST), (2, FIRST), (3, None)]
    [topic] = evidence.topics
    assert topic.histogram is not None
    assert topic.histogram.replayed == (1,)
    assert evidence.notes == ()


def test_counts_read_no_record(spark: Any, world: World) -> None:
    evidence = gathered(spark, world, world.plan((0, 2_000, 400)), level=EvidenceLevel.COUNTS)

    [topic] = evidence.topics
    assert topic.replayed == Amount(1_600)
    assert topic.histogram is not None
    assert sum(topic.histogram.replayed) == 1_600
    assert (evidence.samples, evidence.read, evidence.notes) == ((), 0, ())


def test_what_fails_or_comes_too_late_is_a_note(spark: Any, world: World) -> None:
    plan = world.plan((0, 9, 1))
    late = gathered(spark, world, plan, timeout=timedelta(0))
    approved = gather(spark, world.request(), plan, SystemClock(), lambda: True)
    gone = gathered(spark, world, replace(plan, partitions=(replace(plan.partitions[0], partition=77),)))

    for evidence, why in ((late, "timeout"), (approved, "approved meanwhile"), (gone, "does not affect the plan")):
        assert evidence.topics[0].replayed == Amount(8)
        assert why in " ".join(evidence.notes)


def test_an_approval_ends_what_is_being_read(spark: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = threading.Event()

    def for_hours(*_: object, **__: object) -> Any:
        reading.set()
        sleeping = "CAST(java_method('java.lang.Thread', 'sleep', 3600000L) AS BINARY)"
        return spark.range(1).selectExpr(
            *("'t' AS topic", "0 AS partition", "id AS offset", "now() AS timestamp"),
            *(f"{sleeping} AS key", f"{sleeping} AS value"),
        )

    monkeypatch.setattr(module, "read_records", for_hours)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.1)
    evidence = gather(spark, world.request(), world.plan((0, 9, 1)), SystemClock(), reading.is_set)

    assert evidence.notes == ("Not all was gathered, since the plan was approved meanwhile",)
    assert evidence.topics[0].histogram is not None
    assert spark.range(3).count() == 3


def test_values_in_avro_are_shown_as_json_by_the_same_rules(
    spark: Any, world: World, make_topic: Callable[..., str]
) -> None:
    """A value that is no such document is shown by its bytes, and one that may not be shown is not."""
    fields: list[Any] = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    avro = {"type": "record", "name": "Order", "fields": fields}
    stream = BytesIO()
    fastavro.schemaless_writer(stream, avro, {"id": 7, "name": "\x1b[2J" + "n" * 300})
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": world.bootstrap})
    for value in (stream.getvalue(), b"no document"):
        producer.produce(topic, value, "k", 0)
    assert producer.flush(30) == 0
    target = ToRecord("record.id = 7", schema=RecordSchema(SchemaFormat.AVRO, json.dumps(avro), "the test"))
    plan = Plan("r1", "g", FIRST, (PartitionPlan(topic, 0, "id", 1, 0, 0, 2),))

    def samples(*, show: bool) -> list[Any]:
        request = replace(world.request(show_values=show), target=target)
        return [s.value for s in gather(spark, request, plan, SystemClock(), lambda: False).samples]

    shown, other = samples(show=True)
    assert shown.text.startswith('{"id":7,"name":"\\u001B[2Jnnn')
    assert (shown.bytes, len(shown.text) <= 200, shown.cut) == (len(stream.getvalue()), True, True)
    assert (other.text, other.cut) == ("no document", False)
    assert [s.text for s in samples(show=False)] == [None, None]
