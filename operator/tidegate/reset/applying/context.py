"""What one writer of a run works with: the run's claim, gates, transactions, sequences, journal, and state."""

from __future__ import annotations

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.reset.applying.audit import RunAudit
from tidegate.reset.applying.claim import RENEW_S, GroupClaim
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.dead_letters import DeadLetters
from tidegate.reset.applying.gates import RunGates, hold_of
from tidegate.reset.applying.group_view import GroupView
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.journal import Journal
from tidegate.reset.applying.replay import CONTINUED, HELD, RETURNED, RunLimits
from tidegate.reset.applying.rounds import Times
from tidegate.reset.applying.sequences import Sequences
from tidegate.reset.applying.state import RunState
from tidegate.reset.applying.timing import Pace, Tuning
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import Run, RunStore
from tidegate.resources.replay import Then
from tidegate.resources.reset import Way


class RunContext:
    """Of one run on one group, for one writer of it."""

    def __init__(
        self, run: Run, plan: Plan, attempt: int, store: RunStore, kafka: Kafka, clock: Clock, tuning: Tuning
    ) -> None:
        request = run.request
        settings = request.settings
        hold = hold_of(request)
        self.run = run
        self.plan = plan
        self.kafka = kafka
        self.pace = Pace(clock, tuning, settings.deadline)
        self.group_id = request.group_id
        # Owners are held past what an application may still have in hand.
        in_flight = settings.in_flight.total_seconds()
        self.hold_s = in_flight + tuning.margin_s if in_flight > 0 else 0.0
        self.state = RunState(plan, plan.targets, gated=any(entry.way is Way.GATED for entry in run.journal))
        self.audit = RunAudit(kafka, self.pace, run, attempt, self.state)
        self.dead_letters = DeadLetters(kafka, clock, request, plan, self.state)
        self.commits = RunCommits(kafka, self.pace, request.run_uid, plan, self.audit, self.dead_letters)
        self.times = Times()
        self.claim = GroupClaim(kafka, self.pace, self.group_id, request.run_uid, hold.reason, self._tell_behind)
        self.pace.still_ours = self.claim.check
        self.journal = Journal(run, attempt, store, clock, self.claim, self.state)
        # What a predecessor was about to do it may have done.
        self.commits.unsure = bool(self.journal.intents)
        self.gates = RunGates(kafka, self.pace, self.group_id, request.run_uid, hold)
        self.limits = RunLimits(kafka, self.pace, plan, request.run_uid, hold)
        self.joins = Joins(kafka, self.group_id, self.pace, settings.max_standstill.total_seconds())
        self.sequences = Sequences(
            kafka,
            self.commits,
            self.gates,
            self.limits,
            self.pace,
            self.times,
            self.joins,
            self.hold_s,
            self._tell_learned,
            self.journal.tell_unseen,
        )
        self.view = GroupView(kafka, self.group_id, self.pace, self.joins, self.journal, self.state)
        self._told_behind = ("", -RENEW_S)

    @property
    def then(self) -> str:
        """How the run ends once its replay has ended, by its journal."""
        until = self.run.request.until
        return RETURNED if until is None or until.then is Then.RETURN else CONTINUED

    @property
    def stays(self) -> bool:
        """Whether the group does not go on once its replay has ended."""
        until = self.run.request.until
        return until is not None and until.then is Then.PAUSE

    @property
    def ending_s(self) -> float:
        """How long it may take to put offsets back, or to move a group on after its replay. Owners are held, and
        watched, for as long again."""
        tuning = self.pace.tuning
        return tuning.rejoin_limit_s + self.joins.standstill_s + 2 * (self.hold_s + tuning.heartbeat_s)

    @property
    def is_watched(self) -> bool:
        """Whether the run has done all, so that only its owners' next commits were awaited."""
        # A replay has yet to begin then.
        return self.journal.is_watched and not self.plan.ends

    def take_limits_back(self, result: object) -> None:
        """The run is over, so nobody else would; but those of a group that stays where it is are left."""
        self.limits.stay = isinstance(result, RunResult) and result.reason == HELD
        self.limits.lift_all()

    def open_gates(self, *, insist: bool = True) -> None:
        """Whatever gates of this run are still closed."""
        if self.state.gated:
            self.gates.open_all(insist=insist)

    def _tell_learned(self) -> None:
        """Of a replay, which goes on exactly there: what owners have committed as they let go is in ``before``."""
        if self.plan.ends and not self.commits.any:
            self.journal.tell_before(self.state.before)

    def _tell_behind(self, behind: str) -> None:
        """In the journal, now and then: which tells as well whether somebody has taken the run over."""
        told, at_s = self._told_behind
        now_s = self.pace.clock.monotonic()
        if told == behind and now_s - at_s < RENEW_S:
            return
        self._told_behind = (behind, now_s)
        # Who waits does not let consumers wait for what a predecessor has closed.
        self.open_gates()
        self.journal.tell_waiting(behind)
