"""What snapshots tell Prometheus, in the operator's registry."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge


class SnapshotMetrics:
    """Gauges by policy: what an alert has to name. All methods belong to the event loop's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._taken_at = Gauge(
            "tidegate_snapshot_timestamp_seconds",
            "When a policy's newest snapshot of offsets had been read, in seconds since 1970; 0 before the first.",
            ["namespace", "policy"],
            registry=registry,
        )
        self._schedule = Gauge(
            "tidegate_snapshot_schedule_seconds",
            "How often a policy's snapshots are due.",
            ["namespace", "policy"],
            registry=registry,
        )
        self._offsets = Gauge("tidegate_snapshot_offsets", "Offsets in it.", ["namespace", "policy"], registry=registry)
        self._unread = Gauge(
            "tidegate_snapshot_unread_groups",
            "Groups that could not be read for it.",
            ["namespace", "policy"],
            registry=registry,
        )
        self._attempts = Counter(
            "tidegate_snapshot_attempts", "Attempts to make one: Taken, Failed.", ["outcome"], registry=registry
        )
        for outcome in ("Taken", "Failed"):
            # Here before the first of its kind: a counter counts from the first value that Prometheus sees.
            self._attempts.labels(outcome)
        self._known: set[tuple[str, str]] = set()

    def policy_is(
        self, namespace: str, policy: str, *, taken_at: datetime | None, every_s: float, offsets: int, unread: int
    ) -> None:
        key = (namespace, policy)
        self._known.add(key)
        self._taken_at.labels(*key).set(0 if taken_at is None else taken_at.timestamp())
        self._schedule.labels(*key).set(every_s)
        self._offsets.labels(*key).set(offsets)
        self._unread.labels(*key).set(unread)

    def gone(self, namespace: str, policy: str) -> None:
        key = (namespace, policy)
        if key in self._known:
            self._known.discard(key)
            for gauge in (self._taken_at, self._schedule, self._offsets, self._unread):
                gauge.remove(*key)

    def ended(self, *, taken: bool) -> None:
        self._attempts.labels("Taken" if taken else "Failed").inc()
