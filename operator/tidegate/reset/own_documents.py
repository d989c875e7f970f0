"""Runs' documents as the jobs of this process have read and written them last.

A job is the only one that changes its run's document as long as nobody takes the run over, and changes it by
compare-and-swap. So it does not have to ask the API server several times a second for what it has just written. The
operator's passes do ask: what somebody else has written there is theirs to find.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from tidegate.reset.store import Run

RECENT_S: Final = 10.0
"""After so long a document is read again before anything is said by it: somebody else may have changed it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A ConfigMap as read or written: the API's object, and the run in it."""

    config_map: Mapping[str, Any]
    run: Run

    @property
    def version(self) -> str:
        return str(self.config_map["metadata"].get("resourceVersion", ""))


@dataclass(slots=True)
class OwnDocument:
    """``turn`` is held by whoever of this process writes the document, for as long as the write takes. ``jobs``: that
    have the run, which are two where one does not stop in time."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    newest: Stored | None = None
    seen_s: float = 0.0
    """When the API server had it last as it is here (monotonic seconds)."""
    jobs: int = 1


class OwnDocuments:
    """By location. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._documents: dict[str, OwnDocument] = {}

    def begin(self, location: str) -> None:
        """A job of this process has the run from now on."""
        with self._lock:
            earlier = self._documents.get(location)
            self._documents[location] = OwnDocument(jobs=1 + (earlier.jobs if earlier is not None else 0))

    def end(self, location: str) -> None:
        """It has ended."""
        with self._lock:
            document = self._documents.get(location)
            if document is None:
                return
            document.jobs -= 1
            if document.jobs <= 0:
                del self._documents[location]

    def of(self, location: str) -> OwnDocument | None:
        """``None``: no job of this process has the run."""
        return self._documents.get(location)

    def recent(self, location: str) -> Stored | None:
        """``None``: it has to be read."""
        with self._lock:
            document = self._documents.get(location)
            if document is None or self._now_s() - document.seen_s >= RECENT_S:
                return None
            return document.newest

    def written(self, document: OwnDocument, stored: Stored | None) -> None:
        """Written, or read, in its turn; ``None``: what it is now is not known."""
        with self._lock:
            document.newest, document.seen_s = stored, self._now_s()

    def read(self, location: str, stored: Stored) -> None:
        """Out of turn, so that it may be older than what is known."""
        with self._lock:
            document = self._documents.get(location)
            if document is not None and document.newest is not None and document.newest.version == stored.version:
                document.seen_s = self._now_s()
