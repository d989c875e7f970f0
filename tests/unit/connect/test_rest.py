"""What is sent to Connect's workers, and what becomes of answers that no worker gives."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from devstack.certificates import CertificateAuthority
from tidegate.connect import rest
from tidegate.connect.ports import ConnectCluster, ConnectFailure, ConnectRefused, ConnectUnavailable, TargetState
from tidegate.connect.rest import RestConnectWorkers

DESCRIBED = {"name": "sink", "config": {"topics": "orders", "password": "hunter2"}, "type": "sink"}
STATUS = {
    "name": "sink",
    "connector": {"state": "RUNNING"},
    "tasks": [{"id": 0, "state": "FAILED", "trace": "hunter2"}],
}

NOT_FOUND = b'{"error_code": 404, "message": "No status found for connector sink"}'

Answer = Callable[[BaseHTTPRequestHandler], None]


class Served:
    """A server that answers all requests by ``answer``, and keeps what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer: Answer = worker
        served = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                served.asked.append((self.command, self.path, self.headers.get("Authorization")))
                served.answer(self)

            do_GET = do_PUT = _any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Nothing on the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def send(handler: BaseHTTPRequestHandler, code: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(code)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def worker(handler: BaseHTTPRequestHandler) -> None:
    if handler.command == "PUT":
        send(handler, 204)
    else:
        send(handler, 200, json.dumps(STATUS if handler.path.endswith("/status") else DESCRIBED).encode())


def always(code: int, body: bytes = b"", **headers: str) -> Answer:
    return lambda handler: send(handler, code, body, **headers)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def cluster_of(served: Served, path: str = "", **more: Any) -> ConnectCluster:
    return ConnectCluster("main", f"http://127.0.0.1:{served.port}{path}", **more)


def test_a_connector_is_asked_for_below_the_url_and_its_name_stays_a_name(served: Served) -> None:
    workers, cluster = RestConnectWorkers(), cluster_of(served, "/connect")
    found = workers.look(cluster, "a/../b?c")
    workers.set_state(cluster, "sink", TargetState.STOPPED)
    assert found is not None
    assert (found.kind, found.state, found.tasks, found.group) == ("sink", "RUNNING", ("FAILED",), "")
    assert served.asked == [
        ("GET", "/connect/connectors/a%2F..%2Fb%3Fc", None),
        ("GET", "/connect/connectors/a%2F..%2Fb%3Fc/status", None),
        ("PUT", "/connect/connectors/sink/stop", None),
    ]
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="no connector's name"):
            workers.look(cluster, name)


def test_over_https_the_password_is_sent_to_whom_is_trusted_only(tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path / "ca")
    issued = authority.issue("connect", alternative_names="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    served = Served(context)
    password = tmp_path / "password"
    password.write_text("s3:cret\n")
    url = f"https://127.0.0.1:{served.port}"
    try:
        trusting = ConnectCluster("main", url, authority.certificate, "tidegate", password)
        RestConnectWorkers().set_state(trusting, "sink", TargetState.RUNNING)
        login = base64.b64encode(b"tidegate:s3:cret").decode()
        assert [asked[2] for asked in served.asked] == [f"Basic {login}"]

        with pytest.raises(ConnectRefused, match="no trusted TLS connection") as refused:
            RestConnectWorkers().look(ConnectCluster("main", url, None, "tidegate", password), "sink")
        assert len(served.asked) == 1
        assert "s3" not in str(refused.value)
    finally:
        served.close()


def test_no_redirect_is_followed(served: Served) -> None:
    other = Served()
    try:
        served.answer = always(307, Location=f"http://127.0.0.1:{other.port}/connectors/sink")
        with pytest.raises(ConnectRefused, match="307"):
            RestConnectWorkers().look(cluster_of(served), "sink")
        assert other.asked == []
    finally:
        other.close()


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (always(409), ConnectUnavailable),
        (always(500, b"hunter2"), ConnectUnavailable),
        (always(503), ConnectUnavailable),
        (always(404, b"<html>hunter2</html>"), ConnectUnavailable),
        (always(401), ConnectRefused),
        (always(403), ConnectRefused),
        (always(200, b"<html>hunter2</html>"), ConnectRefused),
        (always(200, b"[" * 100_000), ConnectRefused),
        (always(200, b"{}"), ConnectRefused),
        (always(200, b'{"config": {"consumer.override.group.id": 5}}'), ConnectRefused),
        (
            always(200, b'{"config": {"consumer.override.group.id": "\\ud800"}, "connector": {"state": "RUNNING"}}'),
            ConnectRefused,
        ),
        (always(200, b'{"config": {}, "connector": {"state": "hunter2"}}'), ConnectRefused),
        (always(200, b'{"config": {}, "connector": {"state": "RUNNING"}, "tasks": [1]}'), ConnectRefused),
    ],
)
def test_what_is_not_answered_as_it_should_be_is_a_failure_without_its_words(
    served: Served, answer: Answer, failure: type[ConnectFailure]
) -> None:
    served.answer = answer
    with pytest.raises(failure) as raised:
        RestConnectWorkers().look(cluster_of(served), "sink")
    assert "hunter2" not in str(raised.value)
    assert "main" in str(raised.value)


def test_an_answer_is_read_up_to_a_bound(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MOST_BYTES", 1000)
    served.answer = always(200, b" " * 2000)
    with pytest.raises(ConnectRefused, match="not a Connect worker"):
        RestConnectWorkers().look(cluster_of(served), "sink")


def test_who_answers_byte_by_byte_is_cut_off(served: Served) -> None:
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200, **{"Content-Length": "1000"})
        while not ended.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    served.answer = drip
    with pytest.raises(ConnectUnavailable):
        RestConnectWorkers(timeout_s=5, whole_s=0.3).look(cluster_of(served), "sink")
    ended.set()


def test_within_tls_who_is_cut_off_reads_that_nobody_is_there() -> None:
    """Whoever reads may be about to: it must find the same connection, and not one in the clear."""
    here, there = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with there, context.wrap_socket(here, server_hostname="connect", do_handshake_on_connect=False) as secured:
        rest._cut(secured)

        assert secured.read(1) == b""


def test_nobody_there_is_unavailable(served: Served) -> None:
    cluster = cluster_of(served)
    served.close()
    with pytest.raises(ConnectUnavailable, match="does not answer"):
        RestConnectWorkers().set_state(cluster, "sink", TargetState.RUNNING)


def test_a_connector_that_no_worker_has_begun_has_no_state(served: Served) -> None:
    served.answer = lambda handler: (
        always(404, NOT_FOUND)(handler) if handler.path.endswith("/status") else worker(handler)
    )
    found = RestConnectWorkers().look(cluster_of(served), "sink")
    assert found is not None
    assert (found.state, found.tasks) == ("", ())


def test_a_worker_that_starts_is_not_taken_for_one_without_the_connector(served: Served) -> None:
    """Its web server answers 404 with a page, before there is a worker behind it."""
    workers, cluster = RestConnectWorkers(), cluster_of(served)
    served.answer = always(404, b"<html><title>Error 404 Not Found</title></html>")
    for ask in (workers.look, workers.can_stop):
        with pytest.raises(ConnectUnavailable):
            ask(cluster, "sink")
    with pytest.raises(ConnectUnavailable):
        workers.set_state(cluster, "sink", TargetState.STOPPED)

    served.answer = always(404, NOT_FOUND)
    assert workers.look(cluster, "sink") is None
    assert not workers.can_stop(cluster, "sink")
    with pytest.raises(ConnectRefused, match="no connector sink"):
        workers.set_state(cluster, "sink", TargetState.STOPPED)


def test_a_process_whose_turn_it_is_not_sets_nothing(served: Served) -> None:
    """What it had decided somebody else may have decided otherwise by now."""
    workers = RestConnectWorkers(may_write=lambda: False)
    assert workers.look(cluster_of(served), "sink") is not None
    asked = list(served.asked)
    with pytest.raises(ConnectUnavailable, match="Lease"):
        workers.set_state(cluster_of(served), "sink", TargetState.RUNNING)
    assert served.asked == asked


def test_one_who_hangs_up_within_tls_is_away_and_not_distrusted(tmp_path: Path) -> None:
    """As a worker does that is being stopped, or what is before workers of which none is there."""
    listening = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        connected, _ = listening.accept()
        with connected:
            connected.recv(1)
            connected.shutdown(socket.SHUT_WR)
            while connected.recv(4096):
                pass

    thread = threading.Thread(target=hang_up, daemon=True)
    thread.start()
    cluster = ConnectCluster("main", f"https://127.0.0.1:{listening.getsockname()[1]}")
    with pytest.raises(ConnectUnavailable, match="does not answer"):
        RestConnectWorkers().look(cluster, "sink")
    thread.join()
    listening.close()


@pytest.mark.parametrize("host", ["connect..kafka", f"{'a' * 64}.kafka"])
def test_a_url_without_a_valid_host_name_is_said(host: str) -> None:
    with pytest.raises(ConnectRefused, match="no valid host name"):
        RestConnectWorkers().look(ConnectCluster("main", f"http://{host}:8083"), "sink")


@pytest.mark.parametrize("which", ["ca_file", "password_file"])
def test_secrets_that_are_just_being_replaced_are_waited_for(served: Served, tmp_path: Path, which: str) -> None:
    gone: dict[str, Any] = {which: tmp_path / "gone"}
    cluster = ConnectCluster("main", f"https://127.0.0.1:{served.port}", username="me", **gone)
    with pytest.raises(ConnectUnavailable, match="Secrets of Connect cluster main are being replaced"):
        RestConnectWorkers().look(cluster, "sink")
    assert served.asked == []


def test_an_ipv6_address_without_a_port_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[tuple[str, int]] = []

    def nobody(address: tuple[str, int], *_: object) -> socket.socket:
        reached.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", nobody)
    for url in ("http://[::1]", "https://[::1]", "http://[::1]:8083"):
        with pytest.raises(ConnectUnavailable):
            RestConnectWorkers().look(ConnectCluster("main", url), "sink")
    assert reached == [("::1", 80), ("::1", 443), ("::1", 8083)]
