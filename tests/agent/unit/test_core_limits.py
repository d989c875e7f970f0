"""A partition with a limit delivers what is before it, closes exactly there, and says so."""

from __future__ import annotations

from agent.unit.simulated import P0, P1, Client, Consumer
from tidegate_agent.effects import Seek
from tidegate_agent.gates import GateTable, Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.records import Limit, LimitKey


def owner(*, committed: int = 0, auto_commit: bool = False) -> Consumer:
    """An owner of orders-0 that goes on at an offset."""
    consumer = Consumer(auto_commit=auto_commit, client=Client(committed={P0: committed}))
    consumer.assign(P0)
    return consumer


def delivered(consumer: Consumer) -> list[int]:
    return [offset for partition, offset in consumer.client.delivered if partition == P0]


def test_it_closes_at_the_limit_in_the_middle_of_a_batch_and_acks_once_that_is_committed() -> None:
    consumer = owner()
    epoch = consumer.limit(P0, 3)
    consumer.poll(P0, range(10))
    consumer.run(5)
    assert delivered(consumer) == [0, 1, 2]
    assert consumer.core.stage(P0) is Stage.DRAINING
    assert consumer.commit(P0, 3)
    consumer.run(1)
    assert consumer.last_ack() == (epoch, 3)
    assert consumer.client.paused == {P0}
    assert not consumer.commit(P0, 4)


def test_it_closes_after_the_last_record_below_the_limit_although_none_follows() -> None:
    consumer = owner()
    epoch = consumer.limit(P0, 2)
    consumer.poll(P0, [0, 1])
    consumer.commit(P0, 2)
    consumer.run(1)
    assert consumer.last_ack() == (epoch, 2)


def test_a_gap_before_the_limit_is_told_by_the_record_after_it() -> None:
    """Compaction and transactions' markers leave gaps: what comes next is at 9."""
    consumer = owner()
    epoch = consumer.limit(P0, 5)
    consumer.poll(P0, [0, 2, 9])
    consumer.commit(P0, 3)
    consumer.run(1)
    assert delivered(consumer) == [0, 2]
    assert consumer.last_ack() == (epoch, 9)


def test_below_its_limit_it_is_open_and_its_acks_say_so() -> None:
    consumer = owner(committed=4)
    consumer.limit(P0, 100)
    consumer.poll(P0, [4, 5])
    consumer.run(60)
    assert consumer.core.stage(P0) is Stage.OPEN
    assert all(offset < 100 for _, _, offset in consumer.acks)


def test_a_limit_that_lies_behind_closes_where_it_is() -> None:
    consumer = owner()
    consumer.poll(P0, range(8))
    consumer.commit(P0, 8)
    epoch = consumer.limit(P0, 3)
    consumer.run(1)
    assert consumer.last_ack() == (epoch, 8)


def test_an_owner_that_gets_a_partition_at_its_limit_delivers_nothing() -> None:
    consumer = Consumer(client=Client(committed={P0: 3, P1: 2}))
    epoch = consumer.limit(P0, 3)
    consumer.limit(P1, 3)
    consumer.assign(P0, P1)
    consumer.run(1)
    assert consumer.client.paused == {P0}
    assert consumer.last_ack() == (epoch, 3)
    assert consumer.core.stage(P1) is Stage.OPEN
    consumer.poll(P1, [2, 3])
    assert consumer.client.delivered == [(P1, 2)]


def test_the_drain_time_out_of_the_limit_ends_the_wait_for_commits() -> None:
    consumer = owner()
    epoch = consumer.limit(P0, 3, drain_s=2)
    consumer.poll(P0, range(4))
    consumer.run(1.9)
    assert consumer.core.stage(P0) is Stage.DRAINING
    consumer.run(0.5)
    assert consumer.last_ack() == (epoch, 3), "where it closed, whatever is committed"


def test_a_limit_that_is_removed_lets_it_go_on() -> None:
    consumer = owner()
    consumer.limit(P0, 3)
    consumer.poll(P0, range(4))
    consumer.commit(P0, 3)
    consumer.run(1)
    consumer.unlimit(P0)
    consumer.run(1)
    consumer.poll(P0, [3, 4])
    assert delivered(consumer) == [0, 1, 2, 3, 4]
    assert consumer.last_ack() == (consumer.taken, 3)


def test_a_limit_that_is_moved_on_lets_it_go_on_to_there() -> None:
    consumer = owner()
    consumer.limit(P0, 2)
    consumer.poll(P0, range(4))
    consumer.commit(P0, 2)
    consumer.run(1)
    epoch = consumer.limit(P0, 4)
    consumer.run(1)
    consumer.poll(P0, range(2, 9))
    consumer.commit(P0, 4)
    consumer.run(1)
    assert delivered(consumer) == [0, 1, 2, 3]
    assert consumer.last_ack() == (epoch, 4)


def test_a_hold_has_precedence_and_a_reset_meanwhile_is_delivered_up_to_the_limit() -> None:
    consumer = owner()
    limit = consumer.limit(P0, 3)
    consumer.poll(P0, range(4))
    consumer.commit(P0, 3)
    consumer.run(1)
    assert consumer.last_ack() == (limit, 3)
    hold = consumer.hold(P0)
    consumer.run(1)
    assert consumer.last_ack() == (hold, 3)
    consumer.client.committed[P0] = 1  # the group is reset
    consumer.release(P0)
    consumer.run(1)
    consumer.poll(P0, range(1, 9))
    assert delivered(consumer) == [0, 1, 2, 1, 2]
    consumer.commit(P0, 3)
    consumer.run(1)
    assert consumer.last_ack() == (limit, 3)


def test_a_hold_that_came_and_went_at_once_is_not_overlooked() -> None:
    consumer = owner()
    consumer.limit(P0, 3)
    consumer.poll(P0, range(4))
    consumer.commit(P0, 3)
    consumer.run(1)
    consumer.hold(P0)
    consumer.client.committed[P0] = 0
    consumer.release(P0)
    consumer.run(1)
    assert {P0: 0} in [effect.offsets for effect in consumer.effects if isinstance(effect, Seek)]
    assert consumer.core.stage(P0) is Stage.OPEN


def test_a_hold_during_delivery_below_the_limit_is_as_without_one() -> None:
    consumer = owner()
    consumer.limit(P0, 9)
    consumer.poll(P0, [0, 1])
    hold = consumer.hold(P0)
    consumer.commit(P0, 2)
    consumer.run(1)
    assert consumer.last_ack() == (hold, 2)
    consumer.release(P0)
    consumer.run(1)
    consumer.poll(P0, [2, 3])
    assert delivered(consumer) == [0, 1, 2, 3]


def test_of_several_limits_the_lowest_applies_and_the_newest_is_acked() -> None:
    table, where = GateTable(), ("g", Partition("t", 0))
    table.take(LimitKey("g", "t", 0, "a"), Limit(9, "rehearsal", 5_000), 3)
    table.take(LimitKey("g", "t", 0, "b"), Limit(12, "another", 90_000), 8)
    limit = table.limits()[where]
    assert (limit.epoch, limit.offset, limit.drain_timeout_s, limit.reasons) == (8, 9, 5.0, ("rehearsal", "another"))
    table.take(LimitKey("g", "t", 0, "a"), None, 9)
    assert table.limits()[where].offset == 12
    table.take(LimitKey("g", "t", 0, "b"), None, 10)
    assert not table.limits()


def test_an_application_that_moves_its_position_below_the_limit_reads_up_to_it_again() -> None:
    consumer = owner()
    consumer.limit(P0, 3)
    consumer.poll(P0, [0, 1])
    consumer.client.seek(P0, 0)
    consumer.core.app_sought(P0)
    consumer.poll(P0, range(9))
    assert delivered(consumer) == [0, 1, 0, 1, 2]


def test_a_consumer_that_commits_by_itself_has_committed_up_to_the_limit_and_no_further() -> None:
    consumer = owner(auto_commit=True)
    epoch = consumer.limit(P0, 3)
    consumer.poll(P0, range(9))
    consumer.run(1)
    assert consumer.client.committed == {P0: 3}
    assert consumer.last_ack() == (epoch, 3)
