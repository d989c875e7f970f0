"""The resources of a namespace on one screen: gathered, then what is not as it should be, and what waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidegate.incident.gather_kube import common_of, connection_seen, pause_seen, policy_seen, reset_seen
from tidegate.incident.listings import Listed
from tidegate.incident.resource_sentences import awaits_person, has_reset_ended
from tidegate.incident.seen import UNREADABLE, Common, ConnectionSeen, PauseSeen, PolicySeen, ResetSeen, Unseen
from tidegate.incident.words import distance
from tidegate.kube.ports import BACKUPS, CONNECTIONS, MIRRORS, PAUSES, POLICIES, RESETS, Kind, Object
from tidegate.printable import visible
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.conditions import (
    AUDIT_TOPIC,
    COMPLETE,
    CONNECT_CLUSTERS,
    CONTROL_TOPICS,
    INJECTED,
    PAUSED,
    READY,
    RECORD_STUCK,
    RETAINED,
    STALLED,
    Conditions,
    ConditionStatus,
    find_condition,
    is_true,
)
from tidegate.resources.offset_backup import OffsetBackupStatus
from tidegate.resources.offset_mirror import OffsetMirrorStatus
from tidegate.resources.pause import PausePhase
from tidegate.resources.reset import ResetPhase

MOST_ENDED: Final = 5

_WRONG: Final[Mapping[str, ConditionStatus]] = {
    RETAINED: ConditionStatus.FALSE,
    RECORD_STUCK: ConditionStatus.TRUE,
    INJECTED: ConditionStatus.FALSE,
    AUDIT_TOPIC: ConditionStatus.FALSE,
    CONTROL_TOPICS: ConditionStatus.FALSE,
    CONNECT_CLUSTERS: ConditionStatus.FALSE,
}
"""Conditions of policies and connections that leave them ready, with the status that is not as it should be."""


@dataclass(frozen=True, slots=True)
class Row:
    """One resource: what it is called, how it stands, and why; foreign text as it is."""

    kind: str
    namespace: str
    name: str
    about: str
    """A group, patterns of groups, or a cluster's id."""
    state: str
    since: datetime | None
    message: str
    troubled: bool = False
    """Whether it is not as it should be, by its own conditions."""


@dataclass(frozen=True, slots=True)
class Part:
    title: str
    rows: tuple[Row, ...]
    none: str
    """What is said where there are none."""


@dataclass(frozen=True, slots=True)
class Overview:
    where: str
    parts: tuple[Part, ...]
    unseen: tuple[Unseen, ...]
    listed: int


def overview_of(listed: Listed, where: str) -> Overview:
    connections = [connection_seen(body) for body in listed.of(CONNECTIONS)]
    resets = [reset_seen(body) for body in listed.of(RESETS)]
    pauses = [pause_seen(body) for body in listed.of(PAUSES)]
    policies = [policy_seen(body) for body in listed.of(POLICIES)]
    backups = [row_of(BACKUPS, body) for body in listed.of(BACKUPS)]
    running = [r for r in resets if not has_reset_ended(r)]
    waits = [*(_reset(r) for r in running if awaits_person(r) or _is_stalled(r)), *_stalled_pauses(pauses)]
    ended = sorted((r for r in resets if has_reset_ended(r)), key=_finished, reverse=True)[:MOST_ENDED]
    parts = (
        Part("Waits for a person", tuple(waits), "nothing"),
        Part("Resets in progress", tuple(_reset(r) for r in running if not awaits_person(r)), "none"),
        Part("Resets that ended last", tuple(map(_reset, ended)), "none"),
        Part("Pauses", tuple(_pause(p) for p in pauses), "none"),
        Part("Policies", tuple(_policy(p) for p in policies), "none"),
        Part("Backups", tuple(backups), "none"),
        Part("Connections", tuple(map(_connection, connections)), "none"),
    )
    return Overview(where, parts, listed.unseen, listed.kinds)


def row_of(kind: Kind, body: Object) -> Row:
    """One resource of a kind that an overview has, or an OffsetMirror. Raises ``ValueError`` for others."""
    match kind.plural:
        case RESETS.plural:
            return _reset(reset_seen(body))
        case PAUSES.plural:
            return _pause(pause_seen(body))
        case POLICIES.plural:
            return _policy(policy_seen(body))
        case CONNECTIONS.plural:
            return _connection(connection_seen(body))
        case BACKUPS.plural:
            readable = has_readable_status(OffsetBackupStatus, body)
            conditions = read_status(OffsetBackupStatus, body).conditions if readable else None
            return _row(kind.kind, common_of(body), "", conditions, READY)
        case MIRRORS.plural:
            readable = has_readable_status(OffsetMirrorStatus, body)
            conditions = read_status(OffsetMirrorStatus, body).conditions if readable else None
            return _row(kind.kind, common_of(body), "", conditions, READY)
        case _:
            raise ValueError(f"no overview has {kind.plural}")


def _finished(reset: ResetSeen) -> float:
    at = reset.status.finished_at if reset.status is not None else None
    return at.timestamp() if at is not None else 0.0


def _is_stalled(reset: ResetSeen) -> bool:
    return reset.status is None or is_true(reset.status.conditions, STALLED)


def _stalled_pauses(pauses: Sequence[PauseSeen]) -> Iterator[Row]:
    yield from (_pause(p) for p in pauses if p.status is not None and is_true(p.status.conditions, STALLED))


def _groups(group: str | None, groups: Sequence[str] | None) -> str:
    return group if group is not None else ", ".join(groups or ())


def _row(kind: str, common: Common, about: str, conditions: Conditions | None, condition: str, state: str = "") -> Row:
    """``conditions``: ``None`` where the status can't be read."""
    if conditions is None:
        return Row(kind, common.namespace, common.name, about, "Unreadable", common.created_at, UNREADABLE, True)
    said = find_condition(conditions, condition)
    if said is None:
        return Row(kind, common.namespace, common.name, about, state or "Unknown", common.created_at, common.problem)
    troubled = said.status is ConditionStatus.FALSE or is_true(conditions, STALLED)
    state = state or {ConditionStatus.TRUE: condition}.get(said.status, f"Not{condition}")
    deleting = "being deleted; " if common.is_deleting else ""
    message = f"{deleting}{said.reason}: {said.message}"
    return Row(kind, common.namespace, common.name, about, state, said.last_transition_time, message, troubled)


def _with_what_is_wrong(row: Row, conditions: Conditions | None) -> Row:
    """What leaves it ready, and is not as it should be all the same."""
    wrong = [said for said in conditions or () if _WRONG.get(said.type) is said.status]
    if not wrong:
        return row
    told = (f"{said.type} is {said.status}, {said.reason}: {said.message}" for said in wrong)
    return replace(row, message="; ".join([*([row.message] if row.message else []), *told]), troubled=True)


def _reset(reset: ResetSeen) -> Row:
    spec, status = reset.spec, reset.status
    about = _groups(spec.group, spec.groups) if spec is not None else ""
    conditions = status.conditions if status is not None else None
    phase = (status.phase if status is not None else None) or ResetPhase.PENDING
    return _row(RESETS.kind, reset.common, about, conditions, COMPLETE, phase.value)


def _pause(pause: PauseSeen) -> Row:
    spec, status = pause.spec, pause.status
    phase = (status.phase if status is not None else None) or PausePhase.PENDING
    count = f" {status.paused}" if status is not None and status.paused else ""
    about = spec.group if spec is not None else ""
    conditions = status.conditions if status is not None else None
    return _row(PAUSES.kind, pause.common, about, conditions, PAUSED, f"{phase.value}{count}")


def _policy(policy: PolicySeen) -> Row:
    spec = policy.spec
    about = _groups(spec.group, spec.groups) if spec is not None else ""
    conditions = policy.status.conditions if policy.status is not None else None
    return _with_what_is_wrong(_row(POLICIES.kind, policy.common, about, conditions, READY), conditions)


def _connection(connection: ConnectionSeen) -> Row:
    status = connection.status
    about = (status.cluster_id or "") if status is not None else ""
    observes = connection.spec is not None and connection.spec.observe
    conditions = status.conditions if status is not None else None
    row = _with_what_is_wrong(_row(CONNECTIONS.kind, connection.common, about, conditions, READY), conditions)
    if connection.spec is not None and connection.spec.freeze is not None:
        by = f" by {connection.spec.freeze.by}" if connection.spec.freeze.by is not None else ""
        row = replace(row, message=f"frozen{by}: {connection.spec.freeze.reason}; {row.message}", troubled=True)
    return replace(row, message=f"only observes; {row.message}") if observes else row


def lines(overview: Overview, now: datetime) -> Iterator[str]:
    """For a person. Names and messages are made visible."""
    for part in overview.parts:
        yield f"{part.title}"
        for row in part.rows:
            since = f", {distance(now - row.since)}" if row.since is not None else ""
            about = f" ({visible(row.about)})" if row.about else ""
            mark = "! " if row.troubled else "  "
            yield f"{mark}{row.kind} {visible(row.namespace)}/{visible(row.name)}{about}: {row.state}{since}"
            if row.message:
                yield f"      {visible(row.message)}"
        if not part.rows:
            yield f"  {part.none if not overview.unseen else f'{part.none} that could be seen'}"
        yield ""
    for unseen in overview.unseen:
        yield f"Not seen: {visible(unseen.what)}: {visible(unseen.why)}"
