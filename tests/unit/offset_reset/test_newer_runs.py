"""An operator that is older than the one that has a run leaves it, its job and its holds alone, and says so."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.killed import Killed
from support.reset_world import T0, World
from tidegate.control.records import Hold, HoldKey, RunKey
from tidegate.control.run_records import executed
from tidegate.jobs.runner import Launch
from tidegate.kube.ports import RESETS
from tidegate.reset.applying.gates import run_of
from tidegate.reset.document import NewerRun
from tidegate.sweep.kept import due
from tidegate.versions import RUN

NEWER = RUN.version + 1


def document(world: World) -> dict[str, Any]:
    [path] = world.documents
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def is_of_version(world: World, version: int, *, also_by_its_status: bool = True) -> None:
    """As a newer version would have written the run: the operator keeps the digest with the version."""
    [path] = world.documents
    path.write_text(json.dumps({**document(world), "version": version}))
    if also_by_its_status:
        status = dict(world.reset)
        digest = status["digest"].rpartition(":")[2]
        status["digest"] = f"v{version}:{digest}" if version > RUN.version else digest
        FakeKube.replace_status(world.kube, RESETS, world.body, status)


def begun(world: World, **spec: Any) -> None:
    """Its operator dies in mid-run, with a gate closed."""
    world.ask(**spec)
    world.kube.dies_in = 4
    with pytest.raises(Killed):
        world.passes()
    assert world.documents, world.kube.log
    world.kafka.control.ensure()
    world.kafka.control.hold({hold_of(world): Hold("a reset", 5_000)})
    world.restart()


def hold_of(world: World) -> HoldKey:
    return HoldKey("payments", "orders", 0, f"reset/{world.body['metadata']['uid']}/{world.name}")


def is_held(world: World) -> bool:
    return hold_of(world) in world.kafka.control.read().holds


def left_alone(world: World) -> float | None:
    return world.metric("tidegate_written_by_newer_version", kind="OffsetReset")


def test_a_run_of_a_newer_version_is_left_alone_until_that_comes_back(world: World) -> None:
    begun(world)
    is_of_version(world, NEWER)
    before, offset, steps = document(world), world.offset, len(world.kube.log)

    for _ in range(3):
        world.passes()
        world.restart()

    assert document(world) == before
    assert (world.offset, is_held(world)) == (offset, True)
    assert {step.split()[0] for step in world.kube.log[steps:]} <= {"status"}
    said = {kind: world.condition(kind) for kind in ("Ready", "Stalled", "Complete")}
    assert {condition["reason"] for condition in said.values()} == {"WrittenByNewerVersion"}
    assert [condition["status"] for condition in said.values()] == ["False", "True", "Unknown"]
    message = world.condition("Ready")["message"]
    assert f"of version {NEWER}" in message
    assert "run that version again" in message
    told = [h for h in world.kube.happenings_of(world.name) if h.reason == "WrittenByNewerVersion"]
    assert len({h.key for h in told}) == 1
    assert left_alone(world) == 1

    is_of_version(world, RUN.version)
    world.restart()
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert left_alone(world) == 0


def test_one_that_has_no_document_yet_is_known_by_its_digest(world: World) -> None:
    """Its operator died between the status and the document: it is not begun anew by another one."""
    begun(world)
    is_of_version(world, NEWER)
    for path in world.documents:
        path.unlink()

    world.passes()

    assert world.documents == []
    assert world.condition("Ready")["reason"] == "WrittenByNewerVersion"


def test_other_resets_of_the_group_wait_for_it(world: World) -> None:
    begun(world)
    is_of_version(world, NEWER)
    world.passes()
    world.ask("other", to={"offset": 20})

    world.some_passes(3)

    assert world.condition("Complete")["reason"] == "WaitingForReset"
    assert world.offset == 50


def test_a_version_that_the_operator_does_not_keep_is_somebody_elses_word(world: World) -> None:
    """Whoever may write ConfigMaps cannot make a run stand still with its gates closed."""
    begun(world)
    is_of_version(world, 99, also_by_its_status=False)

    world.passes()

    assert world.condition("Ready")["reason"] == "Forged"
    assert (world.reset["phase"], world.offset, is_held(world)) == ("Failed", 50, False)
    assert left_alone(world) == 0


def test_a_job_of_an_older_version_writes_nothing(world: World) -> None:
    """As a Spark job whose image was not replaced: it ends, and the run is looked after by who knows it."""
    launches: list[Launch] = []
    world.runner.work = launches.append
    world.ask()
    world.some_passes(5)
    is_of_version(world, NEWER)
    before = document(world)

    with pytest.raises(NewerRun, match="a newer version of Tidegate has written it"):
        world.carry_out(launches[0])

    assert (document(world), world.offset) == (before, 50)


def test_deleted_it_is_waited_for_as_long_as_a_deletion_may_take(world: World) -> None:
    begun(world)
    is_of_version(world, NEWER)
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())

    world.some_passes(1)

    assert world.there
    assert is_held(world)
    assert world.condition("Ready")["reason"] == "WrittenByNewerVersion"
    world.clock.sleep(timedelta(minutes=2, seconds=1).total_seconds())
    name = world.name
    world.passes()
    assert not world.there
    assert not any(run_of(key.holder) for key in world.kafka.control.read().holds)
    told = [h for h in world.kube.happenings_of(name) if h.reason == "Abandoned"]
    assert len(told) == 1
    assert "without being rolled back" in told[0].message


def test_deleted_and_abandoned_it_goes_at_once(world: World) -> None:
    begun(world)
    is_of_version(world, NEWER)
    world.kube.change(RESETS, "ns", world.name, annotations={"tidegate.io/abandon": "true"})
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())

    world.passes()

    assert not world.there
    assert not any(run_of(key.holder) for key in world.kafka.control.read().holds)


@pytest.mark.parametrize("by_its_status", [True, False])
def test_a_run_of_a_newer_version_is_not_undone(world: World, by_its_status: bool) -> None:
    world.ask()
    world.passes()
    assert world.offset == 10
    status = dict(world.reset)
    [path] = world.documents
    path.write_text(json.dumps({**document(world), "version": NEWER}))
    if by_its_status:
        status["resultDigest"] = f"v{NEWER}:{status['resultDigest']}"
        FakeKube.replace_status(world.kube, RESETS, world.body, status)
    world.ask("back", to={"undo": "p"})

    world.some_passes(3)

    assert world.condition("Ready")["reason"] == ("WrittenByNewerVersion" if by_its_status else "Forged")
    assert world.offset == 10


@pytest.mark.parametrize("newer", ["the record", "the run that it vouches for"])
def test_a_record_of_a_newer_version_is_executed_kept_and_not_removed(world: World, newer: str) -> None:
    control = world.kafka.control
    control.ensure()
    world.ask()
    world.passes()
    [(key, run)] = ((k, r) for k, r in control.read().runs.items() if k.id == "p" and not k.policy)
    changed = replace(run, version=2) if newer == "the record" else replace(run, digest=f"v2:{run.digest}")
    control.note_runs({key: changed})
    now = world.clock.now() + timedelta(days=365)

    todo = due(control.read().runs, run.connection, "ns", (), now, timedelta(days=7))

    assert (todo.changed, todo.over) == ({}, {})
    kept = executed(control, RunKey("ns", "", "p"))
    assert kept == changed
    # Another one of its name ends: its record is not written over this one.
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    world.ask("p", to={"offset": 30})
    world.passes()
    assert (world.offset, executed(control, RunKey("ns", "", "p"))) == (30, kept)


def test_nothing_is_written_over_a_status_that_cannot_be_read_but_that(world: World) -> None:
    world.ask()
    world.passes()
    status = {**world.reset, "ofTheNextVersion": {"a": 1}}
    FakeKube.replace_status(world.kube, RESETS, world.body, status)
    world.restart()

    world.some_passes(3)

    assert {**world.reset, "conditions": []} == {**status, "conditions": []}
    assert [world.condition(kind)["reason"] for kind in ("Ready", "Stalled")] == ["UnreadableStatus"] * 2
    assert world.condition("Complete") == next(c for c in status["conditions"] if c["type"] == "Complete")
    assert world.reset["phase"] == "Succeeded"
    assert left_alone(world) == 1
    assert T0 in world.kafka.committed("payments")
