"""What is said of an API server that does not answer: sentences, from the errors that urllib3 really raises."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import urllib3
from urllib3.exceptions import HTTPError

from tidegate.inject.certificates import renewed, written
from tidegate.kube.answers import why_unanswered
from tidegate.kube.api import NotLeading


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Takes connections, and never answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        yield listening


@pytest.fixture
def untrusted(listener: socket.socket, tmp_path: Path) -> int:
    """The port of a TLS server whose authority nobody has heard of."""
    files = written(renewed(None, ["localhost"], datetime.now(UTC)))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(files["tls.crt"])
    key.write_bytes(files["tls.key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def greet() -> None:
        with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True):
            pass

    threading.Thread(target=greet, daemon=True).start()
    return int(listener.getsockname()[1])


def test_nobody_listens(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()

    assert _said(f"https://127.0.0.1:{port}/apis?limit=250") == (
        f"the API server at https://127.0.0.1:{port} can't be reached: connection refused"
    )


def test_a_host_that_nobody_knows() -> None:
    assert _said("https://nowhere.invalid/apis") == (
        "the API server at https://nowhere.invalid:443 can't be reached: its host name is unknown here"
    )


def test_a_server_that_says_nothing(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    assert _said(f"http://127.0.0.1:{port}/apis", read_s=0.1) == (
        f"the API server at http://127.0.0.1:{port} did not answer in time"
    )


def test_a_server_that_hangs_up(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    def hang_up() -> None:
        listener.accept()[0].close()

    threading.Thread(target=hang_up, daemon=True).start()

    said = _said(f"http://127.0.0.1:{port}/apis")

    assert said.startswith(f"the connection to the API server at http://127.0.0.1:{port} broke: ")


def test_an_address_of_version_6_is_bracketed() -> None:
    pool = urllib3.HTTPSConnectionPool("::1", 6443)
    error = urllib3.exceptions.ReadTimeoutError(pool, "/apis", "read timed out")

    assert why_unanswered(error) == "the API server at https://[::1]:6443 did not answer in time"


def test_a_certificate_of_somebody_else_is_named_as_what_it_is(untrusted: int) -> None:
    said = _said(f"https://127.0.0.1:{untrusted}/apis")

    assert said.startswith(f"the API server at https://127.0.0.1:{untrusted} is not trusted: ")
    assert "certificate" in said
    assert "Error" not in said


def test_what_is_no_connection_keeps_its_own_words() -> None:
    assert why_unanswered(NotLeading("another replica leads")) == "another replica leads"


def _said(url: str, read_s: float = 5.0) -> str:
    return _failed(
        lambda: urllib3.PoolManager(retries=urllib3.Retry(total=0)).request(
            "GET", url, timeout=urllib3.Timeout(connect=5.0, read=read_s)
        )
    )


def _failed(call: Callable[[], object]) -> str:
    with pytest.raises(HTTPError) as failure:
        call()
    return why_unanswered(failure.value)
