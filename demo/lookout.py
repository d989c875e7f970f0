"""Looks at everything a few times a second, and hands each picture to the screen."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import urllib3
from kubernetes.client.exceptions import ApiException

from demo.cluster import ClusterError, KubeEvent
from demo.picture import PhaseStart, Picture, Row, RunPicture
from demo.screen import Screen
from demo.stage import API_VERSION, GROUP, NAMESPACE, PARTITIONS, TOPIC, Stage
from demo.traffic import Traffic
from support.clients import ConsumerFleet
from support.deliveries import Partition
from tidegate.kafka.errors import KafkaFailure
from tidegate.reset.document import StoreFailure
from tidegate.reset.store import Run, RunNotFound
from tidegate.reset.stores import open_store

ALL: Final[tuple[Partition, ...]] = tuple((TOPIC, number) for number in range(PARTITIONS))
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Shown:
    """A group, its consumers, and which of its partitions are paused."""

    group: str
    fleet: ConsumerFleet
    paused: frozenset[Partition] = frozenset()


class Lookout:
    """From entering the ``with`` block until leaving it. What it sees is for the eye; the verdict looks for itself."""

    def __init__(self, stage: Stage, traffic: Traffic, fleet: ConsumerFleet, screen: Screen) -> None:
        self._stage = stage
        self._traffic = traffic
        self._first = self._shown = Shown(GROUP, fleet)
        self._screen = screen
        self._lock = threading.Lock()
        self._headline = f"Four consumers join group {GROUP}"
        self._run: RunPicture | None = None
        self._happenings: tuple[KubeEvent, ...] = ()
        self._committed: Mapping[Partition, int] = {}
        self._consumers: Mapping[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lookout", daemon=True)
        self.failure: BaseException | None = None

    def headline(self, text: str) -> None:
        with self._lock:
            self._headline = text
        self._screen.show(self._picture())

    def follow(self, run_id: str) -> None:
        """Look at this run from now on; its resource is applied now."""
        with self._lock:
            self._run = RunPicture(run_id, datetime.now(UTC))

    def turn_to(self, shown: Shown | None) -> None:
        """Show another group from now on; ``None``: the first one again, with its run."""
        with self._lock:
            self._shown = shown or self._first
            self._committed = {}

    def look(self) -> tuple[Row, ...]:
        """The partitions as they are now. Raises ``KafkaFailure``."""
        self._look_at_kafka()
        self._screen.show(self._picture())
        return self.rows()

    def rows(self) -> tuple[Row, ...]:
        """The partitions as they were seen last."""
        with self._lock:
            committed, shown = self._committed, self._shown
            run = self._run if shown is self._first else None
        owners, ends = shown.fleet.owners(), self._traffic.ends(ALL)
        found = []
        for partition in ALL:
            last = shown.fleet.last_delivery(partition)
            found.append(
                Row(
                    partition=partition,
                    owner=owners.get(partition),
                    committed=committed.get(partition),
                    position=last.offset + 1 if last is not None else None,
                    # The consumer may have a record before its acknowledgement has come back.
                    end=max(ends[partition], last.offset + 1 if last is not None else 0),
                    target=run.targets.get(partition) if run is not None else None,
                    is_paused=partition in shown.paused,
                )
            )
        return tuple(found)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(_LOOK_S):
                # A server that is away for a moment is no reason to stop looking.
                with contextlib.suppress(KafkaFailure):
                    self._look_at_kafka()
                with contextlib.suppress(ClusterError, StoreFailure, ApiException, urllib3.exceptions.HTTPError):
                    self._look_at_the_run()
                self._screen.show(self._picture())
        except BaseException as failure:
            self.failure = failure
            raise

    def _look_at_kafka(self) -> None:
        with self._lock:
            shown = self._shown
        committed = {(p.topic, p.partition): o for p, o in self._stage.kafka.committed(shown.group).items()}
        consumers = consumer_processes()
        with self._lock:
            self._consumers = consumers
            if self._shown is shown:
                self._committed = committed

    def _look_at_the_run(self) -> None:
        with self._lock:
            run = self._run
        if run is None:
            return
        happenings = tuple(self._stage.cluster.happenings(NAMESPACE, run.run_id))
        seen = see_run(self._stage, run)
        with self._lock:
            self._happenings = happenings
            if self._run is run:
                self._run = seen

    def _picture(self) -> Picture:
        rows = self.rows()
        with self._lock:
            if self._shown is not self._first:
                return Picture(self._headline, rows, consumers=self._consumers)
            return Picture(self._headline, rows, self._run, self._happenings, self._consumers)


def see_run(stage: Stage, run: RunPicture) -> RunPicture:
    """The run as its resource and its document are now."""
    reset = stage.cluster.get(API_VERSION, "OffsetReset", run.run_id, NAMESPACE) or {}
    status: dict[str, Any] = reset.get("status") or {}
    if "phase" not in status:
        return run
    stored = stored_run(stage, reset)
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    return RunPicture(
        run_id=run.run_id,
        applied_at=run.applied_at,
        phase=status["phase"],
        engine=status.get("engine", ""),
        way=status.get("way", ""),
        application=status.get("application", ""),
        message=conditions.get("Ready", {}).get("message", ""),
        phases=_phases(run.applied_at, stored) if stored is not None else (),
        targets={(p.topic, p.partition): o for p, o in stored.plan.targets.items()} if stored and stored.plan else {},
    )


def stored_run(stage: Stage, reset: Mapping[str, Any]) -> Run | None:
    """The document of an OffsetReset; ``None`` when there is none yet."""
    name = ((reset.get("status") or {}).get("plan") or {}).get("configMap")
    if name is None:
        return None
    try:
        return open_store(f"configmap://{NAMESPACE}/{name}", api_client=stage.cluster.api_client).load()
    except RunNotFound:
        return None


def _phases(applied_at: datetime, run: Run) -> tuple[PhaseStart, ...]:
    """When each phase began first."""
    starts: dict[str, datetime] = {}
    for entry in run.journal:
        starts.setdefault(entry.phase.value, entry.at)
    if run.result is not None:
        starts[run.result.phase.value] = run.result.finished_at
    return tuple(PhaseStart(phase, (at - applied_at).total_seconds()) for phase, at in starts.items())


def consumer_processes() -> dict[str, int]:
    """The process id of each consumer of the first group: children of this process, by the members that their command
    line names."""
    found: dict[str, int] = {}
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(word.endswith(b"clients/worker.py") for word in words):
                    members = json.loads(words[-2])["members"]
                    found |= {str(m["name"]): int(pid) for m in members if m["config"]["group.id"] == GROUP}
    return dict(sorted(found.items()))
