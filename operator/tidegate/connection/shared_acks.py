"""Whether consumers of several tenants write one ack topic, where each can acknowledge in another's name. Pure.

Kafka grants topics, not records. Tenants are told apart by their namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.status import Said
from tidegate.resources.conditions import SHARED_ACK_TOPIC

OTHER_CONNECTIONS: Final = "OtherConnections"
ALLOWED_NAMESPACES: Final = "AllowedNamespaces"


def sharing(live: Live, others: Iterable[Live]) -> Said:
    """The condition of a connection whose cluster is known; ``others``: all that are open, itself among them.

    Of other connections only the number is said: whoever reads one connection need not know of the others.
    """
    topic = live.connection.acks_topic
    same = {
        other.namespace
        for other in others
        if (other.cluster_id, other.connection.acks_topic) == (live.cluster_id, topic)
        and other.namespace != live.namespace
    }
    listed = [one.name for one in live.allow.namespaces if one.name != live.namespace]
    if live.cluster_id and same:
        return Said(
            SHARED_ACK_TOPIC,
            True,
            OTHER_CONNECTIONS,
            f"KafkaConnections of {len(same)} other namespace(s) also use ack topic {topic} of a cluster with this id: "
            "whoever may write to it can acknowledge a pause in another's name. If these tenants do not trust "
            "each other, give each connection a spec.controlTopic.ackTopic of its own",
        )
    if listed:
        return Said(
            SHARED_ACK_TOPIC,
            True,
            ALLOWED_NAMESPACES,
            f"spec.allow.namespaces lets {len(listed)} other namespace(s) use this connection, and so its ack topic "
            f"{topic}: a consumer of one namespace may acknowledge a pause in the name of a consumer of another. If "
            "these namespaces do not trust each other that far, give each a connection with a "
            "spec.controlTopic.ackTopic of its own",
        )
    return Said(SHARED_ACK_TOPIC, None)
