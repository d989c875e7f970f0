"""How a sink connector is stopped and goes back to what it was, step by step. Pure.

As with workloads (:mod:`tidegate.pause.workloads`), what it goes back to is recorded in the pause's status before
anything is done to it. A record's phase: ``Pausing`` until it was seen stopped, ``Paused`` from then on, ``Degraded``
while somebody else resumes it again and again, ``Resuming`` from the moment it is to go back. Of several pauses the
last one that lets go gives it back; who comes while it is stopped takes over what the others have recorded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidegate.connect.ports import FAILED, PAUSED, RUNNING, STOPPED, ConnectCluster, Connector, TargetState
from tidegate.kafka.names import is_allowed
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.kube.unreadable import ABANDON
from tidegate.pause.model import LookedAtConnector, Seen, SetConnector
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import ConnectorGoal, ConsumerGroupPauseSpec, PausePhase, StoppedConnector

CONNECTOR_NOT_FOUND: Final = "ConnectorNotFound"
CONNECTOR_UNSETTLED: Final = "ConnectorUnsettled"
CONNECTOR_FAILED: Final = "ConnectorFailed"
NOT_A_SINK: Final = "NotASinkConnector"
OTHER_GROUP: Final = "GroupOfConnector"
CONNECT_TOO_OLD: Final = "ConnectTooOld"
CONNECTOR_LEFT: Final = "ConnectorLeft"
STOPPING_CONNECTOR: Final = "StoppingConnector"
RESUMING_CONNECTOR: Final = "ResumingConnector"

MOST_STOPS: Final = 4
WITHIN: Final = timedelta(hours=1)
"""So often within this time it is stopped, and not more often, whoever resumes it."""

_SETTLED: Final = frozenset({RUNNING, PAUSED, STOPPED, FAILED})
"""What a connector is while nothing of it changes. Just after workers have started or gone it is none of these, and
nobody tells what it shall be."""

_RESTART: Final = "look at its status, and restart it"

_BACK: Final = {ConnectorGoal.RUNNING: TargetState.RUNNING, ConnectorGoal.PAUSED: TargetState.PAUSED}


@dataclass(frozen=True, slots=True)
class ConnectorStep:
    """What the connector needs next. ``record`` goes to the status before ``action`` is done.

    ``is_stopped``: Connect says that it is stopped and has no tasks.
    """

    record: StoppedConnector | None
    action: SetConnector | None = None
    happenings: tuple[KubeEvent, ...] = ()
    trouble: Refusal | None = None
    is_stopped: bool = False


# --- stopped ----------------------------------------------------------------------------------------------------------


def stop(seen: Seen, spec: ConsumerGroupPauseSpec, *, has_members: bool) -> ConnectorStep:
    """Stop it. ``has_members``: whether the group of the spec has any."""
    looked, record = seen.connector, seen.status.connector
    trouble = looked.trouble or _left(looked, record)
    if trouble is None and record is None:
        trouble = _not_for_it(seen, spec, has_members=has_members)
    if trouble is not None:
        return ConnectorStep(record, trouble=trouble)
    connector, cluster = looked.connector, looked.cluster
    if connector is None or cluster is None or spec.connector is None:
        text = f"{spec.connector} was deleted from Connect, so nothing of it runs"
        return ConnectorStep(record, trouble=Refusal(CONNECTOR_NOT_FOUND, text))
    if record is not None and connector.state in _SETTLED and connector.state != STOPPED:
        # Something else of its name may have come in its place.
        trouble = _is_another(seen, connector, spec)
        if trouble is not None:
            return ConnectorStep(record, trouble=trouble)
    was_pausing = record is not None and record.phase is PausePhase.PAUSING
    is_asked = was_pausing and looked.asked is TargetState.STOPPED
    record = _recorded(seen, record, connector, is_asked=is_asked)
    if connector.state not in _SETTLED:
        return ConnectorStep(record)
    if connector.state == FAILED:
        trouble = Refusal(
            CONNECTOR_FAILED, f"{spec.connector} has failed, and will be stopped once it is restarted: {_RESTART}"
        )
        # Its tasks may run all the same.
        needs_it, is_asked = bool(connector.tasks), looked.asked is TargetState.STOPPED
    else:
        needs_it = record.phase is PausePhase.PAUSING and (connector.state != STOPPED or not is_asked)
    # Each request has the workers rebalance. While it stops, asking again would change nothing.
    if not needs_it or (is_asked and looked.is_recent):
        return ConnectorStep(record, trouble=trouble, is_stopped=_is_paused(record, connector))
    action = SetConnector(cluster, connector.name, TargetState.STOPPED)
    happening = _told(seen, record, STOPPING_CONNECTOR, "is asked to stop, and goes back to {state} afterwards")
    return ConnectorStep(record, action, happening, trouble=trouble)


def _is_paused(record: StoppedConnector, connector: Connector) -> bool:
    return record.phase is PausePhase.PAUSED and connector.is_stopped


def _is_another(seen: Seen, connector: Connector, spec: ConsumerGroupPauseSpec) -> Refusal | None:
    """Why what has this name is not what the pause is for."""
    if connector.kind != "sink":
        text = f"spec.connector: {spec.connector} is a {connector.kind} connector, which has no consumer group to pause"
        return Refusal(NOT_A_SINK, text)
    if "${" in connector.group:
        text = (
            f"spec.connector: the group of {spec.connector} is set by a variable in consumer.override.group.id, which "
            "Connect does not reveal: write the id itself there"
        )
        return Refusal(OTHER_GROUP, text)
    group = connector.consumer_group
    if group == spec.group:
        return None
    allowed = seen.observed.allow.groups if seen.observed is not None else ()
    if is_allowed(group, allowed):
        text = f"spec.group: {spec.connector} reads as group {group}, not as {spec.group}: name {group}"
    else:
        # Whose it is may be no business of who made the pause.
        text = (
            f"spec.group: {spec.connector} does not read as group {spec.group}, but as one that its KafkaConnection "
            "does not allow: look at consumer.override.group.id of the connector"
        )
    return Refusal(OTHER_GROUP, text)


def _not_for_it(seen: Seen, spec: ConsumerGroupPauseSpec, *, has_members: bool) -> Refusal | None:
    """Why a connector that this pause has not touched yet is left alone: a list of checks, the first one counts."""
    looked, connector, group = seen.connector, seen.connector.connector, spec.group
    if connector is None:
        return Refusal(CONNECTOR_NOT_FOUND, f"spec.connector: there is no {spec.connector}: check its name")
    another = _is_another(seen, connector, spec)
    if another is not None:
        return another
    if connector.state not in _SETTLED:
        text = (
            f"{spec.connector} is {connector.state or 'not started'}: this pause waits until the workers have settled"
        )
        return Refusal(CONNECTOR_UNSETTLED, text)
    if connector.state == FAILED:
        text = (
            f"{spec.connector} has failed, and Connect does not say whether it should run: look at its status, and "
            "restart or stop it"
        )
        return Refusal(CONNECTOR_FAILED, text)
    if RUNNING in connector.tasks and not has_members:
        # The worker's own configuration can set the group, and Connect does not tell it.
        text = (
            f"{spec.connector} is running, but group {group} has no member: the connector has not joined it yet, or "
            "consumer.group.id in the worker's configuration names another group"
        )
        return Refusal(OTHER_GROUP, text)
    if looked.can_stop is False:
        text = "its workers can't stop connectors, which takes Kafka 3.5 or newer: upgrade them, or use another method"
        return Refusal(CONNECT_TOO_OLD, f"spec.connector: {spec.connector}: {text}")
    return None


def _left(looked: LookedAtConnector, record: StoppedConnector | None) -> Refusal | None:
    """Why what is recorded can't be reached any more."""
    if record is None:
        return None
    if record.connection_uid != looked.connection_uid:
        where = "through a KafkaConnection that has since been deleted"
    elif _is_elsewhere(looked, record):
        where = (
            "at another URL than spec.connect of its KafkaConnection names now, where no connector of this name is "
            "stopped"
        )
    else:
        return None
    text = (
        f"connector {record.name} of Connect cluster {record.cluster} was stopped {where}. It was {record.state} "
        f"before: take care of it yourself, and delete this pause with annotation {ABANDON}=true"
    )
    return Refusal(CONNECTOR_LEFT, text)


def _is_elsewhere(looked: LookedAtConnector, record: StoppedConnector) -> bool:
    """Whether other workers are asked by now than those that have stopped it. The same ones at another URL tell of it
    as stopped."""
    if looked.cluster is None or record.workers in (None, _workers(looked.cluster)):
        return False
    connector = looked.connector
    return connector is None or (connector.state in _SETTLED and connector.state != STOPPED)


def _workers(cluster: ConnectCluster | None) -> str | None:
    """Not the URL itself: a pause of another namespace has no business with it."""
    return hashlib.sha256(cluster.url.encode()).hexdigest()[:16] if cluster is not None else None


def _recorded(seen: Seen, record: StoppedConnector | None, connector: Connector, *, is_asked: bool) -> StoppedConnector:
    """``is_asked``: the workers have agreed to stop it. Until then it may be told as stopped and be about to run."""
    is_down = connector.state == STOPPED
    if record is None:
        return _first_record(seen.connector, connector, is_down=is_down)
    if record.phase is PausePhase.RESUMING:
        record = record.model_copy(update={"phase": PausePhase.PAUSING})
    if connector.state == FAILED or connector.state not in _SETTLED:
        # By nobody's word, and nobody tells what it shall be.
        return record
    if is_down:
        is_theirs = record.state is ConnectorGoal.STOPPED
        if not connector.is_stopped or (record.phase is PausePhase.PAUSING and not (is_asked or is_theirs)):
            return record
        if record.phase is PausePhase.PAUSING and not is_theirs:
            record = _counted(record, seen.now)
        return record.model_copy(update={"phase": PausePhase.PAUSED, "workers": _workers(seen.connector.cluster)})
    was_undone = record.phase in (PausePhase.PAUSED, PausePhase.DEGRADED)
    is_contested = (
        was_undone
        and record.stopped >= MOST_STOPS
        and record.stopped_at is not None
        and seen.now - record.stopped_at < WITHIN
    )
    # What somebody asks for meanwhile is what it goes back to.
    state = _goal(connector) if was_undone else record.state
    phase = PausePhase.DEGRADED if is_contested else PausePhase.PAUSING
    return record.model_copy(update={"phase": phase, "state": state})


def _first_record(looked: LookedAtConnector, connector: Connector, *, is_down: bool) -> StoppedConnector:
    """What it goes back to. Stopped for another pause, it goes back to what that one has recorded."""
    may_run = any(other.phase is PausePhase.RESUMING for other in looked.others)
    other = looked.others[0] if looked.others and is_down else None
    return StoppedConnector(
        cluster=looked.cluster.name if looked.cluster is not None else "",
        name=connector.name,
        connection_uid=looked.connection_uid,
        phase=PausePhase.PAUSED if connector.is_stopped and not may_run else PausePhase.PAUSING,
        state=other.state if other is not None else _goal(connector),
        workers=_workers(looked.cluster),
    )


def _goal(connector: Connector) -> ConnectorGoal:
    return {STOPPED: ConnectorGoal.STOPPED, PAUSED: ConnectorGoal.PAUSED}.get(connector.state, ConnectorGoal.RUNNING)


def _counted(record: StoppedConnector, now: datetime) -> StoppedConnector:
    is_new = record.stopped_at is None or now - record.stopped_at >= WITHIN
    count = 1 if is_new else record.stopped + 1
    return record.model_copy(update={"stopped": count, "stopped_at": now.replace(microsecond=0)})


# --- and back ---------------------------------------------------------------------------------------------------------


def give_back(seen: Seen) -> ConnectorStep:
    """Back to what it was; then it has no record any more. What somebody has resumed meanwhile stays so."""
    looked, record = seen.connector, seen.status.connector
    back = way_back(record) if record is not None else None
    if record is None or back is None:
        return ConnectorStep(None)
    resuming = record.model_copy(update={"phase": PausePhase.RESUMING})
    trouble = looked.trouble or _left(looked, record)
    if trouble is not None:
        return ConnectorStep(resuming, trouble=trouble)
    connector, which = looked.connector, f"connector {record.name} of Connect cluster {record.cluster}"
    if connector is None or looked.cluster is None:
        return ConnectorStep(None)
    if connector.state == STOPPED:
        resuming = resuming.model_copy(update={"workers": _workers(looked.cluster)})
    if connector.state not in _SETTLED:
        text = (
            f"{which} is {connector.state or 'not started'}: it goes back to {record.state} once its workers have "
            "settled"
        )
        return ConnectorStep(resuming, trouble=Refusal(CONNECTOR_UNSETTLED, text))
    if connector.state != STOPPED and _is_let_alone(seen, connector, record):
        return ConnectorStep(None)
    if record.phase is not PausePhase.RESUMING:
        # Another pause that lets go meanwhile sees by this that it is the last.
        return ConnectorStep(resuming)
    if any(other.phase is not PausePhase.RESUMING for other in looked.others):
        return ConnectorStep(None)
    if looked.asked is back and connector.state != STOPPED:
        if not looked.may_stop_yet:
            return ConnectorStep(None)
        text = f"{which} is watched for a while: a stop request may still be carried out whose answer was lost"
        return ConnectorStep(resuming, trouble=Refusal(CONNECTOR_UNSETTLED, text))
    if looked.asked is back and looked.is_recent:
        return ConnectorStep(resuming)
    # Also where it is told as what it is to be: by a worker that lags, or before it does what it was asked for before.
    if looked.asked is back:
        text = f"{which} was asked to go back to {record.state}, but its workers still report that it is stopped"
        trouble = Refusal(CONNECTOR_UNSETTLED, text)
    elif looked.unanswered is not None and looked.unanswered[0] is back:
        trouble = looked.unanswered[1]
    action = SetConnector(looked.cluster, connector.name, back)
    happening = _told(seen, record, RESUMING_CONNECTOR, "goes back to {state}")
    return ConnectorStep(resuming, action, happening, trouble=trouble)


def way_back(record: StoppedConnector) -> TargetState | None:
    """What is asked of it at the end; ``None``: it stays stopped."""
    return _BACK.get(record.state)


def _is_let_alone(seen: Seen, connector: Connector, record: StoppedConnector) -> bool:
    """Whether one that is not stopped is what somebody else has made of it, or was never asked to stop."""
    is_another = seen.spec is not None and _is_another(seen, connector, seen.spec) is not None
    is_theirs = connector.state != FAILED and _goal(connector) is not record.state
    return is_another or is_theirs or not seen.has_finalizer


def _told(seen: Seen, record: StoppedConnector, reason: str, text: str) -> tuple[KubeEvent, ...]:
    key = f"{seen.generation}/{reason}/{record.name}/{record.stopped}/{record.stopped_at}"
    said = text.format(state=record.state)
    return (
        KubeEvent(EventType.NORMAL, reason, f"connector {record.name} of Connect cluster {record.cluster} {said}", key),
    )
