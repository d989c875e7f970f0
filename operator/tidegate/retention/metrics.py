"""What keeping offsets tells Prometheus, in the operator's registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge


class RetentionMetrics:
    """Gauges by policy: what an alert has to name. All methods belong to the event loop's thread.

    ``now_s``: the time in seconds since the epoch, asked for by the thread that serves the metrics.
    """

    def __init__(self, registry: CollectorRegistry, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._left = Gauge(
            "tidegate_offsets_expire_seconds",
            "How long until the first offset of a policy's group expires, as far as known; absent if none does.",
            ["resource_namespace", "policy"],
            registry=registry,
        )
        self._guarded = Gauge(
            "tidegate_guarded_groups", "Groups whose offsets have a retention of their own.", registry=registry
        )
        self._renewals = Counter(
            "tidegate_offset_renewals", "Offsets that were committed again, unchanged, to keep them.", registry=registry
        )
        self._restored = Counter(
            "tidegate_offsets_restored", "Expired offsets that were restored from a snapshot.", registry=registry
        )
        self._of_groups = Gauge(
            "tidegate_group_offsets_expire_seconds",
            "How long until the first offset of one group of a policy for many groups expires, as far as known.",
            ["resource_namespace", "policy", "group"],
            registry=registry,
        )
        self._wholes = Gauge(
            "tidegate_policy_groups",
            "Groups of a policy for many groups, by the reason that its condition Retained would have for each alone.",
            ["resource_namespace", "policy", "reason"],
            registry=registry,
        )
        self._ends_s: dict[tuple[str, str], dict[str, float]] = {}
        """By policy and group, when the first offset expires."""
        self._kept: set[tuple[str, str, str]] = set()
        self._many: set[tuple[str, str, str]] = set()
        self._reasons: dict[tuple[str, str], frozenset[str]] = {}

    def group_is(
        self, namespace: str, policy: str, group: str, *, expires_s: float | None, kept: bool, many: bool = False
    ) -> None:
        """``expires_s``: when, in seconds since the epoch; ``None`` where nothing expires, or nobody knows when.
        ``many``: the policy has more than this group.

        What is left is counted down by whoever reads it, so that it goes on while the cluster cannot be looked at.
        """
        if expires_s is None:
            self._drop(namespace, policy, group)
        else:
            ends = self._ends_s.setdefault((namespace, policy), {})
            ends[group] = expires_s
            # Read by another thread: a copy is made in one step.
            first = self._left.labels(namespace, policy)
            first.set_function(lambda: self._until(min(tuple(ends.values()), default=0.0)))
            if many:
                own = self._of_groups.labels(namespace, policy, group)
                own.set_function(lambda: self._until(expires_s))
                self._many.add((namespace, policy, group))
        (self._kept.add if kept else self._kept.discard)((namespace, policy, group))
        self._guarded.set(len(self._kept))

    def gone(self, namespace: str, policy: str, group: str) -> None:
        self._drop(namespace, policy, group)
        self._kept.discard((namespace, policy, group))
        self._guarded.set(len(self._kept))

    def whole_is(self, namespace: str, policy: str, counts: Mapping[str, int]) -> None:
        """How many groups of a policy for many there are by reason."""
        for reason in self._reasons.get((namespace, policy), frozenset()) - counts.keys():
            self._wholes.remove(namespace, policy, reason)
        self._reasons[namespace, policy] = frozenset(counts)
        for reason, count in counts.items():
            self._wholes.labels(namespace, policy, reason).set(count)

    def whole_gone(self, namespace: str, policy: str) -> None:
        self.whole_is(namespace, policy, {})
        self._reasons.pop((namespace, policy), None)

    def renewed(self, offsets: int) -> None:
        self._renewals.inc(offsets)

    def restored(self, offsets: int) -> None:
        self._restored.inc(offsets)

    def _until(self, at_s: float) -> float:
        return max(0.0, at_s - self._now_s())

    def _drop(self, namespace: str, policy: str, group: str) -> None:
        if (namespace, policy, group) in self._many:
            self._many.discard((namespace, policy, group))
            self._of_groups.remove(namespace, policy, group)
        ends = self._ends_s.get((namespace, policy), {})
        if ends.pop(group, None) is not None and not ends:
            del self._ends_s[namespace, policy]
            self._left.remove(namespace, policy)
