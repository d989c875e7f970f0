"""The core API group's objects as JSON, through the official client's connections.

Its ``CoreV1Api`` has a class for each kind there is, which take 70 MB of memory and a second to import; and an object
is made of each answer, of which one or two fields are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

MERGE: Final = "application/merge-patch+json"


class CoreObjects:
    """Methods raise ``kubernetes.client.exceptions.ApiException``, ``urllib3``'s errors and ``OSError``.

    ``plural``: of the kind, such as ``configmaps``; it may have a subresource behind it: ``of``.
    ``_request_timeout``: seconds to connect, and to be answered.
    """

    def __init__(self, api_client: ApiClient) -> None:
        self._api = api_client

    def read(self, plural: str, namespace: str, name: str, *, of: str = "", _request_timeout: Any = None) -> Any:
        return self._asked("GET", _path(plural, namespace, name, of), timeout=_request_timeout)

    def list(
        self,
        plural: str,
        namespace: str,
        *,
        label_selector: str = "",
        limit: int | None = None,
        following: str = "",
        _request_timeout: Any = None,
    ) -> Any:
        """One page. ``following``: what the page before said in ``metadata.continue``."""
        options = {"labelSelector": label_selector, "limit": limit, "continue": following}
        query = {name: str(value) for name, value in options.items() if value}
        return self._asked("GET", _path(plural, namespace), query=query, timeout=_request_timeout)

    def create(self, plural: str, namespace: str, body: Mapping[str, Any], *, _request_timeout: Any = None) -> Any:
        return self._asked("POST", _path(plural, namespace), body=body, timeout=_request_timeout)

    def create_of(
        self, plural: str, namespace: str, name: str, of: str, body: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        """Create a subresource, such as a pod's ``eviction``."""
        return self._asked("POST", _path(plural, namespace, name, of), body=body, timeout=_request_timeout)

    def replace(
        self, plural: str, namespace: str, name: str, body: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        return self._asked("PUT", _path(plural, namespace, name), body=body, timeout=_request_timeout)

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
        path = _path(plural, namespace, name, of)
        return self._asked("PATCH", path, body=body, query=query, content_type=MERGE, timeout=_request_timeout)

    def delete(
        self, plural: str, namespace: str, name: str, *, grace_s: int | None = None, _request_timeout: Any = None
    ) -> Any:
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        return self._asked("DELETE", _path(plural, namespace, name), query=query, timeout=_request_timeout)

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
        """The last lines of a container's log. What is no UTF-8 in it is replaced."""
        query = {"container": container, "tailLines": str(tail_lines), "limitBytes": str(limit_bytes)}
        path = _path("pods", namespace, pod, "log")
        said: bytes = self._asked("GET", path, query=query, answer="bytes", timeout=_request_timeout)
        return said.decode(errors="replace")

    def kinds(self, *, _request_timeout: Any = None) -> Any:
        """An ``APIResourceList``: what kinds there are."""
        return self._asked("GET", "/api/v1", timeout=_request_timeout)

    def _asked(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        answer: Literal["object", "bytes"] = "object",
        timeout: Any,
    ) -> Any:
        headers = {"Accept": "application/json" if answer == "object" else "*/*"} | (
            {"Content-Type": content_type} if body is not None else {}
        )
        request = self._api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],  # as its own methods say it
        )
        said = self._api.call_api(*request, _request_timeout=timeout)
        said.read()
        return self._api.response_deserialize(response_data=said, response_types_map={"2XX": answer}).data


def _path(plural: str, namespace: str, name: str = "", of: str = "") -> str:
    """Names come from specs: none of them leads elsewhere. Raises ``ApiException`` for those that no object can have,
    and that would be taken for a step in the path."""
    parts = ["", "api", "v1", "namespaces", namespace, plural, *([name] if name else []), *([of] if of else [])]
    if {".", ".."}.intersection(parts):
        raise ApiException(status=404, reason=f"no {plural} can be called {namespace}/{name}")
    return "/".join(quote(part, safe="") for part in parts)
