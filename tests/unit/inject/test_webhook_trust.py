"""Who keeps the webhook's own certificates: several operators, missing rights, others' writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from support.fake_webhooks import FakeObjects
from tidegate.connection.files import ConnectionFiles, FilesFailure
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.trust import FOLDER, Place, WebhookTrust, service_names

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PLACE = Place("tidegate", "webhook-tls", "tidegate", service_names("webhook", "tidegate"))


class Objects(FakeObjects):
    """A configuration with one webhook, and the one Secret."""

    def __init__(self) -> None:
        super().__init__()
        self.configurations[PLACE.configuration] = [b""]

    @property
    def data(self) -> Mapping[str, bytes]:
        return self.secret(PLACE.namespace, PLACE.secret).data

    @property
    def bundle(self) -> bytes:
        (found,) = self.configurations[PLACE.configuration]
        return found


def operator(
    objects: FakeObjects, folder: Path, registry: CollectorRegistry | None = None
) -> tuple[WebhookTrust, Path]:
    files = ConnectionFiles(folder)
    trust = WebhookTrust(
        PLACE, objects, files, ThreadPoolExecutor(1), lambda: NOW, InjectionMetrics(registry or CollectorRegistry())
    )
    return trust, files.folder(FOLDER)


def test_all_operators_serve_what_the_first_one_made_and_write_nothing_more(tmp_path: Path) -> None:
    objects = Objects()
    (first, at_first), (second, at_second) = operator(objects, tmp_path / "a"), operator(objects, tmp_path / "b")

    for trust in (first, second, first, second):
        asyncio.run(trust.look())

    assert objects.writes == 1
    assert (at_first / "tls.crt").read_bytes() == (at_second / "tls.crt").read_bytes() == objects.data["tls.crt"]
    assert objects.bundle == objects.data["ca.crt"]
    assert sorted(p.name for p in at_first.iterdir()) == ["tls.crt", "tls.key"]


def test_prometheus_is_told_when_the_certificate_expires(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    objects = Objects()
    trust, folder = operator(objects, tmp_path, registry)
    name = "tidegate_webhook_certificate_expiry_timestamp_seconds"
    assert registry.get_sample_value(name) == 0

    asyncio.run(trust.look())

    served = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    assert registry.get_sample_value(name) == served.not_valid_after_utc.timestamp()


def test_prometheus_is_told_of_no_certificate_that_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume is full: the earlier one is served on, and expires."""
    registry = CollectorRegistry()
    trust, _ = operator(Objects(), tmp_path, registry)

    def full(*_: object) -> None:
        raise FilesFailure("no space left on device")

    monkeypatch.setattr(trust._files, "put", full)

    asyncio.run(trust.look())

    assert registry.get_sample_value("tidegate_webhook_certificate_expiry_timestamp_seconds") == 0


def test_of_two_that_begin_at_once_one_takes_over_what_the_other_made(tmp_path: Path) -> None:
    other = Objects()
    asyncio.run(operator(other, tmp_path / "other")[0].look())
    objects = Objects()
    objects.rival = other.data
    trust, folder = operator(objects, tmp_path / "a")

    asyncio.run(trust.look())

    assert objects.data == other.data
    assert (folder / "tls.crt").read_bytes() == other.data["tls.crt"]
    assert objects.bundle == other.bundle


def test_what_is_missing_is_waited_for(tmp_path: Path) -> None:
    objects = Objects()
    objects.keep(PLACE.namespace, PLACE.secret, {})  # the chart makes it, empty
    webhooks = objects.configurations.pop(PLACE.configuration)
    objects.forbidden = True
    trust, folder = operator(objects, tmp_path)

    asyncio.run(trust.look())
    assert not folder.exists()
    objects.forbidden = False
    asyncio.run(trust.look())
    assert (folder / "tls.key").exists()
    assert objects.configurations == {}
    objects.configurations[PLACE.configuration] = webhooks
    asyncio.run(trust.look())

    assert objects.bundle == objects.data["ca.crt"]


def test_what_a_chart_takes_away_is_told_again(tmp_path: Path) -> None:
    objects = Objects()
    trust, folder = operator(objects, tmp_path)
    asyncio.run(trust.look())
    before = (folder / "tls.crt").read_bytes()
    objects.configurations[PLACE.configuration] = [b""]

    asyncio.run(trust.look())

    assert objects.bundle == objects.data["ca.crt"]
    assert (folder / "tls.crt").read_bytes() == before
