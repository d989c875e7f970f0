"""Three brokers, and the one that coordinates the group dies while its offsets are being reset."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.checker import ResetRun, check
from support.clients import ConsumerFleet, Partition, SteadyProducer
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.wire import Wire
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ShiftBy
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase

PARTITIONS = 4


class TellingStore(DirectoryRunStore):
    """Calls ``on_intent`` once, when a run has written down that it is about to act."""

    on_intent: Callable[[], None] | None = None

    def append(self, progress: Progress, *, attempt: int) -> None:
        super().append(progress, attempt=attempt)
        if progress.phase is ResetPhase.PAUSING and self.on_intent is not None:
            act, self.on_intent = self.on_intent, None
            act()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_coordinator_dies_in_mid_run(
    protocol: str, kafka3: KafkaCluster, make_topic3: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    topic, group = make_topic3(PARTITIONS, replication_factor=3), unique("group")
    partitions: list[Partition] = [(topic, n) for n in range(PARTITIONS)]
    connection = Connection(kafka3.bootstrap)
    kafka = KafkaClient(connection)
    killed: list[int] = []

    def kill_coordinator() -> None:
        wire = Wire(connection)
        coordinator, _, _ = wire.coordinator(group)
        wire.close()
        kafka3.kill(coordinator)
        killed.append(coordinator)

    with (
        SteadyProducer(kafka3.bootstrap, topic, PARTITIONS, 25) as producer,
        ConsumerFleet("librdkafka", kafka3.bootstrap, group, [topic], 3, protocol=protocol) as fleet,
    ):
        fleet.wait_assigned(partitions, 60)
        fleet.wait_flowing(partitions, time.time() + 6, 60)
        store = TellingStore(tmp_path, "run")
        store.create(
            RunRequest(
                run_uid=f"{group}/1",
                run_id="1",
                group_id=group,
                connection=connection,
                selections=(Selection(topic, frozenset({0, 1})),),
                target=ShiftBy(-40),
                settings=ApplySettings(deadline=datetime.now(UTC) + timedelta(minutes=3)),
            )
        )
        store.on_intent = kill_coordinator
        started = time.time()
        result = _within(150, lambda: job.execute(store, kafka, SystemClock()))
        finished = time.time()
        assert killed, "the coordinator was not killed"
        assert result is not None
        assert result.phase is ResetPhase.SUCCEEDED, result
        kafka3.restart(killed[0])
        fleet.wait_assigned(partitions, 90)
        fleet.wait_flowing(partitions, time.time(), 90)
        acked = producer.stop()
        fleet.wait_read_to(producer.ends(), 90)
        deliveries = fleet.records()
    plan = store.load().plan
    assert plan is not None
    targets = {(p.topic, p.partition): p.target for p in plan.partitions}
    verdict = check(deliveries, acked, [ResetRun(started, finished, targets)])
    assert verdict.ok, verdict.complaints()
    kafka.close()


def _within(seconds: float, call: Callable[[], RunResult | None]) -> RunResult | None:
    """A run that hangs is a failure of its own."""
    results: list[RunResult | None] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"the run did not end within {seconds} s"
    return results[0]
