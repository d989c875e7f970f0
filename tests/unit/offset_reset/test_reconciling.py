"""An `OffsetReset`'s passes: what is written before what is done, and what a process that dies leaves behind."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.killed import Killed
from support.reset_world import CREATED, T0, FleetWorld, World
from support.sweeping import Sweeping
from tidegate.control.records import Hold, HoldKey
from tidegate.jobs.errors import BadSparkSpec, RunnerFailure
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.jobs.storage import S3, Folder, Storage
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, OutcomeUnknown, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import RESETS
from tidegate.offset_reset.parts import Memories
from tidegate.reset.applying.gates import hold_of, holder
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.targets import FromBackup, FromCluster, PartitionOffset
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.runs import job
from tidegate.reset.store import Run, StaleAttempt
from tidegate.resources.connection import AllowSpec
from tidegate.resources.reset import Engine, ResetPhase


def test_each_effect_follows_the_intent_that_names_it(world: World) -> None:
    world.ask()

    world.passes()

    assert world.kube.log == [
        "status Pending",
        "finalizer on",
        "create",
        "status Planning 1",
        "start 1",
        "status Succeeded 1",
        "finalizer off",
    ]
    assert world.offset == 10
    assert [h.reason for h in world.kube.happenings_of(world.name)] == ["Pending", "Planning", "Applying", "Succeeded"]


def test_a_finished_reset_is_neither_written_nor_run_again(world: World) -> None:
    world.ask()
    world.passes()
    written = len(world.kube.log)
    world.kafka.commit_directly("payments", {T0: 70})

    world.passes()
    world.restart()
    world.passes()

    assert len(world.kube.log) == written
    assert world.offset == 70


@pytest.mark.parametrize("steps", range(8))
def test_a_process_that_dies_before_any_write_or_effect_is_followed_by_one_that_ends_the_run_once(
    world: World, steps: int
) -> None:
    world.ask()
    world.kube.dies_in = steps
    try:
        world.passes()
        assert steps >= 7
    except Killed:
        world.restart()
    world.passes()

    assert world.reset["phase"] == "Succeeded"
    assert world.offset == 10
    assert world.kube.log.count("create") == 1
    reasons = [h.reason for h in world.kube.happenings_of(world.name)]
    assert reasons == ["Pending", "Planning", "Applying", "Succeeded"]
    assert not world.body["metadata"].get("finalizers")


def test_no_job_is_started_before_its_connection_is_open(world: World) -> None:
    """A restarted operator sees a run under way before it has opened its connection: a job would only die at once."""
    world.ask()
    world.kube.dies_in = 4
    with pytest.raises(Killed):
        world.passes()
    assert world.kube.log[-1] == "status Planning 1"
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.drop("ns", "kafka", uid=live.uid)
    world.restart()
    world.some_passes(5)
    assert "start 1" not in world.kube.log
    assert world.condition("Ready")["reason"] == "WaitingForConnection"

    world.live.put(live)
    world.passes()
    assert world.reset["phase"] == "Succeeded"
    assert world.reset["application"].endswith("-1")
    assert world.offset == 10


def test_a_job_that_dies_is_fenced_and_started_again_under_another_name(world: World) -> None:
    work = world.runner.work

    waited_for: list[int] = []
    left_open: list[Any] = []

    def die_twice(launch: Launch) -> None:
        waited_for.append(len(world.kafka.pending("payments", [T0])))
        if len(world.runner.started) > 2:
            work(launch)
            return
        store = world.open_store("ns", launch.store.rpartition("/")[2], None)
        attempt = store.begin_attempt()
        if store.load().plan is None:
            job.plan_run(store, attempt, world.clock, lambda request, now, _: make_plan(request, world.kafka, now))
        # Dies with its transaction open: whoever gets the partition now would wait.
        left_open.append(world.kafka.writer("payments", transaction_timeout_s=60).transaction())
        left_open[-1].__enter__().send("payments", {T0: 10})
        assert world.kafka.pending("payments", [T0])
        world.runner.end(launch, "killed")

    world.runner.work = die_twice
    world.ask()

    world.passes()

    assert [name.rpartition("-")[2] for name in world.runner.started] == ["1", "2", "3"]
    assert waited_for == [0, 0, 0]
    assert world.reset["phase"] == "Succeeded"
    assert world.offset == 10


@pytest.mark.parametrize("failures", [0, 2])
def test_a_job_that_was_never_taken_up_is_ended_before_another_one_is_started(world: World, failures: int) -> None:
    """A SparkApplication may be taken up hours later, and would take the run away from the job that has it by then."""
    work, stop, events = world.runner.work, world.runner.stop, list[str]()
    refusals = [RunnerFailure("not now")] * failures

    def never_taken_up(launch: Launch) -> None:
        events.append(f"start {launch.name[-1]}")
        if launch.name.endswith("-1"):
            world.runner.states[launch.name] = RunnerStatus(RunnerState.LOST, "not taken up by the Spark operator")
        else:
            work(launch)

    def stopped(launch: Launch) -> None:
        if refusals:
            raise refusals.pop()
        events.append(f"stop {launch.name[-1]}")
        stop(launch)

    world.runner.work = never_taken_up
    vars(world.runner)["stop"] = stopped
    world.ask()
    for _ in range(failures):
        with pytest.raises(RunnerFailure, match="not now"):
            world.passes()
        assert events == ["start 1"]

    world.passes()

    assert events == ["start 1", "stop 1", "start 2"]
    assert world.reset["phase"] == "Succeeded"


def test_a_job_that_ends_after_its_document_was_read_has_not_died(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass reads the document, then asks for the job: on a busy operator many a job ends in between."""
    ends_when_asked: list[Launch] = []
    world.runner.work = ends_when_asked.append
    asked = world.runner.status

    def status(launch: Launch) -> RunnerStatus:
        for one in ends_when_asked:
            world.carry_out(one)
        ends_when_asked.clear()
        return asked(launch)

    monkeypatch.setattr(world.runner, "status", status)
    world.ask()
    world.passes()

    assert world.reset["phase"] == "Succeeded"
    assert len(world.runner.started) == 1
    assert world.metrics.registry.get_sample_value("tidegate_job_deaths_total", {"engine": "Direct"}) in (None, 0.0)


def test_a_document_is_read_once_by_a_pass_before_there_is_a_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    load, reads = DirectoryRunStore.load, list[str]()

    def read(store: DirectoryRunStore) -> Run:
        reads.append(store.location)
        return load(store)

    monkeypatch.setattr(DirectoryRunStore, "load", read)
    world.runner.work = lambda _launch: None
    world.ask()
    while not world.runner.started:
        reads.clear()
        world.some_passes(1)
        assert len(reads) <= 1


def test_a_job_that_always_dies_fails_the_run_after_so_many_launches(world: World) -> None:
    def die(launch: Launch) -> None:
        world.runner.end(launch, "no such image")

    world.runner.work = die
    world.ask()

    world.passes(200)

    assert len(world.runner.started) == 5
    assert world.reset["phase"] == "Failed"
    body = world.body
    stalled = next(c for c in body["status"]["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "JobFailed"
    assert "no such image" in stalled["message"]
    assert world.offset == 50


def test_a_clock_that_is_set_back_does_not_put_off_the_next_job(world: World) -> None:
    world.runner.work = lambda launch: world.runner.end(launch, "killed")
    world.ask()
    while len(world.runner.started) < 3:
        world.some_passes(1)
    world.some_passes(1)  # that it has died is seen
    vars(world.clock)["_start"] -= timedelta(hours=1)
    before_s = world.clock.monotonic()

    world.some_passes(4)

    assert len(world.runner.started) > 3
    assert world.clock.monotonic() - before_s < 60


@pytest.mark.parametrize("failure", [RunnerFailure, BadSparkSpec])
def test_a_job_that_cannot_be_started_is_tried_again_and_the_reason_is_said(
    world: World, failure: type[Exception]
) -> None:
    work = world.runner.work
    refusals = ["no CRD", "no CRD"]

    def refuse(launch: Launch) -> None:
        if refusals:
            raise failure(refusals.pop())
        work(launch)

    world.runner.work = refuse
    world.ask()
    messages = []
    for _ in range(2):
        with pytest.raises(RunnerFailure):
            world.passes()
        messages.append(world.body["status"]["conditions"][0]["message"])

    world.passes()

    assert messages[1].endswith("Waiting: no CRD")
    assert world.reset["application"].endswith("-1")
    assert world.reset["phase"] == "Succeeded"


def test_approval_is_noted_once_and_the_stored_plan_applied_by_a_second_job(world: World) -> None:
    world.ask(approval="Manual", to={"shiftBy": -10})

    async def until_planned() -> None:
        for _ in range(20):
            body = world.body
            if body.get("status", {}).get("phase") == "AwaitingApproval":
                return
            await world.reconciler.reconcile(body)
        raise AssertionError(world.kube.log)

    asyncio.run(until_planned())
    world.kafka.commit_directly("payments", {T0: 90})
    world.approve("0" * 64, name="of-another-plan")
    world.some_passes(3)
    assert world.reset["phase"] == "AwaitingApproval"
    world.approve()

    world.passes()

    assert world.kube.log.count("approve") == 1
    assert [name.rpartition("-")[2] for name in world.runner.started] == ["1", "2"]
    assert world.reset["phase"] == "Succeeded"
    assert world.offset == 40


@pytest.mark.parametrize("asked", [True, False])
def test_records_are_shown_only_where_the_spec_says_so(world: World, asked: bool) -> None:
    evidence = {"evidence": {"showValues": True}} if asked else {}
    world.ask(approval="Manual", **evidence)

    async def look(times: int) -> None:
        for _ in range(times):
            await world.reconciler.reconcile(world.body)

    asyncio.run(look(10))
    [document] = (world.folder / "runs").glob("*.json")
    fields = json.loads(document.read_text())
    assert fields["request"]["evidence"]["show_values"] is asked

    fields["request"]["evidence"]["show_values"] = True  # by whoever may write there
    document.write_text(json.dumps(fields))
    asyncio.run(look(3))

    assert world.reset["phase"] == ("AwaitingApproval" if asked else "Failed")
    if not asked:
        assert world.condition("Complete")["reason"] == "Forged"


def test_past_its_deadline_a_run_is_stopped_and_settled(world: World) -> None:
    world.runner.work = lambda _launch: None  # it hangs
    world.ask(deadline="30s")

    world.passes(200)

    assert world.runner.stopped == world.runner.started
    assert world.reset["phase"] == "Failed"
    assert world.offset == 50


def test_a_deadline_that_passes_as_owners_are_watched_undoes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job hangs from then on."""
    consumer = FakeConsumer(world.kafka, "payments", ["orders"]).start()
    world.clock.sleep(10)
    watch = TargetWatch.watch

    def hangs(*_: object, **__: object) -> frozenset[TopicPartition]:
        monkeypatch.setattr(TargetWatch, "watch", watch)
        raise Killed

    def work(launch: Launch) -> None:
        with contextlib.suppress(Killed):
            world.carry_out(launch)

    monkeypatch.setattr(TargetWatch, "watch", hangs)
    world.runner.work = work
    world.ask(deadline="30s")

    world.passes(200)

    assert world.runner.stopped == world.runner.started
    assert (world.reset["phase"], world.condition("Complete")["reason"]) == ("Succeeded", "Applied")
    assert [b.offset for b in consumer.began] == [50, 10]


def test_jobs_that_all_die_as_owners_are_watched_undo_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target is in place by then, and the operator watches to the end by itself."""
    consumer = FakeConsumer(world.kafka, "payments", ["orders"]).start()
    world.clock.sleep(10)
    watch = TargetWatch.watch

    def dies(*_: object, **__: object) -> frozenset[TopicPartition]:
        raise Killed

    def work(launch: Launch) -> None:
        with monkeypatch.context() as in_the_job, contextlib.suppress(Killed):
            in_the_job.setattr(TargetWatch, "watch", dies)
            world.carry_out(launch)
        world.runner.end(launch, "out of memory")

    world.runner.work = work
    world.ask()

    world.passes(200)

    assert len(world.runner.started) == 5
    assert (world.reset["phase"], world.condition("Complete")["reason"]) == ("Succeeded", "Applied")
    assert TargetWatch.watch is watch
    assert [b.offset for b in consumer.began] == [50, 10]


def test_a_reset_deleted_in_mid_run_is_settled_and_let_go(world: World) -> None:
    world.runner.work = lambda _launch: None
    world.ask()

    async def until_started() -> None:
        while not world.runner.started:
            await world.reconciler.reconcile(world.body)

    asyncio.run(until_started())
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())

    world.passes()

    assert not world.there
    assert world.runner.stopped == world.runner.started
    store = world.open_store("ns", next(iter((world.folder / "runs").glob("*.json"))).stem, None)
    result = store.load().result
    assert result is not None
    assert result.reason == "Deleted"
    with pytest.raises(StaleAttempt):
        store.finish(result, attempt=0)


def test_a_reset_that_was_deleted_while_no_operator_was_there_is_settled_all_the_same(world: World) -> None:
    world.runner.work = lambda _launch: None
    world.ask()
    while not world.runner.started:
        world.some_passes(1)
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())
    world.clock.sleep(600)
    world.reconciler = world.fresh_reconciler()

    world.passes()

    assert not world.there
    [document] = (world.folder / "runs").glob("*.json")
    result = world.open_store("ns", document.stem, None).load().result
    assert result is not None
    assert result.reason == "Deleted"
    assert "Abandoned" not in [happening.reason for happening in world.kube.happenings_of("p")]


def test_it_is_given_up_where_that_takes_too_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*_: Any, **__: Any) -> None:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(job, "settle", unanswered)
    world.runner.work = lambda _launch: None
    world.ask()
    while not world.runner.started:
        world.some_passes(1)
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())
    world.clock.sleep(600)
    world.reconciler = world.fresh_reconciler()
    began_s = world.clock.monotonic()

    while world.there:
        with contextlib.suppress(KafkaFailure, TimeoutError):
            world.some_passes(1)
        world.clock.sleep(1)

    assert 30 <= world.clock.monotonic() - began_s < 120
    assert [h.reason for h in world.kube.happenings_of("p")][-1] == "Abandoned"


def test_one_that_has_ended_is_deleted_without_us(world: World) -> None:
    world.ask()
    world.passes()

    assert world.kube.delete(RESETS, "ns", world.name, CREATED) is None


# --- what is counted --------------------------------------------------------------------------------------------------


def test_a_run_that_succeeds_is_counted_with_what_it_changed(world: World) -> None:
    assert world.finished == {}
    world.ask()

    world.passes()

    assert world.finished == {("Succeeded", "Applied"): 1}
    assert (world.metric("tidegate_records_replayed_total"), world.metric("tidegate_records_skipped_total")) == (40, 0)
    assert world.metric("tidegate_runs", phase="Succeeded") == 1
    assert world.metric("tidegate_job_launches_total", engine="Direct") == 1
    gone = world.body
    world.kube.delete(RESETS, "ns", world.name, CREATED)
    asyncio.run(world.reconciler.forget(gone))
    assert world.metric("tidegate_runs", phase="Succeeded") == 0


def hanging(world: World) -> None:
    """A run whose job was started and does nothing."""
    world.runner.work = lambda _launch: None
    world.ask(deadline="30s")
    while not world.runner.started:
        world.some_passes(1)
    world.some_passes(1)
    assert world.metric("tidegate_runs", phase="Planning") == 1


def end_by_removing_the_document(world: World) -> None:
    hanging(world)
    [document] = (world.folder / "runs").glob("*.json")
    document.unlink()


def end_by_another_document_in_its_place(world: World) -> None:
    hanging(world)
    [document] = (world.folder / "runs").glob("*.json")
    fields = json.loads(document.read_text())
    fields["request"]["group_id"] = "somebody-elses"
    document.write_text(json.dumps(fields))


def end_by_a_journal_of_what_is_not_allowed(world: World) -> None:
    world.ask(approval="Manual")
    world.some_passes(8)
    write_into_the_journal(world)


def write_into_the_journal(world: World) -> None:
    """Somebody has the run put back Kafka's own topic."""
    [document] = world.documents
    store = DirectoryRunStore(document.parent, document.stem, clock=world.clock)
    before = (PartitionOffset("__consumer_offsets", 0, 0),)
    progress = Progress(ResetPhase.APPLYING, world.clock.now(), store.load().attempt, before=before)
    store.append(progress, attempt=progress.attempt)


def end_before_there_is_a_document(world: World) -> None:
    world.ask(deadline="30s")
    world.some_passes(1)
    world.live.troubled(next(iter(world.live)), "KafkaUnavailable", "nobody answers")
    world.clock.sleep(60)


def end_by_the_deadline(world: World) -> None:
    hanging(world)
    world.clock.sleep(60)


def end_by_deleting(world: World) -> None:
    hanging(world)
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())


def end_by_abandoning(world: World) -> None:
    hanging(world)
    world.kube.change(RESETS, "ns", world.name, annotations={"tidegate.io/abandon": "true"})
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())


def end_by_a_job_that_always_dies(world: World) -> None:
    world.runner.work = world.runner.end
    world.ask()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (end_by_removing_the_document, "RunLost"),
        (end_by_another_document_in_its_place, "Forged"),
        (end_by_a_journal_of_what_is_not_allowed, "ForeignRun"),
        (end_before_there_is_a_document, "DeadlineExceeded"),
        (end_by_the_deadline, "DeadlineExceeded"),
        (end_by_deleting, "Deleted"),
        (end_by_abandoning, "Abandoned"),
        (end_by_a_job_that_always_dies, "JobFailed"),
    ],
)
def test_a_run_that_failed_is_counted_once_with_its_reason(
    world: World, end: Callable[[World], None], reason: str
) -> None:
    """Also one that left no result; and its counter was there before, or ``increase()`` would not see it."""
    assert world.metric("tidegate_runs_finished_total", outcome="Failed", reason=reason) == 0
    end(world)

    world.passes(200)
    if world.there:
        world.passes()

    assert world.finished == {("Failed", reason): 1}
    if not world.there:
        assert world.kube.happenings_of(world.name)[-1].reason == ("Abandoned" if reason == "Abandoned" else "Failed")
    else:
        assert world.condition("Complete")["reason"] == reason


# --- reasons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "failure", "reason"),
    [
        ("log_bounds", Refused("what is asked for is not supported"), "RefusedByKafka"),
        ("log_bounds", UnknownPartitions(frozenset({T0})), "UnknownPartitions"),
        ("log_bounds", NotAuthorized("read topic orders"), "NotAuthorized"),
        ("send", Refused("what is asked for is not supported"), "RefusedByKafka"),
        ("send", OutcomeUnknown("the answer was lost"), "OutcomeUnknown"),
    ],
)
def test_what_kafka_answers_is_the_reason_of_a_run_that_failed(
    world: World, call: str, failure: KafkaFailure, reason: str
) -> None:
    world.kafka.fail(call, failure)
    world.ask()

    world.passes()

    assert (world.condition("Complete")["reason"], world.condition("Stalled")["reason"]) == (reason, reason)
    assert str(failure) in world.condition("Complete")["message"]
    assert "Nothing was changed" in world.condition("Complete")["message"]
    assert world.offset == 50


def test_a_run_that_has_changed_nothing_cannot_be_undone(world: World) -> None:
    work = world.runner.work
    end_by_the_deadline(world)
    world.passes()
    assert world.reset["phase"] == "Failed"
    world.runner.work = work
    world.ask("two", to={"offset": 20}, approval="Manual", deadline="30s")
    world.some_passes(8)
    assert world.reset["phase"] == "AwaitingApproval"
    world.clock.sleep(60)
    world.passes()

    world.ask("three", to={"undo": "two"})
    world.some_passes(3)

    assert world.condition("Stalled")["reason"] == "NothingToUndo"
    assert "run two ended as Failed, so it has left no offset changed" in world.condition("Stalled")["message"]
    assert world.offset == 50


def test_a_file_of_offsets_that_is_none_is_refused_with_its_line(world: World) -> None:
    world.kube.config_maps["ns", "places"] = {"offsets.csv": "orders,0,ten\n"}
    world.ask(to={"configMap": {"name": "places", "key": "offsets.csv"}})

    world.some_passes(3)

    assert world.condition("Stalled")["reason"] == "BadOffsetsFile"
    assert "line 1" in world.condition("Stalled")["message"]
    assert world.runner.started == []


def test_a_run_whose_engine_is_not_to_be_had_any_more_waits_for_it(world: World) -> None:
    work, world.runner.work = world.runner.work, lambda _launch: None
    world.ask()
    while not world.runner.started:
        world.some_passes(1)
    world.engines.clear()
    world.restart()
    world.some_passes(2)
    assert world.condition("Reconciling")["reason"] == "EngineUnavailable"
    assert "waits for its engine, Direct" in world.condition("Reconciling")["message"]

    world.engines[Engine.DIRECT] = world.runner
    world.runner.work = work
    world.passes()

    assert world.reset["phase"] == "Succeeded"


def test_what_a_job_may_not_be_given_is_refused_before_it_is_started(world: World) -> None:
    world.engines[Engine.SPARK] = world.runner
    world.ask(engine="Spark", spark={"sparkConf": {"spark.tidegate.test": "1"}})

    world.some_passes(3)

    assert world.condition("Stalled")["reason"] == "BadSparkSpec"
    assert "spark.tidegate.test" in world.condition("Stalled")["message"]
    assert world.runner.started == []


# --- from another cluster ---------------------------------------------------------------------------------------------

OTHER = Connection("other:9092")
FROM_OTHER = {"cluster": {"connectionRef": {"name": "other"}, "group": "payments", "match": ["key"]}}


def test_a_run_from_another_cluster_waits_for_its_connection_and_is_given_both(world: World) -> None:
    launches: list[Launch] = []
    world.runner.work = launches.append
    world.engines, world.mounts_secrets = {Engine.SPARK: world.runner}, True
    world.reconciler = world.fresh_reconciler()
    world.ask(to=FROM_OTHER)
    world.some_passes(5)
    assert (world.condition("Ready")["reason"], launches) == ("WaitingForConnection", [])
    assert "KafkaConnection other" in world.condition("Ready")["message"]

    world.open_connection("other", "uid-other", OTHER, trouble=("Connecting", "not yet"))
    world.some_passes(5)
    assert (world.condition("Ready")["reason"], launches) == ("WaitingForConnection", [])

    world.open_connection("other", "uid-other", OTHER, allow=AllowSpec(groups=("pay*",), topics=("orders",)))
    world.some_passes(5)
    [launch] = launches
    request = world.open_store("ns", launch.store.rpartition("/")[2], None).load().request
    assert request.connection == world.connection
    assert request.target == FromCluster(OTHER, "payments", ("key",), timedelta(hours=1), allowed_topics=("orders",))
    assert launch.connection_secrets == {"all": ("kafka.key", "ca.crt", "other.key")}
    assert launch.reads_records


@pytest.mark.parametrize(
    ("allow", "spark", "mounted", "reason", "says"),
    [
        (AllowSpec(groups=("billing",)), True, OTHER, "GroupNotAllowed", "spec.to.cluster.group"),
        (AllowSpec(), False, OTHER, "SparkUnavailable", "no Spark runner"),
        (AllowSpec(), True, None, "SparkUnavailable", "KafkaConnection other has several trustedCertificates"),
    ],
    ids=["group", "no-spark", "certificates"],
)
def test_a_run_from_another_cluster_is_refused(
    world: World, allow: AllowSpec, spark: bool, mounted: Connection | None, reason: str, says: str
) -> None:
    world.engines, world.mounts_secrets = {Engine.SPARK if spark else Engine.DIRECT: world.runner}, True
    world.reconciler = world.fresh_reconciler()
    world.open_connection("other", "uid-other", OTHER, allow=allow, mounted=mounted)
    world.ask(to=FROM_OTHER)
    world.some_passes(5)
    assert world.condition("Stalled")["status"] == "True"
    assert world.condition("Ready")["reason"] == reason
    assert says in world.condition("Ready")["message"]
    assert world.runner.started == []


@pytest.mark.parametrize("whose", ["own", "other"])
def test_no_spark_job_is_started_for_a_document_that_connects_otherwise(world: World, whose: str) -> None:
    world.engines = {Engine.SPARK: world.runner}
    world.reconciler = world.fresh_reconciler()
    world.open_connection("other", "uid-other", OTHER)
    world.ask(to=FROM_OTHER)
    evil = Connection("evil.example:9092")

    def forge() -> None:
        for path in (world.folder / "runs").glob("*.json"):
            document = json.loads(path.read_text())
            where = document["request"] if whose == "own" else document["request"]["target"]
            where["connection"]["bootstrap_servers"] = evil.bootstrap_servers
            path.write_text(json.dumps(document))

    for _ in range(8):
        with contextlib.suppress(RunnerFailure):
            world.some_passes(1)
        forge()
    assert world.runner.started == []
    assert (world.reset["phase"], world.condition("Ready")["reason"]) == ("Failed", "Forged")


@pytest.mark.parametrize("whose", ["own", "other"])
def test_no_spark_job_is_started_while_a_connection_is_another_than_the_runs(world: World, whose: str) -> None:
    world.engines = {Engine.SPARK: world.runner}
    world.reconciler = world.fresh_reconciler()
    world.open_connection("other", "uid-other", OTHER)
    world.ask(to=FROM_OTHER)
    while not list((world.folder / "runs").glob("*.json")):
        world.some_passes(1)

    name = "kafka" if whose == "own" else "other"
    live = world.live.get("ns", name)
    assert live is not None
    world.open_connection(name, live.uid, Connection("moved.example:9092"))
    for _ in range(3):
        with contextlib.suppress(RunnerFailure):
            world.some_passes(1)

    assert world.runner.started == []
    assert "has other connection settings than KafkaConnection" in world.condition("Ready")["message"]


# --- fleets -----------------------------------------------------------------------------------------------------------


def test_a_fleet_is_planned_approved_reset_and_undone_as_one(fleet: FleetWorld) -> None:
    world = fleet
    world.ask(approval="Manual")
    world.some_passes(8)
    assert (world.reset["phase"], world.reset["fleet"]["groups"], world.reset["plan"]["moved"]) == (
        "AwaitingApproval",
        3,
        3,
    )
    assert world.offsets == [50, 50, 50]

    world.approve()
    world.passes()

    assert (world.reset["phase"], world.reset["fleet"]["reset"]) == ("Succeeded", 3)
    assert (world.offsets, world.kafka.committed("orders")) == ([10, 10, 10], {T0: 50})

    world.ask("two", to={"undo": "p"}, failurePolicy="All")
    world.passes()

    assert (world.reset["phase"], world.offsets) == ("Succeeded", [50, 50, 50])


def test_a_fleet_that_is_not_approved_goes_with_its_resource(fleet: FleetWorld) -> None:
    world = fleet
    world.ask(approval="Manual")
    world.some_passes(8)

    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())
    world.passes()

    assert not world.there
    assert world.offsets == [50, 50, 50]


def test_a_fleet_that_is_given_to_spark_is_one_job(fleet: FleetWorld) -> None:
    world = fleet
    world.engines[Engine.SPARK] = world.runner

    world.ask(engine="Spark")
    world.passes()

    assert (world.reset["engine"], world.reset["phase"], world.offsets) == ("Spark", "Succeeded", [10, 10, 10])
    assert len(world.runner.started) == 1


# --- from a backup ----------------------------------------------------------------------------------------------------

IN_S3 = {"s3": {"bucket": "backups", "path": "kafka", "credentials": {"secretName": "s3", "key": "aws"}}}
ON_CLAIM = {"folder": {"path": "offsets", "claim": "backups"}}


@pytest.mark.parametrize(
    ("place", "storage", "secrets", "claims", "environment"),
    [
        (
            IN_S3,
            S3("backups", "kafka", credentials_file=Path("/etc/tidegate/secrets/s3/aws")),
            {"s3": ("aws",)},
            {},
            {"AWS_SHARED_CREDENTIALS_FILE": "/etc/tidegate/secrets/s3/aws"},
        ),
        (ON_CLAIM, Folder(Path("/var/lib/tidegate/claims/backups/offsets")), {}, {"backups": False}, {}),
    ],
    ids=["s3", "claim"],
)
def test_a_run_from_a_backup_is_given_what_it_takes_to_read_it(
    world: World,
    place: dict[str, Any],
    storage: Storage,
    secrets: dict[str, tuple[str, ...]],
    claims: dict[str, bool],
    environment: dict[str, str],
) -> None:
    launches: list[Launch] = []
    world.runner.work = launches.append
    world.engines, world.mounts_secrets = {Engine.SPARK: world.runner}, True
    world.reconciler = world.fresh_reconciler()
    world.ask(to={"backup": {"storage": place, "at": "2026-11-20T14:00:00Z"}})
    world.some_passes(5)
    assert (world.condition("Ready")["reason"], launches) == ("StorageNotAllowed", [])

    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(claims=("backups",), secrets=("s3",))))
    world.some_passes(5)
    [launch] = launches
    request = world.open_store("ns", launch.store.rpartition("/")[2], None).load().request
    assert request.target == FromBackup(storage, datetime(2026, 11, 20, 14, tzinfo=UTC))
    assert {name: keys for name, keys in launch.connection_secrets.items() if name == "s3"} == secrets
    assert (launch.claims, launch.reads_records) == (claims, False)
    assert environment.items() <= launch.environment.items()


@pytest.mark.parametrize(
    ("place", "in_pods", "says"),
    [
        ({"folder": {"path": "a"}}, True, "keeps nothing without a PersistentVolumeClaim"),
        (ON_CLAIM, False, "has no claims"),
        ({"folder": {"path": "a"}}, False, "set TIDEGATE_SPARK_BACKUPS"),
        (IN_S3, False, "which Spark on one machine can't be given"),
    ],
    ids=["no claim in a pod", "claim on a machine", "no folder on a machine", "secret on a machine"],
)
def test_a_place_that_the_job_could_not_reach_is_refused(
    world: World, place: dict[str, Any], in_pods: bool, says: str
) -> None:
    world.engines, world.mounts_secrets = {Engine.SPARK: world.runner}, in_pods
    world.reconciler = world.fresh_reconciler()
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(claims=("backups",), secrets=("s3",))))
    world.ask(to={"backup": {"storage": place}})
    world.some_passes(5)
    assert world.condition("Ready")["reason"] == "BadBackupStorage"
    assert says in world.condition("Ready")["message"]


def test_no_spark_job_is_started_for_one_that_reads_another_backup_by_now(world: World) -> None:
    world.engines, world.mounts_secrets = {Engine.SPARK: world.runner}, True
    world.reconciler = world.fresh_reconciler()
    world.ask(to={"backup": {"storage": {"s3": {"bucket": "backups", "path": "kafka"}}}})

    while not list((world.folder / "runs").glob("*.json")):
        world.some_passes(1)
    changed = {**world.body["spec"], "to": {"backup": {"storage": {"s3": {"bucket": "others", "path": "kafka"}}}}}
    world.kube.change(RESETS, "ns", world.name, spec=changed)  # which the API server does not let anybody do
    for _ in range(3):
        with contextlib.suppress(RunnerFailure):
            world.some_passes(1)

    assert world.runner.started == []
    assert "names another backup" in world.condition("Ready")["message"]


# --- gates ------------------------------------------------------------------------------------------------------------


def holding(world: World, end: Callable[[World], None]) -> list[str]:
    """A run whose job has closed a gate, to be ended so; its holders from then on, as they are looked for."""
    world.kafka.control.ensure()
    end(world)
    uid = world.body["metadata"]["uid"]
    key = HoldKey("payments", "orders", 0, f"reset/{uid}/p")
    world.kafka.control.hold({key: Hold(connection=next(iter(world.live)).uid)})
    return held(world)


def held(world: World) -> list[str]:
    return [key.holder for key in world.kafka.control.topics.gates.holds]


def end_by_a_document_that_is_not_allowed(world: World) -> None:
    def only_plan(launch: Launch) -> None:
        store = DirectoryRunStore(world.folder / "runs", launch.store.rpartition("/")[2], clock=world.clock)
        attempt = store.begin_attempt()
        job.plan_run(store, attempt, world.clock, lambda request, now, _: make_plan(request, world.kafka, now))

    world.runner.work = only_plan
    world.ask(deadline="30s")
    while not world.runner.started:
        world.some_passes(1)
    write_into_the_journal(world)


def end_by_the_limit_of_a_deletion(world: World) -> None:
    hanging(world)
    # Longer ago than a deletion may take, and so long known to the operator.
    since = world.clock.now() - timedelta(minutes=3)
    world.kube.delete(RESETS, "ns", world.name, since.isoformat())
    memories: Memories = vars(vars(world.reconciler)["_passes"])["_memories"]
    memories.of(world.body).deletion_seen = since


def end_by_deleting_without_a_document(world: World) -> None:
    end_by_removing_the_document(world)
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())


ENDS = [
    end_by_removing_the_document,
    end_by_another_document_in_its_place,
    end_by_a_document_that_is_not_allowed,
    end_by_abandoning,
    end_by_the_limit_of_a_deletion,
    end_by_deleting_without_a_document,
]


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_ends_without_a_result_leaves_no_gate_closed(world: World, end: Callable[[World], None]) -> None:
    assert len(holding(world, end)) == 1

    world.passes(200)

    assert held(world) == []
    assert world.runner.stopped == world.runner.started, "its job was ended before"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (end_by_abandoning, "Abandoned"),
        (end_by_the_limit_of_a_deletion, "Abandoned"),
        (end_by_deleting_without_a_document, "Failed"),
        (end_by_removing_the_document, "Failed"),
        (end_by_a_document_that_is_not_allowed, "Failed"),
    ],
)
def test_a_run_that_ends_while_kafka_is_away_says_so_and_its_gates_are_opened_later(
    world: World, end: Callable[[World], None], reason: str
) -> None:
    left = holding(world, end)
    world.kafka.control.failure = Unavailable("nobody answers")

    world.passes(200)

    said = world.kube.happenings_of(world.name)[-1]
    assert said.reason == reason
    assert "gates may still be closed (nobody answers)" in said.message
    world.kafka.control.failure = None
    assert held(world) == left
    Sweeping(world.kube, world.live, world.kafka, world.executor).looks()
    assert held(world) == []


def test_a_reset_is_not_kept_by_a_kafka_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    holding(world, end_by_abandoning)
    answers = threading.Event()
    monkeypatch.setattr(world.kafka.control, "read", lambda *_: answers.wait(30))
    monkeypatch.setattr("tidegate.offset_reset.supervise._BRIEFLY_S", 0.05)
    with ThreadPoolExecutor(1) as patient:
        world.reconciler = world.reconciler_of(replace(world.parts, patient_executor=patient))

        world.passes()

        answers.set()
    assert not world.there
    assert "not within 0.05 s" in world.kube.happenings_of(world.name)[-1].message


def test_what_a_run_holds_says_whose_it_is(world: World) -> None:
    world.ask()
    world.some_passes(8)
    uid = world.body["metadata"]["uid"]
    [document] = (world.folder / "runs").glob("*.json")

    hold = hold_of(world.open_store("ns", document.stem, None).load().request)

    assert hold.reason == "offset reset p by OffsetReset ns/p"
    assert hold.connection == next(iter(world.live)).uid
    assert holder(f"{uid}/p") == f"reset/{uid}/p"


def test_a_job_that_does_not_stop_keeps_no_gate_closed_and_is_fenced(world: World) -> None:
    holding(world, end_by_removing_the_document)
    fenced: list[str] = []
    writer = world.kafka.writer

    def noted(group_id: str, **options: Any) -> Any:
        fenced.append(group_id)
        return writer(group_id, **options)

    def unstoppable(_: Launch) -> None:
        raise TimeoutError("its pod is still there")

    world.kafka.writer = noted  # type: ignore[method-assign]
    world.runner.stop = unstoppable  # type: ignore[method-assign]

    world.passes(200)

    assert world.condition("Complete")["reason"] == "RunLost"
    assert "may still be closed" not in world.condition("Complete")["message"]
    assert held(world) == []
    assert fenced == ["payments"]
