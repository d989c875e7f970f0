"""How the agent gets into a process: before the application imports its client library.

No client library is imported from here: processes that use none pay nothing. Nothing here ever stops the application:
where the agent cannot start, it says so and stays out. Only where ``TIDEGATE_STRICT`` asks for it, and a setting is
wrong, the process ends.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from tidegate_agent.settings import STRICT, SettingsError, is_on, is_strict, read_settings

log = logging.getLogger("tidegate_agent")

_ADAPTERS = {
    "confluent_kafka.cimpl": ("tidegate_agent.adapters.confluent", "install"),
    "aiokafka.consumer.consumer": ("tidegate_agent.adapters.aiokafka", "install_consumer"),
    "aiokafka.producer.producer": ("tidegate_agent.adapters.aiokafka", "install_producer"),
    "kafka.consumer.group": ("tidegate_agent.adapters.kafka_python", "install_consumer"),
    "kafka.producer.kafka": ("tidegate_agent.adapters.kafka_python", "install_producer"),
}
"""By the module whose import is waited for: the adapter, and its function that takes the module."""

_LEAST_RELEASE: Final = (2, 6)
"""Of confluent-kafka: earlier ones do not tell all that is asked about topics."""

_started: list[str] = []


def start() -> None:
    """Manage the consumers that this process will make, if ``TIDEGATE_AGENT`` says so.

    Where that is wrong and ``TIDEGATE_STRICT`` is on, the process ends.
    """
    try:
        if not is_on(os.environ) or _started:
            return
        read_settings(os.environ)
        import wrapt
    except SettingsError as error:
        if is_strict(os.environ):
            _refuse(error)
        log.error("the agent stays out: %s", error)
        return
    except ImportError as error:
        log.error("the agent stays out: %s", error)
        return
    for module, (adapter, function) in _ADAPTERS.items():
        _started.append(module)
        wrapt.register_post_import_hook(_install_with(adapter, function), module)


def _refuse(error: SettingsError) -> NoReturn:
    """Python is only about to start: it would report an exception as an error of its own, or pass over it."""
    sys.stderr.write(f"Tidegate refuses to start this process, for {STRICT} is on: {error}\n")
    sys.stderr.flush()
    os._exit(1)


def _require_release(cimpl: Any) -> None:
    """The control topic is read with the application's own confluent-kafka, if it has one. Raises ``ImportError``."""
    told = cimpl.version()
    release = told if isinstance(told, str) else told[0]
    if tuple(int(number) for number in re.findall("[0-9]+", release)[:2]) < _LEAST_RELEASE:
        least = ".".join(map(str, _LEAST_RELEASE))
        raise ImportError(f"confluent-kafka {release} is installed, and {least} or later is needed")


def _install_with(adapter: str, function: str) -> Callable[[Any], None]:
    def install(module: Any) -> None:
        try:
            # The way to the control topic needs it; imported from there, its own adapter would find that half imported.
            _require_release(importlib.import_module("confluent_kafka.cimpl"))
            getattr(importlib.import_module(adapter), function)(module)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, SettingsError) and is_strict(os.environ):
                raise  # The application changed its environment itself; its import of the client library fails.
            log.error("the agent stays out of %s: %r", module.__name__, error)

    return install
