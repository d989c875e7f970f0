"""What the users of one led group want to be nobody's."""

from __future__ import annotations

import threading
from collections.abc import Collection

from tidegate.clock import Clock
from tidegate.kafka.model import TopicPartition


class Wishes:
    """Thread-safe. ``others``: who has wanted something by what an earlier process has written; they are waited for,
    at most ``others_s`` seconds from now on."""

    def __init__(self, clock: Clock, others: Collection[str], others_s: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, frozenset[TopicPartition]] = {}
        self._awaited = set(others)
        self._ends_s = clock.monotonic() + others_s

    def want(self, user: str, partitions: frozenset[TopicPartition]) -> None:
        with self._lock:
            self._wanted[user] = partitions
            self._awaited.discard(user)

    def drop(self, user: str) -> None:
        with self._lock:
            self._wanted.pop(user, None)
            self._awaited.discard(user)

    @property
    def wanted(self) -> frozenset[TopicPartition]:
        with self._lock:
            return frozenset[TopicPartition]().union(*self._wanted.values())

    @property
    def are_awaited(self) -> bool:
        """Whether somebody has not yet said what he wants."""
        with self._lock:
            return self._are_awaited()

    @property
    def are_over(self) -> bool:
        """Whether nobody wants anything, nor may do so yet."""
        with self._lock:
            return not self._wanted and not self._are_awaited()

    def _are_awaited(self) -> bool:
        return bool(self._awaited) and self._clock.monotonic() < self._ends_s
