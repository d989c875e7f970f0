"""Records found by Spark in real logs, against reading everything: transactions, compaction, times out of order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from tidegate.clock import SystemClock
from tidegate.find.windows import Pace
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Searched
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import ToRecord
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.reset import ResetPhase
from tidegate.resources.targets import NoMatch
from tidegate.spark import find
from tidegate.spark.find import Found, find_records
from tidegate.spark.job import carry_out

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIRST = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PARTITIONS = 3
PACE = Pace(first=90, growth=4, most=400, least=1)
"""So small that every log takes several windows."""


@dataclass(frozen=True)
class Record:
    offset: int
    at: datetime
    value: str


Log = Mapping[int, list[Record]]
"""Committed records by partition."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster.start(1, {"log.cleaner.backoff.ms": "100"}) as cluster:
        yield cluster


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    named = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(20)


def committed(bootstrap: str, topic: str) -> Log:
    """All that a reader of committed records sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    log: dict[int, list[Record]] = {p: [] for p in range(PARTITIONS)}
    try:
        consumer.assign([ClientTopicPartition(topic, p, 0) for p in log])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
            log[message.partition()].append(Record(message.offset(), at, message.value().decode()))
    finally:
        consumer.close()
    return log


def produce_randomly(bootstrap: str, topic: str, seed: int) -> None:
    """Plain records, committed and aborted transactions, times that mostly rise; partition 1 is hot."""
    chance = random.Random(seed)
    plain = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    bound = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    bound.init_transactions(30)

    def send(producer: Producer, n: int) -> None:
        partition = chance.choice([0, 1, 1, 1, 1, 1, 2])
        at = FIRST + timedelta(seconds=n + chance.choice([0, 0, 0, -40, 40]))
        value = f"n={n} status={chance.choices([200, 404, 500], [60, 3, 1])[0]}"
        producer.produce(topic, value, str(n % 40), partition, timestamp=round(at.timestamp() * 1000))

    n = 0
    while n < 600:
        batch = chance.randint(1, 60)
        if chance.random() < 0.5:
            for number in range(n, n + batch):
                send(plain, number)
            plain.flush(30)
        else:
            bound.begin_transaction()
            for number in range(n, n + batch):
                send(bound, number)
            bound.flush(30)
            (bound.abort_transaction if chance.random() < 0.4 else bound.commit_transaction)(30)
        n += batch


def oracle(log: Log, matches: Callable[[Record], bool], target: ToRecord) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for partition, records in log.items():
        hits = [
            r.offset
            for r in records
            if matches(r)
            and (target.since is None or r.at >= target.since)
            and (target.until is None or r.at < target.until)
        ]
        found[partition] = None if not hits else max(hits) + 1 if target.after else min(hits)
    return found


def request(bootstrap: str, topic: str, target: ToRecord) -> RunRequest:
    return RunRequest("uid/r", "r", f"group-of-{topic}", Connection(bootstrap), (Selection(topic),), target)


def search(spark: Any, bootstrap: str, topic: str, target: ToRecord, pace: Pace = PACE) -> Found:
    told: list[Searched] = []
    return find_records(spark, request(bootstrap, topic, target), target, told.append, SystemClock(), pace=pace)


def offsets(found: Found) -> dict[int, int | None]:
    return {p.partition: offset for p, offset in found.findings.offsets.items()}


TARGETS = (
    ToRecord("value like '%status=500'"),
    ToRecord("value like '%status=500'", after=True),
    ToRecord("value like '%status=404'", since=FIRST + timedelta(seconds=150), until=FIRST + timedelta(seconds=450)),
    ToRecord("value like '%status=404'", FIRST + timedelta(seconds=150), FIRST + timedelta(seconds=450), after=True),
    ToRecord("value like '%status=999'"),
)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_found_in_random_logs_is_what_reading_everything_finds(
    spark: Any, broker: KafkaCluster, seed: int
) -> None:
    topic = f"random-{seed}"
    create(broker.bootstrap, topic)
    produce_randomly(broker.bootstrap, topic, seed)
    log = committed(broker.bootstrap, topic)
    for target in TARGETS:
        found = search(spark, broker.bootstrap, topic, target)
        wanted = target.where.partition("status=")[2].rstrip("'")
        assert offsets(found) == oracle(log, lambda r, w=wanted: r.value.endswith(f"status={w}"), target), target


def test_a_compacted_log_is_searched_over_its_gaps(spark: Any, broker: KafkaCluster) -> None:
    create(
        broker.bootstrap,
        "compacted",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for n in range(300):
        at = round((FIRST + timedelta(seconds=n)).timestamp() * 1000)
        producer.produce("compacted", f"n={n} status={500 if n % 7 == 0 else 200}", str(n % 10), 0, timestamp=at)
    deadline = time.monotonic() + 60
    while len((log := committed(broker.bootstrap, "compacted"))[0]) > 100:
        assert time.monotonic() < deadline, "waited 60 s for the log cleaner"
        producer.produce(
            "compacted", "n=0 status=200", "tick", 0
        )  # rolls the segment, of which the active one is never compacted
        producer.flush(30)
        time.sleep(0.2)
    assert log[0][0].offset > 0
    for target in (ToRecord("value like '%status=500'"), ToRecord("value like '%status=500'", after=True)):
        found = search(spark, broker.bootstrap, "compacted", target)
        assert offsets(found) == oracle(log, lambda r: r.value.endswith("status=500"), target)


def test_what_is_in_the_way_of_a_search_is_told(
    spark: Any, broker: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction at the end; records that are deleted while they are searched; times out of order."""
    create(broker.bootstrap, "told", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for n in range(200):
        # One in a hundred comes from a producer whose clock is an hour slow.
        at = FIRST + timedelta(seconds=n) - (timedelta(hours=1) if n % 100 == 99 else timedelta(0))
        producer.produce("told", f"n={n}", partition=0, timestamp=round(at.timestamp() * 1000))
    assert producer.flush(30) == 0
    bound = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "told", "log_level": 0})
    bound.init_transactions(30)
    bound.begin_transaction()
    bound.produce("told", "n=5000", partition=0)
    bound.flush(30)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition("told", 0)
    look_at, windows = find._Scan._look_at, 0

    def trimmed_under_the_scan(self: Any, window: Any, *, beyond: bool) -> Any:
        nonlocal windows
        windows += 1
        if windows == 2:
            [trimmed] = admin.delete_records([ClientTopicPartition("told", 0, 150)]).values()
            trimmed.result(20)
            self._reader += "-anew"  # without what the consumers of the first window have fetched ahead
        return look_at(self, window, beyond=beyond)

    monkeypatch.setattr(find._Scan, "_look_at", trimmed_under_the_scan)
    target = ToRecord("value in (binary('n=70'), binary('n=160'), binary('n=5000'))", since=FIRST)
    found = search(spark, broker.bootstrap, "told", target, Pace(first=20, growth=1, most=20, least=1))
    bound.abort_transaction(30)

    assert found.findings.offsets == {partition: 160}
    notes = "\n".join(found.findings.notes)
    assert "Deleted while they were searched: records of 130 in 1 partition(s): told-0 (130)" in notes
    assert "Not looked at, the last offsets from an open transaction on: 1 in 1 partition(s): told-0 (1)" in notes
    assert "Times are not in order" not in notes  # the slow clock's were not reached

    strays = search(
        spark, broker.bootstrap, "told", replace(target, where="value = 'n=199'", until=FIRST + timedelta(1))
    )
    assert strays.findings.offsets == {partition: None}
    assert "Times are not in order: 1 in 1 partition(s)" in "\n".join(strays.findings.notes)


def test_a_plan_takes_the_offsets_over_and_a_bad_condition_reads_nothing(
    spark: Any, kafka: Any, make_topic: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(10):
        producer.produce(topic, f'{{"status": {500 if n == 6 else 200}}}', partition=0)
    producer.produce(topic, "not JSON", partition=1)
    assert producer.flush(30) == 0

    def run(name: str, target: ToRecord) -> Any:
        store = DirectoryRunStore(tmp_path, name)
        store.create(replace(request(kafka.bootstrap, topic, target), run_uid=f"uid/{name}"))
        return carry_out(spark, store.location), store.load().plan

    where = "get_json_object(string(value), '$.status') >= 500"
    result, plan = run("keep", ToRecord(where))
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert plan.targets == {TopicPartition(topic, 0): 6}
    assert any(f"no record was found there: 1 partition ({topic}-1)" in note for note in plan.notes), plan.notes
    result, plan = run("fail", ToRecord(where, no_match=NoMatch.FAIL))
    assert (result.phase, result.reason, plan) == (ResetPhase.FAILED, "NoMatchingRecord", None)

    monkeypatch.setattr(find, "_look_around", lambda *_: pytest.fail("something was read"))
    result, _ = run("bad", ToRecord("colour = 'red'"))
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "BadExpression")
    assert "[UNRESOLVED_COLUMN" in result.message


def test_what_fails_in_a_window_is_tried_again_and_then_told(
    spark: Any, kafka: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import SparkRuntimeException

    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, "a")
    assert producer.flush(30) == 0
    failures = 0
    look_at = find._Scan._look_at

    def fails(self: Any, window: Any, *, beyond: bool) -> Any:
        nonlocal failures
        failures += 1
        if failures <= left:
            raise SparkRuntimeException("an executor was lost")
        return look_at(self, window, beyond=beyond)

    monkeypatch.setattr(find._Scan, "_look_at", fails)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
    left = 2
    assert offsets(search(spark, kafka.bootstrap, topic, ToRecord("value = 'a'"))) == {0: 0}
    failures, left = 0, 3
    with pytest.raises(Unavailable, match="records can't be read: an executor was lost"):
        search(spark, kafka.bootstrap, topic, ToRecord("value = 'a'"))


def test_a_record_whose_time_no_spark_can_hold_is_not_blamed_on_the_condition(spark: Any, broker: KafkaCluster) -> None:
    """As of a producer that writes nanoseconds."""
    create(broker.bootstrap, "nanoseconds", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("nanoseconds", "a", partition=0, timestamp=1_795_000_000_000_000_000)
    assert producer.flush(30) == 0

    with pytest.raises(PlanRefused) as refused:
        search(spark, broker.bootstrap, "nanoseconds", ToRecord("value = 'a'"))

    assert refused.value.reason == "UnreadableTime"


def test_a_condition_that_fails_on_a_record_is_refused(spark: Any, kafka: Any, make_topic: Any) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, "(4711")
    assert producer.flush(30) == 0
    with pytest.raises(PlanRefused) as refused:
        search(spark, kafka.bootstrap, topic, ToRecord("'a' rlike string(value)"))
    assert refused.value.reason == "BadExpression"
    assert refused.value.message.endswith(
        "fails on a record, which is not shown: java.util.regex.PatternSyntaxException"
    )
