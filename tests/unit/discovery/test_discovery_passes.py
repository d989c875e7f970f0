"""Discovery as its policy's passes see it, on the in-memory Kafka: restarts, faults, and what agents are told."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from support.discovery_world import (
    GROUP,
    RULE,
    WITHIN_S,
    Operator,
    World,
    new,
    records,
    seen_by_others,
)
from support.fake_kafka import START, FakeTopicWatch
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery import watch
from tidegate.discovery.feature import is_refused
from tidegate.discovery.remembered import PART
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.discovery import DiscoveredTopic, DiscoveryStatus
from tidegate.resources.policy import PolicyStatus


def test_a_new_partition_is_given_its_start_and_told(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 4)
        status = operator.settled("orders", 4)

    assert status.starts_committed == 2
    assert [(row.topic, row.partition) for row in status.newest] == [("orders", 3), ("orders", 2)]
    assert world.kafka.committed(GROUP, new(0, 1, 2, 3)) == dict.fromkeys(new(2, 3), 0)
    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_new_partitions_are_counted_by_how_they_stand(world: World) -> None:
    outcomes = ["Given", "Standing", "Overtaken", "Backfilled"]
    assert [world.counted("tidegate_new_partitions_total", outcome=o) for o in outcomes] == [0, 0, 0, 0]
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 4)
        operator.settled("orders", 4)

    assert [world.counted("tidegate_new_partitions_total", outcome=o) for o in outcomes] == [2, 0, 0, 0]


def test_a_connection_that_was_removed_is_not_looked_at_any_more(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        operator.run(operator.feature.disconnected("u"))
        world.metrics.connection_gone("ns/kafka")
        world.kafka.add_partitions("orders", 3)
        operator.run(asyncio.sleep(0.1))  # ten of its looks
        assert world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="ok") is None
        assert world.kafka.committed(GROUP) == {}

        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 0}


def test_a_fresh_operator_goes_on_where_the_last_one_was(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(0, 1, 2)) == {TopicPartition("orders", 2): 0}
    assert world.kafka.committed(GROUP, new(0, topic="refunds")) == {TopicPartition("refunds", 0): 0}


def test_what_an_earlier_version_has_left_in_the_status_is_gone_on_from_and_moved_to_the_memory(world: World) -> None:
    topic_id = world.kafka.topics()["orders"].topic_id
    known = DiscoveredTopic(name="orders", topic_id=topic_id, initial=2, settled=2)
    world.status = PolicyStatus(
        discovery=DiscoveryStatus(
            initial_discovery_finished=True, selection=("*",), topics=(known,), starts_committed=4, backfilled=1
        )
    )
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        status = operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    assert (status.starts_committed, status.backfilled) == (5, 1)
    assert world.status.discovery is not None
    # An earlier version that comes back takes what is there for old, and backfills nothing.
    assert (world.status.discovery.topics, world.status.discovery.selection) == ((), None)
    with world.operator() as operator:
        status = operator.settled("orders", 3)
    assert (status.starts_committed, len(world.kafka.committed(GROUP))) == (5, 1)


def test_without_topics_it_is_about_those_that_the_group_reads(world: World) -> None:
    world.kafka.create_topic("audit", 1)
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        operator.settled("orders", 2)
        world.kafka.add_partitions("orders", 3)
        world.kafka.add_partitions("audit", 2)
        status = operator.settled("orders", 3)

    assert [topic.name for topic in status.topics] == ["orders"]
    assert status.unassigned_initial == 1


def test_a_topic_that_the_connection_does_not_allow_is_not_touched(world: World) -> None:
    world.allow = AllowSpec.model_validate({"topics": ["orders"]})
    with world.operator() as operator:
        operator.first()
        world.kafka.create_topic("secret", 1)
        world.kafka.add_partitions("orders", 3)
        status = operator.settled("orders", 3)

    assert [topic.name for topic in status.topics] == ["orders"]
    assert world.kafka.committed(GROUP, new(0, topic="secret")) == {}


def test_a_memory_that_cannot_be_read_counts_as_none(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.operator() as operator:
        operator.first()
    [(key, data)] = world.kube.config_maps.items()
    document = json.loads(data["memory.json"])
    document["groups"][GROUP][PART]["topics"]["orders"][1] = math.inf
    world.kube.config_maps[key] = {"memory.json": json.dumps(document)}
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {}
    assert "the partitions that exist now count as old" in caplog.text


@pytest.mark.parametrize("wish", ["latest", "none"])
def test_where_no_start_is_wanted_none_is_given(world: World, wish: str) -> None:
    with world.operator(discovery={"interval": "10ms", "newPartitions": wish}) as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {}
    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_a_broker_that_fails_delays_and_loses_nothing(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        for call in ("poll", "groups", "committed", "send", "commit"):
            world.kafka.fail(call, Unavailable("away"), Unavailable("away"))
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    assert world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="failed") == 2


@pytest.mark.parametrize(
    ("failure", "times"),
    [(NotAuthorized("commit offsets: no Write on TransactionalId"), 3), (Unavailable("no coordinator"), 12)],
    ids=["refused", "unavailable for long"],
)
def test_a_start_that_can_not_be_given_is_told_of_until_it_is(world: World, failure: KafkaFailure, times: int) -> None:
    """Its Event has said that the group begins the partition at its start."""
    with world.operator() as operator:
        operator.first()
        world.kafka.fail("send", *[failure] * times)
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: operator.trouble != "", "it is said")
        trouble = operator.trouble
        operator.settled("orders", 3)
        operator.run(operator.keep())

    assert (operator.trouble, world.kafka.committed(GROUP)) == ("", {TopicPartition("orders", 2): 0})
    assert trouble.startswith(f"the start of orders 2 could not be committed for group payments: {failure}. ")
    assert [h.reason for h in world.told] == ["PartitionsFound", "StartFailed"]
    assert "begins at its end" in world.told[1].message


def test_nothing_is_said_of_a_start_once_its_topic_is_gone(world: World) -> None:
    world.kafka.create_topic("refunds", 1)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        world.kafka.fail("send", *[NotAuthorized("commit offsets: no Write on TransactionalId")] * 1000)
        world.kafka.add_partitions("refunds", 2)
        operator.until(lambda _: operator.trouble != "", "it is said")
        world.kafka.delete_topic("refunds")
        operator.until(lambda _: operator.trouble == "", "it is not said any more")


def test_a_start_that_a_broker_is_slow_to_take_is_told_of_to_nobody(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.fail("send", *[Unavailable("no coordinator")] * 3)
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_a_look_that_is_ended_with_the_operator_is_not_counted_as_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, ended = threading.Event(), threading.Event()

    def poll(_watch: FakeTopicWatch, _topics: Collection[str] | None = None) -> None:
        looking.set()
        assert ended.wait(WITHIN_S)

    with world.operator() as operator:
        operator.first()
        monkeypatch.setattr(FakeTopicWatch, "poll", poll)
        assert operator.run(asyncio.to_thread(looking.wait, WITHIN_S))
    ended.set()

    assert not world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="failed")


def test_a_look_that_outlasts_its_connection_leaves_no_count_of_it(world: World) -> None:
    def told() -> list[float | None]:
        outcomes = ("ok", "failed")
        return [world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome=o) for o in outcomes]

    async def polled() -> None:
        async with asyncio.timeout(WITHIN_S):
            while told() == [None, None]:  # noqa: ASYNC110 - what is waited for is the code under test
                await asyncio.sleep(0.01)

    with world.operator() as operator:
        operator.first()
        world.metrics.connection_gone("ns/kafka")
        # Until the policy's pass has heard of it, its topics are looked at.
        operator.run(polled())
        [key] = operator.feature._watches["c"].guards

        operator.run(operator.feature.disconnected(key))

    assert told() == [None, None]


def test_through_a_frozen_connection_new_partitions_wait_for_their_start(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        operator.freeze()
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 4)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        guard = operator.feature._watches["c"].guards["u"]
        operator.until(lambda s: guard.failures > 1 or s.starts_committed > 0, "their turn has come, twice")
        during = world.kafka.committed(GROUP, new(2, 3))
        operator.freeze("")
        operator.until(lambda s: s.backfilled == 1 and s.starts_committed == 1, "they get their start")

    assert during == {TopicPartition("orders", 2): 7}
    assert world.kafka.committed(GROUP, new(2, 3)) == dict.fromkeys(new(2, 3), 0)


@pytest.mark.parametrize("there", [False, True])
def test_through_a_frozen_connection_no_topic_is_made_to_tell_agents(world: World, *, there: bool) -> None:
    if there:
        world.kafka.control.ensure()
    with world.operator(**RULE) as operator:
        operator.freeze()
        operator.first()
        operator.until(
            lambda _: world.kafka.control.topics.gates.clock_ms is not None or not there, "agents are told the time"
        )
        assert world.kafka.control.topics.control_exists is there
        operator.freeze("")
        operator.until(lambda _: world.kafka.control.topics.control_exists, "they are made")


@pytest.mark.parametrize(
    ("age", "starts"),
    [(timedelta(minutes=59), {TopicPartition("orders", 2): 0}), (timedelta(minutes=61), {})],
    ids=["younger than maxAge", "older than maxAge"],
)
def test_a_new_partition_that_is_older_than_max_age_is_left_to_its_consumers(
    world: World, age: timedelta, starts: dict[TopicPartition, int]
) -> None:
    """Those that run no agent have the same threshold."""
    with world.operator(**RULE) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    seen_by_others(world, 2, age)

    with world.operator(**RULE) as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == starts
    assert [h.reason for h in world.told] == ["PartitionsFound"]
    assert ("older than latest.maxAge" in world.told[0].message) is not bool(starts)
    assert world.counted("tidegate_new_partitions_total", outcome="TooOld") == (0 if starts else 1)


def test_a_topic_that_is_made_anew_is_not_taken_for_the_old_one_before_it(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    seen_by_others(world, 2, timedelta(minutes=61))
    with world.operator(**RULE) as operator:
        operator.settled("orders", 3)
        world.kafka.delete_topic("orders")
        topic_id = world.kafka.create_topic("orders", 3)
        operator.until(
            lambda s: [(t.topic_id, t.settled) for t in s.topics] == [(topic_id, 3)], "the new topic is taken care of"
        )

    assert world.kafka.committed(GROUP) == dict.fromkeys(new(0, 1, 2), 0)
    assert [h.message.split(";")[0] for h in world.told] == ["new partitions: orders 2", "new partitions: orders 0-2"]


def test_a_partition_whose_age_is_not_known_counts_as_young(world: World) -> None:
    with world.operator(latest={"maxAge": "1ms"}) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    with world.operator(latest={"maxAge": "1ms"}) as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 0}


def test_agents_are_told_which_partitions_were_there_and_when_the_others_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CLOCK_S", 0.05)
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        clock_ms = world.kafka.control.topics.gates.clock_ms
        before_ms = round(world.clock.now().timestamp() * 1000)
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: len(records(world)) == 2, "the new one is told of")
        after_ms = round(world.clock.now().timestamp() * 1000)
        operator.until(lambda _: world.kafka.control.topics.gates.clock_ms != clock_ms, "the clock goes on")

    told = records(world)
    assert ("orders", 0) not in told
    assert told["orders", 1] == PartitionSeen(initial=True)
    seen = told["orders", 2]
    assert seen.seen_ms is not None
    assert seen.seen_absent_ms is not None
    # The fake's clock moves by leaps: bounds are wide, and hold what they have to.
    assert seen.seen_absent_ms <= after_ms
    assert before_ms <= seen.seen_ms <= after_ms + 1000


def test_the_highest_partition_of_a_topic_is_told_first(world: World) -> None:
    """An agent that has read a part of them takes partitions above what it has read for newer than all of it."""
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.add_partitions("orders", 7)
        operator.until(lambda _: len(records(world)) == 6, "the new ones are told of")

    told = [key.partition for _, key in world.kafka.control.writes if isinstance(key, PartitionKey)]
    # A busy operator may tell of them once more before it reads what it has written.
    assert list(dict.fromkeys(told)) == [1, 6, 5, 4, 3, 2]


def test_a_control_topic_that_is_lost_is_written_anew(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: len(records(world)) == 2, "the new one is told of")
        before = records(world)
        world.kafka.control.lose()
        operator.until(lambda _: len(records(world)) == 2, "all are told of again")

    assert records(world) == before


def test_what_was_said_of_a_topic_that_was_made_anew_is_taken_back(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.delete_topic("orders")
        topic_id = world.kafka.create_topic("orders", 1)
        operator.until(
            lambda _: list(world.kafka.control.topics.gates.partitions) == [PartitionKey("orders", topic_id, 0)],
            "only the new topic is told of",
        )

    assert not records(world)["orders", 0].initial


def test_what_was_said_of_a_topic_is_not_taken_back_where_a_broker_still_shows_the_one_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh operator did not see its partitions come: it would say that they were there at first."""
    monkeypatch.setattr(watch, "CLOCK_S", 0.05)
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        former = world.kafka._public_topics()
        world.kafka.delete_topic("orders")
        key = PartitionKey("orders", world.kafka.create_topic("orders", 1), 0)
        operator.until(
            lambda _: list(world.kafka.control.topics.gates.partitions) == [key], "only the new topic is told of"
        )
    said = records(world)

    with world.operator(**RULE) as operator:
        with monkeypatch.context() as lagging:
            lagging.setattr(world.kafka, "_public_topics", lambda: former)
            operator.until(lambda _: operator.feature._watches["c"].topics == former, "the broker that lags is met")
            clock_goes_on(world, operator)
        operator.until(lambda _: operator.feature._watches["c"].topics != former, "the broker has caught up")
        clock_goes_on(world, operator)

    assert records(world) == said
    assert not said["orders", 0].initial


def clock_goes_on(world: World, operator: Operator) -> None:
    """As often as it takes to find out what is to be written, and to write it."""
    for _ in range(3):
        clock_ms = world.kafka.control.topics.gates.clock_ms
        operator.until(lambda _, ms=clock_ms: world.kafka.control.topics.gates.clock_ms != ms, "the clock goes on")  # type: ignore[misc]


def test_without_agents_that_decide_no_control_topic_is_made(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert not world.kafka.control.topics.control_exists


@pytest.mark.parametrize("spec", [{"discovery": {"interval": "0s"}}, {"discovery": None}])
def test_a_policy_that_does_not_ask_for_it_is_left_alone(world: World, spec: dict[str, Any]) -> None:
    with world.operator() as operator:
        operator.first()
        operator.ask(topics=["*"], **spec)
        assert operator.run(operator.keep()) is None
        assert operator.feature._watches == {}


def test_a_topic_that_has_long_been_gone_is_forgotten(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.delete_topic("orders")
        operator.until(lambda _: not operator.feature._watches["c"].topics, "it is seen to be gone")
        remembered = operator.run(operator.keep())
        world.clock.sleep(timedelta(hours=2).total_seconds())
        operator.until(lambda s: not s.topics, "it is forgotten")

    assert [topic.name for topic in remembered.topics] == ["orders"]


@pytest.mark.parametrize("kind", [GroupType.STREAMS, GroupType.SHARE])
def test_groups_of_kafka_streams_and_share_groups_are_refused(world: World, kind: GroupType) -> None:
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 1})
    world.kafka.set_group(GROUP, kind)
    with world.operator() as operator:
        assert operator.run(operator.keep()) is None

    assert [h.reason for h in world.told] == ["GroupNotSupported"]


def test_a_streams_application_of_the_classic_protocol_is_told_by_its_assignor() -> None:
    assert is_refused(Group(GROUP, GroupState.STABLE, GroupType.CLASSIC, "stream"))
    assert not is_refused(Group(GROUP, GroupState.STABLE, GroupType.CLASSIC, "range"))
    assert not is_refused(Group(GROUP, GroupState.DEAD, GroupType.UNKNOWN))
