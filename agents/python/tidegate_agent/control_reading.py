"""The control topic as it is read, whatever becomes of it: from its start again, or as another topic. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate_agent.ages import Clock, PartitionTable
from tidegate_agent.gates import GateTable, KeptGates, Known
from tidegate_agent.records import ClockKey, PartitionKey, Unreadable, decode

log = logging.getLogger("tidegate_agent")

REBUILT_S: Final = 10.0
"""How long a control topic that was lost is waited for, to be written anew by those who hold gates: gates that were
closed stay so, and what was never read stays unread."""


class ControlReading:
    """Whoever reads says where a reading begins, hands over the records in order, and says how far that has come.

    ``known`` is what that adds up to, replaced as a whole; until a new reading has reached the end it is what was known
    before. Times are seconds of any clock that only goes forward. Not for several threads at once, but for ``known``.
    """

    def __init__(self) -> None:
        self.known = Known()
        self.unreadable = 0
        """Records that were skipped because they are not of the contract."""
        self._topic_id: str | None = None
        self._is_another = False
        self._is_told = False
        self._table = GateTable()
        self._partitions = PartitionTable()
        self._kept = KeptGates()
        self._clock: Clock | None = None

    def begin(self, topic_id: str) -> None:
        """The topic is read from its start. ``topic_id`` tells it from an earlier one of its name."""
        is_same = topic_id == self._topic_id
        self._table = GateTable(self._table if is_same else None)
        self._is_another = self._is_another or not is_same
        self._topic_id, self._is_told = topic_id, False

    def take(
        self, key: bytes | None, value: bytes | None, offset: int, *, appended_ms: int | None, is_live: bool, now: float
    ) -> None:
        """One record. ``appended_ms``: its LogAppendTime; ``None``: its timestamp is of another type. ``is_live``: it
        came to a reader that was waiting for it."""
        try:
            record, said = decode(key, value)
        except Unreadable as unreadable:
            self.unreadable += 1
            log.debug("control record %d is skipped: %s", offset, unreadable)
            return
        self._table.take(record, said, offset)
        self._kept.take(record)
        if isinstance(record, PartitionKey):
            self._partitions.take(record, said)
        elif isinstance(record, ClockKey):
            self._clock = None if value is None or appended_ms is None else Clock(appended_ms, now, is_live)

    def read_to(self, end: int, now: float) -> None:
        """All before this offset was taken: tell it. The first time after ``begin`` it has to be the topic's end as it
        was then, for before that holds would seem to be released."""
        if not self._is_told:
            self._table.read_to_end(end - 1)
            if self._is_another:
                self._kept.keep(self.known, self._table, now + REBUILT_S)
        generation = self.known.generation + self._is_another
        self._is_told, self._is_another = True, False
        self.known = replace(
            self.known,
            gates=self._kept.with_gates(self._table.gates()),
            limits=self._kept.with_limits(self._table.limits()),
            moved=self._table.moved(),
            taken=end - 1,
            generation=generation,
            discovered=self._partitions.view(),
            clock=self._clock,
        )

    def answer(self, ticket: int, topic_ids: Mapping[str, str] | None = None) -> None:
        """The questions up to this one are answered. ``topic_ids``: those that topics have now, where they were asked
        for."""
        ids = self.known.topic_ids if topic_ids is None else topic_ids
        self.known = replace(self.known, answered=ticket, topic_ids=ids)

    @property
    def kept_until(self) -> float | None:
        """When ``release_kept`` is due; ``None`` where nothing is kept, or the topic is being read from its start:
        before its end is reached, holds would seem to be released."""
        return self._kept.until if self._is_told else None

    def release_kept(self, now: float) -> None:
        """Gates of an earlier control topic that nobody has closed in this one open when it is time."""
        until = self.kept_until
        if until is not None and now >= until:
            self._kept.release()
            self.known = replace(self.known, gates=self._table.gates(), limits=self._table.limits())
