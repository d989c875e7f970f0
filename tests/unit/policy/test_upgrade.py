"""A newer operator goes on from what an earlier version has written: `tests/data/earlier`."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.policy_world import T0, World
from tidegate.kube.ports import POLICIES
from tidegate.reset.config_map_store import ConfigMapRunStore


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


DATA = Path(__file__).parents[2] / "data" / "earlier"
EARLIER = sorted(path.name for path in DATA.iterdir() if path.is_dir())
WITH_DIGESTS = [version for version in EARLIER if version != "821526f"]
"""Those whose policies' status says which document is a run's (docs/adr/0013-digest-of-a-plan.md)."""


def earlier(version: str, stage: str) -> dict[str, Any]:
    """What an operator of that version had written when it was ended."""
    found: dict[str, Any] = json.loads((DATA / version / f"{stage}.json").read_text())
    return found


def take_on(world: World, left: dict[str, Any]) -> None:
    world.kube.restore(left["policy"], POLICIES)
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


@pytest.mark.parametrize("version", WITH_DIGESTS)
def test_a_plan_of_an_earlier_version_is_approved_and_applied(world: World, version: str) -> None:
    take_on(world, earlier(version, "awaiting-approval"))
    world.some_passes(2)
    assert world.reset["phase"] == "AwaitingApproval"
    world.kube.change(POLICIES, "ns", "p", annotations={"tidegate.io/approve": world.reset["digest"]})

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 40)
    assert not world.kube.get(POLICIES, "ns", "p")["metadata"].get("finalizers")


@pytest.mark.parametrize("end", ["goes on", "is deleted"])
@pytest.mark.parametrize("version", WITH_DIGESTS)
def test_a_run_that_an_earlier_version_left_in_mid_flight_ends_well(world: World, version: str, end: str) -> None:
    take_on(world, earlier(version, "applying"))
    if end == "is deleted":
        world.kube.delete(POLICIES, "ns", "p", world.clock.now().isoformat())

    world.passes()

    if end == "goes on":
        assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    else:
        assert (world.there, world.offset) == (False, 50)
        assert world.finished == {("Failed", "Deleted"): 1}


@pytest.mark.parametrize("version", WITH_DIGESTS)
def test_a_run_of_an_earlier_version_does_not_run_again_and_can_be_undone(world: World, version: str) -> None:
    take_on(world, earlier(version, "succeeded"))
    world.passes()
    assert (world.runner.started, world.offset) == ([], 50)
    world.kafka.commit_directly("payments", {T0: 10})

    world.ask("back", to={"undo": "one"})
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 50)


@pytest.mark.parametrize("stage", ["awaiting-approval", "applying"])
def test_a_run_in_mid_flight_from_before_there_were_digests_ends_as_forged_and_changes_nothing(
    world: World, stage: str
) -> None:
    """Nobody can tell whether its document is the operator's."""
    take_on(world, earlier("821526f", stage))

    world.passes()

    assert (world.reset["phase"], world.condition("Reset")["reason"], world.offset) == ("Failed", "Forged", 50)
    assert world.runner.started == []
