"""A backup's document as its job reaches it: a ConfigMap, changed by compare-and-swap."""

from __future__ import annotations

import re
from typing import Any, Final

from tidegate.clock import Clock, SystemClock
from tidegate.kube.api import NoCluster, PatientCalls, default_api_client
from tidegate.offset_backup.document import (
    RESULT_KEY,
    BadDocument,
    Document,
    Result,
    decode_document,
    digest,
    encode_result,
)
from tidegate.offset_backup.order import Order
from tidegate.reset.config_map_store import API_PATIENCE_S
from tidegate.reset.store import RunNotFound, StaleAttempt
from tidegate.versions import NewerVersion

SCHEME: Final = "configmap://"
_MAX_CONFLICTS: Final = 50
_CONFIG_MAPS: Final = "configmaps"


class OrderFailure(Exception):
    """The document could not be read or written; the message says where and why."""


class OrderStore:
    """``configmap://namespace/name``. Calls raise ``OrderFailure``, ``RunNotFound`` and ``StaleAttempt``."""

    def __init__(
        self, location: str, *, api_client: Any = None, clock: Clock | None = None, patience_s: float = API_PATIENCE_S
    ) -> None:
        from tidegate.kube.core import CoreObjects

        found = re.fullmatch(rf"{SCHEME}([^/]+)/([^/]+)", location)
        if found is None:
            raise ValueError(f"{location!r} does not name an order: write it as {SCHEME}namespace/name")
        self._location, self._namespace, self._name = location, found[1], found[2]
        try:
            self._core = CoreObjects(api_client if api_client is not None else default_api_client())
        except NoCluster as error:
            raise OrderFailure(str(error)) from error
        self._call = PatientCalls(location, clock or SystemClock(), patience_s, OrderFailure)

    def order(self, expected: str) -> Order:
        """The order of this digest, not yet carried out. Raises ``StaleAttempt`` where another is there."""
        return self._current(self._read(), expected).order

    def finish(self, expected: str, result: Result) -> None:
        """Store the result of the order of this digest, once."""
        for _ in range(_MAX_CONFLICTS):
            config_map = self._read()
            self._current(config_map, expected)
            body = {**config_map, "data": {**config_map["data"], RESULT_KEY: encode_result(result)}}
            status, answer = self._call(self._core.replace, _CONFIG_MAPS, self._namespace, self._name, body)
            if status is None:
                return
            if status != 409:
                raise OrderFailure(f"can't write {self._location}: {answer}")
            # Somebody else was faster, or our own write arrived and its answer did not: look again.
        raise OrderFailure(f"{self._location} was changed by others {_MAX_CONFLICTS} times in a row")

    def _current(self, config_map: Any, expected: str) -> Document:
        try:
            document = decode_document(config_map.get("data") or {}, self._location)
        except NewerVersion as newer:
            raise OrderFailure(str(newer)) from newer
        except BadDocument as bad:
            raise OrderFailure(f"{self._location} is not a backup's document: {bad}") from bad
        if digest(document.order) != expected:
            raise StaleAttempt(f"{self._location} has another order than this job was started with")
        if document.result is not None:
            raise StaleAttempt(f"{self._location} already has the result of this order")
        return document

    def _read(self) -> Any:
        status, answer = self._call(self._core.read, _CONFIG_MAPS, self._namespace, self._name)
        if status == 404:
            raise RunNotFound(f"there is no ConfigMap {self._namespace}/{self._name}")
        if status is not None:
            raise OrderFailure(f"can't read {self._location}: {answer}")
        return answer
