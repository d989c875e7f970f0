"""A job's document is read from the API server as seldom as it can be, and never believed when it may be another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from support.fake_kafka import FakeClock
from support.stored_documents import RUN
from tidegate.reset.config_map_store import RECENT_S, ConfigMapRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.model.fleet import FleetPlan, GroupPlan
from tidegate.reset.model.progress import Progress
from tidegate.reset.store import RunNotFound, StaleAttempt
from tidegate.resources.reset import ResetPhase

RUN_BEGUN = 0
"""Attempts at a run that was created just now."""

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Server:
    """The API server, as far as ConfigMaps go: compare-and-swap by ``resourceVersion``."""

    def __init__(self) -> None:
        self.there: dict[str, Any] | None = None
        self.version = 0
        self.asked: list[str] = []
        self.refuses: list[int] = []

    def _put(self, body: Any) -> dict[str, Any]:
        self.version += 1
        self.there = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.there

    def create(self, _plural: str, _namespace: str, body: Any, **_: Any) -> Any:
        self.asked.append("create")
        return self._put(body)

    def read(self, *_: Any, **__: Any) -> Any:
        self.asked.append("read")
        if self.there is None:
            raise ApiException(404)
        return self.there

    def replace(self, _plural: str, _namespace: str, _name: str, body: Any, **_: Any) -> Any:
        self.asked.append("replace")
        if self.refuses:
            raise ApiException(self.refuses.pop())
        if self.there is None:
            raise ApiException(404)
        if body["metadata"]["resourceVersion"] != self.there["metadata"]["resourceVersion"]:
            raise ApiException(409)
        return self._put(body)


class World:
    def __init__(self) -> None:
        self.server = Server()
        self.clock = FakeClock()
        self.elsewhere().create(RUN.request)
        self.server.asked.clear()

    def _store(self, *, remembers: bool = False) -> ConfigMapRunStore:
        store = ConfigMapRunStore("ns", "run", api_client=object(), clock=self.clock, remembers=remembers)
        store._core = self.server  # type: ignore[assignment]
        return store

    def job(self) -> ConfigMapRunStore:
        return self._store(remembers=True)

    def operator(self) -> ConfigMapRunStore:
        """As its passes open it, a new one each time."""
        return self._store()

    def elsewhere(self) -> ConfigMapRunStore:
        """In another process."""
        return self._store()


@pytest.fixture
def world() -> World:
    return World()


def progress(attempt: int, phase: ResetPhase = ResetPhase.APPLYING) -> Progress:
    return Progress(phase, NOON, attempt)


def test_a_job_reads_its_document_once(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    job.load()
    job.append(progress(attempt), attempt=attempt)
    job.append(progress(attempt, ResetPhase.VERIFYING), attempt=attempt)

    assert world.server.asked == ["read", *["replace"] * 3]
    assert world.elsewhere().load() == job.load()


def test_the_operator_reads_what_there_is_whatever_its_job_has_written(world: World) -> None:
    """Somebody else may have written it: a run that was forged ends, and is not undone."""
    job = world.job()
    attempt = job.begin_attempt()
    job.append(progress(attempt), attempt=attempt)
    world.elsewhere().approve()
    world.server.asked.clear()

    assert world.operator().load().approved
    assert world.server.asked == ["read"]


def test_what_was_not_seen_for_a_while_is_read_again(world: World) -> None:
    job = world.job()
    job.begin_attempt()
    world.server.asked.clear()

    world.clock.sleep(RECENT_S)
    job.load()
    job.load()
    assert world.server.asked == ["read"], "it is as it was, so it counts as seen"

    world.elsewhere().approve()
    world.clock.sleep(RECENT_S)
    assert job.load().approved
    assert job.load().approved, "what others wrote is not forgotten for what the job wrote before"


def test_a_job_that_was_replaced_finds_out_when_it_writes(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    assert world.elsewhere().begin_attempt() == attempt + 1

    with pytest.raises(StaleAttempt):
        job.append(progress(attempt), attempt=attempt)


def test_a_job_with_nothing_to_write_makes_sure_that_it_was_not_replaced(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    job.append(progress(attempt), attempt=attempt)
    world.elsewhere().begin_attempt()

    with pytest.raises(StaleAttempt):
        job.append(progress(attempt), attempt=attempt)


def test_what_others_wrote_meanwhile_stays(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    world.elsewhere().approve()
    job.append(progress(attempt), attempt=attempt)

    run = world.elsewhere().load()
    assert run.approved
    assert run.last == progress(attempt)


def test_a_document_that_was_removed_is_nobodys(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    world.server.there = None

    with pytest.raises(StaleAttempt):
        job.append(progress(attempt), attempt=attempt)
    with pytest.raises(RunNotFound):
        world.operator().load()


def test_the_operator_sees_its_own_writes_at_once(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    assert world.operator().begin_attempt() == attempt + 1

    assert world.operator().load().attempt == attempt + 1


def test_after_a_write_that_failed_it_is_read_again(world: World) -> None:
    job = world.job()
    attempt = job.begin_attempt()
    world.server.refuses.append(422)
    with pytest.raises(StoreFailure):
        job.append(progress(attempt), attempt=attempt)
    world.server.asked.clear()

    assert world.operator().load().last is None
    job.append(progress(attempt), attempt=attempt)
    assert world.server.asked == ["read", "read", "replace"]


def test_the_next_job_of_a_run_begins_with_nothing(world: World) -> None:
    first = world.job()
    first.begin_attempt()
    world.elsewhere().begin_attempt()
    world.server.asked.clear()

    next_one = world.job()
    assert next_one.load().attempt == RUN_BEGUN + 2
    world.clock.sleep(RECENT_S)
    next_one.begin_attempt()
    assert world.server.asked == ["read", "read", "replace"], "the end of the first is not that of the next one"
    next_one.load()
    assert world.server.asked[3:] == []


@pytest.mark.parametrize("groups", [1, 2_000], ids=["readable", "compressed"])
def test_a_fleets_plan_stays_as_its_run_goes_on(world: World, groups: int) -> None:
    """Its groups are undone and put back by it."""
    plan = FleetPlan("run", NOON, tuple(GroupPlan(f"payments-{n:05}", records_replayed=n) for n in range(groups)))
    store = world.operator()
    attempt = store.begin_attempt()
    store.write_fleet_plan(plan, attempt=attempt)
    assert world.server.there is not None
    assert ("fleet.json.gz" in world.server.there["binaryData"]) is (groups > 1)

    world.operator().append(progress(attempt), attempt=attempt)

    assert world.operator().load().fleet == plan
