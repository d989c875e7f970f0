"""What ``tidegate.kafka.ports`` promises, held against Kafka in memory and against a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from contract.kafka_worlds import HEARTBEAT_S, FakeWorld, RealWorld, World, commit_plainly, new_group, until
from support import fake_kafka
from support.stopped_streams import METADATA_1, METADATA_2
from tidegate.kafka.errors import (
    Fenced,
    GroupNotEmpty,
    GroupNotLive,
    KafkaFailure,
    MemberForgotten,
    Refused,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import (
    Generation,
    Group,
    GroupState,
    GroupType,
    LogBounds,
    Range,
    Record,
    Seat,
    Topic,
    TopicPartition,
)
from tidegate.kafka.ports import Guest, OffsetWriter, TopicWatch
from tidegate.kafka_client import membership
from tidegate.resources.connection import GroupKind, Support

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SEATED_S = 20.0


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = FakeWorld() if request.param == "fake" else RealWorld(request.getfixturevalue("kafka").bootstrap)
    yield made
    made.close()


def writer(world: World, group_id: str) -> OffsetWriter:
    return world.kafka.writer(group_id, transaction_timeout_s=20)


def described(world: World, group_id: str) -> Group:
    return world.kafka.groups([group_id])[group_id]


def wait_visible(world: World, group_id: str, partitions: list[TopicPartition]) -> None:
    until(world, lambda: not world.kafka.pending(group_id, partitions), "the transaction is over", timeout_s=60)


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(count)]


# --- looking ----------------------------------------------------------------------------------------------------------


def test_cluster_has_an_id_brokers_and_features(world: World) -> None:
    cluster = world.kafka.cluster()
    assert cluster.cluster_id
    assert [b.node_id for b in cluster.brokers] == sorted({b.node_id for b in cluster.brokers})
    assert cluster.brokers[0].port > 0
    assert cluster.features.consumer_protocol


@pytest.mark.parametrize("kinds", [list(GroupKind), [GroupKind.CLASSIC], []], ids=len)
def test_what_brokers_take_is_told_for_the_kinds_that_are_asked_for(world: World, kinds: list[GroupKind]) -> None:
    found = world.kafka.capabilities(kinds)
    assert {kind: capability.support for kind, capability in found.items()} == dict.fromkeys(kinds, Support.SUPPORTED)


def test_topics_have_their_partitions_and_internal_ones_are_left_out(world: World) -> None:
    name, group_id = world.create_topic(3), new_group()
    commit_plainly(world, group_id, {TopicPartition(name, 0): 0})  # makes __consumer_offsets, too
    topics = world.kafka.topics()
    assert topics[name].partitions == 3
    assert topics[name].all_partitions() == tuple(partitions_of(name, 3))
    assert not any(t.startswith("__") for t in topics)


def test_topics_are_told_by_name_and_those_that_are_not_there_left_out(world: World) -> None:
    name, other = world.create_topic(3), world.create_topic(1)
    topics = world.kafka.topics([name, "nobody-has-made-it", "__consumer_offsets"])
    assert topics == {name: world.kafka.topics()[name]}
    assert other not in topics
    assert world.kafka.topics([]) == {}


def test_a_recreated_topic_has_another_id(world: World) -> None:
    name = world.create_topic(1)
    before = world.kafka.topics()[name].topic_id
    world.recreate_topic(name, 1)
    assert before
    assert world.kafka.topics()[name].topic_id not in ("", before)


def test_groups_are_listed_with_and_without_members(world: World) -> None:
    topic, empty, live = world.create_topic(1), new_group(), new_group()
    commit_plainly(world, empty, {TopicPartition(topic, 0): 0})
    kinds = {f"{live}-{kind}": kind for kind in (GroupType.CLASSIC, GroupType.CONSUMER)}
    consumers = [world.consumer(group, [topic], protocol=kind) for group, kind in kinds.items()]

    found = world.kafka.group_ids()

    assert {empty, *kinds} <= found
    assert new_group() not in found
    for consumer in consumers:
        consumer.close()


# --- looking at topics again and again --------------------------------------------------------------------------------


@pytest.fixture
def watch(world: World) -> Iterator[TopicWatch]:
    made = world.kafka.topic_watch()
    yield made
    made.close()


def sizes(topics: Mapping[str, Topic] | None) -> dict[str, int]:
    assert topics is not None
    return {name: topic.partitions for name, topic in topics.items()}


def test_a_watch_tells_at_first_and_then_only_what_has_changed(world: World, watch: TopicWatch) -> None:
    name = world.create_topic(2)
    topic = world.kafka.topics()[name]
    assert watch.poll([name]) == {name: topic}
    assert [watch.poll([name]) for _ in range(3)] == [None, None, None]

    world.add_partitions(name, 5)

    expanded = {name: Topic(name, topic.topic_id, 5)}
    until(world, lambda: watch.poll([name]) == expanded, "the expansion is told")
    assert watch.poll([name]) is None


def test_a_watch_tells_what_it_is_asked_for(world: World, watch: TopicWatch) -> None:
    one, other, unknown = world.create_topic(1), world.create_topic(3), new_group()
    assert sizes(watch.poll([one])) == {one: 1}
    assert sizes(watch.poll([other, one, other])) == {one: 1, other: 3}
    assert watch.poll([one, other]) is None
    assert sizes(watch.poll([one, unknown])) == {one: 1}
    assert watch.poll([]) == {}
    assert watch.poll([]) is None
    assert unknown not in world.kafka.topics()


def test_a_watch_of_everything_leaves_internal_topics_out(world: World, watch: TopicWatch) -> None:
    name, group_id = world.create_topic(3), new_group()
    commit_plainly(world, group_id, {TopicPartition(name, 0): 0})  # makes __consumer_offsets, too
    topics = watch.poll()
    assert topics == world.kafka.topics()
    assert sizes(topics)[name] == 3
    assert watch.poll(["__consumer_offsets"]) == {}


def test_a_watch_tells_a_recreated_topic_from_the_one_before(world: World, watch: TopicWatch) -> None:
    name = world.create_topic(3)
    [before] = (watch.poll([name]) or {}).values()
    world.recreate_topic(name, 1)
    [after] = (watch.poll([name]) or {}).values()
    assert (after.name, after.partitions) == (name, 1)
    assert after.topic_id not in ("", before.topic_id)


def test_a_closed_watch_says_so(world: World) -> None:
    watch = world.kafka.topic_watch()
    watch.poll()
    watch.close()
    with pytest.raises(Unavailable):
        watch.poll()


# --- groups -----------------------------------------------------------------------------------------------------------


def test_an_unknown_group_is_dead(world: World) -> None:
    group_id = new_group()
    group = described(world, group_id)
    assert (group.group_id, group.state, group.members) == (group_id, GroupState.DEAD, ())
    assert group.is_vacant


def test_a_group_that_only_has_offsets_is_simple_and_vacant(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    commit_plainly(world, group_id, {partition: 0})
    group = described(world, group_id)
    assert (group.type, group.state, group.is_vacant) == (GroupType.SIMPLE, GroupState.EMPTY, True)


def test_several_groups_are_described_at_once(world: World) -> None:
    name, live, unknown = world.create_topic(1), new_group(), new_group()
    world.consumer(live, [name])
    groups = world.kafka.groups([live, unknown])
    assert {g: groups[g].state for g in groups} == {live: GroupState.STABLE, unknown: GroupState.DEAD}
    assert world.kafka.groups([]) == {}


def test_groups_of_all_kinds_are_described_at_once(world: World) -> None:
    name = world.create_topic(2)
    classic, modern, simple, unknown = (new_group() for _ in range(4))
    world.consumer(classic, [name])
    world.consumer(modern, [name], protocol=GroupType.CONSUMER)
    commit_plainly(world, simple, {TopicPartition(name, 0): 0})

    groups = world.kafka.groups([unknown, simple, modern, classic])

    assert {g: groups[g].type for g in (classic, modern, simple)} == {
        classic: GroupType.CLASSIC,
        modern: GroupType.CONSUMER,
        simple: GroupType.SIMPLE,
    }
    assert groups[unknown].state is GroupState.DEAD
    assert groups == {g: described(world, g) for g in groups}
    assert {g for g in groups if groups[g].owner(TopicPartition(name, 1))} == {classic, modern}


def test_members_of_a_group_of_the_consumer_protocol(world: World) -> None:
    name, group_id = world.create_topic(4), new_group()
    for _ in range(2):
        world.consumer(group_id, [name], protocol=GroupType.CONSUMER)
    until(world, lambda: len(described(world, group_id).members) == 2, "both are members")

    def shared() -> bool:
        return [len(m.assignment) for m in described(world, group_id).members] == [2, 2]

    until(world, shared, "each has two partitions")
    one, other = described(world, group_id).members
    assert one.assignment | other.assignment == frozenset(partitions_of(name, 4))
    assert one.member_id != other.member_id
    assert all(m.client_id and m.host and not m.is_static for m in (one, other))


def test_a_live_classic_group(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    consumer = world.consumer(group_id, [name])
    group = described(world, group_id)
    assert (group.type, group.state, group.assignor) == (GroupType.CLASSIC, GroupState.STABLE, "range")
    [member] = group.members
    assert member.assignment == frozenset(partitions_of(name, 2))
    assert member.member_id
    assert member.client_id
    assert not member.is_static
    assert group.owner(TopicPartition(name, 1)) == member
    assert not group.is_vacant
    consumer.close()
    until(world, lambda: described(world, group_id).is_vacant, "the group is empty")
    assert described(world, group_id).type is GroupType.CLASSIC


def test_a_live_group_of_the_consumer_protocol(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    consumer = world.consumer(group_id, [name], protocol=GroupType.CONSUMER)
    group = described(world, group_id)
    assert (group.type, group.state) == (GroupType.CONSUMER, GroupState.STABLE)
    assert group.assignor == "uniform"
    assert group.members[0].assignment == frozenset(partitions_of(name, 2))
    consumer.close()
    until(world, lambda: described(world, group_id).is_vacant, "the group is empty")


def test_committed_offsets_are_those_that_exist(world: World) -> None:
    [first, second, third], group_id = partitions_of(world.create_topic(3), 3), new_group()
    commit_plainly(world, group_id, {first: 7, second: 0})
    assert world.kafka.committed(group_id) == {first: 7, second: 0}
    assert world.kafka.committed(group_id, [second, third]) == {second: 0}
    assert world.kafka.committed(group_id, []) == {}
    assert world.kafka.committed(group_id, [first], stable=True) == {first: 7}
    assert world.kafka.pending(group_id, [first, second, third]) == frozenset()


def test_an_unknown_group_has_no_committed_offsets(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    assert world.kafka.committed(group_id) == {}
    assert world.kafka.committed(group_id, [partition]) == {}


def test_groups_that_kafka_streams_has_committed_to(world: World) -> None:
    """One commit of several tells, also beside those that somebody has replaced."""
    first, second = partitions_of(world.create_topic(2), 2)
    old, new, other, plain = (new_group() for _ in range(4))
    world.leave_commit(old, first, METADATA_1)
    world.leave_commit(old, second, "")
    world.leave_commit(new, first, METADATA_2)
    world.leave_commit(other, first, "checked by hand")
    commit_plainly(world, plain, {first: 1})
    groups = [old, new, other, plain, new_group()]
    assert world.kafka.committed_by_streams(groups) == {old, new}
    assert world.kafka.committed_by_streams(groups[2:]) == frozenset()
    assert world.kafka.committed_by_streams([]) == frozenset()


def test_committed_offsets_of_many_groups(world: World) -> None:
    [first, second] = partitions_of(world.create_topic(2), 2)
    one, two, unknown = new_group(), new_group(), new_group()
    commit_plainly(world, one, {first: 1})
    commit_plainly(world, two, {first: 2, second: 3})
    assert world.kafka.committed_of([one, two, unknown]) == {one: {first: 1}, two: {first: 2, second: 3}, unknown: {}}


def test_log_bounds(world: World) -> None:
    [empty, full, cut] = partitions = partitions_of(world.create_topic(3), 3)
    world.append(full, [AT] * 5)
    world.append(cut, [AT] * 5)
    world.delete_records(cut, 2)
    assert world.kafka.log_bounds(partitions) == {
        empty: LogBounds(0, 0),
        full: LogBounds(0, 5),
        cut: LogBounds(2, 5),
    }


def test_bounds_and_times_of_partitions_that_do_not_exist(world: World) -> None:
    name = world.create_topic(1)
    there, beyond, nowhere = TopicPartition(name, 0), TopicPartition(name, 1), TopicPartition(f"no-{name}", 0)
    with pytest.raises(UnknownPartitions) as bounds:
        world.kafka.log_bounds([there, beyond, nowhere])
    with pytest.raises(UnknownPartitions) as times:
        world.kafka.offsets_at({there: AT, beyond: AT, nowhere: AT})
    assert bounds.value.partitions == times.value.partitions == {beyond, nowhere}


def test_offsets_at_a_time(world: World) -> None:
    [partition, empty] = partitions_of(world.create_topic(2), 2)
    world.append(partition, [AT, AT + SECOND, AT + SECOND, AT + 3 * SECOND])

    def found(at: datetime) -> int | None:
        return world.kafka.offsets_at({partition: at})[partition]

    assert found(AT - SECOND) == 0
    assert found(AT) == 0
    assert found(AT + timedelta(milliseconds=1)) == 1
    assert found(AT + SECOND) == 1
    assert found(AT + 2 * SECOND) == 3
    assert found(AT + 3 * SECOND) == 3
    assert found(AT + 4 * SECOND) is None
    assert world.kafka.offsets_at({empty: AT}) == {empty: None}
    assert world.kafka.offsets_at({}) == {}


def test_offsets_at_are_exact_to_the_millisecond(world: World) -> None:
    """Between two milliseconds, the first record at or after the time is the next one."""
    [partition] = partitions_of(world.create_topic(1), 1)
    world.append(partition, [AT + timedelta(milliseconds=n) for n in range(4)])
    assert world.kafka.offsets_at({partition: AT + timedelta(microseconds=1000)}) == {partition: 1}
    assert world.kafka.offsets_at({partition: AT + timedelta(microseconds=1001)}) == {partition: 2}


def test_offsets_at_go_by_offset_when_timestamps_are_out_of_order(world: World) -> None:
    [partition] = partitions_of(world.create_topic(1), 1)
    world.append(partition, [AT, AT + 5 * SECOND, AT + 2 * SECOND, AT + 6 * SECOND])
    assert world.kafka.offsets_at({partition: AT + 2 * SECOND}) == {partition: 1}


def test_offsets_at_skip_deleted_records(world: World) -> None:
    [partition] = partitions_of(world.create_topic(1), 1)
    world.append(partition, [AT, AT + SECOND, AT + 2 * SECOND])
    world.delete_records(partition, 2)
    assert world.kafka.offsets_at({partition: AT}) == {partition: 2}


def test_record_times(world: World) -> None:
    [full, cut, empty] = partitions_of(world.create_topic(3), 3)
    world.append(full, [AT, AT + SECOND, AT + 2 * SECOND])
    world.append(cut, [AT, AT + SECOND, AT + 2 * SECOND])
    world.delete_records(cut, 2)
    assert world.kafka.record_times({full: 1, cut: 0, empty: 0}) == {full: AT + SECOND, cut: AT + 2 * SECOND}
    assert world.kafka.record_times({full: 3}) == {}
    assert world.kafka.record_times({}) == {}


def test_record_times_where_an_offset_holds_no_record(world: World) -> None:
    [gap_at_end, gap_between] = partitions = partitions_of(world.create_topic(2), 2)
    for partition in partitions:
        world.append(partition, [AT])
        world.append_transaction(partition)
    end = world.kafka.log_bounds(partitions)[gap_between].latest
    world.append(gap_between, [AT + SECOND])
    assert world.kafka.record_times({gap_at_end: end - 1, gap_between: end - 1}) == {gap_between: AT + SECOND}


def test_the_next_record_is_the_first_one_that_a_reader_of_committed_records_gets(world: World) -> None:
    [full, gap, empty] = partitions = partitions_of(world.create_topic(3), 3)
    world.append(full, [AT, AT + SECOND])
    world.append(gap, [AT])
    world.append_transaction(gap)
    end = world.kafka.log_bounds(partitions)[gap].latest
    world.append(gap, [AT + SECOND])
    found = world.kafka.next_records({full: 1, gap: end - 1, empty: 0})
    assert {p: (head.offset, head.at) for p, head in found.items()} == {
        full: (1, AT + SECOND),
        gap: (end, AT + SECOND),
    }
    assert world.kafka.next_records({full: 2}) == {}
    assert world.kafka.last_stable_offsets([full, empty]) == {full: 2, empty: 0}
    gone = TopicPartition(full.topic, 7)
    with pytest.raises(UnknownPartitions):
        world.kafka.last_stable_offsets([full, gone])
    assert world.kafka.last_stable_offsets([full, gone], as_told=True) == {full: 2}


# --- writing ----------------------------------------------------------------------------------------------------------


def test_alter_commits_to_a_vacant_group_without_a_range_check(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    commit_plainly(world, group_id, {partition: 10**15})
    assert world.kafka.committed(group_id) == {partition: 10**15}
    commit_plainly(world, group_id, {partition: 0})
    assert world.kafka.committed(group_id) == {partition: 0}


def test_alter_is_refused_while_the_group_has_members(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    world.consumer(group_id, [name])
    with pytest.raises(GroupNotEmpty):
        commit_plainly(world, group_id, {TopicPartition(name, 0): 1})
    assert world.kafka.committed(group_id) == {}


def test_alter_names_partitions_that_do_not_exist(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    with pytest.raises(UnknownPartitions) as refused:
        commit_plainly(world, group_id, {TopicPartition(f"no-{name}", 0): 1})
    assert refused.value.partitions == {TopicPartition(f"no-{name}", 0)}


def test_a_transaction_changes_a_live_group_that_does_not_notice(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.append(TopicPartition(name, 0), [AT] * 50)
    partitions = partitions_of(name, 2)
    world.consumer(group_id, [name])
    before = described(world, group_id)
    with writer(world, group_id).transaction() as transaction:
        transaction.send(group_id, dict.fromkeys(partitions, 31))
        transaction.commit()
    wait_visible(world, group_id, partitions)
    assert world.kafka.committed(group_id) == dict.fromkeys(partitions, 31)
    assert described(world, group_id) == before


@pytest.mark.parametrize("live", [False, True], ids=["vacant", "live"])
def test_an_open_transaction_is_pending_and_hides_nothing_yet(world: World, live: bool) -> None:
    name, group_id = world.create_topic(3), new_group()
    [first, second, third] = partitions_of(name, 3)
    writing = writer(world, group_id)
    commit_plainly(world, group_id, {first: 1, third: 3})
    if live:
        world.consumer(group_id, [name])
    with writing.transaction() as transaction:
        transaction.send(group_id, {first: 11, second: 12})
        assert world.kafka.pending(group_id, [first, second, third]) == {first, second}
        assert world.kafka.committed(group_id, [first, second, third]) == {first: 1, third: 3}
        assert world.kafka.committed(group_id, [first, second, third], stable=True) == {third: 3}
        transaction.commit()
    wait_visible(world, group_id, [first, second, third])
    assert world.kafka.committed(group_id, stable=True) == {first: 11, second: 12, third: 3}


def test_a_transaction_spans_groups_all_or_none(world: World) -> None:
    [partition] = partitions_of(world.create_topic(1), 1)
    one, two = new_group(), new_group()
    writing = writer(world, one)
    with writing.transaction() as transaction:
        transaction.send(one, {partition: 1})
        transaction.send(two, {partition: 2})
    for group_id in (one, two):
        wait_visible(world, group_id, [partition])
    assert world.kafka.committed_of([one, two]) == {one: {}, two: {}}
    with writing.transaction() as transaction:
        transaction.send(one, {partition: 1})
        transaction.send(two, {partition: 2})
        transaction.commit()
    for group_id in (one, two):
        wait_visible(world, group_id, [partition])
    assert world.kafka.committed_of([one, two]) == {one: {partition: 1}, two: {partition: 2}}


def records_of(world: World, topic: str, key: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    """What readers of committed records find in the topic, once this record is there."""
    found: list[tuple[bytes, bytes]] = []

    def there() -> bool:
        found[:] = world.committed_records(topic)
        return (key, value) in found

    until(world, there, f"{key!r} can be read")
    return found


def test_records_are_appended_with_the_offsets_or_never(world: World) -> None:
    [partition], log, group_id = partitions_of(world.create_topic(1), 1), world.create_log(), new_group()
    writing = writer(world, group_id)
    with writing.transaction() as transaction:
        transaction.append(log, {b"1": b"one"})
        transaction.send(group_id, {partition: 1})
    with writing.transaction() as transaction:
        transaction.append(log, {b"2": b"two", b"3": b"three"})
        transaction.append(log, {b"4": b"four"})
        transaction.send(group_id, {partition: 2})
        transaction.commit()
    with writing.transaction() as transaction:
        transaction.append(log, {b"5": b"five"})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 2}
    assert records_of(world, log, b"5", b"five") == [
        (b"2", b"two"),
        (b"3", b"three"),
        (b"4", b"four"),
        (b"5", b"five"),
    ]


def test_records_of_a_writer_that_was_fenced_are_never_read(world: World) -> None:
    [partition], log, group_id = partitions_of(world.create_topic(1), 1), world.create_log(), new_group()
    first, second = writer(world, group_id), writer(world, group_id)
    with first.transaction() as transaction:
        transaction.append(log, {b"1": b"one"})
        transaction.send(group_id, {partition: 1})
        second.fence()
        with pytest.raises(Fenced):
            transaction.append(log, {b"2": b"two"})
    with second.transaction() as transaction:
        transaction.append(log, {b"3": b"three"})
        transaction.send(group_id, {partition: 3})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert records_of(world, log, b"3", b"three") == [(b"3", b"three")]


def test_whole_records_are_those_in_the_span_that_readers_of_committed_records_get_or_all(world: World) -> None:
    [partition] = partitions_of(world.create_topic(1), 1)
    world.append(partition, [AT, AT + SECOND])
    world.append_transaction(partition)
    world.append(partition, [AT + 2 * SECOND])
    for committed in (True, False):
        found = world.kafka.records(partition, Range(1, 9), committed=committed, most_bytes=1000)
        assert [record.offset for record in found] == [1, 2, 4]
        assert found[0].at_ms == int((AT + SECOND).timestamp() * 1000)
        [one] = world.kafka.records(partition, Range(1, 2), committed=committed, most_bytes=1000)
        assert one == found[0]
        assert world.kafka.records(partition, Range(3, 4), committed=committed, most_bytes=1000) == ()
        assert world.kafka.records(partition, Range(9, 12), committed=committed, most_bytes=1000) == ()
        with pytest.raises(Refused, match="more than 1 bytes"):
            world.kafka.records(partition, Range(0, 9), committed=committed, most_bytes=1)
    world.delete_records(partition, 2)
    assert [r.offset for r in world.kafka.records(partition, Range(0, 9), committed=True, most_bytes=1000)] == [2, 4]


def test_copies_are_there_with_the_offsets_or_not_at_all(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    [zero, one] = partitions_of(world.create_topic(2), 2)
    copies = [Record(7, 1_000, b"k", None, (("h", b"1"), ("h", None))), Record(3, 2_000, None, b"")]

    def there(where: TopicPartition) -> list[Record]:
        found = world.kafka.records(where, Range(0, 99), committed=True, most_bytes=1000)
        return [replace(record, offset=0) for record in found]

    writing = writer(world, group_id)
    with writing.transaction() as transaction:
        transaction.copy(one, copies)
        transaction.send(group_id, {partition: 1})
    with writing.transaction() as transaction:
        transaction.include(zero)
        transaction.copy(one, copies)
        transaction.send(group_id, {partition: 2})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    until(world, lambda: there(one) == [replace(record, offset=0) for record in copies], "the copies can be read")
    assert there(zero) == []
    with pytest.raises(Unavailable), writing.transaction() as transaction:
        transaction.copy(TopicPartition(one.topic, 2), copies, timeout_s=0.2)


def test_a_transaction_whose_records_were_not_appended_is_not_committed(world: World) -> None:
    [partition], log, group_id = partitions_of(world.create_topic(1), 1), world.create_log(), new_group()
    writing = writer(world, group_id)
    with writing.transaction() as transaction:
        with pytest.raises(Unavailable):
            transaction.append(f"no-{log}", {b"1": b"one"}, timeout_s=0.2)
        with pytest.raises(Refused, match="not after a failure"):
            transaction.commit()
    with writing.transaction() as transaction:
        transaction.append(log, {b"2": b"two"})
        transaction.send(group_id, {partition: 2})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 2}
    assert records_of(world, log, b"2", b"two") == [(b"2", b"two")]


def test_a_group_id_may_have_any_characters(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), f"größe ✓ {new_group()}"
    with writer(world, group_id).transaction() as transaction:
        transaction.send(group_id, {partition: 1})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 1}


def test_a_transaction_of_which_a_part_was_not_taken_is_not_committed(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    [partition] = partitions_of(name, 1)
    writing = writer(world, group_id)
    with writing.transaction() as transaction:
        transaction.send(group_id, {partition: 1})
        with pytest.raises(Unavailable):
            transaction.send(group_id, {TopicPartition(f"no-{name}", 0): 1})
        with pytest.raises(Refused, match="not after a failure"):
            transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {}
    with writing.transaction() as transaction:
        transaction.send(group_id, {partition: 2})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 2}


def test_a_transaction_that_outlives_its_time_out_is_no_other_writers_doing(world: World) -> None:
    """The broker looks every 10 s for those that have."""
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    writing = world.kafka.writer(group_id, transaction_timeout_s=1)
    with writing.transaction() as transaction:
        transaction.send(group_id, {partition: 1})
        wait_visible(world, group_id, [partition])
        with pytest.raises(Unavailable):
            transaction.commit()
    assert world.kafka.committed(group_id) == {}
    with writing.transaction() as transaction:
        transaction.send(group_id, {partition: 2})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 2}


def test_leaving_a_transaction_without_commit_aborts_it(world: World) -> None:
    partitions, group_id = partitions_of(world.create_topic(2), 2), new_group()
    writing = writer(world, group_id)
    commit_plainly(world, group_id, {partitions[0]: 5})
    with writing.transaction() as transaction:
        transaction.send(group_id, dict.fromkeys(partitions, 9))
    wait_visible(world, group_id, partitions)
    assert world.kafka.committed(group_id) == {partitions[0]: 5}


def test_an_exception_inside_aborts_the_transaction_and_the_writer_can_go_on(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    writing = writer(world, group_id)

    def fails() -> None:
        with writing.transaction() as transaction:
            transaction.send(group_id, {partition: 9})
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fails()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {}
    with writing.transaction() as transaction:
        transaction.send(group_id, {partition: 10})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 10}


def test_the_offsets_sent_last_win(world: World) -> None:
    [first, second], group_id = partitions_of(world.create_topic(2), 2), new_group()
    with writer(world, group_id).transaction() as transaction:
        transaction.send(group_id, {first: 1, second: 2})
        transaction.send(group_id, {first: 3})
        transaction.send(group_id, {})
        transaction.commit()
    wait_visible(world, group_id, [first, second])
    assert world.kafka.committed(group_id) == {first: 3, second: 2}


@pytest.mark.parametrize(("sent_again", "wins"), [(False, 77), (True, 5)])
def test_a_members_commit_after_send_beats_the_transaction_unless_sent_again(
    world: World, sent_again: bool, wins: int
) -> None:
    name, group_id = world.create_topic(1), new_group()
    [partition] = partitions_of(name, 1)
    consumer = world.consumer(group_id, [name])
    with writer(world, group_id).transaction() as transaction:
        transaction.send(group_id, {partition: 5})
        consumer.commit({partition: 77})
        if sent_again:
            transaction.send(group_id, {partition: 5})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: wins}


def test_a_second_writer_fences_the_first_and_ends_its_transaction(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    old, new = writer(world, group_id), writer(world, group_id)
    commit_plainly(world, group_id, {partition: 1})

    def goes_on() -> None:
        with old.transaction() as transaction:
            transaction.send(group_id, {partition: 2})
            new.fence()
            assert world.kafka.pending(group_id, [partition]) == frozenset()
            transaction.send(group_id, {partition: 3})
            transaction.commit()

    with pytest.raises(Fenced):
        goes_on()
    assert world.kafka.committed(group_id) == {partition: 1}
    with new.transaction() as transaction:
        transaction.send(group_id, {partition: 4})
        transaction.commit()
    wait_visible(world, group_id, [partition])
    assert world.kafka.committed(group_id) == {partition: 4}


def test_a_fenced_writer_cannot_commit(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    old, new = writer(world, group_id), writer(world, group_id)

    def goes_on() -> None:
        with old.transaction() as transaction:
            transaction.send(group_id, {partition: 2})
            new.fence()
            transaction.commit()

    with pytest.raises(Fenced):
        goes_on()
    assert world.kafka.committed(group_id) == {}


def test_a_fenced_writer_cannot_begin_anew(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    old, new = writer(world, group_id), writer(world, group_id)
    old.fence()
    new.fence()

    def begins() -> None:
        with old.transaction() as transaction:
            transaction.send(group_id, {partition: 2})
            transaction.commit()

    with pytest.raises(Fenced):
        begins()
    assert world.kafka.committed(group_id) == {}


def test_writers_of_different_groups_do_not_fence_each_other(world: World) -> None:
    [partition] = partitions_of(world.create_topic(1), 1)
    one, two = new_group(), new_group()
    with writer(world, one).transaction() as transaction:
        transaction.send(one, {partition: 1})
        writer(world, two).fence()
        transaction.commit()
    wait_visible(world, one, [partition])
    assert world.kafka.committed(one) == {partition: 1}


def test_a_dead_writers_transaction_is_ended_by_the_next_one(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    dead = writer(world, group_id).transaction()
    dead.__enter__().send(group_id, {partition: 2})  # and never leaves it: as if killed
    assert world.kafka.pending(group_id, [partition]) == {partition}
    writer(world, group_id).fence()
    assert world.kafka.pending(group_id, [partition]) == frozenset()
    assert world.kafka.committed(group_id) == {}


def test_delete_forgets_the_offsets_of_a_vacant_group(world: World) -> None:
    [first, second], group_id = partitions_of(world.create_topic(2), 2), new_group()
    writing = writer(world, group_id)
    commit_plainly(world, group_id, {first: 1, second: 2})
    assert writing.delete(group_id, [first]) == frozenset()
    assert world.kafka.committed(group_id) == {second: 2}
    assert writing.delete(group_id, []) == frozenset()


def test_delete_is_refused_for_subscribed_topics_only(world: World) -> None:
    read, unread, group_id = world.create_topic(1), world.create_topic(1), new_group()
    [kept], [gone] = partitions_of(read, 1), partitions_of(unread, 1)
    writing = writer(world, group_id)
    commit_plainly(world, group_id, {kept: 1, gone: 2})
    world.consumer(group_id, [read])
    assert writing.delete(group_id, [kept, gone]) == {kept}
    assert world.kafka.committed(group_id) == {kept: 1}


def test_delete_for_an_unknown_group_has_nothing_to_do(world: World) -> None:
    [partition], group_id = partitions_of(world.create_topic(1), 1), new_group()
    assert writer(world, group_id).delete(group_id, [partition]) == frozenset()


# --- membership -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_a_member_is_made_to_leave_and_comes_back(world: World, protocol: GroupType) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name], protocol=protocol)
    [member] = described(world, group_id).members
    assert world.kafka.membership.leave(group_id, [member]) == {member.member_id}
    assert described(world, group_id).owner(TopicPartition(name, 0)) is None

    def is_back() -> bool:
        return described(world, group_id).owner(TopicPartition(name, 0)) is not None

    until(world, is_back, "the member is back")
    assert described(world, group_id).members[0].assignment == frozenset(partitions_of(name, 2))


def test_leaving_in_the_name_of_a_member_that_is_gone(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    consumer = world.consumer(group_id, [name])
    [member] = described(world, group_id).members
    consumer.close()
    until(world, lambda: described(world, group_id).is_vacant, "the group is empty")
    assert world.kafka.membership.leave(group_id, [member]) == frozenset()
    assert world.kafka.membership.leave(new_group(), [member]) == frozenset()
    assert world.kafka.membership.leave(group_id, []) == frozenset()


def test_a_rebalance_that_was_begun_leaves_nothing_behind(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    before = described(world, group_id)
    with world.kafka.membership.hold(group_id):
        assert described(world, group_id).state is GroupState.PREPARING_REBALANCE
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the rebalance is over")
    after = described(world, group_id)
    assert [m.assignment for m in after.members] == [m.assignment for m in before.members]


def test_a_hold_keeps_the_join_until_it_is_released(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.hold(group_id) as hold:
        limit = world.clock.monotonic() + 3  # six heartbeats: everybody is waiting to go on
        while world.clock.monotonic() < limit:
            assert described(world, group_id).state is GroupState.PREPARING_REBALANCE
            hold.keep()
            world.clock.sleep(0.1)
        assert hold.blink()
        until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on")
        assert hold.blink()
        hold.release()
    assert not hold.lapsed
    assert described(world, group_id).state is GroupState.STABLE


def test_a_hold_that_blinks_too_early_goes_on(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.hold(group_id) as hold:
        assert not hold.blink()  # nobody has heard of the rebalance yet
        assert described(world, group_id).state is GroupState.PREPARING_REBALANCE
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on")


def test_a_hold_that_is_not_kept_lapses_and_says_so(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.hold(group_id) as hold:
        until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the coordinator forgot it")
        assert hold.blink()
        assert hold.lapsed


def test_a_hold_that_was_renewed_too_late_has_lapsed_all_the_same(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.hold(group_id) as hold:
        until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the coordinator forgot it")
        hold.keep()
        assert hold.lapsed
    assert hold.lapsed


def test_offsets_committed_under_a_hold_are_where_the_owner_goes_on(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    [partition] = partitions_of(name, 1)
    world.append(partition, [AT] * 20)
    world.consumer(group_id, [name])
    with world.kafka.membership.hold(group_id) as hold:
        with writer(world, group_id).transaction() as transaction:
            transaction.send(group_id, {partition: 7})
            transaction.commit()
        wait_visible(world, group_id, [partition])
        until(world, hold.blink, "everybody has rejoined")
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on")
    assert world.kafka.committed(group_id) == {partition: 7}


def test_a_rebalance_hides_an_assignor_that_has_to_be_told_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assignor that is none of those offered to every group stands for one of the application's own."""
    monkeypatch.setattr(membership, "_ASSIGNORS", ("roundrobin",))
    monkeypatch.setattr(fake_kafka, "OFFERED", ("roundrobin",))
    name, group_id = world.create_topic(1), new_group()
    world.consumer(group_id, [name], assignor="range")
    with world.kafka.membership.hold(group_id):
        assert described(world, group_id).assignor == ""
        with pytest.raises(Refused), world.kafka.membership.hold(group_id):
            pytest.fail("held")
        with world.kafka.membership.hold(group_id, assignor="range") as second:
            assert not second.lapsed
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on")


def test_only_a_live_classic_group_can_be_held(world: World) -> None:
    name, vacant, modern = world.create_topic(1), new_group(), new_group()
    commit_plainly(world, vacant, {TopicPartition(name, 0): 1})
    world.consumer(modern, [name], protocol=GroupType.CONSUMER)
    for group_id in (new_group(), vacant, modern):
        with pytest.raises(GroupNotLive), world.kafka.membership.hold(group_id):
            pytest.fail("held")
    assert described(world, modern).state is GroupState.STABLE


def test_what_members_of_a_cooperative_group_had_as_they_joined(world: World) -> None:
    name, eager, cooperative = world.create_topic(2), new_group(), new_group()
    world.consumer(eager, [name])
    world.consumer(cooperative, [name], assignor="cooperative-sticky")
    [member] = described(world, cooperative).members
    assert world.kafka.membership.owned_when_joining(cooperative) == {member.member_id: frozenset()}

    def is_over(group_id: str) -> bool:
        return described(world, group_id).state is GroupState.STABLE

    for group_id in (eager, cooperative):
        with world.kafka.membership.hold(group_id):
            pass
        until(world, partial(is_over, group_id), "the rebalance is over")

    assert world.kafka.membership.owned_when_joining(cooperative) == {member.member_id: member.assignment}
    [dated] = world.kafka.membership.owned_when_joining(cooperative, dated=True).values()
    assert dated <= member.assignment
    assert not any(world.kafka.membership.owned_when_joining(eager).values())
    assert world.kafka.membership.owned_when_joining(new_group()) == {}


def test_subscription_versions_of_a_classic_group(world: World) -> None:
    name, group_id = world.create_topic(1), new_group()
    world.consumer(group_id, [name])
    versions = world.kafka.membership.subscription_versions(group_id)
    assert list(versions) == [m.member_id for m in described(world, group_id).members]
    assert all(v >= 1 for v in versions.values())  # librdkafka speaks KIP-429
    assert world.kafka.membership.subscription_versions(new_group()) == {}


def become_leader(world: World, group_id: str, guest: Guest) -> Generation:
    """While it waits in the join, all others are made to leave; back they come as followers."""
    before = described(world, group_id)
    with world.kafka.membership.hold(group_id, rebalance=False) as hold:
        guest.join()
        assert guest.joined() is None
        world.clock.sleep(2 * HEARTBEAT_S)  # everybody waits in the join
        left = world.kafka.membership.leave(group_id, before.members)
        assert left == {m.member_id for m in before.members}

        def all_are_back() -> bool:
            hold.keep()
            return len(described(world, group_id).members) == len(before.members) + 1

        until(world, all_are_back, "everybody is back")
    return joined(world, guest)


def joined(world: World, guest: Guest) -> Generation:
    found: list[Generation] = []

    def is_over() -> bool:
        found.extend(g for g in [guest.joined()] if g is not None)
        return bool(found)

    until(world, is_over, "the join is over")
    assert found[0].leader_id == guest.member_id
    return found[0]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_guest_leads_a_generation_in_which_a_partition_is_nobodys(world: World, assignor: str) -> None:
    name, group_id = world.create_topic(2), new_group()
    first, second = partitions_of(name, 2)
    world.append(first, [AT] * 20)
    world.consumer(group_id, [name], assignor=assignor)
    with world.kafka.membership.guest(group_id) as guest:
        generation = become_leader(world, group_id, guest)
        [(member_id, said)] = generation.subscriptions.items()
        assert said.topics == {name}
        assert said.version >= 1

        assert guest.assign(generation, {member_id: frozenset({second})})

        until(world, lambda: described(world, group_id).owner(second) is not None, "the other one has an owner")
        group = described(world, group_id)
        assert group.owner(first) is None
        assert world.kafka.membership.guests(group_id) == {guest.member_id}
        assert guest.member_id in {m.member_id for m in group.members}

        guest.join()
        following = joined(world, guest)
        assert following.number > generation.number
        assert following.subscriptions.keys() == {member_id}
        assert first not in following.subscriptions[member_id].owned
        with writer(world, group_id).transaction() as transaction:
            transaction.send(group_id, {first: 7})
            transaction.commit()
        wait_visible(world, group_id, [first])
        guest.keep()
        assert guest.assign(following, {member_id: frozenset({first, second})})
        until(world, lambda: described(world, group_id).owner(first) is not None, "it has an owner again")
        assert not guest.rebalances()
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on without the guest")
    assert [m.assignment for m in described(world, group_id).members] == [frozenset({first, second})]
    assert world.kafka.committed(group_id) == {first: 7}


def test_what_a_guest_assigns_does_not_count_once_a_member_joins_anew(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.guest(group_id) as guest:
        generation = become_leader(world, group_id, guest)
        [member] = [m for m in described(world, group_id).members if m.member_id != guest.member_id]
        world.kafka.membership.leave(group_id, [member])

        assert not guest.assign(generation, {member.member_id: frozenset()})
        assert guest.rebalances()
        guest.join()
        assert joined(world, guest).subscriptions.keys() != {member.member_id}


def test_a_guest_that_was_made_to_leave_says_so(world: World) -> None:
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.guest(group_id) as guest:
        generation = become_leader(world, group_id, guest)
        group = described(world, group_id)
        world.kafka.membership.leave(group_id, [m for m in group.members if m.member_id == guest.member_id])
        with pytest.raises(Unavailable):
            guest.assign(generation, {})
        with pytest.raises(Unavailable):
            guest.rebalances()
    until(world, lambda: described(world, group_id).state is GroupState.STABLE, "the group goes on")


def test_a_group_goes_on_without_a_guest_that_is_heard_of_no_more(world: World) -> None:
    """As if its process had been killed, after its partition was given to nobody."""
    name, group_id = world.create_topic(2), new_group()
    world.consumer(group_id, [name])
    with world.kafka.membership.guest(group_id) as guest:
        generation = become_leader(world, group_id, guest)
        assert guest.assign(generation, {})

        def goes_on() -> bool:
            owned = [m.assignment for m in described(world, group_id).members]
            return owned == [frozenset(partitions_of(name, 2))]

        until(world, goes_on, "the group goes on without the guest")
        with pytest.raises(Unavailable):
            guest.rebalances()
        guest.leave()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_who_knows_a_seat_goes_on_as_the_same_leader_without_a_rebalance(world: World, assignor: str) -> None:
    name, group_id = world.create_topic(2), new_group()
    first, second = partitions_of(name, 2)
    world.consumer(group_id, [name], assignor=assignor)
    membership = world.kafka.membership
    with membership.seat(group_id, SEATED_S) as guest:
        assert guest.seat.generation < 0
        generation = become_leader(world, group_id, guest)
        [member_id] = generation.subscriptions
        assert guest.assign(generation, {member_id: frozenset({second})})
        until(world, lambda: described(world, group_id).owner(second) is not None, "the other one has an owner")
        assert guest.seat == Seat(guest.member_id, generation.number, assignor)
        left = guest.seat
    if assignor == "range":  # a cooperative member rejoins once more, when it has given the first one up
        with membership.seat(group_id, SEATED_S, left) as successor:
            assert not successor.rebalances()
            present = successor.present()
            assert present is not None
            assert present.number == generation.number
            assert {m: said.topics for m, said in present.subscriptions.items()} == {member_id: {name}}
            assert described(world, group_id).owner(first) is None
    with membership.seat(group_id, SEATED_S, left) as late:
        group = described(world, group_id)
        membership.leave(group_id, [m for m in group.members if m.member_id == late.member_id])
        with pytest.raises(MemberForgotten):
            late.rebalances()
    until(world, lambda: described(world, group_id).owner(first) is not None, "the group goes on without it")


def test_only_a_live_classic_group_takes_guests(world: World) -> None:
    name, vacant, modern = world.create_topic(1), new_group(), new_group()
    commit_plainly(world, vacant, {TopicPartition(name, 0): 1})
    world.consumer(modern, [name], protocol=GroupType.CONSUMER)
    for group_id in (new_group(), vacant, modern):
        with pytest.raises(GroupNotLive), world.kafka.membership.guest(group_id):
            pytest.fail("a guest")
        assert world.kafka.membership.guests(group_id) == frozenset()


def test_every_failure_is_a_kafka_failure() -> None:
    """What callers catch."""
    assert all(issubclass(e, KafkaFailure) for e in (Fenced, GroupNotEmpty, Refused, UnknownPartitions))
