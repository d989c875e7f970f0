"""Whether the cluster is still as it was when the plan was made: its targets mean the same records in the same way."""

from __future__ import annotations

from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.failures import PlanOutdated


def check_plan(context: RunContext) -> None:
    """The plan may be old: the topics are the same ones, their logs still reach to the targets, and where somebody
    has approved it, the group goes the way that he was told.

    Where a topic is the same, its partitions are there: a broker that shows fewer of them lags behind. Raises
    ``PlanOutdated`` and ``KafkaFailure``.
    """
    targets = context.state.targets
    topics = context.kafka.topics({p.topic for p in context.plan.partitions})
    changed = {
        p.topic for p in context.plan.partitions if p.topic not in topics or topics[p.topic].topic_id != p.topic_id
    }
    if changed:
        raise PlanOutdated(f"deleted or recreated since the plan was made: {', '.join(sorted(changed))}")
    bounds = context.kafka.log_bounds(list(targets))
    outside = [p for p, o in targets.items() if not bounds[p].earliest <= o <= bounds[p].latest]
    if outside:
        first = min(outside)
        raise PlanOutdated(
            f"{len(outside)} target(s) are outside the log by now, e.g. {first}: target {targets[first]}, "
            f"log {bounds[first].earliest} to {bounds[first].latest}. Plan anew under another reset id"
        )
    if context.run.request.manual_approval or context.claim.behind:
        # Planned a while ago, before somebody approved it or before another run was done.
        _check_directions(context)
    if context.run.request.manual_approval:
        _check_skipped(context)


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
            f"target {targets[first]}, committed {turned[first]}. Plan anew under another reset id"
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
        stands = "nothing is committed any more" if more[first] is None else f"committed {more[first]}"
        raise PlanOutdated(
            f"the group has gone back in {len(more)} partition(s) since the plan was made, so more records would be "
            f"skipped than were approved, e.g. {first}: target {targets[first]}, {stands}. Plan anew under another "
            "reset id"
        )


def _turned(planned: int, now: int, target: int) -> bool:
    """Whether records would be read again where none were to be, or skipped where none were to be."""
    return (planned <= target < now) or (now < target <= planned)
