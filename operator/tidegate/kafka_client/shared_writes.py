"""Writes of many threads to one topic, as few as possible at a time.

A write of the operator is a transaction of its own, which takes a coordinator and a leader some ten milliseconds, and
no two may overlap. So those that come while one is on its way share the next one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.errors import Fenced, KafkaFailure, Unavailable, one_more
from tidegate.kafka_client.control_writer import Appended

Records = Mapping[bytes, bytes | None]
"""Values by key; ``None``: a tombstone."""

MOST_SHARED: Final = 5_000
"""Records of a write that more than one caller shares. Nobody's own records are divided."""


@dataclass(slots=True, eq=False)
class _Asked:
    records: Records
    appended: dict[bytes, Appended] | None = None
    failure: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.appended is not None or self.failure is not None


class SharedWrites:
    """Thread-safe. Records of one caller are written in one go, in the order in which callers came."""

    def __init__(self, write: Callable[[Records], dict[bytes, Appended]]) -> None:
        """``write``: all or none where brokers can do that; raises ``KafkaFailure``s. Its calls never overlap."""
        self._write = write
        self._lock = threading.Lock()
        self._waiting: deque[_Asked] = deque()
        self.turn = threading.Lock()
        """Held while something is written; whoever else must not overlap with that holds it."""

    def write(self, records: Records) -> dict[bytes, Appended]:
        """Raises what writing raises: ``Unavailable`` and ``Fenced`` to all who shared a write."""
        if not records:
            return {}
        asked = _Asked(records)
        with self._lock:
            self._waiting.append(asked)
        try:
            with self.turn:
                while not asked.is_done:
                    self._write_next()
        finally:
            with self._lock:
                if asked in self._waiting:
                    self._waiting.remove(asked)
        if asked.failure is not None:
            raise asked.failure
        return dict(asked.appended or {})

    def _write_next(self) -> None:
        """Those that came first, as many as go together."""
        with self._lock:
            together = self._next()
        try:
            self._write_together(together)
        except (Fenced, Unavailable) as failure:
            self._fail(together, failure)
        except Exception as failure:  # noqa: BLE001 - raised by the thread that it belongs to
            if len(together) == 1:
                together[0].failure = failure
            else:
                self._write_one_by_one(together)
        with self._lock:
            for asked in together:
                self._waiting.remove(asked)

    def _next(self) -> list[_Asked]:
        """A key is in one of them only, so that each learns where its own record is."""
        together: list[_Asked] = []
        keys: set[bytes] = set()
        for asked in self._waiting:
            too_many = len(keys) + len(asked.records) > MOST_SHARED
            if together and (too_many or not keys.isdisjoint(asked.records)):
                break
            together.append(asked)
            keys.update(asked.records)
        return together

    def _write_together(self, together: list[_Asked]) -> None:
        appended = self._write({key: value for asked in together for key, value in asked.records.items()})
        for asked in together:
            asked.appended = {key: appended[key] for key in asked.records}

    def _write_one_by_one(self, together: list[_Asked]) -> None:
        """One that Kafka refuses, or that meets a defect, must not take the others with it; where nobody answers, none
        waits for another."""
        for number, asked in enumerate(together):
            try:
                self._write_together([asked])
            except (Fenced, Unavailable) as failure:
                self._fail(together[number:], failure)
                return
            except Exception as failure:  # noqa: BLE001
                asked.failure = failure

    @staticmethod
    def _fail(together: list[_Asked], failure: KafkaFailure) -> None:
        for asked in together:
            asked.failure = one_more(failure)
