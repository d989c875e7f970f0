"""What keeping offsets tells Prometheus, in the operator's registry."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class RetentionMetrics:
    """Gauges by policy: what an alert has to name. All methods belong to the event loop's thread.

    ``now_s``: the time in seconds since the epoch, asked for by the thread that serves the metrics.
    """

    def __init__(self, registry: CollectorRegistry, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._left = Gauge(
            "tidegate_offsets_expire_seconds",
            "How long until the first offset of a policy's group expires, as far as known; absent where none does.",
            ["namespace", "policy"],
            registry=registry,
        )
        self._guarded = Gauge(
            "tidegate_guarded_groups", "Groups whose offsets have a retention of their own.", registry=registry
        )
        self._renewals = Counter(
            "tidegate_offset_renewals", "Offsets that were committed again, unchanged, to keep them.", registry=registry
        )
        self._restored = Counter(
            "tidegate_offsets_restored", "Expired offsets that were put back from a snapshot.", registry=registry
        )
        self._known: set[tuple[str, str]] = set()
        self._kept: set[tuple[str, str]] = set()

    def group_is(self, namespace: str, policy: str, *, expires_s: float | None, kept: bool) -> None:
        """``expires_s``: when, in seconds since the epoch; ``None`` where nothing expires, or nobody knows when.

        What is left is counted down by whoever reads it, so that it goes on while the cluster cannot be looked at.
        """
        key = (namespace, policy)
        if expires_s is None:
            self._drop(key)
        else:
            self._known.add(key)
            self._left.labels(namespace, policy).set_function(lambda: max(0.0, expires_s - self._now_s()))
        (self._kept.add if kept else self._kept.discard)(key)
        self._guarded.set(len(self._kept))

    def gone(self, namespace: str, policy: str) -> None:
        self._drop((namespace, policy))
        self._kept.discard((namespace, policy))
        self._guarded.set(len(self._kept))

    def renewed(self, offsets: int) -> None:
        self._renewals.inc(offsets)

    def restored(self, offsets: int) -> None:
        self._restored.inc(offsets)

    def _drop(self, key: tuple[str, str]) -> None:
        if key in self._known:
            self._known.discard(key)
            self._left.remove(*key)
