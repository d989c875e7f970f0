"""A world in memory in which pauses are reconciled pass by pass, and in which the operator may die before any step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from support.fake_connect import FakeConnectWorkers
from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.fake_workloads import FakeWorkloads
from support.killed import Killed, Steps
from support.live import live_of
from tidegate.connect.ports import ConnectCluster
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.errors import Unavailable
from tidegate.kube.ports import CONNECTIONS, PAUSES, Conflict, Object
from tidegate.kube.workloads import Scale, ScaledObject
from tidegate.leading.leaders import Leaders
from tidegate.leading.pacing import Pacing
from tidegate.pause.model import Patience, Tick
from tidegate.pause.parts import Parts
from tidegate.pause.reconcile import PauseReconciler
from tidegate.pause.stopper import LATE_S
from tidegate.resources.pause import WorkloadRef
from tidegate.service.metrics import Metrics

CREATED = "2026-11-20T11:59:00Z"
SPEC = {"connectionRef": {"name": "kafka"}, "group": "payments", "partitions": [{"topic": "orders"}]}


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


class NotedWorkloads(FakeWorkloads):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def set_replicas(self, namespace: str, workload: WorkloadRef, seen: Scale, replicas: int) -> None:
        self._steps.step(f"{workload} {replicas}")
        super().set_replicas(namespace, workload, seen, replicas)

    def set_paused_replicas(self, namespace: str, seen: ScaledObject, paused_replicas: str | None) -> None:
        self._steps.step(f"keda {paused_replicas}")
        super().set_paused_replicas(namespace, seen, paused_replicas)


class World:
    """A pause `p` for an Empty group, whose topic has two partitions, and an operator that may die and come back.

    The group's workload may be a Deployment, the size of which is seen and set step by step as well.
    """

    def __init__(self) -> None:
        self.steps = Steps()
        self.kube = Recording(self.steps)
        self.workloads = NotedWorkloads(self.steps)
        self.connect = FakeConnectWorkers()
        self.connect.before = lambda name, state: self.steps.step(f"{state.value} {name}")
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 2)
        self.control = self.kafka.control
        self._note_control()
        # One thread for everything: the fake's clock knows no others.
        self.executor = ThreadPoolExecutor(1)
        # Nothing is led here: threads of sessions would know of the fake's clock.
        self.leaders = Leaders(self.clock, Pacing(), lambda: False)
        self.connect_executor = ThreadPoolExecutor(1)
        self.metrics = Metrics()
        self.live = LiveConnections()
        self.kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)
        self.connection_uid = self.kube.get(CONNECTIONS, "ns", "kafka")["metadata"]["uid"]
        live = live_of(self.kafka, self.connection_uid)
        self.live.put(replace(live, connect={"main": ConnectCluster("main", "http://connect:8083")}))
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
                connect_executor=self.connect_executor,
                now=self.clock.now,
                metrics=self.metrics,
                topics=TopicsOfConnections(self.executor, 100 * tick_s, self.live.topics_checked, self.live.is_frozen),
                tick=Tick(tick_s, 10 * tick_s, 100 * tick_s),
                patience=Patience(),
                workloads=self.workloads,
                connect=self.connect,
                leaders=self.leaders,
            )
        )

    def ask(self, name: str = "p", **spec: Any) -> None:
        self.kube.create(PAUSES, "ns", name, {**SPEC, **spec}, CREATED)

    def drop(self, name: str = "p") -> None:
        """As `kubectl delete`."""
        self.kube.delete(PAUSES, "ns", name, CREATED)

    def body_of(self, name: str) -> Object | None:
        return next((b for b in self.kube.list(PAUSES) if b["metadata"]["name"] == name), None)

    @property
    def body(self) -> Object | None:
        return self.body_of("p")

    @property
    def phase(self) -> str:
        return self.phase_of("p")

    def phase_of(self, name: str) -> str:
        body = self.body_of(name)
        assert body is not None
        return str((body.get("status") or {}).get("phase", ""))

    @property
    def held(self) -> list[HoldKey]:
        return sorted(self.control.topics.gates.holds)

    def passes(self, *names: str, limit: int = 40) -> None:
        """Passes until one wants nothing for a while, or the pause is gone; of several pauses side by side."""

        async def all_passes() -> None:
            await asyncio.gather(*(self._passes(name, limit) for name in names or ("p",)))

        asyncio.run(all_passes())

    async def _passes(self, name: str, limit: int) -> None:
        for _ in range(limit):
            body = self.body_of(name)
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

    def begin_and_end(self, *dies_in: int | None, **spec: Any) -> Iterator[None]:
        """Pause and delete the pause, by processes that die before these of their steps; the last one does not die.

        Yields where the pause is there still and was let do its work. At the end it is gone.
        """
        self.ask(**spec)
        for steps in dies_in:
            self.steps.dies_in = steps
            try:
                self.passes()
                if self.is_kept:
                    self.drop()
                self.passes()
            except Killed:
                self.reconciler = self.fresh_reconciler()
        self.steps.dies_in = None
        if self.is_kept:
            self.passes()
            yield
            self.drop()
        self.passes()
        if self.body is not None:
            # A connector is watched for what an earlier process may have asked of its workers.
            self.clock.sleep(LATE_S)
            self.passes()
        assert self.body is None

    @property
    def is_kept(self) -> bool:
        """Whether the pause is there, and nobody has deleted it."""
        body = self.body
        return body is not None and not body["metadata"].get("deletionTimestamp")

    def close(self) -> None:
        self.executor.shutdown()
        self.connect_executor.shutdown()
        self.kafka.close()


def status(world: World, name: str = "p") -> Mapping[str, Any]:
    body = world.body_of(name)
    assert body is not None
    return dict(body["status"])


def condition(world: World, kind: str, name: str = "p") -> tuple[str, str, str]:
    return next(
        ((c["status"], c["reason"], c["message"]) for c in status(world, name)["conditions"] if c["type"] == kind),
        ("", "", ""),
    )
