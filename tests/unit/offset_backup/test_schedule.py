"""When backups are made: once for each due time, whatever the operator and its clock did meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidegate.offset_backup.schedule import Attempt, Take, Wait, decide, due_at, is_late, retry_after

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def at(hour: int, minute: int = 0, *, day: int = 22) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("made", "attempt", "expected"),
    [
        pytest.param(None, None, Take(at(13)), id="a new schedule begins with what is due"),
        pytest.param(at(12), None, Take(at(13)), id="due"),
        pytest.param(at(13), None, Wait(at(14)), id="done"),
        pytest.param(at(9), None, Take(at(13), missed=3), id="three were missed, one is made"),
        pytest.param(at(12, 30), None, Take(at(13)), id="the last one was due by another schedule"),
        pytest.param(at(14), None, Wait(at(15)), id="the clock was set back"),
        pytest.param(at(18), None, Take(at(13)), id="the clock was ahead"),
        pytest.param(at(18), Attempt(at(13), at(13, 19), 2), Wait(at(13, 21)), id="the clock was ahead, and it failed"),
        pytest.param(at(12), Attempt(at(13)), Wait(at(14)), id="under way"),
        pytest.param(at(11), Attempt(at(12)), Wait(at(14)), id="the one before is still under way"),
        pytest.param(at(12), Attempt(at(13), at(13, 19), 2), Wait(at(13, 21)), id="failed just now"),
        pytest.param(at(12), Attempt(at(13), at(13, 18), 2), Take(at(13)), id="failed, and has waited"),
        pytest.param(at(11), Attempt(at(12), at(13, 19), 9), Take(at(13), missed=1), id="a newer one is due"),
        pytest.param(at(12), Attempt(at(13), at(13, 55), 1), Take(at(13)), id="failed in the future"),
    ],
)
def test_what_is_due_is_made_once(made: datetime | None, attempt: Attempt | None, expected: Take | Wait) -> None:
    assert decide(at(13, 20), HOUR, made, attempt) == expected


@pytest.mark.parametrize(
    ("made", "attempt", "asked", "expected"),
    [
        pytest.param(at(13), None, at(13, 10), Take(at(13, 10)), id="beside the schedule"),
        pytest.param(at(13, 10), None, at(13, 10), Wait(at(14)), id="it is there, and the schedule goes on"),
        pytest.param(at(13, 15), None, at(13, 10), Wait(at(14)), id="there is a newer one"),
        pytest.param(at(13), None, at(13, 21), Wait(at(14)), id="not before it is that time"),
        pytest.param(at(12), None, at(12, 30), Take(at(13)), id="what is due by now is newer"),
        pytest.param(None, None, at(13, 10), Take(at(13, 10)), id="the first"),
        pytest.param(at(13), Attempt(at(13, 5)), at(13, 10), Wait(at(14)), id="not beside another one"),
        pytest.param(at(13), Attempt(at(13, 10), at(13, 19), 2), at(13, 10), Wait(at(13, 21)), id="failed just now"),
        pytest.param(at(13), Attempt(at(13, 10), at(13, 19), 9), at(13, 10), Wait(at(14)), id="the schedule is sooner"),
        pytest.param(at(12), Attempt(at(13), at(13, 19), 9), at(13, 19), Take(at(13, 19)), id="asked after a failure"),
    ],
)
def test_one_that_is_asked_for_is_made_once(
    made: datetime | None, attempt: Attempt | None, asked: datetime, expected: Take | Wait
) -> None:
    assert decide(at(13, 20), HOUR, made, attempt, asked) == expected


def test_a_schedule_that_is_done_is_quiet_until_the_next_due_time() -> None:
    decision = decide(at(13, 59), HOUR, at(13), None)
    assert decision == Wait(at(14))
    assert decide(at(14), HOUR, at(13), None) == Take(at(14))


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (timedelta(hours=24), at(0)),
        (timedelta(hours=1), at(13)),
        (timedelta(minutes=5), at(13, 20)),
        (timedelta(hours=7), datetime.fromtimestamp(1_795_353_637 // 25_200 * 25_200, UTC)),
    ],
)
def test_due_times_are_multiples_since_1970(every: timedelta, due: datetime) -> None:
    assert due_at(datetime.fromtimestamp(1_795_353_637, UTC), every) == due  # 2026-11-22T13:20:37Z


def test_failures_are_tried_again_ever_more_slowly() -> None:
    assert [retry_after(n) / MINUTE for n in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]


def test_a_backup_is_late_after_two_schedules_without_one() -> None:
    assert not is_late(at(15), HOUR, at(13), at(0))
    assert is_late(at(15, 1), HOUR, at(13), at(0))
    assert not is_late(at(15), HOUR, None, at(13))
    assert is_late(at(15, 1), HOUR, None, at(13))


def test_a_backup_of_a_clock_that_was_ahead_does_not_keep_others_from_being_late() -> None:
    assert is_late(at(15, 1), HOUR, at(18), at(13))
    assert not is_late(at(15, 1), HOUR, at(16), at(13))


def test_after_a_suspension_two_schedules_begin_anew() -> None:
    assert not is_late(at(15), HOUR, at(1), at(13))
    assert is_late(at(15, 1), HOUR, at(1), at(13))
