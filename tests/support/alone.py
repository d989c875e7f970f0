"""Work in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def alone(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What the work returns or raises; it, its arguments and its result can be pickled.

    For what measures memory by ``tracemalloc``: CPython 3.11 may crash (its issue gh-128679) where other threads begin
    or end meanwhile, and earlier tests of a process may have left some.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()
