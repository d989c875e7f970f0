"""What of the brokers themselves matters to committed offsets and to resets. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.seen import ClusterSeen
from tidegate.kafka.capabilities import NOT_TRIED
from tidegate.resources.connection import GroupKind, Support

RETENTION: Final = "offsets.retention.minutes"
KAFKAS_RETENTION: Final = 7 * 24 * 60
_SHORT: Final = 24 * 60
COMPARED: Final = (RETENTION, "offsets.retention.check.interval.ms", "group.max.size", "group.consumer.max.size")

_KNOWN: Final = "By DescribeConfigs of each broker"


def of_brokers(cluster: ClusterSeen) -> Iterator[Finding]:
    yield from _short_retention(cluster)
    yield from _different(cluster)
    for kind in GroupKind:
        yield from _capability(kind, cluster)


def _short_retention(cluster: ClusterSeen) -> Iterator[Finding]:
    minutes = cluster.numbers(RETENTION)
    if minutes and minutes[0] < KAFKAS_RETENTION:
        yield Finding(
            FindingKind.SHORT_RETENTION,
            Severity.CRITICAL if minutes[0] < _SHORT else Severity.WARNING,
            f"{RETENTION} is {minutes[0]:,}, {minutes[0] / 1440:.3g} days",
            _KNOWN,
        )


def _different(cluster: ClusterSeen) -> Iterator[Finding]:
    for name in COMPARED:
        values = sorted({settings[name] for settings in cluster.settings if name in settings})
        if len(values) > 1:
            yield Finding(FindingKind.BROKERS_DIFFER, Severity.WARNING, f"{name} is {' and '.join(values)}", _KNOWN)


def _capability(kind: GroupKind, cluster: ClusterSeen) -> Iterator[Finding]:
    """Groups that the brokers do not have, and those that can be reset, are no finding."""
    found = cluster.capabilities.get(kind)
    groups = "groups without members" if kind is GroupKind.EMPTY else f"live groups of kind {kind}"
    if found is None or kind is GroupKind.STREAMS:
        return
    if found.support is Support.UNSUPPORTED:
        yield Finding(
            FindingKind.BROKER_CAPABILITY,
            Severity.WARNING,
            f"no offsets are accepted for {groups}",
            f"{found.message[:1].upper()}{found.message[1:]}",
        )
    elif found.support is Support.UNKNOWN:
        probe = ": --probe tries it with groups of its own" if found.reason == NOT_TRIED else ""
        yield Finding(
            FindingKind.BROKER_CAPABILITY,
            Severity.INFO,
            f"whether offsets are accepted for {groups} is not known{probe}",
            f"{found.message[:1].upper()}{found.message[1:]}",
        )
