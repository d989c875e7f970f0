"""A pause's passes, one by one: what is written before what is done, and what a process that dies leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.fake_control import FakeControlTopics
from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import Live, LiveConnections
from tidegate.control.records import Ack, Hold, HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kube.ports import CONNECTIONS, PAUSES, Conflict, Object
from tidegate.metrics import Metrics
from tidegate.observe import Observer
from tidegate.pause.holds import holder
from tidegate.pause.plan import FINALIZER, Patience, Tick
from tidegate.pause.reconcile import Parts, PauseReconciler
from tidegate.resources.connection import AllowSpec

CREATED = "2026-11-20T11:59:00Z"
SPEC = {"connectionRef": {"name": "kafka"}, "group": "payments", "partitions": [{"topic": "orders"}]}


class Killed(BaseException):
    """The operator's process ends here."""


class Steps:
    """Counts what a process does to the world, and ends it before one of these."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dies_in: int | None = None

    def step(self, what: str) -> None:
        if self.dies_in is not None:
            if self.dies_in == 0:
                raise Killed
            self.dies_in -= 1
        self.log.append(what)


class Recording(FakeKube):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def replace_status(self, kind: Any, body: Object, status: Mapping[str, Any]) -> Object:
        self._steps.step(f"status {status.get('phase')} {status.get('paused', '')}".rstrip())
        return super().replace_status(kind, body, status)

    def set_finalizers(self, kind: Any, body: Object, finalizers: Any) -> Object:
        self._steps.step(f"finalizer {'on' if finalizers else 'off'}")
        return super().set_finalizers(kind, body, finalizers)


class World:
    """A pause `p` for an Empty group, whose topic has two partitions, and an operator that may die and come back."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.kube = Recording(self.steps)
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 2)
        self.control = self.kafka.control
        self._note_control()
        # One thread for everything: the fake's clock knows no others.
        self.executor = ThreadPoolExecutor(1)
        self.live = LiveConnections()
        self.kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)
        self.connection_uid = self.kube.get(CONNECTIONS, "ns", "kafka")["metadata"]["uid"]
        self.live.put(
            Live(
                uid=self.connection_uid,
                namespace="ns",
                name="kafka",
                digest="d",
                connection=Connection("127.0.0.1:9092"),
                mounted=None,
                secrets={},
                allow=AllowSpec(),
                kafka=self.kafka,
                cluster_id=self.kafka.cluster().cluster_id,
                trouble=None,
            )
        )
        self.reconciler = self.fresh_reconciler()

    def _note_control(self) -> None:
        hold, release = self.control.hold, self.control.release

        def noted_hold(holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
            self.steps.step(f"hold {len(holds)}")
            return hold(holds)

        def noted_release(keys: Iterable[HoldKey]) -> None:
            keys = list(keys)
            self.steps.step(f"release {len(keys)}")
            release(keys)

        self.control.hold = noted_hold  # type: ignore[method-assign]
        self.control.release = noted_release  # type: ignore[method-assign]

    def fresh_reconciler(self, tick_s: float = 0.0001) -> PauseReconciler:
        """What a new process begins with: nothing in memory. ``tick_s``: how old what it has seen may be."""
        observer = Observer(self.executor, active_tick_s=tick_s, idle_tick_s=tick_s)
        for live in self.live:
            observer.connect(live.uid, "ns/kafka", self.kafka, self.control)
        return PauseReconciler(
            Parts(
                kube=self.kube,
                live=self.live,
                observer=observer,
                executor=self.executor,
                patient_executor=self.executor,
                now=self.clock.now,
                metrics=Metrics(),
                topics=TopicsOfConnections(self.executor, 100 * tick_s, self.live.topics_checked),
                tick=Tick(tick_s, 10 * tick_s, 100 * tick_s),
                patience=Patience(),
            )
        )

    def ask(self, **spec: Any) -> None:
        self.kube.create(PAUSES, "ns", "p", {**SPEC, **spec}, CREATED)

    @property
    def body(self) -> Object | None:
        return next((b for b in self.kube.list(PAUSES) if b["metadata"]["name"] == "p"), None)

    @property
    def phase(self) -> str:
        assert self.body is not None
        return str(self.body["status"]["phase"])

    @property
    def held(self) -> list[HoldKey]:
        return sorted(self.control.topics.gates.holds)

    def passes(self, limit: int = 40) -> None:
        """Passes until one wants nothing for a while, or the pause is gone."""
        asyncio.run(self._passes(limit))

    async def _passes(self, limit: int) -> None:
        for _ in range(limit):
            body = self.body
            if body is None:
                return
            try:
                done = await self.reconciler.reconcile(body)
            except (Conflict, Unavailable):
                continue
            self.clock.sleep(done.again_after_s)
            if done.again_after_s >= 0.01 and done.body["metadata"]["generation"] == (
                (done.body.get("status") or {}).get("observedGeneration")
            ):
                return

    def sweep(self) -> None:
        asyncio.run(self.reconciler.sweep())

    def close(self) -> None:
        self.executor.shutdown()
        self.kafka.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_the_intent_is_written_before_what_is_done(world: World) -> None:
    world.ask()
    world.passes()
    assert world.steps.log == ["status Pausing 0/2", "finalizer on", "hold 2", "status Paused 2/2"]
    assert world.phase == "Paused"

    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.steps.log.clear()
    world.passes()
    assert world.steps.log == ["status Resuming 0/2", "release 2", "finalizer off"]
    assert world.body is None
    assert world.held == []


@pytest.mark.parametrize("dies_in", range(7))
def test_a_process_may_die_before_any_step(dies_in: int) -> None:
    world = World()
    world.ask()
    world.steps.dies_in = dies_in
    try:
        world.passes()
        world.kube.delete(PAUSES, "ns", "p", CREATED)
        world.passes()
        pytest.fail(f"there are only {len(world.steps.log)} steps")
    except Killed:
        world.steps.dies_in = None
    world.reconciler = world.fresh_reconciler()

    body = world.body
    if body is not None and not body["metadata"].get("deletionTimestamp"):
        world.passes()
        assert world.phase == "Paused"
        assert len(world.held) == 2
        assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"], "held twice"
        world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()
    assert world.body is None
    assert world.held == []
    world.close()


def test_what_was_seen_before_a_write_does_not_tell_what_is_held(world: World) -> None:
    world.reconciler = world.fresh_reconciler(tick_s=60)
    world.ask()

    async def passes() -> None:
        for _ in range(6):
            assert world.body is not None
            await world.reconciler.reconcile(world.body)

    asyncio.run(passes())

    assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"]
    assert world.phase == "Paused"


def test_holds_of_a_lost_control_topic_are_written_again_and_only_then(world: World) -> None:
    world.ask()
    world.passes()
    before = len(world.control.writes)
    world.passes()
    assert len(world.control.writes) == before

    world.control.lose()
    world.passes()

    assert len(world.held) == 2
    assert world.phase == "Paused"


def test_a_write_whose_answer_was_lost_is_looked_for_before_it_is_done_again(world: World) -> None:
    hold = world.control.hold

    def lost(holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        hold(holds)
        world.control.hold = hold  # type: ignore[method-assign]
        raise Unavailable("no answer")

    world.control.hold = lost  # type: ignore[method-assign]
    world.ask()
    world.passes()

    assert world.phase == "Paused"
    assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"]


def test_a_right_that_is_missing_only_to_write_is_told_and_tried_again(world: World) -> None:
    hold = world.control.hold

    def refused(holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        raise NotAuthorized("write 2 record(s) to topic __tidegate: TOPIC_AUTHORIZATION_FAILED")

    world.control.hold = refused  # type: ignore[method-assign]
    world.ask()
    world.passes()
    assert world.body is not None
    conditions = {c["type"]: c for c in world.body["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "ControlTopicsUnusable"
    assert "Write" in conditions["Stalled"]["message"]
    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.topics is not None
    assert not live.topics.usable

    world.control.hold = hold  # type: ignore[method-assign]
    asyncio.run(asyncio.sleep(0.02))
    world.passes()
    world.passes()
    assert world.phase == "Paused"
    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.topics is not None
    assert live.topics.usable


def test_only_holds_of_own_pauses_that_are_gone_are_swept(world: World) -> None:
    world.ask()
    world.passes()
    mine = world.held
    left = HoldKey("payments", "orders", 0, holder(world.connection_uid, "gone"))
    others = [HoldKey("payments", "orders", 0, name) for name in ("cli", "reset/x", holder("elsewhere", "gone"))]
    world.control.hold({key: Hold() for key in (left, *others)})
    world.reconciler = world.fresh_reconciler()

    world.sweep()

    assert world.held == sorted([*mine, *others])


def test_a_pause_that_goes_through_another_connection_by_now_lets_go_of_the_first_cluster(world: World) -> None:
    world.ask()
    world.passes()
    assert len(world.held) == 2
    world.kube.change(PAUSES, "ns", "p", spec={**SPEC, "connectionRef": {"name": "elsewhere"}})
    world.sweep()
    assert world.held == []


def test_a_pause_that_is_created_while_the_sweep_lists_is_not_swept(world: World) -> None:
    world.control.ensure()
    listed = world.kube.list

    def list_and_then(kind: Any) -> Any:
        found = listed(kind)
        # Its hold comes after the sweep has read the topics, and after it has listed.
        world.control.hold({HoldKey("payments", "orders", 0, holder(world.connection_uid, "new")): Hold()})
        return found

    world.control.hold({HoldKey("payments", "orders", 1, holder(world.connection_uid, "gone")): Hold()})
    world.kube.list = list_and_then  # type: ignore[method-assign]
    world.sweep()
    assert [key.holder for key in world.held] == [holder(world.connection_uid, "new")]


def test_acks_are_waited_for_and_counted_once(world: World) -> None:
    assert isinstance(world.control, FakeControlTopics)
    metrics = Metrics()
    metrics.pause_is("a", "Paused", 2)
    metrics.pause_is("b", "Degraded", 1)
    assert metrics.registry.get_sample_value("tidegate_paused_partitions") == 3
    assert metrics.registry.get_sample_value("tidegate_pauses", {"phase": "Degraded"}) == 1
    assert metrics.registry.get_sample_value("tidegate_oldest_pause_age_seconds") == 0
    metrics.pause_is("a", None)
    assert metrics.registry.get_sample_value("tidegate_paused_partitions") == 1


def test_a_finalizer_of_ours_is_the_only_one_that_is_touched(world: World) -> None:
    world.ask()
    body = world.body
    assert body is not None
    FakeKube.set_finalizers(world.kube, PAUSES, body, ["others/theirs"])
    world.passes()
    assert world.body is not None
    assert world.body["metadata"]["finalizers"] == ["others/theirs", FINALIZER]
    world.control.ack("payments", "orders", 0, Ack(0, 0, "nobody"))
    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()
    assert world.body is not None
    assert world.body["metadata"]["finalizers"] == ["others/theirs"]
