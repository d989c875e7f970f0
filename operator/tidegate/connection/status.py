"""What a ``KafkaConnection``'s status says, from what was seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.control.topics import TopicsChecked
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Cluster
from tidegate.resources.conditions import (
    CONTROL_TOPICS,
    READY,
    find_condition,
    ready,
    reconciling,
    stalled,
    with_condition,
)
from tidegate.resources.connection import ConnectionStatus, FeaturesStatus

CONNECTED: Final = "Connected"
INVALID_SPEC: Final = "InvalidSpec"
BAD_SETTINGS: Final = "BadSettings"
KAFKA_UNAVAILABLE: Final = "KafkaUnavailable"
NOT_AUTHORIZED: Final = "NotAuthorized"
REFUSED: Final = "RefusedByKafka"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the connection cannot be used. ``needs_help``: somebody has to change something; else it is tried again."""

    reason: str
    message: str
    needs_help: bool


def trouble_of(failure: KafkaFailure) -> Trouble:
    match failure:
        case NotAuthorized():
            return Trouble(NOT_AUTHORIZED, str(failure), needs_help=True)
        case Refused():
            return Trouble(REFUSED, str(failure), needs_help=True)
        case _:
            return Trouble(KAFKA_UNAVAILABLE, str(failure), needs_help=False)


def status_of(
    before: ConnectionStatus,
    seen: Cluster | Trouble,
    topics: TopicsChecked | None = None,
    *,
    generation: int,
    now: datetime,
) -> ConnectionStatus:
    """The new status; equal to ``before`` when there is nothing new to say.

    ``topics``: about the control and ack topics, where a pause needs them; what is said of them stays otherwise.
    """
    if topics is not None:
        told = with_condition(
            before.conditions,
            CONTROL_TOPICS,
            topics.usable,
            reason=topics.reason,
            message=topics.message,
            generation=generation,
            now=now,
        )
        before = before.model_copy(update={"conditions": told})
    if isinstance(seen, Cluster):
        features = FeaturesStatus(
            consumer_protocol=seen.features.consumer_protocol,
            streams_protocol=seen.features.streams_protocol,
            native_pause=seen.features.native_pause,
        )
        return ConnectionStatus(
            observed_generation=generation,
            cluster_id=seen.cluster_id,
            brokers=len(seen.brokers),
            features=features,
            conditions=ready(
                before.conditions,
                reason=CONNECTED,
                message=f"cluster {seen.cluster_id} answers, {len(seen.brokers)} broker(s)",
                generation=generation,
                now=now,
            ),
        )
    message = seen.message
    said = find_condition(before.conditions, READY)
    if seen.reason == KAFKA_UNAVAILABLE and said is not None and said.reason == seen.reason:
        # The brokers' silence is worded a little differently each time; that is not worth a write.
        message = said.message if said.observed_generation == generation else message
    tell = stalled if seen.needs_help else reconciling
    conditions = tell(before.conditions, reason=seen.reason, message=message, generation=generation, now=now)
    return before.model_copy(update={"observed_generation": generation, "conditions": conditions})
