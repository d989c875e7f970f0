"""``/healthz`` and ``/metrics`` on a small server of their own, and the check behind the former.

A watch can die unseen (kopf with narrow rights; a stream that hangs): the operator looks alive and does nothing. So our
resources are listed outside kopf, and one whose generation stays unobserved too long fails the check. So does a
listing, or an event loop, that has not come round for as long.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tidegate.kube.ports import Kind, KubeFailure, Object, name_of, namespace_of, uid_of
from tidegate.settings import Address

_log = logging.getLogger(__name__)

_SHOWN: Final = 10


class Freshness:
    """Which generations are unobserved since when. Fed from the event loop, asked from any thread."""

    def __init__(self, limit_s: float, monotonic: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: dict[tuple[str, int], tuple[float, str]] = {}
        self._listed_at = monotonic()
        self._failure = ""

    def listed(self, kinds: Iterable[tuple[Kind, Iterable[Object]]]) -> int:
        """Take in a listing of all our resources; returns how many are unobserved."""
        now = self._monotonic()
        unobserved: dict[tuple[str, int], tuple[float, str]] = {}
        for kind, objects in kinds:
            for body in objects:
                generation = int(body["metadata"]["generation"])
                observed = (body.get("status") or {}).get("observedGeneration")
                if observed == generation or body["metadata"].get("deletionTimestamp"):
                    continue
                key = (uid_of(body), generation)
                since, _ = self._since.get(key, (now, ""))
                unobserved[key] = (since, f"{kind.kind} {namespace_of(body)}/{name_of(body)} generation {generation}")
        with self._lock:
            self._since, self._listed_at, self._failure = unobserved, now, ""
        return len(unobserved)

    def failed(self, failure: str) -> None:
        """The listing failed."""
        with self._lock:
            self._failure = failure

    def problems(self) -> list[str]:
        """What is wrong, for a person; empty when all is well."""
        now = self._monotonic()
        with self._lock:
            stale = [name for since, name in self._since.values() if now - since > self._limit_s]
            quiet_s, failure = now - self._listed_at, self._failure
        problems = [f"{name} was not observed within {self._limit_s:.0f} s" for name in sorted(stale)[:_SHOWN]]
        if len(stale) > _SHOWN:
            problems.append(f"and {len(stale) - _SHOWN} more")
        if quiet_s > self._limit_s:
            problems.append(f"our resources were not listed for {quiet_s:.0f} s" + (f": {failure}" if failure else ""))
        return problems


async def keep_fresh(
    freshness: Freshness,
    list_all: Callable[[], Awaitable[list[tuple[Kind, list[Object]]]]],
    interval_s: float,
    listed: Callable[[list[tuple[Kind, list[Object]]], int], Awaitable[None]],
) -> None:
    """List our resources for ever; ``listed`` is told of each listing and of the number that is unobserved."""
    while True:
        try:
            found = await list_all()
            await listed(found, freshness.listed(found))
        except KubeFailure as failure:
            _log.warning("health: %s", failure)
            freshness.failed(str(failure))
        await asyncio.sleep(interval_s)


class HealthServer:
    """Answers ``/healthz`` (200, or 503 with the problems) and ``/metrics`` from threads of its own."""

    def __init__(self, address: Address, freshness: Freshness, registry: CollectorRegistry) -> None:
        handler = type("Handler", (_Handler,), {"freshness": freshness, "registry": registry})
        server_class = type(
            "Server", (ThreadingHTTPServer,), {"address_family": _family(address), "daemon_threads": True}
        )
        try:
            self._server: ThreadingHTTPServer = server_class((address.host, address.port), handler)
        except OSError as error:
            raise OSError(f"TIDEGATE_HEALTH_ADDRESS: can't listen on {address}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    freshness: Freshness
    registry: CollectorRegistry
    timeout = 10
    server_version = "tidegate"
    sys_version = ""

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/healthz":
                problems = self.freshness.problems()
                status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
                body = json.dumps({"healthy": not problems, "problems": problems}).encode() + b"\n"
                self._answer(status, "application/json", body)
            case "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self.registry))
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is /healthz and /metrics\n")

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        _log.debug(format, *args)


def _family(address: Address) -> int:
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET
