"""Groups' committed offsets are carried over as they are, and no group that is used at the target is touched."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import pytest

from support.fake_kafka import FakeClock
from support.mirror.fake_cluster import FakeMirrorCluster, Killed
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.mirror.ports import UNDECIDED, GroupOffset, GroupOffsets
from tidegate.offset_mirror.carrier import Carrier
from tidegate.offset_mirror.carrying import Notes, selected
from tidegate.resources.offset_mirror import CarriedGroups, MirroredGroups

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """Group `g`, of two partitions whose copies end at 100."""

    def __init__(self) -> None:
        self.source, self.target, self.clock = FakeMirrorCluster("s"), FakeMirrorCluster("t"), FakeClock()
        self.ends = {P0: 100, P1: 100}
        self.source.create_topic("t", 2, {})
        self.source_ids = {"t": self.source.kept["t"].topic_id}
        self.may_write = True
        self.notes, self.adopts, self.mirrored = Notes(), frozenset[str](), frozenset[str]()
        self.restart()

    def fails_back(self) -> None:
        """From now on it is a mirror that took topic `t` over from a failover."""
        self.notes, self.adopts = Notes("-12345678"), frozenset({"t"})
        self.restart()

    def restart(self) -> None:
        """A new process."""
        self.carrier = Carrier(
            self.source,
            self.target,
            lambda group_id: not group_id.startswith("tidegate."),
            lambda: self.may_write,
            self.clock.monotonic,
            lambda: datetime(2026, 11, 26, tzinfo=UTC),
            self.notes,
        )

    def commit(self, offset: int, metadata: str = "") -> None:
        self.source.offsets["g"] = {P0: GroupOffset(offset, metadata)}

    def carry(self) -> CarriedGroups:
        return self.carrier.carry(self.ends, self.source_ids, self.adopts, self.mirrored)

    @property
    def there(self) -> GroupOffset | None:
        return self.target.offsets.get("g", {}).get(P0)


@pytest.fixture
def world() -> World:
    return World()


def test_an_offset_is_carried_over_with_its_metadata_and_follows(world: World) -> None:
    world.commit(10, "m")
    told = world.carry()
    assert (told.total, told.carried, told.in_use, told.failed) == (1, 1, 0, 0)
    assert world.there == GroupOffset(10, "m")

    world.commit(30)
    world.restart()
    world.carry()
    assert world.there == GroupOffset(30)


def test_nothing_is_committed_beyond_the_end_of_a_copy(world: World) -> None:
    world.commit(150, "m")
    world.carry()
    assert world.there == GroupOffset(100)

    world.ends[P0] = 160
    world.carry()
    assert world.there == GroupOffset(150, "m")


def test_a_partition_of_which_nothing_is_known_is_not_carried(world: World) -> None:
    world.commit(10)
    world.ends = {P1: 100}

    assert world.carry().total == 0
    assert world.there is None


def test_a_topic_that_was_created_again_does_not_set_its_groups_back(world: World) -> None:
    """Which is noticed some seconds later; the group reads the copy of what was there before."""
    world.commit(50)
    world.carry()
    del world.source.kept["t"]
    world.source.create_topic("t", 2, {})
    world.commit(5)
    world.carry()

    assert world.there == GroupOffset(50)


def test_a_source_that_was_reset_is_followed_backwards(world: World) -> None:
    world.commit(50)
    world.carry()
    world.commit(5)
    world.restart()
    world.carry()

    assert world.there == GroupOffset(5)


def test_a_group_that_somebody_else_has_committed_for_is_left_alone(world: World) -> None:
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P0] = GroupOffset(60)
    world.commit(90)
    world.restart()
    told = world.carry()

    assert world.there == GroupOffset(60)
    assert (told.carried, told.in_use, told.in_use_such_as) == (0, 1, "g")
    # As after kafka-consumer-groups --delete.
    del world.target.offsets["g"]
    world.carry()
    assert world.there == GroupOffset(90)


def test_a_group_whose_transaction_is_to_decide_at_the_target_is_left_alone(world: World) -> None:
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P0] = GroupOffset(UNDECIDED)
    world.commit(90)
    told = world.carry()

    assert (told.carried, told.in_use) == (0, 1)
    assert world.there == GroupOffset(UNDECIDED)
    # And is carried on once that was aborted.
    world.target.offsets["g"][P0] = GroupOffset(50)
    assert world.carry().carried == 1
    assert world.there == GroupOffset(90)


def test_what_a_transaction_is_to_decide_at_the_source_is_not_carried(world: World) -> None:
    world.commit(UNDECIDED)
    world.source.offsets["g"][P1] = GroupOffset(20)
    world.carry()

    assert world.target.offsets["g"] == {P1: GroupOffset(20)}


def test_a_group_that_was_there_before_the_mirror_is_left_alone(world: World) -> None:
    world.target.offsets["g"] = {P0: GroupOffset(3)}
    world.commit(50)

    assert world.carry().in_use == 1
    assert world.there == GroupOffset(3)


def test_a_group_with_members_is_left_alone_and_carried_once_they_have_left_without_a_commit(world: World) -> None:
    world.commit(50)
    world.carry()
    world.target.members.add("g")
    world.commit(70)
    assert world.carry().in_use == 1
    assert world.there == GroupOffset(50)

    world.target.members.clear()
    assert world.carry().carried == 1
    assert world.there == GroupOffset(70)


@pytest.mark.parametrize("carried_before", [True, False])
def test_a_group_that_somebody_commits_for_while_others_are_carried_is_left_alone(
    carried_before: bool, world: World
) -> None:
    """By a consumer that is no member, as one that assigns itself its partitions. All groups are read first."""
    world.commit(50)
    if carried_before:
        world.carry()
    world.commit(90)
    world.source.offsets["a"] = {P0: GroupOffset(7)}
    commit = world.target.commit

    def committed(group_id: str, offsets: GroupOffsets) -> None:
        commit(group_id, offsets)
        if group_id == "a":
            world.target.offsets.setdefault("g", {})[P0] = GroupOffset(60)

    world.target.commit = committed  # type: ignore[method-assign]
    told = world.carry()

    assert world.there == GroupOffset(60)
    assert (told.carried, told.in_use, told.in_use_such_as) == (1, 1, "g")
    # And from then on, also if it comes to commit what was about to be committed for it.
    world.target.offsets["g"][P0] = GroupOffset(90)
    world.commit(99)
    assert world.carry().in_use == 1
    assert world.there == GroupOffset(90)


@pytest.mark.parametrize("carried_before", [True, False])
def test_what_was_refused_of_a_group_with_members_is_not_taken_for_carried_where_it_commits_that(
    carried_before: bool, world: World
) -> None:
    """It has moved, has read to the end as its old consumers have, and rests for a moment while those read on."""
    if carried_before:
        world.commit(50)
        world.carry()
    world.target.members.add("g")
    world.commit(70)
    for _ in range(2):
        assert world.carry().in_use == 1
    world.target.offsets["g"] = {P0: GroupOffset(70)}
    world.target.members.clear()
    world.commit(90)

    assert world.carry().in_use == 1
    assert world.there == GroupOffset(70)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(range(5), repeat=2)])
def test_whoever_dies_between_two_commits_leaves_a_group_that_is_carried_on(
    first: int, second: int, world: World
) -> None:
    for offset, dies_after in ((10, first), (20, second)):
        world.commit(offset)
        world.target.dies_after = dies_after
        try:
            world.carry()
        except Killed:
            world.restart()
    world.target.dies_after = None
    world.commit(30)
    told = world.carry()

    assert (told.carried, told.in_use) == (1, 0)
    assert world.there == GroupOffset(30)
    # And a commit of somebody else's is still told from all of these.
    world.target.offsets["g"][P0] = GroupOffset(11)
    assert world.carry().in_use == 1


def test_offsets_that_stay_are_renewed_before_brokers_forget_them(world: World) -> None:
    world.commit(10)
    world.carry()
    world.target.commits.clear()
    world.carry()
    assert world.target.commits == []

    world.clock.sleep(7 * 3600)
    world.carry()
    assert world.target.commits == [Notes().carrying_id("g"), "g", Notes().carried_id("g")]


def test_a_replica_that_does_not_lead_commits_nothing(world: World) -> None:
    world.commit(10)
    world.may_write = False
    told = world.carry()

    assert (told.failed, told.failure) == (1, "this operator process must not write at the moment")
    assert world.there is None


def test_a_cluster_that_does_not_answer_is_told_of(world: World) -> None:
    world.source.failure = Unavailable("nobody is there")

    with pytest.raises(Unavailable):
        world.carry()


def test_groups_are_chosen_by_both_connections_and_the_mirror() -> None:
    spec = MirroredGroups(include=("pay*",), exclude=("pay-test",))

    chosen = [g for g in ("pay-1", "pay-2", "pay-test", "other") if selected(g, spec, ("*",), ("pay-1", "pay-test"))]
    assert chosen == ["pay-1"]
    assert not selected("tidegate.carried/pay", MirroredGroups(include=("*",)), ("*",))


def test_no_partition_of_a_group_that_is_used_at_the_target_is_sent_forward(world: World) -> None:
    """It has moved, and has had nothing to commit yet for the other partition."""
    world.source.offsets["g"] = {P0: GroupOffset(50), P1: GroupOffset(50)}
    world.carry()
    world.target.offsets["g"][P0] = GroupOffset(60)
    world.source.offsets["g"] = {P0: GroupOffset(50), P1: GroupOffset(90)}
    world.target.commits.clear()
    told = world.carry()

    assert world.target.offsets["g"][P1] == GroupOffset(50)
    assert (told.carried, told.in_use, world.target.commits) == (0, 1, [])


def test_a_commit_at_the_target_counts_where_the_source_has_none(world: World) -> None:
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P1] = GroupOffset(3)
    world.commit(70)

    assert world.carry().in_use == 1
    assert world.there == GroupOffset(50)


@pytest.mark.parametrize("is_halted", [False, True])
def test_a_commit_at_the_target_counts_where_nothing_is_known_of_the_copy(is_halted: bool, world: World) -> None:
    """Its partition has not been looked at yet, has drifted, or is one of a topic that is not being copied for now."""
    world.source.create_topic("u", 1, {})
    evidence = TopicPartition("u", 0) if is_halted else P1
    world.source.offsets["g"] = {P0: GroupOffset(50), evidence: GroupOffset(50)}
    world.source_ids["u"], world.ends[evidence] = world.source.kept["u"].topic_id, 100
    world.carry()
    world.target.offsets["g"][evidence] = GroupOffset(60)
    world.commit(90)
    world.restart()
    del world.ends[evidence]
    if is_halted:
        del world.source_ids["u"]
        world.mirrored = frozenset({"t", "u"})
    told = world.carry()

    assert (told.carried, told.in_use) == (0, 1)
    assert world.there == GroupOffset(50)


def test_a_commit_for_a_topic_that_is_not_mirrored_is_no_use_of_the_copies(world: World) -> None:
    world.target.offsets["g"] = {TopicPartition("other", 0): GroupOffset(60)}
    world.commit(50)

    assert world.carry().carried == 1


def test_a_group_whose_id_leaves_no_room_for_the_mirrors_own_groups_is_not_carried() -> None:
    """Brokers close the connection on a longer id, and no other group of the request would be read."""
    spec = MirroredGroups(include=("*",))

    assert not selected("g" * 32_767, spec, ("*",))
    assert selected("g" * 30_000, spec, ("*",))


# --- back after a failover --------------------------------------------------------------------------------------------


def test_what_a_group_had_before_the_failover_is_overwritten(world: World) -> None:
    """Also that of a partition for which nothing is committed, or known of the copy, at first."""
    world.fails_back()
    world.target.offsets["g"] = {P0: GroupOffset(40), P1: GroupOffset(7)}
    world.commit(50)
    world.ends = {P0: 100}
    assert world.carry().carried == 1
    world.source.offsets["g"] = {P0: GroupOffset(60), P1: GroupOffset(20)}
    world.ends = {P0: 100, P1: 100}
    world.restart()
    told = world.carry()

    assert (told.carried, told.in_use) == (1, 0)
    assert world.target.offsets["g"] == {P0: GroupOffset(60), P1: GroupOffset(20)}


def test_a_group_that_goes_on_at_the_target_of_a_failback_is_not_set_back(world: World) -> None:
    """It has committed there for a partition of which nothing had been carried over."""
    world.fails_back()
    world.target.offsets["g"] = {P0: GroupOffset(40)}
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P1] = GroupOffset(30)
    world.source.offsets["g"] = {P0: GroupOffset(60), P1: GroupOffset(10)}
    told = world.carry()

    assert (told.carried, told.in_use) == (0, 1)
    assert world.target.offsets["g"] == {P0: GroupOffset(50), P1: GroupOffset(30)}


def test_a_group_of_a_topic_that_was_not_taken_over_is_left_alone(world: World) -> None:
    world.fails_back()
    world.adopts = frozenset({"u"})
    world.target.offsets["g"] = {P0: GroupOffset(40)}
    world.commit(50)

    assert world.carry().in_use == 1
    assert world.there == GroupOffset(40)


@pytest.mark.parametrize("dies_after", range(4))
def test_whoever_dies_while_a_group_is_taken_over_leaves_one_that_is_carried_on(dies_after: int, world: World) -> None:
    world.fails_back()
    world.target.offsets["g"] = {P0: GroupOffset(40), P1: GroupOffset(7)}
    world.commit(50)
    world.target.dies_after = dies_after
    with pytest.raises(Killed):
        world.carry()
    world.target.dies_after = None
    world.restart()
    world.source.offsets["g"] = {P0: GroupOffset(60), P1: GroupOffset(20)}
    told = world.carry()

    assert (told.carried, told.in_use) == (1, 0)
    assert world.target.offsets["g"] == world.source.offsets["g"]


DAYS = 7 * 24 * 3600


def forgets_after_a_week(world: World) -> None:
    """The target's brokers, of groups without members; group `g` itself has members that commit now and then."""
    commit, at_s = world.target.commit, dict[str, float]()

    def committed(group_id: str, offsets: GroupOffsets) -> None:
        at_s[group_id] = world.clock.monotonic()
        commit(group_id, offsets)

    def forget(group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        for group_id in [g for g, at in at_s.items() if world.clock.monotonic() - at > DAYS and g != "g"]:
            world.target.offsets.pop(group_id, None)
        return read(group_ids)

    read = world.target.committed
    world.target.commit, world.target.committed = committed, forget  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("first", "later"),
    [(40, 60), (UNDECIDED, 0)],
    ids=["it was carried before it was used", "its first transaction was to decide when it was first seen"],
)
def test_a_group_that_is_used_where_it_goes_back_to_is_left_alone_for_ever(
    first: int, later: int, world: World
) -> None:
    world.fails_back()
    forgets_after_a_week(world)
    world.target.offsets["g"] = {P0: GroupOffset(first)}
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P0] = GroupOffset(later)
    for days in range(20):
        world.commit(70 + days)
        assert world.carry().in_use == 1, f"after {days} days"
        if days % 3 == 0:
            world.restart()
        world.clock.sleep(24 * 3600)

    assert world.there == GroupOffset(later)


def test_what_is_noted_of_a_group_in_use_is_renewed_now_and_then_only(world: World) -> None:
    world.fails_back()
    world.commit(50)
    world.carry()
    world.target.offsets["g"][P0] = GroupOffset(60)
    world.target.commits.clear()
    world.carry()
    assert world.target.commits == []

    world.clock.sleep(7 * 3600)
    for _ in range(2):
        world.carry()
    assert world.target.commits == [world.notes.carried_id("g")]
