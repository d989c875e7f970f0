"""One running operator: what is started and stopped, and in which order."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tidegate.connection.files import ConnectionFiles
from tidegate.connection.live import LiveConnections
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.election.elector import Elector
from tidegate.inject.index import PolicyIndex
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import WebhookTrust
from tidegate.kafka_client.client_pool import ClientPool
from tidegate.kube.client import KubeClient
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import (
    APPROVALS,
    BACKUPS,
    CONNECTIONS,
    MIRRORS,
    PAUSES,
    POLICIES,
    RESETS,
    Kind,
    Object,
    uid_of,
)
from tidegate.leading.leaders import Leaders
from tidegate.offset_mirror.reconcile import MirrorReconciler
from tidegate.reset.runs.in_process import DirectRunner
from tidegate.service import health
from tidegate.service.http_server import HttpServer
from tidegate.service.metrics import Metrics
from tidegate.service.settings import Settings
from tidegate.sweep.sweeper import Sweeper

_log = logging.getLogger("tidegate")

_CLOSING_S: Final = 5.0
"""A pod has thirty seconds to end, most of which jobs may take."""


class Replaced(Exception):
    """Another process of this operator has taken this one's place, which has stopped its work and has to end."""


@dataclass(frozen=True, slots=True)
class Servers:
    """``health`` and ``metrics`` are one where the latter has no address of its own."""

    health: HttpServer
    metrics: HttpServer

    def start(self) -> None:
        for server in {self.health, self.metrics}:
            server.start()

    def stop(self) -> None:
        for server in {self.health, self.metrics}:
            server.stop()


@dataclass(slots=True)
class OwnCertificates:
    """What keeps the operator's own certificates, for webhook and metrics."""

    trust: WebhookTrust
    interval_s: float
    keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.keeping = asyncio.create_task(self.trust.run(self.interval_s), name="own certificates")
        self.keeping.add_done_callback(_ended)

    async def looked(self) -> None:
        """Once they were looked at: who comes by the webhook without trusting us goes on uninjected."""
        await self.trust.looked.wait()

    async def stop(self) -> None:
        if self.keeping is not None:
            await _cancelled(self.keeping)


@dataclass(slots=True)
class Operator:
    """All parts of one running operator. ``elector``: ``None`` for the only process there is, which always leads."""

    settings: Settings
    metrics: Metrics
    servers: Servers
    files: ConnectionFiles
    live: LiveConnections
    direct: DirectRunner
    clients: ClientPool
    discovery: DiscoveryFeature
    connections: LevelLoop
    policies: LevelLoop
    resets: LevelLoop
    approvals: LevelLoop
    pauses: LevelLoop
    leaders: Leaders
    backups: LevelLoop
    mirrors: LevelLoop
    mirroring: MirrorReconciler
    """What copies between the passes of ``mirrors``."""
    sweeper: Sweeper
    webhook: WebhookServer | None
    own_certificates: OwnCertificates | None
    index: PolicyIndex
    kube: KubeClient
    executor: ThreadPoolExecutor
    patient_executor: ThreadPoolExecutor
    connect_executor: ThreadPoolExecutor
    freshness: health.Freshness
    connection_changed: Callable[[Object], None]
    """Told of each KafkaConnection that a watch tells of, once its loop was."""
    reset_changed: Callable[[Object], None]
    """The same of each OffsetReset."""
    mirror_changed: Callable[[Object], None]
    """The same of each OffsetMirror."""
    observes: Callable[[Kind, Object], bool]
    """Whether it is for this process to observe an object, once it leads."""
    elector: Elector | None = None
    lister: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="list"))
    """Of its own: that ``/healthz`` knows what there is must not wait for thousands of passes."""
    known: dict[Kind, frozenset[str]] = field(default_factory=dict)
    """What the loops knew when the newest listing began."""
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once what is there was listed: before that this process knows nothing that it could go by."""
    leading: asyncio.Task[None] | None = None
    watchdog: asyncio.Task[None] | None = None
    sweeping: asyncio.Task[None] | None = None
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing is done any more because another process has taken this one's place."""
    why_replaced: str = ""
    stopped: bool = False
    _stopping: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        """Begin to watch; what is there is worked on once this process leads."""
        for loop in self.loops.values():
            loop.stand_by()
        if self.elector is not None:
            self.freshness.stand_by(lambda kind, body: self.loops[kind].knows(body))
        self.servers.start()
        if self.own_certificates is not None:
            self.own_certificates.start()
        if self.webhook is not None:
            _log.info("webhook on port %d", self.webhook.open())
        self.watchdog = asyncio.create_task(
            health.keep_fresh(
                self.freshness,
                self._list_all,
                self.settings.health_interval_s,
                self._listed,
                self._is_busy,
                self.observes,
            ),
            name="freshness",
        )
        self.watchdog.add_done_callback(_ended)
        self.leading = asyncio.create_task(self._lead_in_turn(), name="election")
        self.leading.add_done_callback(self._election_ended)
        where = ", ".join(self.settings.namespaces) or "the whole cluster"
        if self.settings.shards > 1:
            where += f", shard {self.settings.shard} of {self.settings.shards}"
        _log.info(
            "serving %s; health on port %d, metrics on port %d (authentication: %s)",
            where,
            self.servers.health.port,
            self.servers.metrics.port,
            self.settings.metrics_access,
        )

    @property
    def loops(self) -> Mapping[Kind, LevelLoop]:
        return {
            CONNECTIONS: self.connections,
            POLICIES: self.policies,
            RESETS: self.resets,
            APPROVALS: self.approvals,
            PAUSES: self.pauses,
            BACKUPS: self.backups,
            MIRRORS: self.mirrors,
        }

    async def _lead_in_turn(self) -> None:
        await self.warm.wait()
        if self.elector is None:
            self.lead()
        else:
            await self.elector.run()

    def _election_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("the election ended with an unexpected error", exc_info=error)
            self.give_way("this process takes no part in the election any more")

    def lead(self) -> None:
        """It is this process's turn: work on everything that is there. On the event loop. Idempotent."""
        if self.replaced.is_set() or self.stopped or self.sweeping is not None:
            return
        self.freshness.lead()
        self.metrics.leads(True)
        for loop in self.loops.values():
            loop.begin()
        self.sweeping = asyncio.create_task(self.sweeper.run(), name="sweep")

    def give_way(self, why: str) -> None:
        """Another process has taken this one's place: take no further step, fail the health check, and have
        ``replaced`` waited for. On the event loop. What is under way in threads is stopped by ``stop``."""
        _log.error("%s; this process stops its work and ends", why)
        self.freshness.replaced(why)
        self.metrics.leads(False)
        self.why_replaced = why
        for loop in (
            self.pauses,
            self.backups,
            self.mirrors,
            self.policies,
            self.approvals,
            self.resets,
            self.connections,
        ):
            loop.halt()
        if self.sweeping is not None:
            self.sweeping.cancel()
        self.replaced.set()

    async def stop(self) -> None:
        """Stop in the order in which parts use one another; bounded. Idempotent; a second caller waits for it."""
        async with self._stopping:
            if not self.stopped:
                self.stopped = True
                await self._stop()

    async def _stop(self) -> None:
        for task in (self.watchdog, self.sweeping):
            if task is not None:
                await _cancelled(task)
        if self.webhook is not None:
            await self.webhook.stop()
        if self.own_certificates is not None:
            await self.own_certificates.stop()
        await self.pauses.stop()
        await self.backups.stop()
        await self.mirrors.stop()
        await self.mirroring.stop()
        await self.policies.stop()
        await self.approvals.stop()
        await self.resets.stop()
        await self.connections.stop()
        await self.discovery.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.direct.close)
        # As late as this, so that the next process takes the seats over before the groups go on without them.
        await asyncio.get_running_loop().run_in_executor(None, self.leaders.stop)
        await self._leave_election()
        closing = [self.clients.close, *(live.kafka.close for live in self.live)]
        await asyncio.get_running_loop().run_in_executor(None, _close_all, closing)
        self.lister.shutdown(wait=False, cancel_futures=True)
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.patient_executor.shutdown(wait=False, cancel_futures=True)
        self.discovery.backfills.executor.shutdown(wait=False, cancel_futures=True)
        self.connect_executor.shutdown(wait=False, cancel_futures=True)
        self.files.close()
        self.servers.stop()
        _log.info("stopped")

    async def _leave_election(self) -> None:
        """Only now that nothing is done any more: another process begins at once."""
        self.metrics.leads(False)
        if self.leading is not None:
            await _cancelled(self.leading)
        if self.elector is not None:
            await self.elector.release()

    async def _list_all(self) -> list[tuple[Kind, list[Object]]]:
        events, found = asyncio.get_running_loop(), list[tuple[Kind, list[Object]]]()
        for kind, loop in self.loops.items():
            self.known[kind] = loop.uids
            found.append((kind, list(await events.run_in_executor(self.lister, self.kube.list, kind))))
        return found

    async def _listed(self, found: list[tuple[Kind, list[Object]]], unobserved: int) -> None:
        self.metrics.unobserved(unobserved)
        listed = dict(found)
        self.index.listed(listed[POLICIES], listed[CONNECTIONS])
        if not self.warm.is_set():
            # Of all kinds, before a pass over any of them: kopf lists each kind when it comes to it, and who has a
            # group is decided between policies, and by what is being reset. What goes through a connection waits for
            # the first look at it, for which it has to be known.
            for kind, objects in found:
                for body in objects:
                    self.loops[kind].notice(None, body)
            self.warm.set()
        if self.webhook is not None:
            if self.own_certificates is not None:
                await self.own_certificates.looked()
            await self.webhook.start()
        for kind, objects in found:
            await self.loops[kind].retain({uid_of(body) for body in objects}, self.known.get(kind, ()))

    def _is_busy(self, kind: Kind, body: Object, within_s: float) -> bool:
        return self.loops[kind].is_busy(body, within_s)


def _ended(task: asyncio.Task[None]) -> None:
    """It goes on until it is cancelled: where a defect has ended it, nobody else would hear of that."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("%s ended with an unexpected error", task.get_name(), exc_info=error)


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Ended. What it ended with before was seen to, and must keep nothing else from being stopped."""
    task.cancel()
    await asyncio.wait([task])


def _close_all(closing: Collection[Callable[[], None]], limit_s: float = _CLOSING_S) -> None:
    """All at once, and waited for no longer than that: one whose cluster does not answer has calls to wait for, and
    must keep neither the others nor the process from ending."""
    threads = [threading.Thread(target=close, name="close", daemon=True) for close in closing]
    for thread in threads:
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("no more threads to close connections in, which end with the process: %s", error)
            break
    until_s = time.monotonic() + limit_s
    for thread in filter(threading.Thread.is_alive, threads):
        thread.join(max(0.0, until_s - time.monotonic()))
