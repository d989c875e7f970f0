"""Threads that are none: gevent and eventlet may put their own in the place of all threads of a process.

The agent's threads wait in calls of librdkafka, and would have all others wait as well, the application's among them.
"""

from __future__ import annotations

import logging
import sys

from tidegate_agent.troubles import Troubles

log = logging.getLogger("tidegate_agent")

_troubles = Troubles()


def whose() -> str | None:
    """Which library has replaced this process's threads."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet"
    return None


def keep_out() -> bool:
    """Whether the agent has to keep out of a consumer that is being made; it says so once."""
    library = whose()
    if library is not None:
        _troubles.say(
            "green threads",
            f"{library} has replaced this process's threads, with which the agent does not work: its consumers' "
            "partitions are not managed, and no gate is obeyed",
        )
    return library is not None
