"""Green threads: gevent and eventlet can replace all threads of a process by their own, which share one real thread.

The agent's threads wait in calls of librdkafka. As green threads they would block all others, the application's too.
"""

from __future__ import annotations

import logging
import sys

from tidegate_agent.start import LATEST_MAX_AGE, NEW_PARTITIONS, Rule
from tidegate_agent.troubles import Troubles

log = logging.getLogger("tidegate_agent")

_troubles = Troubles()


def whose() -> str | None:
    """Which library has replaced this process's threads."""
    if _says("gevent.monkey", "is_module_patched", "threading"):
        return "gevent"
    return "eventlet" if _says("eventlet.patcher", "is_monkey_patched", "thread") else None


def _says(module: str, question: str, of: str) -> bool:
    """The module may be half imported, or another one than it is taken for."""
    asked = getattr(sys.modules.get(module), question, None)
    try:
        return asked is not None and asked(of) is True
    except (AttributeError, NameError, TypeError, LookupError, ValueError):
        return False


def keep_out(rule: Rule | None) -> bool:
    """Whether the agent has to keep out of a consumer that is being made; it says so once. ``rule``: the consumer's, of
    which nothing comes then.
    """
    library = whose()
    if library is None:
        return False
    _troubles.say(
        "green threads",
        f"{library} has replaced this process's threads, so the agent does not work here: it does not manage the "
        "partitions of this process's consumers, and they obey no pause",
    )
    if rule is not None:
        _troubles.say(
            "rule",
            f"{LATEST_MAX_AGE} and {NEW_PARTITIONS} have no effect in a process whose threads {library} has replaced: "
            "auto.offset.reset alone decides where new partitions begin",
        )
    return True
