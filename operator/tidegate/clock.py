"""Time, injected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall-clock time, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait between two looks at something that is polled."""
        ...

    def repeat(self, seconds: float, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call it each so many seconds, beside everything else, until the context is left.

        One call may be under way even then.
        """
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def repeat(self, seconds: float, call: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()

        def again() -> None:
            while not over.wait(seconds):
                call()

        threading.Thread(target=again, name="repeat", daemon=True).start()
        try:
            yield
        finally:
            over.set()
