"""Troubles in the process's log, each said once."""

from __future__ import annotations

import logging
import threading

log = logging.getLogger("tidegate_agent")


class Troubles:
    """By a name each; it is said again only after it was over. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def say(self, what: str, message: str) -> None:
        with self._lock:
            if what in self._said:
                return
            self._said.add(what)
        log.warning("%s", message)

    def over(self, what: str, message: str) -> None:
        with self._lock:
            if what not in self._said:
                return
            self._said.discard(what)
        log.info("%s", message)

    def has(self, what: str) -> bool:
        """Whether it was said, and is not over."""
        with self._lock:
            return what in self._said

    def forget(self, what: str) -> None:
        """Say it again when it comes, and not that it is over."""
        with self._lock:
            self._said.discard(what)
