"""Documents of runs that an earlier version has written say the same: `tests/data/earlier`."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.reset_world import World
from tidegate.reset.binding import digest_of, digest_of_end
from tidegate.reset.codec import FLEET, encode_fleet_plan, fleet_plan_digested
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.resources.reset import Way


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
        read=lambda *_, **__: {"data": config_map["data"], "binaryData": config_map["binaryData"]}
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


@pytest.mark.parametrize(
    ("stage", "digest", "digest_at_the_end"),
    [
        ("awaiting-approval", "20a87df5477431744e8663af7d70e0e2a7feb0fba101a0248b5720263c3003b1", None),
        (
            "succeeded",
            "538dfe3e0404a7351c92eaddda984e1da98d51be5a602d7e4d657a7af27fd685",
            "9a0992d0d20b276f21752ccc83f3490159598e287d31480e28703feb2ddc62c7",
        ),
    ],
)
@pytest.mark.parametrize("version", EARLIER)
def test_an_approval_and_an_undo_of_a_run_of_an_earlier_version_hold(
    world: World, version: str, stage: str, digest: str, digest_at_the_end: str | None
) -> None:
    """Its plan has a word that is another one now: strategy `Direct` is `Unowned`."""
    left = earlier(version, stage)
    take_on(world, left)
    [name] = left["documents"]

    run = world.open_store("ns", name, None).load()

    assert run.plan is not None
    assert (left["documents"][name]["plan"]["way"], run.plan.way) == ("Direct", Way.UNOWNED)
    assert digest_of(run) == digest
    if run.result is not None:
        assert run.result.way is Way.UNOWNED
        assert digest_of_end(digest, run.result) == digest_at_the_end


def test_a_fleet_that_an_earlier_version_has_planned_keeps_its_digest() -> None:
    written = '{"run_id":"one","made_at":"2026-11-20T12:00:00Z","groups":[{"group_id":"g","way":"Direct"}]}'

    plan = FLEET.validate_json(written)

    assert plan.groups[0].way is Way.UNOWNED
    assert fleet_plan_digested(plan) == json.loads(written)
    assert json.loads(encode_fleet_plan(plan))["groups"][0]["way"] == "Unowned"
