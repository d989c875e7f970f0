"""Commits of records that were handed out before a rebalance: they do not undo a reset that came in between."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from agent.unit.simulated import P0, Consumer
from tidegate_agent.effects import Committed, Effect, Position
from tidegate_agent.partition_state import Stage
from tidegate_agent.records import Hold, HoldKey


def owner(*, read: int = 10, committed: int | None = None) -> Consumer:
    """An owner of orders-0 that was handed ``read`` records and has committed some."""
    consumer = Consumer()
    consumer.assign(P0)
    consumer.client.deliver(P0, read)
    if committed is not None:
        assert consumer.commit(P0, committed)
    return consumer


def lose(consumer: Consumer) -> None:
    """A rebalance takes orders-0 away; the client tells what it had handed out of it."""
    consumer.core.revoked([P0], {P0: consumer.client.position[P0]})


def regain(consumer: Consumer, ticket: int = 2) -> None:
    consumer.assign(P0, ticket=ticket)
    consumer.run(1)


def reset_elsewhere(consumer: Consumer, offset: int, *, is_seen: bool = True) -> None:
    """Another member owns it while it is closed, reset, and opened again; it may be read only when that is over."""
    key = HoldKey("g", *P0, "h")
    if is_seen:
        consumer.hold(P0)
    else:
        consumer.taken += 1
        consumer.table.take(key, Hold(), consumer.taken)
    consumer.client.committed[P0] = offset
    consumer.release(P0)


def holds_the_target(consumer: Consumer, target: int, late: int = 10) -> None:
    """The record in hand from before is not committed, what is delivered from the target on is."""
    assert consumer.core.stage(P0) is Stage.OPEN
    assert not consumer.commit(P0, late)
    assert consumer.client.committed[P0] == target
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, target)
    assert not consumer.commit(P0, late)
    assert consumer.commit(P0, target + 1)


@pytest.mark.parametrize("target", [2, 500])
def test_what_was_in_hand_when_a_closed_partition_was_taken_away_is_not_committed_after_its_reset(target: int) -> None:
    consumer = owner()
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    lose(consumer)
    consumer.client.committed[P0] = target
    consumer.release(P0)
    regain(consumer)
    holds_the_target(consumer, target)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("target", [2, 500])
def test_nor_when_it_was_taken_away_while_it_was_open_and_closed_and_reset_at_another_members(
    target: int, is_seen: bool
) -> None:
    consumer = owner()
    lose(consumer)
    reset_elsewhere(consumer, target, is_seen=is_seen)
    assert not consumer.commit(P0, 10), "it is another member's now, and was reset"
    regain(consumer)
    holds_the_target(consumer, target)


@pytest.mark.parametrize("target", [2, 500])
def test_nor_when_it_was_taken_away_while_it_drained_and_came_back_closed(target: int) -> None:
    consumer = owner()
    consumer.hold(P0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.DRAINING
    lose(consumer)
    regain(consumer)
    assert consumer.core.stage(P0) is Stage.CLOSED
    consumer.client.committed[P0] = target
    consumer.release(P0)
    consumer.run(1)
    holds_the_target(consumer, target)


def test_nor_when_the_partition_goes_and_comes_after_it_was_reset_and_opened() -> None:
    consumer = owner()
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    consumer.client.committed[P0] = 2
    consumer.release(P0)
    consumer.run(1)
    consumer.client.deliver(P0, 2)
    lose(consumer)
    regain(consumer)
    holds_the_target(consumer, 2)


def test_nor_when_the_partition_goes_and_comes_twice() -> None:
    consumer = owner()
    lose(consumer)
    reset_elsewhere(consumer, 2)
    regain(consumer)
    lose(consumer)
    regain(consumer, 3)
    holds_the_target(consumer, 2)


def test_nor_when_the_reset_is_read_only_after_the_partition_is_back() -> None:
    consumer = owner()
    lose(consumer)
    consumer.assign(P0, ticket=2, answered=False)
    lose(consumer)
    reset_elsewhere(consumer, 2)
    consumer.assign(P0, ticket=3, answered=False)
    lose(consumer)
    regain(consumer, 4)
    holds_the_target(consumer, 2)


def test_once_the_partition_has_come_by_every_commit_passes() -> None:
    consumer = owner()
    lose(consumer)
    reset_elsewhere(consumer, 2)
    regain(consumer)
    consumer.client.deliver(P0, 8)
    assert consumer.commit(P0, 10)
    assert consumer.commit(P0, 3), "an application may commit an earlier offset"


def test_without_a_pause_a_rebalance_changes_nothing_about_commits() -> None:
    consumer = owner(committed=4)
    lose(consumer)
    assert consumer.commit(P0, 5), "a member may commit for partitions that are not its own"
    consumer.effects.clear()
    regain(consumer)
    assert not [effect for effect in consumer.effects if isinstance(effect, Committed)], "it costs nothing"
    assert consumer.commit(P0, 10)


def test_a_pause_without_a_reset_holds_no_commit_back_where_all_was_committed(caplog: pytest.LogCaptureFixture) -> None:
    consumer = owner(committed=10)
    consumer.hold(P0)
    consumer.run(1)
    lose(consumer)
    consumer.release(P0)
    with caplog.at_level(logging.WARNING):
        regain(consumer)
        assert consumer.commit(P0, 10)
    assert not caplog.records


def test_an_application_that_seeks_where_it_wants_keeps_committing_as_it_wants() -> None:
    consumer = owner()
    lose(consumer)
    reset_elsewhere(consumer, 2)
    consumer.assign(P0, ticket=2, answered=False)
    consumer.core.app_sought(P0)
    consumer.answer(2)
    consumer.run(1)
    assert consumer.commit(P0, 10)


def test_an_ack_for_a_newer_hold_tells_where_a_reset_has_moved_the_group_meanwhile() -> None:
    consumer = owner(committed=10)
    consumer.hold(P0)
    consumer.run(1)
    consumer.client.committed[P0] = 3
    epoch = consumer.hold(P0, "another")
    consumer.run()
    assert consumer.last_ack() == (epoch, 3)


def test_a_group_without_an_offset_that_was_reset_between_two_holds_goes_on_at_the_target_although_it_sought() -> None:
    consumer = owner(read=0)
    consumer.hold(P0)
    consumer.run(1)
    consumer.core.app_sought(P0)
    consumer.client.committed[P0] = 3
    consumer.hold(P0, "another")
    consumer.run()
    for holder in ("h", "another"):
        consumer.release(P0, holder)
    consumer.run(1)
    consumer.client.deliver(P0)
    assert consumer.client.delivered == [(P0, 3)]


def test_an_ack_for_a_newer_hold_does_not_wait_long_for_an_open_transaction() -> None:
    consumer = owner(committed=10)
    consumer.hold(P0)
    consumer.run(1)
    consumer.unstable = {P0}
    epoch = consumer.hold(P0, "another")
    consumer.run(2.5)
    assert consumer.last_ack() == (epoch, 10)


def test_of_records_in_hand_from_several_times_the_furthest_counts_when_it_is_taken_away() -> None:
    """Those of the second time lie beyond those of the first, and none of them was committed."""
    consumer = owner(read=5)
    lose(consumer)
    reset_elsewhere(consumer, 2)
    regain(consumer)
    consumer.client.deliver(P0, 18)
    lose(consumer)
    reset_elsewhere(consumer, 1)
    regain(consumer, 3)
    holds_the_target(consumer, 1, late=20)


@pytest.mark.parametrize(("before", "since"), [(10, 2), (4, 18)])
def test_and_when_it_is_closed_without_waiting_for_them(before: int, since: int) -> None:
    """Some are in hand from before a rebalance, some were handed out after it."""
    consumer = owner(read=before)
    lose(consumer)
    reset_elsewhere(consumer, 2)
    regain(consumer)
    consumer.client.deliver(P0, since)
    consumer.hold(P0, drain_s=0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.CLOSED
    consumer.client.committed[P0] = 1
    consumer.release(P0)
    consumer.run(1)
    holds_the_target(consumer, 1, late=max(before, 2 + since))


class Moving(Consumer):
    """Something happens whenever the client is asked for positions."""

    def __init__(self, happens: Callable[[Moving, int], None]) -> None:
        super().__init__()
        self._happens = happens
        self.asked = 0

    def perform(self, effect: Effect) -> None:
        super().perform(effect)
        if isinstance(effect, Position):
            self.asked += 1
            assert self.asked < 100, "it goes on looking"
            self._happens(self, self.asked)


def _deliver_after_the_first_look(consumer: Moving, asked: int) -> None:
    if asked == 1:
        consumer.client.paused.discard(P0)
        consumer.client.deliver(P0)
        consumer.client.paused.add(P0)


def test_a_record_that_shows_only_after_the_drain_time_out_is_in_hand_as_well() -> None:
    consumer = Moving(_deliver_after_the_first_look)
    consumer.assign(P0)
    consumer.client.deliver(P0, 9)
    consumer.hold(P0, drain_s=0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.CLOSED
    consumer.client.committed[P0] = 2
    consumer.release(P0)
    consumer.run(1)
    holds_the_target(consumer, 2, late=10)


def _seek_elsewhere(consumer: Moving, asked: int) -> None:
    consumer.client.position[P0] = 10 + asked


def test_after_the_drain_time_out_a_position_that_never_rests_is_not_waited_for() -> None:
    consumer = Moving(_seek_elsewhere)
    consumer.assign(P0)
    consumer.client.deliver(P0, 9)
    epoch = consumer.hold(P0, drain_s=0)
    consumer.run(1)
    ack = consumer.last_ack()
    assert ack is not None
    assert ack[0] == epoch
