"""The sequences by which owners let go and a round's targets are committed (docs/explanation/live-reset.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from tidegate.cluster import Kafka
from tidegate.kafka.errors import GroupNotLive, KafkaFailure, Unavailable
from tidegate.kafka.model import Group, TopicPartition
from tidegate.kafka.ports import Guest
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.gates import RunGates
from tidegate.reset.applying.handover import Handover
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.leading import Lead, NotLed
from tidegate.reset.applying.replay import RunLimits
from tidegate.reset.applying.rounds import NO_PARTITIONS, Emptied, Outcome, Partitions, Round, Times
from tidegate.reset.applying.steps import JoinNotHeld, Steps
from tidegate.reset.applying.timing import NOTICED_S, DeadlinePassed, Pace
from tidegate.reset.ways import keeps_commits_back
from tidegate.resources.reset import Way

MOST_LEADS: Final = 3
"""How often it is tried to lead a group whose members come and go meanwhile."""

MOST_STANDSTILLS: Final = 2
"""How often members wait in vain for ``maxStandstill`` as they are led: who has frozen is left behind the next time."""


class Sequences:
    """Carries out a round by a way. ``hold_s``: how long owners are held after they let go (``inFlight``).

    ``learned``: called behind closed gates, once it is known where the owners stood, before targets are committed.
    ``unanswered``: called behind them where it is not known whether the targets can be read, before they are opened.
    """

    def __init__(
        self,
        kafka: Kafka,
        commits: RunCommits,
        gates: RunGates,
        limits: RunLimits,
        pace: Pace,
        times: Times,
        joins: Joins,
        hold_s: float,
        learned: Callable[[], None] = lambda: None,
        unanswered: Callable[[], None] = lambda: None,
    ) -> None:
        self._kafka = kafka
        self._gates = gates
        self._limits = limits
        self._learned = learned
        self._unanswered = unanswered
        self._commits = commits
        self._pace = pace
        self._times = times
        self._joins = joins
        self._group_id = commits.group_id
        self._steps = Steps(kafka, commits, pace, joins, hold_s)
        self._handover = Handover(kafka, commits, pace, times, joins, self._steps)
        self._failed_leads = 0
        """How often in a row."""
        self._standstills = 0
        self.not_led: str | None = None
        """Why the group cannot be led."""
        self._missed = 0
        """In how many rounds the join was let go just as owners had committed once more."""
        self.disobeyed: str | None = None
        """Why gates were no use."""
        self.went_on: Partitions = frozenset()
        """The partitions of which managed owners have said that they go on from the target."""

    def carry_out(self, way: Way, round_: Round, group: Group) -> Outcome:
        """``group``: as it was when the way was chosen. Raises ``Unavailable`` and ``DeadlinePassed``."""
        self._steps.emptied = None
        self.went_on -= round_.pending
        self._joins.note(group)
        try:
            if way is not Way.GATED and not round_.lifts:
                self._limits.put(round_.pending)
            outcome = self._carried_out(way, round_, group)
            if way is not Way.GATED and round_.lifts:
                self._limits.lift(round_.pending)
        except GroupNotLive:
            # Its members have left since the look at it, or are others now. Nothing was committed yet.
            outcome = Outcome(not_tried=round_.pending)
        return replace(outcome, emptied=self._steps.emptied)

    def _carried_out(self, way: Way, round_: Round, group: Group) -> Outcome:
        match way:
            case Way.UNOWNED:
                return self._direct(round_, group)
            case Way.BARRIER:
                return self._barrier(round_)
            case Way.HANDOVER:
                return self._handover.carry_out(round_, group)
            case Way.GATED:
                return self._gated(round_)
            case Way.LEADING:
                return self._leading(round_, group)
            case _:
                assert_never(way)

    def _direct(self, round_: Round, group: Group) -> Outcome:
        """Nobody owns the partitions: commit, and look whether somebody took them meanwhile, or may have.

        Who did may have started from the old offset; those are done again, as owned partitions.
        """
        self._steps.emptied = None if group.has_members else Emptied()
        self._commits.commit(round_.targets, round_.number)
        late = self._steps.commit_over_transactions(round_)
        now = self._steps.group(round_.pending)
        taken = frozenset(p for p in round_.pending if now.owner(p) is not None)
        return Outcome(overwritten=late, unsure=taken | now.hidden(round_.pending))

    def _gated(self, round_: Round) -> Outcome:
        """Close the gates, wait until every owner has obeyed, commit, open: nobody else in the group notices.

        Whoever holds a partition besides keeps it closed; it goes on at its target when that hold ends.
        """
        self.disobeyed = self._gates.obstacle()
        if self.disobeyed is not None:
            return Outcome(not_tried=round_.pending)
        self._times.stop(round_.pending, self._pace.clock.monotonic())
        try:
            epochs = self._gates.close(round_.pending)
            self.disobeyed = self._gates.wait_obeyed(epochs)
            if self.disobeyed is not None:
                return Outcome(not_tried=round_.pending)
            self._steps.learn_before(round_)
            if not round_.lifts:
                self._learned()
                # Before anybody can read from the targets, and not before the gates are closed: an owner beyond a limit
                # would take it for reached.
                self._limits.put(round_.pending)
            self._commit_behind_gates(round_)
            # Of an application whose producer does not run the agent.
            opened = self._kafka.pending(self._group_id, round_.pending)
            seen = self._steps.committed(round_)
            # Who was given a partition before the offset could be read has begun elsewhere, whatever is committed.
            # A rebalance that has begun behind the gates hides the owners for a moment.
            why = self._gates.wait_obeyed(epochs)
            came_since = self._gates.not_held_by_all(epochs) if why is not None else frozenset()
            if round_.lifts:
                self._limits.lift(round_.pending)
        finally:
            self._gates.open()
        if came_since:
            self.disobeyed = why
        self._note_reopened({p: epoch for p, epoch in epochs.items() if p not in came_since})
        overwritten = frozenset(p for p, target in round_.targets.items() if seen.get(p) != target)
        return Outcome(overwritten=overwritten, unsure=opened | came_since)

    def _commit_behind_gates(self, round_: Round) -> None:
        try:
            self._commits.commit(round_.targets, round_.number)
        except Unavailable:
            if self._commits.any or self._commits.unsure:
                self._unanswered()
            raise

    def _note_reopened(self, epochs: Mapping[TopicPartition, int]) -> None:
        """For the record only: how long they stood still, and who goes on."""
        left = dict(epochs)

        def all_go_on() -> bool:
            try:
                back = self._gates.reopened(left)
            except KafkaFailure:
                return True
            self.went_on |= back.go_on
            over = back.go_on | back.not_expected
            self._times.resume(over, self._pace.clock.monotonic())
            for partition in over:
                del left[partition]
            return not left

        with contextlib.suppress(DeadlinePassed):
            self._pace.until(all_go_on, self._pace.tuning.obey_s, 0.0)

    def _barrier(self, round_: Round) -> Outcome:
        """Hold the group at its join, commit, see it, let go once everybody has rejoined.

        Each member commits for the last time before it rejoins, and starts from the committed offsets after. So the
        targets are committed again whenever such a commit replaced one, until the join is let go with all in place.
        What was read is old by then, by several answers of Kafka's: owners that commit and rejoin in between go on from
        where they were. After a rebalance the heartbeats of all members fall together, so all of them may, in one round
        after the other. So a round that follows such a one lets go only when their heartbeats should be over, and from
        then on seldom.
        """
        tuning, clock = self._pace.tuning, self._pace.clock
        held_s, again_s = self._steps.held_for(), self._steps.hold_s
        if self._missed:
            held_s += min(1.5 * tuning.heartbeat_s * 2 ** (self._missed - 1), self._joins.standstill_s / 2)
            again_s = max(again_s, tuning.heartbeat_s / 3)
        with self._steps.hold() as hold:
            started = clock.monotonic()
            self._times.stop(round_.pending, started)

            earliest = started + held_s

            def let_go() -> bool:
                nonlocal earliest
                self._steps.commit_where_needed(round_, hold)
                if clock.monotonic() >= earliest:
                    if hold.blink():
                        return True
                    # Somebody has yet to let go, and what he has in hand counts from then. When that is does not show
                    # while the join is held; what he commits after it is seen in the watch.
                    earliest = clock.monotonic() + again_s
                hold.keep()
                return False

            in_time = self._pace.until(let_go, self._steps.held_for() + self._joins.standstill_s, tuning.probe_s)
            # Perhaps everybody has come since the join was last let go.
            if not in_time and not hold.blink():
                self._joins.make_all_leave(hold.keep)
                self._steps.note_if_empty()
                self._steps.learn_before(round_)
                self._commits.commit(round_.targets, round_.number, hold=hold)
        # What an owner sent to a transaction just before it rejoined may show only now, or later.
        opened = self._kafka.pending(self._group_id, round_.pending)
        seen = dict(self._steps.committed(round_))
        self._times.resume(round_.pending, clock.monotonic())
        left_open = NO_PARTITIONS
        if opened:
            left_open = self._commits.still_open(opened, tuning.watch_at_least_s)
            seen |= self._kafka.committed(self._group_id, opened)
        overwritten = round_.overwritten_at_release(seen)
        self._missed += bool(overwritten)
        return Outcome(overwritten=overwritten, unsure=left_open, left_open=left_open)

    def _leading(self, round_: Round, group: Group) -> Outcome:
        """Lead a generation that gives the partitions to nobody, commit in the barrier of the next, give them back."""
        clock = self._pace.clock
        # What an application commits as its client is about to join shows after that join, also without inFlight.
        kept_back_s = self._pace.tuning.margin_s if keeps_commits_back(group) else 0.0
        lead = Lead(
            self._kafka,
            self._pace,
            group,
            round_.pending,
            held_s=max(self._steps.hold_s, kept_back_s),
            standstill_s=self._joins.standstill_s,
        )
        unnamed = self._handover.unnamed(round_, group)
        in_barrier_once = False
        late = sending = NO_PARTITIONS

        def in_barrier(guest: Guest) -> None:
            nonlocal in_barrier_once, late, sending
            in_barrier_once = True
            sending = self._kafka.pending(self._group_id, unnamed) if unnamed else NO_PARTITIONS
            self._commits.commit(round_.targets, round_.number, hold=guest)
            # What an owner had sent to a transaction before it let go may have come to show over it.
            late = round_.overwritten_at_release(self._steps.committed(round_))
            if late:
                self._commits.commit({p: round_.targets[p] for p in late}, round_.number, hold=guest)
                late = round_.overwritten_at_release(self._steps.committed(round_))

        try:
            lead.carry_out(in_barrier, stopped=lambda: self._times.stop_anew(round_.pending, clock.monotonic()))
        except NotLed as error:
            self._failed_leads += 1
            self._standstills += error.stood_still
            in_vain = self._failed_leads == MOST_LEADS or self._standstills == MOST_STANDSTILLS
            if error.for_good or in_vain:
                self.not_led = str(error)
            if error.left is not None:
                self._joins.note_left(error.left)
            if not self._pace.until(self._joins.is_over, NOTICED_S, self._pace.tuning.look_s):
                self._steps.free_join()
            return Outcome(not_tried=round_.pending)
        except Unavailable as error:
            # What was committed, or may have been, may show only after the partitions have been given to somebody.
            if not in_barrier_once:
                raise
            raise JoinNotHeld(
                f"Tidegate could not lead group {self._group_id} to the end, because its coordinator has moved or did "
                "not answer for too long"
            ) from error
        self._failed_leads = 0
        self._times.resume(round_.pending, clock.monotonic())
        self._steps.end_join(group, clock.monotonic())
        return Outcome(overwritten=late, sending=sending)

    def wait_for_heartbeat(self) -> bool:
        """See ``Handover.wait_for_heartbeat``."""
        return self._handover.wait_for_heartbeat()
