"""Looking at topics several times a second (``tidegate.kafka.ports.TopicWatch``)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.metadata import Unreadable, read_topics, topics_start
from tidegate.kafka.model import Topic
from tidegate.kafka.wire import Wire

_TIMEOUT_S: Final = 15.0
_BROKER_TIMEOUT_S: Final = 5.0
_RETRY_PAUSE_S: Final = 0.1
_NO_TOPICS: Final = b"\x01"
"""A compact array without elements."""


class KafkaTopicWatch:
    """Implements ``tidegate.kafka.ports.TopicWatch``. Connects on first use.

    What a broker answers is the same, byte for byte, until a topic, a leader or a replica changes: it is decoded only
    then.
    """

    def __init__(self, wire: Wire, *, broker_timeout_s: float = _BROKER_TIMEOUT_S) -> None:
        """``wire``: the watch's own; ``broker_timeout_s``: how long a broker may take before another one is asked."""
        self._wire = wire
        self._broker_timeout_s = broker_timeout_s
        self._closed = False
        self._node: int | None = None
        self._asked: tuple[str, ...] | None = None
        self._bytes: bytes | None = None
        """The topics of the last answer; ``None``: the next call tells whatever it finds."""
        self._seen: Mapping[str, Topic] = {}

    def close(self) -> None:
        self._closed = True
        self._wire.close()

    def poll(self, topics: Collection[str] | None = None) -> Mapping[str, Topic] | None:
        asked = None if topics is None else tuple(sorted(set(topics)))
        last, self._bytes = self._bytes, None
        found = self._look(asked)
        known = last is not None and asked == self._asked
        self._bytes, self._asked = found, asked
        if known and found == last:
            return None
        seen = self._read(found)
        before, self._seen = self._seen, seen
        return None if known and seen == before else seen

    def _read(self, found: bytes) -> dict[str, Topic]:
        try:
            topics = read_topics(found)
        except Unreadable as error:
            self._bytes = None
            raise Unavailable(f"look at the topics: {error}") from error
        for name, topic in topics.items():
            before = self._seen.get(name)
            # Only a broker that lags behind the one before it lists fewer.
            if before is not None and before.topic_id == topic.topic_id and before.partitions > topic.partitions:
                topics[name] = before
        return topics

    def _look(self, asked: tuple[str, ...] | None) -> bytes:
        """The topics in a broker's answer, as they came. Another broker is asked where one does not answer."""
        if asked == ():
            return _NO_TOPICS
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            if self._closed:
                raise Unavailable("look at the topics: the connection was closed")
            for node in self._nodes():
                try:
                    answer = self._wire.metadata(node, asked, timeout_s=self._broker_timeout_s)
                    self._node = node
                    return answer[topics_start(answer) :]
                except Unreadable as error:
                    failure = Unavailable(f"look at the topics: {error}")
                except Unavailable as error:
                    failure = error
                if time.monotonic() > deadline:
                    # All may have moved: the next call finds them through the bootstrap servers again.
                    self._wire.close()
                    raise failure
            time.sleep(_RETRY_PAUSE_S)

    def _nodes(self) -> list[int]:
        """The brokers, the one that answered last before the others."""
        return sorted(self._wire.brokers(), key=lambda node: node != self._node)
