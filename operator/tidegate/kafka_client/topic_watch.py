"""Looking at topics several times a second (``tidegate.kafka.ports.TopicWatch``)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from tidegate.kafka.errors import NotAuthenticated, Unavailable
from tidegate.kafka.model import Topic
from tidegate.kafka_client.metadata import read_topics, topics_start

_TIMEOUT_S: Final = 15.0
_BROKER_TIMEOUT_S: Final = 5.0
_RETRY_PAUSE_S: Final = 0.1
_NO_TOPICS: Final = b"\x01"
"""A compact array without elements."""


class Brokers(Protocol):
    """What a watch asks of the brokers."""

    def brokers(self) -> list[int]: ...

    def metadata(self, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes: ...

    def close(self) -> None:
        """The next call connects anew."""
        ...


class KafkaTopicWatch:
    """Implements ``tidegate.kafka.ports.TopicWatch``. Connects on first use.

    What a broker answers is the same, byte for byte, until a topic, a leader or a replica changes: it is decoded only
    then.
    """

    def __init__(
        self, brokers: Brokers, *, timeout_s: float = _TIMEOUT_S, broker_timeout_s: float = _BROKER_TIMEOUT_S
    ) -> None:
        """``brokers``: connections of the watch's own, which it closes. ``timeout_s``: how long a call tries again;
        ``broker_timeout_s``: how long one broker may take before another one is asked."""
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._broker_timeout_s = broker_timeout_s
        self._closed = False
        self._node: int | None = None
        self._asked: tuple[str, ...] | None = None
        self._bytes: bytes | None = None
        """The topics of the last answer; ``None``: the next call tells whatever it finds."""
        self._seen: Mapping[str, Topic] = {}

    def close(self) -> None:
        self._closed = True
        self._brokers.close()

    def poll(self, topics: Collection[str] | None = None) -> Mapping[str, Topic] | None:
        asked = None if topics is None else tuple(sorted(set(topics)))
        last, self._bytes = self._bytes, None
        known = last is not None and asked == self._asked
        try:
            found, seen = self._look(asked, last if known else None)
        finally:
            if self._closed:
                self._brokers.close()  # closed by another thread meanwhile, it may have connected again
        self._bytes, self._asked = found, asked
        if seen is None:
            return None
        before, self._seen = self._seen, seen
        return None if known and seen == before else seen

    def _look(self, asked: tuple[str, ...] | None, last: bytes | None) -> tuple[bytes, dict[str, Topic] | None]:
        """The topics in a broker's answer as they came, and decoded where they are not those of the ``last``."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            if self._closed:
                raise Unavailable("look at the topics: the connection was closed")
            if asked == ():
                return _NO_TOPICS, None if last == _NO_TOPICS else {}
            for node in self._nodes():
                try:
                    answer = self._brokers.metadata(node, asked, timeout_s=self._broker_timeout_s)
                    found = answer[topics_start(answer) :]
                    seen = None if found == last else self._decoded(found)
                except Unavailable as error:
                    if isinstance(error, NotAuthenticated) or time.monotonic() > deadline:
                        # All may have moved: the next call finds them through the bootstrap servers again.
                        self._brokers.close()
                        raise
                else:
                    self._node = node
                    return found, seen
            time.sleep(_RETRY_PAUSE_S)

    def _nodes(self) -> list[int]:
        """The brokers, the one that answered last before the others."""
        return sorted(self._brokers.brokers(), key=lambda node: node != self._node)

    def _decoded(self, found: bytes) -> dict[str, Topic]:
        topics = read_topics(found)
        for name, topic in topics.items():
            before = self._seen.get(name)
            # Only a broker that lags behind the one before it lists fewer.
            if before is not None and before.topic_id == topic.topic_id and before.partitions > topic.partitions:
                topics[name] = before
        return topics
