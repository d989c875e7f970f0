"""Requests to the API server as JSON, through the official client's connections and credentials.

Its own classes make an object of each answer, of which one or two fields are wanted, and those for all kinds take 70 MB
of memory; each of them takes 30 to 1000 ms to import.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
_CHUNK: Final = 64 * 1024
"""Bytes that are read at once at most; fewer are passed on as they come."""


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

    def lines(self, path: str, query: Mapping[str, str], *, timeout: Any) -> Iterator[Any]:
        """What each line of an answer that goes on says, as JSON, until the API server ends it.

        ``timeout``: seconds to connect, and for how long it may be silent. Raises ``ValueError`` for a line that is no
        JSON, besides what the others raise.
        """
        request = self._api.param_serialize(
            method="GET",
            resource_path=path,
            query_params=list(query.items()),
            header_params={"Accept": JSON},
            auth_settings=["BearerToken"],
        )
        said = self._api.call_api(*request, _request_timeout=timeout)
        if not 200 <= said.status <= 299:
            said.read()
            self._api.response_deserialize(response_data=said, response_types_map={"2XX": "object"})
        answer = said.response
        try:
            yield from _lines(answer.stream(amt=_CHUNK, decode_content=True))
        finally:
            # Not given back: the rest of it would be read by the next request.
            answer.close()


def _lines(chunks: Iterator[bytes]) -> Iterator[Any]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in whole if line.strip())


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
