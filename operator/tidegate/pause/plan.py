"""What a pause needs next, and what its status says: a pure function of what was seen.

    Pending ─ partitions known ─ finalizer ─ Pausing: holds written ─ acks ─ Paused
    Resuming: holds released ─ Resumed

Nothing of this is remembered from pass to pass but what the status, the API server and the control topic say; only how
long an owner has been waited for is (:class:`Wait`), and losing that costs a little patience.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypedDict

from tidegate.connection.allow import GROUP_NOT_ALLOWED, TOPIC_NOT_ALLOWED, group_not_allowed, topic_not_allowed
from tidegate.control.gates import Gates, Held
from tidegate.control.records import Hold, HoldKey
from tidegate.control.standing import Flow, Standing, standings
from tidegate.kafka.model import Group, Member, Offsets, Topic, TopicPartition
from tidegate.kafka.names import is_internal
from tidegate.kube.ports import EventType, Happening
from tidegate.pause.holds import HoldChanges, Wanted, hold_changes, hold_of, holder, own_holds, wanted_partitions
from tidegate.resources.conditions import (
    PAUSED,
    READY,
    Conditions,
    find_condition,
    ready,
    reconciling,
    stalled,
    with_condition,
)
from tidegate.resources.connection import AllowSpec
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PausedPartition,
    PauseMethod,
    PausePhase,
    PauseStatus,
    UnmanagedMember,
)

FINALIZER: Final = "tidegate.io/pause"
ABANDON: Final = "tidegate.io/abandon"

INVALID_SPEC: Final = "InvalidSpec"
METHOD_NOT_SUPPORTED: Final = "MethodNotSupported"
INTERNAL_TOPIC: Final = "InternalTopic"
WAITING_FOR_CONNECTION: Final = "WaitingForConnection"
CONTROL_TOPICS_UNUSABLE: Final = "ControlTopicsUnusable"
WAITING_FOR_TOPICS: Final = "WaitingForTopics"
WAITING_FOR_GROUP: Final = "WaitingForGroup"
PAUSING: Final = "Pausing"
ALL_PAUSED: Final = "Paused"
UNMANAGED_MEMBERS: Final = "UnmanagedMembers"
ACK_OVERDUE: Final = "AckOverdue"
RESUMING: Final = "Resuming"
SUSPENDED: Final = "Suspended"
TIME_OVER: Final = "TimeOver"
DELETED: Final = "Deleted"
ABANDONED: Final = "Abandoned"
HOLDS_LEFT: Final = "HoldsLeft"

MAX_ROWS: Final = 200
_NO_COMMIT: Final = -1
_SHOWN: Final = 5
_REST_S: Final = 60.0
_QUICK: Final = timedelta(seconds=10)
"""For so long after somebody is first waited for, looks follow one another quickly."""


# --- what is seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why it can't be as asked for: a condition's reason, and a message with what to do."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Whom a partition waits for since when; ``member`` is empty for an owner that nobody can name."""

    member: str
    epoch: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """Kafka as a look has found it. ``connection``: the KafkaConnection's name and uid.

    ``committed``: all offsets of the group, where they were asked for, as they always are with ``log_ends``: of the
    partitions in the status.
    """

    connection: str
    connection_uid: str
    allow: AllowSpec
    topics: Mapping[str, Topic]
    group: Group
    gates: Gates
    committed: Offsets = field(default_factory=dict)
    log_ends: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what. ``unmanaged``: for a first word of an owner, before it counts as one without the
    agent. ``overdue``: beyond the drain time-out, for an owner with the agent. ``deletion``: for Kafka, before a pause
    that is deleted goes without having released its holds."""

    unmanaged: timedelta = timedelta(seconds=5)
    overdue: timedelta = timedelta(seconds=15)
    deletion: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Tick:
    """Seconds until the next look: while owners are just letting go, while something is under way, and otherwise."""

    quick_s: float = 0.2
    active_s: float = 1.0
    idle_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One pause as a pass finds it. ``name``: namespace and name.

    ``invalid``: why the spec can't be read; then ``spec`` is ``None``. ``observed`` ``None``: Kafka can't be seen now,
    and ``waiting`` says why. ``unusable``: what is wrong with the control topics; ``try_again``: it may be mended by
    now, and only writing tells. ``rows``: all of the last decision's, where there was one; the status has the first.
    """

    uid: str
    name: str
    generation: int
    created: datetime
    spec: ConsumerGroupPauseSpec | None
    status: PauseStatus
    now: datetime
    observed: Observed | None = None
    waiting: Refusal | None = None
    unusable: Refusal | None = None
    try_again: bool = False
    invalid: str = ""
    abandoned: bool = False
    deleting_since: datetime | None = None
    has_finalizer: bool = False
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    rows: tuple[PausedPartition, ...] = ()
    patience: Patience = Patience()
    tick: Tick = Tick()


# --- what is done -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the pause until its holds are released."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """It holds nothing: it may go."""


@dataclass(frozen=True, slots=True)
class ChangeHolds:
    """Write and release holds in the control topic."""

    changes: HoldChanges


Action = AddFinalizer | RemoveFinalizer | ChangeHolds


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write, what to tell, then at most one action. ``again_after_s`` 0: look again at once.

    ``waits`` and ``rows`` are for the next pass. ``obeyed``: partitions whose owner has acked their hold.
    """

    status: PauseStatus
    action: Action | None = None
    happenings: tuple[Happening, ...] = ()
    again_after_s: float = _REST_S
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    obeyed: frozenset[TopicPartition] = frozenset()
    rows: tuple[PausedPartition, ...] = ()

    @property
    def paused_since(self) -> datetime | None:
        """Since when the partition that has stood still for longest does so."""
        rows = self.rows or self.status.partitions
        return min((row.since for row in rows if row.since is not None), default=None)


class _Stamp(TypedDict):
    generation: int
    now: datetime


# --- the decision -----------------------------------------------------------------------------------------------------


def decide(seen: Seen) -> Decision:
    """The next step. Reads as a list of checks, the first that applies wins."""
    status = seen.status.model_copy(update={"observed_generation": seen.generation})
    if seen.deleting_since is not None:
        return _leave(seen, status, seen.deleting_since)
    if seen.spec is None:
        # What it holds stays held: nobody has asked for anything else.
        return _stuck(seen, status, Refusal(INVALID_SPEC, seen.invalid), _REST_S)
    status = _with_deadline(seen, seen.spec, status)
    refusal = _refusal(seen.spec, seen.observed)
    if refusal is not None:
        return _refuse(seen, status, refusal)
    if seen.observed is None and seen.unusable is not None:
        return _stuck(seen, status, seen.unusable, seen.tick.idle_s)
    if seen.waiting is not None or seen.observed is None:
        return _wait(seen, status, seen.waiting or Refusal(WAITING_FOR_CONNECTION, "Kafka was not looked at yet"))
    if seen.spec.suspend:
        return _resume(seen, status, seen.observed, SUSPENDED, "spec.suspend is true: nothing is held")
    if status.resumes_at is not None and seen.now >= status.resumes_at:
        text = f"its time was over at {status.resumes_at:%Y-%m-%dT%H:%M:%SZ}: nothing is held"
        return _resume(seen, status, seen.observed, TIME_OVER, text)
    return _pause(seen, seen.spec, status, seen.observed)


def _with_deadline(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus) -> PauseStatus:
    """When it ends. ``resumeAfter`` counts from the resource's creation or, changed later, from when that was seen.

    The status remembers which ``resumeAfter`` its ``resumesAt`` was made of: other changes do not prolong the pause.
    """
    after, at = spec.resume_after, spec.resume_at
    if after is not None:
        if status.resume_after == after and status.resumes_at is not None:
            return status
        # Of a pause that was never looked at, nothing was changed later.
        begin = seen.created if seen.status.observed_generation is None else seen.now
        at = begin + after
    at = at.replace(microsecond=0) if at is not None else None
    return status.model_copy(update={"resume_after": after, "resumes_at": at})


def _refusal(spec: ConsumerGroupPauseSpec, observed: Observed | None) -> Refusal | None:
    if spec.method is PauseMethod.SCALE:
        return Refusal(
            METHOD_NOT_SUPPORTED,
            "spec.method Scale is not there in this version: use Auto or Agent, with consumers that run the agent",
        )
    for selection in spec.partitions or ():
        if is_internal(selection.topic):
            return Refusal(
                INTERNAL_TOPIC, f"spec.partitions: topic {selection.topic} is an internal one: name a topic of yours"
            )
    if observed is None:
        return None
    message = group_not_allowed(observed.connection, observed.allow, "spec.group", spec.group)
    if message is not None:
        return Refusal(GROUP_NOT_ALLOWED, message)
    for selection in spec.partitions or ():
        message = topic_not_allowed(observed.connection, observed.allow, selection.topic)
        if message is not None:
            return Refusal(TOPIC_NOT_ALLOWED, message)
    return None


# --- not pausing ------------------------------------------------------------------------------------------------------


def _stuck(seen: Seen, status: PauseStatus, refusal: Refusal, again_after_s: float) -> Decision:
    """What is held stays held; somebody has to do something before more can be said."""
    conditions = _paused(seen, status.conditions, None, refusal)
    conditions = stalled(conditions, reason=refusal.reason, message=refusal.message, **_stamp(seen))
    status = status.model_copy(update={"conditions": conditions, "phase": status.phase or PausePhase.PENDING})
    return Decision(status, None, (_warning(seen, refusal),), again_after_s, seen.waits)


def _refuse(seen: Seen, status: PauseStatus, refusal: Refusal) -> Decision:
    """What may not be asked for is not done, and not gone on with."""
    held = own_holds(seen.observed.gates, seen.uid) if seen.observed is not None else {}
    conditions = _paused(seen, status.conditions, False, refusal)
    conditions = stalled(conditions, reason=refusal.reason, message=refusal.message, **_stamp(seen))
    status = _cleared(status).model_copy(update={"conditions": conditions, "phase": PausePhase.PENDING})
    happenings = (_warning(seen, refusal),)
    if held:
        return Decision(status, _release(held), happenings, again_after_s=0)
    if seen.has_finalizer and seen.observed is not None:
        return Decision(status, RemoveFinalizer(), happenings, again_after_s=0)
    return Decision(status, None, happenings, seen.tick.idle_s)


def _wait(seen: Seen, status: PauseStatus, why: Refusal) -> Decision:
    """Agents keep the gates as they know them; whether they do can't be seen."""
    conditions = reconciling(status.conditions, reason=why.reason, message=why.message, **_stamp(seen))
    conditions = _paused(seen, conditions, None, why)
    phase = status.phase or PausePhase.PENDING
    status = status.model_copy(update={"conditions": conditions, "phase": phase})
    return Decision(status, None, (), seen.tick.active_s, seen.waits)


def _resume(seen: Seen, status: PauseStatus, observed: Observed, reason: str, message: str) -> Decision:
    held = own_holds(observed.gates, seen.uid)
    if held:
        return _resuming(seen, status, held, f"{message}; {len(held)} hold(s) are being released")
    phase = PausePhase.RESUMED
    conditions = ready(status.conditions, reason=reason, message=message, **_stamp(seen))
    conditions = _paused(seen, conditions, False, Refusal(reason, message))
    status = _cleared(status).model_copy(update={"conditions": conditions, "phase": phase})
    action = RemoveFinalizer() if seen.has_finalizer else None
    return Decision(status, action, _told(seen, phase, message), 0 if action else _REST_S)


def _resuming(seen: Seen, status: PauseStatus, held: Mapping[HoldKey, Held], message: str) -> Decision:
    conditions = reconciling(status.conditions, reason=RESUMING, message=message, **_stamp(seen))
    conditions = _paused(seen, conditions, False, Refusal(RESUMING, message))
    rows = tuple(row.model_copy(update={"phase": PausePhase.RESUMING}) for row in status.partitions)
    status = _counted(status, 0, status.partitions_total or 0).model_copy(
        update={
            "conditions": conditions,
            "phase": PausePhase.RESUMING,
            "partitions": rows,
            "unmanaged_members": (),
        }
    )
    return Decision(status, _release(held), _told(seen, PausePhase.RESUMING, message), again_after_s=0)


def _leave(seen: Seen, status: PauseStatus, since: datetime) -> Decision:
    if not seen.has_finalizer:
        return Decision(seen.status)
    if seen.abandoned:
        text = (
            f"{ABANDON} is set: it goes at once; what it still holds is released when its connection is next looked at"
        )
        return Decision(seen.status, RemoveFinalizer(), (_warning(seen, Refusal(ABANDONED, text)),))
    if seen.observed is not None:
        held = own_holds(seen.observed.gates, seen.uid)
        if held:
            return _resuming(seen, status, held, f"it is being deleted; {len(held)} hold(s) are being released")
        return Decision(
            seen.status, RemoveFinalizer(), _told(seen, PausePhase.RESUMED, "it is deleted: nothing is held")
        )
    why = seen.waiting.message if seen.waiting is not None else "Kafka was not looked at yet"
    if seen.now - since > seen.patience.deletion:
        text = f"its holds could not be released in {seen.patience.deletion.seconds} s: {why}; it goes without that"
        return Decision(seen.status, RemoveFinalizer(), (_warning(seen, Refusal(HOLDS_LEFT, text)),))
    text = (
        f"it is being deleted and its holds can't be released now: {why}; annotation {ABANDON}=true lets it go at once"
    )
    conditions = reconciling(status.conditions, reason=RESUMING, message=text, **_stamp(seen))
    conditions = _paused(seen, conditions, None, Refusal(RESUMING, text))
    status = status.model_copy(update={"conditions": conditions, "phase": PausePhase.RESUMING})
    return Decision(status, None, _told(seen, PausePhase.RESUMING, text), seen.tick.active_s)


# --- pausing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """One partition as it stands. ``late``: why it does not stand still although it should by now."""

    partition: TopicPartition
    phase: PausePhase
    standing: Standing | None = None
    wait: Wait | None = None
    late: str = ""


def _pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    own = own_holds(observed.gates, seen.uid)
    known = {key.topic_partition for key in own if key.group == spec.group}
    known |= {TopicPartition(row.topic, row.partition) for row in status.partitions}
    wanted = wanted_partitions(spec, observed.allow.topics, observed.topics, observed.group, observed.committed, known)
    if wanted.forbidden:
        text = (
            f"group {spec.group} reads {', '.join(wanted.forbidden[:_SHOWN])}, which KafkaConnection "
            f"{observed.connection} does not allow: name the topics to pause in spec.partitions"
        )
        return _refuse(seen, status, Refusal(TOPIC_NOT_ALLOWED, text))
    mine = holder(observed.connection_uid, seen.uid)
    hold = hold_of(spec, seen.name)
    changes = hold_changes(spec, observed.allow.topics, hold, mine, wanted.to_hold, own)
    rows = _rows(seen, spec, observed, wanted, {k.topic_partition: h for k, h in own.items() if k.holder == mine}, hold)
    before = _before(seen)
    shown = tuple(_shown(seen, observed, row, before.get(row.partition)) for row in rows)
    status = _described(seen, spec, status, observed, wanted, rows, shown)
    phase = status.phase or PausePhase.PENDING
    happenings = _told(seen, phase, _message(status.conditions))
    waits = {row.partition: row.wait for row in rows if row.wait is not None}
    obeyed = frozenset(row.partition for row in rows if row.standing is not None and row.standing.flow is Flow.CLOSED)
    action: Action | None = None
    if seen.unusable is not None:
        happenings = (*happenings, _warning(seen, seen.unusable))
        changes = changes if seen.try_again else HoldChanges({}, changes.release)
    if (changes.write or own) and not seen.has_finalizer:
        action = AddFinalizer()
    elif changes:
        action = ChangeHolds(changes)
    again = 0 if action is not None else _again_after_s(seen, status, observed, waits)
    return Decision(status, action, happenings, again, waits, obeyed, shown)


def _before(seen: Seen) -> Mapping[TopicPartition, PausedPartition]:
    return {TopicPartition(row.topic, row.partition): row for row in seen.rows or seen.status.partitions}


def _rows(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    observed: Observed,
    wanted: Wanted,
    own: Mapping[TopicPartition, Held],
    hold: Hold,
) -> list[_Row]:
    epochs = {p: held.epoch for p, held in own.items()}
    stand = standings(observed.gates, observed.group, [p for p in wanted.existing if p in own], epochs)
    before = _before(seen)
    rows = [
        _row(seen, spec, partition, stand[partition], before.get(partition))
        if partition in stand and own[partition].hold == hold
        else _Row(partition, PausePhase.PAUSING)
        for partition in wanted.existing
    ]
    return rows + [_Row(partition, PausePhase.PENDING) for partition in wanted.beforehand]


def _row(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    partition: TopicPartition,
    standing: Standing,
    before: PausedPartition | None,
) -> _Row:
    if standing.is_paused:
        return _Row(partition, PausePhase.PAUSED, standing)
    member = standing.owner.member_id if standing.owner is not None else ""
    wait = seen.waits.get(partition)
    if wait is None or (wait.member, wait.epoch) != (member, standing.epoch):
        wait = Wait(member, standing.epoch or 0, seen.now)
    waited = seen.now - wait.since
    was_late = before is not None and before.phase is PausePhase.DEGRADED and before.member == (member or None)
    match standing.flow:
        case Flow.UNDECIDED:
            # Between two assignments; members with the agent obey over a rebalance, so what was said stands a while.
            said = before.phase if before is not None and waited <= seen.patience.unmanaged else PausePhase.PAUSING
            return _Row(partition, said, standing, wait)
        case Flow.UNMANAGED:
            if was_late or waited > seen.patience.unmanaged:
                return _Row(partition, PausePhase.DEGRADED, standing, wait, UNMANAGED_MEMBERS)
        case Flow.CLOSING:
            limit = spec.drain_timeout + seen.patience.overdue
            if standing.owner is None:
                # It assigned the partition itself, and nobody can tell whether it still lives.
                if waited > limit:
                    return _Row(partition, PausePhase.PAUSED, standing, wait)
            elif was_late or waited > limit:
                return _Row(partition, PausePhase.DEGRADED, standing, wait, ACK_OVERDUE)
        case _:
            pass
    return _Row(partition, PausePhase.PAUSING, standing, wait)


def _described(
    seen: Seen,
    spec: ConsumerGroupPauseSpec,
    status: PauseStatus,
    observed: Observed,
    wanted: Wanted,
    rows: list[_Row],
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
            conditions = ready(status.conditions, reason=reason, message=message, **_stamp(seen))
        case PausePhase.DEGRADED:
            conditions = stalled(status.conditions, reason=reason, message=message, **_stamp(seen))
        case _:
            conditions = reconciling(status.conditions, reason=reason, message=message, **_stamp(seen))
    if seen.unusable is not None:
        conditions = stalled(conditions, reason=seen.unusable.reason, message=seen.unusable.message, **_stamp(seen))
    conditions = _paused(seen, conditions, phase is PausePhase.PAUSED, Refusal(reason, message))
    return _counted(status, len(paused), len(existing)).model_copy(
        update={
            "phase": phase,
            "method": PauseMethod.AGENT,
            "partitions": shown[:MAX_ROWS],
            "partitions_omitted": max(0, len(rows) - MAX_ROWS) or None,
            "unmanaged_members": tuple(
                UnmanagedMember(member_id=m.member_id, client_id=m.client_id or None, host=m.host or None)
                for m in sorted(unmanaged.values(), key=lambda m: (m.client_id, m.member_id))[:MAX_ROWS]
            ),
            "conditions": conditions,
        }
    )


def _phase(
    spec: ConsumerGroupPauseSpec,
    group: Group,
    wanted: Wanted,
    existing: list[_Row],
    paused: list[_Row],
    late: list[_Row],
    unmanaged: Mapping[str, Member],
) -> tuple[PausePhase, str, str]:
    """The phase, and its condition's reason and message."""
    more = f"; topic(s) {_listed(wanted.missing)} do not exist yet" if wanted.missing else ""
    if wanted.beforehand:
        more += (
            f"; {len(wanted.beforehand)} named partition(s) do not exist yet and are held from their first record on"
        )
    if not existing:
        if wanted.missing or wanted.beforehand:
            return PausePhase.PENDING, WAITING_FOR_TOPICS, f"there is nothing to pause yet{more}"
        if spec.partitions is not None:
            return PausePhase.PENDING, WAITING_FOR_TOPICS, "there is nothing to pause yet: no topic matches"
        text = f"group {spec.group} has neither members nor offsets yet ({group.state.value}): what it reads is unknown"
        return PausePhase.PENDING, WAITING_FOR_GROUP, text
    count = f"{len(paused)} of {len(existing)} partition(s) of group {spec.group} stand still"
    if unmanaged:
        clients = _listed([f"{m.client_id or m.member_id} at {m.host.lstrip('/')}" for m in unmanaged.values()])
        text = (
            f"{count}; {len(late)} are read on by {len(unmanaged)} member(s) that run no agent: {clients}. Start them "
            f"with the agent (docs/how-to/pause-partitions.md); nothing else of the pause is undone{more}"
        )
        return PausePhase.DEGRADED, UNMANAGED_MEMBERS, text
    if late:
        waiting = _listed([f"{row.partition} of {_owner(row)}" for row in late])
        text = (
            f"{count}; {len(late)} owner(s) run the agent and have not confirmed that they let go: {waiting}. Look at "
            f"their logs; a consumer that does not poll can't let go{more}"
        )
        return PausePhase.DEGRADED, ACK_OVERDUE, text
    if len(paused) == len(existing):
        return PausePhase.PAUSED, ALL_PAUSED, count + more
    waiting = _listed([str(row.partition) for row in existing if row.phase is not PausePhase.PAUSED])
    return PausePhase.PAUSING, PAUSING, f"{count}; waiting for {waiting}{more}"


def _shown(seen: Seen, observed: Observed, row: _Row, before: PausedPartition | None) -> PausedPartition:
    """A row of the status. What was not looked up this time stays as it was said."""
    standing, partition = row.standing, row.partition
    is_paused = row.phase is PausePhase.PAUSED
    offset = standing.offset if standing is not None else None
    lag = before.lag if before is not None and is_paused else None
    if offset is None and observed.log_ends is not None:
        offset = observed.committed.get(partition, _NO_COMMIT)
    elif offset is None and before is not None and is_paused:
        offset = before.offset
    if is_paused and observed.log_ends is not None and partition in observed.log_ends:
        lag = max(0, observed.log_ends[partition] - offset) if offset is not None and offset >= 0 else None
    # Over a rebalance the new owner obeys before it reads, so the standstill goes on; a late one did read.
    since = before.since if before is not None and row.phase is not PausePhase.DEGRADED else None
    return PausedPartition(
        topic=partition.topic,
        partition=partition.partition,
        phase=row.phase,
        offset=offset,
        lag=lag,
        member=standing.owner.member_id if standing is not None and standing.owner is not None else None,
        since=since or (seen.now.replace(microsecond=0) if is_paused else None),
    )


def _again_after_s(seen: Seen, status: PauseStatus, observed: Observed, waits: Mapping[TopicPartition, Wait]) -> float:
    tick = seen.tick
    match status.phase:
        case PausePhase.PAUSING:
            since = min((wait.since for wait in waits.values()), default=seen.now)
            after = tick.quick_s if seen.now - since <= _QUICK else tick.active_s
        case PausePhase.PENDING if observed.group.has_members:
            after = tick.active_s
        case _:
            after = tick.idle_s
    if status.resumes_at is None:
        return after
    return max(0.05, min(after, (status.resumes_at - seen.now).total_seconds()))


# --- parts ------------------------------------------------------------------------------------------------------------


def _release(held: Mapping[HoldKey, Held]) -> ChangeHolds:
    return ChangeHolds(HoldChanges({}, tuple(sorted(held))))


def _counted(status: PauseStatus, paused: int, total: int) -> PauseStatus:
    return status.model_copy(
        update={"paused": f"{paused}/{total}", "partitions_paused": paused, "partitions_total": total}
    )


def _cleared(status: PauseStatus) -> PauseStatus:
    """Nothing is held, so no partition is this pause's."""
    return _counted(status, 0, 0).model_copy(
        update={"partitions": (), "partitions_omitted": None, "unmanaged_members": (), "method": None}
    )


def _paused(seen: Seen, conditions: Conditions, value: bool | None, why: Refusal) -> Conditions:
    return with_condition(conditions, PAUSED, value, reason=why.reason, message=why.message, **_stamp(seen))


def _stamp(seen: Seen) -> _Stamp:
    return _Stamp(generation=seen.generation, now=seen.now)


def _warning(seen: Seen, refusal: Refusal) -> Happening:
    """Once for a generation and its words."""
    return Happening(
        EventType.WARNING, refusal.reason, refusal.message, f"{seen.generation}/{refusal.reason}/{refusal.message}"
    )


def _told(seen: Seen, phase: PausePhase, message: str) -> tuple[Happening, ...]:
    if seen.status.phase is phase:
        return ()
    kind = EventType.WARNING if phase is PausePhase.DEGRADED else EventType.NORMAL
    # The same for a pass that is repeated because its status could not be written.
    said = find_condition(seen.status.conditions, READY)
    since = said.last_transition_time.isoformat() if said is not None else ""
    return (Happening(kind, phase.value, message, f"{seen.generation}/{seen.status.phase}/{since}/{phase.value}"),)


def _message(conditions: Conditions) -> str:
    return next((c.message for c in conditions if c.type == PAUSED), "")


def _owner(row: _Row) -> str:
    owner = row.standing.owner if row.standing is not None else None
    return f"{owner.client_id or owner.member_id} at {owner.host.lstrip('/')}" if owner is not None else "a consumer"


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
