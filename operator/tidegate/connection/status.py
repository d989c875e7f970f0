"""What a ``KafkaConnection``'s status says, from what was seen. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.control.topics import TopicsChecked
from tidegate.kafka.capabilities import Capabilities, Capability
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Cluster
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.resources.conditions import (
    AUDIT_TOPIC,
    CONTROL_TOPICS,
    MAX_MESSAGE,
    READY,
    Conditions,
    find_condition,
    is_true,
    ready,
    reconciling,
    stalled,
    with_condition,
    without_condition,
)
from tidegate.resources.connection import (
    CapabilitiesStatus,
    CapabilityStatus,
    ConnectionStatus,
    FeaturesStatus,
    GroupKind,
    Support,
)

CONNECTED: Final = "Connected"
INVALID_SPEC: Final = "InvalidSpec"
BAD_SETTINGS: Final = "BadSettings"
KAFKA_UNAVAILABLE: Final = "KafkaUnavailable"
NOT_AUTHORIZED: Final = "NotAuthorized"
REFUSED: Final = "RefusedByKafka"
CLUSTER_CHANGED: Final = "ClusterChanged"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the connection cannot be used. ``needs_help``: somebody has to change something; else it is tried again."""

    reason: str
    message: str
    needs_help: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A condition of its own, beside the connection's being ready. ``holds``: ``None`` takes it away."""

    type: str
    holds: bool | None
    reason: str = ""
    message: str = ""


def happenings(before: ConnectionStatus, after: ConnectionStatus, generation: int) -> tuple[KubeEvent, ...]:
    """What is news in a status, for Events: whether the connection is ready, and that it leads elsewhere."""
    told = []
    said, says = find_condition(before.conditions, READY), find_condition(after.conditions, READY)
    if says is not None and (said is None or (said.status, said.reason) != (says.status, says.reason)):
        kind = EventType.NORMAL if is_true(after.conditions, READY) else EventType.WARNING
        key = f"{generation}/{says.reason}/{says.last_transition_time.isoformat()}"
        told.append(KubeEvent(kind, says.reason, says.message, key))
    if before.cluster_id and before.cluster_id != after.cluster_id:
        text = (
            f"the connection now leads to cluster {after.cluster_id}, and led to cluster {before.cluster_id} before: "
            "what pauses and resets hold there stays held until somebody releases it "
            "(docs/how-to/release-held-partitions.md)"
        )
        key = f"{generation}/{CLUSTER_CHANGED}/{before.cluster_id}/{after.cluster_id}"
        told.append(KubeEvent(EventType.WARNING, CLUSTER_CHANGED, text, key))
    return tuple(told)


def with_said(conditions: Conditions, said: Said, *, generation: int, now: datetime) -> Conditions:
    if said.holds is None:
        return without_condition(conditions, said.type)
    return with_condition(
        conditions,
        said.type,
        said.holds,
        reason=said.reason,
        message=said.message,
        generation=generation,
        now=now,
    )


def trouble_of(failure: KafkaFailure) -> Trouble:
    match failure:
        case NotAuthorized():
            return Trouble(NOT_AUTHORIZED, str(failure), needs_help=True)
        case Refused():
            return Trouble(REFUSED, str(failure), needs_help=True)
        case _:
            return Trouble(KAFKA_UNAVAILABLE, str(failure), needs_help=False)


def capabilities_of(before: CapabilitiesStatus | None, found: Capabilities) -> CapabilitiesStatus:
    """What is known of the brokers, in the order of ``GroupKind``. Where nothing but words is new, they stay."""
    told = {row.groups.value: row for row in before.resets} if before is not None else {}
    rows = []
    for kind in GroupKind:
        if kind not in found:
            continue
        capability = found[kind]
        said = told.get(kind.value)
        same = said is not None and (said.support.value, said.reason) == (capability.support.value, capability.reason)
        message = said.message if said is not None and same else capability.message[:MAX_MESSAGE]
        rows.append(
            CapabilityStatus(
                groups=kind,
                support=capability.support,
                reason=capability.reason,
                message=message,
            )
        )
    return CapabilitiesStatus(resettable=_resettable(found), resets=tuple(rows))


def _resettable(found: Capabilities) -> str:
    marks = {Support.SUPPORTED: "", Support.UNKNOWN: "?"}
    named = [f"{kind.value.lower()}{marks[found[kind].support]}" for kind in GroupKind if _may_be(found.get(kind))]
    return ", ".join(named) or "none"


def _may_be(capability: Capability | None) -> bool:
    return capability is not None and capability.support in (Support.SUPPORTED, Support.UNKNOWN)


def with_audit(
    before: ConnectionStatus, checked: TopicsChecked | None, *, wanted: bool, generation: int, now: datetime
) -> ConnectionStatus:
    """With what was found about the audit topic; what is said of it stays where nothing was found out, and goes where
    none is ``wanted``."""
    if not wanted:
        told = tuple(c for c in before.conditions if c.type != AUDIT_TOPIC)
        return before if len(told) == len(before.conditions) else before.model_copy(update={"conditions": told})
    if checked is None:
        return before
    told = with_condition(
        before.conditions,
        AUDIT_TOPIC,
        checked.usable,
        reason=checked.reason,
        message=checked.message[:MAX_MESSAGE],
        generation=generation,
        now=now,
    )
    return before.model_copy(update={"conditions": told})


def _features_of(seen: Cluster) -> FeaturesStatus:
    return FeaturesStatus(
        consumer_protocol=seen.features.consumer_protocol,
        streams_protocol=seen.features.streams_protocol,
        native_pause=seen.features.native_pause,
    )


def _without_others_topics(before: ConnectionStatus, generation: int) -> ConnectionStatus:
    said = find_condition(before.conditions, CONTROL_TOPICS)
    if said is None or said.observed_generation == generation:
        return before
    return before.model_copy(update={"conditions": without_condition(before.conditions, CONTROL_TOPICS)})


def status_of(
    before: ConnectionStatus,
    seen: Cluster | Trouble,
    topics: TopicsChecked | None = None,
    capabilities: Capabilities | None = None,
    also: Collection[Said] = (),
    *,
    generation: int,
    now: datetime,
) -> ConnectionStatus:
    """The new status; equal to ``before`` when there is nothing new to say.

    ``topics``: about the control and ack topics, where a pause needs them; what is said of them stays otherwise, until
    it was said of another generation, which may have named other ones.
    ``capabilities``: likewise, what the brokers allow, as far as it was found out. ``also``: likewise, more conditions.
    """
    for other in also:
        conditions = with_said(before.conditions, other, generation=generation, now=now)
        before = before.model_copy(update={"conditions": conditions})
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
        before = before if topics is not None else _without_others_topics(before, generation)
        return ConnectionStatus(
            observed_generation=generation,
            cluster_id=seen.cluster_id,
            brokers=len(seen.brokers),
            features=_features_of(seen),
            capabilities=(
                before.capabilities if capabilities is None else capabilities_of(before.capabilities, capabilities)
            ),
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
