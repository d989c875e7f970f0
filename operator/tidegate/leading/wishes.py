"""What the users of one led group want to be nobody's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from tidegate.clock import Clock
from tidegate.kafka.model import TopicPartition

Covers = Callable[[TopicPartition], bool]
"""Whether a user wants a partition to be nobody's as soon as there is such a one."""


class Wishes:
    """Thread-safe. ``others``: who has wanted something by what an earlier process has written; they are waited for,
    at most ``others_s`` seconds from now on."""

    def __init__(self, clock: Clock, others: Collection[str], others_s: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, frozenset[TopicPartition]] = {}
        self._covers: dict[str, Covers] = {}
        self._among: tuple[frozenset[TopicPartition], frozenset[TopicPartition]] | None = None
        self._awaited = set(others)
        self._ends_s = clock.monotonic() + others_s

    def want(self, user: str, partitions: frozenset[TopicPartition]) -> None:
        with self._lock:
            self._wanted[user] = partitions
            self._awaited.discard(user)

    def cover(self, user: str, covers: Covers) -> None:
        """What the user, who wants something, wants of partitions that he has not seen yet."""
        with self._lock:
            if user in self._wanted and self._covers.get(user) != covers:
                self._covers[user], self._among = covers, None

    def drop(self, user: str) -> None:
        with self._lock:
            self._wanted.pop(user, None)
            if self._covers.pop(user, None) is not None:
                self._among = None
            self._awaited.discard(user)

    @property
    def wanted(self) -> frozenset[TopicPartition]:
        with self._lock:
            return frozenset[TopicPartition]().union(*self._wanted.values())

    def among(self, everything: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """What is wanted, and what of ``everything`` would be if its user knew of it."""
        with self._lock:
            covers, known = tuple(self._covers.values()), self._among
        if known is None or known[0] is not everything:
            # Asked for each second, of perhaps thousands of partitions.
            known = everything, frozenset(p for p in everything if any(covered(p) for covered in covers))
            with self._lock:
                self._among = known if covers == tuple(self._covers.values()) else None
        return self.wanted | known[1]

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
