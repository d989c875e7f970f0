"""New partitions of a live group that starts at `latest`: real API server, real broker, ordinary consumers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from apiserver.offsets import committed
from devstack import KafkaCluster
from support.clients import ConsumerFleet, Partition, SteadyProducer
from support.operator_process import Body, OperatorProcess, Resources, until
from support.policy_memory import remembered_counts, remembered_topics
from support.stack_fixtures import MakeTopic, Unique

BEFORE, AFTER = 2, 4
RATE = 50.0

pytestmark = pytest.mark.at_once(3)

CLASSIC: dict[str, Any] = {"heartbeat_s": 0.5, "session_s": 6.0, "config": {"topic.metadata.refresh.interval.ms": 1000}}
CONSUMER: dict[str, Any] = {"protocol": "consumer"}


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(BEFORE)


@pytest.fixture
def name(unique: Unique) -> str:
    return unique("p")


def discovery(resources: Resources, name: str) -> dict[str, Any]:
    """What its status says, and of topics its memory."""
    policy = resources.get_policy(name)
    found: dict[str, Any] = policy.get("status", {}).get("discovery", {})
    assert not found.get("topics")
    return {**found, "topics": remembered_topics(resources.core, policy)}


def wait_discovered(resources: Resources, name: str, **wanted: int) -> Body:
    def look() -> Body | None:
        found = discovery(resources, name)
        finished = found.get("initialDiscoveryFinished") is True
        return found if finished and all(found.get(key, 0) == value for key, value in wanted.items()) else None

    try:
        found: Body = until(look, f"policy {name} has discovered {wanted}", timeout_s=60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {discovery(resources, name)}; {resources.events(name)}") from None
    return found


def wait_settled(resources: Resources, name: str) -> Body:
    """The first topic's new partitions are taken care of."""

    def look() -> Body | None:
        found = discovery(resources, name)
        counts = [found.get(key, 0) for key in ("startsCommitted", "beganAtEnd", "backfilled")]
        told = counts == remembered_counts(resources.core, resources.get_policy(name))
        return found if told and [t["settled"] for t in found["topics"]] == [AFTER] else None

    try:
        found: Body = until(look, f"policy {name} has settled {AFTER} partitions", timeout_s=60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {discovery(resources, name)}; {resources.events(name)}") from None
    return found


def expand(kafka: KafkaCluster, topic: str, partitions: int = AFTER) -> list[Partition]:
    """Add partitions; the new ones."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    before = len(admin.list_topics(topic, timeout=20).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
    return [(topic, number) for number in range(before, partitions)]


def flood(kafka: KafkaCluster, new: list[Partition]) -> SteadyProducer:
    """Somebody who writes to new partitions from the first moment on."""
    topic = new[0][0]
    return SteadyProducer(kafka.bootstrap, topic, [number for _, number in new], RATE)


def missing(fleet: ConsumerFleet, producer: SteadyProducer) -> dict[Partition, int]:
    """By partition, how many acknowledged records were never delivered, once the newest were."""
    acked = producer.stop()
    fleet.wait_read_to(producer.ends(), 90)
    delivered = {(d.topic, d.partition, d.offset) for d in fleet.records()}
    return {p: sum((*p, offset) not in delivered for offset in offsets) for p, offsets in acked.items()}


def wait_flowing(
    kafka: KafkaCluster, fleet: ConsumerFleet, group: str, producer: SteadyProducer, new: list[Partition]
) -> None:
    """What was written and committed is told where nothing comes: it was so once, and why is not known."""
    try:
        fleet.wait_flowing(new, timeout=90)
    except AssertionError as error:
        try:
            found: object = committed(kafka.bootstrap, group, new[0][0], AFTER)
        except KafkaException as unstable:
            found = unstable
        raise AssertionError(f"{error}; written up to {producer.ends()}; committed: {found}") from None


def overtake(operator: OperatorProcess, fleet: ConsumerFleet, producer: SteadyProducer, new: list[Partition]) -> None:
    """New partitions have records and then owners, and only then the operator is there."""
    until(lambda: all(len(producer.acked().get(p, {})) > 5 for p in new), "some records are written")
    fleet.wait_flowing(new, timeout=90)
    operator.start()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, kafka: KafkaCluster, topic: str, name: str) -> Iterator[ConsumerFleet]:
    options: dict[str, Any] = request.param
    with ConsumerFleet(
        "librdkafka", kafka.bootstrap, name, [topic], 2, auto_offset_reset="latest", **options
    ) as consumers:
        consumers.wait_assigned([(topic, number) for number in range(BEFORE)])
        yield consumers


@pytest.mark.parametrize("fleet", [CLASSIC, CONSUMER], ids=["classic", "KIP-848"], indirect=True)
def test_no_record_of_a_new_partition_is_skipped(
    shared: Resources, kafka: KafkaCluster, fleet: ConsumerFleet, topic: str, name: str
) -> None:
    shared.policy(name, name, topics=[topic], discovery={})
    wait_discovered(shared, name)

    new = expand(kafka, topic)
    with flood(kafka, new) as producer:
        wait_flowing(kafka, fleet, name, producer, new)
        found = wait_settled(shared, name)
        lost = missing(fleet, producer)

    assert lost == dict.fromkeys(new, 0)
    assert found["startsCommitted"] + found["backfilled"] == len(new)
    assert [(row["topic"], row["partition"]) for row in found["newest"]] == [(topic, 3), (topic, 2)]
    assert found["topics"] == [
        {"name": topic, "topicId": found["topics"][0]["topicId"], "initial": BEFORE, "settled": AFTER}
    ]
    assert [reason for reason, _ in shared.events(name)].count("PartitionsFound") == 1


@pytest.mark.parametrize(
    "fleet",
    [pytest.param(CLASSIC, id="classic"), pytest.param(CONSUMER, id="KIP-848", marks=pytest.mark.nightly)],
    indirect=True,
)
def test_an_owner_that_came_while_the_operator_was_away_is_sent_back(
    resources: Resources,
    connected: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    fleet: ConsumerFleet,
    topic: str,
    name: str,
) -> None:
    resources.policy(name, name, topics=[topic], discovery={})
    wait_discovered(resources, name)
    operator.kill()

    new = expand(kafka, topic)
    with flood(kafka, new) as producer:
        overtake(operator, fleet, producer, new)
        found = wait_discovered(resources, name, beganAtEnd=2, backfilled=2)
        lost = missing(fleet, producer)

    assert lost == dict.fromkeys(new, 0)
    assert found["topics"][0]["settled"] == AFTER
    reasons = [reason for reason, _ in resources.events(name)]
    assert "BeganAtEnd" in reasons
    assert "Backfilled" in reasons


@pytest.mark.parametrize("fleet", [CLASSIC], ids=["classic"], indirect=True)
def test_a_loss_that_is_only_to_be_reported_is_left_as_it_is(
    resources: Resources,
    connected: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    fleet: ConsumerFleet,
    topic: str,
    name: str,
) -> None:
    resources.policy(name, name, topics=[topic], discovery={"repair": "Report"})
    wait_discovered(resources, name)
    operator.kill()

    new = expand(kafka, topic)
    with flood(kafka, new) as producer:
        overtake(operator, fleet, producer, new)
        found = wait_discovered(resources, name, beganAtEnd=2)
        lost = missing(fleet, producer)

    assert all(records > 0 for records in lost.values())
    assert found["backfilled"] == 0
    assert any("may have skipped" in text for reason, text in resources.events(name) if reason == "BeganAtEnd")


def test_a_restart_takes_no_old_partition_for_a_new_one_and_a_new_topic_for_an_old_one(
    resources: Resources,
    connected: Resources,
    operator: OperatorProcess,
    kafka: KafkaCluster,
    topic: str,
    name: str,
) -> None:
    resources.policy(name, name, topics=[f"{topic}*"], discovery={})
    wait_discovered(resources, name)
    operator.kill()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(f"{topic}-more", 1)])[f"{topic}-more"].result(20)
    operator.start()

    found = wait_discovered(resources, name, startsCommitted=1)

    assert [(t["name"], t["initial"], t["settled"]) for t in found["topics"]] == [
        (topic, 2, 2),
        (f"{topic}-more", 0, 1),
    ]
    assert committed(kafka.bootstrap, name, f"{topic}-more", 1) == {0: 0}
    assert committed(kafka.bootstrap, name, topic, BEFORE) == {}


def test_a_topic_made_anew_is_new_as_a_whole(shared: Resources, kafka: KafkaCluster, topic: str, name: str) -> None:
    shared.policy(name, name, topics=[topic], discovery={})
    before = wait_discovered(shared, name)["topics"][0]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)

    after = wait_discovered(shared, name, startsCommitted=1)["topics"][0]

    assert (after["initial"], after["settled"]) == (0, 1)
    assert after["topicId"] != before["topicId"] == after["before"]
