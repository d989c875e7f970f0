"""What an application was given, and when: the nouns that the clients report and the checker judges."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Partition = tuple[str, int]
"""A topic and a partition's number."""


class Delivery(NamedTuple):
    """One record handed to an application by its client library.

    `t` is epoch seconds (the consumer's machine's clock) at which the poll that returned it came back. `value`: the
    record's `digest`, where the client took it. A tuple and not a dataclass: a run has hundreds of thousands of them.
    """

    t: float
    member: str
    topic: str
    partition: int
    offset: int
    value: int | None = None


def digest(key: bytes | None, value: bytes | None) -> int:
    """What tells records apart: the CRC-32 of key and value, one after the other; all clients compute it alike."""
    return zlib.crc32(value or b"", zlib.crc32(key or b""))


class Stretch(NamedTuple):
    """Records of one partition that one member was given one after the other; times are epoch seconds."""

    begin_t: float
    end_t: float
    member: str
    partition: Partition
    first: int
    last: int

    def __str__(self) -> str:
        topic, number = self.partition
        read = f"{self.member} read {topic}-{number} from {self.first} to {self.last}"
        return f"{self.begin_t:.3f} to {self.end_t:.3f} {read}"


def stretches(deliveries: Iterable[Delivery]) -> Iterator[Stretch]:
    """What was read, told in as few words as it takes; in the order of the partitions, and of time in each."""
    open_: Stretch | None = None
    for d in sorted(deliveries, key=lambda d: (d.topic, d.partition, d.t)):
        partition = (d.topic, d.partition)
        if open_ is not None and open_[2:4] == (d.member, partition) and d.offset == open_.last + 1:
            open_ = open_._replace(end_t=d.t, last=d.offset)
            continue
        if open_ is not None:
            yield open_
        open_ = Stretch(d.t, d.t, d.member, partition, d.offset, d.offset)
    if open_ is not None:
        yield open_
