"""A small HTTP server for a few read-only paths, with TLS where it is given certificates.

What it answers is small and made in moments; whoever asks slowly, or from too many connections at once, is dropped
before it costs more, and keeps nobody else out.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tidegate.service.listening import listen
from tidegate.service.seats import Seat, Seats
from tidegate.service.settings import Address

_log = logging.getLogger(__name__)

_CONNECTIONS: Final = 32
"""At once."""
_PER_ADDRESS: Final = 16
"""Of these, from one address: the others remain for the kubelet and for Prometheus."""
_BACKLOG: Final = 128
"""Connections that wait to be accepted."""
_HEADERS: Final = 32 * 1024
"""Bytes of a request, with a token of half as many."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. ``request_s``: for the TLS handshake and the request; ``answer_s``: for these and the answer."""

    request_s: float = 10.0
    answer_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent. ``headers``: beside Content-Type and Content-Length."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Mapping[str, str]], Answer]
"""From the request's headers, by lower-case name, to the answer. Called in a thread of the connection's own."""


class TlsFiles:
    """``tls.crt`` and ``tls.key`` of a folder, as a ``kubernetes.io/tls`` Secret is mounted; read anew when changed.
    ``client_ca``: a file with the CA certificates of those who may connect; ``None``: everybody may.

    A mount is changed by a renamed link, so a pair that does not fit was read in between: the one before is used.
    """

    def __init__(self, folder: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key = folder / "tls.crt", folder / "tls.key"
        self._client_ca = client_ca
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """The server's context. Raises ``OSError`` where there never was a usable pair, and a CA if there has to be."""
        files = [self._certificate, self._key, *([self._client_ca] if self._client_ca is not None else [])]
        with self._lock:
            try:
                seen = tuple(file.stat().st_mtime_ns for file in files)
                if self._context is None or seen != self._seen:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.minimum_version = ssl.TLSVersion.TLSv1_2
                    context.load_cert_chain(self._certificate, self._key)
                    if self._client_ca is not None:
                        require_client(context, self._client_ca)
                    self._context, self._seen = context, seen
            except OSError as error:  # ssl.SSLError is one
                if self._context is None:
                    raise
                _log.warning(
                    "%s: the server keeps its earlier certificate, because the files can't be used: %s",
                    self._certificate.parent,
                    error,
                )
            return self._context


def require_client(context: ssl.SSLContext, ca: Path) -> None:
    """Ask for a client certificate by one of these CAs (PEM). Raises ``OSError`` where there is none in the file."""
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    if not context.get_ca_certs():  # a server's certificate is read as well, and lets nobody in
        raise OSError(f"{ca} has no CA certificate")


class HttpServer:
    """Serves ``routes`` by path at ``address`` until it is stopped. ``setting``: the variable that named the address.

    ``later``: the certificates may still come; until then connections are closed unanswered. Raises ``OSError`` with a
    message for a person where it can't listen, or has no certificate to begin with.
    """

    def __init__(
        self,
        setting: str,
        address: Address,
        routes: Mapping[str, Route],
        certificates: Path | None = None,
        *,
        later: bool = False,
        times: Times | None = None,
    ) -> None:
        tls = TlsFiles(certificates) if certificates is not None else None
        try:
            if tls is not None and not later:
                tls.context()
        except OSError as error:
            raise OSError(f"no usable tls.crt and tls.key in {certificates}: {error}") from error
        try:
            self._server = _Server(address, dict(routes), tls, times or Times())
        except OSError as error:
            raise OSError(f"{setting}: can't listen on {address}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name=setting.lower(), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: Address, routes: Mapping[str, Route], tls: TlsFiles | None, times: Times) -> None:
        self.routes = routes
        self._tls = tls
        self._times = times
        self._lock = threading.Lock()
        self._seated: dict[Any, Seat] = {}
        self._seats = Seats(_CONNECTIONS, _PER_ADDRESS)
        listening = listen(address, _BACKLOG)
        self.address_family = listening.family
        # What `finish_request` makes has one argument more.
        super().__init__((address.host, address.port), _Handler, bind_and_activate=False)  # type: ignore[arg-type]
        self.socket.close()
        self.socket, self.server_address = listening, listening.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            seat = self._seats.take(str(client_address[0]), functools.partial(_end, request))
            if seat is not None:
                seat.since_s = time.monotonic()
        if seat is None:
            self.shutdown_request(request)
            return
        self._seated[request] = seat
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._seats.leave(self._seated.pop(request))

    def service_actions(self) -> None:
        """Every half second, by the base class: who takes too long is dropped."""
        now, times = time.monotonic(), self._times
        with self._lock:
            for seat in self._seats:
                if now - seat.since_s > (times.answer_s if seat.answering else times.request_s):
                    self._seats.leave(seat)
                    seat.close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's thread, so that a handshake that takes its time holds up nobody."""
        request.settimeout(self._times.request_s)
        seat = self._seated[request]
        if self._tls is None:
            _Handler(request, client_address, self, seat)
            return
        context = self._tls.context()
        with self._lock:
            # Takes the connection away from `request`, by which it could be ended until here.
            secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            seat.close = functools.partial(_end, secured)
        with secured:
            secured.do_handshake()
            _Handler(secured, client_address, self, seat)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        if isinstance(sys.exception(), OSError):
            _log.debug("a connection from %s ended", client_address[0], exc_info=True)
        else:
            # Of ours, and not of whoever asked, who gets no answer.
            _log.error("a request from %s could not be answered", client_address[0], exc_info=True)


def _end(request: socket.socket) -> None:
    """Wakes the thread that reads it or writes to it, which then closes it."""
    with contextlib.suppress(OSError):
        # Not by a method of TLS, after which that thread would go on in the clear.
        socket.socket.shutdown(request, socket.SHUT_RDWR)


class _Head:
    """The lines of one request. Raises ``OSError`` where they are longer than any that is meant for us."""

    def __init__(self, raw: Any) -> None:
        self._raw, self._left = raw, _HEADERS
        self.close = raw.close

    def readline(self, limit: int) -> bytes:
        line: bytes = self._raw.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise OSError("the request's head is too long")
        return line


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "tidegate"
    sys_version = ""

    def __init__(self, request: Any, client_address: Any, server: _Server, seat: Seat) -> None:
        self._seat = seat
        super().__init__(request, client_address, server)

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment] # all that is done with it

    def do_GET(self) -> None:
        self._seat.answering = True
        routes = self.server.routes
        route = routes.get(self.path.partition("?")[0])
        if route is None:
            answer = Answer(HTTPStatus.NOT_FOUND, "text/plain", f"there is {' and '.join(routes)}\n".encode())
        else:
            answer = route({name.lower(): value for name, value in self.headers.items()})
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Type": answer.content_type}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        _log.debug(format, *args)
