"""What one process has once: the settings, a link for each cluster and identity, and what a fork makes of them."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate_agent.control import ControlLink
from tidegate_agent.own_clients import connection_settings
from tidegate_agent.settings import Settings, read_settings

log = logging.getLogger("tidegate_agent")

SETTLE_S: Final = 1.0
"""A fork waits no longer than this for the agent's own clients to be connected."""


@dataclass
class _Process:
    pid: int = field(default_factory=os.getpid)
    settings: Settings | None = None
    lock: Any = field(default_factory=threading.Lock)
    links: dict[tuple[tuple[str, object], ...], ControlLink] = field(default_factory=dict)


_process = _Process()
_of_parents: list[object] = []
"""Never let go: destroying a client whose threads are not of this process would hang."""


def _before_fork() -> None:
    # librdkafka has glibc look up an address for each connection, and glibc does not free the lock that this takes in
    # a child: forked at that moment, the child could never look one up, and its clients never connect.
    until = time.monotonic() + SETTLE_S
    for each in list(_process.links.values()):
        each.settle(until)


def _forked() -> None:
    _of_parents.append(_process.links)
    _process.links, _process.lock, _process.pid = {}, threading.Lock(), os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_forked)


def settings() -> Settings:
    """The process's settings, read once. Raises ``SettingsError``."""
    if _process.settings is None:
        _process.settings = read_settings(os.environ)
        _log_as(_process.settings)
        for complaint in _process.settings.complaints:
            log.error("%s", complaint)
    return _process.settings


def link(config: Mapping[str, Any]) -> ControlLink:
    """The link for consumers with this connection (librdkafka's settings); those that share one share the link.

    Raises ``SettingsError``.
    """
    wanted = settings()
    connection = connection_settings(config)
    key = tuple(sorted(((k, _comparable(v)) for k, v in connection.items() if k != "client.id"), key=lambda kv: kv[0]))
    with _process.lock:
        found = _process.links.get(key)
        if found is None:
            found = _process.links[key] = ControlLink(connection, wanted.control_topic, wanted.acks_topic)
        return found


def is_of_this_process(pid: int) -> bool:
    """Whether what was made under this process id still has its threads."""
    return pid == _process.pid


def pid() -> int:
    """This process's id, without asking the system."""
    return _process.pid


def _comparable(value: object) -> object:
    """Callables too: a method is another object each time that it is named, and yet the same."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _log_as(wanted: Settings) -> None:
    if wanted.log_level is None:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(wanted.log_level)
    log.propagate = False
