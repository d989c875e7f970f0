"""A reset's writers are killed, frozen and superseded, and a successor goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.campaign.carrying import Carried
from support.campaign.outcome import Ended
from support.campaign.schedule import Carrier, Run
from support.clients import ClientKind, GroupProtocol
from support.history import Phase as EndPhase
from support.history import Place, ResetBegin, ResetEnd
from support.life_story import Target, TargetKind
from support.reset_trial import Cell, Trial
from tidegate.resources.reset import ResetPhase

BACK = Run("r0", Target(TargetKind.SHIFT_BY, -40), (0, 2))
WRITER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.result import RunResult
from tidegate.resources.reset import ResetPhase
from tidegate.reset.store import StaleAttempt
from tidegate.reset.directory_store import DirectoryRunStore

folder, document = sys.argv[2:]
store = DirectoryRunStore(Path(folder), document)
attempt = store.begin_attempt()
request = store.load().request
now = lambda: datetime.now(UTC)
if attempt == 1:
    [selected] = request.selections
    rows = tuple(PartitionPlan(selected.topic, n, "", 50, 10, 0, 90) for n in sorted(selected.partitions))
    store.write_plan(Plan(request.run_id, request.group_id, now(), rows), attempt=attempt)
try:
    store.append(Progress(ResetPhase.PAUSING, now(), attempt, round=1), attempt=attempt)
    while attempt == 1:
        time.sleep(0.01)
        store.append(Progress(ResetPhase.PAUSING, now(), attempt, round=1), attempt=attempt)
    store.finish(RunResult(ResetPhase.SUCCEEDED, "Applied", f"by attempt {attempt}", now()), attempt=attempt)
except StaleAttempt:
    sys.exit(3)
"""
"""The first one is at it for ever, the next one finishes."""
TWICE = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from tidegate.reset.codec import encode_result
from tidegate.reset.model.result import RunResult
from tidegate.resources.reset import ResetPhase

folder = Path(sys.argv[1])
is_first = not (folder / "begun").exists()
(folder / "begun").touch()
while is_first and not (folder / "over").exists():
    time.sleep(0.01)
print(encode_result(RunResult(ResetPhase.SUCCEEDED, "Applied", f"first: {is_first}", datetime.now(UTC))))
(folder / "over").touch()
"""
"""Backfills: the first one goes on once the next one is over."""


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """Without brokers and clients: only what it asks, stores and tells is of interest."""
    trial = Trial("127.0.0.1:1", Cell(kind=ClientKind.JAVA, protocol=GroupProtocol.CLASSIC), tmp_path)
    yield trial
    trial.kafka.close()


def _carried_out(carried: Carried, meanwhile: Callable[[], object]) -> Ended:
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(carried.carry_out, None)
        while carried.begun_at(ResetPhase.PAUSING) is None:
            assert not ending.done(), ending.result()
            threading.Event().wait(0.01)
        meanwhile()
        return ending.result(60)


def test_a_killed_writer_is_followed_by_another(trial: Trial) -> None:
    carried = Carried(trial, BACK, max_standstill_s=5, writer=[sys.executable, "-c", WRITER])
    ended = _carried_out(carried, lambda: carried.kill(0.1))

    assert (ended.phase, ended.message, ended.launches) == ("Succeeded", "by attempt 2", 2)
    assert not carried.troubles
    begin, end = trial.told
    places = tuple(Place(trial.topic, number, 10) for number in (0, 2))
    stored = carried.stored()
    assert stored is not None
    first = stored.journal[0].at.timestamp()
    assert begin == ResetBegin(first, "r0", places, ((trial.topic, 0), (trial.topic, 2)))
    assert isinstance(end, ResetEnd)
    assert (end.run, end.phase) == ("r0", EndPhase.SUCCEEDED)
    assert end.t > begin.t


def test_a_superseded_writer_awakes_and_ends(trial: Trial) -> None:
    carried = Carried(trial, BACK, max_standstill_s=5, writer=[sys.executable, "-c", WRITER])
    ended = _carried_out(carried, lambda: carried.freeze(0.1, supersede=True))

    assert (ended.phase, ended.message, ended.launches) == ("Succeeded", "by attempt 2", 2)
    assert not carried.troubles


def test_a_backfill_is_over_once_the_superseded_writer_has_done_it_too(trial: Trial) -> None:
    backfill = Run("r0", Target(TargetKind.EARLIEST), (0, 2), Carrier.BACKFILL)
    carried = Carried(trial, backfill, max_standstill_s=5, writer=[sys.executable, "-c", TWICE, str(trial.folder)])
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(carried.carry_out, None)
        while not (trial.folder / "begun").exists():
            threading.Event().wait(0.01)
        carried.freeze(0.5, supersede=True)
        ended = ending.result(60)

    assert (ended.phase, ended.message, ended.launches) == ("Succeeded", "first: True", 2)
    _, end = trial.told
    assert isinstance(end, ResetEnd)
    assert end.message == "first: True"


def test_there_is_nobody_to_kill_when_it_is_over(trial: Trial) -> None:
    carried = Carried(trial, BACK, max_standstill_s=5, writer=[sys.executable, "-c", WRITER])
    _carried_out(carried, lambda: carried.kill(0.0))

    assert carried.is_over
    assert not carried.kill(0.0)
    assert not carried.freeze(1.0)


def test_what_was_never_done_is_not_undone(trial: Trial) -> None:
    undo = Run("r1", Target(TargetKind.UNDO, "r0"), (0, 2))
    carried = Carried(trial, undo, max_standstill_s=5, writer=[sys.executable, "-c", "raise SystemExit('started')"])
    ended = carried.carry_out(None)

    assert (ended.phase, ended.reason, ended.launches) == ("", "UndoRunNotFound", 0)
    assert not trial.told
