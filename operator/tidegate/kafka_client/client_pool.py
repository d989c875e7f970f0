"""Clients that share connections to a cluster: many runs at once read its control topic once, not once each."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

KEPT_S: Final = 30.0
"""How long connections are kept that nobody uses: the next run often begins soon."""


@dataclass(slots=True)
class _Shared:
    """``number``: how often the connections came to be used by nobody, or by somebody again."""

    client: KafkaClient
    users: int = 0
    number: int = 0


class ClientPool:
    """Opens clients, those of equal connections on the same sockets. Thread-safe.

    ``after``: calls a function after so many seconds, in a thread of its own.
    """

    def __init__(
        self,
        open_client: Callable[[Connection], KafkaClient] = KafkaClient,
        *,
        kept_s: float = KEPT_S,
        after: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._open_client = open_client
        self._kept_s = kept_s
        self._after = after or _after
        self._lock = threading.Lock()
        self._shared: dict[tuple[str, ...], _Shared] = {}

    def open(self, connection: Connection) -> KafkaClient:
        """To be closed by whoever asked for it. Raises ``BadConnection``."""
        key = _key(connection)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                shared = self._shared[key] = _Shared(self._open_client(connection))
            shared.users += 1
            shared.number += 1
        return shared.client.sharing(functools.partial(self._returned, key, shared))

    def close(self) -> None:
        """Close what nobody uses now. Whoever still uses a client may go on."""
        with self._lock:
            unused = [key for key, shared in self._shared.items() if not shared.users]
            clients = [self._shared.pop(key).client for key in unused]
        for client in clients:
            client.close()

    def _returned(self, key: tuple[str, ...], shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            shared.number += 1
            number = shared.number
            is_unused = shared.users == 0
        if is_unused:
            self._after(self._kept_s, functools.partial(self._close_if_unused, key, shared, number))

    def _close_if_unused(self, key: tuple[str, ...], shared: _Shared, number: int) -> None:
        with self._lock:
            if shared.users or shared.number != number or self._shared.get(key) is not shared:
                return
            del self._shared[key]
        shared.client.close()


def _key(connection: Connection) -> tuple[str, ...]:
    """Equal for equal connections with the same files: once a Secret has changed, the same path leads to others."""
    who = connection.authentication
    values = (connection.ca_file, *(getattr(who, each.name) for each in fields(who)))
    files = (os.path.realpath(value) for value in values if isinstance(value, Path))
    return repr(replace(connection, properties=dict(sorted(connection.properties.items())))), *files


def _after(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
