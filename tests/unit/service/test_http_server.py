"""The server of health and metrics: what it says of itself."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

import pytest

from support.operator_process import until
from tidegate.service.http_server import Answer, HttpServer
from tidegate.service.settings import Address


def test_an_answer_that_a_defect_prevents_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Else a scrape fails again and again, and nobody hears why."""

    def broken(_headers: Mapping[str, str]) -> Answer:
        raise ZeroDivisionError

    server = HttpServer("TIDEGATE_METRICS_ADDRESS", Address("127.0.0.1", 0), {"/metrics": broken})
    server.start()
    try:
        with caplog.at_level(logging.INFO):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert connection.recv(1) == b""
            until(lambda: caplog.records, "the log", timeout_s=10)
    finally:
        server.stop()

    [told] = caplog.records
    assert told.getMessage() == "a request from 127.0.0.1 could not be answered"
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError
