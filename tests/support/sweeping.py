"""A sweeper over fakes, as a fresh process has it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import Executor
from datetime import timedelta

from support.fake_kafka import FakeKafka
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.kube.ports import Kube, Object
from tidegate.service.metrics import Metrics
from tidegate.sweep.kept import KeptRuns
from tidegate.sweep.kept import Parts as KeptParts
from tidegate.sweep.sweeper import Parts, Sweeper

LATER_S = 1e-9
"""Any look after the first comes so much later."""


class Sweeping:
    """``looks`` is what it does; ``backfills`` are the runs of discovery in this process, ``pauses`` those known by
    its watch."""

    def __init__(
        self,
        kube: Kube,
        live: LiveConnections,
        kafka: FakeKafka,
        executor: Executor,
        metrics: Metrics | None = None,
        undo_kept: timedelta = timedelta(0),
    ) -> None:
        self.backfills: frozenset[str] = frozenset()
        self.pauses: Collection[Object] = ()
        self.metrics = metrics or Metrics()
        observer = Observer(executor, active_tick_s=100, idle_tick_s=100)
        for each in live:
            observer.connect(each.uid, "ns/kafka", kafka, kafka.control)
        self.sweeper = Sweeper(
            Parts(
                kube=kube,
                live=live,
                observer=observer,
                backfills=lambda: self.backfills,
                executor=executor,
                patient_executor=executor,
                metrics=self.metrics,
                interval_s=0.01,
                kept=KeptRuns(KeptParts(kube, executor, executor, kafka.clock, undo_kept)),
                pauses=lambda: self.pauses,
            )
        )

    def looks(self, number: int = 2, settle_s: float = LATER_S) -> None:
        for _ in range(number):
            asyncio.run(self.sweeper.sweep(settle_s))

    def swept(self, kind: str) -> float | None:
        return self.metrics.registry.get_sample_value("tidegate_holds_swept_total", {"kind": kind})
