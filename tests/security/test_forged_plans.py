"""Whoever may write ConfigMaps, and not the policy's status, gets no offset moved by writing a run's document."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.reset_world import T0, World
from tidegate.control.records import Hold, HoldKey
from tidegate.jobs.storage import S3, Folder
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import RESETS
from tidegate.reset.binding import Binding, OperatorBinding, digest_of
from tidegate.reset.codec import decode_request, encode_request
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import EvidenceSettings, FleetRequest, PlanLimits, RunRequest, Selection, Until
from tidegate.reset.model.targets import (
    ByDuration,
    FromBackup,
    FromCluster,
    FromFile,
    FromGroup,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToRecord,
    ToTimestamp,
    Undo,
)
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.runs import job
from tidegate.reset.runs.request import run_name
from tidegate.reset.store import ForgedRun, Run
from tidegate.resources.replay import Then

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
Forge = Callable[[dict[str, Any]], None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


def forge(world: World, change: Forge, run_id: str = "p") -> None:
    """Change a run's document, as whoever may write ConfigMaps can."""
    [path] = (world.folder / "runs").glob(f"{run_id}-*.json")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def approved(document: dict[str, Any]) -> None:
    document["approved"] = True


def sent_to_the_start(document: dict[str, Any]) -> None:
    for partition in document["plan"]["partitions"]:
        partition["target"] = 0


def asked_for_the_start(document: dict[str, Any]) -> None:
    document["request"]["target"] = {"kind": "earliest"}


def without_approval(document: dict[str, Any]) -> None:
    document["request"]["manual_approval"] = False


def another_cluster(document: dict[str, Any]) -> None:
    document["request"]["connection"]["bootstrap_servers"] = "evil.example:9092"


def without_a_deadline(document: dict[str, Any]) -> None:
    document["request"]["settings"]["deadline"] = None


def planned_and_approved(world: World) -> Forge:
    """A plan that would be applied as it is, and says that it was approved."""
    topic_id = world.kafka.topics()["orders"].topic_id

    def change(document: dict[str, Any]) -> None:
        document["plan"] = {"run_id": "p", "group_id": "payments", "made_at": "2026-01-01T00:00:00Z"}
        partition = {"topic": "orders", "partition": 0, "topic_id": topic_id, "committed": 50, "target": 0}
        document["plan"]["partitions"] = [partition | {"earliest": 0, "latest": 100}]
        document["approved"] = True

    return change


def until(world: World, phase: str, limit: int = 20) -> None:
    for _ in range(limit):
        if world.body.get("status", {}).get("phase") == phase:
            return
        world.some_passes(1)
    raise AssertionError(world.kube.log)


def assert_ended_as_forged(world: World) -> None:
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Failed", 50)
    assert [world.condition(name)["reason"] for name in ("Ready", "Stalled", "Complete")] == ["Forged"] * 3
    assert [h.type.value for h in world.kube.happenings_of(world.name) if h.reason == "Forged"] == ["Warning"]
    assert world.finished == {("Failed", "Forged"): 1}
    assert not world.body["metadata"].get("finalizers")


# --- a run that waits for its approval --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [approved, sent_to_the_start, asked_for_the_start, without_approval, another_cluster, without_a_deadline]
)
def test_a_document_that_is_changed_while_it_waits_for_approval_ends_the_run(world: World, change: Forge) -> None:
    world.ask(approval="Manual")
    until(world, "AwaitingApproval")

    forge(world, change)

    assert_ended_as_forged(world)
    assert len(world.runner.started) == 1, "no job was started for it"
    assert world.condition("Ready")["message"].endswith("Nothing was changed")


def test_a_plan_that_is_swapped_for_the_one_that_was_read_is_not_what_is_approved(world: World) -> None:
    world.ask(approval="Manual")
    until(world, "AwaitingApproval")
    read = world.reset["digest"]

    forge(world, sent_to_the_start)
    world.approve(read)

    assert_ended_as_forged(world)


def test_a_plan_that_is_swapped_once_it_is_approved_is_not_applied(world: World) -> None:
    world.ask(approval="Manual")
    until(world, "AwaitingApproval")
    world.approve()
    world.some_passes(1)
    assert world.reset["approvedDigest"] == world.reset["digest"]

    forge(world, sent_to_the_start)

    assert_ended_as_forged(world)


def test_a_plan_that_is_swapped_just_before_its_job_reads_it_is_not_applied(world: World) -> None:
    """Between the operator's last look and the job's first one."""
    work = world.runner.work

    def meanwhile(launch: Any) -> None:
        if launch.name.endswith("-2"):
            forge(world, sent_to_the_start)
        work(launch)

    world.runner.work = meanwhile
    world.ask(approval="Manual")
    until(world, "AwaitingApproval")
    world.approve()

    assert_ended_as_forged(world)
    assert [name[-1] for name in world.runner.started] == ["1", "2"]


def test_a_document_that_is_put_right_again_is_not_gone_on_with(world: World) -> None:
    world.ask(approval="Manual")
    until(world, "AwaitingApproval")
    [path] = (world.folder / "runs").glob("p-*.json")
    genuine = path.read_text()
    forge(world, sent_to_the_start)
    world.some_passes(1)

    path.write_text(genuine)
    world.approve()

    assert_ended_as_forged(world)


# --- a run without approval -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [asked_for_the_start, another_cluster, None])
def test_what_is_changed_before_a_job_is_started_is_not_carried_out(world: World, change: Forge | None) -> None:
    world.ask(approval="Automatic" if change else "Manual")
    while not list((world.folder / "runs").glob("p-*.json")):
        world.some_passes(1)

    forge(world, change or planned_and_approved(world))

    assert_ended_as_forged(world)
    assert world.runner.started == []


def test_a_plan_that_somebody_else_puts_there_while_it_is_made_is_not_applied(world: World) -> None:
    def planner(request: RunRequest, now: datetime, _tell: object) -> Plan:
        plan = make_plan(request, world.kafka, now)
        other = replace(plan, partitions=tuple(replace(p, target=0) for p in plan.partitions))
        stored.write_plan(other, attempt=stored.load().attempt)
        return plan

    def carry_out(launch: Any) -> None:
        nonlocal stored
        stored = DirectoryRunStore(world.folder / "runs", launch.store.rpartition("/")[2], clock=world.clock)
        store = ConfinedRunStore(stored, None, Binding.of_environment(launch.environment))

        def apply(attempt: int) -> Any:
            return job.apply_run(store, attempt, world.kafka, world.clock)

        def gather(_request: object, _plan: object) -> Any:
            raise AssertionError("it is not asked for")

        world.end(launch, lambda: job.carry_out(store, world.clock, plan=planner, apply=apply, gather=gather))

    stored: Any = None
    world.runner.work = carry_out
    world.ask()

    assert_ended_as_forged(world)


def test_a_plan_that_is_swapped_after_it_was_made_is_not_applied(world: World) -> None:
    """The job remembers what it has planned; the operator has not looked in between."""
    store = DirectoryRunStore(world.folder / "runs", "p-one-x", clock=world.clock)
    request = RunRequest("uid/p", "p", "payments", Connection("127.0.0.1:9092"), (), ToOffset(10))
    store.create(request)
    bound = ConfinedRunStore(store, None, Binding(digest_of(Run(request))))
    attempt = bound.begin_attempt()
    assert job.plan_run(bound, attempt, world.clock, lambda r, now, _: make_plan(r, world.kafka, now)) is None
    forge(world, sent_to_the_start)

    with pytest.raises(ForgedRun, match="p-one-x is not as the operator recorded it"):
        job.apply_run(bound, attempt, world.kafka, world.clock)

    assert world.offset == 50


# --- documents of others ----------------------------------------------------------------------------------------------


def test_a_document_that_was_there_beforehand_is_not_taken_up(world: World) -> None:
    world.ask(approval="Manual")
    uid = world.body["metadata"]["uid"]
    name = run_name("p", uid)
    request = RunRequest(f"{uid}/p", "p", "payments", world.connection, (), ToOffset(10))
    DirectoryRunStore(world.folder / "runs", name, clock=world.clock).create(request)
    forge(world, planned_and_approved(world))

    world.some_passes(5)

    assert (world.condition("Ready")["reason"], world.offset) == ("Forged", 50)
    assert world.runner.started == []
    assert "existed before this run began" in world.condition("Ready")["message"]


def test_a_document_that_is_put_there_just_before_the_operators_own_is_not_taken_up(world: World) -> None:
    world.ask(approval="Manual")
    world.some_passes(2)
    assert world.kube.log == ["status Pending", "finalizer on"]
    uid = world.body["metadata"]["uid"]
    name = run_name("p", uid)
    request = RunRequest(f"{uid}/p", "p", "payments", world.connection, (), ToEarliest())
    DirectoryRunStore(world.folder / "runs", name, clock=world.clock).create(request)

    assert_ended_as_forged(world)


def test_the_document_of_another_run_is_not_taken_for_this_ones(world: World) -> None:
    world.ask(to={"earliest": {}})
    world.passes()
    world.kafka.commit_directly("payments", {T0: 50})
    world.ask("two", approval="Manual")
    until(world, "AwaitingApproval")
    [earlier] = (world.folder / "runs").glob("p-*.json")

    def as_the_first(document: dict[str, Any]) -> None:
        first = json.loads(earlier.read_text())
        document |= {name: first[name] for name in ("request", "plan")}
        document["request"]["run_uid"] = f"{document['request']['run_uid'].rpartition('/')[0]}/two"
        document["request"]["manual_approval"] = True

    forge(world, as_the_first, "two")
    world.passes()

    assert (world.reset["phase"], world.condition("Ready")["reason"], world.offset) == ("Failed", "Forged", 50)


@pytest.mark.parametrize("part", ["result", "plan"])
def test_an_undo_goes_by_nothing_that_was_changed_since_the_run_ended(world: World, part: str) -> None:
    world.ask()
    world.passes()
    assert world.offset == 10

    def elsewhere(document: dict[str, Any]) -> None:
        if part == "result":
            document["result"]["before"][0]["offset"] = 99
        else:
            document["plan"]["partitions"][0]["topic_id"] = "another"

    forge(world, elsewhere)
    world.ask("two", to={"undo": "p"})
    world.some_passes(5)

    assert (world.condition("Ready")["reason"], world.offset) == ("Forged", 10)
    assert world.condition("Ready")["message"].startswith("spec.to.undo: ")


def test_an_undo_of_what_was_left_alone_is_done(world: World) -> None:
    world.ask()
    world.passes()
    world.ask("two", to={"undo": "p"})
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 50)


# --- what is ended ----------------------------------------------------------------------------------------------------


def test_what_a_forged_runs_job_left_open_is_ended(world: World) -> None:
    """Consumers wait neither for its transaction nor for its gates."""
    uid = world.kube.create(RESETS, "ns", "other", {}, "2026-01-01T00:00:00Z")["metadata"]["uid"]
    world.runner.work = lambda _launch: None
    world.ask()
    until(world, "Planning")
    own = HoldKey("payments", "orders", 0, f"reset/{world.reset['runUid']}")
    others = replace(own, holder=f"reset/{uid}/p")
    world.kafka.control.ensure()
    world.kafka.control.hold({own: Hold(), others: Hold()})
    left_open = world.kafka.writer("payments", transaction_timeout_s=60).transaction()
    left_open.__enter__().send("payments", {T0: 10})
    assert world.kafka.pending("payments", [T0])

    forge(world, asked_for_the_start)

    assert_ended_as_forged(world)
    assert world.runner.stopped == world.runner.started
    assert not world.kafka.pending("payments", [T0])
    assert set(world.kafka.control.read().holds) == {others}
    assert "Tidegate does not know what reset p had done by then" in world.condition("Ready")["message"]


def test_a_forged_run_whose_job_cannot_be_stopped_holds_no_consumers_up_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_still_there(_launch: object) -> None:
        raise TimeoutError("its pod is still there")

    world.runner.work = lambda _launch: None
    world.ask()
    until(world, "Planning")
    own = HoldKey("payments", "orders", 0, f"reset/{world.reset['runUid']}")
    world.kafka.control.ensure()
    world.kafka.control.hold({own: Hold()})
    forge(world, asked_for_the_start)

    with monkeypatch.context() as patched:
        patched.setattr(world.runner, "stop", is_still_there)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                world.some_passes(1)
    assert not world.kafka.control.read().holds
    assert world.reset["phase"] == "Planning"
    assert world.condition("Ready")["message"].endswith("Waiting: its pod is still there")

    assert_ended_as_forged(world)


def test_a_policy_with_a_forged_run_can_be_deleted_and_leaves_nothing_closed(world: World) -> None:
    world.runner.work = lambda _launch: None
    world.ask()
    until(world, "Planning")
    own = HoldKey("payments", "orders", 0, f"reset/{world.reset['runUid']}")
    world.kafka.control.ensure()
    world.kafka.control.hold({own: Hold()})
    forge(world, asked_for_the_start)

    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())
    world.passes()

    assert not world.there
    assert world.finished == {("Failed", "Forged"): 1}
    assert world.runner.stopped == world.runner.started
    assert not world.kafka.control.read().holds


# --- the digest -------------------------------------------------------------------------------------------------------

REQUEST = RunRequest("uid/p", "p", "payments", Connection("kafka:9092"), (), ToOffset(1))
PLAN = Plan("p", "payments", NOW, (PartitionPlan("orders", 0, "id", 5, 1, 0, 9),))
PLACES = (PartitionOffset("orders", 0, 1),)
TARGETS: tuple[Target, ...] = (
    ToEarliest(),
    ToLatest(),
    ToOffset(1),
    ToTimestamp(NOW),
    ByDuration(timedelta(hours=1)),
    ShiftBy(1),
    FromFile(PLACES, "file"),
    FromGroup("other"),
    FromCluster(Connection("other:9092"), "other", ("key",), timedelta(hours=1)),
    FromBackup(Folder(Path("/path"))),
    FromBackup(S3("bucket", "/path")),
    Undo("zero", PLACES),
    ToRecord("true"),
)
CHANGED = (
    replace(REQUEST, run_uid="uid/two"),
    replace(REQUEST, run_id="two"),
    replace(REQUEST, group_id="billing"),
    replace(REQUEST, connection=Connection("kafka:9092", tls=True)),
    replace(REQUEST, connection=Connection("kafka:9092", properties={"client.id": "x"})),
    replace(REQUEST, selections=(Selection("orders"),)),
    replace(REQUEST, selections=(Selection("orders", frozenset({1})),)),
    replace(REQUEST, allowed_topics=()),
    replace(REQUEST, manual_approval=True),
    replace(REQUEST, settings=replace(REQUEST.settings, deadline=NOW)),
    replace(REQUEST, evidence=EvidenceSettings(show_values=True)),
    replace(REQUEST, fleet=FleetRequest(("*",))),
    replace(REQUEST, fleet=FleetRequest(("*",), allowed_groups=("payments",))),
    replace(REQUEST, asked_by="somebody"),
    replace(REQUEST, connection_uid="uid"),
    replace(REQUEST, observed=True),
    replace(REQUEST, dead_letter="orders.DLT"),
    replace(REQUEST, dead_letter="public.DLT"),
    replace(REQUEST, limits=PlanLimits("kafka", partitions=1)),
    replace(REQUEST, limits=PlanLimits("kafka", records_replayed=1)),
    *(replace(REQUEST, until=Until(then, timedelta(hours=1), records=n)) for then in Then for n in (1, 2)),
    *(replace(REQUEST, target=target) for target in TARGETS),
)


def test_each_member_of_a_request_is_changed_here() -> None:
    """Also one that a later version adds."""
    members = {member.name for member in fields(RunRequest)}

    assert {name for name in members for r in CHANGED if getattr(r, name) != getattr(REQUEST, name)} == members


def test_whatever_is_asked_and_planned_has_a_digest_of_its_own() -> None:
    runs = [Run(request) for request in CHANGED]
    plans = [PLAN, replace(PLAN, notes=("x",)), replace(PLAN, partitions=())]
    plans += [replace(PLAN, partitions=(replace(PLAN.partitions[0], target=2),))]
    plans += [replace(PLAN, partitions=(replace(PLAN.partitions[0], end=end, returns=True),)) for end in (3, 4)]
    runs += [Run(REQUEST, plan=plan) for plan in plans]

    assert len({digest_of(run) for run in runs}) == len(runs)


@pytest.mark.parametrize("request_", CHANGED, ids=lambda r: f"{r.target.kind}-{r.run_uid}")
def test_a_digest_is_the_same_once_it_is_stored_and_whatever_else_is_written(request_: RunRequest) -> None:
    stored = Run(decode_request(encode_request(request_)), attempt=7, approved=True)

    assert digest_of(stored) == digest_of(Run(request_))


def test_a_set_of_partitions_has_no_order() -> None:
    """Sets that are equal may be iterated in different orders."""
    one, other = frozenset([8, 0]), frozenset([0, 8])

    found = {digest_of(Run(replace(REQUEST, selections=(Selection("orders", s),)))) for s in (one, other)}

    assert len(found) == 1


def test_a_plan_is_new_to_the_operator_once() -> None:
    planned = Run(REQUEST, plan=PLAN)
    asked, whole = digest_of(Run(REQUEST)), digest_of(planned)

    assert OperatorBinding(asked).checked(planned, "x").digest == whole
    assert OperatorBinding(whole).checked(planned, "x").digest == whole
    with pytest.raises(ForgedRun, match="is not as the operator recorded it"):
        OperatorBinding(whole).checked(Run(REQUEST), "x")
    with pytest.raises(ForgedRun):
        Binding(asked).checked(planned, "x")


def test_only_what_was_approved_is_approved() -> None:
    planned = Run(REQUEST, plan=PLAN, approved=True)
    whole = digest_of(planned)

    assert Binding(whole, whole).checked(planned, "x").approved
    assert not Binding(whole).checked(planned, "x").approved
    assert not Binding(whole, digest_of(Run(REQUEST))).checked(planned, "x").approved
    with pytest.raises(ForgedRun, match="says that its plan was approved"):
        OperatorBinding(whole).checked(planned, "x")
