"""A consumer's client, its partitions' records and the group's offsets, simulated on a clock that tests move.

``tests/contract/test_agent_client.py`` holds the client to librdkafka's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidegate_agent.ages import Clock, PartitionTable
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Commit, Committed, Effect, Forget, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import GateTable, Known, Partition
from tidegate_agent.records import Hold, HoldKey, Limit, LimitKey, PartitionKey, PartitionSeen
from tidegate_agent.start import Rule, Start

P0 = Partition("orders", 0)
P1 = Partition("orders", 1)


@dataclass
class Client:
    """As librdkafka does it: ``position`` is None until something is delivered; a seek forgets it.

    Without a committed offset it begins at the log's end, or as ``begins`` says; assigned again it is still paused if
    it was. What is delivered is stored for the next commit of what is stored; ``auto_stores``: by the client, not by
    the application, and then it cannot be forgotten. ``stores_late``: the application stores it by ``store``, when it
    likes. ``drops``: how many of the next pauses and resumes it drops without a word (librdkafka issue 5591).
    """

    committed: dict[Partition, int] = field(default_factory=dict)
    position: dict[Partition, int | None] = field(default_factory=dict)
    next: dict[Partition, int] = field(default_factory=dict)
    stored: dict[Partition, int] = field(default_factory=dict)
    paused: set[Partition] = field(default_factory=set)
    delivered: list[tuple[Partition, int]] = field(default_factory=list)
    log_end: dict[Partition, int] = field(default_factory=dict)
    drops: int = 0
    auto_stores: bool = False
    stores_late: bool = False
    begins: Start = Start.LATEST

    def begin(self, partition: Partition) -> None:
        self.begin_at(partition, self.begins)
        self.next[partition] = self.committed.get(partition, self.next[partition])
        self.position[partition] = None
        self.stored.pop(partition, None)

    def pause(self, partitions: Collection[Partition]) -> None:
        if not self._drops():
            self.paused |= set(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        if not self._drops():
            self.paused -= set(partitions)

    def seek(self, partition: Partition, offset: int) -> None:
        self.next[partition], self.position[partition] = offset, None

    def begin_at(self, partition: Partition, start: Start) -> None:
        self.seek(partition, 0 if start is Start.EARLIEST else self.log_end.get(partition, 0))

    def commit_stored(self, partitions: Collection[Partition]) -> None:
        self.committed.update({p: self.stored[p] for p in partitions if p in self.stored})

    def forget(self, partitions: Collection[Partition]) -> None:
        if not self.auto_stores:
            for partition in partitions:
                self.stored.pop(partition, None)

    def _drops(self) -> bool:
        if not self.drops:
            return False
        self.drops -= 1
        return True

    def deliver(self, partition: Partition, count: int = 1) -> None:
        """What poll would give; nothing of a paused partition."""
        if partition in self.paused:
            return
        for _ in range(count):
            offset = self.next[partition]
            self.delivered.append((partition, offset))
            self.next[partition] = self.position[partition] = offset + 1
            if not self.stores_late:
                self.store(partition, offset + 1)

    def store(self, partition: Partition, offset: int) -> None:
        self.stored[partition] = offset


class Consumer:
    """The core with a simulated client below it and a control topic above."""

    def __init__(
        self,
        *,
        auto_commit: bool = False,
        open_unread_after_s: float | None = None,
        client: Client | None = None,
        rule: Rule | None = None,
        may_drop: bool = False,
    ) -> None:
        self.client = client or Client()
        self.client.auto_stores = auto_commit
        self.auto_commit = auto_commit
        self.core = Core("g", auto_commit, auto_commit, open_unread_after_s, rule, may_drop)
        self.now = 0.0
        self.table = GateTable()
        self.partitions = PartitionTable()
        self.clock: Clock | None = None
        self.topic_ids: dict[str, str] = {}
        self.taken = 0
        """The first record is no hold: epoch 0 would say nothing."""
        self.answered = 0
        self.generation = 1
        self.acks: list[tuple[Partition, int, int]] = []
        self.effects: list[Effect] = []
        self.failing: set[type] = set()
        self.unstable: set[Partition] = set()

    # --- the outside --------------------------------------------------------------------------------------------------

    def hold(self, partition: Partition, holder: str = "h", drain_s: float = 30.0, reason: str = "") -> int:
        self.taken += 1
        key = HoldKey("g", *partition, holder)
        self.table.take(key, Hold(reason, round(drain_s * 1000)), self.taken)
        self._tell()
        return self.taken

    def release(self, partition: Partition, holder: str = "h") -> None:
        self.taken += 1
        self.table.take(HoldKey("g", *partition, holder), None, self.taken)
        self._tell()

    def limit(self, partition: Partition, offset: int, holder: str = "h", drain_s: float = 30.0) -> int:
        self.taken += 1
        key = LimitKey("g", *partition, holder)
        self.table.take(key, Limit(offset, "", round(drain_s * 1000)), self.taken)
        self._tell()
        return self.taken

    def unlimit(self, partition: Partition, holder: str = "h") -> None:
        self.taken += 1
        self.table.take(LimitKey("g", *partition, holder), None, self.taken)
        self._tell()

    def poll(self, partition: Partition, offsets: Collection[int]) -> None:
        """A fetched batch comes to the application through an adapter, which moves back to what may not be given."""
        if partition in self.client.paused:
            return
        for offset in offsets:
            if self.core.is_withheld(partition, offset):
                self.core.withheld({partition: offset})
                self.core.leaked([partition], self.now)
                self.client.seek(partition, offset)
                return
            self.core.delivers({partition: offset + 1})
            self.client.next[partition] = offset
            self.client.deliver(partition)

    def discover(
        self, partition: Partition, seen_ms: int | None = None, *, gone: bool = False, topic_id: str = "id"
    ) -> None:
        """A partition record; without a time: it was there at the first discovery."""
        self.taken += 1
        seen = None if gone else PartitionSeen(seen_ms, initial=seen_ms is None)
        self.partitions.take(PartitionKey(partition.topic, topic_id, partition.partition), seen)
        self._tell()

    def tick(self, broker_ms: int, *, is_live: bool = True) -> None:
        """A clock record arrives now."""
        self.taken += 1
        self.clock = Clock(broker_ms, self.now, is_live)
        self._tell()

    def identify(self, topic: str = "orders", topic_id: str = "id") -> None:
        """The brokers told the topic's id."""
        self.topic_ids[topic] = topic_id
        self._tell()

    def recreate_control_topic(self, held: Collection[Partition] = ()) -> None:
        """Read to its end, with holds on these in it."""
        self.table, self.taken, self.generation = GateTable(), len(held), self.generation + 1
        for offset, partition in enumerate(held, 1):
            self.table.take(HoldKey("g", *partition, "h"), Hold(), offset)
        self._tell()

    def answer(self, ticket: int = 1) -> None:
        """The control topic was read to its end."""
        self.answered = max(self.answered, ticket)
        self._tell()

    def _tell(self) -> None:
        self.core.know(
            Known(
                self.table.gates(),
                self.taken,
                self.answered,
                self.generation,
                self.partitions.view(),
                dict(self.topic_ids),
                self.clock,
                self.table.moved(),
                self.table.limits(),
            )
        )

    # --- the application ----------------------------------------------------------------------------------------------

    def assign(self, *partitions: Partition, ticket: int = 1, answered: bool = True) -> None:
        for partition in partitions:
            self.client.begin(partition)
        self.client.pause(self.core.assigned(partitions, ticket, self.now))
        if answered:
            self.answer(ticket)
        self.run()

    def commit(self, partition: Partition, offset: int) -> bool:
        """Whether it reached the broker."""
        if self.core.dropped({partition: offset}, lambda ps: {p: self.client.position[p] for p in ps}):
            return False
        self.client.committed[partition] = offset
        return True

    # --- the driver ---------------------------------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> None:
        """Do what is due, and whatever comes due within these seconds."""
        end = self.now + seconds
        while True:
            while (effect := self.core.work(self.now)) is not None:
                self.perform(effect)
            wakes_at = self.core.wakes_at()
            if wakes_at is None or wakes_at > end:
                self.now = end
                return
            assert wakes_at > self.now, f"the driver would spin at {self.now}"
            self.now = wakes_at

    def perform(self, effect: Effect) -> None:
        self.effects.append(effect)
        if type(effect) in self.failing:
            self.core.failed(effect, self.now)
            return
        client = self.client
        result: dict[Partition, int | None] | list[Partition] = {}
        match effect:
            case Pause():
                client.pause(effect.partitions)
            case Resume():
                client.resume(effect.partitions)
            case Position():
                result = {p: client.position[p] for p in effect.partitions}
            case Commit():
                client.commit_stored(effect.partitions)
            case Committed():
                result = {p: client.committed.get(p) for p in effect.partitions if p not in self.unstable}
            case Forget():
                client.forget(effect.partitions)
            case Seek():
                for partition, offset in effect.offsets.items():
                    client.seek(partition, offset)
                result = list(effect.offsets)
            case Begin():
                for partition in effect.partitions:
                    client.begin_at(partition, effect.start)
                result = list(effect.partitions)
            case SendAcks():
                self.acks += [(p, epoch, offset) for p, (epoch, offset) in effect.acks.items()]
        self.core.done(effect, self.now, result)

    def last_ack(self, partition: Partition = P0) -> tuple[int, int] | None:
        """Epoch and offset of the newest ack."""
        found = [(epoch, offset) for p, epoch, offset in self.acks if p == partition]
        return found[-1] if found else None
