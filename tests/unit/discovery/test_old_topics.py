"""What was there before is not new: where policies, connections or clusters change, or brokers lag behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from support.discovery_world import (
    GROUP,
    Operator,
    World,
    eventually,
    new,
)
from support.fake_kafka import START, FakeKafka
from support.live import live_of
from tidegate.discovery import feature
from tidegate.discovery.remembered import PART
from tidegate.kafka.model import TopicPartition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.discovery import DiscoveredTopic, DiscoveryStatus
from tidegate.resources.policy import PolicyStatus


def test_a_topic_that_the_policy_turns_to_later_is_an_old_one(world: World) -> None:
    world.kafka.create_topic("refunds", 2)
    with world.operator(topics=["orders"]) as operator:
        operator.first()
        operator.ask(topics=["orders", "refunds"], discovery={"interval": "10ms"})
        operator.settled("refunds", 2)
        world.kafka.add_partitions("refunds", 3)
        operator.settled("refunds", 3)

    assert world.kafka.committed(GROUP, new(0, 1, 2, topic="refunds")) == {TopicPartition("refunds", 2): 0}


def test_behind_a_broker_that_lags_old_partitions_are_not_taken_for_new_ones(world: World) -> None:
    world.kafka.create_topic("refunds", 4)
    with world.operator(topics=["ord*"]) as operator:
        operator.first()
        world.kafka.lag_behind("refunds", 2)
        operator.until(lambda _: operator.shown("refunds") == 2, "the broker that lags is met")
        operator.ask(topics=["*"], discovery={"interval": "10ms"})
        operator.until(lambda s: {t.name for t in s.topics} == {"orders", "refunds"}, "the policy turns to the topic")
        world.kafka.lag_behind("refunds", None)
        operator.until(lambda _: operator.shown("refunds") == 4, "the broker has caught up")
        world.kafka.add_partitions("refunds", 5)
        status = operator.settled("refunds", 5)

    assert {t.name: t.initial for t in status.topics} == {"orders": 2, "refunds": 4}
    assert world.kafka.committed(GROUP, new(*range(5), topic="refunds")) == {TopicPartition("refunds", 4): 0}


def test_behind_a_broker_that_lags_a_partition_is_not_taken_for_just_made(world: World) -> None:
    """Another policy has seen it, and its first records are gone: where its log begins has to be asked."""
    world.kafka.add_partitions("orders", 3)
    world.kafka.append(TopicPartition("orders", 2), [START] * 9)
    world.kafka.delete_records(TopicPartition("orders", 2), 4)
    with world.operator(discovery={"interval": "10ms", "newPartitions": "none"}) as operator:
        [topic] = operator.first().topics
        world.kafka.lag_behind("orders", 2)
        operator.until(lambda _: operator.shown("orders") == 2, "the broker that lags is met")
        known = topic.model_copy(update={"initial": 2, "settled": 2})
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        world.status = PolicyStatus(
            discovery=DiscoveryStatus(initial_discovery_finished=True, selection=("*",), topics=(known,))
        )
        other.run(other.keep())
        world.kafka.lag_behind("orders", None)
        status = other.settled("orders", 3)

    assert status.starts_committed == 1
    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 4}


AGES = pytest.mark.parametrize(("age", "initial"), [(timedelta(days=19), 2), (timedelta(minutes=5), 0)])
"""Of a topic, and how many of its two partitions were there before."""


def _audit_is_made(world: World, operator: Operator, age: timedelta) -> None:
    """A topic of two partitions, which the operator has seen so long ago."""
    operator.settled("orders", 2)
    world.kafka.create_topic("audit", 2)
    world.kafka.fill("audit", 9)
    operator.until(lambda _: "audit" in operator.feature._watches["c"].topics, "the topic is seen")
    world.clock.sleep(age.total_seconds())


@AGES
def test_a_topic_that_the_group_reads_only_long_after_it_was_made_is_an_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch, age: timedelta, initial: int
) -> None:
    monkeypatch.setattr(feature, "_COMMITTED_S", 0.0)  # by the loop's clock, which no test moves
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        _audit_is_made(world, operator, age)
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(0, 1, topic="audit"), 9))
        status = operator.settled("audit", 2)
        assert {topic.name: topic.initial for topic in status.topics} == {"orders": 2, "audit": initial}
        world.kafka.add_partitions("audit", 3)
        operator.settled("audit", 3)

    where = 9 if initial else 0
    assert world.kafka.committed(GROUP, new(*range(3), topic="audit")) == dict(
        zip(new(*range(3), topic="audit"), [where, where, 0], strict=True)
    )


def test_what_an_earlier_version_has_written_after_a_downgrade_holds(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 4)
    earlier = [
        DiscoveredTopic(name=name, topic_id=topic.topic_id, initial=2 if name == "orders" else 0, settled=settled)
        for name, topic in world.kafka.topics().items()
        if (settled := {"orders": 3, "refunds": 1}.get(name)) is not None
    ]
    world.status = PolicyStatus(
        discovery=DiscoveryStatus(
            initial_discovery_finished=True, selection=("*",), topics=tuple(earlier), starts_committed=2
        )
    )
    read = {TopicPartition("orders", 2): 7, TopicPartition("refunds", 0): 7}
    for partition in read:
        world.kafka.append(partition, [START] * 9)
    world.kafka.commit_directly(GROUP, read)
    with world.operator() as operator:
        status = operator.settled("orders", 4)
        assert (status.starts_committed, status.backfilled) == (3, 0)
        operator.settled("refunds", 1)

    assert world.kafka.committed(GROUP) == {**read, TopicPartition("orders", 3): 0}


@pytest.mark.parametrize("restart", [True, False])
def test_a_topic_that_the_connection_allows_later_is_an_old_one(world: World, *, restart: bool) -> None:
    world.allow = AllowSpec.model_validate({"topics": ["orders"]})
    with world.operator() as operator:
        operator.first()
        world.kafka.create_topic("refunds", 2)
        operator.until(lambda _: "refunds" in operator.feature._watches["c"].topics, "the topic is seen")
        if not restart:
            operator.live = replace(operator.live, allow=AllowSpec())
            operator.settled("refunds", 2)
    world.allow = AllowSpec()
    with world.operator() as operator:
        operator.settled("refunds", 2)
        world.kafka.add_partitions("refunds", 3)
        operator.settled("refunds", 3)

    assert set(world.kafka.committed(GROUP)) == {TopicPartition("refunds", 2)}


def test_a_memory_without_the_allowed_topics_is_read_and_what_is_there_counts_as_old(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    [(key, data)] = world.kube.config_maps.items()
    document = json.loads(data["memory.json"])
    del document["groups"][GROUP][PART]["allowed"]
    world.kube.config_maps[key] = {"memory.json": json.dumps(document)}
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        operator.settled("orders", 3)

    assert set(world.kafka.committed(GROUP)) == {TopicPartition("orders", 2)}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("earlier_version", [False, True])
def test_what_comes_while_the_connection_only_observes_is_old_when_that_ends(
    world: World, *, restart: bool, earlier_version: bool
) -> None:
    """An owner that has begun at the end meanwhile is not sent back."""
    with world.operator() as operator:
        status = operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 5})
    if earlier_version:
        world.kube.config_maps.clear()
        known = status.topics[0].model_copy(update={"settled": 3})
        earlier = status.model_copy(update={"topics": (known,), "selection": ("*",), "starts_committed": 1})
        world.status = PolicyStatus(discovery=earlier)
    with world.operator() as operator:
        operator.live = replace(operator.live, observes=True)
        operator.run(operator.keep())
        world.kafka.add_partitions("orders", 4)
        world.kafka.create_topic("refunds", 1)
        world.kafka.append(TopicPartition("orders", 3), [START] * 9)
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 3): 7})
        for _ in range(3):
            operator.run(operator.keep())
        if not restart:
            goes_on_as_if_all_were_old(world, operator)
    if restart:
        with world.operator() as operator:
            goes_on_as_if_all_were_old(world, operator)


def goes_on_as_if_all_were_old(world: World, operator: Operator) -> None:
    operator.live = replace(operator.live, observes=False)
    operator.settled("orders", 4)
    operator.settled("refunds", 1)
    world.kafka.add_partitions("orders", 5)
    status = operator.settled("orders", 5)

    assert (status.starts_committed, status.backfilled) == (2, 0)
    assert world.kafka.committed(GROUP) == dict(zip(new(2, 3, 4), [5, 7, 0], strict=True))


class Elsewhere:
    """Another cluster with a topic of the same name, which the group has long read from its end on."""

    def __init__(self, world: World) -> None:
        self.kafka = FakeKafka(world.clock)
        self.kafka.create_topic("older", 1)
        self.kafka.create_topic("orders", 3)
        self.place = dict.fromkeys(new(0, 1, 2), 7)
        for partition in self.place:
            self.kafka.append(partition, [START] * 9)
        self.kafka.commit_directly(GROUP, self.place)

    def joined_by(self, operator: Operator, uid: str) -> None:
        operator.live = replace(live_of(self.kafka, uid), cluster_id="elsewhere")
        operator.observer.connect(uid, "ns/kafka", self.kafka, self.kafka.control)


@pytest.mark.parametrize("uid", ["c", "d"], ids=["of its connection", "through another connection"])
@pytest.mark.parametrize("restart", [False, True])
def test_what_is_there_in_a_cluster_that_the_policy_moves_to_is_old(world: World, uid: str, *, restart: bool) -> None:
    """Topics of the same names have other ids there: they were not made anew."""
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
        if not restart:
            goes_on_elsewhere(operator, elsewhere, uid)
    if restart:
        with world.operator() as operator:
            goes_on_elsewhere(operator, elsewhere, uid)


def goes_on_elsewhere(operator: Operator, elsewhere: Elsewhere, uid: str) -> None:
    elsewhere.joined_by(operator, uid)
    operator.until(lambda s: any(t.initial == 3 for t in s.topics), "what is there is seen")
    elsewhere.kafka.add_partitions("orders", 4)
    status = operator.settled("orders", 4)

    assert elsewhere.kafka.committed(GROUP) == {**elsewhere.place, TopicPartition("orders", 3): 0}
    assert (status.starts_committed, status.began_at_end, status.backfilled) == (2, 0, 0)


def test_where_a_connection_moves_to_another_cluster_no_policy_of_it_takes_what_is_there_for_new(world: World) -> None:
    """The pass of one of them opens the watch for all."""
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        operator.first()
        elsewhere.joined_by(operator, "c")
        operator.settled("orders", 3)
        operator.run(asyncio.sleep(0.2))  # twenty looks
        other.live = operator.live
        status = other.settled("orders", 3)

    assert elsewhere.kafka.committed(GROUP) == elsewhere.place
    assert (status.began_at_end, status.backfilled) == (0, 0)


def test_what_there_was_before_is_in_memory_once_for_all_who_come_to_it(world: World) -> None:
    """There may be thousands of groups, and as many topics."""
    with world.operator() as operator:
        operator.first()
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        first, second = operator.feature._watches["c"].guards.values()

    assert len(first.existed) == 1
    assert first.existed is second.existed


def test_a_policy_that_has_moved_to_another_connection_does_nothing_through_the_one_before(world: World) -> None:
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        operator.first()
        here = operator.live
        elsewhere.joined_by(operator, "d")
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        operator.settled("orders", 3)
        assert set(operator.feature._watches) == {"d"}
        world.kafka.add_partitions("orders", 3)
        stays = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="stays", beside=operator)
        stays.live, stays.run = here, operator.run
        stays.first()

    assert world.kafka.committed(GROUP) == {}


def test_what_was_taken_care_of_is_known_where_another_connection_to_the_cluster_is_taken(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        guard = operator.feature._watches["c"].guards["u"]
        operator.run(eventually(lambda: guard.state.topics["orders"].settled == 3))
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 5})
        operator.live = live_of(world.kafka, "d")
        operator.observer.connect("d", "ns/kafka", world.kafka, world.kafka.control)
        status = operator.settled("orders", 3)
        world.kafka.add_partitions("orders", 4)
        status = operator.settled("orders", 4)

    assert (status.starts_committed, status.backfilled) == (2, 0)
    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 5, TopicPartition("orders", 3): 0}


@AGES
def test_a_topic_is_no_younger_after_its_connection_was_opened_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, age: timedelta, initial: int
) -> None:
    """As for new credentials, which says nothing of when clients have heard of the topic."""
    monkeypatch.setattr(feature, "_COMMITTED_S", 0.0)  # by the loop's clock, which no test moves
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        _audit_is_made(world, operator, age)
        operator.opened_anew()
        operator.until(lambda _: "audit" in operator.feature._watches["c"].topics, "the topic is seen again")
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(0, 1, topic="audit"), 9))
        status = operator.settled("audit", 2)

    assert {topic.name: topic.initial for topic in status.topics} == {"orders": 2, "audit": initial}
    where = 9 if initial else 0
    assert world.kafka.committed(GROUP, new(0, 1, topic="audit")) == dict.fromkeys(new(0, 1, topic="audit"), where)


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_could_not_be_seen_for_long_is_not_taken_for_a_new_one(
    world: World, monkeypatch: pytest.MonkeyPatch, *, restart: bool
) -> None:
    """Without Describe on it brokers do not list it: that is no other than its deletion, until it is there again."""
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        with monkeypatch.context() as hidden:
            hidden.setattr(world.kafka, "_public_topics", dict)
            operator.until(lambda _: not operator.feature._watches["c"].topics, "it is not seen any more")
            world.clock.sleep(timedelta(hours=2).total_seconds())
            operator.until(lambda s: not s.topics, "it is forgotten")
        if not restart:
            goes_on_with_an_old_topic(world, operator)
    if restart:
        with world.operator() as operator:
            goes_on_with_an_old_topic(world, operator)


@pytest.mark.parametrize("restart", [False, True])
def test_what_came_while_the_policy_did_not_ask_for_a_topic_is_old(world: World, *, restart: bool) -> None:
    world.kafka.create_topic("refunds", 1)
    with world.operator(topics=["orders"]) as operator:
        operator.first()
        operator.ask(topics=["refunds"], discovery={"interval": "10ms"})
        operator.settled("refunds", 1)
        world.kafka.add_partitions("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        if not restart:
            operator.ask(topics=["orders"], discovery={"interval": "10ms"})
            goes_on_with_an_old_topic(world, operator)
    if restart:
        with world.operator(topics=["orders"]) as operator:
            goes_on_with_an_old_topic(world, operator)


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "died before that"])
def test_what_came_while_the_policy_asked_for_no_discovery_is_old(world: World, *, is_said: bool) -> None:
    """Also where the operator died once it had written what it remembers, and before the status that tells of it."""
    with world.operator() as operator:
        operator.first()
    if not is_said:
        world.status = PolicyStatus()
    with world.operator(discovery=None) as operator:
        assert operator.run(operator.keep()) is None
        world.kafka.add_partitions("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        operator.ask(topics=["orders"], discovery={"interval": "10ms"})
        goes_on_with_an_old_topic(world, operator)


def goes_on_with_an_old_topic(world: World, operator: Operator) -> None:
    operator.settled("orders", 3)
    world.kafka.add_partitions("orders", 4)
    status = operator.settled("orders", 4)

    assert (status.began_at_end, status.backfilled) == (0, 0)
    assert world.kafka.committed(GROUP) == {**dict.fromkeys(new(0, 1, 2), 7), TopicPartition("orders", 3): 0}


@pytest.mark.parametrize(("before", "after", "given"), [({}, 4, 1), ({TopicPartition("refunds", 0): 7}, 7, 0)])
def test_a_topic_that_was_only_hidden_until_now_is_not_taken_for_just_made(
    world: World, monkeypatch: pytest.MonkeyPatch, before: dict[TopicPartition, int], after: int, given: int
) -> None:
    """As when the operator is given Describe on it: its first records have long been removed, so it is old."""
    partition = TopicPartition("refunds", 0)
    world.kafka.create_topic("refunds", 1)
    world.kafka.append(partition, [START] * 9)
    world.kafka.delete_records(partition, 4)
    world.kafka.commit_directly(GROUP, before)
    shown = world.kafka._public_topics
    with world.operator() as operator:
        with monkeypatch.context() as hidden:
            hidden.setattr(world.kafka, "_public_topics", lambda: {"orders": shown()["orders"]})
            operator.first()
        status = operator.settled("refunds", 1)
        world.kafka.add_partitions("refunds", 2)
        status = operator.settled("refunds", 2)

    assert (status.starts_committed, status.began_at_end, status.backfilled) == (1 + given, 0, 0)
    assert world.kafka.committed(GROUP) == {partition: after, TopicPartition("refunds", 1): 0}
