"""A connection through which nothing new begins, while what runs goes on and what is held stays held. Pure.

Whoever begins something asks ``Live.frozen``, beside ``Live.observes``: other than there everything can be written, so
that what was begun can be ended, rolled back and released. A pass does so as it looks, to say why nothing begins. What
it saw may be seconds old by the time it acts, as it may have waited for a thread: so whoever acts asks again, by
``begin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.connection.status import Said
from tidegate.resources.conditions import FROZEN, OBSERVING, Refusal
from tidegate.resources.connection import KafkaConnectionSpec
from tidegate.resources.timestamps import format_timestamp

T = TypeVar("T")

NOTHING_NEW: Final = "Nothing new begins; what has begun continues"


class FrozenMeanwhile(Exception):
    """The connection was frozen after the look by which something was to begin: it has not begun."""


def begin(is_frozen: Callable[[Live], bool], live: Live, start: Callable[[], T]) -> T:
    """What ``start`` returns, called in the thread that makes the start, as the last thing before it: whoever froze the
    connection until then was, or will be, told that nothing new begins. ``is_frozen``: ``LiveConnections.is_frozen``.
    Raises ``FrozenMeanwhile``, and what ``start`` raises."""
    if is_frozen(live):
        raise FrozenMeanwhile(f"KafkaConnection {live.label} has been frozen in the meantime")
    return start()


def frozen_by(spec: KafkaConnectionSpec) -> str:
    """Who has frozen it, when and why; empty: nobody has."""
    if spec.freeze is None:
        return ""
    by = f" by {spec.freeze.by}" if spec.freeze.by is not None else ""
    since = f" since {format_timestamp(spec.freeze.since)}" if spec.freeze.since is not None else ""
    return f"frozen{by}{since}: {spec.freeze.reason}"


def frozen_said(spec: KafkaConnectionSpec) -> Said:
    """The condition of the connection."""
    frozen = frozen_by(spec)
    return Said(FROZEN, True, FROZEN, f"{frozen}. {NOTHING_NEW}") if frozen else Said(FROZEN, None)


def frozen(live: Live) -> Refusal | None:
    """Why nothing new may begin through it now."""
    if not live.frozen:
        return None
    return Refusal(
        FROZEN, f"KafkaConnection {live.label} is {live.frozen}. Nothing new begins until spec.freeze is removed"
    )


def held_back(live: Live) -> Refusal | None:
    """The same, also where the connection only observes."""
    return Refusal(OBSERVING, observes(live.label)) if live.observes else frozen(live)
