"""What the brokers say of topics: their ids, and the offset after the last record of a control topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka.cimpl import KafkaError, KafkaException, TopicPartition

from tidegate_agent.time_outs import TIME_OUTS

log = logging.getLogger("tidegate_agent")

REQUEST_S: Final = 5.0
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


@dataclass(frozen=True)
class Topic:
    """The control topic at one moment: which one it is, and the offset after its last record."""

    topic_id: str
    end: int


def topic_now(admin: Any, name: str) -> Topic:
    """Of a topic with one partition. Raises ``KafkaException`` and one of ``TIME_OUTS``."""
    from confluent_kafka.admin import OffsetSpec

    partition = TopicPartition(name, 0)
    found_id = topic_id(admin, name)
    found = admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=REQUEST_S)[partition]
    return Topic(found_id, found.result(REQUEST_S + 1).offset)


_Found = TypeVar("_Found")


def unless_absent(ask: Callable[[], _Found]) -> _Found | None:
    """``None`` where the brokers say that the topic asked for is not there. Raises ``KafkaException``."""
    try:
        return ask()
    except KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        raise
    except TIME_OUTS:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from None


_URL_SAFE: Final = str.maketrans("+/", "-_")


def _text_of(topic_id: Any) -> str:
    """A topic's id as Kafka's tools and the operator's records have it; librdkafka writes it with ``+`` and ``/``."""
    return str(topic_id).translate(_URL_SAFE)


def topic_id(admin: Any, topic: str) -> str:
    """Raises ``KafkaException`` and one of ``TIME_OUTS``."""
    from confluent_kafka import TopicCollection

    described = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_S)[topic]
    return _text_of(described.result(REQUEST_S + 1).topic_id)


def topic_ids(admin: Any, topics: Collection[str]) -> dict[str, str]:
    """By name the ids of those topics of which the brokers tell it."""
    from confluent_kafka import TopicCollection

    found = {}
    for topic, described in admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_S).items():
        try:
            found[topic] = _text_of(described.result(REQUEST_S + 1).topic_id)
        except (KafkaException, *TIME_OUTS) as error:
            log.debug("topic %s cannot be described: %s", topic, error)
    return found
