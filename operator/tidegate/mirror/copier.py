"""Carries out what a partition's writer decides, one action at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from tidegate.mirror.batches import Unreadable
from tidegate.mirror.model import (
    Action,
    Answer,
    Append,
    ClaimProducerId,
    DeleteRecords,
    FencePredecessors,
    Interrupted,
    ReadSource,
    ReadTail,
    Transact,
    WriteMarkers,
)
from tidegate.mirror.ports import Coordinator, ProducerIdStore, Source, Target
from tidegate.mirror.states import Comparing, Mirror, Ready, Stopped
from tidegate.mirror.transitions import after, forgotten


@dataclass(frozen=True, slots=True)
class Waiting:
    """``reason``: what is waited for; ``held_back``: as in ``Interrupted``."""

    reason: str
    held_back: bool = False


class Copier:
    """Copies one partition. Not thread-safe."""

    def __init__(
        self,
        mirror: Mirror,
        source: Source,
        target: Target,
        ids: ProducerIdStore,
        coordinator: Coordinator | None = None,
    ) -> None:
        """``coordinator``: of a mirror that fills its gaps by transactions."""
        self.mirror = mirror
        self._source = source
        self._target = target
        self._ids = ids
        self._coordinator = coordinator

    def step(self) -> Waiting | None:
        """Carry out one action. Returns what is waited for, where the next one should not come at once."""
        action = self.mirror.action()
        if action is None:
            return Waiting("a decision")
        before = self.mirror
        # Until there is an answer: a defect of the code may end this once something was done that must not be repeated.
        self.mirror = forgotten(before)
        try:
            answer = self._carried_out(action)
        except Unreadable as error:  # the target's log, as one that was written by somebody else long ago
            self.mirror = replace(before, state=Stopped(str(error), drifted=False))
            return None
        self.mirror = after(before, action, answer)
        return _waits_for(before, self.mirror, answer)

    @property
    def stopped(self) -> Stopped | None:
        return self.mirror.state if isinstance(self.mirror.state, Stopped) else None

    def _carried_out(self, action: Action) -> Answer:
        match action:
            case ClaimProducerId(after=predecessor):
                return self._ids.claim(predecessor)
            case ReadTail(window):
                return self._target.tail(window)
            case ReadSource(offset):
                return self._source.read(offset)
            case Append(batches):
                return self._target.append(batches)
            case WriteMarkers(producer_id, epoch, count):
                return self._target.write_markers(producer_id, epoch, count)
            case FencePredecessors():
                return self._of_transactions().fence_predecessors()
            case Transact(producer, fillers):
                return self._of_transactions().transact(producer, fillers)
            case DeleteRecords(offset):
                return self._target.delete_records(offset)
            case _ as never:
                assert_never(never)

    def _of_transactions(self) -> Coordinator:
        if self._coordinator is None:
            raise TypeError("a mirror that fills its gaps by transactions needs a coordinator")
        return self._coordinator


def _waits_for(before: Mirror, now: Mirror, answer: Answer) -> Waiting | None:
    if isinstance(answer, Interrupted):
        return Waiting(answer.reason, answer.held_back)
    match now.state:
        case Ready(idle=True):
            return Waiting("the source to grow")
        case Comparing() if now.state == before.state:
            return Waiting("nothing is copied until the source reaches the end of the copy")
        case _:
            return None
