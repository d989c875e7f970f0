"""The control and ack topics in memory; `tests/contract/test_control_topics.py` runs against them and against Kafka."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.control.acks import with_newest, without
from tidegate.control.codec import Unreadable, decode, encode_key, encode_value
from tidegate.control.gates import Gates
from tidegate.control.records import (
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
    Value,
)
from tidegate.kafka.errors import Fenced, KafkaFailure, Refused, Unavailable


@dataclass
class FakeTopics:
    """The topics themselves, for any number of clients."""

    control_exists: bool = False
    acks_exist: bool = False
    end: int = 0
    """The control topic's log end offset."""
    gates: Gates = field(default_factory=Gates)
    acks: dict[AckKey, tuple[Ack, ...]] = field(default_factory=dict)
    """Those that are believed, of every group."""
    heard: bool = False
    unreadable: int = 0
    complaints: tuple[str, ...] = ()
    epochs: Counter[str] = field(default_factory=Counter)
    """How many processes of an operator have taken over so far."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    version: int = 0
    """Counts every change, so that a reader can wait for one."""


class FakeControlTopics:
    """Implements `tidegate.control.ports.ControlTopics`. Thread-safe.

    `ack`, `garble` and `lose` are what agents and others do to the topics; `failure` is raised by every call while it
    is set. `writes` lists what was written through this client: ("hold", "limit", "release", "partition", "clock",
    "claim", "withdraw" or "run", key).
    `now_ms` is the broker's clock. `operator`: as whose newest process it writes; empty: as nobody's.
    """

    def __init__(
        self,
        topics: FakeTopics | None = None,
        operator: str = "",
        *,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.topics = topics or FakeTopics()
        self.failure: KafkaFailure | None = None
        self.writes: list[tuple[str, Key]] = []
        self._sleep = sleep
        self._now_ms = now_ms
        self._operator = operator
        self._epoch = 0
        """Among the operator's processes; 0: it has not taken over yet."""
        self._seen = 0
        self._exist = False

    # --- others -------------------------------------------------------------------------------------------------------

    def ack(self, group: str, topic: str, partition: int, ack: Ack) -> None:
        """What an agent says. An epoch that was not reached makes it nobody's word, now and later."""
        with self.topics.lock:
            self.topics.acks_exist = self.topics.heard = True
            key = AckKey(group, topic, partition)
            before = self.topics.acks.pop(key, ())
            is_reached = ack.epoch < max(self.topics.end, 1)
            if acks := with_newest(before, ack) if is_reached else without(before, ack.member):
                self.topics.acks[key] = acks
            self.topics.version += 1

    def garble(self) -> None:
        """A record on the control topic that nobody can read."""
        with self.topics.lock:
            self.topics.end += 1
            self.topics.unreadable += 1
            self.topics.version += 1

    def lose(self) -> None:
        """Somebody deletes the control topic; the ack topic stays."""
        with self.topics.lock:
            self.topics.control_exists = False
            self.topics.end = 0
            self.topics.unreadable = 0
            self.topics.gates = Gates()
            of_no_epoch = {key: tuple(a for a in acks if a.epoch < 1) for key, acks in self.topics.acks.items()}
            self.topics.acks = {key: acks for key, acks in of_no_epoch.items() if acks}
            self.topics.version += 1

    # --- the port -----------------------------------------------------------------------------------------------------

    @property
    def exist(self) -> bool:
        return self._exist

    @property
    def unreadable(self) -> int:
        return self.topics.unreadable

    def ensure(self) -> tuple[str, ...]:
        self._answer()
        with self.topics.lock:
            self.topics.control_exists = self.topics.acks_exist = True
            self._check_epoch()
            return self.topics.complaints

    def confirm(self) -> None:
        self._answer()
        with self.topics.lock:
            if self._epoch:
                self._check_epoch()

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        self._answer()
        waited = 0.0
        while self.topics.version == self._seen and waited < wait_s:
            self._sleep(0.01)
            waited += 0.01
        with self.topics.lock:
            self._seen = self.topics.version
            self._exist = self.topics.control_exists and self.topics.acks_exist
            acks = {key: ack for key, ack in self.topics.acks.items() if key.group in groups}
            return self.topics.gates.copy(acks, heard=self.topics.heard)

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        self._answer()
        self._check(holds)
        epochs = {}
        with self.topics.lock:
            self._need_control(len(holds))
            for key, hold in holds.items():
                # As in Kafka, no hold has epoch 0.
                epochs[key] = self._append("hold", key, hold) or self._append("hold", key, hold)
        return epochs

    def limit(self, limits: Mapping[LimitKey, Limit]) -> Mapping[LimitKey, int]:
        self._answer()
        self._check(limits)
        with self.topics.lock:
            self._need_control(len(limits))
            return {
                key: self._append("limit", key, limit) or self._append("limit", key, limit)
                for key, limit in limits.items()
            }

    def release(self, keys: Iterable[HoldKey | LimitKey]) -> None:
        self._answer()
        with self.topics.lock:
            if self.topics.control_exists:
                for key in keys:
                    self._append("release", key, None)

    def write_partitions(self, records: Mapping[PartitionKey, PartitionSeen | None]) -> None:
        self._answer()
        self._check(records)
        with self.topics.lock:
            self._need_control(len(records))
            for key, seen in records.items():
                self._append("partition", key, seen)

    def note_runs(self, records: Mapping[RunKey, Run | None]) -> None:
        self._answer()
        self._check(records)
        with self.topics.lock:
            self._need_control(len(records))
            for key, run in records.items():
                self._append("run", key, run)

    def write_clock(self) -> int:
        self._answer()
        with self.topics.lock:
            self._need_control(1)
            now_ms = self._now_ms()
            self._append("clock", ClockKey(), None, now_ms)
            return now_ms

    def claim(self, key: ClaimKey, claim: Claim) -> None:
        self._answer()
        self._check({key: claim})
        with self.topics.lock:
            self._need_control(1)
            self._append("claim", key, claim, self._now_ms())

    def withdraw(self, keys: Iterable[ClaimKey]) -> None:
        self._answer()
        with self.topics.lock:
            if self.topics.control_exists:
                for key in keys:
                    self._append("withdraw", key, None)

    def close(self) -> None:
        pass

    @staticmethod
    def _check(
        records: Mapping[HoldKey, Hold]
        | Mapping[LimitKey, Limit]
        | Mapping[PartitionKey, PartitionSeen | None]
        | Mapping[ClaimKey, Claim]
        | Mapping[RunKey, Run | None],
    ) -> None:
        try:
            for key, value in records.items():
                decode(encode_key(key), encode_value(value))
        except (Unreadable, UnicodeEncodeError) as error:
            raise Refused(f"write a record: {error}") from None

    def _need_control(self, records: int) -> None:
        if records and not self.topics.control_exists:
            raise Unavailable(f"write {records} record(s): there is no such topic")

    def _check_epoch(self) -> None:
        """Take over, or be told that a later process has."""
        if self._operator and not self._epoch:
            self.topics.epochs[self._operator] += 1
            self._epoch = self.topics.epochs[self._operator]
        if self._epoch != self.topics.epochs[self._operator]:
            raise Fenced("write a record: another process of this operator writes the control topic now")

    def _append(self, what: str, key: Key, value: Value, at_ms: int | None = None) -> int:
        self._check_epoch()
        offset = self.topics.end
        self.topics.end += 1
        self.topics.version += 1
        self.topics.gates.take(key, value, offset, at_ms)
        self.writes.append((what, key))
        return offset

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure
