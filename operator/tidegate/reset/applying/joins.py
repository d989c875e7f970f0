"""Joins of a classic group that somebody does not come to: nobody waits there longer than ``maxStandstill``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidegate.cluster import Kafka
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Group, GroupState, GroupType, Member
from tidegate.leading.joining import not_back
from tidegate.reset.applying.timing import Pace

_OPEN: Final = frozenset({GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})

RETURN_S: Final = 1.0
"""How long the members that waited in a join take to join anew; they hear at once that they were made to leave."""


class Joins:
    """Of one group, for one run. ``standstill_s``: how long members wait in a join for one that does not come."""

    def __init__(self, kafka: Kafka, group_id: str, pace: Pace, standstill_s: float) -> None:
        self._kafka = kafka
        self._group_id = group_id
        self._pace = pace
        self.standstill_s = standstill_s
        self._assignor = ""
        """The group's, which its coordinator hides in a rebalance."""
        self._freed: list[Group] = []
        """The group, each time that all of its members were made to leave."""

    def note(self, group: Group) -> None:
        """Take up what a look at the settled group tells."""
        self._assignor = group.assignor or self._assignor

    def is_over(self) -> bool:
        """Whether no join is open, and no member waits for its leader's word."""
        return self._group().state not in _OPEN

    def end(self, group: Group, began: float, *, held_s: float = 0.0) -> bool:
        """Wait until a join is over that ``began`` then (monotonic seconds), and free it when its time is up.

        ``held_s``: how long owners were held besides. Returns whether it was freed.
        """
        if group.type is not GroupType.CLASSIC:
            return False
        left_s = held_s + self.standstill_s - (self._pace.clock.monotonic() - began)
        return not self._pace.until(self.is_over, left_s, self._pace.tuning.look_s) and self.free()

    def free(self, keep: Callable[[], None] = lambda: None) -> bool:
        """Let those go on who wait in an open join; whether there was one.

        ``keep``: called again and again meanwhile. Whoever waits for its leader's word (SyncGroup) hears nothing of it
        when it is made to leave, so another rebalance begins first.
        """
        if self.is_over() or not self._group().has_members:
            return False
        try:
            with self._kafka.membership.hold(self._group_id, assignor=self._assignor) as hold:

                def keep_both() -> None:
                    keep()
                    hold.keep()

                self.make_all_leave(keep_both)
        except Refused:
            # Nobody else can join: its assignor is not known to us, or it is full.
            self.make_all_leave(keep)
        return True

    def make_all_leave(self, keep: Callable[[], None]) -> None:
        """The coordinator does not tell who has rejoined, so all are made to leave.

        Whoever waits in the join hears of it at once and joins anew; in an eager group it has given everything up
        before. Whoever does not is left behind: what it commits is refused, and when it is back it begins at the
        committed offsets. ``keep`` holds the join meanwhile, so that the group does not become Empty.
        """
        before = self._group()
        self._kafka.membership.leave(self._group_id, before.members)
        self._freed.append(before)

        def are_back() -> bool:
            keep()
            return not not_back(self._group(), before.members, before)

        self._pace.until(are_back, RETURN_S, self._pace.tuning.look_s)

    def note_left(self, group: Group) -> None:
        """Take up that all members of ``group`` were made to leave, by somebody else than ``make_all_leave``."""
        self._freed.append(group)

    @property
    def were_freed(self) -> bool:
        return bool(self._freed)

    def left_behind(self) -> tuple[Member, ...]:
        """Of the members that were made to leave a join, those whose clients are not back."""
        if not self._freed:
            return ()
        now = self._group()
        missing = {(m.client_id, m.host): m for before in self._freed for m in not_back(now, before.members, before)}
        return tuple(missing.values())

    def _group(self) -> Group:
        return self._kafka.groups([self._group_id])[self._group_id]
