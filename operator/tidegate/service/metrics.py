"""What the operator tells Prometheus. All names begin with ``tidegate_``; units are in the names."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tidegate.kube.ports import APPROVALS, BACKUPS, CONNECTIONS, MIRRORS, PAUSES, POLICIES, RESETS
from tidegate.resources.pause import PausePhase
from tidegate.resources.reset import Engine, ResetPhase

_STANDSTILL_S: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 15, 30, 60)
_ACK_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120)
_AT_WORK: Final = frozenset(
    phase.value
    for phase in ResetPhase
    if not phase.is_final and phase not in (ResetPhase.PENDING, ResetPhase.AWAITING_APPROVAL, ResetPhase.REPLAYING)
)
_LOOKS: Final = ("ok", "failed")
_NEW_PARTITIONS: Final = ("Given", "Standing", "Overtaken", "Backfilled", "TooOld")
_SWEPT: Final = ("pause", "reset")
_LOOK_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


@dataclass(frozen=True, slots=True)
class _Pause:
    phase: str
    paused: int
    since: datetime | None
    by_leading: bool


class Metrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        """One piece, because it is a list: each metric with its name and what it tells."""
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._leader = Gauge("tidegate_leader", "1 in the leader, 0 in a standby.", registry=self.registry)
        self._runs = Gauge("tidegate_runs", "Newest runs by phase.", ["phase"], registry=self.registry)
        self._waiting = Gauge(
            "tidegate_runs_waiting", "Resets that wait for another reset of their group.", registry=self.registry
        )
        oldest_run = Gauge(
            "tidegate_oldest_run_age_seconds",
            "How long the reset that has been in progress for the longest time has been so, not counting the time for "
            "which it waited for approval, for another reset or for the end of its replay; 0 if none is.",
            registry=self.registry,
        )
        oldest_run.set_function(self._oldest_run_s)
        self._finished = Counter(
            "tidegate_runs_finished", "Runs that ended.", ["outcome", "reason"], registry=self.registry
        )
        self._standstill = Histogram(
            "tidegate_standstill_seconds",
            "The longest time for which a partition of a run was stalled.",
            buckets=_STANDSTILL_S,
            registry=self.registry,
        )
        self._replayed = Counter(
            "tidegate_records_replayed", "Records that successful resets sent to be read again.", registry=self.registry
        )
        self._skipped = Counter(
            "tidegate_records_skipped", "Records that successful resets skipped.", registry=self.registry
        )
        self._launches = Counter("tidegate_job_launches", "Starts of jobs.", ["engine"], registry=self.registry)
        self._deaths = Counter(
            "tidegate_job_deaths", "Jobs that ended without a result.", ["engine"], registry=self.registry
        )
        self._pauses = Gauge("tidegate_pauses", "ConsumerGroupPauses by phase.", ["phase"], registry=self.registry)
        self._paused = Gauge(
            "tidegate_paused_partitions",
            "Paused partitions; one that two pauses hold counts twice.",
            registry=self.registry,
        )
        self._led = Gauge(
            "tidegate_led_pauses",
            "ConsumerGroupPauses that lead their group: its partitions are read again if the operator stays away.",
            registry=self.registry,
        )
        oldest = Gauge(
            "tidegate_oldest_pause_age_seconds",
            "How long the partition that was paused first has been paused; 0 if none is.",
            registry=self.registry,
        )
        oldest.set_function(self._oldest_pause_s)
        self._acked = Histogram(
            "tidegate_hold_to_ack_seconds",
            "From writing a hold to seeing its owner's ack; as fine as TIDEGATE_PAUSE_TICK_S.",
            buckets=_ACK_S,
            registry=self.registry,
        )
        self._unreadable = Gauge(
            "tidegate_unreadable_control_records",
            "Records of the control and ack topics that Tidegate can't read.",
            ["connection"],
            registry=self.registry,
        )
        self._looks = Counter(
            "tidegate_observations",
            "Looks at a Kafka cluster.",
            ["connection", "outcome"],
            registry=self.registry,
        )
        self._look_seconds = Histogram(
            "tidegate_observe_seconds",
            "How long a look at a Kafka cluster took.",
            buckets=_LOOK_S,
            registry=self.registry,
        )
        self._described = Gauge(
            "tidegate_observed_groups", "Consumer groups described in one look.", ["connection"], registry=self.registry
        )
        self._polls = Counter(
            "tidegate_discovery_polls",
            "Looks at the topics of a Kafka cluster for new partitions.",
            ["connection", "outcome"],
            registry=self.registry,
        )
        self._poll_seconds = Histogram(
            "tidegate_discovery_poll_seconds",
            "How long a look for new partitions took.",
            buckets=_LOOK_S,
            registry=self.registry,
        )
        self._new_partitions = Counter(
            "tidegate_new_partitions",
            "New partitions of guarded groups: Given a start in time, Standing (has one, or its agent decides), "
            "Overtaken (began at the end before), Backfilled (sent back to the start), TooOld (than latest.maxAge).",
            ["outcome"],
            registry=self.registry,
        )
        self._up = Gauge(
            "tidegate_connection_up",
            "Whether a Kafka cluster answers (1) or not (0).",
            ["connection"],
            registry=self.registry,
        )
        self._frozen = Gauge(
            "tidegate_connection_frozen",
            "Whether a KafkaConnection is frozen (1), so that nothing new begins through it, or not (0).",
            ["connection"],
            registry=self.registry,
        )
        self._passes = Histogram(
            "tidegate_reconcile_seconds", "How long a pass over a resource took.", ["kind"], registry=self.registry
        )
        self._failures = Counter(
            "tidegate_reconcile_failures", "Passes that failed and are repeated.", ["kind"], registry=self.registry
        )
        self._writes = Counter(
            "tidegate_status_writes", "Status writes to the API server.", ["kind"], registry=self.registry
        )
        self._swept = Counter(
            "tidegate_holds_swept",
            "Holds that the operator has released because their resource or run was over or gone.",
            ["kind"],
            registry=self.registry,
        )
        self._unobserved = Gauge(
            "tidegate_unobserved_resources", "Resources whose generation is not observed yet.", registry=self.registry
        )
        self._newer = Gauge(
            "tidegate_written_by_newer_version",
            "Resources that the operator leaves alone because a newer version of Tidegate has written what is stored "
            "of them.",
            ["kind"],
            registry=self.registry,
        )
        self._newer_ones: dict[str, set[str]] = {}
        self._phases: dict[str, str] = {}
        self._at_work: dict[str, float] = {}
        self._waiters: set[str] = set()
        self._known_pauses: dict[str, _Pause] = {}
        for phase in ResetPhase:
            self._runs.labels(phase.value).set(0)
        for pause_phase in PausePhase:
            self._pauses.labels(pause_phase.value).set(0)
        # A counter counts from the first value that Prometheus sees: it has to be there before the first event.
        for engine in (Engine.DIRECT, Engine.SPARK):
            self._launches.labels(engine.value)
            self._deaths.labels(engine.value)
        for outcome in _NEW_PARTITIONS:
            self._new_partitions.labels(outcome)
        for kind in _SWEPT:
            self._swept.labels(kind)
        for watched in (CONNECTIONS, PAUSES, POLICIES, RESETS, APPROVALS, BACKUPS, MIRRORS):
            self._failures.labels(watched.kind)
            self._writes.labels(watched.kind)
        for kind in (PAUSES.kind, POLICIES.kind, RESETS.kind, BACKUPS.kind, MIRRORS.kind):
            self._newer_ones[kind] = set()
            self._newer.labels(kind)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run_is(self, uid: str, phase: str | None, *, waiting: bool = False, since: datetime | None = None) -> None:
        """Where a reset stands; ``phase`` ``None``: it has not begun, or is gone.

        ``since``: when it began, or last went on after it had waited; for one that an earlier process has begun.
        """
        if self._phases.get(uid) == phase and (uid in self._waiters) is waiting:
            return  # most passes bring no news, and what follows counts all
        if phase not in _AT_WORK or waiting:
            self._at_work.pop(uid, None)
        elif uid not in self._at_work:
            self._at_work[uid] = since.timestamp() if since is not None and uid not in self._phases else time.time()
        if phase is None:
            self._phases.pop(uid, None)
        else:
            self._phases[uid] = phase
        (self._waiters.add if waiting else self._waiters.discard)(uid)
        tally = Tally(self._phases.values())
        for known in ResetPhase:
            self._runs.labels(known.value).set(tally[known.value])
        self._waiting.set(len(self._waiters))

    def _oldest_run_s(self) -> float:
        return _age_s(tuple(self._at_work.values()))

    def runs_may_end(self, ends: Iterable[tuple[str, str]]) -> None:
        """The outcomes and reasons that are known before any run has ended."""
        for outcome, reason in ends:
            self._finished.labels(outcome, reason)

    def run_finished(
        self, outcome: str, reason: str, *, standstill_s: float | None, replayed: int, skipped: int
    ) -> None:
        self._finished.labels(outcome, reason).inc()
        if standstill_s is not None:
            self._standstill.observe(standstill_s)
        if outcome == ResetPhase.SUCCEEDED.value:
            self._replayed.inc(replayed)
            self._skipped.inc(skipped)

    def job_launched(self, engine: str) -> None:
        self._launches.labels(engine).inc()

    def job_died(self, engine: str) -> None:
        self._deaths.labels(engine).inc()

    # --- pauses -------------------------------------------------------------------------------------------------------

    def pause_is(
        self,
        uid: str,
        phase: str | None,
        paused: int = 0,
        since: datetime | None = None,
        *,
        by_leading: bool = False,
    ) -> None:
        """Where a pause stands: how many partitions stand still, the first of them since when; whether a group is led
        for it.

        ``phase`` ``None``: it was not looked at yet, or is gone.
        """
        pause = None if phase is None else _Pause(phase, paused, since, by_leading)
        if self._known_pauses.get(uid) == pause:
            return  # most passes bring no news, and what follows counts all
        if pause is None:
            self._known_pauses.pop(uid, None)
        else:
            self._known_pauses[uid] = pause
        tally = Tally(pause.phase for pause in self._known_pauses.values())
        for known in PausePhase:
            self._pauses.labels(known.value).set(tally[known.value])
        self._paused.set(sum(pause.paused for pause in self._known_pauses.values()))
        self._led.set(sum(pause.by_leading for pause in self._known_pauses.values()))

    def hold_acked(self, seconds: float) -> None:
        self._acked.observe(seconds)

    def _oldest_pause_s(self) -> float:
        return _age_s(p.since.timestamp() for p in tuple(self._known_pauses.values()) if p.since is not None)

    # --- clusters -----------------------------------------------------------------------------------------------------

    def looked(
        self, connection: str, seconds: float, *, groups: int, failed: bool, unreadable: int | None = None
    ) -> None:
        """A look at a cluster. ``unreadable``: such records of the control topics, where the look was at those too."""
        for outcome in _LOOKS:
            self._looks.labels(connection, outcome)
        self._looks.labels(connection, "failed" if failed else "ok").inc()
        self._look_seconds.observe(seconds)
        self._described.labels(connection).set(groups)
        if unreadable is not None:
            self._unreadable.labels(connection).set(unreadable)

    def polled(self, connection: str, seconds: float, *, failed: bool) -> None:
        """A look for new partitions."""
        for outcome in _LOOKS:
            self._polls.labels(connection, outcome)
        self._polls.labels(connection, "failed" if failed else "ok").inc()
        self._poll_seconds.observe(seconds)

    def polls_gone(self, connection: str) -> None:
        """Nobody looks for new partitions of this cluster any more."""
        for outcome in _LOOKS:
            self._polls.remove(connection, outcome)

    def new_partition(self, outcome: str) -> None:
        """One new partition of a guarded group is taken care of, or was begun at its end by somebody."""
        self._new_partitions.labels(outcome).inc()

    def swept(self, kind: str, holds: int) -> None:
        """Holds that were left behind were released; ``kind``: of a ``pause`` or a ``reset``."""
        self._swept.labels(kind).inc(holds)

    def connection_is(self, connection: str, *, up: bool, frozen: bool) -> None:
        self._up.labels(connection).set(int(up))
        self._frozen.labels(connection).set(int(frozen))

    def connection_gone(self, connection: str) -> None:
        self._up.remove(connection)
        self._frozen.remove(connection)
        self._described.remove(connection)
        self._unreadable.remove(connection)
        for outcome in _LOOKS:
            self._looks.remove(connection, outcome)
        self.polls_gone(connection)

    # --- passes -------------------------------------------------------------------------------------------------------

    def passed(self, kind: str, seconds: float, *, failed: bool) -> None:
        self._passes.labels(kind).observe(seconds)
        if failed:
            self._failures.labels(kind).inc()

    def newer_is(self, kind: str, uid: str, newer: bool) -> None:
        """Whether a resource is left alone, as a newer version has written what is stored of it."""
        known = self._newer_ones[kind]
        if (uid in known) is not newer:
            (known.add if newer else known.discard)(uid)
            self._newer.labels(kind).set(len(known))

    def wrote_status(self, kind: str) -> None:
        self._writes.labels(kind).inc()

    def leads(self, leading: bool) -> None:
        self._leader.set(leading)

    def unobserved(self, count: int) -> None:
        self._unobserved.set(count)


def _age_s(times: Iterable[float]) -> float:
    """Of the oldest. ``times``: from a copy, as the thread that serves the metrics asks, and another one adds some."""
    now = time.time()
    return max(0.0, now - min(times, default=now))
