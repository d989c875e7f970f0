"""One schedule, carried out on real brokers by real clients, and judged by its history."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, assert_never

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from support.campaign.carrying import Carried
from support.campaign.outcome import NO_END, Ended, Outcome, Truth
from support.campaign.schedule import BROKERS, Fault, FaultKind, Schedule, Step
from support.clients import ConsumerFleet
from support.deliveries import Partition
from support.history import History, Hold, read
from support.history_checker import judge
from support.life_story import TargetKind
from support.reset_trial import Trial
from tidegate.admin.service import Pauses
from tidegate.clock import SystemClock
from tidegate.control.standing import PartitionStanding
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.wire import Wire
from tidegate.reset.store import Run as StoredRun

PROPERTIES: Final = {
    # A KIP-848 member's session is the broker's to say; by default one that crashed is missed after 45 s.
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
}
"""What the brokers of the campaign are told besides."""

_FLOW_S: Final = 90.0
_DRAIN: Final = timedelta(seconds=5)
_LOOK_S: Final = 0.02
_QUIET_S: Final = 2.0
"""For how long partitions are paused where nothing else takes its time."""


class Performance:
    """One schedule's only performance. ``commit``: of what is tried."""

    def __init__(self, schedule: Schedule, cluster: KafkaCluster, commit: str) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._commit = commit
        self._at = datetime.now(UTC)  # of a trial that never began
        self._trial: Trial | None = None
        self._documents: dict[str, StoredRun] = {}
        self._ended: list[Ended] = []
        self._struck: list[str] = []
        self._troubles: list[str] = []
        self._joining = threading.Lock()

    def perform(self) -> Outcome:
        """Carry it out and judge it. Raises what a client or the stack fails with: then `broken` tells the outcome."""
        schedule, self._at = self._schedule, datetime.now(UTC)
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-campaign-") as folder,
            Trial(
                self._cluster.bootstrap,
                schedule.cell,
                Path(folder),
                processes=schedule.cell.members,
                name=f"campaign-{schedule.seed}",
            ) as trial,
        ):
            self._trial = trial
            for step in schedule.steps:
                self._step(trial, step)
            trial.fleet.wait_flowing(trial.partitions, timeout=_FLOW_S)
            trial.producer.stop()
            trial.fleet.wait_read_to(trial.producer.ends(), _FLOW_S)
            trial.committed()
            outcome = self._outcome(trial.history(drained=True))
        # Hundreds of topics, each there three times, would slow the brokers down. The verdict is there all the same.
        with contextlib.suppress(KafkaException, TimeoutError):
            AdminClient({"bootstrap.servers": trial.bootstrap}).delete_topics([trial.topic])[trial.topic].result(30)
        return outcome

    def broken(self, error: BaseException) -> Outcome:
        """What came of it when it failed with this error: its history up to there is judged as well."""
        kept = self._trial.kept if self._trial is not None else None
        return self._outcome(read(kept) if kept is not None else None, broken=f"{type(error).__name__}: {error}")

    def _outcome(self, history: History | None, broken: str = "") -> Outcome:
        schedule = self._schedule
        judgement = judge(history) if history is not None else None
        findings = [str(finding) for finding in judgement.findings] if judgement is not None else []
        findings += self._untrue_counts(judgement.begun) if judgement is not None else []
        findings += self._troubles
        findings += [f"{run.name}: {run.message}" for run in self._ended if run.reason == NO_END]
        truth = Truth.UNTRUE if findings else Truth.BROKEN if broken else Truth.TRUE
        findings += [broken] if broken else []
        if findings and not broken and self._trial is not None:
            self._trial.keep_history(history)
        kept = self._trial.kept if self._trial is not None else None
        return Outcome(
            seed=schedule.seed,
            at=f"{self._at:%Y-%m-%dT%H:%M:%SZ}",
            commit=self._commit,
            digest=schedule.digest,
            client=schedule.cell.client,
            group=schedule.cell.group,
            application=schedule.application,
            schedule=str(schedule),
            truth=truth,
            runs=tuple(self._ended),
            struck=tuple(self._struck),
            findings=tuple(findings),
            history=kept.name if kept is not None else "",
            reread=sum(judgement.reread.values()) if judgement is not None else 0,
            stale=sum(judgement.stale.values()) if judgement is not None else 0,
            took_s=round((datetime.now(UTC) - self._at).total_seconds(), 1),
        )

    def _untrue_counts(self, begun: Mapping[str, Collection[Partition]]) -> list[str]:
        """Of how many partitions a run says that they are read from its target on, and of how many the history does."""
        said = {name: stored.result.begun for name, stored in self._documents.items() if stored.result is not None}
        return [
            f"untrue-count: {name} says that {count} partition(s) have begun, and it was {len(begun.get(name, ()))}"
            for name, count in said.items()
            if count is not None and count > len(begun.get(name, ()))
        ]

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, trial: Trial, step: Step) -> None:
        trial.fleet.wait_flowing(trial.partitions, timeout=_FLOW_S)
        threading.Event().wait(step.rest_s)
        with _paused(trial, step.paused):
            self._carry_out(trial, step)
            if step.paused and not step.runs:
                threading.Event().wait(_QUIET_S)
        trial.committed()

    def _carry_out(self, trial: Trial, step: Step) -> None:
        standstill_s = self._schedule.max_standstill_s
        carried = [Carried(trial, run, max_standstill_s=standstill_s) for run in step.runs]
        began = time.time()
        with ThreadPoolExecutor(max(1, len(carried) + len(step.faults))) as pool:
            ends = [pool.submit(one.carry_out, self._undone(one)) for one in carried]
            strikes = [pool.submit(self._strike, trial, fault, carried, began) for fault in step.faults]
            self._ended += [end.result() for end in ends]
            for strike in strikes:
                strike.result()
        for one in carried:
            self._troubles += one.troubles
            if (stored := one.stored()) is not None:
                self._documents[one.run.name] = stored

    def _undone(self, carried: Carried) -> StoredRun | None:
        to = carried.run.to
        return self._documents.get(str(to.value)) if to.kind is TargetKind.UNDO else None

    # --- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, trial: Trial, fault: Fault, carried: Sequence[Carried], began: float) -> None:
        of = carried[fault.run] if carried else None
        if _comes(fault, of, began) and self._act(trial, fault, of):
            self._struck.append(fault.kind)

    def _act(self, trial: Trial, fault: Fault, of: Carried | None) -> bool:
        match fault.kind:
            case FaultKind.WRITER_KILLED | FaultKind.WRITER_FROZEN | FaultKind.WRITER_SUPERSEDED:
                assert of is not None
                if fault.kind is FaultKind.WRITER_KILLED:
                    return of.kill(fault.for_s)
                return of.freeze(fault.for_s, supersede=fault.kind is FaultKind.WRITER_SUPERSEDED)
            case FaultKind.CONSUMER_KILLED | FaultKind.CONSUMER_FROZEN | FaultKind.CONSUMER_JOINS:
                return self._disturb_consumers(trial.fleet, fault)
            case FaultKind.BROKER_KILLED | FaultKind.BROKER_FROZEN:
                self._disturb_broker(trial, fault)
                return True
            case _:
                assert_never(fault.kind)

    def _disturb_consumers(self, fleet: ConsumerFleet, fault: Fault) -> bool:
        if fault.kind is FaultKind.CONSUMER_JOINS:
            self._join(fleet)
            return True
        members = fleet.members()
        if not members:
            return False
        index = fleet.process_of(members[fault.victim % len(members)])
        if fault.kind is FaultKind.CONSUMER_KILLED:
            fleet.kill_process(index)
            threading.Event().wait(fault.for_s)
            self._join(fleet)
            return True
        fleet.pause_process(index)
        try:
            threading.Event().wait(fault.for_s)
        finally:
            fleet.resume_process(index)
        return True

    def _join(self, fleet: ConsumerFleet) -> None:
        with self._joining:  # two faults at once would draw one name
            fleet.add()

    def _disturb_broker(self, trial: Trial, fault: Fault) -> None:
        victim = (_coordinator(trial) + fault.victim) % BROKERS
        if fault.kind is FaultKind.BROKER_KILLED:
            self._cluster.kill(victim)
            try:
                threading.Event().wait(fault.for_s)
            finally:
                self._cluster.restart(victim)
            return
        pid = self._cluster.pid(victim)
        os.kill(pid, signal.SIGSTOP)
        try:
            threading.Event().wait(fault.for_s)
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _paused(trial: Trial, numbers: Sequence[int]) -> Iterator[None]:
    """What is told to be paused has to stand still; a pause that says of itself that it failed is none."""
    if not numbers:
        yield
        return
    pauses = Pauses(trial.kafka, SystemClock(), holder="campaign")
    outcomes: dict[TopicPartition, PartitionStanding | Exception] = {}
    wanted = [TopicPartition(trial.topic, number) for number in numbers]
    pauses.pause(trial.group, wanted, outcomes.__setitem__, drain_timeout=_DRAIN)
    paused = tuple(
        (p.topic, p.partition) for p, said in sorted(outcomes.items()) if isinstance(said, PartitionStanding)
    )
    trial.tell(Hold(time.time(), paused, "pause"))
    try:
        yield
    finally:
        trial.tell(Hold(time.time(), paused, "resume"))
        pauses.resume(trial.group, wanted)


def _comes(fault: Fault, of: Carried | None, began: float) -> bool:
    """Wait for the fault's moment; whether it comes."""
    since = began if fault.phase is None else None
    while True:
        if since is None and of is not None and fault.phase is not None:
            since = of.begun_at(fault.phase)
        if since is not None and time.time() >= since + fault.after_s:
            return of is None or not of.is_over
        if of is not None and of.is_over:
            return False
        threading.Event().wait(_LOOK_S)


def _coordinator(trial: Trial) -> int:
    with contextlib.closing(Wire(Connection(trial.bootstrap))) as wire:
        node, _, _ = wire.coordinator(trial.group)
    return node
