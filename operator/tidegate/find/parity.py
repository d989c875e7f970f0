"""Whether offsets of one cluster mean the same records on another one (what KIP-391 was for). Pure.

Two logs have *parity* where both have a record at an offset and the two are the same. Offsets may then be carried over
as they are; one record that differs, or is on one side only, says that they may not. Compaction is an exception: it
removes records and leaves the offsets of the others, so a record that one side lacks says nothing in such a topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.kafka.model import LogBounds, Range, TopicPartition


class Difference(StrEnum):
    """What is first found to differ at an offset; the earlier ones here before the later ones."""

    ONLY_HERE = "OnlyHere"
    ONLY_THERE = "OnlyThere"
    TIMESTAMP = "Timestamp"
    KEY = "Key"
    VALUE = "Value"

    @property
    def is_a_gap(self) -> bool:
        return self in (Difference.ONLY_HERE, Difference.ONLY_THERE)


@dataclass(frozen=True, slots=True)
class LogPair:
    """A partition on both clusters. ``compacted``: compaction removes records of it, here or over there."""

    here: TopicPartition
    there: TopicPartition
    bounds_here: LogBounds
    bounds_there: LogBounds
    compacted: bool

    @property
    def overlap(self) -> Range:
        """The offsets that both logs have."""
        start = max(self.bounds_here.earliest, self.bounds_there.earliest)
        return Range(start, max(start, min(self.bounds_here.latest, self.bounds_there.latest)))


@dataclass(frozen=True, slots=True)
class Parity:
    """What comparing a partition has shown. ``compared``: records that both have at one offset; ``first``: the first
    offsets that differ, by how."""

    pair: LogPair
    compared: int
    first: Mapping[Difference, int]

    @property
    def divergence(self) -> tuple[int, Difference] | None:
        """The first offset that rules parity out, and why."""
        counted = [
            (offset, list(Difference).index(what), what)
            for what, offset in self.first.items()
            if not (self.pair.compacted and what.is_a_gap)
        ]
        if not counted:
            return None
        offset, _, what = min(counted)
        return offset, what

    @property
    def carries_over(self) -> bool:
        """Whether offsets may be carried over as they are."""
        if self.divergence is not None:
            return False
        # Of a compacted log, records that are on one side only do not count against it, nor do they prove anything.
        return self.compared > 0 or (not self.first and self.pair.bounds_here == self.pair.bounds_there)

    @property
    def verdict(self) -> str:
        """In words, with what to bear in mind."""
        divergence, pair = self.divergence, self.pair
        if divergence is not None:
            offset, what = divergence
            return f"differs from offset {offset} on: {_SAID[what]}"
        if not self.carries_over:
            return "nothing to compare: the two logs have no record at the same offset"
        missing = pair.bounds_there.latest - pair.bounds_here.latest
        begins = pair.bounds_here.earliest - pair.bounds_there.earliest
        notes = [
            *([f"{missing:,} offsets are not here yet"] if missing > 0 else []),
            *([f"{begins:,} offsets at the start are no longer here"] if begins > 0 else []),
        ]
        return "; ".join(["the same", *notes])


def as_json(found: Sequence[Parity]) -> str:
    """For programs. Pairs of numbers are here and over there."""
    rows = [
        {
            "topic": p.pair.here.topic,
            "partition": p.pair.here.partition,
            "otherTopic": p.pair.there.topic,
            "earliest": [p.pair.bounds_here.earliest, p.pair.bounds_there.earliest],
            "latest": [p.pair.bounds_here.latest, p.pair.bounds_there.latest],
            "compared": p.compared,
            "firstDivergence": None if p.divergence is None else p.divergence[0],
            "difference": None if p.divergence is None else p.divergence[1].value,
            "carriesOver": p.carries_over,
            "verdict": p.verdict,
        }
        for p in found
    ]
    return json.dumps({"partitions": rows, "carriesOver": all(p.carries_over for p in found)}, indent=2) + "\n"


_SAID: Final = {
    Difference.ONLY_HERE: "a record that the other cluster lacks",
    Difference.ONLY_THERE: "a record of the other cluster is not here",
    Difference.TIMESTAMP: "the times are not the same",
    Difference.KEY: "the keys are not the same",
    Difference.VALUE: "the values are not the same",
}
