"""What becomes of a consumer's partitions, decided without any client."""

import logging

import pytest

from agent.unit.simulated import P0, P1, Client, Consumer
from tidegate_agent.effects import Commit, Committed, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage


def owner(*, auto_commit: bool = False, read: int = 3) -> Consumer:
    """An owner of orders-0 that has read some records."""
    consumer = Consumer(auto_commit=auto_commit)
    consumer.assign(P0)
    consumer.client.deliver(P0, read)
    return consumer


def closed(*, committed: int = 3) -> Consumer:
    """An owner of orders-0 whose gate is closed and acked, everything committed."""
    consumer = owner(read=committed)
    consumer.commit(P0, committed)
    consumer.hold(P0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.CLOSED
    return consumer


def test_an_assigned_partition_delivers_nothing_before_its_gate_is_read() -> None:
    consumer = Consumer()
    consumer.assign(P0, P1, answered=False)
    consumer.run(3600)
    assert consumer.client.paused == {P0, P1}
    assert not consumer.acks
    consumer.answer()
    consumer.run()
    assert not consumer.client.paused
    assert consumer.acks == [(P0, 0, -1), (P1, 0, -1)]


def test_an_answer_to_an_older_question_is_not_enough() -> None:
    consumer = Consumer()
    consumer.assign(P0, ticket=2, answered=False)
    consumer.answer(1)
    consumer.run(10)
    assert consumer.client.paused == {P0}


def test_an_open_partition_is_acked_with_the_last_control_record_that_was_taken() -> None:
    consumer = Consumer()
    consumer.hold(P1)
    epoch = consumer.hold(P1, "another")
    consumer.assign(P0)
    assert consumer.last_ack() == (epoch, -1)


def test_a_partition_that_is_assigned_closed_is_acked_at_its_committed_offset_and_never_delivered() -> None:
    consumer = Consumer(client=Client(committed={P0: 7}))
    epoch = consumer.hold(P0)
    consumer.assign(P0)
    consumer.run(60)
    assert consumer.last_ack() == (epoch, 7)
    assert Resume((P0,)) not in consumer.effects


def test_a_partition_whose_gate_was_closed_and_opened_before_it_was_read_begins_at_the_committed_offset() -> None:
    """Its client may have asked where to begin before the group was reset."""
    consumer = Consumer(client=Client(committed={P0: 7, P1: 7}))
    consumer.assign(P0, P1, answered=False)
    consumer.hold(P0)
    consumer.client.committed |= {P0: 2, P1: 2}
    consumer.release(P0)

    consumer.answer()
    consumer.run(1)
    consumer.client.deliver(P0)
    consumer.client.deliver(P1)

    assert consumer.client.delivered == [(P0, 2), (P1, 7)]
    assert consumer.last_ack(P0)[1] == 2


def test_a_gate_that_was_opened_before_the_assignment_costs_nothing() -> None:
    consumer = Consumer(client=Client(committed={P0: 7}))
    consumer.hold(P0)
    consumer.release(P0)
    consumer.assign(P1)
    consumer.assign(P0)
    assert Seek not in map(type, consumer.effects)


def test_what_was_read_before_the_client_asked_counts_and_not_what_was_read_until_we_were_told() -> None:
    """The client asks at once where to begin; the whole reset may be read before the assignment is noted here."""
    consumer = Consumer(client=Client(committed={P0: 7}))
    consumer.assign(P1)
    before = consumer.core.read_to
    consumer.hold(P0)
    consumer.release(P0)
    consumer.client.begin(P0)
    consumer.client.committed[P0] = 3
    consumer.client.pause(consumer.core.assigned([P0], 2, consumer.now, known=before))
    consumer.answer(2)
    consumer.run(1)
    assert {P0: 3} in [effect.offsets for effect in consumer.effects if isinstance(effect, Seek)]


def test_the_application_keeps_the_place_it_has_assigned_itself_where_a_gate_was_closed_meanwhile() -> None:
    consumer = Consumer(client=Client(committed={P0: 7}))
    consumer.core.assigned([P0], 1, 0.0, sought={P0})
    consumer.hold(P0)
    consumer.release(P0)
    consumer.answer()
    consumer.run(1)
    assert Seek not in map(type, consumer.effects)


def test_a_closing_gate_stops_the_partition_at_once() -> None:
    consumer = owner()
    consumer.hold(P0)
    consumer.run()
    assert consumer.client.paused == {P0}
    assert consumer.effects[-1] == Pause((P0,))


def test_the_ack_waits_until_what_was_delivered_is_committed() -> None:
    consumer = owner(read=3)
    epoch = consumer.hold(P0, drain_s=30)
    consumer.commit(P0, 2)
    consumer.run(20)
    assert consumer.last_ack() == (0, -1)
    assert consumer.commit(P0, 3)
    consumer.run(1)
    assert consumer.last_ack() == (epoch, 3)


def test_after_the_drain_time_out_it_is_acked_at_the_committed_offset() -> None:
    consumer = owner(read=3)
    consumer.commit(P0, 1)
    epoch = consumer.hold(P0, drain_s=2)
    consumer.run(1.9)
    assert consumer.core.stage(P0) is Stage.DRAINING
    consumer.run(0.2)
    assert consumer.last_ack() == (epoch, 1)


def test_a_drain_time_out_of_zero_waits_for_nothing() -> None:
    consumer = owner(read=3)
    epoch = consumer.hold(P0, drain_s=0)
    consumer.run(0.1)
    assert consumer.last_ack() == (epoch, 3)


def test_a_consumer_that_commits_by_itself_is_asked_to_and_acks_in_a_tenth_of_a_second() -> None:
    consumer = owner(auto_commit=True)
    epoch = consumer.hold(P0)
    consumer.run(0.1)
    assert consumer.last_ack() == (epoch, 3)
    assert consumer.client.committed == {P0: 3}


def test_a_consumer_that_commits_by_itself_is_not_acked_before_it_has_even_after_the_drain_time_out() -> None:
    consumer = owner(auto_commit=True)
    consumer.failing = {Commit}
    consumer.hold(P0, drain_s=1)
    consumer.run(10)
    assert consumer.core.stage(P0) is Stage.DRAINING
    consumer.failing = set()
    consumer.run(2)
    assert consumer.core.stage(P0) is Stage.CLOSED


def test_a_partition_that_delivered_nothing_is_acked_without_waiting() -> None:
    consumer = owner(read=0)
    epoch = consumer.hold(P0, drain_s=3600)
    consumer.run(0.1)
    assert consumer.last_ack() == (epoch, -1)


def test_a_record_that_was_taken_off_the_queue_before_the_pause_is_waited_for_as_well() -> None:
    consumer = owner(read=3)
    consumer.commit(P0, 3)
    consumer.hold(P0)
    while not isinstance(effect := consumer.core.work(consumer.now), Committed):
        if effect is None:
            consumer.now += 0.01
        else:
            consumer.perform(effect)
    consumer.client.position[P0] = 4  # its poll has come to write it down
    consumer.perform(effect)
    consumer.run(5)
    assert consumer.core.stage(P0) is Stage.DRAINING
    assert consumer.commit(P0, 4)
    consumer.run(1)
    assert consumer.last_ack() == (1, 4)


def test_commits_of_a_closed_partition_are_dropped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    consumer = closed()
    with caplog.at_level(logging.WARNING):
        assert not consumer.commit(P0, 3)
        assert not consumer.commit(P0, 99)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "orders-0" in caplog.text
    assert consumer.client.committed == {P0: 3}


def test_commits_of_partitions_that_are_open_pass_beside_a_closed_one() -> None:
    consumer = closed()
    consumer.assign(P1)
    assert consumer.core.dropped({P0: 5, P1: 5, Partition("other", 9): 5}) == {P0}


def test_nothing_is_acked_while_a_commit_of_before_is_under_way() -> None:
    consumer = owner(read=3)
    call = consumer.core.commit_begins()
    consumer.hold(P0, drain_s=0)
    consumer.run(60)
    assert consumer.core.stage(P0) is Stage.DRAINING
    consumer.client.committed[P0] = 3
    consumer.core.commit_ends(call)
    consumer.run()
    assert consumer.last_ack() == (1, 3)


def test_a_commit_that_began_after_the_sealing_does_not_hold_up_the_ack() -> None:
    consumer = owner(read=0)
    consumer.unstable = {P0}
    consumer.hold(P0, drain_s=0)
    consumer.run(1)
    consumer.core.commit_begins()
    consumer.unstable = set()
    consumer.run(5)
    assert consumer.core.stage(P0) is Stage.CLOSED


def test_the_ack_waits_for_a_transaction_that_may_still_commit() -> None:
    consumer = owner(read=3)
    consumer.unstable = {P0}
    consumer.hold(P0, drain_s=1)
    consumer.run(30)
    assert consumer.core.stage(P0) is Stage.DRAINING
    assert not consumer.commit(P0, 3), "what comes after the drain time-out is dropped, acked or not"
    consumer.unstable = set()
    consumer.run(2)
    assert consumer.core.stage(P0) is Stage.CLOSED


def test_a_newer_hold_on_a_closed_gate_is_acked_at_once() -> None:
    consumer = closed()
    epoch = consumer.hold(P0, "another")
    consumer.run()
    assert consumer.last_ack() == (epoch, 3)


def test_a_gate_stays_closed_until_the_last_holder_lets_go() -> None:
    consumer = closed()
    consumer.hold(P0, "another")
    consumer.release(P0)
    consumer.run(10)
    assert consumer.client.paused == {P0}
    consumer.release(P0, "another")
    consumer.run(1)
    assert not consumer.client.paused


def test_an_opened_partition_goes_on_where_it_was_reset_to_and_acks_as_open() -> None:
    consumer = closed()
    consumer.client.committed[P0] = 1
    consumer.release(P0)
    consumer.run()
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 1)
    assert consumer.last_ack() == (2, 1)
    assert consumer.commit(P0, 2)


def test_it_is_not_resumed_before_it_has_been_sought() -> None:
    consumer = closed()
    consumer.client.committed[P0] = 1
    consumer.failing = {Seek}
    consumer.release(P0)
    consumer.run(30)
    assert consumer.client.paused == {P0}
    assert not consumer.commit(P0, 9)
    consumer.failing = set()
    consumer.run(2)
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 1)


def test_it_is_not_opened_before_the_committed_offset_is_known() -> None:
    consumer = closed()
    consumer.unstable = {P0}
    consumer.release(P0)
    consumer.run(120)
    assert consumer.client.paused == {P0}


def test_a_group_without_a_committed_offset_goes_on_at_its_own_position() -> None:
    consumer = owner(read=3)
    consumer.hold(P0, drain_s=0)
    consumer.run(1)
    consumer.release(P0)
    consumer.run()
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 3)


def test_what_was_not_committed_in_time_comes_twice_and_nothing_else() -> None:
    consumer = owner(read=5)
    consumer.commit(P0, 3)
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    consumer.release(P0)
    consumer.run()
    consumer.client.deliver(P0, 3)
    assert [offset for _, offset in consumer.client.delivered] == [0, 1, 2, 3, 4, 3, 4, 5]


def test_a_release_while_draining_lets_the_partition_go_on_where_it_stood() -> None:
    consumer = owner(read=3)
    consumer.hold(P0)
    consumer.run(5)
    consumer.release(P0)
    consumer.run()
    consumer.client.deliver(P0)
    assert [offset for _, offset in consumer.client.delivered] == [0, 1, 2, 3]
    assert consumer.last_ack() == (2, -1)
    assert not any(isinstance(effect, Seek) for effect in consumer.effects)


def test_a_hold_while_opening_closes_it_again_before_it_delivers() -> None:
    consumer = closed()
    consumer.client.committed[P0] = 1
    consumer.unstable = {P0}
    consumer.release(P0)
    consumer.run(1)
    epoch = consumer.hold(P0, "another")
    consumer.unstable = set()
    consumer.run(5)
    assert consumer.client.paused == {P0}
    assert consumer.last_ack() == (epoch, 1)
    consumer.release(P0, "another")
    consumer.run(1)
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 1)


def test_a_partition_taken_away_while_draining_is_forgotten_and_its_new_owner_begins_anew() -> None:
    consumer = owner(read=3)
    consumer.hold(P0)
    consumer.run(1)
    assert consumer.commit(P0, 2), "nothing is sealed before the ack"
    consumer.core.revoked([P0])
    consumer.run(60)
    assert consumer.last_ack() == (0, -1)
    assert not consumer.commit(P0, 3), "whoever owns it now may have acked"
    consumer.assign(P0, ticket=2)
    consumer.run(1)
    assert consumer.last_ack() == (1, 2)
    assert consumer.client.paused == {P0}


@pytest.mark.parametrize("interrupted", [Pause, Position, Committed, Seek, Resume, SendAcks])
def test_the_outcome_of_what_was_done_for_an_earlier_assignment_changes_nothing(interrupted: type) -> None:
    consumer = owner(read=3)
    consumer.commit(P0, 3)
    consumer.hold(P0)
    if interrupted in (Seek, Resume):
        consumer.run(1)
        consumer.client.committed[P0] = 0
        consumer.release(P0)
    while not isinstance(effect := consumer.core.work(consumer.now), interrupted):
        if effect is None:
            consumer.now += 0.01
        else:
            consumer.perform(effect)
    consumer.core.revoked([P0])
    consumer.core.assigned([P0], 2, consumer.now)
    consumer.client.begin(P0)
    consumer.client.paused.add(P0)
    consumer.core.done(effect, consumer.now, {P0: 99})
    assert consumer.core.stage(P0) is Stage.UNREAD
    assert consumer.core.work(consumer.now) is None


def test_a_partition_the_application_paused_resumes_when_both_let_go_the_gate_first() -> None:
    consumer = closed()
    consumer.core.app_paused([P0])
    consumer.release(P0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.OPEN
    assert consumer.client.paused == {P0}
    assert consumer.core.app_resumed([P0]) == (P0,)


def test_a_partition_the_application_paused_resumes_when_both_let_go_the_application_first() -> None:
    consumer = closed()
    consumer.core.app_paused([P0])
    assert consumer.core.app_resumed([P0]) == ()
    consumer.release(P0)
    consumer.run(1)
    assert not consumer.client.paused


def test_an_application_that_sought_while_it_was_paused_keeps_its_position() -> None:
    consumer = closed()
    consumer.core.app_sought(P0)
    consumer.client.next[P0], consumer.client.position[P0] = 0, None
    consumer.release(P0)
    consumer.run(1)
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 0)


def test_a_reset_wins_over_an_application_that_sought_while_it_was_paused() -> None:
    consumer = closed()
    consumer.core.app_sought(P0)
    consumer.client.committed[P0] = 2
    consumer.release(P0)
    consumer.run(1)
    consumer.client.deliver(P0)
    assert consumer.client.delivered[-1] == (P0, 2)


def test_an_application_that_keeps_its_offsets_elsewhere_is_not_moved_by_a_pause() -> None:
    consumer = Consumer(client=Client(committed={P0: 100}))
    consumer.client.begin(P0)
    consumer.core.assigned([P0], 1, 0.0, sought=[P0])
    consumer.client.next[P0] = 40
    consumer.answer()
    consumer.run()
    consumer.client.deliver(P0, 2)
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    consumer.release(P0)
    consumer.run(1)
    consumer.client.deliver(P0)
    assert [offset for _, offset in consumer.client.delivered] == [40, 41, 42]


def test_late_commits_of_records_from_before_a_reset_are_dropped_until_the_partition_has_come_by() -> None:
    consumer = owner(read=10)
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    consumer.client.committed[P0] = 2
    consumer.release(P0)
    consumer.run(1)
    assert not consumer.commit(P0, 10), "from before, and beyond what was delivered since"
    consumer.client.deliver(P0, 3)
    assert consumer.commit(P0, 5)
    assert not consumer.commit(P0, 10)
    consumer.client.deliver(P0, 5)
    assert consumer.commit(P0, 10)


def test_late_commits_of_records_from_before_a_reset_forward_are_dropped() -> None:
    consumer = owner(read=10)
    consumer.hold(P0, drain_s=1)
    consumer.run(2)
    consumer.client.committed[P0] = 500
    consumer.release(P0)
    consumer.run(1)
    assert not consumer.commit(P0, 10)
    consumer.client.deliver(P0)
    assert consumer.commit(P0, 501)


def test_a_consumer_that_cannot_read_the_control_topic_delivers_after_a_while_where_it_may() -> None:
    consumer = Consumer(open_unread_after_s=5)
    consumer.assign(P0, answered=False)
    consumer.run(4.9)
    assert consumer.client.paused == {P0}
    consumer.run(0.2)
    assert not consumer.client.paused
    assert not consumer.acks, "it cannot say that it knows"
    consumer.client.deliver(P0)
    consumer.hold(P0, drain_s=0)
    consumer.answer()
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.CLOSED


def test_a_control_topic_made_anew_opens_what_it_does_not_hold_and_every_partition_is_acked_anew() -> None:
    consumer = closed()
    consumer.assign(P1)
    consumer.acks.clear()
    consumer.recreate_control_topic()
    consumer.run(1)
    assert sorted(consumer.acks) == [(P0, 0, 3), (P1, 0, -1)]
    assert not consumer.client.paused


def test_a_closed_gate_keeps_closed_in_a_control_topic_made_anew_with_its_new_epoch() -> None:
    consumer = Consumer()
    consumer.taken = 1000
    consumer.hold(P0)
    consumer.assign(P0)
    assert consumer.last_ack() == (1001, -1)
    consumer.recreate_control_topic(held=[P0])
    consumer.run(1)
    assert consumer.last_ack() == (1, -1)
    assert Resume((P0,)) not in consumer.effects


def test_failed_effects_are_tried_again_and_less_often_the_longer_it_lasts() -> None:
    consumer = owner(read=3)
    consumer.failing = {Pause}
    consumer.hold(P0)
    consumer.run(20)
    tries = sum(isinstance(effect, Pause) for effect in consumer.effects)
    assert 15 <= tries <= 30
    consumer.failing = set()
    consumer.run(1.1)
    assert consumer.client.paused == {P0}


def test_many_partitions_are_closed_with_a_few_calls() -> None:
    partitions = [Partition("orders", number) for number in range(100)]
    consumer = Consumer(auto_commit=True)
    consumer.assign(*partitions)
    for partition in partitions:
        consumer.client.deliver(partition)
        consumer.hold(partition)
    consumer.effects.clear()
    consumer.run(0.1)
    assert {consumer.core.stage(partition) for partition in partitions} == {Stage.CLOSED}
    assert len(consumer.effects) <= 10


def test_a_gate_that_closes_while_an_ack_is_on_its_way_stops_the_partition_all_the_same() -> None:
    consumer = owner(read=0)
    consumer.recreate_control_topic()
    on_its_way = consumer.core.work(consumer.now)
    assert isinstance(on_its_way, SendAcks)
    consumer.hold(P0)
    consumer.run(1)
    assert consumer.core.stage(P0) is Stage.CLOSED
    consumer.core.done(on_its_way, consumer.now)
    assert consumer.last_ack() == (1, -1)


def test_a_newer_hold_is_acked_while_the_ack_of_the_older_one_is_on_its_way() -> None:
    consumer = closed()
    consumer.hold(P0, "another")
    while not isinstance(on_its_way := consumer.core.work(consumer.now), SendAcks):
        assert on_its_way is not None
        consumer.perform(on_its_way)
    epoch = consumer.hold(P0, "a third")
    consumer.run()
    assert consumer.last_ack() == (epoch, 3)
    consumer.core.done(on_its_way, consumer.now)
    consumer.run(1)
    assert consumer.last_ack() == (epoch, 3)


def test_commits_of_a_partition_that_was_taken_away_while_closed_are_dropped() -> None:
    consumer = closed()
    consumer.core.revoked([P0])
    assert not consumer.commit(P0, 9)
    consumer.release(P0)
    assert not consumer.commit(P0, 9), "another owner has it, and may have been reset"
    consumer.assign(P0, ticket=2)
    assert consumer.commit(P0, 3)


def test_the_reason_of_a_pause_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may write a pause could make up lines of the application otherwise, or command a terminal."""
    consumer = owner(read=3)
    consumer.commit(P0, 3)
    with caplog.at_level(logging.INFO, logger="tidegate_agent"):
        consumer.hold(P0, reason="INC-1\n2026-11-29 ERROR\u2028all is lost\x1b[2J")
        consumer.run(1)

    [line] = [record.getMessage() for record in caplog.records if "is paused" in record.getMessage()]
    assert "INC-1 2026-11-29 ERROR all is lost [2J" in line
    assert line.isprintable()
