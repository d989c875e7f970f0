"""What the adapters of aiokafka and kafka-python have in common: one consumer's core, and which commits it lets pass.

Both clients send every commit, whoever asked for it, from one place; there its offsets pass ``ConsumerGate``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidegate_agent.core import Core
from tidegate_agent.effects import Effect
from tidegate_agent.gates import Known, Partition

log = logging.getLogger("tidegate_agent")


class Link(Protocol):
    """The way to the control topic and the ack topic, see ``tidegate_agent.control.ControlLink``."""

    @property
    def known(self) -> Known: ...

    def ask(self, topics: Collection[str] = (), /) -> int: ...

    def listen(self, changed: Callable[[], None]) -> None: ...

    def unlisten(self, changed: Callable[[], None]) -> None: ...

    def send_acks(
        self,
        group: str,
        member: str,
        acks: Mapping[Partition, tuple[int, int]],
        generation: int,
        done: Callable[[bool], None],
        /,
    ) -> None: ...


class Record(Protocol):
    """A record of any client."""

    @property
    def offset(self) -> int: ...


class Unreachable:
    """A ``Link`` to nowhere: no gate is ever read. What becomes of the partitions is the settings' to say."""

    known = Known()

    def ask(self, _topics: Collection[str] = (), /) -> int:
        return 1

    def listen(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""

    def unlisten(self, changed: Callable[[], None]) -> None:
        """Nothing to end."""

    def send_acks(
        self,
        _group: str,
        _member: str,
        _acks: Mapping[Partition, tuple[int, int]],
        _generation: int,
        done: Callable[[bool], None],
        /,
    ) -> None:
        done(False)


@dataclass(frozen=True)
class Passed:
    """A commit that may go to the client: ``dropped`` is to be taken out of it first."""

    dropped: frozenset[Partition]
    calls: tuple[tuple[ConsumerGate, int], ...]

    def ends(self) -> None:
        """The client has had the broker's answer, or has given up."""
        for gate, call in self.calls:
            gate.commit_ends(call)


@dataclass(eq=False)
class ConsumerGate:
    """The core of one consumer under a lock, for the threads that call into it.

    ``wake`` is called, from any thread, when there may be work that was not there before.

    ``delivered``: by partition the offset after the last record that was handed to the application, ``None`` where
    none was since it was assigned or sought.
    """

    core: Core
    link: Link
    delivered: Callable[[tuple[Partition, ...]], Mapping[Partition, int | None]]
    wake: Callable[[], None]
    app_paused: set[Partition] = field(default_factory=set)
    closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _committed: dict[Partition, int | None] = field(default_factory=dict)
    _in_trouble: bool = False

    def __post_init__(self) -> None:
        _of_group.setdefault(self.core.group, weakref.WeakSet()).add(self)

    # --- assignment ---------------------------------------------------------------------------------------------------

    def reassign(self, lost: Mapping[Partition, int | None], got: Iterable[Partition]) -> tuple[Partition, ...]:
        """Partitions that are gone, as ``delivered`` tells of them, and that are new.

        Returns those that must be paused before they deliver anything.
        """
        got = tuple(got)
        with self._lock:
            self.app_paused -= {*lost, *got}
            for partition in (*lost, *got):
                self._committed.pop(partition, None)
            self.core.revoked(lost, lost)
            if not got:
                return ()
            topics = {partition.topic for partition in got} if self.core.rule is not None else ()
            return self.core.assigned(got, self.link.ask(topics), time.monotonic())

    # --- the application ----------------------------------------------------------------------------------------------

    def pause(self, partitions: Collection[Partition]) -> None:
        with self._lock:
            self.app_paused |= set(partitions)
            self.core.app_paused(partitions)

    def resume(self, partitions: Collection[Partition]) -> tuple[Partition, ...]:
        """Those that may be resumed in the client now."""
        with self._lock:
            self.app_paused -= set(partitions)
            return self.core.app_resumed(partitions)

    def sought(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            for partition in partitions:
                self.core.app_sought(partition)

    # --- records ------------------------------------------------------------------------------------------------------

    def below_limit(self, partition: Partition, records: Sequence[Record], *, one_by_one: bool = False) -> int:
        """How many of these, in the order of their offsets, may be handed to the application.

        The rest is to be fetched again: the client's position is to be moved back to the first of it. ``one_by_one``:
        the application takes the records below the limit later, or never. Then the limit is not reached before it is
        offered a batch that has none.
        """
        if not self.link.known.limits:
            return len(records)
        with self._lock:
            self.core.know(self.link.known)
            is_beyond = self.core.is_beyond_limit
            count = next((n for n, record in enumerate(records) if is_beyond(partition, record.offset)), len(records))
            is_reached = count == 0 if one_by_one else count < len(records)
            if records and is_reached:
                self.core.withheld({partition: records[count].offset})
        if records and is_reached:
            self.wake()
        return count

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit_begins(self, offsets: Mapping[Partition, int]) -> Passed:
        """Which of these offsets must not be committed; the rest may be sent until ``Passed.ends``."""
        with self._lock:
            self.core.know(self.link.known)
            # An auto-commit has all positions in it, also those that it need not commit: nothing to be said of these.
            old = {p for p in self.core.sealed() if p in offsets and offsets[p] == self._committed.get(p, -1)}
            # Both clients also commit positions at which nothing was delivered yet.
            old |= self.core.unplaced() & offsets.keys()
            rest = {p: offset for p, offset in offsets.items() if p not in old}
            dropped = self.core.dropped(rest, self.delivered) | old
            return Passed(dropped, ((self, self.core.commit_begins()),))

    def commit_ends(self, call: int) -> None:
        with self._lock:
            self.core.commit_ends(call)
            may_wait = bool(self.core.sealed())
        if may_wait:
            self.wake()

    def owns(self, partition: Partition) -> bool:
        with self._lock:
            return self.core.stage(partition) is not None

    # --- work ---------------------------------------------------------------------------------------------------------

    def work(self) -> Effect | None:
        with self._lock:
            self.core.know(self.link.known)
            return self.core.work(time.monotonic())

    def wakes_in(self) -> float | None:
        """Seconds until ``work`` may have something by itself; ``None``: not before something happens."""
        with self._lock:
            at = self.core.wakes_at()
        return None if at is None else max(0.0, at - time.monotonic())

    def done(self, effect: Effect, result: Mapping[Partition, int | None] | Collection[Partition] = ()) -> None:
        with self._lock:
            self.core.done(effect, time.monotonic(), result)

    def committed(self, effect: Effect, result: Mapping[Partition, int | None]) -> None:
        """``done`` for ``Committed``."""
        with self._lock:
            self._committed.update(result)
            self.done(effect, result)

    def failed(self, effect: Effect) -> None:
        with self._lock:
            self.core.failed(effect, time.monotonic())

    def failed_unforeseen(self, effect: Effect) -> None:
        """``failed``, by the error that is being handled; told once. The partitions stay as they are."""
        if not self._in_trouble:
            self._in_trouble = True
            log.exception("group %s: the agent cannot %s", self.core.group, type(effect).__name__.lower())
        self.failed(effect)

    def forked(self) -> None:
        """This is the copy in a forked process, where the consumer is not managed; another thread had the lock."""
        self.closed, self._lock = True, threading.RLock()


_of_group: dict[str, weakref.WeakSet[ConsumerGate]] = {}


def _forked() -> None:
    for gates in _of_group.values():
        for gate in gates:
            gate.forked()
    _of_group.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def transaction_begins(group: str, offsets: Mapping[Partition, int]) -> Passed:
    """``commit_begins`` for offsets that a producer adds to its transaction: they are of any consumer of the group."""
    passed = [gate.commit_begins(offsets) for gate in list(_of_group.get(group, ())) if not gate.closed]
    if not passed:
        return Passed(frozenset(), ())
    # What one consumer does not own, another one may: dropped is what its owner drops, or what nobody here owns.
    return Passed(_dropped_by_owners(passed, offsets), tuple(call for each in passed for call in each.calls))


def _dropped_by_owners(passed: list[Passed], offsets: Mapping[Partition, int]) -> frozenset[Partition]:
    found = set()
    for partition in offsets:
        owners = [each for each in passed if any(gate.owns(partition) for gate, _ in each.calls)]
        if any(partition in each.dropped for each in owners or passed):
            found.add(partition)
    return frozenset(found)
