"""What is kept for an undo of OffsetResets that were deleted: noted when they are found gone, and removed in the end.

All that is needed to know is in the records of the control topic (:mod:`tidegate.offset_reset.kept`), so a process that
dies anywhere is followed by one that goes on. A ConfigMap is removed before its record: the record finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tidegate.clock import Clock
from tidegate.connection.live import Live
from tidegate.control.gates import Gates
from tidegate.control.records import Run, RunKey
from tidegate.control.run_records import forget, replace_known
from tidegate.kube.ports import RESETS, Kube, namespace_of, uid_of
from tidegate.offset_reset.kept import document_of_record, is_over
from tidegate.offset_reset.reading import epoch_ms
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_MOST_S: Final = 60.0
"""Between two looks at which OffsetResets are gone: each lists all of them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is acted through. ``kept_for``: how long after the deletion; 0: not at all."""

    kube: Kube
    executor: Executor
    patient_executor: Executor
    clock: Clock
    kept_for: timedelta


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done about records, by key. ``changed``: how they are to be written, as their OffsetReset was
    deleted, or is there again; ``over``: what is kept is to be removed."""

    changed: Mapping[RunKey, Run]
    over: Mapping[RunKey, Run]


def due(
    records: Mapping[RunKey, Run],
    connection_uid: str,
    namespace: str,
    there: Collection[str],
    now: datetime,
    kept_for: timedelta,
) -> Due:
    """Pure. ``there``: the uids of all OffsetResets, looked at after the records were read."""
    changed: dict[RunKey, Run] = {}
    over: dict[RunKey, Run] = {}
    for key, run in _own(records, connection_uid, namespace):
        if run.uid.partition("/")[0] in there:
            if run.deleted_ms is not None:  # the API server was restored from a backup, with all uids
                changed[key] = replace(run, deleted_ms=None)
            continue
        noted = run if run.deleted_ms is not None else replace(run, deleted_ms=epoch_ms(now))
        if is_over(noted, kept_for, now):
            over[key] = run
        elif noted is not run:
            changed[key] = noted
    return Due(changed, over)


def _own(records: Mapping[RunKey, Run], connection_uid: str, namespace: str) -> Iterator[tuple[RunKey, Run]]:
    """Those that this operator has written by way of this connection: a control topic may be shared."""
    for key, run in records.items():
        if not key.policy and not run.is_newer and run.connection == connection_uid and key.namespace == namespace:
            yield key, run


class KeptRuns:
    """Belongs to the event loop's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._looked_s: dict[str, float] = {}
        """By connection."""

    async def look(self, live: Live, gates: Gates) -> None:
        """Do what is due by the records in ``gates``, which were just read. Raises ``KubeFailure`` and
        ``KafkaFailure``."""
        parts, now_s = self._parts, asyncio.get_running_loop().time()
        if now_s - self._looked_s.get(live.uid, float("-inf")) < min(_MOST_S, parts.kept_for.total_seconds() / 10):
            return
        self._looked_s[live.uid] = now_s
        if not any(_own(gates.runs, live.uid, live.namespace)):
            return
        # After the records were read: whoever has written one was there before.
        resets = await in_thread(parts.executor, parts.kube.list, RESETS)
        there = {uid_of(body) for body in resets if namespace_of(body) == live.namespace}
        todo = due(gates.runs, live.uid, live.namespace, there, parts.clock.now(), parts.kept_for)
        if todo.changed:
            # One of the same name may have ended since: that is the one to be known.
            await in_thread(parts.patient_executor, replace_known, live.kafka.control, gates.runs, todo.changed)
        for key, run in todo.over.items():
            await in_thread(parts.executor, parts.kube.remove_config_map, key.namespace, document_of_record(key, run))
            await in_thread(parts.patient_executor, forget, live.kafka.control, key, run)
            _log.info(
                "%s/%s: removed what was kept of this reset, which can't be undone any more", key.namespace, key.id
            )
