"""Who keeps the webhook's own certificates: several operators, missing rights, others' writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from prometheus_client import CollectorRegistry

from tidegate.connection.files import ConnectionFiles
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.ports import KeptSecret
from tidegate.inject.trust import FOLDER, Place, WebhookTrust, service_names
from tidegate.kube.ports import Conflict, KubeFailure, NotFound

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class FakeObjects:
    """A Secret and a configuration. ``rival``: writes the Secret just before somebody else does."""

    def __init__(self) -> None:
        self.data: Mapping[str, bytes] = {}
        self.version: int | None = None
        self.bundle = b""
        self.rival: Mapping[str, bytes] | None = None
        self.configured = True
        self.forbidden = False
        self.writes = 0

    def secret(self, namespace: str, name: str) -> KeptSecret:
        return KeptSecret(self.data, None if self.version is None else f"{namespace}/{name}/{self.version}")

    def put_secret(self, namespace: str, name: str, kept: KeptSecret) -> None:
        if self.forbidden:
            raise KubeFailure("write Secret: 403")
        if self.rival is not None:
            self.data, self.version, self.rival = self.rival, (self.version or 0) + 1, None
        if kept.version != self.secret(namespace, name).version:
            raise Conflict("it was changed")
        self.data, self.version = kept.data, (self.version or 0) + 1
        self.writes += 1

    def trust(self, configuration: str, ca_bundle: bytes) -> bool:
        if not self.configured:
            raise NotFound(configuration)
        changed, self.bundle = self.bundle != ca_bundle, ca_bundle
        return changed


def operator(
    objects: FakeObjects, folder: Path, registry: CollectorRegistry | None = None
) -> tuple[WebhookTrust, Path]:
    place = Place("tidegate", "webhook-tls", "tidegate", service_names("webhook", "tidegate"))
    files = ConnectionFiles(folder)
    trust = WebhookTrust(
        place, objects, files, ThreadPoolExecutor(1), lambda: NOW, InjectionMetrics(registry or CollectorRegistry())
    )
    return trust, files.folder(FOLDER)


def test_all_operators_serve_what_the_first_one_made_and_write_nothing_more(tmp_path: Path) -> None:
    objects = FakeObjects()
    (first, at_first), (second, at_second) = operator(objects, tmp_path / "a"), operator(objects, tmp_path / "b")

    for trust in (first, second, first, second):
        asyncio.run(trust.look())

    assert objects.writes == 1
    assert (at_first / "tls.crt").read_bytes() == (at_second / "tls.crt").read_bytes() == objects.data["tls.crt"]
    assert objects.bundle == objects.data["ca.crt"]
    assert sorted(p.name for p in at_first.iterdir()) == ["tls.crt", "tls.key"]


def test_prometheus_is_told_when_the_certificate_expires(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    objects = FakeObjects()
    trust, folder = operator(objects, tmp_path, registry)
    name = "tidegate_webhook_certificate_expiry_timestamp_seconds"
    assert registry.get_sample_value(name) == 0

    asyncio.run(trust.look())

    served = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    assert registry.get_sample_value(name) == served.not_valid_after_utc.timestamp()


def test_of_two_that_begin_at_once_one_takes_over_what_the_other_made(tmp_path: Path) -> None:
    other = FakeObjects()
    asyncio.run(operator(other, tmp_path / "other")[0].look())
    objects = FakeObjects()
    objects.rival = other.data
    trust, folder = operator(objects, tmp_path / "a")

    asyncio.run(trust.look())

    assert objects.data == other.data
    assert (folder / "tls.crt").read_bytes() == other.data["tls.crt"]
    assert objects.bundle == other.bundle


def test_what_is_missing_is_waited_for(tmp_path: Path) -> None:
    objects = FakeObjects()
    objects.version = 1  # the chart makes it, empty
    objects.configured, objects.forbidden = False, True
    trust, folder = operator(objects, tmp_path)

    asyncio.run(trust.look())
    assert not folder.exists()
    objects.forbidden = False
    asyncio.run(trust.look())
    assert (folder / "tls.key").exists()
    assert objects.bundle == b""
    objects.configured = True
    asyncio.run(trust.look())

    assert objects.bundle == objects.data["ca.crt"]


def test_what_a_chart_takes_away_is_told_again(tmp_path: Path) -> None:
    objects = FakeObjects()
    trust, folder = operator(objects, tmp_path)
    asyncio.run(trust.look())
    before = (folder / "tls.crt").read_bytes()
    objects.bundle = b""

    asyncio.run(trust.look())

    assert objects.bundle == objects.data["ca.crt"]
    assert (folder / "tls.crt").read_bytes() == before
