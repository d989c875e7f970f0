"""``tidegate.kube.injection.WebhookObjects`` on the Kubernetes API."""

from __future__ import annotations

import base64

from kubernetes.client import AdmissionregistrationV1Api, ApiClient, CoreV1Api

from tidegate.kube.client import bounded_call
from tidegate.kube.injection import KeptSecret
from tidegate.kube.ports import Conflict, NotFound


class WebhookClient:
    """Implements ``tidegate.kube.injection.WebhookObjects``."""

    def __init__(self, api_client: ApiClient) -> None:
        self._core = CoreV1Api(api_client)
        self._admission = AdmissionregistrationV1Api(api_client)

    def secret(self, namespace: str, name: str) -> KeptSecret:
        try:
            found = bounded_call(f"read Secret {namespace}/{name}", self._core.read_namespaced_secret, name, namespace)
        except NotFound:
            return KeptSecret({}, None)
        data = {key: base64.b64decode(value) for key, value in (found.data or {}).items()}
        return KeptSecret(data, str(found.metadata.resource_version))

    def put_secret(self, namespace: str, name: str, kept: KeptSecret) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in kept.data.items()}
        what = f"write Secret {namespace}/{name}"
        if kept.version is None:
            metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "tidegate"}}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
            bounded_call(what, self._core.create_namespaced_secret, namespace, body)
            return
        # What else is written on it, as by Helm, stays.
        found = bounded_call(what, self._core.read_namespaced_secret, name, namespace)
        if found.metadata.resource_version != kept.version:
            raise Conflict(f"{what}: it was changed")
        found.data = data
        bounded_call(what, self._core.replace_namespaced_secret, name, namespace, found)

    def trust(self, configuration: str, ca_bundle: bytes) -> bool:
        what = f"MutatingWebhookConfiguration {configuration}"
        found = bounded_call(f"read {what}", self._admission.read_mutating_webhook_configuration, configuration)
        wanted = base64.b64encode(ca_bundle).decode()
        changes = [
            {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": wanted}
            for number, webhook in enumerate(found.webhooks or ())
            if webhook.client_config.ca_bundle != wanted
        ]
        if not changes:
            return False
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version}
        bounded_call(
            f"write the CA certificates of {what}",
            self._admission.patch_mutating_webhook_configuration,
            configuration,
            [unchanged, *changes],
            _content_type="application/json-patch+json",
        )
        return True
