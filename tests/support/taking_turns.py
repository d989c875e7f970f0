"""Threads that take turns on a `FakeClock`, so that what two processes do at one time is the same in every run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from support.fake_kafka import FakeClock


class TakingTurns(FakeClock):
    """A thread that sleeps hands over to whoever called `run`; one thread at a time does anything."""

    def __init__(self) -> None:
        super().__init__()
        self._others: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)

    def sleep(self, seconds: float) -> None:
        mine = self._others.get(threading.get_ident())
        if mine is None:
            super().sleep(seconds)
            return
        # Not at once, or two that wait for each other would do so for ever.
        self.after(max(seconds, 1e-6), lambda: self._resume(mine))
        self._back.release()
        mine.acquire()

    @property
    def is_a_turn(self) -> bool:
        """Whether one of the threads asks, and not an event of the clock."""
        return threading.get_ident() in self._others

    def start(self, work: Callable[[], None], *, after_s: float = 0.0) -> threading.Thread:
        """Have it done by a thread of its own, while somebody sleeps."""
        turn = threading.Semaphore(0)
        known = threading.Event()

        def body() -> None:
            self._others[threading.get_ident()] = turn
            known.set()
            turn.acquire()
            try:
                work()
            finally:
                self._back.release()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        known.wait()
        self.after(after_s, lambda: self._resume(turn))
        return thread

    def _resume(self, turn: threading.Semaphore) -> None:
        turn.release()
        self._back.acquire()


class Slow:
    """Stands for ``target``, whose calls take some milliseconds each, so that those of two processes interleave."""

    _CALLS = frozenset(
        {"groups", "committed", "pending", "leave", "fence", "send", "commit", "read", "claim", "withdraw", "hold"}
    )

    def __init__(self, target: Any, clock: TakingTurns, call_s: float = 0.01) -> None:
        self._target, self._clock, self._call_s = target, clock, call_s

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name in ("membership", "control"):
            return Slow(value, self._clock, self._call_s)
        if name == "writer":
            return lambda *a, **k: Slow(value(*a, **k), self._clock, self._call_s)
        if name == "transaction":
            return lambda: self._entered(value)
        if name in self._CALLS:
            return lambda *a, **k: self._called(value, a, k)
        return value

    def _called(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._clock.is_a_turn:
            self._clock.sleep(self._call_s)
        return call(*args, **kwargs)

    @contextlib.contextmanager
    def _entered(self, enter: Callable[[], Any]) -> Iterator[Any]:
        with enter() as transaction:
            yield Slow(transaction, self._clock, self._call_s)
