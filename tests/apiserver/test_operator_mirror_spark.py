"""Spark copies topics to another cluster offset by offset, and the operator follows its jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.mirrors import KEPT, assert_equal, connected_both, end_of, has_all
from apiserver.offsets import commit, committed, produce
from apiserver.test_operator_spark import driver_of
from devstack import KafkaCluster
from support.mirror.job_runner import Job
from support.mirror.random_topic import RandomTopic
from support.needs import starts
from support.operator_process import OperatorProcess, Resources, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import uid_of
from tidegate.offset_mirror.order import MirrorOrder, decode_document, name_of_document

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
@starts("kafka")
def elsewhere() -> Iterator[KafkaCluster]:
    """The cluster that is copied to."""
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def operator(start_operator: StartOperator, runs: Path) -> OperatorProcess:
    settings = {"TIDEGATE_SPARK_RUNNER": "local", "TIDEGATE_SPARK_RUNS_DIRECTORY": str(runs)}
    return start_operator(settings)


@pytest.fixture
def mirrored(
    resources: Resources, operator: OperatorProcess, kafka: KafkaCluster, elsewhere: KafkaCluster
) -> Resources:
    return connected_both(resources, kafka, elsewhere)


def job_of(resources: Resources) -> str:
    """The name of the job that the status names; empty where it names none."""
    return str((resources.get_mirror("m").get("status", {}).get("job") or {}).get("name", ""))


def order_of(client: KubeClient, resources: Resources) -> MirrorOrder:
    body = resources.get_mirror("m")
    return decode_document(client.own_config_map(body, name_of_document("m", uid_of(body))))


def all_are_copied_by(client: KubeClient, resources: Resources) -> str:
    """The job whose tasks copy both topics, once all of them have said something; empty before that."""
    job = resources.get_mirror("m").get("status", {}).get("job") or {}
    if job.get("heard") != 2:
        return ""
    order = order_of(client, resources)
    return order.launch if order.launch == job["name"] and len(order.topics) == 2 else ""


def test_a_job_that_is_killed_is_followed_by_another_that_goes_on_from_the_targets_ends(
    mirrored: Resources,
    operator: OperatorProcess,
    kube_client: kube.ApiClient,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    runs: Path,
) -> None:
    topic, wide, group = make_topic(config=KEPT), make_topic(3, config=KEPT), unique("group")
    log = RandomTopic(kafka.bootstrap, topic, seed=8)
    log.write(400)
    log.delete_before(40)
    produce(kafka.bootstrap, wide, 3, 30)
    commit(kafka.bootstrap, group, topic, {0: 100})

    groups = {"include": [group], "interval": "1s"}
    mirrored.mirror(
        "m", {"include": [topic, wide]}, engine="Spark", groups=groups, rateLimit={"bytesPerSecond": 40_000}
    )
    # Where one topic was ready before the other, the first job has been replaced by then.
    client = KubeClient(kube_client, SystemClock())
    killed = until(lambda: all_are_copied_by(client, mirrored), "a job copies both topics", timeout_s=90)
    until(lambda: end_of(elsewhere, topic) > 100, "something is copied", timeout_s=90)
    first = driver_of(runs)
    assert first is not None
    os.killpg(first, signal.SIGKILL)
    assert end_of(elsewhere, topic) < end_of(kafka, topic)
    log.write(20)

    # A second writer of the next job's order, with the same attempts, is at work all along.
    second = until(lambda: job_of(mirrored).replace(killed, ""), "another job is named", timeout_s=60)
    # It does what Spark's tasks do, once more in this process.
    twin = Job(client, KafkaMirrorCluster, order_of(client, mirrored), beat_s=1.0)
    try:
        until(lambda: has_all(kafka, elsewhere, topic), "all is copied", timeout_s=120)
        assert twin.ended is None
    finally:
        twin.kill()
    assert_equal(kafka, elsewhere, topic)
    until(lambda: all(has_all(kafka, elsewhere, wide, p) for p in range(3)), "the others are", timeout_s=60)
    body = mirrored.wait_mirror("m", reason="CopiesInSync", timeout_s=60)
    status = body["status"]
    assert status["job"]["name"] == second, status["job"]
    assert (status["job"]["tasks"], status["partitions"]["inSync"], len(status["producerIds"])) == (2, 4, 1)
    assert operator.metric("tidegate_job_deaths_total", engine="Spark") == 1
    until(lambda: committed(elsewhere.bootstrap, group, topic, 1) == {0: 100}, "the group's offset is carried over")

    # Without a job nothing is written, and the status says so; then the operator copies itself.
    mirrored.patch("offsetmirrors", "m", {"spec": {"suspend": True}})
    mirrored.wait_mirror("m", reason="Suspended", timeout_s=60)
    assert job_of(mirrored) == ""
    log.write(20)
    mirrored.patch("offsetmirrors", "m", {"spec": {"suspend": False, "engine": "Direct"}})
    until(lambda: has_all(kafka, elsewhere, topic), "all is copied", timeout_s=60)
    assert_equal(kafka, elsewhere, topic)
