"""What the resources of a group say, in plain sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tidegate.incident.commands import command
from tidegate.incident.seen import (
    MOST_RESOURCES,
    UNREADABLE,
    Common,
    ConnectionSeen,
    KubeSeen,
    PauseSeen,
    PolicySeen,
    ResetSeen,
)
from tidegate.incident.words import counted, time_text
from tidegate.printable import visible
from tidegate.resources.conditions import (
    COMPLETE,
    FROZEN,
    PAUSED,
    READY,
    RECORD_STUCK,
    RETAINED,
    STALLED,
    Condition,
    Conditions,
    ConditionStatus,
    find_condition,
    is_true,
)
from tidegate.resources.durations import format_duration
from tidegate.resources.pause import PausePhase
from tidegate.resources.reset import ApprovalMode, ResetPhase, has_ended


def has_reset_ended(reset: ResetSeen) -> bool:
    return reset.status is not None and has_ended(reset.status.phase)


def awaits_person(reset: ResetSeen) -> bool:
    """Whether its plan waits for an approval."""
    return reset.status is not None and reset.status.phase is ResetPhase.AWAITING_APPROVAL


def in_short_of_resources(kube: KubeSeen | None) -> Iterator[str]:
    if kube is None:
        return
    waiting = [reset for reset in kube.resets if not has_reset_ended(reset)]
    for reset in waiting[:MOST_RESOURCES]:
        phase = reset.status.phase if reset.status is not None and reset.status.phase is not None else None
        does = "waits for an approval" if awaits_person(reset) else f"is {phase.value}" if phase else "has not begun"
        yield f"OffsetReset {visible(reset.common.label)} {does}."
    for connection in kube.connections.values():
        if connection.spec is not None and connection.spec.freeze is not None:
            yield f"KafkaConnection {visible(connection.common.label)} is frozen: nothing new begins through it."
    if kube.complete and not waiting:
        yield f"No OffsetReset of the group is in progress or waiting in {visible(kube.where)}."


def resources_told(kube: KubeSeen | None, now: datetime) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Titles and sentences; without sentences where there is nothing of the kind."""
    if kube is None:
        return
    running = [reset for reset in kube.resets if not has_reset_ended(reset)]
    ended = sorted((r for r in kube.resets if has_reset_ended(r)), key=lambda r: _finished(r) or now, reverse=True)
    resets = [*(s for r in running[:MOST_RESOURCES] for s in reset_told(r, now, kube.context))]
    if ended:
        resets += [f"The reset that ended last: {_ended(ended[0], now, kube.context)}"]
    yield "Resets", tuple(resets)
    yield "Pauses", tuple(s for p in kube.pauses[:MOST_RESOURCES] for s in pause_told(p, now))
    policies = kube.policies[:MOST_RESOURCES]
    yield "What is kept for the group", tuple(s for p in policies for s in policy_told(p, now, kube.context))
    yield "Connections", tuple(s for c in kube.connections.values() for s in connection_told(c, kube.context))
    if kube.of_others:
        many = counted(kube.of_others, "resource")
        yield (
            "Left out",
            (f"{many} for a group of this name through another KafkaConnection, or one to another cluster.",),
        )


def _beginning(common: Common, kind: str) -> Iterator[str]:
    if common.is_deleting:
        yield f"{kind} {visible(common.label)} is being deleted."
    if common.problem:
        yield f"{kind} {visible(common.label)} can't be read by this version of Tidegate: {visible(common.problem)}"


def _said(conditions: Conditions, kind: str) -> str:
    """A condition's reason and message as a sentence's end."""
    said = find_condition(conditions, kind)
    return (
        f"{said.reason}: {visible(said.message)}" if said is not None else "The operator has said nothing about it yet."
    )


# --- resets -----------------------------------------------------------------------------------------------------------


def reset_told(reset: ResetSeen, now: datetime, context: str | None = None) -> Iterator[str]:
    """One that has not ended: its phase, what it waits for, and until when. ``context``: of the kubeconfig, where one
    was given."""
    common, spec, status = reset.common, reset.spec, reset.status
    yield from _beginning(common, "OffsetReset")
    name = f"OffsetReset {visible(common.label)}"
    if status is None:
        yield f"{name}: {UNREADABLE}. The operator leaves it alone, and other resets of the group wait."
        return
    phase = status.phase or ResetPhase.PENDING
    begun = f", begun at {time_text(status.started_at, now)}" if status.started_at is not None else ", not begun"
    yield f"{name} is {phase.value}{begun}. {_said(status.conditions, COMPLETE)}"
    if is_true(status.conditions, STALLED):
        yield f"  It is refused: {_said(status.conditions, STALLED)}"
    if spec is None:
        return
    if status.replay is not None and phase is ResetPhase.REPLAYING:
        yield f"  It is rolled back at {time_text(status.replay.ends_by, now)}, unless its replay has ended by then."
    elif status.started_at is not None and status.replay is None:
        until = time_text(status.started_at + spec.deadline, now)
        yield f"  It is stopped and rolled back at {until}, unless it is done by then."
    if spec.suspend:
        yield "  It is suspended (spec.suspend): it does not begin, and an approved plan is not applied."
    if phase is ResetPhase.AWAITING_APPROVAL and status.digest:
        yield f"  To look at the plan: {_command('plan', common, context)}"
        yield f"  To approve it: {_command('approve', common, context)} --plan {status.digest}"
    elif spec.approval is ApprovalMode.MANUAL and status.approval is not None:
        at = time_text(status.approval.approved_at, now)
        yield f"  Its plan was approved by {visible(status.approval.approver)} at {at}."
    for approval in reset.approvals if awaits_person(reset) else ():
        yield f"  {visible(approval)}"


def _command(word: str, common: Common, context: str | None) -> str:
    return command(f"tidegate {word}", common.name, common.namespace, context)


def _finished(reset: ResetSeen) -> datetime | None:
    return reset.status.finished_at if reset.status is not None else None


def _ended(reset: ResetSeen, now: datetime, context: str | None) -> str:
    status = reset.status
    if status is None or status.phase is None:
        return f"OffsetReset {visible(reset.common.label)}: {UNREADABLE}."
    said = find_condition(status.conditions, COMPLETE)
    message = f" {visible(said.message)}" if said is not None else ""
    undo = f" To undo it: {_command('undo', reset.common, context)}" if status.phase is ResetPhase.SUCCEEDED else ""
    at = time_text(status.finished_at, now)
    return f"OffsetReset {visible(reset.common.label)}, {status.phase.value} at {at}.{message}{undo}"


# --- pauses, policies, connections ------------------------------------------------------------------------------------


def pause_told(pause: PauseSeen, now: datetime) -> Iterator[str]:
    common, spec, status = pause.common, pause.spec, pause.status
    yield from _beginning(common, "ConsumerGroupPause")
    name = f"ConsumerGroupPause {visible(common.label)}"
    if status is None:
        yield f"{name}: {UNREADABLE}."
        return
    phase = status.phase or PausePhase.PENDING
    paused = f", {visible(status.paused)} partitions paused" if status.paused else ""
    method = f" by {status.method.value}" if status.method is not None else ""
    yield f"{name} is {phase.value}{method}{paused}. {_said(status.conditions, PAUSED)}"
    for unmanaged in status.unmanaged_members[:5]:
        who, host = unmanaged.client_id or unmanaged.member_id, unmanaged.host or "an unknown host"
        yield f"  A consumer without the agent: {visible(who)} on {visible(host)}."
    if spec is not None and spec.suspend:
        yield "  It is suspended (spec.suspend): it pauses nothing."
    if status.resumes_at is not None and phase is not PausePhase.RESUMED:
        yield f"  It resumes automatically at {time_text(status.resumes_at, now)}."


def policy_told(policy: PolicySeen, now: datetime, context: str | None = None) -> Iterator[str]:
    common, spec, status = policy.common, policy.spec, policy.status
    yield from _beginning(common, "OffsetResetPolicy")
    name = f"OffsetResetPolicy {visible(common.label)}"
    if spec is None:
        return
    keeps: list[str] = []
    if spec.discovery is not None and spec.discovery.interval:
        every, begin = format_duration(spec.discovery.interval), spec.discovery.new_partitions.value
        keeps.append(f"looks every {every} for new partitions, which begin at {begin}")
    if spec.latest is not None and spec.latest.max_age is not None:
        keeps.append(f"starts partitions younger than {format_duration(spec.latest.max_age)} at their start")
    if spec.retention is not None:
        keeps.append("keeps committed offsets from expiring" if spec.retention.guard else "warns before offsets expire")
    if spec.stuck_records is not None:
        keeps.append("looks for records that consumers do not get past")
    if spec.consumers is not None:
        keeps.append(f"injects its settings into pods ({spec.consumers.format.value})")
    yield f"{name} {'; '.join(keeps) or 'only asks for a reset'}."
    if status is None:
        yield f"  {UNREADABLE[:1].upper()}{UNREADABLE[1:]}, so it is unknown whether it does so."
        return
    yield f"  {_ready(find_condition(status.conditions, READY))}"
    if spec.retention is not None and find_condition(status.conditions, RETAINED) is not None:
        yield f"  {_said(status.conditions, RETAINED)}"
    if spec.stuck_records is not None and find_condition(status.conditions, RECORD_STUCK) is not None:
        yield f"  {_said(status.conditions, RECORD_STUCK)}"
    if status.stuck_records is not None:
        for record in status.stuck_records.records:
            if record.skip is not None:
                which = f"{visible(record.topic)}-{record.partition}@{record.offset}"
                shows = command("tidegate plan", record.skip, common.namespace, context)
                yield f"  To look at the reset that would skip {which}: {shows}"
    if status.retention is not None and status.retention.expires_at is not None:
        at, exact = time_text(status.retention.expires_at, now), "" if status.retention.exact else " at the earliest"
        yield f"  If nobody did anything, the first offset would expire at {at}{exact}."


def _ready(said: Condition | None) -> str:
    if said is None:
        return "The operator has not said whether it does so."
    word = {ConditionStatus.TRUE: "Ready", ConditionStatus.FALSE: "Not ready"}.get(said.status, "Unknown whether ready")
    return f"{word}. {said.reason}: {visible(said.message)}"


def connection_told(connection: ConnectionSeen, context: str | None = None) -> Iterator[str]:
    common, spec, status = connection.common, connection.spec, connection.status
    yield from _beginning(common, "KafkaConnection")
    name = f"KafkaConnection {visible(common.label)}"
    conditions: Conditions = status.conditions if status is not None else ()
    yield f"{name}: {UNREADABLE if status is None else _ready(find_condition(conditions, READY))}"
    if spec is not None and spec.observe:
        yield "  It only observes (spec.observe): nothing begins through it, and its pauses pause nothing."
    said = find_condition(conditions, FROZEN)
    if said is not None:
        yield f"  It is {visible(said.message)}. {_command('thaw', common, context)} ends that."
    elif spec is not None and spec.freeze is not None:
        yield (
            f"  It is to be frozen (spec.freeze): {visible(spec.freeze.reason)}. The operator has not "
            "confirmed that yet."
        )
