"""What the status of a policy for many groups says of their new partitions. Pure."""

from __future__ import annotations

from tidegate.policy.feature import WholeView
from tidegate.resources.discovery import MAX_NEWEST, DiscoveryStatus
from tidegate.resources.policy import PolicyStatus


def together(whole: WholeView) -> PolicyStatus:
    """The status with the sums, and the partitions that were last found for any group."""
    rows = [status.discovery for status in whole.each.values() if status.discovery is not None]
    earlier = whole.status.discovery.newest if whole.status.discovery is not None else ()
    found = [*earlier, *(found for row in rows for found in row.newest)]
    # A partition that was found again is one of a topic that was made again.
    found.sort(key=lambda f: (f.seen_at or whole.now, f.topic, f.partition))
    newest = {(f.topic, f.partition): f for f in found}
    latest = sorted(newest.values(), key=lambda f: (f.seen_at or whole.now, f.topic, f.partition), reverse=True)
    discovery = DiscoveryStatus(
        initial_discovery_finished=bool(rows) and all(row.initial_discovery_finished for row in rows),
        assigned=sum(row.assigned or 0 for row in rows),
        unassigned_initial=sum(row.unassigned_initial or 0 for row in rows),
        starts_committed=sum(row.starts_committed or 0 for row in rows),
        began_at_end=sum(row.began_at_end or 0 for row in rows),
        backfilled=sum(row.backfilled or 0 for row in rows),
        newest=tuple(latest[:MAX_NEWEST]),
    )
    return whole.status.model_copy(update={"discovery": discovery})
