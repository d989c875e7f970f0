"""A fleet's groups have documents next to the fleet's own, which go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.stored_documents import RUN
from tidegate.kube import core
from tidegate.kube.labels import owner_label
from tidegate.reset import stores
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.directory_store import DirectoryRunStore

OWNER = {"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetReset", "name": "p", "uid": "uid-p"}


@pytest.fixture
def config_maps(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Those of the API server, by name: the fleet's, which has an owner."""
    there: dict[str, dict[str, Any]] = {}

    class Server:
        def __init__(self, _client: object) -> None: ...

        def read(self, _plural: str, _namespace: str, name: str, **_: Any) -> Any:
            return there[name]

        def create(self, _plural: str, _namespace: str, body: Any, **_: Any) -> Any:
            there[body["metadata"]["name"]] = body
            return body

    monkeypatch.setattr(core, "CoreObjects", Server)
    monkeypatch.setattr(stores, "default_client", object)
    ConfigMapRunStore("ns", "fleet", owner=OWNER, api_client=object()).create(RUN.request)
    return there


def test_what_is_created_beside_an_owned_document_has_the_same_owner(config_maps: dict[str, dict[str, Any]]) -> None:
    stores.open_beside("configmap://ns/fleet", owned=True)("group").create(RUN.request)

    metadata = config_maps["group"]["metadata"]
    assert metadata["ownerReferences"] == [OWNER]
    assert owner_label(OWNER).items() <= metadata["labels"].items()


def test_otherwise_it_has_none_and_nothing_is_read(config_maps: dict[str, dict[str, Any]]) -> None:
    del config_maps["fleet"]

    stores.open_beside("configmap://ns/fleet")("group").create(RUN.request)

    assert "ownerReferences" not in config_maps["group"]["metadata"]


def test_beside_a_file_it_is_a_file(tmp_path: Path) -> None:
    stores.open_beside(f"file://{tmp_path}/fleet", owned=True)("group").create(RUN.request)

    assert DirectoryRunStore(tmp_path, "group").load().request == RUN.request
