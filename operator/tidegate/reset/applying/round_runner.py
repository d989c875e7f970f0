"""Carrying out a run's rounds: each commits targets and is verified, until all hold."""

from __future__ import annotations

from dataclasses import replace

from tidegate.kafka.errors import Unavailable
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.failures import DidNotHold, NeedsAgents
from tidegate.reset.applying.late_commits import LateCommits
from tidegate.reset.applying.plan_check import check_topics, gone_topics
from tidegate.reset.applying.recovery import Recovery
from tidegate.reset.applying.rounds import MAX_ROUNDS, NO_PARTITIONS, Outcome, Partitions, Round
from tidegate.reset.applying.steps import JoinNotHeld
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.applying.way_choice import WayChoice
from tidegate.resources.reset import ResetPhase, Way


class RoundRunner:
    """Of one run on one group."""

    def __init__(self, context: RunContext, watch: TargetWatch, late_commits: LateCommits, recovery: Recovery) -> None:
        self._watch = watch
        self._late_commits = late_commits
        self._recovery = recovery
        self._context = context
        self._choice = WayChoice(context)
        self._state = context.state
        self._view = context.view
        self._journal = context.journal
        self._commits = context.commits
        self._dead_letters = context.dead_letters
        self._claim = context.claim
        self._sequences = context.sequences
        self._handed_over = NO_PARTITIONS
        """The partitions whose owners were made to leave in the last round that did them."""
        self._rejoined = NO_PARTITIONS
        """Those whose owners were made to rejoin, by leaving or not."""

    def run(self, pending: Partitions) -> None:
        """Until all targets hold, or ``MAX_ROUNDS`` did not do it. Rounds that committed nothing do not count."""
        overwritten = NO_PARTITIONS
        interrupted: Unavailable | None = None
        rounds = 0
        while pending:
            if rounds == MAX_ROUNDS:
                unsure = pending & self._late_commits.in_doubt
                told = self._late_commits.what_they_do(self._sequences.not_led) if unsure else ""
                raise interrupted or DidNotHold(pending, told, unsure)
            rounds += 1
            interrupted = None
            self._state.round += 1
            if not self._state.putting_back:
                self._state.redone += len(overwritten)
            try:
                pending |= self._watch.overwritten_elsewhere(pending)
                if self._late_commits.kept_back_some and self._sequences.not_led is None:
                    # Together with those that are led now, as nobody who is led does the same again.
                    pending |= self._watch.in_doubt_elsewhere(self._rejoined - pending)
                outcome = self._one_round(pending)
                pending = outcome.not_held
                overwritten = pending - outcome.not_tried
                self._state.away = None
            except Unavailable as error:
                interrupted, number = error, self._state.round
                self._late_commits.note_interruption()
                pending, overwritten = self._recovery.after_interruption(pending, error)
                rounds -= number > self._state.round

    def _one_round(self, pending: Partitions) -> Outcome:
        """Carry out and verify a round.

        In one piece, because what is told of it, and whether it is watched, follows from what was seen of it in order.
        """
        self._claim.confirm_now()
        self._state.not_held = NO_PARTITIONS
        if self._state.putting_back:
            pending = self._of_topics_left(pending)
            if not pending:
                # Those that an earlier round has done are to be seen to hold all the same.
                left = self._state.unverified
                return Outcome(overwritten=self._watch.watch(left, self._state.way) if left else NO_PARTITIONS)
        self._state.doubtful -= pending
        group, choice = self._choice.choose(pending)
        if not self._state.putting_back:
            # Long after the plan was checked, perhaps; and of an earlier round nothing is committed any more there.
            check_topics(self._context)
        if self._state.plan.ends and not self._state.putting_back and choice.way not in (Way.GATED, Way.UNOWNED):
            raise NeedsAgents(choice.because)
        self._state.gated |= choice.way is Way.GATED
        if self._state.way is None or choice.way is not Way.UNOWNED:
            self._state.way = choice.way
        if not self._commits.any:
            self._look_before()
            self._dead_letters.gather(self._state.before, self._state.targets)
        owners = group.owners(pending)
        self._journal.tell_round(ResetPhase.PAUSING if owners else ResetPhase.APPLYING, pending, choice, owners)

        targets = {p: self._state.targets[p] for p in pending}
        # Who is led goes on with the others' partitions meanwhile, and none of these clients commits once it has left.
        unverified = self._state.unverified - pending if choice.way is not Way.LEADING else NO_PARTITIONS
        earlier = self._view.committed(unverified) if unverified else {}
        # A replay goes on exactly where owners stood: they may have read on while earlier rounds came to nothing.
        is_first = self._state.round == 1 or (bool(self._state.plan.ends) and not self._commits.any)
        learns = is_first and not self._state.putting_back
        lifts = self._state.putting_back is not None
        round_ = Round(self._state.round, targets, self._state.replaced, self._state.before, learns, lifts=lifts)
        try:
            outcome = self._sequences.carry_out(choice.way, round_, group)
        except JoinNotHeld:
            # Whether it was committed may not be known either.
            self._journal.tell_unseen()
            raise
        self._late_commits.note_left(group, outcome.left)
        self._state.transaction_open |= bool(outcome.left_open)
        self._state.kept_after_leaving |= bool(outcome.kept)
        self._handed_over -= pending
        self._rejoined -= pending
        if choice.way is Way.HANDOVER:
            self._handed_over |= pending
        if choice.way in (Way.HANDOVER, Way.BARRIER):
            self._rejoined |= pending
        if choice.way is Way.UNOWNED and not self._state.unverified:
            # Nobody was made to leave by this run, so no member is expected to commit yet.
            if not outcome.not_held and self._watch.may_be_assigned(group, pending):
                self._journal.tell_round(ResetPhase.VERIFYING, pending, choice, ())
                self._watch.watch_for_assigned(pending)
            return outcome
        self._state.not_held = outcome.not_held
        # A successor takes what is committed by then for progress: what may come late has to be seen before.
        may_come_late = self._late_commits.may_come(choice.way, group)
        known_at_once = outcome.emptied is None and not may_come_late
        if known_at_once and not outcome.not_held:
            self._journal.tell_round(ResetPhase.VERIFYING, pending, choice, ())
        overwritten = self._watch.overwritten_while_empty(pending, earlier, outcome.emptied)
        # kafkajs does so: each round of a Handover would empty a group of one again.
        self._state.kept_after_leaving |= bool(overwritten) and choice.way is Way.HANDOVER
        held = pending - outcome.not_held - overwritten
        if may_come_late and held:
            # Also where others are done again: by the next round an owner may have gone on to beyond the target.
            late = self._late_commits.look(held, choice.way, group)
            self._state.kept_position |= bool(late) and choice.way is Way.BARRIER
            overwritten |= late
        sending = outcome.sending & held - overwritten
        if sending and (outcome.not_held | overwritten):
            overwritten |= self._late_commits.handed_in(sending)
        if not (outcome.not_held | overwritten):
            # A successor would count what is doubtful as begun, so it has to look anew.
            if not known_at_once and not self._state.doubtful:
                self._journal.tell_round(ResetPhase.VERIFYING, pending, choice, ())
            overwritten = self._watch.watch(pending, choice.way, sending=sending)
            if overwritten and choice.way is Way.BARRIER:
                # Committed after everybody had rejoined: somebody did not give its position up for the rebalance.
                self._state.kept_position = True
            # Nor for having been made to leave, in this round or an earlier one.
            self._state.kept_after_leaving |= bool(overwritten & self._handed_over)
        outcome = replace(outcome, overwritten=outcome.overwritten | overwritten)
        if outcome.not_held:
            # Their owners go on, and what they commit later no longer tells.
            self._journal.tell_round(ResetPhase.VERIFYING, pending, choice, (), again=outcome.not_held)
        return outcome

    def _of_topics_left(self, pending: Partitions) -> Partitions:
        """Of a rollback. A topic that is deleted meanwhile has nothing to be rolled back any more, and Kafka takes no
        commit of its partitions, nor one of others' together with theirs."""
        gone = gone_topics(self._context, {p.topic for p in pending | self._state.unverified})
        if not gone:
            return pending
        self._commits.leave_out(gone)
        self._state.targets = {p: o for p, o in self._state.targets.items() if p.topic not in gone}
        self._state.unverified &= self._state.targets.keys()
        return pending & self._state.targets.keys()

    def _look_before(self) -> None:
        """Only looks until the run's first commit are from before it; later ones may see our own target."""
        before = dict(self._view.committed(frozenset(self._state.targets)))
        self._state.told_before &= before == self._state.before
        self._state.stood_at(before)
