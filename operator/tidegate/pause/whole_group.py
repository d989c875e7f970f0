"""What ways of pausing share that stop a whole group: what it reads, what its status says, when nobody is left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidegate.connection.allow import TOPIC_NOT_ALLOWED
from tidegate.kafka.model import Group, GroupState, Member, TopicPartition
from tidegate.kube.ports import KubeEvent
from tidegate.leading.groups import without_leader
from tidegate.pause.holds import own_holds, wanted_partitions
from tidegate.pause.model import Action, AddFinalizer, Decision, Observed, Seen, SetConnector
from tidegate.pause.report import (
    ALL_PAUSED,
    MAX_ROWS,
    PAUSING,
    QUICK,
    Row,
    called,
    counted,
    listed,
    not_after_the_end,
    paused_is,
    release,
    rows_before,
    shown_row,
    stamp,
    told,
    unmanaged_rows,
    warning,
)
from tidegate.resources.conditions import Refusal, ready, reconciling, stalled
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod, PausePhase, PauseStatus

MEMBERS_LEFT: Final = "MembersLeft"


@dataclass(frozen=True, slots=True)
class Stopping:
    """How far what runs the group's members is stopped. ``records``: the status's fields that say so, and so what goes
    back; they are written before ``action`` is done.

    ``is_down``: all of it is. ``since``: when that was asked for last. ``goes_back``: some of it is given back.
    ``is_slow``: it takes its time.
    """

    method: PauseMethod
    records: dict[str, Any]
    action: Action | None
    happenings: tuple[KubeEvent, ...]
    troubles: tuple[Refusal, ...]
    is_down: bool
    since: datetime | None
    goes_back: bool = False
    is_slow: bool = False


def not_allowed(seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, doing: str) -> Refusal | None:
    """Why a group may not be paused as a whole: it reads what its connection does not allow. ``doing``: as in
    "scaling"."""
    wanted = wanted_partitions(
        spec, observed.allow.topics, observed.topics, observed.group, observed.committed, _known(seen.status)
    )
    if not wanted.forbidden:
        return None
    text = (
        f"group {spec.group} reads {listed(wanted.forbidden)}, which KafkaConnection {observed.connection} does "
        f"not allow, and {doing} pauses the whole group: widen spec.allow there, or name topics and use method Agent"
    )
    return Refusal(TOPIC_NOT_ALLOWED, text)


def _own_members(group: Group) -> tuple[Member, ...]:
    """Not one of ours that leads it for another pause: that reads nothing, and stays for as long as it does. While it
    rebalances, a group hides who reads."""
    return without_leader(group).members if group.state is GroupState.STABLE else group.members


def _known(status: PauseStatus) -> set[TopicPartition]:
    return {TopicPartition(row.topic, row.partition) for row in status.partitions}


def without_members(
    seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, since: datetime | None, down: str, advice: str
) -> tuple[PausePhase, Refusal]:
    """The phase, and its condition's reason and message, once all that runs members is stopped: they take their time
    to leave, and may be something else's. ``down``: what is stopped, as in "Deployment a at 0 replicas"."""
    members = _own_members(observed.group)
    if not members:
        return PausePhase.PAUSED, Refusal(ALL_PAUSED, f"{down}, and group {spec.group} has no member")
    left = listed([called(member) for member in members])
    if seen.now - (since or seen.created) <= seen.patience.leaving:
        text = f"{down}; waiting for {len(members)} member(s) of group {spec.group} to leave: {left}"
        return PausePhase.PAUSING, Refusal(PAUSING, text)
    text = f"{down}, and group {spec.group} still has {len(members)} member(s): {left}. {advice}"
    return PausePhase.DEGRADED, Refusal(MEMBERS_LEFT, text)


def decided(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    status: PauseStatus,
    observed: Observed,
    step: Stopping,
    phase: PausePhase,
    why: Refusal,
) -> Decision:
    """The status that says so, and the next action. All partitions of the group stand still, or none does."""
    wanted = wanted_partitions(
        spec, observed.allow.topics, observed.topics, observed.group, observed.committed, _known(status)
    )
    is_paused = phase is PausePhase.PAUSED
    rows = [Row(partition, PausePhase.PAUSED if is_paused else PausePhase.PAUSING) for partition in wanted.existing]
    before = rows_before(seen) if is_paused else {}
    shown = tuple(shown_row(seen, observed, row, before.get(row.partition)) for row in rows)
    conditions = {PausePhase.PAUSED: ready, PausePhase.PAUSING: reconciling}.get(phase, stalled)(
        status.conditions, reason=why.reason, message=why.message, **stamp(seen)
    )
    members: Collection[Member] = _own_members(observed.group) if why.reason == MEMBERS_LEFT else ()
    status = counted(status, len(rows) if is_paused else 0, len(rows)).model_copy(
        update={
            "phase": phase,
            "method": step.method,
            "partitions": shown[:MAX_ROWS],
            "partitions_omitted": max(0, len(rows) - MAX_ROWS) or None,
            "unmanaged_members": unmanaged_rows(members),
            "conditions": paused_is(seen, conditions, is_paused, why),
            **step.records,
        }
    )
    action = step.action
    own = own_holds(observed.gates, seen.uid)
    if (any(step.records.values()) or own) and not seen.has_finalizer:
        action = AddFinalizer()
    elif action is None and own and step.is_down:
        action = release(own)
    happenings = [*told(seen, phase, why.message), *(warning(seen, trouble) for trouble in step.troubles)]
    if action is step.action:
        happenings += step.happenings
    # Connect does what it was asked for after a while.
    is_done = action is not None and not isinstance(action, SetConnector)
    goes_on = is_done or (step.goes_back and not step.troubles)
    again_s = 0 if goes_on else not_after_the_end(seen, status, _again_after_s(seen, phase, step))
    return Decision(status, action, tuple(happenings), again_s, rows=shown)


def _again_after_s(seen: Seen, phase: PausePhase, step: Stopping) -> float:
    if phase is not PausePhase.PAUSING:
        return seen.tick.idle_s
    is_soon = not step.is_slow and seen.now - (step.since or seen.now) <= QUICK
    return seen.tick.quick_s if is_soon else seen.tick.active_s
