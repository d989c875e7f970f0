"""What the operator tells Prometheus. All names begin with ``tidegate_``; units are in the names."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tidegate.reset.model import Phase

_STANDSTILL_S: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 15, 30, 60)
_LOOK_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Metrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._runs = Gauge("tidegate_runs", "Resets by phase.", ["phase"], registry=self.registry)
        self._waiting = Gauge(
            "tidegate_runs_waiting", "Resets that wait for another policy's run.", registry=self.registry
        )
        self._finished = Counter(
            "tidegate_runs_finished", "Resets that ended, by outcome.", ["outcome", "reason"], registry=self.registry
        )
        self._standstill = Histogram(
            "tidegate_standstill_seconds",
            "How long a run's partitions stood still at most.",
            buckets=_STANDSTILL_S,
            registry=self.registry,
        )
        self._replayed = Counter(
            "tidegate_records_replayed", "Records that successful resets sent to be read again.", registry=self.registry
        )
        self._skipped = Counter(
            "tidegate_records_skipped", "Records that successful resets skipped.", registry=self.registry
        )
        self._launches = Counter(
            "tidegate_job_launches", "Starts of reset jobs, by engine.", ["engine"], registry=self.registry
        )
        self._deaths = Counter(
            "tidegate_job_deaths", "Reset jobs that ended without a result.", ["engine"], registry=self.registry
        )
        self._looks = Counter(
            "tidegate_observations",
            "Looks at a Kafka cluster, by outcome.",
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
        self._up = Gauge(
            "tidegate_connection_up",
            "Whether a Kafka cluster answers (1) or not (0).",
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
        self._unobserved = Gauge(
            "tidegate_unobserved_resources", "Resources whose generation is not observed yet.", registry=self.registry
        )
        self._phases: dict[str, str] = {}
        self._waiters: set[str] = set()
        for phase in Phase:
            self._runs.labels(phase.value).set(0)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run_is(self, uid: str, phase: str | None, *, waiting: bool = False) -> None:
        """Where a policy's newest run stands; ``None``: it has none, or the policy is gone."""
        if phase is None:
            self._phases.pop(uid, None)
        else:
            self._phases[uid] = phase
        (self._waiters.add if waiting else self._waiters.discard)(uid)
        tally = Tally(self._phases.values())
        for known in Phase:
            self._runs.labels(known.value).set(tally[known.value])
        self._waiting.set(len(self._waiters))

    def run_finished(
        self, outcome: str, reason: str, *, standstill_s: float | None, replayed: int, skipped: int
    ) -> None:
        self._finished.labels(outcome, reason).inc()
        if standstill_s is not None:
            self._standstill.observe(standstill_s)
        if outcome == Phase.SUCCEEDED.value:
            self._replayed.inc(replayed)
            self._skipped.inc(skipped)

    def job_launched(self, engine: str) -> None:
        self._launches.labels(engine).inc()

    def job_died(self, engine: str) -> None:
        self._deaths.labels(engine).inc()

    # --- clusters -----------------------------------------------------------------------------------------------------

    def looked(self, connection: str, seconds: float, *, groups: int, failed: bool) -> None:
        self._looks.labels(connection, "failed" if failed else "ok").inc()
        self._look_seconds.observe(seconds)
        self._described.labels(connection).set(groups)

    def connection_is(self, connection: str, *, up: bool) -> None:
        self._up.labels(connection).set(int(up))

    def connection_gone(self, connection: str) -> None:
        self._up.remove(connection)
        self._described.remove(connection)

    # --- passes -------------------------------------------------------------------------------------------------------

    def passed(self, kind: str, seconds: float, *, failed: bool) -> None:
        self._passes.labels(kind).observe(seconds)
        if failed:
            self._failures.labels(kind).inc()

    def wrote_status(self, kind: str) -> None:
        self._writes.labels(kind).inc()

    def unobserved(self, count: int) -> None:
        self._unobserved.set(count)
