"""Handover: commit, leave in the owners' names so that they can commit no more, and see that they are back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from tidegate.cluster import Kafka
from tidegate.kafka.model import Group, GroupState, GroupType, Member
from tidegate.kafka.ports import JoinHold
from tidegate.leading.groups import is_cooperative
from tidegate.leading.joining import not_back
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.rejoins import Rejoins
from tidegate.reset.applying.rounds import NO_PARTITIONS, Emptied, Outcome, Partitions, Round, Times
from tidegate.reset.applying.steps import Steps
from tidegate.reset.applying.timing import NOTICED_S, Pace
from tidegate.reset.ways import COOPERATIVE_SUBSCRIPTION

MOST_STALE_LOOKS: Final = 3
"""How often a round is put off because a look at the owners had become too old."""

FAST_HEARTBEAT_S: Final = 0.5
LEAVING_S: Final = 0.5
"""How long before a heartbeat a round begins, so that owners have been made to leave by then."""


class Handover:
    """Of one run on one group."""

    def __init__(self, kafka: Kafka, commits: RunCommits, pace: Pace, times: Times, joins: Joins, steps: Steps) -> None:
        self._kafka = kafka
        self._commits = commits
        self._pace = pace
        self._times = times
        self._joins = joins
        self._steps = steps
        self._group_id = commits.group_id
        self._kept_at: float | None = None
        """When the generation of the last round was seen, if an owner kept something in it (monotonic seconds)."""
        self._stale_looks = 0

    def carry_out(self, round_: Round, group: Group) -> Outcome:
        """Commit, then leave in the owners' names; the read-back decides, for then they can commit no more.

        What they had committed in between is replaced before anybody takes their partitions. In one piece, because each
        step relies on what the ones before have read, and on how long ago that was.
        """
        # Whether an owner that is rejoining when it becomes unknown may go on from where it was: cooperative clients
        # keep what they own over a rebalance (kafka-python also then), and so do some of the old ones. Who is alone
        # cannot leave another behind: cooperative ones are looked after once the group was Empty, the old ones rejoin.
        old = self._old_clients(round_, group)
        keeps = is_cooperative(group) or (len(group.members) > 1 and bool(old))
        held = group.type is GroupType.CLASSIC and not keeps
        looked = self._pace.clock.monotonic()
        if held and self._owners_changed(round_, group):
            return Outcome(not_tried=round_.pending)
        rejoins = Rejoins(self._kafka, group, round_.pending) if is_cooperative(group) else None
        began = self._pace.clock.monotonic()
        gone: tuple[Member, ...] = ()
        waits = False

        def are_back() -> bool:
            """Somebody; or all, where members wait for a transaction: librdkafka begins at ``auto.offset.reset`` if a
            second rebalance comes meanwhile (ADR 19)."""
            now = self._steps.group()
            return not not_back(now, gone, group) if waits else now.has_members

        with self._held_join(group, keeps=keeps, rejoins=rejoins, are_back=are_back) as hold:
            # Who owns what shows no more, and a rebalance may have ended between the look and the hold.
            unknown = held and self._pace.clock.monotonic() - looked > self._pace.tuning.fresh_s
            self._commits.commit(round_.targets, round_.number)
            # A held classic group shows no owners, and gives nobody a partition.
            looked = self._pace.clock.monotonic()
            now = group if held else self._steps.group(round_.pending)
            owners, unsure = _owners_now(round_.pending, group, now)
            if unknown:
                # So all are made to leave. To put the round off would cost them a rebalance more.
                now = self._steps.group(round_.pending)
                owners, unsure = now.members, NO_PARTITIONS
                self._times.stop(round_.pending, self._pace.clock.monotonic())
            owners, not_tried = _all_but_one(owners, now, round_.pending) if keeps else (owners, NO_PARTITIONS)
            leaving = self._pace.clock.monotonic()
            for member in owners:
                self._times.stop(member.assignment & round_.pending, leaving)
            left = self._kafka.membership.leave(self._group_id, owners)
            # Also if some of them had left by themselves just before.
            emptied = {m.member_id for m in now.members} <= {m.member_id for m in owners}
            self._steps.emptied = Emptied() if emptied else None
            if keeps and self._is_stale(looked):
                # A rebalance may have begun in between, in which they were rejoining already.
                unsure = round_.pending
            unsure |= _owned_by_others(round_.pending, owners, left)
            gone = tuple(m for m in owners if m.member_id in left)
            if rejoins is not None:
                rejoins.gone = gone
            if hold is not None and keeps and emptied:
                # An Empty group waits for no pending member, and letting go of it later would begin a rebalance.
                hold.release()
            unnamed = [m for m in gone if m.member_id in old]
            self._wait_until_known(unnamed, group, hold)
            theirs = frozenset(p for m in unnamed for p in m.assignment & round_.pending)
            sending = self._kafka.pending(self._group_id, theirs) if theirs else NO_PARTITIONS
            overwritten = self._steps.commit_over_transactions(round_, hold, but=unsure | not_tried)
            waits = bool(self._kafka.pending(self._group_id, group.assigned))
        kept = NO_PARTITIONS
        if rejoins is None:
            self._steps.end_join(group, began)
        else:
            self._wait_until_back(rejoins)
            kept = rejoins.kept()
            self._kept_at = self._pace.clock.monotonic() if kept else None
        return Outcome(
            overwritten=overwritten, unsure=unsure | kept, not_tried=not_tried, kept=kept, left=gone, sending=sending
        )

    def unnamed(self, round_: Round, group: Group) -> Partitions:
        """Partitions whose owners' producers name no member as they send offsets."""
        old = self._old_clients(round_, group)
        return frozenset(p for m in group.members if m.member_id in old for p in m.assignment & round_.pending)

    def wait_for_heartbeat(self) -> bool:
        """Where an owner kept something in the last round: until shortly before it heartbeats; whether that took time.

        Made to leave then, it learns it from that heartbeat and not from its next commit. franz-go's first heartbeat
        comes 0.5 s after it has joined. Raises ``DeadlinePassed``.
        """
        kept_at, self._kept_at = self._kept_at, None
        if kept_at is None:
            return False
        beats_at = kept_at + FAST_HEARTBEAT_S + self._pace.tuning.heartbeat_s
        self._pace.pause(beats_at - LEAVING_S - self._pace.clock.monotonic())
        return True

    @contextlib.contextmanager
    def _held_join(
        self, group: Group, *, keeps: bool, rejoins: Rejoins | None, are_back: Callable[[], bool]
    ) -> Iterator[JoinHold | None]:
        """Hold a classic group at its join, so that nobody takes a partition before all is in place.

        Nor does it become Empty where all members leave: to an Empty group anybody may commit without being a member,
        and aiokafka does so before it rejoins.

        ``keeps``: an owner that is rejoining when it becomes unknown may keep its position; one that learns it from a
        heartbeat has lost its partitions. So the rebalance is not begun before they left; and one has to
        stay, for an outstanding member id keeps a group from becoming Empty only once a rebalance is under way.
        ``are_back``: until when an eager group is held.
        """
        if group.type is not GroupType.CLASSIC:
            yield None
            return
        tuning = self._pace.tuning
        with self._steps.hold(rebalance=not keeps) as hold:
            yield hold

            def is_over() -> bool:
                hold.keep()
                self._steps.note_return()
                if rejoins is None:
                    return are_back()
                # Members of a cooperative group read on while they wait for those who left.
                return rejoins.look() or rejoins.have_rejoined(self._steps.group())

            # Who has died is not waited for while the others stand still.
            noticed_s = tuning.heartbeat_s + NOTICED_S
            limit_s = self._steps.back_limit_s if rejoins is None else min(noticed_s, self._steps.back_limit_s)
            self._pace.until(is_over, limit_s, tuning.look_s)
            until = self._pace.clock.monotonic() + self._steps.held_for()
            while self._pace.clock.monotonic() < until:
                hold.keep()
                self._pace.pause(min(tuning.look_s, self._steps.hold_s))

    def _wait_until_known(self, old: Collection[Member], group: Group, hold: JoinHold | None) -> None:
        """Wait until owners know that they were made to leave whose clients name no member as they send offsets to a
        transaction (aiokafka, ``old``): until then they may send some."""
        if hold is not None and old:
            limit_s = self._steps.back_limit_s
            self._steps.held_until(
                hold, lambda: not not_back(self._steps.group(), old, group), limit_s, self._pace.tuning.look_s
            )

    def _wait_until_back(self, rejoins: Rejoins) -> None:
        """Until the owners that were made to leave are back; one that has died meanwhile is not waited for."""
        tuning, clock = self._pace.tuning, self._pace.clock
        began = clock.monotonic()

        open_since: float | None = None

        def settled() -> bool:
            nonlocal open_since
            self._steps.note_return()
            if rejoins.are_back or rejoins.look():
                return True
            now = clock.monotonic()
            waited = now - began
            open_since = None if self._joins.is_over() else now if open_since is None else open_since
            if open_since is not None and now - open_since > self._joins.standstill_s:
                open_since = None
                self._steps.free_join()
            return (waited > tuning.back_limit_s and rejoins.seen) or (
                waited > tuning.session_s and not self._steps.group().has_members
            )

        # A generation in which partitions move is over within milliseconds.
        self._pace.until(settled, tuning.rejoin_limit_s, tuning.look_s / 4)

    def _is_stale(self, looked: float) -> bool:
        """Whether a look of that moment is too old to act upon; told a few times only, for brokers far away."""
        stale = self._pace.clock.monotonic() - looked > self._pace.tuning.fresh_s
        self._stale_looks += stale
        return stale and self._stale_looks <= MOST_STALE_LOOKS

    def _owners_changed(self, round_: Round, group: Group) -> bool:
        """Whether the owners are others than when the way was chosen, or just changing."""
        now = self._steps.group(round_.pending)
        then = {m.member_id: m.assignment & round_.pending for m in group.owners(round_.pending)}
        return now.state is not GroupState.STABLE or then != {
            m.member_id: m.assignment & round_.pending for m in now.owners(round_.pending)
        }

    def _old_clients(self, round_: Round, group: Group) -> frozenset[str]:
        """Member ids of a classic group's owners whose subscription is from before KIP-429: they may keep a position
        over a rebalance, and their producers name no member as they send offsets."""
        if group.type is not GroupType.CLASSIC or is_cooperative(group):
            return frozenset()
        versions = self._kafka.membership.subscription_versions(self._group_id)
        owners = (m.member_id for m in group.owners(round_.pending))
        return frozenset(m for m in owners if versions.get(m, 0) < COOPERATIVE_SUBSCRIPTION)


def _owners_now(pending: Partitions, group: Group, now: Group) -> tuple[tuple[Member, ...], Partitions]:
    """Who owns what once our offsets are in the way, and the partitions of which that is hidden.

    An owner that takes a partition from now on starts from our offset. One that took it since ``group`` was described
    did not: KIP-848 groups move partitions at any time.
    """
    owners = now.owners(pending)
    if now is group or now.state is GroupState.STABLE:
        return owners, frozenset()
    if now.type is not GroupType.CLASSIC:
        return owners, now.hidden(pending)
    # A rebalance of theirs hides the owners; those we know of are made to leave, and all is done again.
    known = {m.member_id for m in owners}
    return (*owners, *(m for m in group.owners(pending) if m.member_id not in known)), pending


def _owned_by_others(pending: Partitions, owners: Iterable[Member], left: Collection[str]) -> Partitions:
    """Partitions whose owner was another by the time we left in its name: nobody has let those go."""
    return frozenset(p for m in owners if m.member_id not in left for p in m.assignment & pending)


def _all_but_one(
    owners: tuple[Member, ...], group: Group, pending: Partitions
) -> tuple[tuple[Member, ...], Partitions]:
    """Where all of several members own something, one of them stays for now; and its partitions."""
    if len(owners) < len(group.members) or len(group.members) == 1:
        return owners, frozenset()
    stays = min(owners, key=lambda m: (len(m.assignment & pending), m.member_id))
    return tuple(m for m in owners if m is not stays), stays.assignment & pending
