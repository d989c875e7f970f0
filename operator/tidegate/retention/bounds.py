"""Where the logs of offsets that are to be put back begin and end, as far as their leaders tell."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kafka.ports import CommittedReader

_log = logging.getLogger(__name__)

_FAILURES: Final = 16
"""So many calls may fail: each may wait some seconds for a leader."""


def told_bounds(kafka: CommittedReader, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
    """Those that can be read: partitions without a leader must not hold up the others, however many they are.

    Whose leaders tell is asked first, which waits for nobody. What fails all the same is found by halves.
    """
    found: dict[TopicPartition, LogBounds] = {}
    try:
        told = kafka.last_stable_offsets(partitions, as_told=True)
    except KafkaFailure as failure:
        _log.warning("%d offset(s) are not restored yet: %s", len(partitions), failure)
        return found
    left, failures = [[p for p in partitions if p in told]], 0
    silent = len(partitions) - len(left[0])
    if silent:
        first = next(p for p in partitions if p not in told)
        _log.warning(
            "%d offset(s), such as the one of %s, are not restored yet, because no leader says where their logs end",
            silent,
            first,
        )
    while left and failures < _FAILURES:
        some = left.pop()
        try:
            found |= kafka.log_bounds(some) if some else {}
        except KafkaFailure as failure:
            failures += 1
            middle = len(some) // 2
            if middle:
                left += [some[middle:], some[:middle]]
            else:
                _log.warning("the offset of %s is not restored yet: %s", some[0], failure)
    return found
