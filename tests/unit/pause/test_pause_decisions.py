"""What is done next about a pause, and what its status says, as tables: given what is seen, when decided, then this."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey, Hold, HoldKey
from tidegate.kafka.model import Group, GroupState, GroupType, Member, Topic, TopicPartition
from tidegate.pause import plan
from tidegate.pause.holds import holder, pause_of
from tidegate.pause.model import AddFinalizer, ChangeHolds, Decision, Observed, Patience, RemoveFinalizer, Seen
from tidegate.pause.plan import decide
from tidegate.resources import partitions
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import Refusal, find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.pause import ConsumerGroupPauseSpec, PausePhase, PauseStatus

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CREATED = NOW - timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MINE = holder("conn", "p")
GROUP = "payments"
O = [TopicPartition("orders", n) for n in range(8)]  # noqa: E741 - as the tables below read it
A, B = "member-a", "member-b"


def spec_of(*partitions: dict[str, str], **spec: object) -> ConsumerGroupPauseSpec:
    body: dict[str, object] = {"connectionRef": {"name": "kafka"}, "group": GROUP, "reason": "INC-1", **spec}
    if partitions:
        body["partitions"] = list(partitions)
    return parse_spec(ConsumerGroupPauseSpec, {"spec": body})


def group_of(**members: Iterable[TopicPartition]) -> Group:
    """Members by the last letter of their id; none: the group is Empty."""
    return Group(
        GROUP,
        GroupState.STABLE if members else GroupState.EMPTY,
        GroupType.CLASSIC,
        "range",
        tuple(
            Member(f"member-{name}", f"client-{name}", f"/10.0.0.{number}", None, frozenset(owned))
            for number, (name, owned) in enumerate(members.items())
        ),
    )


ORDERS = {"topic": "orders"}
TOPICS = {"orders": Topic("orders", "id-o", 4), "refunds": Topic("refunds", "id-r", 2)}
HOLD = Hold("INC-1", 30_000)


class Topics:
    """The two topics, record by record."""

    def __init__(self) -> None:
        self.gates = Gates()
        self._end = 1  # no hold has epoch 0

    def hold(self, *partitions: TopicPartition, of: str = MINE, hold: Hold = HOLD) -> Topics:
        for partition in partitions:
            self.gates.take(HoldKey(GROUP, partition.topic, partition.partition, of), hold, self._end)
            self._end += 1
        return self

    def ack(self, *partitions: TopicPartition, member: str = A, offset: int = 42, epoch: int | None = None) -> Topics:
        for partition in partitions:
            key = AckKey(GROUP, partition.topic, partition.partition)
            ack = Ack(self._end if epoch is None else epoch, offset, member)
            self.gates.acks = {**self.gates.acks, key: (ack,)}
        return self


def seen_of(
    spec: ConsumerGroupPauseSpec | None = None,
    group: Group | None = None,
    topics: Topics | None = None,
    *,
    status: PauseStatus | None = None,
    allow: AllowSpec | None = None,
    exists: dict[str, Topic] | None = None,
    **given: Any,
) -> Seen:
    observed = Observed(
        connection="kafka",
        connection_uid="conn",
        allow=allow or AllowSpec(),
        topics=TOPICS if exists is None else exists,
        group=group or group_of(a=O[:2], b=O[2:4]),
        gates=(topics or Topics()).gates,
        committed=given.pop("committed", {}),
        log_ends=given.pop("log_ends", None),
    )
    seen = Seen(
        uid="p",
        name="ns/stop",
        generation=1,
        created=CREATED,
        spec=spec or spec_of(ORDERS),
        status=status or PauseStatus(),
        now=NOW,
        observed=observed,
        has_finalizer=True,
    )
    return replace(seen, **given)


def later(seen: Seen, decision: Decision, by: timedelta, topics: Topics | None = None, **given: Any) -> Seen:
    """The next pass, with what the one before has left."""
    observed = seen.observed
    if topics is not None and observed is not None:
        observed = replace(observed, gates=topics.gates)
    seen = replace(
        seen, status=decision.status, waits=decision.waits, rows=decision.rows, now=seen.now + by, observed=observed
    )
    return replace(seen, **given)


def held_by(decision: Decision) -> list[TopicPartition]:
    assert isinstance(decision.action, ChangeHolds)
    assert not decision.action.changes.release
    return [key.topic_partition for key in decision.action.changes.write]


def released_by(decision: Decision) -> list[TopicPartition]:
    assert isinstance(decision.action, ChangeHolds)
    assert not decision.action.changes.write
    return [key.topic_partition for key in decision.action.changes.release]


def condition(decision: Decision, name: str) -> tuple[str, str] | None:
    found = find_condition(decision.status.conditions, name)
    return (found.status.value, found.reason) if found is not None else None


def message(decision: Decision, name: str = "Paused") -> str:
    found = find_condition(decision.status.conditions, name)
    return found.message if found is not None else ""


# --- closing ----------------------------------------------------------------------------------------------------------


def test_the_finalizer_comes_before_the_first_hold() -> None:
    decision = decide(seen_of(has_finalizer=False))
    assert isinstance(decision.action, AddFinalizer)
    assert decision.again_after_s == 0
    assert decision.status.phase is PausePhase.PAUSING
    assert decision.status.paused == "0/4"


def test_all_partitions_of_a_topic_are_held_with_the_reason_and_the_drain_time_out() -> None:
    decision = decide(seen_of(spec_of(ORDERS, drainTimeout="1500ms")))
    assert held_by(decision) == O[:4]
    assert isinstance(decision.action, ChangeHolds)
    assert decision.action.changes.write[HoldKey(GROUP, "orders", 0, MINE)] == Hold("INC-1", 1500)
    assert condition(decision, "Reconciling") == ("True", "Pausing")
    assert condition(decision, "Paused") == ("False", "Pausing")
    assert [(h.reason, h.type.value) for h in decision.happenings] == [("Pausing", "Normal")]


def test_a_pause_without_a_reason_says_whose_it_is() -> None:
    spec = spec_of(ORDERS)
    decision = decide(seen_of(spec.model_copy(update={"reason": None})))
    assert isinstance(decision.action, ChangeHolds)
    assert {hold.reason for hold in decision.action.changes.write.values()} == {"ConsumerGroupPause ns/stop"}


def test_only_what_is_missing_is_held_and_only_what_differs_is_written_again() -> None:
    topics = Topics().hold(O[0], O[1]).hold(O[2], hold=Hold("another reason", 30_000))
    assert held_by(decide(seen_of(topics=topics))) == [O[2], O[3]]


def test_what_is_not_wanted_any_more_is_released() -> None:
    topics = Topics().hold(*O[:4])
    assert released_by(decide(seen_of(spec_of({"topic": "orders", "partitions": ["1-3"]}), topics=topics))) == [O[0]]


def test_holds_through_an_earlier_connection_are_taken_over() -> None:
    topics = Topics().hold(*O[:4], of=holder("conn-before", "p")).hold(*O[:4])
    assert released_by(decide(seen_of(topics=topics))) == O[:4]


def test_holds_of_others_are_left_alone() -> None:
    topics = Topics().hold(*O[:4]).hold(O[0], of=holder("conn", "other")).hold(O[1], of="reset/x").hold(O[2], of="cli")
    decision = decide(seen_of(topics=topics.ack(*O[:2]).ack(*O[2:4], member=B)))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PAUSED


def test_it_is_paused_once_every_owner_has_obeyed() -> None:
    topics = Topics().hold(*O[:4])
    first = decide(seen_of(topics=topics))
    assert first.status.phase is PausePhase.PAUSING
    assert first.again_after_s == 0.2

    topics.ack(*O[:2]).ack(O[2], member=B)
    second = decide(later(seen_of(topics=topics), first, SECOND))
    assert second.status.paused == "3/4"
    assert second.status.phase is PausePhase.PAUSING
    assert "orders-3" in message(second)

    topics.ack(O[3], member=B)
    third = decide(later(seen_of(topics=topics), second, 2 * SECOND))
    assert third.status.paused == "4/4"
    assert third.status.phase is PausePhase.PAUSED
    assert third.obeyed == frozenset(O[:4])
    assert (condition(third, "Ready"), condition(third, "Paused")) == (("True", "Paused"), ("True", "Paused"))
    assert condition(third, "Reconciling") is None
    assert [h.reason for h in third.happenings] == ["Paused"]
    assert [row.since for row in third.status.partitions] == [NOW + SECOND] * 3 + [NOW + 2 * SECOND]
    assert {row.member for row in third.status.partitions} == {A, B}


def test_a_later_hold_of_somebody_else_need_not_be_obeyed() -> None:
    topics = Topics().hold(*O[:4])
    topics.ack(*O[:2]).ack(*O[2:4], member=B)
    for partition in O[:4]:  # each obeyed exactly this pause's hold
        held = topics.gates.holds[HoldKey(GROUP, "orders", partition.partition, MINE)]
        topics.ack(partition, member=A if partition.partition < 2 else B, epoch=held.epoch)
    topics.hold(*O[:4], of="reset/x")
    assert decide(seen_of(topics=topics)).status.phase is PausePhase.PAUSED


def test_an_ack_of_somebody_who_does_not_own_it_any_more_does_not_count() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:4], member=A)
    decision = decide(seen_of(topics=topics))
    assert decision.status.paused == "2/4"
    assert decision.status.phase is PausePhase.PAUSING


@pytest.mark.parametrize("state", [GroupState.EMPTY, GroupState.DEAD])
def test_what_nobody_owns_is_paused(state: GroupState) -> None:
    group = Group(GROUP, state, GroupType.CLASSIC)
    assert held_by(decide(seen_of(group=group))) == O[:4]
    decision = decide(seen_of(group=group, topics=Topics().hold(*O[:4])))
    assert decision.status.phase is PausePhase.PAUSED
    assert decision.status.paused == "4/4"
    assert decision.obeyed == frozenset()


def test_a_rebalance_does_not_take_back_what_was_said_for_a_while() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    paused = decide(seen_of(topics=topics))
    hidden = replace(group_of(a=(), b=()), state=GroupState.PREPARING_REBALANCE)
    seen = later(seen_of(group=hidden, topics=topics), paused, SECOND)

    rebalancing = decide(seen)
    assert rebalancing.status.phase is PausePhase.PAUSED
    assert not rebalancing.happenings
    assert rebalancing.again_after_s == 1.0, "it may not be said for much longer"
    still = decide(later(seen, rebalancing, 7 * SECOND))
    assert still.status.phase is PausePhase.PAUSING


# --- offsets and lag --------------------------------------------------------------------------------------------------


def test_lag_is_what_has_come_behind_the_owners_offset() -> None:
    topics = Topics().hold(*O[:2]).ack(O[0], offset=40).ack(O[1], offset=-1)
    seen = seen_of(
        spec_of({"topic": "orders", "partitions": ["0-1"]}),
        topics=topics,
        committed={O[0]: 7, O[1]: 5},
        log_ends={O[0]: 100, O[1]: 100},
    )
    rows = decide(seen).status.partitions
    assert [(row.offset, row.lag) for row in rows] == [(40, 60), (5, 95)]
    unowned = decide(replace(seen, observed=replace(seen.observed, group=group_of())))  # type: ignore[type-var]
    assert [(row.offset, row.lag) for row in unowned.status.partitions] == [(7, 93), (5, 95)]
    nothing = decide(replace(seen, observed=replace(seen.observed, group=group_of(), committed={})))  # type: ignore[type-var]
    assert [(row.offset, row.lag) for row in nothing.status.partitions] == [(-1, None)] * 2


def test_lag_that_was_not_looked_up_this_time_stays_as_it_was_said() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2], offset=40).ack(*O[2:4], member=B, offset=40)
    ends = dict.fromkeys(O[:4], 100)
    said = decide(seen_of(topics=topics, log_ends=ends))
    again = decide(later(seen_of(topics=topics), said, 5 * SECOND))
    assert again.status == said.status


# --- members without the agent ----------------------------------------------------------------------------------------


def test_an_owner_that_says_nothing_is_never_called_paused_and_named_after_a_while() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2])
    first = decide(seen_of(topics=topics))
    assert first.status.phase is PausePhase.PAUSING
    assert not first.status.unmanaged_members

    decision = decide(later(seen_of(topics=topics), first, 6 * SECOND))

    assert decision.status.phase is PausePhase.DEGRADED
    assert decision.status.paused == "2/4"
    [member] = decision.status.unmanaged_members
    assert (member.member_id, member.client_id, member.host) == (B, "client-b", "/10.0.0.1")
    assert condition(decision, "Stalled") == ("True", "UnmanagedMembers")
    assert condition(decision, "Paused") == ("False", "UnmanagedMembers")
    assert "client-b at 10.0.0.1" in message(decision)
    assert "with the agent" in message(decision)
    assert [(h.reason, h.type.value) for h in decision.happenings] == [("Degraded", "Warning")]
    assert {row.phase for row in decision.status.partitions[2:]} == {PausePhase.DEGRADED}


def test_a_restarted_operator_does_not_wait_for_them_again() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2])
    seen = seen_of(topics=topics)
    degraded = decide(later(seen, decide(seen), 6 * SECOND))
    restarted = later(seen_of(topics=topics), degraded, 7 * SECOND, waits={}, rows=None)
    assert decide(restarted).status == degraded.status


def test_once_it_runs_the_agent_it_is_paused() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2])
    seen = seen_of(topics=topics)
    degraded = decide(later(seen, decide(seen), 6 * SECOND))
    topics.ack(*O[2:4], member=B)
    paused = decide(later(seen, degraded, 8 * SECOND, topics))
    assert paused.status.phase is PausePhase.PAUSED
    assert not paused.status.unmanaged_members
    assert condition(paused, "Stalled") is None


def test_an_owner_with_the_agent_gets_its_drain_time_and_then_is_told_of() -> None:
    topics = Topics().ack(O[0], O[1], epoch=0).hold(*O[:2]).hold()
    spec = spec_of({"topic": "orders", "partitions": ["0-1"]}, drainTimeout="10s")
    topics.gates.take(HoldKey(GROUP, "orders", 0, MINE), Hold("INC-1", 10_000), 5)
    topics.gates.take(HoldKey(GROUP, "orders", 1, MINE), Hold("INC-1", 10_000), 6)
    seen = seen_of(spec, topics=topics)
    first = decide(seen)
    draining = decide(later(seen, first, 20 * SECOND))
    assert draining.status.phase is PausePhase.PAUSING
    late = decide(later(later(seen, first, 20 * SECOND), draining, 10 * SECOND))
    assert late.status.phase is PausePhase.DEGRADED
    assert condition(late, "Stalled") == ("True", "AckOverdue")
    assert not late.status.unmanaged_members

    restarted = later(later(seen, first, 30 * SECOND), late, SECOND, waits={}, rows=None)
    assert decide(restarted).status == late.status

    # Another owner has its own drain time before it.
    moved = seen_of(spec, group_of(b=O[:2]), topics.ack(*O[:2], member=B, epoch=0))
    assert decide(later(moved, late, 31 * SECOND, waits={}, rows=None)).status.phase is PausePhase.PAUSING


def test_a_consumer_outside_the_group_is_waited_for_but_not_for_ever() -> None:
    topics = Topics().hold(*O[:1]).ack(O[0], member="", epoch=0)
    topics.gates.take(HoldKey(GROUP, "orders", 0, MINE), HOLD, 5)
    seen = seen_of(spec_of({"topic": "orders", "partitions": [0]}), group_of(), topics)
    first = decide(seen)
    assert first.status.phase is PausePhase.PAUSING
    paused = decide(later(seen, first, 46 * SECOND))
    assert paused.status.phase is PausePhase.PAUSED

    # The process before has waited for it: a new one does not do so again.
    restarted = later(seen, paused, 50 * SECOND, waits={}, rows=None)
    again = decide(restarted)
    assert again.status == paused.status
    assert decide(later(restarted, again, SECOND)).status == paused.status
    unwaited = later(seen, first, 50 * SECOND, waits={}, rows=None)
    assert decide(unwaited).status.phase is PausePhase.PAUSING


# --- which partitions -------------------------------------------------------------------------------------------------


def test_partitions_added_later_are_held() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    more = seen_of(topics=topics, exists={"orders": Topic("orders", "id-o", 6)})
    decision = decide(more)
    assert held_by(decision) == O[4:6]
    assert decision.status.paused == "4/6"
    assert decision.status.phase is PausePhase.PAUSING


def test_a_pattern_means_the_topics_that_match_and_are_allowed() -> None:
    topics = {name: Topic(name, name, 1) for name in ("orders", "orders-eu", "refunds", "orders-secret")}
    allow = AllowSpec(topics=("orders", "orders-eu", "refunds"))
    decision = decide(seen_of(spec_of({"topic": "orders*"}), exists=topics, allow=allow))
    assert held_by(decision) == [TopicPartition("orders", 0), TopicPartition("orders-eu", 0)]


def test_a_group_whose_topics_are_not_named_is_paused_on_what_it_owns_and_has_offsets_for() -> None:
    decision = decide(seen_of(spec_of(), group_of(a=[O[0]]), committed={TopicPartition("refunds", 1): 3}))
    assert held_by(decision) == [*O[:4], TopicPartition("refunds", 0), TopicPartition("refunds", 1)]


def test_a_group_that_is_gone_for_a_moment_stays_paused_on_what_it_read() -> None:
    topics = Topics().hold(*O[:4])
    decision = decide(seen_of(spec_of(), group_of(), topics))
    assert decision.action is None
    assert decision.status.paused == "4/4"


def test_a_control_topic_that_was_lost_while_the_group_was_away_is_written_anew() -> None:
    paused = decide(seen_of(spec_of(), group_of(a=O[:4]), Topics().hold(*O[:4]).ack(*O[:4])))
    again = decide(later(seen_of(spec_of(), group_of()), paused, SECOND, Topics()))
    assert held_by(again) == O[:4]


def test_a_topic_that_cannot_be_seen_for_a_moment_stays_held() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    for spec in (spec_of(ORDERS), spec_of(), spec_of({"topic": "ord*"})):
        decision = decide(seen_of(spec, group_of(), topics, exists={}))
        assert decision.action is None
        assert decision.status.phase is PausePhase.PENDING


def test_a_topic_that_does_not_exist_yet_is_waited_for() -> None:
    decision = decide(seen_of(spec_of({"topic": "later"}), exists={}, group=group_of()))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PENDING
    assert condition(decision, "Reconciling") == ("True", "WaitingForTopics")
    assert "later" in message(decision)


def test_a_group_that_nobody_knows_is_waited_for() -> None:
    decision = decide(seen_of(spec_of(), group=Group(GROUP, GroupState.DEAD, GroupType.UNKNOWN)))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PENDING
    assert condition(decision, "Reconciling") == ("True", "WaitingForGroup")


def test_a_partition_that_is_named_and_not_there_yet_is_held_beforehand() -> None:
    spec = spec_of({"topic": "orders", "partitions": ["3-5"]})
    assert held_by(decide(seen_of(spec))) == O[3:6]
    decision = decide(seen_of(spec, topics=Topics().hold(*O[3:6]).ack(O[3], member=B)))
    assert decision.status.phase is PausePhase.PAUSED
    assert decision.status.paused == "1/1"
    assert [row.phase.value for row in decision.status.partitions] == ["Paused", "Pending", "Pending"]
    assert "2 named partition(s) do not exist yet" in message(decision)


def test_numbers_beyond_all_measure_are_not_all_held_beforehand() -> None:
    decision = decide(seen_of(spec_of({"topic": "orders", "partitions": ["0-99999"]})))
    assert len(held_by(decision)) == 1004
    assert len(decision.status.partitions) == 200
    assert decision.status.partitions_omitted == 804


@pytest.mark.parametrize(
    ("kind", "acked", "is_told"),
    [(GroupType.SIMPLE, 0, True), (GroupType.SIMPLE, 4, False), (GroupType.CLASSIC, 0, False)],
    ids=["nobody is known", "the agent has answered", "it has had members"],
)
def test_that_a_consumer_may_read_on_which_no_group_shows_is_said(kind: GroupType, acked: int, is_told: bool) -> None:
    """It uses assign(), and nobody can tell whether it is there."""
    topics = Topics().hold(*O[:4]).ack(*O[:acked], member="")
    decision = decide(seen_of(topics=topics, group=Group(GROUP, GroupState.EMPTY, kind)))
    assert decision.status.phase is PausePhase.PAUSED
    ready = find_condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert ("assign()" in ready.message) == is_told, ready.message


# --- what may not be --------------------------------------------------------------------------------------------------

NARROW = AllowSpec(groups=("other-*",))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"spec": spec_of({"topic": "__consumer_offsets"})}, "InternalTopic"),
        ({"allow": NARROW}, "GroupNotAllowed"),
        ({"allow": AllowSpec(topics=("refunds",))}, "TopicNotAllowed"),
        ({"spec": spec_of(), "allow": AllowSpec(topics=("refunds",))}, "TopicNotAllowed"),
        ({"group": Group("payments", GroupState.UNKNOWN, GroupType.STREAMS)}, "UnsupportedGroup"),
        ({"group": Group("payments", GroupState.UNKNOWN, GroupType.SHARE)}, "UnsupportedGroup"),
    ],
)
def test_what_is_refused_is_said_once_and_nothing_is_held(given: dict[str, Any], reason: str) -> None:
    decision = decide(seen_of(has_finalizer=False, **given))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PENDING
    assert condition(decision, "Stalled") == ("True", reason)
    assert condition(decision, "Paused") == ("False", reason)
    [happening] = decision.happenings
    assert (happening.reason, happening.type.value) == (reason, "Warning")
    again = decide(later(seen_of(has_finalizer=False, **given), decision, SECOND))
    assert [h.key for h in again.happenings] == [happening.key]


def test_what_is_not_allowed_any_more_is_let_go() -> None:
    topics = Topics().hold(*O[:4])
    assert released_by(decide(seen_of(topics=topics, allow=NARROW))) == O[:4]
    assert isinstance(decide(seen_of(allow=NARROW)).action, RemoveFinalizer)


def test_a_spec_that_cannot_be_read_lets_nothing_go() -> None:
    seen = replace(seen_of(topics=Topics().hold(*O[:4])), spec=None, invalid="spec.group: is required")
    decision = decide(seen)
    assert decision.action is None
    assert condition(decision, "Stalled") == ("True", "InvalidSpec")


def test_unusable_control_topics_take_no_holds_and_say_what_to_do() -> None:
    why = Refusal("ControlTopicsUnusable", "topic __tidegate has cleanup.policy=delete: kafka-configs --alter ...")
    decision = decide(seen_of(unusable=why, has_finalizer=False))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PENDING
    assert condition(decision, "Stalled") == ("True", "ControlTopicsUnusable")
    assert "kafka-configs" in message(decision, "Ready")
    paused = decide(seen_of(unusable=why, topics=Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)))
    assert paused.status.phase is PausePhase.PAUSED
    assert condition(paused, "Stalled") == ("True", "ControlTopicsUnusable")
    assert held_by(decide(seen_of(unusable=why, try_again=True))) == O[:4]


def test_without_kafka_nothing_is_decided_and_what_was_said_is_doubted() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    paused = decide(seen_of(topics=topics))
    away = Refusal(
        "WaitingForConnection", "KafkaConnection kafka is not ready (KafkaUnavailable): this pause waits for it"
    )
    decision = decide(later(seen_of(), paused, SECOND, observed=None, waiting=away))
    assert decision.action is None
    assert decision.status.phase is PausePhase.PAUSED
    assert decision.status.paused == "4/4"
    assert condition(decision, "Paused") == ("Unknown", "WaitingForConnection")
    assert condition(decision, "Ready") == ("False", "WaitingForConnection")


def test_clients_with_names_without_end_do_not_keep_the_status_from_being_written() -> None:
    """Names of clients may have 32 kB, and the API server takes 1.5 MB in all: the status is written before anything is
    done, so that a member could keep its group from being paused."""
    many = [TopicPartition("orders", n) for n in range(400)]
    names = [f"{'x' * 30_000}-{n}" for n in range(200)]
    members = (Member(it, it, "/10.0.0.1", None, frozenset(many[2 * n : 2 * n + 2])) for n, it in enumerate(names))
    group = Group(GROUP, GroupState.STABLE, GroupType.CLASSIC, "range", tuple(members))
    topics = Topics().hold(*many)
    seen = seen_of(group=group, topics=topics, exists={"orders": Topic("orders", "id-o", 400)})
    first = decide(seen)
    decision = decide(later(seen, first, 6 * SECOND))
    assert condition(decision, "Paused") == ("False", "UnmanagedMembers")
    assert len(decision.status.unmanaged_members) == len(decision.status.partitions) == 200
    assert len(json.dumps(decision.status.to_json())) < 500_000
    assert "Start them with the agent" in message(decision)
    assert len({row.member for row in decision.status.partitions}) == 100
    # What an earlier process has said of them is known again.
    again = decide(later(seen, decision, SECOND, waits={}, rows=None))
    assert condition(again, "Paused") == ("False", "UnmanagedMembers")


def test_numbers_of_partitions_by_the_million_are_not_counted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes are made on the event loop, which also renews the Lease: whoever may make a pause must not hold it up."""
    monkeypatch.delattr(partitions, "numbers_of")
    everything = ["0-99999"] * 64
    named = [{"topic": f"t{n}", "partitions": everything} for n in range(50)]
    asked = {"connectionRef": {"name": "kafka"}, "group": GROUP, "reason": "INC-1", "partitions": named}
    spec = parse_spec(ConsumerGroupPauseSpec, {"spec": asked})
    exists = {f"t{n}": Topic(f"t{n}", f"id-{n}", 4) for n in range(2)}

    first = decide(seen_of(spec, exists=exists))
    holds = held_by(first)
    again = decide(seen_of(spec, topics=Topics().hold(*holds), exists=exists))

    assert holds == [TopicPartition("t0", n) for n in range(4 + 1000)] + [TopicPartition("t1", n) for n in range(4)]
    assert again.action is None


# --- resuming ---------------------------------------------------------------------------------------------------------


def test_suspending_lets_go_and_keeps_the_resource() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    paused = decide(seen_of(topics=topics))
    seen = later(seen_of(spec_of(ORDERS, suspend=True), topics=topics), paused, SECOND)
    resuming = decide(seen)
    assert released_by(resuming) == O[:4]
    assert resuming.status.phase is PausePhase.RESUMING
    assert [h.reason for h in resuming.happenings] == ["Resuming"]
    resumed = decide(later(seen, resuming, SECOND, Topics()))
    assert resumed.status.phase is PausePhase.RESUMED
    assert resumed.status.paused == "0/0"
    assert isinstance(resumed.action, RemoveFinalizer)
    assert (condition(resumed, "Ready"), condition(resumed, "Paused")) == (
        ("True", "Suspended"),
        ("False", "Suspended"),
    )


def test_resume_after_counts_from_the_creation_and_survives_what_else_is_changed() -> None:
    spec = spec_of(ORDERS, resumeAfter="2m")
    first = decide(seen_of(spec))
    assert first.status.resumes_at == CREATED + timedelta(minutes=2)
    changed = spec.model_copy(update={"reason": "INC-2"})
    second = decide(later(seen_of(changed, generation=2), first, 30 * SECOND))
    assert second.status.resumes_at == first.status.resumes_at
    restarted = decide(replace(seen_of(spec), status=second.status, now=NOW + 40 * SECOND))
    assert restarted.status.resumes_at == first.status.resumes_at


def test_another_resume_after_counts_from_when_it_was_seen() -> None:
    first = decide(seen_of(spec_of(ORDERS, resumeAfter="2m")))
    longer = decide(later(seen_of(spec_of(ORDERS, resumeAfter="1h")), first, 30 * SECOND))
    assert longer.status.resumes_at == NOW + 30 * SECOND + timedelta(hours=1)
    none = decide(later(seen_of(spec_of(ORDERS)), longer, SECOND))
    assert none.status.resumes_at is None
    assert none.status.resume_after is None


@pytest.mark.parametrize("limit", [{"resumeAfter": "2m"}, {"resumeAt": "2026-11-21T12:01:00Z"}])
def test_when_its_time_is_over_it_is_resumed_and_holds_nothing_any_more(limit: dict[str, str]) -> None:
    spec = spec_of(ORDERS, **limit)
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    paused = decide(seen_of(spec, topics=topics))
    assert paused.status.phase is PausePhase.PAUSED
    assert paused.again_after_s == pytest.approx(60)
    soon = decide(later(seen_of(spec, topics=topics), paused, 57 * SECOND))
    assert soon.again_after_s == pytest.approx(3)

    over = decide(later(seen_of(spec, topics=topics), soon, 60 * SECOND))
    assert released_by(over) == O[:4]
    resumed = decide(later(seen_of(spec), over, 61 * SECOND, Topics()))
    assert resumed.status.phase is PausePhase.RESUMED
    assert condition(resumed, "Ready") == ("True", "TimeOver")
    rest = decide(later(seen_of(spec), resumed, timedelta(hours=5), Topics(), has_finalizer=False))
    assert rest.status == resumed.status
    assert rest.action is None


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_deleting_releases_and_then_lets_it_go() -> None:
    topics = Topics().hold(*O[:4]).ack(*O[:2]).ack(*O[2:4], member=B)
    seen = seen_of(topics=topics, deleting_since=NOW)
    resuming = decide(seen)
    assert released_by(resuming) == O[:4]
    assert resuming.status.phase is PausePhase.RESUMING
    assert isinstance(decide(later(seen, resuming, SECOND, Topics())).action, RemoveFinalizer)
    assert decide(later(seen, resuming, SECOND, Topics(), has_finalizer=False)).action is None


def test_deleting_waits_for_kafka_for_a_while() -> None:
    away = Refusal("WaitingForConnection", "KafkaConnection kafka is not ready")
    seen = seen_of(observed=None, waiting=away, deleting_since=NOW)
    waiting = decide(seen)
    assert waiting.action is None
    assert "tidegate.io/abandon" in message(waiting)
    gone = decide(later(seen, waiting, timedelta(minutes=3)))
    assert isinstance(gone.action, RemoveFinalizer)
    assert [h.reason for h in gone.happenings] == ["HoldsLeft"]


@pytest.mark.parametrize(("limit", "says"), [(timedelta(days=2), "172800 s"), (timedelta(seconds=0.5), "0.5 s")])
def test_how_long_a_deleted_one_has_waited_is_said_whatever_the_limit_is(limit: timedelta, says: str) -> None:
    away = Refusal("WaitingForConnection", "KafkaConnection kafka is not ready")
    seen = seen_of(observed=None, waiting=away, deleting_since=NOW, patience=Patience(deletion=limit))

    gone = decide(later(seen, decide(seen), timedelta(days=3)))

    assert f"its holds could not be released in {says}: " in gone.happenings[0].message


def test_an_abandoned_one_goes_at_once() -> None:
    seen = seen_of(topics=Topics().hold(*O[:4]), deleting_since=NOW, abandoned=True)
    assert isinstance(decide(seen).action, RemoveFinalizer)


# --- holders ----------------------------------------------------------------------------------------------------------


def test_a_holder_names_the_pause_and_the_connection() -> None:
    assert holder("c", "p") == "pause/c/p"
    assert pause_of("pause/c/p", "c") == "p"
    for other in ("pause/c2/p", "pause/c", "pause/c/", "reset/c", "cli", "pause/"):
        assert pause_of(other, "c") is None


def test_every_reason_is_one_that_a_condition_takes() -> None:
    reasons = [value for name, value in vars(plan).items() if name.isupper() and isinstance(value, str)]
    assert all(reason[0].isalpha() for reason in reasons)
