"""What could make a mirror that jobs copy say what is not so, or stand still for good."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from support.fake_kube import FakeKube
from support.mirror.passes import CREATED, SparkWorld, failed_over
from support.mirror.written import LOG_APPEND_TIME, placed
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.kube.ports import MIRRORS, Conflict, Kind, Kube, KubeFailure, Object, uid_of
from tidegate.offset_mirror.order import name_of_document, name_of_report
from tidegate.offset_mirror.report import Report, encode_report


def report_name(world: SparkWorld, place: int = 0) -> str:
    return name_of_report(name_of_document("m", uid_of(world.body)), place)


def records(world: SparkWorld) -> float:
    return world.metrics.registry.get_sample_value("tidegate_mirror_records_total") or 0


# --- producer ids -----------------------------------------------------------------------------------------------------


def test_former_producer_ids_are_in_the_status_before_a_job_writes_with_them(world: SparkWorld) -> None:
    """A failover fences what the status names, and nothing else."""
    world.copied()
    [former] = world.status.producer_ids
    world.run(world.reconciler.forget(world.body))
    world.kube.delete(MIRRORS, "ns", "m", CREATED)
    world.spec["formerProducerIds"] = [former]
    world.kube.create(MIRRORS, "ns", "m", world.spec, CREATED)
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)
    world.copied()

    assert world.status.producer_ids[0] == former
    del world.spec["formerProducerIds"]
    world.one_pass()
    world.here.write("t", 2)
    world.passes(world.logs_are_equal)
    world.copied()
    assert failed_over(world).not_copied == 0


# --- tasks that end ---------------------------------------------------------------------------------------------------


def test_a_task_that_a_forged_report_has_ended_is_begun_again(world: SparkWorld) -> None:
    world.copied()
    forged = encode_report(Report(world.job, 10**9, 1))
    world.kube.put_config_map(world.body, report_name(world), forged)
    world.passes(lambda: len(world.job_runner.started) > 1)
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)
    world.copied()


class Fickle:
    """The API server, by which the mirror is suspended for as long as one task looks at it."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        self.is_suspended = threading.Event()

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        body = self._kube.get(kind, namespace, name)
        if self.is_suspended.is_set():
            self.is_suspended.clear()
            return {**body, "spec": {**body["spec"], "suspend": True}}
        return body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_task_that_ended_while_its_job_goes_on_takes_another_job(
    is_away: bool, world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver waits for the other tasks, which go on for ever."""
    monkeypatch.setattr("tidegate.offset_mirror.reported.LOST_S", 0.5)
    fickle = Fickle(world.kube)
    world.job_runner.kube = cast("Kube", fickle)
    world.copied()
    if is_away:
        world.run(world.reconciler.stop())
        world.restart()
    fickle.is_suspended.set()
    deadline_s = time.monotonic() + 10
    while fickle.is_suspended.is_set() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    world.passes(lambda: len(world.job_runner.started) > 1)
    for number in range(2):
        world.here.write("t", 3, number)
    world.passes(world.logs_are_equal)
    world.copied()


def test_a_job_that_another_order_has_replaced_is_not_taken_for_the_one_that_died(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.offset_mirror.jobs.FIRST_BACKOFF_S", 1000.0)
    world.copied()
    world.job_runner.last.kill()
    world.passes(lambda: "another one will start soon" in str(world.status.job))
    world.spec["rateLimit"] = {"bytesPerSecond": 1_000_000}
    world.one_pass()
    world.passes(lambda: len(world.job_runner.started) == 2)
    world.copied()
    assert len(world.job_runner.started) == 2


def test_a_start_whose_answer_is_lost_starts_one_job(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    start = world.job_runner.start

    def unanswered(launch: Launch) -> None:
        start(launch)
        raise RunnerFailure("the API server does not answer")

    monkeypatch.setattr(world.job_runner, "start", unanswered)
    world.copied()
    assert len(world.job_runner.started) == 1


# --- documents that can't be written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [Conflict("it is not m's"), KubeFailure("exceeded quota: configmaps")])
def test_orders_that_can_t_be_written_are_told_of_and_leave_nothing_in_sync(
    refusal: KubeFailure, world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copied()
    put = world.kube.put_config_map

    def refused(owner: Object, name: str, data: Mapping[str, str]) -> None:
        raise refusal

    monkeypatch.setattr(world.kube, "put_config_map", refused)
    world.job_runner.last.kill()
    world.passes(lambda: world.condition("InSync").status == "False")
    world.passes(lambda: str(refusal) in world.condition("Ready").message)
    assert len(world.job_runner.started) == 1

    monkeypatch.setattr(world.kube, "put_config_map", put)
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)
    world.copied()
    assert [job.order.launch for job in world.job_runner.jobs.values()] == world.job_runner.started


def test_a_first_order_that_can_t_be_written_is_told_of(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(owner: Object, name: str, data: Mapping[str, str]) -> None:
        raise KubeFailure("exceeded quota: configmaps")

    monkeypatch.setattr(world.kube, "put_config_map", refused)
    world.passes(lambda: "exceeded quota" in world.condition("Ready").message)


# --- what is counted --------------------------------------------------------------------------------------------------


def test_records_are_counted_once_though_the_mirror_is_followed_anew(world: SparkWorld) -> None:
    world.copied()
    assert records(world) == 25
    world.spec |= {"groups": {"include": ["*"], "interval": "1s"}}
    world.one_pass()
    world.here.write("t", 3)
    world.passes(lambda: records(world) >= 28)

    world.run(world.reconciler.stop())
    world.restart()
    world.copied()
    world.here.write("t", 3)
    world.passes(lambda: records(world) >= 31)
    assert len(world.job_runner.started) == 1
    assert records(world) == 31


def test_what_was_said_before_an_operator_began_is_not_heard_lately(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is there, and its executors have been gone for long."""
    world.copied()
    world.run(world.reconciler.stop())
    world.job_runner.last.kill()
    monkeypatch.setattr(world.job_runner, "status", lambda _: RunnerStatus(RunnerState.RUNNING))
    world.restart()
    for _ in range(20):
        world.one_pass()
        time.sleep(world.look_s / 5)
        assert world.status.job is not None
        assert (world.status.job.heard, world.condition("InSync").status) == (0, "False")


def test_a_copy_that_drifted_stays_so_while_no_task_says_anything(world: SparkWorld) -> None:
    world.copied()
    world.there.write("t", 1)
    world.here.write("t", 4)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.run(world.reconciler.stop())
    world.job_runner.refuses = "not now"
    world.job_runner.last.kill()
    world.restart()
    world.passes(lambda: "not now" in str(world.status.job))

    assert world.condition("Drifted").status == "True"
    assert world.condition("Ready").reason == "CopiesDrifted"
    found = failed_over(world, acceptLoss=True)
    assert found.not_copied is None


# --- jobs that are not ended ------------------------------------------------------------------------------------------


def test_the_job_of_a_mirror_that_another_operator_looks_after_goes_on(world: SparkWorld) -> None:
    world.copied()
    world.run(world.reconciler.forget(world.body))
    assert world.job_runner.last.ended is None

    world.restart()
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)
    assert len(world.job_runner.started) == 1


def test_partitions_that_are_added_take_one_other_job(world: SparkWorld) -> None:
    world.spec["topics"] = {"include": ["t", "u"]}
    world.here.create_topic("u", 1, {})
    world.one_pass()
    world.copied()
    assert len(world.job_runner.started) == 1
    world.here.add_partitions("t", 3)
    world.here.write("t", 4, 2)
    world.passes(lambda: world.there.kept["t"].logs[2:] != [] and world.there.log("t", 2).end == 4)
    world.copied()

    assert len(world.job_runner.started) == 2


def test_a_setting_that_is_carried_over_takes_no_other_job(world: SparkWorld) -> None:
    world.copied()
    world.here.kept["t"].settings["retention.ms"] = "1000000"
    world.passes(lambda: world.there.kept["t"].settings["retention.ms"] == "1000000")
    world.here.write("t", 3)
    world.passes(world.logs_are_equal)
    world.copied()

    assert len(world.job_runner.started) == 1


def test_records_that_have_got_the_time_of_the_target_are_looked_for_by_another_job(world: SparkWorld) -> None:
    """Somebody has changed the copy's setting, and the job has written some by it before that was seen."""
    world.spec["parity"] = {"interval": "1h"}
    world.one_pass()
    world.copied()
    log = world.there.log("t")
    data = bytearray(log.log[-1].data)
    struct.pack_into(">q", data, 35, 77)  # the largest timestamp
    log.log[-1] = replace(log.log[-1], data=placed(data, log.log[-1].base, extra=LOG_APPEND_TIME))
    world.there.kept["t"].settings["message.timestamp.type"] = "LogAppendTime"

    world.passes(lambda: world.condition("Drifted").status == "True")
    assert world.there.kept["t"].settings["message.timestamp.type"] == "CreateTime"
    assert len(world.job_runner.started) == 2


def test_a_copy_that_was_deleted_is_made_anew_once_no_task_could_append_to_it(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was idle has not noticed: what it appends by the place that it knows would come to lie at another."""
    monkeypatch.setattr("tidegate.offset_mirror.jobs._WAIT_A_PASS_S", 0.01)
    world.copied()
    job = world.job_runner.last
    world.job_runner.may_stop.clear()
    del world.there.kept["t"]
    for _ in range(5):
        world.one_pass()
    world.here.write("t", 3)
    time.sleep(10 * job.beat_s)
    world.job_runner.may_stop.set()
    world.passes(lambda: "t" in world.there.kept and world.logs_are_equal())
    world.copied()

    assert world.condition("Drifted").status == "False"


def test_a_copy_of_a_job_that_has_lost_its_end_lags_until_its_source_grows(world: SparkWorld) -> None:
    """As by an unclean election at the target, after which its leader knows the producer as of then."""
    world.one_pass()
    world.copied()
    log = world.there.log("t")
    log.log = [one for one in log.log if one.until <= 15]
    for producer in log.producers.values():
        producer.last = 14
        producer.batches.clear()

    world.passes(lambda: world.status.in_sync == "1/2")
    assert log.end == 15
    world.here.write("t", 5)
    world.copied()
    assert world.logs_are_equal()
