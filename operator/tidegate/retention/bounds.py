"""Where the logs of offsets that are to be put back begin and end, as far as their leaders tell."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kafka.ports import ClusterReader

_log = logging.getLogger(__name__)

_FAILURES: Final = 16
"""So many calls may fail: each may wait some seconds for a leader."""


def told_bounds(kafka: ClusterReader, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
    """Those that can be read: one partition without a leader must not hold up the others. It is found by halves."""
    found: dict[TopicPartition, LogBounds] = {}
    left, failures = [partitions], 0
    while left and failures < _FAILURES:
        some = left.pop()
        try:
            found |= kafka.log_bounds(some)
        except KafkaFailure as failure:
            failures += 1
            middle = len(some) // 2
            if middle:
                left += [some[middle:], some[:middle]]
            else:
                _log.warning("the offset of %s is not restored yet: %s", some[0], failure)
    return found
