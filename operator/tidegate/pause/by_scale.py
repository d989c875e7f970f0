"""Pausing a whole group by taking the replicas of its workloads to 0: any client, no agent."""

from __future__ import annotations

from typing import Final

from tidegate.connection.allow import TOPIC_NOT_ALLOWED
from tidegate.kafka.model import TopicPartition
from tidegate.pause.holds import own_holds, wanted_partitions
from tidegate.pause.model import Action, AddFinalizer, Decision, Observed, Seen
from tidegate.pause.release import refuse
from tidegate.pause.report import (
    ALL_PAUSED,
    MAX_ROWS,
    PAUSING,
    QUICK,
    SHOWN,
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
    unmanaged_rows,
    warning,
)
from tidegate.pause.workloads import Step, take_down
from tidegate.resources.conditions import Refusal, ready, reconciling, stalled
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod, PausePhase, PauseStatus

SCALED_BY_OTHERS: Final = "ScaledByOthers"
MEMBERS_LEFT: Final = "MembersLeft"

_CONTESTED_ADVICE: Final = (
    "Let Argo CD ignore /spec/replicas (ignoreDifferences, with RespectIgnoreDifferences=true), leave replicas out of "
    "what Flux or a pipeline applies, or suspend them; docs/how-to/pause-by-scaling.md. It is tried again after an hour"
)


def is_by_scale(spec: ConsumerGroupPauseSpec, status: PauseStatus) -> bool:
    """Whether this pause is one by scaling: asked for, or chosen before because members run no agent."""
    if spec.method is PauseMethod.AUTO:
        return spec.partitions is None and bool(spec.workloads) and status.method is PauseMethod.SCALE
    return spec.method is PauseMethod.SCALE


def pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    """Paused is: no replica is asked for, none is there, and the group has no member any more."""
    known = {TopicPartition(row.topic, row.partition) for row in status.partitions}
    wanted = wanted_partitions(spec, observed.allow.topics, observed.topics, observed.group, observed.committed, known)
    if wanted.forbidden:
        text = (
            f"group {spec.group} reads {listed(wanted.forbidden)}, which KafkaConnection {observed.connection} does "
            "not allow, and scaling pauses the whole group: widen spec.allow there, or name topics and use method Agent"
        )
        return refuse(seen, status, Refusal(TOPIC_NOT_ALLOWED, text))
    step = take_down(seen, spec.workloads)
    phase, refusal = _phase(seen, spec, observed, step)
    is_paused = phase is PausePhase.PAUSED
    rows = [Row(partition, PausePhase.PAUSED if is_paused else PausePhase.PAUSING) for partition in wanted.existing]
    before = rows_before(seen) if is_paused else {}
    shown = tuple(shown_row(seen, observed, row, before.get(row.partition)) for row in rows)
    conditions = {PausePhase.PAUSED: ready, PausePhase.PAUSING: reconciling}.get(phase, stalled)(
        status.conditions, reason=refusal.reason, message=refusal.message, **stamp(seen)
    )
    members = observed.group.members if refusal.reason == MEMBERS_LEFT else ()
    status = counted(status, len(rows) if is_paused else 0, len(rows)).model_copy(
        update={
            "phase": phase,
            "method": PauseMethod.SCALE,
            "partitions": shown[:MAX_ROWS],
            "partitions_omitted": max(0, len(rows) - MAX_ROWS) or None,
            "unmanaged_members": unmanaged_rows(members),
            "workloads": step.records,
            "conditions": paused_is(seen, conditions, is_paused, refusal),
        }
    )
    action: Action | None = step.action
    own = own_holds(observed.gates, seen.uid)
    if (step.records or own) and not seen.has_finalizer:
        action = AddFinalizer()
    elif action is None and own and step.is_down:
        action = release(own)
    happenings = [*told(seen, phase, refusal.message), *(warning(seen, trouble) for trouble in step.troubles)]
    if action is step.action:
        happenings += step.happenings
    goes_back = not step.troubles and any(record.phase is PausePhase.RESUMING for record in step.records)
    again_s = (
        0 if action is not None or goes_back else not_after_the_end(seen, status, _again_after_s(seen, phase, step))
    )
    return Decision(status, action, tuple(happenings), again_s, rows=shown)


def _phase(seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, step: Step) -> tuple[PausePhase, Refusal]:
    """The phase, and its condition's reason and message."""
    names = listed([str(workload) for workload in spec.workloads])
    if step.troubles:
        is_down = any(record.phase is PausePhase.PAUSED for record in step.records)
        return PausePhase.DEGRADED if is_down else PausePhase.PENDING, step.troubles[0]
    if step.contested:
        text = "; ".join(
            f"{r.ref} was set to 0 replicas {r.scaled_down} times within an hour, and somebody else has set it to "
            f"{r.replicas} again each time"
            for r in step.contested[:SHOWN]
        )
        return PausePhase.DEGRADED, Refusal(SCALED_BY_OTHERS, f"{text}. {_CONTESTED_ADVICE}")
    members = observed.group.members
    if not step.is_down:
        waiting = listed([str(r.ref) for r in step.records if r.phase is not PausePhase.PAUSED])
        text = f"{waiting or names}: its replicas are being taken to 0"
        return PausePhase.PAUSING, Refusal(PAUSING, text)
    if not members:
        return PausePhase.PAUSED, Refusal(ALL_PAUSED, f"{names} at 0 replicas, group {spec.group} has no member")
    left = listed([f"{m.client_id or m.member_id} at {m.host.lstrip('/')}" for m in members])
    since = max((r.scaled_down_at for r in step.records if r.scaled_down_at is not None), default=seen.created)
    if seen.now - since <= seen.patience.leaving:
        text = f"{names} at 0 replicas; waiting for {len(members)} member(s) of group {spec.group} to leave: {left}"
        return PausePhase.PAUSING, Refusal(PAUSING, text)
    text = (
        f"{names} at 0 replicas, and group {spec.group} still has {len(members)} member(s): {left}. They belong to "
        "something else: name its workload in spec.workloadRefs as well, or stop them"
    )
    return PausePhase.DEGRADED, Refusal(MEMBERS_LEFT, text)


def _again_after_s(seen: Seen, phase: PausePhase, step: Step) -> float:
    if phase is not PausePhase.PAUSING:
        return seen.tick.idle_s
    since = max((r.scaled_down_at for r in step.records if r.scaled_down_at is not None), default=seen.now)
    return seen.tick.quick_s if seen.now - since <= QUICK else seen.tick.active_s
