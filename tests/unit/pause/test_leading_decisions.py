"""Pauses by leading: what is done next, and what the status says, given how far the group is led."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.control.gates import Gates
from tidegate.kafka.model import Group, GroupState, GroupType, Member, Seat, Topic, TopicPartition
from tidegate.leading.leaders import Look
from tidegate.leading.pacing import Report
from tidegate.pause.model import (
    AddFinalizer,
    Decision,
    LeadGroup,
    LookedAtLead,
    Observed,
    RemoveFinalizer,
    Seen,
    StopLeading,
)
from tidegate.pause.plan import decide
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.leading import LeaderSeat
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod, PausePhase, PauseStatus

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GROUP = "payments"
P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
WANTED = frozenset({P})
SEAT = Seat("tidegate-leader-1", 7, "range")
NOTED = LeaderSeat(member_id=SEAT.member_id, generation=7, assignor="range", connection_uid="conn")
OURS = Member(SEAT.member_id, "tidegate-leader", "/10.0.0.9")
CLIENT = Member("client-1", "client", "/10.0.0.1", assignment=frozenset({P, Q}))


def group_of(*members: Member, type_: GroupType = GroupType.CLASSIC, assignor: str = "range") -> Group:
    state = GroupState.STABLE if members else GroupState.EMPTY
    return Group(GROUP, state, type_, assignor if members else "", members)


def led(report: Report | None = None, wanted: frozenset[TopicPartition] | None = WANTED, **more: Any) -> LookedAtLead:
    """As this process leads it; ``report`` ``None``: not at all."""
    look = Look() if report is None else Look(report, wanted, wanted is not None)
    return LookedAtLead(look, 20.0, **more)


def seen_of(
    looked: LookedAtLead,
    *,
    group: Group | None = None,
    status: Mapping[str, Any] | None = None,
    has_finalizer: bool = True,
    deleted: bool = False,
    **spec: Any,
) -> Seen:
    asked = {
        "connectionRef": {"name": "kafka"},
        "group": GROUP,
        "method": "Leading",
        "partitions": [{"topic": "orders", "partitions": [0]}],
        **spec,
    }
    topics = {"orders": Topic("orders", "id", 2)}
    group = group_of(CLIENT) if group is None else group
    return Seen(
        uid="p",
        name="ns/p",
        generation=1,
        created=NOW - timedelta(minutes=1),
        spec=parse_spec(ConsumerGroupPauseSpec, {"spec": asked}),
        status=PauseStatus(**(status or {})),
        now=NOW,
        observed=Observed("kafka", "conn", AllowSpec(), topics, group, Gates()),
        leading=looked,
        has_finalizer=has_finalizer,
        deleting_since=NOW if deleted else None,
    )


def said(decision: Decision) -> tuple[PausePhase | None, str, str]:
    paused = find_condition(decision.status.conditions, "Paused")
    assert paused is not None
    return decision.status.phase, paused.reason, str(paused.status)


def test_it_is_led_once_the_finalizer_is_there() -> None:
    first = decide(seen_of(led(), has_finalizer=False))
    assert isinstance(first.action, AddFinalizer)
    assert decide(seen_of(led())).action == LeadGroup(GROUP, WANTED, None)


@pytest.mark.parametrize(
    ("report", "noted", "expected"),
    [
        (Report(), None, (PausePhase.PAUSING, "Pausing", "False")),
        (Report(SEAT), NOTED, (PausePhase.PAUSING, "Pausing", "False")),
        # A later process could not go on yet.
        (Report(SEAT, WANTED), None, (PausePhase.PAUSING, "Pausing", "False")),
        (Report(SEAT, frozenset({Q})), NOTED, (PausePhase.PAUSING, "Pausing", "False")),
        (Report(SEAT, WANTED), NOTED, (PausePhase.PAUSED, "Paused", "True")),
        (Report(replace(SEAT, generation=8), WANTED), NOTED, (PausePhase.PAUSED, "Paused", "True")),
        (Report(trouble="another member leads it"), NOTED, (PausePhase.DEGRADED, "GroupNotLed", "False")),
        (Report(trouble="forgotten", lost=1), NOTED, (PausePhase.DEGRADED, "FailedOpen", "False")),
    ],
)
def test_it_is_paused_only_while_the_partitions_are_nobodys_and_a_later_process_can_go_on(
    report: Report, noted: LeaderSeat | None, expected: tuple[PausePhase, str, str]
) -> None:
    decision = decide(seen_of(led(report), group=group_of(OURS, CLIENT), status={"leader": noted}))
    assert said(decision) == expected
    assert decision.action is None
    assert decision.status.fails_open_after == timedelta(seconds=20)


def test_each_partition_is_said_to_be_paused_once_it_is_nobodys() -> None:
    report = Report(SEAT, frozenset({P}))
    seen = seen_of(led(report, frozenset({P, Q})), status={"leader": NOTED}, partitions=[{"topic": "orders"}])
    decision = decide(seen)
    assert [row.phase for row in decision.status.partitions] == [PausePhase.PAUSED, PausePhase.PAUSING]
    assert (decision.status.paused, decision.status.partitions_paused) == ("1/2", 1)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([{"topic": "refunds"}], "there is nothing to pause yet; topic(s) refunds do not exist yet"),
        ([{"topic": "orders", "partitions": [7]}], "there is nothing to pause yet"),
    ],
)
def test_what_is_not_there_yet_is_waited_for_by_its_name(partitions: list[Any], message: str) -> None:
    decision = decide(seen_of(led(), has_finalizer=False, partitions=partitions))
    ready = find_condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert (ready.reason, ready.message) == ("WaitingForTopics", message)


ROWS = [{"topic": "orders", "partition": 0, "phase": "Paused"}]


@pytest.mark.parametrize(
    ("noted", "partitions"),
    [(NOTED, [0, 1]), (NOTED.model_copy(update={"connection_uid": "of one that was deleted"}), [0])],
)
def test_what_an_earlier_process_has_said_counts_for_what_it_was_about_only(
    noted: LeaderSeat, partitions: list[int]
) -> None:
    status = {"leader": noted, "phase": PausePhase.PAUSED, "partitions": ROWS}
    decision = decide(seen_of(led(), status=status, partitions=[{"topic": "orders", "partitions": partitions}]))
    assert said(decision) == (PausePhase.PAUSING, "Pausing", "False")
    assert isinstance(decision.action, LeadGroup)


def test_it_is_told_once_that_the_group_went_on_without_its_leader() -> None:
    again = replace(SEAT, member_id="tidegate-leader-2")
    noted_again = NOTED.model_copy(update={"member_id": again.member_id})
    status: dict[str, Any] = {"leader": NOTED, "phase": PausePhase.PAUSED, "partitions": ROWS}
    keys = set()
    for report, leader in [
        (Report(SEAT, WANTED), NOTED),
        (Report(trouble="forgotten", lost=1), NOTED),
        (Report(again, trouble="forgotten", lost=1), None),
        (Report(again, trouble="forgotten", lost=1), noted_again),
        (Report(again, WANTED, lost=1), noted_again),
    ]:
        decision = decide(seen_of(led(report), status={**status, "leader": leader}))
        keys |= {happening.key for happening in decision.happenings if happening.reason == "FailedOpen"}
    assert len(keys) == 1
    # It happens once more to the member that leads it now.
    decision = decide(seen_of(led(Report(trouble="forgotten", lost=2)), status={**status, "leader": noted_again}))
    keys |= {happening.key for happening in decision.happenings if happening.reason == "FailedOpen"}
    assert len(keys) == 2


@pytest.mark.parametrize("is_late", [True, False])
def test_a_member_that_can_not_leave_keeps_no_pause_that_is_deleted(is_late: bool) -> None:
    """Its thread waits for an answer, say."""
    status = {"leader": NOTED, "phase": PausePhase.RESUMING, "method": PauseMethod.LEADING}
    seen = seen_of(led(Report(SEAT, WANTED), None, is_stopped=True), status=status, deleted=True)
    assert decide(seen).action is None
    seen = replace(seen, observed=None)
    given_up = replace(seen, now=NOW + timedelta(minutes=3)) if is_late else replace(seen, abandoned=True)
    decision = decide(given_up)
    assert isinstance(decision.action, RemoveFinalizer)
    assert decision.happenings[0].reason == "LeaderLeft"


def test_a_pause_of_an_unreadable_spec_can_be_deleted() -> None:
    status = {"leader": NOTED, "phase": PausePhase.PAUSED, "method": PauseMethod.LEADING}
    seen = replace(seen_of(led(), status=status, deleted=True), spec=None, invalid="no such field", observed=None)
    assert isinstance(decide(replace(seen, abandoned=True)).action, RemoveFinalizer)
    assert isinstance(decide(replace(seen, now=NOW + timedelta(minutes=3))).action, RemoveFinalizer)


def test_the_seat_is_noted_with_its_newest_generation() -> None:
    report = Report(replace(SEAT, generation=8), WANTED)
    decision = decide(seen_of(led(report), status={"leader": NOTED}))
    assert decision.status.leader == NOTED.model_copy(update={"generation": 8})


def test_the_next_process_leaves_what_is_said_until_it_has_looked() -> None:
    status = {"leader": NOTED, "phase": PausePhase.PAUSED, "partitions": ROWS}
    first = decide(seen_of(led(), status=status))
    assert first.action == LeadGroup(GROUP, WANTED, NOTED)
    assert first.status.phase is PausePhase.PAUSED
    assert decide(seen_of(led(Report(SEAT)), status=status)).status.phase is PausePhase.PAUSED
    lost = Report(trouble="forgotten", lost=1)
    assert said(decide(seen_of(led(lost), status=status)))[1] == "FailedOpen"


OTHER = Member("client-2", "client", "/10.0.0.2")
KAFKA_GO = Member("go-1", "app@host (github.com/segmentio/kafka-go)", "/10.0.0.3")


@pytest.mark.parametrize(
    ("group", "spec", "reason"),
    [
        (group_of(CLIENT, type_=GroupType.CONSUMER, assignor="uniform"), {}, "UnsupportedGroup"),
        (group_of(CLIENT, assignor="stream"), {}, "UnsupportedAssignor"),
        (group_of(OTHER, KAFKA_GO), {}, "UnsupportedClients"),
        (group_of(CLIENT), {"leading": {"failOpen": "Never"}}, "FailsOpen"),
        (group_of(CLIENT), {"partitions": [{"topic": "__consumer_offsets"}]}, "InternalTopic"),
    ],
)
def test_what_can_not_be_led_is_refused_before_anything_is_touched(
    group: Group, spec: Mapping[str, Any], reason: str
) -> None:
    decision = decide(seen_of(led(), group=group, has_finalizer=False, **spec))
    assert said(decision)[:2] == (PausePhase.PENDING, reason)
    assert decision.action is None


@pytest.mark.parametrize(
    "group",
    [
        group_of(KAFKA_GO),
        group_of(OURS, KAFKA_GO),
        group_of(CLIENT, assignor="sticky"),
        group_of(CLIENT, assignor="RoundRobinAssigner"),  # kafkajs' own
    ],
)
def test_what_can_be_led_is(group: Group) -> None:
    assert isinstance(decide(seen_of(led(), group=group)).action, LeadGroup)


def test_nobody_is_joined_where_nobody_reads() -> None:
    decision = decide(seen_of(led(), group=group_of(), has_finalizer=False))
    assert said(decision)[:2] == (PausePhase.PENDING, "WaitingForGroup")
    assert decision.action is None


@pytest.mark.parametrize("ends", [{"suspend": True}, {"deleted": True}, {"resumeAt": "2026-11-21T11:59:59Z"}])
def test_it_goes_only_once_the_group_is_led_no_more(ends: Mapping[str, Any]) -> None:
    status = {"leader": NOTED, "phase": PausePhase.PAUSED}
    first = decide(seen_of(led(Report(SEAT, WANTED)), status=status, **ends))
    assert first.action == StopLeading(GROUP, NOTED)
    assert first.status.leader == NOTED
    # By a process that has not led it, too.
    assert decide(seen_of(led(), status=status, **ends)).action == StopLeading(GROUP, NOTED)
    # It was asked for, and is under way.
    waits = led(Report(SEAT, WANTED), None, is_stopped=True)
    under_way = decide(seen_of(waits, status=status, **ends))
    assert under_way.action is None
    assert under_way.status.phase is PausePhase.RESUMING
    gone = decide(seen_of(led(is_stopped=True), status=status, **ends))
    assert isinstance(gone.action, RemoveFinalizer)
    assert gone.status.leader is None


def test_what_another_pause_still_wants_is_led_on() -> None:
    look = Look(Report(SEAT, WANTED), None, is_wanted=True)
    leading = LookedAtLead(look, 20.0, is_stopped=True)
    decision = decide(seen_of(leading, status={"leader": NOTED}, suspend=True))
    assert isinstance(decision.action, RemoveFinalizer)


def test_a_pause_whose_connection_is_gone_waits_for_no_leader() -> None:
    seen = replace(seen_of(led(is_out_of_reach=True), status={"leader": NOTED}, deleted=True), observed=None)
    decision = decide(replace(seen, status=seen.status.model_copy(update={"method": PauseMethod.LEADING})))
    assert isinstance(decision.action, RemoveFinalizer)


def test_what_a_process_can_not_lead_is_not_what_an_earlier_one_has_said() -> None:
    status = {"leader": NOTED, "phase": PausePhase.PAUSED, "partitions": ROWS}
    full = led(Report(ended=True, trouble="the operator already leads 100 groups, which is its limit"), None)
    decision = decide(seen_of(full, status=status))
    assert said(decision) == (PausePhase.DEGRADED, "GroupNotLed", "False")
    assert decision.action is None


def test_whether_it_is_led_again_is_not_said_before_it_is() -> None:
    status = {"leader": NOTED, "phase": PausePhase.PAUSED, "partitions": ROWS}
    decision = decide(seen_of(led(Report(trouble="NotAuthorized", lost=1, is_refused=True)), status=status))
    [message] = [happening.message for happening in decision.happenings if happening.reason == "FailedOpen"]
    assert message == (
        "the group carried on without the operator as its leader: its partitions may be read until it is led again"
    )
