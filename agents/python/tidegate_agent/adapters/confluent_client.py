"""The client library's own classes, which the agent calls where it has put others in their place, and small calls of
them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import cimpl

from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import plain
from tidegate_agent.start import Start

Consumer: Final[Any] = plain(cimpl.Consumer)
Producer: Final[Any] = plain(cimpl.Producer)
TopicPartition: Final[Any] = cimpl.TopicPartition
OFFSET_INVALID: Final = cimpl.OFFSET_INVALID
OFFSET_OF: Final = {Start.EARLIEST: cimpl.OFFSET_BEGINNING, Start.LATEST: cimpl.OFFSET_END}

identity_var: Final[Any] = getattr(cimpl, "_reentry_identity_var", None)
HAS_GIL: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()


def identity() -> int:
    """As whom this thread's calls go into a consumer."""
    identity: int = identity_var.get() if identity_var is not None else 0
    return identity or threading.get_ident()


def is_true(value: object, default: bool) -> bool:
    if value is None:
        return default
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "t", "1")


def listed(partitions: Iterable[Partition]) -> list[Any]:
    return [TopicPartition(topic, number) for topic, number in partitions]


def key(partition: Any) -> Partition:
    return Partition(partition.topic, partition.partition)


def key_of(message: Any) -> Partition:
    return Partition(message.topic(), message.partition())


def tell_twice(call: Callable[[Any, list[Any]], None], consumer: Any, partitions: list[Any]) -> None:
    """Pause or resume. The first one may be dropped, the second one finds done what the first one crossed."""
    call(consumer, partitions)
    call(consumer, partitions)
