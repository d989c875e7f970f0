"""The agent's own clients of Kafka: how they reach the application's cluster, and where their log goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

log = logging.getLogger("tidegate_agent")

_CONNECTION: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "security.protocol",
    "enable.ssl.certificate.verification",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "oauth_cb",
    "broker.address.family",
    "broker.address.ttl",
    "client.dns.lookup",
    "socket.timeout.ms",
    "socket.keepalive.enable",
    "socket.connection.setup.timeout.ms",
    "resolve_cb",
)
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.", "ssl_", "https.", "retry.backoff", "reconnect.backoff")


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a client's librdkafka settings those that say how it reaches its cluster, and who it is there."""
    found = {
        name: value for name, value in config.items() if name in _CONNECTION or name.startswith(_CONNECTION_PREFIXES)
    }
    found["client.id"] = f"{config.get('client.id') or 'rdkafka'}-tidegate"
    return found


def reader_settings(connection: Mapping[str, Any]) -> dict[str, Any]:
    """Of the client that reads the control topic from its start, again and again to its end, and commits nothing."""
    return {
        **connection,
        "group.id": "tidegate-agent",  # mandatory in librdkafka; nothing is joined or committed with it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        # What an operator could not commit, because another one had taken over, is not there.
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
        "fetch.error.backoff.ms": 100,
        # Not longer: a client has one fetch at a broker, and what else it begins to read there waits for its end.
        "fetch.wait.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 10_000,
    }


def plain(kind: Any) -> Any:
    """The client library's own class, where the agent has put its own in its place."""
    return getattr(kind, "tidegate_plain", kind)


class _Silent(logging.Handler):
    """The clients' own log lines say what the agent says itself, once."""

    def emit(self, record: logging.LogRecord) -> None:
        log.debug("client: %s", record.getMessage())


def client_log() -> logging.Logger:
    logger = logging.getLogger("tidegate_agent.clients")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(_Silent())
    return logger


class OwnClients:
    """Those of one link, by what they are for. ``settings``: librdkafka's, see ``connection_settings``."""

    def __init__(self, settings: Mapping[str, Any], changed: threading.Condition) -> None:
        self._settings = dict(settings)
        self._changed = changed
        self._clients: dict[str, Any] = {}
        self.being_made = 0
        """How many are, at this moment."""

    def make(self, purpose: str, build: Callable[[dict[str, Any]], Any]) -> Any:
        """What ``build`` makes of the settings; raises what it raises.

        Call it from the link's own threads, without the lock: where a callback gives the token, a client's constructor
        waits for it for seconds, and the application's thread, which wants the lock, may be the one that gives it.
        """
        with self._changed:
            settings = dict(self._settings)
            self.being_made += 1
        try:
            client = build(dict(settings))
        finally:
            with self._changed:
                self.being_made -= 1
                self._changed.notify_all()
        with self._changed:
            earlier = self._clients.get(purpose)
            self._clients[purpose] = client
            if settings != self._settings:
                self._tell(client)
        del earlier  # not before the lock is free: its end waits for a callback that is giving it a token
        return client

    def drop(self, purpose: str) -> None:
        """It is about to be closed."""
        with self._changed:
            self._clients.pop(purpose, None)

    def set_credentials(self, username: str, password: str) -> None:
        """For those there are, and those that are made from now on."""
        with self._changed:
            self._settings["sasl.username"], self._settings["sasl.password"] = username, password
            for client in self._clients.values():
                self._tell(client)

    def _tell(self, client: Any) -> None:
        client.set_sasl_credentials(self._settings["sasl.username"], self._settings["sasl.password"])
