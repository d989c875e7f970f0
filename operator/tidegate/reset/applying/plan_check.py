"""Whether the cluster is still as it was when the plan was made: its targets mean the same records in the same way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.failures import PlanOutdated


@dataclass(frozen=True, slots=True)
class Places:
    """Where a group can go on by now. ``offsets``: of partitions that are there; ``moved``: those of them whose log
    begins later than they were to go on, so that they go on at its start; ``gone``: of topics that were deleted, or
    recreated, since the plan was made."""

    offsets: dict[TopicPartition, int]
    moved: frozenset[TopicPartition]
    gone: frozenset[TopicPartition]

    def left(self, offsets: Mapping[TopicPartition, int]) -> Places:
        """These of them are left; the topics of the others have gone since."""
        gone = self.gone | (self.offsets.keys() - offsets.keys())
        return Places(dict(offsets), self.moved - gone, gone)

    @property
    def note(self) -> str:
        """The end of a message; empty where all is as it was."""
        said = ""
        if self.moved:
            said = (
                f"; {len(self.moved)} partition(s), e.g. {min(self.moved)}, continue from the start of the log, which "
                "has been deleted up to there"
            )
        if self.gone:
            said = (
                f"{said}; {len(self.gone)} partition(s), e.g. {min(self.gone)}, are left as they are, because their "
                "topics were deleted or recreated since the plan was made"
            )
        return said


def gone_topics(context: RunContext, names: Collection[str] | None = None) -> frozenset[str]:
    """Of the plan's topics, or of those with these names, the ones that were deleted, or recreated, since it was made:
    Kafka has forgotten all offsets that were committed in them. Raises ``KafkaFailure``."""
    ids = {p.topic: p.topic_id for p in context.plan.partitions if names is None or p.topic in names}
    topics = context.kafka.topics(ids.keys())
    return frozenset(name for name, known in ids.items() if name not in topics or topics[name].topic_id != known)


def check_topics(context: RunContext) -> None:
    """Raises ``PlanOutdated`` where a topic is gone, or is another one by now, and ``KafkaFailure``."""
    gone = gone_topics(context)
    if gone:
        raise PlanOutdated(f"topics were deleted or recreated since the plan was made: {', '.join(sorted(gone))}")


def places_now(context: RunContext, offsets: Mapping[TopicPartition, int]) -> Places:
    """A replay may last for days. An offset before the log's start would have consumers begin where they are set up to,
    at its end perhaps; one of a topic that is another by now means other records. Raises ``KafkaFailure``."""
    gone = gone_topics(context, {p.topic for p in offsets})
    there = {p: o for p, o in offsets.items() if p.topic not in gone}
    try:
        starts = {p: bounds.earliest for p, bounds in context.kafka.log_bounds(list(there)).items()}
    except Unavailable:
        starts = {}  # nobody reads a partition without a leader, and it does not keep the others waiting
    moved = frozenset(p for p, o in there.items() if starts.get(p, 0) > o)
    return Places(there | {p: starts[p] for p in moved}, moved, frozenset(offsets.keys() - there.keys()))


def check_plan(context: RunContext) -> None:
    """The plan may be old: the topics are the same ones, their logs still reach to the targets, and where somebody
    has approved it, the group goes the way that he was told.

    Where a topic is the same, its partitions are there: a broker that shows fewer of them lags behind. Raises
    ``PlanOutdated`` and ``KafkaFailure``.
    """
    targets = context.state.targets
    check_topics(context)
    bounds = context.kafka.log_bounds(list(targets))
    outside = [p for p, o in targets.items() if not bounds[p].earliest <= o <= bounds[p].latest]
    if outside:
        first = min(outside)
        raise PlanOutdated(
            f"{len(outside)} target(s) are now outside the log, e.g. {first}: target {targets[first]}, "
            f"log {bounds[first].earliest} to {bounds[first].latest}. Plan again under another reset id"
        )
    _check_return(context)
    if context.run.request.manual_approval or context.claim.behind:
        # Planned a while ago, before somebody approved it or before another run was done.
        _check_directions(context)
    if context.run.request.manual_approval:
        _check_skipped(context)


def _check_return(context: RunContext) -> None:
    """Where an offset is gone since, there is nowhere to return to."""
    returning = [p.topic_partition for p in context.plan.partitions if p.returns]
    now = context.view.committed(frozenset(returning)) if returning else {}
    lost = [p for p in returning if p not in now]
    if lost:
        raise PlanOutdated(
            f"the group no longer has a committed offset in {len(lost)} partition(s), e.g. {min(lost)}, so there is "
            "nowhere to return to after the replay. Plan again under another reset id"
        )


def _check_directions(context: RunContext) -> None:
    """Where a group has passed its target since, a plan to skip records would have them read again."""
    targets = context.state.targets
    now = context.view.committed(frozenset(targets))
    turned = {
        p.topic_partition: now[p.topic_partition]
        for p in context.plan.partitions
        if p.committed is not None
        and p.topic_partition in now
        and _turned(p.committed, now[p.topic_partition], targets[p.topic_partition])
    }
    if turned:
        first = min(turned)
        raise PlanOutdated(
            f"the group has passed the target of {len(turned)} partition(s) since the plan was made, e.g. {first}: "
            f"target {targets[first]}, committed {turned[first]}. Plan again under another reset id"
        )


def _check_skipped(context: RunContext) -> None:
    """Where a group has gone back since, more records would be skipped than whoever approved it was told. So they may
    be where its offset is gone: it would begin wherever its consumers are set up to."""
    targets = context.state.targets
    now = context.view.committed(frozenset(targets))
    more = {
        p.topic_partition: now.get(p.topic_partition)
        for p in context.plan.partitions
        if p.committed is not None and p.committed < p.target and now.get(p.topic_partition, -1) < p.committed
    }
    if more:
        first = min(more)
        stands = "no longer a committed offset" if more[first] is None else f"committed {more[first]}"
        raise PlanOutdated(
            f"the group has gone back in {len(more)} partition(s) since the plan was made, so more records would be "
            f"skipped than were approved, e.g. {first}: target {targets[first]}, {stands}. Plan again under another "
            "reset id"
        )


def _turned(planned: int, now: int, target: int) -> bool:
    """Whether records would be read again where none were to be, or skipped where none were to be."""
    return (planned <= target < now) or (now < target <= planned)
