"""Keeps the certificates of webhook and metrics that the operator makes itself: in a Secret that all its pods share,
from which Prometheus has the CA, and where API servers trust them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tidegate.connection.files import FilesFailure
from tidegate.inject import certificates
from tidegate.inject.certificates import CERTIFICATE, KEY, Certificates
from tidegate.inject.metrics import InjectionMetrics
from tidegate.kube.injection import KeptSecret, WebhookObjects
from tidegate.kube.ports import Conflict, KubeFailure
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
FOLDER: Final = "webhook"

T = TypeVar("T")


class Files(Protocol):
    """As ``tidegate.connection.files.ConnectionFiles``."""

    def folder(self, uid: str) -> Path: ...
    def put(self, uid: str, contents: Mapping[str, bytes]) -> Path: ...


@dataclass(frozen=True, slots=True)
class Place:
    """``names``: of the Service, and the address where it is one; ``configuration`` empty: nobody is told of the CA."""

    namespace: str
    secret: str
    configuration: str
    names: Sequence[str]


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """By which an API server, or somebody in the cluster, calls a Service. The first is what an API server uses."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}")


class WebhookTrust:
    """Looks every ``interval_s`` seconds whether anything is due; every step may be lost, or done by another pod."""

    def __init__(
        self,
        place: Place,
        objects: WebhookObjects,
        files: Files,
        executor: Executor,
        now: Callable[[], datetime],
        metrics: InjectionMetrics,
    ) -> None:
        self._place, self._objects, self._files = place, objects, files
        self._executor, self._now, self._metrics = executor, now, metrics
        self._used: bytes | None = None
        self.looked = asyncio.Event()
        """Set after the first look, whatever came of it."""
        self._trouble = ""

    async def run(self, interval_s: float) -> None:
        while True:
            try:
                await self.look()
            finally:
                self.looked.set()
            await asyncio.sleep(interval_s)

    async def look(self) -> None:
        """One look. What fails is logged once, and tried again with the next look."""
        try:
            current = await self._current()
            if current is None:
                return
            self._use(current)
            if self._place.configuration:
                changed = await in_thread(
                    self._executor, self._objects.trust, self._place.configuration, current.bundle
                )
                if changed:
                    _log.info("MutatingWebhookConfiguration %s has the CA certificates", self._place.configuration)
        except (KubeFailure, FilesFailure) as failure:
            if str(failure) != self._trouble:
                self._trouble = str(failure)
                _log.warning("could not look after the webhook's own certificates: %s; retrying soon", failure)
        else:
            self._trouble = ""

    async def _current(self) -> Certificates | None:
        """What the Secret has, renewed where that is due. ``None``: others keep changing it."""
        place = self._place
        for _ in range(_ATTEMPTS):
            kept = await in_thread(self._executor, self._objects.secret, place.namespace, place.secret)
            found = certificates.read(kept.data)
            wanted = certificates.renewed(found, place.names, self._now())
            if wanted is found:
                return wanted
            fresh = KeptSecret(certificates.written(wanted), kept.version)
            try:
                await in_thread(self._executor, self._objects.put_secret, place.namespace, place.secret, fresh)
            except Conflict:
                continue
            _log.info(
                "Secret %s/%s has new certificates, valid until %s", place.namespace, place.secret, wanted.expires
            )
            return wanted
        return None

    def _use(self, current: Certificates) -> None:
        pair = {name: value for name, value in certificates.written(current).items() if name in (CERTIFICATE, KEY)}
        if pair[CERTIFICATE] != self._used:
            self._files.put(FOLDER, pair)
            self._used = pair[CERTIFICATE]
        # Only now: until it is there the earlier one is served, and expires when that does.
        self._metrics.certificate_expires(current.expires)
