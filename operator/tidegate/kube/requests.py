"""Requests to the API server as JSON, through the official client's connections and credentials.

Its own classes make an object of each answer, of which one or two fields are wanted, and those for all kinds take 70 MB
of memory; each of them takes 30 to 1000 ms to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"


class Requests:
    """Raises ``kubernetes.client.exceptions.ApiException``, ``urllib3``'s errors and ``OSError``."""

    def __init__(self, api_client: ApiClient) -> None:
        self._api = api_client

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        answer: Literal["object", "bytes"] = "object",
        timeout: Any = None,
    ) -> Any:
        """The answer. ``timeout``: seconds to connect, and to be answered."""
        headers = {"Accept": JSON if answer == "object" else "*/*"}
        if body is not None:
            headers["Content-Type"] = content_type
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


def path_of(api: str, plural: str, namespace: str, name: str = "", of: str = "") -> str:
    """``api``: such as ``api/v1`` or ``apis/tidegate.io/v1alpha1``. ``namespace``: empty for the whole cluster.

    Names come from specs: none of them leads elsewhere. Raises ``ApiException`` for those that no object can have, and
    that would be taken for a step in the path.
    """
    parts = [
        *(["namespaces", namespace] if namespace else []),
        plural,
        *([name] if name else []),
        *([of] if of else []),
    ]
    if {".", ".."}.intersection(parts):
        raise ApiException(status=404, reason=f"no {plural} can be called {namespace}/{name}")
    return "/".join(["", api, *(quote(part, safe="") for part in parts)])
