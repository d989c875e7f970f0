"""Passes over an ``OffsetBackup``: what is due is made once, whoever dies meanwhile, and ended once nobody wants it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.killed import Killed
from tidegate.connection.live import Live, LiveConnections
from tidegate.jobs.application import ORDER_VARIABLE
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import JobPlaces
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import BACKUPS, KubeFailure, Object
from tidegate.offset_backup.attempts import JobParts
from tidegate.offset_backup.document import Backup, Document, Result, decode_document, digest, encode_document
from tidegate.offset_backup.manifest import schedule_folder
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_backup.reconcile import BackupReconciler, Parts
from tidegate.resources.base import read_status
from tidegate.resources.conditions import BACKED_UP, Condition, find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.offset_backup import OffsetBackupStatus
from tidegate.service.metrics import Metrics

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
CLAIM = {"folder": {"path": "offsets", "claim": "backups"}}
ELSEWHERE = {"folder": {"path": "elsewhere", "claim": "backups"}}
CREATED = "2026-11-20T11:59:00Z"

T = TypeVar("T")


class Recording(FakeKube):
    """Dies before or after the given number of effects more, with whoever acts through it."""

    def __init__(self) -> None:
        super().__init__()
        self.dies_in: float | None = None

    def effect(self, act: Callable[[], None]) -> None:
        """``dies_in``: a whole number dies before that effect, a half one after it."""
        self._step()
        act()
        self._step()

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        self.effect(lambda: FakeKube.put_config_map(self, owner, name, data))

    def _step(self) -> None:
        if self.dies_in is None:
            return
        if self.dies_in <= 0:
            raise Killed
        self.dies_in -= 0.5


class Jobs:
    """A runner whose jobs do nothing until the test says how they end."""

    engine = "Spark"

    def __init__(self, kube: Recording) -> None:
        self._kube = kube
        self.states: dict[str, RunnerStatus] = {}
        self.launches: list[Launch] = []
        self.stopped: list[str] = []
        self.refuses = ""

    def start(self, launch: Launch) -> None:
        if self.refuses:
            raise RunnerFailure(self.refuses)
        self._kube.effect(lambda: self._start(launch))

    def _start(self, launch: Launch) -> None:
        if launch.name not in self.states:
            self.launches.append(launch)
            self.states[launch.name] = RunnerStatus(RunnerState.RUNNING)

    def status(self, launch: Launch) -> RunnerStatus:
        return self.states.get(launch.name, RunnerStatus(RunnerState.LOST))

    def stop(self, launch: Launch) -> None:
        self.stopped.append(launch.name)
        self.states[launch.name] = RunnerStatus(RunnerState.EXITED)


class World:
    """An hourly ``OffsetBackup`` ``p`` on a claim, at 12:00:30, and a reconciler that may die."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.sleep(30)
        self.kube = Recording()
        self.jobs = Jobs(self.kube)
        self.spec: dict[str, Any] = {"connectionRef": {"name": "kafka"}, "schedule": "1h", "storage": CLAIM}
        self.kube.create(BACKUPS, "ns", "p", self.spec, CREATED)
        self.executor = ThreadPoolExecutor(1)
        self.patient_executor = ThreadPoolExecutor(2)
        self.live = LiveConnections()
        self.open_connection(
            Live(
                uid="connection",
                namespace="ns",
                name="kafka",
                digest="d",
                connection=Connection("127.0.0.1:9092"),
                mounted=Connection("127.0.0.1:9092"),
                secrets={"kafka-user": ("password",)},
                allow=AllowSpec(claims=("backups",), groups=("pay*",)),
                kafka=FakeKafka(self.clock),
                cluster_id="c",
                trouble=None,
            )
        )
        self.places = JobPlaces(True, PurePosixPath("/claims"), PurePosixPath("/secrets"))
        self.has_runner = True
        self.loop = asyncio.new_event_loop()
        self.restart()

    def open_connection(self, live: Live) -> None:
        self.connection = live
        self.live.put(live)

    def restart(self) -> None:
        """A new process: nothing in memory."""
        self.metrics = Metrics()
        self.registry = self.metrics.registry
        runner = self.jobs if self.has_runner else None
        jobs = JobParts(self.kube, runner, SparkSettings(), self.places, self.executor, self.patient_executor)
        backups = BackupMetrics(self.registry)
        self.reconciler = BackupReconciler(Parts(jobs, self.live, self.clock.now, self.metrics, backups))

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(awaitable)

    def keep(self, passes: int = 1) -> None:
        if self.body["spec"] != self.spec:
            self.kube.change(BACKUPS, "ns", "p", spec=self.spec)
        for _ in range(passes):
            self.run(self.reconciler.reconcile(self.body))

    @property
    def body(self) -> Object:
        return self.kube.get(BACKUPS, "ns", "p")

    @property
    def documents(self) -> dict[tuple[str, str], dict[str, str]]:
        return self.kube.config_maps

    @property
    def document(self) -> Document:
        [data] = self.documents.values()
        return decode_document(data)

    @property
    def last(self) -> OffsetBackupStatus:
        return read_status(OffsetBackupStatus, self.body)

    @property
    def condition(self) -> Condition:
        return self.condition_of(BACKED_UP)

    def condition_of(self, condition_type: str) -> Condition:
        found = find_condition(self.last.conditions, condition_type)
        assert found is not None
        return found

    @property
    def verdicts(self) -> dict[str, str]:
        """Status by type of the conditions that kstatus reads."""
        return {c.type: c.status.value for c in self.last.conditions if c.type != BACKED_UP}

    @property
    def events(self) -> list[str]:
        return [h.reason for h in self.kube.happenings_of("p")]

    def attempts(self) -> list[str]:
        return [launch.name.rpartition("-")[2] for launch in self.jobs.launches]

    def end_job(self, failure: str = "", unread: int = 0, left: str = "") -> None:
        """The newest job stores what came of it and ends."""
        document = self.document
        at = self.clock.now()
        order = document.order
        made = Backup(
            order.storage,
            "c",
            order.due,
            at,
            f"{order.storage.uri}/{schedule_folder('c', order.schedule)}/data/{order.attempt}",
            3,
            12,
            4096,
            unread,
            "g: no",
        )
        result = Result(at, failure=failure) if failure else Result(at, made, left)
        [key] = self.documents
        self.documents[key] = encode_document(replace(document, result=result))
        self.jobs.states[order.attempt] = RunnerStatus(RunnerState.EXITED)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def world() -> World:
    return World()


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 20, hour, minute, tzinfo=UTC)


def test_what_is_due_is_ordered_made_and_told(world: World) -> None:
    world.keep(4)

    [launch] = world.jobs.launches
    order = world.document.order
    assert (order.due, order.groups, order.allowed_groups) == (at(12), ("*",), ("pay*",))
    assert (launch.job, launch.claims, launch.namespace) == ("backup", {"backups": True}, "ns")
    assert launch.connection_secrets == {"kafka-user": ("password",)}
    assert launch.environment[ORDER_VARIABLE] == digest(order)
    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "FirstBackup")
    assert world.last.next is None

    world.clock.sleep(40)
    world.end_job()
    world.keep(3)

    assert world.last.last is not None
    assert (world.last.last.due, world.last.last.groups, world.last.last.partitions) == (at(12), 3, 12)
    assert (world.last.next, world.last.failures, world.last.missed) == (at(13), 0, 0)
    assert (world.condition.status.value, world.condition.reason) == ("True", "BackupTaken")
    assert world.events == ["BackupTaken"]
    assert world.sample("tidegate_backup_offsets", resource_namespace="ns", backup="p") == 12
    assert world.sample("tidegate_backup_attempts_total", outcome="Taken") == 1
    assert world.sample("tidegate_backup_attempts_total", outcome="Failed") == 0
    taken_at = world.last.last.taken_at.timestamp()
    assert world.sample("tidegate_backup_timestamp_seconds", resource_namespace="ns", backup="p") == taken_at
    assert world.sample("tidegate_backup_schedule_seconds", resource_namespace="ns", backup="p") == 3600
    assert world.sample("tidegate_backup_unread_groups", resource_namespace="ns", backup="p") == 0

    world.clock.sleep(3600)
    world.keep(3)
    assert world.attempts() == ["1", "2"]
    assert world.document.order.due == at(13)


@pytest.mark.parametrize("effects", [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5])
def test_a_process_that_dies_between_any_two_steps_is_followed_by_one_that_goes_on(
    world: World, effects: float
) -> None:
    """The first due time's order and start, then the second's."""
    world.kube.dies_in = effects
    for due in (at(12), at(13)):
        for _ in range(8):
            try:
                world.keep()
            except Killed:
                world.kube.dies_in = None
                world.restart()
        assert world.document.order.due == due
        assert world.document.is_under_way
        world.end_job()
        world.restart()
        world.keep(2)
        world.clock.sleep(3600)
    assert world.attempts() == ["1", "2"]
    assert world.events == ["BackupTaken", "BackupTaken"]
    assert not [name for name in world.jobs.stopped if name]


def test_what_came_of_a_backup_is_said_though_its_events_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise KubeFailure("record an Event of ns/p: 403 exceeded quota: events")

    monkeypatch.setattr(world.kube, "record", refused)

    world.keep(4)
    world.end_job()
    world.keep(4)

    assert world.last.last is not None
    assert world.condition.status.value == "True"
    assert not world.events


def test_due_times_that_were_missed_are_made_up_for_by_one(world: World) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    world.restart()
    world.clock.sleep(5 * 3600)

    world.keep(4)
    world.end_job()
    world.keep(4)

    assert world.attempts() == ["1", "2"]
    assert (world.document.order.due, world.last.missed) == (at(17), 4)
    assert "4 due time(s) before it were missed" in world.kube.happenings_of("p")[-1].message


def test_a_job_that_dies_is_stopped_and_made_again_later_and_its_end_is_said(world: World) -> None:
    world.keep(4)
    [launch] = world.jobs.launches
    world.jobs.states[launch.name] = RunnerStatus(RunnerState.EXITED, "out of memory")
    world.keep(3)

    assert world.jobs.stopped == [launch.name]
    assert world.attempts() == ["1"]
    assert world.last.failures == 1
    assert world.condition.message.endswith(
        "The backup due at 2026-11-20T12:00:00Z has failed (the next attempt is at 2026-11-20T12:01:30Z): out of memory"
    )
    world.restart()
    for minute, failures in ((1, 2), (2, 3), (4, 4)):
        world.clock.sleep(minute * 60)
        world.keep(4)
        world.end_job("the disk is full")
        world.keep(2)
        assert world.last.failures == failures
    assert world.events == ["BackupFailed"]

    world.clock.sleep(3 * 3600)
    world.keep(4)
    assert (world.condition.status.value, world.condition.reason) == ("False", "BackupLate")
    world.end_job(unread=2)
    world.keep(2)
    assert world.last.failures == 0
    assert (world.condition.status.value, world.condition.reason) == ("False", "GroupsUnread")
    assert "2 group(s) could not be read, such as g: no" in world.condition.message


def test_a_job_that_can_not_be_started_is_tried_again_and_the_reason_is_said(world: World) -> None:
    world.jobs.refuses = "no such kind"
    world.keep(5)
    assert world.condition.message.endswith("no such kind")
    world.jobs.refuses = ""
    world.keep(2)
    assert world.attempts() == ["1"]
    assert "no such kind" not in world.condition.message


def test_a_job_that_hangs_is_stopped(world: World) -> None:
    world.keep(4)
    world.clock.sleep(3601)
    world.keep(2)
    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert "did not end within 1:00:00" in world.kube.happenings_of("p")[-1].message
    assert world.document.order.due == at(13)


@pytest.mark.parametrize(
    "changed",
    [{"storage": ELSEWHERE}, {"groups": ["payments"]}, {"keep": {"each": "1h"}}],
    ids=["storage", "groups", "keep"],
)
def test_a_job_that_makes_what_is_no_longer_wanted_is_ended_for_another(world: World, changed: dict[str, Any]) -> None:
    world.keep(4)
    world.spec |= changed
    world.keep(6)

    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert world.attempts() == ["1", "2"]
    assert world.last.failures == 0
    assert world.document.order.due == at(12)


def test_another_place_gets_a_backup_at_once_and_its_own_counts(world: World) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    world.spec |= {"storage": ELSEWHERE}
    world.keep(3)
    assert world.attempts() == ["1", "2"]
    assert world.last.last is None


def test_back_in_a_former_place_it_is_not_said_that_there_is_none(world: World) -> None:
    """Those that were taken there are there, and can be restored from; the operator only does not know of them."""
    world.keep(4)
    world.end_job()
    world.keep(2)
    for place in (ELSEWHERE, CLAIM):
        world.spec["storage"] = place
        world.keep(4)
        assert world.condition.message == (
            "no backup of this cluster is known in this storage yet: the first one is to be made"
        )
    world.end_job()
    world.keep(2)
    assert world.condition.reason == "BackupTaken"


@pytest.mark.parametrize("restarted", [False, True])
def test_suspending_ends_the_job_and_nothing_is_late_meanwhile(world: World, restarted: bool) -> None:
    world.keep(4)
    if restarted:
        world.restart()
    world.spec |= {"suspend": True}
    world.keep(3)

    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "Suspended")
    assert world.verdicts == {"Ready": "True"}
    assert world.document.result is not None
    assert world.document.result.withdrawn
    assert world.sample("tidegate_backup_offsets", resource_namespace="ns", backup="p") is None

    world.clock.sleep(24 * 3600)
    world.keep(2)
    assert (world.condition.reason, world.last.next) == ("Suspended", None)

    world.spec |= {"suspend": False}
    world.keep(4)
    assert world.attempts() == ["1", "2"]
    assert world.condition.reason == "FirstBackup"


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_was_taken_just_before_it_is_suspended_is_told_of(world: World, *, restarted: bool) -> None:
    world.keep(4)
    world.end_job(unread=1)
    if restarted:
        world.restart()
    world.spec["suspend"] = True
    world.keep(3)

    assert (world.condition.reason, world.condition.message) == (
        "Suspended",
        "spec.suspend is true: no backup is taken; the newest one was due at 2026-11-20T12:00:00Z",
    )
    assert world.last.last is not None
    assert world.last.backups == (world.last.last,)
    assert world.events == ["BackupTaken", "GroupsUnread"]
    assert world.sample("tidegate_backup_attempts_total", outcome="Taken") == 1
    world.spec["suspend"] = False
    world.keep(3)
    assert (world.condition.reason, world.events) == ("GroupsUnread", ["BackupTaken", "GroupsUnread"])


@pytest.mark.parametrize(("more", "missed"), [(0, 0), (2, 1)])
def test_while_it_is_suspended_no_due_time_is_missed(world: World, more: int, missed: int) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    world.spec["suspend"] = True
    world.keep(2)
    world.clock.sleep(5 * 3600)
    world.spec["suspend"] = False
    world.open_connection(replace(world.connection, trouble=("KafkaUnavailable", "no broker answers")))
    world.keep(2)
    world.clock.sleep(more * 3600)
    world.open_connection(replace(world.connection, trouble=None))
    world.keep(4)
    world.end_job()
    world.keep(2)

    assert world.document.order.due == at(17 + more)
    assert world.last.missed == missed
    assert ("1 due time(s) before it were missed" in world.kube.happenings_of("p")[-1].message) is bool(missed)


@pytest.mark.parametrize("changed", [{"suspend": True}, {"storage": ELSEWHERE}], ids=["suspended", "changed"])
def test_while_a_job_does_not_end_the_new_spec_is_known_and_nothing_is_begun(
    world: World, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec that stays unobserved would fail the operator's own health check."""

    def fails(_launch: Launch) -> None:
        raise RunnerFailure("the API server does not answer")

    world.keep(4)
    world.spec |= changed
    with monkeypatch.context() as patched:
        patched.setattr(world.jobs, "stop", fails)
        world.keep(3)
    assert world.last.observed_generation == 2
    assert (world.condition_of("Ready").reason, world.condition.reason) == ("EndingJob", "FirstBackup")
    assert world.attempts() == ["1"]

    world.keep(4)
    assert world.attempts() == (["1"] if "suspend" in changed else ["1", "2"])
    assert world.condition_of("Ready").reason == ("Suspended" if "suspend" in changed else "FirstBackup")


def test_a_job_is_ended_though_ending_the_one_before_it_took_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is stored while it is being ended, which nobody waits for any more by then."""
    monkeypatch.setattr("tidegate.offset_backup.attempts._WAIT_A_PASS_S", 0.01)
    ends, ended, stop = threading.Event(), threading.Event(), world.jobs.stop

    def stop_slowly(launch: Launch) -> None:
        assert ends.wait(60)
        stop(launch)
        ended.set()

    world.keep(4)
    with monkeypatch.context() as slow:
        slow.setattr(world.jobs, "stop", stop_slowly)
        world.spec |= {"suspend": True}
        world.keep()
        assert world.condition_of("Ready").reason == "EndingJob"
        world.end_job()
        world.spec |= {"suspend": False}
        world.keep(2)
        assert world.condition.reason == "BackupTaken"
        ends.set()
        assert ended.wait(60)
    world.clock.sleep(3600)
    world.keep(4)
    assert world.attempts() == ["1", "2"]
    monkeypatch.undo()

    world.spec |= {"suspend": True}
    world.keep(3)

    assert world.jobs.stopped == [launch.name for launch in world.jobs.launches]
    assert world.condition.reason == "Suspended"


def test_an_order_is_not_forgotten_by_who_finds_that_none_is_wanted(world: World) -> None:
    world.kube.dies_in = 0.5
    with pytest.raises(Killed):
        world.keep(4)
    world.kube.dies_in = None
    world.restart()
    world.spec |= {"suspend": True}
    world.keep(2)
    assert world.document.result is not None
    assert world.document.result.withdrawn


def test_the_job_of_one_that_is_gone_is_ended(world: World) -> None:
    world.keep(4)
    body = world.body
    world.kube.delete(BACKUPS, "ns", "p", CREATED)
    world.run(world.reconciler.forget(body))
    assert world.jobs.stopped == [world.jobs.launches[0].name]


def test_the_job_of_one_that_another_operator_looks_after_from_now_on_goes_on(world: World) -> None:
    world.keep(4)
    world.run(world.reconciler.forget(world.body))
    assert world.jobs.stopped == []

    world.restart()
    world.keep(2)
    world.end_job()
    world.keep(2)
    assert (world.attempts(), world.condition.reason) == (["1"], "BackupTaken")


def test_an_order_that_somebody_else_wrote_is_not_carried_out(world: World) -> None:
    world.kube.dies_in = 0.5
    with pytest.raises(Killed):
        world.keep(4)
    world.kube.dies_in = None
    world.restart()
    [key] = world.documents
    order = world.document.order
    foreign = replace(order, connection=Connection("evil:9092"))
    world.documents[key] = encode_document(replace(world.document, order=foreign))

    world.keep(6)

    assert world.attempts() == ["2"]
    assert world.document.order.connection == order.connection


@pytest.mark.parametrize("spoilt", [None, {}, {"order.json": "{}", "asked.json": "{}"}], ids=["gone", "empty", "other"])
def test_a_document_that_is_lost_costs_one_more_backup_under_a_new_name(
    world: World, spoilt: dict[str, str] | None
) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    [key] = world.documents
    if spoilt is None:
        del world.documents[key]
    else:
        world.documents[key] = spoilt
    world.restart()

    world.keep(4)

    assert world.attempts() == ["1", "2"]


@pytest.mark.parametrize(
    ("allow", "in_pods", "has_runner", "storage", "reason"),
    [
        (AllowSpec(), True, True, CLAIM, "StorageNotAllowed"),
        (
            AllowSpec(),
            True,
            True,
            {"s3": {"bucket": "backups", "path": "x", "credentials": {"secretName": "s", "key": "k"}}},
            "StorageNotAllowed",
        ),
        (AllowSpec(), True, True, {"folder": {"path": "offsets"}}, "BadBackupStorage"),
        (AllowSpec(), False, True, {"folder": {"path": "offsets"}}, "BadBackupStorage"),
        (AllowSpec(claims=("backups",)), True, False, CLAIM, "SparkUnavailable"),
    ],
)
def test_what_can_not_be_made_is_refused_and_said(
    world: World, allow: AllowSpec, in_pods: bool, has_runner: bool, storage: dict[str, Any], reason: str
) -> None:
    world.open_connection(replace(world.connection, allow=allow))
    world.places, world.has_runner = replace(world.places, in_pods=in_pods), has_runner
    world.spec |= {"storage": storage}
    world.restart()
    world.keep(3)

    assert (world.condition.status.value, world.condition.reason) == ("False", reason)
    assert world.verdicts == {"Ready": "False", "Stalled": "True"}
    assert world.events == [reason]
    assert not world.documents


def test_a_right_that_is_taken_back_ends_the_job(world: World) -> None:
    world.keep(4)
    world.open_connection(replace(world.connection, allow=AllowSpec()))
    world.keep(2)
    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert world.condition.reason == "StorageNotAllowed"


def test_jobs_of_this_machine_keep_below_the_one_folder(world: World, tmp_path: Path) -> None:
    world.places = replace(world.places, in_pods=False, backups=tmp_path)
    world.spec |= {"storage": {"folder": {"path": "offsets/prod"}}}
    world.restart()
    world.keep(4)
    assert world.document.order.storage.uri == (tmp_path / "offsets/prod").as_uri()
    assert world.jobs.launches[0].claims == {}


@pytest.mark.parametrize("end", ["deleted", "being deleted", "suspended"])
def test_what_prometheus_was_told_goes_with_it(world: World, end: str) -> None:
    """A connection that was removed is another matter: the newest backup only gets older."""
    gauges = [f"tidegate_backup_{g}" for g in ("timestamp_seconds", "schedule_seconds", "offsets", "unread_groups")]
    world.keep(4)
    assert world.sample(gauges[0], resource_namespace="ns", backup="p") == 0
    world.end_job()
    world.keep(2)
    world.live.drop("ns", "kafka", uid="connection")
    world.keep(2)
    assert None not in [world.sample(gauge, resource_namespace="ns", backup="p") for gauge in gauges]

    if end == "deleted":
        world.run(world.reconciler.forget(world.body))
    elif end == "being deleted":
        # Somebody's finalizer may hold it for days, in which no backup is taken.
        body = {**world.body, "metadata": {**world.body["metadata"], "deletionTimestamp": "2026-11-20T12:01:00Z"}}
        world.run(world.reconciler.reconcile(body))
    else:
        world.spec |= {"suspend": True}
        world.keep(3)

    assert {world.sample(gauge, resource_namespace="ns", backup="p") for gauge in gauges} == {None}


def test_prometheus_is_told_of_the_newest_also_while_none_can_be_made(world: World) -> None:
    """So that its age raises the alarm, and not that somebody has restarted the operator."""
    world.keep(4)
    world.end_job()
    world.keep(2)
    assert world.last.last is not None
    taken_at = world.last.last.taken_at.timestamp()
    world.live.drop("ns", "kafka", uid="connection")
    world.restart()
    world.keep()
    assert world.sample("tidegate_backup_timestamp_seconds", resource_namespace="ns", backup="p") == taken_at
    assert world.sample("tidegate_backup_schedule_seconds", resource_namespace="ns", backup="p") == 3600

    world.open_connection(replace(world.connection, allow=AllowSpec()))
    world.keep(2)
    assert world.condition.reason == "StorageNotAllowed"
    assert world.sample("tidegate_backup_timestamp_seconds", resource_namespace="ns", backup="p") == taken_at
    assert world.sample("tidegate_backup_offsets", resource_namespace="ns", backup="p") == 12


def test_it_is_ready_once_the_newest_backup_is_recent_and_has_all_groups(world: World) -> None:
    world.keep(4)
    assert world.verdicts == {"Ready": "False", "Reconciling": "True"}
    assert world.condition_of("Ready").reason == "FirstBackup"

    world.end_job()
    world.keep(2)
    assert world.verdicts == {"Ready": "True"}
    assert world.last.observed_generation == 1

    world.clock.sleep(3600)
    world.keep(4)
    world.end_job(unread=1)
    world.keep(2)
    assert world.verdicts == {"Ready": "False", "Reconciling": "True"}
    assert world.condition_of("Ready").reason == "GroupsUnread"


@pytest.mark.parametrize("trouble", [None, ("KafkaUnavailable", "no broker answers")], ids=["gone", "not ready"])
def test_without_its_connection_it_waits_and_says_when_a_backup_is_late(
    world: World, trouble: tuple[str, str] | None
) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    if trouble is None:
        world.live.drop("ns", "kafka", uid="connection")
    else:
        world.open_connection(replace(world.connection, trouble=trouble))
    world.keep()
    ready = world.condition_of("Ready")
    assert (ready.status.value, ready.reason) == ("False", "WaitingForConnection")
    assert (world.condition.status.value, world.condition.reason) == ("True", "BackupTaken")

    world.clock.sleep(2 * 3600 + 60)
    world.keep()
    assert (world.condition.status.value, world.condition.reason) == ("False", "BackupLate")
    assert "KafkaConnection kafka" in world.condition.message

    world.open_connection(replace(world.connection, trouble=None))
    world.keep(3)
    assert world.attempts() == ["1", "2"]


@pytest.mark.parametrize("before", ["suspended", "not readable", "refused"])
def test_while_it_waits_nothing_is_said_of_a_spec_that_is_no_more(world: World, before: str) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    match before:
        case "suspended":
            world.spec["suspend"] = True
        case "not readable":
            world.spec["schedule"] = "1s"
        case _:
            world.open_connection(replace(world.connection, allow=AllowSpec()))
    world.keep(2)
    assert world.condition.reason in ("Suspended", "InvalidSpec", "StorageNotAllowed")
    world.open_connection(replace(world.connection, trouble=("KafkaUnavailable", "no broker answers")))
    world.spec |= {"suspend": False, "schedule": "2h"}

    world.keep(2)

    assert world.condition.observed_generation == world.body["metadata"]["generation"]
    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "WaitingForConnection")


def test_a_backup_that_is_not_late_by_a_longer_schedule_is_not_said_to_be(world: World) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    world.open_connection(replace(world.connection, trouble=("KafkaUnavailable", "no broker answers")))
    world.clock.sleep(2 * 3600 + 60)
    world.keep()
    assert world.condition.reason == "BackupLate"

    world.spec["schedule"] = "24h"
    world.keep()

    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "WaitingForConnection")


def test_while_a_job_is_ended_nothing_is_said_of_a_spec_that_is_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_launch: Launch) -> None:
        raise RunnerFailure("the API server does not answer")

    world.keep(4)
    world.spec["schedule"] = "1s"
    world.keep(2)
    assert world.condition.reason == "InvalidSpec"
    monkeypatch.setattr(world.jobs, "stop", fails)
    world.spec |= {"schedule": "1h", "storage": ELSEWHERE}

    world.keep(2)

    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "EndingJob")


@pytest.mark.parametrize("why", ["somebody else's", "of a newer version"])
def test_prometheus_is_told_of_the_newest_also_while_its_document_can_not_be_used(world: World, why: str) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    assert world.last.last is not None
    [key] = world.documents
    if why == "somebody else's":
        world.kube.config_map_owners[key] = "another"
    else:
        world.documents[key]["version"] = "2"
    world.restart()

    world.keep(2)

    assert world.condition.reason in ("DocumentNotOwned", "WrittenByNewerVersion")
    taken_at = world.last.last.taken_at.timestamp()
    assert world.sample("tidegate_backup_timestamp_seconds", resource_namespace="ns", backup="p") == taken_at
    assert world.sample("tidegate_backup_schedule_seconds", resource_namespace="ns", backup="p") == 3600

    world.spec["suspend"] = True
    world.restart()
    world.keep(2)
    assert world.sample("tidegate_backup_timestamp_seconds", resource_namespace="ns", backup="p") is None


def test_what_came_of_backups_in_another_place_is_told_also_of_the_same_due_time(world: World) -> None:
    world.keep(4)
    world.end_job("no such claim")
    world.keep(2)
    world.clock.sleep(120)
    world.keep(2)
    world.end_job()
    world.keep(2)
    assert world.events == ["BackupFailed", "BackupTaken"]

    world.spec["storage"] = ELSEWHERE
    world.keep(3)
    world.end_job("access denied")
    world.keep(2)
    assert "access denied" in world.kube.happenings_of("p")[-1].message
    world.clock.sleep(120)
    world.keep(2)
    world.end_job(unread=1)
    world.keep(2)

    assert world.document.order.due == at(12)
    assert world.events[2:] == ["BackupFailed", "BackupTaken", "GroupsUnread"]


def test_a_spec_that_can_not_be_read_is_refused(world: World) -> None:
    world.spec |= {"schedule": "1s"}
    world.keep(2)
    assert world.verdicts == {"Ready": "False", "Stalled": "True"}
    assert world.condition.message == "spec.schedule: must be 5m or longer: each backup starts a Spark application"
    assert world.events == ["InvalidSpec"]


def test_one_that_is_being_deleted_is_left_alone(world: World) -> None:
    """What is deleted with it, its document for example, must not be written again."""
    world.keep(4)
    world.documents.clear()
    body = {**world.body, "metadata": {**world.body["metadata"], "deletionTimestamp": "2026-11-20T12:01:00Z"}}
    world.run(world.reconciler.reconcile(body))
    assert not world.documents


def test_an_order_of_a_newer_version_is_left_alone(world: World) -> None:
    world.keep(3)
    [key] = world.documents
    world.documents[key]["version"] = "2"
    before = dict(world.documents[key])
    world.restart()

    world.clock.sleep(2 * HOUR.total_seconds())
    world.keep(3)
    world.spec["suspend"] = True
    world.keep(3)

    assert world.documents[key] == before
    assert (world.attempts(), world.jobs.stopped) == (["1"], [])
    assert world.condition.reason == world.condition_of("Ready").reason == "WrittenByNewerVersion"
    assert world.condition_of("Stalled").status == "True"
    assert "run that version again" in world.condition.message
    assert [e for e in world.events if e == "WrittenByNewerVersion"] != []
    assert world.metrics.registry.get_sample_value("tidegate_written_by_newer_version", {"kind": "OffsetBackup"}) == 1

    world.documents[key]["version"] = "1"
    world.spec["suspend"] = False
    world.keep(3)

    assert world.condition.reason != "WrittenByNewerVersion"
    assert world.metrics.registry.get_sample_value("tidegate_written_by_newer_version", {"kind": "OffsetBackup"}) == 0


# --- asked for by hand ------------------------------------------------------------------------------------------------


def test_one_that_is_asked_for_is_made_and_the_schedule_goes_on(world: World) -> None:
    world.keep(3)
    world.end_job()
    world.keep(3)
    world.clock.sleep(600)
    asked = world.clock.now().replace(microsecond=0)
    annotate(world, f"{asked:%Y-%m-%dT%H:%M:%SZ}")
    world.keep(3)
    assert (world.attempts(), world.document.order.due) == (["1", "2"], asked)
    world.end_job()
    world.keep(3)
    assert [one.due for one in world.last.backups] == [asked, asked.replace(minute=0, second=0)]
    assert world.last.next == asked.replace(minute=0, second=0) + HOUR
    assert world.last.last == world.last.backups[0]

    world.clock.sleep(3600)
    world.keep(3)
    assert world.attempts() == ["1", "2", "3"]


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-20 12:10:00", "9999-99-99T00:00:00Z", "2026-11-20T12:10:00+01:00"]
)
def test_what_is_no_time_asks_for_nothing(world: World, text: str) -> None:
    world.keep(3)
    world.end_job()
    world.clock.sleep(600)
    annotate(world, text)
    world.keep(3)
    assert world.attempts() == ["1"]


def annotate(world: World, text: str) -> None:
    body = {**world.body, "metadata": {**world.body["metadata"], "annotations": {"tidegate.io/take-backup": text}}}
    world.kube.restore(body, BACKUPS)


def test_those_that_are_kept_are_listed_in_the_storage_of_now(world: World) -> None:
    world.spec["keep"] = {"each": "2h", "daily": "24h"}
    for _ in range(5):
        world.keep(3)
        world.end_job()
        world.keep(3)
        world.clock.sleep(3600)
    oldest = world.last.backups[-1].due
    assert [(one.due - oldest) / HOUR for one in world.last.backups] == [1, 0]
    assert oldest == datetime(2026, 11, 20, 15, tzinfo=UTC)

    world.spec["storage"] = ELSEWHERE
    world.keep(3)
    world.end_job()
    world.keep(3)
    assert [one.due for one in world.last.backups] == [world.last.last.due] if world.last.last else []


def test_a_backup_whose_job_could_remove_nothing_is_taken_all_the_same_and_it_is_said(world: World) -> None:
    world.keep(4)
    world.end_job(left="can't remove s3a://b/x: AccessDenied")
    world.keep(3)

    assert (world.condition.status.value, world.condition.reason) == ("True", "BackupTaken")
    assert world.condition.message.endswith(
        "of 3 group(s). Backups that are over were not removed: can't remove s3a://b/x: AccessDenied"
    )
    assert (world.events, world.last.failures) == (["BackupTaken"], 0)


# --- documents that are lost, forged, or somebody else's --------------------------------------------------------------


@pytest.mark.parametrize("spoilt", [None, {}], ids=["removed", "emptied"])
def test_what_was_taken_stays_listed_where_the_document_is_lost(world: World, spoilt: dict[str, str] | None) -> None:
    for _ in range(3):
        world.clock.sleep(3600)
        world.keep(3)
        world.end_job(unread=2)
        world.keep(2)
    before, events = world.last, world.events
    assert len(before.backups) == 3
    [key] = world.documents
    if spoilt is None:
        del world.documents[key]
    else:
        world.documents[key] = spoilt
    world.restart()

    world.keep(4)

    assert world.attempts() == ["1", "2", "3", "4"]
    assert (world.last.last, world.last.backups) == (before.last, before.backups)
    assert (world.condition.reason, world.events) == ("GroupsUnread", events)
    assert world.condition.message.startswith("2 group(s) could not be read; the newest backup, due at")
    assert world.sample("tidegate_backup_offsets", resource_namespace="ns", backup="p") == 12

    world.end_job()
    world.keep(2)
    assert [one.due for one in world.last.backups] == [one.due for one in before.backups]


@pytest.mark.parametrize("suspended", [False, True])
def test_a_job_of_somebody_else_is_not_stopped_whatever_a_document_names(world: World, *, suspended: bool) -> None:
    world.keep(4)
    [key] = world.documents
    world.jobs.states["payments-replay-1"] = RunnerStatus(RunnerState.RUNNING)
    document = world.document
    world.documents[key] = encode_document(
        replace(
            document,
            order=replace(document.order, attempt="payments-replay-1"),
            asked=replace(document.asked, asked_at=document.asked.asked_at - 2 * HOUR),
        )
    )
    world.restart()
    world.spec["suspend"] = suspended

    world.keep(4)

    assert "payments-replay-1" not in world.jobs.stopped


FORGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a time without a zone": lambda result: result | {"ended_at": "2026-11-20T12:00:00"},
    "a time that no clock has": lambda result: result | {"ended_at": "9999-12-31T23:59:59Z"},
    "another due time": lambda result: result | {"backup": result["backup"] | {"due": "2027-11-20T12:00:00Z"}},
    "another storage": lambda result: (
        result | {"backup": result["backup"] | {"storage": {"kind": "folder", "path": "/"}}}
    ),
    "fewer groups than none": lambda result: result | {"backup": result["backup"] | {"groups": -1}},
    "more bytes than there are": lambda result: result | {"backup": result["backup"] | {"size": 1 << 64}},
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("forged", FORGED)
def test_a_report_that_can_not_be_the_jobs_is_not_believed(world: World, forged: str, *, restarted: bool) -> None:
    world.keep(4)
    name = world.jobs.launches[0].name
    world.end_job()
    world.jobs.states[name] = RunnerStatus(RunnerState.RUNNING)
    [data] = world.documents.values()
    data["result.json"] = json.dumps(FORGED[forged](json.loads(data["result.json"])))
    if restarted:
        world.restart()

    world.keep(4)

    assert (world.last.last, world.condition.reason) == (None, "FirstBackup")
    assert world.attempts() == (["1", "2"] if restarted else ["1"])
    world.end_job()
    world.keep(2)
    assert world.condition.reason == "BackupTaken"


def test_what_a_document_says_of_earlier_backups_is_the_operators_word(world: World) -> None:
    world.keep(4)
    [key] = world.documents
    document = world.document
    made = Backup(document.order.storage, "c", at(12), at(12), "file:///x", 99, 99, 99)
    world.documents[key] = encode_document(replace(document, asked=replace(document.asked, made=made)))

    world.keep(2)

    assert world.document == document
    assert world.last.last is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_config_map_of_its_name_that_is_somebody_elses_is_left_alone_and_said(
    world: World, *, restarted: bool
) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    [key] = world.documents
    world.kube.config_map_owners[key] = "another"
    before = dict(world.documents[key])
    if restarted:
        world.restart()
    world.clock.sleep(3600)

    world.keep(3)

    assert (world.condition.status.value, world.condition.reason) == ("False", "DocumentNotOwned")
    assert world.verdicts == {"Ready": "False", "Stalled": "True"}
    assert key[1] in world.condition.message
    assert (world.documents[key], world.attempts()) == (before, ["1"])

    world.kube.remove_config_map(*key)
    world.keep(4)
    assert world.attempts() == ["1", "2"]
    assert world.verdicts == {"Ready": "True"}


# --- clocks that were ahead -------------------------------------------------------------------------------------------


def set_back(world: World) -> None:
    """It was ahead by 400 days; now it is 13:00:30."""
    world.clock = FakeClock()
    world.clock.sleep(3630)
    world.restart()


def test_a_backup_that_was_made_by_a_clock_that_was_ahead_holds_up_no_other(world: World) -> None:
    world.clock.sleep(400 * 24 * 3600)
    world.keep(4)
    world.end_job()
    world.keep(2)
    assert world.last.last is not None
    assert world.last.last.due.year == 2027
    set_back(world)

    world.keep(3)
    assert (world.attempts(), world.document.order.due) == (["1", "2"], at(13))
    world.jobs.states[world.document.order.attempt] = RunnerStatus(RunnerState.EXITED, "out of memory")
    world.keep(3)
    world.clock.sleep(3 * 3600)
    world.keep(4)
    assert (world.condition.status.value, world.condition.reason) == ("False", "BackupLate")

    world.end_job()
    world.keep(2)
    assert world.last.last.due == at(16)
    assert (world.condition.reason, world.last.next) == ("BackupTaken", at(17))


def test_a_job_that_hangs_is_stopped_though_a_clock_that_was_ahead_has_asked_for_it(world: World) -> None:
    world.clock.sleep(400 * 24 * 3600)
    world.keep(4)
    set_back(world)
    world.keep(3)
    assert world.jobs.stopped == [world.jobs.launches[0].name]
