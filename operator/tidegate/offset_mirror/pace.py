"""How fast is copied: bytes a second, of all partitions of a mirror together."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Pace:
    """Thread-safe. ``now_s``: a monotonic clock."""

    def __init__(self, bytes_per_second: int | None, now_s: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._now_s = now_s
        self._lock = threading.Lock()
        self._free_s = now_s()
        """When all that was written so far is paid for."""

    def wrote(self, size: int) -> None:
        if self._rate is not None:
            with self._lock:
                self._free_s = max(self._free_s, self._now_s()) + size / self._rate

    def wait_s(self) -> float:
        """How long nothing more may be written."""
        with self._lock:
            return max(0.0, self._free_s - self._now_s()) if self._rate is not None else 0.0
