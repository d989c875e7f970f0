"""The webhook's HTTPS server: ``POST /mutate/pods`` takes an AdmissionReview and answers it, from memory, in moments.

kopf's admission server does not fit: it wants to own the configuration object, and listens anew with each new
certificate. Here a connection's handshake takes whatever certificate is the newest.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tidegate.inject.admission import Answer, BadReview, Notice, answer
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.kube.ports import KubeEvent, KubeFailure, Object
from tidegate.service.http_server import TlsFiles
from tidegate.service.settings import Address

_log = logging.getLogger(__name__)

PATH: Final = "/mutate/pods"

_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a review: an API server takes no object above 3 MiB."""
_READING_S: Final = 5.0
_IDLE_S: Final = 75.0
_NOTICES: Final = 60
"""Notices a minute; more are dropped: pods that are refused by the hundred are refused alike, and whoever reaches the
port without being an API server must not fill one with Events.
"""

Record = Callable[[Object, KubeEvent], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """``record``: writes an Event about an object, blocking. ``obeyed``: learns of each connection, by namespace and
    name, whose control topic an agent is told of.
    """

    index: PolicyIndex
    agent: AgentImage
    record: Record
    executor: Executor
    metrics: InjectionMetrics
    obeyed: Callable[[str, str], None] = lambda _namespace, _name: None


class WebhookServer:
    """Listens from :meth:`open` on, and answers from :meth:`start` on. Belongs to the event loop's thread.

    ``certificates``: a folder with ``tls.crt`` and ``tls.key``, which may come later; until then handshakes fail.
    """

    def __init__(self, address: Address, certificates: Path, parts: Parts) -> None:
        self._address, self._parts = address, parts
        self._tls = TlsFiles(certificates)
        self._socket: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._notices: set[asyncio.Task[None]] = set()
        self._told: dict[tuple[str, str], None] = {}
        self._told_at: deque[float] = deque()

    def open(self) -> int:
        """Take the port; returns it. Raises ``OSError`` with a message for a person."""
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        try:
            self._socket = socket.create_server((self._address.host, self._address.port), family=family, backlog=512)
        except OSError as error:
            raise OSError(f"TIDEGATE_WEBHOOK_ADDRESS: can't listen on {self._address}: {error.strerror}") from error
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        if self._socket is None or self._runner is not None:
            return
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_post(PATH, self._serve)
        self._runner = web.AppRunner(
            application, handle_signals=False, access_log=None, keepalive_timeout=_IDLE_S, shutdown_timeout=2.0
        )
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, ssl_context=self._context()).start()

    async def stop(self) -> None:
        """Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for task in tuple(self._notices):
            task.cancel()

    def _context(self) -> ssl.SSLContext:
        """One that takes the newest certificate for each connection; Python calls back also where no name is asked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2

        def newest(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
            try:
                connection.context = self._tls.context()
            except OSError as error:
                _log.warning("webhook: no usable certificate: %s", error)
                return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
            return None

        context.sni_callback = newest
        return context

    async def _serve(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_READING_S):
                text = await request.read()
            found = self._answer(json.loads(text))
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text=f"the review was not sent within {_READING_S:.0f} s\n") from error
        except (BadReview, ValueError) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        self._parts.metrics.admitted(found.outcome, time.monotonic() - began)
        return web.json_response(found.response)

    def _answer(self, review: Any) -> Answer:
        found = answer(review, self._parts.index.around, self._parts.agent)
        if found.topics is not None:
            namespace = str(review["request"]["namespace"])
            around = self._parts.index.around(namespace)
            for of, name in around.telling(namespace, found.topics) if around is not None else ():
                self._parts.obeyed(of, name)
        if found.notice is not None and self._may_tell():
            task = asyncio.get_running_loop().create_task(self._tell(found.notice))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)
        return found

    def _may_tell(self) -> bool:
        now = time.monotonic()
        while self._told_at and now - self._told_at[0] > 60:
            self._told_at.popleft()
        if len(self._told_at) >= _NOTICES:
            return False
        self._told_at.append(now)
        return True

    async def _tell(self, notice: Notice) -> None:
        """Record it once about the pod's maker, and about each policy. A pod is never held up by this."""
        loop = asyncio.get_running_loop()
        for body in self._about(notice):
            key = (str(body["metadata"]["uid"] or body["metadata"]["name"]), notice.happening.key)
            if key in self._told:
                continue
            self._told[key] = None
            if len(self._told) > 10 * _NOTICES:
                self._told.pop(next(iter(self._told)))
            try:
                await loop.run_in_executor(
                    self._parts.executor, functools.partial(self._parts.record, body, notice.happening)
                )
            except KubeFailure as failure:
                _log.warning("%s", failure)

    def _about(self, notice: Notice) -> list[Object]:
        found: list[Object] = []
        if notice.about is not None:
            metadata = {
                "namespace": notice.namespace,
                "name": notice.about["name"],
                "uid": notice.about["uid"],
                "resourceVersion": "",
            }
            found.append({"apiVersion": notice.about["apiVersion"], "kind": notice.about["kind"], "metadata": metadata})
        policies = (self._parts.index.policy(notice.namespace, name) for name in notice.policies)
        return found + [policy for policy in policies if policy is not None]
