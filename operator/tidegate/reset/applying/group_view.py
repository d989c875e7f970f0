"""Looks at the group of a run: what it has committed, who owns what, and when nothing moves in it any more."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.cluster import Kafka
from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.journal import Journal
from tidegate.reset.applying.owners import look
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions
from tidegate.reset.applying.state import RunState
from tidegate.reset.applying.timing import NotReady, Pace
from tidegate.resources.reset import Way


class GroupView:
    """Of one run on one group."""

    def __init__(
        self, kafka: Kafka, group_id: str, pace: Pace, joins: Joins, journal: Journal, state: RunState
    ) -> None:
        self._kafka = kafka
        self._group_id = group_id
        self._pace = pace
        self._joins = joins
        self._journal = journal
        self._state = state
        self._rests = True
        """Whether the group has come to rest, as far as it was waited for."""

    def committed(self, partitions: Partitions) -> Mapping[TopicPartition, int]:
        return self._kafka.committed(self._group_id, list(partitions))

    def group(self, partitions: Partitions = NO_PARTITIONS) -> Group:
        return look(self._kafka, self._group_id, partitions)

    def settled(self, pending: Partitions) -> Group:
        """The group once nothing moves in it; as it is when that takes too long, if it tells who owns them."""
        group = self.group(pending)

        def is_settled() -> bool:
            nonlocal group
            group = self.group(pending)
            # A rebalance in a Barrier is held by ourselves, or by a writer that died: the hold can be taken over.
            held = self._state.way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE
            rests = held or group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
            self._rests |= rests
            # A group that was waited for in vain is not waited for again, at one step after the other.
            return rests or not (self._rests or group.type is GroupType.CLASSIC or group.hidden(pending))

        limit_s = self._pace.tuning.settle_limit_s
        self._pace.check()
        began = self._journal.began_a_join()
        if began is None or group.type is not GroupType.CLASSIC:
            if self._pace.until(is_settled, limit_s, self._pace.tuning.look_s):
                return group
        else:
            # It may be the run's own, so it is not left to who does not come; but a dead writer's hold ends first.
            waited_s = max(0.0, (self._pace.clock.now() - began).total_seconds())
            ours_s = max(self._joins.standstill_s - waited_s, self._pace.tuning.dead_hold_s)
            if self._pace.until(is_settled, ours_s, self._pace.tuning.look_s):
                return group
            self._joins.free()
            if self._pace.until(is_settled, limit_s, self._pace.tuning.look_s):
                return group
        since = f"group {self._group_id} has been {group.state} for {limit_s:.0f} s"
        if group.type is GroupType.CLASSIC:
            raise NotReady(f"{since}, because a member does not rejoin")
        hidden = group.hidden(pending)
        if hidden:
            raise NotReady(f"{since}: a member may not have released {min(hidden)} yet")
        self._rests = False
        return group
