"""A connection that is frozen at any moment of a pass: just before the pass hands its next call to a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class FreezingExecutor(Executor):
    """Calls what it is given in ``beneath``. ``freeze`` is called once, in the event loop's thread as by a pass over
    the connection, before the call of that number, counted from 1, is handed on. ``calls``: how many there were."""

    def __init__(self, beneath: Executor, number: int, freeze: Callable[[], None]) -> None:
        self._beneath = beneath
        self._number = number
        self._freeze = freeze
        self.calls = 0

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.calls += 1
        if self.calls == self._number:
            self._freeze()
        return self._beneath.submit(call, *arguments, **options)
