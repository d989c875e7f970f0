"""Groups led on the in-memory Kafka, on a clock of its own: what comes in between, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeGuest, FakeKafka
from tidegate.kafka.assignments import LEADER_CLIENT_ID
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import Group, GroupState, Seat, TopicPartition
from tidegate.leading.pacing import Pacing
from tidegate.leading.session import LeadingSession

TOPIC, GROUP = "orders", "payments"
P, Q, R, S = (TopicPartition(TOPIC, number) for number in range(4))


class Stage:
    """Two consumers that have begun to read, and a session that leads their group until ``ends_s``."""

    def __init__(self, assignor: str = "range", rejoin_delay_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic(TOPIC, 4)
        self.assignor = assignor
        self.ends_s = 100.0
        self.consumers = [self.consumer(f"c{number}", rejoin_delay_s) for number in range(2)]
        for one in self.consumers:
            one.start()
        self.clock.sleep(10)
        assert self.group.state is GroupState.STABLE

    def consumer(self, client_id: str, rejoin_delay_s: float = 0.0) -> FakeConsumer:
        return FakeConsumer(
            self.kafka, GROUP, [TOPIC], client_id, assignor=self.assignor, rejoin_delay_s=rejoin_delay_s
        )

    def session(self, **more: object) -> LeadingSession:
        may_act = lambda: self.clock.monotonic() < self.ends_s  # noqa: E731
        return LeadingSession(self.kafka, GROUP, self.clock, Pacing(), may_act, **more)  # type: ignore[arg-type]

    @property
    def group(self) -> Group:
        return self.kafka._described(GROUP)

    @property
    def is_led(self) -> bool:
        return any(m.client_id == LEADER_CLIENT_ID for m in self.group.members)

    def every(self, seconds: float, look: Callable[[], None]) -> None:
        def again() -> None:
            look()
            self.clock.after(seconds, again)

        self.clock.after(seconds, again)


ASSIGNORS = ["range", "cooperative-sticky"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_it_withholds_and_leaves(assignor: str) -> None:
    stage = Stage(assignor)
    session = stage.session()
    session.want("a", frozenset({P}))
    seen: list[frozenset[TopicPartition]] = []
    stage.clock.after(30, lambda: seen.extend([session.report.withheld, stage.group.assigned]))
    stage.clock.after(31, lambda: session.drop("a"))

    session.run()
    stage.clock.sleep(10)

    assert seen == [{P}, {Q, R, S}]
    assert not stage.is_led
    assert stage.group.assigned == {P, Q, R, S}


def test_a_rebalance_that_is_under_way_is_not_held_up() -> None:
    stage = Stage(rejoin_delay_s=4.0)
    began = stage.clock.monotonic()
    stage.kafka.rebalance(GROUP)
    assert stage.group.state is GroupState.PREPARING_REBALANCE
    states: list[tuple[float, GroupState]] = []
    stage.every(0.1, lambda: states.append((stage.clock.monotonic() - began, stage.group.state)))
    session = stage.session()
    session.want("a", frozenset({P}))
    stage.ends_s = began + 60

    session.run()

    settled = next(at for at, state in states if state is GroupState.STABLE)
    assert settled < 9  # a heartbeat, and the delay
    assert session.report.withheld == {P}


@pytest.mark.parametrize("call", ["topics", "groups", "guest.assign"])
def test_a_broker_that_does_not_answer_for_a_moment_leaves_nobody_waiting_for_the_leader(call: str) -> None:
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))
    stage.clock.after(30, lambda: stage.consumer("c2").start())
    broken: list[float] = []

    def fail() -> None:
        if not broken and stage.group.state is GroupState.COMPLETING_REBALANCE and stage.clock.monotonic() > 35:
            broken.append(stage.clock.monotonic())
            stage.kafka.fail(call, Unavailable("no answer"))

    stage.every(0.01, fail)

    session.run()

    assert broken
    assert stage.group.state is GroupState.STABLE
    assert session.report.withheld == {P}
    assert len(stage.group.members) == 4


@pytest.mark.parametrize("call", ["groups", "topics", "guest.joined", "guest.assign"])
def test_whoever_was_made_to_leave_is_let_go_where_the_brokers_do_not_answer(call: str) -> None:
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))
    before = {m.member_id for m in stage.group.members}
    failed_s: list[float] = []
    left_alone_s: list[float] = []

    def look() -> None:
        now_s, ids = stage.clock.monotonic(), {m.member_id for m in stage.group.members}
        if not failed_s and stage.is_led and not ids & before:
            stage.kafka.fail(call, Unavailable("no answer"))
            failed_s.append(now_s)
        elif failed_s and not left_alone_s and stage.group.state is GroupState.STABLE:
            left_alone_s.append(now_s)

    stage.every(0.001, look)

    session.run()

    assert failed_s
    assert left_alone_s[0] - failed_s[0] < 10
    assert session.report.withheld == {P}


def led_before(stage: Stage, wanted: frozenset[TopicPartition]) -> Seat:
    """The seat of a process that has withheld them and died without a word, just now."""
    session = stage.session()
    session.want("before", wanted)
    stage.ends_s = stage.clock.monotonic() + 20
    session.run()
    assert session.report.withheld == wanted
    assert session.report.seat is not None
    stage.ends_s = stage.clock.monotonic() + 60
    return session.report.seat


def watch(stage: Stage, partition: TopicPartition) -> list[float]:
    """Fills with the times at which somebody has it."""
    times: list[float] = []
    stage.every(0.05, lambda: times.append(stage.clock.monotonic()) if partition in stage.group.assigned else None)
    return times


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_what_others_have_withheld_stays_so_over_rebalances_until_they_can_say_so_again(assignor: str) -> None:
    stage = Stage(assignor)
    seat = led_before(stage, frozenset({P, Q}))
    begins = stage.clock.monotonic()
    times = watch(stage, Q)
    session = stage.session(known=seat, others=["b"])
    session.want("a", frozenset({P}))
    # Members come and go before it has said so.
    for after_s in (1, 4):
        stage.clock.after(after_s, lambda: stage.consumer("c2").start())
    stage.clock.after(9, lambda: session.want("b", frozenset({Q})))

    session.run()

    assert times == []
    assert stage.clock.monotonic() - begins > 30
    assert session.report.withheld == {P, Q}
    assert len(stage.group.members) == 5


def test_who_never_says_what_he_wants_keeps_nobody_from_leaving() -> None:
    stage = Stage()
    seat = led_before(stage, frozenset({P, Q}))
    session = stage.session(known=seat, others=["b"])
    session.want("a", frozenset({P}))
    stage.clock.after(5, lambda: session.drop("a"))

    session.run()
    stage.clock.sleep(10)

    assert session.report.ended
    assert not stage.is_led
    assert stage.group.assigned == {P, Q, R, S}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_what_is_given_back_is_not_called_withheld(assignor: str) -> None:
    stage = Stage(assignor)
    session = stage.session()
    session.want("a", frozenset({P}))
    session.want("b", frozenset({Q}))
    stage.clock.after(30, lambda: session.drop("b"))
    untrue: list[float] = []
    call = stage.kafka._called

    def called(name: str) -> None:
        stage.clock.sleep(0.02)  # requests take their time
        call(name)

    stage.kafka._called = called  # type: ignore[method-assign]

    def look() -> None:
        if session.report.withheld & stage.group.assigned:
            untrue.append(stage.clock.monotonic())

    stage.every(0.01, look)

    session.run()

    assert untrue == []
    assert session.report.withheld == {P}
    assert stage.group.assigned == {Q, R, S}


def test_nothing_counts_as_withheld_once_the_coordinator_may_have_forgotten_the_leader() -> None:
    """Its thread waits for an answer, or its process was frozen."""
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))
    told: dict[float, frozenset[TopicPartition]] = {}
    beat = stage.kafka._called

    def called(name: str) -> None:
        if name == "guest.rebalances" and stage.clock.monotonic() > 40 and not told:
            for waited_s in (5.0, 19.0, 21.5):
                stage.clock.after(waited_s, lambda at=waited_s: told.update({at: session.report.withheld}))
            stage.clock.sleep(22)
            raise Unavailable("no answer")
        beat(name)

    stage.kafka._called = called  # type: ignore[method-assign]

    session.run()

    assert told == {5.0: {P}, 19.0: {P}, 21.5: frozenset()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_long_rebalance_neither_opens_anything_nor_keeps_the_leader_from_leaving(assignor: str) -> None:
    stage = Stage(assignor)
    session = stage.session()
    session.want("a", frozenset({P}))
    told: list[frozenset[TopicPartition]] = []

    def stall() -> None:
        stage.consumers[0].rejoin_delay_s = 200.0
        stage.consumer("c2").start()

    stage.clock.after(30, stall)
    for after_s in (40, 55, 70):
        stage.clock.after(after_s, lambda: told.append(session.report.withheld))
    stage.clock.after(71, lambda: session.drop("a"))
    stage.ends_s = 200.0

    session.run()

    assert told == [{P}] * 3
    assert stage.clock.monotonic() < 85
    assert not stage.is_led


def test_nobody_is_made_to_leave_by_a_process_whose_turn_is_over() -> None:
    stage = Stage()
    ids = {m.member_id for m in stage.group.members}
    session = stage.session()
    session.want("a", frozenset({P}))
    # Members are just about to notice the rebalance.
    stage.ends_s = stage.clock.monotonic() + 2.0

    session.run()
    stage.clock.sleep(20)

    assert {m.member_id for m in stage.group.members} == ids
    assert stage.group.assigned == {P, Q, R, S}


def test_a_lead_that_is_given_up_counts_as_lost() -> None:
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))

    def refuse() -> None:
        stage.kafka.fail("guest.joined", NotAuthorized("Read on group payments"))
        stage.consumer("c2").start()

    stage.clock.after(30, refuse)
    stage.ends_s = stage.clock.monotonic() + 35

    session.run()

    assert session.report.lost == 1
    assert session.report.withheld == frozenset()
    assert not stage.is_led
    assert stage.group.assigned == {P, Q, R, S}


def test_a_dead_leader_of_which_nothing_is_noted_is_waited_for_until_it_is_forgotten() -> None:
    stage = Stage()
    led_before(stage, frozenset({P}))
    session = stage.session()
    session.want("a", frozenset({P}))

    session.run()

    assert (session.report.withheld, session.report.is_refused, session.report.lost) == ({P}, False, 0)
    assert len(stage.group.members) == 3


@pytest.mark.parametrize(("client_id", "expected"), [(LEADER_CLIENT_ID, "is already led"), ("app", "names no topic")])
def test_where_somebody_names_no_topic_nobody_is_disturbed(client_id: str, expected: str) -> None:
    stage = Stage()
    FakeConsumer(stage.kafka, GROUP, [], client_id).start()
    stage.clock.sleep(10)
    ids = {m.member_id for m in stage.group.members}
    session = stage.session()
    session.want("a", frozenset({P}))

    session.run()

    assert expected in session.report.trouble
    assert session.report.is_refused
    assert {m.member_id for m in stage.group.members} == ids


def test_a_process_whose_turn_is_over_leaves_its_seat_to_the_next_one_whatever_it_meets() -> None:
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))

    def freeze() -> None:
        stage.kafka.fail("guest.rebalances", NotAuthorized("Read on group payments"))
        stage.ends_s = stage.clock.monotonic()

    call = stage.kafka._called

    def called(name: str) -> None:
        if name == "guest.rebalances" and 40 < stage.clock.monotonic() < stage.ends_s:
            freeze()
        call(name)

    stage.kafka._called = called  # type: ignore[method-assign]

    session.run()

    assert stage.is_led
    assert stage.group.assigned == {Q, R, S}


def test_a_seat_of_an_earlier_generation_stops_nothing_but_what_was_withheld() -> None:
    stage = Stage()
    seat = led_before(stage, frozenset({P, Q}))
    begins = stage.clock.monotonic()
    withheld, others = watch(stage, Q), watch(stage, S)
    # A rebalance came between the last look at the seat and the process's end.
    session = stage.session(known=replace(seat, generation=seat.generation - 1), others=["b"])
    session.want("a", frozenset({P}))
    stage.clock.after(9, lambda: session.want("b", frozenset({Q})))

    session.run()

    assert withheld == []
    assert session.report.withheld == {P, Q}
    assert all(any(begins + at <= time < begins + at + 1 for time in others) for at in range(5, 20))


def test_a_process_whose_turn_ends_as_it_takes_the_lead_leaves_nobody_waiting() -> None:
    stage = Stage()
    before = {m.member_id for m in stage.group.members}
    session = stage.session()
    session.want("a", frozenset({P}))
    stopped_s: list[float] = []
    call = stage.kafka._called

    def called(name: str) -> None:
        ids = {m.member_id for m in stage.group.members}
        if name == "guest.joined" and stage.is_led and not ids & before and not stopped_s:
            stopped_s.append(stage.clock.monotonic())
            stage.ends_s = stage.clock.monotonic()
            stage.kafka.fail(name, Unavailable("no answer"))
        call(name)

    stage.kafka._called = called  # type: ignore[method-assign]

    session.run()
    stage.clock.sleep(8)

    assert stopped_s
    assert stage.group.state is GroupState.STABLE
    assert stage.group.assigned == {P, Q, R, S}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_new_partition_that_a_user_would_want_is_given_to_nobody(assignor: str) -> None:
    """Who leads notices it first: the pause that is about all of the topic hears of it later."""
    stage = Stage(assignor)
    new, other = TopicPartition(TOPIC, 4), TopicPartition(TOPIC, 5)
    session = stage.session()
    session.want("a", frozenset({P}))
    session.cover("a", lambda partition: partition == new)
    session.cover("b", lambda _: True)  # who wants nothing
    stage.clock.after(30, lambda: stage.kafka.add_partitions(TOPIC, 6))
    times, others = watch(stage, new), watch(stage, other)

    session.run()

    assert others
    assert times == []
    assert session.report.withheld == {P, new}
    assert stage.group.assigned == {Q, R, S, other}


def test_what_a_user_would_want_goes_with_what_he_wants() -> None:
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))
    session.want("b", frozenset({Q}))
    session.cover("a", lambda partition: partition in (P, R))
    stage.clock.after(30, lambda: session.drop("a"))

    session.run()

    assert session.report.withheld == {Q}
    assert stage.group.assigned == {P, R, S}


def fail_to(stage: Stage, call: str, until_s: float) -> None:
    """Calls of this name have no answer until then."""
    called = stage.kafka._called

    def answer(name: str) -> None:
        if name == call and stage.clock.monotonic() < until_s:
            raise Unavailable("no answer")
        called(name)

    stage.kafka._called = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("call", ["guest.leave", "seat"])
def test_it_has_not_ended_as_long_as_its_member_may_withhold_something(call: str) -> None:
    """What is withheld by a member that could not leave is still nobody's, and is not said to be resumed."""
    stage = Stage()
    seat = led_before(stage, frozenset({P}))
    begins_s = stage.clock.monotonic()
    session = stage.session(known=seat)
    session.want("a", frozenset({P}))
    session.drop("a")
    fail_to(stage, call, begins_s + 5)
    untrue: list[float] = []

    def look() -> None:
        if session.report.ended and P not in stage.group.assigned and stage.group.state is GroupState.STABLE:
            untrue.append(stage.clock.monotonic())

    stage.every(0.1, look)

    session.run()
    ended_s = stage.clock.monotonic()
    stage.clock.sleep(30)

    assert session.report.ended
    assert 5 <= ended_s - begins_s < 10
    assert untrue == []
    assert stage.group.assigned == {P, Q, R, S}


def test_a_coordinator_that_never_answers_is_not_waited_for_longer_than_it_remembers_the_member() -> None:
    stage = Stage()
    seat = led_before(stage, frozenset({P}))
    begins_s = stage.clock.monotonic()
    stage.ends_s = begins_s + 1000
    session = stage.session(known=seat)
    session.want("a", frozenset({P}))
    session.drop("a")
    fail_to(stage, "guest.leave", begins_s + 1000)
    fail_to(stage, "groups", begins_s + 1000)

    session.run()

    assert 20 <= stage.clock.monotonic() - begins_s < 30


def test_an_answer_that_waited_for_a_frozen_process_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The join has ended long ago, and nobody knows whether the coordinator has forgotten our member since."""
    stage = Stage()
    session = stage.session()
    session.want("a", frozenset({P}))
    called = stage.kafka._called
    told: list[frozenset[TopicPartition]] = []

    def freeze(name: str) -> None:
        frozen_s = stage.clock.monotonic()
        if name == "guest.joined" and frozen_s > 40 and not told:
            stage.clock.sleep(25)
            stage.clock.after(0.0, lambda: None)
            told.append(frozenset())
        elif len(told) == 1 and name == "groups":
            told.append(session.report.withheld)
        called(name)

    stage.kafka._called = freeze  # type: ignore[method-assign]
    monkeypatch.setattr(FakeGuest, "_heard", lambda _: None)  # the coordinator has not noticed yet
    stage.clock.after(30, lambda: stage.consumer("c2").start())

    session.run()

    assert told[:2] == [frozenset(), frozenset()]
