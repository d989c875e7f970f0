"""What a core asks of whoever drives it, to be carried out with the client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate_agent.gates import Partition
from tidegate_agent.start import Start


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
class Next(Position):
    """Result: for each the offset from which the client goes on, which may lie behind offsets without a record for it:
    markers of transactions, or what compaction has removed. Nothing below it is delivered any more. As for
    ``Position`` where the client tells no more than that."""


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
