"""Going on where a writer was cut off, dead or without Kafka: how far the run came, and what is still to be done."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState, GroupType
from tidegate.leading.groups import is_cooperative
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.late_commits import LateCommits
from tidegate.reset.applying.plan_check import check_plan, gone_topics
from tidegate.reset.applying.replay import CONTINUED
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions, Round
from tidegate.reset.applying.state import Away
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.model.progress import Progress
from tidegate.resources.reset import ResetPhase, Way


class Recovery:
    """Of one run on one group."""

    def __init__(self, context: RunContext, watch: TargetWatch, late_commits: LateCommits) -> None:
        self._context = context
        self._watch = watch
        self._late_commits = late_commits
        self._kafka = context.kafka
        self._group_id = context.group_id
        self._pace = context.pace
        self._clock = context.pace.clock
        self._tuning = context.pace.tuning
        self._state = context.state
        self._view = context.view
        self._journal = context.journal
        self._commits = context.commits
        self._claim = context.claim
        self._found_round = 0
        """The last round that was committed, as ``recall`` found."""
        self._made_again = False
        """Whether the last round's transaction had to be made once more to be decided, whoever has begun since."""

    def recall(self) -> None:
        """How far predecessors came, by the run's journal and the marker."""
        if not self._journal.intents:
            return
        last = self._journal.intents[-1]
        self._state.round, self._state.way = last.round, last.way
        self._state.redone = max(self._state.redone, *(entry.redone for entry in self._journal.intents))
        if last.attempt != self._journal.attempt and last.again and last.way is Way.BARRIER:
            # A predecessor found it out, or its join was not held: another way is right for both.
            self._state.kept_position = True
        self._state.kept_after_leaving |= any(entry.way is Way.LEADING for entry in self._journal.intents)
        gone = gone_topics(self._context)
        may_be_committed = self._commits.leave_out(gone)
        # What is verified was seen to be decided.
        unknown = frozenset(last.pending) if last.phase is not ResetPhase.VERIFYING else NO_PARTITIONS
        if self._commits.hangs(unknown):
            if self._commits.is_known_aborted():
                self._commits.drop_hanging(self._context.plan.targets)
            else:
                self._make_again(last, gone)
        self._found_round = self._commits.committed_round()
        self._commits.unsure = False
        # A replay may last longer than the broker keeps the marker, and a deleted topic may have taken it along.
        if self._found_round > 0 or self._journal.replay_began or may_be_committed:
            self._commits.any = True
            # Where a predecessor has committed nothing, the owners have gone on since: "before" is read anew.
            if not self._state.told_before:
                self._state.stood_at(self._journal.offsets_before())

    def _make_again(self, last: Progress, gone: Collection[str]) -> None:
        """The last round's transaction, for what it may have left hanging. ``gone``: topics that are."""
        # Nothing tells how it was decided, but the run means the same as then. Where the group stood is needed also
        # if Kafka goes away, or the deadline passes, before this has taken effect.
        if not self._state.told_before:
            self._state.stood_at(self._journal.offsets_before())
        offsets = self._context.plan.targets
        if last.putting_back:
            offsets = self._context.plan.ends if last.putting_back == CONTINUED else self._journal.offsets_before()
            self._state.putting_back = self._state.putting_back or (last.putting_back, last.message)
        self._context.dead_letters.gather_again(self._state.before)
        self._commits.commit(
            {p: offsets[p] for p in last.pending if p in offsets and p.topic not in gone}, last.round, again=True
        )
        self._made_again = True

    @property
    def is_committed(self) -> bool:
        """Whether the last round's transaction is known to have been committed, after ``recall``."""
        last = self._journal.intents[-1] if self._journal.intents else None
        return last is not None and self._found_round >= last.round

    def left_to_do(self) -> Partitions:
        """What is still to be done of the run, after ``recall``."""
        left = self._looked_up() | self._state.not_held
        last = self._journal.intents[-1] if self._journal.intents else None
        if left and last is not None and self._found_round == last.round and left != frozenset(last.again):
            # Their owners go on, and what they commit later no longer tells.
            self._state.kept_position |= last.way is Way.BARRIER and last.phase is ResetPhase.VERIFYING
            self._journal.tell_again(last, left)
        return left

    def after_interruption(self, pending: Partitions, error: Unavailable) -> tuple[Partitions, Partitions]:
        """Kafka went away in mid-round: go on as a successor would, which has to find out how far the round came.

        Returns what is still to be done, and what of it had been committed already. Raises ``DeadlinePassed`` or
        ``Unavailable`` where Kafka does not come back in time.
        """
        begun = bool(self._journal.intents) and self._journal.intents[-1].round == self._state.round
        if not begun:
            self._state.round -= 1
        if self._state.away is None:
            self._state.away = Away(self._clock.monotonic(), self._tuning.retry_s)
        while True:
            self._wait_for_kafka(self._state.away, error)
            self._journal.tell_waiting(f"Kafka does not answer: {error}")
            try:
                # Owners stand still behind closed gates; what is not decided yet they wait for by themselves.
                self._context.open_gates(insist=False)
                # A transaction that outlived its time-out looks as one that another writer has ended.
                self._claim.confirm(after_s=0.0)
                self._commits.fence(insist=False)
                self.recall()
                if not begun and self._commits.any:
                    return pending, NO_PARTITIONS
                left = self.left_to_do()
            except Unavailable as again:
                error = again
                continue
            if begun and self._found_round == self._state.round:
                return left, left
            self._state.round -= begun  # it did not take place
            return left, NO_PARTITIONS

    def _wait_for_kafka(self, away: Away, error: Unavailable) -> None:
        """Raises ``DeadlinePassed``; without a deadline, ``Unavailable`` when it has been waited for long enough."""
        away.why = str(error)
        self._pace.check()
        if not self._pace.has_deadline and self._clock.monotonic() - away.since > self._tuning.away_limit_s:
            raise error
        self._clock.sleep(away.pause_s)
        away.pause_s = min(2 * away.pause_s, self._tuning.retry_at_most_s)

    def _looked_up(self) -> Partitions:
        """By what is committed."""
        everything = frozenset(self._state.targets)
        if not self._commits.any:
            check_plan(self._context)
            if not self._journal.intents:
                self._commits.drop_hanging(self._state.targets)
            return everything
        last = self._journal.intents[-1]
        # Whatever an earlier round has done is looked at again.
        self._state.unverified |= everything
        made_again, self._made_again = self._made_again, False
        # Without those of topics that have gone since, of a rollback: nothing of theirs can be done any more.
        pending = everything.intersection(last.pending)
        if self._found_round < last.round or made_again:
            return pending
        if last.again:
            return everything.intersection(last.again)
        unclear = self._passed_unseen(last) or self._unmanaged_since(last, pending)
        if unclear and last.way is Way.BARRIER and last.phase is not ResetPhase.VERIFYING:
            # Owners of the others may have gone on from where they were just as well.
            unclear |= self._unreleased(pending, last)
        if unclear:
            return unclear
        if last.way is Way.UNOWNED and self._watch.may_be_assigned(self._view.group(), everything):
            self._watch.watch_for_assigned(everything)
            return NO_PARTITIONS
        # Behind closed gates nobody could commit; and what an owner reads since then begins at the target.
        if last.way is Way.LEADING:
            # Committed while nobody had the partitions, or could commit. Who has them next begins at the targets.
            self._view.settled(everything)
        elif last.phase is not ResetPhase.VERIFYING and last.way is not Way.GATED:
            return self._unreleased(pending, last) or self._watch.watch(everything, last.way, unseen=everything)
        if last.way is Way.BARRIER:
            # Everybody had rejoined, so who commits to a group that became Empty since has read from the targets on.
            return self._watch.watch(everything, last.way, unseen=everything)
        return self._watch.overwritten_while_empty(everything, {}, None) or self._watch.watch(
            everything, last.way, unseen=everything
        )

    def _passed_unseen(self, last: Progress) -> Partitions:
        """Ahead of their owners, after a watch that was interrupted: who kept its position has passed its target.

        Only after a Barrier, which a client may carry its position through; the other ways take it from the owner.
        """
        since_s = (self._clock.now() - last.at).total_seconds()
        # What is not yet by our clock another node's has told, or a clock that was set: how long ago is not known.
        long_ago = not 0 <= since_s <= self._tuning.watch_s
        if last.way is not Way.BARRIER or not long_ago:
            return NO_PARTITIONS
        seen = self._view.committed(frozenset(self._state.targets))
        replaced = self._state.replaced
        return frozenset(
            p for p, target in self._state.targets.items() if replaced.get(p, -1) < target < seen.get(p, -1)
        )

    def _unmanaged_since(self, last: Progress, pending: Partitions) -> Partitions:
        """Behind gates that nobody has looked at after the commit: owners without the agent, who may have come before.

        Whoever runs it has obeyed, or begins at the target: unless it was this writer that was interrupted. It has
        opened its gates before it knew that the targets can be read, and librdkafka reads offsets that are not decided
        yet as they were before (``isolation.level=read_uncommitted``).
        """
        if last.way is not Way.GATED or last.phase is ResetPhase.VERIFYING:
            return NO_PARTITIONS
        if last.attempt == self._journal.attempt:
            return pending
        group = self._view.settled(pending)
        managed = self._kafka.managed_members(self._group_id)
        unmanaged = frozenset(p for m in group.members if m.member_id not in managed for p in m.assignment)
        return pending & (unmanaged | group.hidden(pending))

    def _unreleased(self, pending: Partitions, intent: Progress) -> Partitions:
        """The writer died between its commit and its word that the owners were let go: who may stand where he stood?"""
        if self._late_commits.may_come_on_return(intent.way, self._view.group(pending)):
            # Of the partitions that nobody has yet, too.
            return pending
        # Looked at first, for all may have to be made to leave until the group settles.
        not_left = {m.member_id for m in self._view.group().members} & set(intent.releasing)
        # A rebalance hides who owns what; one of a Barrier is our own hold, which can be taken over.
        group = self._view.settled(pending)
        if intent.way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE:
            return pending
        # Of a cooperative group only the generations just after that have told what its owners kept all the same.
        # Those of a KIP-848 group may have been replaced between the look and the commit.
        left = intent.way is Way.HANDOVER and not not_left
        left = left and group.type is GroupType.CLASSIC and not is_cooperative(group)
        left = left and not self._late_commits.may_come(intent.way, group)
        # What they committed, or sent to a transaction, after the targets and before they left may have gone unseen.
        opened = self._kafka.pending(self._group_id, pending)
        seen = self._view.committed(pending)
        targets = {p: self._state.targets[p] for p in pending}
        unsure = opened | Round(intent.round, targets, self._state.replaced).overwritten_at_release(seen)
        if left:
            return unsure
        return unsure | {p for p in pending if seen.get(p) == self._state.targets[p] and group.owner(p) is not None}
