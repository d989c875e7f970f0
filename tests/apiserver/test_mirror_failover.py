"""A person fails a mirror over, and back: consumers go on with the numbers that they have, and nothing comes late."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.mirrors import KEPT, assert_equal, connected_both, delete, end_of, has_all
from apiserver.offsets import commit, committed, produce
from apiserver.test_operator_replicas import leads, pair
from devstack import ApiServer, KafkaCluster
from support.mirror.random_topic import RandomTopic, consumed
from support.needs import starts
from support.operator_process import OperatorProcess, Resources, until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique


@pytest.fixture(scope="module")
@starts("kafka")
def elsewhere() -> Iterator[KafkaCluster]:
    """The cluster that is failed over to."""
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
def shell(apiserver: ApiServer) -> Shell:
    return Shell({"KUBECONFIG": str(apiserver.kubeconfig)})


class Reader:
    """A consumer of partition 0 of a group: it reads, and commits when it is told to."""

    def __init__(self, cluster: KafkaCluster, group: str, topic: str) -> None:
        self.offsets: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def read(self, enough: Callable[[], bool]) -> None:
        def look() -> bool:
            message = self._consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                self.offsets.append(message.offset())
            return enough()

        until(look, f"{self.offsets[-3:]} is not all", timeout_s=90, pause_s=0)

    def commit(self) -> int:
        [done] = self._consumer.commit(asynchronous=False)
        assert done.error is None
        return int(done.offset)

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_goes_on_in_the_other_cluster_and_back(
    resources: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    shell: Shell,
) -> None:
    connected_both(resources, kafka, elsewhere)
    topic, group, of = make_topic(config=KEPT), unique("group"), ("-n", resources.namespace)
    new = unique("new")
    RandomTopic(kafka.bootstrap, topic, seed=11).write(300)
    commit(kafka.bootstrap, group, topic, {0: 0})
    resources.mirror("m", {"include": [topic, new]}, groups={"include": [group], "interval": "1s"})
    resources.wait_mirror("m", reason="CopiesInSync", timeout_s=90)

    before = Reader(kafka, group, topic)
    before.read(lambda: len(before.offsets) == 100)
    at = before.commit()
    before.read(lambda: len(before.offsets) == 120)  # what it has not committed it reads again
    before.close()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    assert producer.flush(30) == 0
    waits = shell("mirror", "failover", "m", "--timeout", "3s", *of, code=1)
    assert "the copies of 1 partition(s) lack 1 offset(s)" in waits
    produce(kafka.bootstrap, make_topic(name=new), 1, 3)  # which is waited for as well
    producer.commit_transaction()
    told = shell("mirror", "failover", "m", *of)
    end = end_of(kafka, topic)
    assert re.search(rf"^{topic} +0 +{end} +0$", told, re.MULTILINE)
    assert re.search(rf"^{new} +0 +3 +0$", told, re.MULTILINE)
    assert end_of(elsewhere, new) > 3
    assert committed(elsewhere.bootstrap, group, topic, 1) == {0: at}

    # The group and its producers move.
    seen = consumed(kafka.bootstrap, topic)[2]
    produce(elsewhere.bootstrap, topic, 1, 30)
    there = consumed(elsewhere.bootstrap, topic)[2]
    assert {offset: there.get(offset) for offset in seen} == seen
    after = Reader(elsewhere, group, topic)
    after.read(lambda: after.offsets[-1:] == [max(there)])
    assert after.offsets == [offset for offset in sorted(there) if offset >= at]
    assert sorted({*before.offsets, *after.offsets}) == sorted(there)
    last = after.commit()
    after.close()

    # And back.
    shell("mirror", "failback", "m", "--name", "back", *of)
    resources.wait_mirror("back", reason="CopiesInSync", timeout_s=90)
    until(lambda: committed(kafka.bootstrap, group, topic, 1) == {0: last}, "the group's offset is carried back")
    assert resources.get_mirror("m")["status"]["failover"]["notCopied"] == 0
    resources.delete_mirror("m")  # what was taken over is known by now
    produce(elsewhere.bootstrap, new, 1, 2)
    until(lambda: has_all(elsewhere, kafka, new), "it goes on without the other", timeout_s=60)
    shell("mirror", "failover", "back", *of)
    produce(kafka.bootstrap, topic, 1, 3)
    assert {o: r for o, r in consumed(kafka.bootstrap, topic)[2].items() if o in there} == there
    again = Reader(kafka, group, topic)
    again.read(lambda: len(again.offsets) == 3)
    again.close()
    assert min(again.offsets) >= last


def test_a_process_that_wakes_up_after_the_failover_changes_nothing(
    start_operator: StartOperator,
    kube_client: kube.ApiClient,
    resources: Resources,
    kafka: KafkaCluster,
    elsewhere: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    shell: Shell,
) -> None:
    replicas = pair(start_operator, kube_client, resources.namespace)
    connected_both(resources, kafka, elsewhere)
    topic, group, of = make_topic(config=KEPT), unique("group"), ("-n", resources.namespace)
    batches = 120  # it is to be copying still when it has failed over
    for _ in range(batches):
        produce(kafka.bootstrap, topic, 1, 100)
    end = end_of(kafka, topic)
    commit(kafka.bootstrap, group, topic, {0: 7})
    limits = {"rateLimit": {"bytesPerSecond": 1_000}}  # a batch a second, or so
    resources.mirror("m", {"include": [topic]}, groups={"include": [group], "interval": "1s"}, **limits)
    until(lambda: end_of(elsewhere, topic) > 0, "something is copied", timeout_s=60)
    replicas.leader.freeze()
    until(lambda: leads(replicas.standby), "the standby leads", timeout_s=90)

    told = shell("mirror", "failover", "m", "--accept-loss", *of)
    [row] = resources.get_mirror("m")["status"]["failover"]["topics"]
    [copied] = row["ends"]
    assert row["lacks"] == [end - copied]
    assert f"{topic}  0          {copied}" in told
    assert 0 < copied < end
    there, offsets = end_of(elsewhere, topic), committed(elsewhere.bootstrap, group, topic, 1)
    replicas.leader.thaw()
    replicas.leader.ended(90)
    assert end_of(elsewhere, topic) == there
    assert committed(elsewhere.bootstrap, group, topic, 1) == offsets
    theirs, ours = consumed(kafka.bootstrap, topic)[2], consumed(elsewhere.bootstrap, topic)[2]
    assert ours == {offset: record for offset, record in theirs.items() if offset < copied}

    # What was not copied is not dropped in silence.
    produce(elsewhere.bootstrap, topic, 1, 5)
    shell("mirror", "failback", "m", "--name", "back", *of)
    body = resources.wait_mirror("back", False, reason="CopiesDrifted", timeout_s=60)
    says = body["status"]["worst"][0]["message"]
    assert f"{end - copied} in partition 0 from offset {copied}" in says
    assert end_of(kafka, topic) == end
    delete(kafka, topic)
    until(lambda: has_all(elsewhere, kafka, topic), "it is copied from its start", timeout_s=60)
    assert_equal(elsewhere, kafka, topic)
