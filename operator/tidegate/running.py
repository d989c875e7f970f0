"""One running operator: what is started and stopped, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tidegate.connection.files import ConnectionFiles
from tidegate.connection.live import LiveConnections
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.inject.index import PolicyIndex
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import WebhookTrust
from tidegate.kube.client import KubeClient
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import APPROVALS, BACKUPS, CONNECTIONS, PAUSES, POLICIES, RESETS, Kind, Object, uid_of
from tidegate.reset.runs.in_process import DirectRunner
from tidegate.service import health
from tidegate.service.http_server import HttpServer
from tidegate.service.metrics import Metrics
from tidegate.service.settings import Settings
from tidegate.sweep.sweeper import Sweeper

_log = logging.getLogger("tidegate")


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
class Webhook:
    """The server that pods come by, and what keeps its certificates where they are not mounted."""

    server: WebhookServer
    trust: WebhookTrust | None
    interval_s: float
    keeping: asyncio.Task[None] | None = None

    def open(self) -> int:
        """Take the port, and return it."""
        return self.server.open()

    async def start(self) -> None:
        """Answer, now that it is known what is asked for. Idempotent."""
        if self.trust is not None and self.keeping is None:
            # Once before anybody counts on it: who comes by without trusting us goes on uninjected.
            await self.trust.look()
            self.keeping = asyncio.create_task(self.trust.run(self.interval_s), name="webhook certificates")
        await self.server.start()

    async def stop(self) -> None:
        if self.keeping is not None:
            self.keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.keeping
        await self.server.stop()


@dataclass(slots=True)
class Operator:
    """All parts of one running operator."""

    settings: Settings
    metrics: Metrics
    servers: Servers
    files: ConnectionFiles
    live: LiveConnections
    direct: DirectRunner
    discovery: DiscoveryFeature
    connections: LevelLoop
    policies: LevelLoop
    resets: LevelLoop
    approvals: LevelLoop
    pauses: LevelLoop
    backups: LevelLoop
    sweeper: Sweeper
    webhook: Webhook | None
    index: PolicyIndex
    kube: KubeClient
    executor: ThreadPoolExecutor
    patient_executor: ThreadPoolExecutor
    freshness: health.Freshness
    watchdog: asyncio.Task[None] | None = None
    sweeping: asyncio.Task[None] | None = None
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing is done any more because another process has taken this one's place."""
    why_replaced: str = ""
    stopped: bool = False
    _stopping: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        self.servers.start()
        if self.webhook is not None:
            _log.info("webhook on port %d", self.webhook.open())
        self.watchdog = asyncio.create_task(
            health.keep_fresh(
                self.freshness, self._list_all, self.settings.health_interval_s, self._listed, self._is_busy
            ),
            name="freshness",
        )
        self.sweeping = asyncio.create_task(self.sweeper.run(), name="sweep")
        where = ", ".join(self.settings.namespaces) or "the whole cluster"
        _log.info(
            "serving %s; health on port %d, metrics on port %d (authentication: %s)",
            where,
            self.servers.health.port,
            self.servers.metrics.port,
            self.settings.metrics_access,
        )

    def give_way(self, why: str) -> None:
        """Another process has taken this one's place: take no further step, fail the health check, and have
        ``replaced`` waited for. On the event loop. What is under way in threads is stopped by ``stop``."""
        _log.error("%s; this process stops its work and ends", why)
        self.freshness.replaced(why)
        self.why_replaced = why
        for loop in (self.pauses, self.backups, self.policies, self.approvals, self.resets, self.connections):
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
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self.webhook is not None:
            await self.webhook.stop()
        await self.pauses.stop()
        await self.backups.stop()
        await self.policies.stop()
        await self.approvals.stop()
        await self.resets.stop()
        await self.connections.stop()
        await self.discovery.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.direct.close)
        for live in self.live:
            live.kafka.close()
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.patient_executor.shutdown(wait=False, cancel_futures=True)
        self.files.close()
        self.servers.stop()
        _log.info("stopped")

    async def _list_all(self) -> list[tuple[Kind, list[Object]]]:
        loop = asyncio.get_running_loop()
        return [
            (kind, list(await loop.run_in_executor(self.executor, self.kube.list, kind)))
            for kind in (CONNECTIONS, POLICIES, RESETS, APPROVALS, PAUSES, BACKUPS)
        ]

    async def _listed(self, found: list[tuple[Kind, list[Object]]], unobserved: int) -> None:
        self.metrics.unobserved(unobserved)
        listed = dict(found)
        self.index.listed(listed[POLICIES], listed[CONNECTIONS])
        if self.webhook is not None:
            await self.webhook.start()
        for kind, objects in found:
            await self._loops[kind].retain({uid_of(body) for body in objects})

    def _is_busy(self, kind: Kind, body: Object, within_s: float) -> bool:
        return self._loops[kind].is_busy(body, within_s)

    @property
    def _loops(self) -> dict[Kind, LevelLoop]:
        return {
            CONNECTIONS: self.connections,
            POLICIES: self.policies,
            RESETS: self.resets,
            APPROVALS: self.approvals,
            PAUSES: self.pauses,
            BACKUPS: self.backups,
        }
