"""What stuck records tell Prometheus, in the operator's registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class StuckMetrics:
    """Gauges by policy and group: what an alert has to name. All methods belong to the event loop's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stuck = Gauge(
            "tidegate_stuck_records",
            "Partitions of a group that do not get past a record; absent for groups without any.",
            ["resource_namespace", "policy", "group"],
            registry=registry,
        )
        self._judged = Gauge(
            "tidegate_judged_partitions",
            "Partitions of a policy's groups of which enough was seen to tell whether they are stuck at a record.",
            ["resource_namespace", "policy"],
            registry=registry,
        )
        self._found = Counter(
            "tidegate_stuck_records_found", "Records that were found to hold up their consumer.", registry=registry
        )
        self._groups: dict[tuple[str, str], dict[str, int]] = {}
        """By policy and group, how many partitions are judged."""
        self._told: set[tuple[str, str, str]] = set()

    def group_is(self, namespace: str, policy: str, group: str, *, stuck: int, judged: int) -> None:
        if stuck:
            self._stuck.labels(namespace, policy, group).set(stuck)
            self._told.add((namespace, policy, group))
        else:
            self._none_stuck(namespace, policy, group)
        groups = self._groups.setdefault((namespace, policy), {})
        groups[group] = judged
        self._judged.labels(namespace, policy).set(sum(groups.values()))

    def gone(self, namespace: str, policy: str, group: str) -> None:
        self._none_stuck(namespace, policy, group)
        groups = self._groups.get((namespace, policy))
        if groups is None or groups.pop(group, None) is None:
            return
        if groups:
            self._judged.labels(namespace, policy).set(sum(groups.values()))
        else:
            del self._groups[namespace, policy]
            self._judged.remove(namespace, policy)

    def found(self, records: int) -> None:
        self._found.inc(records)

    def _none_stuck(self, namespace: str, policy: str, group: str) -> None:
        if (namespace, policy, group) in self._told:
            self._told.discard((namespace, policy, group))
            self._stuck.remove(namespace, policy, group)
