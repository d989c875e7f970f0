"""What a task of a mirror's job says of its share of the partitions: one ConfigMap for each share. Pure.

Whoever may write ConfigMaps can write here too. So what is said is taken for no more than a report: where copies end is
compared with the target itself, and how old what they have is, with when something was heard last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.compressed import pack, unpack
from tidegate.kafka.model import TopicPartition
from tidegate.versions import MIRROR_REPORT, VERSION, check, said

BEAT_S: Final = 2.0
"""How often a task says how its copies stand."""
MOST_OF_A_SHARE: Final = 2_000
"""Partitions, so that what is said of them stays far below what a ConfigMap may be."""
FIRST_ID: Final = -1
_MESSAGES: Final = 50
"""Partitions of which more is said than their state."""
_MESSAGE: Final = 500
_LIMIT_BYTES: Final = 4 << 20
_REPORT: Final = "report"
_LAUNCH: Final = "launch"
_LARGEST: Final = 2**63 - 1
_SEE_OTHERS: Final = "as others of this mirror"


class BadReport(ValueError):
    """Nothing that a task has written; the message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One partition's copy. ``offset``: up to where it agrees with the source; ``None``: not known yet. ``stopped``:
    why nothing is written to it until somebody does something; ``trouble``: why it does not get on for now."""

    offset: int | None = None
    producer_id: int | None = None
    stopped: str = ""
    drifted: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """``attempt``: of the task, larger than those of its predecessors in the same launch; 0: no task has said anything.
    ``beat``: counts what the task has said. ``wants_id_after``: it needs the producer id that follows this one, or the
    first one (``FIRST_ID``). ``records`` and ``size`` (bytes): written by this attempt."""

    launch: str
    attempt: int = 0
    beat: int = 0
    rows: Mapping[TopicPartition, Row] = field(default_factory=dict)
    wants_id_after: int | None = None
    records: int = 0
    size: int = 0
    trouble: str = ""


LastWords = dict[tuple[str, int], tuple[Report, float | None]]
"""By launch and place, what a task has said last, and when that was heard (monotonic, seconds). ``None``: it was there
when this process began to listen, so that nobody knows how old it is."""


def encode_report(report: Report) -> dict[str, str]:
    """The ConfigMap's ``data``."""
    told, rows = 0, []
    for partition, row in sorted(report.rows.items()):
        message = (row.stopped or row.trouble)[:_MESSAGE]
        if message:
            message, told = (message if told < _MESSAGES else _SEE_OTHERS), told + 1
        state = 2 if row.drifted else 1 if row.stopped else 0
        rows.append([partition.topic, partition.partition, row.offset, row.producer_id, state, message])
    raw = {
        "attempt": report.attempt,
        "beat": report.beat,
        "wantsIdAfter": report.wants_id_after,
        "records": report.records,
        "size": report.size,
        "trouble": report.trouble[:_MESSAGE],
        "rows": rows,
    }
    text = pack(json.dumps(raw, separators=(",", ":")).encode())
    return {VERSION: said(MIRROR_REPORT), _LAUNCH: report.launch, _REPORT: text}


def decode_report(data: Mapping[str, str], where: str = "it") -> Report:
    """Raises ``NewerVersion`` and ``BadReport``."""
    try:
        check(MIRROR_REPORT, data.get(VERSION), where)
        raw = json.loads(unpack(data[_REPORT], _LIMIT_BYTES))
        rows = dict(map(_row, raw["rows"]))
        numbers = [_count(raw[name]) for name in ("attempt", "beat", "records", "size")]
        return Report(
            launch=str(data[_LAUNCH]),
            attempt=numbers[0],
            beat=numbers[1],
            rows=rows,
            wants_id_after=FIRST_ID if raw["wantsIdAfter"] == FIRST_ID else _known(raw["wantsIdAfter"]),
            records=numbers[2],
            size=numbers[3],
            trouble=str(raw["trouble"])[:_MESSAGE],
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadReport(f"{where} is not a report of a mirror's task: {error}") from error


def _row(raw: Any) -> tuple[TopicPartition, Row]:
    topic, partition, offset, producer_id, state, message = raw
    if not isinstance(topic, str) or not isinstance(message, str) or state not in (0, 1, 2):
        raise ValueError("a row has the wrong form")
    stopped = (message[:_MESSAGE] or "the task does not say why") if state else ""
    row = Row(_known(offset), _known(producer_id), stopped, state == 2, "" if state else message[:_MESSAGE])
    return TopicPartition(topic, _count(partition)), row


def _known(value: Any) -> int | None:
    return None if value is None else _count(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from 0 on, or is too large")
    return value
