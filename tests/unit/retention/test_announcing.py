"""When the end of offsets is announced, by an operator that makes its passes no sooner than it has to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import pytest

from support.retention_world import FIRST, GROUP, KINDS, PLACE, World, leave_place
from tidegate.kafka.model import GroupType
from tidegate.kafka.offset_expiry import RetentionSettings

MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
WARN: Final = timedelta(seconds=20)
AT_MOST_LATE: Final = timedelta(seconds=5)


class Minutely(World):
    """Brokers that keep offsets for one minute, and look for expired ones once a second."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka.retention.brokers = RetentionSettings(60_000, 1_000)
        self.retention(guard=False, warnBefore="20s")
        self.told_at: list[tuple[str, datetime]] = []

    def follow(self, duration: timedelta) -> None:
        """Passes at the latest time that each of them allows for the next."""
        until, due = self.clock.now() + duration, self.clock.now()
        while self.clock.now() < until:
            if self.clock.now() >= due:
                kept = self.keep()
                self.told_at += [(happening.reason, self.clock.now()) for happening in kept.happenings]
                due = self.clock.now() + timedelta(seconds=kept.again_after_s)
            self.clock.sleep(0.5)
            self.kafka.retention.expire()

    def first(self, reason: str) -> datetime:
        return next(at for told, at in self.told_at if told == reason)


@pytest.fixture
def minutely() -> Iterator[Minutely]:
    made = Minutely()
    yield made
    made.loop.close()
    made.executor.shutdown()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before_s", [1, 7, 25], ids=str)
def test_both_announcements_come_in_time_whenever_the_policy_was_made(
    minutely: Minutely, kind: GroupType, before_s: int
) -> None:
    leave_place(minutely, kind)
    left = minutely.clock.now()
    minutely.clock.sleep(before_s)

    minutely.follow(2 * MINUTE)

    ends = minutely.first("OffsetsExpired")
    assert left + MINUTE - SECOND <= ends <= left + MINUTE + AT_MOST_LATE
    assert left + MINUTE - WARN - SECOND <= minutely.first("ExpiresSoon") <= left + MINUTE - WARN + AT_MOST_LATE


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_a_group_that_loses_its_members_between_two_looks_is_announced_in_time(
    minutely: Minutely, kind: GroupType
) -> None:
    consumer = minutely.consumer(kind)
    assert minutely.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, PLACE)
    first = minutely.keep()
    minutely.clock.sleep(0.1)
    consumer.close()
    left = minutely.clock.now()
    minutely.clock.sleep(first.again_after_s)

    minutely.follow(2 * MINUTE)

    assert minutely.first("ExpiresSoon") <= left + MINUTE - WARN + AT_MOST_LATE
    assert minutely.first("OffsetsExpired") <= left + MINUTE + AT_MOST_LATE


def test_a_warning_longer_than_the_retention_makes_no_look_at_members_more_frequent(minutely: Minutely) -> None:
    minutely.retention(guard=False, warnBefore="2m")
    consumer = minutely.consumer()
    assert minutely.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, PLACE)

    assert minutely.keep().again_after_s == MINUTE.total_seconds() / 8


def test_a_simple_consumer_that_repeats_its_commit_is_not_announced(minutely: Minutely) -> None:
    """Java's consumers commit each interval, whether they have moved or not."""
    minutely.kafka.commit_directly(GROUP, PLACE)

    for _ in range(12):
        minutely.follow(15 * SECOND)
        minutely.kafka.commit_directly(GROUP, PLACE)

    assert minutely.told_at == []
    assert minutely.committed == PLACE


def test_a_simple_consumer_that_moved_and_stopped_is_announced_by_its_last_commit(minutely: Minutely) -> None:
    minutely.kafka.commit_directly(GROUP, PLACE)
    minutely.follow(30 * SECOND)
    minutely.kafka.commit_directly(GROUP, {**PLACE, FIRST: 12})
    minutely.kafka.commit_directly(GROUP, {p: o + 1 for p, o in PLACE.items()})
    stopped = minutely.clock.now()

    minutely.follow(2 * MINUTE)

    assert stopped + MINUTE - WARN - SECOND <= minutely.first("ExpiresSoon") <= stopped + MINUTE - WARN + AT_MOST_LATE
    assert stopped + MINUTE <= minutely.first("OffsetsExpired") <= stopped + MINUTE + AT_MOST_LATE


def test_an_offset_that_goes_while_its_look_waits_for_its_turn_is_missed(
    minutely: Minutely, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass began before the end, and its look came after it: that is no deletion on purpose."""
    minutely.kafka.commit_directly(GROUP, PLACE)
    minutely.keep()
    minutely.clock.sleep(59.5)
    commits = minutely.kafka.retention.commits

    def later(group_id: str) -> object:
        minutely.clock.sleep(3)
        minutely.kafka.retention.expire()
        return commits(group_id)

    monkeypatch.setattr(minutely.kafka.retention, "commits", later)

    kept = minutely.keep()

    assert [happening.reason for happening in kept.happenings] == ["OffsetsExpired"]


def test_a_coordinator_whose_clock_is_ahead_has_not_deleted_on_purpose(minutely: Minutely) -> None:
    minutely.kafka.commit_directly(GROUP, PLACE)
    minutely.keep()
    minutely.clock.sleep(57)
    minutely.kafka.retention.brokers = RetentionSettings(55_000, 1_000)
    minutely.kafka.retention.expire()

    kept = minutely.keep()

    assert [happening.reason for happening in kept.happenings] == ["OffsetsExpired"]
