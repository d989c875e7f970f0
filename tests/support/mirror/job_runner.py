"""Jobs of mirrors whose tasks are threads of this process: what Spark's do, without Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tidegate.clock import SystemClock
from tidegate.jobs.application import MIRROR_ORDER_VARIABLE
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import Kube
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.order import MirrorOrder
from tidegate.offset_mirror.share import copy_share
from tidegate.offset_mirror.turn import Displaced
from tidegate.spark.mirror import ordered

BEAT_S = 0.02


class Job:
    """All tasks of one start. `ended`: why each has ended, once all have."""

    def __init__(
        self,
        kube: Kube,
        open_cluster: Callable[[Connection, str], MirrorCluster],
        order: MirrorOrder,
        attempt: int = 1,
        beat_s: float = BEAT_S,
    ) -> None:
        self.order, self.beat_s = order, beat_s
        self.ended: list[str] | None = None
        self._loop = asyncio.new_event_loop()
        clock = SystemClock()
        shares = [
            copy_share(order, place, attempt + place, kube, open_cluster, clock, beat_s) for place in range(order.tasks)
        ]

        async def all_of_them() -> list[str]:
            tasks = [self._loop.create_task(share) for share in shares]
            try:
                return list(await asyncio.gather(*tasks))
            except Displaced as displaced:
                # Spark begins such a task again a hundred times, and then ends the job.
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                return [str(displaced)]

        self._task = self._loop.create_task(all_of_them())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended = self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            self.ended = ["killed"]
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def kill(self) -> None:
        """At any point; returns once nothing of it is left."""
        if self._thread.is_alive() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive(), "a job that can't be killed"


class JobRunner:
    """Implements `tidegate.jobs.runner.Runner`. `refuses`: why no job can be started; `keeps`: why none can be ended;
    `kube`: as the jobs reach it."""

    engine = "Spark"

    def __init__(self, kube: Kube, open_cluster: Callable[[Connection, str], MirrorCluster]) -> None:
        self.kube = kube
        self.refuses = self.keeps = ""
        self.jobs: dict[str, Job] = {}
        self.launches: list[Launch] = []
        self.stopped: list[str] = []
        self.may_stop = threading.Event()
        self.may_stop.set()
        self._open_cluster = open_cluster

    @property
    def started(self) -> list[str]:
        return [launch.name for launch in self.launches]

    @property
    def last(self) -> Job:
        return self.jobs[self.launches[-1].name]

    def start(self, launch: Launch) -> None:
        if self.refuses:
            raise RunnerFailure(self.refuses)
        if launch.name in self.jobs:
            return
        order = ordered(self.kube, launch.store, launch.environment[MIRROR_ORDER_VARIABLE])
        self.launches.append(launch)
        self.jobs[launch.name] = Job(self.kube, self._open_cluster, order)

    def status(self, launch: Launch) -> RunnerStatus:
        job = self.jobs.get(launch.name)
        if job is None:
            return RunnerStatus(RunnerState.LOST, f"{launch.name} was never started")
        if job.ended is None:
            return RunnerStatus(RunnerState.RUNNING)
        return RunnerStatus(RunnerState.EXITED, "; ".join(sorted({*job.ended})))

    def stop(self, launch: Launch) -> None:
        if self.keeps:
            raise RunnerFailure(self.keeps)
        self.stopped.append(launch.name)
        if not self.may_stop.wait(30):
            raise TimeoutError(f"{launch.name} did not end")
        job = self.jobs.get(launch.name)
        if job is not None:
            job.kill()

    def close(self) -> None:
        self.may_stop.set()
        for job in self.jobs.values():
            job.kill()
