"""What librdkafka's errors and timestamps mean here, and where its log goes."""

from __future__ import annotations

import logging
from operator import methodcaller
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka.rights import Resource, Right, to_grant
from tidegate.kafka_client.codes import FENCED, NOT_AUTHORIZED, UNREACHABLE


def failure(error: KafkaError, what: str, *needs: Right) -> KafkaFailure:
    """The failure that librdkafka's error means. ``needs``: the rights that were needed, for who lacks one."""
    code = error.code()
    text = f"{what}: {error.str()} ({error.name()})"
    if code in FENCED:
        return Fenced(text)
    if code in NOT_AUTHORIZED:
        refused: Resource | None = NOT_AUTHORIZED[code]
        if refused is Resource.CLUSTER:
            # A producer that may write to no topic at all is refused its id, as if that took a right on the cluster.
            refused = None
        return NotAuthorized(f"{text}{to_grant(needs, refused)}")
    if code in UNREACHABLE or error.retriable():
        return Unavailable(text)
    return Refused(text)


def is_about_its_group(error: KafkaError) -> bool:
    """Whether a reader of assigned partitions may go on all the same: librdkafka looks for the coordinator of the group
    id that it has to be given, which its principal needs no right on, as nothing is asked of it."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


_headers: Final = methodcaller("headers")
"""Looks for an exception after each call. The interpreter does not where it has called a method often before, and then
whatever is called next fails."""


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """A record's headers; ``None`` where the name of one is not UTF-8. Kafka's clients write no such name."""
    try:
        return list(_headers(message) or ())
    except UnicodeDecodeError:
        return None
    except SystemError as error:
        # The library returns a list all the same, and Python complains of that.
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        return None


def silent_logger() -> logging.Logger:
    """For librdkafka, whose lines repeat what its errors say."""
    logger = logging.getLogger("tidegate.kafka_client.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def log_append_time(message: Message) -> int | None:
    """Epoch milliseconds by the broker's clock; ``None`` where the topic has other timestamps."""
    kind, at_ms = message.timestamp()
    return at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None
