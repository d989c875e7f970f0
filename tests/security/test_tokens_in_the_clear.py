"""Readers' tokens, which may open the API server as well, cross no network in the clear."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from support.fake_webhooks import FakeObjects
from tidegate.connection.files import ConnectionFiles
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.trust import FOLDER, Place, WebhookTrust, service_names
from tidegate.service.http_server import Answer, HttpServer
from tidegate.service.settings import Address, BadSettings, Settings

NAMES = (*service_names("tidegate-webhook", "ops"), *service_names("tidegate-metrics", "ops"))
PLACE = Place("ops", "tidegate-webhook-tls", "", NAMES)
SERVER_NAME = "tidegate-metrics.ops.svc"
"""As the ServiceMonitor names it."""

OWN = {"TIDEGATE_NAMESPACE": "ops", "TIDEGATE_WEBHOOK_SECRET": "tls", "TIDEGATE_METRICS_SERVICE": "tidegate-metrics"}
ANYWHERE = {"TIDEGATE_METRICS_ADDRESS": "0.0.0.0:8081"}


@pytest.mark.parametrize(
    "environment",
    [
        {"TIDEGATE_HEALTH_ADDRESS": "0.0.0.0:8080"},
        ANYWHERE,
        {"TIDEGATE_METRICS_ADDRESS": "[::]:8081", "TIDEGATE_METRICS_AUTHENTICATION": "kubernetes"},
        {"TIDEGATE_METRICS_ADDRESS": "10.0.0.7:8081"},
    ],
)
def test_tokens_are_not_asked_for_without_tls(environment: Mapping[str, str]) -> None:
    with pytest.raises(BadSettings, match="tokens would cross the network in plain HTTP"):
        Settings.from_environment(environment)


@pytest.mark.parametrize(
    "environment",
    [
        {**ANYWHERE, **OWN},
        {**ANYWHERE, "TIDEGATE_METRICS_CERTIFICATES": "/etc/tidegate/certificates"},
        {**ANYWHERE, "TIDEGATE_METRICS_AUTHENTICATION": "none"},
        {"TIDEGATE_METRICS_AUTHENTICATION": "kubernetes"},
    ],
)
def test_over_tls_without_tokens_or_on_this_machine_they_are_served(environment: Mapping[str, str]) -> None:
    Settings.from_environment(environment)


def test_an_own_certificate_needs_a_place() -> None:
    with pytest.raises(BadSettings, match="Set TIDEGATE_NAMESPACE and TIDEGATE_WEBHOOK_SECRET"):
        Settings.from_environment({**ANYWHERE, "TIDEGATE_METRICS_SERVICE": "tidegate-metrics"})


class Replica:
    """One pod of the operator: its metrics, and what keeps its certificate."""

    def __init__(self, objects: FakeObjects, folder: Path) -> None:
        self.now = datetime.now(UTC) - timedelta(days=61)
        files = ConnectionFiles(folder)
        metrics = InjectionMetrics(CollectorRegistry())
        self._executor = ThreadPoolExecutor(1)
        self._trust = WebhookTrust(PLACE, objects, files, self._executor, lambda: self.now, metrics)
        routes = {"/metrics": lambda _headers: Answer(HTTPStatus.OK, "text/plain", b"up 1\n")}
        self.server = HttpServer(
            "TIDEGATE_METRICS_ADDRESS", Address("127.0.0.1", 0), routes, files.folder(FOLDER), later=True
        )

    def look(self) -> None:
        asyncio.run(self._trust.look())

    def scraped(self, trusted: bytes) -> bytes:
        """As Prometheus does with `tlsConfig` of the ServiceMonitor. Raises `OSError`."""
        context = ssl.create_default_context(cadata=trusted.decode())
        with (
            socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=SERVER_NAME) as secured,
        ):
            secured.sendall(b"GET /metrics HTTP/1.0\r\nAuthorization: Bearer t\r\n\r\n")
            return b"".join(iter(lambda: secured.recv(65536), b""))

    def close(self) -> None:
        self.server.stop()
        self._executor.shutdown()


@pytest.fixture
def objects() -> FakeObjects:
    made = FakeObjects()
    made.keep(PLACE.namespace, PLACE.secret, {})  # the chart makes it, empty
    return made


@pytest.fixture
def replicas(objects: FakeObjects, tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    with contextlib.ExitStack() as stack:
        made = (Replica(objects, tmp_path / "a"), Replica(objects, tmp_path / "b"))
        for one in made:
            one.server.start()
            stack.callback(one.close)
        yield made


def test_every_replica_shows_a_certificate_that_the_secrets_ca_vouches_for_whichever_has_renewed_it(
    objects: FakeObjects, replicas: tuple[Replica, Replica]
) -> None:
    first, _ = replicas
    with pytest.raises((OSError, http.client.HTTPException)):
        _plainly(first)

    for one in replicas:
        one.look()
    before = objects.secret(PLACE.namespace, PLACE.secret).data["ca.crt"]
    assert all(one.scraped(before).endswith(b"up 1\n") for one in replicas)
    with pytest.raises((OSError, http.client.HTTPException)):
        _plainly(first)

    # Sixty-one days on one replica renews it; Prometheus, and the other one, learn of that later.
    first.now += timedelta(days=61)
    first.look()
    assert objects.writes == 2
    after = objects.secret(PLACE.namespace, PLACE.secret).data["ca.crt"]
    for one in replicas:
        for trusted in (before, after):
            assert one.scraped(trusted).endswith(b"up 1\n")


def _plainly(replica: Replica) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", replica.server.port, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer t"})
    connection.getresponse()
