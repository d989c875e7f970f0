"""``--list`` and ``--describe``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from tidegate.cli.errors import UsageError
from tidegate.cli.options import Options, View
from tidegate.cli.screen import Screen
from tidegate.cli.tables import OffsetRow, listing_table, members_table, offsets_table, state_table
from tidegate.kafka.errors import UnknownPartitions
from tidegate.kafka.model import Broker, Group, GroupState, GroupType, ListedGroup, Offsets, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.printable import visible

_STATES: Final = tuple(s for s in GroupState if s is not GroupState.UNKNOWN)
_TYPES: Final = (GroupType.CONSUMER, GroupType.CLASSIC)
_REBALANCING: Final = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)


class GroupDetails(Protocol):
    """What only a listing shows (``tidegate.kafka_client.group_details``)."""

    def listing(self) -> Collection[ListedGroup]: ...

    def coordinator(self, group_id: str) -> Broker: ...

    def leader_epochs(self, group_id: str) -> Mapping[TopicPartition, int]: ...

    def target_assignments(self, group_id: str) -> Mapping[str, Collection[TopicPartition]]: ...


def list_groups(options: Options, details: GroupDetails, screen: Screen) -> int:
    """Raises ``UsageError`` for states and types that there are not."""
    states = _wanted(options.listed_state, [s.value for s in _STATES], "state")
    types = _wanted(options.listed_type, [t.value.capitalize() for t in _TYPES], "types")
    rows = [
        (listed.group_id, listed.type.capitalize() or "Unknown", listed.state or "Unknown")
        for listed in sorted(details.listing(), key=lambda listed: listed.group_id)
        if (not states or listed.state.lower() in states) and (not types or listed.type in types)
    ]
    if options.listed_state is None and options.listed_type is None:
        screen.show("".join(f"{visible(group)}\n" for group, _, _ in rows))
    else:
        shows = {"types": options.listed_type is not None, "states": options.listed_state is not None}
        screen.show(listing_table(rows, **shows))
    return 0


def _wanted(text: str | None, valid: Collection[str], what: str) -> frozenset[str]:
    if not text:
        return frozenset()
    wanted = frozenset(part.strip().lower() for part in text.split(","))
    if not wanted <= {name.lower() for name in valid}:
        raise UsageError(f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(valid)}")
    return wanted


def describe_groups(
    options: Options, groups: Collection[str], kafka: ClusterReader, details: GroupDetails, screen: Screen
) -> int:
    """Raises ``KafkaFailure``."""
    show: Callable[[Group], None]
    match options.view:
        case View.OFFSETS:
            show = lambda group: _show_offsets(group, options, kafka, details, screen)  # noqa: E731
        case View.MEMBERS:
            show = lambda group: _show_members(group, options, details, screen)  # noqa: E731
        case View.STATE | View.RETENTION:  # the latter is described by ``retaining``
            show = lambda group: _show_state(group, options, details, screen)  # noqa: E731
    described = kafka.groups(groups)
    for group_id in sorted(groups):
        show(described[group_id])
    return 0


def _show_offsets(group: Group, options: Options, kafka: ClusterReader, details: GroupDetails, screen: Screen) -> None:
    committed = kafka.committed(group.group_id)
    if not _introduce(group, screen, known=bool(committed)):
        return
    assigned = group.assigned
    ends = _log_end_offsets(kafka, sorted(assigned | set(committed)))
    epochs = details.leader_epochs(group.group_id) if options.verbose else {}
    rows = offset_rows(group, committed, ends, epochs)
    if rows:
        screen.show(offsets_table(group.group_id, rows, verbose=options.verbose))


def offset_rows(
    group: Group, committed: Offsets, ends: Offsets, epochs: Mapping[TopicPartition, int]
) -> list[OffsetRow]:
    """The members with most partitions first; what nobody owns last."""
    rows: list[OffsetRow] = []
    seen: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda m: -len(m.assignment)):
        rows += [OffsetRow(p, committed.get(p), ends.get(p), member, epochs.get(p)) for p in sorted(member.assignment)]
        seen |= member.assignment
    left = sorted(set(committed) - seen)
    return rows + [OffsetRow(p, committed[p], ends.get(p), None, epochs.get(p)) for p in left]


def _log_end_offsets(kafka: ClusterReader, partitions: Collection[TopicPartition]) -> Offsets:
    """Absent for partitions that are gone."""
    if not partitions:
        return {}
    try:
        return {p: bounds.latest for p, bounds in kafka.log_bounds(partitions).items()}
    except UnknownPartitions as gone:
        return _log_end_offsets(kafka, [p for p in partitions if p not in gone.partitions])


def _show_members(group: Group, options: Options, details: GroupDetails, screen: Screen) -> None:
    if not _introduce(group, screen):
        return
    targets = {}
    if options.verbose and group.type is GroupType.CONSUMER:
        targets = dict(details.target_assignments(group.group_id))
    screen.show(members_table(group.group_id, group.members, targets, verbose=options.verbose))


def _show_state(group: Group, options: Options, details: GroupDetails, screen: Screen) -> None:
    if _introduce(group, screen):
        screen.show(state_table(group, details.coordinator(group.group_id), verbose=options.verbose))


def _introduce(group: Group, screen: Screen, *, known: bool = False) -> bool:
    """Say what there is to say about its state; whether there is a group at all. ``known``: it has offsets."""
    name = visible(group.group_id)
    if group.state is GroupState.DEAD and not known:
        screen.error(f"Consumer group '{name}' does not exist.")
        return False
    if group.state is GroupState.UNKNOWN and group.type in (GroupType.STREAMS, GroupType.SHARE):
        screen.error(f"Group '{name}' is a {group.type} group.")
        return False
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        screen.note(f"\nConsumer group '{name}' has no active members.")
    elif group.state in _REBALANCING:
        screen.note(f"\nWarning: Consumer group '{name}' is rebalancing.")
    return True
