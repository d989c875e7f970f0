"""A connection through which nothing new begins, while what runs goes on and what is held stays held. Pure.

Whoever begins something asks ``Live.frozen``, beside ``Live.observes``: other than there everything can be written, so
that what was begun can be ended, rolled back and released.
"""

from __future__ import annotations

from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.connection.status import Said
from tidegate.resources.conditions import FROZEN, OBSERVING, Refusal
from tidegate.resources.connection import KafkaConnectionSpec
from tidegate.resources.timestamps import format_timestamp


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
    return Said(FROZEN, True, FROZEN, f"{frozen}. Nothing new begins") if frozen else Said(FROZEN, None)


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
