"""Tables as ``kafka-consumer-groups`` 4.3 prints them, to the column. Pure; every function returns the text to print.

Follows ``ConsumerGroupCommand.ConsumerGroupService`` (``printOffsets``, ``printMembers``, ``printStates``,
``printGroupInfo``) and ``OffsetsUtils.printOffsetsToReset``. Names that clients choose are made visible: the tool
prints what drives a terminal, and ends lines, as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.admin.service import PausedPartition, since_of
from tidegate.control.gates import Held, Limited
from tidegate.control.records import HoldKey, LimitKey
from tidegate.control.standing import Flow
from tidegate.kafka.model import Broker, Group, Member, TopicPartition
from tidegate.printable import visible
from tidegate.resources.timestamps import format_timestamp

MISSING: Final = "-"
_WIDTH: Final = 15


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition of a group, as ``--describe`` shows it; ``None`` is printed as a dash."""

    partition: TopicPartition
    offset: int | None
    log_end_offset: int | None
    member: Member | None
    leader_epoch: int | None = None

    @property
    def lag(self) -> int | None:
        if self.offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.offset


def offsets_table(group_id: str, rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """``--describe --offsets``."""
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    cells = [
        [
            visible(group_id),
            row.partition.topic,
            str(row.partition.partition),
            _or_missing(row.offset),
            _or_missing(row.log_end_offset),
            _or_missing(row.lag),
            visible(row.member.member_id) if row.member is not None else MISSING,
            visible(row.member.host) if row.member is not None else MISSING,
        ]
        for row in rows
    ]
    widths = [_widest(cells, 0), _widest(cells, 1), 10, 15, 15, 15, _widest(cells, 6), _widest(cells, 7)]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
        widths.insert(3, 15)
        for row, line in zip(rows, cells, strict=True):
            line.insert(3, _or_missing(row.leader_epoch))
    header.append("CLIENT-ID")
    for row, line in zip(rows, cells, strict=True):
        line.append(visible(row.member.client_id) if row.member is not None else MISSING)
    return _lines([header, *cells], widths) + "\n"


def members_table(
    group_id: str,
    members: Sequence[Member],
    targets: Mapping[str, Collection[TopicPartition]],
    *,
    verbose: bool,
) -> str:
    """``--describe --members``. ``targets``: target assignments by member id. Epochs are not known here: a dash."""
    static = any(m.group_instance_id for m in members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    cells = []
    for member in members:
        line = [
            visible(group_id),
            visible(member.member_id),
            *([visible(member.group_instance_id or "")] if static else []),
            visible(member.host),
            visible(member.client_id),
            str(len(member.assignment)),
        ]
        if verbose:
            target = targets.get(member.member_id, ())
            line += [MISSING, assignment_text(member.assignment), MISSING, assignment_text(target)]
        cells.append(line)
    least = {"GROUP-INSTANCE-ID": 17, "CURRENT-ASSIGNMENT": 20, "TARGET-ASSIGNMENT": 20}
    fixed = {"#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH"}
    widths = [
        _WIDTH if name in fixed else _widest(cells, column, least.get(name, _WIDTH))
        for column, name in enumerate(header)
    ]
    ending = "" if verbose else " "  # the tool's format leaves the gap to the verbose columns
    lines = [_row(line, widths, padded=True) + ending for line in [header, *cells]]
    return "\n" + "".join(line + "\n" for line in lines)


def state_table(group: Group, coordinator: Broker, *, verbose: bool) -> str:
    """``--describe --state``. Epochs are not known here: a dash."""
    where = f"{coordinator.host}:{coordinator.port}  ({coordinator.node_id})"
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS"]
    name = visible(group.group_id)
    line = [name, where, visible(group.assignor) or MISSING, group.state, *(MISSING for _ in epochs)]
    line.append(str(len(group.members)))
    widths = [max(_WIDTH, len(name)), max(25, len(where)), 20, 20, *([15, 25] if verbose else [])]
    return _lines([header, line], widths) + "\n"


def retention_table(rows: Sequence[Sequence[str]]) -> str:
    """``--describe --retention``. Rows: group, type, state, offsets, kept, exact, when the first expires."""
    header = ["GROUP", "TYPE", "STATE", "#OFFSETS", "#KEPT", "EXACT", "EXPIRES"]
    rows = [[visible(group), *others] for group, *others in rows]
    return _lines([header, *rows], [_widest(rows, 0), 10, 20, 10, 10, 7]) + "\n"


def listing_table(rows: Sequence[tuple[str, str, str]], *, types: bool, states: bool) -> str:
    """``--list`` with ``--type`` or ``--state``. Rows: group, type, state."""
    rows = [(visible(group), kind, state) for group, kind, state in rows]
    width = max([_WIDTH, *(len(group) for group, _, _ in rows)]) + 10
    header = ["GROUP", *(["TYPE"] if types else []), *(["STATE"] if states else [])]
    lines = [header]
    lines += [[group, *([kind] if types else []), *([state] if states else [])] for group, kind, state in rows]
    widths = [width, *(20 for _ in header[1:])]
    return "".join(_row(line, widths, padded=True) + "\n" for line in lines)


def reset_table(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """``--reset-offsets``: the new offsets by group."""
    if not offsets:
        return "\n"
    cells = [
        [visible(group), p.topic, str(p.partition), str(offset)]
        for group, of in sorted(offsets.items())
        for p, offset in sorted(of.items())
    ]
    group_width = max([_WIDTH, *(len(visible(group)) for group in offsets)])
    widths = [group_width, _widest(cells, 1), 10]
    return _lines([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *cells], widths) + "\n"


def status_table(rows: Sequence[tuple[str, TopicPartition, str]]) -> str:
    """``--pause`` and ``--resume``: what became of each partition, in the way of ``--delete-offsets``."""
    cells = [[visible(group), p.topic, str(p.partition), visible(status)] for group, p, status in rows]
    widths = [_widest(cells, 0), _widest(cells, 1), 10]
    return _lines([["GROUP", "TOPIC", "PARTITION", "STATUS"], *cells], widths) + "\n"


def holds_table(held: Mapping[HoldKey | LimitKey, Held | Limited]) -> str:
    """``--release-all``: each hold and each limit by itself."""
    header = ["GROUP", "TOPIC", "PARTITION", "SINCE", "HOLDER", "REASON"]
    cells = [
        [
            visible(key.group),
            visible(key.topic),
            str(key.partition),
            _since(since_of(of)) if isinstance(of, Held) else MISSING,
            visible(key.holder),
            _why(of),
        ]
        for key, of in held.items()
    ]
    widths = [_widest(cells, 0), _widest(cells, 1), 10, 20, _widest(cells, 4)]
    return _lines([header, *cells], widths) + "\n"


def _why(of: Held | Limited) -> str:
    if isinstance(of, Held):
        return visible(of.hold.reason) or MISSING
    why = f": {visible(of.limit.reason)}" if of.limit.reason else ""
    return f"no records from offset {of.limit.offset} on{why}"


def _since(at: datetime | None) -> str:
    return MISSING if at is None else format_timestamp(at.replace(microsecond=0))


_STATUS: Final = {Flow.CLOSED: "Paused", Flow.UNOWNED: "Paused"}


def paused_table(group_id: str, partitions: Iterable[PausedPartition]) -> str:
    """``--paused-partitions``. ``STATUS`` is Paused, or why it is not: Closing, Unmanaged, Undecided."""
    header = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "STATUS",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "SINCE",
        "HOLDERS",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
        "REASON",
    ]
    cells = []
    for paused in partitions:
        owner = paused.standing.owner
        cells.append(
            [
                visible(group_id),
                visible(paused.partition.topic),
                str(paused.partition.partition),
                _STATUS.get(paused.standing.flow, paused.standing.flow.value),
                _or_missing(paused.committed_offset),
                _or_missing(paused.log_end_offset),
                _or_missing(paused.lag),
                _since(paused.since),
                visible(",".join(held.holder for held in paused.holds)),
                visible(owner.member_id) if owner is not None else MISSING,
                visible(owner.host) if owner is not None else MISSING,
                visible(owner.client_id) if owner is not None else MISSING,
                visible("; ".join(held.reason for held in paused.holds if held.reason)) or MISSING,
            ]
        )
    fixed = {"PARTITION": 10, "STATUS": 10, "CURRENT-OFFSET": 15, "LOG-END-OFFSET": 15, "LAG": 15, "SINCE": 20}
    widths = [fixed.get(name) or _widest(cells, column) for column, name in enumerate(header[:-1])]
    return _lines([header, *cells], widths) + "\n"


def assignment_text(partitions: Collection[TopicPartition]) -> str:
    """``orders:0,1;refunds:2``; a dash for nothing."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        numbers[partition.topic].append(partition.partition)
    return ";".join(f"{topic}:{','.join(map(str, of))}" for topic, of in numbers.items()) or MISSING


def _or_missing(value: int | None) -> str:
    return MISSING if value is None else str(value)


def _widest(cells: Sequence[Sequence[str]], column: int, least: int = _WIDTH) -> int:
    return max([least, *(len(line[column]) for line in cells)])


def _lines(cells: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    """Each line on a new one, the last column as it is."""
    return "".join("\n" + _row(line, widths) for line in cells)


def _row(line: Sequence[str], widths: Sequence[int], *, padded: bool = False) -> str:
    count = len(line) if padded else len(line) - 1
    return " ".join([*(f"{cell:<{width}}" for cell, width in zip(line[:count], widths, strict=False)), *line[count:]])
