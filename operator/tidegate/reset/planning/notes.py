"""What a plan says besides its numbers: what whoever approves it should know. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.leading.groups import LED_ASSIGNORS, is_cooperative
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.targets import (
    ByDuration,
    FromBackup,
    FromCluster,
    FromFile,
    FromGroup,
    ShiftBy,
    Target,
    ToRecord,
    ToTimestamp,
    Undo,
)
from tidegate.reset.planning.checks import Asked
from tidegate.reset.planning.measured import Aimed, Measured
from tidegate.reset.planning.scope import listed
from tidegate.reset.planning.targets import NoAim, asked_time
from tidegate.resources.reset import Way
from tidegate.resources.targets import NoMatch


def left_out(target: Target, aimed: Aimed) -> list[str]:
    """A sentence for each reason for which partitions in scope are not in the plan."""
    sentences = []
    for reason, partitions in aimed.without.items():
        them = f"{count(partitions)} ({listed(partitions)})"
        match reason, target:
            case NoAim.NOT_IN_FILE, FromFile(source=source):
                sentences.append(f"Left as they are, not in {source}: {them}")
            case NoAim.NOT_IN_GROUP, FromGroup(group_id=group_id):
                sentences.append(f"Left as they are, because group {group_id} has no committed offset for them: {them}")
            case NoAim.NOT_IN_GROUP, FromCluster(group_id=group_id):
                sentences.append(
                    f"Left as they are, because group {group_id} has no committed offset in the other cluster: {them}"
                )
            case NoAim.NONE_BEFORE, Undo(run_id=run_id):
                sentences.append(f"Left as they are, because run {run_id} found no committed offset there: {them}")
            case NoAim.NOT_IN_RUN, Undo(run_id=run_id):
                sentences.append(f"Left as they are, not part of run {run_id}: {them}")
            case NoAim.NOT_IN_BACKUP, FromBackup():
                sentences.append(f"Left as they are, not in the backup: {them}")
            case NoAim.NO_MATCH, ToRecord():
                sentences.append(f"Left as they are, because no record was found there: {them}")
            case NoAim.NOT_SEARCHED, ToRecord():
                sentences.append(f"Left as they are, because they did not exist yet when the search began: {them}")
    return sentences


def notes_on(asked: Asked, measured: Measured, plan: Plan, now: datetime) -> list[str]:
    return [
        note
        for note in (
            _note_new_group(asked),
            _note_without_members(asked),
            _note_rows_outside(asked),
            _note_live_source(asked, now),
            _note_time(asked, measured, now),
            _note_to_the_end(asked, measured),
            _note_clamped(plan),
            _note_uncommitted(asked, plan),
            _note_outside_log(plan),
            _note_shift_of_live_group(asked),
            _note_reread(asked.group, plan),
            _note_standstill(asked, plan),
            _note_led(asked.group, plan),
            _note_static(asked.group, plan),
            _note_in_flight(asked, plan),
            _note_nothing_moves(plan),
            _note_copies_stay(asked),
        )
        if note is not None
    ]


def _note_copies_stay(asked: Asked) -> str | None:
    target = asked.request.target
    if not isinstance(target, Undo) or not target.dead_letter:
        return None
    return (
        f"Run {target.run_id} has copied the records that it skipped to dead-letter topic {target.dead_letter}. The "
        "copies stay there: whoever processes them, too, processes these records twice"
    )


def _note_new_group(asked: Asked) -> str | None:
    if asked.group.state is not GroupState.DEAD:
        return None
    return f"Group {asked.group.group_id} does not exist yet: these will be its first offsets"


def _note_without_members(asked: Asked) -> str | None:
    if asked.group.type is not GroupType.SIMPLE or asked.group.state is GroupState.DEAD:
        return None
    return (
        f"Group {asked.group.group_id} has offsets but has never had members. A consumer that uses assign() is not a "
        "member, so Tidegate does not see it: if one is running, stop it first, or it overwrites the targets"
    )


def _note_rows_outside(asked: Asked) -> str | None:
    """Rows of a file, or partitions of an undone run, that the selections leave out."""
    match asked.request.target:
        case FromFile(offsets=offsets, source=source):
            named, of = {o.topic_partition for o in offsets}, source
        case Undo(before=before, run_id=run_id):
            named, of = {o.topic_partition for o in before}, f"run {run_id}"
        case _:
            return None
    outside = sorted(named - set(asked.scope.partitions))
    return f"Not selected, though in {of}: {count(outside)} ({listed(outside)})" if outside else None


def _note_live_source(asked: Asked, now: datetime) -> str | None:
    match asked.request.target:
        case FromGroup(group_id=group_id):
            return f"The offsets are those that group {group_id} had committed at {_time(now)}"
        case FromCluster(group_id=group_id):
            return (
                f"The targets are equivalent to what group {group_id} had committed in the other cluster when records "
                f"were compared, before {_time(now)}"
            )
        case _:
            return None


def _note_time(asked: Asked, measured: Measured, now: datetime) -> str | None:
    target = asked.request.target
    at = asked_time(target, now)
    if at is None:
        return None
    sentences = [f"{target.ago} ago was {_time(at)}"] if isinstance(target, ByDuration) else []
    if isinstance(target, ToTimestamp) and at > now:
        sentences.append(f"{_time(at)} is in the future")
    ended = [p for p in asked.scope.partitions if measured.found.get(p) is None]
    if ended:
        sentences.append(f"No record at or after {_time(at)} in {count(ended)} ({listed(ended)}): reset to the end")
    # All that is left is younger than the asked time: what retention took may have been, too.
    begun = [
        p
        for p in asked.scope.partitions
        if measured.bounds[p].earliest > 0 and measured.found.get(p) == measured.bounds[p].earliest
    ]
    if begun:
        sentences.append(
            f"All records left in {count(begun)} ({listed(begun)}) are at or after {_time(at)}: "
            "earlier ones were deleted, perhaps including some from after that time"
        )
    return ". ".join(sentences) or None


def _note_to_the_end(asked: Asked, measured: Measured) -> str | None:
    target = asked.request.target
    if not isinstance(target, ToRecord) or target.no_match is not NoMatch.END or measured.findings is None:
        return None
    without = [p for p in asked.scope.partitions if measured.findings.offsets.get(p, 0) is None]
    return f"No record was found in {count(without)} ({listed(without)}): reset to the end" if without else None


def _note_clamped(plan: Plan) -> str | None:
    clamped = [p for p in plan.partitions if p.clamped is not None]
    if not clamped:
        return None
    ends = [f"{p.topic_partition} to {p.target} ({p.clamped})" for p in clamped]
    return f"Targets outside the log were moved to its nearer end: {listed(ends)}"


def _note_uncommitted(asked: Asked, plan: Plan) -> str | None:
    """Nothing is counted there, so say which; a topic that the group does not even read is worth a second look."""
    if asked.group.state is GroupState.DEAD:
        return None
    without = [p.topic_partition for p in plan.partitions if p.committed is None]
    if not without:
        return None
    note = f"No committed offset yet, so nothing is counted as replayed or skipped: {count(without)}"
    read = {p.topic for p in plan.partitions if p.committed is not None}
    read |= {p.topic for p in asked.group.assigned}
    unread = sorted({p.topic for p in without} - read)
    return f"{note}. The group does not read {listed(unread)} so far" if unread else note


def _note_outside_log(plan: Plan) -> str | None:
    lost = [
        f"{p.topic_partition} at {p.committed}"
        for p in plan.partitions
        if p.committed is not None and not p.earliest <= p.committed <= p.latest
    ]
    return f"The committed offset is outside the log: {listed(lost)}" if lost else None


def _note_shift_of_live_group(asked: Asked) -> str | None:
    if not isinstance(asked.request.target, ShiftBy) or not asked.group.has_members:
        return None
    return (
        "Shifted from the offsets committed when this plan was made; the group keeps reading until the plan is applied"
    )


def _note_reread(group: Group, plan: Plan) -> str | None:
    """Invariant 3: what the way costs partitions outside the run is said before."""
    ours = frozenset(plan.targets)
    beside = frozenset(p for m in group.owners(ours) for p in m.assignment) - ours
    if not beside or plan.way not in (Way.BARRIER, Way.HANDOVER):
        return None
    reread = f"are read again in {count(beside)} outside this run, too ({listed(sorted(beside))})"
    if plan.way is Way.HANDOVER:
        members = len(group.owners(ours))
        return (
            f"{members} member(s) are made to leave and rejoin: records that they have read but not committed {reread}"
        )
    # Which clients they are is seen when the plan is applied.
    return (
        f"Records that a member has read but not committed {reread}, if it does not commit when it releases its "
        "partitions in the rebalance, or is made to leave because its client is from before KIP-429 (aiokafka, "
        "kafka-python)"
    )


def _note_standstill(asked: Asked, plan: Plan) -> str | None:
    if asked.group.type is not GroupType.CLASSIC or plan.way in (Way.UNOWNED, Way.GATED):
        return None
    limit_s = asked.request.settings.max_standstill.total_seconds()
    return (
        f"If a member does not rejoin within maxStandstill ({limit_s:g} s), all members are made to leave, and records "
        "that they have read but not committed are read again in all partitions of the group"
    )


def _note_led(group: Group, plan: Plan) -> str | None:
    """As ``_note_reread``, for the way that is taken, or follows where an owner keeps its position."""
    ours = frozenset(plan.targets)
    beside = group.assigned - ours
    may_be_led = plan.way is Way.HANDOVER and is_cooperative(group) and group.assignor in LED_ASSIGNORS
    if not beside or not (may_be_led or plan.way is Way.LEADING):
        return None
    why = (
        "If an owner still keeps its position (franz-go), Tidegate leads the group to make that owner give it up"
        if may_be_led
        else "Tidegate leads the group to make its owners give up their positions"
    )
    return (
        f"{why}: all {len(group.members)} member(s) then leave and rejoin, and those that consider their "
        "partitions lost (Java, librdkafka) read again what they have not committed in "
        f"{count(beside)} outside this run ({listed(sorted(beside))})"
    )


def _note_static(group: Group, plan: Plan) -> str | None:
    """KIP-345: until it has rejoined, its instance id belongs to a member that is no more."""
    static = [m for m in group.owners(frozenset(plan.targets)) if m.is_static]
    if not static or group.type is not GroupType.CLASSIC or plan.way not in (Way.HANDOVER, Way.LEADING):
        return None
    return (
        f"{len(static)} static member(s) are made to leave and rejoin. If an application commits before its consumer "
        "has rejoined, librdkafka fails with a fatal error (FENCED_INSTANCE_ID), and that consumer has to be restarted"
    )


def _note_in_flight(asked: Asked, plan: Plan) -> str | None:
    settings = asked.request.settings
    if plan.way is not Way.HANDOVER or asked.group.type is not GroupType.CONSUMER or not settings.in_flight:
        return None
    return (
        "inFlight: in a KIP-848 group nothing holds back an application that commits late, so such a commit may "
        "replace a target until the application's next one"
    )


def _note_nothing_moves(plan: Plan) -> str | None:
    return "Every partition is at its target already" if plan.moved == 0 else None


def count(partitions: Collection[TopicPartition]) -> str:
    return f"{len(partitions):,} partition{'' if len(partitions) == 1 else 's'}"


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
