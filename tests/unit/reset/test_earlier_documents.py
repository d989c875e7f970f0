"""Documents of runs that an earlier version has written say the same: `tests/data/earlier`."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.reset_world import World
from tidegate.reset.config_map_store import ConfigMapRunStore


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


DATA = Path(__file__).parents[2] / "data" / "earlier"
EARLIER = sorted(path.name for path in DATA.iterdir() if path.is_dir())


def earlier(version: str, stage: str) -> dict[str, Any]:
    """What an operator of that version had written when it was ended."""
    found: dict[str, Any] = json.loads((DATA / version / f"{stage}.json").read_text())
    return found


def take_on(world: World, left: dict[str, Any]) -> None:
    folder = world.folder / "runs"
    folder.mkdir()
    for name, document in left["documents"].items():
        (folder / f"{name}.json").write_text(json.dumps(document))


def stored(world: World, name: str, config_map: dict[str, Any]) -> ConfigMapRunStore:
    """A run as it was kept in a ConfigMap."""
    store = ConfigMapRunStore("ns", name, api_client=object(), clock=world.clock)
    store._core = SimpleNamespace(  # type: ignore[assignment]
        read_namespaced_config_map=lambda *_, **__: SimpleNamespace(
            data=config_map["data"], binary_data=config_map["binaryData"]
        )
    )
    return store


@pytest.mark.parametrize("stage", ["awaiting-approval", "applying", "succeeded"])
@pytest.mark.parametrize("version", EARLIER)
def test_a_config_map_of_an_earlier_version_says_the_same(world: World, version: str, stage: str) -> None:
    left = earlier(version, stage)
    take_on(world, left)
    for name, config_map in left["configMaps"].items():
        assert stored(world, name, config_map).load() == world.open_store("ns", name, None).load()


@pytest.mark.parametrize("owners", ["Unknown", "Waiting"])
def test_a_document_with_a_setting_that_is_no_longer_there_is_read(world: World, owners: str) -> None:
    """`settings.owners`, in a folder and in a ConfigMap (docs/adr/0019-no-owner-waits-for-a-transaction.md)."""
    left = earlier("f3df9ba", "succeeded")
    for document in left["documents"].values():
        assert document["request"]["settings"].pop("owners") == "Unknown"
    take_on(world, left)
    [name] = left["documents"]
    without = world.open_store("ns", name, None).load()

    left["documents"][name]["request"]["settings"]["owners"] = owners
    (world.folder / "runs" / f"{name}.json").write_text(json.dumps(left["documents"][name]))
    data = left["configMaps"][name]["data"]
    data["request.json"] = data["request.json"].replace('"owners":"Unknown"', f'"owners":"{owners}"')

    assert world.open_store("ns", name, None).load() == without
    assert f'"owners":"{owners}"' in data["request.json"]
    assert stored(world, name, left["configMaps"][name]).load() == without
