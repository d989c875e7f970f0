"""Blocking calls made from the event loop: each in a thread of the executor that is given."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


async def in_thread(executor: Executor | None, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What the call returns or raises. ``executor``: ``None`` for the event loop's own.

    A cancelled task stops waiting; the call itself goes on to its end.
    """
    work = functools.partial(call, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(executor, work)
