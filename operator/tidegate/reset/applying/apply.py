"""Applying a plan to one group: choose a way, make the owners let go, commit in one transaction, see it hold.

A run goes in *rounds*: partitions that an owner overwrote are reset again, a bounded number of times; then everything
is rolled back. Each round writes its intent to the journal before its transaction, and each transaction carries the
round's marker (``tidegate.reset.marker``), so that a successor can go on where this writer died.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import Fenced, KafkaFailure, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.claim import ClaimLost
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.failures import FAILURES, overwritten_by, reason_of
from tidegate.reset.applying.journal import as_tuple
from tidegate.reset.applying.late_commits import LateCommits
from tidegate.reset.applying.look_back import LookBack, look_back, summary
from tidegate.reset.applying.plan_check import gone_topics, places_now
from tidegate.reset.applying.recovery import Recovery
from tidegate.reset.applying.replay import ENDINGS, HELD, RETURNED, Replayed, look
from tidegate.reset.applying.round_runner import RoundRunner
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions
from tidegate.reset.applying.timing import DeadlinePassed, NotReady, Tuning
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import Run, RunStore
from tidegate.resources.reset import ResetPhase, Way

APPLIED: Final = "Applied"

_LATER: Final = (Unavailable, DeadlinePassed, NotReady)
"""What does not end a run whose group stands at the ends of its replay: it may take as long as ``within`` leaves."""

T = TypeVar("T")


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
        context = RunContext(run, plan, attempt, store, kafka, clock, tuning or Tuning())
        self._watch = TargetWatch(context)
        self._context = context
        late_commits = LateCommits(context)
        self._recovery = Recovery(context, self._watch, late_commits)
        self._rounds = RoundRunner(context, self._watch, late_commits, self._recovery)
        self._pace = context.pace
        self._clock = context.pace.clock
        self._tuning = context.pace.tuning
        self._state = context.state
        self._journal = context.journal
        self._commits = context.commits
        self._claim = context.claim
        self._times = context.times

    def apply(self) -> RunResult | None:
        """Apply and verify; put everything back where that fails. Raises ``Fenced`` and ``StaleAttempt`` only.

        ``None``: the group has its targets, and reads from there to the ends of its replay. Called again once it has,
        the group goes on from there, or returns; until then that changes nothing. Also where Kafka did not let it go on
        from its ends, where it stands still: to be called again.

        And ``KafkaFailure``, where gates may still be closed and could not be opened: then the run is not over.
        Waits until no other run has the group, and has it until :meth:`release`.
        """
        return self._claimed(self._applied)

    def take_over(self, reason: str, message: str, *, watches_on: bool = False) -> RunResult:
        """End the run whatever its state: fence its writer and put back what it committed. Raises as ``apply``.

        ``watches_on``: not where it has done all and only its owners' next commits are awaited. Those are watched to
        the end instead.
        """
        return self._claimed(lambda: self._taken_over(reason, message, watches_on=watches_on))

    def keep_limits(self, *, lifted: bool = False) -> None:
        """Write the limits of a replay again, or take them back (``lifted``). Raises ``Unavailable``."""
        try:
            (self._context.limits.lift_all if lifted else self._context.limits.put_all)()
        finally:
            self._commits.close()

    def fence(self) -> None:
        """Only end what a dead writer left open, so that nobody waits for it. Another run that has the group has ended
        the transaction by itself, and its own must not be.

        Tried once, since whoever asks may have to settle the run meanwhile. Raises ``KafkaFailure``."""
        try:
            if self._claim.take_now():
                self._commits.fence(insist=False)
            self._context.open_gates()
        finally:
            self._commits.close()

    def release(self) -> None:
        """Let other runs have the group. For when the result is stored: until then, a successor goes on with it."""
        self._claim.release()

    def _claimed(self, work: Callable[[], T]) -> T:
        try:
            with self._claim.kept():
                result = work()
                if result is not None:
                    self._context.take_limits_back(result)
                self._context.open_gates()
            return result
        except ClaimLost:
            # The run's turn may not come again soon.
            self._context.open_gates()
            raise
        finally:
            self._claim.stop()
            self._commits.close()

    def _take_turn(self, *, waits: bool = False) -> RunResult | None:
        """Wait until no other run has the group; how the run ends where that is not reached, or comes too late.

        ``waits``: where it is not reached in time the run does not end, and ``_LATER`` is raised.
        """
        try:
            self._claim.take()
            last = self._journal.intents[-1] if self._journal.intents else None
            if last is None or last.claim is None or self._pace.retrying(lambda: self._is_there(last.claim)):
                return None
            why = "another run has had the group since, so the group's offsets are left as they are"
        except FAILURES as error:
            if waits and isinstance(error, _LATER):
                raise
            why = f"{error}: {self._claim.behind}" if self._claim.behind else str(error)
            if not self._journal.intents:
                return self._result(ResetPhase.FAILED, reason_of(error), f"{why}. Nothing was changed")
        self._state.stood_at(self._journal.offsets_before())
        return self._result(
            ResetPhase.FAILED,
            "NotPutBack",
            f"The run was interrupted and could not continue: {why}. It is not known what it had done. "
            f"{self._how_to_undo}",
        )

    def _is_there(self, epoch: int | None) -> bool:
        return epoch is not None and self._claim.is_there(epoch)

    def _applied(self) -> RunResult | None:
        if self._journal.replay_began:
            # A replay has a time of its own, and so has what comes after it.
            self._pace.extend(self._context.ending_s)
        stands = self._journal.is_replaying or bool(self._journal.ending)
        try:
            ended = self._take_turn(waits=stands)
            if ended is not None:
                return ended
            self._let_go_of_predecessors()
            self._pace.retrying(self._recovery.recall)
            for entry in self._context.run.journal:
                if entry.putting_back in ENDINGS:
                    return self._end_replay(entry.putting_back, again=True)
                if entry.putting_back:
                    return self._put_back(entry.putting_back, entry.message)
            if self._journal.replay_began:
                replayed = self._pace.retrying(self._look_at_replay)
                return self._end_replay(self._context.then) if replayed.is_over else None
            left = self._pace.retrying(self._recovery.left_to_do)
            if self._recovery.is_committed:
                self._state.redone += len(left)
            if left:
                self._context.audit.prepare(self._journal.tell_waiting)
            self._rounds.run(left)
            if self._context.plan.ends:
                self._begin_replay()
                return None
        except Fenced:
            raise
        except FAILURES as error:
            if stands and isinstance(error, _LATER):
                return None
            return self._not_applied(error)
        return self._succeeded()

    def _succeeded(self, reason: str = APPLIED, message: str = "") -> RunResult:
        seen = self._look_back()
        result = self._result(ResetPhase.SUCCEEDED, reason, message or summary(self._context, seen))
        if seen is None:
            return result
        return replace(result, begun=seen.begun, waiting=len(seen.waiting), unread=seen.unread)

    def _not_applied(self, error: Exception) -> RunResult:
        reason, message = reason_of(error), str(error)
        if isinstance(error, DeadlinePassed):
            if self._state.away is not None:
                reason, message = "KafkaUnavailable", f"{self._state.away.why}; {error}"
            if self._context.is_watched:
                self._pace.extend(self._context.ending_s)
                return self._find_out(message) or self._watched_on(reason, message)
        return self._put_back(reason, message, overwritten_by(error))

    def _watched_on(self, reason: str, message: str) -> RunResult:
        """The run has to end as only the owners' next commits were awaited. They are watched to the end, and nothing is
        undone unless one of them overwrites its target. After ``recall``."""
        self._pace.extend(self._context.ending_s)
        try:
            left = self._pace.retrying(self._recovery.left_to_do)
        except Fenced:
            raise
        except FAILURES as error:
            return self._put_back(reason, f"{message}; {error}", overwritten_by(error))
        return self._put_back(reason, message) if left else self._succeeded()

    def _begin_replay(self) -> None:
        # Once more: an owner whose gate somebody else closed meanwhile may have acked a later epoch where it stood
        # before. What is told of these limits is told of a group that has its targets.
        self._pace.retrying(self._context.limits.put_all)
        self._journal.tell_replaying()

    def _look_at_replay(self) -> Replayed:
        return look(self._context.kafka, self._context.plan, self._context.run.request.run_uid)

    def _end_replay(self, reason: str, *, again: bool = False) -> RunResult | None:
        """Every partition stands at its end: move the group on in one transaction, and open its gates.

        ``again``: a predecessor was at it. What it has committed is not committed anew: owners have gone on since.
        """
        self._pace.extend(self._context.ending_s)
        goal = self._state.before if reason == RETURNED else self._context.plan.ends
        goal = {p: goal[p] for p in self._context.plan.ends if p in goal}
        self._state.putting_back = (reason, "the replay has ended")
        self._context.limits.stay = self._context.stays
        self._state.kept_position = False
        self._state.unverified = NO_PARTITIONS
        try:
            places = self._pace.retrying(lambda: places_now(self._context, goal))
            self._state.targets = places.offsets
            left = frozenset(places.offsets)
            if again:
                if self._recovery.is_committed:
                    # Who stands at its end goes on, so that it shows whether it holds.
                    self._context.limits.lift_all()
                left = self._pace.retrying(self._recovery.left_to_do)
            self._rounds.run(left)
        except Fenced:
            raise
        except _LATER:
            return None
        except FAILURES as error:
            return self._result(
                ResetPhase.FAILED,
                "NotPutBack",
                f"The replay has ended, but the group could not be moved on from its end: {error}. {self._how_to_undo}",
            )
        where = "continue from where they were before" if reason == RETURNED else "continue from its end"
        if self._context.limits.stay:
            reason, where = HELD, "stay at its end"
        places = places.left(self._state.targets)
        message = (
            f"the replay has ended; {len(places.offsets) - len(places.moved)} partition(s) of group "
            f"{self._context.group_id} {where}{places.note}"
        )
        if places.gone:
            return self._result(ResetPhase.FAILED, "NotPutBack", message)
        return self._succeeded(reason, message)

    def _taken_over(self, reason: str, message: str, *, watches_on: bool) -> RunResult:
        if not self._journal.intents:
            return self._result(ResetPhase.FAILED, reason, f"{message}. Nothing was changed")
        self._pace.extend(self._tuning.rejoin_limit_s)
        ended = self._take_turn()
        if ended is not None:
            return replace(ended, message=f"{message}. {ended.message}")
        unknown = self._find_out(message)
        if unknown is not None:
            return unknown
        ending = self._journal.ending
        if ending and self._recovery.is_committed:
            # The group has gone on where it was to: only the word of it is missing.
            ended = self._end_replay(ending, again=True)
            if ended is not None:
                return ended
        if watches_on and self._context.is_watched and self._recovery.is_committed:
            return self._watched_on(reason, message)
        return self._put_back(reason, message)

    def _find_out(self, message: str) -> RunResult | None:
        """End what is open, and look up what was committed; how the run ends where that could not be done."""
        try:
            self._let_go_of_predecessors()
            self._pace.retrying(self._recovery.recall)
        except Fenced:
            raise
        except FAILURES as error:
            if not self._state.told_before:
                # An undo goes by it.
                self._state.stood_at(self._journal.offsets_before())
            return self._result(
                ResetPhase.FAILED,
                "NotPutBack",
                f"{message}. Tidegate could not find out whether anything was changed: {error}. {self._how_to_undo}",
            )
        return None

    def _let_go_of_predecessors(self) -> None:
        """End a dead writer's transaction, then open the gates it closed: owners go on from what came of it."""
        self._commits.fence()
        self._pace.retrying(self._context.open_gates)

    def _put_back(self, reason: str, message: str, theirs: Collection[TopicPartition] = ()) -> RunResult:
        """Invariant 5: a failed run leaves every committed offset as it was.

        ``theirs``: partitions whose owners have overwritten the target; they stand at their owners' progress already.
        """
        # A time of its own: the deadline may be what brought us here.
        self._pace.extend(self._context.ending_s)
        if self._commits.unsure:
            unknown = self._find_out(message)
            if unknown is not None:
                return unknown
        if not self._commits.any:
            return self._result(ResetPhase.FAILED, reason, f"{message}. Nothing was changed")
        targets, self._state.putting_back = self._state.targets, (reason, message)
        self._state.kept_position = False
        self._state.unverified = NO_PARTITIONS
        begun = self._journal.put_back
        if begun is not None:
            theirs = targets.keys() - begun
        try:
            gone = self._pace.retrying(lambda: gone_topics(self._context))
            self._commits.leave_out(gone)
            theirs = self._pace.retrying(lambda: self._watch.still_theirs(frozenset(theirs), targets))
            before = {p: o for p, o in self._state.before.items() if p in targets and p not in theirs}
            now = self._pace.retrying(lambda: places_now(self._context, before))
            self._state.targets = now.offsets
            without = [p for p in targets if not (p in self._state.before or p in theirs or p.topic in gone)]
            # What a predecessor has put back is not put back again: owners have gone on since.
            left = frozenset(now.offsets) if begun is None else self._pace.retrying(self._recovery.left_to_do)
            self._rounds.run(left)
            still = self._pace.retrying(lambda: self._forgotten(without, frozenset(theirs)))
        except Fenced:
            raise
        except FAILURES as error:
            return self._result(
                ResetPhase.FAILED,
                "NotPutBack",
                f"{message}. Restoring the committed offsets failed too: {error}. {self._how_to_undo}",
            )
        now = now.left(self._state.targets)
        note = now.note
        if still:
            note += f"; {len(still)} partition(s) had no committed offset before the run and have one now"
        if now.offsets and self._state.way is not Way.UNOWNED:
            note += "; records of their partitions that were read since the run began may be read again"
        return self._result(
            ResetPhase.ROLLED_BACK, reason, f"{message}. {len(now.offsets)} committed offset(s) were restored{note}"
        )

    def _forgotten(self, without: Collection[TopicPartition], theirs: Partitions) -> Collection[TopicPartition]:
        """Those that have one after all. Brokers fence nobody who comes too late with this: it is no transaction."""
        if without:
            self._claim.confirm()
            gone = gone_topics(self._context, {p.topic for p in without})
            without = [p for p in without if p.topic not in gone]
        kept = self._commits.delete(without) | (theirs - self._state.before.keys())
        return self._context.view.committed(kept) if kept else kept

    @property
    def _how_to_undo(self) -> str:
        undo = f"`to: {{undo: {self._context.run.request.run_id}}}`"
        return f"The offsets from before the run are in its plan; restore them with {undo}"

    def _look_back(self) -> LookBack | None:
        try:
            return look_back(self._context)
        except (KafkaFailure, ClaimLost):
            return None

    def _result(self, phase: ResetPhase, reason: str, message: str) -> RunResult:
        return RunResult(
            phase=phase,
            reason=reason,
            message=f"{message}{self._context.dead_letters.note(skipped=self._commits.any)}{self._context.audit.note}",
            finished_at=self._clock.now(),
            way=self._state.way,
            rounds=self._state.round,
            redone=self._state.redone,
            standstill=self._times.standstill(),
            before=as_tuple(self._state.before),
        )
