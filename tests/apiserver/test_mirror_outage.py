"""A cluster dies while consumers of several libraries read from it: each group goes on in the mirror's target with the
numbers that it had committed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from apiserver.offsets import NO_COORDINATOR, committed, produce
from devstack import ApiServer, KafkaCluster
from support.checker import check
from support.clients import ConsumerFleet
from support.clients.fleet import EventKind
from support.clients.producer import SteadyProducer
from support.deliveries import Delivery, Partition
from support.needs import starts
from support.operator_process import OperatorProcess, Resources, until
from support.shell import Shell
from support.stack_fixtures import Unique, topics_of

LIVE, QUIET, OLD = (0, 1), 2, 50
"""Partitions that are written until the cluster dies; one that is not any more, and how many records it has."""
PARTITIONS = 3
LIBRARIES = ("java", "librdkafka", "franz-go")


@pytest.fixture
@starts("kafka")
def dying() -> Iterator[KafkaCluster]:
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture
@starts("kafka")
def surviving() -> Iterator[KafkaCluster]:
    with KafkaCluster.start() as cluster:
        yield cluster


class Group:
    """A member of one library that reads and commits, first in one cluster, then in the other."""

    def __init__(self, library: str, name: str, topic: str) -> None:
        self.library, self.name, self._topic = library, name, topic
        self.before: list[Delivery] = []
        self.after: list[Delivery] = []
        self.committed: dict[Partition, set[int]] = {}
        """The offsets that it was told are committed, before the cluster died."""

    def member(self, cluster: KafkaCluster, auto_offset_reset: str) -> ConsumerFleet:
        options = {"commit": "sync", "commit_every_s": 0.3, "auto_offset_reset": auto_offset_reset}
        return ConsumerFleet(self.library, cluster.bootstrap, self.name, [self._topic], 1, **options)

    def died(self, fleet: ConsumerFleet) -> None:
        fleet.kill_process(0)
        self.before = fleet.records()
        for event in fleet.events():
            for commit in event.commits if event.kind is EventKind.COMMIT else ():
                if commit.error is None:
                    self.committed.setdefault(commit.partition, set()).add(commit.offset)

    def assert_committed(self, partition: Partition, offset: int) -> None:
        """That it had read, and had committed, or was about to, all before the offset. It need not be a number that it
        committed: nothing is carried beyond the copy's end.
        """
        told = sorted(self.committed[partition])
        read = {d.offset + 1 for d in self.before if (d.topic, d.partition) == partition}
        is_unanswered = offset > told[-1] and offset in read
        assert 0 < offset <= told[-1] or is_unanswered, f"{self.name} begins at {offset}, and was told {told[-8:]}"


def by_partition(deliveries: list[Delivery]) -> dict[Partition, dict[int, int | None]]:
    """By offset, the record's digest. Fails where a record was delivered twice."""
    found: dict[Partition, dict[int, int | None]] = {}
    for delivery in deliveries:
        records = found.setdefault((delivery.topic, delivery.partition), {})
        assert delivery.offset not in records, f"{delivery} was delivered before"
        records[delivery.offset] = delivery.value
    return found


def test_consumers_of_a_dead_cluster_go_on_in_the_other_one(
    resources: Resources,
    operator: OperatorProcess,
    apiserver: ApiServer,
    dying: KafkaCluster,
    surviving: KafkaCluster,
    unique: Unique,
) -> None:
    resources.connection("here", dying.bootstrap)
    resources.connection("there", surviving.bootstrap)
    topic = next(topics_of(dying, unique))(PARTITIONS)
    partitions, live = ([(topic, number) for number in numbers] for numbers in (range(PARTITIONS), LIVE))
    groups = [Group(library, unique(library), topic) for library in LIBRARIES]
    names = [group.name for group in groups]
    fleets = [group.member(dying, "earliest") for group in groups]
    produce(dying.bootstrap, topic, PARTITIONS, OLD)
    producer = SteadyProducer(dying.bootstrap, topic, LIVE, 200)

    def is_carried(group: str) -> bool:
        try:
            found = committed(surviving.bootstrap, group, topic, PARTITIONS)
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR:
                raise
            return False
        return found.get(QUIET) == OLD and all(found.get(number, 0) > OLD for number in LIVE)

    producer.start()
    try:
        for fleet in fleets:
            fleet.__enter__()
        groups_of = {"include": names, "interval": "1s"}
        resources.mirror("m", {"include": [topic]}, groups=groups_of, parity={"interval": "1s"})
        resources.wait_mirror("m", timeout_s=90)
        until(lambda: all(map(is_carried, names)), "all groups have offsets in the other cluster", timeout_s=60)
        for fleet in fleets:
            fleet.wait_flowing(live)
        dying.kill(dying.brokers[0])
        for group, fleet in zip(groups, fleets, strict=True):
            group.died(fleet)
    finally:
        producer.give_up()
        for fleet in fleets:
            fleet.stop()

    shell = Shell({"KUBECONFIG": str(apiserver.kubeconfig)})
    told = shell("mirror", "failover", "m", "--accept-loss", "-n", resources.namespace)
    assert "unknown" in told  # nobody can say what the dead cluster had that was not copied
    status = resources.get_mirror("m")["status"]
    assert status["parity"]["different"] == []
    [row] = status["failover"]["topics"]
    copied = dict(zip(partitions, row["ends"], strict=True))
    begins = {name: committed(surviving.bootstrap, name, topic, PARTITIONS) for name in names}

    # What is lost could not be seen if a group that has no offset began at the start.
    fleets = [group.member(surviving, "latest") for group in groups]
    try:
        for fleet in fleets:
            fleet.__enter__()
        for fleet in fleets:
            fleet.wait_assigned(partitions)
        with SteadyProducer(surviving.bootstrap, topic, PARTITIONS, 100) as producer:
            for fleet in fleets:
                fleet.wait_flowing(partitions)
            new = producer.stop()
        for group, fleet in zip(groups, fleets, strict=True):
            fleet.wait_read_to(producer.ends())
            group.after = fleet.records()
    finally:
        for fleet in fleets:
            fleet.stop()

    there = {p: frozenset(range(copied[p])) | new[p] for p in partitions}
    for group in groups:
        for number, offset in begins[group.name].items():
            group.assert_committed((topic, number), offset)
        assert begins[group.name][QUIET] == OLD
        before, after = by_partition(group.before), by_partition(group.after)
        for partition in partitions:
            begin = begins[group.name][partition[1]]
            assert begin <= copied[partition]
            assert set(after[partition]) == {offset for offset in there[partition] if offset >= begin}
            again = [
                offset for offset in after[partition] if offset in before[partition] and offset < copied[partition]
            ]
            assert [after[partition][offset] for offset in again] == [before[partition][offset] for offset in again]
        mirrored = [d for d in group.before if d.offset < copied[d.topic, d.partition]]
        verdict = check([*mirrored, *group.after], there)
        assert verdict.missing == 0, verdict.complaints()
