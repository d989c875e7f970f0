"""Letting go of what a pause holds, and of the pause itself: refused, resumed, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tidegate.control.gates import Held
from tidegate.control.records import HoldKey
from tidegate.kube.ports import KubeEvent
from tidegate.kube.unreadable import ABANDON
from tidegate.pause import connectors
from tidegate.pause.connectors import ConnectorStep
from tidegate.pause.holds import own_holds
from tidegate.pause.model import Action, Decision, Observed, RemoveFinalizer, Seen, StopLeading
from tidegate.pause.report import RESUMING, cleared, counted, listed, paused_is, release, stamp, told, warning
from tidegate.pause.workloads import give_back
from tidegate.resources.conditions import Refusal, ready, reconciling, stalled
from tidegate.resources.pause import PauseMethod, PausePhase, PauseStatus

ABANDONED: Final = "Abandoned"
HOLDS_LEFT: Final = "HoldsLeft"
REPLICAS_LEFT: Final = "ReplicasLeft"
LEADER_LEFT: Final = "LeaderLeft"

LEFT_BEHIND: Final = frozenset({HOLDS_LEFT, REPLICAS_LEFT, connectors.CONNECTOR_LEFT, LEADER_LEFT, ABANDONED})
"""The reasons of the Events by which a deletion says that it went without having undone everything."""

_REST_S: Final = 60.0


def is_led(seen: Seen) -> bool:
    """Whether its group is, or may be, led for it: something of it may be withheld."""
    looked = seen.leading
    if looked.is_out_of_reach or seen.spec is None:
        return False  # where nobody is there who leads, or nobody knows which group, it ends by itself
    is_left = looked.is_stopped and looked.wanted is None and (looked.report.ended or looked.look.is_wanted)
    return looked.wanted is not None or (seen.status.leader is not None and not is_left)


def _leaves_group(seen: Seen) -> StopLeading | None:
    """The next step of leading the group no more; where it was done, what is left is to wait."""
    if not is_led(seen) or seen.spec is None or (seen.leading.is_stopped and seen.leading.wanted is None):
        return None
    return StopLeading(seen.spec.group, seen.status.leader)


def refuse(seen: Seen, status: PauseStatus, refusal: Refusal) -> Decision:
    """What may not be asked for is not done, and not gone on with."""
    held = own_holds(seen.observed.gates, seen.uid) if seen.observed is not None else {}
    step, connector = give_back(seen, status.workloads), connectors.give_back(seen)
    conditions = paused_is(seen, status.conditions, False, refusal)
    conditions = stalled(conditions, reason=refusal.reason, message=refusal.message, **stamp(seen))
    status = cleared(status).model_copy(
        update={
            "conditions": conditions,
            "phase": PausePhase.PENDING,
            "workloads": step.records,
            "connector": connector.record,
            "leader": seen.status.leader if is_led(seen) else None,
        }
    )
    troubles = (*step.troubles, *([connector.trouble] if connector.trouble is not None else ()))
    is_left = bool(step.records) or connector.record is not None or is_led(seen)
    happenings = (warning(seen, refusal), *step.happenings, *connector.happenings, *_troubles(seen, troubles))
    action: Action | None = step.action or connector.action or _leaves_group(seen)
    if action is None and is_led(seen):
        return Decision(status, None, happenings, again_after_s=seen.tick.quick_s)
    if action is None and held:
        action = release(held)
    elif action is None and not is_left and seen.has_finalizer and seen.observed is not None:
        action = RemoveFinalizer()
    if _is_waited_for(seen, connector) and action is connector.action:
        return Decision(status, action, happenings, again_after_s=seen.tick.active_s)
    goes_on = action is not None or (is_left and not troubles)
    return Decision(status, action, happenings, again_after_s=0 if goes_on else seen.tick.idle_s)


def _is_waited_for(seen: Seen, step: ConnectorStep) -> bool:
    """Whether all there is to do about the connector is to look again after a while."""
    return step.record is not None and step.record == seen.status.connector


def start_again(seen: Seen, status: PauseStatus, message: str) -> Decision | None:
    """The next step of giving workloads their replicas back and a connector its state, which takes no Kafka; ``None``:
    all are back."""
    if is_led(seen):
        text = f"{message}; the operator no longer leads the group"
        return _going_back(seen, status, text, _leaves_group(seen), (), (), seen.tick.quick_s)
    if status.connector is not None:
        connector = connectors.give_back(seen)
        if connector.record is not None:
            record = connector.record
            text = f"{message}; connector {record.name} goes back to what it was ({record.state})"
            status = status.model_copy(update={"connector": record})
            troubles = (connector.trouble,) if connector.trouble is not None else ()
            again_s = seen.tick.active_s if _is_waited_for(seen, connector) else 0
            again_s = again_s if connector.action is None else seen.tick.quick_s
            return _going_back(seen, status, text, connector.action, connector.happenings, troubles, again_s)
    step = give_back(seen, status.workloads)
    if not step.records:
        return None
    text = f"{message}; the replicas of {listed([str(r.ref) for r in step.records])} go back to what they were"
    status = status.model_copy(update={"workloads": step.records})
    return _going_back(seen, status, text, step.action, step.happenings, step.troubles)


def _going_back(
    seen: Seen,
    status: PauseStatus,
    text: str,
    action: Action | None,
    happenings: tuple[KubeEvent, ...],
    troubles: tuple[Refusal, ...],
    again_s: float = 0,
) -> Decision:
    status = _resuming(seen, status, text)
    happenings = (*told(seen, PausePhase.RESUMING, text), *happenings)
    if not troubles:
        return Decision(status, action, happenings, again_s)
    conditions = stalled(status.conditions, reason=troubles[0].reason, message=troubles[0].message, **stamp(seen))
    status = status.model_copy(update={"conditions": conditions})
    return Decision(status, action, (*happenings, *_troubles(seen, troubles)), seen.tick.active_s)


def resume(seen: Seen, status: PauseStatus, observed: Observed, reason: str, message: str) -> Decision:
    """Nothing is held any more, because nobody wants it or the time is over. What was stopped is back already."""
    held = own_holds(observed.gates, seen.uid)
    if held:
        return _release_holds(seen, status, held, f"{message}; {len(held)} hold(s) are being released")
    phase = PausePhase.RESUMED
    conditions = ready(status.conditions, reason=reason, message=message, **stamp(seen))
    conditions = paused_is(seen, conditions, False, Refusal(reason, message))
    status = cleared(status).model_copy(update={"conditions": conditions, "phase": phase})
    action = RemoveFinalizer() if seen.has_finalizer else None
    return Decision(status, action, told(seen, phase, message), 0 if action else _REST_S)


def leave(seen: Seen, status: PauseStatus, since: datetime) -> Decision:
    """It is being deleted."""
    if not seen.has_finalizer:
        return Decision(seen.status)
    is_over = seen.abandoned or seen.now - since > seen.patience.deletion
    warnings: tuple[KubeEvent, ...] = ()
    back = start_again(seen, status, "this pause is being deleted")
    if back is not None:
        left = _left_as_it_is(seen, status) if is_over else None
        if left is None:
            return back
        warnings = (warning(seen, left),)
    status = status.model_copy(update={"workloads": (), "connector": None, "leader": None})
    if seen.abandoned:
        text = (
            f"{ABANDON} is set, so this pause is deleted at once; the operator releases what it still holds when it "
            "next looks at the connection"
        )
        return _let_go(seen, *warnings, warning(seen, Refusal(ABANDONED, text)))
    if seen.observed is not None:
        held = own_holds(seen.observed.gates, seen.uid)
        if held:
            text = f"this pause is being deleted; {len(held)} hold(s) are being released"
            return _release_holds(seen, status, held, text)
    if seen.observed is not None or _holds_nothing(seen):
        text = "this pause is deleted and holds nothing"
        return _let_go(seen, *warnings, *told(seen, PausePhase.RESUMED, text))
    waits = seen.observing or seen.waiting
    why = waits.message if waits is not None else "the operator has not looked at Kafka yet"
    if is_over:
        limit_s = seen.patience.deletion.total_seconds()
        text = f"its holds could not be released in {limit_s:g} s: {why}. This pause is deleted anyway"
        return _let_go(seen, *warnings, warning(seen, Refusal(HOLDS_LEFT, text)))
    text = (
        f"this pause is being deleted, but its holds can't be released now: {why}. Annotation {ABANDON}=true deletes "
        "it at once"
    )
    conditions = reconciling(status.conditions, reason=RESUMING, message=text, **stamp(seen))
    conditions = paused_is(seen, conditions, None, Refusal(RESUMING, text))
    status = status.model_copy(update={"conditions": conditions, "phase": PausePhase.RESUMING})
    return Decision(status, None, told(seen, PausePhase.RESUMING, text), seen.tick.active_s)


def _left_as_it_is(seen: Seen, status: PauseStatus) -> Refusal | None:
    """What is not given back because it can't be; ``None``: nothing stands against it."""
    connector, step = connectors.give_back(seen), give_back(seen, status.workloads)
    if is_led(seen):
        text = (
            "the operator's member has not left the group yet: it leaves as soon as it can, and what it withholds is "
            f"read again {seen.leading.session_s:g} s after its last sign of life at the latest"
        )
        return Refusal(LEADER_LEFT, text)
    if connector.record is not None and connector.trouble is not None:
        record, back = connector.record, connectors.way_back(connector.record)
        text = (
            f"connector {record.name} of Connect cluster {record.cluster} is left as it is: "
            f"{connector.trouble.message}. It was {record.state} before; PUT /connectors/{record.name}/{back} at its "
            "workers restores that state"
        )
        return Refusal(connectors.CONNECTOR_LEFT, text)
    if not step.troubles:
        return None
    text = "; ".join(f"{r.ref} is left as it is: it had {r.replicas} replicas" for r in step.records)
    return Refusal(REPLICAS_LEFT, f"{text} ({step.troubles[0].message}); kubectl scale gives them back")


def _let_go(seen: Seen, *happenings: KubeEvent) -> Decision:
    """It may go. Where something else keeps it, it must not look as if it still had something to give back."""
    left = {"workloads": (), "connector": None, "leader": None}
    has_any = bool(seen.status.workloads) or seen.status.connector is not None or seen.status.leader is not None
    status = seen.status.model_copy(update=left) if has_any else seen.status
    return Decision(status, RemoveFinalizer(), happenings)


def _holds_nothing(seen: Seen) -> bool:
    """Whether it is sure without a look at Kafka that no gate is closed by this pause.

    One that was changed from the agents to scaling releases its holds meanwhile; should it go before, they are swept.
    """
    methods = (PauseMethod.SCALE, PauseMethod.CONNECT, PauseMethod.LEADING)
    return seen.status.method in methods and (seen.spec is None or seen.status.method is seen.spec.method)


def _release_holds(seen: Seen, status: PauseStatus, held: Mapping[HoldKey, Held], message: str) -> Decision:
    status = _resuming(seen, status, message)
    return Decision(status, release(held), told(seen, PausePhase.RESUMING, message), again_after_s=0)


def _resuming(seen: Seen, status: PauseStatus, message: str) -> PauseStatus:
    conditions = reconciling(status.conditions, reason=RESUMING, message=message, **stamp(seen))
    conditions = paused_is(seen, conditions, False, Refusal(RESUMING, message))
    rows = tuple(row.model_copy(update={"phase": PausePhase.RESUMING}) for row in status.partitions)
    return counted(status, 0, status.partitions_total or 0).model_copy(
        update={
            "conditions": conditions,
            "phase": PausePhase.RESUMING,
            "partitions": rows,
            "unmanaged_members": (),
        }
    )


def _troubles(seen: Seen, troubles: tuple[Refusal, ...]) -> tuple[KubeEvent, ...]:
    return tuple(warning(seen, trouble) for trouble in troubles)
