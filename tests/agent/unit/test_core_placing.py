"""Where a partition begins that the group has committed nothing of, as the core goes about it."""

from __future__ import annotations

import logging

import pytest

from agent.unit.simulated import P0, P1, Client, Consumer
from tidegate_agent.effects import Begin, Committed, Effect, Pause, Resume, Seek
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.start import PATIENCE_S, Rule, Start

AGE_MS = 60_000
NOW_MS = 1_763_700_000_000
RULE = Rule(Start.EARLIEST, AGE_MS)


def member(rule: Rule | None = RULE, *, committed: dict[Partition, int] | None = None) -> Consumer:
    """A member at ``latest`` in front of partitions with 100 records."""
    return Consumer(client=Client(committed=committed or {}, log_end={P0: 100, P1: 100}), rule=rule)


def first(consumer: Consumer, partition: Partition = P0) -> int:
    """The first record that the partition delivers now."""
    before = len(consumer.client.delivered)
    consumer.client.deliver(partition)
    [(_, offset)] = consumer.client.delivered[before:]
    return offset


def told(consumer: Consumer, age_ms: int | None = 1_000) -> Consumer:
    """It has the broker's time and orders-0's age, ``None``: it was there at the first discovery."""
    consumer.tick(NOW_MS)
    consumer.discover(P0, None if age_ms is None else NOW_MS - age_ms)
    consumer.identify()
    return consumer


def took(consumer: Consumer, kind: type[Effect]) -> int:
    return sum(isinstance(effect, kind) for effect in consumer.effects)


@pytest.mark.parametrize(
    ("age_ms", "begins"), [(0, 0), (AGE_MS, 0), (AGE_MS + 1, 100), (10 * AGE_MS, 100), (None, 100)]
)
def test_a_new_partition_begins_at_its_first_record_and_any_other_at_its_last(age_ms: int | None, begins: int) -> None:
    consumer = told(member(), age_ms)
    consumer.assign(P0)
    assert first(consumer) == begins


@pytest.mark.parametrize("age_ms", [0, AGE_MS + 1, None])
@pytest.mark.parametrize("committed", [0, 40, 10**15])
def test_a_committed_offset_is_where_it_begins_in_range_or_not(committed: int, age_ms: int | None) -> None:
    """Out of range the client resets it, as its own policy says; that is nothing of ours."""
    consumer = told(member(committed={P0: committed}), age_ms)
    consumer.assign(P0)
    assert first(consumer) == committed
    assert took(consumer, Begin) == took(consumer, Seek) == 0


def test_without_a_rule_nothing_is_asked_and_nothing_waits() -> None:
    consumer = told(member(rule=None))
    consumer.assign(P0)
    assert first(consumer) == 100
    assert took(consumer, Committed) == 0


def test_where_new_partitions_begin_at_their_end_they_do_so_under_earliest() -> None:
    consumer = told(member(Rule(Start.LATEST)))
    consumer.client.log_end[P0] = 0
    consumer.assign(P0, answered=False)
    consumer.client.log_end[P0] = 100
    consumer.answer()
    consumer.run()
    assert first(consumer) == 100


def test_many_partitions_are_placed_with_a_few_calls() -> None:
    consumer = told(member())
    many = [Partition("orders", number) for number in range(100)]
    for partition in many:
        consumer.discover(partition, NOW_MS if partition.partition % 2 else None)
    consumer.assign(*many)
    assert {consumer.core.stage(p) for p in many} == {Stage.OPEN}
    assert [type(effect).__name__ for effect in consumer.effects].count("Committed") == 1
    assert [len(effect.partitions) for effect in consumer.effects if isinstance(effect, Begin)] == [50]


def test_nothing_is_delivered_before_a_record_that_may_come_has_come() -> None:
    consumer = member()
    consumer.tick(NOW_MS)
    consumer.assign(P0)
    consumer.run(1)
    assert consumer.client.paused == {P0}
    assert consumer.core.unplaced() == {P0}
    consumer.discover(P0, NOW_MS)
    consumer.run()
    assert first(consumer) == 0
    assert consumer.core.unplaced() == set()


def test_it_is_waited_for_no_longer_than_a_while() -> None:
    consumer = member()
    consumer.tick(NOW_MS)
    consumer.assign(P0)
    consumer.run(PATIENCE_S - 0.01)
    assert consumer.client.paused == {P0}
    consumer.run(0.02)
    assert first(consumer) == 100


def test_a_control_topic_without_a_word_of_ages_holds_nothing_up() -> None:
    consumer = member()
    consumer.assign(P0)
    assert first(consumer) == 100


def test_the_age_is_that_of_the_moment_in_which_it_was_assigned() -> None:
    consumer = told(member(), AGE_MS - 1_000)
    consumer.unstable = {P0}
    consumer.assign(P0)
    consumer.run(2)
    consumer.unstable = set()
    consumer.run(2)
    assert first(consumer) == 0


def test_an_offset_that_a_transaction_may_still_bring_is_waited_for() -> None:
    consumer = told(member())
    consumer.unstable = {P0}
    consumer.assign(P0)
    consumer.run(30)
    assert consumer.client.paused == {P0}
    consumer.client.committed[P0] = 7
    consumer.client.begin(P0)
    consumer.unstable = set()
    consumer.run(2)
    assert first(consumer) == 7


@pytest.mark.parametrize("failing", [Committed, Begin])
def test_what_fails_is_tried_again_and_the_partition_stays_unplaced_meanwhile(failing: type[Effect]) -> None:
    consumer = told(member())
    consumer.failing = {failing}
    consumer.assign(P0)
    consumer.run(5)
    assert consumer.core.unplaced() == {P0}
    consumer.failing = set()
    consumer.run(2)
    assert first(consumer) == 0


def test_a_client_that_cannot_be_moved_yet_is_tried_again() -> None:
    consumer = told(member())
    consumer.assign(P0, answered=False)
    consumer.answer()
    while not isinstance(effect := consumer.core.work(consumer.now), Begin):
        assert effect is not None
        consumer.perform(effect)
    consumer.core.done(effect, consumer.now, [])
    assert consumer.core.unplaced() == {P0}
    assert consumer.client.paused == {P0}
    consumer.run(1)
    assert first(consumer) == 0


def test_an_application_that_names_the_offset_itself_keeps_it() -> None:
    consumer = told(member())
    consumer.client.begin(P0)
    consumer.client.next[P0] = 55
    consumer.client.paused |= set(consumer.core.assigned([P0], 1, consumer.now, sought=[P0]))
    consumer.answer()
    consumer.run()
    assert first(consumer) == 55


@pytest.mark.parametrize("moment", [Committed, Begin, None])
def test_an_application_that_seeks_while_it_is_decided_keeps_its_offset(moment: type[Effect] | None) -> None:
    """None: while a record is waited for."""
    consumer = told(member()) if moment is not None else member()
    if moment is None:
        consumer.tick(NOW_MS)
    consumer.assign(P0, answered=False)
    consumer.answer()
    while (effect := consumer.core.work(consumer.now)) is not None and not isinstance(effect, moment or ()):
        consumer.perform(effect)
    consumer.client.next[P0] = 55
    consumer.core.app_sought(P0)
    if isinstance(effect, Committed):
        consumer.perform(effect)
    elif effect is not None:
        consumer.core.done(effect, consumer.now, effect.partitions)
    consumer.run()
    assert first(consumer) == 55


def test_a_rebalance_back_to_the_same_consumer_is_decided_anew() -> None:
    consumer = told(member())
    consumer.assign(P0)
    consumer.client.deliver(P0, 5)
    consumer.core.revoked([P0])
    consumer.assign(P0, ticket=2)
    assert first(consumer) == 0, "nothing was committed"
    consumer.commit(P0, 1)
    consumer.core.revoked([P0])
    consumer.assign(P0, ticket=3)
    assert first(consumer) == 1
    consumer.client.committed.clear()
    consumer.run(AGE_MS / 1000)
    consumer.core.revoked([P0])
    consumer.assign(P0, ticket=4)
    assert first(consumer) == 100, "it has grown old"


def test_the_decision_is_told_once_an_assignment_with_the_age(caplog: pytest.LogCaptureFixture) -> None:
    consumer = told(member(), 1_234)
    with caplog.at_level(logging.INFO, "tidegate_agent"):
        consumer.assign(P0)
        consumer.run(60)
    [said] = [record.getMessage() for record in caplog.records if "no committed offset" in record.getMessage()]
    assert said == (
        "group g: orders-0 has no committed offset and begins at earliest: it is 1234 ms old, and new up to 60000 ms"
    )


def test_that_the_age_is_not_known_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    consumer = member()
    with caplog.at_level(logging.WARNING, "tidegate_agent"):
        consumer.assign(P0)
    assert caplog.messages == [
        "group g: orders-0 has no committed offset and begins where its client does: its age is not known"
    ]


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset_to", "begins"), [(None, 0), (42, 42)])
def test_a_partition_that_is_closed_when_it_is_assigned_is_placed_when_it_opens(
    reset_to: int | None, begins: int
) -> None:
    consumer = told(member())
    epoch = consumer.hold(P0)
    consumer.assign(P0)
    assert consumer.last_ack() == (epoch, -1)
    assert took(consumer, Begin) == 0
    if reset_to is not None:
        consumer.client.committed[P0] = reset_to
    consumer.release(P0)
    consumer.run(1)
    assert first(consumer) == begins
    assert not consumer.core.unplaced()


def test_a_gate_that_closes_while_a_record_is_waited_for_closes_at_once() -> None:
    consumer = member()
    consumer.tick(NOW_MS)
    consumer.assign(P0)
    consumer.run(1)
    epoch = consumer.hold(P0)
    consumer.run(0.1)
    assert consumer.last_ack() == (epoch, -1)
    consumer.run(600)
    assert took(consumer, Resume) == 0
    consumer.discover(P0, NOW_MS)
    consumer.tick(NOW_MS + 600_000)
    consumer.release(P0)
    consumer.run(1)
    assert first(consumer) == 0, "it was new when it was assigned"


def test_a_gate_that_closes_while_it_opens_keeps_it_unplaced() -> None:
    consumer = told(member())
    consumer.hold(P0)
    consumer.assign(P0)
    consumer.failing = {Begin}
    consumer.release(P0)
    consumer.run(1)
    epoch = consumer.hold(P0)
    consumer.run(3)
    assert consumer.last_ack() == (epoch, -1)
    consumer.failing = set()
    consumer.release(P0)
    consumer.run(1)
    assert first(consumer) == 0


def test_a_partition_that_has_delivered_is_not_placed_again_by_a_pause() -> None:
    consumer = told(member())
    consumer.assign(P0)
    consumer.client.deliver(P0, 5)
    consumer.hold(P0, drain_s=0)
    consumer.run(1)
    consumer.release(P0)
    consumer.run(1)
    assert first(consumer) == 5
    assert took(consumer, Begin) == 1


def test_a_partition_delivered_with_its_gate_unread_begins_where_its_client_does() -> None:
    consumer = Consumer(client=Client(log_end={P0: 100}), rule=RULE, open_unread_after_s=5)
    consumer.assign(P0, answered=False)
    consumer.run(6)
    assert first(consumer) == 100
    told(consumer)
    consumer.answer()
    consumer.run(60)
    assert first(consumer) == 101
    assert not consumer.core.unplaced(), "what it commits is the application's"
    assert took(consumer, Pause) == took(consumer, Begin) == 0


def test_an_application_that_paused_it_finds_it_placed_when_it_resumes() -> None:
    consumer = told(member())
    consumer.client.begin(P0)
    consumer.client.paused |= set(consumer.core.assigned([P0], 1, consumer.now))
    consumer.core.app_paused([P0])
    consumer.answer()
    consumer.run()
    assert consumer.client.paused == {P0}
    assert consumer.core.app_resumed([P0]) == (P0,)
    consumer.client.paused.clear()
    assert first(consumer) == 0
