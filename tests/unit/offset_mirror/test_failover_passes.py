"""A mirror ends for good, and another one in the other direction goes on from there."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import pytest

from support.mirror.passes import World, failed_back, failed_over, lacking
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS
from tidegate.mirror.model import Interrupted
from tidegate.mirror.ports import UNDECIDED, GroupOffset, GroupOffsets
from tidegate.offset_mirror import copying as copying_module
from tidegate.offset_mirror.ids import ProducerIdsInStatus
from tidegate.resources.mirror_failover import FailoverPhase

P0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    yield world
    world.close()


def test_a_failover_ends_where_the_source_does_and_says_so(world: World) -> None:
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    world.here.offsets["g"] = {P0: GroupOffset(9)}
    world.here.write("t", 5)
    found = failed_over(world)

    assert found.phase is FailoverPhase.DONE
    [topic] = found.topics
    assert (topic.name, topic.ends, topic.lacks, topic.message) == ("t", (25, 5), (0, 0), "")
    assert (found.source_answered, found.not_copied) == (True, 0)
    assert world.there.offsets["g"] == {P0: GroupOffset(9)}
    for number in range(2):
        assert world.there.log("t", number).visible() == world.here.log("t", number).visible()
    assert world.condition("Ready").status == "True"
    assert "FailedOver" in [happening.reason for happening in world.kube.happenings_of("m")]


def test_what_was_written_or_committed_afterwards_is_not_copied(world: World) -> None:
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    failed_over(world)
    end, offsets = world.there.log("t").end, dict(world.there.offsets)
    world.here.write("t", 5)
    world.here.offsets["g"] = {P0: GroupOffset(12)}
    # Also where somebody takes the field away again, and by another process.
    del world.spec["failover"]
    world.one_pass()
    world.run(world.reconciler.stop())
    world.restart()
    for _ in range(5):
        assert world.one_pass().reason == "FailedOver"

    assert (world.there.log("t").end, world.there.offsets) == (end, offsets)
    assert isinstance(ProducerIdsInStatus(world.kube, world.body, lambda: 1).claim(None), Interrupted)


def test_a_failover_waits_while_a_copy_lacks_something(world: World) -> None:
    """As what is in a transaction that is open."""
    world.copied()
    lacking(world, 5)
    world.spec["failover"] = {}
    for _ in range(5):
        assert world.one_pass().reason == "FailoverDraining"
    says = world.condition("Ready").message
    assert says.startswith("the copies of 2 partition(s) lack 10 offset(s), such as t-0, which lacks 5. Stop the ")
    assert world.status.failover is None

    lacking(world, 0)
    assert failed_over(world).not_copied == 0


def test_a_group_that_cannot_be_carried_over_keeps_a_failover_from_ending_and_not_the_copying(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be begun anew each time. It is tried again long before its turn comes."""
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_S", 0.05)
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.spec["groups"] = {"include": ["*"], "interval": "1h"}
    world.one_pass()

    def refused(group_id: str, offsets: GroupOffsets) -> None:
        raise NotAuthorized(f"commit offsets of group {group_id}: Read is missing")

    commit, world.there.commit = world.there.commit, refused  # type: ignore[method-assign]
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    world.passes(lambda: world.status.groups is not None and world.status.groups.failed == 1)
    copying, world.spec["failover"] = world.copying, {}
    for _ in range(5):
        assert world.one_pass().reason == "FailoverDraining"
    says = "1 group(s) could not be carried over: commit offsets of group"
    world.passes(lambda: says in world.condition("Ready").message)
    assert world.copying == copying
    world.here.write("t", 5)
    world.passes(lambda: world.there.log("t").end == 25)

    world.there.commit = commit  # type: ignore[method-assign]
    assert failed_over(world).not_copied == 0
    assert world.there.offsets["g"] == {P0: GroupOffset(7)}


def test_what_a_group_is_committing_in_a_transaction_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is carried over after a failover: the group would begin at the target with an older offset, or none."""
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.here.offsets = {"g": {P0: GroupOffset(UNDECIDED)}, "other": {P0: GroupOffset(3)}}
    world.spec["groups"] = {"include": ["*"], "interval": "1h"}
    world.one_pass()
    world.copied()
    world.passes(lambda: "other" in world.there.offsets)
    copying, world.spec["failover"] = world.copying, {}
    for _ in range(5):
        world.one_pass()
        assert world.status.failover is None
    says = "1 group(s) could not be carried over: an open transaction has yet to decide what group g commits for t-0"
    world.passes(lambda: says in world.condition("Ready").message)
    for _ in range(5):
        world.one_pass()
    assert world.copying == copying

    world.here.offsets["g"] = {P0: GroupOffset(9)}
    failed_over(world)
    assert world.there.offsets["g"] == {P0: GroupOffset(9)}


def test_a_group_whose_coordinator_is_away_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker lists it then: as if there were no such group."""
    world.here.offsets = {"g": {P0: GroupOffset(7)}, "deleted": {P0: GroupOffset(3)}}
    world.copied()
    world.passes(lambda: "g" in world.there.offsets)
    world.here.offsets["g"] = {P0: GroupOffset(9)}
    del world.here.offsets["deleted"]
    world.there.offsets["tidegate.carried/others"] = {TopicPartition("of another mirror", 0): GroupOffset(1)}
    committed = world.here.committed

    def away(group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        assert "others" not in group_ids
        if "g" in group_ids:
            raise Unavailable("read the committed offsets: the coordinator of group g is not there")
        return committed(group_ids)

    monkeypatch.setattr(world.here, "group_ids", lambda: frozenset(world.here.offsets) - {"g"})
    monkeypatch.setattr(world.here, "committed", away)
    copying, world.spec["failover"] = world.copying, {}
    for _ in range(5):
        world.one_pass()
        assert world.status.failover is None
    world.passes(lambda: "the coordinator of group g is not there" in world.condition("Ready").message)
    for _ in range(5):
        world.one_pass()
    assert world.copying == copying

    monkeypatch.undo()
    failed_over(world)
    assert world.there.offsets["g"] == {P0: GroupOffset(9)}


def test_groups_that_no_broker_lists_are_waited_for_though_they_were_never_carried_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has committed for the first time since the groups were carried over last."""
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.here.create_topic("__consumer_offsets", 3, {})
    world.copied()
    world.here.headless = {TopicPartition("__consumer_offsets", 2)}
    world.spec["failover"] = {}
    says = "could not list all groups of the source: __consumer_offsets-2 has no leader"
    world.one_pass()
    world.passes(lambda: says in world.condition("Ready").message or world.status.failover is not None)
    assert world.status.failover is None

    world.here.offsets["g"], world.here.headless = {P0: GroupOffset(9)}, set()
    failed_over(world)
    assert world.there.offsets["g"] == {P0: GroupOffset(9)}


def test_a_failover_without_the_permission_to_see_where_groups_are_kept_does_not_wait_for_them(world: World) -> None:
    world.here.create_topic("__consumer_offsets", 3, {})
    world.here.hidden.add("__consumer_offsets")
    world.here.headless = {TopicPartition("__consumer_offsets", 2)}
    world.copied()

    assert failed_over(world).phase is FailoverPhase.DONE


def test_a_failover_that_was_asked_for_by_mistake_can_be_taken_back_while_it_waits(world: World) -> None:
    world.copied()
    world.here.failure = Unavailable("nobody is there")
    world.spec["failover"] = {}
    assert world.one_pass().reason == "FailoverDraining"

    world.here.failure = None
    del world.spec["failover"]
    world.here.write("t", 5)
    world.one_pass()
    world.passes(lambda: world.there.log("t").end == 25)
    world.copied()


def test_once_a_failover_was_withdrawn_what_a_group_is_committing_is_left_for_the_next_time(world: World) -> None:
    world.here.offsets = {"g": {P0: GroupOffset(UNDECIDED)}, "other": {P0: GroupOffset(3)}}
    world.copied()
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: world.status.groups is not None and world.status.groups.failed == 1)
    del world.spec["failover"]
    world.one_pass()
    world.passes(lambda: world.status.groups is not None and world.status.groups.failed == 0)


@pytest.mark.parametrize("there_is_a_connection", [True, False])
def test_a_source_that_is_lost_needs_somebody_who_accepts_that(there_is_a_connection: bool, world: World) -> None:
    world.copied()
    world.here.failure = Unavailable("nobody is there")
    world.connect("here", trouble=("KafkaUnavailable", "nobody is there"))
    world.spec["failover"] = {}
    assert world.one_pass().reason == "WaitingForConnection"
    if not there_is_a_connection:
        world.live.drop("ns", "here", uid="here")

    found = failed_over(world, acceptLoss=True)
    assert (found.source_answered, found.not_copied, found.topics[0].ends) == (False, None, (20, 5))
    assert "the source did not answer" in world.condition("Ready").message


def test_what_a_source_has_that_was_given_up_is_counted(world: World) -> None:
    world.spec["topics"] = {"include": ["t", "u"]}
    world.here.create_topic("u", 1, {})
    world.one_pass()
    world.copied()
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 3)
    world.here.write("u", 4)
    found = failed_over(world, acceptLoss=True)

    assert (found.not_copied, [topic.lacks for topic in found.topics]) == (7, [(3, 0), (4,)])
    assert [topic.ends for topic in found.topics] == [(20, 5), (0,)]


def test_a_fence_that_is_not_yet_complete_is_gone_on_with(world: World) -> None:
    world.copied()
    world.spec["failover"] = {}
    while world.status.failover is None:
        world.one_pass()
    fence_id = world.status.failover.fence_id
    world.there.failure = Unavailable("nobody is there")
    assert world.one_pass().reason == "FailoverFencing"
    world.run(world.reconciler.stop())
    world.restart()
    world.there.failure = None

    found = failed_over(world)
    assert (found.fence_id, found.topics[0].ends) == (fence_id, (20, 5))


# --- back -------------------------------------------------------------------------------------------------------------


def test_a_mirror_in_the_other_direction_goes_on_from_the_failover(world: World) -> None:
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    failed_over(world)
    world.there.write("t", 3)
    world.there.offsets["g"] = {P0: GroupOffset(21)}
    end = world.here.log("t").end
    failed_back(world)
    world.copied()
    world.passes(lambda: world.here.offsets["g"] == {P0: GroupOffset(21)})

    for number in range(2):
        assert world.here.log("t", number).visible() == world.there.log("t", number).visible()
        assert world.here.log("t", number).end == world.there.log("t", number).end
    assert end == 20
    assert world.status.topics[0].adopted == (20, 5)
    # And once more, as another process and as often as somebody moves.
    world.run(world.reconciler.stop())
    world.restart()
    world.there.write("t", 2)
    world.passes(lambda: world.here.log("t").end == world.there.log("t").end)
    assert world.here.log("t").visible() == world.there.log("t").visible()
    assert failed_over(world).topics[0].ends == (world.there.log("t").end, world.there.log("t", 1).end)


def test_a_partition_without_a_leader_keeps_no_other_topic_from_being_taken_back(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    failed_over(world)
    failed_back(world)
    world.spec["topics"] = {"include": ["t", "u"]}
    world.here.headless = {TopicPartition("u", 0)}
    world.there.write("t", 3)
    world.one_pass()

    world.passes(lambda: world.here.log("t").visible() == world.there.log("t").visible())
    world.here.headless = set()
    world.copied()


def test_one_may_move_as_often_as_one_likes(world: World) -> None:
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    here, there = world.here, world.there
    for name in ("second", "third", "fourth"):
        failed_over(world)
        here, there = there, here
        here.write("t", 3)
        here.offsets["g"] = {P0: GroupOffset(here.log("t").end - 1)}
        failed_back(world, name)
        world.copied()
        world.passes(lambda here=here, there=there: there.offsets["g"] == here.offsets["g"])  # type: ignore[misc]

        for number in range(2):
            assert there.log("t", number).visible() == here.log("t", number).visible()


def test_records_that_were_never_copied_are_not_dropped_silently(world: World) -> None:
    world.copied()
    failed_over(world)
    world.here.write("t", 4, 1)
    world.there.write("t", 3)
    failed_back(world)
    world.one_pass()
    world.passes(lambda: world.condition("Drifted").status == "True")

    says = world.condition("Drifted").message
    assert "has 4 offset(s) at the target that were never copied from there: 4 in partition 1 from offset 5" in says
    assert world.here.log("t").end == 20

    # Who wants to discard them deletes the topic.
    del world.here.kept["t"]
    world.copied()
    assert world.here.log("t").visible() == world.there.log("t").visible()


def test_a_source_that_lost_some_records_gets_them_back(world: World) -> None:
    """As by an unclean election before it died."""
    world.copied()
    failed_over(world)
    world.here.log("t").log.pop()
    failed_back(world)
    world.copied()

    assert world.here.log("t").visible() == world.there.log("t").visible()


@pytest.mark.parametrize("fails_over", [True, False])
def test_a_failback_needs_a_failover_in_the_other_direction(fails_over: bool, world: World) -> None:
    world.copied()
    if fails_over:
        failed_over(world)
    failed_back(world)
    if fails_over:
        world.connect("third", cluster_id="third")
        world.kube.change(MIRRORS, "ns", "back", spec={**world.spec, "source": {"name": "third"}})
        world.spec = dict(world.body["spec"])
        world.open = lambda *_: world.there  # type: ignore[method-assign]
        world.restart()

    assert world.one_pass().reason == "NoFailover"


def test_a_group_that_is_used_where_it_goes_back_to_is_left_alone(world: World) -> None:
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.copied()
    failed_over(world)
    world.there.offsets["g"] = {P0: GroupOffset(15)}
    failed_back(world)
    world.copied()
    world.passes(lambda: world.here.offsets["g"] == {P0: GroupOffset(15)})
    world.here.offsets["g"] = {P0: GroupOffset(16)}
    world.there.offsets["g"] = {P0: GroupOffset(20)}
    world.passes(lambda: world.status.groups is not None and world.status.groups.in_use == 1)

    assert world.here.offsets["g"] == {P0: GroupOffset(16)}
