"""Commits of old positions that come only after owners have let go, and before they have asked where to begin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.leading.joining import not_back
from tidegate.reset.applying.claim import LEASE_S
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.rounds import MAX_ROUNDS, NO_PARTITIONS, Partitions
from tidegate.reset.applying.verify import Watched
from tidegate.reset.ways import keeps_commits_back, may_begin_at_what_it_kept_back
from tidegate.resources.reset import Way

MOST_LATE_ROUNDS: Final = 2
"""How often commits that may just as well be progress are taken for old, where that is not done in all rounds."""

_OLD_TRANSACTIONS: Final = 2
"""In how many an owner that names no member may send old offsets: the one that is open, and the next."""

BEGINS_S: Final = 0.3
"""By then an owner that was given a partition has asked where to begin."""


class LateCommits:
    """Of one run on one group."""

    def __init__(self, context: RunContext) -> None:
        self._kafka = context.kafka
        self._group_id = context.group_id
        self._pace = context.pace
        self._clock = context.pace.clock
        self._tuning = context.pace.tuning
        self._hold_s = context.hold_s
        self._state = context.state
        self._view = context.view
        self._claim = context.claim
        self._joins = context.joins
        self._left: list[tuple[Group, tuple[Member, ...]]] = []
        """Of each round, the group and those who were made to leave it."""
        self._all_left_known = not context.journal.intents
        self._journal = context.journal
        self._late_rounds = 0
        self.in_doubt = NO_PARTITIONS
        """What is done again after the last round for commits that came so early: their owners may have begun at the
        targets all the same."""
        self.kept_back_some = False
        """Whether clients that hold commits back until they have joined were found to have sent some."""

    def may_come(self, way: Way | None, group: Group) -> bool:
        """Whether an owner may commit an old position once it has joined: not where it had none for a generation.

        With ``inFlight`` that of any client's application, which may be back from the join before its consumer has
        asked where to begin.
        """
        return way in (Way.BARRIER, Way.HANDOVER) and (keeps_commits_back(group) or self._hold_s > 0)

    def may_come_on_return(self, way: Way | None, group: Group) -> bool:
        """Whether an application that commits late may do so after its client has rejoined and before its partitions'
        next owner asks where to begin: nothing holds the members of a KIP-848 group meanwhile, and an owner that begins
        at an old commit never steps back. A late commit that comes after that is corrected by the owner's next one."""
        return way is Way.HANDOVER and group.type is GroupType.CONSUMER and self._hold_s > 0

    def note_left(self, group: Group, left: tuple[Member, ...]) -> None:
        """Take up which members of ``group`` a round has made to leave."""
        self._left.append((group, left))
        self.in_doubt = NO_PARTITIONS

    def note_interruption(self) -> None:
        """Take up that a round was cut off, which may have made members leave."""
        self._all_left_known = False

    def look(self, pending: Partitions, way: Way, group: Group) -> Partitions:
        """Look until what may come late has come; which partitions are to be done again, as old offsets were committed.

        ``group``: as it was before the round.
        """
        if self.may_come_on_return(way, group):
            surely, maybe = self._sent_on_return(pending)
        else:
            surely, maybe = self._kept_back(pending)
            if keeps_commits_back(group) and self._joins.left_behind():
                # Whoever is not back may yet bring a commit along.
                self._state.doubtful |= pending
        old = surely | self._taken_for_old(maybe - surely)
        self.in_doubt = old
        if old:
            self._late_rounds += 1
            self._state.kept_after_leaving = True
            self.kept_back_some |= keeps_commits_back(group)
        return old

    def what_they_do(self, not_led: str | None) -> str:
        """Why no round did what is ``in_doubt``, for a person. ``not_led``: why the group could not be led, where that
        was tried."""
        because = f" ({not_led})" if not_led else ""
        is_for_in_flight = self._hold_s > 0 and not self._some_begin_at_what_they_kept_back()
        without = ". Leave inFlight out if the application never commits late" if is_for_in_flight else ""
        return (
            f"after {MAX_ROUNDS} rounds, offsets are still committed so soon after the owners rejoined that they may "
            "be old ones; only the agent, or leading the group, would rule that out, and the group could not be led"
            f"{because}{without}"
        )

    def _taken_for_old(self, maybe: Partitions) -> Partitions:
        """Where the group cannot be led, who reads that fast is reset again and again, and in the end nobody is.

        But not where an owner begins at its target all the same. Nor for targets ahead of where the group stood: most
        are at the end of the log, where each commit that follows looks like that, and an owner that has passed its
        target skips nothing. Nor where the group had no offset, to which commits could be compared. Those are not
        counted as begun.
        """
        if self._late_rounds < MOST_LATE_ROUNDS:
            return maybe
        is_harmless = self._hold_s == 0 and not self._some_begin_at_what_they_kept_back()
        left = frozenset(p for p in maybe if is_harmless or not self._went_back(p))
        self._state.doubtful |= left
        return maybe - left

    def _some_begin_at_what_they_kept_back(self) -> bool:
        """Members of the group, as it was before one of the rounds: some may not be back yet."""
        return any(may_begin_at_what_it_kept_back(group) for group, _ in self._left)

    def _went_back(self, partition: TopicPartition) -> bool:
        before = self._state.replaced.get(partition)
        return before is not None and before > self._state.targets[partition]

    def handed_in(self, sending: Partitions) -> Partitions:
        """Which partitions are to be done again, as an application may have had their offset in hand when it lost them.

        ``sending``: as in ``Outcome``. Asked before another round: who is given a partition by it would begin there,
        while its present owner, which began at the target, replaces such an offset by its next commit. Looks until the
        transaction that was open is over, and one after it.
        """
        clock, tuning = self._clock, self._tuning
        limit = clock.monotonic() + tuning.others_limit_s
        transactions = {p: _Transactions() for p in sending}
        quiet_since: float | None = None
        while not self._pace.is_over and clock.monotonic() < limit:
            self._claim.check()
            opened = self._kafka.pending(self._group_id, sending)
            for partition, of_partition in transactions.items():
                of_partition.take_up(partition in opened)
            now = clock.monotonic()
            if any(of_partition.is_awaited for of_partition in transactions.values()):
                quiet_since = None
            elif quiet_since is None:
                quiet_since = now
            elif now >= quiet_since + tuning.kept_back_s:
                break
            clock.sleep(tuning.look_s)
        seen = self._view.committed(sending)
        self._claim.confirm(after_s=LEASE_S)
        maybe = frozenset(p for p in sending & self._state.replaced.keys() & seen.keys() if self._is_old(p, seen[p]))
        if self._late_rounds >= MOST_LATE_ROUNDS:
            # Their present owners have begun at the targets, and who reads fast is not reset again and again.
            self._state.doubtful |= maybe
            return NO_PARTITIONS
        if maybe:
            self._late_rounds += 1
            self._state.handed_in = True
        return maybe

    def _kept_back(self, pending: Partitions) -> tuple[Partitions, Partitions]:
        """Above the target they cannot be told from progress, so what comes so early is taken for old; who is led next
        has nothing to keep back. Each member sends its own, so the first to come is not the last: who would not be led
        with it could not be told from progress any more. Returns those that are old for certain, and the others.
        """
        clock, tuning = self._clock, self._tuning
        limit = clock.monotonic() + self._joins.standstill_s
        joined_at: float | None = None
        old, surely = NO_PARTITIONS, NO_PARTITIONS
        while old != pending:
            # Before asking: an answer that takes long says nothing of when it comes.
            now = clock.monotonic()
            seen = self._view.committed(pending)
            self._claim.confirm(after_s=LEASE_S)
            old |= frozenset(p for p in pending & self._state.replaced.keys() if p in seen and self._is_old(p, seen[p]))
            surely |= frozenset(p for p in old & seen.keys() if seen[p] < self._state.targets[p])
            if joined_at is None and (self._joins.is_over() or now > limit):
                joined_at = now
            if joined_at is not None and now >= joined_at + tuning.kept_back_s:
                break
            clock.sleep(tuning.look_s)
        return surely, old - surely

    def _sent_on_return(self, pending: Partitions) -> tuple[Partitions, Partitions]:
        """Of KIP-848 members, each of which is back at a heartbeat of its own: only then is taken what it commits.

        Whoever is back first may be given the others' partitions, and has to give them up again as they come. So each
        partition is looked at until its old owner is back and nothing moves any more. Returns the partitions whose old
        commits are old for certain, and those whose new owner may read that fast.
        """
        clock, tuning = self._clock, self._tuning
        limit = clock.monotonic() + self._joins.standstill_s
        looked_at = {p: _Taking(self._state.targets[p]) for p in pending}
        surely, maybe = set[TopicPartition](), set[TopicPartition]()
        while looked_at and clock.monotonic() <= limit:
            # In this order: what an owner commits as it gives a partition up comes before that shows.
            now = self._view.group()
            # Before that is asked which may take long to answer: what is in the answer may be from just after this.
            at = clock.monotonic()
            seen = self._view.committed(frozenset(looked_at))
            self._claim.confirm(after_s=LEASE_S)
            missing, away = self._returning(now)
            rests = now.state is GroupState.STABLE
            for partition, taking in list(looked_at.items()):
                offset = seen.get(partition)
                is_new = taking.take_up(now.owner(partition), offset, at)
                if is_new and not (offset is not None and self._is_old(partition, offset)):
                    taking.note_progress(offset)
                elif is_new and partition not in away:
                    is_below = offset is None or offset < self._state.targets[partition]
                    (surely if is_below or not taking.had_owner else maybe).add(partition)
                    del looked_at[partition]
                elif rests and partition not in missing and taking.has_begun(at):
                    del looked_at[partition]
            clock.sleep(tuning.look_s)
        return frozenset(surely), frozenset(maybe)

    def _returning(self, now: Group) -> tuple[Partitions, Partitions]:
        """Partitions that somebody may yet come back with, and those of which nobody is back who may have an old
        position to commit."""
        missing, back = set[TopicPartition](), set[TopicPartition]()
        for before, left in self._left:
            away = not_back(now, left, before)
            for member in left:
                (missing if member in away else back).update(member.assignment)
        if self._all_left_known:
            return frozenset(missing), frozenset(missing - back)
        # Of rounds that were cut off it is only known who was to leave.
        here = {m.member_id for m in now.members}
        for entry in self._journal.intents:
            if not here.issuperset(entry.releasing):
                missing.update(entry.pending)
        return frozenset(missing), NO_PARTITIONS

    def _is_old(self, partition: TopicPartition, offset: int) -> bool:
        """Ahead of where the group stood, an old position that has passed the target is not told from progress."""
        before, target = self._state.replaced.get(partition), self._state.targets[partition]
        return Watched(before, target, offset).overwritten_before_release


@dataclass(slots=True)
class _Transactions:
    """Of one partition, which had one open to begin with."""

    ended: int = 0
    _is_open: bool = True

    def take_up(self, is_open: bool) -> None:
        self.ended += self._is_open and not is_open
        self._is_open = is_open

    @property
    def is_awaited(self) -> bool:
        return self._is_open and self.ended < _OLD_TRANSACTIONS


@dataclass(slots=True)
class _Taking:
    """How one partition is taken by its next owner, of which it shows who that is, and what is committed.

    ``known``: what was committed last that its owner does not begin at, or that is progress from the target.
    ``had_owner``: whether it had one at an earlier look, so that what is committed may be progress.
    """

    known: int | None
    had_owner: bool = False
    _owner: str | None = None
    _began_by: float = math.inf
    """By then its present owner has asked where to begin."""

    def take_up(self, owner: Member | None, seen: int | None, at: float) -> bool:
        """Whether something new is committed that its next owner may begin at."""
        owner_id = owner.member_id if owner is not None else None
        self.had_owner |= self._owner is not None
        if owner_id != self._owner:
            if self._owner is not None:
                # The last commit of whoever has given it up.
                self.known = seen
            self._owner, self._began_by = owner_id, at + BEGINS_S if owner_id is not None else math.inf
        if self.has_begun(at):
            # The owner's next commits replace it.
            self.known = seen
        return seen != self.known

    def note_progress(self, seen: int | None) -> None:
        self.known = seen
        if self._owner is not None:
            self._began_by = -math.inf

    def has_begun(self, at: float) -> bool:
        return at >= self._began_by
