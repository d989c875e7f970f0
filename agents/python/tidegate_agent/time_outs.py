"""The exceptions that say that an answer did not come in time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Final

TIME_OUTS: Final = (TimeoutError, concurrent.futures.TimeoutError, asyncio.TimeoutError)
"""Of a call, a future and a coroutine. From Python 3.11 on they are one class; in 3.10 they have nothing in common."""
