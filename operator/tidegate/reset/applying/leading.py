"""Leading a classic group for as long as it takes owners to let go of partitions by their own client's protocol.

A guest that leads a generation gives the partitions to nobody: every client then gives them up as it does in any
rebalance. In the next generation, before it says who owns what, nobody has them and no member's commit is taken: that
is the *barrier*. See ``docs/adr/0017-leading.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidegate.cluster import Kafka
from tidegate.kafka.assignments import claimed, not_held_by_others, share_out, without
from tidegate.kafka.errors import GroupNotLive, NotAuthorized, Refused
from tidegate.kafka.model import Generation, Group, GroupState, Topic, TopicPartition
from tidegate.kafka.ports import Guest
from tidegate.leading.groups import is_cooperative
from tidegate.leading.joining import NOTICED_S, NotAllBack, gather
from tidegate.reset.applying.timing import Pace
from tidegate.reset.ways import COOPERATIVE_SUBSCRIPTION

Partitions = frozenset[TopicPartition]

_HEARD_S: Final = 1.0
"""By then a member has asked what it is assigned, unless its machine is very busy."""


class NotLed(Exception):
    """The group could not be led; the message says why. Nothing was committed, and everybody was let go.

    ``for_good``: leading it again would end in the same way. ``left``: the members as they were made to leave,
    where some of them did not come back; whoever comes is led without them the next time. ``stood_still``: members
    have waited for ``maxStandstill``.
    """

    def __init__(
        self, why: str, *, for_good: bool = False, stood_still: bool = False, left: Group | None = None
    ) -> None:
        super().__init__(why)
        self.for_good = for_good
        self.stood_still = stood_still
        self.left = left


class Lead:
    """Leads one group once. ``before``: as it was while it was stable. ``held_s``: how long, after their owners have
    let go, the partitions stay nobody's (``inFlight``). ``standstill_s``: how long, besides, it all may take from the
    moment at which the members are made to leave; two heartbeats at least."""

    def __init__(
        self, kafka: Kafka, pace: Pace, before: Group, partitions: Partitions, *, held_s: float, standstill_s: float
    ) -> None:
        self._kafka = kafka
        self._pace = pace
        self._group_id = before.group_id
        self._cooperative = is_cooperative(before)
        self._before = before
        self._partitions = partitions
        self._held_s = held_s
        self._held_until: float | None = None
        """When they have been nobody's for long enough, once they are (monotonic seconds)."""
        self._standstill_s = standstill_s
        self._ends_s = 0.0
        """By then members are let go (monotonic seconds)."""
        self._topics: Mapping[str, Topic] = {}
        self._others = 0
        """How many members there are besides the guest."""
        self._heard_s = 0.0
        """How long members get to hear that nobody was given the partitions."""

    def carry_out(self, in_barrier: Callable[[Guest], None], *, stopped: Callable[[], None]) -> None:
        """Become the leader, make the owners let go, call ``in_barrier``, and give the partitions back.

        ``in_barrier`` is called again where a rebalance is faster than we are. ``stopped``: called as owners may stop.
        Raises ``NotLed``; ``Unavailable`` also when the lead was lost, be it after something was committed.
        """
        membership = self._kafka.membership
        guests, self._topics = membership.guests(self._group_id), self._kafka.topics()
        with contextlib.ExitStack() as entered:
            with _refusals():
                guest = entered.enter_context(membership.guest(self._group_id))
                generation = self._taken(guest, guests, stopped)
            generation = self._withheld(guest, generation)
            while True:
                in_barrier(guest)
                if self._assign(guest, generation, frozenset()):
                    return
                generation = self._next(guest)

    def _taken(self, guest: Guest, guests: frozenset[str], stopped: Callable[[], None]) -> Generation:
        """The first generation that the guest leads: it waits in the join as all others are made to leave.

        Whoever waits there too hears of that at once, and joins anew. ``guests``: what dead writers have left behind.
        """
        tuning = self._pace.tuning
        if not self._cooperative:
            stopped()

        def leaving() -> None:
            stopped()
            # That long the next rebalance takes by nature, and what is withheld may need one more.
            by_nature_s = 2 * (tuning.heartbeat_s + NOTICED_S)
            self._ends_s = self._pace.clock.monotonic() + max(self._standstill_s, by_nature_s)

        def until(reached: Callable[[], bool], limit_s: float) -> bool:
            return self._pace.until(reached, limit_s, tuning.look_s)

        try:
            self._others = gather(
                self._kafka,
                self._group_id,
                guest,
                heartbeat_s=tuning.heartbeat_s,
                back_s=self._standstill_s,
                until=until,
                leaving=leaving,
                ignored=guests,
            )
        except NotAllBack as late:
            raise self._too_late(late) from late
        return self._joined(guest)

    def _withheld(self, guest: Guest, generation: Generation) -> Generation:
        """The generation after one in which nobody was given the partitions, and nobody names them any more."""
        while True:
            if not self._assign(guest, generation, self._partitions):
                generation = self._next(guest)
                continue
            assigned_s = self._pace.clock.monotonic()
            moves = bool(self._named(generation))
            self._until_given_up(guest, moves=moves)
            # Who has given something up has heard it; others go on where they were only if their client is old.
            waits = not moves and _has_old(generation)
            has_heard = not waits or self._is_heard(guest)
            has_held = self._held_s <= 0 or (not moves and has_heard and self._held(guest))
            generation = self._next(guest)
            if waits and has_heard and self._may_have_missed(assigned_s):
                self._heard_s, has_heard = self._pace.tuning.heartbeat_s, False
            if has_held and has_heard and not self._named(generation):
                return generation

    def _is_heard(self, guest: Guest) -> bool:
        """Wait, in a generation in which nobody has the partitions, until members have asked what they are assigned;
        false where a rebalance comes before that.

        Who asks after the next rebalance has begun is not told. kafka-python would be given the partitions again as if
        it had never been without them, and go on where it was.
        """
        if self._heard_s <= 0:
            # Of several it can't be told afterwards.
            self._heard_s = _HEARD_S if self._others == 1 else self._pace.tuning.heartbeat_s
        self._ends_s += self._heard_s
        return self._lasts(guest, self._pace.clock.monotonic() + self._heard_s)

    def _may_have_missed(self, assigned_s: float) -> bool:
        """Whether the only other member has joined anew sooner than a heartbeat may have told it to: as one does that
        asks what it is assigned, and is told to join again."""
        heartbeat_s = self._pace.tuning.heartbeat_s
        return (
            self._others == 1
            and self._heard_s < heartbeat_s
            and self._pace.clock.monotonic() - assigned_s < heartbeat_s
        )

    def _held(self, guest: Guest) -> bool:
        """Wait, in a generation in which nobody has the partitions, until applications have committed what they still
        had in hand; false where a rebalance comes before that.

        Not in a join: franz-go keeps commits back while it joins, and sends them before it asks where to begin.
        """
        clock, tuning = self._pace.clock, self._pace.tuning
        if self._held_until is None:
            self._held_until = clock.monotonic() + self._held_s
            # The rebalance that follows is one more than there are without.
            self._ends_s += self._held_s + tuning.heartbeat_s + NOTICED_S
        # What was kept back in the last join may come just now.
        return self._lasts(guest, max(self._held_until, clock.monotonic() + tuning.margin_s))

    def _lasts(self, guest: Guest, until_s: float) -> bool:
        """Whether no rebalance begins until then (monotonic seconds)."""
        while self._pace.clock.monotonic() < until_s:
            if guest.rebalances():
                return False
            self._pace.pause(self._pace.tuning.look_s)
        return True

    def _until_given_up(self, guest: Guest, *, moves: bool) -> None:
        """Members of a cooperative group that have something to give up (``moves``) join anew when they have."""

        def over() -> bool:
            return guest.rebalances() or (not moves and self._now().state is GroupState.STABLE)

        if not self._until(over):
            raise NotLed(
                f"no member released a partition within maxStandstill ({self._standstill_s:g} s)", stood_still=True
            )

    def _next(self, guest: Guest) -> Generation:
        with _refusals():
            guest.join()
            return self._joined(guest)

    def _joined(self, guest: Guest) -> Generation:
        """Raises ``NotLed``, after everybody was let go."""
        found: Generation | None = None

        def over() -> bool:
            nonlocal found
            found = guest.joined()
            return found is not None

        if not self._until(over) or found is None:
            raise NotLed(f"not all members rejoined within maxStandstill ({self._standstill_s:g} s)", stood_still=True)
        if found.leader_id != guest.member_id:
            raise NotLed("another member leads it")
        if len(found.subscriptions) < self._others:
            raise NotLed(f"{self._others - len(found.subscriptions)} member(s) have left the group in the meantime")
        return found

    def _assign(self, guest: Guest, generation: Generation, withheld: Partitions) -> bool:
        said = generation.subscriptions
        now = self._now()
        shares = share_out(self._before, now, said, self._topics)
        given = not_held_by_others(shares, said) if self._cooperative else shares
        if not guest.assign(generation, without(given, withheld)):
            return False
        # Who is to own what does not change any more, also while somebody has yet to give it up.
        self._before = replace(
            now, members=tuple(replace(m, assignment=shares[m.member_id]) for m in now.members if m.member_id in shares)
        )
        return True

    def _named(self, generation: Generation) -> Partitions:
        return claimed(generation.subscriptions) & self._partitions if self._cooperative else frozenset()

    def _too_late(self, late: NotAllBack) -> NotLed:
        names = ", ".join(f"{m.client_id} at {m.host}" for m in late.missing[:3])
        return NotLed(
            f"{len(late.missing)} member(s) did not rejoin within maxStandstill ({self._standstill_s:g} s): {names}",
            stood_still=True,
            left=late.left,
        )

    def _until(self, reached: Callable[[], bool]) -> bool:
        """As ``Pace.until``, while there is time; nothing counts as reached after that."""
        left_s = self._ends_s - self._pace.clock.monotonic()
        return left_s > 0 and self._pace.until(reached, left_s, self._pace.tuning.look_s)

    def _now(self) -> Group:
        return self._kafka.groups([self._group_id])[self._group_id]


def _has_old(generation: Generation) -> bool:
    """Whether a member's client is from before KIP-429, and may keep what it does not name."""
    return any(said.version < COOPERATIVE_SUBSCRIPTION for said in generation.subscriptions.values())


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What the group's coordinator does not let us do, it will not let us do the next time."""
    try:
        yield
    except GroupNotLive:
        raise
    except (Refused, NotAuthorized) as error:
        raise NotLed(str(error), for_good=True) from error
