"""Servers are reached by IPv4 and by IPv6, where there is either."""

from __future__ import annotations

import errno
import socket
from contextlib import closing
from typing import Any

import pytest

from tidegate.service.http_server import HttpServer
from tidegate.service.listening import listen
from tidegate.service.settings import Address

EVERYWHERE = Address("::", 0)


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def without_ipv6(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """``request.param``: what such a machine answers."""
    create = socket.create_server

    def refuse(address: Any, *, family: int = socket.AF_INET, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(request.param, "no IPv6")
        return create(address, family=family, **options)

    monkeypatch.setattr(socket, "create_server", refuse)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "by_ipv4", "by_ipv6"), [("::", True, True), ("::1", False, True), ("127.0.0.1", True, False)]
)
def test_who_reaches_what(host: str, by_ipv4: bool, by_ipv6: bool) -> None:
    with closing(listen(Address(host, 0), 8)) as listening:
        port = listening.getsockname()[1]
        assert (reaches("127.0.0.1", port), reaches("::1", port)) == (by_ipv4, by_ipv6)


@pytest.mark.parametrize("without_ipv6", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL], indirect=True)
@pytest.mark.usefixtures("without_ipv6")
def test_a_machine_without_ipv6_is_reached_by_ipv4() -> None:
    with closing(listen(EVERYWHERE, 8)) as listening:
        assert listening.family == socket.AF_INET
        assert reaches("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize("without_ipv6", [errno.EACCES], indirect=True)
@pytest.mark.usefixtures("without_ipv6")
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_port_that_may_not_be_taken_is_an_error() -> None:
    with pytest.raises(OSError, match="no IPv6"):
        listen(EVERYWHERE, 8)


def test_a_server_answers_by_ipv4_where_it_listens_everywhere() -> None:
    server = HttpServer("TIDEGATE_HEALTH_ADDRESS", EVERYWHERE, {})
    server.start()
    try:
        assert reaches("127.0.0.1", server.port)
    finally:
        server.stop()
