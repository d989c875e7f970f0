"""Which Events were recorded: the same one once, what is remembered of that does not grow without end, and one that the
API server does not take keeps nothing from being written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support import pause_world
from support.fake_kube import FakeKube
from support.policy_world import PolicyWorld
from support.reset_world import World
from tidegate.kube.objects import Told, tell_all, tell_once
from tidegate.kube.ports import (
    PAUSES,
    POLICIES,
    RESETS,
    Conflict,
    EventType,
    KubeEvent,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
)

FAILURES = [
    KubeFailure("record an Event of ns/p: 403 exceeded quota: events"),
    KubeFailure("record an Event of ns/p: 413 Request Entity Too Large"),
    Conflict("record an Event of ns/p: 409 the quota was changed"),
    NotFound("record an Event of ns/p: 404"),
    KubeUnavailable("record an Event of ns/p: 503 the store of Events is away"),
]


class Refusing:
    """Answers the first tries so. Then takes what comes."""

    def __init__(self, kube: FakeKube, *failures: KubeFailure, always: KubeFailure | None = None) -> None:
        self._record, self._failures, self._always = kube.record, list(failures), always
        self.tried: list[str] = []
        kube.record = self.record  # type: ignore[method-assign]

    def record(self, body: Object, happening: KubeEvent) -> None:
        self.tried.append(happening.key)
        failure = self._failures.pop(0) if self._failures else self._always
        if failure is not None:
            raise failure
        self._record(body, happening)


def event(key: str) -> KubeEvent:
    return KubeEvent(EventType.NORMAL, "R", f"says {key}", key)


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def body(kube: FakeKube) -> Object:
    return kube.create(POLICIES, "ns", "p", {}, "2026-01-01T00:00:00Z")


def keys(kube: FakeKube) -> list[str]:
    return [happening.key for happening in kube.happenings_of("p")]


def test_an_event_is_recorded_once_and_the_oldest_keys_are_let_go(kube: FakeKube, body: Object) -> None:
    told = Told(most=3)

    async def tell(*keys: str) -> None:
        with ThreadPoolExecutor(1) as executor:
            for key in keys:
                await tell_once(kube, executor, body, event(key), told)

    asyncio.run(tell("a", "b", "a", "c", "d", "e"))

    assert keys(kube) == ["a", "b", "c", "d", "e"]
    assert [key for key in "abcde" if key in told] == ["c", "d", "e"]


def all_told(kube: FakeKube, body: Object, told: set[str], *keys: str) -> None:
    async def tell() -> None:
        with ThreadPoolExecutor(1) as executor:
            await tell_all(kube, executor, body, map(event, keys), told)

    asyncio.run(tell())


def test_an_event_that_is_refused_is_in_the_log_once_and_the_others_are_recorded(
    kube: FakeKube, body: Object, caplog: pytest.LogCaptureFixture
) -> None:
    api, told = Refusing(kube, FAILURES[0]), set[str]()

    with caplog.at_level(logging.WARNING):
        all_told(kube, body, told, "a", "b")
        all_told(kube, body, told, "a", "b")

    assert (api.tried, keys(kube)) == (["a", "b"], ["b"])
    [line] = [record.getMessage() for record in caplog.records]
    assert "exceeded quota" in line
    assert "says a" in line


@pytest.mark.parametrize("failure", [FAILURES[2], FAILURES[4]])
def test_an_event_of_which_nobody_knows_is_recorded_by_a_later_pass(
    kube: FakeKube, body: Object, failure: KubeFailure
) -> None:
    Refusing(kube, failure)
    told = set[str]()

    all_told(kube, body, told, "a", "b")
    all_told(kube, body, told, "a", "b")

    assert sorted(keys(kube)) == ["a", "b"]


def test_no_other_event_waits_for_an_api_server_that_does_not_answer(
    kube: FakeKube, body: Object, caplog: pytest.LogCaptureFixture
) -> None:
    api = Refusing(kube, always=FAILURES[4])

    with caplog.at_level(logging.WARNING):
        all_told(kube, body, set(), "a", "b", "c")

    assert api.tried == ["a"]
    assert [key for key in "abc" if any(f"says {key}" in r.getMessage() for r in caplog.records)] == ["a", "b", "c"]


# --- the passes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pauses() -> Iterator[pause_world.World]:
    made = pause_world.World()
    yield made
    made.close()


@pytest.mark.parametrize("failure", FAILURES)
def test_a_pause_goes_on_though_its_events_are_refused(pauses: pause_world.World, failure: KubeFailure) -> None:
    api = Refusing(pauses.kube, always=failure)
    pauses.ask()
    pauses.passes()
    assert api.tried
    assert pauses.phase == "Paused"

    pauses.drop()
    pauses.passes()
    assert pauses.body is None
    assert not pauses.held


@pytest.mark.parametrize("failure", FAILURES)
def test_a_reset_goes_on_though_its_events_are_refused(tmp_path: Path, failure: KubeFailure) -> None:
    world = World(tmp_path)
    api = Refusing(world.kube, always=failure)
    world.ask()
    world.passes()

    assert api.tried
    assert world.reset["phase"] == "Succeeded"
    world.executor.shutdown()


@pytest.mark.parametrize("failure", FAILURES)
def test_a_policy_goes_on_though_its_events_are_refused(tmp_path: Path, failure: KubeFailure) -> None:
    world = PolicyWorld(tmp_path)
    api = Refusing(world.kube, always=failure)
    world.declare()
    world.rounds()

    assert api.tried
    assert world.said("Reset") == ("True", "Applied")
    world.executor.shutdown()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", [PAUSES, RESETS, POLICIES])
def test_what_nobody_can_read_is_said_though_its_events_are_refused(
    pauses: pause_world.World, tmp_path: Path, kind: Any, failure: KubeFailure
) -> None:
    resets = PolicyWorld(tmp_path)
    kube = pauses.kube if kind == PAUSES else resets.kube
    made = kube.create(kind, "ns", "q", {**pause_world.SPEC, "to": {"offset": 1}}, "2026-01-01T00:00:00Z")
    FakeKube.replace_status(kube, kind, made, {"phase": 7, "reset": {"phase": "OfALaterVersion"}})
    reconciler = {PAUSES: pauses.reconciler, RESETS: resets.reconciler, POLICIES: resets.policies}[kind]
    api = Refusing(kube, always=failure)

    done = asyncio.run(reconciler.reconcile(kube.get(kind, "ns", "q")))

    assert api.tried
    assert "UnreadableStatus" in {condition["reason"] for condition in done.body["status"]["conditions"]}
    resets.executor.shutdown()
