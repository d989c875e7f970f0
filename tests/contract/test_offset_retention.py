"""What ``tidegate.kafka.offset_retention`` promises, held against Kafka in memory and against a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

import pytest

from contract.kafka_worlds import FakeWorld, RealWorld, World, new_group, until
from support.fake_offset_retention import FakeOffsetRetention
from tidegate.kafka.errors import GroupNotEmpty, OutcomeUnknown, Unavailable
from tidegate.kafka.model import GroupType, Offsets, TopicPartition
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit, OffsetRetention
from tidegate.kafka_client.offset_retention import KafkaOffsetRetention

HOUR_MS = 3_600_000
SKEW_MS = 5_000


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = FakeWorld() if request.param == "fake" else RealWorld(request.getfixturevalue("kafka").bootstrap)
    yield made
    made.close()


def commit(world: World, group_id: str, offsets: Offsets) -> None:
    writer = world.kafka.writer(group_id, transaction_timeout_s=20)
    world.kafka.committed(group_id)  # waits for the coordinator: on a new broker the first request makes its topic

    def done() -> bool:
        try:
            writer.alter(group_id, offsets)
        except (Unavailable, OutcomeUnknown):
            return False  # done again, it is the same
        return True

    until(world, done, f"offsets of group {group_id} are committed")


def keep(retention: OffsetRetention, group_id: str, *partitions: TopicPartition) -> frozenset[TopicPartition]:
    found = retention.commits(group_id).offsets
    wanted = {p: found[p] for p in partitions}
    return retention.commit(group_id, wanted, found, retention_ms=HOUR_MS)


def whole_log(world: World, group_id: str, since: GroupLog | None = None) -> GroupLog:
    logs = [since or GroupLog()]

    def complete() -> bool:
        logs.append(world.kafka.retention.log(group_id, logs[-1]))
        return logs[-1].complete

    until(world, complete, "the log was read to its end")
    return logs[-1]


def now_ms(world: World) -> int:
    return round(world.clock.now().astimezone(UTC).timestamp() * 1000)


def test_the_settings_are_those_of_the_brokers(world: World) -> None:
    settings = world.kafka.retention.settings()

    assert (settings.retention_ms, settings.check_interval_ms) == (7 * 24 * HOUR_MS, 600_000)


def test_what_is_kept_has_an_explicit_expiry_and_a_normal_commit_drops_it(world: World) -> None:
    topic, group_id = world.create_topic(3), new_group()
    [first, second, third] = (TopicPartition(topic, n) for n in range(3))
    commit(world, group_id, {first: 7, second: 0})
    before = whole_log(world, group_id)
    assert {p: (c.offset, c.explicit_ms) for p, c in before.commits.items()} == {first: (7, None), second: (0, None)}
    assert before.commits[first].committed_ms == pytest.approx(now_ms(world), abs=SKEW_MS)
    assert before.emptied_ms is None

    assert keep(world.kafka.retention, group_id, first, second) == {first, second}

    kept = whole_log(world, group_id, before)
    assert {p: c.offset for p, c in kept.commits.items()} == {first: 7, second: 0}
    assert all(c.explicit_ms == c.committed_ms + HOUR_MS for c in kept.commits.values())
    assert world.kafka.committed(group_id) == {first: 7, second: 0}
    commit(world, group_id, {first: 7, third: 3})
    after = whole_log(world, group_id, kept)
    assert {p: c.explicit_ms is None for p, c in after.commits.items()} == {first: True, second: False, third: True}
    assert whole_log(world, group_id).commits == after.commits  # read at once or bit by bit


def test_metadata_is_put_back_as_it_was(world: World) -> None:
    [partition], group_id = [TopicPartition(world.create_topic(1), 0)], new_group()
    retention = world.kafka.retention
    theirs = Commit(4, "Zürich 12:30\x00 {}")
    assert retention.commit(group_id, {partition: theirs}, {}, retention_ms=HOUR_MS) == {partition}

    assert keep(retention, group_id, partition) == {partition}

    assert retention.commits(group_id).offsets == {partition: theirs}


def test_an_unknown_group_has_no_commits_and_nothing_in_the_log(world: World) -> None:
    group_id = new_group()

    assert world.kafka.retention.commits(group_id).offsets == {}
    assert world.kafka.retention.commits_of([group_id])[group_id].offsets == {}
    assert whole_log(world, group_id).commits == {}


def test_an_offset_that_was_moved_meanwhile_is_left_alone(world: World) -> None:
    topic, group_id = world.create_topic(3), new_group()
    [moved, still, new] = (TopicPartition(topic, n) for n in range(3))
    commit(world, group_id, {moved: 1, still: 2})
    found = world.kafka.retention.commits(group_id).offsets
    commit(world, group_id, {moved: 10, new: 30})

    wanted = {**found, new: Commit(3)}
    done = world.kafka.retention.commit(group_id, wanted, found, retention_ms=HOUR_MS)

    assert done == {still}
    assert world.kafka.committed(group_id) == {moved: 10, still: 2, new: 30}


def test_an_offset_that_is_deleted_in_that_moment_stays_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, group_id = world.create_topic(2), new_group()
    deleted, still = (TopicPartition(topic, n) for n in range(2))
    commit(world, group_id, {deleted: 1, still: 2})

    def delete(*_: object) -> None:
        world.kafka.writer(group_id, transaction_timeout_s=20).delete(group_id, [deleted])

    retention = world.kafka.retention
    if isinstance(retention, KafkaOffsetRetention):
        monkeypatch.setattr(retention, "_refuse", delete)  # asked after the look, before the commit
    elif isinstance(retention, FakeOffsetRetention):
        retention.between.append(delete)

    assert keep(retention, group_id, deleted, still) == {still}

    assert world.kafka.committed(group_id) == {still: 2}


def test_a_partition_that_is_gone_is_left_out(world: World) -> None:
    [there, gone] = (TopicPartition(world.create_topic(1), n) for n in range(2))
    group_id = new_group()
    wanted = {there: Commit(1), gone: Commit(2)}

    assert world.kafka.retention.commit(group_id, wanted, {}, retention_ms=HOUR_MS) == {there}


def test_nothing_is_kept_where_a_transaction_is_open(world: World) -> None:
    topic, group_id = world.create_topic(2), new_group()
    [pending, still] = (TopicPartition(topic, n) for n in range(2))
    commit(world, group_id, {pending: 1, still: 2})
    with world.kafka.writer(group_id, transaction_timeout_s=20).transaction() as transaction:
        transaction.send(group_id, {pending: 11})
        commits = world.kafka.retention.commits(group_id)
        assert commits.pending == {pending}
        assert world.kafka.retention.commits_of([group_id, new_group()])[group_id] == commits
        assert commits.offsets == {still: Commit(2)}
        wanted = {pending: Commit(1), still: Commit(2)}

        assert world.kafka.retention.commit(group_id, wanted, wanted, retention_ms=HOUR_MS) == {still}
        # An open transaction hides nothing that is not its own.
        kept = whole_log(world, group_id).commit(still)
        assert kept is not None
        assert kept.explicit_ms == kept.committed_ms + HOUR_MS

        transaction.commit()
    until(world, lambda: not world.kafka.pending(group_id, [pending]), "the transaction is over")
    assert world.kafka.committed(group_id) == {pending: 11, still: 2}


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_a_group_with_members_is_refused_and_one_whose_members_left_is_not(world: World, protocol: GroupType) -> None:
    topic, group_id = world.create_topic(1), new_group()
    partition = TopicPartition(topic, 0)
    consumer = world.consumer(group_id, [topic], protocol=protocol)
    consumer.commit({partition: 5})
    retention = world.kafka.retention

    with pytest.raises(GroupNotEmpty):
        keep(retention, group_id, partition)

    assert world.kafka.committed(group_id) == {partition: 5}
    assert whole_log(world, group_id).emptied_ms is None
    left_at = now_ms(world)
    consumer.close()
    until(world, lambda: world.kafka.groups([group_id])[group_id].is_vacant, "the group is empty")
    emptied_ms = whole_log(world, group_id).emptied_ms
    if protocol is GroupType.CLASSIC:
        assert emptied_ms == pytest.approx(left_at, abs=SKEW_MS)
    else:
        assert emptied_ms is None
    assert keep(retention, group_id, partition) == {partition}
    assert whole_log(world, group_id).emptied_ms == emptied_ms
    assert retention.commits(group_id).offsets[partition].offset == 5
