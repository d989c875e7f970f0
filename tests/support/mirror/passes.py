"""Passes over an `OffsetMirror` between two clusters in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from support.fake_kafka import FakeKafka
from support.fake_kube import FakeKube
from support.mirror.fake_cluster import FakeMirrorCluster
from support.mirror.job_runner import JobRunner
from tidegate.clock import SystemClock
from tidegate.connection.live import Live, LiveConnections
from tidegate.jobs.runner import Runner
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kube.ports import MIRRORS, Conflict, Object
from tidegate.offset_mirror.copying import Copying
from tidegate.offset_mirror.jobs import JobParts
from tidegate.offset_mirror.metrics import MirrorMetrics
from tidegate.offset_mirror.parts import Parts
from tidegate.offset_mirror.reconcile import MirrorReconciler
from tidegate.resources.base import read_status
from tidegate.resources.conditions import Condition, find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.mirror_failover import MirrorFailover
from tidegate.resources.offset_mirror import OffsetMirrorStatus
from tidegate.service.metrics import Metrics

CREATED = "2026-11-20T12:00:00Z"
PATIENCE_S = 60.0
"""What copies is threads, which a busy machine keeps waiting. Nothing takes a second on an idle one."""

T = TypeVar("T")


class NotSaidYet(AssertionError):
    """A condition that the status does not have."""


class World:
    """An `OffsetMirror` `m` of topic `t`, from cluster `here` to cluster `there`."""

    name = "m"
    look_s = 0.05
    runner: Runner | None = None

    def __init__(self) -> None:
        self.kube, self.live = FakeKube(), LiveConnections()
        self.here, self.there = FakeMirrorCluster("here"), FakeMirrorCluster("there")
        self.here.create_topic("t", 2, {"retention.ms": "-1"})
        self.here.write("t", 20)
        self.here.write("t", 5, 1)
        for name in ("here", "there"):
            self.connect(name)
        self.spec: dict[str, Any] = {
            "source": {"name": "here"},
            "target": {"name": "there"},
            "topics": {"include": ["t"]},
        }
        self.kube.create(MIRRORS, "ns", "m", self.spec, CREATED)
        self.loop = asyncio.new_event_loop()
        self.executor = ThreadPoolExecutor(4)
        self.metrics = Metrics()
        self.of_mirrors = MirrorMetrics(self.metrics.registry)
        self.opened: list[str] = []
        self.leads = True
        self.restart()

    def connect(self, name: str, **changes: Any) -> None:
        live = Live(
            uid=name,
            namespace="ns",
            name=name,
            digest="d",
            connection=Connection(name),
            mounted=None,
            secrets={},
            allow=AllowSpec(),
            kafka=FakeKafka(),
            cluster_id=name,
            trouble=None,
        )
        self.live.put(replace(live, **changes))

    def restart(self) -> None:
        """A new process: nothing in memory."""
        clock = SystemClock()
        self.reconciler = MirrorReconciler(
            Parts(
                kube=self.kube,
                live=self.live,
                open_cluster=self.open,
                mirrors=lambda: self.kube.list(MIRRORS),
                may_write=lambda: self.leads,
                jobs=JobParts(
                    kube=self.kube,
                    runner=self.runner,
                    settings=SparkSettings(local_master="local[2]"),
                    in_pods=False,
                    executor=self.executor,
                    patient_executor=self.executor,
                    clock=clock,
                    died=lambda: self.metrics.job_died("Spark"),
                ),
                executor=self.executor,
                patient_executor=self.executor,
                clock=clock,
                metrics=self.metrics,
                of_mirrors=self.of_mirrors,
                active_tick_s=0.01,
                idle_tick_s=0.02,
                look_s=self.look_s,
            )
        )

    def open(self, connection: Connection, _: str) -> FakeMirrorCluster:
        self.opened.append(connection.bootstrap_servers)
        return {"here": self.here, "there": self.there}[connection.bootstrap_servers]

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(awaitable)

    def passes(self, until: Callable[[], bool]) -> None:
        """Passes over it, each when the last one has asked for it, until that is so."""

        async def again() -> None:
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                again_after_s = 0.0
                # A producer id was claimed meanwhile: read again, as by the loop.
                with contextlib.suppress(Conflict, NotSaidYet):
                    again_after_s = (await self.reconciler.reconcile(self.body)).again_after_s
                    if until():
                        return
                await asyncio.sleep(min(again_after_s, 0.05))
            raise AssertionError(f"not within {PATIENCE_S:g} s: {self.body.get('status')}")

        self.run(again())

    def one_pass(self) -> Condition:
        """Ready, afterwards."""
        if self.body["spec"] != self.spec:
            self.kube.change(MIRRORS, "ns", self.name, spec=self.spec)
        self.run(self.reconciler.reconcile(self.body))
        return self.condition("Ready")

    def copied(self) -> None:
        self.passes(lambda: self.condition("Ready").reason == "CopiesInSync")

    @property
    def copying(self) -> list[Copying]:
        """What copies in this process."""
        return [running.copying for running in self.reconciler._running.values()]

    @property
    def body(self) -> Object:
        return self.kube.get(MIRRORS, "ns", self.name)

    @property
    def status(self) -> OffsetMirrorStatus:
        return read_status(OffsetMirrorStatus, self.body)

    def condition(self, condition_type: str) -> Condition:
        found = find_condition(self.status.conditions, condition_type)
        if found is None:
            raise NotSaidYet(condition_type)
        return found

    def close(self) -> None:
        self.run(self.reconciler.stop())
        self.loop.close()
        self.executor.shutdown()


class SparkWorld(World):
    """The same, copied by jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.job_runner = JobRunner(self.kube, self.open)
        self.runner = self.job_runner
        self.spec["engine"] = "Spark"
        self.kube.change(MIRRORS, "ns", self.name, spec=self.spec)
        self.restart()

    @property
    def job(self) -> str:
        """The name that the status has; empty where it has none."""
        return "" if self.status.job is None else self.status.job.name

    def logs_are_equal(self) -> bool:
        return all(self.there.log("t", n).visible() == self.here.log("t", n).visible() for n in range(2))

    def close(self) -> None:
        self.job_runner.close()
        super().close()


def lacking(world: World, offsets: int) -> None:
    """Of an open transaction in each partition."""
    cluster = type(world.here)

    def open_ended(
        partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        beyond = 0 if stable else offsets
        found = cluster.bounds(world.here, partitions, stable=stable)
        return {p: LogBounds(one.earliest, one.latest + beyond) for p, one in found.items()}

    world.here.bounds = open_ended  # type: ignore[method-assign]


def failed_over(world: World, **asked: bool) -> MirrorFailover:
    world.spec["failover"] = asked
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason == "FailedOver")
    found = world.status.failover
    assert found is not None
    return found


def failed_back(world: World, name: str = "back") -> None:
    """The mirror of the world is another one from now on, in the other direction."""
    world.spec = {
        "source": world.spec["target"],
        "target": world.spec["source"],
        "topics": {"include": ["t"]},
        "groups": {"include": ["*"], "interval": "1s"},
        "failbackFrom": {"name": world.name},
    }
    world.name = name
    world.kube.create(MIRRORS, "ns", name, world.spec, "2026-11-21T12:00:00Z")
