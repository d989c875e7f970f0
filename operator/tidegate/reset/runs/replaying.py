"""A run whose group reads from its targets to the end of a replay: what is seen of that, how long it may take. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from tidegate.reset.applying.replay import ENDINGS, HELD, Replayed
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import Run
from tidegate.resources.replay import ReplayStatus
from tidegate.resources.reset import ResetPhase

ENDING_LIMIT: Final = timedelta(minutes=15)
"""How long it may take to move a group on once its replay has ended; then it is put back to where it was before."""

_SHOWN_IN: Final = timedelta(seconds=10)
"""A forecast is told once the replay has lasted for so long, and to so many seconds: any change is a write."""

_FORETOLD: Final = timedelta(days=365)
"""What lies further ahead is no forecast, and may be no date: so it is with one record of billions read so far."""


def began(run: Run) -> Progress | None:
    """The line that tells that the group has its targets, and reads from there to the ends."""
    return next((line for line in run.journal if line.phase is ResetPhase.REPLAYING), None)


def is_replaying(run: Run) -> bool:
    """Whether the group reads; nothing is done about it until every partition has reached its end."""
    return run.result is None and run.last is not None and run.last.phase is ResetPhase.REPLAYING


def is_held(run: Run | None) -> bool:
    """Whether its group stays where its replay has ended, by limits that are left until a pause holds it."""
    return run is not None and run.result is not None and run.result.reason == HELD


def _ending(run: Run) -> Progress | None:
    """The line since which the group is moved on from the end."""
    return next((line for line in run.journal if line.putting_back in ENDINGS), None)


def has_to_be_over_by(run: Run) -> datetime | None:
    """When a run has to be over: by its deadline; once it replays, by the time of that, and of what comes after."""
    replay, until, ending = began(run), run.request.until, _ending(run)
    if replay is None or until is None:
        return run.request.settings.deadline
    return replay.at + until.within if ending is None else ending.at + ENDING_LIMIT


def why_overdue(run: Run) -> str:
    """Of a run that was to be over by then, for people."""
    if _ending(run) is None:
        return f"the replay of reset {run.request.run_id} was not over within until.within"
    minutes = ENDING_LIMIT // timedelta(minutes=1)
    return (
        f"the replay of reset {run.request.run_id} reached its end, but the operator did not move its group on from "
        f"there within {minutes} minutes"
    )


def replay_status(run: Run, seen: Replayed | None, before: ReplayStatus | None, now: datetime) -> ReplayStatus | None:
    """What a status says; ``seen``: absent where nobody could look, so that what was known stays."""
    replay, until = began(run), run.request.until
    if replay is None or until is None or seen is None:
        return before
    return ReplayStatus(
        records=seen.records,
        read=seen.read,
        percent=_percent(seen),
        progress=f"{_percent(seen)}% ({seen.reached}/{seen.partitions} partitions)",
        partitions=seen.partitions,
        reached=seen.reached,
        started_at=replay.at,
        ends_by=replay.at + until.within,
        estimated_end=_estimated_end(replay.at, seen, now),
        waits_for=seen.waits_for or None,
    )


def ended_status(before: ReplayStatus | None, result: RunResult) -> ReplayStatus | None:
    """What stays in a status of a run that has ended."""
    if before is None or result.reason not in (*ENDINGS, HELD):
        return None if before is None else before.model_copy(update={"estimated_end": None, "waits_for": None})
    return before.model_copy(
        update={
            "read": before.records,
            "percent": 100,
            "reached": before.partitions,
            "progress": f"100% ({before.partitions}/{before.partitions} partitions)",
            "estimated_end": None,
            "waits_for": None,
        }
    )


def _percent(seen: Replayed) -> int:
    return 100 * seen.read // seen.records if seen.records else 100


def _estimated_end(since: datetime, seen: Replayed, now: datetime) -> datetime | None:
    """By how fast it was so far: absent before anything was read, and once all has, and where it is years away."""
    lasted = now - since
    if not 0 < seen.read < seen.records or lasted < _SHOWN_IN:
        return None
    left_s = lasted.total_seconds() * (seen.records - seen.read) / seen.read
    if left_s > _FORETOLD.total_seconds():
        return None
    at = now + timedelta(seconds=left_s)
    return at.replace(microsecond=0) - timedelta(seconds=at.second % 10)


def message(run: Run, seen: Replayed | None) -> str:
    """Of a run that replays, for people."""
    begins = f"reset {run.request.run_id} of group {run.request.group_id} is replaying"
    if seen is None:
        return begins
    said = (
        f"{begins}: {seen.read:,} of {seen.records:,} offset(s), {seen.reached} of {seen.partitions} partition(s) have"
    )
    said = f"{said} reached their end"
    if seen.waits_for:
        said = f"{said}; {seen.waits_for}"
    if seen.beyond:
        said = (
            f"{said}. {len(seen.beyond)} partition(s), e.g. {seen.beyond[0]}, are owned by members that have not said "
        )
        said = f"{said}that they run the agent, and may read beyond the end"
    return said
