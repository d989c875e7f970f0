"""Who owns what in a generation that Tidegate leads."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.assignments import claimed, not_held_by_others, share_out, without
from tidegate.kafka.model import Group, GroupState, GroupType, Member, Subscription, Topic, TopicPartition

TOPICS = {"orders": Topic("orders", "id-1", 4), "returns": Topic("returns", "id-2", 2)}
ORDERS = TOPICS["orders"].all_partitions()
RETURNS = TOPICS["returns"].all_partitions()
READS_ORDERS = Subscription(frozenset({"orders"}), version=1)


def member(member_id: str, *owned: TopicPartition, client: str = "c", instance: str | None = None) -> Member:
    return Member(member_id, client, "/127.0.0.1", instance, frozenset(owned))


def group(*members: Member) -> Group:
    return Group("payments", GroupState.STABLE, GroupType.CLASSIC, "cooperative-sticky", members)


def names(*owned: TopicPartition, generation: int = -1) -> Subscription:
    return replace(READS_ORDERS, owned=frozenset(owned), generation=generation)


def test_members_keep_what_they_had_under_their_new_ids() -> None:
    before = group(member("a-1", *ORDERS[:3], client="a"), member("b-1", ORDERS[3], client="b"))
    now = group(member("b-2", client="b"), member("a-2", client="a"))

    shares = share_out(before, now, {"a-2": READS_ORDERS, "b-2": READS_ORDERS}, TOPICS)

    assert shares == {"a-2": frozenset(ORDERS[:3]), "b-2": frozenset(ORDERS[3:])}


def test_members_that_share_a_client_id_are_told_apart_by_what_they_name() -> None:
    before = group(member("c-1", *ORDERS[:2]), member("c-2", *ORDERS[2:]))
    now = group(member("c-8"), member("c-9"))

    shares = share_out(before, now, {"c-8": names(ORDERS[3]), "c-9": READS_ORDERS}, TOPICS)

    assert shares == {"c-8": frozenset(ORDERS[2:]), "c-9": frozenset(ORDERS[:2])}


def test_static_members_are_told_by_their_instance_ids() -> None:
    before = group(member("1", *ORDERS[:2], instance="one"), member("2", *ORDERS[2:], instance="two"))
    now = group(member("3", instance="two"), member("4", instance="one"))

    shares = share_out(before, now, {"3": READS_ORDERS, "4": READS_ORDERS}, TOPICS)

    assert shares == {"3": frozenset(ORDERS[2:]), "4": frozenset(ORDERS[:2])}


def test_who_names_a_partition_keeps_it_although_another_had_it_before() -> None:
    before = group(member("a-1", *ORDERS, client="a"))
    now = group(member("a-1", client="a"), member("b-1", client="b"))

    shares = share_out(before, now, {"a-1": READS_ORDERS, "b-1": names(ORDERS[0])}, TOPICS)

    assert shares["b-1"] == {ORDERS[0]}


def test_of_two_that_name_a_partition_the_one_of_the_newer_generation_has_it() -> None:
    said = {"a-1": names(ORDERS[0], generation=7), "b-1": names(ORDERS[0], generation=8)}

    shares = share_out(group(), group(member("a-1"), member("b-1")), said, TOPICS)

    assert ORDERS[0] in shares["b-1"]
    assert ORDERS[0] not in not_held_by_others(shares, said)["b-1"]


def test_new_members_and_new_partitions_are_not_forgotten() -> None:
    before = group(member("a-1", *ORDERS[:2], client="a"))
    now = group(member("a-1", client="a"), member("b-1", client="b"))
    said = {"a-1": READS_ORDERS, "b-1": Subscription(frozenset({"orders", "returns"}))}

    shares = share_out(before, now, said, TOPICS)

    assert shares["a-1"] >= set(ORDERS[:2])
    assert shares["b-1"] >= {*RETURNS, ORDERS[2]} or shares["b-1"] >= {*RETURNS, ORDERS[3]}
    assert frozenset().union(*shares.values()) == {*ORDERS, *RETURNS}


def test_who_no_longer_subscribes_to_a_topic_gets_none_of_it() -> None:
    before = group(member("a-1", *ORDERS, *RETURNS, client="a"), member("b-1", client="b"))
    said = {"a-1": Subscription(frozenset({"returns"})), "b-1": READS_ORDERS}

    shares = share_out(before, before, said, TOPICS)

    assert shares == {"a-1": frozenset(RETURNS), "b-1": frozenset(ORDERS)}


def test_what_nobody_subscribes_to_is_nobodys() -> None:
    before = group(member("a-1", *RETURNS, client="a"))

    assert share_out(before, before, {"a-1": READS_ORDERS}, TOPICS) == {"a-1": frozenset(ORDERS)}


def test_partitions_of_a_topic_that_we_may_not_see_stay_with_their_owners() -> None:
    hidden = TopicPartition("secret", 3)
    before = group(member("a-1", hidden, client="a"), member("b-1", client="b"))
    said = dict.fromkeys(("a-1", "b-1"), Subscription(frozenset({"secret"})))

    assert share_out(before, before, said, TOPICS) == {"a-1": frozenset({hidden}), "b-1": frozenset()}


def test_what_is_withheld_is_nobodys() -> None:
    assert without({"a": frozenset(ORDERS), "b": frozenset(RETURNS)}, frozenset({ORDERS[0], RETURNS[0]})) == {
        "a": frozenset(ORDERS[1:]),
        "b": frozenset(RETURNS[1:]),
    }


def test_what_members_name() -> None:
    assert claimed({"a": names(ORDERS[0]), "b": names(ORDERS[1], ORDERS[2]), "c": READS_ORDERS}) == set(ORDERS[:3])
    assert claimed({}) == frozenset()


ANY_PARTITIONS = st.frozensets(st.sampled_from([*ORDERS, *RETURNS]))
ANY_SUBSCRIPTION = st.builds(
    Subscription,
    topics=st.frozensets(st.sampled_from(["orders", "returns"])),
    owned=ANY_PARTITIONS,
    generation=st.integers(-1, 3),
)
ANY_MEMBER = st.builds(
    Member,
    member_id=st.sampled_from("123456"),
    client_id=st.sampled_from("ab"),
    host=st.just("/h"),
    group_instance_id=st.sampled_from([None, None, "i", "j"]),
    assignment=ANY_PARTITIONS,
)
ANY_GROUP = st.lists(ANY_MEMBER, max_size=5, unique_by=lambda m: m.member_id).map(lambda ms: group(*ms))


@given(before=ANY_GROUP, now=ANY_GROUP, data=st.data())
def test_every_partition_that_somebody_reads_has_one_owner_who_reads_it(
    before: Group, now: Group, data: st.DataObject
) -> None:
    said = {m.member_id: data.draw(ANY_SUBSCRIPTION) for m in now.members}

    shares = share_out(before, now, said, TOPICS)

    assert shares.keys() == said.keys()
    read = {name for s in said.values() for name in s.topics}
    assert sorted(p for share in shares.values() for p in share) == [p for p in (*ORDERS, *RETURNS) if p.topic in read]
    assert all(p.topic in said[m].topics for m, share in shares.items() for p in share)
    named = {m: s.owned for m, s in said.items()}
    given_now = not_held_by_others(shares, said)
    assert all(not given_now[m] & named[other] for m in said for other in said if other != m)
