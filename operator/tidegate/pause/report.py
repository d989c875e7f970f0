"""What is said of a pause: the parts of its status, its conditions and Events that all ways of pausing share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidegate import printable
from tidegate.control.gates import Held
from tidegate.control.records import HoldKey
from tidegate.control.standing import PartitionStanding
from tidegate.kafka.model import Member, TopicPartition
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.pause.holds import HoldChanges
from tidegate.pause.model import ChangeHolds, Observed, Seen, Stamp, Wait
from tidegate.resources.conditions import (
    PAUSED,
    READY,
    Conditions,
    Refusal,
    find_condition,
    with_condition,
)
from tidegate.resources.pause import PausedPartition, PausePhase, PauseStatus, UnmanagedMember

MAX_ROWS: Final = 200
QUICK: Final = timedelta(seconds=10)
"""For so long after somebody is first waited for, looks follow one another quickly."""

WAITING_FOR_GROUP: Final = "WaitingForGroup"
WAITING_FOR_TOPICS: Final = "WaitingForTopics"
UNSUPPORTED_GROUP: Final = "UnsupportedGroup"
PAUSING: Final = "Pausing"
ALL_PAUSED: Final = "Paused"
RESUMING: Final = "Resuming"

SHOWN: Final = 5
"""Names in a message."""

_NO_COMMIT: Final = -1
_NAME: Final = 256
_END: Final = 50
"""Characters of a name of a client's own choice, which may have 32 kB, and of its end, by which members differ."""


@dataclass(frozen=True, slots=True)
class Row:
    """One partition as it stands. ``late``: why it does not stand still although it should by now."""

    partition: TopicPartition
    phase: PausePhase
    standing: PartitionStanding | None = None
    wait: Wait | None = None
    late: str = ""


def rows_before(seen: Seen) -> Mapping[TopicPartition, PausedPartition]:
    return {TopicPartition(row.topic, row.partition): row for row in seen.rows or seen.status.partitions}


def shown_row(seen: Seen, observed: Observed, row: Row, before: PausedPartition | None) -> PausedPartition:
    """A row of the status. What was not looked up this time stays as it was said."""
    standing, partition = row.standing, row.partition
    is_paused = row.phase is PausePhase.PAUSED
    offset = standing.offset if standing is not None else None
    lag = before.lag if before is not None and is_paused else None
    if offset is None and observed.log_ends is not None:
        offset = observed.committed.get(partition, _NO_COMMIT)
    elif offset is None and before is not None and is_paused:
        offset = before.offset
    if is_paused and observed.log_ends is not None and partition in observed.log_ends:
        lag = max(0, observed.log_ends[partition] - offset) if offset is not None and offset >= 0 else None
    # Over a rebalance the new owner obeys before it reads, so the standstill goes on; a late one did read.
    since = before.since if before is not None and row.phase is not PausePhase.DEGRADED else None
    return PausedPartition(
        topic=partition.topic,
        partition=partition.partition,
        phase=row.phase,
        offset=offset,
        lag=lag,
        member=shortened(standing.owner.member_id) if standing is not None and standing.owner is not None else None,
        since=since or (seen.now.replace(microsecond=0) if is_paused else None),
    )


def not_after_the_end(seen: Seen, status: PauseStatus, after_s: float) -> float:
    """``after_s``, or less where the pause's time is over before."""
    if status.resumes_at is None:
        return after_s
    return max(0.05, min(after_s, (status.resumes_at - seen.now).total_seconds()))


def release(held: Mapping[HoldKey, Held]) -> ChangeHolds:
    return ChangeHolds(HoldChanges({}, tuple(sorted(held))))


def counted(status: PauseStatus, paused: int, total: int) -> PauseStatus:
    return status.model_copy(
        update={"paused": f"{paused}/{total}", "partitions_paused": paused, "partitions_total": total}
    )


def cleared(status: PauseStatus) -> PauseStatus:
    """Nothing is held, so no partition is this pause's."""
    return counted(status, 0, 0).model_copy(
        update={"partitions": (), "partitions_omitted": None, "unmanaged_members": (), "method": None}
    )


def paused_is(seen: Seen, conditions: Conditions, value: bool | None, why: Refusal) -> Conditions:
    return with_condition(conditions, PAUSED, value, reason=why.reason, message=why.message, **stamp(seen))


def stamp(seen: Seen) -> Stamp:
    return Stamp(generation=seen.generation, now=seen.now)


def warning(seen: Seen, refusal: Refusal) -> KubeEvent:
    """Once for a generation and its words."""
    return KubeEvent(
        EventType.WARNING, refusal.reason, refusal.message, f"{seen.generation}/{refusal.reason}/{refusal.message}"
    )


def told(seen: Seen, phase: PausePhase, message: str) -> tuple[KubeEvent, ...]:
    if seen.status.phase is phase:
        return ()
    kind = EventType.WARNING if phase is PausePhase.DEGRADED else EventType.NORMAL
    # The same for a pass that is repeated because its status could not be written.
    said = find_condition(seen.status.conditions, READY)
    since = said.last_transition_time.isoformat() if said is not None else ""
    return (KubeEvent(kind, phase.value, message, f"{seen.generation}/{seen.status.phase}/{since}/{phase.value}"),)


def message_of(conditions: Conditions) -> str:
    return next((c.message for c in conditions if c.type == PAUSED), "")


def listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def shortened(name: str) -> str:
    """As a status has it: several hundred of them fit into what the API server takes."""
    return printable.shortened(name, _NAME, _END)


def called(member: Member) -> str:
    """What a message calls a member."""
    return f"{shortened(member.client_id or member.member_id)} at {member.host.lstrip('/')}"


def unmanaged_rows(members: Collection[Member]) -> tuple[UnmanagedMember, ...]:
    """Rows of the status for members that go on reading."""
    return tuple(
        UnmanagedMember(
            member_id=shortened(m.member_id),
            client_id=shortened(m.client_id) or None,
            host=shortened(m.host) or None,
        )
        for m in sorted(members, key=lambda m: (m.client_id, m.member_id))[:MAX_ROWS]
    )
