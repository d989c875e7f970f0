"""Why an OffsetMirror may not copy between two clusters. Pure."""

from __future__ import annotations

from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.offset_mirror.status import CLUSTER_CHANGED, SAME_CLUSTER
from tidegate.resources.conditions import OBSERVING, Refusal
from tidegate.resources.offset_mirror import OffsetMirrorStatus


def refusal_of(status: OffsetMirrorStatus, source: Live, target: Live) -> Refusal | None:
    """Why nothing may be copied between these clusters."""
    if target.observes:
        return Refusal(OBSERVING, f"{observes(target.label)}: nothing is copied")
    if source.cluster_id and source.cluster_id == target.cluster_id:
        says = f"KafkaConnections {source.label} and {target.label} reach the same cluster, {source.cluster_id}"
        return Refusal(SAME_CLUSTER, says)
    told = ((source, status.source_cluster), (target, status.target_cluster))
    for live, before in told:
        if before is not None and live.cluster_id and before != live.cluster_id:
            says = (
                f"KafkaConnection {live.label} reaches cluster {live.cluster_id}, and what was copied is of cluster "
                f"{before}: have it reach that one, or create another OffsetMirror"
            )
            return Refusal(CLUSTER_CHANGED, says)
    return None
