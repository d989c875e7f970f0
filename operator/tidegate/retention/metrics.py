"""What keeping offsets tells Prometheus, in the operator's registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.retention.plan import Plan


@dataclass(frozen=True, slots=True)
class Ends:
    """When the first offset of a group expires, in seconds since the epoch. ``first_s``: of those of which nobody
    prevents it; ``None``: nothing expires, or nobody knows when. ``kept_s``: of those that are committed again before,
    by ``due_s``."""

    first_s: float | None = None
    kept_s: float | None = None
    due_s: float = 0.0

    def at(self, now_s: float) -> float | None:
        """When by now. What is kept counts once it should have been committed again, for a quarter of what was left of
        its time by then: passes may be late, and the cluster may not answer for a while."""
        kept_s = self.kept_s
        if kept_s is not None and now_s <= self.due_s + max(0.0, kept_s - self.due_s) / 4:
            kept_s = None
        return min((at for at in (self.first_s, kept_s) if at is not None), default=None)


def ends_of(plan: Plan, *, refused: bool) -> Ends:
    """``refused``: the brokers do not let offsets be kept."""
    kept, first_ms = plan.prevented, plan.expires_ms
    if kept is None or refused:
        return Ends(None if first_ms is None else first_ms / 1000)
    return Ends(None if kept.others_ms is None else kept.others_ms / 1000, kept.first_ms / 1000, kept.due_ms / 1000)


class RetentionMetrics(Collector):
    """Gauges by policy: what an alert has to name. All methods but ``collect`` belong to the event loop's thread.

    ``now_s``: the time in seconds since the epoch, asked for by the thread that serves the metrics.
    """

    def __init__(self, registry: CollectorRegistry, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._guarded = Gauge(
            "tidegate_guarded_groups", "Groups whose offsets have a retention of their own.", registry=registry
        )
        self._renewals = Counter(
            "tidegate_offset_renewals", "Offsets that were committed again, unchanged, to keep them.", registry=registry
        )
        self._restored = Counter(
            "tidegate_offsets_restored", "Expired offsets that were restored from a snapshot.", registry=registry
        )
        self._wholes = Gauge(
            "tidegate_policy_groups",
            "Groups of a policy for many groups, by the reason that its condition Retained would have for each alone.",
            ["resource_namespace", "policy", "reason"],
            registry=registry,
        )
        self._ends: dict[tuple[str, str, str], Ends] = {}
        """By namespace and name of the policy, and group."""
        self._kept: set[tuple[str, str, str]] = set()
        self._many: set[tuple[str, str, str]] = set()
        self._reasons: dict[tuple[str, str], frozenset[str]] = {}
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What is left is counted down here, by the thread that serves the metrics, so that it goes on while the
        cluster can't be looked at."""
        left = GaugeMetricFamily(
            "tidegate_offsets_expire_seconds",
            "How long until the first offset of a policy's group expires, as far as known; absent if none does, or if "
            "each is committed again before.",
            labels=["resource_namespace", "policy"],
        )
        of_groups = GaugeMetricFamily(
            "tidegate_group_offsets_expire_seconds",
            "The same for one group of a policy for many groups.",
            labels=["resource_namespace", "policy", "group"],
        )
        now_s = self._now_s()
        firsts: dict[tuple[str, str], float] = {}
        # A copy is made in one step.
        for (namespace, policy, group), ends in tuple(self._ends.items()):
            at_s = ends.at(now_s)
            if at_s is None:
                continue
            until_s = max(0.0, at_s - now_s)
            firsts[namespace, policy] = min(until_s, firsts.get((namespace, policy), until_s))
            if (namespace, policy, group) in self._many:
                of_groups.add_metric([namespace, policy, group], until_s)
        for key, until_s in firsts.items():
            left.add_metric(key, until_s)
        yield left
        yield of_groups

    def group_is(self, namespace: str, policy: str, group: str, ends: Ends, *, kept: bool, many: bool = False) -> None:
        """``many``: the policy has more than this group."""
        key = (namespace, policy, group)
        (self._many.add if many else self._many.discard)(key)
        self._ends[key] = ends
        (self._kept.add if kept else self._kept.discard)(key)
        self._guarded.set(len(self._kept))

    def gone(self, namespace: str, policy: str, group: str) -> None:
        key = (namespace, policy, group)
        self._ends.pop(key, None)
        self._many.discard(key)
        self._kept.discard(key)
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
