"""By which way the next round goes: a look at the settled group, after what has to be over first."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kafka.model import Group, GroupState, GroupType
from tidegate.leading.groups import is_led
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.journal import REBALANCING
from tidegate.reset.applying.rounds import Partitions
from tidegate.reset.applying.timing import NotReady
from tidegate.reset.ways import Choice, Owners, choose_way
from tidegate.resources.reset import Way


class WayChoice:
    """Of one run on one group."""

    def __init__(self, context: RunContext) -> None:
        self._kafka = context.kafka
        self._group_id = context.group_id
        self._pace = context.pace
        self._tuning = context.pace.tuning
        self._hold_s = context.hold_s
        self._state = context.state
        self._view = context.view
        self._journal = context.journal
        self._commits = context.commits
        self._sequences = context.sequences
        self._is_never_quiet = False
        """Whether the group was seen to have a transaction open at nearly every moment."""

    def choose(self, pending: Partitions) -> tuple[Group, Choice]:
        """The group once nothing moves in it, and the way; chosen anew whenever something had to be waited for.

        Raises ``NotReady`` where a pause leads the group, and the way would end that.
        """
        group, choice = self._chosen(pending)
        if choice.way is Way.UNOWNED and self._waited_for_dead_leader(group, pending):
            group, choice = self._chosen(pending)
        if choice.way in REBALANCING and self._waited_for_transactions(group):
            group, choice = self._chosen(pending)
        if choice.way is Way.BARRIER and self._commits.still_open(pending, self._tuning.shown_s):
            self._state.transaction_open = True
            group, choice = self._chosen(pending)
        if choice.way is Way.HANDOVER and self._sequences.wait_for_heartbeat():
            group, choice = self._chosen(pending)
        if choice.way is not Way.UNOWNED and is_led(group):
            raise NotReady(
                f"group {self._group_id} is led for a ConsumerGroupPause with method Leading, and making its members "
                "release partitions would end that: until the pause is over, only partitions that it pauses can be "
                "reset. Pause these as well, or delete the pause"
            )
        return group, choice

    def _chosen(self, pending: Partitions) -> tuple[Group, Choice]:
        group = self._view.settled(pending)
        return group, self._way_for(group, pending)

    def _waited_for_dead_leader(self, group: Group, pending: Partitions) -> bool:
        """Wait until somebody owns the partitions again that a dead writer's generation gives to nobody; whether that
        took time. As long as it lasts, their old owners may commit what they still have in hand."""
        if not group.has_members or not self._journal.intents or self._journal.intents[-1].way is not Way.LEADING:
            return False
        tuning = self._tuning
        # The leader's session has to end, and then the members have to hear of it.
        self._pace.until(
            lambda: self._view.group(pending).owners(pending) != (),
            tuning.dead_hold_s + 2 * tuning.heartbeat_s,
            tuning.look_s,
        )
        return True

    def _waited_for_transactions(self, group: Group) -> bool:
        """Wait for a moment in which none is open on the group's partitions, while it goes on; whether that took time.

        A member that rejoins waits for one, and librdkafka begins at ``auto.offset.reset`` where a rebalance comes
        meanwhile (ADR 19), as it always does in a cooperative group. Some applications have one open all the time.
        """
        partitions, tuning = group.assigned, self._tuning
        if self._is_never_quiet or not self._kafka.pending(self._group_id, partitions):
            return False
        self._is_never_quiet = not self._pace.until(
            lambda: not self._kafka.pending(self._group_id, partitions), tuning.quiet_s, tuning.look_s / 2
        )
        return True

    def _way_for(self, group: Group, pending: Partitions) -> Choice:
        if group.state is GroupState.PREPARING_REBALANCE:
            return Choice(Way.BARRIER, "a rebalance of this group is in progress")
        versions: Mapping[str, int] = {}
        if group.type is GroupType.CLASSIC and group.owners(pending):
            versions = self._kafka.membership.subscription_versions(self._group_id)
        managed = self._kafka.managed_members(self._group_id) if group.owners(pending) else frozenset()
        return choose_way(
            Owners(
                group,
                pending,
                versions,
                kept_position=self._state.kept_position,
                kept_after_leaving=self._state.kept_after_leaving,
                handed_in=self._state.handed_in,
                transaction_open=self._state.transaction_open,
                in_flight=self._hold_s > 0,
                not_led=self._sequences.not_led,
                managed=managed,
                disobeyed=self._sequences.disobeyed,
            )
        )
