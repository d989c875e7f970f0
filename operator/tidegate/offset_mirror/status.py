"""What an ``OffsetMirror``'s status says: conditions, Events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.offset_mirror.counting import Counted
from tidegate.offset_mirror.exclusive import Verdict
from tidegate.offset_mirror.ids import pruned
from tidegate.printable import visible
from tidegate.resources.conditions import (
    DRIFTED,
    EXCLUSIVE,
    FROZEN,
    IN_SYNC,
    READY,
    SEEDING,
    STALLED,
    Conditions,
    ConditionStatus,
    Refusal,
    find_condition,
    is_true,
    ready,
    reconciling,
    stalled,
    with_condition,
)
from tidegate.resources.mirror_engine import MirrorJob
from tidegate.resources.mirror_failover import FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import CarriedGroups, MirrorCounts, MirrorParity, OffsetMirrorStatus

COPIES_IN_SYNC: Final = "CopiesInSync"
COPIES_LAGGING: Final = "CopiesLagging"
COPIES_SEEDING: Final = "CopiesSeeding"
COPIES_STOPPED: Final = "CopiesStopped"
COPIES_DRIFTED: Final = "CopiesDrifted"
COPYING_HINDERED: Final = "CopyingHindered"
NO_DRIFT_SEEN: Final = "NoDriftSeen"
NO_TOPICS: Final = "NoTopicsYet"
TOO_MANY_TOPICS: Final = "TooManyTopics"
SAME_CLUSTER: Final = "SameCluster"
CLUSTER_CHANGED: Final = "ClusterChanged"
COPIED_BY_ANOTHER: Final = "CopiedByAnother"
INVALID_SPEC: Final = "InvalidSpec"
SUSPENDED: Final = "Suspended"
FAILOVER_DRAINING: Final = "FailoverDraining"
FAILOVER_FENCING: Final = "FailoverFencing"
FAILED_OVER: Final = "FailedOver"
JOB_ENDING: Final = "JobEnding"
WAITING_FOR_CONNECTION: Final = "WaitingForConnection"
NOT_COPYING: Final = "NotCopying"

_WRITTEN_EVERY: Final = timedelta(seconds=30)
"""How often figures are written that change all the time."""

_AS_ASKED_FOR: Final = frozenset({FROZEN, FAILOVER_DRAINING, FAILOVER_FENCING})
"""Reasons of Ready for which nothing is copied, though it is not True."""

LATE: Final = "waiting for answers to requests that were sent"

_Tell = Callable[..., Conditions]


@dataclass(frozen=True, slots=True)
class Before:
    """The status as it is, and of which generation and when the next one speaks."""

    status: OffsetMirrorStatus
    generation: int
    now: datetime

    @property
    def stamp(self) -> dict[str, Any]:
        return {"generation": self.generation, "now": self.now}

    @property
    def is_at_rest(self) -> bool:
        """Whether copying through it would be a beginning: it was suspended, or held back by a freeze since then."""
        said = find_condition(self.status.conditions, READY)
        return said is not None and said.reason in (SUSPENDED, FROZEN)


@dataclass(frozen=True, slots=True)
class Told:
    """The new status, and what to tell, each once."""

    status: OffsetMirrorStatus
    happenings: tuple[KubeEvent, ...] = ()

    @property
    def hindered(self) -> MirrorCounts | None:
        """Where nothing is copied: the partitions as they were counted last, if that is not as it was asked for."""
        said = find_condition(self.status.conditions, READY)
        if said is None or said.status is ConditionStatus.TRUE or said.reason in _AS_ASKED_FOR:
            return None
        none = MirrorCounts(total=0, in_sync=0, seeding=0, lagging=0, stopped=0, drifted=0)
        return self.status.partitions or none


@dataclass(frozen=True, slots=True)
class MirrorStanding:
    """How the copies stand. ``clusters``: the ids of source and target; ``preparing``: how many topics are made ready;
    ``trouble``: why something could not be read."""

    counted: Counted
    clusters: tuple[str, str]
    groups: CarriedGroups | None = None
    preparing: int = 0
    trouble: str = ""
    former_producer_ids: tuple[int, ...] = ()
    parity: MirrorParity | None = None
    exclusive: Verdict | None = None
    """``None``: nobody has been asked yet."""
    job: MirrorJob | None = None
    """The one that copies, where that is not this process."""


def refused(before: Before, refusal: Refusal) -> Told:
    """Nothing is copied as it is asked for."""
    happening = KubeEvent(EventType.WARNING, refusal.reason, refusal.message, f"{refusal.reason}/{before.generation}")
    return Told(_not_copying(before, stalled, refusal.reason, refusal.message), (happening,))


def suspended(before: Before) -> Told:
    message = "spec.suspend is true: nothing is copied or carried over; the copies stay as they are"
    return Told(_not_copying(before, ready, SUSPENDED, message))


def held_back(before: Before, why: Refusal) -> Told:
    """Copying does not begin yet."""
    return Told(_not_copying(before, reconciling, why.reason, why.message))


def draining(before: Before, told: Told, why: str) -> Told:
    """A failover has been asked for, and the mirror goes on for now; ``told``: how the copies stand. What somebody has
    to do something about stays to be seen."""
    conditions = told.status.conditions
    said = find_condition(conditions, READY)
    ends = "to fail over anyway, set spec.failover.acceptLoss"
    if said is not None and is_true(conditions, STALLED):
        says = f"{said.message}. The failover waits: {visible(why)}; {ends}"
        conditions = stalled(conditions, reason=said.reason, message=says, **before.stamp)
        return Told(told.status.model_copy(update={"conditions": conditions}), told.happenings)
    stands = f" ({said.message})" if said is not None and said.status is not ConditionStatus.TRUE else ""
    says = f"{visible(why)}{stands}; {ends}"
    conditions = reconciling(conditions, reason=FAILOVER_DRAINING, message=says, **before.stamp)
    # Ready did not become what would be told of, at each pass anew.
    return Told(told.status.model_copy(update={"conditions": conditions}))


def draining_late(before: Before) -> Told:
    """A failover has been asked for and nothing is copied, while something that was sent has not been answered."""
    return Told(_not_copying(before, reconciling, FAILOVER_DRAINING, LATE))


def fencing(before: Before, failover: MirrorFailover, why: str = "") -> Told:
    """``why``: what keeps it from getting on."""
    says = "copying has ended; the copies are being fenced, so that late writes are refused" + (
        f": {visible(why)}" if why else ""
    )
    status = _not_copying(before, reconciling, FAILOVER_FENCING, says)
    return Told(status.model_copy(update={"failover": failover}))


def failed_over(before: Before, failover: MirrorFailover) -> Told:
    """The mirror has ended for good."""
    at = "" if failover.at is None else f" since {failover.at:%Y-%m-%dT%H:%M:%SZ}"
    such = next((f". {t.name}: {visible(said)}" for t in failover.topics if (said := t.message or t.unknown)), "")
    says = f"copying has ended for good{at}, and the copies can be written to; {_not_copied(failover)}{such}"
    status = _not_copying(before, ready, FAILED_OVER, says)
    is_new = before.status.failover is None or before.status.failover.phase is not FailoverPhase.DONE
    kind = EventType.NORMAL if failover.not_copied == 0 and not such else EventType.WARNING
    happenings = (KubeEvent(kind, FAILED_OVER, says, f"{FAILED_OVER}/{failover.fence_id}"),) if is_new else ()
    return Told(status.model_copy(update={"failover": failover}), happenings)


def _not_copied(failover: MirrorFailover) -> str:
    if not failover.source_answered:
        return "the source did not answer, so it is not known what was not copied"
    if failover.not_copied is not None:
        return f"{failover.not_copied} offset(s) of the source were not copied"
    known = sum(sum(topic.lacks) for topic in failover.topics if topic.lacks is not None)
    unknown = sum(topic.lacks is None for topic in failover.topics)
    return f"at least {known} offset(s) of the source were not copied; for {unknown} topic(s) the number is not known"


def waiting(before: Before, why: str) -> Told:
    """Nothing can be copied for now."""
    return Told(_not_copying(before, reconciling, WAITING_FOR_CONNECTION, visible(why)))


def job_ending(told: Told, why: str, now: datetime) -> Told:
    """``told`` is to be said once no job copies any more; ``why``: one may still do."""
    status = told.status
    said = find_condition(status.conditions, READY)
    if said is None or is_true(status.conditions, STALLED):
        return told
    says, generation = f"{visible(why)}: it may still be copying", status.observed_generation
    conditions = reconciling(status.conditions, reason=JOB_ENDING, message=says, generation=generation, now=now)
    return Told(status.model_copy(update={"conditions": conditions}), told.happenings)


def _not_copying(before: Before, tell: _Tell, reason: str, message: str) -> OffsetMirrorStatus:
    """What was counted stays, with the time of it; whether the copies are in sync nobody knows."""
    conditions = tell(before.status.conditions, reason=reason, message=message, **before.stamp)
    at = before.status.at
    since = "" if at is None else f"; the counts are from {at:%Y-%m-%dT%H:%M:%SZ}"
    for kind in (IN_SYNC, SEEDING, DRIFTED, EXCLUSIVE):
        was = find_condition(conditions, kind)
        if kind == DRIFTED and was is not None and was.status is ConditionStatus.TRUE:
            continue  # it does not pass by itself
        says = f"nothing is copied ({reason}){since}"
        conditions = with_condition(conditions, kind, None, reason=NOT_COPYING, message=says, **before.stamp)
    return before.status.model_copy(update={"observed_generation": before.generation, "conditions": conditions})


def copying(before: Before, standing: MirrorStanding) -> Told:
    counts, counted = standing.counted.counts, standing.counted
    tell, reason, message = _judged(standing)
    conditions = tell(before.status.conditions, reason=reason, message=message, **before.stamp)
    for kind, holds, why, says in _conditions(standing):
        conditions = with_condition(conditions, kind, holds, reason=why, message=says, **before.stamp)
    source, target = standing.clusters
    status = before.status.model_copy(
        update={
            "observed_generation": before.generation,
            "at": before.now.replace(microsecond=0),
            "source_cluster": source,
            "target_cluster": target,
            "producer_ids": pruned(before.status.producer_ids, counted.topics, standing.former_producer_ids),
            "topics": counted.topics,
            "in_sync": f"{counts.in_sync}/{counts.total}",
            "partitions": counts,
            "worst": counted.worst,
            "lag": counted.lag,
            "groups": standing.groups,
            "parity": standing.parity,
            "job": standing.job,
            "conditions": conditions,
        }
    )
    return Told(status, tuple(_happenings(before, status, reason, message)))


def _judged(standing: MirrorStanding) -> tuple[_Tell, str, str]:
    counts = standing.counted.counts
    ends = f". {visible(standing.trouble)}" if standing.trouble else ""
    if counts.drifted:
        return stalled, COPIES_DRIFTED, _drifted(standing.counted)
    if counts.stopped:
        return stalled, COPIES_STOPPED, _stopped(standing.counted)
    if standing.preparing or not counts.total:
        what = f"{standing.preparing} topic(s) are being prepared at the target"
        nothing = "no topic of the source that both connections allow matches spec.topics"
        if standing.preparing:
            return reconciling, COPIES_SEEDING, what + ends
        return reconciling, NO_TOPICS, nothing + ends
    if counts.in_sync == counts.total and not standing.trouble:
        return ready, COPIES_IN_SYNC, _all_in_sync(counts.total)
    if counts.seeding:
        seeding = f"{counts.seeding} of {counts.total} partition(s) are still being seeded"
        return reconciling, COPIES_SEEDING, seeding + ends
    lagging = counts.total - counts.in_sync
    if not lagging:
        return reconciling, COPYING_HINDERED, _all_in_sync(counts.total) + ends
    return reconciling, COPIES_LAGGING, f"{lagging} of {counts.total} partition(s) lag{ends}"


def _conditions(standing: MirrorStanding) -> list[tuple[str, ConditionStatus, str, str]]:
    counts, true, false = standing.counted.counts, ConditionStatus.TRUE, ConditionStatus.FALSE
    says = f"{counts.in_sync} of {counts.total} partition(s) lag the source by 10 s at most"
    if counts.total and counts.in_sync == counts.total:
        in_sync = (IN_SYNC, true, COPIES_IN_SYNC, _all_in_sync(counts.total))
    else:
        in_sync = (IN_SYNC, false, COPIES_LAGGING, says)
    if counts.seeding or standing.preparing:
        done = f"{counts.seeding} of {counts.total} partition(s) have not caught up with the source yet"
        seeding = (SEEDING, true, COPIES_SEEDING, done)
    else:
        why = COPIES_IN_SYNC if in_sync[1] is true else COPIES_LAGGING
        seeding = (SEEDING, false, why, "no partition is being seeded")
    if counts.drifted:
        drifted = (DRIFTED, true, COPIES_DRIFTED, _drifted(standing.counted))
    else:
        drifted = (DRIFTED, false, NO_DRIFT_SEEN, "no copy is known to have drifted from the source")
    found = [in_sync, seeding, drifted]
    return found if standing.exclusive is None else [*found, (EXCLUSIVE, *standing.exclusive)]


def _all_in_sync(total: int) -> str:
    return f"all {total} partition(s) lag the source by 10 s at most"


def _drifted(counted: Counted) -> str:
    worst = next(iter(counted.worst), None)
    such = f", such as {worst.topic}-{worst.partition}: {worst.message}" if worst is not None else ""
    return (
        f"the copies of {counted.counts.drifted} partition(s) differ from the source at some offset, "
        f"and are no longer written to{such}. To have a topic copied again from its start, delete it at the target"
    )


def _stopped(counted: Counted) -> str:
    worst = next(iter(counted.worst), None)
    such = f", such as {worst.topic}-{worst.partition}: {worst.message}" if worst is not None else ""
    return f"{counted.counts.stopped} partition(s) can't be copied until somebody intervenes{such}"


def _happenings(before: Before, status: OffsetMirrorStatus, reason: str, message: str) -> list[KubeEvent]:
    """Of Ready, each time it comes to another state."""
    was = find_condition(before.status.conditions, READY)
    now = find_condition(status.conditions, READY)
    if now is None or (was is not None and (was.status, was.reason) == (now.status, now.reason)):
        return []
    kinds: Mapping[bool, EventType] = {True: EventType.WARNING, False: EventType.NORMAL}
    is_bad = reason in (COPIES_DRIFTED, COPIES_STOPPED)
    if not is_bad and reason not in (COPIES_IN_SYNC, COPIES_SEEDING):
        return []  # lagging and not: the metrics tell, an Event each time would be too much
    key = f"{before.generation}/{reason}/{now.last_transition_time.isoformat()}"
    return [KubeEvent(kinds[is_bad], reason, message, key)]


def steady(before: Before, told: Told) -> Told:
    """With the conditions that are as they were before being so since then: what ``told`` was made of may have been
    said otherwise on the way, and was not written."""
    were = {one.type: one for one in before.status.conditions}
    conditions = tuple(
        one.model_copy(update={"last_transition_time": was.last_transition_time})
        if (was := were.get(one.type)) is not None and was.status is one.status
        else one
        for one in told.status.conditions
    )
    return Told(told.status.model_copy(update={"conditions": conditions}), told.happenings)


def is_news(before: Before, status: OffsetMirrorStatus) -> bool:
    """Whether it says something else, beside figures that change all the time, or the figures have become old."""
    if status == before.status:
        return False
    at = before.status.at
    return at is None or before.now - at >= _WRITTEN_EVERY or _coarse(status) != _coarse(before.status)


def _coarse(status: OffsetMirrorStatus) -> OffsetMirrorStatus:
    groups = status.groups
    topics = tuple(topic.model_copy(update={"lag": None}) for topic in status.topics)
    worst = tuple(one.model_copy(update={"lag": None, "offset": None}) for one in status.worst)
    conditions = tuple(one.model_copy(update={"message": ""}) for one in status.conditions)
    job = status.job
    if job is not None:
        job = job.model_copy(update={"message": "" if not job.message else "some", "heard": job.heard >= job.tasks})
    parity = None if status.parity is None else (status.parity.different, status.parity.places > 0)
    return status.model_copy(
        update={
            "at": None,
            "lag": None,
            "topics": topics,
            "worst": worst,
            "conditions": conditions,
            "parity": parity,
            "job": job,
            "groups": None if groups is None else groups.model_copy(update={"at": status.observed_generation}),
        }
    )
