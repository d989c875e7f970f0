"""What becomes of one consumer's partitions: when each is stopped, acked, sought and let go. Pure: no I/O, no clock.

Whoever drives it (a thread, an asyncio task, code inside a client's poll) tells it what happens (``assigned``,
``revoked``, ``know``, what the application does), asks for ``work`` until there is none, carries each effect out with
its client library, and hands the outcome back with ``done`` or ``failed``. Calls must not overlap: the driver has a
lock. Times are seconds of any clock that only goes forward.

What becomes of a partition is decided in ``tidegate_agent.lifecycle``, and what of it may be committed or delivered in
``tidegate_agent.withholding``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate_agent.effects import (
    Begin,
    Commit,
    Committed,
    Effect,
    Forget,
    Next,
    Pause,
    Position,
    Resume,
    Seek,
    SendAcks,
)
from tidegate_agent.gates import Known, Partition
from tidegate_agent.lifecycle import SETTLE_S
from tidegate_agent.partition_state import Lost, PartitionState, Stage, Step
from tidegate_agent.withholding import Withholding

log = logging.getLogger("tidegate_agent")


@dataclass
class Core(Withholding):
    """What a driver tells and asks of the partitions of one consumer; its settings are those of a ``Lifecycle``."""

    # --- what happens -------------------------------------------------------------------------------------------------

    def assigned(
        self,
        partitions: Iterable[Partition],
        ticket: int,
        now: float,
        *,
        sought: Collection[Partition] = (),
        known: tuple[int, int] | None = None,
    ) -> tuple[Partition, ...]:
        """Partitions this consumer has got; those that have to be paused before they deliver anything: all of them.

        ``ticket``: the question to the control topic whose answer is needed first. ``sought``: those for which the
        application itself named the offset to begin at. ``known``: ``read_to`` from before the client had them; without
        it, it has not asked yet where to begin.
        """
        new = tuple(partitions)
        for partition in new:
            is_sought = partition in sought
            is_unplaced = self.rule is not None and not is_sought
            since = known or self.read_to
            state = PartitionState(Stage.UNREAD, ticket, now, app_sought=is_sought, unplaced=is_unplaced, known=since)
            self._states[partition] = state
            self._tell_again(state, now)
            lost = self._lost.pop(partition, None)
            if lost is not None and not is_sought:
                state.lost, state.in_hand = lost, lost.in_hand
        return new

    def revoked(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None] | None = None) -> None:
        """Partitions that are no longer this consumer's, whatever was being done with them.

        ``delivered``: the offset after the last record that was delivered of each since it was assigned.
        """
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is None:
                continue
            ends = (state.in_hand, state.position, state.passed, (delivered or {}).get(partition))
            in_hand = max((end for end in ends if end is not None), default=None)
            lost = Lost(in_hand, self._is_gated(partition, state), self.known.generation, self.known.taken)
            self._lost[partition] = lost

    def know(self, known: Known) -> None:
        """What the control topic says now."""
        self.known = known

    def app_paused(self, partitions: Iterable[Partition]) -> None:
        """The application paused these itself; the client is told so in any case."""
        for partition in partitions:
            if partition in self._states:
                self._states[partition].app_paused = True

    def app_resumed(self, partitions: Iterable[Partition]) -> tuple[Partition, ...]:
        """The application resumes these; those that may be resumed in the client now. The rest follow their gates."""
        free = []
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                state.app_paused = False
            if state is None or state.stage is Stage.OPEN:
                free.append(partition)
        return tuple(free)

    def app_sought(self, partition: Partition) -> None:
        """The application itself moved this partition's position: it keeps it, unless the group's offset is reset."""
        state = self._states.get(partition)
        if state is not None:
            state.app_sought = True
            state.unplaced = False
            state.in_hand = state.late_from = state.next_at = state.passed = None
            is_moved_back = state.stage is Stage.OPENING and state.step is Step.SEEK and state.target == state.before
            if is_moved_back or state.step in (Step.JUDGE, Step.BEGIN):
                state.effect = None
                state.need(Step.RESUME)

    # --- work ---------------------------------------------------------------------------------------------------------

    def work(self, now: float) -> Effect | None:
        """The next effect that is due, for as many partitions as need it; ``None``: nothing before ``wakes_at``."""
        for partition, state in self._states.items():
            if isinstance(state.effect, SendAcks):
                self._overtake(partition, state, state.effect, now)
            elif state.effect is None:
                self._consider(partition, state, now)
                if state.step is Step.RESUME and state.app_paused:
                    # The application's own pause stays; resuming it is then the application's.
                    self._opened(partition, state)
        due: dict[Step, list[Partition]] = {}
        for partition, state in self._states.items():
            if state.step is None or state.effect is not None or state.due > now:
                continue
            if self._is_held_up(state):
                continue
            due.setdefault(state.step, []).append(partition)
        if not due:
            return self._told_again(now)
        step = min(due)
        effect = self._effect(step, tuple(due[step]))
        for partition in due[step]:
            self._states[partition].effect = effect
        return effect

    def wakes_at(self) -> float | None:
        """When ``work`` may have something by itself; ``None``: not before something happens."""
        times = [
            state.due
            for state in self._states.values()
            if state.step is not None and state.effect is None and not self._is_held_up(state)
        ]
        times += [state.tell_again for state in self._states.values() if state.tell_again is not None]
        if self.open_unread_after_s is not None:
            times += [
                state.since + self.open_unread_after_s
                for state in self._states.values()
                if state.stage is Stage.UNREAD and state.step is None
            ]
        return min(times, default=None)

    def is_quiet(self) -> bool:
        """Whether nothing is being done or waited for: each partition is open or closed, and has been acked."""
        return all(s.step is None and s.stage in (Stage.OPEN, Stage.CLOSED) for s in self._states.values())

    def failed(self, effect: Effect, now: float) -> None:
        """The effect could not be carried out, or it is not known whether it was: it is tried again."""
        if isinstance(effect, Committed):
            self.done(effect, now, {})
            return
        if isinstance(effect, (Pause, Resume)):
            self.leaked(effect.partitions, now)
        for partition in effect.partitions:
            state = self._of(effect, partition)
            if state is not None:
                self._again(state, now)

    def done(
        self,
        effect: Effect,
        now: float,
        result: Mapping[Partition, int | None] | Collection[Partition] = (),
    ) -> None:
        """The effect was carried out.

        ``result``: of ``Position`` and ``Committed`` the offsets, of ``Seek`` and ``Begin`` where.
        """
        offsets = result if isinstance(result, Mapping) else {}
        for partition in effect.partitions:
            state = self._of(effect, partition)
            if state is None or state.step is None:
                continue
            step = state.step
            missing = isinstance(effect, (Position, Committed, Seek, Begin)) and partition not in result
            if step is Step.LOOK:
                state.need(None)
                self._comes_to(partition, state, offsets.get(partition))
            elif step is Step.PAUSE:
                self._tell_again(state, now)
                state.need(Step.POSITION, now + SETTLE_S)
            elif step is Step.BARRIER and missing and now < state.give_up:
                self._again(state, now)
            elif step is Step.DRAINED and missing and self._is_over(state, now):
                state.timed_out = True
                self._seal(state)
            elif missing and step is not Step.BARRIER:
                self._again(state, now)
            elif step is Step.POSITION:
                state.position = self._position(state, offsets[partition])
                state.need(Step.COMMIT if self.client_commits else Step.DRAINED)
            elif step is Step.COMMIT:
                state.need(Step.DRAINED)
            elif step is Step.DRAINED:
                self._drained(state, offsets[partition], now)
            elif step is Step.RECHECK:
                self._rechecked(state, self._position(state, offsets[partition]))
            elif step is Step.FORGET:
                state.need(Step.BARRIER)
            elif step is Step.BARRIER:
                self._close(partition, state, offsets.get(partition, state.committed))
            elif step is Step.TARGET:
                self._aim(partition, state, offsets[partition], now)
            elif step is Step.PLACE:
                self._place(partition, state, offsets[partition], now)
            elif step is Step.BEGIN:
                state.unplaced = False
                state.need(Step.RESUME)
            elif step is Step.SEEK:
                state.need(Step.RESUME)
            elif step is Step.RESUME:
                self._tell_again(state, now)
                self._opened(partition, state)
            elif isinstance(effect, SendAcks):
                state.acked = (effect.generation, effect.acks[partition][0])
                state.need(None)

    # --- inside -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _position(state: PartitionState, told: int | None) -> int | None:
        """The offset after the last record delivered; the client has none once it was moved back."""
        return state.passed if told is None else told

    def _of(self, effect: Effect, partition: Partition) -> PartitionState | None:
        """The state the effect was for, if the partition has not been taken away meanwhile."""
        state = self._states.get(partition)
        if state is None or state.effect is not effect:
            return None
        state.effect = None
        return state

    def _is_held_up(self, state: PartitionState) -> bool:
        """Whether a commit call of the application has to end first, which it tells by ``commit_ends``."""
        return state.step is Step.BARRIER and bool(state.running & self._commits)

    def _told_again(self, now: float) -> Effect | None:
        """What the client is to be told once more; where all is as it should be, that changes nothing.

        Nothing waits for it. What the application paused itself is left to it.
        """
        pause, resume = [], []
        for partition, state in self._states.items():
            if state.tell_again is not None and state.tell_again <= now:
                if state.stage is not Stage.OPEN:
                    pause.append(partition)
                elif state.app_paused:
                    state.tell_again = None
                else:
                    resume.append(partition)
        for partition in pause or resume:
            self._states[partition].tell_again = None
        return Pause(tuple(pause)) if pause else Resume(tuple(resume)) if resume else None

    def _effect(self, step: Step, partitions: tuple[Partition, ...]) -> Effect:
        if step is Step.PAUSE:
            return Pause(partitions)
        if step is Step.RESUME:
            return Resume(partitions)
        if step is Step.SEEK:
            return Seek({p: offset for p in partitions if (offset := self._states[p].target) is not None})
        if step is Step.LOOK:
            return Next(partitions)
        if step in (Step.POSITION, Step.RECHECK):
            return Position(partitions)
        if step is Step.COMMIT:
            return Commit(partitions)
        if step is Step.FORGET:
            return Forget(partitions)
        if step is Step.BEGIN and self.rule is not None:
            return Begin(self.rule.start, partitions)
        if step is Step.ACK:
            return SendAcks({p: self._ack(p, self._states[p]) for p in partitions}, self.known.generation)
        return Committed(partitions)

    def _ack(self, partition: Partition, state: PartitionState) -> tuple[int, int]:
        gate = self._gate(partition, state)
        if state.stage is Stage.CLOSED and gate is not None:
            if self.known.gate(self.group, partition) is None:
                return gate.epoch, -1 if state.next_at is None else state.next_at
            offset = state.committed if state.committed is not None else state.position
            return gate.epoch, -1 if offset is None else offset
        return self.known.open_epoch, -1 if state.target is None else state.target
