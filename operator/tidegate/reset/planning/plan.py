"""A run's plan from what was read of the cluster: checks that read aloud, targets, evidence, notes. Pure.

``plan_partitions`` is the part that is computed partition by partition; its arguments and its answer are values that
pickle, so it runs as well in a Spark executor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, assert_never

from tidegate.kafka.capabilities import Capabilities, GroupKind, Support, kind_of
from tidegate.kafka.model import Group, GroupState, GroupType, LogBounds, Offsets, Topic, TopicPartition
from tidegate.reset.model import (
    ByDuration,
    Findings,
    FromCluster,
    FromFile,
    FromGroup,
    FromSnapshot,
    NoMatch,
    PartitionPlan,
    Plan,
    RunRequest,
    ShiftBy,
    Target,
    ToRecord,
    ToTimestamp,
    Undo,
    Way,
)
from tidegate.reset.planning.scope import Scope, listed
from tidegate.reset.planning.targets import Aim, NoAim, Seen, aim, asked_time, named_offsets
from tidegate.reset.ways import COOPERATIVE_SUBSCRIPTION, LED_ASSIGNORS, Owners, choose_way, is_cooperative

SPAN_LIMIT: Final = 500
"""Partitions whose records' timestamps are looked up: each one is a fetch."""

STREAMS_ASSIGNOR: Final = "stream"
"""``StreamsPartitionAssignor``'s name: the assignor of every classic Kafka Streams application."""

UNSUPPORTED_GROUP: Final = "UnsupportedGroup"
SAME_GROUP: Final = "SameGroup"
SOURCE_WITHOUT_OFFSETS: Final = "SourceGroupWithoutOffsets"
INTERNAL_TOPIC: Final = "InternalTopic"
TOPIC_NOT_ALLOWED: Final = "TopicNotAllowed"
UNKNOWN_TOPIC: Final = "UnknownTopic"
UNKNOWN_PARTITION: Final = "UnknownPartition"
NOTHING_MATCHES: Final = "NothingMatches"
TOPIC_RECREATED: Final = "TopicRecreated"
NO_COMMITTED_OFFSET: Final = "NoCommittedOffset"
NO_MATCHING_RECORD: Final = "NoMatchingRecord"
UNSUPPORTED_BY_BROKERS: Final = "UnsupportedByBrokers"
SNAPSHOT_NOT_FOUND: Final = "SnapshotNotFound"
BAD_EXPRESSION: Final = "BadExpression"
BAD_SCHEMA: Final = "BadSchema"


class PlanRefused(Exception):
    """There is no plan for this request; asking again unchanged does not help.

    ``reason`` is PascalCase, for a condition. ``message`` says what is wrong, where, and what to do; no full stop.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")

    def __reduce__(self) -> tuple[type[PlanRefused], tuple[str, str]]:
        return PlanRefused, (self.reason, self.message)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, and what it met before any log was looked at. ``other``: the offsets of ``FromGroup``.

    ``managed``: ids of members that run the agent. ``capabilities``: what the brokers take, of ``kinds_written``.
    """

    request: RunRequest
    topics: Mapping[str, Topic]
    group: Group
    scope: Scope
    other: Offsets | None = None
    managed: frozenset[str] = frozenset()
    capabilities: Capabilities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str
    message: str


def kinds_written(group: Group) -> frozenset[GroupKind]:
    """For which kinds of group every way of its reset commits: its own, and the marker's, which nobody ever joins."""
    kind = kind_of(group)
    return frozenset({GroupKind.EMPTY} if kind is None else {GroupKind.EMPTY, kind})


# --- checks: the first that objects refuses the plan ------------------------------------------------------------------


def _group_type_is_supported(asked: Asked) -> Refusal | None:
    kind = asked.group.type
    if kind not in (GroupType.STREAMS, GroupType.SHARE):
        return None
    tool = "kafka-streams-application-reset" if kind is GroupType.STREAMS else "kafka-share-groups"
    return Refusal(
        UNSUPPORTED_GROUP,
        f"group {asked.group.group_id} is a {kind} group, whose place is more than its committed offsets: use {tool}",
    )


def _group_is_no_streams_application(asked: Asked) -> Refusal | None:
    if asked.group.assignor != STREAMS_ASSIGNOR:
        return None
    return Refusal(
        UNSUPPORTED_GROUP,
        f"group {asked.group.group_id} is a running Kafka Streams application, whose state stores would not follow "
        "its offsets: stop it and use kafka-streams-application-reset",
    )


def _source_is_another_group(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, FromGroup) or target.group_id != asked.request.group_id:
        return None
    return Refusal(SAME_GROUP, f"group {target.group_id} cannot be set to its own offsets: name another group")


def _source_has_offsets(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, FromGroup) or asked.other:
        return None
    return Refusal(SOURCE_WITHOUT_OFFSETS, f"group {target.group_id} has no committed offsets: check its name")


def _topics_are_not_internal(asked: Asked) -> Refusal | None:
    if not asked.scope.internal:
        return None
    return Refusal(INTERNAL_TOPIC, f"internal topics are never reset: {listed(sorted(asked.scope.internal))}")


def _topics_exist(asked: Asked) -> Refusal | None:
    if not asked.scope.unknown:
        return None
    return Refusal(
        UNKNOWN_TOPIC,
        f"no such topic, or no right to describe it: {listed(sorted(asked.scope.unknown))}",
    )


def _topics_are_allowed(asked: Asked) -> Refusal | None:
    if not asked.scope.not_allowed:
        return None
    return Refusal(
        TOPIC_NOT_ALLOWED,
        f"the connection allows topics {listed(asked.request.allowed_topics)}, and not "
        f"{listed(sorted(asked.scope.not_allowed))}: name the topics to reset, or extend allow.topics",
    )


def _partitions_exist(asked: Asked) -> Refusal | None:
    missing = sorted(asked.scope.unknown_partitions)
    if not missing:
        return None
    sizes = [f"{name} has {asked.topics[name].partitions}" for name in sorted({p.topic for p in missing})]
    return Refusal(UNKNOWN_PARTITION, f"no such partition: {listed(missing)} ({listed(sizes)})")


def _something_matches(asked: Asked) -> Refusal | None:
    if asked.scope.partitions:
        return None
    request = asked.request
    if request.selections:
        wanted = listed([s.topic for s in request.selections])
        return Refusal(NOTHING_MATCHES, _and_notes(f"no partition matches {wanted}", asked.scope))
    match request.target:
        case FromFile(source=source):
            return Refusal(NOTHING_MATCHES, f"{source} has no row for group {request.group_id}")
        case Undo(run_id=run_id):
            return Refusal(NOTHING_MATCHES, f"run {run_id} changed no partition")
        case ShiftBy() if asked.group.has_members:
            return Refusal(NOTHING_MATCHES, f"group {request.group_id} has no committed offset to shift")
        case _:
            state = "does not exist" if asked.group.state is GroupState.DEAD else f"is {asked.group.state}"
            return Refusal(
                NOTHING_MATCHES,
                _and_notes(
                    f"group {request.group_id} {state}, with no committed offsets and no partition assigned: "
                    "name the topics to reset, or check the group's name",
                    asked.scope,
                ),
            )


def recreated(plan: Plan, topic_ids: Mapping[str, str]) -> list[str]:
    """Topics of the plan that had these ids and were deleted and created again since: offsets mean other records."""
    return sorted({p.topic for p in plan.partitions if topic_ids.get(p.topic, p.topic_id) != p.topic_id})


def _topics_are_the_same_ones(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, Undo):
        return None
    covered = {p.topic for p in asked.scope.partitions}
    then = dict(target.topic_ids)
    recreated = sorted(t for t in covered if t in then and asked.topics[t].topic_id != then[t])
    if not recreated:
        return None
    return Refusal(
        TOPIC_RECREATED,
        f"deleted and created again since run {target.run_id}, so its offsets mean other records: {listed(recreated)}. "
        "Select the other topics, or another target for these",
    )


def _brokers_take_its_offsets(asked: Asked) -> Refusal | None:
    """Every way ends with a commit from outside the group; where the brokers refuse it there is none to take."""
    for kind, advice in (
        (GroupKind.EMPTY, "No group can be reset there"),
        (kind_of(asked.group), "Stop its consumers, as without members it can be reset"),
    ):
        capability = asked.capabilities.get(kind) if kind is not None else None
        if capability is not None and capability.support is Support.UNSUPPORTED:
            groups = "groups without members" if kind is GroupKind.EMPTY else f"live groups of kind {kind}"
            return Refusal(
                UNSUPPORTED_BY_BROKERS,
                f"the brokers take no offsets for {groups} from outside them ({capability.message}). {advice}; from "
                "Kafka 4.0 on brokers take them",
            )
    return None


CHECKS: Final[tuple[Callable[[Asked], Refusal | None], ...]] = (
    _group_type_is_supported,
    _group_is_no_streams_application,
    _source_is_another_group,
    _source_has_offsets,
    _topics_are_not_internal,
    _topics_exist,
    _topics_are_allowed,
    _partitions_exist,
    _something_matches,
    _topics_are_the_same_ones,
    _brokers_take_its_offsets,
)


def check(asked: Asked) -> None:
    """Raises ``PlanRefused`` for the first check that objects."""
    for objects in CHECKS:
        refusal = objects(asked)
        if refusal is not None:
            raise PlanRefused(refusal.reason, refusal.message)


def _and_notes(message: str, scope: Scope) -> str:
    return ". ".join([message, *scope.notes])


# --- partition by partition -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """What was read of the partitions in scope.

    ``found``: answers of ``offsets_at`` for the asked time; empty for targets that ask for none. ``findings``: for
    targets for which records were read.
    """

    committed: Offsets
    bounds: Mapping[TopicPartition, LogBounds]
    found: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    other: Offsets | None = None
    findings: Findings | None = None


@dataclass(frozen=True, slots=True)
class Aimed:
    """Each partition of the scope is in one of both."""

    partitions: tuple[PartitionPlan, ...]
    without: Mapping[NoAim, tuple[TopicPartition, ...]]


def plan_partitions(
    target: Target,
    partitions: Iterable[TopicPartition],
    topics: Mapping[str, Topic],
    measured: Measured,
) -> Aimed:
    """The target of each partition, inside its log; in the order given.

    Raises ``KeyError`` for a partition that was not measured.
    """
    named = named_offsets(target, measured.other, measured.findings)
    searched = measured.findings.offsets if measured.findings is not None else {}
    had_none = frozenset(target.absent) if isinstance(target, Undo) else frozenset()
    planned: list[PartitionPlan] = []
    without: defaultdict[NoAim, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        bounds = measured.bounds[partition]
        committed = measured.committed.get(partition)
        seen = Seen(
            committed,
            bounds,
            measured.found.get(partition),
            named.get(partition),
            had_none=partition in had_none,
            searched=partition in searched,
        )
        match aim(target, seen):
            case NoAim() as reason:
                without[reason].append(partition)
            case Aim(offset=offset, clamped=clamped):
                planned.append(
                    PartitionPlan(
                        topic=partition.topic,
                        partition=partition.partition,
                        topic_id=topics[partition.topic].topic_id,
                        committed=committed,
                        target=offset,
                        earliest=bounds.earliest,
                        latest=bounds.latest,
                        clamped=clamped,
                    )
                )
            case other:
                assert_never(other)
    return Aimed(tuple(planned), {reason: tuple(those) for reason, those in without.items()})


# --- the plan ---------------------------------------------------------------------------------------------------------


def build_plan(asked: Asked, measured: Measured, now: datetime) -> Plan:
    """The plan, without the records' time spans (``with_spans``). Raises ``PlanRefused``; see ``CHECKS``."""
    check(asked)
    request = asked.request
    aimed = plan_partitions(request.target, asked.scope.partitions, asked.topics, measured)
    uncommitted = aimed.without.get(NoAim.NOT_COMMITTED, ())
    if uncommitted:
        raise PlanRefused(
            NO_COMMITTED_OFFSET,
            f"cannot shift offset for partition {listed(uncommitted)} since there is no current committed offset: "
            "select the other partitions, or another target for these",
        )
    unmatched = aimed.without.get(NoAim.NO_MATCH, ())
    if unmatched and isinstance(request.target, ToRecord) and request.target.no_match is NoMatch.FAIL:
        raise PlanRefused(
            NO_MATCHING_RECORD,
            ". ".join(
                [
                    f"no record was found in {_count(unmatched)} ({listed(unmatched)}): reset the other partitions, "
                    "change where, from or until, or let noMatch be Keep or End",
                    *(measured.findings.notes if measured.findings is not None else ()),
                ]
            ),
        )
    if not aimed.partitions:
        raise PlanRefused(NOTHING_MATCHES, ". ".join(_left_out(request.target, aimed)))
    plan = Plan(
        run_id=request.run_id,
        group_id=request.group_id,
        made_at=now,
        partitions=tuple(sorted(aimed.partitions, key=lambda p: (p.topic, p.partition))),
        way=expected_way(
            asked.group,
            frozenset(p.topic_partition for p in aimed.partitions),
            asked.managed,
            in_flight=bool(request.settings.in_flight),
        ),
    )
    found = measured.findings.notes if measured.findings is not None else ()
    notes = (*asked.scope.notes, *found, *_left_out(request.target, aimed), *_notes(asked, measured, plan, now))
    return replace(plan, notes=notes)


def expected_way(
    group: Group,
    partitions: frozenset[TopicPartition],
    managed: frozenset[str] = frozenset(),
    *,
    in_flight: bool = False,
) -> Way:
    """The way that fits the group as it was read.

    Which members keep positions over a rebalance shows only when it is applied; then ``Handover`` is taken instead.
    """
    versions = {m.member_id: COOPERATIVE_SUBSCRIPTION for m in group.members}
    return choose_way(Owners(group, partitions, versions, managed=managed, in_flight=in_flight)).way


def _left_out(target: Target, aimed: Aimed) -> list[str]:
    """A sentence for each reason for which partitions in scope are not in the plan."""
    sentences = []
    for reason, partitions in aimed.without.items():
        them = f"{_count(partitions)} ({listed(partitions)})"
        match reason, target:
            case NoAim.NOT_IN_FILE, FromFile(source=source):
                sentences.append(f"Left as they are, not in {source}: {them}")
            case NoAim.NOT_IN_GROUP, FromGroup(group_id=group_id):
                sentences.append(f"Left as they are, group {group_id} has no committed offset for them: {them}")
            case NoAim.NOT_IN_GROUP, FromCluster(group_id=group_id):
                sentences.append(f"Left as they are, group {group_id} has no committed offset over there: {them}")
            case NoAim.NONE_BEFORE, Undo(run_id=run_id):
                sentences.append(f"Left as they are, run {run_id} found no committed offset there: {them}")
            case NoAim.NOT_IN_RUN, Undo(run_id=run_id):
                sentences.append(f"Left as they are, not part of run {run_id}: {them}")
            case NoAim.NOT_IN_SNAPSHOT, FromSnapshot():
                sentences.append(f"Left as they are, not in the snapshot: {them}")
            case NoAim.NO_MATCH, ToRecord():
                sentences.append(f"Left as they are, no record was found there: {them}")
            case NoAim.NOT_SEARCHED, ToRecord():
                sentences.append(f"Left as they are, not there yet when the search began: {them}")
    return sentences


def _notes(asked: Asked, measured: Measured, plan: Plan, now: datetime) -> list[str]:
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
        )
        if note is not None
    ]


def _note_new_group(asked: Asked) -> str | None:
    if asked.group.state is not GroupState.DEAD:
        return None
    return f"Group {asked.group.group_id} does not exist yet: its first offsets will be these"


def _note_without_members(asked: Asked) -> str | None:
    if asked.group.type is not GroupType.SIMPLE or asked.group.state is GroupState.DEAD:
        return None
    return (
        f"Group {asked.group.group_id} has offsets and has never had members. A consumer that takes partitions by "
        "assign() is no member, so it is not seen: where one runs, stop it first, or it overwrites the targets"
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
    return f"Not selected, though in {of}: {_count(outside)} ({listed(outside)})" if outside else None


def _note_live_source(asked: Asked, now: datetime) -> str | None:
    match asked.request.target:
        case FromGroup(group_id=group_id):
            return f"The offsets are those that group {group_id} had committed at {_time(now)}"
        case FromCluster(group_id=group_id):
            return (
                f"The place is where group {group_id} stood over there when records were compared, before {_time(now)}"
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
        sentences.append(f"No record at or after {_time(at)} in {_count(ended)} ({listed(ended)}): to the end")
    # All that is left is younger than the asked time: what retention took may have been, too.
    begun = [
        p
        for p in asked.scope.partitions
        if measured.bounds[p].earliest > 0 and measured.found.get(p) == measured.bounds[p].earliest
    ]
    if begun:
        sentences.append(
            f"All records left in {_count(begun)} ({listed(begun)}) are at or after {_time(at)}: "
            "earlier ones were deleted, perhaps some from after it"
        )
    return ". ".join(sentences) or None


def _note_to_the_end(asked: Asked, measured: Measured) -> str | None:
    target = asked.request.target
    if not isinstance(target, ToRecord) or target.no_match is not NoMatch.END or measured.findings is None:
        return None
    without = [p for p in asked.scope.partitions if measured.findings.offsets.get(p, 0) is None]
    return f"No record was found in {_count(without)} ({listed(without)}): to the end" if without else None


def _note_clamped(plan: Plan) -> str | None:
    clamped = [p for p in plan.partitions if p.clamped is not None]
    if not clamped:
        return None
    ends = [f"{p.topic_partition} to {p.target} ({p.clamped})" for p in clamped]
    return f"Outside the log and moved to its nearer end: {listed(ends)}"


def _note_uncommitted(asked: Asked, plan: Plan) -> str | None:
    """Nothing is counted there, so say which; a topic that the group does not even read is worth a second look."""
    if asked.group.state is GroupState.DEAD:
        return None
    without = [p.topic_partition for p in plan.partitions if p.committed is None]
    if not without:
        return None
    note = f"Without a committed offset so far, so nothing is counted as replayed or skipped: {_count(without)}"
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
    return "Shifted from what was committed when this plan was made; the group reads on until it is applied"


def _note_reread(group: Group, plan: Plan) -> str | None:
    """Invariant 3: what the way costs partitions outside the run is said before."""
    ours = frozenset(plan.targets)
    beside = frozenset(p for m in group.owners(ours) for p in m.assignment) - ours
    if not beside or plan.way not in (Way.BARRIER, Way.HANDOVER):
        return None
    reread = f"is read again in {_count(beside)} outside this run, too ({listed(sorted(beside))})"
    if plan.way is Way.HANDOVER:
        members = len(group.owners(ours))
        return f"{members} member(s) are made to leave and come back: what they have read and not committed {reread}"
    # Which clients they are is seen when the plan is applied.
    return (
        f"What a member has read and not committed {reread}, if it does not commit as it gives its partitions up at "
        "the rebalance, or is made to leave because its client is from before KIP-429 (aiokafka, kafka-python)"
    )


def _note_standstill(asked: Asked, plan: Plan) -> str | None:
    if asked.group.type is not GroupType.CLASSIC or plan.way in (Way.DIRECT, Way.GATED):
        return None
    limit_s = asked.request.settings.max_standstill.total_seconds()
    return (
        f"Should a member not rejoin within maxStandstill ({limit_s:g} s), all members are made to leave, and what "
        "they have read and not committed is read again in all partitions of the group"
    )


def _note_led(group: Group, plan: Plan) -> str | None:
    """As ``_note_reread``, for the way that is taken, or follows where an owner keeps its position."""
    ours = frozenset(plan.targets)
    beside = group.assigned - ours
    may_be_led = plan.way is Way.HANDOVER and is_cooperative(group) and group.assignor in LED_ASSIGNORS
    if not beside or not (may_be_led or plan.way is Way.LEADING):
        return None
    why = "An owner that keeps its position in spite of that" if may_be_led else "An owner that commits late"
    return (
        f"{why} (franz-go) is made to give it up by leading the group: all its {len(group.members)} member(s) leave "
        "and come back then, and those that take their partitions for lost (Java, librdkafka) read again what they "
        f"have not committed in {_count(beside)} outside this run ({listed(sorted(beside))})"
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
        "inFlight: in a KIP-848 group nothing holds an application back that commits late, so such a commit may stand "
        "over a target until its next one"
    )


def _note_nothing_moves(plan: Plan) -> str | None:
    return "Every partition is at its target already" if plan.moved == 0 else None


def _count(partitions: Collection[TopicPartition]) -> str:
    return f"{len(partitions):,} partition{'' if len(partitions) == 1 else 's'}"


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- time spans -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ends:
    """First and last offset of the records that would be replayed or skipped, by partition."""

    first: Offsets
    last: Offsets


def span_ends(plan: Plan) -> Ends:
    """Where to look for timestamps: the ``SPAN_LIMIT`` partitions in which the most is replayed or skipped."""
    ranges: list[tuple[int, TopicPartition, int, int]] = []
    for p in plan.partitions:
        if p.committed is None:
            continue
        first = max(min(p.committed, p.target), p.earliest)
        end = min(max(p.committed, p.target), p.latest)
        if first < end:
            ranges.append((first - end, p.topic_partition, first, end - 1))
    ranges.sort()
    looked_up = ranges[:SPAN_LIMIT]
    return Ends({p: first for _, p, first, _ in looked_up}, {p: last for _, p, _, last in looked_up})


def with_spans(plan: Plan, first: Mapping[TopicPartition, datetime], last: Mapping[TopicPartition, datetime]) -> Plan:
    """The plan with the timestamps found at the ends of ``span_ends``."""
    moved = sum(p.moves and p.committed is not None for p in plan.partitions)
    notes = plan.notes
    if moved > SPAN_LIMIT:
        notes = (*notes, f"Times of records are given for the {SPAN_LIMIT} partitions that move furthest, of {moved:,}")
    return replace(
        plan,
        partitions=tuple(
            replace(p, span_from=first.get(p.topic_partition), span_to=last.get(p.topic_partition))
            if p.topic_partition in first or p.topic_partition in last
            else p
            for p in plan.partitions
        ),
        notes=notes,
    )
