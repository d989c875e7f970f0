"""A partition's way from its assignment on: which step follows which. Pure: no I/O, no clock.

A partition's way::

    assigned → UNREAD ──────────────────────────────→ OPEN      its gate is read first; it delivers nothing before
                  └──────→ DRAINING → CLOSED                    closed already: nothing to finish, acked at once
    OPEN → DRAINING ─────────────────→ CLOSED                   pause, wait for the commits of what was delivered, ack
    CLOSED → OPENING ────────────────────────────→ OPEN         committed offset, seek to it, resume, ack

Before a partition is resumed for the first time, the rule for new partitions (``tidegate_agent.start``), where there is
one, may say where it begins. Until that is decided it is *unplaced*.

A partition that has come to its *limit* is closed as by a hold, unless one closes it.

A partition that is *sealed* has its commits dropped: from shortly before the ack until it is open again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from tidegate_agent.effects import SendAcks
from tidegate_agent.gates import Gate, Known, LimitGate, Partition
from tidegate_agent.partition_state import DRAIN_POLL_S, Lost, PartitionState, Stage, Step
from tidegate_agent.start import PATIENCE_S, Rule, Verdict, judge

log = logging.getLogger("tidegate_agent")

SETTLE_S: Final = 0.02
"""A record taken off the client's queue just before the pause may show in its position only now."""

DRAIN_POLL_MAX_S: Final = 0.25
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 1.0

BARRIER_PATIENCE_S: Final = 60.0
"""How long after the drain time-out the ack waits until the broker tells the committed offset: a transaction that is
open may still bring one, and a commit that was sent may still be under way."""

UNDELIVERED_PATIENCE_S: Final = 1.0
"""The same where this owner has delivered nothing, and so has nothing under way."""

LOOK_S: Final = 0.25
"""How often a partition with a limit is asked for its position: behind the last record below it there may be none that
would tell."""

TELL_AGAIN_S: Final = 1.0
"""How long after a pause or a resume a client that may have dropped it is told once more."""


@dataclass
class Lifecycle:
    """The partitions of one consumer of ``group``.

    ``client_commits``: the client commits by itself what is stored (auto-commit), so draining asks it to do so now.
    ``client_stores``: it stores by itself what it has delivered. With both, draining goes on after its time-out until
    it has committed, for it would do so later, and nothing can stop it. ``open_unread_after_s``: partitions whose
    gate cannot be read for so long are delivered all the same; ``None``: they wait. ``rule``: where new partitions
    begin, ``None``: where the client begins. ``may_drop``: the client may drop a pause or a resume without a word, so
    that it is told each of them twice.
    """

    group: str
    client_commits: bool = False
    client_stores: bool = False
    open_unread_after_s: float | None = None
    rule: Rule | None = None
    may_drop: bool = False
    known: Known = field(default_factory=Known)
    _states: dict[Partition, PartitionState] = field(default_factory=dict)
    _commits: set[int] = field(default_factory=set)
    _lost: dict[Partition, Lost] = field(default_factory=dict)
    _serial: int = 0

    # --- what is known ------------------------------------------------------------------------------------------------

    def _was_gated(self, partition: Partition, lost: Lost) -> bool:
        """Whether the gate was closed at some time since records that may still be in hand were handed out."""
        return lost.was_gated or self._moved_since(partition, lost.generation, lost.taken)

    def _is_gated(self, partition: Partition, state: PartitionState) -> bool:
        """The same of a partition that is this consumer's."""
        if state.sealed or state.late_from is not None or self.known.gate(self.group, partition) is not None:
            return True
        return state.stage is Stage.UNREAD and state.lost is not None and self._was_gated(partition, state.lost)

    def _was_moved(self, partition: Partition, state: PartitionState) -> bool:
        """Whether the group may have been reset after the client asked where to begin: its gate was closed since."""
        return not state.app_sought and self._moved_since(partition, *state.known)

    def _moved_since(self, partition: Partition, generation: int, taken: int) -> bool:
        """Whether a record closed or opened the gate that was not known then; in another control topic any counts."""
        after = taken if generation == self.known.generation else -1
        return self.known.moved_after(self.group, partition, after)

    @property
    def read_to(self) -> tuple[int, int]:
        """Generation and end of what is known of the control topic."""
        return self.known.generation, self.known.taken

    def _limit(self, partition: Partition) -> LimitGate | None:
        return self.known.limit(self.group, partition)

    def _gate(self, partition: Partition, state: PartitionState) -> Gate | None:
        """What closes it: holds, or a limit that it has come to."""
        gate, limit = self.known.gate(self.group, partition), self._limit(partition)
        if gate is not None or limit is None or state.next_at is None or state.next_at < limit.offset:
            return gate
        if self._moved_since(partition, *state.next_known):
            return None
        return Gate(limit.epoch, limit.drain_timeout_s, limit.reasons)

    def _is_beyond(self, partition: Partition, offset: int) -> bool:
        """Whether a record may not be delivered for its limit."""
        limit = self._limit(partition)
        return limit is not None and offset >= limit.offset

    def _comes_to(self, partition: Partition, state: PartitionState, offset: int | None) -> bool:
        """The next record would be at this offset, as far as known; whether that is where it has to stop."""
        if offset is None or not self._is_beyond(partition, offset):
            return False
        state.next_at, state.next_known = offset, self.read_to
        return True

    def _is_over(self, state: PartitionState, now: float) -> bool:
        """Whether draining has lasted long enough."""
        return now >= (state.give_up if self.client_commits and self.client_stores else state.deadline)

    def _again(self, state: PartitionState, now: float) -> None:
        state.tries += 1
        state.due = now + min(RETRY_MAX_S, RETRY_S * 2 ** min(state.tries - 1, 8))

    def _tell_again(self, state: PartitionState, now: float) -> None:
        state.tell_again = now + TELL_AGAIN_S if self.may_drop else None

    def _consider(self, partition: Partition, state: PartitionState, now: float) -> None:
        """Whether the gate asks for something else than what is being done."""
        gate = self._gate(partition, state)
        if not state.read and self.known.answered >= state.ticket:
            state.read = True
        if state.stage is Stage.UNREAD:
            self._unread(partition, state, gate, now)
        elif state.stage is Stage.OPEN:
            if gate is not None:
                self._begin_closing(state, gate, now)
            elif state.read and state.step is None and not self._is_acked(state):
                state.need(Step.ACK)
            elif state.step is None and self._limit(partition) is not None:
                state.need(Step.LOOK, now + LOOK_S)
        elif state.stage is Stage.DRAINING:
            if gate is None:
                state.stage = Stage.OPENING
                state.need(Step.TARGET if state.sealed else Step.RESUME)
        elif state.stage is Stage.CLOSED:
            if gate is None:
                state.stage = Stage.OPENING
                state.need(Step.TARGET)
            elif state.step is None and not self._is_acked(state, gate):
                # The group may have been reset since it was closed: the ack tells where it is now.
                state.give_up = now + UNDELIVERED_PATIENCE_S
                state.need(Step.BARRIER)
        elif gate is not None:
            self._close_again(state, gate, now)
        if state.step is Step.JUDGE and self.rule is not None:
            self._judge(self.rule, partition, state, now)

    def _overtake(self, partition: Partition, state: PartitionState, acks: SendAcks, now: float) -> None:
        """Nothing waits for an ack that is on its way: what it says may be out of date already."""
        gate = self._gate(partition, state)
        is_closed = state.stage is Stage.CLOSED
        if (gate is not None) is not is_closed:
            state.effect = None
            state.need(None)
            self._consider(partition, state, now)
        elif acks.generation != self.known.generation or (gate is not None and acks.acks[partition][0] < gate.epoch):
            state.effect = None

    def _is_acked(self, state: PartitionState, gate: Gate | None = None) -> bool:
        if state.acked is None or state.acked[0] != self.known.generation:
            return False
        return gate is None or state.acked[1] >= gate.epoch

    def _unread(self, partition: Partition, state: PartitionState, gate: Gate | None, now: float) -> None:
        if state.read:
            if state.in_hand is not None and self._is_gated(partition, state):
                state.late_from = 0
            if gate is None:
                if state.step is None and (state.late_from is not None or self._was_moved(partition, state)):
                    state.stage, state.sealed = Stage.OPENING, True
                    state.need(Step.TARGET)
                elif state.step is None and not state.app_sought and self._limit(partition) is not None:
                    state.stage = Stage.OPENING
                    state.need(Step.TARGET)
                elif state.step is None:
                    state.need(Step.PLACE if state.unplaced else Step.RESUME)
                return
            # Nothing was delivered by this owner: there is nothing to wait for.
            state.stage, state.sealed = Stage.DRAINING, True
            state.deadline, state.give_up = now, now + UNDELIVERED_PATIENCE_S
            state.running = frozenset(self._commits)
            state.need(Step.FORGET)
        elif (
            self.open_unread_after_s is not None
            and now >= state.since + self.open_unread_after_s
            and state.step is None
        ):
            log.warning("group %s: delivering %s-%d although its gate could not be read", self.group, *partition)
            state.need(Step.RESUME)

    def _begin_closing(self, state: PartitionState, gate: Gate, now: float) -> None:
        state.stage, state.warned, state.was_closed, state.timed_out = Stage.DRAINING, False, False, False
        state.committed = state.before = state.target = state.position = None
        state.wait = DRAIN_POLL_S
        self._give_time(state, gate, now)
        state.need(Step.PAUSE)

    def _give_time(self, state: PartitionState, gate: Gate, now: float) -> None:
        state.deadline = now + gate.drain_timeout_s
        state.give_up = state.deadline + BARRIER_PATIENCE_S

    def _close_again(self, state: PartitionState, gate: Gate, now: float) -> None:
        """A hold while it was being opened: it is still paused, since opened ones are ``OPEN``."""
        state.stage = Stage.DRAINING
        if state.sealed:
            state.deadline, state.give_up = now, now + UNDELIVERED_PATIENCE_S
            state.need(Step.BARRIER)
        else:
            self._give_time(state, gate, now)
            state.need(Step.POSITION)

    def _drained(self, state: PartitionState, committed: int | None, now: float) -> None:
        state.committed = committed
        if state.position is None or (committed is not None and committed >= state.position):
            self._seal(state)
        elif self._is_over(state, now):
            state.timed_out = True
            self._seal(state)
        else:
            state.wait = min(DRAIN_POLL_MAX_S, state.wait * 1.5)
            state.need(Step.POSITION, min(now + state.wait, max(state.deadline, now + DRAIN_POLL_S)))

    def _seal(self, state: PartitionState) -> None:
        state.sealed = True
        state.running = frozenset(self._commits)
        state.need(Step.RECHECK)

    def _rechecked(self, state: PartitionState, position: int | None) -> None:
        if position is not None and position != state.position and not state.timed_out:
            # A record had been taken off the queue when the partition was paused: it is waited for as well.
            state.sealed, state.position = False, position
            state.need(Step.POSITION)
            return
        state.position = position
        state.need(Step.FORGET)

    def _close(self, partition: Partition, state: PartitionState, committed: int | None) -> None:
        state.committed = committed
        state.stage = Stage.CLOSED
        state.need(Step.ACK)
        if state.was_closed:
            return
        state.was_closed, state.before = True, committed
        if committed is not None and committed == state.position:
            state.app_sought = False
        if state.position is not None and state.timed_out:
            state.in_hand = max(state.position, state.in_hand or 0)
        gate = self._gate(partition, state)
        log.info(
            "group %s: %s-%d is paused at offset %s%s%s",
            self.group,
            *partition,
            "(none)" if state.committed is None else state.committed,
            ", not everything delivered had been committed in time" if state.timed_out else "",
            f": {_in_one_line('; '.join(gate.reasons))}" if gate is not None and gate.reasons else "",
        )

    def _place(self, partition: Partition, state: PartitionState, committed: int | None, now: float) -> None:
        """Where to begin: at the group's offset where it has one, as its client does by itself."""
        if committed is None and state.unplaced and self.rule is not None:
            state.judge_by = now + PATIENCE_S
            self._judge(self.rule, partition, state, now)
        else:
            state.unplaced = False
            state.need(Step.RESUME)

    def _judge(self, rule: Rule, partition: Partition, state: PartitionState, now: float) -> None:
        verdict = judge(rule, self.known, partition, assigned=state.since, now=now, deadline=state.judge_by)
        if not isinstance(verdict, Verdict):
            state.need(Step.JUDGE, verdict)
            return
        state.unplaced = verdict.start is not None
        state.need(Step.RESUME if verdict.start is None else Step.BEGIN)
        log.log(
            logging.INFO if verdict.is_known else logging.WARNING,
            "group %s: %s-%d has no committed offset and begins %s: %s",
            self.group,
            *partition,
            "where its client does" if verdict.start is None else f"at {verdict.start.value}",
            verdict.why,
        )

    def _aim(self, partition: Partition, state: PartitionState, committed: int | None, now: float) -> None:
        """Where to go on: at the group's offset, as the resetting of it is what closing is for."""
        state.target = committed
        keeps_its_place = state.app_sought and committed == state.before
        if not keeps_its_place and self._comes_to(partition, state, committed):
            state.need(None)
        elif committed is None and state.position is None and state.unplaced:
            self._place(partition, state, committed, now)
        elif committed is None or keeps_its_place:
            state.target = state.position if committed is None else None
            state.need(Step.RESUME)
        else:
            state.need(Step.SEEK)

    def _opened(self, partition: Partition, state: PartitionState) -> None:
        was_sealed = state.sealed
        may_be_reset = state.late_from is not None or (state.was_closed and state.target != state.before)
        if was_sealed and may_be_reset and state.in_hand is not None and state.target is not None:
            # What was handed out may still be in hand, and be committed although the group was reset.
            state.late_from = state.target
        state.stage, state.sealed, state.timed_out, state.warned = Stage.OPEN, False, False, False
        state.unplaced = False
        state.next_at = None
        if state.target is not None:
            state.passed = None
        if state.read:
            state.need(Step.ACK)
        else:
            state.need(None)
        if was_sealed:
            where = "its own position" if state.target is None else f"offset {state.target}"
            log.info("group %s: %s-%d goes on at %s", self.group, *partition, where)


def _in_one_line(text: str) -> str:
    """Somebody else's text, without what would begin another line or is a command to a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
