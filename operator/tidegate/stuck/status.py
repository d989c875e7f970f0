"""What a policy's status says of stuck records: conditions, Events. Pure.

Records are hostile and may be secret: of what is in them nothing is told but its size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.policy.feature import NOT_LOOKED_AT, PolicyView, WholeView
from tidegate.resources.conditions import RECORD_STUCK, ConditionStatus, find_condition, without_condition
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import PolicyStatus
from tidegate.resources.stuck_records import MAX_STUCK, StuckRecord, StuckRecordsStatus
from tidegate.stuck.judging import Verdict
from tidegate.stuck.told import Changes, Known, Stuck

STUCK: Final = "Stuck"
ONE_OF_SEVERAL: Final = "OneOfSeveral"
NONE_STUCK: Final = "NoneStuck"
NOT_JUDGED: Final = "NotJudged"
NOT_READ: Final = "NotRead"
UNREADABLE: Final = "RecordsUnreadable"
HOLDS_UNKNOWN: Final = "HoldsUnknown"
PASSED: Final = "RecordPassed"
RECORD_STUCK_EVENT: Final = "RecordStuck"

_TROUBLES: Final = (STUCK, ONE_OF_SEVERAL)
_MESSAGE: Final = 300
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one look. ``watched``: partitions with a committed offset and an owner; ``judged``: those of which enough was
    seen. ``waiting``: those whose consumers of committed records wait for an open transaction."""

    watched: int = 0
    judged: int = 0
    waiting: int = 0


def without_stuck(status: PolicyStatus) -> PolicyStatus:
    """For a policy that asks for none of it."""
    conditions = without_condition(status.conditions, RECORD_STUCK)
    return status.model_copy(update={"stuck_records": None, "conditions": conditions})


def unknown(policy: PolicyView, reason: str, message: str) -> PolicyStatus:
    """Nothing can be told."""
    return policy.told(RECORD_STUCK, (ConditionStatus.UNKNOWN, reason, message), stuck_records=StuckRecordsStatus())


def told(policy: PolicyView, known: Known, counts: Counts, note: str) -> PolicyStatus:
    """The status with what is stuck now. ``note``: why no reset is prepared, where one is asked for."""
    longest_first = known.longest_first()
    status = StuckRecordsStatus(
        watched=counts.watched,
        judged=counts.judged,
        stuck=len(known.stuck),
        records=tuple(_row(p, it) for p, it in longest_first[:MAX_STUCK]),
    )
    verdict = _verdict(policy, [p for p, _ in longest_first], known, counts)
    if note and known.stuck:
        verdict = (*verdict[:2], f"{verdict[2]}. {note}")
    return policy.told(RECORD_STUCK, verdict, stuck_records=status)


def _verdict(
    policy: PolicyView, stuck: Sequence[TopicPartition], known: Known, counts: Counts
) -> tuple[ConditionStatus, str, str]:
    if stuck:
        alone = [p for p in stuck if known.stuck[p].verdict is Verdict.STUCK]
        shown = (alone or stuck)[:_NAMED]
        rest = f", and {len(stuck) - len(shown)} more" if len(stuck) > len(shown) else ""
        message = "; ".join(sentence(policy.group, p, known.stuck[p]) for p in shown) + rest
        return ConditionStatus.TRUE, STUCK if alone else ONE_OF_SEVERAL, message
    waiting = ""
    if counts.waiting:
        waiting = (
            f". In {counts.waiting} partition(s), consumers of committed records wait for an open transaction to end"
        )
    if not counts.watched:
        return (
            ConditionStatus.UNKNOWN,
            NOT_READ,
            f"no partition with a committed offset has an owner at present{waiting}",
        )
    if not counts.judged:
        message = (
            f"none of {counts.watched} partition(s) can be judged yet: the operator first has to see a committed "
            f"offset move five times{waiting}"
        )
        return ConditionStatus.UNKNOWN, NOT_JUDGED, message
    rest = f"; {counts.watched - counts.judged} can't be judged yet" if counts.judged < counts.watched else ""
    return ConditionStatus.FALSE, NONE_STUCK, f"{counts.judged} partition(s) are judged{rest}{waiting}"


def sentence(group: str, partition: TopicPartition, it: Stuck) -> str:
    """What is known, and no more."""
    at = "" if it.head.at is None else f", of {_time(it.head.at)}"
    record = f"{partition}@{it.head.offset}"
    headers = "headers that are not UTF-8" if it.head.headers is None else f"{it.head.headers} header(s)"
    what = f"({it.head.size} bytes, {headers}{at})"
    since = _time(datetime.fromtimestamp(it.since_ms / 1000, UTC))
    if it.verdict is Verdict.STUCK:
        return (
            f"group {group} does not get past record {record} {what}: its committed offset has been {it.committed} "
            f"since {since}, although the log grows and the owner is alive"
        )
    others = ", ".join(str(p) for p in it.among[:_NAMED]) + ("" if len(it.among) <= _NAMED else " and others")
    return (
        f"group {group} has been at record {record} {what} since {since}; its owner makes no progress in "
        f"{len(it.among)} partitions ({others}), and the next record of one of them may be the cause"
    )


def happenings(group: str, changes: Changes) -> tuple[KubeEvent, ...]:
    return tuple(_happenings(group, changes))


def _happenings(group: str, changes: Changes) -> Iterator[KubeEvent]:
    for partition, it in sorted(changes.found.items()):
        key = f"stuck/{partition}/{it.head.offset}/{it.since_ms // 1000}/{it.verdict.value}"
        yield KubeEvent(EventType.WARNING, RECORD_STUCK_EVENT, sentence(group, partition, it), key)
    for partition, it in sorted(changes.passed.items()):
        key = f"passed/{partition}/{it.head.offset}/{it.since_ms // 1000}"
        message = f"group {group} is no longer known to be stuck at {partition}@{it.head.offset}"
        yield KubeEvent(EventType.NORMAL, PASSED, message, key)


def _row(partition: TopicPartition, it: Stuck) -> StuckRecord:
    return StuckRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=it.head.offset,
        committed=it.committed,
        since=datetime.fromtimestamp(it.since_ms // 1000, UTC),
        timestamp=it.head.at,
        size=it.head.size,
        headers=it.head.headers,
        one_of=len(it.among) or None,
        skip=it.reset if it.made and not it.declined else None,
    )


def _time(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


# --- of many groups ---------------------------------------------------------------------------------------------------


def together(whole: WholeView) -> tuple[PolicyStatus, tuple[TroubledGroup, ...]]:
    """The status with the sums, and the groups that stand at a record."""
    rows: Mapping[str, StuckRecordsStatus] = {
        group: status.stuck_records for group, status in whole.each.items() if status.stuck_records is not None
    }
    sums = StuckRecordsStatus(
        watched=sum(row.watched or 0 for row in rows.values()),
        judged=sum(row.judged or 0 for row in rows.values()),
        stuck=sum(row.stuck or 0 for row in rows.values()),
    )
    reasons = Counter(_reasons(whole))
    if silent := len(whole.each) - reasons.total():
        reasons[NOT_LOOKED_AT] = silent
    message = f"of {len(whole.each)} group(s): " + ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items()))
    worst = next((reason for reason in _TROUBLES if reasons[reason]), None)
    if worst is not None:
        verdict = ConditionStatus.TRUE, worst, f"{message}. status.groups.worst names them"
    elif sums.judged:
        verdict = ConditionStatus.FALSE, NONE_STUCK, message
    else:
        verdict = ConditionStatus.UNKNOWN, NOT_JUDGED, message
    return whole.told(RECORD_STUCK, verdict, stuck_records=sums), _troubled(whole)


def _reasons(whole: WholeView) -> Collection[str]:
    found = (find_condition(status.conditions, RECORD_STUCK) for status in whole.each.values())
    return [condition.reason for condition in found if condition is not None]


def _troubled(whole: WholeView) -> tuple[TroubledGroup, ...]:
    rows = []
    for group, status in sorted(whole.each.items()):
        condition = find_condition(status.conditions, RECORD_STUCK)
        if condition is not None and condition.reason in _TROUBLES:
            rows.append(TroubledGroup(group=group, reason=condition.reason, message=condition.message[:_MESSAGE]))
    rows.sort(key=lambda row: _TROUBLES.index(row.reason))
    return tuple(rows)
