"""Passes of the feature: what is due is made once, whoever dies in between, and what nobody wants any more is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from tidegate.connection.live import Live
from tidegate.jobs.application import ORDER_VARIABLE
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import JobPlaces
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import POLICIES, Object, uid_of
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import BACKED_UP, Condition, find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.snapshots import SnapshotsStatus
from tidegate.snapshots.document import Document, Result, Snapshot, decode_document, digest, encode_document
from tidegate.snapshots.feature import Parts, SnapshotFeature
from tidegate.snapshots.metrics import SnapshotMetrics

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
CLAIM = {"folder": {"path": "offsets", "claim": "backups"}}
ELSEWHERE = {"folder": {"path": "elsewhere", "claim": "backups"}}
CREATED = "2026-11-20T11:59:00Z"

T = TypeVar("T")


class Killed(BaseException):
    """The operator's process ends here."""


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
    """A policy ``p`` with hourly snapshots on a claim, at 12:00:30, and a feature that may die."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.sleep(30)
        self.kube = Recording()
        self.jobs = Jobs(self.kube)
        self.snapshots: dict[str, Any] | None = {"schedule": "1h", "to": CLAIM}
        self.kube.create(POLICIES, "ns", "p", {}, CREATED)
        self.executor = ThreadPoolExecutor(1)
        self.live = Live(
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
        self.places = JobPlaces(True, PurePosixPath("/claims"), PurePosixPath("/secrets"))
        self.has_runner = True
        self.status = PolicyStatus()
        self.told: list[tuple[str, str]] = []
        self.loop = asyncio.new_event_loop()
        self.restart()

    def restart(self) -> None:
        """A new process: nothing in memory."""
        self.registry = CollectorRegistry()
        runner = self.jobs if self.has_runner else None
        metrics = SnapshotMetrics(self.registry)
        parts = Parts(self.kube, runner, SparkSettings(), self.places, self.executor, self.executor, metrics)
        self.feature = SnapshotFeature(parts)

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(awaitable)

    def keep(self, passes: int = 1) -> FeatureOutcome:
        """Passes whose status and Events are written after them."""
        wish = {} if self.snapshots is None else {"snapshots": self.snapshots}
        self.kube.change(POLICIES, "ns", "p", spec={"connectionRef": {"name": "kafka"}, "group": "any", **wish})
        for _ in range(passes):
            body = self.kube.get(POLICIES, "ns", "p")
            policy = PolicyView(
                body,
                parse_spec(OffsetResetPolicySpec, body),
                self.status,
                self.live,
                self.clock.now(),
                resetting=False,
            )
            kept = self.run(self.feature.reconcile(policy))
            # As the API server has it: what does not survive being written is not relied on.
            self.status = PolicyStatus.model_validate(kept.status.to_json())
            for happening in kept.happenings:
                self.kube.record(body, happening)
        return kept

    @property
    def uid(self) -> str:
        return uid_of(self.kube.get(POLICIES, "ns", "p"))

    @property
    def documents(self) -> dict[tuple[str, str], dict[str, str]]:
        return self.kube.config_maps

    @property
    def document(self) -> Document:
        [data] = self.documents.values()
        return decode_document(data)

    @property
    def last(self) -> SnapshotsStatus:
        assert self.status.snapshots is not None
        return self.status.snapshots

    @property
    def condition(self) -> Condition:
        found = find_condition(self.status.conditions, BACKED_UP)
        assert found is not None
        return found

    @property
    def events(self) -> list[str]:
        return [h.reason for h in self.kube.happenings_of("p")]

    def attempts(self) -> list[str]:
        return [launch.name.rpartition("-")[2] for launch in self.jobs.launches]

    def end_job(self, failure: str = "", unread: int = 0) -> None:
        """The newest job stores what came of it and ends."""
        document = self.document
        at = self.clock.now()
        order = document.order
        made = Snapshot(order.storage, "c", order.due, at, f"{order.storage.uri}/x", 3, 12, 4096, unread, "g: no")
        result = Result(at, failure=failure) if failure else Result(at, made)
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
    assert (launch.job, launch.claims, launch.namespace) == ("snapshot", {"backups": True}, "ns")
    assert launch.connection_secrets == {"kafka-user": ("password",)}
    assert launch.environment[ORDER_VARIABLE] == digest(order)
    assert (world.condition.status.value, world.condition.reason) == ("Unknown", "FirstSnapshot")
    assert world.last.next is None

    world.clock.sleep(40)
    world.end_job()
    world.keep(3)

    assert world.last.last is not None
    assert (world.last.last.due, world.last.last.groups, world.last.last.partitions) == (at(12), 3, 12)
    assert (world.last.next, world.last.failures, world.last.missed) == (at(13), 0, 0)
    assert (world.condition.status.value, world.condition.reason) == ("True", "SnapshotTaken")
    assert world.events == ["SnapshotTaken"]
    assert world.sample("tidegate_snapshot_offsets", namespace="ns", policy="p") == 12
    assert world.sample("tidegate_snapshot_attempts_total", outcome="Taken") == 1
    assert world.sample("tidegate_snapshot_attempts_total", outcome="Failed") == 0
    taken_at = world.last.last.taken_at.timestamp()
    assert world.sample("tidegate_snapshot_timestamp_seconds", namespace="ns", policy="p") == taken_at
    assert world.sample("tidegate_snapshot_schedule_seconds", namespace="ns", policy="p") == 3600
    assert world.sample("tidegate_snapshot_unread_groups", namespace="ns", policy="p") == 0

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
    assert world.events == ["SnapshotTaken", "SnapshotTaken"]
    assert not [name for name in world.jobs.stopped if name]


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
        "Making the one due at 2026-11-20T12:00:00Z has failed; tried again at 2026-11-20T12:01:30Z: out of memory"
    )
    world.restart()
    for minute, failures in ((1, 2), (2, 3), (4, 4)):
        world.clock.sleep(minute * 60)
        world.keep(4)
        world.end_job("the disk is full")
        world.keep(2)
        assert world.last.failures == failures
    assert world.events == ["SnapshotFailed"]

    world.clock.sleep(3 * 3600)
    world.keep(4)
    assert (world.condition.status.value, world.condition.reason) == ("False", "SnapshotLate")
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
    "changed", [{"to": ELSEWHERE}, {"groups": ["payments"]}, {"keep": {"each": "1h"}}], ids=["to", "groups", "keep"]
)
def test_a_job_that_makes_what_is_no_longer_wanted_is_ended_for_another(world: World, changed: dict[str, Any]) -> None:
    world.keep(4)
    assert world.snapshots is not None
    world.snapshots |= changed
    world.keep(6)

    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert world.attempts() == ["1", "2"]
    assert world.last.failures == 0
    assert world.document.order.due == at(12)


def test_another_place_gets_a_snapshot_at_once_and_its_own_counts(world: World) -> None:
    world.keep(4)
    world.end_job()
    world.keep(2)
    world.snapshots = {"schedule": "1h", "to": ELSEWHERE}
    world.keep(3)
    assert world.attempts() == ["1", "2"]
    assert world.last.last is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_schedule_that_is_taken_away_ends_its_job(world: World, restarted: bool) -> None:
    world.keep(4)
    if restarted:
        world.restart()
    world.snapshots = None
    world.keep(3)

    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert world.status.snapshots is None
    assert find_condition(world.status.conditions, BACKED_UP) is None
    assert world.document.result is not None
    assert world.document.result.withdrawn
    assert world.sample("tidegate_snapshot_offsets", namespace="ns", policy="p") is None

    world.snapshots = {"schedule": "1h", "to": CLAIM}
    world.keep(4)
    assert world.attempts() == ["1", "2"]


def test_an_order_is_not_forgotten_by_who_finds_that_none_is_wanted(world: World) -> None:
    world.kube.dies_in = 0.5
    with pytest.raises(Killed):
        world.keep(4)
    world.kube.dies_in = None
    world.restart()
    world.snapshots = None
    world.keep(2)
    assert world.document.result is not None
    assert world.document.result.withdrawn


def test_the_job_of_a_policy_that_is_gone_is_ended(world: World) -> None:
    world.keep(4)
    world.run(world.feature.forget(world.uid))
    assert world.jobs.stopped == [world.jobs.launches[0].name]


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
def test_a_document_that_is_lost_costs_one_more_snapshot_under_a_new_name(
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
    ("allow", "in_pods", "has_runner", "to", "reason"),
    [
        (AllowSpec(), True, True, CLAIM, "StorageNotAllowed"),
        (
            AllowSpec(),
            True,
            True,
            {"s3": {"bucket": "backups", "path": "x", "credentials": {"secretName": "s", "key": "k"}}},
            "StorageNotAllowed",
        ),
        (AllowSpec(), True, True, {"folder": {"path": "offsets"}}, "BadSnapshotStorage"),
        (AllowSpec(), False, True, {"folder": {"path": "offsets"}}, "BadSnapshotStorage"),
        (AllowSpec(claims=("backups",)), True, False, CLAIM, "SparkUnavailable"),
    ],
)
def test_what_can_not_be_made_is_refused_and_said(
    world: World, allow: AllowSpec, in_pods: bool, has_runner: bool, to: dict[str, Any], reason: str
) -> None:
    world.live = replace(world.live, allow=allow)
    world.places, world.has_runner = replace(world.places, in_pods=in_pods), has_runner
    world.snapshots = {"schedule": "1h", "to": to}
    world.restart()
    world.keep(3)

    assert (world.condition.status.value, world.condition.reason) == ("False", reason)
    assert "spec.snapshots" in world.condition.message
    assert world.events == [reason]
    assert not world.documents


def test_a_right_that_is_taken_back_ends_the_job(world: World) -> None:
    world.keep(4)
    world.live = replace(world.live, allow=AllowSpec())
    world.keep(2)
    assert world.jobs.stopped == [world.jobs.launches[0].name]
    assert world.condition.reason == "StorageNotAllowed"


def test_jobs_of_this_machine_keep_below_the_one_folder(world: World, tmp_path: Path) -> None:
    world.places = replace(world.places, in_pods=False, snapshots=tmp_path)
    world.snapshots = {"schedule": "1h", "to": {"folder": {"path": "offsets/prod"}}}
    world.restart()
    world.keep(4)
    assert world.document.order.storage.uri == (tmp_path / "offsets/prod").as_uri()
    assert world.jobs.launches[0].claims == {}


@pytest.mark.parametrize("end", ["policy gone", "no longer asked for"])
def test_what_prometheus_was_told_of_a_policy_goes_with_it(world: World, end: str) -> None:
    """A connection that was removed is another matter: the newest snapshot only gets older."""
    gauges = [f"tidegate_snapshot_{g}" for g in ("timestamp_seconds", "schedule_seconds", "offsets", "unread_groups")]
    world.keep(4)
    assert world.sample(gauges[0], namespace="ns", policy="p") == 0
    world.end_job()
    world.keep(2)
    world.run(world.feature.disconnected(world.uid))
    assert None not in [world.sample(gauge, namespace="ns", policy="p") for gauge in gauges]

    if end == "policy gone":
        world.run(world.feature.forget(world.uid))
    else:
        world.snapshots = None
        world.keep(3)

    assert {world.sample(gauge, namespace="ns", policy="p") for gauge in gauges} == {None}
