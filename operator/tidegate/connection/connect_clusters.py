"""What a connection says of Connect clusters that it names and that can't be reached. Pure."""

from __future__ import annotations

from tidegate.connection.live import Live
from tidegate.connection.status import Said
from tidegate.resources.conditions import CONNECT_CLUSTERS


def connect_clusters(live: Live) -> Said:
    """The condition of an open connection. All but the pauses of their connectors goes on without them."""
    if not live.connect_lacks:
        return Said(CONNECT_CLUSTERS, None)
    reasons = [reason for reason, _ in live.connect_lacks.values()]
    message = "; ".join(f"Connect cluster {name}: {message}" for name, (_, message) in live.connect_lacks.items())
    return Said(CONNECT_CLUSTERS, False, reasons[0], f"{message}. Its connectors are neither stopped nor resumed")
