"""An owner that began a new partition at its end is sent back to its start, by a live reset like any other.

Nothing of it is stored: a partition whose reset did not come to its end is not settled, and is reset again. What it
held by then is found by its holder, which names the policy, and is swept (:mod:`tidegate.sweep`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidegate.audit.records import Attribution
from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.gates import BY_DISCOVERY
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.runs import job
from tidegate.reset.stores import MemoryRunStore

_DEADLINE: Final = timedelta(minutes=5)
_TURN_LIMIT_S: Final = 15.0
"""Other groups wait for this thread. A partition that was not sent back is soon tried again."""


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom owners are sent back: a policy by its uid and its namespace and name, and its connection's uid.
    ``attribution``: in whose name that is recorded; ``None``: it is not. ``in_flight``: how long the application may
    hold records before it commits them."""

    policy_uid: str
    policy: str
    connection_uid: str
    attribution: Attribution | None = None
    in_flight: timedelta = timedelta(0)


class Backfills:
    """The backfills of one process. Thread-safe.

    ``executor``: for them alone, as each may take minutes (``inFlight``), and those of many groups come together."""

    def __init__(self, executor: Executor | None = None) -> None:
        self.executor = executor or ThreadPoolExecutor(thread_name_prefix="backfill")
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> frozenset[str]:
        """The uids of the runs that may hold something. A hold of another one, read before this, is left behind."""
        with self._lock:
            return frozenset(self._under_way)

    def carry_out(
        self,
        kafka: Kafka,
        clock: Clock,
        connection: Connection,
        asker: Asker,
        group_id: str,
        partitions: Collection[TopicPartition],
    ) -> RunResult:
        """Reset these partitions to their start. Raises ``StaleAttempt`` when a reset of the group took over, and
        ``KafkaFailure``.
        """
        numbers: dict[str, set[int]] = {}
        for partition in partitions:
            numbers.setdefault(partition.topic, set()).add(partition.partition)
        with self._one(asker.policy_uid) as run_uid:
            request = RunRequest(
                run_uid=run_uid,
                run_id="starts",
                group_id=group_id,
                connection=connection,
                selections=tuple(Selection(topic, frozenset(wanted)) for topic, wanted in sorted(numbers.items())),
                target=ToEarliest(),
                settings=ApplySettings(asker.in_flight, clock.now() + _DEADLINE),
                asked_by=f"the discovery of OffsetResetPolicy {asker.policy}",
                connection_uid=asker.connection_uid,
            )
            tuning = Tuning(turn_limit_s=_TURN_LIMIT_S)
            store = ConfinedRunStore(MemoryRunStore(request), None, attribution=asker.attribution)
            result = job.execute(store, kafka, clock, tuning=tuning)
        if result is None:
            raise RuntimeError("a run that needs no approval ends with a result")
        return result

    @contextmanager
    def _one(self, policy_uid: str) -> Iterator[str]:
        run_uid = f"{BY_DISCOVERY}/{policy_uid}/{uuid.uuid4()}"
        with self._lock:
            self._under_way.add(run_uid)
        try:
            yield run_uid
        finally:
            with self._lock:
                self._under_way.discard(run_uid)
