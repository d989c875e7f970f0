"""What becomes of one consumer's partitions: when each is stopped, acked, sought and let go. Pure: no I/O, no clock.

Whoever drives it (a thread, an asyncio task, code inside a client's poll) tells it what happens (``assigned``,
``revoked``, ``know``, what the application does), asks for ``work`` until there is none, carries each effect out with
its client library, and hands the outcome back with ``done`` or ``failed``. Calls must not overlap: the driver has a
lock. Times are seconds of any clock that only goes forward.

A partition's way::

    assigned → UNREAD ──────────────────────────────→ OPEN      its gate is read first; it delivers nothing before
                  └──────→ DRAINING → CLOSED                    closed already: nothing to finish, acked at once
    OPEN → DRAINING ─────────────────→ CLOSED                   pause, wait for the commits of what was delivered, ack
    CLOSED → OPENING ────────────────────────────→ OPEN         committed offset, seek to it, resume, ack

Before a partition is resumed for the first time, the rule for new partitions (``tidegate_agent.start``), where there is
one, may say where it begins. Until that is decided it is *unplaced*.

A partition that is *sealed* has its commits dropped: from shortly before the ack until it is open again.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegate_agent.gates import Gate, Known, Partition
from tidegate_agent.start import PATIENCE_S, Rule, Start, Verdict, judge

log = logging.getLogger("tidegate_agent")

SETTLE_S: Final = 0.02
"""A record taken off the client's queue just before the pause may show in its position only now."""

DRAIN_POLL_S: Final = 0.02
DRAIN_POLL_MAX_S: Final = 0.25
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 1.0

BARRIER_PATIENCE_S: Final = 60.0
"""How long after the drain time-out the ack waits until the broker tells the committed offset: a transaction that is
open may still bring one, and a commit that was sent may still be under way."""

UNDELIVERED_PATIENCE_S: Final = 1.0
"""The same where this owner has delivered nothing, and so has nothing under way."""

TELL_AGAIN_S: Final = 1.0
"""How long after a pause or a resume a client that may have dropped it is told once more."""


class Stage(enum.Enum):
    UNREAD = "unread"
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"
    OPENING = "opening"


@dataclass(frozen=True)
class Pause:
    """Deliver nothing more of these; what the client has buffered of them is dropped."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Resume:
    """Deliver these again, from the client's position."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Position:
    """Result: for each the offset after the last record delivered, ``None`` where none was since assignment or seek."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Commit:
    """Commit what was delivered, as the client would do by itself sooner or later (auto-commit)."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Committed:
    """Result: the group's committed offsets by the broker's word, ``None`` where there is none.

    A partition that is left out is asked for again. Commits sent before are to be in it.
    """

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Forget:
    """Make sure that the client commits nothing for these by itself: drop what it stored for a later commit."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Seek:
    """Go on from these offsets once resumed. Result: the partitions where it was done; others are tried again."""

    offsets: Mapping[Partition, int]

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(self.offsets)


@dataclass(frozen=True)
class Begin:
    """Go on from the first record there is, or after the last one, once resumed. Result: as that of ``Seek``."""

    start: Start
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class SendAcks:
    """Send an ack for each: its epoch, and the offset of the next record it would deliver (−1: cannot tell)."""

    acks: Mapping[Partition, tuple[int, int]]
    generation: int
    """Of the control topic that the epochs are of."""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(self.acks)


Effect: TypeAlias = Pause | Resume | Position | Commit | Committed | Forget | Seek | Begin | SendAcks


class _Step(enum.IntEnum):
    """What a partition needs next; of several partitions' needs the smallest is done first."""

    PAUSE = 1
    SEEK = 2
    BEGIN = 3
    RESUME = 4
    POSITION = 5
    COMMIT = 6
    DRAINED = 7  # committed offset: has what was delivered been committed?
    RECHECK = 8  # position once more, now that no commit passes
    FORGET = 9
    BARRIER = 10  # committed offset after the last commit that passed
    TARGET = 11  # committed offset to go on from
    PLACE = 12  # committed offset: is there one to begin at?
    ACK = 13
    JUDGE = 14  # no effect: what would decide where to begin may still come


@dataclass
class _State:
    stage: Stage
    ticket: int
    since: float
    step: _Step | None = None
    due: float = 0.0
    tries: int = 0
    wait: float = DRAIN_POLL_S
    effect: Effect | None = None
    app_paused: bool = False
    app_sought: bool = False
    sealed: bool = False
    read: bool = False
    """Its gate was read since it was assigned."""
    known: tuple[int, int] = (0, -1)
    """``read_to`` from before the client could ask where to begin."""
    position: int | None = None
    committed: int | None = None
    was_closed: bool = False
    """Whether it has been closed since it was last open."""
    before: int | None = None
    """The committed offset when it was closed, kept through later holds."""
    target: int | None = None
    deadline: float = 0.0
    give_up: float = 0.0
    """When the ack goes without the committed offset."""
    timed_out: bool = False
    running: frozenset[int] = frozenset()
    """The application's commit calls that were under way when it was sealed."""
    unplaced: bool = False
    """The rule for new partitions has not said yet where it begins."""
    judge_by: float = 0.0
    tell_again: float | None = None
    """When the client is told once more what it was told last: to pause it, or to resume it."""
    acked: tuple[int, int] | None = None
    """Generation and epoch of the newest ack."""
    warned: bool = False
    lost: _Lost | None = None
    """When it was this consumer's before."""
    in_hand: int | None = None
    """The offset after the last record that may still be in hand from before a rebalance, or from before a closing
    that did not wait for it, as long as its commit may come."""
    late_from: int | None = None
    """Where it goes on since, if the group may have been reset after those were handed out; 0: not known yet."""

    def need(self, step: _Step | None, due: float = 0.0) -> None:
        if step is not self.step:
            self.tries = 0
        self.step, self.due = step, due


@dataclass(frozen=True)
class _Lost:
    """A partition that was taken away: what was handed out of it (``in_hand``), and whether it was closed since.

    ``generation`` and ``taken``: what was known of the control topic at that time.
    """

    in_hand: int | None
    was_gated: bool
    generation: int
    taken: int


@dataclass
class Core:
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
    _states: dict[Partition, _State] = field(default_factory=dict)
    _commits: set[int] = field(default_factory=set)
    _lost: dict[Partition, _Lost] = field(default_factory=dict)
    _serial: int = 0

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
            state = _State(Stage.UNREAD, ticket, now, app_sought=is_sought, unplaced=is_unplaced, known=since)
            self._states[partition] = state
            self._tell_again(state, now)
            lost = self._lost.pop(partition, None)
            if lost is not None and not is_sought:
                state.lost, state.in_hand = lost, lost.in_hand
        return new

    @property
    def read_to(self) -> tuple[int, int]:
        """Generation and end of what is known of the control topic."""
        return self.known.generation, self.known.taken

    def revoked(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None] | None = None) -> None:
        """Partitions that are no longer this consumer's, whatever was being done with them.

        ``delivered``: the offset after the last record that was delivered of each since it was assigned.
        """
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is None:
                continue
            ends = (state.in_hand, state.position, (delivered or {}).get(partition))
            in_hand = max((end for end in ends if end is not None), default=None)
            lost = _Lost(in_hand, self._is_gated(partition, state), self.known.generation, self.known.taken)
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
            state.in_hand = state.late_from = None
            is_moved_back = state.stage is Stage.OPENING and state.step is _Step.SEEK and state.target == state.before
            if is_moved_back or state.step in (_Step.JUDGE, _Step.BEGIN):
                state.effect = None
                state.need(_Step.RESUME)

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit_begins(self) -> int:
        """A commit call of the application goes to the client, once ``dropped`` was taken out; for ``commit_ends``."""
        self._serial += 1
        self._commits.add(self._serial)
        return self._serial

    def commit_ends(self, call: int) -> None:
        self._commits.discard(call)

    def dropped(
        self,
        offsets: Mapping[Partition, int],
        positions: Callable[[tuple[Partition, ...]], Mapping[Partition, int | None]] | None = None,
    ) -> frozenset[Partition]:
        """Those of the application's offsets that must not be committed, now or (stored) later; logged once a closing.

        ``positions``: the offset after the last record delivered, by partition; asked for only where records that were
        handed out before a closing may still be committed although the group's offset was reset since.
        """
        found = set()
        for partition, offset in offsets.items():
            state = self._states.get(partition)
            if state is None:
                # A member may commit for partitions that are not its own: nothing of before they were closed.
                lost = self._lost.get(partition)
                gate = self.known.gate(self.group, partition)
                if gate is not None or (lost is not None and self._was_gated(partition, lost)):
                    found.add(partition)
                continue
            if state.sealed:
                found.add(partition)
            elif positions is not None and self._is_late(state, offset):
                position = positions((partition,)).get(partition)
                begin = state.late_from or 0
                if position is not None and position >= (state.in_hand or 0) >= begin:
                    state.in_hand = state.late_from = None
                elif not begin <= offset <= (begin if position is None else position):
                    found.add(partition)
            if partition in found and not state.warned:
                state.warned = True
                log.warning(
                    "group %s: dropping commits of %s-%d (offset %d): %s",
                    self.group,
                    *partition,
                    offset,
                    "it is paused" if state.sealed else "the record was delivered before it was paused and reset",
                )
        return frozenset(found)

    def has_late(self) -> bool:
        """Whether ``dropped`` may need positions."""
        return any(state.late_from is not None for state in self._states.values())

    def stopped(self) -> tuple[Partition, ...]:
        """The partitions that are to deliver nothing: those that are not open, or to be resumed by the application."""
        return tuple(p for p, state in self._states.items() if state.stage is not Stage.OPEN or state.app_paused)

    def may_be_withheld(self, partition: Partition) -> bool:
        """Whether records of it may not reach the application, if the client returns some: its gate was not read, or it
        was said to be paused."""
        state = self._states.get(partition)
        return state is not None and (state.stage is Stage.UNREAD or state.sealed)

    def is_withheld(self, partition: Partition, offset: int) -> bool:
        """Whether this record may not reach the application now.

        What the client had taken off its queue when it was paused counts as delivered: its commit was waited for, until
        the drain time-out. It is handed over, however late.
        """
        state = self._states.get(partition)
        if state is None or state.stage is Stage.UNREAD:
            return state is not None
        return state.sealed and (state.position is None or offset >= state.position)

    def leaked(self, partitions: Iterable[Partition], now: float) -> None:
        """The client returned records of these although they are withheld. It has been told to pause them again."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                self._tell_again(state, now)

    def owned(self) -> tuple[Partition, ...]:
        return tuple(self._states)

    def sealed(self) -> frozenset[Partition]:
        """The partitions of which nothing may be committed."""
        return frozenset(partition for partition, state in self._states.items() if state.sealed)

    def unplaced(self) -> frozenset[Partition]:
        """The partitions whose position is the client's own for now, and is not where they begin."""
        return frozenset(partition for partition, state in self._states.items() if state.unplaced)

    def stage(self, partition: Partition) -> Stage | None:
        """Where a partition is; ``None``: not this consumer's."""
        state = self._states.get(partition)
        return state.stage if state is not None else None

    # --- work ---------------------------------------------------------------------------------------------------------

    def work(self, now: float) -> Effect | None:
        """The next effect that is due, for as many partitions as need it; ``None``: nothing before ``wakes_at``."""
        for partition, state in self._states.items():
            if isinstance(state.effect, SendAcks):
                self._overtake(partition, state, state.effect, now)
            elif state.effect is None:
                self._consider(partition, state, now)
                if state.step is _Step.RESUME and state.app_paused:
                    # The application's own pause stays; resuming it is then the application's.
                    self._opened(partition, state)
        due: dict[_Step, list[Partition]] = {}
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
            if step is _Step.PAUSE:
                self._tell_again(state, now)
                state.need(_Step.POSITION, now + SETTLE_S)
            elif step is _Step.BARRIER and missing and now < state.give_up:
                self._again(state, now)
            elif step is _Step.DRAINED and missing and self._is_over(state, now):
                state.timed_out = True
                self._seal(state)
            elif missing and step is not _Step.BARRIER:
                self._again(state, now)
            elif step is _Step.POSITION:
                state.position = offsets[partition]
                state.need(_Step.COMMIT if self.client_commits else _Step.DRAINED)
            elif step is _Step.COMMIT:
                state.need(_Step.DRAINED)
            elif step is _Step.DRAINED:
                self._drained(state, offsets[partition], now)
            elif step is _Step.RECHECK:
                self._rechecked(state, offsets[partition])
            elif step is _Step.FORGET:
                state.need(_Step.BARRIER)
            elif step is _Step.BARRIER:
                self._close(partition, state, offsets.get(partition, state.committed))
            elif step is _Step.TARGET:
                self._aim(partition, state, offsets[partition], now)
            elif step is _Step.PLACE:
                self._place(partition, state, offsets[partition], now)
            elif step is _Step.BEGIN:
                state.unplaced = False
                state.need(_Step.RESUME)
            elif step is _Step.SEEK:
                state.need(_Step.RESUME)
            elif step is _Step.RESUME:
                self._tell_again(state, now)
                self._opened(partition, state)
            elif isinstance(effect, SendAcks):
                state.acked = (effect.generation, effect.acks[partition][0])
                state.need(None)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _was_gated(self, partition: Partition, lost: _Lost) -> bool:
        """Whether the gate was closed at some time since records that may still be in hand were handed out."""
        return lost.was_gated or self._moved_since(partition, lost.generation, lost.taken)

    def _is_gated(self, partition: Partition, state: _State) -> bool:
        """The same of a partition that is this consumer's."""
        if state.sealed or state.late_from is not None or self.known.gate(self.group, partition) is not None:
            return True
        return state.stage is Stage.UNREAD and state.lost is not None and self._was_gated(partition, state.lost)

    def _was_moved(self, partition: Partition, state: _State) -> bool:
        """Whether the group may have been reset after the client asked where to begin: its gate was closed since."""
        return not state.app_sought and self._moved_since(partition, *state.known)

    def _moved_since(self, partition: Partition, generation: int, taken: int) -> bool:
        """Whether a record closed or opened the gate that was not known then; in another control topic any counts."""
        after = taken if generation == self.known.generation else -1
        return self.known.moved_after(self.group, partition, after)

    @staticmethod
    def _is_late(state: _State, offset: int) -> bool:
        """Whether this may be the commit of a record from before the group was reset."""
        return state.late_from is not None and state.in_hand is not None and offset <= state.in_hand

    def _of(self, effect: Effect, partition: Partition) -> _State | None:
        """The state the effect was for, if the partition has not been taken away meanwhile."""
        state = self._states.get(partition)
        if state is None or state.effect is not effect:
            return None
        state.effect = None
        return state

    def _is_held_up(self, state: _State) -> bool:
        """Whether a commit call of the application has to end first, which it tells by ``commit_ends``."""
        return state.step is _Step.BARRIER and bool(state.running & self._commits)

    def _is_over(self, state: _State, now: float) -> bool:
        """Whether draining has lasted long enough."""
        return now >= (state.give_up if self.client_commits and self.client_stores else state.deadline)

    def _again(self, state: _State, now: float) -> None:
        state.tries += 1
        state.due = now + min(RETRY_MAX_S, RETRY_S * 2 ** min(state.tries - 1, 8))

    def _tell_again(self, state: _State, now: float) -> None:
        state.tell_again = now + TELL_AGAIN_S if self.may_drop else None

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

    def _effect(self, step: _Step, partitions: tuple[Partition, ...]) -> Effect:
        if step is _Step.PAUSE:
            return Pause(partitions)
        if step is _Step.RESUME:
            return Resume(partitions)
        if step is _Step.SEEK:
            return Seek({p: offset for p in partitions if (offset := self._states[p].target) is not None})
        if step in (_Step.POSITION, _Step.RECHECK):
            return Position(partitions)
        if step is _Step.COMMIT:
            return Commit(partitions)
        if step is _Step.FORGET:
            return Forget(partitions)
        if step is _Step.BEGIN and self.rule is not None:
            return Begin(self.rule.start, partitions)
        if step is _Step.ACK:
            return SendAcks({p: self._ack(p, self._states[p]) for p in partitions}, self.known.generation)
        return Committed(partitions)

    def _ack(self, partition: Partition, state: _State) -> tuple[int, int]:
        gate = self.known.gate(self.group, partition)
        if state.stage is Stage.CLOSED and gate is not None:
            offset = state.committed if state.committed is not None else state.position
            return gate.epoch, -1 if offset is None else offset
        return self.known.open_epoch, -1 if state.target is None else state.target

    def _consider(self, partition: Partition, state: _State, now: float) -> None:
        """Whether the gate asks for something else than what is being done."""
        gate = self.known.gate(self.group, partition)
        if not state.read and self.known.answered >= state.ticket:
            state.read = True
        if state.stage is Stage.UNREAD:
            self._unread(partition, state, gate, now)
        elif state.stage is Stage.OPEN:
            if gate is not None:
                self._begin_closing(state, gate, now)
            elif state.read and state.step is None and not self._is_acked(state):
                state.need(_Step.ACK)
        elif state.stage is Stage.DRAINING:
            if gate is None:
                state.stage = Stage.OPENING
                state.need(_Step.TARGET if state.sealed else _Step.RESUME)
        elif state.stage is Stage.CLOSED:
            if gate is None:
                state.stage = Stage.OPENING
                state.need(_Step.TARGET)
            elif state.step is None and not self._is_acked(state, gate):
                # The group may have been reset since it was closed: the ack tells where it is now.
                state.give_up = now + UNDELIVERED_PATIENCE_S
                state.need(_Step.BARRIER)
        elif gate is not None:
            self._close_again(state, gate, now)
        if state.step is _Step.JUDGE and self.rule is not None:
            self._judge(self.rule, partition, state, now)

    def _overtake(self, partition: Partition, state: _State, acks: SendAcks, now: float) -> None:
        """Nothing waits for an ack that is on its way: what it says may be out of date already."""
        gate = self.known.gate(self.group, partition)
        is_closed = state.stage is Stage.CLOSED
        if (gate is not None) is not is_closed:
            state.effect = None
            state.need(None)
            self._consider(partition, state, now)
        elif acks.generation != self.known.generation or (gate is not None and acks.acks[partition][0] < gate.epoch):
            state.effect = None

    def _is_acked(self, state: _State, gate: Gate | None = None) -> bool:
        if state.acked is None or state.acked[0] != self.known.generation:
            return False
        return gate is None or state.acked[1] >= gate.epoch

    def _unread(self, partition: Partition, state: _State, gate: Gate | None, now: float) -> None:
        if state.read:
            if state.in_hand is not None and self._is_gated(partition, state):
                state.late_from = 0
            if gate is None:
                if state.step is None and (state.late_from is not None or self._was_moved(partition, state)):
                    state.stage, state.sealed = Stage.OPENING, True
                    state.need(_Step.TARGET)
                elif state.step is None:
                    state.need(_Step.PLACE if state.unplaced else _Step.RESUME)
                return
            # Nothing was delivered by this owner: there is nothing to wait for.
            state.stage, state.sealed = Stage.DRAINING, True
            state.deadline, state.give_up = now, now + UNDELIVERED_PATIENCE_S
            state.running = frozenset(self._commits)
            state.need(_Step.FORGET)
        elif (
            self.open_unread_after_s is not None
            and now >= state.since + self.open_unread_after_s
            and state.step is None
        ):
            log.warning("group %s: delivering %s-%d although its gate could not be read", self.group, *partition)
            state.need(_Step.RESUME)

    def _begin_closing(self, state: _State, gate: Gate, now: float) -> None:
        state.stage, state.warned, state.was_closed, state.timed_out = Stage.DRAINING, False, False, False
        state.committed = state.before = state.target = state.position = None
        state.wait = DRAIN_POLL_S
        self._give_time(state, gate, now)
        state.need(_Step.PAUSE)

    def _give_time(self, state: _State, gate: Gate, now: float) -> None:
        state.deadline = now + gate.drain_timeout_s
        state.give_up = state.deadline + BARRIER_PATIENCE_S

    def _close_again(self, state: _State, gate: Gate, now: float) -> None:
        """A hold while it was being opened: it is still paused, since opened ones are ``OPEN``."""
        state.stage = Stage.DRAINING
        if state.sealed:
            state.deadline, state.give_up = now, now + UNDELIVERED_PATIENCE_S
            state.need(_Step.BARRIER)
        else:
            self._give_time(state, gate, now)
            state.need(_Step.POSITION)

    def _drained(self, state: _State, committed: int | None, now: float) -> None:
        state.committed = committed
        if state.position is None or (committed is not None and committed >= state.position):
            self._seal(state)
        elif self._is_over(state, now):
            state.timed_out = True
            self._seal(state)
        else:
            state.wait = min(DRAIN_POLL_MAX_S, state.wait * 1.5)
            state.need(_Step.POSITION, min(now + state.wait, max(state.deadline, now + DRAIN_POLL_S)))

    def _seal(self, state: _State) -> None:
        state.sealed = True
        state.running = frozenset(self._commits)
        state.need(_Step.RECHECK)

    def _rechecked(self, state: _State, position: int | None) -> None:
        if position is not None and position != state.position and not state.timed_out:
            # A record had been taken off the queue when the partition was paused: it is waited for as well.
            state.sealed, state.position = False, position
            state.need(_Step.POSITION)
            return
        state.position = position
        state.need(_Step.FORGET)

    def _close(self, partition: Partition, state: _State, committed: int | None) -> None:
        state.committed = committed
        state.stage = Stage.CLOSED
        state.need(_Step.ACK)
        if state.was_closed:
            return
        state.was_closed, state.before = True, committed
        if committed is not None and committed == state.position:
            state.app_sought = False
        if state.position is not None and state.timed_out:
            state.in_hand = max(state.position, state.in_hand or 0)
        gate = self.known.gate(self.group, partition)
        log.info(
            "group %s: %s-%d is paused at offset %s%s%s",
            self.group,
            *partition,
            "(none)" if state.committed is None else state.committed,
            ", not everything delivered had been committed in time" if state.timed_out else "",
            f": {'; '.join(gate.reasons)}" if gate is not None and gate.reasons else "",
        )

    def _place(self, partition: Partition, state: _State, committed: int | None, now: float) -> None:
        """Where to begin: at the group's offset where it has one, as its client does by itself."""
        if committed is None and state.unplaced and self.rule is not None:
            state.judge_by = now + PATIENCE_S
            self._judge(self.rule, partition, state, now)
        else:
            state.unplaced = False
            state.need(_Step.RESUME)

    def _judge(self, rule: Rule, partition: Partition, state: _State, now: float) -> None:
        verdict = judge(rule, self.known, partition, assigned=state.since, now=now, deadline=state.judge_by)
        if not isinstance(verdict, Verdict):
            state.need(_Step.JUDGE, verdict)
            return
        state.unplaced = verdict.start is not None
        state.need(_Step.RESUME if verdict.start is None else _Step.BEGIN)
        log.log(
            logging.INFO if verdict.is_known else logging.WARNING,
            "group %s: %s-%d has no committed offset and begins %s: %s",
            self.group,
            *partition,
            "where its client does" if verdict.start is None else f"at {verdict.start.value}",
            verdict.why,
        )

    def _aim(self, partition: Partition, state: _State, committed: int | None, now: float) -> None:
        """Where to go on: at the group's offset, as the resetting of it is what closing is for."""
        state.target = committed
        if committed is None and state.position is None and state.unplaced:
            self._place(partition, state, committed, now)
        elif committed is None or (state.app_sought and committed == state.before):
            state.target = state.position if committed is None else None
            state.need(_Step.RESUME)
        else:
            state.need(_Step.SEEK)

    def _opened(self, partition: Partition, state: _State) -> None:
        was_sealed = state.sealed
        may_be_reset = state.late_from is not None or (state.was_closed and state.target != state.before)
        if was_sealed and may_be_reset and state.in_hand is not None and state.target is not None:
            # What was handed out may still be in hand, and be committed although the group was reset.
            state.late_from = state.target
        state.stage, state.sealed, state.timed_out, state.warned = Stage.OPEN, False, False, False
        state.unplaced = False
        if state.read:
            state.need(_Step.ACK)
        else:
            state.need(None)
        if was_sealed:
            where = "its own position" if state.target is None else f"offset {state.target}"
            log.info("group %s: %s-%d goes on at %s", self.group, *partition, where)
