"""A search through logs in growing windows, that ends in each partition with the first match. Pure.

The first windows are small, so that what lies near is found in a moment; each next one is some times larger, so that
what lies far costs few rounds, and never much more than the way to it. A search is a value: each round gives the ranges
to look at (``next_window``), and what was found there gives the next value (``looked_at``). So a round that failed is
simply done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.kafka.model import Range, TopicPartition

EVEN: Final = 1.25
"""The largest range may be so many times its task's fair share before partitions are cut."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Offsets in a window, over all partitions: in the first one, how many times more in each next, and at most; but
    ``least`` of each partition.

    A window costs some tenths of a second whatever is in it, and each partition some hundredths; the largest one should
    take many times that, and not so long that nobody hears of the search meanwhile.
    """

    first: int = 400_000
    growth: int = 8
    most: int = 6_400_000
    least: int = 20_000


@dataclass(frozen=True, slots=True)
class Search:
    """Where a search stands.

    ``asked``: all that may be looked at; ``left``: what was not yet, of partitions without a match so far; ``found``:
    the first match by partition, or the last one when it goes ``backwards``. ``size``: of the next window. ``read``:
    offsets looked at.
    """

    asked: Mapping[TopicPartition, Range]
    left: Mapping[TopicPartition, Range]
    backwards: bool = False
    pace: Pace = field(default_factory=Pace)
    size: int = 0
    found: Mapping[TopicPartition, int] = field(default_factory=dict)
    read: int = 0

    @classmethod
    def over(
        cls, ranges: Mapping[TopicPartition, Range], *, backwards: bool = False, pace: Pace | None = None
    ) -> Search:
        """A search that has not begun; empty ranges hold nothing."""
        pace = pace or Pace()
        left = {p: r for p, r in ranges.items() if r.size > 0}
        return cls(dict(ranges), left, backwards, pace, pace.first)

    @property
    def total(self) -> int:
        return sum(r.size for r in self.asked.values() if r.size > 0)

    def next_window(self) -> Mapping[TopicPartition, Range]:
        """The ranges to look at next, none when the search is over.

        All open partitions take part alike; what small ones leave goes to the others.
        """
        window: dict[TopicPartition, Range] = {}
        budget, open_ = self.size, len(self.left)
        for partition, left in sorted(self.left.items(), key=lambda item: (item[1].size, item[0])):
            share = min(left.size, max(self.pace.least, budget // open_))
            start = left.end - share if self.backwards else left.start
            window[partition] = Range(start, start + share)
            budget, open_ = budget - share, open_ - 1
        return window

    def looked_at(self, window: Mapping[TopicPartition, Range], matches: Mapping[TopicPartition, int]) -> Search:
        """After all records of ``window`` were looked at. ``matches``: the first match of each partition that has one
        there, or the last when the search goes backwards."""
        left: dict[TopicPartition, Range] = {}
        for partition, rest in self.left.items():
            seen = window[partition]
            if partition in matches:
                continue
            rest = Range(rest.start, seen.start) if self.backwards else Range(seen.end, rest.end)
            if rest.size > 0:
                left[partition] = rest
        return replace(
            self,
            left=left,
            found={**self.found, **matches},
            read=self.read + sum(r.size for r in window.values()),
            size=min(self.size * self.pace.growth, self.pace.most),
        )

    def trimmed(self, starts: Mapping[TopicPartition, int]) -> Search:
        """The logs begin at ``starts`` now: what lies before is gone, and no search finds it."""
        left = {p: Range(max(r.start, starts.get(p, r.start)), r.end) for p, r in self.left.items()}
        return replace(self, left={p: r for p, r in left.items() if r.size > 0})


def tasks_for(window: Mapping[TopicPartition, Range], cores: int) -> int:
    """How many tasks at least, so that no core waits for another: a hot partition is cut, and many alike are not.

    Spark's connector leaves partitions whole when asked for no more tasks than there are partitions, else it cuts them
    in proportion to their size (``KafkaOffsetRangeCalculator``).
    """
    sizes = [r.size for r in window.values()]
    whole_rounds = len(sizes) % cores == 0 or len(sizes) >= 4 * cores
    if sizes and whole_rounds and max(sizes) * len(sizes) <= EVEN * sum(sizes):
        return len(sizes)
    return len(sizes) + 2 * cores
