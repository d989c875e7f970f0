"""The connection's kinds of authentication against a broker with TLS, SASL and Kafka's own authorizer."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from devstack import KafkaCluster
from support.probes import probe_of
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, NotAuthorized
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.ports import OffsetWriter
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.probe import PREFIX
from tidegate.kafka_client.wire import Wire
from tidegate.kafka_client.writer import transactional_id
from tidegate.reset.marker import marker_group
from tidegate.resources.connection import GroupKind, Support

TOPIC = "secured"
PARTITION = TopicPartition(TOPIC, 0)
PASSWORD_OF_NOBODY = "not-the-password-4711"
Right = tuple[ResourceType, str, AclOperation]
Grant = Callable[..., None]


def rights_for(group: str) -> tuple[Right, ...]:
    """What docs/reference/permissions.md says that a reset's transaction needs."""
    return (
        (ResourceType.GROUP, group, AclOperation.READ),
        (ResourceType.GROUP, marker_group(group), AclOperation.READ),
        (ResourceType.TOPIC, TOPIC, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, transactional_id(group), AclOperation.WRITE),
    )


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaCluster]:
    with KafkaCluster.start(1, security="sasl_ssl", authorizer=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce(TOPIC, b"")
        assert producer.flush(20) == 0
        yield cluster


@pytest.fixture
def grant(secured: KafkaCluster) -> Grant:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})

    def allow(principal: str, *rights: Right, pattern: ResourcePatternType = ResourcePatternType.LITERAL) -> None:
        bindings = [
            AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in rights
        ]
        for future in admin.create_acls(bindings).values():
            future.result(20)

    return allow


def secret(folder: Path, value: str) -> Path:
    file = folder / "secret"
    file.touch(mode=0o600)
    file.write_text(value + "\n")
    return file


@pytest.fixture
def connections(secured: KafkaCluster, tmp_path: Path, token_endpoint: str) -> dict[str, Connection]:
    security = secured.security
    password = secret(tmp_path, security.password)

    def sasl(kind: AuthenticationType) -> Connection:
        auth = Authentication(kind, username=security.username, password_file=password)
        return Connection(security.sasl_ssl_bootstrap, tls=True, ca_file=security.ca, authentication=auth)

    return {
        "scram-sha-256": sasl(AuthenticationType.SCRAM_SHA_256),
        "scram-sha-512": sasl(AuthenticationType.SCRAM_SHA_512),
        "plain": sasl(AuthenticationType.PLAIN),
        "tls": Connection(
            security.ssl_bootstrap,
            tls=True,
            ca_file=security.ca,
            authentication=Authentication(
                AuthenticationType.TLS, certificate_file=security.client.certificate, key_file=security.client.key
            ),
        ),
        "oauth": Connection(
            security.sasl_ssl_bootstrap,
            tls=True,
            ca_file=security.ca,
            authentication=Authentication(
                AuthenticationType.OAUTH,
                token_endpoint_uri=token_endpoint,
                client_id="tidegate",
                client_secret_file=password,
                scope="kafka",
            ),
        ),
    }


@pytest.fixture(scope="module")
def token_endpoint() -> Iterator[str]:
    """A token endpoint that hands out unsigned tokens, as the broker's development validator accepts them."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now = time.time()
            claims = {"sub": "tidegate", "iat": now, "exp": now + 600, "scope": "kafka"}
            token = f"{part({'alg': 'none'})}.{part(claims)}."
            body = json.dumps({"access_token": token, "token_type": "bearer", "expires_in": 600}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def commit(writer: OffsetWriter, group: str, partition: TopicPartition) -> None:
    """What a reset commits: offsets and marker in one transaction."""
    with writer.transaction() as transaction:
        transaction.send(group, {partition: 0})
        transaction.send(marker_group(group), {partition: 7})
        transaction.commit()


@pytest.mark.parametrize("kind", ["scram-sha-256", "scram-sha-512", "plain", "tls", "oauth"])
def test_both_client_libraries_authenticate(kind: str, connections: dict[str, Connection], grant: Grant) -> None:
    group = f"group-{kind}"
    principal = "User:CN=tidegate" if kind == "tls" else "User:tidegate"
    grant(principal, *rights_for(group))
    with closing(KafkaClient(connections[kind])) as kafka:
        commit(kafka.writer(group, transaction_timeout_s=5), group, PARTITION)
        deadline = time.monotonic() + 10
        while kafka.pending(group, [PARTITION]):
            assert time.monotonic() < deadline
        assert kafka.committed(group) == {PARTITION: 0}
        assert kafka.groups([group])[group].is_vacant
        assert kafka.record_times({PARTITION: 0}).keys() == {PARTITION}, "records are read by librdkafka"
        with closing(kafka.topic_watch()) as watch:
            assert list(watch.poll([TOPIC, "hidden"]) or ()) == [TOPIC]


@pytest.mark.parametrize("kind", ["scram-sha-512", "plain"])
def test_a_wrong_password_is_an_error_that_does_not_tell_it(
    kind: str, secured: KafkaCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    auth = Authentication(
        AuthenticationType(kind),
        username=secured.security.username,
        password_file=secret(tmp_path, PASSWORD_OF_NOBODY),
    )
    connection = Connection(
        secured.security.sasl_ssl_bootstrap,
        tls=True,
        ca_file=secured.security.ca,
        authentication=auth,
        properties={"socket.timeout.ms": "3000"},
    )
    with closing(KafkaClient(connection)) as kafka:
        with pytest.raises(NotAuthenticated, match="Authentication failed") as caught:
            kafka.cluster()
        assert PASSWORD_OF_NOBODY not in str(caught.value)
        with pytest.raises(KafkaFailure) as caught:
            kafka.committed("any")
        assert PASSWORD_OF_NOBODY not in str(caught.value)
    assert PASSWORD_OF_NOBODY not in "".join(capfd.readouterr())


def test_a_login_that_was_refused_is_tried_anew_with_what_the_file_holds_then(
    secured: KafkaCluster, tmp_path: Path
) -> None:
    file = secret(tmp_path, PASSWORD_OF_NOBODY)
    auth = Authentication(AuthenticationType.SCRAM_SHA_512, username=secured.security.username, password_file=file)
    connection = Connection(
        secured.security.sasl_ssl_bootstrap, tls=True, ca_file=secured.security.ca, authentication=auth
    )
    with closing(KafkaClient(connection)) as kafka:
        for _ in range(2):
            with pytest.raises(NotAuthenticated, match="Authentication failed"):
                kafka.cluster()
        secret(tmp_path, secured.security.password)
        assert kafka.cluster().brokers


@pytest.mark.parametrize(
    ("trusted", "said"),
    [(False, "certificate verify failed"), (True, "alert")],
    ids=["unknown broker", "unknown client"],
)
def test_a_certificate_that_is_refused_is_an_error_of_its_own(trusted: bool, said: str, secured: KafkaCluster) -> None:
    """We refuse the broker's, or it refuses us, who have none."""
    security = secured.security
    connection = Connection(security.ssl_bootstrap, tls=True, ca_file=security.ca if trusted else None)
    with closing(KafkaClient(connection)) as kafka, pytest.raises(NotAuthenticated, match=said):
        kafka.cluster()


def test_a_probe_needs_the_rights_that_are_documented_and_without_them_says_so(
    connections: dict[str, Connection], grant: Grant, secured: KafkaCluster
) -> None:
    connection, principal = connections["tls"], "User:CN=tidegate"

    def allow(kind: ResourceType, operation: AclOperation) -> None:
        grant(principal, (kind, PREFIX, operation), pattern=ResourcePatternType.PREFIXED)

    with closing(KafkaClient(connection)) as kafka, closing(Wire(connection)) as wire:
        probe = probe_of(connection, wire, kafka)
        grant(principal, (ResourceType.TOPIC, TOPIC, AclOperation.READ))
        for kind, operation in (
            (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
            (ResourceType.GROUP, AclOperation.READ),
        ):
            for group in GroupKind:
                found = probe.of(group)
                assert (found.support, found.reason) == (Support.UNKNOWN, "NotAuthorized"), found
                assert PREFIX in found.message
            allow(kind, operation)
        allow(ResourceType.GROUP, AclOperation.DELETE)

        assert {kind: probe.of(kind).support for kind in GroupKind} == dict.fromkeys(GroupKind, Support.SUPPORTED)

    with closing(Wire(Connection(secured.bootstrap))) as everything:
        left = {row.group_id: row.type for row in list_groups(everything) if row.group_id.startswith(PREFIX)}
        assert left == {}


@pytest.mark.parametrize("missing", range(4), ids=["group", "marker-group", "topic", "transactional-id"])
def test_a_missing_right_is_named_and_nothing_is_committed(
    missing: int, connections: dict[str, Connection], grant: Grant, secured: KafkaCluster
) -> None:
    group = f"group-without-{missing}"
    rights = rights_for(group)
    # Describing the group is implied by reading it; grant it apart, so that only the write lacks.
    describe = (ResourceType.GROUP, group, AclOperation.DESCRIBE)
    grant("User:tidegate", describe, *(r for i, r in enumerate(rights) if i != missing))
    if missing == 2:
        group = "group-without-topic-right"
        partition = TopicPartition("unreadable", 0)
        admin = AdminClient({"bootstrap.servers": secured.bootstrap})
        admin.create_topics([NewTopic("unreadable", 1, 1)])["unreadable"].result(20)
        grant("User:tidegate", *rights_for(group))
        grant("User:tidegate", (ResourceType.TOPIC, "unreadable", AclOperation.DESCRIBE))
    else:
        partition = PARTITION

    with closing(KafkaClient(connections["scram-sha-512"])) as kafka:
        writer = kafka.writer(group, transaction_timeout_s=5)
        with pytest.raises(NotAuthorized) as caught:
            commit(writer, group, partition)
    kind, _, operation = rights[missing]
    name = partition.topic if kind is ResourceType.TOPIC else rights[missing][1]
    right = f"{operation.name.title()} on {kind.name.lower().replace('_', '-')} {name}"
    assert f"allow the principal {right} " in str(caught.value)
    with closing(KafkaClient(Connection(secured.bootstrap))) as everything:
        assert everything.committed(group) == {}
