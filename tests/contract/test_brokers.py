"""One suite for `tidegate.kafka_client.topic_watch.Brokers`: by script, and the wire to a real broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from devstack.processes import eventually
from support.scripted_brokers import ScriptedBrokers, ScriptedTopic
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka_client.cluster_requests import MetadataBrokers
from tidegate.kafka_client.metadata import read_topics, topics_start
from tidegate.kafka_client.topic_watch import Brokers
from tidegate.kafka_client.wire import Wire


@dataclass(frozen=True)
class Cluster:
    """Brokers that know two topics, of 1 and of 3 partitions; ``expand`` gives the second one a fourth."""

    brokers: Brokers
    names: tuple[str, str]
    expand: Callable[[], None]
    unreachable: Brokers

    def ask(self, topics: Collection[str] | None) -> bytes:
        """What any of them says of topics: that part of the answer."""
        node = self.brokers.brokers()[0]
        answer = self.brokers.metadata(node, topics, timeout_s=5)
        return answer[topics_start(answer) :]

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        """Of those topics that it tells of."""
        return {name: topic.partitions for name, topic in read_topics(self.ask(topics)).items()}


def _by_script() -> Cluster:
    brokers = ScriptedBrokers([ScriptedTopic("one", 1), ScriptedTopic("three", 3, topic_id=bytes(15) + b"\x01")])

    def expand() -> None:
        brokers.answers[0] = [ScriptedTopic("one", 1), ScriptedTopic("three", 4, topic_id=bytes(15) + b"\x01")]

    return Cluster(brokers, ("one", "three"), expand, ScriptedBrokers())


@pytest.fixture(params=["script", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "script":
        yield _by_script()
        return
    bootstrap, make_topic = request.getfixturevalue("kafka").bootstrap, request.getfixturevalue("make_topic")
    one, three = make_topic(1), make_topic(3)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def expand() -> None:
        admin.create_partitions([NewPartitions(three, 4)])[three].result(30)

    nobody = Connection("127.0.0.1:9", properties={"socket.timeout.ms": "1000"})
    with (
        closing(MetadataBrokers(Wire(Connection(bootstrap)))) as brokers,
        closing(MetadataBrokers(Wire(nobody))) as unreachable,
    ):
        yield Cluster(brokers, (one, three), expand, unreachable)


def test_topics_are_told_with_their_partitions(cluster: Cluster) -> None:
    one, three = cluster.names
    expected = {one: 1, three: 3}

    found = cluster.partitions(None)
    assert {name: found.get(name) for name in cluster.names} == expected
    assert cluster.partitions(cluster.names) == expected
    assert cluster.partitions([three]) == {three: 3}
    assert cluster.partitions([three, "there-is-no-such-topic"]) == {three: 3}
    ids = {topic.topic_id for topic in read_topics(cluster.ask(cluster.names)).values()}
    assert len(ids) == 2


def test_the_answer_is_the_same_byte_for_byte_until_something_changes(cluster: Cluster) -> None:
    names = sorted(cluster.names)
    before = cluster.ask(names)

    assert cluster.ask(names) == before
    cluster.expand()
    # A broker hears of it after the controller has done it.
    assert eventually(lambda: cluster.ask(names) != before, 90)
    assert cluster.partitions(names)[cluster.names[1]] == 4


def test_a_broker_that_is_not_there_is_unavailable(cluster: Cluster) -> None:
    there = cluster.brokers.brokers()
    assert there

    with pytest.raises(Unavailable):
        cluster.brokers.metadata(max(there) + 1000, None, timeout_s=1)
    assert cluster.partitions(cluster.names)


def test_where_nobody_answers_there_are_no_brokers(cluster: Cluster) -> None:
    with pytest.raises(Unavailable):
        cluster.unreachable.brokers()


def test_after_closing_the_next_call_connects_anew(cluster: Cluster) -> None:
    before = cluster.partitions(cluster.names)
    cluster.brokers.close()
    cluster.brokers.close()

    assert cluster.partitions(cluster.names) == before
