"""Whoever asks for health or metrics slowly, at length or from many connections keeps the kubelet and Prometheus out of
neither.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from support.operator_process import until
from tidegate.inject.certificates import CERTIFICATE, KEY, renewed, written
from tidegate.service.http_server import Answer, HttpServer, Times
from tidegate.service.settings import Address

SOON = Times(request_s=0.6, answer_s=1.5)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[HttpServer]:
    times: Times = getattr(request, "param", Times())
    routes = {
        "/healthz": lambda _headers: Answer(HTTPStatus.OK, "text/plain", b"well\n"),
        "/long": lambda _headers: Answer(HTTPStatus.OK, "text/plain", b"x" * (64 * 1024 * 1024)),
    }
    made = HttpServer("TIDEGATE_HEALTH_ADDRESS", Address("127.0.0.1", 0), routes, times=times)
    made.start()
    yield made
    made.stop()


def connected(server: HttpServer, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10, source_address=(address, 0))


def asked(server: HttpServer, address: str) -> bytes:
    with connected(server, address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_others_are_answered_however_many_connections_somebody_opens(server: HttpServer) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(server)) for _ in range(100)]
        for _ in range(40):
            assert asked(server, "127.0.0.2").endswith(b"well\n")
        assert asked(server, "127.0.0.1").endswith(b"well\n")
        # What was dropped reads as closed at once.
        for connection in held:
            connection.setblocking(False)
        still_open = 0
        for connection in held:
            try:
                connection.recv(1)
            except BlockingIOError:
                still_open += 1
            except OSError:
                continue
        assert still_open <= 16


@pytest.mark.parametrize("server", [SOON], indirect=True)
def test_whoever_sends_byte_by_byte_or_does_not_read_is_dropped(server: HttpServer) -> None:
    seats = server._server._seats
    with connected(server) as sends, connected(server) as reads:
        reads.sendall(b"GET /long HTTP/1.0\r\n\r\n")

        def is_dropped() -> bool:
            with contextlib.suppress(OSError):
                sends.sendall(b"G")
            return len(seats) == 0

        until(lambda: len(seats) == 2, "both are connected")
        until(is_dropped, "both are dropped", timeout_s=20)


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[HttpServer]:
    pair = written(renewed(None, ("127.0.0.1",), datetime.now(UTC)))
    for name in (CERTIFICATE, KEY):
        (tmp_path / name).write_bytes(pair[name])
    routes = {"/long": lambda _headers: Answer(HTTPStatus.OK, "text/plain", b"x" * (64 * 1024 * 1024))}
    made = HttpServer("TIDEGATE_METRICS_ADDRESS", Address("127.0.0.1", 0), routes, tmp_path, times=SOON)
    made.start()
    yield made
    made.stop()


def test_whoever_is_slow_over_tls_is_really_dropped(tls_server: HttpServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        connected(tls_server) as greets,
        context.wrap_socket(connected(tls_server)) as sends,
        context.wrap_socket(connected(tls_server)) as reads,
    ):
        reads.sendall(b"GET /long HTTP/1.0\r\n\r\n")
        record = iter(b"\x16\x03\x01\x02\x00" + b"\x01" * 500)

        def are_dropped() -> bool:
            with contextlib.suppress(OSError):
                greets.sendall(bytes([next(record)]))
            with contextlib.suppress(OSError):
                sends.sendall(b"G")
            return not tls_server._server._seated

        until(are_dropped, "the connections' threads have ended", timeout_s=10)


def test_a_head_that_is_longer_than_any_of_ours_is_not_read(server: HttpServer) -> None:
    answered = b""
    with connected(server) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET /healthz HTTP/1.0\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
        answered = connection.recv(65536)
    assert answered == b""
