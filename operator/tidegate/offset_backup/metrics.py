"""What backups tell Prometheus, in the operator's registry."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge


class BackupMetrics:
    """Gauges by ``OffsetBackup``: what an alert has to name. All methods belong to the event loop's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._taken_at = Gauge(
            "tidegate_backup_timestamp_seconds",
            "When an OffsetBackup's newest backup had been read, in seconds since 1970; 0 before the first.",
            ["resource_namespace", "backup"],
            registry=registry,
        )
        self._schedule = Gauge(
            "tidegate_backup_schedule_seconds",
            "How often backups of an OffsetBackup are due.",
            ["resource_namespace", "backup"],
            registry=registry,
        )
        self._offsets = Gauge(
            "tidegate_backup_offsets",
            "Offsets in its newest backup.",
            ["resource_namespace", "backup"],
            registry=registry,
        )
        self._unread = Gauge(
            "tidegate_backup_unread_groups",
            "Groups that could not be read for its newest backup.",
            ["resource_namespace", "backup"],
            registry=registry,
        )
        self._attempts = Counter(
            "tidegate_backup_attempts", "Attempts to make a backup: Taken, Failed.", ["outcome"], registry=registry
        )
        for outcome in ("Taken", "Failed"):
            # Here before the first of its kind: a counter counts from the first value that Prometheus sees.
            self._attempts.labels(outcome)
        self._known: set[tuple[str, str]] = set()

    def backup_is(
        self, namespace: str, backup: str, *, taken_at: datetime | None, every_s: float, offsets: int, unread: int
    ) -> None:
        key = (namespace, backup)
        self._known.add(key)
        self._taken_at.labels(*key).set(0 if taken_at is None else taken_at.timestamp())
        self._schedule.labels(*key).set(every_s)
        self._offsets.labels(*key).set(offsets)
        self._unread.labels(*key).set(unread)

    def gone(self, namespace: str, backup: str) -> None:
        key = (namespace, backup)
        if key in self._known:
            self._known.discard(key)
            for gauge in (self._taken_at, self._schedule, self._offsets, self._unread):
                gauge.remove(*key)

    def ended(self, *, taken: bool) -> None:
        self._attempts.labels("Taken" if taken else "Failed").inc()
