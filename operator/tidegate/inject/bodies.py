"""What the webhook takes in: how much at once, for how long, and what of it is read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from tidegate.inject.admission import BadReview
from tidegate.inject.listener import Times

_MIB: Final = 1024 * 1024
_SEPARATORS: Final = 65_536
"""Between values of a review, at most: a pod has some hundreds. Python reads so many in 7 ms, and nothing else runs
meanwhile, in whichever thread that is; a hostile MiB takes it 50 ms.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """``connections``: at once; ``per_address``: of these, from one address. One API server has at most 200 changing
    requests under way by default, each on a connection of its own.

    ``body``: bytes of a review; that of a large application's pod has some 20 KiB. ``large``: bytes above which a body
    is one of at most ``large_at_once`` that are in memory. ``body_s``: until it has to be there.
    """

    connections: int = 256
    per_address: int = 224
    times: Times = field(default_factory=Times)
    body: int = _MIB
    large: int = 64 * 1024
    large_at_once: int = 8
    body_s: float = 5.0


class Bodies:
    """Reads bodies within ``limits``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._large = asyncio.Semaphore(limits.large_at_once)

    @contextlib.asynccontextmanager
    async def taken(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body, which counts as in memory for as long as this lasts. Raises ``HTTPException`` where it is too
        large, or is not there in time.
        """
        limits, length = self._limits, request.content_length
        if length is not None and length > limits.body:
            raise self._too_large(length)
        # One whose length is not said may be a large one.
        is_large = length is None or length > limits.large
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limits.body_s):
                    if is_large:
                        await stack.enter_async_context(self._large)
                    body = await self._read(request)
            except TimeoutError as error:
                text = f"the review was not sent within {limits.body_s:.0f} s\n"
                raise web.HTTPRequestTimeout(text=text) from error
            yield body

    async def _read(self, request: web.BaseRequest) -> bytes:
        body = bytearray()
        async for part in request.content.iter_any():
            body += part
            if len(body) > self._limits.body:
                raise self._too_large(len(body))
        return bytes(body)

    def _too_large(self, size: int) -> web.HTTPException:
        return web.HTTPRequestEntityTooLarge(
            self._limits.body, size, text=f"a review has at most {self._limits.body} bytes\n"
        )


def read_review(body: bytes) -> Any:
    """The JSON value. Raises ``BadReview`` where it is none, or has more parts than any pod: what separates them is
    counted, also within texts.
    """
    if sum(body.count(separator) for separator in (b",", b":", b"{", b"[")) > _SEPARATORS:
        raise BadReview(f"a review has at most {_SEPARATORS} commas, colons and brackets")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"this is not JSON: {error}") from error
