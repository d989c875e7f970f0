"""The audit topic of each connection: made where it is missing, and checked again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from tidegate.audit.records import AuditTopic
from tidegate.connection.control_topics import NOT_AUTHORIZED, REFUSED, USABLE, WRONG_SETTINGS
from tidegate.connection.live import Live
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.resources.conditions import FROZEN
from tidegate.threads import in_thread

UNAVAILABLE: Final = "Unavailable"
_AGAIN_S: Final = 300.0
"""How old an answer may be by which the topic can be written."""


@dataclass(frozen=True, slots=True)
class _Known:
    digest: str
    checked: TopicsChecked
    at_s: float


class AuditTopics:
    """Whether changes can be recorded. Belongs to the event loop's thread; Kafka is asked in ``executor``."""

    def __init__(self, executor: Executor, is_frozen: Callable[[Live], bool]) -> None:
        """``is_frozen``: whether a connection is now, so that no topic is made."""
        self._executor = executor
        self._is_frozen = is_frozen
        self._known: dict[str, _Known] = {}

    async def checked(self, live: Live) -> TopicsChecked | None:
        """What is known: now, where it was not looked, too long ago, or not well; ``None``: nothing, as the connection
        records nothing or Kafka does not answer."""
        topic = live.audit
        if topic is None:
            self.forget(live.uid)
            return None
        now_s, known = asyncio.get_running_loop().time(), self._known.get(live.uid)
        if known is not None and known.digest == live.digest and known.checked.usable and now_s - known.at_s < _AGAIN_S:
            return known.checked
        try:
            checked = await in_thread(self._executor, _check, live, topic, self._is_frozen)
        except KafkaFailure:
            return None
        self._known[live.uid] = _Known(live.digest, checked, now_s)
        return checked

    def forget(self, connection_uid: str) -> None:
        self._known.pop(connection_uid, None)


def _check(live: Live, topic: AuditTopic, is_frozen: Callable[[Live], bool]) -> TopicsChecked:
    """Raises ``KafkaFailure`` where Kafka does not answer. Through a connection that only observes, or is frozen, it
    creates nothing."""
    frozen = is_frozen(live)
    without = (
        "resets are refused, because spec.audit.required is true"
        if topic.required
        else "changes of offsets are not recorded"
    )
    try:
        if live.observes or frozen:
            untaken = _untaken(live, topic)
            found = live.kafka.audit.ensure(topic) if not live.observes else ()
        else:
            found = live.kafka.audit.ensure(topic)
            untaken = _untaken(live, topic)
    except NotAuthorized as failure:
        return TopicsChecked(False, NOT_AUTHORIZED, f"{failure}; until this is resolved, {without}")
    except Refused as failure:
        if frozen:
            later = "the operator creates it once the connection is no longer frozen"
            return TopicsChecked(False, FROZEN, f"{failure}; {later}; until then, {without}")
        return TopicsChecked(False, REFUSED, f"{failure}; until this is resolved, {without}")
    if untaken is not None:
        return TopicsChecked(False, UNAVAILABLE, f"{untaken}; until this is resolved, {without}")
    if found:
        return TopicsChecked(False, WRONG_SETTINGS, f"changes are recorded, but {'; '.join(found)}")
    return TopicsChecked(True, USABLE, f"changes of offsets are recorded in topic {topic.name}")


def _untaken(live: Live, topic: AuditTopic) -> Unavailable | None:
    """Why nobody could write to it just now, though the cluster answers."""
    try:
        live.kafka.audit.check_writable(topic.name)
    except Unavailable as failure:
        return failure
    return None
