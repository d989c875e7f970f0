"""Watching what a group commits once targets are committed: whether they hold, or an owner has overwritten them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.reset.applying.claim import LEASE_S
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.failures import DidNotHold
from tidegate.reset.applying.first_commits import FirstCommits
from tidegate.reset.applying.rounds import NO_PARTITIONS, Emptied, Partitions, Round
from tidegate.reset.applying.timing import DeadlinePassed
from tidegate.reset.applying.verify import Verdict, Watched
from tidegate.resources.reset import Way


class TargetWatch:
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
        self._times = context.times

    def overwritten_elsewhere(self, pending: Partitions) -> Partitions:
        """Which partitions of earlier rounds were overwritten while nobody watched them, before another round begins.

        A round may last long enough for their owners to go on from there to beyond the targets, which no look after
        it can tell from progress.
        """
        watched = self._watched(self._state.unverified - pending, {})
        return self._to_redo(p for p, each in watched.items() if each.verdict is Verdict.OVERWRITTEN)

    def in_doubt_elsewhere(self, partitions: Partitions) -> Partitions:
        """Which of these are not known to be read from their targets, though earlier rounds have done them.

        Where an owner sent a commit that it had kept back, others may do so later than anybody has looked for it: what
        comes first may then be an old position, from which its owner goes on.
        """
        watched = self._watched(self._state.unverified & partitions, self._state.replaced)
        return self._to_redo(p for p, each in watched.items() if each.verdict is Verdict.QUIET or each.is_old)

    def _watched(
        self, partitions: Partitions, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Watched]:
        """How these stand now, against where they stood before their targets were committed."""
        seen = self._view.committed(partitions) if partitions else {}
        return {p: Watched(before.get(p), self._state.targets[p], seen.get(p)) for p in partitions}

    def _to_redo(self, partitions: Iterable[TopicPartition]) -> Partitions:
        again = frozenset(partitions)
        if not self._state.putting_back:
            self._state.redone += len(again)
        return again

    def overwritten_while_empty(
        self, pending: Partitions, earlier: Mapping[TopicPartition, int], emptied: Emptied | None
    ) -> Partitions:
        """Look until a group whose members were all made to leave has one again: what was committed by then is old.

        To an Empty group anybody may commit without being a member: a KIP-848 Java consumer does when its auto-commit
        falls between being fenced and rejoining. Such a commit can be told from progress only now.

        ``earlier``: where partitions of earlier rounds stood before this one; their old owners may not be back yet.
        """
        self._state.unverified |= pending
        # Somebody may be back before we look for the first time.
        if emptied is None and self._view.group().has_members:
            return NO_PARTITIONS
        seen = emptied.at_return if emptied is not None else None
        if seen is None:
            # The targets are committed, and nobody has an old position to go on from: a deadline undoes nothing.
            with contextlib.suppress(DeadlinePassed):
                self._pace.until(
                    lambda: self._view.group().has_members, self._tuning.back_limit_s, self._tuning.visible_s
                )
            seen = self._view.committed(pending | earlier.keys())
        changed = pending | {p for p, offset in earlier.items() if seen.get(p) != offset}
        targets = {p: self._state.targets[p] for p in changed}
        return Round(self._state.round, targets, self._state.replaced).overwritten_at_release(seen)

    def watch(
        self,
        pending: Partitions,
        way: Way | None,
        *,
        unseen: Partitions = NO_PARTITIONS,
        sending: Partitions = NO_PARTITIONS,
    ) -> Partitions:
        """Look until the owners' next commits, or for as long as they may take; which partitions were overwritten.

        A first commit that may be old counts once its owner commits anew, or keeps the partition for as long. Where the
        watch is cut short before that, its partition stays doubtful: the next one can't tell whose commit it was.
        ``unseen``: partitions that were committed before a process died or Kafka was away, and not watched since.
        ``sending``: as in ``Outcome``; of these keeping the partition does not count.
        """
        tuning, clock = self._tuning, self._clock
        self._state.unverified |= pending
        began = clock.monotonic()
        at_least = began + max(tuning.watch_at_least_s, self._hold_s)
        watch_s = max(tuning.watch_s, self._hold_s + tuning.watch_at_least_s)
        limit = began + watch_s
        opened = self._state.unverified
        first_commits = FirstCommits(self._may_have_kept_back(way, sending), self._state.replaced, unseen)
        doubtful = self._state.doubtful
        while True:
            if opened:
                opened = self._kafka.pending(self._group_id, opened)
            # Before asking: an answer that takes long says nothing of when it comes.
            now = clock.monotonic()
            seen = self._view.committed(self._state.unverified)
            # What another run commits is not an owner's word.
            self._claim.confirm(after_s=LEASE_S)
            self._note_resumed(pending)
            replaced = self._state.replaced
            verdicts = {
                p: Watched(replaced.get(p), self._state.targets[p], seen.get(p)).verdict for p in self._state.unverified
            }
            overwritten = frozenset(p for p, verdict in verdicts.items() if verdict is Verdict.OVERWRITTEN)
            first_commits.take_up(seen, self._view.group)
            self._state.doubtful = doubtful | first_commits.lost | first_commits.awaited
            if overwritten:
                return overwritten
            opened = frozenset(p for p in opened if verdicts[p] is not Verdict.SETTLED)
            if opened and now < began + tuning.others_limit_s and not self._pace.is_over:
                # Owners that wait for a transaction go on after its end; what the others have read shows then.
                limit = now + watch_s
            is_settled = not first_commits.awaited and all(v is Verdict.SETTLED for v in verdicts.values())
            if now >= limit or (now >= at_least and is_settled):
                self._state.doubtful = doubtful | first_commits.lost | (first_commits.awaited & sending)
                self._state.unverified = NO_PARTITIONS
                return NO_PARTITIONS
            clock.sleep(tuning.look_s if now - began < tuning.watch_at_least_s else tuning.look_s * 5)

    def _may_have_kept_back(self, way: Way | None, sending: Partitions) -> Mapping[TopicPartition, int]:
        """The targets of partitions whose owners may send an old position after they have rejoined."""
        rejoined = self._state.unverified if way in (Way.BARRIER, Way.HANDOVER) else sending
        return {p: self._state.targets[p] for p in rejoined}

    def still_theirs(self, theirs: Partitions, targets: Mapping[TopicPartition, int]) -> Partitions:
        """Of partitions that owners may have overwritten, those that stand at progress from before: of some it was only
        not certain that they begin at the target. And an offset that is gone is nobody's progress."""
        seen, before = self._view.committed(theirs) if theirs else {}, self._state.before
        old = frozenset(p for p in theirs if Watched(before.get(p), targets[p], seen.get(p)).is_old)
        return old - (before.keys() - seen.keys())

    def may_be_assigned(self, group: Group, partitions: Partitions) -> bool:
        """Whether a consumer may have assigned itself any of them: of a group that has offsets and never had members
        nothing else is known to have committed."""
        return (
            group.type is GroupType.SIMPLE
            and not self._state.putting_back
            and bool(self._state.before.keys() & partitions)
        )

    def watch_for_assigned(self, pending: Partitions) -> None:
        """Look for as long as a consumer may take until its next commit that has assigned itself partitions.

        Such a one (``Consumer.assign``) is no member: it can neither be seen nor made to leave, and commits on from
        where it is. One that has started since has begun at the target. Raises ``DidNotHold``.
        """
        before, old = self._state.before, NO_PARTITIONS

        def is_overwritten() -> bool:
            nonlocal old
            seen = self._view.committed(pending)
            old = frozenset(p for p in pending if Watched(before.get(p), self._state.targets[p], seen.get(p)).is_old)
            return bool(old)

        # The targets are committed: a deadline that passes meanwhile undoes nothing.
        with contextlib.suppress(DeadlinePassed):
            self._pace.until(is_overwritten, max(self._tuning.watch_s, self._hold_s), 25 * self._tuning.look_s)
        # Members that have joined since began at the target, too; the group stays theirs when they are gone.
        if old and self._view.group().type is GroupType.SIMPLE:
            raise DidNotHold(
                old,
                "a consumer that is not a member of the group, such as one that uses assign(), overwrites the targets "
                "with its own offsets; stop it first",
            )

    def _note_resumed(self, pending: Partitions) -> None:
        """For the record only, so it may fail."""
        missing = pending - self._times.resumed.keys()
        if not missing:
            return
        try:
            group = self._view.group()
        except KafkaFailure:
            return
        if group.type is GroupType.CONSUMER or group.state is GroupState.STABLE:
            for member in group.members:
                self._times.resume(member.assignment & missing, self._clock.monotonic())
