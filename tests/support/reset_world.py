"""OffsetResets of groups on a fake cluster, and an operator that looks at them pass by pass, and may die and come
back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.killed import Steps
from support.scripted_runner import ScriptedRunner
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import Observer
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.kube.loop import Reconciler
from tidegate.kube.ports import APPROVALS, CONNECTIONS, POLICIES, RESETS, Conflict, Object
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.policy.parts import Parts as PolicyParts
from tidegate.reset.binding import Binding
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.runs import fleet_groups, fleet_job, job
from tidegate.reset.store import ForgedRun, RunStore
from tidegate.resources.connection import AllowSpec
from tidegate.resources.reset import Engine
from tidegate.service.metrics import Metrics

CREATED = "2026-01-01T00:00:00Z"
T0 = TopicPartition("orders", 0)


class Recording(Steps, FakeKube):
    """Notes what is written and done, in order, and may die before it."""

    def __init__(self) -> None:
        Steps.__init__(self)
        FakeKube.__init__(self)

    def replace_status(self, kind: Any, body: Object, status: Mapping[str, Any]) -> Object:
        reset = status.get("reset", {}) if kind == POLICIES else status
        self.step(f"status {reset.get('phase')} {reset.get('application', '').rpartition('-')[2]}".rstrip())
        return super().replace_status(kind, body, status)

    def set_finalizers(self, kind: Any, body: Object, finalizers: Any) -> Object:
        self.step(f"finalizer {'on' if finalizers else 'off'}")
        return super().set_finalizers(kind, body, finalizers)


class World:
    """OffsetResets of an Empty group that stands at 50 of 100, and an operator that may die and come back. ``name``: of
    the one that was asked for last.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = "p"
        self.kube = Recording()
        self.clock = FakeClock()
        self.kube.now = lambda: self.clock.now().isoformat()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 1)
        self.kafka.fill("orders", 100)
        self.kafka.commit_directly("payments", {T0: 50})
        self.kafka.set_group("payments", GroupType.CLASSIC)
        self.runner = ScriptedRunner(self.carry_out)
        # One thread for everything: the fake's clock knows no others.
        self.executor = ThreadPoolExecutor(1)
        self.metrics = Metrics()
        self.live = LiveConnections()
        self.cluster_id = self.kafka.cluster().cluster_id
        self.connection = Connection("127.0.0.1:9092")
        connection = self.kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)
        connection = self.kube.get(CONNECTIONS, "ns", "kafka")
        FakeKube.replace_status(self.kube, CONNECTIONS, connection, {"clusterId": self.cluster_id})
        self.engines = {Engine.DIRECT: self.runner}
        self.mounts_secrets = False
        self.separate_approver = False
        self.approvals: Callable[[], Collection[Object]] = lambda: self.kube.list(APPROVALS)
        self.undo_kept = timedelta(days=7)
        self.open_connection("kafka", connection["metadata"]["uid"], self.connection)
        self.reconciler = self.fresh_reconciler()

    def open_connection(self, name: str, uid: str, connection: Connection, **changed: Any) -> None:
        live = Live(
            uid=uid,
            namespace="ns",
            name=name,
            digest="d",
            connection=connection,
            mounted=connection,
            secrets={"all": (f"{name}.key", "ca.crt")},
            allow=AllowSpec(),
            kafka=self.kafka,
            cluster_id=self.cluster_id,
            trouble=None,
        )
        self.live.put(replace(live, **changed))

    def fresh_reconciler(self) -> Reconciler:
        """What a new process begins with: nothing in memory."""
        self.parts = self.fresh_parts()
        return self.reconciler_of(self.parts)

    def reconciler_of(self, parts: Parts) -> Reconciler:
        return OffsetResetReconciler(ResetPasses(parts), parts)

    def fresh_parts(self) -> Parts:
        observer = Observer(self.executor, active_tick_s=0.0001, idle_tick_s=0.0001)
        for live in self.live:
            observer.connect(live.uid, "ns/kafka", self.kafka)
        return Parts(
            kube=self.kube,
            live=self.live,
            observer=observer,
            open_store=self.open_store,
            open_kafka=lambda _connection: self.kafka,
            runners=self.engines,
            executor=self.executor,
            patient_executor=self.executor,
            clock=self.clock,
            metrics=self.metrics,
            spark=SparkSettings(),
            mounts_secrets=self.mounts_secrets,
            active_tick_s=1,
            idle_tick_s=10,
            deletion_limit=timedelta(minutes=2),
            max_launches=5,
            approvals=self.approvals,
            separate_approver=self.separate_approver,
            undo_kept=self.undo_kept,
        )

    def open_store(self, _namespace: str, name: str, _owner: Mapping[str, Any] | None) -> RunStore:
        store = DirectoryRunStore(self.folder / "runs", name, clock=self.clock)
        return _Noted(store, self.kube)  # type: ignore[return-value]

    def carry_out(self, launch: Launch) -> None:
        self.kube.step(f"start {launch.name.rpartition('-')[2]}")
        store = DirectoryRunStore(self.folder / "runs", launch.store.rpartition("/")[2], clock=self.clock)
        bound = ConfinedRunStore(store, None, Binding.of_environment(launch.environment))
        self.end(launch, lambda: job.execute(bound, self.kafka, self.clock))

    def end(self, launch: Launch, work: Callable[[], object]) -> None:
        """Do a job's work and note how it ended, as the runners do."""
        try:
            work()
            self.runner.end(launch)
        except ForgedRun as forged:
            self.runner.states[launch.name] = RunnerStatus(RunnerState.EXITED, str(forged), forged=True)
        for document in self.documents:
            self.kube.config_maps.setdefault(("ns", document.stem), {})

    @property
    def documents(self) -> list[Path]:
        """Those of all runs, which are ConfigMaps to the API server."""
        return sorted((self.folder / "runs").glob("*.json"))

    def ask(self, name: str = "p", **spec: Any) -> None:
        """Create an OffsetReset, which the passes from now on are over."""
        asked = {"connectionRef": {"name": "kafka"}, "group": "payments", "to": {"offset": 10}, **spec}
        self.kube.create(RESETS, "ns", name, asked, CREATED)
        self.name = name

    def approve(self, plan: str | None = None, *, name: str = "yes", approver: str = "ann", reset: str = "") -> None:
        """Create an OffsetResetApproval; without ``plan``, of the one that waits."""
        spec = {"reset": reset or self.name, "plan": plan or self.reset["digest"], "approver": approver}
        self.kube.create(APPROVALS, "ns", name, spec, self.clock.now().isoformat())

    def passes(self, limit: int = 60) -> None:
        """Passes until one asks for a long pause, or the resource is gone; time goes on as they ask."""
        asyncio.run(self._passes(limit))

    async def _passes(self, limit: int) -> None:
        for _ in range(limit):
            if not self.there:
                return
            try:
                done = await self.reconciler.reconcile(self.body)
            except Conflict:
                continue
            if done.again_after_s > 5:
                return
            self.clock.sleep(done.again_after_s)
        raise AssertionError(f"no end after {limit} passes: {self.kube.log}")

    def some_passes(self, number: int) -> None:
        """So many, whatever they ask for. Raises what a pass raises."""
        for _ in range(number):
            done = asyncio.run(self.reconciler.reconcile(self.body))
            self.clock.sleep(done.again_after_s)

    def condition(self, kind: str) -> dict[str, Any]:
        conditions = self.body["status"]["conditions"]
        found: dict[str, Any] = next(c for c in conditions if c["type"] == kind)
        return found

    def restart(self) -> None:
        self.kube.dies_in = None
        self.runner.states.clear()
        self.reconciler = self.fresh_reconciler()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @property
    def finished(self) -> dict[tuple[str, str], float]:
        """How many runs ended, by outcome and reason."""
        [family] = (f for f in self.metrics.registry.collect() if f.name == "tidegate_runs_finished")
        return {
            (sample.labels["outcome"], sample.labels["reason"]): sample.value
            for sample in family.samples
            if sample.name.endswith("_total") and sample.value
        }

    @property
    def there(self) -> bool:
        return any(body["metadata"]["name"] == self.name for body in self.kube.list(RESETS))

    @property
    def body(self) -> Object:
        return self.kube.get(RESETS, "ns", self.name)

    @property
    def reset(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["status"]
        return found

    @property
    def offset(self) -> int:
        return self.kafka.committed("payments")[T0]


class _Noted:
    """A store whose creation and approval are noted as effects."""

    def __init__(self, store: DirectoryRunStore, kube: Recording) -> None:
        self._store = store
        self._kube = kube

    def create(self, request: Any) -> Any:
        self._kube.step("create")
        return self._store.create(request)

    def approve(self) -> None:
        self._kube.step("approve")
        self._store.approve()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def policy_parts(parts: Parts) -> PolicyParts:
    """What policies of the same operator act through."""
    return PolicyParts(
        kube=parts.kube,
        live=parts.live,
        executor=parts.executor,
        patient_executor=parts.patient_executor,
        clock=parts.clock,
        metrics=parts.metrics,
    )


FLEET = ("payments", "payments-b", "payments-c")


class FleetWorld(World):
    """Three groups at 50 of 100, and resets of ``payments*``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for group in (*FLEET[1:], "orders"):
            self.kafka.commit_directly(group, {T0: 50})
            self.kafka.set_group(group, GroupType.CLASSIC)

    def carry_out(self, launch: Launch) -> None:
        assert launch.confines is not None
        document = launch.store.rpartition("/")[2]
        store = DirectoryRunStore(self.folder / "runs", document, clock=self.clock)
        fleet = store.load().request.fleet
        assert fleet is not None
        parts = fleet_job.parts_of(
            document,
            launch.confines,
            fleet.undoes,
            lambda name: DirectoryRunStore(self.folder / "runs", name, clock=self.clock),
            self.kafka,
            self.clock,
            fleet_groups.SideBySide(lambda: contextlib.nullcontext(self.kafka), self.clock, threads=1),
        )
        binding = Binding.of_environment(launch.environment)
        bound = ConfinedRunStore(store, launch.confines, binding)
        self.end(launch, lambda: fleet_job.carry_out(bound, parts))

    def ask(self, name: str = "p", **spec: Any) -> None:
        asked = {"connectionRef": {"name": "kafka"}, "groups": ["payments*"], "to": {"offset": 10}, **spec}
        self.kube.create(RESETS, "ns", name, asked, CREATED)
        self.name = name

    @property
    def offsets(self) -> list[int]:
        return [self.kafka.committed(group)[T0] for group in FLEET]
