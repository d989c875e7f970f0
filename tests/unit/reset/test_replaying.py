"""What is said of a replay, and by when it has to be over: pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidegate.kafka.connection import Connection
from tidegate.reset.applying.replay import CONTINUED, RETURNED, Replayed
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, RunRequest, Until
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs.replaying import ENDING_LIMIT, ended_status, has_to_be_over_by, replay_status, why_overdue
from tidegate.reset.store import Run
from tidegate.resources.replay import Then
from tidegate.resources.reset import ResetPhase

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BEGAN = NOW - timedelta(minutes=20)
RUN = Run(
    RunRequest(
        run_uid="uid/one",
        run_id="one",
        group_id="payments",
        connection=Connection("127.0.0.1:9092"),
        selections=(),
        target=ToOffset(10),
        settings=ApplySettings(deadline=NOW - timedelta(minutes=10)),
        until=Until(Then.RETURN, timedelta(hours=1), records=40),
    ),
    journal=(Progress(ResetPhase.REPLAYING, BEGAN, 1, round=1),),
)
ENDING = replace(
    RUN, journal=(*RUN.journal, Progress(ResetPhase.PAUSING, NOW, 2, round=2, putting_back=RETURNED, message="it has"))
)


@pytest.mark.parametrize(
    ("read", "ends"),
    [
        (0, None),
        (1, None),  # long after the year 9999
        (500_000_000, NOW + timedelta(minutes=20)),
        (1_000_000_000, None),
    ],
)
def test_when_it_may_have_ended_is_told_by_how_fast_it_was_so_far(read: int, ends: datetime | None) -> None:
    told = replay_status(RUN, Replayed(1_000_000_000, read, 3, 0), None, NOW)
    assert told is not None
    assert told.estimated_end == ends


@pytest.mark.parametrize(("reason", "percent"), [(RETURNED, 100), (CONTINUED, 100), ("Deleted", 50)])
def test_a_status_says_how_far_a_run_that_has_ended_had_come(reason: str, percent: int) -> None:
    before = replay_status(RUN, Replayed(1_000, 500, 3, 1, waits_for="a pause"), None, NOW)

    after = ended_status(before, RunResult(ResetPhase.SUCCEEDED, reason, "", NOW))

    assert after is not None
    assert (after.percent, after.read, after.reached) == (percent, 10 * percent, 3 if percent == 100 else 1)
    assert after.progress == f"{percent}% ({after.reached}/3 partitions)"
    assert (after.estimated_end, after.waits_for) == (None, None)


def test_moving_the_group_on_has_a_time_of_its_own_and_says_so_when_that_is_over() -> None:
    assert has_to_be_over_by(RUN) == BEGAN + timedelta(hours=1)
    assert "was not over within until.within" in why_overdue(RUN)
    assert has_to_be_over_by(ENDING) == NOW + ENDING_LIMIT
    assert "reached its end, but the operator did not move its group on" in why_overdue(ENDING)
