"""What the API server has said last, and who listens to what becomes of it.

Watching threads write; the event loop's listeners read. A listener keeps the ids of what has changed since it last
looked, never the changes: however slow a browser is, and however often a resource changes, it takes no more memory
than there are resources.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidegate.cli.ui.rows import SHOWN, Line, line, line_id
from tidegate.kube.ports import Kind, KubeFailure, NotFound, Object, name_of, namespace_of

_log = logging.getLogger(__name__)

MOST_LISTENERS: Final = 32
MOST_CHANGES: Final = 10_000
"""Ids that a listener keeps; beyond that it is told everything anew."""

Key = tuple[str, str]
"""Namespace and name."""


class TooManyListeners(Exception):
    """As many tabs are open as there may be."""


@dataclass(frozen=True, slots=True)
class News:
    """What a listener is told. ``whole``: these are all lines that there are."""

    lines: tuple[Line, ...]
    gone: tuple[str, ...]
    trouble: dict[str, str]
    ready: bool
    whole: bool

    def as_json(self) -> dict[str, Any]:
        return {"lines": self.lines, "gone": self.gone, "trouble": self.trouble, "ready": self.ready}


class Board:
    """Thread-safe. Implements of ``tidegate.kube.ports.Kube`` what listings need: ``list`` and ``get``."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._lock = threading.Lock()
        self._kinds = tuple(kinds)
        self._bodies: dict[Kind, dict[Key, Object]] = {kind: {} for kind in kinds}
        self._lines: dict[str, Line] = {}
        self._trouble: dict[str, str] = {}
        self._listed: set[Kind] = set()
        self._listeners: set[Listener] = set()

    # --- what watches write -------------------------------------------------------------------------------------------

    def replace(self, kind: Kind, bodies: Iterable[Object]) -> None:
        """All objects of a kind."""
        found = {(namespace_of(body), name_of(body)): body for body in bodies}
        made = {line_id(kind, *key): _line(kind, body) for key, body in found.items()} if kind in SHOWN else {}
        lines = {each: told for each, told in made.items() if told is not None}
        with self._lock:
            ids = {line_id(kind, *key) for key in self._bodies[kind].keys() | found.keys()}
            changed = {each for each in ids if self._lines.get(each) != lines.get(each)}
            self._bodies[kind] = found
            for each in ids - lines.keys():
                self._lines.pop(each, None)
            self._lines.update(lines)
            self._listed.add(kind)
            self._trouble.pop(kind.plural, None)
            self._tell(changed)

    def put(self, kind: Kind, body: Object) -> None:
        key = namespace_of(body), name_of(body)
        told = _line(kind, body) if kind in SHOWN else None
        with self._lock:
            self._bodies[kind][key] = body
            if told is not None:
                self._lines[line_id(kind, *key)] = told
            else:
                # What it said before is not so any more.
                self._lines.pop(line_id(kind, *key), None)
            self._tell({line_id(kind, *key)})

    def drop(self, kind: Kind, body: Object) -> None:
        key = namespace_of(body), name_of(body)
        with self._lock:
            self._bodies[kind].pop(key, None)
            self._lines.pop(line_id(kind, *key), None)
            self._tell({line_id(kind, *key)})

    def troubled(self, kind: Kind, why: str) -> None:
        """It can't be listed or followed, for now or without a right; what was seen of it before is kept."""
        with self._lock:
            if self._trouble.get(kind.plural) != why:
                self._trouble[kind.plural] = why
                self._tell(set())

    # --- what others read ---------------------------------------------------------------------------------------------

    def list(self, kind: Kind) -> Sequence[Object]:
        """Raises ``KubeFailure`` where the kind could not be listed, or was not yet: that is not to have none."""
        with self._lock:
            if kind not in self._listed:
                raise KubeFailure(self._trouble.get(kind.plural, f"{kind.plural} are not listed yet"))
            return list(self._bodies[kind].values())

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Raises ``NotFound``."""
        with self._lock:
            body = self._bodies[kind].get((namespace, name))
        if body is None:
            raise NotFound(f"there is no {kind.kind} {namespace}/{name} to be seen")
        return body

    @property
    def trouble(self) -> dict[str, str]:
        """By plural, why a kind can't be seen, or not now."""
        with self._lock:
            return dict(self._trouble)

    def everything(self) -> News:
        with self._lock:
            return self._news(tuple(self._lines.values()), (), whole=True)

    def since(self, ids: Iterable[str]) -> News:
        with self._lock:
            found = [(each, self._lines.get(each)) for each in ids]
            lines = tuple(line for _, line in found if line is not None)
            return self._news(lines, tuple(each for each, line in found if line is None), whole=False)

    def _news(self, lines: tuple[Line, ...], gone: tuple[str, ...], *, whole: bool) -> News:
        ready = all(kind in self._listed or kind.plural in self._trouble for kind in self._kinds)
        return News(lines, gone, dict(self._trouble), ready, whole)

    # --- listeners ----------------------------------------------------------------------------------------------------

    def listen(self) -> Listener:
        """To be closed. Call it in the event loop. Raises ``TooManyListeners``."""
        listener = Listener(self)
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS:
                raise TooManyListeners(f"{MOST_LISTENERS} tabs already show this page: close one")
            self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)

    def _tell(self, ids: set[str]) -> None:
        for listener in self._listeners:
            listener.wake(ids)


class Listener:
    """One browser tab. What it is told first is everything."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._all = True
        self._event.set()

    def wake(self, ids: set[str]) -> None:
        """From any thread."""
        with self._lock:
            if not self._all:
                self._changed |= ids
            if len(self._changed) > MOST_CHANGES:
                self._changed, self._all = set(), True
        with suppress(RuntimeError):  # the loop has ended just now
            self._loop.call_soon_threadsafe(self._event.set)

    @property
    def waiting(self) -> int:
        """Ids that it keeps."""
        with self._lock:
            return len(self._changed)

    async def news(self, timeout_s: float) -> News | None:
        """What has changed since it last asked; ``None``: nothing in that time."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return None
        self._event.clear()
        with self._lock:
            changed, self._changed = self._changed, set()
            everything, self._all = self._all, False
        return self._board.everything() if everything else self._board.since(sorted(changed))

    def close(self) -> None:
        self._board.leave(self)


def _line(kind: Kind, body: Object) -> Line | None:
    try:
        return line(kind, body)
    except (KeyError, TypeError, ValueError, AttributeError):
        # Another version's object: it is left out, and does not end the watch of all others.
        _log.warning("an object of %s is not shown: it can't be read", kind.plural)
        return None
