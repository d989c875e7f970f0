"""The objects of one of the kinds in ``tidegate.kube.ports`` as JSON (``tidegate.kube.requests``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from tidegate.kube.ports import Kind, KubeFailure, Object, kept_of
from tidegate.kube.requests import MERGE, Requests, path_of

_NAMES: Final = ("namespace", "name", "uid")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. ``following``: by what the next one is asked for; empty: it is the last. ``version``: as
    of which moment it is."""

    bodies: tuple[Object, ...]
    following: str
    version: str


def page_of(what: str, kind: Kind, answer: Mapping[str, Any]) -> Page:
    """Raises ``KubeFailure`` for what is no such page, as that of a proxy: ``what`` is done begins its message."""
    items, metadata = answer.get("items"), answer.get("metadata")
    if not isinstance(items, list) or not isinstance(metadata, Mapping) or not all(map(is_object, items)):
        raise KubeFailure(f"{what}: the API server answered with something that is no list of {kind.plural}")
    # An item of a list does not say of which kind it is, unlike what a watch tells.
    bodies = tuple(kept_of({"apiVersion": kind.api_version, "kind": kind.kind, **body}) for body in items)
    return Page(bodies, str(metadata.get("continue") or ""), str(metadata.get("resourceVersion", "")))


def is_object(body: Any) -> bool:
    """Whether it has what each object of ours has, by which it is told from others."""
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    return isinstance(metadata, Mapping) and all(isinstance(metadata.get(name), str) for name in _NAMES)


class CustomResources:
    """Methods raise what ``Requests`` raises. ``_request_timeout``: seconds to connect, and to be answered."""

    def __init__(self, api_client: ApiClient) -> None:
        self._requests = Requests(api_client)

    def read(self, kind: Kind, namespace: str, name: str, *, _request_timeout: Any = None) -> Any:
        return self._requests.ask("GET", _path(kind, namespace, name), timeout=_request_timeout)

    def list(self, kind: Kind, namespace: str, *, limit: int, following: str = "", _request_timeout: Any = None) -> Any:
        """One page. ``namespace``: empty for all. ``following``: what the page before said in ``metadata.continue``."""
        query = {"limit": str(limit), **({"continue": following} if following else {})}
        return self._requests.ask("GET", _path(kind, namespace), query=query, timeout=_request_timeout)

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Mapping[str, Any],
        *,
        strict: bool = False,
        dry_run: bool = False,
        _request_timeout: Any = None,
    ) -> Any:
        """``strict``: refused where it has a member that the kind has not."""
        query = {**({"fieldValidation": "Strict"} if strict else {}), **({"dryRun": "All"} if dry_run else {})}
        return self._requests.ask("POST", _path(kind, namespace), body=body, query=query, timeout=_request_timeout)

    def replace_status(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        path = _path(kind, namespace, name, "status")
        return self._requests.ask("PUT", path, body=body, timeout=_request_timeout)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        _request_timeout: Any = None,
    ) -> Any:
        """A merge patch."""
        query = {"dryRun": "All"} if dry_run else {}
        path = _path(kind, namespace, name)
        return self._requests.ask("PATCH", path, body=body, query=query, content_type=MERGE, timeout=_request_timeout)

    def delete(
        self, kind: Kind, namespace: str, name: str, options: Mapping[str, Any], *, _request_timeout: Any = None
    ) -> Any:
        """``options``: a ``DeleteOptions``."""
        return self._requests.ask("DELETE", _path(kind, namespace, name), body=options, timeout=_request_timeout)


def _path(kind: Kind, namespace: str, name: str | None = None, of: str = "") -> str:
    """``name``: absent for all of them; an empty one is nobody's. Raises ``ApiException``."""
    if name == "":
        raise ApiException(status=404, reason=f"a name is needed: no {kind.kind} has an empty one")
    return path_of(f"apis/{kind.api_version}", kind.plural, namespace, name or "", of)
