"""The core API group's objects as JSON (``tidegate.kube.requests``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubernetes.client import ApiClient

from tidegate.kube.requests import MERGE, Requests, path_of

_API: Final = "api/v1"


class CoreObjects:
    """Methods raise ``kubernetes.client.exceptions.ApiException``, ``urllib3``'s errors and ``OSError``.

    ``plural``: of the kind, such as ``configmaps``; it may have a subresource behind it: ``of``.
    ``_request_timeout``: seconds to connect, and to be answered.
    """

    def __init__(self, api_client: ApiClient) -> None:
        self._requests = Requests(api_client)

    def read(self, plural: str, namespace: str, name: str, *, of: str = "", _request_timeout: Any = None) -> Any:
        return self._requests.ask("GET", path_of(_API, plural, namespace, name, of), timeout=_request_timeout)

    def list(
        self,
        plural: str,
        namespace: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int | None = None,
        following: str = "",
        _request_timeout: Any = None,
    ) -> Any:
        """One page. ``following``: what the page before said in ``metadata.continue``."""
        options = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": limit,
            "continue": following,
        }
        query = {name: str(value) for name, value in options.items() if value}
        return self._requests.ask("GET", path_of(_API, plural, namespace), query=query, timeout=_request_timeout)

    def create(self, plural: str, namespace: str, body: Mapping[str, Any], *, _request_timeout: Any = None) -> Any:
        return self._requests.ask("POST", path_of(_API, plural, namespace), body=body, timeout=_request_timeout)

    def create_of(
        self, plural: str, namespace: str, name: str, of: str, body: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        """Create a subresource, such as a pod's ``eviction``."""
        return self._requests.ask(
            "POST", path_of(_API, plural, namespace, name, of), body=body, timeout=_request_timeout
        )

    def replace(
        self, plural: str, namespace: str, name: str, body: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        return self._requests.ask("PUT", path_of(_API, plural, namespace, name), body=body, timeout=_request_timeout)

    def patch(
        self,
        plural: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        of: str = "",
        field_manager: str = "",
        _request_timeout: Any = None,
    ) -> Any:
        """A merge patch."""
        query = {"fieldManager": field_manager} if field_manager else {}
        path = path_of(_API, plural, namespace, name, of)
        return self._requests.ask("PATCH", path, body=body, query=query, content_type=MERGE, timeout=_request_timeout)

    def delete(
        self, plural: str, namespace: str, name: str, *, grace_s: int | None = None, _request_timeout: Any = None
    ) -> Any:
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        return self._requests.ask(
            "DELETE", path_of(_API, plural, namespace, name), query=query, timeout=_request_timeout
        )

    def log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        tail_lines: int,
        limit_bytes: int,
        _request_timeout: Any = None,
    ) -> str:
        """The last lines of a container's log, of which it is the first ``limit_bytes`` that are answered. What is no
        UTF-8 in it is replaced."""
        query = {"container": container, "tailLines": str(tail_lines), "limitBytes": str(limit_bytes)}
        path = path_of(_API, "pods", namespace, pod, "log")
        said: bytes = self._requests.ask("GET", path, query=query, answer="bytes", timeout=_request_timeout)
        return said.decode(errors="replace")

    def version(self, *, _request_timeout: Any = None) -> Any:
        """The API server's, as ``gitVersion`` and others."""
        return self._requests.ask("GET", "/version", timeout=_request_timeout)

    def kinds(self, *, _request_timeout: Any = None) -> Any:
        """An ``APIResourceList``: what kinds there are."""
        return self._requests.ask("GET", "/api/v1", timeout=_request_timeout)
