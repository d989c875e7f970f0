"""An event loop whose time is a `FakeClock`'s: nobody waits, and what falls due happens in its order.

All calls that the code under test gives to threads are made at once, where they are asked for: so a run is the same
each time, and an hour of an operator that is at rest takes as long as its work.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from support.fake_kafka import FakeClock


class AtOnce(Executor):
    """Runs what it is given before `submit` returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """As a `ThreadPoolExecutor` is made."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's, as with any executor
            done.set_exception(error)
        return done


class _Selector(selectors.SelectSelector):
    """Where nothing is there to be read, time passes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("nothing is left that could happen: somebody waits for ever")
        if timeout > 0:
            self._clock.sleep(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time` is the clock's."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Selector(clock))
        self._virtual = clock

    def time(self) -> float:
        return self._virtual.monotonic()
