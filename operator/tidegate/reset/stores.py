"""The run stores: a folder of JSON documents, and ConfigMaps of a cluster.

Both change a run by pure functions ``Run → Run`` (below), so a rule such as "a run never gets a second plan" is
written once; they differ in how a change is made atomic: an exclusive lock and a rename, or a compare-and-swap by
``resourceVersion``. A write whose answer was lost is done again after looking, so every change is idempotent.

Documents hold no secrets: a ``Connection`` names the files that do.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.reset.config_map_store import ConfigMapRunStore, default_client
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.document import Change, DocumentStore
from tidegate.reset.model.request import RunRequest
from tidegate.reset.store import Run, RunStore


class MemoryRunStore(DocumentStore):
    """A run that nobody goes on with when this process ends: whoever wants it done begins it anew. Thread-safe."""

    def __init__(self, request: RunRequest) -> None:
        self._lock = threading.Lock()
        self._run = Run(request)

    @property
    def location(self) -> str:
        return f"memory:{self._run.request.run_uid}"

    def create(self, request: RunRequest) -> Run:
        return self._same(self._run, request)

    def load(self) -> Run:
        return self._run

    def _change(self, change: Change) -> Run:
        with self._lock:
            self._run = change(self._run)
            return self._run


def open_store(
    location: str,
    *,
    api_client: Any = None,
    owner: Mapping[str, Any] | None = None,
    remembers: bool = False,
) -> RunStore:
    """The store at ``file:///folder/name`` or ``configmap://namespace/name``; nothing is read yet.

    ``api_client``, ``owner`` and ``remembers``: see :class:`ConfigMapRunStore`. Raises ``ValueError`` for any other
    location.
    """
    url = urlsplit(location)
    match url.scheme:
        case "file" if url.netloc in ("", "localhost") and url.path not in ("", "/"):
            path = Path(unquote(url.path))
            return DirectoryRunStore(path.parent, path.name)
        case "configmap" if url.netloc and re.fullmatch(r"/[^/]+", url.path):
            return ConfigMapRunStore(url.netloc, url.path[1:], api_client=api_client, owner=owner, remembers=remembers)
    raise ValueError(f"{location!r} is not a run store: use file:///folder/name or configmap://namespace/name")


def open_beside(location: str, *, owned: bool = False) -> Callable[[str], RunStore]:
    """Opens other runs' documents by name, next to the one at ``location``. ``owned``: with its owner, if it has one,
    so that what is created there goes with it as well; that is read at once, and raises as ``RunStore.load``.
    """
    folder, _, name = location.rpartition("/")
    if not location.startswith("configmap://"):
        return lambda other: open_store(f"{folder}/{other}")
    client = default_client()
    here = ConfigMapRunStore(urlsplit(location).netloc, name, api_client=client)
    owner = here.read_owner() if owned else None
    return lambda other: open_store(f"{folder}/{other}", api_client=client, owner=owner)
