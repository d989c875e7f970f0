"""Which commits of the application may reach the brokers, and which records the application. Pure: no I/O, no clock.

A driver asks it around each commit of the application, and around each poll of the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidegate_agent.gates import Partition
from tidegate_agent.lifecycle import Lifecycle
from tidegate_agent.partition_state import PartitionState, Stage

log = logging.getLogger("tidegate_agent")


@dataclass
class Withholding(Lifecycle):
    """The partitions of one consumer, as its commits and records pass; its settings are those of a ``Lifecycle``."""

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
        was said to be paused, or it has a limit."""
        state = self._states.get(partition)
        if state is None:
            return False
        return state.stage is Stage.UNREAD or state.sealed or self._limit(partition) is not None

    def is_withheld(self, partition: Partition, offset: int) -> bool:
        """Whether this record may not reach the application now.

        What the client had taken off its queue when it was paused counts as delivered: its commit was waited for, until
        the drain time-out. It is handed over, however late.
        """
        state = self._states.get(partition)
        if state is None or state.stage is Stage.UNREAD:
            return state is not None
        if state.sealed:
            return state.position is None or offset >= state.position
        return self._is_beyond(partition, offset)

    def is_beyond_limit(self, partition: Partition, offset: int) -> bool:
        """Whether this record is not to be delivered for its limit, the gate being open otherwise."""
        return partition in self._states and self._is_beyond(partition, offset)

    def delivers(self, ends: Mapping[Partition, int]) -> None:
        """The offsets after records that the application is given now. Needs to be told only of partitions that have a
        limit, and where the client forgets its position when it is moved back to a record that was withheld."""
        for partition, end in ends.items():
            state = self._states.get(partition)
            if state is not None and self._limit(partition) is not None:
                state.passed = end

    def withheld(self, offsets: Mapping[Partition, int]) -> None:
        """The client returned records that are not given to the application; the first one of each."""
        for partition, offset in offsets.items():
            state = self._states.get(partition)
            if state is not None:
                self._comes_to(partition, state, offset)

    def leaked(self, partitions: Iterable[Partition], now: float) -> None:
        """The client returned records of these although they are withheld. It has been told to pause them again."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                self._tell_again(state, now)

    def passed(self) -> dict[Partition, int]:
        """As ``delivers`` was told, of the partitions that were not sought since."""
        return {partition: state.passed for partition, state in self._states.items() if state.passed is not None}

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

    @staticmethod
    def _is_late(state: PartitionState, offset: int) -> bool:
        """Whether this may be the commit of a record from before the group was reset."""
        return state.late_from is not None and state.in_hand is not None and offset <= state.in_hand
