"""A connection's quota: resets begin in their order and never too many, and plans beyond it change nothing."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.reset_world import T0, FleetWorld, World
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Group
from tidegate.kube.ports import APPROVALS, RESETS
from tidegate.offset_reset import turns
from tidegate.resources.connection import AllowSpec, QuotaSpec
from unit.offset_reset.test_turns import Crowd


def limit(world: World, **quota: int) -> None:
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(quota=QuotaSpec(**quota))))


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(tmp_path)
    yield made
    made.executor.shutdown()


def make(crowd: Crowd, number: int, **spec: Any) -> str:
    """OffsetReset ``r<number>`` of a group of its own, a minute younger than the one before it."""
    name, created = f"r{number}", f"2026-11-20T00:{number:02d}:00Z"
    asked = {"connectionRef": {"name": "kafka"}, "group": f"g{number}", "to": {"offset": 10}, **spec}
    crowd.kube.create(RESETS, "ns", name, asked, created)
    return name


def asked(crowd: Crowd, number: int) -> list[str]:
    return [make(crowd, n) for n in range(number)]


def complete(crowd: World, name: str) -> dict[str, Any]:
    conditions = crowd.kube.get(RESETS, "ns", name)["status"]["conditions"]
    return next(c for c in conditions if c["type"] == "Complete")


def phase(crowd: World, name: str) -> str:
    return str((crowd.kube.get(RESETS, "ns", name).get("status") or {}).get("phase"))


def test_no_more_begin_than_may_and_the_others_say_why(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=2)
    names = asked(crowd, 5)

    crowd.side_by_side(*names)
    crowd.side_by_side(*names)

    assert crowd.begun == names[:2]
    said = complete(crowd, "r4")
    assert (said["status"], said["reason"]) == ("Unknown", "WaitingForQuota")
    assert "allows 2 reset(s) at once" in said["message"]
    assert "2 are running (OffsetReset ns/r0, OffsetReset ns/r1); 2 older reset(s) are also waiting" in said["message"]
    told = [[h.reason for h in crowd.kube.happenings_of(name)] for name in names[2:]]
    assert told == [["WaitingForQuota"]] * 3


def test_the_oldest_that_waits_is_next_also_for_a_new_process(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=2)
    names = asked(crowd, 5)
    crowd.side_by_side(*names)

    # The process ends, and the next one is first asked about the youngest.
    crowd.reconciler = crowd.fresh_reconciler()
    crowd.side_by_side("r4", "r3", "r2")
    assert crowd.begun == ["r0", "r1"]

    crowd.name = "r0"
    crowd.passes()
    assert crowd.reset["phase"] == "Succeeded"
    crowd.side_by_side("r4", "r3", "r2")
    crowd.side_by_side("r4", "r3")
    assert crowd.begun == ["r1", "r2"]


def test_one_that_is_about_to_begin_counts_before_its_status_says_so(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=1)
    named = {"configMap": {"name": "places", "key": "offsets.csv"}}
    make(crowd, 0, to=named)
    crowd.side_by_side("r0")
    make(crowd, 1)
    crowd.kube.config_maps["ns", "places"] = {"offsets.csv": "orders,0,10\n"}
    # The older one, which was refused until now, is in nobody's way yet: either may be the first.
    crowd.side_by_side("r1", "r0")

    assert len(crowd.begun) == 1


def test_one_that_asks_has_little_compared_and_is_let_through_all_the_same(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_COMPARED", 1)
    limit(crowd, concurrent_resets=2)
    make(crowd, 0)
    crowd.side_by_side("r0")
    for number in (1, 2, 3):
        make(crowd, number, group="g0")  # they wait for r0, which nobody but r4 asks
    make(crowd, 4)
    crowd.reconciler = crowd.fresh_reconciler()

    crowd.side_by_side("r4")
    assert complete(crowd, "r4")["reason"] == "WaitingForQuota"
    crowd.side_by_side("r4")
    crowd.side_by_side("r4")

    assert crowd.begun == ["r0", "r4"]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (NotAuthorized("describe group g0: GROUP_AUTHORIZATION_FAILED"), "NotAuthorized"),
        (Refused("describe group g0: its members are no consumers (connect)"), "UnsupportedGroup"),
    ],
)
def test_one_whose_group_cannot_be_described_says_so_and_keeps_no_other_from_running(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, failure: KafkaFailure, reason: str
) -> None:
    describe = crowd.kafka.groups

    def groups(group_ids: Collection[str]) -> Mapping[str, Group]:
        if "g0" in group_ids:
            raise failure
        return describe(group_ids)

    monkeypatch.setattr(crowd.kafka, "groups", groups)
    limit(crowd, concurrent_resets=1)
    names = asked(crowd, 2)

    crowd.side_by_side(*names)
    crowd.side_by_side(*names)

    assert crowd.begun == ["r1"]
    said = complete(crowd, "r0")
    assert (said["reason"], said["message"]) == (reason, f"spec.group: {failure}")


def test_two_connections_have_a_quota_each(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=1)
    live = crowd.live.get("ns", "kafka")
    assert live is not None
    crowd.open_connection("other", "uid-other", crowd.connection, allow=live.allow)
    crowd.parts.observer.connect("uid-other", "ns/other", crowd.kafka)
    asked(crowd, 2)
    make(crowd, 2, connectionRef={"name": "other"})

    crowd.side_by_side("r0", "r1", "r2")

    assert crowd.begun == ["r0", "r2"]


def test_one_whose_plan_waits_for_approval_takes_no_room_before_that(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=1)
    make(crowd, 0, approval="Manual")
    make(crowd, 1)
    crowd.name = "r0"
    crowd.passes()
    assert crowd.reset["phase"] == "AwaitingApproval"
    crowd.side_by_side("r1")
    assert crowd.begun == ["r0", "r1"]

    crowd.approve(reset="r0")
    crowd.some_passes(3)

    assert crowd.condition("Complete")["reason"] == "WaitingForQuota"
    # Being in line, it is before whoever is younger, also for a process that has just begun.
    crowd.reconciler = crowd.fresh_reconciler()
    crowd.name = "r1"
    crowd.passes()
    assert crowd.reset["phase"] == "Succeeded"
    make(crowd, 2)
    crowd.side_by_side("r2")
    assert "startedAt" not in crowd.kube.get(RESETS, "ns", "r2")["status"]
    crowd.name = "r0"
    crowd.passes()
    assert crowd.reset["phase"] == "Succeeded"


def test_an_undo_waits_for_no_other_reset_and_may_have_all_partitions_of_that(world: World) -> None:
    world.ask()
    world.passes()
    world.kafka.commit_directly("other", {next(iter(world.kafka.committed("payments"))): 50})
    limit(world, concurrent_resets=1, partitions_per_reset=1, records_replayed_per_reset=40)
    world.ask("busy", group="other", to={"offset": 60})
    world.some_passes(2)
    assert world.reset["startedAt"]
    world.kafka.commit_directly("payments", {next(iter(world.kafka.committed("payments"))): 90})

    world.ask("back", to={"undo": "p"})
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 50)


def test_an_approved_plan_keeps_its_place_where_a_new_process_was_told_of_no_approval_yet(crowd: Crowd) -> None:
    limit(crowd, concurrent_resets=1)
    crowd.name = make(crowd, 0, approval="Manual")
    crowd.passes()
    make(crowd, 1)
    crowd.side_by_side("r1")
    crowd.approve()
    crowd.some_passes(2)
    assert crowd.condition("Complete")["reason"] == "WaitingForQuota"

    told, crowd.approvals = crowd.approvals, list
    crowd.reconciler = crowd.fresh_reconciler()
    crowd.some_passes(1)
    assert crowd.condition("Complete")["reason"] == "WaitingForQuota"
    crowd.name = "r1"
    crowd.passes()
    make(crowd, 2)
    crowd.side_by_side("r2")
    assert crowd.begun == ["r0"]

    # An approval that was deleted counts no more, and its plan is not in line.
    crowd.kube.delete(APPROVALS, "ns", "yes", crowd.clock.now().isoformat())
    crowd.approvals = told
    crowd.name = "r0"
    crowd.some_passes(1)
    assert crowd.condition("Complete")["reason"] == "AwaitingApproval"
    crowd.side_by_side("r2")
    assert crowd.begun == ["r0", "r2"]


def test_undos_wait_for_undos(crowd: Crowd) -> None:
    for number in (0, 1):
        crowd.name = make(crowd, number)
        crowd.passes()
    limit(crowd, concurrent_resets=1)
    make(crowd, 2)
    make(crowd, 10, group="g0", to={"undo": "r0"})
    make(crowd, 11, group="g1", to={"undo": "r1"})

    crowd.side_by_side("r2")
    crowd.side_by_side("r10", "r11")

    assert crowd.begun == ["r10", "r2"]
    said = complete(crowd, "r11")["message"]
    assert "allows 1 reset(s) that undo others at once" in said
    assert ": 1 is running (OffsetReset ns/r10). This reset waits" in said


def test_an_undo_may_read_again_once_what_was_skipped_beside_what_every_reset_may(world: World) -> None:
    world.kafka.fill("orders", 1000)
    world.ask("skip", to={"offset": 90})
    world.passes()
    world.kafka.commit_directly("payments", {T0: 101})
    limit(world, records_replayed_per_reset=10)

    # 51 are read again: the 40 that were skipped, and 11 that were read since.
    world.ask("back-1", to={"undo": "skip"})
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Failed", 101)
    assert "51 record(s) read again instead of at most 50 (" in world.condition("Complete")["message"]
    quota = "quota of KafkaConnection kafka (plus the 40 record(s) that reset skip had skipped): it has 51 "
    assert quota in world.condition("Complete")["message"]

    world.kafka.commit_directly("payments", {T0: 100})
    world.ask("back-2", to={"undo": "skip"})
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 50)

    # The group has read them by now.
    world.kafka.commit_directly("payments", {T0: 100})
    world.restart()
    world.ask("back-3", to={"undo": "skip"})
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Failed", 100)
    assert "50 record(s) read again instead of at most 10 (" in world.condition("Complete")["message"]


def test_of_two_undos_that_wait_for_approval_one_may_read_again_what_was_skipped(world: World) -> None:
    world.kafka.fill("orders", 1000)
    world.ask("skip", to={"offset": 90})
    world.passes()
    limit(world, records_replayed_per_reset=10)
    for name in ("back-1", "back-2"):
        world.ask(name, to={"undo": "skip"}, approval="Manual")
        world.passes()
        assert world.reset["phase"] == "AwaitingApproval"

    world.approve()
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 50)
    world.kafka.commit_directly("payments", {T0: 90})
    world.name = "back-1"
    world.approve(name="also")
    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 90)
    assert world.condition("Complete")["reason"] == "QuotaExceeded"


def test_the_undo_of_a_fleet_may_read_again_what_its_groups_had_skipped(tmp_path: Path) -> None:
    fleet = FleetWorld(tmp_path)
    fleet.ask("skip", to={"offset": 90})
    fleet.passes()
    limit(fleet, records_replayed_per_reset=10)

    fleet.ask("back", to={"undo": "skip"})
    fleet.passes()

    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [50, 50, 50])
    fleet.executor.shutdown()


@pytest.mark.parametrize(
    ("quota", "phase", "offset"),
    [
        ({"records_replayed_per_reset": 40}, "Succeeded", 10),
        ({"records_replayed_per_reset": 39}, "Failed", 50),
        ({"partitions_per_reset": 1}, "Succeeded", 10),
    ],
)
def test_a_plan_beyond_the_quota_changes_nothing(world: World, quota: dict[str, int], phase: str, offset: int) -> None:
    limit(world, **quota)
    world.ask()

    world.passes()

    assert (world.reset["phase"], world.offset) == (phase, offset)
    if phase == "Failed":
        said = world.condition("Complete")
        assert said["reason"] == "QuotaExceeded"
        assert (
            "40 record(s) read again instead of at most 39 (spec.allow.quota.recordsReplayedPerReset)"
            in said["message"]
        )
        assert said["message"].endswith("Nothing was changed")
        assert world.reset["plan"]["recordsReplayed"] == 40


def test_a_plan_that_was_made_before_the_quota_became_smaller_is_not_applied(world: World) -> None:
    world.ask(approval="Manual")
    world.passes()
    limit(world, records_replayed_per_reset=39)
    world.approve()

    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.condition("Complete")["reason"] == "QuotaExceeded"
    limit(world, records_replayed_per_reset=40)
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_a_fleet_counts_as_all_its_groups(tmp_path: Path) -> None:
    fleet = FleetWorld(tmp_path)
    limit(fleet, partitions_per_reset=2)
    fleet.ask(rollout={"waveSize": 1})

    fleet.passes()

    assert (fleet.reset["phase"], fleet.offsets) == ("Failed", [50, 50, 50])
    assert (fleet.reset["fleet"]["wave"], fleet.reset["fleet"]["notBegun"]) == (0, 3)
    assert "3 partition(s) instead of at most 2 (" in fleet.condition("Complete")["message"]
    fleet.executor.shutdown()


def test_the_waves_of_a_fleet_are_jobs_one_after_another(tmp_path: Path) -> None:
    fleet = FleetWorld(tmp_path)
    fleet.ask(rollout={"waveSize": 1, "pause": "3m"})

    for wave in (1, 2):
        fleet.passes(30)
        assert fleet.offsets == [10] * wave + [50] * (3 - wave)
        counts = fleet.reset["fleet"]
        assert (counts["wave"], counts["waves"], counts["reset"], counts["notBegun"]) == (wave, 3, wave, 3 - wave)
        said = fleet.condition("Complete")["message"]
        assert f"wave {wave} of 3 is done, wave {wave + 1} begins at " in said
        # Another process looks at it in the middle of the pause, and the next one after it.
        fleet.clock.sleep(60)
        fleet.restart()
        fleet.passes(30)
        assert fleet.offsets == [10] * wave + [50] * (3 - wave)
        fleet.clock.sleep(180)
        fleet.restart()
    fleet.passes(30)

    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [10, 10, 10])
    assert fleet.reset["application"].endswith("-3")
    assert [h.message for h in fleet.kube.happenings_of("p") if h.reason == "WaveBegun"] == [
        f"wave {n} of 3 begins: group {name}" for n, name in enumerate(("payments", "payments-b", "payments-c"), 1)
    ]
    fleet.executor.shutdown()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_never_more_than_may_whatever_comes_when(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    crowd = Crowd(tmp_path_factory.mktemp("runs"))
    limit(crowd, concurrent_resets=2)
    names = asked(crowd, 6)
    for _ in range(data.draw(st.integers(1, 5))):
        crowd.kube.lost = data.draw(st.lists(st.booleans(), max_size=2))
        if data.draw(st.booleans()):
            crowd.reconciler = crowd.fresh_reconciler()
        crowd.side_by_side(*data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True)))
        assert len(crowd.begun) <= 2
    crowd.kube.lost = []
    for _ in range(60):
        if all(phase(crowd, name) == "Succeeded" for name in names):
            break
        crowd.side_by_side(*names)
        assert len(crowd.begun) <= 2
    else:
        raise AssertionError(f"not all have run: {crowd.begun} run")
    crowd.executor.shutdown()
