"""How the agent gets into a process: before the application imports its client library.

No client library is imported from here: processes that use none pay nothing. Nothing here ever stops the application:
where the agent cannot start, it says so and stays out.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

from tidegate_agent.settings import SettingsError, is_on, read_settings

log = logging.getLogger("tidegate_agent")

_ADAPTERS = {
    "confluent_kafka.cimpl": ("tidegate_agent.adapters.confluent", "install"),
    "aiokafka.consumer.consumer": ("tidegate_agent.adapters.aiokafka", "install_consumer"),
    "aiokafka.producer.producer": ("tidegate_agent.adapters.aiokafka", "install_producer"),
    "kafka.consumer.group": ("tidegate_agent.adapters.kafka_python", "install_consumer"),
    "kafka.producer.kafka": ("tidegate_agent.adapters.kafka_python", "install_producer"),
}
"""By the module whose import is waited for: the adapter, and its function that takes the module."""

_started: list[str] = []


def start() -> None:
    """Manage the consumers that this process will make, if ``TIDEGATE_AGENT`` says so."""
    try:
        if not is_on(os.environ) or _started:
            return
        read_settings(os.environ)
        import wrapt
    except (SettingsError, ImportError) as error:
        log.error("the agent stays out: %s", error)
        return
    for module, (adapter, function) in _ADAPTERS.items():
        _started.append(module)
        wrapt.register_post_import_hook(_install_with(adapter, function), module)


def _install_with(adapter: str, function: str) -> Callable[[Any], None]:
    def install(module: Any) -> None:
        try:
            # The way to the control topic needs it; imported from there, its own adapter would find that half imported.
            importlib.import_module("confluent_kafka.cimpl")
            getattr(importlib.import_module(adapter), function)(module)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            log.error("the agent stays out of %s: %r", module.__name__, error)

    return install
