"""The webhook's connections: TLS and HTTP/1.1, with an end to each step that a caller may take its time for.

aiohttp's own site counts nobody before the TLS handshake and lets it take a minute, so connections are accepted here.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tidegate.service.seats import Seat, Seats

_log = logging.getLogger(__name__)

_NO_ROOM_S: Final = 1.0
"""Before the next try where the system gives no more connections."""
_BUFFER: Final = 16 * 1024

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. ``begin_s``: for the TLS handshake, and again from there to the end of the first request's headers.
    ``idle_s``: from one request's answer to the end of the next one's headers. API servers end idle connections after
    90 s; whoever ends one first may do so just as the other side sends something.
    """

    begin_s: float = 5.0
    idle_s: float = 100.0
    stop_s: float = 2.0


class _Connection(web.RequestHandler):
    """One connection, which keeps its seat from when it was accepted until it is gone."""

    def __init__(self, server: web.Server, seats: Seats, seat: Seat, times: Times) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # none, as aiohttp's own runner says it
            keepalive_timeout=times.idle_s,
            lingering_time=1.0,
            read_bufsize=_BUFFER,
            # A small body may unpack to a large one.
            auto_decompress=False,
            # What an API server sends takes a tenth of these.
            max_line_size=2048,
            max_field_size=4096,
            max_headers=32,
        )
        self._seats, self._times = seats, times
        self.seat = seat
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_request(self._times.begin_s)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        self._seats.leave(self.seat)
        super().connection_lost(exc)

    def begin(self) -> None:
        """A request's headers are here."""
        self._stop_waiting()

    def end(self) -> None:
        """It is answered, but for what is still to be sent."""
        self.seat.answering = False
        self._await_request(self._times.idle_s)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What a caller does wrong, or leaves undone, fills no log."""
        if isinstance(kw.get("exc_info"), (HttpProcessingError, web.RequestPayloadError, ConnectionError)):
            _log.debug(*args, **kw)
        else:
            super().log_exception(*args, **kw)

    def _await_request(self, seconds: float) -> None:
        self._stop_waiting()
        self._overdue = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()


class Listener:
    """Has ``handler`` answer what comes by a listening socket. Belongs to the event loop's thread."""

    def __init__(self, handler: Handler, context: ssl.SSLContext, seats: Seats, times: Times) -> None:
        self._handler, self._context, self._seats, self._times = handler, context, seats, times
        self._server: web.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._greeted: set[asyncio.Task[None]] = set()

    def start(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._server = web.Server(self._handle)
        self._accepting = asyncio.create_task(self._accept(listening, self._server), name="webhook connections")

    async def stop(self) -> None:
        tasks = [*self._greeted, *([self._accepting] if self._accepting is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.shutdown(self._times.stop_s)

    async def _accept(self, listening: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        trouble = ""
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("webhook: can't take a connection: %s", error)
                await asyncio.sleep(_NO_ROOM_S)
                continue
            seat = self._seats.take(str(peer[0]), accepted.close)
            if seat is None:
                accepted.close()
                continue
            greeting = loop.create_task(self._greet(accepted, seat, server))
            self._greeted.add(greeting)
            greeting.add_done_callback(self._greeted.discard)

    async def _greet(self, accepted: socket.socket, seat: Seat, server: web.Server) -> None:
        if accepted.fileno() == -1:
            return  # it gave way before this had begun
        connection = _Connection(server, self._seats, seat, self._times)
        # Until TLS is agreed there is nothing to abort but this task.
        seat.close = functools.partial(_cancel, asyncio.current_task())
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._times.begin_s,
                ssl_shutdown_timeout=self._times.stop_s,
            )
        except OSError as error:
            _log.debug("webhook: %s: no TLS: %s", seat.address, error)
            self._seats.leave(seat)
        except asyncio.CancelledError:
            self._seats.leave(seat)
            raise
        else:
            seat.close = connection.abort

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection: Any = request.protocol
        connection.begin()
        try:
            return await self._handler(request)
        finally:
            connection.end()


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
