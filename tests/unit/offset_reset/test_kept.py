"""What an undo needs outlives the `OffsetReset`, for a time, and nobody but the operator can make it up."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_control import FakeControlTopics
from support.killed import Killed
from support.reset_world import T0, FleetWorld, World
from support.sweeping import Sweeping
from tidegate.control.records import Outcome, Run, RunKey
from tidegate.control.run_records import of_reset
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.errors import Fenced, KafkaFailure, Unavailable
from tidegate.kube.ports import CONNECTIONS, RESETS, Kind, KubeUnavailable
from tidegate.offset_reset.kept import Kept
from tidegate.offset_reset.reading import status_of
from tidegate.offset_reset.runs import Runs
from tidegate.reset.runs.reasons import FINALIZER
from tidegate.sweep.kept import due

KEY = of_reset("ns", "p")
WEEK = timedelta(days=7)


def reset(world: World, name: str = "p", **spec: Any) -> str:
    """Its uid, once it has ended."""
    world.ask(name, **spec)
    world.passes()
    assert world.reset["phase"] == "Succeeded"
    return str(world.body["metadata"]["uid"])


def delete(world: World, name: str = "p") -> None:
    assert world.kube.delete(RESETS, "ns", name, world.clock.now().isoformat()) is None


def undo(world: World, **spec: Any) -> tuple[str | None, str]:
    """The phase, and the reason of the condition `Complete`."""
    world.ask("back", to={"undo": "p"}, **spec)
    world.passes()
    return world.reset.get("phase"), world.condition("Complete")["reason"]


def record(world: World) -> Run | None:
    return world.kafka.control.read().runs.get(KEY)


def noted(world: World) -> int | None:
    """When the resource was found to be gone, epoch milliseconds."""
    found = record(world)
    assert found is not None
    return found.deleted_ms


# --- the undo ---------------------------------------------------------------------------------------------------------


def test_a_reset_is_undone_after_its_resource_was_deleted(world: World) -> None:
    reset(world)
    delete(world)

    assert undo(world) == ("Succeeded", "Applied")
    assert world.offset == 50


def test_a_fleet_is_undone_after_its_resource_was_deleted(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    reset(world)
    assert world.offsets == [10, 10, 10]
    delete(world)

    assert undo(world)[0] == "Succeeded"
    assert world.offsets == [50, 50, 50]
    world.executor.shutdown()


def test_a_group_of_a_fleet_whose_document_is_gone_is_told_of_where_the_others_are_undone(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    reset(world)
    whole = world.reset["plan"]["configMap"]
    of_groups = [document for document in world.documents if document.stem != whole]
    of_groups[0].unlink()
    delete(world)

    undo(world)

    assert sorted(world.offsets) == [10, 50, 50]
    assert [failure["reason"] for failure in world.reset["fleet"]["failures"]] == ["UndoRunNotFound"]
    assert world.reset["fleet"]["refused"] == 1
    world.executor.shutdown()


def test_a_fleet_s_other_documents_are_kept_where_that_of_one_group_is_gone(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    reset(world)
    whole = world.reset["plan"]["configMap"]
    gone, *left = (name for _, name in world.kube.added_owners if name != whole)
    world.kube.added_owners.clear()
    world.kube.remove_config_map("ns", gone)
    world.kube.set_finalizers(RESETS, world.body, [FINALIZER])

    world.passes()

    assert {name for _, name in world.kube.added_owners} == {whole, *left}
    world.executor.shutdown()


def test_documents_stay_as_long_as_their_connection_and_those_of_groups_as_long_as_their_fleets(
    tmp_path: Path,
) -> None:
    world = FleetWorld(tmp_path)
    uid = reset(world)
    connection = world.kube.get(CONNECTIONS, "ns", "kafka")["metadata"]["uid"]
    whole = world.reset["plan"]["configMap"]

    owners = {name: [owner["uid"] for owner in found] for (_, name), found in world.kube.added_owners.items()}

    assert uid != connection
    assert owners == {d.stem: [connection if d.stem == whole else f"uid-of-{whole}"] for d in world.documents}
    assert len(owners) == 4
    world.executor.shutdown()


def test_of_resets_of_one_name_the_last_is_undone(world: World) -> None:
    reset(world)
    delete(world)
    reset(world, to={"offset": 30})
    delete(world)

    assert undo(world)[0] == "Succeeded"
    assert world.offset == 10


def test_nothing_is_left_of_an_earlier_reset_of_the_name_that_can_be_undone_no_more(world: World) -> None:
    reset(world)
    earlier = world.reset["plan"]["configMap"]
    delete(world)
    reset(world, to={"offset": 30})

    assert {name for _, name in world.kube.added_owners} == {world.reset["plan"]["configMap"]}
    assert ("ns", earlier) not in world.kube.config_maps


def test_a_process_that_was_replaced_removes_nothing_of_what_its_successor_keeps(world: World) -> None:
    topics = world.kafka.control.topics
    world.kafka._control = FakeControlTopics(topics, "operator")
    reset(world)
    stale = world.body
    delete(world)
    reset(world, to={"offset": 30})
    newest = world.reset["plan"]["configMap"]
    FakeControlTopics(topics, "operator").ensure()
    kept = Kept(world.parts, Runs(world.parts))

    with pytest.raises(Fenced):
        asyncio.run(kept.keep(stale, status_of(stale)))

    assert ("ns", newest) in world.kube.config_maps


def test_what_another_operator_has_kept_under_the_name_is_not_looked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(world.kube, "remove_config_map", lambda _, name: removed.append(name))
    world.kafka.control.ensure()
    world.kafka.control.note_runs({KEY: Run("u9/p", 1, Outcome.SUCCEEDED, 2, "5f", "another")})

    reset(world)

    assert removed == []


def test_a_reset_that_is_there_is_the_one_that_is_undone(world: World) -> None:
    reset(world)
    delete(world)
    world.ask("p", suspend=True)
    world.some_passes(2)

    world.ask("back", to={"undo": "p"})
    world.some_passes(3)

    assert world.condition("Complete")["reason"] == "UndoneResetNotEnded"
    assert world.offset == 10


@pytest.mark.parametrize("kept", [timedelta(0), WEEK])
def test_without_a_record_a_document_is_nobodys(world: World, kept: timedelta) -> None:
    """Whoever may write ConfigMaps could have made it up."""
    world.undo_kept = kept
    world.restart()
    reset(world)
    if kept:
        world.kafka.control.note_runs({KEY: None})
    delete(world)

    assert undo(world) == ("Failed", "UndoRunNotFound")
    assert world.offset == 10


def test_a_document_that_was_changed_is_refused(world: World) -> None:
    reset(world)
    [document] = world.documents
    text = document.read_text()
    assert '"offset":50' in text
    document.write_text(text.replace('"offset":50', '"offset":3'))
    delete(world)

    assert undo(world)[1] == "Forged"
    assert world.offset == 10


def test_a_deleted_reset_of_another_group_is_refused(world: World) -> None:
    world.kafka.commit_directly("refunds", {T0: 5})
    reset(world)
    delete(world)

    assert undo(world, group="refunds")[1] == "UndoOfOtherGroup"
    assert world.kafka.committed("refunds")[T0] == 5


def test_a_record_of_another_name_says_nothing_of_this_one(world: World) -> None:
    reset(world)
    found = record(world)
    assert found is not None
    world.kafka.control.note_runs({KEY: replace(found, uid=f"{found.uid}-else")})
    delete(world)

    assert undo(world)[1] == "UndoRunNotFound"


def test_an_undo_waits_for_a_cluster_that_does_not_answer(world: World) -> None:
    reset(world)
    delete(world)
    world.kafka.control.failure = Unavailable("nobody answers")
    world.ask("back", to={"undo": "p"})
    world.some_passes(3)
    assert world.condition("Complete")["reason"] == "WaitingForConnection"

    world.kafka.control.failure = None
    world.passes()
    assert world.offset == 50


# --- what is kept, before the resource may go -------------------------------------------------------------------------


def keeping_fails(world: World, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(world.kube if where == "add_owner" else world.kafka.control, where, fail)


@pytest.mark.parametrize("where", ["note_runs", "add_owner"])
def test_a_process_that_dies_while_it_keeps_leaves_the_finalizer(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    world.ask()
    with monkeypatch.context() as patched:
        keeping_fails(world, patched, where, Killed())
        with pytest.raises(Killed):
            world.passes()
        assert world.reset["phase"] == "Succeeded"
        assert world.body["metadata"]["finalizers"]
    world.restart()
    world.passes()
    assert not world.body["metadata"].get("finalizers")
    delete(world)

    assert undo(world)[0] == "Succeeded"
    assert world.offset == 50


@pytest.mark.parametrize(("where", "error"), [("note_runs", Unavailable("no")), ("add_owner", KubeUnavailable("no"))])
def test_what_cannot_be_kept_now_is_tried_again_and_holds_up_no_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    world.ask()
    keeping_fails(world, monkeypatch, where, error)
    with pytest.raises((KafkaFailure, KubeUnavailable)):
        world.passes()
    with pytest.raises((KafkaFailure, KubeUnavailable)):
        world.some_passes(1)
    assert world.body["metadata"]["finalizers"]

    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    world.passes()

    assert not world.there
    assert world.offset == 10


def test_nothing_is_kept_without_a_connection_that_an_undo_could_go_through(world: World) -> None:
    reset(world)
    kept = dict(world.kube.added_owners)
    world.kafka.control.note_runs({KEY: None})
    world.kube.delete(CONNECTIONS, "ns", "kafka", world.clock.now().isoformat())
    world.kube.set_finalizers(RESETS, world.body, [FINALIZER])

    world.passes()

    assert record(world) is None
    assert world.kube.added_owners == kept


def test_what_is_kept_belongs_to_one_connection_where_that_was_just_created_again(world: World) -> None:
    """By its uid the record is removed in the end, and with it the document goes."""
    reset(world)
    connection, kept = world.kube.get(CONNECTIONS, "ns", "kafka"), record(world)
    world.kube.delete(CONNECTIONS, "ns", "kafka", world.clock.now().isoformat())
    world.kube.create(CONNECTIONS, "ns", "kafka", connection["spec"], world.clock.now().isoformat())
    world.kube.set_finalizers(RESETS, world.body, [FINALIZER])

    with pytest.raises(RunnerFailure, match="is not open"):
        world.some_passes(1)

    owners = {owner["uid"] for found in world.kube.added_owners.values() for owner in found}
    assert owners == {connection["metadata"]["uid"]}
    assert record(world) == kept


# --- how long ---------------------------------------------------------------------------------------------------------


def test_what_was_kept_is_removed_some_time_after_the_deletion(world: World) -> None:
    reset(world)
    sweeping = Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK)
    world.clock.sleep(10 * WEEK.total_seconds())
    sweeping.looks(1)
    assert noted(world) is None, "it is still there"

    delete(world)
    Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK).looks(1)
    assert noted(world) == world.clock.now().timestamp() * 1000
    assert world.kube.config_maps
    world.clock.sleep(WEEK.total_seconds())
    Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK).looks(1)

    assert record(world) is None
    assert not world.kube.config_maps


def test_what_ended_while_one_of_its_name_was_found_gone_stays_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset(world)
    delete(world)
    listed, newer = world.kube.list, Run("u2/p", 3, Outcome.SUCCEEDED, 4, "6a", "conn")

    def list_late(kind: Kind) -> Any:
        found = listed(kind)
        world.kafka.control.note_runs({KEY: newer})
        return found

    monkeypatch.setattr(world.kube, "list", list_late)
    Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK).looks(1)

    assert record(world) == newer


def test_the_time_begins_anew_where_a_reset_that_was_gone_is_there_again(world: World) -> None:
    """As after a backup of the whole API server, which keeps uids, was restored."""
    reset(world)
    found = record(world)
    assert found is not None
    world.kafka.control.note_runs({KEY: replace(found, deleted_ms=1)})

    Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK).looks(1)

    assert noted(world) is None


def test_after_that_it_is_not_undone_though_nobody_has_removed_it_yet(world: World) -> None:
    reset(world)
    delete(world)
    Sweeping(world.kube, world.live, world.kafka, ThreadPoolExecutor(1), undo_kept=WEEK).looks(1)
    world.clock.sleep(WEEK.total_seconds())

    assert undo(world)[1] == "UndoRunNotFound"


NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
ENDED = Run("u1/p", 1, Outcome.SUCCEEDED, 2, "5f", "conn")


@pytest.mark.parametrize(
    ("key", "run", "kept", "gone", "over"),
    [
        (KEY, ENDED, WEEK, True, False),
        (KEY, replace(ENDED, uid="there/p"), WEEK, False, False),
        (KEY, replace(ENDED, deleted_ms=NOW_MS - 1), WEEK, False, False),
        (KEY, replace(ENDED, deleted_ms=NOW_MS - 7 * 86_400_000), WEEK, False, True),
        (KEY, replace(ENDED, deleted_ms=NOW_MS - 7 * 86_400_000 + 1), WEEK, False, False),
        (KEY, ENDED, timedelta(0), False, True),
        (KEY, replace(ENDED, connection="other"), timedelta(0), False, False),
        (KEY, replace(ENDED, connection=""), timedelta(0), False, False),
        (of_reset("elsewhere", "p"), ENDED, timedelta(0), False, False),
        (RunKey("ns", "policy", "p"), ENDED, timedelta(0), False, False),
    ],
)
def test_only_the_operators_own_records_of_deleted_resets_are_due(
    key: RunKey, run: Run, kept: timedelta, gone: bool, over: bool
) -> None:
    found = due({key: run}, "conn", "ns", {"there"}, NOW, kept)

    assert (key in found.changed, key in found.over) == (gone, over)
    assert all(noted.deleted_ms == NOW_MS for noted in found.changed.values())
