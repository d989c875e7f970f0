"""Applying a plan to one group: choose a way, make the owners let go, commit in one transaction, see it hold.

The order of checks is that of ``kafka-facts``. A run goes in *rounds*: partitions that an owner overwrote are done
again, a bounded number of times; then everything is put back. Each round writes its intent to the journal before its
transaction, and each transaction carries the round's marker (``tidegate.reset.marker``), so that a successor can go on
where this writer died.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import (
    Fenced,
    KafkaFailure,
    NotAuthorized,
    OutcomeUnknown,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import Group, GroupState, GroupType, Member, Topic, TopicPartition
from tidegate.printable import visible
from tidegate.reset.applying.claim import RENEW_S, ClaimLost, GroupClaim
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.gates import RunGates, hold_of
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.owners import look
from tidegate.reset.applying.rounds import NO_PARTITIONS, Emptied, Outcome, Partitions, Round, Times
from tidegate.reset.applying.sequences import Sequences
from tidegate.reset.applying.steps import JoinNotHeld
from tidegate.reset.applying.timing import DeadlinePassed, NotReady, Pace, Tuning
from tidegate.reset.applying.verify import Verdict, Watched
from tidegate.reset.model import MAX_UNREAD, PartitionOffset, Phase, Plan, Progress, RunResult, Way, noted
from tidegate.reset.store import Run, RunStore
from tidegate.reset.ways import Choice, choose_way, is_cooperative, keeps_commits_back
from tidegate.reset.ways import Owners as OwnersSeen

MOST_LATE_ROUNDS: Final = 2
"""How often commits that come just after a join are taken for old."""

MAX_ROUNDS: Final = 8
"""Facts X4n: 3 of 54 runs needed a second round, none a third."""

_REBALANCING: Final = frozenset({Way.BARRIER, Way.LEADING, Way.HANDOVER})

_WHOSE_CHARS: Final = 200


class DidNotHold(Exception):
    """Owners went on overwriting the targets. ``what`` they do, for a person."""

    def __init__(self, partitions: Collection[TopicPartition], what: str = "") -> None:
        self.partitions = frozenset(partitions)
        what = what or f"after {MAX_ROUNDS} rounds owners still go on from old positions, not from the target"
        names = ", ".join(map(str, sorted(self.partitions)[:10]))
        super().__init__(f"{what}, of: {names}")


class PlanOutdated(Exception):
    """The cluster has changed since the plan was made, so its targets no longer mean what was approved."""


APPLIED: Final = "Applied"

_FAILURES: Final = (KafkaFailure, DeadlinePassed, DidNotHold, NotReady, PlanOutdated)


@dataclass(slots=True)
class _Away:
    """Kafka is away ``since`` (monotonic seconds); it is asked again after ``pause_s``. ``why``: its last failure."""

    since: float
    pause_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class _LookBack:
    """``waiting``: partitions with records to read of which it is not known that they are read from the target on, and
    their owners. ``absent``: members that were made to leave a join and are not back."""

    begun: int
    waiting: Mapping[TopicPartition, Member | None]
    absent: tuple[Member, ...]

    @property
    def unread(self) -> tuple[str, ...]:
        """The first of ``waiting`` for people, each on one line of bounded length: client ids are anybody's text."""
        return tuple(visible(_whose(*each))[:_WHOSE_CHARS] for each in islice(self.waiting.items(), MAX_UNREAD))


class GroupReset:
    """One run on one group, by one writer. Use once, from one thread."""

    def __init__(
        self,
        run: Run,
        plan: Plan,
        attempt: int,
        store: RunStore,
        kafka: Kafka,
        clock: Clock,
        tuning: Tuning | None = None,
    ) -> None:
        tuning = tuning or Tuning()
        settings = run.request.settings
        self._run = run
        self._plan = plan
        self._entries = run.journal
        self._attempt = attempt
        self._store = store
        self._kafka = kafka
        self._clock = clock
        self._tuning = tuning
        self._pace = Pace(clock, tuning, settings.deadline)
        self._group_id = run.request.group_id
        # Owners are held past what an application may still have in hand.
        in_flight = settings.in_flight.total_seconds()
        self._hold_s = in_flight + tuning.margin_s if in_flight > 0 else 0.0
        self._commits = RunCommits(kafka, self._pace, run.request.run_uid, plan)
        # What a predecessor was about to do it may have done.
        self._commits.unsure = bool(self._intents)
        self._times = Times()
        self._claim = GroupClaim(
            kafka,
            self._pace,
            self._group_id,
            run.request.run_uid,
            hold_of(run.request).reason,
            self._tell_behind,
        )
        self._pace.still_ours = self._claim.check
        self._told_behind = ("", -RENEW_S)
        self._gates = RunGates(
            kafka,
            self._pace,
            self._group_id,
            run.request.run_uid,
            hold_of(run.request),
        )
        self._joins = Joins(kafka, self._group_id, self._pace, settings.max_standstill.total_seconds())
        self._sequences = Sequences(
            kafka,
            self._commits,
            self._gates,
            self._pace,
            self._times,
            self._joins,
            self._hold_s,
        )
        self._targets: dict[TopicPartition, int] = plan.targets
        self._before: dict[TopicPartition, int] = {}
        self._round = 0
        self._found_round = 0
        self._redone = 0
        self._way: Way | None = None
        self._kept_position = False
        self._transaction_open = False
        self._is_never_quiet = False
        """Whether the group was seen to have a transaction open at nearly every moment."""
        self._kept_after_leaving = False
        self._late_rounds = 0
        self._made_again = False
        """Whether the last round's transaction had to be made once more to be decided, whoever has begun since."""
        self._handed_over = NO_PARTITIONS
        """The partitions whose owners were made to leave in the last round that did them."""
        self._unverified = NO_PARTITIONS
        self._not_held = NO_PARTITIONS
        """What the sequence of the last round left to the next one."""
        self._told_before = False
        self._away: _Away | None = None
        self._gated = any(entry.way is Way.GATED for entry in run.journal)
        self._putting_back: tuple[str, str] | None = None

    # --- the whole ----------------------------------------------------------------------------------------------------

    def apply(self) -> RunResult:
        """Apply and verify; put everything back where that fails. Raises ``Fenced`` and ``StaleAttempt`` only.

        And ``KafkaFailure``, where gates may still be closed and could not be opened: then the run is not over.
        Waits until no other run has the group, and has it until :meth:`release`.
        """
        return self._claimed(self._applied)

    def take_over(self, reason: str, message: str) -> RunResult:
        """End the run whatever its state: fence its writer and put back what it committed. Raises as ``apply``."""
        return self._claimed(lambda: self._taken_over(reason, message))

    def fence(self) -> None:
        """Only end what a dead writer left open, so that nobody waits for it. Another run that has the group has ended
        the transaction by itself, and its own must not be."""
        try:
            if self._pace.retrying(self._claim.take_now):
                self._let_go_of_predecessors()
            else:
                self._pace.retrying(self._open_gates)
        finally:
            self._commits.close()

    def release(self) -> None:
        """Let other runs have the group. For when the result is stored: until then, a successor goes on with it."""
        self._claim.release()

    def _claimed(self, work: Callable[[], RunResult]) -> RunResult:
        try:
            with self._claim.kept():
                result = work()
                self._open_gates()
            return result
        except ClaimLost:
            # The run's turn may not come again soon.
            self._open_gates()
            raise
        finally:
            self._claim.stop()
            self._commits.close()

    def _take_turn(self) -> RunResult | None:
        """Wait until no other run has the group; how the run ends where that is not reached, or comes too late."""
        try:
            self._claim.take()
            last = self._intents[-1] if self._intents else None
            if last is None or last.claim is None or self._pace.retrying(lambda: self._is_there(last.claim)):
                return None
            why = "another run has had the group since, whose offsets are left as they are"
        except _FAILURES as error:
            why = f"{error}: {self._claim.behind}" if self._claim.behind else str(error)
            if not self._intents:
                return self._result(Phase.FAILED, _reason(error), f"{why}. Nothing was changed")
        self._before = self._told_by_predecessors()
        return self._result(
            Phase.FAILED,
            "NotPutBack",
            f"The run was cut off and could not go on: {why}. What it had done is not known. {self._how_to_undo}",
        )

    def _is_there(self, epoch: int | None) -> bool:
        return epoch is not None and self._claim.is_there(epoch)

    def _tell_behind(self, behind: str) -> None:
        """In the journal, now and then: which tells as well whether somebody has taken the run over."""
        told, at_s = self._told_behind
        now_s = self._clock.monotonic()
        if told == behind and now_s - at_s < RENEW_S:
            return
        self._told_behind = (behind, now_s)
        # Who waits does not let consumers wait for what a predecessor has closed.
        self._open_gates()
        self._tell_waiting(behind)

    def _applied(self) -> RunResult:
        ended = self._take_turn()
        if ended is not None:
            return ended
        try:
            self._let_go_of_predecessors()
            self._pace.retrying(self._recall)
            for entry in self._run.journal:
                if entry.putting_back:
                    return self._put_back(entry.putting_back, entry.message)
            self._rounds(self._pace.retrying(self._left_to_do))
        except Fenced:
            raise
        except DeadlinePassed as passed:
            if self._away is None:
                return self._put_back(_reason(passed), str(passed))
            return self._put_back("KafkaUnavailable", f"{self._away.why}; {passed}")
        except _FAILURES as error:
            return self._put_back(_reason(error), str(error), _overwritten(error))
        try:
            seen = self._look_back()
        except KafkaFailure:
            seen = None
        result = self._result(Phase.SUCCEEDED, APPLIED, self._summary(seen))
        if seen is None:
            return result
        return replace(result, begun=seen.begun, waiting=len(seen.waiting), unread=seen.unread)

    def _taken_over(self, reason: str, message: str) -> RunResult:
        if not self._intents:
            return self._result(Phase.FAILED, reason, f"{message}. Nothing was changed")
        self._pace.extend(self._tuning.rejoin_limit_s)
        ended = self._take_turn()
        if ended is not None:
            return replace(ended, message=f"{message}. {ended.message}")
        return self._find_out(message) or self._put_back(reason, message)

    def _find_out(self, message: str) -> RunResult | None:
        """End what is open, and look up what was committed; how the run ends where that could not be done."""
        try:
            self._let_go_of_predecessors()
            self._pace.retrying(self._recall)
        except Fenced:
            raise
        except _FAILURES as error:
            return self._result(
                Phase.FAILED, "NotPutBack", f"{message}. Whether anything was changed could not be looked up: {error}"
            )
        return None

    def _let_go_of_predecessors(self) -> None:
        """End a dead writer's transaction, then open the gates it closed: owners go on from what came of it."""
        self._commits.fence()
        self._pace.retrying(self._open_gates)

    def _open_gates(self, *, insist: bool = True) -> None:
        """Whatever gates of this run are still closed."""
        if self._gated:
            self._gates.open_all(insist=insist)

    def _put_back(self, reason: str, message: str, theirs: Collection[TopicPartition] = ()) -> RunResult:
        """Invariant 5: a failed run leaves every committed offset as it was.

        ``theirs``: partitions whose owners have overwritten the target; they stand at their owners' progress already.
        """
        # A time of its own: the deadline may be what brought us here. Owners are held, and watched, for as long again.
        tuning = self._tuning
        self._pace.extend(tuning.rejoin_limit_s + self._joins.standstill_s + 2 * (self._hold_s + tuning.heartbeat_s))
        if self._commits.unsure:
            unknown = self._find_out(message)
            if unknown is not None:
                return unknown
        if not self._commits.any:
            return self._result(Phase.FAILED, reason, f"{message}. Nothing was changed")
        targets, self._putting_back = self._targets, (reason, message)
        self._kept_position = False
        self._unverified = NO_PARTITIONS
        try:
            if theirs:
                # Of some it was only not certain that they begin at the target: they may stand there, or beyond.
                seen = self._pace.retrying(lambda: self._committed(frozenset(theirs)))
                theirs = frozenset(p for p in theirs if Watched(self._before.get(p), targets[p], seen.get(p)).is_old)
            places = {p: o for p, o in self._before.items() if p in targets and p not in theirs}
            without = [p for p in targets if p not in self._before and p not in theirs]
            self._targets = places
            self._rounds(frozenset(places))
            still = self._pace.retrying(lambda: self._commits.delete(without))
        except Fenced:
            raise
        except _FAILURES as error:
            return self._result(
                Phase.FAILED,
                "NotPutBack",
                f"{message}. Putting the offsets back failed too: {error}. {self._how_to_undo}",
            )
        note = f"; {len(still)} partition(s) had no commit before and keep the target" if still else ""
        if places and self._way is not Way.DIRECT:
            note += "; what was read of them since the run began may be read again"
        return self._result(
            Phase.ROLLED_BACK, reason, f"{message}. {len(places)} committed offset(s) were put back{note}"
        )

    @property
    def _how_to_undo(self) -> str:
        undo = f"`to: {{undo: {self._run.request.run_id}}}`"
        return f"The offsets before the run are in its plan; apply them with {undo}"

    def _rounds(self, pending: Partitions) -> None:
        """Until all targets hold, or ``MAX_ROUNDS`` did not do it. Rounds that committed nothing do not count."""
        overwritten = NO_PARTITIONS
        interrupted: Unavailable | None = None
        rounds = 0
        while pending:
            if rounds == MAX_ROUNDS:
                raise interrupted or DidNotHold(pending)
            rounds += 1
            interrupted = None
            self._round += 1
            if not self._putting_back:
                self._redone += len(overwritten)
            try:
                pending |= self._overwritten_elsewhere(pending)
                outcome = self._one_round(pending)
                pending = outcome.not_held
                overwritten = pending - outcome.not_tried
                self._away = None
            except Unavailable as error:
                interrupted, number = error, self._round
                pending, overwritten = self._after_interruption(pending, error)
                rounds -= number > self._round

    def _after_interruption(self, pending: Partitions, error: Unavailable) -> tuple[Partitions, Partitions]:
        """Kafka went away in mid-round: go on as a successor would, which has to find out how far the round came.

        Returns what is still to be done, and what of it had been committed already. Raises ``DeadlinePassed`` or
        ``Unavailable`` where Kafka does not come back in time.
        """
        begun = bool(self._intents) and self._intents[-1].round == self._round
        if not begun:
            self._round -= 1
        if self._away is None:
            self._away = _Away(self._clock.monotonic(), self._tuning.retry_s)
        while True:
            self._wait_for_kafka(self._away, error)
            self._tell_away(error)
            try:
                # Owners stand still behind closed gates; what is not decided yet they wait for by themselves.
                self._open_gates(insist=False)
                # A transaction that outlived its time-out looks as one that another writer has ended.
                self._claim.confirm(anew=True)
                self._commits.fence(insist=False)
                self._recall()
                if not begun and self._commits.any:
                    return pending, NO_PARTITIONS
                left = self._left_to_do()
            except Unavailable as again:
                error = again
                continue
            if begun and self._found_round == self._round:
                return left, left
            self._round -= begun  # it did not take place
            return left, NO_PARTITIONS

    def _wait_for_kafka(self, away: _Away, error: Unavailable) -> None:
        """Raises ``DeadlinePassed``; without a deadline, ``Unavailable`` when it has been waited for long enough."""
        away.why = str(error)
        self._pace.check()
        if not self._pace.has_deadline and self._clock.monotonic() - away.since > self._tuning.away_limit_s:
            raise error
        self._clock.sleep(away.pause_s)
        away.pause_s = min(2 * away.pause_s, self._tuning.retry_at_most_s)

    def _one_round(self, pending: Partitions) -> Outcome:
        """Carry out and verify a round."""
        self._claim.confirm()
        self._not_held = NO_PARTITIONS
        group, choice = self._chosen(pending)
        if choice.way is Way.DIRECT and self._waited_for_dead_leader(group, pending):
            group, choice = self._chosen(pending)
        if choice.way in _REBALANCING and self._waited_for_transactions(group):
            group, choice = self._chosen(pending)
        if choice.way is Way.BARRIER and self._commits.still_open(pending, self._tuning.shown_s):
            self._transaction_open = True
            group, choice = self._chosen(pending)
        if choice.way is Way.HANDOVER and self._sequences.wait_for_heartbeat():
            group, choice = self._chosen(pending)
        self._gated |= choice.way is Way.GATED
        if self._way is None or choice.way is not Way.DIRECT:
            self._way = choice.way
        if not self._commits.any:
            # Only looks until then are from before the run; later ones may see our own target.
            before = dict(self._committed(frozenset(self._targets)))
            self._told_before &= before == self._before
            self._before = before
        owners = group.owners(pending)
        self._journal(Phase.PAUSING if owners else Phase.APPLYING, pending, choice, owners)

        targets = {p: self._targets[p] for p in pending}
        unverified = self._unverified - pending
        earlier = self._committed(unverified) if unverified else {}
        learns = self._round == 1 and not self._putting_back
        round_ = Round(self._round, targets, self._replaced, learns)
        try:
            outcome = self._sequences.carry_out(choice.way, round_, group)
        except JoinNotHeld:
            self._journal(Phase.VERIFYING, pending, choice, (), again=pending)
            raise
        self._transaction_open |= bool(outcome.left_open)
        self._kept_after_leaving |= bool(outcome.kept)
        self._handed_over -= pending
        if choice.way is Way.HANDOVER:
            self._handed_over |= pending
        if choice.way is Way.DIRECT and not self._unverified:
            # Nobody was made to leave by this run, so no member is expected to commit yet.
            if not outcome.not_held and self._may_be_assigned(group, pending):
                self._journal(Phase.VERIFYING, pending, choice, ())
                self._watch_for_assigned(pending)
            return outcome
        self._not_held = outcome.not_held
        # A successor takes what is committed by then for progress: what may come late has to be seen before.
        may_come_late = self._may_come_late(choice.way, group)
        known_at_once = outcome.emptied is None and not may_come_late
        if known_at_once and not outcome.not_held:
            self._journal(Phase.VERIFYING, pending, choice, ())
        overwritten = self._overwritten_while_empty(pending, earlier, outcome.emptied)
        if may_come_late and not (outcome.not_held | overwritten):
            overwritten = self._committed_late(pending)
            self._kept_position |= bool(overwritten) and choice.way is Way.BARRIER
        if not (outcome.not_held | overwritten):
            if not known_at_once:
                self._journal(Phase.VERIFYING, pending, choice, ())
            overwritten = self._watch(pending)
            if overwritten and choice.way is Way.BARRIER:
                # Committed after everybody had rejoined: somebody did not give its position up for the rebalance.
                self._kept_position = True
            # Nor for having been made to leave, in this round or an earlier one.
            self._kept_after_leaving |= bool(overwritten & self._handed_over)
        outcome = replace(outcome, overwritten=outcome.overwritten | overwritten)
        if outcome.not_held:
            # Their owners go on, and what they commit later no longer tells.
            self._journal(Phase.VERIFYING, pending, choice, (), again=outcome.not_held)
        return outcome

    def _waited_for_dead_leader(self, group: Group, pending: Partitions) -> bool:
        """Wait until somebody owns the partitions again that a dead writer's generation gives to nobody; whether that
        took time. As long as it lasts, their old owners may commit what they still have in hand."""
        if not group.has_members or not self._intents or self._intents[-1].way is not Way.LEADING:
            return False
        tuning = self._tuning
        # The leader's session has to end, and then the members have to hear of it.
        self._pace.until(
            lambda: self._group(pending).owners(pending) != (),
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

    def _overwritten_elsewhere(self, pending: Partitions) -> Partitions:
        """Which partitions of earlier rounds were overwritten while nobody watched them, before another round begins.

        A round may last long enough for their owners to go on from there to beyond the targets, which no look after
        it can tell from progress.
        """
        others = self._unverified - pending
        seen = self._committed(others) if others else {}
        verdicts = {p: Watched(None, self._targets[p], seen.get(p)).verdict for p in others}
        overwritten = frozenset(p for p, verdict in verdicts.items() if verdict is Verdict.OVERWRITTEN)
        if not self._putting_back:
            self._redone += len(overwritten)
        return overwritten

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def _replaced(self) -> dict[TopicPartition, int]:
        """What the targets take the place of: the offsets before the run, or the run's own when they are put back."""
        return self._plan.targets if self._putting_back else self._before

    def _overwritten_while_empty(
        self, pending: Partitions, earlier: Mapping[TopicPartition, int], emptied: Emptied | None
    ) -> Partitions:
        """Look until a group whose members were all made to leave has one again: what was committed by then is old.

        To an Empty group anybody may commit without being a member: a KIP-848 Java consumer does when its auto-commit
        falls between being fenced and rejoining. Such a commit can be told from progress only now.

        ``earlier``: where partitions of earlier rounds stood before this one; their old owners may not be back yet.
        """
        self._unverified |= pending
        # Somebody may be back before we look for the first time.
        if emptied is None and self._group().has_members:
            return NO_PARTITIONS
        seen = emptied.at_return if emptied is not None else None
        if seen is None:
            self._pace.until(lambda: self._group().has_members, self._tuning.back_limit_s, self._tuning.visible_s)
            seen = self._committed(pending | earlier.keys())
        changed = pending | {p for p, offset in earlier.items() if seen.get(p) != offset}
        targets = {p: self._targets[p] for p in changed}
        return Round(self._round, targets, self._replaced, learns=False).overwritten_at_release(seen)

    def _committed_late(self, pending: Partitions) -> Partitions:
        """Look until clients that keep commits back while they join have sent them; which partitions have old ones.

        Above the target they cannot be told from progress, so what comes so early is taken for old; who is led next has
        nothing to keep back. Each member sends its own, so the first to come is not the last: who would not be led with
        it could not be told from progress any more.
        """
        clock, tuning = self._pace.clock, self._tuning
        limit = clock.monotonic() + self._joins.standstill_s
        joined_at: float | None = None
        old = NO_PARTITIONS
        while old != pending:
            self._claim.check()
            seen = self._committed(pending)
            replaced = self._replaced
            old |= frozenset(
                p
                for p in pending
                if p in replaced and Watched(replaced[p], self._targets[p], seen.get(p, self._targets[p])).is_old
            )
            now = clock.monotonic()
            if joined_at is None and (self._joins.is_over() or now > limit):
                joined_at = now
            if joined_at is not None and now >= joined_at + tuning.kept_back_s:
                break
            clock.sleep(tuning.look_s)
        if old:
            self._late_rounds += 1
            self._kept_after_leaving = True
            self._unverified |= pending
        return old

    def _watch(self, pending: Partitions) -> Partitions:
        """Look until the owners' next commits, or for as long as they may take; which partitions were overwritten."""
        tuning, clock = self._tuning, self._clock
        self._unverified |= pending
        began = clock.monotonic()
        at_least = began + max(tuning.watch_at_least_s, self._hold_s)
        watch_s = max(tuning.watch_s, self._hold_s + tuning.watch_at_least_s)
        limit = began + watch_s
        opened = self._unverified
        while True:
            # What another run commits is not an owner's word.
            self._claim.check()
            if opened:
                opened = self._kafka.pending(self._group_id, opened)
            seen = self._committed(self._unverified)
            self._note_resumed(pending)
            replaced = self._replaced
            verdicts = {p: Watched(replaced.get(p), self._targets[p], seen.get(p)).verdict for p in self._unverified}
            overwritten = frozenset(p for p, verdict in verdicts.items() if verdict is Verdict.OVERWRITTEN)
            now = clock.monotonic()
            if overwritten:
                return overwritten
            opened = frozenset(p for p in opened if verdicts[p] is not Verdict.SETTLED)
            if opened and now < began + tuning.others_limit_s and not self._pace.is_over:
                # Owners that wait for a transaction go on after its end; what the others have read shows then.
                limit = now + watch_s
            if now >= limit or (now >= at_least and all(v is Verdict.SETTLED for v in verdicts.values())):
                self._unverified = NO_PARTITIONS
                return NO_PARTITIONS
            clock.sleep(tuning.look_s if now - began < tuning.watch_at_least_s else tuning.look_s * 5)

    def _may_come_late(self, way: Way | None, group: Group) -> bool:
        """Whether an owner may commit an old position once it has joined: not where it had none for a generation.

        Where the group cannot be led, who reads that fast would be reset again and again.
        """
        asks = way in (Way.BARRIER, Way.HANDOVER) and self._late_rounds < MOST_LATE_ROUNDS
        return asks and keeps_commits_back(group)

    def _may_be_assigned(self, group: Group, partitions: Partitions) -> bool:
        """Whether a consumer may have assigned itself any of them: of a group that has offsets and never had members
        nothing else is known to have committed."""
        return group.type is GroupType.SIMPLE and not self._putting_back and bool(self._before.keys() & partitions)

    def _watch_for_assigned(self, pending: Partitions) -> None:
        """Look for as long as a consumer may take until its next commit that has assigned itself partitions.

        Such a one (``Consumer.assign``) is no member: it can neither be seen nor made to leave, and commits on from
        where it is. One that has started since has begun at the target. Raises ``DidNotHold``.
        """
        before, old = self._before, NO_PARTITIONS

        def is_overwritten() -> bool:
            nonlocal old
            seen = self._committed(pending)
            old = frozenset(p for p in pending if Watched(before.get(p), self._targets[p], seen.get(p)).is_old)
            return bool(old)

        # The targets are committed: a deadline that passes meanwhile undoes nothing.
        with contextlib.suppress(DeadlinePassed):
            self._pace.until(is_overwritten, max(self._tuning.watch_s, self._hold_s), 25 * self._tuning.look_s)
        # Members that have joined since began at the target, too; the group stays theirs when they are gone.
        if old and self._group().type is GroupType.SIMPLE:
            raise DidNotHold(
                old,
                "a consumer that is no member of the group, as after assign(), commits its own offsets over the "
                "targets; stop it first",
            )

    def _note_resumed(self, pending: Partitions) -> None:
        """For the record only, so it may fail."""
        missing = pending - self._times.resumed.keys()
        if not missing:
            return
        try:
            group = self._group()
        except KafkaFailure:
            return
        if group.type is GroupType.CONSUMER or group.state is GroupState.STABLE:
            for member in group.members:
                self._times.resume(member.assignment & missing, self._clock.monotonic())

    def _committed(self, partitions: Partitions) -> Mapping[TopicPartition, int]:
        return self._kafka.committed(self._group_id, list(partitions))

    def _group(self, partitions: Partitions = NO_PARTITIONS) -> Group:
        return look(self._kafka, self._group_id, partitions)

    def _settled_group(self, pending: Partitions) -> Group:
        """The group once nothing moves in it; as it is when that takes too long, if it tells who owns them."""
        group = self._group(pending)

        def settled() -> bool:
            nonlocal group
            group = self._group(pending)
            # A rebalance in a Barrier is held by ourselves, or by a writer that died: the hold can be taken over.
            held = self._way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE
            return held or group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)

        limit_s = self._tuning.settle_limit_s
        self._pace.check()
        began = self._began_a_join()
        if began is None or group.type is not GroupType.CLASSIC:
            if self._pace.until(settled, limit_s, self._tuning.look_s):
                return group
        else:
            # It may be the run's own, so it is not left to who does not come; but a dead writer's hold ends first.
            waited_s = max(0.0, (self._clock.now() - began).total_seconds())
            ours_s = max(self._joins.standstill_s - waited_s, self._tuning.dead_hold_s)
            if self._pace.until(settled, ours_s, self._tuning.look_s):
                return group
            self._joins.free()
            if self._pace.until(settled, limit_s, self._tuning.look_s):
                return group
        since = f"group {self._group_id} is {group.state} since {limit_s:.0f} s"
        if group.type is GroupType.CLASSIC:
            raise NotReady(f"{since}: a member does not come back to the rebalance")
        hidden = group.hidden(pending)
        if hidden:
            raise NotReady(f"{since}: a member may not have given {min(hidden)} up yet")
        return group

    def _began_a_join(self) -> datetime | None:
        """When the last round was to begin by which the run, or a dead writer of it, began a rebalance."""
        return next((e.at for e in reversed(self._intents) if e.way in _REBALANCING), None)

    def _chosen(self, pending: Partitions) -> tuple[Group, Choice]:
        group = self._settled_group(pending)
        return group, self._choose(group, pending)

    def _choose(self, group: Group, pending: Partitions) -> Choice:
        if group.state is GroupState.PREPARING_REBALANCE:
            return Choice(Way.BARRIER, "a rebalance of this group is under way")
        versions: Mapping[str, int] = {}
        if group.type is GroupType.CLASSIC and group.owners(pending):
            versions = self._kafka.membership.subscription_versions(self._group_id)
        managed = self._kafka.managed_members(self._group_id) if group.owners(pending) else frozenset()
        return choose_way(
            OwnersSeen(
                group,
                pending,
                versions,
                kept_position=self._kept_position,
                kept_after_leaving=self._kept_after_leaving,
                transaction_open=self._transaction_open,
                in_flight=self._hold_s > 0,
                not_led=self._sequences.not_led,
                managed=managed,
                disobeyed=self._sequences.disobeyed,
            )
        )

    def _look_back(self) -> _LookBack:
        """Of which partitions it is known by now that they are read from the target on, and who is away.

        Raises ``KafkaFailure``.
        """
        everything = frozenset(self._targets)
        seen = self._committed(everything)
        begun = {p for p, target in self._targets.items() if seen.get(p, target) > target}
        begun |= self._sequences.went_on & everything
        left = everything - begun
        waiting: dict[TopicPartition, Member | None] = {}
        if left:
            group = self._group(left)
            ends = self._kafka.log_bounds(left)
            owned = {p: group.owner(p) for p in sorted(left)}
            hidden = group.hidden(left)
            waiting = {
                p: owner
                for p, owner in owned.items()
                if (owner is not None or p in hidden) and ends[p].latest > self._targets[p]
            }
        return _LookBack(len(begun), waiting, self._joins.left_behind())

    # --- a successor --------------------------------------------------------------------------------------------------

    @property
    def _intents(self) -> list[Progress]:
        return [entry for entry in self._entries if entry.round > 0]

    def _recall(self) -> None:
        """How far predecessors came, by the run's journal and the marker."""
        if not self._intents:
            return
        last = self._intents[-1]
        self._round, self._way = last.round, last.way
        if last.attempt != self._attempt and last.again and last.way is Way.BARRIER:
            # A predecessor found it out, or its join was not held: another way is right for both.
            self._kept_position = True
        self._kept_after_leaving |= any(entry.way is Way.LEADING for entry in self._intents)
        # What is verified was seen to be decided.
        unknown = frozenset(last.pending) if last.phase is not Phase.VERIFYING else NO_PARTITIONS
        if self._commits.hangs(unknown):
            # Nothing tells how it was decided, but the run means the same as then.
            offsets = self._told_by_predecessors() if last.putting_back else self._plan.targets
            self._commits.commit({p: offsets[p] for p in last.pending if p in offsets}, last.round)
            self._made_again = True
        self._found_round = self._commits.committed_round()
        self._commits.unsure = False
        if self._found_round > 0:
            self._commits.any = True
            # Where a predecessor has committed nothing, the owners have gone on since: "before" is read anew.
            if not self._told_before:
                self._before = self._told_by_predecessors()

    def _told_by_predecessors(self) -> dict[TopicPartition, int]:
        """Where the group stood before the run."""
        return {b.topic_partition: b.offset for entry in self._intents for b in entry.before}

    def _left_to_do(self) -> Partitions:
        """What is still to be done of the run, after ``_recall``."""
        left = self._looked_up() | self._not_held
        last = self._intents[-1] if self._intents else None
        if left and last is not None and self._found_round == last.round and left != frozenset(last.again):
            # Their owners go on, and what they commit later no longer tells.
            self._kept_position |= last.way is Way.BARRIER and last.phase is Phase.VERIFYING
            again = tuple(sorted(left))
            self._append(
                replace(
                    last, phase=Phase.VERIFYING, at=self._clock.now(), attempt=self._attempt, before=(), again=again
                )
            )
        return left

    def _looked_up(self) -> Partitions:
        """By what is committed."""
        everything = frozenset(self._targets)
        if not self._commits.any:
            topics = self._check_plan()
            if not self._intents:
                self._commits.drop_hanging(self._targets, topics)
            return everything
        last = self._intents[-1]
        # Whatever an earlier round has done is looked at again.
        self._unverified |= everything
        made_again, self._made_again = self._made_again, False
        if self._found_round < last.round or made_again:
            return frozenset(last.pending)
        if last.again:
            return frozenset(last.again)
        unclear = self._passed_unseen(last) or self._unmanaged_since(last)
        if unclear:
            return unclear
        if last.way is Way.DIRECT and self._may_be_assigned(self._group(), everything):
            self._watch_for_assigned(everything)
            return NO_PARTITIONS
        # Behind closed gates nobody could commit; and what an owner reads since then begins at the target.
        if last.way is Way.LEADING:
            # Committed while nobody had the partitions, or could commit. Who has them next begins at the targets.
            self._settled_group(everything)
        elif last.phase is not Phase.VERIFYING and last.way is not Way.GATED:
            return self._unreleased(frozenset(last.pending), last) or self._watch(everything)
        if last.way is Way.BARRIER:
            # Everybody had rejoined, so who commits to a group that became Empty since has read from the targets on.
            return self._watch(everything)
        return self._overwritten_while_empty(everything, {}, None) or self._watch(everything)

    def _passed_unseen(self, last: Progress) -> Partitions:
        """Ahead of their owners, after a watch that was interrupted: who kept its position has passed its target.

        Only after a Barrier, which a client may carry its position through; the other ways take it from the owner.
        """
        long_ago = (self._clock.now() - last.at).total_seconds() > self._tuning.watch_s
        if last.way is not Way.BARRIER or not long_ago:
            return NO_PARTITIONS
        seen = self._committed(frozenset(self._targets))
        replaced = self._replaced
        return frozenset(p for p, target in self._targets.items() if replaced.get(p, -1) < target < seen.get(p, -1))

    def _unmanaged_since(self, last: Progress) -> Partitions:
        """Behind gates that nobody has looked at after the commit: owners without the agent, who may have come before.

        Whoever runs it has obeyed, or begins at the target.
        """
        if last.way is not Way.GATED or last.phase is Phase.VERIFYING:
            return NO_PARTITIONS
        group = self._settled_group(frozenset(last.pending))
        managed = self._kafka.managed_members(self._group_id)
        unmanaged = frozenset(p for m in group.members if m.member_id not in managed for p in m.assignment)
        return frozenset(last.pending) & (unmanaged | group.hidden(last.pending))

    def _unreleased(self, pending: Partitions, intent: Progress) -> Partitions:
        """The writer died between its commit and its word that the owners were let go: who may stand where he stood?"""
        # Looked at first, for all may have to be made to leave until the group settles.
        not_left = {m.member_id for m in self._group().members} & set(intent.releasing)
        # A rebalance hides who owns what; one of a Barrier is our own hold, which can be taken over.
        group = self._settled_group(pending)
        if intent.way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE:
            return pending
        # Of a cooperative group only the generations just after that have told what its owners kept all the same.
        # Those of a KIP-848 group may have been replaced between the look and the commit.
        left = intent.way is Way.HANDOVER and not not_left
        left = left and group.type is GroupType.CLASSIC and not is_cooperative(group) and not keeps_commits_back(group)
        # What they committed, or sent to a transaction, after the targets and before they left may have gone unseen.
        opened = self._kafka.pending(self._group_id, pending)
        seen = self._committed(pending)
        targets = {p: self._targets[p] for p in pending}
        unsure = opened | Round(intent.round, targets, self._replaced, learns=False).overwritten_at_release(seen)
        if left:
            return unsure
        return unsure | {p for p in pending if seen.get(p) == self._targets[p] and group.owner(p) is not None}

    def _check_plan(self) -> Mapping[str, Topic]:
        """The plan may be old: the topics are the same ones, their logs still reach to the targets, and where somebody
        has approved it, the group goes the way that he was told. Returns the cluster's topics.

        Where a topic is the same, its partitions are there: a broker that shows fewer of them lags behind.
        """
        topics = self._kafka.topics()
        changed = {
            p.topic for p in self._plan.partitions if p.topic not in topics or topics[p.topic].topic_id != p.topic_id
        }
        if changed:
            raise PlanOutdated(f"deleted or recreated since the plan was made: {', '.join(sorted(changed))}")
        bounds = self._kafka.log_bounds(list(self._targets))
        outside = [p for p, o in self._targets.items() if not bounds[p].earliest <= o <= bounds[p].latest]
        if outside:
            first = min(outside)
            raise PlanOutdated(
                f"{len(outside)} target(s) are outside the log by now, e.g. {first}: target {self._targets[first]}, "
                f"log {bounds[first].earliest} to {bounds[first].latest}. Plan anew under another reset id"
            )
        if self._run.request.manual_approval or self._claim.behind:
            # Planned a while ago, before somebody approved it or before another run was done.
            self._check_directions()
        return topics

    def _check_directions(self) -> None:
        """Where a group has passed its target since, a plan to skip records would have them read again."""
        now = self._committed(frozenset(self._targets))
        turned = {
            p.topic_partition: now[p.topic_partition]
            for p in self._plan.partitions
            if p.committed is not None
            and p.topic_partition in now
            and _turned(p.committed, now[p.topic_partition], self._targets[p.topic_partition])
        }
        if turned:
            first = min(turned)
            raise PlanOutdated(
                f"the group has passed the target of {len(turned)} partition(s) since the plan was made, e.g. {first}: "
                f"target {self._targets[first]}, committed {turned[first]}. Plan anew under another reset id"
            )

    # --- telling ------------------------------------------------------------------------------------------------------

    def _journal(
        self,
        phase: Phase,
        pending: Partitions,
        choice: Choice,
        owners: tuple[Member, ...],
        again: Partitions = NO_PARTITIONS,
    ) -> None:
        reason, why = self._putting_back or ("", choice.because)
        tells_before = not (self._told_before or self._putting_back)
        self._append(
            Progress(
                phase=phase,
                at=self._clock.now(),
                attempt=self._attempt,
                way=choice.way,
                round=self._round,
                before=_as_tuple(self._before) if tells_before else (),
                releasing=tuple(m.member_id for m in owners),
                pending=tuple(sorted(pending)),
                again=tuple(sorted(again)),
                message=why,
                putting_back=reason,
                claim=self._claim.epoch,
            )
        )
        self._told_before = True

    def _tell_away(self, error: Unavailable) -> None:
        """Raises ``StaleAttempt`` where somebody has taken the run over: what is open in Kafka is not ours any more."""
        self._tell_waiting(f"Kafka does not answer: {error}")

    def _tell_waiting(self, waits_for: str) -> None:
        last = self._entries[-1] if self._entries else None
        self._append(
            Progress(
                phase=last.phase if last is not None else Phase.APPLYING,
                at=self._clock.now(),
                attempt=self._attempt,
                way=self._way,
                waits_for=waits_for,
            )
        )

    def _append(self, entry: Progress) -> None:
        self._store.append(entry, attempt=self._attempt)
        self._entries = noted(self._entries, entry)

    def _summary(self, seen: _LookBack | None) -> str:
        way = f" by way of {self._way}" if self._way is not None else ""
        said = [f"{len(self._targets)} partition(s) of group {self._group_id} reset{way}"]
        if self._redone:
            said.append(
                f"{self._redone} done again, because an owner had gone on, or may have gone on, from its old position"
            )
        if self._joins.were_freed:
            said.append(
                "all members were made to leave, because not all had rejoined within maxStandstill "
                f"({self._joins.standstill_s:g} s)"
            )
        if seen is not None and seen.absent:
            names = ", ".join(f"{m.client_id} at {m.host}" for m in seen.absent[:3])
            said.append(f"{len(seen.absent)} member(s) not back yet: {names}")
        if seen is not None and seen.waiting:
            said.append(f"{len(seen.waiting)} partition(s) not known to be read from there yet, e.g. {seen.unread[0]}")
        return "; ".join(said)

    def _result(self, phase: Phase, reason: str, message: str) -> RunResult:
        return RunResult(
            phase=phase,
            reason=reason,
            message=message,
            finished_at=self._clock.now(),
            way=self._way,
            rounds=self._round,
            redone=self._redone,
            standstill=self._times.standstill(),
            before=_as_tuple(self._before),
        )


def _whose(partition: TopicPartition, owner: Member | None) -> str:
    by = f" by {owner.client_id} at {owner.host}" if owner is not None else ", as the group is rebalancing"
    return f"{partition}{by}"


def _turned(planned: int, now: int, target: int) -> bool:
    """Whether records would be read again where none were to be, or skipped where none were to be."""
    return (planned <= target < now) or (now < target <= planned)


def _as_tuple(offsets: Mapping[TopicPartition, int]) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(p.topic, p.partition, offset) for p, offset in sorted(offsets.items()))


_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DeadlinePassed, "DeadlineExceeded"),
    (DidNotHold, "Overwritten"),
    (PlanOutdated, "PlanOutdated"),
    (NotReady, "GroupNotReady"),
    (NotAuthorized, "NotAuthorized"),
    (UnknownPartitions, "UnknownPartitions"),
    (Unavailable, "KafkaUnavailable"),
    (OutcomeUnknown, "OutcomeUnknown"),
)


_ANY_OTHER: Final = "RefusedByKafka"

APPLY_REASONS: Final = (*(reason for _, reason in _REASONS), _ANY_OTHER)
"""Why a plan could not be applied."""


def _reason(error: Exception) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), _ANY_OTHER)


def _overwritten(error: Exception) -> Partitions:
    return error.partitions if isinstance(error, DidNotHold) else NO_PARTITIONS
