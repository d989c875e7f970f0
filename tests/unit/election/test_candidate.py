"""Who leads, decided from what was read and a clock of one's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.election.candidate import Candidate, Create, GiveUp, Identity, Look, Step, Timing, Update, Wait
from tidegate.kube.lease import LeaseRecord

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
TIMING = Timing(lease_s=10, renew_s=7, retry_s=2)


def of(holder: str, renewed: datetime = NOW, **other: Any) -> LeaseRecord:
    return replace(LeaseRecord(holder, 10, 3, NOW, renewed), **other)


class One:
    """A candidate, and the time as it sees it."""

    def __init__(self, name: str = "me") -> None:
        self.candidate = Candidate(Identity(name, "1"), TIMING)
        self.at_s = 1000.0

    @property
    def step(self) -> Step:
        return self.candidate.step(self.at_s, NOW + timedelta(seconds=self.at_s))

    def looks(self, found: LeaseRecord | None) -> Step:
        assert self.step == Look()
        self.candidate.looked(found, self.at_s)
        return self.step

    def waits(self) -> float:
        step = self.step
        assert isinstance(step, Wait), step
        self.at_s += step.seconds
        return step.seconds

    def writes(self, took_s: float = 0.0) -> LeaseRecord:
        """Do as it says; the request is answered after ``took_s``."""
        step, sent_s = self.step, self.at_s
        assert isinstance(step, Create | Update), step
        self.at_s += took_s
        self.candidate.wrote(step.record, sent_s)
        return step.record


@pytest.fixture
def me() -> One:
    return One()


@pytest.fixture
def leader(me: One) -> One:
    me.looks(None)
    me.writes()
    return me


def test_where_there_is_no_lease_it_is_created(me: One) -> None:
    step = me.looks(None)
    assert isinstance(step, Create)
    assert (step.record.holder, step.record.duration_s, step.record.transitions) == ("me_1", 10, 0)


def test_one_that_was_released_is_taken_at_once(me: One) -> None:
    released = of("", duration_s=1)
    step = me.looks(released)
    assert isinstance(step, Update)
    assert step.over is released
    assert (step.record.holder, step.record.transitions, step.record.duration_s) == ("me_1", 4, 10)


def test_one_that_another_holds_is_looked_at_again_and_again(me: One) -> None:
    me.looks(of("other"))
    for second in range(20):
        assert me.waits() == 2
        me.looks(of("other", NOW + timedelta(seconds=second)))


def test_the_holder_has_its_time_from_when_it_was_seen_to_change_whatever_its_clock_says(me: One) -> None:
    """The times in the record are years old, or in the future: neither makes it end earlier or later."""
    for renewed in (NOW - timedelta(days=999), NOW + timedelta(days=999)):
        me = One()
        me.looks(of("other", renewed))
        waited = 0.0
        while isinstance(me.step, Wait):
            waited += me.waits()
            me.looks(of("other", renewed))
        assert waited == 10
        assert isinstance(me.step, Update)


def test_the_last_look_is_when_it_ends_and_not_a_whole_period_later(me: One) -> None:
    me.looks(of("other", duration_s=5))
    waits = []
    for _ in range(3):
        waits.append(me.waits())
        me.looks(of("other", duration_s=5))
    assert waits == [2, 2, 1]
    assert isinstance(me.step, Update)


def test_one_that_is_renewed_at_the_last_moment_has_all_its_time_again(me: One) -> None:
    me.looks(of("other"))
    for _ in range(5):
        me.waits()
        me.looks(of("other")) if me.at_s < 1010 else me.looks(of("other", NOW + timedelta(seconds=9)))
    assert me.at_s == 1010
    assert isinstance(me.step, Wait)


def test_a_holder_whose_duration_somebody_has_taken_off_has_its_time_all_the_same(me: One) -> None:
    """It goes by its own, and hears of that with its next renewal only."""
    waited = 0.0
    me.looks(of("other", duration_s=0))
    while isinstance(me.step, Wait):
        waited += me.waits()
        me.looks(of("other", duration_s=0))
    assert waited == TIMING.lease_s
    assert isinstance(me.step, Update)


def test_what_is_not_in_the_record_does_not_renew_it(me: One) -> None:
    """As a label that somebody sets: then the object has another version."""
    me.looks(of("other", lease={"metadata": {"resourceVersion": "1"}}))
    for version in range(2, 7):
        me.waits()
        me.looks(of("other", lease={"metadata": {"resourceVersion": str(version)}}))
    assert isinstance(me.step, Update)


def test_who_loses_the_race_stands_by(me: One) -> None:
    assert isinstance(me.looks(of("")), Update)
    me.candidate.failed(me.at_s, at_once=True)
    assert me.waits() == 1
    assert isinstance(me.looks(of("other")), Wait)
    assert me.candidate.until_s is None


def test_a_leader_renews_over_what_it_wrote_and_keeps_its_term(leader: One) -> None:
    for _ in range(20):
        assert leader.waits() == 2
        step = leader.step
        assert isinstance(step, Update)
        assert (step.record.transitions, step.record.acquired) == (0, step.over.acquired)
        assert step.record.renewed != step.over.renewed
        leader.writes()


def test_a_leader_leads_from_when_it_sent_what_was_answered(leader: One) -> None:
    leader.waits()
    sent_s = leader.at_s
    leader.writes(took_s=3)
    assert leader.candidate.until_s == sent_s + 7


def test_a_leader_that_cannot_renew_gives_up_before_its_lease_can_be_taken(leader: One) -> None:
    other = One("other")
    other.looks(of("me_1"))
    while not isinstance(leader.step, GiveUp):
        if isinstance(leader.step, Wait):
            leader.waits()
        else:
            leader.candidate.failed(leader.at_s, at_once=False)
    while isinstance(other.step, Wait):
        other.waits()
        other.looks(of("me_1"))

    assert leader.at_s == 1007
    assert other.at_s == 1010


def test_a_leader_that_was_frozen_knows_before_it_asks_anybody(leader: One) -> None:
    leader.at_s += 60
    assert isinstance(leader.step, GiveUp)


def test_a_leader_whose_write_met_another_one_looks_at_once_and_gives_up_where_it_was_replaced(leader: One) -> None:
    leader.waits()
    leader.candidate.failed(leader.at_s, at_once=True)
    step = leader.looks(of("other"))
    assert step == GiveUp("the Lease is held by other")


def test_a_leader_whose_lease_somebody_has_cleared_gives_up(leader: One) -> None:
    leader.waits()
    leader.candidate.failed(leader.at_s, at_once=True)
    assert isinstance(leader.looks(of("")), GiveUp)


def test_a_leader_goes_on_where_its_write_was_done_and_nobody_said_so(leader: One) -> None:
    leader.waits()
    unanswered = leader.step
    assert isinstance(unanswered, Update)
    leader.candidate.failed(leader.at_s, at_once=False)
    leader.waits()
    assert isinstance(leader.looks(unanswered.record), Update)
    assert leader.candidate.until_s == 1007


def test_a_leader_creates_the_lease_again_that_somebody_has_deleted(leader: One) -> None:
    leader.waits()
    leader.candidate.failed(leader.at_s, at_once=True)
    assert isinstance(leader.looks(None), Create)


def test_who_got_the_lease_unanswered_leads_once_it_has_renewed_it(me: One) -> None:
    step = me.looks(of(""))
    assert isinstance(step, Update)
    me.candidate.failed(me.at_s, at_once=False)
    me.waits()
    again = me.looks(step.record)
    assert isinstance(again, Update)
    assert again.record.transitions == step.record.transitions
    me.writes()
    assert me.candidate.until_s is not None


def test_only_who_leads_releases(me: One, leader: One) -> None:
    released = leader.candidate.release(NOW)
    assert released is not None
    assert (released.record.holder, released.record.duration_s) == ("", 1)
    other = One("other")
    other.looks(of("me_1"))
    assert other.candidate.release(NOW) is None
    assert isinstance(One("third").looks(released.record), Update)


@pytest.mark.parametrize(("lease_s", "renew_s", "retry_s"), [(10, 10, 2), (10, 11, 2), (10, 7, 6), (10, 7, 7)])
def test_times_by_which_nobody_gives_up_in_time_are_refused(lease_s: int, renew_s: float, retry_s: float) -> None:
    with pytest.raises(ValueError, match=r"a leader (that can't renew|renews) its Lease"):
        Timing(lease_s, renew_s, retry_s)


def test_a_container_that_was_started_again_takes_over_from_itself_at_once() -> None:
    def of_pod(name: str, *, is_alone: bool = True) -> One:
        made = One()
        made.candidate = Candidate(Identity(name, "2", is_alone), TIMING)
        return made

    again = of_pod("pod-a").looks(of("pod-a_1"))
    assert isinstance(again, Update)
    assert (again.record.holder, again.record.transitions) == ("pod-a_2", 4)
    assert isinstance(of_pod("pod-a").looks(of("pod-ab_1")), Wait)
    assert isinstance(of_pod("pod-a").looks(of("pod-b_1")), Wait)
    # On one machine there may be several of the same name.
    assert isinstance(of_pod("pod-a", is_alone=False).looks(of("pod-a_1")), Wait)
