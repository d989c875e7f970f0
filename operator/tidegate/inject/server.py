"""The webhook's HTTPS server: ``POST /mutate/pods`` takes an AdmissionReview and answers it, from memory, in moments.

kopf's admission server does not fit: it wants to own the configuration object, and listens anew with each new
certificate. Here a connection's handshake takes whatever certificate is the newest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tidegate.inject.admission import Answer, BadReview, Notice, answer, asked_namespace
from tidegate.inject.bodies import Bodies, Limits, read_review
from tidegate.inject.callers import Callers
from tidegate.inject.eligibility import Surroundings
from tidegate.inject.index import PolicyIndex
from tidegate.inject.listener import Listener
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.kube.ports import Conflict, KubeEvent, KubeFailure, KubeUnavailable, Object
from tidegate.service.http_server import TlsFiles, require_client
from tidegate.service.listening import listen
from tidegate.service.seats import Seats
from tidegate.service.settings import Address
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

PATH: Final = "/mutate/pods"

_NOTICES: Final = 60
"""Notices a minute; more are dropped: pods that are refused by the hundred are refused alike."""
_TOLD: Final = 600

Record = Callable[[Object, KubeEvent], None]
Confirm = Callable[[str, Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Parts:
    """``record``: writes an Event about an object, blocking. ``confirm``: whether a namespace has a controller with
    this ``apiVersion``, ``kind``, ``name`` and ``uid``, blocking; raises ``KubeFailure``. ``obeyed``: learns of each
    connection, by namespace and name, whose control topic an agent is told of.
    """

    index: PolicyIndex
    agent: AgentImage
    record: Record
    confirm: Confirm
    executor: Executor
    metrics: InjectionMetrics
    obeyed: Callable[[str, str], None] = lambda _namespace, _name: None


class WebhookServer:
    """Listens from :meth:`open` on, and answers from :meth:`start` on. Belongs to the event loop's thread.

    ``certificates``: a folder with ``tls.crt`` and ``tls.key``, which may come later; until then handshakes fail.
    """

    def __init__(
        self,
        address: Address,
        certificates: Path,
        parts: Parts,
        *,
        callers: Callers | None = None,
        limits: Limits | None = None,
    ) -> None:
        """``callers``: who may call; ``None``: everybody who reaches the port."""
        self._address, self._parts = address, parts
        self._callers, self._limits = callers, limits or Limits()
        self._tls = TlsFiles(certificates, callers.ca if callers is not None else None)
        self._bodies = Bodies(self._limits)
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="webhook")
        self._socket: socket.socket | None = None
        self._listener: Listener | None = None
        self._notices: set[asyncio.Task[None]] = set()
        self._told: dict[tuple[str, str], None] = {}
        self._told_at: deque[float] = deque()

    def open(self) -> int:
        """Take the port; returns it. Raises ``OSError`` with a message for a person."""
        if self._callers is not None:
            try:
                require_client(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._callers.ca)
            except OSError as error:
                message = f"TIDEGATE_WEBHOOK_CLIENT_CA: no usable CA certificates in {self._callers.ca}: {error}"
                raise OSError(message) from error
        try:
            self._socket = listen(self._address, 512)
        except OSError as error:
            raise OSError(f"TIDEGATE_WEBHOOK_ADDRESS: can't listen on {self._address}: {error.strerror}") from error
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        if self._socket is None or self._listener is not None:
            return
        seats = Seats(self._limits.connections, self._limits.per_address)
        self._listener = Listener(self._serve, self._context(), seats, self._limits.times)
        self._listener.start(self._socket)

    async def stop(self) -> None:
        """Idempotent."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for task in tuple(self._notices):
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _context(self) -> ssl.SSLContext:
        """One that takes the newest certificate for each connection; Python calls back also where no name is asked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._callers is not None:
            # What a connection begins with is what it is asked for; whom that has to be signed by is the newest's.
            context.verify_mode = ssl.CERT_REQUIRED

        def newest(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
            try:
                connection.context = self._tls.context()
            except OSError as error:
                _log.warning("webhook: no usable certificate: %s", error)
                return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
            return None

        context.sni_callback = newest
        return context

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._reviewed(request)
        except web.HTTPException as refusal:
            self._parts.metrics.refused(refusal.status)
            raise

    async def _reviewed(self, request: web.BaseRequest) -> web.StreamResponse:
        """Raises ``HTTPException`` where it is refused."""
        began = time.monotonic()
        self._admit(request)
        connection: Any = request.protocol
        async with self._bodies.taken(request) as body:
            connection.seat.answering = True
            try:
                found, answered = await self._answer(body)
            except BadReview as error:
                raise web.HTTPBadRequest(text=f"{error}\n") from error
        self._parts.metrics.admitted(found.outcome, time.monotonic() - began)
        return web.Response(body=answered, content_type="application/json")

    def _admit(self, request: web.BaseRequest) -> None:
        """Raises ``HTTPException`` for whoever is none of our callers, and for what they do not ask."""
        if self._callers is not None and not self._callers.includes(request.get_extra_info("peercert")):
            raise web.HTTPForbidden(text="the client certificate belongs to nobody who may call this\n")
        if request.path != PATH:
            raise web.HTTPNotFound
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(request.method, ["POST"])

    async def _answer(self, body: bytes) -> tuple[Answer, bytes]:
        """One review at a time, in a thread, which is all that a caller can keep busy. Raises ``BadReview``."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            review = await loop.run_in_executor(self._thread, read_review, body)
            namespace = asked_namespace(review)
            around = self._parts.index.around(namespace)
            found, answered = await loop.run_in_executor(self._thread, _decided, review, around, self._parts.agent)
        if found.topics is not None and around is not None:
            for of, name in around.telling(namespace, found.topics):
                self._parts.obeyed(of, name)
        if found.notice is not None and _key_of(found.notice) not in self._told and self._may_tell():
            task = loop.create_task(self._tell(found.notice))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)
        return found, answered

    def _may_tell(self) -> bool:
        now = time.monotonic()
        while self._told_at and now - self._told_at[0] > 60:
            self._told_at.popleft()
        if len(self._told_at) >= _NOTICES:
            return False
        self._told_at.append(now)
        return True

    async def _tell(self, notice: Notice) -> None:
        """Record it once about the pod's controller, and about each policy, if the API server knows that controller:
        else whoever reaches the port could have anything said of anything. A pod is never held up by this.
        """
        parts, key = self._parts, _key_of(notice)
        if key in self._told:
            return
        try:
            if not await in_thread(parts.executor, parts.confirm, notice.namespace, notice.about):
                _log.debug("webhook: no Event about %s, which is not there", dict(notice.about))
                return
        except KubeFailure as failure:
            _log.debug("webhook: no Event about %s: %s", dict(notice.about), failure)
            return
        if key in self._told:
            return
        # Only now: what somebody makes up must not keep a true one from being told.
        self._told[key] = None
        if len(self._told) > _TOLD:
            self._told.pop(next(iter(self._told)))
        for body in self._about(notice):
            try:
                await in_thread(parts.executor, parts.record, body, notice.happening)
            except (KubeUnavailable, Conflict) as failure:
                _log.warning("%s", failure)
                self._told.pop(key, None)  # the next pod tells of it again
            except KubeFailure as failure:
                _log.warning("%s", failure)

    def _about(self, notice: Notice) -> list[Object]:
        about = notice.about
        metadata = {"namespace": notice.namespace, "name": about["name"], "uid": about["uid"], "resourceVersion": ""}
        controller = {"apiVersion": about["apiVersion"], "kind": about["kind"], "metadata": metadata}
        policies = (self._parts.index.policy(notice.namespace, name) for name in notice.policies)
        return [controller, *(policy for policy in policies if policy is not None)]


def _key_of(notice: Notice) -> tuple[str, str]:
    return notice.about["uid"], notice.happening.key


def _decided(review: Any, around: Surroundings | None, agent: AgentImage) -> tuple[Answer, bytes]:
    found = answer(review, lambda _namespace: around, agent)
    return found, json.dumps(found.response, separators=(",", ":")).encode()
