"""Who is to own what in a generation of a classic group that Tidegate leads. Pure.

For a moment, as a reset needs it (``share_out``): everybody goes on with what he had, by what he names as his own
(KIP-429), else as the successor of the member that had it. What has become nobody's goes to the subscriber with the
fewest partitions, as new members and new partitions do under ``AbstractStickyAssignor``; nothing is moved for the sake
of balance, for the members' own leader does that after.

For longer, as a pause needs it (``assign``): everybody gets what the group's own assignor would give him. See
``docs/adr/0061-assignors-of-a-led-group.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidegate.kafka.assignors import assignor
from tidegate.kafka.assignors.members import Joined
from tidegate.kafka.model import Group, Member, Subscription, Topic, TopicPartition

Partitions = frozenset[TopicPartition]

LEADER_CLIENT_ID: Final = "tidegate-leader"
"""Client id of our member that leads a group for a pause, by which everybody tells it from the group's own."""


def share_out(
    before: Group, now: Group, subscriptions: Mapping[str, Subscription], topics: Mapping[str, Topic]
) -> dict[str, Partitions]:
    """Partitions by member id, for every member of ``subscriptions``; each partition has one owner, who subscribes to
    it.

    ``before``: the members that had partitions, under the ids of that time. ``now``: the present ones, for their client
    ids and hosts. ``topics``: those we may see; of others, only partitions that somebody had or names are known.
    """
    read = frozenset(topic for s in subscriptions.values() for topic in s.topics)
    known = before.assigned | {p for s in subscriptions.values() for p in s.owned}
    everything = {p for name in read & topics.keys() for p in topics[name].all_partitions()}
    everything |= {p for p in known if p.topic in read and p.topic not in topics}

    claimers = _claimers(subscriptions)
    heirs = _heirs(before, now, subscriptions)
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in subscriptions}
    left = []
    for partition in sorted(everything):
        former = before.owner(partition)
        wanted = (claimers.get(partition), heirs.get(former.member_id) if former is not None else None)
        owner = next((m for m in wanted if m is not None and partition.topic in subscriptions[m].topics), None)
        if owner is None:
            left.append(partition)
        else:
            shares[owner].add(partition)
    for partition in left:
        readers = [m for m in sorted(shares) if partition.topic in subscriptions[m].topics]
        shares[min(readers, key=lambda m: len(shares[m]))].add(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign(
    protocol: str,
    before: Group,
    now: Group,
    subscriptions: Mapping[str, Subscription],
    topics: Mapping[str, Topic],
) -> dict[str, Partitions]:
    """Partitions by member id as the group's assignor ``protocol`` shares them out; as :func:`share_out` does where
    that is not known. ``before``: the last answer, as assignments of the members of that time; else as for
    ``share_out``.

    The answer does not depend on which partitions are withheld: each of them is someone's share, and counts as such,
    although nobody has it. Sticky assignors only know what members have, so what nobody names is, for them, still with
    the member that it was given to in ``before``, or with that member's successor. So shares stay as they are while
    members stay, newcomers get as much as they would otherwise, and nothing else moves when a pause ends.
    """
    if protocol not in assignor.KNOWN:
        return share_out(before, now, subscriptions, topics)
    instance_ids = {m.member_id: m.group_instance_id for m in now.members}
    members = {m: assignor.joined(protocol, said, instance_ids.get(m)) for m, said in subscriptions.items()}
    if protocol in assignor.STICKY_ASSIGNORS:
        members = _with_former_shares(members, before, now, subscriptions)
    counts = {name: topic.partitions for name, topic in topics.items()}
    shares = dict(assignor.assign(protocol, members, counts).shares)
    unseen = {m: replace(said, topics=said.topics - topics.keys()) for m, said in subscriptions.items()}
    if any(said.topics for said in unseen.values()):
        # How many partitions these have we don't know.
        for member_id, share in share_out(before, now, unseen, {}).items():
            shares[member_id] |= share
    return shares


def _with_former_shares(
    members: Mapping[str, Joined], before: Group, now: Group, subscriptions: Mapping[str, Subscription]
) -> dict[str, Joined]:
    """The members as if each claimed, besides what it does, what it had before and nobody claims."""
    said = {m: replace(subscriptions[m], owned=joined.claimed) for m, joined in members.items()}
    heirs = _heirs(before, now, said)
    given = set(claimed(said))
    claims = {m: set(joined.claimed) for m, joined in members.items()}
    for former in before.members:
        heir = heirs.get(former.member_id)
        if heir is not None:
            had = {p for p in former.assignment - given if p.topic in members[heir].topics}
            claims[heir] |= had
            given |= had
    return {m: replace(joined, claimed=frozenset(claims[m])) for m, joined in members.items()}


def without(shares: Mapping[str, Partitions], withheld: Partitions) -> dict[str, Partitions]:
    return {member_id: share - withheld for member_id, share in shares.items()}


def not_held_by_others(
    shares: Mapping[str, Partitions], subscriptions: Mapping[str, Subscription]
) -> dict[str, Partitions]:
    """What may be given in a cooperative group: who names a partition reads it until he has learnt that it was taken
    from him, so nobody else gets it before the generation after."""

    def named_by_others(member_id: str) -> Partitions:
        return claimed({other: said for other, said in subscriptions.items() if other != member_id})

    return {member_id: share - named_by_others(member_id) for member_id, share in shares.items()}


def _claimers(subscriptions: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """Of two who name a partition, whose generation is newer has it (KIP-792)."""
    oldest_first = sorted(subscriptions, key=lambda m: (subscriptions[m].generation, m))
    return {p: member_id for member_id in oldest_first for p in subscriptions[member_id].owned}


def _heirs(before: Group, now: Group, subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """By the id of a former member, the id under which its client is a member now: clients that were made to leave come
    back under new ids."""
    present = [m for m in now.members if m.member_id in subscriptions]
    ids = {m.member_id for m in present}
    heirs = {m.member_id: m.member_id for m in before.members if m.member_id in ids}
    ranked = sorted(
        (-len(former.assignment & subscriptions[one.member_id].owned), former.member_id, one.member_id)
        for former in before.members
        for one in present
        if _same_client(former, one)
    )
    taken = set(heirs.values())
    for _, former_id, member_id in ranked:
        if former_id not in heirs and member_id not in taken:
            heirs[former_id] = member_id
            taken.add(member_id)
    return heirs


def _same_client(one: Member, other: Member) -> bool:
    """A static member by its instance id, others by client id and host; several may have the same ones."""
    if one.is_static or other.is_static:
        return one.group_instance_id == other.group_instance_id
    return (one.client_id, one.host) == (other.client_id, other.host)


def claimed(subscriptions: Mapping[str, Subscription]) -> Partitions:
    """What members name as their own."""
    named: Iterable[Partitions] = (s.owned for s in subscriptions.values())
    return frozenset[TopicPartition]().union(*named)
