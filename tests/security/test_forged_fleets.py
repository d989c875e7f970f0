"""A fleet's groups have documents of their own: none is carried out but the one that the fleet's plan names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.reset_world import FLEET, FleetWorld
from tidegate.kube.ports import RESETS
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.request import run_name, run_uid


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    made = FleetWorld(tmp_path)
    yield made
    made.executor.shutdown()


def document_of(world: FleetWorld, group: str, run_id: str = "p") -> Path:
    uid = world.body["metadata"]["uid"]
    name = group_document(run_name(run_id, uid), group_run_uid(run_uid(uid, run_id), group))
    return world.folder / "runs" / f"{name}.json"


def forge(path: Path, **targets: int) -> None:
    """Send a group somewhere else, and say that it stood somewhere else before."""
    document = json.loads(path.read_text())
    if document["result"] is not None:
        document["result"]["before"][0]["offset"] = targets["offset"]
    document["plan"]["partitions"][0]["target"] = targets["offset"]
    path.write_text(json.dumps(document))


def until_planned(world: FleetWorld) -> str:
    world.ask(approval="Manual")
    world.some_passes(8)
    assert world.reset["phase"] == "AwaitingApproval"
    digest: str = world.reset["digest"]
    return digest


def assert_ended_as_forged(world: FleetWorld) -> None:
    world.passes()
    assert (world.reset["phase"], world.offsets) == ("Failed", [50, 50, 50])
    assert world.condition("Ready")["reason"] == "Forged"
    assert "Forged" in [h.reason for h in world.kube.happenings_of(world.name)]


def test_a_groups_plan_that_is_swapped_after_the_fleets_was_read_is_not_applied(world: FleetWorld) -> None:
    digest = until_planned(world)

    forge(document_of(world, FLEET[0]), offset=0)
    world.approve(digest)

    assert_ended_as_forged(world)
    assert len(world.runner.started) == 2, "the job itself found out"


def test_a_groups_digest_that_is_swapped_in_the_fleets_plan_ends_the_run(world: FleetWorld) -> None:
    digest = until_planned(world)
    uid = world.body["metadata"]["uid"]
    path = world.folder / "runs" / f"{run_name('p', uid)}.json"

    document = json.loads(path.read_text())
    document["fleet"]["groups"][0]["digest"] = document["fleet"]["groups"][1]["digest"]
    path.write_text(json.dumps(document))
    world.approve(digest)

    assert_ended_as_forged(world)
    assert len(world.runner.started) == 1


def test_a_groups_document_that_was_planned_beforehand_is_not_taken_up(world: FleetWorld) -> None:
    """Made as the fleet's own would be, by whoever has waited for the fleet to begin."""
    until_planned(world)
    planned = document_of(world, FLEET[1]).read_text()
    world.ask("two", approval="Manual")
    two = document_of(world, FLEET[1], "two")
    forged = json.loads(planned)
    forged["request"]["run_uid"] = group_run_uid(run_uid(world.body["metadata"]["uid"], "two"), FLEET[1])
    forged["request"]["run_id"] = forged["plan"]["run_id"] = "two"
    work = world.runner.work

    def beforehand(launch: Any) -> None:
        if launch.name.startswith("two-"):
            uid = world.body["metadata"]["uid"]
            fleet = json.loads((world.folder / "runs" / f"{run_name('two', uid)}.json").read_text())
            forged["request"]["settings"] = fleet["request"]["settings"]
            forged["attempt"] = 0
            two.write_text(json.dumps(forged))
            forge(two, offset=0)
        work(launch)

    world.runner.work = beforehand

    assert_ended_as_forged(world)
    assert "was not written by a job of this fleet" in world.condition("Ready")["message"]


def test_a_run_that_the_operator_itself_puts_back_goes_by_no_groups_forged_document(world: FleetWorld) -> None:
    digest = until_planned(world)
    world.runner.work = lambda _launch: None
    world.approve(digest)
    world.some_passes(3)
    begin(world)
    forge(document_of(world, FLEET[2]), offset=0)

    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())
    world.passes()

    assert (world.there, world.offsets) == (False, [50, 50, 50])
    assert "Forged" in [h.reason for h in world.kube.happenings_of(world.name)]


def begin(world: FleetWorld) -> None:
    """As a job does that dies once it has noted that it begins."""
    uid = world.body["metadata"]["uid"]
    path = world.folder / "runs" / f"{run_name('p', uid)}.json"
    document = json.loads(path.read_text())
    document["journal"].append({"phase": "Applying", "at": "2026-01-01T00:00:00Z", "attempt": document["attempt"]})
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("when", ["before it is asked for", "before its job reads it"])
def test_an_undo_goes_by_no_groups_document_that_was_changed_since(world: FleetWorld, when: str) -> None:
    world.ask()
    world.passes()
    assert world.offsets == [10, 10, 10]
    path, work = document_of(world, FLEET[0]), world.runner.work

    def meanwhile(launch: Any) -> None:
        forge(path, offset=99)
        work(launch)

    if when == "before it is asked for":
        forge(path, offset=99)
    else:
        world.runner.work = meanwhile
    world.ask("two", to={"undo": "p"})
    world.some_passes(12)

    assert (world.condition("Ready")["reason"], world.offsets) == ("Forged", [10, 10, 10])
