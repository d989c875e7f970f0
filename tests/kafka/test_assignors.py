"""Our assignors beside Kafka's own, and kafkajs's, on random groups: everybody gets exactly the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from random import Random

import pytest

from support.clients.node import has_node, node_command
from support.java_assignors import AskedGroup, JavaAssignors, Shares, sticky_user_data
from support.needs import starts
from support.random_groups import claimed_at_will, histories, unevenly_held
from tidegate.kafka.assignors.assignor import COOPERATIVE_STICKY, KAFKAJS, KAFKAS, STICKY, assign
from tidegate.kafka.model import Subscription, TopicPartition

GROUPS = 500
MANY_GROUPS = 5000
STICKIES = (STICKY, COOPERATIVE_STICKY)


@pytest.fixture(scope="module")
@starts("kafka")
def java() -> Iterator[JavaAssignors]:
    with JavaAssignors() as java:
        yield java


@pytest.mark.parametrize("assignor", sorted(KAFKAS))
def test_over_generations(java: JavaAssignors, assignor: str) -> None:
    _same_over_generations(java, assignor, GROUPS, seed=1)


@pytest.mark.parametrize("assignor", sorted(KAFKAS))
def test_members_that_claim_what_they_like(java: JavaAssignors, assignor: str) -> None:
    _same_for_any_claims(java, assignor, GROUPS, seed=2)


@pytest.mark.nightly
@pytest.mark.parametrize("assignor", sorted(KAFKAS))
@pytest.mark.parametrize("release", [None, "4.0.2", "3.9.2", "3.7.2"])
def test_many_groups_and_earlier_releases(release: str | None, assignor: str) -> None:
    with JavaAssignors(release) as java:
        _same_over_generations(java, assignor, MANY_GROUPS, seed=3)
        _same_for_any_claims(java, assignor, MANY_GROUPS, seed=4)


@pytest.mark.parametrize("assignor", STICKIES)
def test_a_member_without_topics_gets_nothing_where_kafka_gives_it_some(java: JavaAssignors, assignor: str) -> None:
    """Kafka takes the topics of the first member that has any for those of all before it."""
    reads = Subscription(frozenset({"t"}))
    group = AskedGroup(assignor, {"t": 2}, {"a": (Subscription(frozenset()), None), "b": (reads, None)})

    assert java.assign(group)["a"]

    assert _ours(group) == {"a": frozenset(), "b": frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})}


@pytest.mark.parametrize("assignor", STICKIES)
def test_what_does_not_exist_is_not_given_where_kafka_gives_it(java: JavaAssignors, assignor: str) -> None:
    """A topic was made anew with fewer partitions: Kafka looks at the topic's name only."""
    gone = frozenset({TopicPartition("t", 5)})
    data = sticky_user_data(gone, 1) if assignor == STICKY else None
    said = Subscription(frozenset({"t"}), gone, 1, 3, data)
    group = AskedGroup(assignor, {"t": 2}, {"a": (said, None)})

    assert java.assign(group)["a"] > gone

    assert _ours(group) == {"a": frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})}


@pytest.mark.skipif(not has_node(), reason="kafkajs needs Node.js and npm")
def test_kafkajs() -> None:
    """Its leader gives the partitions of its own topics to everybody: groups whose members all read the same ones."""
    random = Random(5)
    groups = [_read_by_all(random) for _ in range(GROUPS)]
    lines = (json.dumps({"topics": group.topics, "members": list(group.members)}) for group in groups)
    done = subprocess.run(
        node_command("assigner.js"), input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60
    )
    for group, answer in zip(groups, done.stdout.splitlines(), strict=True):
        theirs = {m: frozenset(TopicPartition(*row) for row in rows) for m, rows in json.loads(answer).items()}
        assert _ours(group) == theirs, group


def _read_by_all(random: Random) -> AskedGroup:
    """Member ids as kafkajs' are, of client ids of all kinds."""
    topics = {random.choice(["orders", "Orders", "a.b", "payments", "z-9"]): random.randint(1, 9) for _ in range(3)}
    said = Subscription(frozenset(topics))
    ids = [f"{random.choice(['kafkajs', 'Web', 'ä', '𝒳', 'ﬀ'])}-{random.getrandbits(32):x}" for _ in range(9)]
    return AskedGroup(KAFKAJS, topics, dict.fromkeys(ids[: random.randint(1, 9)], (said, None)))


def _same_over_generations(java: JavaAssignors, assignor: str, groups: int, seed: int) -> None:
    compared = 0
    for history in histories(Random(seed), assignor, groups):
        group = next(history, None)
        while group is not None:
            compared += _is_the_same(java, group)
            try:
                group = history.send(_ours(group))
            except StopIteration:
                break
    assert compared >= 0.95 * groups


def _same_for_any_claims(java: JavaAssignors, assignor: str, groups: int, seed: int) -> None:
    random = Random(seed)
    compared = sum(_is_the_same(java, claimed_at_will(random, assignor)) for _ in range(groups))
    assert compared >= 0.7 * groups
    if assignor in STICKIES:
        for _ in range(groups // 5):
            assert _is_the_same(java, unevenly_held(random, assignor))


def _is_the_same(java: JavaAssignors, group: AskedGroup) -> bool:
    """Whether Kafka could be asked; fails where its answer is not ours."""
    ours = _ours(group)
    _is_whole(group, ours)
    if group.assignor in STICKIES and _would_go_astray(group):
        return False
    assert ours == java.assign(group), group
    return True


def _would_go_astray(group: AskedGroup) -> bool:
    """Whether Kafka may give a member what it claims from an earlier generation and no longer reads, or throw as it
    finds no place for it."""
    members = group.joined().values()
    newest = max(member.claimed_in for member in members)
    return any(
        member.claimed_in < newest and any(p.topic not in member.topics for p in member.claimed) for member in members
    )


def _ours(group: AskedGroup) -> Shares:
    assigned = assign(group.assignor, group.joined(), group.topics)
    withheld = assigned.moving if group.assignor == COOPERATIVE_STICKY else frozenset()
    return {member_id: share - withheld for member_id, share in assigned.shares.items()}


def _is_whole(group: AskedGroup, given: Shares) -> None:
    """Nothing has two owners, or one who does not read it; in an eager group everything that somebody reads has one."""
    owned = [p for share in given.values() for p in share]
    read = {topic for said, _ in group.members.values() for topic in said.topics}
    everything = {TopicPartition(t, n) for t, count in group.topics.items() if t in read for n in range(count)}
    assert len(owned) == len(set(owned))
    assert set(owned) <= everything if group.assignor == COOPERATIVE_STICKY else set(owned) == everything
    assert all(p.topic in group.members[member_id][0].topics for member_id, share in given.items() for p in share)
