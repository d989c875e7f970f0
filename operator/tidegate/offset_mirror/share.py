"""What a task of a mirror's job does: it copies its share of the partitions for as long as it is its turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidegate.clock import Clock
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import Kube
from tidegate.mirror.model import ProducerIds
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.course import Limits
from tidegate.offset_mirror.order import MirrorOrder
from tidegate.offset_mirror.pace import Pace
from tidegate.offset_mirror.partitions import Clusters, Partitions, kept
from tidegate.offset_mirror.report import BEAT_S
from tidegate.offset_mirror.turn import Displaced, Turn
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_THREADS: Final = 4
_CLOSING_S: Final = 5.0
_LOOK_S: Final = 1.0


class _Written:
    """What was written so far; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.records = 0
        self.size = 0

    def __call__(self, records: int, size: int) -> None:
        with self._lock:
            self.records += records
            self.size += size


async def copy_share(
    order: MirrorOrder,
    place: int,
    attempt: int,
    kube: Kube,
    open_cluster: Callable[[Connection, str], MirrorCluster],
    clock: Clock,
    beat_s: float = BEAT_S,
) -> str:
    """Why it has ended: it is not asked for any more. ``attempt``: see ``Turn``. Raises ``Displaced``."""
    turn = Turn(kube, order, place, attempt, clock.monotonic)
    name, written = f"{order.namespace}/{order.name}", _Written()
    source, target = (
        open_cluster(connection, cluster_id)
        for connection, cluster_id in zip((order.source, order.target), order.clusters, strict=True)
    )
    threads, patient = ThreadPoolExecutor(_THREADS, "mirror"), ThreadPoolExecutor(2, "looks")
    limits = Limits(Pace(order.rate(place), clock.monotonic), order.max_fill, turn.may_write, written, clock.monotonic)
    partitions = Partitions(Clusters(source, target, turn), limits, threads, patient, name, _LOOK_S)
    known = await in_thread(patient, turn.claim, None)
    # Before the first partition asks whether it may write, which needs that something was said.
    await in_thread(patient, turn.say, {}, 0, 0, "")
    partitions.copy(order.share(place), known.ids if isinstance(known, ProducerIds) else ())
    following = asyncio.create_task(kept(name, "follow", partitions.follow))
    try:
        while not turn.over:
            courses = {course.partition: course for course in partitions.courses()}
            trouble = turn.trouble or partitions.trouble
            await in_thread(patient, turn.say, courses, written.records, written.size, trouble)
            await asyncio.sleep(beat_s)
            await in_thread(patient, turn.look)
    finally:
        following.cancel()
        _, tasks = partitions.end()
        loop = asyncio.get_running_loop()
        steps: asyncio.Future[None] = loop.run_in_executor(None, threads.shutdown)
        # What has not been answered by then is as late as that of a task that was killed.
        await asyncio.wait([following, *tasks, steps], timeout=_CLOSING_S)
        source.close()
        target.close()
        patient.shutdown(wait=False)
    _log.info("%s: task %d ends: %s", name, place, turn.over)
    if turn.is_displaced:
        raise Displaced(turn.over)
    return turn.over
