"""What the page of ``tidegate ui`` shows of a reset, a group and a pause; and what it asks the API server to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from support.planned_runs import PLANNED, a_fleets_run, a_run
from support.served_ui import NOW, PersonsKube, Scene, StoredRun, furnish, some_kafka
from tidegate.cli.errors import CommandFailed
from tidegate.cli.ui.actions import approve, plan_html, undo
from tidegate.cli.ui.board import Board
from tidegate.cli.ui.details import MOST_LANES, MOST_STEPS, group_detail, object_detail, reset_detail
from tidegate.cli.ui.rows import WATCHED, line, made_visible
from tidegate.incident.seen import KafkaSeen, Unseen
from tidegate.kube.ports import APPROVALS, PAUSES, POLICIES, RESETS, Kind, KubeFailure, Object
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import PartitionOffset
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase
from tidegate.resources.timestamps import format_timestamp


@pytest.fixture
def scene() -> Scene:
    made = Scene(some_kafka(3))
    furnish(made, 3)
    for kind in WATCHED:
        made.board.replace(kind, made.kube.list(kind))
    return made


def detail_of(scene: Scene, name: str, run: Run | None = None, *, kafka: bool = False) -> dict[str, Any]:
    body = scene.board.get(RESETS, "shop", name)
    seen = scene.eye.group("payments-eu") if kafka else None
    return reset_detail(body, run or scene.runs.run("shop", body, None), "", seen, ())


def lane(detail: dict[str, Any], topic: str, partition: int) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for each in detail["lanes"] if (each["topic"], each["partition"]) == (topic, partition)
    )
    return found


# --- a reset ----------------------------------------------------------------------------------------------------------


def test_a_lane_is_where_the_group_stood_where_it_goes_and_where_it_stands_now(scene: Scene) -> None:
    found = lane(detail_of(scene, "replay-applying", kafka=True), "orders", 1)

    assert (found["before"], found["target"], found["now"]) == (1_100_000, 400_000, 401_000)
    assert (found["earliest"], found["latest"], found["moves"]) == (120, 1_110_000, True)


def test_without_kafka_where_it_stands_now_is_not_known_and_not_guessed(scene: Scene) -> None:
    detail = detail_of(scene, "replay-done")

    assert {each["now"] for each in detail["lanes"]} == {None}
    assert not detail["byKafka"]


def test_what_was_written_down_before_the_first_commit_counts_more_than_the_plan(scene: Scene) -> None:
    run = StoredRun.of(ResetPhase.APPLYING)
    noted = replace(run.journal[-1], before=(PartitionOffset("orders", 0, 1_900_777),))
    ended = RunResult(ResetPhase.SUCCEEDED, "R", "m", NOW, before=(PartitionOffset("orders", 0, 1_900_999),))

    under_way = detail_of(scene, "replay-applying", replace(run, journal=(*run.journal[:-1], noted)))
    after = detail_of(scene, "replay-done", replace(run, result=ended))

    assert lane(under_way, "orders", 0)["before"] == 1_900_777
    assert lane(after, "orders", 0)["before"] == 1_900_999


def test_the_phases_are_those_of_the_journal_with_their_times_and_the_end(scene: Scene) -> None:
    run = replace(StoredRun.of(ResetPhase.VERIFYING), result=RunResult(ResetPhase.FAILED, "R", "put back", NOW))

    steps = detail_of(scene, "replay-failed", run)["steps"]

    assert [s["phase"] for s in steps] == ["Planning", "AwaitingApproval", "Pausing", "Applying", "Verifying", "Failed"]
    assert steps[-1] == {"phase": "Failed", "at": "2026-11-22T03:00:00Z", "round": 0, "message": "put back"}


def test_a_digest_to_approve_is_given_only_while_the_plan_waits(scene: Scene) -> None:
    waits = detail_of(scene, "replay-2026-11-20")

    assert waits["digest"] == scene.board.get(RESETS, "shop", "replay-2026-11-20")["status"]["digest"]
    assert detail_of(scene, "replay-applying")["digest"] is None
    # One that no status binds was never checked: nobody can approve it here.
    assert detail_of(scene, "replay-2026-11-20", replace(a_run(), digest=""))["digest"] is None


def test_only_what_has_succeeded_can_be_undone(scene: Scene) -> None:
    names = ("replay-done", "replay-failed", "replay-applying", "replay-2026-11-20")

    assert [name for name in names if detail_of(scene, name)["undoable"]] == ["replay-done"]


def test_one_without_a_stored_run_says_why(scene: Scene) -> None:
    body = scene.board.get(RESETS, "shop", "replay-done")

    detail = reset_detail(body, None, "its plan is no longer stored", None, ())

    assert (detail["problem"], detail["lanes"], detail["isPlanned"]) == ("its plan is no longer stored", [], False)
    assert dict(detail["facts"])["Target"] == "timestamp: 2026-11-20T14:00:00Z"


def test_more_partitions_than_a_page_holds_are_counted(scene: Scene) -> None:
    run = a_run()
    assert run.plan is not None
    many = tuple(replace(run.plan.partitions[0], partition=n) for n in range(MOST_LANES + 5))

    detail = detail_of(scene, "replay-done", replace(run, plan=replace(run.plan, partitions=many)))

    assert (len(detail["lanes"]), detail["lanesOmitted"]) == (MOST_LANES, 5)


def test_more_lines_of_a_journal_than_a_page_holds_are_counted_and_no_phase_loses_its_time(scene: Scene) -> None:
    run = StoredRun.of(ResetPhase.VERIFYING)
    applying = next(p for p in run.journal if p.phase is ResetPhase.APPLYING)
    later = [replace(applying, at=applying.at + timedelta(seconds=n)) for n in range(1, MOST_STEPS + 5)]
    ended = RunResult(ResetPhase.FAILED, "R", "m", NOW)

    detail = detail_of(scene, "replay-failed", replace(run, journal=(*run.journal, *later), result=ended))

    assert (len(detail["steps"]), detail["stepsOmitted"]) == (MOST_STEPS + 1, len(run.journal) + 4)
    reached = {each["phase"]: each["at"] for each in detail["reached"]}
    assert list(reached) == ["Planning", "AwaitingApproval", "Pausing", "Applying", "Verifying", "Failed"]
    assert reached["Planning"] == format_timestamp(run.journal[0].at)
    assert reached["Applying"] == format_timestamp(applying.at)


def test_where_nothing_is_left_out_nothing_is_said_to_be(scene: Scene) -> None:
    detail = detail_of(scene, "replay-done")

    assert [detail[each] for each in ("stepsOmitted", "lanesOmitted", "groupsOmitted")] == [0, 0, 0]


def test_more_groups_of_a_fleet_than_a_page_holds_are_counted(scene: Scene) -> None:
    run = a_fleets_run()
    assert run.fleet is not None
    many = tuple(replace(run.fleet.groups[0], group_id=f"g{n}") for n in range(MOST_LANES + 5))

    detail = detail_of(scene, "replay-done", replace(run, fleet=replace(run.fleet, groups=many)))

    assert (len(detail["groups"]), detail["groupsOmitted"]) == (MOST_LANES, 5)


def test_a_text_that_is_cut_in_a_list_says_so(scene: Scene) -> None:
    body = dict(scene.board.get(RESETS, "shop", "replay-failed"))
    long = [{**each, "message": "x" * 2000} for each in body["status"]["conditions"]]
    body["status"] = {**body["status"], "conditions": long}

    told = line(RESETS, body)["message"]

    assert (len(told), told[-1]) == (600, "…")


def test_a_fleet_lists_its_groups_as_they_are_called(scene: Scene) -> None:
    groups = detail_of(scene, "replay-done", a_fleets_run())["groups"]

    assert [(g["group"], g["moved"], g["partitions"]) for g in groups[:3]] == [
        ("payments-at", 0, 3),
        ("payments-eu", 5, 6),
        ("payments-us", 6, 6),
    ]
    assert groups[3]["refused"] == "NothingToReset: group payments-x has no offsets"


def test_a_fleets_plan_is_shown_by_its_groups() -> None:
    assert "payments-us" in plan_html("shop", a_fleets_run(), PLANNED)
    with pytest.raises(CommandFailed, match="no plan yet"):
        plan_html("shop", replace(a_run(), plan=None), PLANNED)


# --- a group, a pause, a policy ---------------------------------------------------------------------------------------


def test_a_groups_partitions_have_offsets_owners_and_lag(scene: Scene) -> None:
    detail = group_detail("payments-eu", ("shop", "prod"), scene.board, scene.eye.group("payments-eu"), "", NOW)

    first = detail["partitions"][0]
    assert (first["topic"], first["committed"], first["logEnd"], first["lag"]) == (
        "orders",
        700_000,
        1_950_000,
        1_250_000,
    )
    assert first["owner"] == "payments-0-6f1c"
    assert detail["byKafka"]
    assert any("waits for an approval" in each for each in detail["sections"][0]["sentences"])


def test_without_kafka_pauses_tell_what_they_hold_and_what_is_missing_is_said(scene: Scene) -> None:
    detail = group_detail("payments-eu", ("shop", "prod"), scene.board, None, "no --connection", NOW)

    first = detail["partitions"][0]
    assert (first["committed"], first["lag"], first["logEnd"]) == (41_230, 17, 41_247)
    assert first["holds"][0]["holder"] == "ConsumerGroupPause shop/inc-4711"
    assert not detail["byKafka"]
    assert {"what": "Kafka", "why": "no --connection"} in detail["notSeen"]


def test_where_kafka_does_not_answer_pauses_tell_what_they_hold_as_well(scene: Scene) -> None:
    silent = KafkaSeen("__tidegate", unseen=(Unseen("Kafka", "no broker answers"),))

    detail = group_detail("payments-eu", ("shop", "prod"), scene.board, silent, "", NOW)

    assert [p["partition"] for p in detail["partitions"]] == [0, 1]
    assert (detail["isAsked"], detail["byKafka"]) == (True, False)
    assert not group_detail("payments-eu", ("shop", "prod"), scene.board, None, "why", NOW)["isAsked"]
    body = scene.board.get(RESETS, "shop", "replay-done")
    told = [reset_detail(body, None, "", seen, ())["isAsked"] for seen in (silent, None)]
    assert told == [True, False]


def test_a_kind_that_may_not_be_listed_is_named_on_the_groups_page(scene: Scene) -> None:
    board = Board(WATCHED)
    board.replace(RESETS, scene.kube.list(RESETS))
    board.troubled(PAUSES, "list consumergrouppauses: 403 forbidden")

    detail = group_detail("payments-eu", ("shop", "prod"), board, None, "", NOW)

    assert "list consumergrouppauses: 403 forbidden" in [each["why"] for each in detail["notSeen"]]


def test_a_kind_that_was_not_listed_yet_is_not_said_to_have_none(scene: Scene) -> None:
    """A page that is opened, or reloaded, while the API server still lists thousands of resets."""
    board = Board(WATCHED)
    board.replace(PAUSES, scene.kube.list(PAUSES))

    detail = group_detail("payments-eu", ("shop", "prod"), board, None, "", NOW)

    assert not any("No OffsetReset" in each for each in detail["sections"][0]["sentences"])
    assert "offsetresets" in [each["what"] for each in detail["notSeen"]]


def test_a_pause_lists_its_partitions_and_a_policy_its_history(scene: Scene) -> None:
    pause = object_detail(PAUSES, scene.board.get(PAUSES, "shop", "inc-4711"), NOW)
    body = dict(scene.board.get(POLICIES, "team-00", "keep-0000"))
    body["status"] = {"history": [{"id": "r1", "phase": "Succeeded", "finishedAt": "2026-11-20T11:00:00Z"}]}
    policy = object_detail(POLICIES, body, NOW)

    assert [p["partition"] for p in pause["partitions"]] == [0, 1]
    assert policy["history"] == [{"id": "r1", "phase": "Succeeded", "finishedAt": "2026-11-20T11:00:00Z"}]


def test_a_status_of_another_version_still_has_a_page(scene: Scene) -> None:
    body = dict(scene.board.get(RESETS, "shop", "replay-done"))
    body["status"] = {"phase": "Teleporting", "conditions": [{"type": "X", "status": "True"}, 5]}

    detail = reset_detail(body, None, "", None, ())

    assert detail["phase"] == "Unreadable"
    assert [c["type"] for c in detail["conditions"]] == ["X"]
    assert line(RESETS, body)["state"] == "Unreadable"


# --- what is asked for ------------------------------------------------------------------------------------------------


def waiting(kube: PersonsKube) -> Object:
    spec = {"connectionRef": {"name": "prod"}, "group": "g", "to": {"earliest": {}}, "approval": "Manual"}
    return kube.create(RESETS, "shop", "r", spec, "2026-11-20T11:00:00Z")


def test_an_approval_is_in_the_callers_name_and_of_the_digest_that_was_shown() -> None:
    kube = PersonsKube("ada")
    waiting(kube)

    done = approve(kube, FakeClock(), "shop", "r", "a" * 64)  # type: ignore[arg-type]

    (made,) = kube.list(APPROVALS)
    assert made["spec"] == {"reset": "r", "plan": "a" * 64, "approver": "ada"}
    assert done.holds is None
    assert done.name == made["metadata"]["name"]


def test_there_is_nothing_to_approve_or_undo_that_is_not_there() -> None:
    kube = PersonsKube()
    with pytest.raises(CommandFailed, match="there is no OffsetReset r"):
        approve(kube, FakeClock(), "shop", "r", "a" * 64)  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="there is no OffsetReset r"):
        undo(kube, "shop", "r", "u", manual=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("manual", [True, False])
def test_an_undo_is_as_the_command_makes_it(manual: bool) -> None:
    kube = PersonsKube("ada")
    uid = waiting(kube)["metadata"]["uid"]

    done = undo(kube, "shop", "r", uid, manual=manual)  # type: ignore[arg-type]

    made = kube.get(RESETS, "shop", done.name)
    own = {"approval": "Manual", "requester": "ada"} if manual else {}
    assert made["spec"] == {"connectionRef": {"name": "prod"}, "group": "g", "to": {"undo": "r"}, **own}


def test_another_reset_that_has_got_the_name_meanwhile_is_not_undone() -> None:
    kube = PersonsKube("ada")
    shown = waiting(kube)["metadata"]["uid"]
    kube.delete(RESETS, "shop", "r", "2026-11-20T12:00:00Z")
    waiting(kube)

    with pytest.raises(CommandFailed, match="not the one that was shown"):
        undo(kube, "shop", "r", shown, manual=True)  # type: ignore[arg-type]

    assert len(kube.list(RESETS)) == 1


def test_numbers_that_a_browser_would_round_are_sent_as_texts() -> None:
    beyond = 2**53 + 1

    assert made_visible({"a": beyond, "b": [beyond - 2, -beyond], "c": True, "d": None}) == {
        "a": str(beyond),
        "b": [beyond - 2, str(-beyond)],
        "c": True,
        "d": None,
    }


def test_what_an_approval_would_bring_about_is_told_by_the_plan_itself(scene: Scene) -> None:
    single = detail_of(scene, "replay-2026-11-20")["effect"]
    fleet = detail_of(scene, "replay-2026-11-20", a_fleets_run())["effect"]

    assert single == {"partitions": 6, "moved": 5, "again": 1_904_880, "skipped": 6_500}
    assert (fleet["partitions"], fleet["moved"]) == (15, 11)
    assert detail_of(scene, "replay-2026-11-20", replace(a_run(), plan=None))["effect"] is None


def test_an_approval_that_may_not_be_read_was_created_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told that it failed creates another one."""
    get = scene.kube.get

    def unless_forbidden(kind: Kind, namespace: str, name: str) -> Object:
        if kind == APPROVALS:
            raise KubeFailure(f"read OffsetResetApproval {namespace}/{name}: 403 forbidden")
        return get(kind, namespace, name)

    monkeypatch.setattr(scene.kube, "get", unless_forbidden)

    done = approve(scene.kube, FakeClock(), "shop", "replay-2026-11-20", "a" * 64)  # type: ignore[arg-type]

    assert [body["metadata"]["name"] for body in scene.kube.list(APPROVALS)] == [done.name]
    assert done.holds is None
    assert "was created" in done.message
    assert "403 forbidden" in done.message
