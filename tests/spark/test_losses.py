"""A search through records that loses an executor and a broker: real processes, killed in mid-scan."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster, spark_jars
from support.operator_process import until
from support.stack_fixtures import Unique
from tidegate.jobs import runner_local
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.targets import ToRecord
from tidegate.resources.reset import ResetPhase

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS = 800_000
"""Of the hot partition: two windows, of which the second one takes seconds."""

SLOWLY = "sha2(repeat(string(value), 60), 256) <> ''"
"""True of every record, after a while."""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[LocalSparkRunner]:
    """Executors are processes of their own, as in a cluster."""
    yield LocalSparkRunner(
        tmp_path / "runs", "local-cluster[2,1,1024]", settings=SparkSettings(jars=tuple(spark_jars()))
    )
    for folder in (tmp_path / "runs").glob("*"):
        for process in runner_local._processes_of(folder):
            os.kill(process.pid, signal.SIGKILL)


def test_a_search_outlives_an_executor_and_a_broker(
    runner: LocalSparkRunner, kafka3: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic, group = unique("topic"), unique("group")
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka3.bootstrap, "linger.ms": 20})
    for n in range(RECORDS):
        producer.produce(topic, "500" if n == RECORDS - 5 else "200", partition=0)
        if n % 50_000 == 0:
            assert producer.flush(60) == 0
    producer.produce(topic, "200", partition=1)
    assert producer.flush(60) == 0
    store = DirectoryRunStore(tmp_path / "store", "run")
    target = ToRecord(f"{SLOWLY} and value = '500'")
    settings = ApplySettings(deadline=datetime.now(UTC) + timedelta(minutes=5))
    store.create(
        RunRequest("uid/run", "run", group, Connection(kafka3.bootstrap), (Selection(topic),), target, settings)
    )

    driver, folder = Launch("the-run-1", "prod", store.location, reads_records=True), tmp_path / "runs" / "the-run-1"
    runner.start(driver)

    def told() -> bool:
        assert runner.status(driver).state is RunnerState.RUNNING, runner.status(driver).message
        return any(line.searched is not None for line in store.load().journal)

    until(told, "the first window", timeout_s=240, pause_s=0.02)
    executor = next(p.pid for p in runner_local._processes_of(folder) if _is_executor(p.pid))
    leader = admin.list_topics(topic).topics[topic].partitions[0].leader
    os.kill(executor, signal.SIGKILL)
    kafka3.kill(leader)
    try:
        until(lambda: runner.status(driver).state is RunnerState.EXITED, "the job", timeout_s=240)
    finally:
        kafka3.restart(leader)
    run = store.load()
    assert run.result is not None, runner.status(driver).message
    assert run.result.phase is ResetPhase.SUCCEEDED, run.result
    assert run.plan is not None
    assert run.plan.targets == {TopicPartition(topic, 0): RECORDS - 5}
    assert "Lost executor" in (folder / "driver.log").read_text()


def _is_executor(pid: int) -> bool:
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
