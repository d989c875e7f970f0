"""Credentials of a connection go to whom it names and to nobody else, whatever that one answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer

from corpus.reading import SPECS
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka_client.librdkafka import silent_logger
from tidegate.kafka_client.settings import BadConnection, ClientCredentials, librdkafka_config
from tidegate.resources.base import InvalidResource, parse_spec

SECRET = "a-clients-secret"

Answer = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[Answer], tuple[str, list[str]]]


@contextmanager
def _served(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server's address, and what came as credentials."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.headers.get("Authorization", ""))
            answer(self)

        do_GET = do_POST  # noqa: N815 - as http.server calls it; a redirect may turn one into the other

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(_served(answer))


def _bytes(content: bytes, status: int = 200) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.end_headers()
        request.wfile.write(content)

    return answer


def _redirect(location: str, status: int) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Location", location)
        request.end_headers()

    return answer


def _no_http(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.fixture
def oauth(tmp_path: Path) -> Callable[[str], Authentication]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    return lambda uri: Authentication(
        AuthenticationType.OAUTH, token_endpoint_uri=uri, client_id="tidegate", client_secret_file=secret
    )


def test_a_token_is_taken(serve: Serve, oauth: Callable[[str], Authentication]) -> None:
    uri, seen = serve(_bytes(json.dumps({"access_token": "t0ken"}).encode()))
    assert ClientCredentials(oauth(uri)).token() == "t0ken"
    assert [one.partition(" ")[0] for one in seen] == ["Basic"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_clients_secret_follows_no_redirect(
    serve: Serve, oauth: Callable[[str], Authentication], status: int
) -> None:
    elsewhere, seen_there = serve(_bytes(b'{"access_token": "t0ken"}'))
    uri, seen = serve(_redirect(elsewhere, status))
    with pytest.raises(BadConnection, match="no token from"):
        ClientCredentials(oauth(uri)).token()
    assert (len(seen), seen_there) == (1, [])


def test_nor_does_it_through_librdkafka(serve: Serve, oauth: Callable[[str], Authentication]) -> None:
    elsewhere, seen_there = serve(_bytes(b'{"access_token": "t0ken"}'))
    uri, seen = serve(_redirect(elsewhere, 307))
    connection = Connection("127.0.0.1:1", authentication=oauth(uri))
    consumer = Consumer({**librdkafka_config(connection), "group.id": "g"}, logger=silent_logger())
    try:
        deadline = time.monotonic() + 10
        while not seen and time.monotonic() < deadline:
            consumer.poll(0.05)
        consumer.poll(0.5)  # it has its answer, and would follow it now
    finally:
        consumer.close()
    assert seen
    assert seen_there == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_bytes(b'["s3cr3t"]'), id="a list"),
        pytest.param(_bytes(b"null"), id="null"),
        pytest.param(_bytes(b'"s3cr3t"'), id="a text"),
        pytest.param(_bytes(b'{"access_token": "s3cr3t", "expires_in": null}'), id="a lifetime of nothing"),
        pytest.param(_bytes(b'{"access_token": "s3cr3t", "expires_in": {}}'), id="a lifetime that is no number"),
        pytest.param(_bytes(b'{"s3cr3t": 1}'), id="no token"),
        pytest.param(_bytes(b"\xffs3cr3t"), id="no text"),
        pytest.param(_bytes(b"[" * 100_000), id="deeply nested"),
        pytest.param(_bytes(b'{"access_token": "' + b"x" * (2 << 20) + b'"}'), id="larger than is read"),
        pytest.param(_bytes(b"s3cr3t", 401), id="a refusal"),
        pytest.param(_no_http, id="another protocol"),
    ],
)
def test_whatever_the_endpoint_answers_is_a_failure_that_shows_nothing_of_it(
    serve: Serve, oauth: Callable[[str], Authentication], answer: Answer
) -> None:
    uri, _ = serve(answer)
    with pytest.raises(BadConnection, match="no token from") as caught:
        ClientCredentials(oauth(uri)).token()
    assert "s3cr3t" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "ftp://host/token", "//host/token", "HTTP://host/token"])
def test_an_endpoint_that_is_no_web_address_is_not_asked(oauth: Callable[[str], Authentication], uri: str) -> None:
    with pytest.raises(BadConnection, match="not an http"):
        ClientCredentials(oauth(uri))


@pytest.mark.parametrize(
    "name",
    [
        *("bootstrap.servers", "metadata.broker.list", "sasl.oauthbearer.token.endpoint.url", "client.rack.url"),
        *("ssl.ca.location", "ssl.key.location", "ssl.keystore.location", "ssl.engine.location", "ssl.providers"),
        *("plugin.library.paths", "interceptor.classes", "sasl.jaas.config", "sasl.login.callback.handler.class"),
        *("security.protocol", "enable.ssl.certificate.verification", "sasl.mechanism", "sasl.password"),
        *("debug", "log_cb", "oauth_cb", "opaque", "socket.timeout.ms ", "Client.Id"),
    ],
)
def test_no_property_names_a_server_a_file_a_library_or_who_one_is(name: str) -> None:
    body = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "KafkaConnection",
        "metadata": {"name": "main", "namespace": "team"},
        "spec": {"bootstrapServers": "kafka:9092", "properties": {"client.id": "mine", name: "x"}},
    }
    with pytest.raises(InvalidResource, match="only these client settings can be given"):
        parse_spec(SPECS["KafkaConnection"], body)
    del body["spec"]["properties"][name]  # type: ignore[index]
    parse_spec(SPECS["KafkaConnection"], body)
