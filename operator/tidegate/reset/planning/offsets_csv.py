"""The CSV of ``kafka-consumer-groups --export`` and ``--from-file``: offsets named partition by partition. Pure.

Two forms, both without a header (``org.apache.kafka.tools.consumer.group.CsvUtils``): ``topic,partition,offset`` for
one group and ``group,topic,partition,offset`` for several.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tidegate.reset.model.targets import PartitionOffset

EXPECTED: Final = (
    "expected topic,partition,offset or group,topic,partition,offset, as kafka-consumer-groups --export writes"
)

_MAX_PARTITION: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


class BadOffsetsFile(ValueError):
    """The text is not such a CSV. The message names the line, what is there, and what is expected."""


def parse_offsets(text: str, group_id: str) -> tuple[PartitionOffset, ...]:
    """The offsets for one group, sorted by topic and partition.

    All rows have the same form; of the form with a group, other groups' rows are left out. Blank lines and CRLF are
    fine, and so is a row that is there twice. Raises ``BadOffsetsFile``.
    """
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    width = 0
    groups: set[str] = set()
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for row in rows:
            line = rows.line_num
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) not in (3, 4):
                raise BadOffsetsFile(f"line {line} has {len(cells)} column(s): {EXPECTED}")
            if width and len(cells) != width:
                raise BadOffsetsFile(
                    f"line {line} has {len(cells)} columns where earlier ones have {width}: {EXPECTED}"
                )
            width = len(cells)
            group, topic, partition_text, offset_text = [group_id, *cells] if width == 3 else cells
            if not group or not topic:
                raise BadOffsetsFile(f"line {line} has no {'topic' if group else 'group'}: {EXPECTED}")
            partition = _number(partition_text, _MAX_PARTITION, "partition", line)
            offset = _number(offset_text, _MAX_OFFSET, "offset", line)
            groups.add(group)
            if group != group_id:
                continue
            known, known_line = offsets.setdefault((topic, partition), (offset, line))
            if known != offset:
                raise BadOffsetsFile(
                    f"line {line} sets {topic}-{partition} to {offset}, but line {known_line} to {known}: expected one "
                    "row"
                )
    except csv.Error as error:
        raise BadOffsetsFile(f"line {rows.line_num} is not CSV ({error}): {EXPECTED}") from error
    if not groups:
        raise BadOffsetsFile(f"there is no row: {EXPECTED}")
    if group_id not in groups:
        names = ", ".join(sorted(groups)[:10])
        raise BadOffsetsFile(f"there is no row for group {group_id}, only for {names}")
    return tuple(PartitionOffset(topic, partition, o) for (topic, partition), (o, _) in sorted(offsets.items()))


def write_offsets(offsets: Iterable[PartitionOffset]) -> str:
    """``topic,partition,offset``: what ``--export`` writes for one group and ``--from-file`` reads."""
    return _written([(o.topic, o.partition, o.offset) for o in offsets])


def write_group_offsets(offsets: Mapping[str, Collection[PartitionOffset]]) -> str:
    """``group,topic,partition,offset``, for several groups."""
    return _written([(group, o.topic, o.partition, o.offset) for group, of in offsets.items() for o in of])


def _written(rows: Iterable[tuple[str | int, ...]]) -> str:
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def _cell(value: str | int) -> str:
    # csv.writer leaves a carriage return unquoted when lines end in a newline only.
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _number(text: str, most: int, what: str, line: int) -> int:
    # A header is the usual mistake, and int() takes signs, underscores and other scripts' digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise BadOffsetsFile(f"line {line} has {text!r} as {what}, not a number from 0 to {most}: {EXPECTED}")
    return int(text)
