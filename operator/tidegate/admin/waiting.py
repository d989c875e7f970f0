"""Waiting for a pause: when does a partition count as paused, and when is it given up. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.admin.errors import HoldTakenBack, NotConfirmed, PauseFailure, UnmanagedOwner
from tidegate.control.standing import Flow, PartitionStanding
from tidegate.kafka.model import TopicPartition

SILENCE_S: Final = 3.0
"""An owner that has joined just now speaks within moments; one that is silent for so long runs no agent."""

FIRST_WORD_S: Final = 15.0
"""The same where no agent at all has ever said anything: the topics may be new, and agents have yet to find them."""

OBEY_S: Final = 3.0
"""How long obeying takes beyond the drain time-out."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for the whole, for owners to drain, for silent owners."""

    timeout_s: float
    drain_s: float
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has settled."""

    paused: Mapping[TopicPartition, PartitionStanding]
    failed: Mapping[TopicPartition, PauseFailure]


@dataclass(slots=True)
class PauseWatch:
    """What is still waited for. ``since``: the monotonic time of the holds."""

    waiting: set[TopicPartition]
    patience: Patience
    since: float
    _silent: dict[TopicPartition, tuple[str, float]] = field(default_factory=dict)

    @classmethod
    def begin(cls, partitions: Collection[TopicPartition], patience: Patience, now: float) -> PauseWatch:
        return cls(set(partitions), patience, now)

    def look(self, standings: Mapping[TopicPartition, PartitionStanding], now: float) -> Look:
        """Take what is settled out of ``waiting``. ``standings`` covers at least that."""
        paused: dict[TopicPartition, PartitionStanding] = {}
        failed: dict[TopicPartition, PauseFailure] = {}
        late = now - self.since >= self.patience.timeout_s
        for partition in sorted(self.waiting):
            standing = standings[partition]
            if self._is_paused(standing, now):
                paused[partition] = standing
            elif standing.flow is Flow.OPEN:
                failed[partition] = HoldTakenBack(partition)
            elif (
                standing.flow is Flow.UNMANAGED
                and standing.owner is not None
                and self._is_silent(partition, standing, now)
            ):
                failed[partition] = UnmanagedOwner(partition, standing.owner)
            elif late:
                failed[partition] = NotConfirmed(partition, standing)
        self.waiting -= {*paused, *failed}
        return Look(paused, failed)

    def give_up(self, why: str) -> Mapping[TopicPartition, PauseFailure]:
        """Everything that is left fails, the holds stay."""
        left = {p: NotConfirmed(p, None, why) for p in sorted(self.waiting)}
        self.waiting.clear()
        return left

    def _is_paused(self, standing: PartitionStanding, now: float) -> bool:
        if standing.is_paused:
            return True
        # A consumer that had assigned the partition itself and may be long gone; alive, it has obeyed by now.
        return (
            standing.flow is Flow.CLOSING
            and standing.owner is None
            and now - self.since >= self.patience.drain_s + OBEY_S
        )

    def _is_silent(self, partition: TopicPartition, standing: PartitionStanding, now: float) -> bool:
        member = standing.owner.member_id if standing.owner is not None else ""
        who, since = self._silent.get(partition, ("", now))
        if who != member:
            who, since = member, now
        self._silent[partition] = (who, since)
        return now - since >= min(self.patience.silence_s, self.patience.timeout_s)
