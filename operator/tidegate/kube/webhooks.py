"""``tidegate.kube.injection.WebhookObjects`` on the Kubernetes API."""

from __future__ import annotations

import base64
from typing import Final

from kubernetes.client import ApiClient, CustomObjectsApi

from tidegate.kube.client import bounded_call, bounded_object
from tidegate.kube.core import CoreObjects
from tidegate.kube.injection import KeptSecret
from tidegate.kube.ports import Conflict, NotFound

_SECRETS: Final = "secrets"
_CONFIGURATIONS: Final = ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")


class WebhookClient:
    """Implements ``tidegate.kube.injection.WebhookObjects``."""

    def __init__(self, api_client: ApiClient) -> None:
        self._core = CoreObjects(api_client)
        self._objects = CustomObjectsApi(api_client)

    def secret(self, namespace: str, name: str) -> KeptSecret:
        try:
            found = bounded_object(f"read Secret {namespace}/{name}", self._core.read, _SECRETS, namespace, name)
        except NotFound:
            return KeptSecret({}, None)
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return KeptSecret(data, str(found["metadata"]["resourceVersion"]))

    def put_secret(self, namespace: str, name: str, kept: KeptSecret) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in kept.data.items()}
        what = f"write Secret {namespace}/{name}"
        if kept.version is None:
            metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "tidegate"}}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
            bounded_call(what, self._core.create, _SECRETS, namespace, body)
            return
        # What else is written on it, as by Helm, stays.
        found = bounded_object(what, self._core.read, _SECRETS, namespace, name)
        if found["metadata"]["resourceVersion"] != kept.version:
            raise Conflict(f"{what}: it was changed")
        bounded_call(what, self._core.replace, _SECRETS, namespace, name, {**found, "data": data})

    def trust(self, configuration: str, ca_bundle: bytes) -> bool:
        what = f"MutatingWebhookConfiguration {configuration}"
        found = bounded_object(f"read {what}", self._objects.get_cluster_custom_object, *_CONFIGURATIONS, configuration)
        wanted = base64.b64encode(ca_bundle).decode()
        changes = [
            {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": wanted}
            for number, webhook in enumerate(found.get("webhooks") or ())
            if webhook["clientConfig"].get("caBundle") != wanted
        ]
        if not changes:
            return False
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}
        bounded_call(
            f"write the CA certificates of {what}",
            self._objects.patch_cluster_custom_object,
            *_CONFIGURATIONS,
            configuration,
            [unchanged, *changes],
            _content_type="application/json-patch+json",
        )
        return True
