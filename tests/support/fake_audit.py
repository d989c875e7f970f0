"""Audit topics in memory."""

from __future__ import annotations

from collections import defaultdict

from tidegate.audit.codec import decode_change
from tidegate.audit.records import AuditTopic, Change
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable


class FakeAuditLog:
    """Implements ``tidegate.audit.ports.AuditLog``.

    ``refuses``: what every call raises, and every append, by topic. ``leaderless``: topics that nobody leads.
    ``values``: what was committed, by topic.
    """

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.refuses: dict[str, KafkaFailure] = {}
        self.leaderless: set[str] = set()
        self.values: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)

    def ensure(self, topic: AuditTopic) -> tuple[str, ...]:
        self._check(topic.name)
        self.topics.add(topic.name)
        return ()

    def check_writable(self, name: str) -> None:
        self._check(name)
        if name not in self.topics:
            raise Refused(f"write to audit topic {name}: there is no such topic")
        if name in self.leaderless:
            raise Unavailable(f"write to audit topic {name}: there is no leader")

    def check_append(self, name: str) -> None:
        self._check(name)

    def changes(self, topic: str) -> list[Change]:
        return [decode_change(value).change for _, value in self.values[topic]]

    def _check(self, name: str) -> None:
        if name in self.refuses:
            raise self.refuses[name]
