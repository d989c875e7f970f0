"""Where a replay ends, partition by partition. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import Until
from tidegate.reset.planning.notes import count
from tidegate.reset.planning.refusals import NEEDS_AGENTS, NO_COMMITTED_OFFSET, NOTHING_TO_REPLAY, PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.reset.planning.targets import whole_milliseconds
from tidegate.resources.replay import Then
from tidegate.resources.reset import Way


@dataclass(frozen=True, slots=True)
class Bounded:
    """``partitions``: with their ends; ``notes`` are sentences for a person without a full stop."""

    partitions: tuple[PartitionPlan, ...]
    notes: tuple[str, ...]


def end_time(until: Until | None) -> datetime | None:
    """The time that is looked up for the ends, in whole milliseconds; ``None`` for an end that needs none."""
    return None if until is None or until.at is None else whole_milliseconds(until.at)


def bounded(until: Until, planned: Sequence[PartitionPlan], found: Mapping[TopicPartition, int | None]) -> Bounded:
    """The partitions in which there is something to replay.

    ``found``: the first offset at or after the time of ``end_time``; ``None`` where there is no such record. With
    ``Return`` a replay never goes beyond where the group is: what lies there it reads when it has returned. Raises
    ``PlanRefused``.
    """
    returns = until.then is Then.RETURN
    uncommitted = [p.topic_partition for p in planned if p.committed is None]
    if returns and uncommitted:
        raise PlanRefused(
            NO_COMMITTED_OFFSET,
            f"the group has no committed offset in {count(uncommitted)} ({listed(uncommitted)}), so there is nowhere "
            "to return to: select the other partitions, or set until.then to Continue",
        )
    replayed: list[PartitionPlan] = []
    empty: list[TopicPartition] = []
    cut: list[TopicPartition] = []
    for each in planned:
        asked = _asked_end(until, each, found.get(each.topic_partition))
        most = each.latest if each.committed is None or not returns else min(each.latest, each.committed)
        end = min(asked, most)
        if end <= each.target:
            empty.append(each.topic_partition)
            continue
        if end < asked:
            cut.append(each.topic_partition)
        replayed.append(replace(each, end=end, returns=returns))
    if not replayed:
        raise PlanRefused(
            NOTHING_TO_REPLAY,
            f"there is no record between the target and the end of the replay in {count(empty)} ({listed(empty)}): "
            "change `to` or `until`",
        )
    notes = []
    if cut:
        where = "where the group is" if returns else "the end of the log"
        notes.append(f"The replay would end beyond {where}, so it ends there, in {count(cut)} ({listed(cut)})")
    if empty:
        notes.append(f"Left as they are, because there is nothing to replay: {count(empty)} ({listed(empty)})")
    return Bounded(tuple(replayed), tuple(notes))


def _asked_end(until: Until, plan: PartitionPlan, found: int | None) -> int:
    if until.records is not None:
        return plan.target + until.records
    if until.offset is not None:
        return until.offset
    return plan.latest if found is None else found


def check_way(way: Way | None) -> None:
    """Raises ``PlanRefused`` where nothing would end the replay."""
    if way is Way.GATED:
        return
    why = (
        "no member owns these partitions, so it is not known whether their next owners will run the agent"
        if way is Way.UNOWNED
        else "not every owner of these partitions runs Tidegate's agent"
    )
    raise PlanRefused(
        NEEDS_AGENTS,
        f"until: only the agent ends a replay at its end, and {why}. Run the group with the agent, or reset it without "
        "until",
    )


def note_on(until: Until, plan: Plan) -> str:
    """What comes when, in a sentence."""
    records = sum(p.end - p.target for p in plan.partitions if p.end is not None)
    match until.then:
        case Then.RETURN:
            then = "continues from where it is when the replay begins"
        case Then.CONTINUE:
            then = "continues from there"
        case Then.PAUSE:
            then = "stays paused there by a ConsumerGroupPause"
        case _:
            assert_never(until.then)
    return (
        f"The replay covers {records:,} offset(s), and ends before the offset named for each partition; a partition "
        f"that has reached its end is paused until all have, and then the group {then}. Records that arrive in the "
        f"meantime are read once it continues. The replay may take {until.within}"
    )
