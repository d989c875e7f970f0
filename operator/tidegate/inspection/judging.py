"""From what was seen to what is found. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidegate.inspection import partitions
from tidegate.inspection.expiry import expiring, unsubscribed
from tidegate.inspection.findings import Finding
from tidegate.inspection.resetting import Verdict, full, not_resettable, verdict
from tidegate.inspection.seen import ClusterSeen, GroupSeen


def judged(seen: GroupSeen, cluster: ClusterSeen, soon: timedelta) -> tuple[tuple[Finding, ...], Verdict]:
    """The findings on one group, and whether and how it could be reset. ``soon``: within which offsets that expire are
    critical."""
    found = verdict(seen, cluster)
    return tuple(_findings(seen, cluster, soon, found)), found


def _findings(seen: GroupSeen, cluster: ClusterSeen, soon: timedelta, found: Verdict) -> Iterator[Finding]:
    for check in partitions.CHECKS:
        yield from check(seen, cluster)
    yield from expiring(seen, cluster, soon)
    yield from unsubscribed(seen, cluster)
    yield from not_resettable(found)
    yield from full(seen, cluster)
