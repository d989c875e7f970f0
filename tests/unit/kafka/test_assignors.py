"""Kafka's assignors in Python; beside Kafka's own ones they are in ``tests/kafka/test_assignors.py``."""

from __future__ import annotations

from random import Random

import pytest

from support.java_assignors import sticky_user_data
from support.random_groups import claimed_at_will
from tidegate.kafka.assignors.assignor import COOPERATIVE_STICKY, KNOWN, RANGE, ROUND_ROBIN, STICKY, assign, joined
from tidegate.kafka.assignors.java_order import PartitionSet, in_map_order, text_order
from tidegate.kafka.assignors.members import NO_GENERATION, Assigned, Joined
from tidegate.kafka.assignors.user_data import cooperative_generation, sticky_claims
from tidegate.kafka.model import Subscription, TopicPartition

ORDERS = tuple(TopicPartition("orders", number) for number in range(6))
RETURNS = tuple(TopicPartition("returns", number) for number in range(2))
READS_ORDERS = frozenset({"orders"})


def claims(*claimed: TopicPartition, generation: int = 7) -> Joined:
    return Joined(READS_ORDERS, frozenset(claimed), generation, generation)


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    members = {"b": Joined(READS_ORDERS), "a": Joined(READS_ORDERS | {"returns"}), "c": Joined(READS_ORDERS)}

    shares = assign(RANGE, members, {"orders": 4, "returns": 2, "unread": 9}).shares

    assert shares == {"a": {*ORDERS[:2], *RETURNS}, "b": {ORDERS[2]}, "c": {ORDERS[3]}}


def test_roundrobin_gives_in_turns_to_those_that_read_the_topic() -> None:
    members = {"b": Joined(READS_ORDERS | {"returns"}), "a": Joined(READS_ORDERS)}

    shares = assign(ROUND_ROBIN, members, {"orders": 3, "returns": 2}).shares

    assert shares == {"a": {ORDERS[0], ORDERS[2]}, "b": {ORDERS[1], *RETURNS}}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_static_members_come_first_by_their_instance_ids(assignor: str) -> None:
    members = {
        "a": Joined(READS_ORDERS),
        "b": Joined(READS_ORDERS, instance_id="two"),
        "c": Joined(READS_ORDERS, instance_id="one"),
    }

    assert assign(assignor, members, {"orders": 3}).shares == {"c": {ORDERS[0]}, "b": {ORDERS[1]}, "a": {ORDERS[2]}}


def test_a_newcomer_gets_its_share_and_nobody_else_loses_more() -> None:
    assigned = assign(STICKY, {"a": claims(*ORDERS[:3]), "b": claims(*ORDERS[3:]), "c": Joined(READS_ORDERS)}, COUNTS)

    assert assigned.shares == {"a": set(ORDERS[:2]), "b": set(ORDERS[3:5]), "c": {ORDERS[2], ORDERS[5]}}
    assert assigned.moving == {ORDERS[2], ORDERS[5]}


COUNTS = {"orders": 6}


@pytest.mark.parametrize("differ", [False, True])
def test_of_two_that_claim_a_partition_the_newer_generation_has_it(differ: bool) -> None:
    members = {"a": claims(*ORDERS[:3], generation=6), "b": claims(*ORDERS[:3])}
    if differ:
        members["c"] = Joined(frozenset({"returns"}))

    assert assign(COOPERATIVE_STICKY, members, COUNTS).shares["b"] == set(ORDERS[:3])


def test_what_two_of_a_generation_claim_is_nobodys_until_both_know() -> None:
    members = {"a": claims(*ORDERS[:3]), "b": claims(ORDERS[0], *ORDERS[3:])}

    assigned = assign(COOPERATIVE_STICKY, members, COUNTS)

    assert assigned.moving == {ORDERS[0]}


@pytest.mark.parametrize("assignor", sorted(KNOWN))
def test_no_members_and_no_topics(assignor: str) -> None:
    assert assign(assignor, {}, COUNTS) == Assigned({})
    assert assign(assignor, {"a": Joined(frozenset())}, COUNTS).shares == {"a": frozenset()}
    assert assign(assignor, {"a": claims(ORDERS[0])}, {}).shares == {"a": frozenset()}
    assert assign(assignor, {"a": claims(ORDERS[0])}, {"orders": 0}).shares == {"a": frozenset()}


def test_no_other_assignor_is_known() -> None:
    with pytest.raises(ValueError, match="streams is none of the assignors RoundRobinAssigner, cooperative"):
        assign("streams", {}, {})


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE_STICKY])
@pytest.mark.parametrize("differ", [False, True])
def test_partitions_that_do_not_exist_are_not_given(assignor: str, differ: bool) -> None:
    strange = frozenset({TopicPartition("orders", -1), TopicPartition("orders", 6), TopicPartition("gone", 0)})
    members = {"a": Joined(READS_ORDERS, strange, 7, 7), "b": Joined(READS_ORDERS | ({"x"} if differ else set()))}

    shares = assign(assignor, members, COUNTS).shares

    assert sorted(shares["a"] | shares["b"]) == list(ORDERS)
    assert len(shares["a"]) == len(shares["b"]) == 3


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE_STICKY])
def test_whatever_is_claimed_every_partition_has_one_owner_who_reads_it(assignor: str) -> None:
    random = Random(1)
    for _ in range(1000):
        group = claimed_at_will(random, assignor)

        shares = assign(assignor, group.joined(), group.topics).shares

        read = {topic for said, _ in group.members.values() for topic in said.topics}
        everything = [TopicPartition(t, n) for t, count in group.topics.items() if t in read for n in range(count)]
        assert sorted(p for share in shares.values() for p in share) == sorted(everything)
        assert all(p.topic in group.members[m][0].topics for m, share in shares.items() for p in share)


def some(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def test_claims_that_keep_kafka_moving_partitions_for_ever_come_to_an_end() -> None:
    """Java's assignor did not answer within 15 s; found at random."""
    counts = {"t0": 28, "t3": 3, "t4": 30, "t5": 30, "t6": 10}
    others = some("t4", 1, 11, 15, 21, 25, 26, 27) | some("t6", 3, 6)
    stale = some("t4", 5, 6, 7, 9, 10, 12, 13, 14, 16, 17, 23, 28)
    most = some("t0", 7, 8, 11, 13, 14, 15, 18, 20, 26, 27) | some("t6", *{*range(10)} - {3, 6})
    most |= some("t4", *{*range(30)} - {1, 2, 3, 11, 15, 21, 25, 26, 27})
    members = {
        "c-c71570e21b49cc8a": Joined(frozenset({"t0"}), frozenset(), 0, 2),
        "c-71fc79fb7dc24e91": Joined(frozenset({"t4", "t5", "t6"}), others, 0, 5),
        "c-7d68fb2f3eea2357": Joined(frozenset({"t0"}), frozenset(), 1, 3),
        "c-a097ead7798164e0": Joined(frozenset({"t4", "t5", "t6"}), frozenset(), 0, 4),
        "c-1dde6936a60efa3e": Joined(frozenset({"t0", "t6"}), frozenset(), 2, 6),
        "c-d4e1966253c03a66": Joined(frozenset({"t0", "t4", "t6"}), most, 2, 3),
        "c-2d138eab00b6a859": Joined(frozenset({"t3", "t4", "t5", "t6"}), stale, 2, 1),
        "c-7bec0842f990d332": Joined(frozenset({"t0"}), frozenset(), 4, 0),
    }

    shares = assign(STICKY, members, counts).shares

    assert sum(map(len, shares.values())) == len(frozenset().union(*shares.values())) == sum(counts.values())
    assert all(p.topic in members[member_id].topics for member_id, share in shares.items() for p in share)


# --- what members send ------------------------------------------------------------------------------------------------


def test_a_sticky_member_claims_in_its_user_data() -> None:
    data = sticky_user_data(frozenset({ORDERS[0], RETURNS[1]}), 7)
    said = Subscription(READS_ORDERS, generation=5, user_data=data)

    assert joined(STICKY, said, "i") == Joined(READS_ORDERS, frozenset({ORDERS[0], RETURNS[1]}), 7, 5, "i")
    assert joined(RANGE, said) == Joined(READS_ORDERS, frozenset(), 5, 5)


def test_a_cooperative_member_that_does_not_name_its_generation_has_it_in_its_user_data() -> None:
    said = Subscription(READS_ORDERS, frozenset({ORDERS[0]}), user_data=b"\x00\x00\x00\x09")

    assert joined(COOPERATIVE_STICKY, said) == Joined(READS_ORDERS, frozenset({ORDERS[0]}), 9, NO_GENERATION)


def test_user_data_of_version_0_has_no_generation() -> None:
    claimed = frozenset({ORDERS[2]})

    assert sticky_claims(sticky_user_data(claimed, None)) == (claimed, NO_GENERATION)
    assert sticky_claims(sticky_user_data(claimed, None) + b"\x00") == (claimed, NO_GENERATION)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x7f\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02\x00\x01t\x00\x00\x00\x00\x00\x01t\x00\x00",
    ],
)
def test_user_data_that_cannot_be_read_claims_nothing(raw: bytes | None) -> None:
    assert sticky_claims(raw) == (frozenset(), NO_GENERATION)


def test_no_generation_in_too_few_bytes() -> None:
    assert cooperative_generation(None) == cooperative_generation(b"\x00\x00\x09") == NO_GENERATION


# --- the order of Java's collections ----------------------------------------------------------------------------------


def test_keys_in_the_order_of_a_hash_map() -> None:
    """By hash code: "b-9" is in bucket 15 of 16, "~" in 14; "Aa", "BB" and "" are in 0, as they came."""
    assert in_map_order(["~", "b-9", "BB", "Aa", ""]) == ["BB", "Aa", "", "~", "b-9"]


def test_a_hash_map_has_more_buckets_from_the_thirteenth_key_on() -> None:
    """ "0" and "@" are in the first of 16 buckets; of 32, "0" is in the seventeenth."""
    assert in_map_order(["0", "@", *"123456789:"])[:2] == ["0", "@"]
    assert in_map_order(["0", "@", *"123456789:;"])[:2] == ["@", "0"]


def test_texts_are_sorted_by_utf_16() -> None:
    assert sorted(["\uff5e", "\U0001f40b"], key=text_order) == ["\U0001f40b", "\uff5e"]


def test_the_first_of_a_hash_set() -> None:
    partitions = PartitionSet()
    assert not partitions
    for partition in ORDERS:
        partitions.add(partition)

    first = partitions.first()
    partitions.remove(first)

    assert partitions
    assert partitions.first() != first
