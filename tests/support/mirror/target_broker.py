"""A target's leader as it was measured (``docs/adr/0049-mirror-by-sequence-numbers.md``): what it takes of a producer
whose last batch it knows, and of markers.
"""

from __future__ import annotations

import bisect
import struct
from collections import deque
from dataclasses import dataclass, field

from support.mirror.written import Written, batch, marker, placed, records_in
from tidegate.mirror.model import Coordinated, ProducerState, Refusal, Tail

OUT_OF_ORDER = Refusal(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", lasting=False)
NOT_ENOUGH_REPLICAS = Refusal(19, "NOT_ENOUGH_REPLICAS", lasting=False)
INVALID_EPOCH = Refusal(47, "INVALID_PRODUCER_EPOCH", lasting=False)
SEQUENCES = 2**31
REMEMBERED = 5
FILLING = 900
"""The producer id of the transactional id."""


@dataclass
class Producer:
    epoch: int
    last: int = -1
    """Sequence number of the last record; −1 after a marker."""
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """First and last sequence number, base offset."""


@dataclass(frozen=True, slots=True)
class Lying:
    """A batch of the log."""

    base: int
    until: int
    data: bytes
    is_hidden: bool = False


class TargetBroker:
    def __init__(self) -> None:
        self.start = 0
        self.log: list[Lying] = []
        self.producers: dict[int, Producer] = {}
        self.appends = 0
        self.coordinated = Coordinated(FILLING, 0)
        self.open_transaction = False

    @property
    def end(self) -> int:
        return self.log[-1].until if self.log else self.start

    def produce(self, data: bytes) -> int | Refusal:
        producer_id, epoch, sequence, count = struct.unpack_from(">qhii", data, 43)
        assert struct.unpack_from(">i", data, 23) == (count - 1,), "a broker takes no holes"
        last = (sequence + count - 1) % SEQUENCES
        known = self.producers.get(producer_id)
        if known is not None:
            if epoch == known.epoch:
                for first, ended, base in known.batches:
                    if (first, ended) == (sequence, last):
                        return base
            if epoch < known.epoch:
                return INVALID_EPOCH
            expected = (known.last + 1) % SEQUENCES if epoch == known.epoch else 0
            if sequence != expected:
                return OUT_OF_ORDER
        if known is None or known.epoch != epoch:
            known = self.producers[producer_id] = Producer(epoch)
        base = self._lay(placed(data, self.end), count)
        known.last = last
        known.batches.append((sequence, last, base))
        return base

    def write_marker(self, producer_id: int, epoch: int) -> bool:
        """Whether it was written: also once more at the same epoch."""
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return False
        if known is None or epoch > known.epoch:
            self.producers[producer_id] = Producer(epoch)
        self._lay(marker(self.end, producer_id, epoch, commit=True), 1, is_hidden=True)
        return True

    def fence_predecessors(self, *, doubled: bool = False) -> Coordinated:
        """What is open is aborted first; ``doubled``: the marker comes twice, as a killed broker may have it."""
        if self.open_transaction:
            self._end_transaction(doubled=doubled)
        self.coordinated = Coordinated(FILLING, self.coordinated.epoch + 1)
        return self.coordinated

    def transact(self, producer: Coordinated, fillers: int, *, until: int = 2, doubled: bool = False) -> bool:
        """``until``: how far it comes: 0 nothing, 1 its records, 2 its end. False where somebody has fenced it."""
        if producer != self.coordinated:
            return False
        if until >= 1:
            self.open_transaction = True
            if fillers:
                content = {place: Written(0, b"filler", None) for place in range(fillers)}
                stamp = (FILLING, producer.epoch, 0)
                data = batch(self.end, content, fillers, producer=stamp, transactional=True)
                self._lay(data, fillers, is_hidden=True)
        if until >= 2:
            self._end_transaction(doubled=doubled)
        return True

    def _end_transaction(self, *, doubled: bool) -> None:
        for _ in range(1 + doubled):
            self._lay(marker(self.end, FILLING, self.coordinated.epoch, commit=False), 1, is_hidden=True)
        self.open_transaction = False

    def foreign(self, producer_id: int = 999) -> None:
        """Somebody else's record."""
        self._lay(batch(self.end, {0: Written(1, b"foreign", b"record")}, 1, producer=(producer_id, 0, self.end)), 1)

    def delete_records(self, offset: int) -> None:
        assert offset <= self.end
        self.start = max(self.start, offset)

    def forget_producers(self) -> None:
        """As after ``producer.id.expiration.ms``."""
        self.producers.clear()

    def _lay(self, data: bytes, count: int, *, is_hidden: bool = False) -> int:
        base = self.end
        self.log.append(Lying(base, base + count, data, is_hidden))
        self.appends += 1
        return base

    def tail(self, window: int) -> Tail:
        end = self.end
        remembered = tuple(ProducerState(i, p.epoch, p.last) for i, p in self.producers.items())
        if self.start == end:
            return Tail(self.start, end, producers=remembered)
        begin = max(self.start, end - window)
        first = bisect.bisect_right(self.log, begin, key=lambda one: one.until)
        return Tail(self.start, end, b"".join(one.data for one in self.log[first:]), begin, remembered)

    def visible(self, since: int = 0) -> dict[int, Written]:
        begin = max(self.start, since)
        found: dict[int, Written] = {}
        for one in self.log[bisect.bisect_right(self.log, begin, key=lambda one: one.until) :]:
            if not one.is_hidden:
                found |= {offset: record for offset, record in records_in(one.data).items() if offset >= begin}
        return found
