"""KafkaConnection, as the operator keeps it: real API server, real brokers, the operator a process of its own."""

import base64
import json
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.operator_process import OperatorProcess, Resources, condition_of, until

pytestmark = pytest.mark.at_once(3)

NO_BROKER = "127.0.0.1:1"


def test_a_reachable_cluster_is_ready_and_described(
    resources: Resources, operator: OperatorProcess, kafka: KafkaCluster
) -> None:
    resources.connection("kafka", kafka.bootstrap)

    body = resources.wait_connection("kafka", reason="Connected")

    status = body["status"]
    assert status["clusterId"]
    assert status["brokers"] == 1
    assert status["features"]["consumerProtocol"] is True
    assert status["features"]["nativePause"] is False
    assert status["capabilities"]["resettable"] == "empty, classic, consumer, streams"
    assert {row["reason"] for row in status["capabilities"]["resets"]} == {"KnownVersions"}
    assert status["observedGeneration"] == body["metadata"]["generation"]
    assert "finalizers" not in body["metadata"]
    assert "annotations" not in body["metadata"]
    assert operator.metric("tidegate_connection_up", connection=f"{resources.namespace}/kafka") == 1
    assert [reason for reason, _ in resources.events("kafka")] == ["Connected"]


def test_a_broker_that_is_away_is_said_and_tried_again(
    resources: Resources, operator: OperatorProcess, kafka: KafkaCluster
) -> None:
    resources.connection("kafka", NO_BROKER, properties={"socket.timeout.ms": "1000"})

    away = resources.wait_connection("kafka", ready=False, reason="KafkaUnavailable", timeout_s=60)
    assert NO_BROKER in condition_of(away, "Ready")["message"]
    assert condition_of(away, "Reconciling")["status"] == "True"

    resources.patch("kafkaconnections", "kafka", {"spec": {"bootstrapServers": kafka.bootstrap}})
    assert resources.wait_connection("kafka", timeout_s=60)["status"]["brokers"] == 1


def test_a_broker_that_goes_away_and_comes_back_is_noticed(resources: Resources, operator: OperatorProcess) -> None:
    with KafkaCluster.start() as own:
        resources.connection("kafka", own.bootstrap)
        ready = resources.wait_connection("kafka")

        own.kill(0)
        away = resources.wait_connection("kafka", ready=False, reason="KafkaUnavailable", timeout_s=60)
        assert away["status"]["clusterId"] == ready["status"]["clusterId"]

        own.restart(0)
        resources.wait_connection("kafka", timeout_s=90)


def test_a_missing_secret_and_a_missing_key_are_named_until_they_are_there(
    resources: Resources, operator: OperatorProcess, kafka_secure: KafkaCluster
) -> None:
    security = kafka_secure.security
    resources.connection(
        "kafka",
        security.sasl_ssl_bootstrap,
        tls={"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]},
        authentication={
            "type": "scram-sha-512",
            "username": security.admin_username,
            "passwordSecret": {"secretName": "login", "password": "password"},
        },
    )
    body = resources.wait_connection("kafka", ready=False, reason="SecretNotFound")
    assert "Secret ca " in condition_of(body, "Stalled")["message"]

    resources.secret("ca", **{"ca.crt": security.ca.read_text()})
    resources.secret("login", passphrase=security.admin_password)
    body = resources.wait_connection("kafka", ready=False, reason="SecretKeyNotFound", timeout_s=60)
    assert "has no key password" in condition_of(body, "Stalled")["message"]

    resources.core.patch_namespaced_secret(
        "login", resources.namespace, {"stringData": {"password": security.admin_password}}
    )
    resources.wait_connection("kafka", timeout_s=60)


@pytest.mark.parametrize(
    "kind", [pytest.param("scram-sha-256", marks=pytest.mark.nightly), "scram-sha-512", "plain", "tls"]
)
def test_every_way_to_authenticate_reaches_a_secured_cluster(
    resources: Resources, operator: OperatorProcess, kafka_secure: KafkaCluster, kind: str
) -> None:
    security = kafka_secure.security
    resources.secret("ca", **{"ca.crt": security.ca.read_text()})
    tls = {"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]}
    if kind == "tls":
        resources.secret(
            "us", **{"tls.crt": security.client.certificate.read_text(), "tls.key": security.client.key.read_text()}
        )
        authentication = {
            "type": kind,
            "certificateAndKey": {"secretName": "us", "certificate": "tls.crt", "key": "tls.key"},
        }
        bootstrap = security.ssl_bootstrap
    else:
        resources.secret("us", password=security.admin_password)
        authentication = {
            "type": kind,
            "username": security.admin_username,
            "passwordSecret": {"secretName": "us", "password": "password"},
        }
        bootstrap = security.sasl_ssl_bootstrap

    resources.connection("kafka", bootstrap, tls=tls, authentication=authentication)

    assert resources.wait_connection("kafka", timeout_s=60)["status"]["brokers"] == 1


def test_oauth_fetches_its_token_where_the_connection_says(
    resources: Resources, operator: OperatorProcess, kafka_secure: KafkaCluster
) -> None:
    security = kafka_secure.security
    resources.secret("ca", **{"ca.crt": security.ca.read_text()})
    resources.secret("oauth", secret="the client's secret")
    with _token_endpoint(security.admin_username) as (endpoint, asked):
        resources.connection(
            "kafka",
            security.sasl_ssl_bootstrap,
            tls={"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]},
            authentication={
                "type": "oauth",
                "tokenEndpointUri": endpoint,
                "clientId": "tidegate",
                "clientSecret": {"secretName": "oauth", "key": "secret"},
            },
        )

        assert resources.wait_connection("kafka", timeout_s=60)["status"]["brokers"] == 1
    assert asked
    assert "the client's secret" not in f"{resources.get_connection('kafka')}{operator.tail(10_000)}"


@contextmanager
def _token_endpoint(subject: str) -> Iterator[tuple[str, list[str]]]:
    """Hands out unsigned tokens for `subject`, which the test's broker takes; notes who asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            now = int(time.time())
            token = f"{_part(alg='none')}.{_part(sub=subject, iat=now, exp=now + 3600, scope='kafka')}."
            body = json.dumps({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _part(**claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def test_secrets_are_private_files_that_follow_the_secret_and_go_with_the_connection(
    resources: Resources, operator: OperatorProcess, kafka_secure: KafkaCluster
) -> None:
    security = kafka_secure.security
    resources.secret("ca", **{"ca.crt": security.ca.read_text()})
    resources.secret("login", password="a wrong password, at first")
    created = resources.connection(
        "kafka",
        security.sasl_ssl_bootstrap,
        tls={"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]},
        authentication={
            "type": "plain",
            "username": security.admin_username,
            "passwordSecret": {"secretName": "login", "password": "password"},
        },
    )
    resources.wait_connection("kafka", ready=False, timeout_s=60)
    folder = operator.runtime_directory / created["metadata"]["uid"]
    password = folder / "current" / "login" / "password"
    until(password.is_file, "the password's file")
    assert _modes(operator.runtime_directory) == ({0o700}, {0o600})

    resources.core.patch_namespaced_secret(
        "login", resources.namespace, {"stringData": {"password": security.admin_password}}
    )
    resources.wait_connection("kafka", timeout_s=60)
    assert password.read_text() == security.admin_password

    shown = f"{resources.get_connection('kafka')}{resources.events('kafka')}{operator.tail(10_000)}"
    assert security.admin_password not in shown
    assert "a wrong password" not in shown

    resources.delete_connection("kafka")
    until(lambda: not folder.exists(), "the files are removed")


def _modes(root: Path) -> tuple[set[int], set[int]]:
    """Of folders and of files."""
    paths = [root, *root.rglob("*")]
    folders = {stat.S_IMODE(p.lstat().st_mode) for p in paths if p.is_dir() and not p.is_symlink()}
    return folders, {stat.S_IMODE(p.lstat().st_mode) for p in paths if p.is_file() and not p.is_symlink()}
