"""The demo's own ``kubectl``: apply a file, read a resource, list its Events."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

_FIELD_MANAGER: Final = "tidegate-demo"
_TIMEOUT_S: Final = (5.0, 20.0)


class ClusterError(Exception):
    """The API server did not do what it was asked; the message says what, and why."""


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """An Event about a resource."""

    reason: str
    message: str
    warning: bool


class Cluster:
    """A Kubernetes cluster, by its kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = client.Configuration()
        try:
            config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        except config.ConfigException as error:
            raise ClusterError(f"{kubeconfig} is not a kubeconfig: {error}") from error
        configuration.retries = urllib3.Retry(total=2)
        self._api = client.ApiClient(configuration)
        self._core = client.CoreV1Api(self._api)
        self._paths: dict[tuple[str, str], str] = {}

    @property
    def api_client(self) -> client.ApiClient:
        """For others who talk to the same cluster."""
        return self._api

    def apply(self, text: str) -> str:
        """Server-side apply of one document; what ``kubectl apply`` would print: ``<resource>/<name> <done>``."""
        document = yaml.safe_load(text)
        metadata = document["metadata"]
        address = self._address(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace"))
        before = self._get(address)
        after = self._call(
            "PATCH",
            f"{address}?fieldManager={_FIELD_MANAGER}&force=true",
            body=document,
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        done = "serverside-applied"
        if before is not None:
            same = before["metadata"].get("generation") == after["metadata"].get("generation")
            done = "unchanged" if same else "configured"
        group = document["apiVersion"].rpartition("/")[0]
        return f"{document['kind'].lower()}{'.' + group if group else ''}/{metadata['name']} {done}"

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """The resource; ``None`` when there is none."""
        return self._get(self._address(api_version, kind, name, namespace))

    def is_served(self, api_version: str, kind: str) -> bool:
        """Whether resources of this kind can be read and written by now."""
        try:
            path = self._path(api_version, kind)
        except ClusterError:
            return False
        return self._get(f"{path}?limit=1") is not None

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete it; fine when it is gone already."""
        with contextlib.suppress(_AbsentError):
            self._call("DELETE", self._address(api_version, kind, name, namespace))

    def happenings(self, namespace: str, name: str) -> Sequence[KubeEvent]:
        """The Events about the resources of this name, the oldest first."""
        events = self._core.list_namespaced_event(
            namespace, field_selector=f"involvedObject.name={name}", _request_timeout=_TIMEOUT_S
        ).items
        events.sort(key=lambda event: event.event_time or event.metadata.creation_timestamp)
        return [KubeEvent(event.reason or "", event.message or "", event.type == "Warning") for event in events]

    def close(self) -> None:
        self._api.close()

    def _get(self, address: str) -> dict[str, Any] | None:
        try:
            return self._call("GET", address)
        except _AbsentError:
            return None

    def _address(self, api_version: str, kind: str, name: str, namespace: str | None) -> str:
        root, _, plural = self._path(api_version, kind).rpartition("/")
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{within}/{plural}/{name}"

    def _path(self, api_version: str, kind: str) -> str:
        """``/apis/<group>/<version>/<plural>`` of a kind."""
        known = self._paths.get((api_version, kind))
        if known is not None:
            return known
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        for resource in self._call("GET", root)["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                self._paths[api_version, kind] = f"{root}/{resource['name']}"
                return self._paths[api_version, kind]
        raise ClusterError(f"the API server knows no {kind} in {api_version}")

    def _call(
        self, method: str, path: str, *, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        request = self._api.param_serialize(
            method,
            path,
            header_params={"Accept": "application/json", **(headers or {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._api.call_api(*request, _request_timeout=_TIMEOUT_S)
            text = response.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise ClusterError(f"{method} {path}: {error}") from error
        if not 200 <= response.status < 300:
            kind = _AbsentError if response.status == 404 else ClusterError
            raise kind(f"{method} {path}: {response.status} {text.decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(text)
        return answer


class _AbsentError(ClusterError):
    """404."""
