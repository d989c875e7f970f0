"""Passes over an `OffsetMirror`: what is copied, what is refused, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from support.mirror.passes import CREATED, World
from support.mirror.written import Written, batch, placed
from tidegate.clock import SystemClock
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS, Conflict, Kind, KubeFailure, Object
from tidegate.mirror import transitions
from tidegate.mirror.model import Interrupted, ProducerIds
from tidegate.mirror.ports import GroupOffset, GroupOffsets
from tidegate.mirror.records import filler
from tidegate.offset_mirror import ids as ids_module
from tidegate.offset_mirror import status as mirror_status
from tidegate.offset_mirror.ids import ProducerIdsInStatus
from tidegate.resources.conditions import find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_topic_is_copied_and_said_to_be_in_sync(world: World) -> None:
    assert world.one_pass().reason == "CopiesSeeding"
    assert world.there.kept.keys() == {"t"}
    world.copied()

    for number in range(2):
        assert world.there.log("t", number).visible() == world.here.log("t", number).visible()
    status = world.status
    [topic] = status.topics
    assert (topic.source_id, topic.target_id, topic.seeded) == ("here-1", "there-1", True)
    assert (status.source_cluster, status.target_cluster, status.in_sync) == ("here", "there", "2/2")
    assert [world.condition(each).status for each in ("InSync", "Seeding", "Drifted")] == ["True", "False", "False"]
    assert world.condition("Drifted").reason == "NoDriftSeen"
    assert [h.reason for h in world.kube.happenings_of("m")] == ["CopiesSeeding", "CopiesInSync"]


def test_a_topic_is_copied_though_the_mirror_s_events_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise KubeFailure("record an Event of ns/m: 403 exceeded quota: events")

    monkeypatch.setattr(world.kube, "record", refused)

    world.copied()

    assert world.status.in_sync == "2/2"
    assert not world.kube.happenings_of("m")


def test_nothing_is_copied_before_the_status_names_the_topics_ids(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever dies then would not notice that the topic was created again."""
    replace_status = world.kube.replace_status

    def without_topics(kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        if status.get("topics"):
            raise Conflict("it was changed")
        return replace_status(kind, body, status)

    monkeypatch.setattr(world.kube, "replace_status", without_topics)
    for _ in range(10):
        with contextlib.suppress(Conflict):
            world.run(world.reconciler.reconcile(world.body))
        world.run(asyncio.sleep(0.02))
    assert "t" in world.there.kept
    assert world.there.log("t").end == 0

    monkeypatch.undo()
    world.copied()


def test_another_process_goes_on_with_the_same_producer(world: World) -> None:
    world.copied()
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 3)
    world.passes(lambda: world.there.log("t").end == 23)

    assert len(world.status.producer_ids) == 1
    assert world.there.log("t").visible() == world.here.log("t").visible()


def test_groups_are_carried_over_and_counted(world: World) -> None:
    world.here.offsets["g"] = {TopicPartition("t", 0): GroupOffset(7)}
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.one_pass()
    world.passes(lambda: world.status.groups is not None)

    assert world.there.offsets["g"] == {TopicPartition("t", 0): GroupOffset(7)}
    assert world.status.groups is not None
    assert (world.status.groups.total, world.status.groups.carried) == (1, 1)


def _looks_at(world: World, seconds: float) -> int:
    """How often the source's ends are asked for in that time."""
    asked, told_bounds = [], world.here.told_bounds

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return told_bounds(*arguments, **options)

    world.here.told_bounds = counted  # type: ignore[method-assign]
    world.run(asyncio.sleep(seconds))
    return len(asked)


def test_a_copy_that_is_not_written_any_more_does_not_have_its_source_looked_at_more_often(world: World) -> None:
    world.run(world.reconciler.stop())
    world.look_s = 0.5
    world.restart()
    world.copied()
    world.there.write("t", 1)
    world.here.write("t", 4)
    world.passes(lambda: world.condition("Drifted").status == "True")

    # With each look the source has something that the copy has not. Looked for what is new it would be 30 times.
    assert _looks_at(world, 1.6) <= 5


def test_a_copy_that_drifted_stalls_the_mirror_and_no_other_copy(world: World) -> None:
    world.copied()
    world.there.write("t", 1)
    for number in range(2):
        world.here.write("t", 4, number)
    world.passes(lambda: world.condition("Drifted").status == "True")

    assert world.condition("Ready").reason == "CopiesDrifted"
    assert world.condition("Stalled").status == "True"
    world.passes(lambda: world.there.log("t", 1).end == 9)
    [worst] = world.status.worst
    assert (worst.topic, worst.partition, worst.state) == ("t", 0, "Drifted")


def test_a_partition_that_can_not_be_filled_stalls_the_mirror(world: World) -> None:
    world.here.log("t").delete_records(15)
    world.spec["seed"] = {"maxFill": 14}
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "CopiesStopped")
    assert "raise spec.seed.maxFill to 15" in world.condition("Ready").message

    world.spec["seed"] = {"maxFill": 15}
    world.one_pass()
    world.copied()
    assert world.there.log("t").start == 15


def test_a_topic_that_was_created_again_is_halted(world: World) -> None:
    world.copied()
    del world.here.kept["t"]
    world.here.create_topic("t", 2, {"retention.ms": "-1"})
    world.here.write("t", 90)
    world.passes(lambda: world.condition("Drifted").status == "True")
    assert world.there.log("t").end == 20

    del world.there.kept["t"]
    world.copied()
    assert world.there.log("t").end == 90


def test_a_topic_that_is_gone_at_the_source_keeps_its_copy(world: World) -> None:
    world.copied()
    topic = world.here.kept.pop("t")
    world.passes(lambda: [row.state for row in world.status.topics] == ["SourceGone"])
    assert world.there.log("t").end == 20

    world.here.kept["t"] = topic
    world.copied()


def test_a_topic_that_the_source_does_not_show_any_more_is_not_taken_for_gone(world: World) -> None:
    """Brokers don't list what the principal may not see. A right that is withdrawn must not end the copying of a topic
    without a word, and a failover has to wait for it."""
    world.here.create_topic("u", 1, {})
    world.here.write("u", 3)
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    world.here.hidden = {"u"}
    world.here.write("u", 4)
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "CopiesStopped")
    assert "allow the principal Describe on topic u" in world.condition("Ready").message
    assert {row.name: row.state for row in world.status.topics}["u"] is CopyState.STOPPED
    assert (world.status.in_sync, world.condition("InSync").status) == ("2/3", "False")
    world.spec["failover"] = {}
    for _ in range(5):
        world.one_pass()
    assert world.status.failover is None

    world.here.hidden = set()
    world.passes(lambda: world.condition("Ready").reason == "FailedOver")
    assert world.there.log("u").visible() == world.here.log("u").visible()


def test_a_copy_that_the_target_does_not_show_any_more_is_not_waited_for_as_if_it_were_being_made(world: World) -> None:
    world.copied()
    world.there.hidden = {"t"}
    world.passes(lambda: world.condition("Ready").reason == "CopiesStopped")
    assert "allow the principal Describe on topic t" in world.condition("Ready").message

    world.there.hidden = set()
    world.copied()


def test_a_topic_that_one_listing_lacks_is_not_taken_for_gone(world: World) -> None:
    """As that of a broker that is behind."""
    world.copied()
    topics, world.here.topics = world.here.topics, dict  # type: ignore[assignment, method-assign]
    world.here.topic = lambda name: topics().get(name)  # type: ignore[method-assign]
    for _ in range(3):
        assert world.one_pass().reason == "CopiesSeeding"

    world.here.topics = topics  # type: ignore[method-assign]
    world.copied()


def test_what_is_added_at_the_source_is_added_to_the_copy(world: World) -> None:
    world.copied()
    world.here.add_partitions("t", 3)
    world.here.write("t", 2, 2)
    world.here.configure("t", {"max.message.bytes": "5"})
    world.passes(lambda: world.status.in_sync == "3/3")

    assert world.there.log("t", 2).end == 2
    assert world.there.kept["t"].settings["max.message.bytes"] == "5"


def test_a_topic_that_the_target_refuses_keeps_no_other_from_being_copied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = world.there.create_topic

    def refuse(name: str, partitions: int, settings: Any) -> None:
        if name == "u":
            raise NotAuthorized("create topic u: allow the principal Create on topic u")
        create(name, partitions, settings)

    monkeypatch.setattr(world.there, "create_topic", refuse)
    world.here.create_topic("u", 1, {})
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.passes(lambda: world.status.in_sync == "2/3")
    assert world.condition("Ready").reason == "CopiesStopped"
    assert "allow the principal Create on topic u" in world.condition("Ready").message

    monkeypatch.undo()
    world.copied()
    assert world.status.in_sync == "3/3"


def test_nothing_is_carried_over_once_it_has_ended(world: World) -> None:
    """What is just being committed is, and nothing after it."""
    for number in range(3):
        world.here.offsets[f"g{number}"] = {TopicPartition("t", 0): GroupOffset(7)}
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    commit, at_work, may_go_on = world.there.commit, threading.Event(), threading.Event()

    def slow(group_id: str, offsets: GroupOffsets) -> None:
        at_work.set()
        assert may_go_on.wait(10)
        commit(group_id, offsets)

    world.there.commit = slow  # type: ignore[method-assign]
    world.one_pass()
    world.passes(at_work.is_set)

    async def ended() -> None:
        stopping = asyncio.ensure_future(world.reconciler.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        may_go_on.set()
        await stopping

    world.run(ended())
    assert not {group for group in world.there.offsets if not group.startswith("tidegate.")}


def test_a_mirror_without_topics_says_so(world: World) -> None:
    world.spec["topics"] = {"include": ["none*"]}

    assert world.one_pass().reason == "NoTopicsYet"
    assert lag_seconds(world) == 0  # infinite, it would be an alert


def test_a_mirror_that_is_suspended_rests_until_it_goes_on(world: World) -> None:
    world.copied()
    world.spec["suspend"] = True
    assert (world.one_pass().reason, world.condition("Ready").status) == ("Suspended", "True")
    assert world.condition("InSync").reason == "NotCopying"
    assert world.condition("InSync").status == "Unknown"
    assert world.here.closed
    world.here.write("t", 5)
    world.run(asyncio.sleep(0.1))
    assert world.there.log("t").end == 20

    world.spec["suspend"] = False
    world.one_pass()
    world.copied()
    assert world.there.log("t").end == 25


@pytest.mark.parametrize("name", ["here", "there"])
def test_through_a_frozen_connection_no_mirror_begins_and_one_that_runs_goes_on(name: str, world: World) -> None:
    world.connect(name, frozen="frozen by alice: INC-4711")
    ready = world.one_pass()
    assert (ready.status, ready.reason) == ("False", "Frozen")
    assert f"KafkaConnection {name} is frozen by alice: INC-4711" in ready.message
    assert world.there.kept == {}
    assert find_condition(world.status.conditions, "Stalled") is None

    world.connect(name)
    world.copied()
    world.connect(name, frozen="frozen by alice: INC-4711")
    world.here.write("t", 3)
    world.passes(lambda: world.there.log("t").visible() == world.here.log("t").visible())

    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 4)
    world.passes(lambda: world.there.log("t").visible() == world.here.log("t").visible())


@pytest.mark.parametrize("name", ["here", "there"])
def test_through_a_frozen_connection_a_suspended_mirror_does_not_go_on_and_one_is_failed_over(
    name: str, world: World
) -> None:
    world.copied()
    world.spec["suspend"] = True
    assert world.one_pass().reason == "Suspended"
    world.connect(name, frozen="frozen by alice: INC-4711")
    world.here.write("t", 3)

    world.spec["suspend"] = False
    for _ in range(3):
        assert world.one_pass().reason == "Frozen"
    world.run(world.reconciler.stop())
    world.restart()
    assert world.one_pass().reason == "Frozen"
    assert world.there.log("t").end == 20

    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "FailedOver")
    assert world.there.log("t").end >= 23


@pytest.mark.parametrize("name", ["here", "there"])
def test_a_connection_that_is_not_there_is_waited_for(name: str, world: World) -> None:
    world.live.drop("ns", name, uid=name)
    assert (world.one_pass().reason, world.condition("Ready").message) == (
        "WaitingForConnection",
        f"there is no usable KafkaConnection {name} in this namespace: waiting for it",
    )

    world.connect(name, trouble=("KafkaUnavailable", "nobody is there"))
    assert world.one_pass().reason == "WaitingForConnection"
    assert "KafkaUnavailable" in world.condition("Ready").message
    world.connect(name)
    world.copied()


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"observes": True}, "Observing", "KafkaConnection there only observes"),
        ({"cluster_id": "here"}, "SameCluster", "KafkaConnections here and there reach the same cluster, here"),
    ],
)
def test_what_a_target_must_not_be(changes: dict[str, Any], reason: str, says: str, world: World) -> None:
    world.connect("there", **changes)

    assert world.one_pass().reason == reason
    assert says in world.condition("Stalled").message
    assert world.opened == []


def test_a_connection_that_leads_to_another_cluster_later_is_refused(world: World) -> None:
    world.copied()
    world.connect("there", cluster_id="third")

    assert world.one_pass().reason == "ClusterChanged"
    assert world.there.closed


def test_topics_that_a_connection_does_not_allow_are_left_out(world: World) -> None:
    world.connect("there", allow=AllowSpec(topics=("other",)))

    assert world.one_pass().reason == "NoTopicsYet"
    assert world.there.kept == {}


def test_too_many_topics_are_refused(world: World) -> None:
    for number in range(201):
        world.here.create_topic(f"t{number}", 1, {})
    world.spec["topics"] = {"include": ["*"]}

    assert world.one_pass().reason == "TooManyTopics"
    assert world.there.kept == {}


def test_of_two_mirrors_of_a_topic_the_older_one_copies_it(world: World) -> None:
    older = {**world.spec, "topics": {"include": ["*"], "exclude": ["x"]}}
    world.kube.create(MIRRORS, "ns", "older", older, "2026-11-19T12:00:00Z")
    assert world.one_pass().reason == "CopiedByAnother"
    assert "topic t is copied to this cluster by OffsetMirror ns/older" in world.condition("Ready").message

    world.kube.change(MIRRORS, "ns", "older", spec={**older, "topics": {"include": ["*"], "exclude": ["t"]}})
    world.copied()
    world.kube.create(MIRRORS, "ns", "younger", older, "2026-11-21T12:00:00Z")
    assert world.one_pass().reason == "CopiesInSync"


def test_a_spec_that_is_none_is_refused(world: World) -> None:
    world.spec["engine"] = "Flink"

    assert world.one_pass().reason == "InvalidSpec"


def test_a_cluster_that_does_not_answer_is_told_of_and_gone_on_with(world: World) -> None:
    world.copied()
    world.here.failure = Unavailable("nobody is there")
    world.passes(lambda: world.condition("Ready").reason == "CopiesLagging")
    assert "nobody is there" in world.condition("Ready").message

    world.here.failure = None
    world.copied()


def test_a_status_of_a_newer_version_is_left_as_it_is(world: World) -> None:
    world.copied()
    newer = {**world.body["status"], "newer": 1}
    world.kube.replace_status(MIRRORS, world.body, newer)
    world.run(world.reconciler.reconcile(world.body))

    status = world.body["status"]
    assert (status["newer"], status["producerIds"]) == (1, newer["producerIds"])
    assert any(each["reason"] == "UnreadableStatus" for each in status["conditions"])
    assert world.here.closed


def test_who_claims_a_producer_id_first_wins(world: World) -> None:
    numbers = itertools.count(100)
    first, second = (ProducerIdsInStatus(world.kube, world.body, lambda: next(numbers)) for _ in range(2))

    assert first.claim(None) == ProducerIds((100,))
    assert second.claim(None) == ProducerIds((100,))
    assert second.claim(100) == ProducerIds((100, 101))
    assert first.claim(100) == ProducerIds((100, 101))
    assert first.claim(None) == ProducerIds((100, 101))
    assert world.status.producer_ids == (100, 101)


def test_an_id_that_could_not_be_noted_is_not_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ProducerIdsInStatus(world.kube, world.body, lambda: 100)
    get = world.kube.get

    def changed_since(*arguments: Any) -> Object:
        body = get(*arguments)
        world.kube.change(MIRRORS, "ns", "m", annotations={"a": "b"})
        return body

    monkeypatch.setattr(world.kube, "get", changed_since)
    assert isinstance(ids.claim(None), Interrupted)
    monkeypatch.undo()
    assert world.status.producer_ids == ()
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    assert isinstance(ids.claim(None), Interrupted)
    world.kube.create(MIRRORS, "ns", "m", world.spec, CREATED)
    assert isinstance(ids.claim(None), Interrupted)


def test_what_is_deleted_is_let_go_of(world: World) -> None:
    world.copied()
    samples = {s.name for f in world.metrics.registry.collect() for s in f.samples if s.labels.get("mirror") == "m"}
    assert {"tidegate_mirror_partitions", "tidegate_mirror_lag_records", "tidegate_mirror_lag_seconds"} <= samples
    body = world.body
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    world.run(world.reconciler.forget(body))

    assert world.here.closed
    assert world.there.closed
    assert not [s for f in world.metrics.registry.collect() for s in f.samples if s.labels.get("mirror") == "m"]


def lag_seconds(world: World) -> float | None:
    return world.metrics.registry.get_sample_value(
        "tidegate_mirror_lag_seconds", {"resource_namespace": "ns", "mirror": "m"}
    )


def test_the_lag_grows_while_a_connection_is_in_trouble(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no alert would tell of the outage that a mirror is for."""
    world.copied()
    world.here.failure = Unavailable("nobody is there")
    world.connect("here", trouble=("KafkaUnavailable", "nobody is there"))
    monotonic = SystemClock.monotonic
    monkeypatch.setattr(SystemClock, "monotonic", lambda clock: monotonic(clock) + 3600)
    world.one_pass()

    assert (lag_seconds(world) or 0) >= 3600
    in_sync = {"resource_namespace": "ns", "mirror": "m", "state": "InSync"}
    assert world.metrics.registry.get_sample_value("tidegate_mirror_partitions", in_sync) == 0


def measured(world: World, state: str) -> float | None:
    labels = {"resource_namespace": "ns", "mirror": "m", "state": state}
    return world.metrics.registry.get_sample_value("tidegate_mirror_partitions", labels)


@pytest.mark.parametrize("why", ["connection", "topics"])
def test_the_lag_is_infinite_while_nothing_can_be_copied(world: World, why: str) -> None:
    """Also by an operator that was started in the outage, and where something else of the mirror can't be done."""
    world.there.create_topic("t", 2, {"retention.ms": "-1"})
    world.there.write("t", 1)
    world.passes(lambda: bool(measured(world, "Drifted")))
    drifted = measured(world, "Drifted")
    world.run(world.reconciler.stop())
    if why == "connection":
        world.connect("here", trouble=("KafkaUnavailable", "nobody is there"))
    else:
        for number in range(200):
            world.here.create_topic(f"u{number}", 1, {})
        world.spec["topics"] = {"include": ["*"]}
    world.restart()
    world.one_pass()

    assert lag_seconds(world) == float("inf")
    assert measured(world, "Drifted") == drifted
    assert measured(world, "InSync") is None
    world.spec["suspend"] = True
    world.one_pass()
    assert lag_seconds(world) is None  # as it was asked for


def test_nothing_is_measured_of_a_mirror_whose_status_can_not_be_read(world: World) -> None:
    world.copied()
    world.kube.replace_status(MIRRORS, world.body, {**world.body["status"], "newer": 1})
    world.run(world.reconciler.reconcile(world.body))

    assert lag_seconds(world) is None


def test_copies_go_on_while_the_ends_of_the_source_can_not_be_asked_for(world: World) -> None:
    """As where one of its partitions has no leader: that must not hold up the others."""
    world.copied()

    def headless(*_: Any, **__: Any) -> Any:
        raise Unavailable("read the end of the logs: t-1 has no leader at the moment")

    world.here.told_bounds = headless  # type: ignore[method-assign]
    world.here.write("t", 5)
    world.passes(lambda: world.there.log("t").end == 25)

    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 5)
    world.passes(lambda: world.there.log("t").end == 30)


def test_groups_that_cannot_be_read_make_no_copy_lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_coordinator() -> set[str]:
        raise Unavailable("no coordinator answers")

    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.one_pass()
    world.copied()
    with monkeypatch.context() as patch:
        patch.setattr(world.here, "group_ids", no_coordinator)
        world.passes(lambda: world.condition("Ready").reason == "CopyingHindered")
        said = world.condition("Ready").message
        assert said == "all 2 partition(s) lag the source by 10 s at most. no coordinator answers"
        assert world.condition("InSync").status == "True"

    world.copied()


def test_a_partition_of_the_source_without_a_leader_leaves_the_lag_of_the_others_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_status, "_WRITTEN_EVERY", timedelta(0))  # else a message waits for that long
    world.copied()
    world.here.headless = {TopicPartition("t", 1)}
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 5)
    world.passes(lambda: world.status.partitions is not None and world.status.partitions.in_sync == 1)

    assert world.status.lag is not None
    assert world.status.worst[0].partition == 1
    world.passes(
        lambda: "the source does not say where 1 partition(s) end, such as t-1" in world.condition("Ready").message
    )
    assert world.condition("Ready").reason == "CopiesLagging"

    world.here.headless = set()
    world.copied()


def test_a_partition_without_a_leader_keeps_no_other_topic_from_being_begun(world: World) -> None:
    """Of a compacted topic it is asked where its logs begin, and of one that others may have written where they end."""
    world.here.create_topic("compacted", 2, {"cleanup.policy": "compact"})
    world.here.write("compacted", 3)
    world.spec["topics"] = {"include": ["*"]}
    world.one_pass()
    world.passes(lambda: world.status.in_sync == "4/4")
    for name in ("new", "theirs"):
        world.here.create_topic(name, 1, {"cleanup.policy": "compact" if name == "new" else "delete"})
    world.there.create_topic("theirs", 1, {})
    world.here.headless = {TopicPartition("compacted", 1), TopicPartition("new", 0)}
    world.there.headless = {TopicPartition("theirs", 0)}
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 5)
    world.here.write("compacted", 5)

    world.passes(lambda: (world.there.log("t").end, world.there.log("compacted").end) == (25, 8))
    assert world.there.kept["compacted"].settings["cleanup.policy"] == "compact"
    assert world.condition("Ready").status != "True"
    world.here.headless = world.there.headless = set()
    world.copied()
    assert world.status.in_sync == "6/6"


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_topic_whose_settings_may_not_be_read_keeps_no_other_from_being_begun(where: str, world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    cluster = world.here if where == "here" else world.there
    settings = cluster.settings

    def refused(topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        if "u" in topics:
            raise NotAuthorized("read the settings of topic u: allow the principal DescribeConfigs on topic u")
        return settings(topics)

    cluster.settings = refused  # type: ignore[method-assign]
    world.here.write("u", 2)
    world.passes(lambda: world.there.log("u").end == 2)
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 5)

    world.passes(lambda: world.there.log("t").end == 25)
    world.passes(lambda: world.condition("Ready").reason == "CopiesStopped")
    assert "allow the principal DescribeConfigs on topic u" in world.condition("Ready").message
    cluster.settings = settings  # type: ignore[method-assign]
    world.copied()


def test_what_has_drifted_stays_so_while_a_partition_of_it_has_no_leader(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    world.there.write("t", 3)
    world.here.write("t", 5)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.there.headless = {TopicPartition("t", 1)}
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("u", 5)

    world.passes(lambda: world.there.log("u").end == 5)
    assert world.condition("Drifted").status == "True"


def test_a_topic_that_is_gone_at_the_source_does_not_lag(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    del world.here.kept["u"]
    world.passes(lambda: "SourceGone" in [row.state for row in world.status.topics])

    world.copied()
    assert world.status.in_sync == "2/2"


def test_topics_that_are_gone_leave_room_in_the_status_for_others(world: World) -> None:
    """Else it would be refused, and nothing new would be copied any more."""
    for number in range(150):
        world.here.create_topic(f"a{number:03}", 1, {})
    world.spec["topics"] = {"include": ["*"]}
    world.one_pass()
    world.passes(lambda: len(world.status.topics) == 151)
    for number in range(150):
        del world.here.kept[f"a{number:03}"]
        world.here.create_topic(f"b{number:03}", 1, {})
    world.passes(lambda: sum(row.name.startswith("b") for row in world.status.topics) == 150)

    assert len(world.status.topics) == 200


def test_an_older_mirror_whose_connection_is_not_ready_yet_is_still_the_older_one(world: World) -> None:
    older = {**world.spec, "target": {"name": "other"}}
    world.kube.create(MIRRORS, "ns", "older", older, "2026-11-19T12:00:00Z")
    world.kube.replace_status(MIRRORS, world.kube.get(MIRRORS, "ns", "older"), {"targetCluster": "there"})

    assert world.one_pass().reason == "CopiedByAnother"


def test_a_partition_of_which_nothing_is_known_is_not_said_to_be_seeded(world: World) -> None:
    """As one that may not be read."""
    world.there.target = lambda _: Silent()  # type: ignore[assignment, return-value, method-assign]
    world.passes(lambda: world.status.topics != ())
    world.passes(lambda: True)

    assert world.condition("Seeding").status == "True"
    assert world.status.partitions is not None
    assert world.status.partitions.seeding == 2


class Silent:
    def tail(self, _: int) -> Interrupted:
        return Interrupted("nobody is there")


def test_drift_is_not_denied_while_the_clusters_can_not_be_looked_at(world: World) -> None:
    world.copied()
    del world.here.kept["t"]
    world.here.create_topic("t", 2, {"retention.ms": "-1"})
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.here.failure = Unavailable("nobody is there")
    world.one_pass()
    world.one_pass()

    assert world.condition("Drifted").status == "True"
    assert "deleted and created again at the source" in world.condition("Drifted").message


def test_a_topic_of_which_others_write_the_first_records_is_not_changed(world: World) -> None:
    """In a transaction that is open: there is no stable record yet."""
    world.there.create_topic("t", 2, {"retention.ms": "5"})
    world.there.write("t", 3)
    world.there.undecided.add(TopicPartition("t", 0))
    world.one_pass()

    assert world.there.kept["t"].settings["retention.ms"] == "5"
    assert world.condition("Drifted").status == "True"


def test_a_topic_that_was_emptied_instead_of_deleted_is_not_gone_on_with(world: World) -> None:
    """Its copy would lack what the source has before the end, and nobody would see it."""
    world.copied()
    settings = world.there.kept["t"].settings
    world.run(world.reconciler.stop())
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    world.kube.create(MIRRORS, "ns", "m", world.spec, CREATED)
    world.restart()
    world.there.log("t").delete_records(20)
    world.there.log("t", 1).delete_records(5)
    world.there.kept["t"].settings = settings
    world.passes(lambda: world.condition("Drifted").status == "True")

    assert "was emptied" in world.condition("Drifted").message


def test_the_clusters_are_closed_once_more_when_the_last_answer_has_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What still waits when the mirror ends may connect anew."""
    monkeypatch.setattr("tidegate.offset_mirror.copying._CLOSING_S", 0.01)
    world.here.offsets["g"] = {TopicPartition("t", 0): GroupOffset(7)}
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    at_work, may_go_on = threading.Event(), threading.Event()

    def slow(group_id: str, offsets: GroupOffsets) -> None:
        at_work.set()
        assert may_go_on.wait(10), (group_id, offsets)
        world.there.closed = False

    world.there.commit = slow  # type: ignore[method-assign]
    world.one_pass()
    world.passes(at_work.is_set)

    async def ended() -> None:
        await world.reconciler.stop()
        assert world.there.closed
        may_go_on.set()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if world.there.closed and not world.reconciler._running:
                return
        raise AssertionError("it is left open")

    world.run(ended())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"observes": True}, "Observing"),
        ({"digest": "e", "cluster_id": "", "trouble": ("Connecting", "not reached yet")}, "WaitingForConnection"),
    ],
)
def test_a_target_that_is_no_more_what_it_was_is_not_written_while_the_other_is_in_trouble(
    changes: dict[str, Any], reason: str, world: World
) -> None:
    world.copied()
    world.connect("here", trouble=("KafkaUnavailable", "nobody is there"))
    world.connect("there", **changes)

    assert world.one_pass().reason == reason
    assert world.there.closed


def test_a_lag_that_is_not_known_is_not_measured_as_none(world: World) -> None:
    world.there.target = lambda _: Silent()  # type: ignore[assignment, return-value, method-assign]
    world.passes(lambda: world.status.topics != ())
    world.passes(lambda: True)

    lag = world.metrics.registry.get_sample_value(
        "tidegate_mirror_lag_records", {"resource_namespace": "ns", "mirror": "m"}
    )
    assert lag is not None
    assert math.isnan(lag)


def test_what_drives_a_terminal_is_escaped_in_what_is_said(world: World) -> None:
    """Such as a broker's words in an error."""

    def refuse(*_: Any) -> None:
        raise NotAuthorized("create topic t: \x1b[2J\u202e")

    world.there.create_topic = refuse  # type: ignore[method-assign]
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "CopiesStopped")

    assert world.status.worst[0].message == "create topic t: \\x1b[2J\\u202e"
    assert all(each.message.isprintable() for each in world.status.conditions)


def deleted_and_created_again(world: World) -> None:
    world.run(world.reconciler.stop())
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    world.kube.create(MIRRORS, "ns", "m", world.spec, CREATED)
    world.restart()


def test_a_mirror_goes_on_with_the_copies_of_one_that_was_deleted_once_it_is_told_whose_they_are(world: World) -> None:
    world.copied()
    [former] = world.status.producer_ids
    deleted_and_created_again(world)
    world.passes(lambda: world.condition("Drifted").status == "True")
    assert f"with producer id {former}," in world.status.worst[0].message
    assert "name this id in spec.formerProducerIds" in world.status.worst[0].message

    world.spec["formerProducerIds"] = [former]
    deleted_and_created_again(world)
    world.copied()
    world.here.write("t", 4)
    world.passes(lambda: world.there.log("t").end == 24)
    assert world.there.log("t").visible() == world.here.log("t").visible()
    assert world.status.producer_ids[0] == former
    assert len(world.status.producer_ids) == 2


def test_a_former_producer_id_may_be_named_while_the_mirror_is_there(world: World) -> None:
    world.copied()
    [former] = world.status.producer_ids
    deleted_and_created_again(world)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.kube.change(MIRRORS, "ns", "m", spec={**world.spec, "formerProducerIds": [former]})
    world.copied()

    assert world.status.producer_ids[0] == former


def test_a_former_producer_id_does_not_hide_what_differs(world: World) -> None:
    world.copied()
    [former] = world.status.producer_ids
    other = batch(20, {0: Written(1, b"other", b"record")}, 1, producer=(former, 0, 20))
    world.there.log("t")._lay(other, 1)
    world.here.write("t", 1)
    world.spec["formerProducerIds"] = [former]
    deleted_and_created_again(world)
    world.passes(lambda: world.condition("Drifted").status == "True")

    assert world.status.worst[0].message == "the records at offset 20 differ"


def test_producer_ids_do_not_run_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that no copy needs any more are removed, also for copies that are written seldom."""
    monkeypatch.setattr(transitions, "ROLL_EPOCH", 2)
    monkeypatch.setattr(ids_module, "PRUNED_FROM", 4)
    large = filler(2500, None)  # an id is good for more offsets than are looked at
    world.copied()
    seldom = world.status.producer_ids[0]
    for _ in range(3):
        for _ in range(8):
            log = world.here.log("t")
            log.write_marker(77, 0)
            log._lay(placed(large, log.end), 2500)
        world.passes(lambda: world.there.log("t").end == world.here.log("t").end)
        world.passes(lambda: len(world.status.producer_ids) <= 7)
        assert world.status.producer_ids[0] == seldom
        world.run(world.reconciler.stop())
        world.restart()
    world.here.write("t", 2, 1)
    world.passes(lambda: world.there.log("t", 1).end == 7)
    assert world.status.producer_ids[-1] > seldom + 8

    for number in range(2):
        assert world.there.log("t", number).visible() == world.here.log("t", number).visible()
    assert world.condition("Drifted").status == "False"


def row(name: str, *writers: int, **changes: Any) -> MirroredTopicStatus:
    known = {"source_id": "s", "target_id": "t", "partitions": 1, "state": CopyState.IN_SYNC}
    return MirroredTopicStatus(name=name, **{**known, "writers": writers, **changes})


@pytest.mark.parametrize(
    ("rows", "former", "left"),
    [
        ([row("t", 50)], (), (49, 50, 51, 52, 200)),
        ([row("t", 0, 199)], (), (0, 1, 2, 198, 199, 200)),
        ([row("t", 50), row("u", 60)], (7,), (7, 49, 50, 51, 52, 59, 60, 61, 62, 200)),
        ([row("t", 200), row("u", writers=None)], (), tuple(range(201))),
        ([row("t", 200), row("u", 999)], (), tuple(range(201))),
        ([row("t", 200), row("u", writers=None, target_id="")], (), (199, 200)),
        ([row("t", 200), row("u", 50, state=CopyState.DRIFTED)], (), (49, 50, 51, 52, 199, 200)),
        ([row("t", 200), row("u", 50, state=CopyState.SOURCE_GONE)], (), (49, 50, 51, 52, 199, 200)),
    ],
)
def test_the_ids_that_a_copy_may_be_written_with_stay(
    rows: list[MirroredTopicStatus], former: tuple[int, ...], left: tuple[int, ...]
) -> None:
    assert ids_module.pruned(tuple(range(201)), rows, former) == left
    assert ids_module.pruned(tuple(range(100)), rows, former) == tuple(range(100))


@pytest.mark.parametrize("change", ["create", "add partitions", "configure"])
def test_a_process_whose_turn_it_is_no_more_prepares_no_topic(
    change: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was frozen once it had looked at both clusters: by then another one may have failed over."""
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    world.copied()
    if change == "create":
        world.spec["topics"] = {"include": ["*"]}
        world.here.create_topic("u", 1, {})
    elif change == "add partitions":
        world.here.add_partitions("t", 3)
    else:
        world.here.configure("t", {"retention.ms": "1000"})
    settings, partitions = dict(world.there.kept["t"].settings), len(world.there.kept["t"].logs)
    read = world.there.settings

    def frozen(topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        found = read(topics)
        world.leads = False
        return found

    monkeypatch.setattr(world.there, "settings", frozen)
    world.one_pass()

    assert world.there.kept.keys() == {"t"}
    assert (world.there.kept["t"].settings, len(world.there.kept["t"].logs)) == (settings, partitions)
