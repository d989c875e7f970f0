"""Connections that come to nothing: they end in time, leave nothing behind, and say why."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.connections import Connections
from tidegate.kafka_client.settings import BadConnection

NOBODY = "127.0.0.1:9"
PATIENCE_S = 1.0
AND_A_BIT_S = 3.0


def connection(bootstrap: str, *, tls: bool = False) -> Connection:
    return Connection(bootstrap, tls=tls, properties={"socket.timeout.ms": str(int(PATIENCE_S * 1000))})


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes connections and says nothing, as a broker that is stopped."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        host, port = server.getsockname()
        yield f"{host}:{port}"


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "kafka" in thread.name}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_broker_that_is_silent_is_not_waited_for_without_end(silent: str, tls: bool) -> None:
    begun = time.monotonic()
    with pytest.raises(Unavailable, match=f"connect to {silent}"):
        Connections(connection(silent, tls=tls)).nodes()
    assert time.monotonic() - begun < PATIENCE_S + AND_A_BIT_S
    assert threads() == set()


def test_where_nobody_is_the_reason_is_told_and_no_thread_stays() -> None:
    with pytest.raises(Unavailable, match=f"connect to {NOBODY}: .*ECONNREFUSED"):
        Connections(connection(NOBODY)).nodes()
    assert threads() == set()


def test_who_comes_while_another_thread_connects_does_not_wait_for_a_turn(silent: str) -> None:
    connections = Connections(connection(silent))

    def refused() -> str:
        with pytest.raises(Unavailable) as caught:
            connections.nodes()
        return str(caught.value)

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        said = {future.result() for future in [pool.submit(refused) for _ in range(8)]}
    assert time.monotonic() - begun < PATIENCE_S + AND_A_BIT_S
    assert len(said) == 1


def test_nobody_waits_for_another_thread_that_connects_beyond_his_own_time(silent: str) -> None:
    connections = Connections(connection(silent))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(connections.nodes)
        until_connecting(connections)
        with pytest.raises(Unavailable, match=r"not within 0\.1 s"):
            connections.nodes(0.1)
        connections.close()
        assert not other.done()
        with pytest.raises(Unavailable):
            other.result()
    assert threads() == set()


def until_connecting(connections: Connections) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while connections._opened is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"broker.address.family": "v5"}, "broker.address.family"),
        ({"no.such.property": "1"}, "no.such.property"),
        ({"socket.timeout.ms": "20s"}, "socket.timeout.ms"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_be_used_are_refused_before_anybody_is_asked(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(BadConnection, match=f"the connection's settings are refused: .*{said}"):
        KafkaClient(Connection(NOBODY, properties=properties))
