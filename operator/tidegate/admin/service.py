"""Pausing, resuming and listing, in the caller's thread and over the ports.

The library and the command line stand on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from tidegate.admin.errors import (
    ControlTopicUnfit,
    NotConfirmed,
    PauseFailure,
    UnknownPartition,
    UnmanagedOwner,
    UnsupportedGroup,
)
from tidegate.admin.waiting import FIRST_WORD_S, OBEY_S, SILENCE_S, Patience, PauseWatch
from tidegate.cluster import Kafka
from tidegate.control.gates import Gates, Held
from tidegate.control.records import CLI_HOLDER as CLI_HOLDER
from tidegate.control.records import Hold, HoldKey
from tidegate.control.standing import PartitionStanding, standings
from tidegate.kafka.errors import KafkaFailure, Unavailable
from tidegate.kafka.model import GroupType, LogBounds, TopicPartition

DRAIN_TIMEOUT: Final = timedelta(seconds=30)
_LOOK_S: Final = 0.05
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Monotonic(Protocol):
    """The part of ``tidegate.clock.Clock`` that waiting needs."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Resumed:
    """``was_held``: whether there was a hold of ours; ``still_held_by``: the others that keep the gate closed."""

    was_held: bool
    still_held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldBy:
    """One holder of a gate. ``since``: by the broker's clock, where it is known."""

    holder: str
    reason: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class PausedPartition:
    """A partition whose gate is closed. ``holds``: the oldest first; never empty.

    ``committed_offset``, ``log_end_offset``: ``None`` where there is none; the latter for a partition that is gone.
    """

    partition: TopicPartition
    standing: PartitionStanding
    holds: tuple[HeldBy, ...]
    committed_offset: int | None
    log_end_offset: int | None

    @property
    def since(self) -> datetime | None:
        return self.holds[0].since

    @property
    def lag(self) -> int | None:
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset


Tell = Callable[[TopicPartition, PartitionStanding | Exception], None]
"""Told once of each partition: how it stands now that it is paused, or why it is not."""


class Pauses:
    """Holds of one holder through one connection. Blocks; thread-safe as far as the connection is."""

    def __init__(self, kafka: Kafka, clock: Monotonic, holder: str = CLI_HOLDER) -> None:
        self._kafka = kafka
        self._clock = clock
        self._holder = holder

    def pause(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        tell: Tell,
        *,
        reason: str = "",
        drain_timeout: timedelta = DRAIN_TIMEOUT,
        timeout: timedelta | None = None,
    ) -> None:
        """Hold the partitions and wait until each stands still, or is given up.

        ``timeout``: absent, a little longer than ``drain_timeout``. Holds that are there already are kept as they are.
        Raises ``ControlTopicUnfit``, ``UnsupportedGroup`` and ``KafkaFailure`` before anything was told; nothing is
        held then, unless writing the holds itself failed.
        """
        complaints = self._kafka.control.ensure()
        if complaints:
            raise ControlTopicUnfit(complaints)
        group = self._kafka.groups([group_id])[group_id]
        if group.type in (GroupType.STREAMS, GroupType.SHARE):
            raise UnsupportedGroup(f"group {group_id} is a {group.type} group, which no agent can pause")
        existing = self._existing(partitions)
        gates = self._kafka.control.read([group_id])
        hold = Hold(reason, drain_timeout // timedelta(milliseconds=1))
        fresh = self._not_held(gates, group_id, existing)
        epochs = self._epochs(gates, group_id, existing)
        epochs |= {k.topic_partition: e for k, e in self._kafka.control.hold(dict.fromkeys(fresh, hold)).items()}
        for partition in sorted(set(partitions) - existing):
            tell(partition, UnknownPartition(partition))

        drain_s = drain_timeout.total_seconds()
        patience = Patience(
            timeout_s=drain_s + OBEY_S if timeout is None else timeout.total_seconds(),
            drain_s=drain_s,
            silence_s=SILENCE_S if gates.heard else FIRST_WORD_S,
        )
        watch = PauseWatch.begin(existing, patience, self._clock.monotonic())
        while watch.waiting:
            for partition, outcome in self._look(watch, group_id, epochs, fresh).items():
                tell(partition, outcome)

    def _look(
        self,
        watch: PauseWatch,
        group_id: str,
        epochs: Mapping[TopicPartition, int],
        fresh: Collection[HoldKey],
    ) -> dict[TopicPartition, PartitionStanding | Exception]:
        """One look at what is waited for; what it has settled."""
        try:
            # In this order: an owner that comes in between must not look as if it had said nothing.
            group = self._kafka.groups([group_id])[group_id]
            stand = standings(self._kafka.control.read([group_id], wait_s=_LOOK_S), group, watch.waiting, epochs)
        except Unavailable as error:
            if self._clock.monotonic() - watch.since >= watch.patience.timeout_s:
                return dict(watch.give_up(str(error)))
            self._clock.sleep(_LOOK_S)
            return {}
        except KafkaFailure as error:
            return dict(watch.give_up(str(error)))
        look = watch.look(stand, self._clock.monotonic())
        return {**look.paused, **self._taken_back(look.failed, fresh)}

    def _taken_back(
        self, failed: Mapping[TopicPartition, PauseFailure], fresh: Collection[HoldKey]
    ) -> Mapping[TopicPartition, PauseFailure]:
        """Without their holds where nobody obeys them; only the holds of this call."""
        unobeyed = {p for p, failure in failed.items() if isinstance(failure, UnmanagedOwner)}
        try:
            self._kafka.control.release([key for key in fresh if key.topic_partition in unobeyed])
        except KafkaFailure as error:
            why = f"taking the hold back failed ({error})"
            return {p: NotConfirmed(p, None, f"{f}, and {why}") if p in unobeyed else f for p, f in failed.items()}
        return failed

    def resume(self, group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Resumed]:
        """Release our holds, whether or not the partitions exist. Raises ``KafkaFailure``."""
        wanted = {p: self._key(group_id, p) for p in partitions}
        held = frozenset(self._kafka.control.read().holds) & frozenset(wanted.values())
        self._kafka.control.release(sorted(held))
        gates = self._kafka.control.read()
        return {
            p: Resumed(key in held, tuple(sorted(k.holder for k in gates.holders(group_id, p) if k != key)))
            for p, key in wanted.items()
        }

    def held(self, group_id: str, *, by_us: bool = False) -> frozenset[TopicPartition]:
        """The partitions of the group whose gates are closed; ``by_us``: by our holds. Raises ``KafkaFailure``."""
        holds = self._kafka.control.read().of_group(group_id)
        return frozenset(key.topic_partition for key, _ in holds if not by_us or key.holder == self._holder)

    def groups(self) -> tuple[str, ...]:
        """The groups of which anything is held, by anybody, sorted. Raises ``KafkaFailure``."""
        return tuple(sorted({key.group for key in self._kafka.control.read().holds}))

    def paused(self, group_id: str) -> Mapping[TopicPartition, PausedPartition]:
        """Every partition of the group whose gate is closed, whoever holds it, sorted. Raises ``KafkaFailure``."""
        group = self._kafka.groups([group_id])[group_id]
        gates = self._kafka.control.read([group_id])
        held = sorted({key.topic_partition for key, _ in gates.of_group(group_id)})
        if not held:
            return {}
        stand = standings(gates, group, held)
        committed = self._kafka.committed(group_id, held)
        bounds = self._bounds(held)
        return {
            p: PausedPartition(
                partition=p,
                standing=stand[p],
                holds=_holds(gates, group_id, p),
                committed_offset=committed.get(p),
                log_end_offset=bounds[p].latest if p in bounds else None,
            )
            for p in held
        }

    def _bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        existing = self._existing(partitions)
        return self._kafka.log_bounds(sorted(existing)) if existing else {}

    def _existing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        topics = self._kafka.topics()
        return {p for p in partitions if p.topic in topics and 0 <= p.partition < topics[p.topic].partitions}

    def _not_held(self, gates: Gates, group_id: str, partitions: Iterable[TopicPartition]) -> list[HoldKey]:
        """Writing a hold anew would only give it a later epoch, which every owner had to ack again."""
        return [key for p in sorted(partitions) if (key := self._key(group_id, p)) not in gates.holds]

    def _epochs(self, gates: Gates, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        keys = ((p, self._key(group_id, p)) for p in partitions)
        return {p: gates.holds[key].epoch for p, key in keys if key in gates.holds}

    def _key(self, group_id: str, partition: TopicPartition) -> HoldKey:
        return HoldKey(group_id, partition.topic, partition.partition, self._holder)


def since_of(held: Held) -> datetime | None:
    """Since when it is held, by the broker's clock; ``None`` where that is not known, or is no time of a calendar:
    where a topic's timestamps are its writers', they may say anything."""
    try:
        return None if held.since_ms is None else _EPOCH + timedelta(milliseconds=held.since_ms)
    except OverflowError:
        return None


def _holds(gates: Gates, group_id: str, partition: TopicPartition) -> tuple[HeldBy, ...]:
    held = sorted(gates.holders(group_id, partition).items(), key=lambda item: item[1].epoch)
    return tuple(
        HeldBy(
            holder=key.holder,
            reason=of.hold.reason,
            since=since_of(of),
        )
        for key, of in held
    )
