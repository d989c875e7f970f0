"""What is asked of the two clusters, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.mirror.batches import Stamp, sequence_after
from tidegate.mirror.source import SourceRead

# --- the target's log -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What the target's leader remembers of a producer (DescribeProducers); ``last_sequence`` is −1 after a marker."""

    producer_id: int
    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the target's log, from its leader, when all of it was replicated (high watermark = log end)."""

    start: int
    end: int
    data: bytes = b""
    """The last batches, up to ``end``, from the one on that holds ``window``; nothing where the log is empty."""
    window: int = 0
    """The offset from which on they were asked for, ``start`` at the least."""
    producers: tuple[ProducerState, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """The target's end, with the stamp that the next record has to bear."""

    offset: int
    stamp: Stamp
    fresh: bool
    """Whether no data bears the stamp's epoch yet."""

    def after_data(self, count: int) -> Position:
        stamp = self.stamp
        following = Stamp(stamp.producer_id, stamp.epoch, sequence_after(stamp.sequence, count))
        return Position(self.offset + count, following, fresh=False)

    @property
    def marker_epoch(self) -> int:
        """Larger than that of all data before it: what is late and bears an older epoch is refused."""
        return self.stamp.epoch if self.fresh else self.stamp.epoch + 1


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The producer of the mirror's transactional id, as its coordinator last named it."""

    producer_id: int
    epoch: int


# --- what is done next ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimProducerId:
    """The producer id that follows ``after``, if nobody has claimed one: all writers of the partition get the same.
    None: the first."""

    after: int | None


@dataclass(frozen=True, slots=True)
class ReadTail:
    """The end of the target's log, and at least its last ``window`` offsets."""

    window: int


@dataclass(frozen=True, slots=True)
class ReadSource:
    offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Batches for the target, back to back; ``offsets``: where each has to come to lie."""

    batches: tuple[bytes, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Transaction markers without a transaction, each of which takes an offset and is seen by no consumer."""

    producer_id: int
    epoch: int
    count: int


@dataclass(frozen=True, slots=True)
class FencePredecessors:
    """Take the mirror's transactional id over from whoever had it. Done once no transaction of it is under way."""


@dataclass(frozen=True, slots=True)
class Transact:
    """A transaction that only takes offsets, through its coordinator: ``fillers`` records that are aborted, or none,
    and the marker. Done once the coordinator has nothing left to do for it."""

    producer: Coordinated
    fillers: int

    @property
    def count(self) -> int:
        return self.fillers + 1


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Those of the target before ``offset``."""

    offset: int


Action = ClaimProducerId | FencePredecessors | ReadTail | ReadSource | Append | WriteMarkers | Transact | DeleteRecords


# --- what comes of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """All that were claimed for the partition, in their order."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """Of each batch, where the broker says that it lies, or the error code with which it was not taken.

    ``by_its_clock``: to some of them the broker has given other timestamps, those of its own clock.
    """

    outcomes: tuple[int | Refusal, ...]
    by_its_clock: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error code of ``org.apache.kafka.common.protocol.Errors``; ``lasting``: to try again changes nothing."""

    code: int
    name: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Markers that were written, or records that were deleted: all that was asked for."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """No answer, or that of a broker that is no leader: whether anything was done is not known."""

    reason: str
    held_back: bool = False
    """Whether the leader has only put off the answer to a read, by a quota."""


Answer = ProducerIds | Coordinated | Tail | SourceRead | Appended | Done | Refusal | Interrupted
