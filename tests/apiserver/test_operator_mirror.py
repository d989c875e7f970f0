"""The operator copies topics to another cluster offset by offset, and carries groups' offsets over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from apiserver.mirrors import KEPT, assert_equal, connected_both, delete, end_of, has_all
from apiserver.offsets import commit, committed, produce
from devstack import KafkaCluster
from support.mirror.random_topic import RandomTopic, consumed
from support.needs import starts
from support.operator_process import Body, OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique


@pytest.fixture(scope="module")
@starts("kafka")
def elsewhere() -> Iterator[KafkaCluster]:
    """The cluster that is copied to."""
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
def mirrored(
    resources: Resources, operator: OperatorProcess, kafka: KafkaCluster, elsewhere: KafkaCluster
) -> Resources:
    return connected_both(resources, kafka, elsewhere)


def counted(resources: Resources, state: str, topic: str, name: str = "m") -> Body | None:
    """The mirror, once it says that the topic is in this state."""
    body = resources.get_mirror(name)
    rows = [row for row in body.get("status", {}).get("topics", ()) if row["name"] == topic]
    return body if [row["state"] for row in rows] == [state] else None


def parity_of(resources: Resources) -> Body:
    found: Body = resources.get_mirror("m")["status"]["parity"]
    return found


def recreate(cluster: KafkaCluster, make_topic: MakeTopic, topic: str) -> None:
    delete(cluster, topic)
    make_topic(name=topic, config=KEPT)


def test_a_topic_has_the_same_offsets_in_two_clusters_though_the_operator_is_killed(
    mirrored: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
) -> None:
    topic, group = make_topic(config=KEPT), unique("group")
    log = RandomTopic(kafka.bootstrap, topic, seed=5)
    log.write(600)
    log.delete_before(40)
    commit(kafka.bootstrap, group, topic, {0: 100})

    groups = {"include": [group], "interval": "1s"}
    limits = {"rateLimit": {"bytesPerSecond": 15_000}, "parity": {"interval": "1s"}}
    mirrored.mirror("m", {"include": [topic]}, groups=groups, **limits)
    for _ in range(2):
        copied = end_of(elsewhere, topic)
        until(lambda copied=copied: end_of(elsewhere, topic) > copied, "something is copied", timeout_s=90)
        operator.kill()
        assert end_of(elsewhere, topic) < end_of(kafka, topic)
        log.write(20)
        operator.start()
    mirrored.patch("offsetmirrors", "m", {"spec": {"rateLimit": None}})
    until(lambda: has_all(kafka, elsewhere, topic), "all is copied", timeout_s=90)
    until(lambda: committed(elsewhere.bootstrap, group, topic, 1) == {0: 100}, "the group's offset is carried over")
    assert_equal(kafka, elsewhere, topic)
    mirrored.wait_mirror("m", reason="CopiesInSync")
    until(lambda: parity_of(mirrored)["records"] > 0, "something was compared", timeout_s=60)

    # What is deleted, added and committed at the source afterwards.
    log.delete_before(200)
    commit(kafka.bootstrap, group, topic, {0: 300})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    until(lambda: committed(elsewhere.bootstrap, group, topic, 1) == {0: 300}, "the group's offset is carried over")
    produce(kafka.bootstrap, topic, 2, 10)
    until(lambda: has_all(kafka, elsewhere, topic, 1), "the new partition is copied", timeout_s=60)
    until(lambda: consumed(elsewhere.bootstrap, topic)[0] == 200, "the start follows", timeout_s=60)
    until(lambda: has_all(kafka, elsewhere, topic), "all is copied", timeout_s=60)
    assert_equal(kafka, elsewhere, topic)
    assert parity_of(mirrored)["different"] == []
    body = mirrored.wait_mirror("m", reason="CopiesInSync")
    status = body["status"]
    assert len(status["producerIds"]) == 1
    assert (status["partitions"]["inSync"], status["inSync"]) == (2, "2/2")
    assert (status["groups"]["total"], status["groups"]["carried"]) == (1, 1)
    assert operator.metric("tidegate_mirror_partitions", mirror="m", state="InSync") == 2


def test_a_copy_that_somebody_else_writes_is_not_written_any_more(
    mirrored: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
) -> None:
    topic, other = make_topic(config=KEPT), make_topic(config=KEPT)
    for each in (topic, other):
        produce(kafka.bootstrap, each, 1, 20)
    mirrored.mirror("m", {"include": [topic, other]})
    mirrored.wait_mirror("m", reason="CopiesInSync", timeout_s=90)

    produce(elsewhere.bootstrap, topic, 1, 1)
    produce(kafka.bootstrap, topic, 1, 5)
    until(lambda: counted(mirrored, "Drifted", topic), "the drift is seen", timeout_s=60)
    end = end_of(elsewhere, topic)
    body = mirrored.wait_mirror("m", False, reason="CopiesDrifted")
    assert condition_of(body, "Drifted")["status"] == "True"
    assert condition_of(body, "Stalled")["status"] == "True"
    assert f"such as {topic}-0: " in condition_of(body, "Drifted")["message"]
    operator.kill()
    operator.start()
    produce(kafka.bootstrap, topic, 1, 5)
    produce(kafka.bootstrap, other, 1, 5)
    until(lambda: has_all(kafka, elsewhere, other), "the other topic is copied as before", timeout_s=60)
    until(lambda: mirrored.get_mirror("m")["status"]["partitions"]["drifted"] == 1, "the drift is seen again")
    assert end_of(elsewhere, topic) == end

    delete(elsewhere, topic)
    until(lambda: has_all(kafka, elsewhere, topic), "it is copied anew", timeout_s=60)
    assert_equal(kafka, elsewhere, topic)
    mirrored.wait_mirror("m", reason="CopiesInSync")


@pytest.mark.nightly
def test_a_topic_that_is_created_again_at_the_source_is_not_mixed_with_its_copy(
    mirrored: Resources,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic(config=KEPT)
    produce(kafka.bootstrap, topic, 1, 20)
    mirrored.mirror("m", {"include": [topic]})
    mirrored.wait_mirror("m", reason="CopiesInSync", timeout_s=90)
    copy = consumed(elsewhere.bootstrap, topic)

    recreate(kafka, make_topic, topic)
    produce(kafka.bootstrap, topic, 1, 50)
    body = until(lambda: counted(mirrored, "Drifted", topic), "it is told from the one before", timeout_s=60)
    assert "was deleted and created again at the source" in body["status"]["worst"][0]["message"]
    assert consumed(elsewhere.bootstrap, topic) == copy

    delete(elsewhere, topic)
    until(lambda: has_all(kafka, elsewhere, topic), "it is copied anew", timeout_s=60)
    assert_equal(kafka, elsewhere, topic)
