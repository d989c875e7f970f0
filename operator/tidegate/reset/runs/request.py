"""From what a resource asks for to a :class:`RunRequest`, and the names a run goes by. Pure."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Final

from tidegate.kafka.connection import Connection
from tidegate.kube.ports import Object, label_of, name_of, uid_of
from tidegate.reset.applying.replay import RETURNED
from tidegate.reset.model.request import (
    ApplySettings,
    EvidenceLevel,
    EvidenceSettings,
    FleetRequest,
    PlanLimits,
    RunRequest,
    Selection,
    Until,
    Waves,
)
from tidegate.reset.model.targets import (
    ByDuration,
    FromCluster,
    RecordSchema,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToRecord,
    ToTimestamp,
    Undo,
)
from tidegate.reset.store import Run
from tidegate.resources.conditions import Refusal
from tidegate.resources.evidence import EvidenceLevel as SpecLevel
from tidegate.resources.evidence import EvidenceSpec
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.replay import UntilSpec
from tidegate.resources.reset import ApprovalMode, ResetPhase
from tidegate.resources.targets import ClusterTarget, RecordTarget, ResetTo

_NAME_LIMIT: Final = 52
"""Leaves room for a launch number within a DNS label of 63 characters, and for what Spark appends to pods' names."""

UNDO_RUN_NOT_FOUND: Final = "UndoRunNotFound"
NOTHING_TO_UNDO: Final = "NothingToUndo"
NOT_PUT_BACK: Final = "NotPutBack"
"""How a run ends that failed and could not put the offsets back (``tidegate.reset.applying.apply``)."""


def run_uid(requester_uid: str, run_id: str) -> str:
    return f"{requester_uid}/{run_id}"


def run_name(run_id: str, requester_uid: str) -> str:
    """The run's ConfigMap, ``<id>-<digest>``: a DNS label of at most 52 characters.

    The digest tells a resource from its namesake before it.
    """
    digest = hashlib.sha256(run_uid(requester_uid, run_id).encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9-]+", "-", run_id.lower())[: _NAME_LIMIT - 9].strip("-")
    # Services need a letter first, and Spark makes one for its driver.
    return f"{readable if readable[:1].isalpha() else f'r-{readable}'[: _NAME_LIMIT - 9].strip('-')}-{digest}"


def launch_name(run: str, number: int) -> str:
    return f"{run}-{number}"


def launch_number(application: str | None) -> int:
    """The number at the end of a launch's name; 0 for none."""
    found = re.search(r"-(\d+)$", application or "")
    return int(found[1]) if found else 0


def selected_topics(spec: OffsetResetSpec) -> tuple[str, ...]:
    """The topics of its ``selections``, without counting out the partitions, which may be many."""
    if spec.partitions is not None:
        return tuple(s.topic for s in spec.partitions)
    return tuple(spec.topics or ())


def selections(spec: OffsetResetSpec) -> tuple[Selection, ...]:
    """What is to be reset; empty: what the group subscribes to or has offsets for."""
    if spec.partitions is not None:
        return tuple(Selection(s.topic, s.numbers) for s in spec.partitions)
    return tuple(map(Selection, selected_topics(spec)))


def simple_target(to: ResetTo) -> Target | None:
    """The target, where the spec alone tells it; ``None`` where something has to be read first."""
    if to.earliest is not None:
        return ToEarliest()
    if to.latest is not None:
        return ToLatest()
    if to.offset is not None:
        return ToOffset(to.offset)
    if to.timestamp is not None:
        return ToTimestamp(to.timestamp)
    if to.duration is not None:
        return ByDuration(to.duration)
    if to.shift_by is not None:
        return ShiftBy(to.shift_by)
    return None


def record_target(record: RecordTarget, schema: RecordSchema | None) -> ToRecord:
    """``schema``: the text that ``record.value_schema`` names."""
    return ToRecord(
        where=record.where,
        since=record.from_,
        until=record.until,
        after=record.after,
        no_match=record.no_match,
        schema=schema,
    )


def cluster_target(cluster: ClusterTarget, connection: Connection, allowed_topics: tuple[str, ...]) -> FromCluster:
    """``connection``: how the job reaches the other cluster; ``allowed_topics``: what it may read there."""
    return FromCluster(
        connection=connection,
        group_id=cluster.group,
        match=cluster.match,
        window=cluster.window,
        alias=cluster.alias,
        allowed_topics=allowed_topics,
    )


def undo_not_found(run_id: str) -> Refusal:
    return Refusal(
        UNDO_RUN_NOT_FOUND,
        f"spec.to.undo: there is no stored run {run_id} to undo: name an OffsetReset of this namespace that exists, or "
        "was deleted not too long ago",
    )


def undo_target(run_id: str, run: Run | None) -> Target | Refusal:
    """Where the group stood before the run ``run_id`` of the same group."""
    if run is None or run.plan is None:
        return undo_not_found(run_id)
    if run.result is None or not (run.result.phase is ResetPhase.SUCCEEDED or run.result.reason == NOT_PUT_BACK):
        ended = "has not ended" if run.result is None else f"ended as {run.result.phase}"
        return Refusal(NOTHING_TO_UNDO, f"spec.to.undo: run {run_id} {ended}, so it has left no offset changed")
    if run.result.reason == RETURNED:
        why = f"spec.to.undo: run {run_id} has returned the group to where it was before, so there is nothing to undo"
        return Refusal(NOTHING_TO_UNDO, why)
    # The result's, not the first intent's: owners that let go committed once more, and that is where they stood.
    before = run.result.before
    had = frozenset(b.topic_partition for b in before)
    return Undo(
        run_id=run_id,
        before=before,
        absent=tuple(p.topic_partition for p in run.plan.partitions if p.topic_partition not in had),
        topic_ids=tuple(sorted({(p.topic, p.topic_id) for p in run.plan.partitions})),
        dead_letter=run.request.dead_letter,
    )


def make_request(
    spec: OffsetResetSpec,
    *,
    requester: Object,
    connection: Connection,
    connection_uid: str,
    allowed_topics: tuple[str, ...],
    target: Target,
    started_at: datetime,
    fleet: FleetRequest | None = None,
    observed: bool = False,
    limits: PlanLimits | None = None,
) -> RunRequest:
    """All the job needs to know. The deadline counts from ``started_at``. ``observed`` and ``limits``: see
    ``RunRequest``."""
    return RunRequest(
        run_uid=run_uid(uid_of(requester), name_of(requester)),
        run_id=name_of(requester),
        group_id=spec.group or "",
        connection=connection,
        selections=selections(spec),
        target=target,
        settings=ApplySettings(
            in_flight=spec.in_flight,
            max_standstill=spec.max_standstill,
            drain_timeout=spec.drain_timeout,
            deadline=started_at + spec.deadline,
        ),
        allowed_topics=allowed_topics,
        manual_approval=observed or spec.approval is ApprovalMode.MANUAL,
        evidence=evidence_settings(spec),
        fleet=fleet,
        asked_by=f"{requester['kind']} {label_of(requester)}",
        connection_uid=connection_uid,
        observed=observed,
        limits=limits,
        until=None if spec.until is None else until_asked(spec.until),
        dead_letter=spec.dead_letter_topic,
    )


def until_asked(until: UntilSpec) -> Until:
    """Where a replay ends, as a run is told."""
    return Until(then=until.then, within=until.within, at=until.timestamp, offset=until.offset, records=until.records)


def waves_asked(spec: OffsetResetSpec) -> Waves | None:
    """In which waves a fleet is reset; ``None``: all at once."""
    rollout = spec.rollout
    if rollout is None:
        return None
    size = rollout.wave_size
    if isinstance(size, int):
        return Waves(groups=size, pause=rollout.pause)
    return Waves(percent=int(size.removesuffix("%")), pause=rollout.pause)


def evidence_settings(spec: OffsetResetSpec) -> EvidenceSettings:
    """What is to be gathered. By itself as much as can be where a person waits for it, and nothing where none does."""
    wanted = spec.evidence or EvidenceSpec()
    manual = spec.approval is ApprovalMode.MANUAL
    match wanted.level:
        case SpecLevel.AUTO:
            level = EvidenceLevel.RECORDS if manual else EvidenceLevel.NONE
        case _:
            level = EvidenceLevel(wanted.level.value)
    return EvidenceSettings(level, wanted.show_values, wanted.max_records, wanted.timeout)
