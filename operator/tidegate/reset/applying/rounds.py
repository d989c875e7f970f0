"""What a run does in rounds: one pass over the partitions that still have to get their targets, and what came of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.model import Member, TopicPartition
from tidegate.reset.applying.verify import Watched
from tidegate.reset.model.result import Standstill

Partitions = frozenset[TopicPartition]

NO_PARTITIONS: Final[Partitions] = frozenset()

MAX_ROUNDS: Final = 8
"""When this was measured, 3 of 54 runs needed a second round, none a third."""


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over the partitions that still have to get their targets.

    ``before``: where the group stood before the run, by which it is judged what is old; owners that let go for the
    first time commit once more, and the first round (``learns``) takes that up. ``learned``: the same without what may
    be progress from the targets; that is where the run goes back to.
    """

    number: int
    targets: Mapping[TopicPartition, int]
    before: dict[TopicPartition, int]
    learned: dict[TopicPartition, int] = field(default_factory=dict)
    learns: bool = False
    lifts: bool = False
    """The limits of a replay are taken back with it, instead of written before it."""

    @property
    def pending(self) -> Partitions:
        return frozenset(self.targets)

    def overwritten_at_release(self, seen: Mapping[TopicPartition, int]) -> Partitions:
        """Judge offsets read just as the owners let go."""
        return frozenset(
            p
            for p, target in self.targets.items()
            if Watched(self.before.get(p), target, seen.get(p)).overwritten_before_release
        )


@dataclass(frozen=True, slots=True)
class Emptied:
    """All members were made to leave, so the group may have been Empty, and to an Empty group anybody may commit.

    ``at_return``: what was committed as somebody was back, too early for progress from the targets; ``None`` where
    nobody was back yet.
    """

    at_return: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of a round's partitions once their owners have let go. Those in no set *held*: whoever reads them
    next begins at the target.

    ``overwritten``: an older offset was committed over the target. ``unsure``: somebody may go on from elsewhere,
    whatever is committed. ``not_tried``: left to the next round. A partition may be in several.

    Why: ``kept`` are those of ``unsure`` that owners kept, or may have, although they were made to leave;
    ``left_open`` those for which an owner may have sent an older offset to a transaction that outlasts the join.
    ``left``: the owners that were made to leave. ``sending``: partitions for which those of them had a transaction open
    that name no member as they send offsets, so that an older one may yet come in their next transaction.
    """

    overwritten: Partitions = NO_PARTITIONS
    unsure: Partitions = NO_PARTITIONS
    not_tried: Partitions = NO_PARTITIONS
    kept: Partitions = NO_PARTITIONS
    left_open: Partitions = NO_PARTITIONS
    emptied: Emptied | None = None
    left: tuple[Member, ...] = ()
    sending: Partitions = NO_PARTITIONS

    @property
    def not_held(self) -> Partitions:
        """What is to be done again."""
        return self.overwritten | self.unsure | self.not_tried


@dataclass(slots=True)
class Times:
    """When each partition's owner was made to let go, and when it had the partition again (monotonic seconds); absent
    from ``resumed`` while nobody is known to have it again."""

    stopped: dict[TopicPartition, float] = field(default_factory=dict)
    resumed: dict[TopicPartition, float] = field(default_factory=dict)

    def stop(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The first time counts: what an owner had in between was not from the target on."""
        for partition in partitions:
            self.stopped.setdefault(partition, now)
            self.resumed.pop(partition, None)

    def stop_anew(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Their owners have read on all the same."""
        for partition in partitions:
            self.stopped[partition] = now
            self.resumed.pop(partition, None)

    def resume(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The last time counts."""
        self.resumed |= dict.fromkeys(partitions, now)

    def standstill(self) -> Standstill | None:
        spans = [self.resumed[p] - self.stopped[p] for p in self.resumed if p in self.stopped]
        return Standstill(p50_s=statistics.median(spans), max_s=max(spans)) if spans else None
