"""What a control topic's partition records add up to."""

from __future__ import annotations

from tidegate_agent.ages import INITIAL, NEVER, PartitionTable
from tidegate_agent.records import PartitionKey, PartitionSeen


def key(partition: int, topic_id: str = "a", topic: str = "orders") -> PartitionKey:
    return PartitionKey(topic, topic_id, partition)


def test_what_was_there_at_first_is_told_by_the_highest_of_it() -> None:
    table = PartitionTable()
    table.take(key(2), PartitionSeen(initial=True))
    table.take(key(4), PartitionSeen(7_000))
    table.take(key(1), PartitionSeen(6_000))
    [orders] = table.view()["orders"]
    assert [orders.seen(number) for number in range(6)] == [INITIAL, 6_000, INITIAL, NEVER, 7_000, NEVER]

    table.take(key(2), None)
    [orders] = table.view()["orders"]
    assert [orders.seen(number) for number in range(6)] == [NEVER, 6_000, NEVER, NEVER, 7_000, NEVER]


def test_the_newest_record_of_a_partition_counts_and_gaps_say_nothing() -> None:
    table = PartitionTable()
    table.take(key(0), PartitionSeen(initial=True))
    table.take(key(3), PartitionSeen(5_000))
    table.take(key(3), PartitionSeen(7_000))
    [orders] = table.view()["orders"]
    assert [orders.seen(number) for number in range(5)] == [INITIAL, NEVER, NEVER, 7_000, NEVER]
    assert (orders.topic_id, orders.newest) == ("a", 3)


def test_a_topic_made_anew_is_another_one() -> None:
    table = PartitionTable()
    table.take(key(0), PartitionSeen(5_000))
    table.take(key(0, "b"), PartitionSeen(9_000))
    table.take(key(0), None)
    [orders] = table.view()["orders"]
    assert (orders.topic_id, orders.newest, orders.seen(0)) == ("b", 2, 9_000)


def test_what_is_taken_back_is_forgotten_with_the_last_of_it() -> None:
    table = PartitionTable()
    table.take(key(0), PartitionSeen(5_000))
    table.take(key(1), PartitionSeen(6_000))
    table.take(key(1), None)
    table.take(key(7), None)
    [orders] = table.view()["orders"]
    assert list(orders.seen_ms) == [5_000]
    table.take(key(0), None)
    assert not table.view()


def test_a_view_stays_as_it_was_and_is_the_same_one_until_something_changes() -> None:
    table = PartitionTable()
    table.take(key(0), PartitionSeen(5_000))
    table.take(key(0, topic="refunds"), PartitionSeen(6_000))
    before = table.view()
    assert table.view() is before
    table.take(key(0), PartitionSeen(8_000))
    after = table.view()
    assert before["orders"][0].seen(0) == 5_000
    assert after["orders"][0].seen(0) == 8_000
    assert after["refunds"] is before["refunds"]
