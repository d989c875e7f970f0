"""Pausing partitions of a classic group by leading it: any client, no agent, and nothing is stopped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tidegate.connection.allow import TOPIC_NOT_ALLOWED
from tidegate.kafka.model import Group, GroupType, TopicPartition
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.leading.groups import kafka_go_beside_others, unknown_assignor, without_leader
from tidegate.pause.holds import Wanted, own_holds, wanted_partitions
from tidegate.pause.model import Action, AddFinalizer, Decision, LeadGroup, Observed, Seen
from tidegate.pause.release import refuse
from tidegate.pause.report import (
    ALL_PAUSED,
    MAX_ROWS,
    PAUSING,
    SHOWN,
    UNSUPPORTED_GROUP,
    WAITING_FOR_GROUP,
    WAITING_FOR_TOPICS,
    Row,
    counted,
    listed,
    not_after_the_end,
    paused_is,
    release,
    rows_before,
    shown_row,
    stamp,
    told,
)
from tidegate.resources.conditions import Refusal, ready, reconciling, stalled
from tidegate.resources.leading import FailOpen, LeaderSeat
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PauseMethod,
    PausePhase,
    PauseStatus,
)

FAILS_OPEN: Final = "FailsOpen"
FAILED_OPEN: Final = "FailedOpen"
NOT_LED: Final = "GroupNotLed"
UNSUPPORTED_ASSIGNOR: Final = "UnsupportedAssignor"
UNSUPPORTED_CLIENTS: Final = "UnsupportedClients"


def is_by_leading(spec: ConsumerGroupPauseSpec) -> bool:
    """Whether this pause is one by leading. Nothing but the spec chooses it."""
    return spec.method is PauseMethod.LEADING


def pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    """The partitions are assigned to nobody, as long as our member leads."""
    known = {TopicPartition(row.topic, row.partition) for row in status.partitions}
    wanted = wanted_partitions(spec, observed.allow.topics, observed.topics, observed.group, observed.committed, known)
    refusal = _not_allowed(spec, observed, wanted) or _not_for_it(seen, spec, observed.group)
    if refusal is not None:
        return refuse(seen, status, refusal)
    action = _action(seen, spec, observed, wanted)
    if _is_resumed(seen, status, observed, wanted):
        return Decision(status, action, again_after_s=seen.tick.quick_s, rows=seen.rows or ())
    phase, why = _phase(seen, spec, observed, wanted)
    withheld = seen.leading.report.withheld
    rows = [Row(p, PausePhase.PAUSED if p in withheld else _not_yet(phase)) for p in wanted.existing]
    is_paused = phase is PausePhase.PAUSED
    before = rows_before(seen)
    shown = tuple(shown_row(seen, observed, row, before.get(row.partition)) for row in rows)
    conditions = {PausePhase.PAUSED: ready, PausePhase.DEGRADED: stalled}.get(phase, reconciling)(
        status.conditions, reason=why.reason, message=why.message, **stamp(seen)
    )
    count = sum(row.phase is PausePhase.PAUSED for row in rows)
    status = counted(status, count, len(rows)).model_copy(
        update={
            "phase": phase,
            "method": PauseMethod.LEADING,
            "partitions": shown[:MAX_ROWS],
            "partitions_omitted": max(0, len(rows) - MAX_ROWS) or None,
            "unmanaged_members": (),
            "leader": _record(seen, observed),
            "fails_open_after": timedelta(seconds=seen.leading.session_s),
            "conditions": paused_is(seen, conditions, is_paused, why),
        }
    )
    happenings = (*told(seen, phase, why.message), *_opened(seen))
    # Leading takes its time, and says then how far it is.
    is_done = action is not None and not isinstance(action, LeadGroup)
    again_s = 0 if is_done else _again_after_s(seen, phase)
    return Decision(status, action, happenings, not_after_the_end(seen, status, again_s), rows=shown)


def _is_resumed(seen: Seen, status: PauseStatus, observed: Observed, wanted: Wanted) -> bool:
    """Whether all that is known is what an earlier process has said, and this one's first look is still to come."""
    report, leader = seen.leading.report, status.leader
    is_noted = leader is not None and leader.connection_uid == observed.connection_uid
    rows = {TopicPartition(row.topic, row.partition) for row in status.partitions}
    # What was added since nobody has withheld.
    is_same = rows.issuperset(wanted.existing) or (
        status.partitions_omitted is not None and status.partitions_total == len(wanted.existing)
    )
    was_paused = status.phase is PausePhase.PAUSED and is_noted and is_same and not report.withheld
    if seen.leading.wanted is None:
        # Else this process can't begin, or what it has begun has ended unexpectedly.
        return was_paused and not report.trouble and not seen.leading.is_asked
    return was_paused and not report.trouble and not report.lost and not report.ended


def _not_yet(phase: PausePhase) -> PausePhase:
    return phase if phase in (PausePhase.PENDING, PausePhase.DEGRADED) else PausePhase.PAUSING


def _action(seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, wanted: Wanted) -> Action | None:
    own, partitions = own_holds(observed.gates, seen.uid), frozenset(wanted.existing)
    may_begin = bool(partitions) and (_has_others(observed.group) or seen.status.leader is not None)
    if (own or may_begin) and not seen.has_finalizer:
        return AddFinalizer()
    is_full = seen.leading.wanted is None and bool(seen.leading.report.trouble)
    if may_begin and not is_full and seen.leading.wanted != partitions:
        return LeadGroup(spec.group, partitions, seen.status.leader)
    # Of before its method was changed.
    return release(own) if own else None


def _record(seen: Seen, observed: Observed) -> LeaderSeat | None:
    """Written while it leads, so that a later process goes on; once our member is forgotten it helps nobody."""
    seat = seen.leading.report.seat
    if seen.leading.wanted is None:
        noted = seen.status.leader  # an earlier process's
        return noted if noted is not None and noted.connection_uid == observed.connection_uid else None
    if seat is None or seat.generation < 0:
        return None
    return LeaderSeat(
        member_id=seat.member_id,
        generation=seat.generation,
        assignor=seat.assignor,
        connection_uid=observed.connection_uid,
    )


def _has_others(group: Group) -> bool:
    """Whether it has members besides ours."""
    return bool(without_leader(group).members)


# --- whether it may be done -------------------------------------------------------------------------------------------


def _not_allowed(spec: ConsumerGroupPauseSpec, observed: Observed, wanted: Wanted) -> Refusal | None:
    if not wanted.forbidden:
        return None
    text = (
        f"group {spec.group} reads {', '.join(wanted.forbidden[:SHOWN])}, which KafkaConnection {observed.connection} "
        "does not allow: name the topics to pause in spec.partitions"
    )
    return Refusal(TOPIC_NOT_ALLOWED, text)


def _not_for_it(seen: Seen, spec: ConsumerGroupPauseSpec, group: Group) -> Refusal | None:
    """Why the group is left alone: a list of checks, the first one counts."""
    if spec.leading is not None and spec.leading.fail_open is FailOpen.NEVER:
        text = (
            "spec.leading.failOpen is Never, which method Leading can't promise: the group carries on without the "
            f"operator {seen.leading.session_s:g} s after the operator's last sign of life. Use method Agent or Scale"
        )
        return Refusal(FAILS_OPEN, text)
    return next((refusal for check in _CHECKS if (refusal := check(spec, group)) is not None), None)


def _is_classic(spec: ConsumerGroupPauseSpec, group: Group) -> Refusal | None:
    if group.type in (GroupType.CLASSIC, GroupType.SIMPLE, GroupType.UNKNOWN):
        return None
    text = (
        f"group {spec.group} is of type {group.type}: the broker assigns its partitions, and no member leads it. Use "
        "method Agent or Scale"
    )
    return Refusal(UNSUPPORTED_GROUP, text)


def _assignor_is_known(spec: ConsumerGroupPauseSpec, group: Group) -> Refusal | None:
    # While it rebalances, a group hides its assignor.
    why = unknown_assignor(group) if group.has_members and group.assignor else None
    text = f"group {spec.group} can't be led: {why}. Use method Agent or Scale"
    return Refusal(UNSUPPORTED_ASSIGNOR, text) if why is not None else None


def _clients_bear_it(spec: ConsumerGroupPauseSpec, group: Group) -> Refusal | None:
    why = kafka_go_beside_others(without_leader(group))
    text = f"group {spec.group} can't be led: {why}. Use method Agent or Scale"
    return Refusal(UNSUPPORTED_CLIENTS, text) if why is not None else None


_CHECKS: Final[tuple[Callable[[ConsumerGroupPauseSpec, Group], Refusal | None], ...]] = (
    _is_classic,
    _assignor_is_known,
    _clients_bear_it,
)

# --- what is said of it -----------------------------------------------------------------------------------------------


def _phase(seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, wanted: Wanted) -> tuple[PausePhase, Refusal]:
    """The phase, and its condition's reason and message."""
    existing, report = wanted.existing, seen.leading.report
    if not existing:
        missing = f"; topic(s) {listed(wanted.missing)} do not exist yet" if wanted.missing else ""
        return PausePhase.PENDING, Refusal(WAITING_FOR_TOPICS, f"there is nothing to pause yet{missing}")
    if not _has_others(observed.group) and seen.status.leader is None:
        text = (
            f"group {spec.group} has no member ({observed.group.state.value}), so nobody reads. The operator leads the "
            "group once a member has joined it; that member may read until then"
        )
        return PausePhase.PENDING, Refusal(WAITING_FOR_GROUP, text)
    count = f"{sum(p in report.withheld for p in existing)} of {len(existing)} partition(s) of group {spec.group}"
    if report.trouble and not report.withheld:
        if report.lost:
            text = f"{count} are withheld: {report.trouble}"
            return PausePhase.DEGRADED, Refusal(FAILED_OPEN, text)
        text = f"{count} are withheld: {report.trouble}. The operator tries again later, at growing intervals"
        return PausePhase.DEGRADED, Refusal(NOT_LED, text)
    noted = seen.status.leader
    is_noted = report.seat is not None and noted is not None and noted.member_id == report.seat.member_id
    if all(p in report.withheld for p in existing) and is_noted and seen.leading.wanted is not None:
        text = f"{count} are assigned to nobody; {_how_it_fails(seen)}"
        return PausePhase.PAUSED, Refusal(ALL_PAUSED, text)
    waiting = listed([str(p) for p in existing if p not in report.withheld]) or "the status to name the leader"
    return PausePhase.PAUSING, Refusal(PAUSING, f"{count} are assigned to nobody; waiting for {waiting}")


def _how_it_fails(seen: Seen) -> str:
    return f"if the operator is gone for {seen.leading.session_s:g} s, they are read again"


def _opened(seen: Seen) -> tuple[KubeEvent, ...]:
    """Once for each time that the group went on without our member."""
    lost, seat, leader = seen.leading.report.lost, seen.leading.report.seat, seen.status.leader
    if not lost or leader is None or (seat is not None and seat.member_id == leader.member_id):
        return ()  # what is noted is of the member that leads it again
    text = "the group carried on without the operator as its leader: its partitions may be read until it is led again"
    key = f"{seen.generation}/{FAILED_OPEN}/{lost}/{leader.member_id}"
    return (KubeEvent(EventType.WARNING, FAILED_OPEN, text, key),)


def _again_after_s(seen: Seen, phase: PausePhase) -> float:
    match phase:
        case PausePhase.PAUSING:
            return seen.tick.quick_s
        case PausePhase.PENDING | PausePhase.DEGRADED:
            return seen.tick.active_s
        case _:
            return seen.tick.idle_s
