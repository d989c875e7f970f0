"""One suite for `tidegate.kube.injection.WebhookObjects`: the objects in memory, and the API server's."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client as kube

from support.fake_webhooks import FakeObjects
from tidegate.inject.certificates import renewed
from tidegate.kube.injection import KeptSecret, WebhookObjects
from tidegate.kube.ports import Conflict, NotFound
from tidegate.kube.webhooks import WebhookClient


@dataclass(frozen=True)
class Cluster:
    objects: WebhookObjects
    namespace: str
    configuration: str
    configure: Callable[[int], None]
    """Make the configuration, with so many webhooks that trust nobody."""
    bundles: Callable[[], list[bytes]]
    """What its webhooks trust."""
    somebody_writes: Callable[[str, Mapping[str, bytes]], None]
    somebody_deletes: Callable[[str], None]


def _in_memory() -> Cluster:
    fake = FakeObjects()

    def configure(webhooks: int) -> None:
        fake.configurations["configuration"] = [b""] * webhooks

    return Cluster(
        fake,
        "ns",
        "configuration",
        configure,
        lambda: fake.configurations["configuration"],
        lambda name, data: fake.keep("ns", name, data),
        lambda name: fake.secrets.__delitem__(("ns", name)),
    )


def _real(api: kube.ApiClient, namespace: str) -> Iterator[Cluster]:
    core, admission = kube.CoreV1Api(api), kube.AdmissionregistrationV1Api(api)
    name = f"tidegate-{namespace}"

    def configure(webhooks: int) -> None:
        # They match nothing that there is.
        rule = {"apiGroups": ["nobody.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}
        body = {
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"inject-{number}.tidegate.io",
                    "rules": [rule],
                    "clientConfig": {"service": {"namespace": namespace, "name": "webhook"}},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Ignore",
                }
                for number in range(webhooks)
            ],
        }
        admission.create_mutating_webhook_configuration(body)

    def bundles() -> list[bytes]:
        found = admission.read_mutating_webhook_configuration(name)
        return [base64.b64decode(webhook.client_config.ca_bundle or "") for webhook in found.webhooks]

    def somebody_writes(secret: str, data: Mapping[str, bytes]) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        core.patch_namespaced_secret(secret, namespace, {"data": encoded})

    yield Cluster(
        WebhookClient(api),
        namespace,
        name,
        configure,
        bundles,
        somebody_writes,
        lambda secret: core.delete_namespaced_secret(secret, namespace),
    )
    there = [found.metadata.name for found in admission.list_mutating_webhook_configuration().items]
    if name in there:
        admission.delete_mutating_webhook_configuration(name)


@pytest.fixture(params=["memory", pytest.param("apiserver", marks=pytest.mark.apiserver)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        yield _in_memory()
    else:
        api: Any = request.getfixturevalue("kube_client")
        yield from _real(api, request.getfixturevalue("namespace"))


def test_a_secret_is_made_and_written_by_its_newest_version(cluster: Cluster) -> None:
    objects, namespace = cluster.objects, cluster.namespace
    assert objects.secret(namespace, "tls") == KeptSecret({}, None)

    objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"a"}, None))
    first = objects.secret(namespace, "tls")
    objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"b", "tls.key": b"\x00\xff"}, first.version))
    second = objects.secret(namespace, "tls")

    assert first.data == {"ca.crt": b"a"}
    assert second.data == {"ca.crt": b"b", "tls.key": b"\x00\xff"}
    assert None not in (first.version, second.version)
    assert first.version != second.version
    assert objects.secret(namespace, "other") == KeptSecret({}, None)


def test_what_somebody_else_has_made_or_written_is_not_overwritten(cluster: Cluster) -> None:
    objects, namespace = cluster.objects, cluster.namespace
    objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"a"}, None))
    seen = objects.secret(namespace, "tls")

    with pytest.raises(Conflict):
        objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"b"}, None))
    cluster.somebody_writes("tls", {"ca.crt": b"theirs"})
    with pytest.raises(Conflict):
        objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"b"}, seen.version))

    assert objects.secret(namespace, "tls").data == {"ca.crt": b"theirs"}


def test_a_secret_that_is_gone_is_not_written(cluster: Cluster) -> None:
    objects, namespace = cluster.objects, cluster.namespace
    objects.put_secret(namespace, "tls", KeptSecret({"ca.crt": b"a"}, None))
    seen = objects.secret(namespace, "tls")
    cluster.somebody_deletes("tls")

    with pytest.raises(NotFound):
        objects.put_secret(namespace, "tls", seen)

    assert objects.secret(namespace, "tls") == KeptSecret({}, None)


def test_all_webhooks_of_a_configuration_are_told_once(cluster: Cluster) -> None:
    # The API server takes nothing but certificates.
    first, other = (renewed(None, ["webhook"], datetime.now(UTC)).bundle for _ in range(2))

    with pytest.raises(NotFound):
        cluster.objects.trust(cluster.configuration, first)
    cluster.configure(2)

    assert cluster.objects.trust(cluster.configuration, first) is True
    assert cluster.objects.trust(cluster.configuration, first) is False
    assert cluster.bundles() == [first] * 2
    assert cluster.objects.trust(cluster.configuration, first + other) is True
    assert cluster.bundles() == [first + other] * 2
