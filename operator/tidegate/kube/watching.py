"""Lists a kind's objects, and then follows their changes, with the rights of whoever asks (``list`` and ``watch``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from tidegate.kube.answers import NO_JSON, why_unanswered
from tidegate.kube.client import bounded_object, failure_of
from tidegate.kube.custom import CustomResources, is_object, page_of
from tidegate.kube.ports import Kind, KubeFailure, KubeUnavailable, Object, kept_of
from tidegate.kube.requests import Requests, path_of

_PAGE: Final = 250
_CONNECT_S: Final = 5.0
_SILENT_S: Final = 20.0
"""Beyond the time for which was asked: then the connection is taken for dead."""
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind as of one moment. ``version``: from which on their changes can be followed."""

    bodies: tuple[Object, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """``body``: as the object is now, or was last; ``None``: only ``version`` is news, up to which all is known."""

    body: Object | None
    is_gone: bool
    version: str


class Expired(KubeFailure):
    """The API server does not remember the changes since then: list anew."""


class Watches(Protocol):
    """Raises ``KubeFailure``."""

    def listed(self, kind: Kind) -> Listing: ...

    def changes(self, kind: Kind, since: str) -> Iterator[Change]:
        """Blocks until the API server ends it, which it does after some minutes. Raises ``Expired`` as well."""
        ...


class WatchClient:
    """Implements ``Watches``. ``namespace``: empty for all. ``seconds``: how long the API server is asked to go on."""

    def __init__(self, api_client: ApiClient, namespace: str = "", *, seconds: int = 300) -> None:
        self._objects = CustomResources(api_client)
        self._requests = Requests(api_client)
        self._namespace = namespace
        self._seconds = seconds

    def listed(self, kind: Kind) -> Listing:
        what, following = f"list {kind.plural}{self._where}", ""
        found: list[Object] = []
        while True:
            answer = bounded_object(what, self._objects.list, kind, self._namespace, limit=_PAGE, following=following)
            page = page_of(what, kind, answer)
            found += page.bodies
            following = page.following
            if not following:
                return Listing(tuple(found), page.version)

    def changes(self, kind: Kind, since: str) -> Iterator[Change]:
        what = f"watch {kind.plural}{self._where}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(self._seconds),
        }
        try:
            path = path_of(f"apis/{kind.api_version}", kind.plural, self._namespace)
            for line in self._requests.lines(path, query, timeout=(_CONNECT_S, self._seconds + _SILENT_S)):
                yield _change(what, line)
        except ApiException as error:
            if error.status == _GONE:
                raise Expired(f"{what}: {error.reason}") from error
            raise failure_of(what, error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeUnavailable(f"{what}: {why_unanswered(error)}") from error
        except ValueError as error:
            raise KubeUnavailable(f"{what}: {NO_JSON}") from error

    @property
    def _where(self) -> str:
        return f" in {self._namespace}" if self._namespace else ""


def _change(what: str, line: Any) -> Change:
    kind = line.get("type") if isinstance(line, Mapping) else None
    body = line.get("object") if isinstance(line, Mapping) else None
    no_change = KubeFailure(f"{what}: the API server said something that is no change")
    if not isinstance(body, Mapping):
        raise no_change
    if kind == "ERROR":
        text = f"{what}: {body.get('code')} {body.get('message')}"
        raise Expired(text) if body.get("code") == _GONE else KubeUnavailable(text)
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not (kind == "BOOKMARK" or is_object(body)):
        raise no_change
    version = str(metadata.get("resourceVersion", ""))
    if kind == "BOOKMARK":
        return Change(None, False, version)
    return Change(kept_of(body), kind == "DELETED", version)
