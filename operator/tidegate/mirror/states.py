"""Where the writer of one partition stands, and what it does next in each of these states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from tidegate.mirror.batches import Stamp, restamped
from tidegate.mirror.model import (
    Action,
    Append,
    ClaimProducerId,
    Coordinated,
    DeleteRecords,
    FencePredecessors,
    Position,
    ReadSource,
    ReadTail,
    Tail,
    Transact,
    WriteMarkers,
)
from tidegate.mirror.records import filler
from tidegate.mirror.source import Copy, Gap, Piece

AT_ONCE: Final = 5
"""Batches of one producer whose repetition a broker recognises (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""
FILLERS: Final = 100_000
"""Records in a batch that fills offsets from before the source's start."""
SHORT: Final = 4
"""Offsets of a gap that transactions without records fill one by one."""
MARKERS: Final = 1000
"""Markers in one request."""
WINDOW: Final = 2 * MARKERS
"""Offsets before the target's end that are compared with the source by a writer that begins."""
LAST_MARKER_EPOCH: Final = 32_765
"""Data that follows bears the next one. The largest of all, 32,767, is left to the fence that ends a copy: brokers
refuse an epoch that is smaller than the last one they know, and not one that is the same (``ProducerAppendInfo``)."""
ROLL_EPOCH: Final = 16_000
"""From it on a gap begins with another producer id, so that a long one does not use up its epochs midway."""


class Way(StrEnum):
    """How gaps are filled."""

    MARKERS = "Markers"
    """By markers that are written without a transaction; needs the right to write them."""
    TRANSACTIONS = "Transactions"
    """Through a transaction coordinator, as any producer may."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing is known of the target's end. ``refusals``: how often it was looked at in vain, one after the other."""

    refusals: int = 0
    window: int = WINDOW
    """More than at first where nothing in it told the position."""
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Doubting:
    """Up to ``end`` a producer has written that is not known to be ours; its id may have been claimed meanwhile."""

    producer_id: int
    end: int
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Comparing:
    """The end is known; what was written last is compared with the source before anything is added to it."""

    tail: Tail
    position: Position
    known: int
    """Up to where the source agrees."""
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """All is right up to ``position``; ``work``: what has been read of the source and comes next."""

    position: Position
    target_start: int
    work: tuple[Piece, ...] = ()
    source_start: int = 0
    proven: bool = False
    """Whether the broker has taken a batch since the end was read: only then does it surely know the producer."""
    idle: bool = False
    """Whether the source had nothing more."""
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Claiming:
    """The epochs of the producer id are used up; the gap goes on with the next one."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class Confirming:
    """Markers were written up to ``planned``, or further: their answer tells no offsets, so the end is read before
    anything else is written."""

    ready: Ready
    planned: int
    until: int
    """Where the gap ends."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """For good, until somebody decides: ``drifted`` where the target has something at an offset that is not its own."""

    reason: str
    drifted: bool


State = Lost | Doubting | Comparing | Ready | Claiming | Confirming | Stopped


@dataclass(frozen=True, slots=True)
class Mirror:
    """The writer of one partition."""

    ids: tuple[int, ...] = ()
    """Producer ids that were claimed for it, in their order."""
    state: State = Lost()
    way: Way = Way.MARKERS
    coordinated: Coordinated | None = None
    """Who fills gaps by transactions."""
    compacts: bool = False
    """Whether records may vanish from either log one by one."""
    filler_key: bytes | None = None
    """The key of records that fill offsets; a compacted topic takes none without."""
    fillers: int = FILLERS
    """Records of one batch before the source's start: fewer where the target has refused more."""
    adopted: int = 0
    """What lies before this offset of the target was written there by others, and is the beginning of the copy."""

    def action(self) -> Action | None:
        """What to do next; None when it has stopped."""
        match self.state:
            case Lost(fenced=fenced):
                if not self.ids:
                    return ClaimProducerId(None)
                return (
                    FencePredecessors() if self.way is Way.TRANSACTIONS and not fenced else ReadTail(self.state.window)
                )
            case Doubting():
                return ClaimProducerId(None)
            case Comparing(known=known):
                return ReadSource(known)
            case Ready() as ready:
                return self._next(ready)
            case Claiming(ready):
                return ClaimProducerId(ready.position.stamp.producer_id)
            case Confirming(ready, planned):
                return ReadTail(planned - ready.position.offset)
            case Stopped():
                return None
            case _ as never:
                assert_never(never)

    def _next(self, ready: Ready) -> Action:
        position = ready.position
        if position.offset < ready.source_start:
            return self._fill(ready)
        if ready.target_start < ready.source_start:
            return DeleteRecords(ready.source_start)
        if not ready.work:
            return ReadSource(position.offset)
        match ready.work[0]:
            case Copy():
                return _append(ready)
            case Gap(until=until):
                missing = until - position.offset
                if self.coordinated is not None:
                    return Transact(self.coordinated, fillers_of_transaction(missing))
                return WriteMarkers(position.stamp.producer_id, position.marker_epoch, markers_at_once(missing))
            case _ as never:
                assert_never(never)

    def _fill(self, ready: Ready) -> Append:
        """Offsets that the source has no more: as data, which the target forgets as soon as they are there."""
        position = ready.position
        batches: list[bytes] = []
        offsets: list[int] = []
        while position.offset < ready.source_start and len(batches) < (AT_ONCE if ready.proven else 1):
            count = fillers_at_once(replace(ready, position=position), self.fillers)
            batches.append(restamped(filler(count, self.filler_key), position.stamp))
            offsets.append(position.offset)
            position = position.after_data(count)
        return Append(tuple(batches), tuple(offsets))


def _append(ready: Ready) -> Append:
    """The first alone where the broker may not know the producer: it would take the second even without the first."""
    position = ready.position
    batches: list[bytes] = []
    offsets: list[int] = []
    for piece in ready.work[: AT_ONCE if ready.proven else 1]:
        if not isinstance(piece, Copy):
            break
        batches.append(restamped(piece.data, position.stamp))
        offsets.append(position.offset)
        position = position.after_data(piece.count)
    return Append(tuple(batches), tuple(offsets))


def fillers_at_once(ready: Ready, most: int) -> int:
    """Records of the batch that comes next before the source's start."""
    return min(most, ready.source_start - ready.position.offset)


def markers_at_once(missing: int) -> int:
    """At most half of what is missing: a request that is carried out twice still ends within the gap, down to its last
    marker."""
    return min(MARKERS, max(1, missing // 2))


def fillers_of_transaction(missing: int) -> int:
    """None in a short gap. In others all but two offsets are filled: one for the marker, and one in case a broker is
    killed and the marker comes twice."""
    return 0 if missing <= SHORT else min(FILLERS, missing - 2)


def first_position(offset: int, producer_id: int) -> Position:
    """Where the producer has not written yet."""
    return Position(offset, Stamp(producer_id, 0, 0), fresh=True)
