"""The only broker is killed as resets pause their owners, or verify, and is away for a while: fifty resets each.

Each trial's whole history is judged. What was verified is not applied again, and no gate stays closed for much longer
than the outage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from devstack import KafkaCluster
from support.clients import ClientKind, GroupProtocol
from support.reset_trial import Cell, Outcome, Trial
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.resources.reset import ResetPhase, Way

ROUNDS = 10
AWAY_S = 20.0
LATE_S = 15.0
"""How much longer than the outage a gate may stay closed."""
MEETING_S = 90.0
LOOK_S = 0.1

CLASSIC = GroupProtocol.CLASSIC
CELLS = (
    Cell(kind=ClientKind.LIBRDKAFKA, protocol=CLASSIC, assignor="range", members=2),
    Cell(kind=ClientKind.LIBRDKAFKA, protocol=CLASSIC, assignor="range", members=2, agent=True),
    Cell(kind=ClientKind.LIBRDKAFKA, protocol=GroupProtocol.CONSUMER, assignor="uniform", members=2),
    Cell(kind=ClientKind.JAVA, protocol=CLASSIC, assignor="cooperative-sticky", members=2),
    Cell(kind=ClientKind.FRANZ_GO, protocol=CLASSIC, members=2),
)


class MeetingTrial(Trial):
    """Its runs come to a ``meeting`` as they reach ``phase`` for the first time."""

    meeting: threading.Barrier
    phase: ResetPhase
    met_in_round = 0
    """In which round the last run came to it."""

    def store(self, request: RunRequest) -> DirectoryRunStore:
        trial, met = self, False

        class Store(DirectoryRunStore):
            def append(self, progress: Progress, *, attempt: int) -> None:
                nonlocal met
                super().append(progress, attempt=attempt)
                if progress.phase is trial.phase and not progress.again and not met:
                    met, trial.met_in_round = True, progress.round
                    trial.meeting.wait()

        store = Store(self.folder, request.run_uid.replace("/", "-"))
        store.create(request)
        return store


class Gates:
    """How long gates of some groups stayed closed, by what the control topic says."""

    def __init__(self, bootstrap: str, groups: Sequence[str]) -> None:
        self._kafka = KafkaClient(Connection(bootstrap))
        self._seen: dict[str, list[tuple[float, bool]]] = {group: [] for group in groups}
        self._over = threading.Event()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                gates = self._kafka.control.read().gates
            except Unavailable:
                continue
            now = time.monotonic()
            for group, seen in self._seen.items():
                seen.append((now, any(True for _ in gates.of_group(group))))

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._kafka.close()

    def longest_s(self) -> Mapping[str, float]:
        """Up to the first look that saw them open again; an outage in which nobody could look counts."""
        longest = {}
        for group, seen in self._seen.items():
            spans = [0.0]
            begun: float | None = None
            for closed, looks in groupby(seen, key=lambda look: look[1]):
                first = next(looks)[0]
                if closed:
                    begun = first
                elif begun is not None:
                    spans.append(first - begun)
                    begun = None
            assert begun is None, f"a gate of {group} is closed still"
            longest[group] = max(spans)
        return longest


def _round(
    kafka: KafkaCluster, trials: Sequence[MeetingTrial], phase: ResetPhase, random: Random
) -> tuple[list[Outcome], list[str]]:
    """One reset of each trial's group, all of them met by the same death of the broker; and what was not as it should
    be besides."""
    [broker] = kafka.brokers
    dies = threading.Event()
    meeting = threading.Barrier(len(trials), action=dies.set, timeout=MEETING_S)
    for trial in trials:
        trial.wait_settled(0.5)
        trial.meeting, trial.phase = meeting, phase
    gates = Gates(kafka.bootstrap, [trial.group for trial in trials])
    with ThreadPoolExecutor(len(trials)) as pool, gates.watched():
        resets = [pool.submit(trial.reset) for trial in trials]
        assert dies.wait(MEETING_S), [r.exception() for r in resets if r.done()]
        # The runs go on meanwhile: it dies in one of their next steps.
        time.sleep(random.uniform(0.0, 1.5 if phase is ResetPhase.PAUSING else 0.8))
        killed = time.monotonic()
        kafka.kill(broker)
        time.sleep(AWAY_S)
        kafka.restart(broker)
        outage_s = time.monotonic() - killed
        outcomes = [reset.result(300) for reset in resets]
    faults = [
        f"a gate of {group} was closed for {closed_s:.1f} s, with an outage of {outage_s:.1f} s"
        for group, closed_s in gates.longest_s().items()
        if closed_s > outage_s + LATE_S
    ]
    # Whether who was made to leave commits to a group that is Empty by then is not known in the other ways.
    if phase is ResetPhase.VERIFYING:
        faults += [
            f"applied again after round {trial.met_in_round}: {outcome}"
            for trial, outcome in zip(trials, outcomes, strict=True)
            if outcome.rounds > trial.met_in_round and outcome.way in (Way.BARRIER, Way.GATED)
        ]
    return outcomes, faults


@pytest.mark.nightly
@pytest.mark.parametrize("phase", [ResetPhase.PAUSING, ResetPhase.VERIFYING])
def test_fifty_resets_outlive_the_only_broker(phase: ResetPhase, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    faults: list[str] = []
    random = Random(phase)
    with KafkaCluster.start() as kafka, ExitStack() as stack:
        trials = []
        for number, cell in enumerate(CELLS):
            folder = tmp_path / str(number)
            folder.mkdir()
            trials.append(stack.enter_context(MeetingTrial(kafka.bootstrap, cell, folder, seed=number)))
        for _ in range(ROUNDS):
            done, wrong = _round(kafka, trials, phase, random)
            print(*done, sep="\n")
            outcomes += done
            faults += [*wrong, *(str(o) for o in done if not o.is_good)]
        for trial in trials:
            faults += trial.complaints()
    assert not faults, "\n".join(faults)
    assert {o.way for o in outcomes} >= {Way.BARRIER, Way.GATED, Way.HANDOVER}
