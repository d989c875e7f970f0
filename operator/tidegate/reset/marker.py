"""A mark that is committed in the same Kafka transaction as a reset's offsets: was that transaction committed, or not?

A writer may die after it asked for the commit. Its successor cannot tell from the offsets of a live group, whose
owners commit all the time. So each transaction of a run also commits an offset of a *marker group*, which no consumer
ever joins, and the offset's value names run and round. Transactions span groups, all or none (ADR 5).

The marker says nothing through commit metadata, needs Read on group ``tidegate.<group>``, and expires like the offsets
of any group without members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from tidegate.kafka.model import TopicPartition

_ROUND_BITS: Final = 8
_RUN_BITS: Final = 52
MAX_ROUND: Final = (1 << _ROUND_BITS) - 1


_PREFIX: Final = "tidegate."


def marker_group(group_id: str) -> str:
    return f"{_PREFIX}{group_id}"


def is_marker_group(group_id: str) -> bool:
    return group_id.startswith(_PREFIX)


def marker_partition(partitions: Iterable[TopicPartition]) -> TopicPartition | None:
    """Of a plan's partitions that exist, the first; ``None`` where there is none."""
    return min(partitions, default=None)


def marker_offset(run_uid: str, round_number: int) -> int:
    """The offset to commit. Raises ``ValueError`` for a round outside 1..255."""
    if not 1 <= round_number <= MAX_ROUND:
        raise ValueError(f"round {round_number} is outside 1..{MAX_ROUND}")
    return _run_number(run_uid) << _ROUND_BITS | round_number


def committed_round(run_uid: str, offset: int | None) -> int:
    """The last round of this run whose transaction was committed; 0 for none."""
    if offset is None or offset >> _ROUND_BITS != _run_number(run_uid):
        return 0
    return offset & MAX_ROUND


def _run_number(run_uid: str) -> int:
    digest = hashlib.sha256(run_uid.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _RUN_BITS)
