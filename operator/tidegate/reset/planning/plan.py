"""A run's plan from what was read of the cluster: checks that read aloud, targets, evidence, notes. Pure.

``plan_partitions`` is the part that is computed partition by partition; its arguments and its answer are values that
pickle, so it runs as well in a Spark executor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from tidegate.kafka.model import Group, Offsets, Topic, TopicPartition
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.targets import Target, ToRecord, Undo
from tidegate.reset.planning.checks import Asked, check
from tidegate.reset.planning.measured import Aimed, Measured
from tidegate.reset.planning.notes import count, left_out, notes_on
from tidegate.reset.planning.refusals import NO_COMMITTED_OFFSET, NO_MATCHING_RECORD, NOTHING_MATCHES, PlanRefused
from tidegate.reset.planning.replays import bounded, check_way, note_on
from tidegate.reset.planning.scope import listed
from tidegate.reset.planning.targets import Aim, NoAim, Seen, aim, named_offsets
from tidegate.reset.ways import COOPERATIVE_SUBSCRIPTION, Owners, choose_way
from tidegate.resources.reset import Way
from tidegate.resources.targets import NoMatch

SPAN_LIMIT: Final = 500
"""Partitions whose records' timestamps are looked up: each one is a fetch."""


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
                    f"no record was found in {count(unmatched)} ({listed(unmatched)}): reset the other partitions, "
                    "change where, from or until, or set noMatch to Keep or End",
                    *(measured.findings.notes if measured.findings is not None else ()),
                ]
            ),
        )
    if not aimed.partitions:
        raise PlanRefused(NOTHING_MATCHES, ". ".join(left_out(request.target, aimed)))
    partitions = aimed.partitions
    bounds: tuple[str, ...] = ()
    if request.until is not None:
        replay = bounded(request.until, partitions, measured.ends)
        partitions, bounds = replay.partitions, replay.notes
    plan = Plan(
        run_id=request.run_id,
        group_id=request.group_id,
        made_at=now,
        partitions=tuple(sorted(partitions, key=lambda p: (p.topic, p.partition))),
        way=expected_way(
            asked.group,
            frozenset(p.topic_partition for p in partitions),
            asked.managed,
            in_flight=bool(request.settings.in_flight),
        ),
    )
    if request.until is not None:
        check_way(plan.way)
        bounds = (note_on(request.until, plan), *bounds)
    found = measured.findings.notes if measured.findings is not None else ()
    notes = (
        *asked.scope.notes,
        *bounds,
        *found,
        *left_out(request.target, aimed),
        *notes_on(asked, measured, plan, now),
    )
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
        if p.returns and p.end is not None:
            end = min(end, p.end)
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
        notes = (
            *notes,
            f"Times of records are given only for the {SPAN_LIMIT} of {moved:,} partitions that move furthest",
        )
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
