"""Real Spark on a real broker: plans as a DataFrame, and whole runs through ``spark-submit``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from tidegate.audit.records import Actor, Attribution, AuditTopic, Moved
from tidegate.clock import SystemClock
from tidegate.jobs import runner_local
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.audit_reader import AuditReader
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.binding import Binding, digest_of
from tidegate.reset.codec import encode_plan
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import (
    ByDuration,
    FromFile,
    FromGroup,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    Undo,
)
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.store import ForgedRun, Run, StaleAttempt
from tidegate.resources.reset import ResetPhase
from tidegate.spark import entry
from tidegate.spark.job import apply_groups, carry_out
from tidegate.spark.planning import collect_plan, plan_groups, summarise

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIRST = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
"""Time of the first record of each partition; one record a minute."""


def until(condition: Callable[[], object], what: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def produce(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        for n in range(records):
            at = FIRST + timedelta(minutes=n)
            producer.produce(topic, str(n), partition=partition, timestamp=int(at.timestamp() * 1000))
    assert producer.flush(30) == 0


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [ClientTopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]

    def done() -> bool:
        [future] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
        # A broker that is just making its offsets topic says so for each partition, and raises nothing.
        return all(p.error is None for p in future.result(30).topic_partitions)

    until(done, f"the offsets of {group}", 30)


@pytest.fixture
def client(kafka: Any) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        yield client


def request(bootstrap: str, group: str, target: Target, *selections: Selection) -> RunRequest:
    return RunRequest(f"uid-{group}/r1", "r1", group, Connection(bootstrap), selections, target)


@pytest.fixture
def topic(kafka: Any, make_topic: Any) -> str:
    """Three partitions of ten records each, the first two of partition 0 deleted."""
    name: str = make_topic(3)
    produce(kafka.bootstrap, name, 3, 10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([ClientTopicPartition(name, 0, 2)]).values():
        future.result(30)
    return name


@pytest.fixture
def group(kafka: Any, topic: str, unique: Any) -> str:
    name: str = unique("group")
    commit(kafka.bootstrap, name, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 7})
    return name


def planned_both_ways(spark: Any, requests: Sequence[RunRequest]) -> list[tuple[Plan, Plan]]:
    """(of Spark, of make_plan) for each request, at the same moment."""
    now = datetime.now(UTC)
    rows = plan_groups(spark, requests, now).persist()
    both = []
    for wanted in requests:
        with closing(KafkaClient(wanted.connection)) as client:
            both.append((collect_plan(rows, wanted), make_plan(wanted, client, now)))
    rows.unpersist()
    return both


def test_many_groups_are_planned_as_each_one_would_be(
    spark: Any, kafka: Any, topic: str, make_topic: Any, unique: Any
) -> None:
    other = make_topic(2)
    produce(kafka.bootstrap, other, 2, 4)
    source = unique("source")
    commit(kafka.bootstrap, source, {TopicPartition(topic, p): 4 + p for p in range(3)})
    targets: list[Target] = [
        ToEarliest(),
        ToLatest(),
        ToOffset(1),
        ToTimestamp(FIRST + timedelta(minutes=6)),
        ToTimestamp(datetime(2030, 1, 1, tzinfo=UTC)),
        ByDuration(datetime.now(UTC) - FIRST - timedelta(minutes=3)),
        ShiftBy(-4),
        FromFile((PartitionOffset(topic, 1, 3), PartitionOffset(topic, 2, 900)), "a/file"),
        FromGroup(source),
        Undo("r0", (PartitionOffset(topic, 0, 3),), (TopicPartition(topic, 1),)),
    ]
    requests = []
    for target in targets:
        name = unique(target.kind)
        commit(kafka.bootstrap, name, {TopicPartition(topic, p): 5 + p for p in range(3)})
        requests.append(request(kafka.bootstrap, name, target))
    two = unique("two-topics")
    commit(kafka.bootstrap, two, {TopicPartition(topic, 0): 5, TopicPartition(other, 1): 2})
    requests.append(request(kafka.bootstrap, two, ToEarliest()))
    requests.append(request(kafka.bootstrap, unique("new"), ToEarliest(), Selection(topic, frozenset({0, 2}))))

    for ours, theirs in planned_both_ways(spark, requests):
        assert ours == theirs
    moved = [ours for ours, _ in planned_both_ways(spark, requests[:1])]
    assert [p.target for p in moved[0].partitions] == [2, 0, 0]
    assert moved[0].records_replayed == 3 + 6 + 7


def test_what_goes_wrong_with_one_group_is_its_own(
    spark: Any, kafka: Any, group: str, topic: str, unique: Any, client: KafkaClient
) -> None:
    good = request(kafka.bootstrap, group, ToEarliest())
    nowhere = request(kafka.bootstrap, unique("nowhere"), ToEarliest(), Selection("there-is-no-such-topic"))
    # Nobody listens on the discard port.
    away = replace(request("127.0.0.1:9", unique("away"), ToEarliest()), connection=Connection("127.0.0.1:9"))
    rows = plan_groups(spark, [good, nowhere, away], datetime.now(UTC)).persist()
    assert collect_plan(rows, good).moved == 2
    with pytest.raises(PlanRefused) as refused:
        collect_plan(rows, nowhere)
    with pytest.raises(PlanRefused) as expected:
        make_plan(nowhere, client, datetime.now(UTC))
    assert (refused.value.reason, refused.value.message) == (expected.value.reason, expected.value.message)
    with pytest.raises(Unavailable):
        collect_plan(rows, away)

    summary = {row["group"]: row.asDict() for row in summarise(rows).collect()}
    assert (summary[group]["partitions"], summary[group]["moved"], summary[group]["replayed"]) == (2, 2, 3 + 7)
    assert summary[nowhere.group_id]["refused"] == expected.value.reason
    assert summary[away.group_id]["failure"] == "Unavailable"


class Borrowed:
    """A session that its job does not end: other tests have it as well."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_the_exit_code_of_a_job_that_plans_tells_whether_all_groups_have_a_plan(
    spark: Any, kafka: Any, group: str, topic: str, unique: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "start_session", lambda _name: Borrowed(spark))
    asked = ["--bootstrap-servers", kafka.bootstrap, "--to-earliest", "--output", str(tmp_path / "plans")]

    assert entry.plan([*asked, "--group", group]) == 0
    # A new group, of which nobody has said which topics it is about.
    assert entry.plan([*asked, "--group", group, "--group", unique("new")]) == 1
    written = spark.read.parquet(str(tmp_path / "plans"))
    assert written.where("topic is not null").count() == 2
    assert written.where("refused is not null").count() == 1


def test_each_log_is_measured_once_however_many_groups_read_it(spark: Any, kafka: Any, topic: str, unique: Any) -> None:
    names = [unique(f"reader-{n}") for n in range(6)]
    for name in names:
        commit(kafka.bootstrap, name, {TopicPartition(topic, p): 9 for p in range(3)})
    requests = [request(kafka.bootstrap, name, ToEarliest()) for name in names]
    rows = plan_groups(spark, requests, datetime.now(UTC), spans=False, tasks=2)
    assert rows.count() == len(names) * 3
    assert {(r["partition"], r["target"], r["replayed"]) for r in rows.collect()} == {(0, 2, 7), (1, 0, 9), (2, 0, 9)}


def test_a_run_is_carried_out_in_executors(
    spark: Any, kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient
) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(request(kafka.bootstrap, group, ToOffset(3)))
    result = carry_out(spark, store.location)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert client.committed(group) == {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 3}
    run = store.load()
    assert run.result == result
    assert run.plan is not None
    assert run.journal[0].phase is ResetPhase.PLANNING
    # Once: carrying it out again only tells how it ended.
    commit(kafka.bootstrap, group, {TopicPartition(topic, 0): 8})
    assert carry_out(spark, store.location) == result
    assert client.committed(group)[TopicPartition(topic, 0)] == 8


def test_a_plan_waits_for_approval_and_is_then_applied_as_it_was(
    spark: Any, kafka: Any, group: str, topic: str, unique: Any, tmp_path: Path, client: KafkaClient
) -> None:
    """And recorded in whose name."""
    log = unique("audit")
    client.audit.ensure(AuditTopic(log))
    attribution = Attribution(AuditTopic(log, required=True), Actor("OffsetReset", "r1", "ns"), approver="bob")
    store = DirectoryRunStore(tmp_path, "run")
    store.create(replace(request(kafka.bootstrap, group, ToLatest()), manual_approval=True))
    assert carry_out(spark, store.location) is None
    waiting = store.load()
    assert waiting.last is not None
    assert waiting.last.phase is ResetPhase.AWAITING_APPROVAL
    produce(kafka.bootstrap, topic, 1, 5)  # the end moves on, the plan does not
    store.approve()
    before = client.committed(group)
    result = carry_out(spark, store.location, attribution=attribution)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert store.load().plan == waiting.plan
    committed = client.committed(group)
    assert committed == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}
    with closing(AuditReader(Connection(kafka.bootstrap), log)) as reader:
        [change] = [read.part.change for read in reader.read()]
    assert (change.by, change.approver, change.plan) == (attribution.by, "bob", digest_of(store.load()))
    assert change.offsets == {p: Moved(before.get(p), 10) for p in committed}


def test_what_a_forged_document_says_is_not_carried_out(
    spark: Any, kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient
) -> None:
    """Of approval it is believed nothing, and of the plan only what was approved by its digest."""
    store = DirectoryRunStore(tmp_path, "run")
    wanted = replace(request(kafka.bootstrap, group, ToLatest()), manual_approval=True)
    asked = Binding(digest_of(store.create(wanted)))
    assert carry_out(spark, store.location, binding=asked) is None
    planned = store.load()
    assert planned.plan is not None
    whole = digest_of(planned)
    store.approve()
    assert carry_out(spark, store.location, binding=Binding(whole)) is None
    with pytest.raises(ForgedRun):
        carry_out(spark, store.location, binding=asked)

    swapped = replace(planned.plan, partitions=tuple(replace(p, target=0) for p in planned.plan.partitions))
    document = tmp_path / "run.json"
    genuine = document.read_text()
    document.write_text(genuine.replace(encode_plan(planned.plan), encode_plan(swapped)))
    assert store.load().plan == swapped
    with pytest.raises(ForgedRun, match=whole):
        carry_out(spark, store.location, binding=Binding(whole, whole))
    with pytest.raises(ForgedRun, match=whole):
        apply_groups(spark, [(store.location, store.load().attempt)], [whole])
    assert client.committed(group)[TopicPartition(topic, 0)] == 5

    document.write_text(genuine)
    result = carry_out(spark, store.location, binding=Binding(whole, whole))
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result


def test_a_refused_plan_ends_the_run(spark: Any, kafka: Any, unique: Any, tmp_path: Path) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(request(kafka.bootstrap, unique("none"), ToEarliest(), Selection("there-is-no-such-topic")))
    result = carry_out(spark, store.location)
    assert result is not None
    assert result.phase is ResetPhase.FAILED
    assert store.load().result == result


def test_several_groups_are_applied_side_by_side(
    spark: Any, kafka: Any, topic: str, unique: Any, tmp_path: Path, client: KafkaClient
) -> None:
    names = [unique(f"member-{n}") for n in range(3)]
    runs = []
    for name in names:
        commit(kafka.bootstrap, name, {TopicPartition(topic, 1): 6})
        store = DirectoryRunStore(tmp_path, name)
        wanted = request(kafka.bootstrap, name, ToOffset(4))
        store.create(wanted)
        attempt = store.begin_attempt()
        store.write_plan(make_plan(wanted, client, datetime.now(UTC)), attempt=attempt)
        runs.append((store.location, attempt))
    results = apply_groups(spark, runs)
    assert [r.phase for r in results] == [ResetPhase.SUCCEEDED] * 3
    assert {client.committed(name)[TopicPartition(topic, 1)] for name in names} == {4}


def test_an_attempt_that_was_taken_over_applies_nothing(
    spark: Any, kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient
) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    wanted = request(kafka.bootstrap, group, ToOffset(4))
    store.create(wanted)
    old = store.begin_attempt()
    store.write_plan(make_plan(wanted, client, datetime.now(UTC)), attempt=old)
    store.begin_attempt()
    with pytest.raises(StaleAttempt):
        apply_groups(spark, [(store.location, old)])
    assert client.committed(group)[TopicPartition(topic, 0)] == 5


# --- spark-submit -----------------------------------------------------------------------------------------------------


def test_a_run_through_spark_submit(kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient) -> None:
    store = DirectoryRunStore(tmp_path / "store", "run")
    store.create(request(kafka.bootstrap, group, ToTimestamp(FIRST + timedelta(minutes=4))))
    runner = LocalSparkRunner(tmp_path / "runs")
    launch = Launch("the-run-1", "prod", store.location)
    runner.start(launch)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the job")
    result = store.load().result
    assert result is not None, runner.status(launch).message
    assert result.phase is ResetPhase.SUCCEEDED, result
    committed = client.committed(group)
    assert committed == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 4}


@pytest.mark.nightly  # what it says is tried above, without spark-submit
def test_a_driver_that_finds_a_forged_document_says_so_and_moves_nothing(
    kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient
) -> None:
    store = DirectoryRunStore(tmp_path / "store", "run")
    wanted = request(kafka.bootstrap, group, ToOffset(4))
    store.create(replace(wanted, target=ToEarliest()))
    runner = LocalSparkRunner(tmp_path / "runs")
    launch = Launch("forged-1", "prod", store.location, environment=Binding(digest_of(Run(wanted))).environment())
    runner.start(launch)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the job")
    status = runner.status(launch)
    assert (status.forged, "with code 3" in status.message) == (True, True), status.message
    assert client.committed(group)[TopicPartition(topic, 0)] == 5


@pytest.mark.nightly  # tests/apiserver/test_operator_spark.py and the tests in pods kill drivers, too
def test_a_driver_killed_while_planning_is_followed_by_one_that_finishes(
    kafka: Any, group: str, topic: str, tmp_path: Path, client: KafkaClient
) -> None:
    store = DirectoryRunStore(tmp_path / "store", "run")
    store.create(request(kafka.bootstrap, group, ToOffset(3)))
    runner = LocalSparkRunner(tmp_path / "runs")
    first, second = Launch("the-run-1", "prod", store.location), Launch("the-run-2", "prod", store.location)
    runner.start(first)
    until(lambda: store.load().journal, "the planning")
    for process in runner_local._processes_of(tmp_path / "runs" / first.name):
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: runner.status(first).state is RunnerState.EXITED, "the end", 10)
    assert "ended by signal 9" in runner.status(first).message
    killed = store.load()
    assert (killed.attempt, killed.plan, killed.result) == (1, None, None)
    assert client.committed(group)[TopicPartition(topic, 0)] == 5

    runner.start(second)
    until(lambda: runner.status(second).state is RunnerState.EXITED, "the second job")
    finished = store.load()
    assert finished.attempt == 2
    assert finished.result is not None, runner.status(second).message
    assert finished.result.phase is ResetPhase.SUCCEEDED
    assert client.committed(group) == {
        TopicPartition(topic, 0): 3,
        TopicPartition(topic, 1): 3,
    }
    assert finished.journal[-1].at <= SystemClock().now()
