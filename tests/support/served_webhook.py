"""The webhook's server on 127.0.0.1, over real TLS, with one policy of one namespace behind it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from tidegate.inject.bodies import Limits
from tidegate.inject.callers import Callers
from tidegate.inject.certificates import Certificates, renewed, written
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.inject.server import PATH, Parts, WebhookServer
from tidegate.kube.ports import KubeEvent, Object
from tidegate.service.settings import Address

CONNECTION = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "KafkaConnection",
    "metadata": {"name": "kafka", "namespace": "ns", "uid": "c", "generation": 1},
    "spec": {"bootstrapServers": "kafka:9092"},
}
POLICY = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "OffsetResetPolicy",
    "metadata": {"name": "p", "namespace": "ns", "uid": "p", "generation": 1},
    "spec": {
        "connectionRef": {"name": "kafka"},
        "group": "payments",
        "consumers": {"selector": {"matchLabels": {"app": "payments"}}},
    },
}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "payments", "uid": "rs", "controller": True}


def review(metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """An AdmissionReview of a new pod that the policy selects."""
    pod = {
        "metadata": {"name": "x", "labels": {"app": "payments"}, "ownerReferences": [dict(OWNER)], **(metadata or {})},
        "spec": {"containers": [{"name": "app"}], **spec},
    }
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "ns",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Caller:
    """One connection to the webhook, from an address of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, raw: bytes) -> None:
        self._writer.write(raw)

    def post(self, body: bytes, path: str = PATH, *headers: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: webhook", *(headers or (f"Content-Length: {len(body)}",)), "", ""]
        self.send("\r\n".join(lines).encode() + body)

    async def answered(self) -> tuple[int, bytes]:
        """Status and body. Raises `EOFError` or `OSError` where the connection is closed instead."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(head.split(" ", 2)[1]), await self._reader.readexactly(length)

    async def closed(self) -> None:
        """Once the other side has closed it, whatever it has sent before."""
        try:
            while await self._reader.read(65536):
                pass
        except OSError:
            return

    def close(self) -> None:
        self._writer.transport.abort()


class Served:
    """The server, its certificate's authority, and the Events it wrote."""

    def __init__(self, folder: Path, limits: Limits | None = None, callers: Callers | None = None) -> None:
        self.folder = folder
        self.events: list[tuple[str, str, str]] = []
        self.controllers = {("ns", "apps/v1", "ReplicaSet", "payments", "rs")}
        self.asked: list[str] = []
        self.certificates: Certificates = renewed(None, ("127.0.0.1",), datetime.now(UTC))
        self.mount(self.certificates)
        self.executor = ThreadPoolExecutor(1)
        index = PolicyIndex(lambda: [POLICY], lambda: [CONNECTION], ["ns"])
        index.listed([], [])
        self.registry = CollectorRegistry()
        metrics = InjectionMetrics(self.registry)
        parts = Parts(index, AgentImage("agent:1", "Never"), self.record, self.is_there, self.executor, metrics)
        self.server = WebhookServer(Address("127.0.0.1", 0), folder, parts, callers=callers, limits=limits)
        self.port = self.server.open()

    def mount(self, certificates: Certificates) -> None:
        for name, value in written(certificates).items():
            (self.folder / name).write_bytes(value)

    def record(self, body: Object, happening: KubeEvent) -> None:
        self.events.append((str(body["kind"]), str(body["metadata"]["name"]), happening.message))

    def is_there(self, namespace: str, controller: Mapping[str, str]) -> bool:
        self.asked.append(controller["name"])
        return (namespace, *(controller[n] for n in ("apiVersion", "kind", "name", "uid"))) in self.controllers

    async def told(self) -> None:
        """Once everything is told that was to be."""
        await asyncio.gather(*self.server._notices)

    async def caller(self, address: str = "127.0.0.1", client: ssl.SSLContext | None = None) -> Caller:
        """Raises `OSError`."""
        context = client or ssl.create_default_context()
        context.load_verify_locations(cadata=self.certificates.bundle.decode())
        return Caller(
            *await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, local_addr=(address, 0), limit=64 * 1024 * 1024
            )
        )

    async def post(self, body: Any, *, address: str = "127.0.0.1") -> tuple[int, bytes]:
        """Over a connection of its own."""
        caller = await self.caller(address)
        try:
            caller.post(body if isinstance(body, bytes) else json.dumps(body).encode())
            return await caller.answered()
        finally:
            caller.close()


S = TypeVar("S", bound=Served)


def serving(
    folder: Path,
    play: Callable[[S], Awaitable[None]],
    limits: Limits | None = None,
    callers: Callers | None = None,
    kind: type[S] = Served,  # type: ignore[assignment]
) -> None:
    """Run `play` with a server."""

    async def run() -> None:
        served = kind(folder, limits, callers)
        await served.server.start()
        try:
            async with asyncio.timeout(60):
                await play(served)
        finally:
            await served.server.stop()
            served.executor.shutdown()

    asyncio.run(run())
