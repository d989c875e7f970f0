"""What mirrors tell Prometheus, in the operator's registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from tidegate.resources.offset_mirror import CarriedGroups, MirrorCounts, MirrorLag

_STATES = ("InSync", "Seeding", "Lagging", "Stopped", "Drifted")


class MirrorMetrics:
    """Gauges by ``OffsetMirror``: what an alert has to name. The methods belong to the event loop's thread, but for
    ``wrote``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._partitions = Gauge(
            "tidegate_mirror_partitions",
            "Partitions of an OffsetMirror by the state of their copies; those that are Drifted are no longer Stopped.",
            ["resource_namespace", "mirror", "state"],
            registry=registry,
        )
        self._lag = Gauge(
            "tidegate_mirror_lag_records",
            "How many offsets its copies lag behind the source; NaN if that is unknown for all of them.",
            ["resource_namespace", "mirror"],
            registry=registry,
        )
        self._age = Gauge(
            "tidegate_mirror_lag_seconds",
            "The longest time since one of its copies had all that the source had then; infinite where one has not had "
            "it yet or nothing can be copied, 0 where there are no copies.",
            ["resource_namespace", "mirror"],
            registry=registry,
        )
        self._groups = Gauge(
            "tidegate_mirror_groups",
            "Groups whose offsets it carries over: Carried, InUse at the target, Failed.",
            ["resource_namespace", "mirror", "state"],
            registry=registry,
        )
        self._records = Counter(
            "tidegate_mirror_records", "Offsets that were written to copies as records.", registry=registry
        )
        self._bytes = Counter(
            "tidegate_mirror_bytes", "Bytes of record batches that were written to copies.", registry=registry
        )
        self._known: set[tuple[str, str]] = set()

    def mirror_is(
        self, namespace: str, mirror: str, counts: MirrorCounts, lag: MirrorLag | None, groups: CarriedGroups | None
    ) -> None:
        key = (namespace, mirror)
        self._known.add(key)
        stopped = counts.stopped - counts.drifted
        values = (counts.in_sync, counts.seeding, counts.lagging, stopped, counts.drifted)
        for state, value in zip(_STATES, values, strict=True):
            self._partitions.labels(*key, state).set(value)
        self._lag.labels(*key).set(float("nan") if lag is None else lag.records)
        unknown = float("inf") if counts.total else 0.0
        self._age.labels(*key).set(unknown if lag is None or lag.seconds is None else lag.seconds)
        if groups is not None:
            for state, value in (("Carried", groups.carried), ("InUse", groups.in_use), ("Failed", groups.failed)):
                self._groups.labels(*key, state).set(value)

    def rests(self, namespace: str, mirror: str, hindered: MirrorCounts | None) -> None:
        """Nothing is copied. ``hindered``: the partitions as they were counted last, where that is not as it was asked
        for: without these figures an alert would end, or not begin, because nothing can be copied."""
        self.gone(namespace, mirror)
        if hindered is None:
            return
        key = (namespace, mirror)
        self._known.add(key)
        self._partitions.labels(*key, "Stopped").set(hindered.stopped - hindered.drifted)
        self._partitions.labels(*key, "Drifted").set(hindered.drifted)
        self._lag.labels(*key).set(float("nan"))
        self._age.labels(*key).set(float("inf"))

    def gone(self, namespace: str, mirror: str) -> None:
        key = (namespace, mirror)
        if key not in self._known:
            return
        self._known.discard(key)
        for gauge in (self._partitions, self._lag, self._age, self._groups):
            gauge.remove_by_labels({"resource_namespace": namespace, "mirror": mirror})

    def wrote(self, records: int, size: int) -> None:
        """From any thread."""
        self._records.inc(records)
        self._bytes.inc(size)
