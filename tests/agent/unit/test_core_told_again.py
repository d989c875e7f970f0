"""A client that drops a pause or a resume without a word, as librdkafka may (its issue 5591)."""

from __future__ import annotations

import pytest

from agent.unit.simulated import P0, P1, Client, Consumer
from tidegate_agent.effects import Pause, Resume
from tidegate_agent.lifecycle import TELL_AGAIN_S
from tidegate_agent.partition_state import Stage


def test_a_partition_that_was_not_paused_when_it_was_assigned_is_told_again() -> None:
    """Its gate is closed, and nobody would ever tell the client once more."""
    consumer = Consumer(client=Client(committed={P0: 5}, drops=1), may_drop=True)
    consumer.hold(P0)
    consumer.assign(P0)
    assert not consumer.client.paused

    consumer.run(TELL_AGAIN_S)

    assert consumer.client.paused == {P0}
    assert consumer.core.stage(P0) is Stage.CLOSED


def test_a_partition_whose_gate_closes_is_paused_though_the_client_did_not_listen() -> None:
    consumer = Consumer(may_drop=True)
    consumer.assign(P0, P1)
    consumer.run(2 * TELL_AGAIN_S)
    consumer.client.drops = 1
    consumer.hold(P0)
    consumer.run(0.5)
    assert not consumer.client.paused

    consumer.run(TELL_AGAIN_S)

    assert consumer.client.paused == {P0}


def test_a_partition_that_was_not_resumed_is_told_again() -> None:
    consumer = Consumer(may_drop=True)
    consumer.assign(P0, answered=False)
    consumer.client.drops = 1
    consumer.answer()
    consumer.run()
    assert (consumer.core.stage(P0), consumer.client.paused) == (Stage.OPEN, {P0})

    consumer.run(TELL_AGAIN_S)

    assert not consumer.client.paused


def test_it_is_told_what_counts_by_then() -> None:
    """Closed and opened within a moment: the newest word is said again, and an older one never."""
    consumer = Consumer(may_drop=True)
    consumer.assign(P0)
    consumer.hold(P0)
    consumer.run(TELL_AGAIN_S / 2)
    consumer.release(P0)
    consumer.effects.clear()

    consumer.run(10)

    assert [type(effect) for effect in consumer.effects if isinstance(effect, (Pause, Resume))] == [Resume, Resume]


def test_what_the_application_paused_itself_is_left_to_it() -> None:
    consumer = Consumer(may_drop=True)
    consumer.assign(P0)
    consumer.client.pause([P0])
    consumer.core.app_paused([P0])

    consumer.run(10)

    assert consumer.client.paused == {P0}


def test_it_is_told_twice_and_not_for_ever_and_where_nothing_can_be_dropped_once() -> None:
    for may_drop, times in ((True, 2), (False, 1)):
        consumer = Consumer(may_drop=may_drop)
        consumer.assign(P0)
        consumer.run(3600)
        assert sum(isinstance(effect, Resume) for effect in consumer.effects) == times


def test_what_fails_when_it_is_told_again_is_told_once_more() -> None:
    consumer = Consumer(client=Client(drops=1), may_drop=True)
    consumer.hold(P0)
    consumer.assign(P0)
    consumer.failing = {Pause}
    consumer.run(3 * TELL_AGAIN_S)
    assert not consumer.client.paused

    consumer.failing.clear()
    consumer.run(TELL_AGAIN_S)

    assert consumer.client.paused == {P0}


@pytest.mark.parametrize("may_drop", [True, False])
def test_a_partition_is_withheld_until_its_gate_is_read_and_while_it_is_closed(may_drop: bool) -> None:
    consumer = Consumer(may_drop=may_drop)
    assert not consumer.core.may_be_withheld(P0), "it is not this consumer's"
    assert not consumer.core.is_withheld(P0, 0)
    consumer.assign(P0, answered=False)
    assert consumer.core.may_be_withheld(P0)
    assert consumer.core.is_withheld(P0, 0)
    consumer.answer()
    consumer.run()
    assert not consumer.core.may_be_withheld(P0)
    consumer.client.deliver(P0, 3)
    consumer.hold(P0)
    consumer.run(1)
    assert not consumer.core.may_be_withheld(P0), "what was handed out may show only now"
    assert consumer.commit(P0, 3)
    consumer.run(1)
    assert consumer.core.may_be_withheld(P0)
    assert consumer.core.is_withheld(P0, 3)
    assert not consumer.core.is_withheld(P0, 2), "it was drained, and may be on its way only now"
    consumer.release(P0)
    consumer.run(1)
    assert not consumer.core.may_be_withheld(P0)
