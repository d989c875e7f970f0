"""What is said of stuck records: no more than is known, and nothing of what is in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.kafka.model import RecordHead, TopicPartition
from tidegate.policy.feature import PolicyView, WholeView
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import RECORD_STUCK, Condition, ConditionStatus, find_condition
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.stuck_records import StuckRecordsStatus
from tidegate.stuck.judging import Verdict
from tidegate.stuck.status import Counts, _verdict, happenings, sentence, together
from tidegate.stuck.told import Changes, Known, Stuck, reset_id

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPEC = parse_spec(
    OffsetResetPolicySpec, {"spec": {"connectionRef": {"name": "k"}, "groups": ["*"], "stuckRecords": {}}}
)
STUCK = Stuck(10, RecordHead(12, NOW, 7, 1), int(NOW.timestamp() * 1000), Verdict.STUCK)


def test_one_that_may_be_held_up_by_another_is_not_said_to_be_what_is_wrong() -> None:
    text = sentence("payments", P, Stuck(10, STUCK.head, STUCK.since_ms, Verdict.ONE_OF_SEVERAL, (P, Q)))
    assert "does not get past" not in text
    assert (
        "its owner makes no progress in 2 partitions (orders-0, orders-1), and the next record of one of them may be "
        "the cause" in text
    )


def test_one_alone_is_named_by_its_own_offset_and_by_what_is_committed() -> None:
    assert sentence("payments", P, STUCK) == (
        "group payments does not get past record orders-0@12 (7 bytes, 1 header(s), of 2026-11-20T12:00:00Z): its "
        "committed offset has been 10 since 2026-11-20T12:00:00Z, although the log grows and the owner is alive"
    )


def test_headers_that_cannot_be_counted_are_not() -> None:
    text = sentence("payments", P, replace(STUCK, head=replace(STUCK.head, headers=None)))
    assert "orders-0@12 (7 bytes, headers that are not UTF-8, of 2026-11-20T12:00:00Z)" in text


@pytest.mark.parametrize(("alone", "among", "more"), [(1, 0, ""), (1, 2, ", and 2 more"), (7, 1, ", and 3 more")])
def test_those_that_are_not_named_are_counted(alone: int, among: int, more: str) -> None:
    partitions = [TopicPartition("orders", number) for number in range(alone + among)]
    several = replace(STUCK, verdict=Verdict.ONE_OF_SEVERAL, among=tuple(partitions[-2:]))
    stuck = {p: STUCK if p.partition < alone else several for p in partitions}
    view = PolicyView({}, SPEC, PolicyStatus(), cast("Any", None), NOW, False, cast("Any", SimpleNamespace(group="g")))

    _, reason, message = _verdict(view, partitions, Known(stuck=stuck), Counts())

    assert reason == "Stuck"
    assert message.count("does not get past") == min(alone, 5)
    assert message.rpartition("the owner is alive")[2] == more


def test_each_standstill_has_its_own_event_and_reset() -> None:
    again = Stuck(10, STUCK.head, STUCK.since_ms + 60_000, Verdict.STUCK)
    keys = {event.key for it in (STUCK, again) for event in happenings("g", Changes({P: it}, {P: it}))}
    assert len(keys) == 4
    assert len({reset_id(group, p, it) for group in ("g", "h") for p in (P, Q) for it in (STUCK, again)}) == 8


def _group(reason: str, status: ConditionStatus, stuck: int) -> PolicyStatus:
    said = Condition(type=RECORD_STUCK, status=status, reason=reason, message="m", last_transition_time=NOW)
    return PolicyStatus(conditions=(said,), stuck_records=StuckRecordsStatus(watched=2, judged=2 - stuck, stuck=stuck))


def test_of_many_groups_the_worst_is_said() -> None:
    body = {"metadata": {"generation": 1}}
    each = {
        "a": _group("NoneStuck", ConditionStatus.FALSE, 0),
        "b": _group("OneOfSeveral", ConditionStatus.TRUE, 1),
        "c": _group("Stuck", ConditionStatus.TRUE, 1),
    }
    status, worst = together(WholeView(body, SPEC, PolicyStatus(), NOW, each))
    condition = find_condition(status.conditions, RECORD_STUCK)
    assert condition is not None
    assert (condition.status, condition.reason) == (ConditionStatus.TRUE, "Stuck")
    assert [row.group for row in worst] == ["c", "b"]
    assert status.stuck_records is not None
    assert (status.stuck_records.watched, status.stuck_records.judged, status.stuck_records.stuck) == (6, 4, 2)

    status, worst = together(WholeView(body, SPEC, PolicyStatus(), NOW, {"a": each["a"]}))
    condition = find_condition(status.conditions, RECORD_STUCK)
    assert condition is not None
    assert (condition.status, condition.reason, worst) == (ConditionStatus.FALSE, "NoneStuck", ())
