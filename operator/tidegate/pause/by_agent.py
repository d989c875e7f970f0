"""Pausing by holds that the agents in the consumers obey, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tidegate.connection.allow import TOPIC_NOT_ALLOWED
from tidegate.control.gates import Held
from tidegate.control.records import Hold
from tidegate.control.standing import Flow, PartitionStanding, standings
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.pause.holds import HoldChanges, Wanted, hold_changes, hold_of, holder, own_holds, wanted_partitions
from tidegate.pause.model import Action, AddFinalizer, ChangeHolds, Decision, Observed, Seen, Wait
from tidegate.pause.release import refuse
from tidegate.pause.report import (
    ALL_PAUSED,
    MAX_ROWS,
    PAUSING,
    QUICK,
    SHOWN,
    WAITING_FOR_GROUP,
    WAITING_FOR_TOPICS,
    Row,
    called,
    counted,
    listed,
    message_of,
    not_after_the_end,
    paused_is,
    rows_before,
    shortened,
    shown_row,
    stamp,
    told,
    unmanaged_rows,
    warning,
)
from tidegate.pause.workloads import give_back
from tidegate.resources.conditions import Refusal, ready, reconciling, stalled
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PausedPartition,
    PauseMethod,
    PausePhase,
    PauseStatus,
)

UNMANAGED_MEMBERS: Final = "UnmanagedMembers"
ACK_OVERDUE: Final = "AckOverdue"

_MOMENT: Final = timedelta(milliseconds=1)


def pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    own = own_holds(observed.gates, seen.uid)
    known = {key.topic_partition for key in own if key.group == spec.group}
    known |= {TopicPartition(row.topic, row.partition) for row in status.partitions}
    wanted = wanted_partitions(spec, observed.allow.topics, observed.topics, observed.group, observed.committed, known)
    if wanted.forbidden:
        text = (
            f"group {spec.group} reads {', '.join(wanted.forbidden[:SHOWN])}, which KafkaConnection "
            f"{observed.connection} does not allow: name the topics to pause in spec.partitions"
        )
        return refuse(seen, status, Refusal(TOPIC_NOT_ALLOWED, text))
    mine = holder(observed.connection_uid, seen.uid)
    hold = hold_of(spec, seen.name)
    changes = hold_changes(spec, observed.allow.topics, hold, mine, wanted.to_hold, own)
    rows = _rows(seen, spec, observed, wanted, {k.topic_partition: h for k, h in own.items() if k.holder == mine}, hold)
    before = rows_before(seen)
    shown = tuple(shown_row(seen, observed, row, before.get(row.partition)) for row in rows)
    if _is_for_scaling(spec, rows):
        return _scale_instead(seen, status)
    status = _described(seen, spec, status, observed, wanted, rows, shown)
    phase = status.phase or PausePhase.PENDING
    happenings = told(seen, phase, message_of(status.conditions))
    waits = {row.partition: row.wait for row in rows if row.wait is not None}
    obeyed = frozenset(row.partition for row in rows if row.standing is not None and row.standing.flow is Flow.CLOSED)
    action: Action | None = None
    if seen.unusable is not None:
        happenings = (*happenings, warning(seen, seen.unusable))
        changes = changes if seen.try_again else HoldChanges({}, changes.release)
    if (changes.write or own) and not seen.has_finalizer:
        action = AddFinalizer()
    elif changes:
        action = ChangeHolds(changes)
    if action is None and seen.unusable is None and status.workloads:
        # Now that the gates are closed, consumers that were scaled away may come back.
        step = give_back(seen, status.workloads)
        status, action = status.model_copy(update={"workloads": step.records}), step.action
        happenings = (*happenings, *step.happenings, *(warning(seen, trouble) for trouble in step.troubles))
        if step.records and not step.troubles:
            return Decision(status, action, happenings, 0, waits, obeyed, shown)
    again = 0 if action is not None else _again_after_s(seen, status, observed, rows)
    return Decision(status, action, happenings, again, waits, obeyed, shown)


def _is_for_scaling(spec: ConsumerGroupPauseSpec, rows: list[Row]) -> bool:
    """Whether there are members that no gate can stop, in a group that may be paused as a whole."""
    may_scale = spec.method is PauseMethod.AUTO and spec.partitions is None and bool(spec.workloads)
    return may_scale and any(row.late == UNMANAGED_MEMBERS for row in rows)


def _scale_instead(seen: Seen, status: PauseStatus) -> Decision:
    """From the next pass on it is paused by scaling, which the status remembers."""
    text = "the group has members that run no agent, so the operator scales the named workloads to 0 replicas"
    conditions = reconciling(status.conditions, reason=PAUSING, message=text, **stamp(seen))
    conditions = paused_is(seen, conditions, False, Refusal(PAUSING, text))
    status = status.model_copy(
        update={"method": PauseMethod.SCALE, "phase": PausePhase.PAUSING, "conditions": conditions}
    )
    return Decision(status, None, told(seen, PausePhase.PAUSING, text), 0)


def _rows(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    observed: Observed,
    wanted: Wanted,
    own: Mapping[TopicPartition, Held],
    hold: Hold,
) -> list[Row]:
    epochs = {p: held.epoch for p, held in own.items()}
    stand = standings(observed.gates, observed.group, [p for p in wanted.existing if p in own], epochs)
    before = rows_before(seen)
    rows = [
        _row(seen, spec, partition, stand[partition], before.get(partition))
        if partition in stand and own[partition].says(hold)
        else Row(partition, PausePhase.PAUSING)
        for partition in wanted.existing
    ]
    return rows + [Row(partition, PausePhase.PENDING) for partition in wanted.beforehand]


def _row(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    partition: TopicPartition,
    standing: PartitionStanding,
    before: PausedPartition | None,
) -> Row:
    if standing.is_paused:
        return Row(partition, PausePhase.PAUSED, standing)
    member = standing.owner.member_id if standing.owner is not None else ""
    wait = seen.waits.get(partition)
    if wait is None or (wait.member, wait.epoch) != (member, standing.epoch):
        wait = Wait(member, standing.epoch or 0, seen.now)
    waited = seen.now - wait.since
    was_late = (
        before is not None and before.phase is PausePhase.DEGRADED and before.member == (shortened(member) or None)
    )
    match standing.flow:
        case Flow.UNDECIDED:
            # Between two assignments; members with the agent obey over a rebalance, so what was said stands a while.
            said = before.phase if before is not None and waited <= seen.patience.unmanaged else PausePhase.PAUSING
            return Row(partition, said, standing, wait)
        case Flow.UNMANAGED:
            if was_late or waited > seen.patience.unmanaged:
                return Row(partition, PausePhase.DEGRADED, standing, wait, UNMANAGED_MEMBERS)
        case Flow.CLOSING:
            limit = spec.drain_timeout + seen.patience.overdue
            if standing.owner is None:
                # It assigned the partition itself, and nobody can tell whether it still lives.
                if waited > limit or _was_waited_for(seen, before):
                    # What this process does not remember is not waited for again.
                    wait = replace(wait, since=min(wait.since, seen.now - limit - _MOMENT))
                    return Row(partition, PausePhase.PAUSED, standing, wait)
            elif was_late or waited > limit:
                return Row(partition, PausePhase.DEGRADED, standing, wait, ACK_OVERDUE)
        case _:
            pass
    return Row(partition, PausePhase.PAUSING, standing, wait)


def _was_waited_for(seen: Seen, before: PausedPartition | None) -> bool:
    """Whether an earlier process of the operator has waited for an owner that nobody can name, for as long as it is
    waited for."""
    is_first_pass = seen.rows is None
    return is_first_pass and before is not None and before.phase is PausePhase.PAUSED and before.member is None


def _described(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    status: PauseStatus,
    observed: Observed,
    wanted: Wanted,
    rows: list[Row],
    shown: tuple[PausedPartition, ...],
) -> PauseStatus:
    existing = [row for row in rows if row.phase is not PausePhase.PENDING]
    paused = [row for row in existing if row.phase is PausePhase.PAUSED]
    late = [row for row in existing if row.phase is PausePhase.DEGRADED]
    unmanaged = {
        row.standing.owner.member_id: row.standing.owner
        for row in late
        if row.late == UNMANAGED_MEMBERS and row.standing is not None and row.standing.owner is not None
    }
    phase, reason, message = _phase(spec, observed.group, wanted, existing, paused, late, unmanaged)
    if phase is PausePhase.PAUSING and seen.unusable is not None:
        phase, reason, message = PausePhase.PENDING, seen.unusable.reason, seen.unusable.message
    match phase:
        case PausePhase.PAUSED:
            conditions = ready(status.conditions, reason=reason, message=message, **stamp(seen))
        case PausePhase.DEGRADED:
            conditions = stalled(status.conditions, reason=reason, message=message, **stamp(seen))
        case _:
            conditions = reconciling(status.conditions, reason=reason, message=message, **stamp(seen))
    if seen.unusable is not None:
        conditions = stalled(conditions, reason=seen.unusable.reason, message=seen.unusable.message, **stamp(seen))
    conditions = paused_is(seen, conditions, phase is PausePhase.PAUSED, Refusal(reason, message))
    return counted(status, len(paused), len(existing)).model_copy(
        update={
            "phase": phase,
            "method": PauseMethod.AGENT,
            "partitions": shown[:MAX_ROWS],
            "partitions_omitted": max(0, len(rows) - MAX_ROWS) or None,
            "unmanaged_members": unmanaged_rows(unmanaged.values()),
            "conditions": conditions,
        }
    )


def _phase(
    spec: ConsumerGroupPauseSpec,
    group: Group,
    wanted: Wanted,
    existing: list[Row],
    paused: list[Row],
    late: list[Row],
    unmanaged: Mapping[str, Member],
) -> tuple[PausePhase, str, str]:
    """The phase, and its condition's reason and message."""
    more = f"; topic(s) {listed(wanted.missing)} do not exist yet" if wanted.missing else ""
    if wanted.beforehand:
        more += (
            f"; {len(wanted.beforehand)} named partition(s) do not exist yet and are held from their first record on"
        )
    if not existing:
        if wanted.missing or wanted.beforehand:
            return PausePhase.PENDING, WAITING_FOR_TOPICS, f"there is nothing to pause yet{more}"
        if spec.partitions is not None:
            return PausePhase.PENDING, WAITING_FOR_TOPICS, "there is nothing to pause yet: no topic matches"
        text = (
            f"group {spec.group} has neither members nor offsets yet ({group.state.value}), so what it reads is unknown"
        )
        return PausePhase.PENDING, WAITING_FOR_GROUP, text
    count = f"{len(paused)} of {len(existing)} partition(s) of group {spec.group} are paused"
    if unmanaged:
        clients = listed([called(member) for member in unmanaged.values()])
        text = (
            f"{count}; {len(late)} are still read by {len(unmanaged)} member(s) that run no agent: {clients}. Start "
            f"them with the agent (docs/how-to/pause-partitions.md); the rest of the pause stays as it is{more}"
        )
        return PausePhase.DEGRADED, UNMANAGED_MEMBERS, text
    if late:
        waiting = listed([f"{row.partition} of {_owner(row)}" for row in late])
        text = (
            f"{count}; {len(late)} owner(s) run the agent but have not confirmed the pause: {waiting}. Look at "
            f"their logs; a consumer that does not poll can't pause{more}"
        )
        return PausePhase.DEGRADED, ACK_OVERDUE, text
    if len(paused) == len(existing):
        return PausePhase.PAUSED, ALL_PAUSED, count + _perhaps_read(spec, group, paused) + more
    waiting = listed([str(row.partition) for row in existing if row.phase is not PausePhase.PAUSED])
    return PausePhase.PAUSING, PAUSING, f"{count}; waiting for {waiting}{more}"


def _perhaps_read(spec: ConsumerGroupPauseSpec, group: Group, paused: list[Row]) -> str:
    """What the group's description can't show: a consumer that assigns partitions to itself is no member."""
    is_simple = group.type is GroupType.SIMPLE and group.state is not GroupState.DEAD
    if not is_simple or not any(row.standing is not None and row.standing.flow is Flow.UNOWNED for row in paused):
        return ""
    return (
        f"; group {spec.group} has offsets but has never had members. A consumer that uses assign() is not a member, "
        "so Tidegate does not see it: if one is running without the agent, it reads on"
    )


def _again_after_s(seen: Seen, status: PauseStatus, observed: Observed, rows: list[Row]) -> float:
    tick, waits = seen.tick, [row.wait for row in rows if row.wait is not None]
    match status.phase:
        case PausePhase.PAUSING:
            since = min((wait.since for wait in waits), default=seen.now)
            after = tick.quick_s if seen.now - since <= QUICK else tick.active_s
        case PausePhase.PENDING if observed.group.has_members:
            after = tick.active_s
        case _ if any(map(_is_awaited, rows)):
            after = tick.active_s  # nobody tells that it has been waited for long enough
        case PausePhase.PAUSED:
            after = tick.rest_s
        case _:
            after = tick.least_rest_s
    return not_after_the_end(seen, status, after)


def _is_awaited(row: Row) -> bool:
    """Whether time alone may change what is said of the partition."""
    undecided = row.standing is not None and row.standing.flow is Flow.UNDECIDED
    return row.wait is not None and (undecided or row.phase is PausePhase.PAUSING)


def _owner(row: Row) -> str:
    owner = row.standing.owner if row.standing is not None else None
    return called(owner) if owner is not None else "a consumer"
