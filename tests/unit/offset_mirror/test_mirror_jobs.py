"""Jobs copy for an `OffsetMirror`, and the operator follows them: whatever dies, is late, or is there twice."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.mirror.job_runner import Job
from support.mirror.passes import CREATED, SparkWorld, failed_over
from support.mirror.written import placed
from tidegate.clock import SystemClock
from tidegate.jobs.runner import Launch
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS, Kind, KubeUnavailable, Object
from tidegate.mirror import transitions
from tidegate.mirror.ports import GroupOffset
from tidegate.mirror.records import filler
from tidegate.offset_mirror.order import digest, name_of_document, name_of_report
from tidegate.offset_mirror.report import Report, Row, decode_report, encode_report
from tidegate.resources.conditions import find_condition
from tidegate.spark.mirror import OtherOrder, ordered

P = TopicPartition("t", 0)


class CutOff(FakeKube):
    """The API server as a job reaches it, which may be out of its reach."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        self.is_cut_off = threading.Event()

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._asked().get(kind, namespace, name)

    def own_config_map(self, owner: Object, name: str) -> Any:
        return self._asked().own_config_map(owner, name)

    def change_config_map(self, owner: Object, name: str, change: Any) -> None:
        self._asked().change_config_map(owner, name, change)

    def _asked(self) -> FakeKube:
        if self.is_cut_off.is_set():
            raise KubeUnavailable("nobody answers")
        return self._kube


# --- copying ----------------------------------------------------------------------------------------------------------


def test_a_job_copies_and_the_operator_does_the_rest(world: SparkWorld) -> None:
    world.here.offsets["g"] = {P: GroupOffset(7)}
    world.spec |= {"groups": {"include": ["*"], "interval": "1s"}}
    world.one_pass()
    world.copied()

    assert world.logs_are_equal()
    [launch] = world.job_runner.launches
    job = world.status.job
    assert job is not None
    assert (job.name, job.tasks, job.heard, job.message) == (launch.name, 2, 2, "")
    assert (launch.job, launch.repeatable, launch.owner["kind"]) == ("mirror", True, "OffsetMirror")
    assert len(world.status.producer_ids) == 1
    assert world.status.topics[0].writers == world.status.producer_ids
    world.passes(lambda: world.there.offsets.get("g") == {P: GroupOffset(7)})
    records = world.metrics.registry.get_sample_value("tidegate_mirror_records_total")
    assert records == 25


def test_a_job_is_not_started_before_the_status_names_it(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its tasks would end at once, as those of a job that is over."""
    named: list[str] = []
    start = world.job_runner.start

    def started(launch: Launch) -> None:
        named.append(world.job)
        start(launch)

    monkeypatch.setattr(world.job_runner, "start", started)
    world.copied()

    assert named == world.job_runner.started


def test_a_job_that_is_killed_is_followed_by_another(world: SparkWorld) -> None:
    world.spec["rateLimit"] = {"bytesPerSecond": 10_000}
    world.here.write("t", 200)
    world.one_pass()
    world.passes(lambda: world.there.kept.get("t") is not None and world.there.log("t").end > 20)
    world.job_runner.last.kill()
    assert world.there.log("t").end < world.here.log("t").end
    world.spec["rateLimit"] = {"bytesPerSecond": 1_000_000}
    world.one_pass()
    world.copied()

    assert world.logs_are_equal()
    assert len(world.job_runner.started) == len({*world.job_runner.started}) > 1
    assert len(world.status.producer_ids) == 1


def test_jobs_that_die_are_counted_and_each_has_a_name_of_its_own(world: SparkWorld) -> None:
    world.copied()
    for _ in range(2):
        world.job_runner.last.kill()
        started = len(world.job_runner.started)
        world.passes(lambda started=started: len(world.job_runner.started) > started)
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)

    numbers = [name.rpartition("-")[2] for name in world.job_runner.started]
    assert numbers == ["1", "2", "3"]
    deaths = world.metrics.registry.get_sample_value("tidegate_job_deaths_total", {"engine": "Spark"})
    assert deaths == 2


def test_two_jobs_at_once_do_no_harm(world: SparkWorld) -> None:
    world.spec["rateLimit"] = {"bytesPerSecond": 40_000}
    world.here.write("t", 200)
    world.one_pass()
    world.passes(lambda: bool(world.job_runner.started))
    twin = Job(world.kube, world.open, world.job_runner.last.order)
    try:
        world.passes(lambda: world.there.log("t").end == world.here.log("t").end)
        world.here.write("t", 30)
        world.passes(world.logs_are_equal)
        assert world.condition("Drifted").status == "False"
    finally:
        twin.kill()


def test_an_attempt_ends_where_a_later_one_is_at_work(world: SparkWorld) -> None:
    world.copied()
    first = world.job_runner.last
    later = Job(world.kube, world.open, first.order, attempt=7)
    try:
        world.passes(lambda: first.ended is not None)
        assert first.ended == ["another attempt of this task is running"]
        assert later.ended is None
    finally:
        later.kill()


def test_another_operator_follows_the_job_that_runs(world: SparkWorld) -> None:
    world.copied()
    world.run(world.reconciler.stop())
    world.here.write("t", 3)
    world.restart()
    world.passes(world.logs_are_equal)
    world.copied()

    assert len(world.job_runner.started) == 1
    assert world.job_runner.last.ended is None


@pytest.mark.parametrize("is_named", [False, True])
def test_an_operator_that_dies_between_order_and_start_leaves_nothing_undone(
    is_named: bool, world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_status = world.kube.replace_status

    def killed(kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        if status.get("job") and not is_named:
            raise KubeUnavailable("nobody answers")
        return replace_status(kind, body, status)

    monkeypatch.setattr(world.kube, "replace_status", killed)
    if is_named:
        world.passes(lambda: world.job != "")
    else:
        with pytest.raises(KubeUnavailable):
            world.passes(lambda: False)
    assert ("ns", document_of(world)) in world.kube.config_maps
    assert world.job_runner.started == []
    world.run(world.reconciler.stop())

    monkeypatch.setattr(world.kube, "replace_status", replace_status)
    world.restart()
    world.passes(lambda: "t" in world.there.kept and world.logs_are_equal())
    assert len(world.job_runner.started) == 1
    assert world.job == world.job_runner.started[0]


def test_what_is_added_is_copied_by_another_job(world: SparkWorld) -> None:
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()
    world.copied()
    world.here.create_topic("u", 1, {})
    world.here.write("u", 4)
    world.passes(lambda: "u" in world.there.kept and world.there.log("u").end == 4)

    assert world.job_runner.started[-1].endswith("-2")
    assert world.there.log("u").visible() == world.here.log("u").visible()


def test_a_job_gets_producer_ids_by_the_operator(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "ROLL_EPOCH", 2)
    large = filler(2500, None)
    world.copied()
    for _ in range(8):
        log = world.here.log("t")
        log.write_marker(77, 0)
        log._lay(placed(large, log.end), 2500)
    world.passes(lambda: world.there.log("t").end == world.here.log("t").end)

    assert world.logs_are_equal()
    assert len(world.status.producer_ids) > 2
    assert len(world.job_runner.started) == 1


# --- what is said -----------------------------------------------------------------------------------------------------


def test_a_job_that_died_and_can_t_be_started_again_leaves_nothing_in_sync(world: SparkWorld) -> None:
    """Though the source does not grow."""
    world.copied()
    world.job_runner.refuses = "SparkApplication ns/m is refused: quota"
    world.job_runner.last.kill()
    world.passes(lambda: world.condition("InSync").status == "False")

    ready = world.condition("Ready")
    assert (ready.status, ready.reason) == ("False", "CopiesLagging")
    world.passes(lambda: "SparkApplication ns/m is refused: quota" in world.condition("Ready").message)
    assert world.status.job is not None
    assert world.status.job.heard == 0

    world.job_runner.refuses = ""
    world.copied()


def test_tasks_that_nobody_hears_of_leave_nothing_in_sync_and_end_writing(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.offset_mirror.turn.TURN_S", 0.3)
    cut_off = CutOff(world.kube)
    world.job_runner.kube = cut_off
    world.copied()
    cut_off.is_cut_off.set()
    world.passes(lambda: world.condition("InSync").status == "False")
    end = world.there.log("t").end
    world.here.write("t", 3)
    world.passes(lambda: "has reported on it for" in "".join(one.message for one in world.status.worst))
    assert world.there.log("t").end == end

    cut_off.is_cut_off.clear()
    world.passes(world.logs_are_equal)
    world.copied()
    assert len(world.job_runner.started) == 1


def test_a_copy_that_drifted_is_told_of_by_its_task(world: SparkWorld) -> None:
    world.copied()
    world.there.write("t", 1)
    for number in range(2):
        world.here.write("t", 4, number)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.passes(lambda: world.there.log("t", 1).end == 9)

    assert world.condition("Ready").reason == "CopiesDrifted"
    [worst] = world.status.worst
    assert (worst.topic, worst.partition, worst.state) == ("t", 0, "Drifted")


def test_a_report_can_t_say_that_there_is_more_than_the_target_has(world: SparkWorld) -> None:
    """Whoever may write ConfigMaps may write it; groups must not be sent beyond the copy for that."""
    world.here.offsets["g"] = {P: GroupOffset(20)}
    world.spec |= {"groups": {"include": ["*"], "interval": "1s"}, "rateLimit": {"bytesPerSecond": 1000}}
    world.here.write("t", 500)
    world.one_pass()
    world.passes(lambda: "t" in world.there.kept and world.there.log("t").end > 0)
    world.job_runner.last.kill()
    world.job_runner.refuses = "not now"
    world.passes(lambda: "not now" in world.condition("Ready").message)
    end = world.there.log("t").end
    world.here.offsets["g"] = {P: GroupOffset(500)}
    report = Report(world.job, 9, 99, {P: Row(offset=520), TopicPartition("t", 1): Row(offset=5)})
    world.kube.put_config_map(world.body, name_of_report(document_of(world), 0), encode_report(report))
    world.passes(lambda: any((one.partition, one.offset) == (0, end) for one in world.status.worst))
    world.passes(lambda: world.there.offsets.get("g", {}).get(P) == GroupOffset(end))

    assert end < 500


def document_of(world: SparkWorld) -> str:
    return name_of_document("m", world.body["metadata"]["uid"])


def test_a_job_obeys_only_the_order_that_it_was_started_for(world: SparkWorld) -> None:
    world.copied()
    order = world.job_runner.last.order
    launch = world.job_runner.launches[0]
    assert ordered(world.kube, launch.store, digest(order)) == order

    world.kube.config_maps["ns", document_of(world)]["order"] = "H4sIAAAA"
    with pytest.raises(OtherOrder):
        ordered(world.kube, launch.store, digest(order))
    with pytest.raises(OtherOrder):
        ordered(world.kube, launch.store, "")

    # The operator goes by what it knows, and after a restart orders another one.
    world.run(world.reconciler.stop())
    world.restart()
    world.here.write("t", 3)
    world.passes(lambda: world.logs_are_equal() and world.job.endswith("-2"))


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_mirror_whose_job_cannot_be_ended_is_called_suspended_once_its_tasks_have_ended_by_themselves(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copied()
    world.job_runner.keeps = "delete SparkApplication: 500"
    world.spec["suspend"] = True
    world.one_pass()

    assert world.condition("Ready").reason == "JobEnding"
    assert "could not be ended (delete SparkApplication: 500)" in world.condition("Ready").message
    assert "its tasks end on their own within 30 s" in world.condition("Ready").message
    monkeypatch.setattr("tidegate.offset_mirror.jobs.TURN_S", 0.0)
    world.one_pass()
    assert world.condition("Ready").reason == "Suspended"
    assert {"the OffsetMirror is suspended"} == {*ended(world)}


def test_a_suspended_mirror_is_called_so_once_its_job_is_gone(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.offset_mirror.jobs._WAIT_A_PASS_S", 0.01)
    world.copied()
    world.job_runner.may_stop.clear()
    seconds, began = itertools.count(1), datetime.now(UTC)
    monkeypatch.setattr(SystemClock, "now", lambda _: began + timedelta(seconds=next(seconds)))
    world.spec["suspend"] = True
    said = world.one_pass()
    assert (said.status, said.reason) == ("False", "JobEnding")
    for _ in range(3):
        assert world.one_pass().last_transition_time == said.last_transition_time
    assert world.condition("InSync").status == "Unknown"

    world.job_runner.may_stop.set()
    world.passes(lambda: world.condition("Ready").reason == "Suspended")
    assert world.job == ""
    end = world.there.log("t").end
    world.here.write("t", 3)
    for _ in range(5):
        assert world.one_pass().reason == "Suspended"
    assert world.there.log("t").end == end

    world.spec["suspend"] = False
    world.one_pass()
    world.passes(world.logs_are_equal)
    assert [name.rpartition("-")[2] for name in world.job_runner.started] == ["1", "2"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.spec.update(suspend=True), "the OffsetMirror is suspended"),
        (lambda world: world.spec.update(engine="Direct"), "spec.engine is Direct"),
        (lambda world: world.spec.update(failover={"acceptLoss": True}), "the OffsetMirror fails over"),
    ],
)
def test_tasks_end_by_themselves_where_no_operator_is_there(
    change: Callable[[SparkWorld], None], why: str, world: SparkWorld
) -> None:
    world.copied()
    world.run(world.reconciler.stop())
    change(world)
    world.kube.change(MIRRORS, "ns", "m", spec=world.spec)

    assert ended(world) == [why] * 2


def ended(world: SparkWorld) -> list[str]:
    job = world.job_runner.last
    job._thread.join(20)
    assert job.ended is not None
    return job.ended


@pytest.mark.parametrize("again", [False, True])
def test_tasks_of_a_mirror_that_is_deleted_end(again: bool, world: SparkWorld) -> None:
    world.copied()
    body = world.body
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    if again:
        world.kube.create(MIRRORS, "ns", "m", world.spec, CREATED)

    [why] = {*ended(world)}
    assert ("is gone" in why) or ("ns/m" in why)
    world.run(world.reconciler.forget(body))


def test_the_job_of_a_mirror_that_is_forgotten_is_ended(world: SparkWorld) -> None:
    world.copied()
    body = world.body
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    world.run(world.reconciler.forget(body))

    assert world.job_runner.stopped == world.job_runner.started
    assert world.job_runner.last.ended is not None


def test_the_engine_can_be_changed_at_any_time(world: SparkWorld) -> None:
    world.here.write("t", 100)
    world.spec["rateLimit"] = {"bytesPerSecond": 6000}
    for number, engine in enumerate(("Spark", "Direct", "Spark", "Direct"), start=1):
        world.spec["engine"] = engine
        world.one_pass()
        world.passes(lambda number=number: "t" in world.there.kept and world.there.log("t").end >= 20 * number)
        assert (world.job != "") == (engine == "Spark")
    del world.spec["rateLimit"]
    world.one_pass()
    world.copied()

    assert world.logs_are_equal()
    assert world.condition("Drifted").status == "False"
    assert len(world.status.producer_ids) == 1


def test_a_failover_ends_the_job_and_counts_what_is_lacking(world: SparkWorld) -> None:
    world.copied()
    world.here.write("t", 3)
    found = failed_over(world)

    assert (found.not_copied, world.job) == (0, "")
    assert [topic.ends for topic in found.topics] == [(23, 5)]
    assert world.logs_are_equal()
    assert world.job_runner.last.ended is not None


def test_a_task_that_wakes_up_after_a_failover_writes_nothing(world: SparkWorld) -> None:
    """It has not heard of it, and could not be ended."""
    cut_off = CutOff(world.kube)
    world.job_runner.kube = cut_off
    world.copied()
    cut_off.is_cut_off.set()
    zombie = Job(cut_off, world.open, world.job_runner.last.order, attempt=50)
    cut_off.is_cut_off.clear()
    try:
        world.passes(lambda: world.job_runner.last.ended is not None)
        failed_over(world, acceptLoss=True)
        ends = [world.there.log("t", number).end for number in range(2)]
        for number in range(2):
            world.here.write("t", 3, number)
        zombie._thread.join(20)
        assert zombie.ended == ["the OffsetMirror fails over"] * 2
        assert [world.there.log("t", number).end for number in range(2)] == ends
    finally:
        zombie.kill()


def test_a_connection_that_changed_takes_another_job(world: SparkWorld) -> None:
    world.copied()
    world.connect("there", digest="e")
    world.here.write("t", 3)
    world.passes(lambda: world.logs_are_equal() and world.job.endswith("-2"))


def test_a_connection_that_is_deleted_ends_the_job_and_one_that_is_not_open_yet_does_not(world: SparkWorld) -> None:
    world.copied()
    world.run(world.reconciler.stop())
    world.live.drop("ns", "there", uid="there")
    world.restart()
    assert world.one_pass().reason == "WaitingForConnection"
    assert world.job_runner.last.ended is None
    world.connect("there")
    world.copied()
    assert len(world.job_runner.started) == 1

    world.live.drop("ns", "there", uid="there")
    world.passes(lambda: world.job == "")
    assert world.job_runner.last.ended is not None


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_without_a_runner_nothing_is_touched(world: SparkWorld) -> None:
    world.runner = None
    world.restart()

    said = world.one_pass()
    assert (said.status, said.reason) == ("False", "SparkUnavailable")
    assert "TIDEGATE_SPARK_RUNNER" in said.message
    assert world.there.kept == {}


def test_a_setting_of_spark_that_is_not_allowed_is_refused_before_anything_is_touched(world: SparkWorld) -> None:
    world.spec["spark"] = {"image": "registry.example/other:1"}

    assert world.one_pass().reason == "BadSparkSpec"
    assert world.there.kept == {}


@pytest.mark.parametrize("name", ["here", "there"])
def test_through_a_frozen_connection_no_job_begins_and_one_that_runs_goes_on(name: str, world: SparkWorld) -> None:
    world.connect(name, frozen="frozen by alice: INC-4711")
    assert world.one_pass().reason == "Frozen"
    assert world.there.kept == {}

    world.connect(name)
    world.copied()
    world.connect(name, frozen="frozen by alice: INC-4711")
    world.job_runner.last.kill()
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)

    world.spec["suspend"] = True
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "Suspended")
    world.spec["suspend"] = False
    started = len(world.job_runner.started)
    for _ in range(3):
        assert world.one_pass().reason == "Frozen"
    assert len(world.job_runner.started) == started


def test_a_job_that_was_ordered_does_not_begin_through_a_connection_that_was_frozen_meanwhile(
    world: SparkWorld,
) -> None:
    world.passes(lambda: world.job != "")
    assert world.job_runner.started == []
    world.connect("there", frozen="frozen by alice: INC-4711")
    for _ in range(4):
        world.one_pass()

    assert world.condition("Ready").reason == "Frozen"
    assert (world.job_runner.started, world.job) == ([], "")
    assert find_condition(world.status.conditions, "Stalled") is None

    world.connect("there")
    world.copied()


def test_what_a_task_has_said_is_read_as_it_was_said(world: SparkWorld) -> None:
    world.copied()
    name = name_of_report(document_of(world), 0)
    report = decode_report(world.kube.config_maps["ns", name])

    assert (report.launch, report.rows[P].offset) == (world.job, 20)
