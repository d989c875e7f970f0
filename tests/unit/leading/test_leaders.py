"""The groups that one process leads, without their threads."""

from __future__ import annotations

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.kafka.model import Seat, TopicPartition
from tidegate.leading import leaders
from tidegate.leading.leaders import Leaders, Led
from tidegate.leading.pacing import Pacing

P = frozenset({TopicPartition("orders", 0)})
SEAT = Seat("tidegate-leader-1", 7, "range")


class Unstarted(Leaders):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, Pacing(), lambda: True)

    def _start(self, running: leaders._Running) -> None:
        """Its session is run by whoever tests it."""

    def end_all(self) -> None:
        for running in self._running.values():
            running.session.stop()
            running.session.run()


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka(FakeClock())


def test_groups_that_are_led_no_more_leave_their_place_to_others(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaders, "MOST", 2)
    these = Unstarted(kafka.clock)
    for name in ("a", "b"):
        these.want(Led("conn", name), kafka, name, P, None, ())
    third = Led("conn", "c")
    assert "already leads 2 groups" in these.look(third, "c", kafka).report.trouble

    these.end_all()

    assert these.look(third, "c", kafka).report.trouble == ""
    these.want(third, kafka, "c", P, None, ())
    assert these.look(third, "c", kafka).wanted == P


def test_a_user_may_be_forgotten_in_all_groups_but_one(kafka: FakeKafka) -> None:
    these = Unstarted(kafka.clock)
    old, new = Led("old", "payments"), Led("new", "payments")
    for led in (old, new):
        these.want(led, kafka, "a", P, None, ())

    these.forget("a", but=new)

    assert (these.look(old, "a", kafka).wanted, these.look(new, "a", kafka).wanted) == (None, P)


def test_a_user_who_wants_nothing_of_a_group_covers_nothing_of_it(kafka: FakeKafka) -> None:
    these, led = Unstarted(kafka.clock), Led("conn", "payments")
    these.want(led, kafka, "a", P, None, ())
    everything = P | {TopicPartition("orders", 1)}

    these.look(led, "b", kafka, lambda _: True)
    assert these._running[led].session._to_withhold(everything) == P

    these.look(led, "a", kafka, lambda _: True)
    assert these._running[led].session._to_withhold(everything) == everything
