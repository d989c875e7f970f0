"""A new partition's start is committed for a group, by transaction, before an owner can begin at its end.

An owner that finds no committed offset begins where ``auto.offset.reset`` says: at ``latest``, behind the records that
are there already. It looks for one when it is assigned the partition, so a start that can be read before that is where
it begins. Whether it was, the group's description tells: whoever is assigned the partition later has looked later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.audit.aborting import abort_records
from tidegate.audit.records import Attribution
from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.discovery.recording import commit_starts
from tidegate.kafka.errors import Unavailable, UnknownPartitions
from tidegate.kafka.model import Group, Offsets, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.applying.owners import look

PURPOSE: Final = "starts"
"""Of the writer: a reset of the group that is under way must not be fenced."""

_TRANSACTION_S: Final = 10.0
_VISIBLE_S: Final = 10.0
_HANGING_S: Final = 3.0
"""By then the outcome of an ended transaction shows also where brokers are slow."""
_LOOK_S: Final = 0.02


class Outcome(StrEnum):
    """How a new partition stands for the group."""

    GIVEN = "Given"
    """Its start was committed before anybody owned it."""
    STANDING = "Standing"
    """The group has an offset at its start, or in a partition that was only hidden before; or its owner runs the agent,
    which decides by itself where to begin."""
    OVERTAKEN = "Overtaken"
    """An owner was there first, and has begun at the end as far as anybody can tell."""


@dataclass(frozen=True, slots=True)
class Start:
    """``begin``: the first record there is; ``records``: how many of those after it were skipped, at most."""

    outcome: Outcome
    begin: int
    records: int = 0


def give_starts(
    kafka: Kafka,
    clock: Clock,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    just_made: Collection[TopicPartition] = (),
    perhaps_hidden: Collection[TopicPartition] = (),
    agents_decide: bool = False,
    attribution: Attribution | None = None,
) -> Mapping[TopicPartition, Start]:
    """Commit the start of each new partition for which the group has no offset; how each stands then.

    ``just_made``: those that were not there moments ago: their logs begin at 0, which need not be asked of a leader
    that they may not have yet. ``perhaps_hidden``: of those the ones whose topic was not seen before, which may be old
    all the same, as brokers hide what may not be described: this shows where a log no longer begins at 0.
    ``agents_decide``: owners that run the agent were told to begin new partitions at their start. ``attribution``: in
    whose name it is recorded in the audit log, in the same transaction; ``None``: it is not.
    Harmless when repeated; where an earlier call was cut off, an owner counts as too early, for whether it was
    nobody can tell any more. Raises ``UnknownPartitions`` while a broker has not heard of one, ``Unavailable`` also
    while a transaction of somebody else holds one.
    """
    before = look(kafka, group_id, partitions)
    begins = dict.fromkeys(just_made, 0)
    older = [p for p in partitions if p not in begins]
    if older:
        begins |= {p: bounds.earliest for p, bounds in kafka.log_bounds(older).items()}
    pending = kafka.pending(group_id, partitions)
    if pending:
        pending = _undecided(kafka, clock, group_id, pending, _HANGING_S)
    if pending:
        # One of ours may hang (RunCommits.hangs); to one of somebody else this does nothing.
        _abort(kafka, group_id, {p: begins[p] for p in pending}, attribution)
        pending = _undecided(kafka, clock, group_id, pending, _VISIBLE_S)
    if pending:
        raise Unavailable(f"group {group_id}: another transaction is committing an offset of {min(pending)}")
    committed = kafka.committed(group_id, partitions)
    free = {p: begin for p, begin in begins.items() if p not in committed}
    if free:
        _commit(kafka, clock, group_id, free, attribution)
    after = look(kafka, group_id, partitions)
    managed = kafka.managed_members(group_id) if agents_decide and after.has_members else frozenset()
    starts, doubtful = {}, []
    for partition, begin in begins.items():
        owner = after.owner(partition)
        if owner is not None and owner.member_id in managed:
            starts[partition] = Start(Outcome.STANDING, begin)
        elif committed.get(partition, begin) > begin:
            starts[partition] = Start(Outcome.OVERTAKEN, begin, committed[partition] - begin)
        elif _was_free(partition, before, after):
            starts[partition] = Start(Outcome.GIVEN if partition in free else Outcome.STANDING, begin)
        else:
            doubtful.append(partition)
    ends = kafka.log_bounds(doubtful) if doubtful else {}
    starts |= _of_old(kafka, clock, group_id, {p: starts[p] for p in perhaps_hidden if p in starts}, attribution)
    return starts | {p: Start(Outcome.OVERTAKEN, begins[p], bounds.latest - begins[p]) for p, bounds in ends.items()}


def _of_old(
    kafka: Kafka,
    clock: Clock,
    group_id: str,
    starts: Mapping[TopicPartition, Start],
    attribution: Attribution | None,
) -> Mapping[TopicPartition, Start]:
    """Of these partitions, those that were there before: their first records are gone by now. Where the group has begun
    there it stays; a start that was given at 0 is given again where the log begins, or it would be out of range."""
    try:
        bounds = kafka.log_bounds(list(starts)) if starts else {}
    except (Unavailable, UnknownPartitions):
        return {}  # without a leader yet: they are as new as they look
    old = {p: each for p, each in bounds.items() if each.earliest > 0}
    found = {p: Start(Outcome.STANDING, each.earliest) for p, each in old.items()}
    given = [p for p in old if starts[p].outcome is Outcome.GIVEN]
    if not given:
        return found
    before = look(kafka, group_id, given)
    again = {p: old[p].earliest for p in given if not before.hidden([p]) and before.owner(p) is None}
    if again:
        _commit(kafka, clock, group_id, again, attribution)
    after = look(kafka, group_id, given)
    for partition in given:
        begin, end = old[partition].earliest, old[partition].latest
        is_given = partition in again and _was_free(partition, before, after)
        found[partition] = (
            Start(Outcome.GIVEN, begin) if is_given else Start(Outcome.OVERTAKEN, begin, records=end - begin)
        )
    return found


def _was_free(partition: TopicPartition, before: Group, after: Group) -> bool:
    """Whether whoever owns the partition, now or later, was assigned it after the start could be read.

    ``before`` was seen before the commit, ``after`` when it could be read. A rebalance of a classic group hides who
    owns what; one that had not begun before has not assigned anything yet.
    """
    if after.hidden([partition]):
        return not before.hidden([partition]) and before.owner(partition) is None
    return after.owner(partition) is None


def _commit(kafka: Kafka, clock: Clock, group_id: str, offsets: Offsets, attribution: Attribution | None) -> None:
    with closing(kafka.writer(group_id, transaction_timeout_s=_TRANSACTION_S, purpose=PURPOSE)) as writer:
        commit_starts(writer, group_id, offsets, attribution)
    _wait_visible(kafka, clock, group_id, offsets)


def _abort(kafka: Kafka, group_id: str, offsets: Offsets, attribution: Attribution | None) -> None:
    with closing(kafka.writer(group_id, transaction_timeout_s=_TRANSACTION_S, purpose=PURPOSE)) as writer:
        writer.fence()
        with writer.transaction() as transaction:
            if attribution is not None:
                abort_records(transaction, attribution.topic.name)
            transaction.send(group_id, offsets)


def _wait_visible(kafka: ClusterReader, clock: Clock, group_id: str, partitions: Collection[TopicPartition]) -> None:
    if _undecided(kafka, clock, group_id, partitions, _VISIBLE_S):
        raise Unavailable(f"starts of group {group_id} are still pending after {_VISIBLE_S:.0f} s")


def _undecided(
    kafka: ClusterReader, clock: Clock, group_id: str, partitions: Collection[TopicPartition], limit_s: float
) -> frozenset[TopicPartition]:
    """Those for which a transaction is open all the time, for ``limit_s``."""
    deadline = clock.monotonic() + limit_s
    while left := kafka.pending(group_id, partitions):
        if clock.monotonic() > deadline:
            return left
        clock.sleep(_LOOK_S)
    return left
