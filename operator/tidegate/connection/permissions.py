"""What a connection's principal lacks in Kafka, as the brokers tell it of itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.status import Said
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.needed_rights import Need, Role, Scope, checkable, needs_of
from tidegate.resources.conditions import PERMISSIONS
from tidegate.resources.connection import AllowSpec

GRANTED: Final = "Granted"
MISSING: Final = "Missing"

AGAIN_S: Final = 300.0
"""How old an answer may be."""
_SOON_S: Final = 60.0
"""The same where something was missing: somebody may be granting it. Where nobody has answered, the next question waits
as long: it takes a thread that others need.
"""
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class _Checked:
    digest: str
    scope: Scope
    at_s: float
    said: Said


def scope_of(live: Live) -> Scope:
    audit = live.audit.name if live.audit is not None else ""
    return scope_in(live.connection.control_topic, live.connection.acks_topic, live.allow, audit)


def scope_in(control_topic: str, acks_topic: str, allow: AllowSpec, audit_topic: str) -> Scope:
    return Scope(control_topic, acks_topic, allow.groups, allow.topics, audit_topic, allow.dead_letter_topics)


class PermissionsOfConnections:
    """Belongs to the event loop's thread; Kafka is asked in ``executor``."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._checked: dict[str, _Checked] = {}
        self._unanswered_s: dict[str, float] = {}

    async def of(self, live: Live) -> Said | None:
        """What is known, asked anew where that is old; ``None``: nothing is."""
        loop = asyncio.get_running_loop()
        known, scope = self._checked.get(live.uid), scope_of(live)
        if known is not None and (known.digest, known.scope) == (live.digest, scope):
            may_be_s = AGAIN_S if known.said.holds else _SOON_S
            if loop.time() - known.at_s < may_be_s:
                return known.said
        if loop.time() - self._unanswered_s.get(live.uid, -_SOON_S) < _SOON_S:
            return None
        needs = needs_of(Role.OPERATOR, scope)
        rights = checkable(needs)
        try:
            lacking = await loop.run_in_executor(self._executor, live.kafka.lacking, rights)
        except KafkaFailure:
            # What was found before may be no more; whether the cluster answers is said elsewhere.
            self._unanswered_s[live.uid] = loop.time()
            return None
        said = said_of([need for need in needs if need.right in lacking], asked=len(rights))
        self._checked[live.uid] = _Checked(live.digest, scope, loop.time(), said)
        return said

    def forget(self, connection_uid: str) -> None:
        self._checked.pop(connection_uid, None)
        self._unanswered_s.pop(connection_uid, None)


def said_of(lacking: list[Need], *, asked: int) -> Said:
    """The condition. Pure."""
    if not lacking:
        # Topics that are not there, and brokers that do not tell, leave some unknown.
        told = f"none of the {asked} permissions that brokers can be asked about is known to be missing"
        return Said(PERMISSIONS, True, GRANTED, told)
    shown = "; ".join(f"{need.right} ({need.why}): {need.right.option}" for need in lacking[:_SHOWN])
    more = f"; and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    return Said(
        PERMISSIONS,
        False,
        MISSING,
        f"the principal lacks {shown}{more}. Grant each by kafka-acls --add --allow-principal User:NAME with "
        "the options given; tidegate acls prints all of them",
    )
