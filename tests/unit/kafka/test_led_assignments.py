"""Who owns what over the generations that Tidegate leads for a pause."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from support.java_assignors import sticky_user_data
from tidegate.kafka.assignments import Partitions, assign, not_held_by_others, without
from tidegate.kafka.assignors import assignor
from tidegate.kafka.assignors.assignor import COOPERATIVE_STICKY, KNOWN, ROUND_ROBIN, STICKY
from tidegate.kafka.model import Group, GroupState, GroupType, Member, Subscription, Topic, TopicPartition

NOTHING: Partitions = frozenset()


def a_group(protocol: str, *members: Member) -> Group:
    return Group("payments", GroupState.STABLE, GroupType.CLASSIC, protocol, members)


def a_member(member_id: str, *had: TopicPartition, instance_id: str | None = None) -> Member:
    return Member(member_id, member_id[0], "/10.0.0.1", instance_id, frozenset(had))


@dataclass(slots=True)
class LedGroup:
    """A group whose every generation is led. ``reads``: topics by member id, whose first letter is the client's id."""

    protocol: str
    topics: dict[str, Topic]
    withheld: Partitions
    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    has: dict[str, Partitions] = field(default_factory=dict)
    generation: int = 0
    before: Group = field(init=False)

    def __post_init__(self) -> None:
        self.before = a_group(self.protocol)

    def lead(self) -> dict[str, Partitions]:
        """A generation; the shares of its members."""
        said = {member_id: self.said(member_id) for member_id in self.reads}
        now = a_group(self.protocol, *map(a_member, self.reads))
        shares = assign(self.protocol, self.before, now, said, self.topics)
        given = not_held_by_others(shares, said) if self.protocol == COOPERATIVE_STICKY else shares
        self.has = without(given, self.withheld)
        self.generation += 1
        self.before = a_group(self.protocol, *(a_member(m, *share) for m, share in shares.items()))
        return shares

    def said(self, member_id: str) -> Subscription:
        topics = self.reads[member_id]
        if member_id not in self.has:
            return Subscription(topics, version=3)
        had = self.has[member_id]
        if self.protocol == STICKY:
            return Subscription(topics, version=3, user_data=sticky_user_data(had, self.generation))
        return Subscription(topics, frozenset(p for p in had if p.topic in topics), self.generation, 3)

    def everything(self) -> list[TopicPartition]:
        return [p for topic in self.topics.values() for p in topic.all_partitions()]

    def unled(self) -> dict[str, Partitions]:
        """What the members' own leader makes of what they have."""
        members = {m: assignor.joined(self.protocol, self.said(m)) for m in self.reads}
        counts = {name: topic.partitions for name, topic in self.topics.items()}
        return dict(assignor.assign(self.protocol, members, counts).shares)


def new_id(random: Random) -> str:
    return f"{random.choice('abcdefgh')}-{uuid.UUID(int=random.getrandbits(128))}"


def two_groups(random: Random, protocol: str, differ: bool) -> tuple[LedGroup, LedGroup]:
    """The same members, with partitions withheld and without."""
    names = [f"t{number}" for number in range(random.randint(1, 5))]
    topics = {name: Topic(name, f"id-{name}", random.choice([1, 2, 3, 5, 8, 13])) for name in names}
    reads = {
        new_id(random): frozenset(random.sample(names, random.randint(1, len(names))) if differ else names)
        for _ in range(random.randint(1, 7))
    }
    paused = LedGroup(protocol, topics, NOTHING, reads)
    whole = paused.everything()
    paused.withheld = frozenset(random.sample(whole, random.randint(1, len(whole))))
    return paused, LedGroup(protocol, topics, NOTHING, reads)


def change(random: Random, group: LedGroup, differ: bool) -> bool:
    """Whether a member came or left, or a topic has grown."""
    names = sorted(group.topics)
    what = random.choice(["join", "leave", "grow", "nothing", "nothing"])
    if what == "join":
        group.reads[new_id(random)] = frozenset(random.sample(names, 1) if differ else names)
    elif what == "leave" and len(group.reads) > 1:
        left = random.choice(sorted(group.reads))
        del group.reads[left]
    elif what == "grow":
        name = random.choice(names)
        group.topics[name] = replace(group.topics[name], partitions=group.topics[name].partitions + 2)
    return what != "nothing"


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("protocol", sorted(KNOWN))
def test_shares_are_those_of_a_group_without_a_pause_and_stay_while_members_do(protocol: str, differ: bool) -> None:
    random = Random(3)
    for _ in range(100):
        paused, unpaused = two_groups(random, protocol, differ)
        last: dict[str, Partitions] = {}
        changed = True
        for _ in range(8):
            shares = paused.lead()

            assert shares == unpaused.lead()
            assert changed or shares == last
            assert not frozenset().union(*paused.has.values()) & paused.withheld
            last, changed = shares, change(random, paused, differ)
            for member_id in unpaused.has.keys() - paused.reads.keys():
                del unpaused.has[member_id]
                del paused.has[member_id]


@pytest.mark.parametrize("protocol", sorted(KNOWN))
def test_nothing_but_what_was_withheld_moves_when_a_pause_ends(protocol: str) -> None:
    for group in paused_groups(Random(4), protocol, differ=False):
        shares = group.lead()

        after = group.unled()

        assert all(group.has[member_id] <= after[member_id] for member_id in group.reads)
        assert protocol in assignor.STICKY_ASSIGNORS or after == shares


@pytest.mark.parametrize("protocol", sorted(KNOWN))
def test_nothing_at_all_moves_where_everything_is_given_back_before(protocol: str) -> None:
    for group in paused_groups(Random(5), protocol, differ=True):
        shares = group.lead()
        group.withheld = NOTHING
        group.lead()

        assert group.unled() == group.has == shares


def paused_groups(random: Random, protocol: str, differ: bool) -> Iterator[LedGroup]:
    """Each of them was led for a while, and somebody has joined."""
    for _ in range(200):
        group, _ = two_groups(random, protocol, differ)
        group.lead()
        group.reads[new_id(random)] = frozenset(group.topics)
        group.lead()
        yield group


@pytest.mark.parametrize("protocol", [STICKY, COOPERATIVE_STICKY])
def test_members_that_come_back_under_new_ids_and_have_lost_all_get_what_they_had(protocol: str) -> None:
    reads = frozenset({"t"})
    group = LedGroup(protocol, {"t": Topic("t", "id-t", 7)}, NOTHING, dict.fromkeys(["a-1", "b-1", "c-1"], reads))
    first = group.lead()

    group.reads, group.has = dict.fromkeys(["b-2", "c-2", "a-2"], reads), {}

    assert group.lead() == {f"{client}-2": first[f"{client}-1"] for client in "abc"}


def test_static_members_have_their_place_by_the_ids_that_the_group_tells() -> None:
    now = a_group(ROUND_ROBIN, a_member("a-1"), a_member("b-1", instance_id="one"))
    reads = Subscription(frozenset({"t"}))

    shares = assign(ROUND_ROBIN, now, now, {"a-1": reads, "b-1": reads}, {"t": Topic("t", "id-t", 1)})

    assert shares == {"a-1": NOTHING, "b-1": {TopicPartition("t", 0)}}


@pytest.mark.parametrize("protocol", sorted(KNOWN))
def test_partitions_of_a_topic_that_we_may_not_see_stay_with_their_owners(protocol: str) -> None:
    hidden, seen = TopicPartition("hidden", 3), TopicPartition("seen", 0)
    before = a_group(protocol, a_member("a-1"), a_member("b-1", hidden))
    said = dict.fromkeys(["a-1", "b-1"], Subscription(frozenset({"hidden", "seen"})))

    shares = assign(protocol, before, before, said, {"seen": Topic("seen", "id", 1)})

    assert shares == {"a-1": {seen}, "b-1": {hidden}}


def test_under_another_assignor_everybody_keeps_what_he_had() -> None:
    had = [TopicPartition("t", number) for number in range(2)]
    before = a_group("ours", a_member("a-1", *had), a_member("b-1"))
    said = dict.fromkeys(["a-1", "b-1"], Subscription(frozenset({"t"})))

    assert assign("ours", before, before, said, {"t": Topic("t", "id", 2)}) == {"a-1": set(had), "b-1": NOTHING}
