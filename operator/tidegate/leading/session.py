"""One group, led for as long as somebody wants partitions of it to be nobody's.

A guest leads each generation of the group and gives those partitions to nobody; the rest is shared out as the group's
own assignor would. The guest's seat outlives this process: who is given it goes on as the same member, without a
rebalance. See ``docs/adr/0060-pauses-by-leading.md``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.assignments import assign, without
from tidegate.kafka.errors import KafkaFailure, MemberForgotten, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Generation, Group, GroupState, GroupType, Seat, Topic, TopicPartition
from tidegate.kafka.ports import SeatedGuest
from tidegate.leading.groups import without_leader
from tidegate.leading.joining import NotAllBack, NotLed, gather, wait_for_calm
from tidegate.leading.leaving import leave
from tidegate.leading.pacing import Pacing, Report
from tidegate.leading.shares import given_now, read_by, still_named
from tidegate.leading.wishes import Covers, Wishes

Partitions = frozenset[TopicPartition]

_log = logging.getLogger(__name__)

_NOTHING: Final[Partitions] = frozenset()


class _Stopped(Exception):
    """It is not this process's turn any more. Our member stays, for the next one."""


class _Over(Exception):
    """Nobody wants anything any more: our member leaves."""


class LeadingSession:
    """Leads one group, in the thread that calls :meth:`run`; the other methods are for any thread.

    ``known``: the seat of an earlier process. ``others``: who has wanted something by what that process has written;
    until all of them have said so again, nothing is given back. ``may_act``: whether it is this process's turn.
    """

    def __init__(
        self,
        kafka: Kafka,
        group_id: str,
        clock: Clock,
        pacing: Pacing,
        may_act: Callable[[], bool],
        *,
        known: Seat | None = None,
        others: Collection[str] = (),
    ) -> None:
        self.kafka = kafka
        """May be replaced by a newer connection to the same cluster at any time."""
        self._group_id = group_id
        self._clock = clock
        self._pacing = pacing
        self._may_act = may_act
        self._known = known
        self._lock = threading.Lock()
        self._wishes = Wishes(clock, others, pacing.others_s)
        self._report = Report(seat=known)
        self._is_stopped = self._is_settled = self._is_behind = False
        # What follows belongs to the thread that runs.
        self._again_s, self._yields_s = pacing.again_s, pacing.yields_s
        self._before = Group(group_id, GroupState.UNKNOWN, GroupType.UNKNOWN)
        self._generation = Generation(-1, "", {})
        self._everything: Partitions = _NOTHING
        self._applied: Partitions = _NOTHING
        self._read: Partitions = _NOTHING
        self._assigned_s = self._looked_s = self._heard_s = clock.monotonic()

    # --- for any thread -----------------------------------------------------------------------------------------------

    @property
    def report(self) -> Report:
        """``withheld`` only for as long as the coordinator surely knows our member, whatever its thread waits for."""
        with self._lock:
            report, unheard_s = self._report, self._clock.monotonic() - self._heard_s
        if not report.withheld or unheard_s <= self._pacing.session_s:
            return report
        trouble = report.trouble or f"no answer from the group's coordinator for {unheard_s:.0f} s"
        return replace(report, withheld=_NOTHING, trouble=trouble)

    def want(self, user: str, partitions: Partitions) -> None:
        self._wishes.want(user, partitions)

    def cover(self, user: str, covers: Covers) -> None:
        """New partitions are noticed here first."""
        self._wishes.cover(user, covers)

    def drop(self, user: str) -> None:
        """The last one who drops what he wanted ends it: our member leaves."""
        self._wishes.drop(user)

    def stop(self) -> None:
        """End without leaving: a successor goes on with the seat."""
        self._is_stopped = True

    # --- the thread that leads ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Lead until nobody wants anything any more, or ``stop`` was called, or it is not this process's turn."""
        try:
            while self._goes_on():
                if self._turn():
                    return
        finally:
            self._tell(ended=True)

    def _turn(self) -> bool:
        """Take or keep the lead; whether it is over for good."""
        try:
            if self._known is None:
                wait_for_calm(self.kafka, self._group_id, self._pacing, self._until)
            kafka = self.kafka
            with kafka.membership.seat(self._group_id, self._pacing.session_s, self._known) as guest:
                self._known = guest.seat
                self._tell(seat=guest.seat)
                try:
                    return self._lead(guest, kafka)
                except Unavailable:
                    if guest.seat.generation < 0:
                        self._known = None  # it leads nothing yet, and others wait for it
                        guest.leave()
                    raise
                except (_Stopped, _Over, NotLed, NotAllBack, KafkaFailure):
                    # A seat may be another process's by now.
                    if guest.seat.generation < 0 or self._goes_on():
                        self._leave(guest)
                    raise
        except (_Stopped, _Over):
            return True
        except MemberForgotten as failure:
            if self._lose(f"{failure}: its partitions may have been consumed since; Tidegate leads it again"):
                return self._wishes.are_over
        except (NotLed, NotAllBack) as failure:
            if self._wishes.are_over:
                return True
            self._lose(str(failure))
        except (Refused, NotAuthorized) as failure:
            self._lose(str(failure))
            self._tell(is_refused=True)
        except Unavailable as failure:
            self._unheard(failure)
            if self._known is not None and self._known.generation >= 0:
                # Its session runs out.
                self._clock.sleep(self._pacing.beat_s)
                return self._wishes.are_over and not self._may_be_known
        except KafkaFailure as failure:
            self._lose(str(failure))
        if self._wishes.are_over:
            return True
        self._pause(self._again_s)
        self._again_s = min(2 * self._again_s, self._pacing.again_at_most_s)
        return False

    def _lead(self, guest: SeatedGuest, kafka: Kafka) -> bool:
        """Whether it is over for good; if not, it goes on through another connection."""
        if self._wishes.are_over:
            self._leave(guest)
            return True
        if not self._resumed(guest):
            self._follow(guest, self._taken(guest) if guest.seat.generation < 0 else None)
        while self._goes_on():
            if self.kafka is not kafka:
                kafka.close()  # again: our last request may have opened it anew
                return False
            if self._wishes.are_over:
                self._leave(guest)
                return True
            try:
                if self._beat(guest) or self._is_behind or self._is_to_change(guest):
                    self._follow(guest, None)
                if not self._is_settled:
                    self._settle(guest)
            except MemberForgotten:
                raise
            except Unavailable as failure:
                self._unheard(failure)
            self._pause(self._pacing.beat_s if self._is_settled else self._pacing.look_s * 4)
        return True

    def _leave(self, guest: SeatedGuest) -> None:
        if self._wishes.are_over:
            leave(self.kafka, self._group_id, guest, self._clock, self._pacing, self._goes_on)
        else:
            guest.leave()

    def _resumed(self, guest: SeatedGuest) -> bool:
        """Whether the group is as an earlier process has led it, so that heartbeats are all it takes."""
        group = self._now()
        if group.state is GroupState.STABLE:  # perhaps in a later generation than the one that was noted
            self._before, self._read = without_leader(group), group.assigned
        if guest.seat.generation < 0 or self._beat(guest):
            return False
        generation = guest.present()
        if generation is None or group.state is not GroupState.STABLE:
            return False
        self._generation = generation
        self._everything = read_by(generation.subscriptions, self._topics(generation))
        # Of topics that nobody reads, nobody has anything.
        self._applied, self._is_settled = self._everything - group.assigned, False
        self._assigned_s = self._clock.monotonic()
        return True

    def _taken(self, guest: SeatedGuest) -> Generation:
        """The first generation that is ours: everybody else joins it anew, as followers."""
        group = self._now()
        if group.state is not GroupState.STABLE:
            raise NotLed("the group has just begun to rebalance")
        self._before = without_leader(group)
        self._read = group.assigned
        ends_s = 0.0

        def leaving() -> None:
            nonlocal ends_s
            if self._wishes.are_over or not self._goes_on():
                raise _Over
            if guest.joined() is not None:
                raise NotLed("not all members had rejoined")
            ends_s = self._clock.monotonic() + self._pacing.standstill_s

        others = gather(
            self.kafka,
            self._group_id,
            guest,
            heartbeat_s=self._pacing.heartbeat_s,
            back_s=self._pacing.standstill_s,
            until=self._until,
            leaving=leaving,
        )
        found = self._joined(guest, ends_s)
        if len(found.subscriptions) < others:
            raise NotLed(f"{others - len(found.subscriptions)} member(s) have left the group in the meantime")
        return found

    def _beat(self, guest: SeatedGuest) -> bool:
        """Whether the group rebalances; our member is known from when it was asked for, be the answer late."""
        asked_s = self._clock.monotonic()
        rebalances = guest.rebalances()
        self._heard_s = asked_s
        return rebalances

    def _follow(self, guest: SeatedGuest, generation: Generation | None) -> None:
        """Lead the next generation: ``generation``, or the one that is joined now."""
        # Until all is assigned the members wait for it, and heartbeats do not tell.
        self._is_settled, self._is_behind = False, True
        while self._goes_on():
            if generation is None:
                guest.join()
                generation = self._joined(guest, None)
            if self._assign(guest, generation):
                self._is_behind = False
                return
            generation = None

    def _joined(self, guest: SeatedGuest, ends_s: float | None) -> Generation:
        """Joins end when all members have come, or have had their time; one that we hold ends at ``ends_s``."""
        asked_s = self._clock.monotonic()
        while self._goes_on():
            if self._wishes.are_over:
                raise _Over
            # Until the look before, our member was waited for; whoever was frozen since knows no more.
            waited_for_s, asked_s = asked_s, self._clock.monotonic()
            try:
                found = guest.joined()
                if found is None and ends_s is None and self._clock.monotonic() - self._heard_s > self._pacing.beat_s:
                    self._beat(guest)
            except MemberForgotten:
                raise
            except Unavailable as failure:
                # Its coordinator moves, and knows our member there too.
                self._unheard(failure)
                self._pause(self._pacing.beat_s)
                if self._goes_on():
                    guest.join()
                continue
            if found is not None:
                self._heard_s = max(self._heard_s, waited_for_s)
                if found.leader_id != guest.member_id:
                    raise NotLed("another member leads it")
                self._known = guest.seat
                self._tell(seat=guest.seat)
                return found
            if ends_s is not None and self._clock.monotonic() > ends_s:
                raise NotLed(f"not all members rejoined within {self._pacing.standstill_s:g} s")
            self._clock.sleep(self._pacing.look_s)
        raise _Stopped

    def _assign(self, guest: SeatedGuest, generation: Generation) -> bool:
        """Whether it counts; if not, a rebalance was faster."""
        said, protocol, now = generation.subscriptions, guest.seat.assignor, self._now()
        topics = self._topics(generation)
        everything = read_by(said, topics)
        shares = assign(protocol, self._before, now, said, topics)
        withheld = self._to_withhold(everything)
        given = without(dict(given_now(protocol, shares, said)), withheld)
        with self._lock:
            self._report = replace(self._report, withheld=self._report.withheld - (everything - withheld))
        if not guest.assign(generation, given):
            return False
        present = (m for m in now.members if m.member_id in shares)
        self._before = replace(now, members=tuple(replace(m, assignment=shares[m.member_id]) for m in present))
        self._generation, self._everything, self._applied = generation, everything, withheld
        self._assigned_s = self._looked_s = self._clock.monotonic()
        return True

    def _settle(self, guest: SeatedGuest) -> None:
        """Say what is nobody's, once it surely is: nobody has it, nor names it as his own in this generation."""
        group, named = self._now(), still_named(guest.seat, self._generation)
        if group.state is not GroupState.STABLE or self._applied & (group.assigned | named):
            return
        if guest.rebalances():
            return  # what was seen may be another generation's
        self._is_settled = True
        self._again_s, self._yields_s = self._pacing.again_s, self._pacing.yields_s
        unread = self._wishes.wanted - self._everything - group.assigned
        self._tell(withheld=self._applied | unread, trouble="", is_refused=False, seat=guest.seat)

    def _is_to_change(self, guest: SeatedGuest) -> bool:
        """Whether another rebalance is needed: for other partitions, for new ones, or for who has not yet let go."""
        now_s, pacing = self._clock.monotonic(), self._pacing
        if self._wishes.are_awaited:
            return False
        if now_s - self._looked_s > pacing.topics_s:
            self._looked_s = now_s
            if read_by(self._generation.subscriptions, self._topics(self._generation)) != self._everything:
                return True
        if (self._to_withhold(self._everything) ^ self._applied) & self._everything:
            return True
        if not self._applied & still_named(guest.seat, self._generation) or now_s - self._assigned_s < self._yields_s:
            return False
        # Whoever never lets go must not have the group rebalance all the time.
        self._yields_s = min(2 * self._yields_s, pacing.again_at_most_s)
        return True

    # --- what is wanted -----------------------------------------------------------------------------------------------

    def _to_withhold(self, everything: Partitions) -> Partitions:
        # What others may have wanted was nobody's as this process began.
        return self._wishes.among(everything) | (everything - self._read if self._wishes.are_awaited else _NOTHING)

    def _goes_on(self) -> bool:
        return not self._is_stopped and self._may_act()

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, **changes: object) -> None:
        with self._lock:
            self._report = replace(self._report, **changes)  # type: ignore[arg-type]

    def _lose(self, why: str) -> bool:
        """Whether it was led until now."""
        _log.warning("group %s is not led: %s", self._group_id, why)
        was_leading = self._known is not None and self._known.generation >= 0
        self._known, self._is_settled = None, False
        self._tell(seat=None, withheld=_NOTHING, trouble=why, lost=self.report.lost + was_leading)
        return was_leading

    @property
    def _may_be_known(self) -> bool:
        return self._clock.monotonic() - self._heard_s <= self._pacing.session_s

    def _unheard(self, failure: Unavailable) -> None:
        """Its coordinator does not answer; by and by it forgets our member."""
        is_lost = not self._may_be_known
        self._tell(trouble=str(failure), **({"withheld": _NOTHING} if is_lost else {}))
        self._is_settled &= not is_lost

    # --- looks --------------------------------------------------------------------------------------------------------

    def _now(self) -> Group:
        return self.kafka.groups([self._group_id])[self._group_id]

    def _topics(self, generation: Generation) -> dict[str, Topic]:
        return dict(self.kafka.topics({name for said in generation.subscriptions.values() for name in said.topics}))

    def _until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        ends_s = self._clock.monotonic() + limit_s
        while not reached():
            if self._clock.monotonic() > ends_s or not self._goes_on() or self._wishes.are_over:
                return False
            self._clock.sleep(self._pacing.look_s)
        return True

    def _pause(self, seconds: float) -> None:
        ends_s = self._clock.monotonic() + seconds
        while (left_s := ends_s - self._clock.monotonic()) > 0 and self._goes_on() and not self._wishes.are_over:
            self._clock.sleep(min(left_s, self._pacing.look_s * 4))
