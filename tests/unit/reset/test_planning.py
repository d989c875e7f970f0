"""Planning, held in tables against Kafka in memory."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import START, FakeClock, FakeKafka
from support.stopped_streams import METADATA_2
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupType, LogBounds, Topic, TopicPartition
from tidegate.kafka.names import is_allowed, matches
from tidegate.reset.model.plan import Clamped, Plan
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection, Until
from tidegate.reset.model.targets import (
    ByDuration,
    Findings,
    FromFile,
    FromGroup,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToRecord,
    ToTimestamp,
    Undo,
)
from tidegate.reset.planning import refusals
from tidegate.reset.planning.checks import CHECKS
from tidegate.reset.planning.cluster_view import read_ahead
from tidegate.reset.planning.measured import Measured
from tidegate.reset.planning.plan import SPAN_LIMIT, plan_partitions
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.planning.targets import EPOCH, NoAim, asked_time
from tidegate.resources.connection import GroupKind, Support
from tidegate.resources.replay import Then
from tidegate.resources.reset import Way
from tidegate.resources.targets import NoMatch

SECOND = timedelta(seconds=1)
NOW = START + timedelta(hours=1)

ORDERS = [TopicPartition("orders", n) for n in range(3)]
REFUNDS = [TopicPartition("refunds", n) for n in range(2)]
AUDIT = TopicPartition("audit", 0)


@pytest.fixture
def kafka() -> FakeKafka:
    """``orders`` 10..110 (one record a second) but for partition 2, which is empty; ``refunds`` 0..50; ``audit`` 0..5.

    Group ``g`` has committed ``orders`` 0 and 1 and ``refunds`` 0.
    """
    kafka = FakeKafka(FakeClock())
    for name, partitions in (("orders", 3), ("refunds", 2), ("audit", 1), ("__consumer_offsets", 1)):
        kafka.create_topic(name, partitions)
    for partition in ORDERS[:2]:
        kafka.append(partition, (START + SECOND * n for n in range(110)))
        kafka.delete_records(partition, 10)
    for partition in REFUNDS:
        kafka.append(partition, (START + SECOND * n for n in range(50)))
    kafka.append(AUDIT, [START] * 5)
    kafka.commit_directly("g", {ORDERS[0]: 60, ORDERS[1]: 70, REFUNDS[0]: 20})
    return kafka


def request(target: Target, *selections: Selection, group_id: str = "g", allowed: Iterable[str] = ("*",)) -> RunRequest:
    return RunRequest(
        run_uid="uid",
        run_id="run",
        group_id=group_id,
        connection=Connection("127.0.0.1:9092"),
        selections=selections,
        target=target,
        allowed_topics=tuple(allowed),
    )


def targets(kafka: FakeKafka, asked: RunRequest) -> dict[str, int]:
    return {str(p): offset for p, offset in make_plan(asked, kafka, NOW).targets.items()}


def refusal(kafka: FakeKafka, asked: RunRequest) -> PlanRefused:
    with pytest.raises(PlanRefused) as refused:
        make_plan(asked, kafka, NOW)
    return refused.value


def rows(offsets: dict[TopicPartition, int]) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(p.topic, p.partition, o) for p, o in offsets.items())


# --- targets ----------------------------------------------------------------------------------------------------------

ALL_ORDERS = Selection("orders")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(ToEarliest(), {"orders-0": 10, "orders-1": 10, "orders-2": 0}, id="earliest"),
        pytest.param(ToLatest(), {"orders-0": 110, "orders-1": 110, "orders-2": 0}, id="latest"),
        pytest.param(ToOffset(42), {"orders-0": 42, "orders-1": 42, "orders-2": 0}, id="offset"),
        pytest.param(ToOffset(3), {"orders-0": 10, "orders-1": 10, "orders-2": 0}, id="offset below the log"),
        pytest.param(ToOffset(10**15), {"orders-0": 110, "orders-1": 110, "orders-2": 0}, id="offset above the log"),
        pytest.param(
            ToTimestamp(START + SECOND * 50),
            {"orders-0": 50, "orders-1": 50, "orders-2": 0},
            id="timestamp of a record",
        ),
        pytest.param(
            ToTimestamp(START + SECOND * 49.5),
            {"orders-0": 50, "orders-1": 50, "orders-2": 0},
            id="between two records",
        ),
        pytest.param(
            ToTimestamp(START - SECOND), {"orders-0": 10, "orders-1": 10, "orders-2": 0}, id="timestamp before the log"
        ),
        pytest.param(
            ToTimestamp(START + SECOND * 110),
            {"orders-0": 110, "orders-1": 110, "orders-2": 0},
            id="past the last record",
        ),
        pytest.param(
            ToTimestamp(NOW + SECOND), {"orders-0": 110, "orders-1": 110, "orders-2": 0}, id="timestamp in the future"
        ),
        pytest.param(
            ByDuration(timedelta(hours=1) - SECOND * 50), {"orders-0": 50, "orders-1": 50, "orders-2": 0}, id="duration"
        ),
        pytest.param(
            ByDuration(timedelta.max), {"orders-0": 10, "orders-1": 10, "orders-2": 0}, id="duration beyond all time"
        ),
        pytest.param(
            FromFile(rows({ORDERS[0]: 42, ORDERS[1]: 1000}), "offsets.csv"),
            {"orders-0": 42, "orders-1": 110},
            id="configMap",
        ),
        pytest.param(
            Undo("before", rows({ORDERS[0]: 15, ORDERS[1]: 5}), (ORDERS[2],)),
            {"orders-0": 15, "orders-1": 10},
            id="undo",
        ),
    ],
)
def test_each_target_is_inside_the_log(kafka: FakeKafka, target: Target, expected: dict[str, int]) -> None:
    assert targets(kafka, request(target, ALL_ORDERS)) == expected


def test_shift_by_counts_from_the_committed_offsets(kafka: FakeKafka) -> None:
    some = Selection("orders", frozenset({0, 1}))
    assert targets(kafka, request(ShiftBy(-15), some)) == {"orders-0": 45, "orders-1": 55}
    assert targets(kafka, request(ShiftBy(15), some)) == {"orders-0": 75, "orders-1": 85}
    assert targets(kafka, request(ShiftBy(-55), some)) == {"orders-0": 10, "orders-1": 15}
    assert targets(kafka, request(ShiftBy(45), some)) == {"orders-0": 105, "orders-1": 110}


def test_group_takes_the_other_groups_offsets(kafka: FakeKafka) -> None:
    kafka.commit_directly("other", {ORDERS[0]: 33, ORDERS[1]: 5, AUDIT: 2})
    plan = make_plan(request(FromGroup("other"), ALL_ORDERS), kafka, NOW)
    assert {str(p.topic_partition): (p.target, p.clamped) for p in plan.partitions} == {
        "orders-0": (33, None),
        "orders-1": (10, Clamped.EARLIEST),
    }
    assert (
        "Left as they are, because group other has no committed offset for them: 1 partition (orders-2)" in plan.notes
    )


def test_what_was_found_in_records_is_taken_over(kafka: FakeKafka) -> None:
    record = ToRecord("value = 'x'")
    findings = Findings({ORDERS[0]: 42, ORDERS[1]: None}, ("Looked at 5 of 9 offsets",))

    def plan(no_match: NoMatch) -> Plan:
        return make_plan(request(replace(record, no_match=no_match), ALL_ORDERS), kafka, NOW, findings=findings)

    kept = plan(NoMatch.KEEP)
    assert kept.targets == {ORDERS[0]: 42}
    assert kept.notes[:3] == (
        "Looked at 5 of 9 offsets",
        "Left as they are, because no record was found there: 1 partition (orders-1)",
        "Left as they are, because they did not exist yet when the search began: 1 partition (orders-2)",
    )
    ended = plan(NoMatch.END)
    assert ended.targets == {ORDERS[0]: 42, ORDERS[1]: 110}
    assert "No record was found in 1 partition (orders-1): reset to the end" in ended.notes
    with pytest.raises(PlanRefused, match=r"NoMatchingRecord: no record was found in 1 partition .orders-1.*Looked at"):
        plan(NoMatch.FAIL)
    assert refusal(kafka, request(record)).reason == "SparkUnavailable"


def test_what_is_clamped_is_said(kafka: FakeKafka) -> None:
    plan = make_plan(request(ShiftBy(45), Selection("orders", frozenset({0, 1}))), kafka, NOW)
    assert [p.clamped for p in plan.partitions] == [None, Clamped.LATEST]
    assert plan.clamped == 1
    assert "Targets outside the log were moved to its nearer end: orders-1 to 110 (Latest)" in plan.notes


def test_the_log_that_a_time_finds_nothing_in_is_named(kafka: FakeKafka) -> None:
    plan = make_plan(request(ToTimestamp(START + SECOND * 50), ALL_ORDERS), kafka, NOW)
    assert plan.clamped == 0
    assert "No record at or after 2026-11-20T12:00:50.000Z in 1 partition (orders-2): reset to the end" in plan.notes


def test_a_time_from_before_the_log_may_have_lost_records(kafka: FakeKafka) -> None:
    plan = make_plan(request(ToTimestamp(START), ALL_ORDERS), kafka, NOW)
    assert any("All records left in 2 partitions (orders-0, orders-1) are at or after" in n for n in plan.notes)


@pytest.mark.parametrize(
    ("at", "topic"),
    [
        pytest.param(START - SECOND, "refunds", id="nothing was deleted"),
        pytest.param(START + SECOND * 50, "orders", id="within what is left"),
        pytest.param(START + SECOND * 200, "orders", id="after what is left"),
    ],
)
def test_a_time_whose_first_record_is_there_has_lost_none(kafka: FakeKafka, at: datetime, topic: str) -> None:
    plan = make_plan(request(ToTimestamp(at), Selection(topic)), kafka, NOW)
    assert not any("All records left" in n for n in plan.notes)


def test_times_are_never_kafkas_special_negative_ones() -> None:
    assert asked_time(ToTimestamp(EPOCH - timedelta(milliseconds=1)), NOW) == EPOCH
    assert asked_time(ByDuration(NOW - EPOCH + timedelta(milliseconds=2)), NOW) == EPOCH


def test_times_are_whole_milliseconds_at_or_after_the_asked_one() -> None:
    at = datetime(2026, 11, 20, 12, 0, 0, 1, tzinfo=UTC)
    assert asked_time(ToTimestamp(at), NOW) == datetime(2026, 11, 20, 12, 0, 0, 1000, tzinfo=UTC)
    assert asked_time(ToTimestamp(START), NOW) == START


# --- scope ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selections", "covered"),
    [
        pytest.param((), ["orders-0", "orders-1", "refunds-0"], id="what the group has offsets for"),
        pytest.param((Selection("audit"),), ["audit-0"], id="a topic the group does not read"),
        pytest.param((Selection("orders", frozenset({1})),), ["orders-1"], id="one partition"),
        pytest.param((Selection("*fund*"), Selection("audit")), ["audit-0", "refunds-0", "refunds-1"], id="pattern"),
        pytest.param((Selection("*", frozenset({1})),), ["orders-1", "refunds-1"], id="a partition of all topics"),
        pytest.param(
            (Selection("orders", frozenset({0})), Selection("ord*", frozenset({0, 2}))),
            ["orders-0", "orders-2"],
            id="overlapping",
        ),
    ],
)
def test_scope(kafka: FakeKafka, selections: tuple[Selection, ...], covered: list[str]) -> None:
    assert list(targets(kafka, request(ToEarliest(), *selections))) == covered


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (request(ToEarliest()), {"orders", "refunds"}),
        (request(ToEarliest(), Selection("audit")), {"orders", "refunds", "audit"}),
        (request(ToEarliest(), Selection("ord*")), None),
        (request(FromFile(rows({AUDIT: 1}), "offsets.csv")), {"orders", "refunds", "audit"}),
        (request(FromFile(rows({AUDIT: 1, TopicPartition("no topic\n", 0): 1}), "f")), {"orders", "refunds", "audit"}),
        (request(FromGroup("other"), Selection("orders")), {"orders", "refunds", "audit"}),
    ],
)
def test_of_a_large_cluster_only_the_topics_concerned_are_asked_for(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, asked: RunRequest, names: set[str] | None
) -> None:
    kafka.commit_directly("other", {AUDIT: 3, ORDERS[0]: 11})
    topics, calls = kafka.topics, list[object]()
    monkeypatch.setattr(kafka, "topics", lambda named=None: calls.append(named) or topics(named))

    with contextlib.suppress(PlanRefused):
        make_plan(asked, kafka, NOW)

    assert calls == [names]


def test_a_live_groups_scope_is_all_of_what_it_subscribes_to(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "g", ["orders"], auto_commit_s=None).start()
    assert list(targets(kafka, request(ToEarliest()))) == ["orders-0", "orders-1", "orders-2", "refunds-0"]


def test_shift_by_without_selections_takes_what_has_offsets(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "g", ["orders"], auto_commit_s=None).start()
    assert targets(kafka, request(ShiftBy(1))) == {"orders-0": 61, "orders-1": 71, "refunds-0": 21}


def test_a_file_without_selections_is_the_scope(kafka: FakeKafka) -> None:
    assert targets(kafka, request(FromFile(rows({AUDIT: 3}), "f"))) == {"audit-0": 3}


def test_an_undone_run_without_selections_is_the_scope(kafka: FakeKafka) -> None:
    plan = make_plan(request(Undo("before", rows({ORDERS[0]: 15}), (REFUNDS[0],))), kafka, NOW)
    assert plan.targets == {ORDERS[0]: 15}
    assert "Left as they are, because run before found no committed offset there: 1 partition (refunds-0)" in plan.notes


def test_a_group_that_reads_nothing_yet_takes_all_of_the_other_groups_places(kafka: FakeKafka) -> None:
    assert targets(kafka, request(FromGroup("g"), group_id="new")) == {"orders-0": 60, "orders-1": 70, "refunds-0": 20}


def test_rows_that_are_not_selected_are_named(kafka: FakeKafka) -> None:
    plan = make_plan(request(FromFile(rows({AUDIT: 3, ORDERS[0]: 20}), "f"), Selection("audit")), kafka, NOW)
    assert plan.targets == {AUDIT: 3}
    assert "Not selected, though in f: 1 partition (orders-0)" in plan.notes


def test_a_topic_that_is_gone_is_no_reason_to_refuse_the_rest(kafka: FakeKafka) -> None:
    kafka.commit_directly("g", {TopicPartition("gone", 0): 3, TopicPartition("__consumer_offsets", 0): 4})
    plan = make_plan(request(ToEarliest()), kafka, NOW)
    assert [str(p.topic_partition) for p in plan.partitions] == ["orders-0", "orders-1", "refunds-0"]
    assert (
        "Left out, because these partitions no longer exist, although the group has offsets there: gone-0" in plan.notes
    )
    assert "Left out, internal topics: __consumer_offsets" in plan.notes


def test_a_pattern_leaves_out_what_the_connection_does_not_allow(kafka: FakeKafka) -> None:
    plan = make_plan(request(ToEarliest(), Selection("*"), allowed=["refunds", "aud*"]), kafka, NOW)
    assert {p.topic for p in plan.partitions} == {"refunds", "audit"}
    assert "* also matches orders, which the connection does not allow" in plan.notes


def test_while_a_rebalance_hides_the_subscription_the_scope_is_not_known(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "g", ["orders"], auto_commit_s=None).start()
    kafka.rebalance("g")
    with pytest.raises(Unavailable):
        make_plan(request(ToEarliest()), kafka, NOW)
    assert list(targets(kafka, request(ToEarliest(), Selection("audit")))) == ["audit-0"]


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders-*", False),
        ("orders-eu", "orders-*", True),
        ("orders-", "orders-*", True),
        ("eu-orders-x", "*orders*", True),
        ("a.b", "a?b", False),
        ("aXb", "a.b", False),
        ("a.b", "a.*", True),
        ("[a]", "[a]*", True),
        ("", "*", True),
        ("a*", "a*", True),
        ("ab", "ab*b", False),
        ("abb", "ab*b", True),
        ("abcbd", "a*b*b*d", True),
        ("abd", "a*b*b*d", False),
        ("a\nb", "a*b", True),
        # A pattern that an expression engine would try for ever, as any tenant may write one.
        ("a" * 255, "*a" * 120 + "*b", False),
    ],
)
def test_patterns_know_only_the_star(name: str, pattern: str, expected: bool) -> None:
    assert matches(name, pattern) is expected
    assert is_allowed(name, ["never", pattern]) is expected


def test_nothing_is_allowed_by_no_pattern() -> None:
    assert not is_allowed("orders", [])


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason", "says"),
    [
        pytest.param(
            request(ToEarliest(), group_id="nobody"),
            refusals.NOTHING_MATCHES,
            "group nobody does not exist",
            id="no group",
        ),
        pytest.param(
            request(ToEarliest(), Selection("pay*")),
            refusals.NOTHING_MATCHES,
            "no partition matches pay*",
            id="no match",
        ),
        pytest.param(
            request(ToEarliest(), Selection("payments")), refusals.UNKNOWN_TOPIC, "payments", id="no such topic"
        ),
        pytest.param(
            request(ToEarliest(), Selection("orders", frozenset({1, 3, 7}))),
            refusals.UNKNOWN_PARTITION,
            "orders-3, orders-7 (orders has 3)",
            id="no such partition",
        ),
        pytest.param(
            request(ToEarliest(), Selection("__consumer_offsets")),
            refusals.INTERNAL_TOPIC,
            "__consumer_offsets",
            id="internal topic",
        ),
        pytest.param(
            request(ToEarliest(), Selection("orders"), allowed=["refunds-*"]),
            refusals.TOPIC_NOT_ALLOWED,
            "allows topics refunds-*, but not orders",
            id="topic not allowed",
        ),
        pytest.param(
            request(ToEarliest(), allowed=["refunds"]), refusals.TOPIC_NOT_ALLOWED, "but not orders", id="group's topic"
        ),
        pytest.param(
            request(ShiftBy(1), ALL_ORDERS),
            refusals.NO_COMMITTED_OFFSET,
            "shift offset for partition orders-2 since there is no current committed offset",
            id="shift without commit",
        ),
        pytest.param(request(FromGroup("g")), refusals.SAME_GROUP, "its own offsets", id="same group"),
        pytest.param(
            request(FromGroup("nobody")),
            refusals.SOURCE_WITHOUT_OFFSETS,
            "group nobody has no committed",
            id="no source",
        ),
        pytest.param(
            request(FromFile(rows({TopicPartition("payments", 0): 1}), "f")),
            refusals.UNKNOWN_TOPIC,
            "payments",
            id="row of an unknown topic",
        ),
        pytest.param(
            request(FromFile(rows({TopicPartition("orders", 9): 1}), "f")),
            refusals.UNKNOWN_PARTITION,
            "orders-9",
            id="row of an unknown partition",
        ),
        pytest.param(
            request(FromFile(rows({AUDIT: 1}), "f"), allowed=["orders"]),
            refusals.TOPIC_NOT_ALLOWED,
            "not audit",
            id="row of a forbidden topic",
        ),
        pytest.param(
            request(FromFile(rows({TopicPartition("__consumer_offsets", 0): 1}), "f")),
            refusals.INTERNAL_TOPIC,
            "__consumer_offsets",
            id="row of an internal topic",
        ),
        pytest.param(request(FromFile((), "f")), refusals.NOTHING_MATCHES, "f has no row", id="no rows"),
        pytest.param(
            request(FromFile(rows({AUDIT: 1}), "f"), ALL_ORDERS),
            refusals.NOTHING_MATCHES,
            "not in f: 3 partitions",
            id="no row selected",
        ),
        pytest.param(
            request(Undo("before", rows({ORDERS[0]: 1}), topic_ids=(("orders", "another"),))),
            refusals.TOPIC_RECREATED,
            "since run before, so its offsets mean other records: orders",
            id="recreated topic",
        ),
        pytest.param(
            request(Undo("before", rows({TopicPartition("payments", 0): 1}))),
            refusals.UNKNOWN_TOPIC,
            "payments",
            id="deleted topic",
        ),
        pytest.param(
            request(Undo("before", (), (ORDERS[0],))),
            refusals.NOTHING_MATCHES,
            "run before found no committed offset there",
            id="nothing to undo",
        ),
        pytest.param(request(Undo("before", ())), refusals.NOTHING_MATCHES, "run before changed no", id="empty run"),
    ],
)
def test_refusals(kafka: FakeKafka, asked: RunRequest, reason: str, says: str) -> None:
    refused = refusal(kafka, asked)
    assert refused.reason == reason
    assert says in refused.message


def test_an_undone_run_can_leave_out_a_recreated_topic(kafka: FakeKafka) -> None:
    ids = tuple((name, t.topic_id) for name, t in kafka.topics().items())
    kafka.delete_topic("audit")
    kafka.create_topic("audit", 1)
    undo = Undo("before", rows({ORDERS[0]: 15, AUDIT: 3}), topic_ids=ids)
    assert refusal(kafka, request(undo)).reason == refusals.TOPIC_RECREATED
    assert targets(kafka, request(undo, Selection("orders"))) == {"orders-0": 15}


@pytest.mark.parametrize("kind", [GroupType.STREAMS, GroupType.SHARE])
def test_groups_whose_place_is_more_than_offsets_are_refused(kafka: FakeKafka, kind: GroupType) -> None:
    kafka.set_group("g", kind)
    refused = refusal(kafka, request(ToEarliest()))
    assert refused.reason == refusals.UNSUPPORTED_GROUP
    assert f"is a {kind} group" in refused.message


def test_a_replay_is_refused_where_an_owner_or_the_next_one_may_run_no_agent(kafka: FakeKafka) -> None:
    """Whoever assigns partitions to itself is no owner that anybody sees."""
    asked = replace(request(ToEarliest(), ALL_ORDERS), until=Until(Then.CONTINUE, timedelta(hours=1), records=5))
    for kind in (GroupType.SIMPLE, GroupType.CLASSIC):
        kafka.set_group("g", kind)
        refused = refusal(kafka, asked)
        assert refused.reason == refusals.NEEDS_AGENTS
        assert "no member owns these partitions" in refused.message
    FakeConsumer(kafka, "g", ["orders"], auto_commit_s=None).start()
    refused = refusal(kafka, asked)
    assert refused.reason == refusals.NEEDS_AGENTS
    assert "not every owner of these partitions runs Tidegate's agent" in refused.message


def test_a_running_classic_streams_application_is_refused(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "g", ["orders"], assignor="stream", auto_commit_s=None).start()
    refused = refusal(kafka, request(ToEarliest()))
    assert refused.reason == refusals.UNSUPPORTED_GROUP
    assert "Kafka Streams" in refused.message


def stopped_streams(kafka: FakeKafka, *topics: str) -> None:
    """Application ``g`` has committed and is stopped; these topics are there besides those that it reads."""
    kafka.commit_directly("g", {ORDERS[0]: 15, ORDERS[1]: 15}, METADATA_2)
    for topic in topics:
        kafka.create_topic(topic, 1)


def test_a_stopped_streams_application_with_state_stores_is_refused(kafka: FakeKafka) -> None:
    stopped_streams(kafka, "g-count-changelog", "g-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog")
    refused = refusal(kafka, request(ToEarliest()))
    assert refused.reason == refusals.UNSUPPORTED_GROUP
    assert "is a stopped Kafka Streams application, whose state stores would not follow its offsets" in refused.message
    assert "use kafka-streams-application-reset" in refused.message
    assert "g-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog, g-count-changelog" in refused.message


def test_it_is_refused_where_many_groups_are_planned_at_once(kafka: FakeKafka) -> None:
    stopped_streams(kafka, "g-count-changelog")
    asked = request(ToEarliest())
    with pytest.raises(PlanRefused, match="stopped Kafka Streams"):
        make_plan(asked, read_ahead(kafka, [asked], NOW), NOW)


def test_offsets_of_groups_that_were_not_read_ahead_are_asked_of_the_cluster(kafka: FakeKafka) -> None:
    kafka.commit_directly("other", {ORDERS[0]: 33})
    ahead = read_ahead(kafka, [request(ToEarliest(), ALL_ORDERS)], NOW)
    known = kafka.committed("g")
    kafka.commit_directly("g", {ORDERS[0]: 99})

    assert ahead.committed_of(["g", "other"]) == {"g": known, "other": {ORDERS[0]: 33}}


def test_a_rebalance_does_not_decide_whether_it_is_a_streams_application(kafka: FakeKafka) -> None:
    """The coordinator does not tell its assignor then, and the commits may be those of an earlier application."""
    FakeConsumer(kafka, "g", ["orders"], assignor="range", auto_commit_s=None).start()
    stopped_streams(kafka, "g-count-changelog")
    kafka.rebalance("g")
    with pytest.raises(
        Unavailable, match="whether it is a Kafka Streams application is known only after the rebalance"
    ):
        make_plan(request(ToEarliest(), Selection("orders")), kafka, NOW)


@pytest.mark.parametrize("runs", [True, False], ids=["runs", "is stopped"])
def test_state_stores_of_an_application_with_a_longer_id_are_not_taken_for_its_own(
    kafka: FakeKafka, runs: bool
) -> None:
    stopped_streams(kafka, "g-eu-count-changelog")
    if runs:
        FakeConsumer(kafka, "g-eu", ["orders"], assignor="stream", auto_commit_s=None).start()
    else:
        kafka.commit_directly("g-eu", {ORDERS[0]: 15}, METADATA_2)
    assert targets(kafka, request(ToEarliest(), Selection("orders")))["orders-0"] == 10


def test_a_group_that_only_has_a_longer_id_has_no_state_stores(kafka: FakeKafka) -> None:
    stopped_streams(kafka, "g-eu-count-changelog")
    kafka.commit_directly("g-eu", {ORDERS[0]: 15})
    assert "g-eu-count-changelog" in refusal(kafka, request(ToEarliest(), Selection("orders"))).message


@pytest.mark.parametrize("topics", [(), ("g-orders-repartition", "other-count-changelog", "g-changelog")], ids=len)
def test_a_stopped_streams_application_without_state_stores_is_reset(kafka: FakeKafka, topics: tuple[str, ...]) -> None:
    stopped_streams(kafka, *topics)
    assert targets(kafka, request(ToEarliest(), Selection("orders")))["orders-0"] == 10


def test_a_group_is_not_taken_for_the_application_whose_id_begins_with_its_own(kafka: FakeKafka) -> None:
    """The changelogs of ``g-enriched`` are named like those of a store ``enriched-count`` of ``g``."""
    kafka.commit_directly("g", {ORDERS[0]: 15})
    kafka.create_topic("g-enriched-count-changelog", 1)
    assert targets(kafka, request(ToEarliest(), Selection("orders")))["orders-0"] == 10


def test_all_topics_are_listed_only_for_what_kafka_streams_has_committed(kafka: FakeKafka) -> None:
    kafka.commit_directly("g", {ORDERS[0]: 15})
    kafka.calls.clear()
    make_plan(request(ToEarliest(), Selection("orders")), kafka, NOW)
    assert kafka.calls.count("topics") == kafka.calls.count("committed_by_streams") == 1


WITHOUT_MEMBERS = "it can be reset while it has no members"


@pytest.mark.parametrize(
    ("refuses", "protocol", "says"),
    [
        pytest.param([GroupKind.CONSUMER], GroupType.CONSUMER, WITHOUT_MEMBERS, id="live, of KIP-848"),
        pytest.param([GroupKind.CLASSIC], GroupType.CLASSIC, WITHOUT_MEMBERS, id="live, classic"),
        pytest.param([GroupKind.EMPTY], None, "No group can be reset there", id="without members"),
        pytest.param([GroupKind.EMPTY], GroupType.CLASSIC, "No group can be reset there", id="no place for the marker"),
        pytest.param(list(GroupKind), GroupType.CLASSIC, "No group can be reset there", id="none at all"),
    ],
)
def test_what_the_brokers_do_not_take_is_refused_before_anything_is_moved(
    kafka: FakeKafka, refuses: list[GroupKind], protocol: GroupType | None, says: str
) -> None:
    kafka.refuses = frozenset(refuses)
    if protocol is not None:
        FakeConsumer(kafka, "g", ["orders"], protocol=protocol, auto_commit_s=None).start()
    before = kafka.groups(["g"])

    refused = refusal(kafka, request(ToEarliest()))

    assert refused.reason == refusals.UNSUPPORTED_BY_BROKERS
    assert "UNKNOWN_MEMBER_ID" in refused.message
    assert says in refused.message
    assert not {"fence", "send", "alter", "leave", "rebalance"} & set(kafka.calls)
    assert kafka.groups(["g"]) == before


def test_what_brokers_refuse_of_other_groups_is_no_obstacle(kafka: FakeKafka) -> None:
    kafka.refuses = frozenset({GroupKind.CONSUMER, GroupKind.STREAMS})
    assert targets(kafka, request(ToEarliest(), ALL_ORDERS))
    FakeConsumer(kafka, "g", ["orders"], auto_commit_s=None).start()
    assert targets(kafka, request(ToEarliest(), ALL_ORDERS))


@pytest.mark.parametrize("support", [Support.UNKNOWN, Support.NOT_OFFERED])
def test_what_is_not_known_of_the_brokers_forbids_nothing(kafka: FakeKafka, support: Support) -> None:
    kafka.told_support = support
    FakeConsumer(kafka, "g", ["orders"], protocol=GroupType.CONSUMER, auto_commit_s=None).start()
    assert targets(kafka, request(ToEarliest(), ALL_ORDERS))


def test_a_refusal_reaches_a_spark_driver_whole() -> None:
    sent = pickle.loads(pickle.dumps(PlanRefused("NothingMatches", "no partition matches pay*")))  # noqa: S301
    assert (sent.reason, sent.message) == ("NothingMatches", "no partition matches pay*")
    assert str(sent) == "NothingMatches: no partition matches pay*"


def test_the_checks_read_aloud() -> None:
    assert [c.__name__.lstrip("_").replace("_", " ") for c in CHECKS] == [
        "group type is supported",
        "group is no streams application",
        "source is another group",
        "source has offsets",
        "topics are not internal",
        "topics exist",
        "topics are allowed",
        "partitions exist",
        "something matches",
        "topics are the same ones",
        "brokers take its offsets",
    ]


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_of_a_partition(kafka: FakeKafka) -> None:
    plan = make_plan(request(ToOffset(20), Selection("orders", frozenset({0})), Selection("refunds")), kafka, NOW)
    [order, refund, new] = plan.partitions
    assert (order.committed, order.target, order.earliest, order.latest) == (60, 20, 10, 110)
    assert (order.replayed, order.skipped, order.moves) == (40, 0, True)
    assert order.topic_id == kafka.topics()["orders"].topic_id
    assert (order.span_from, order.span_to) == (START + 20 * SECOND, START + 59 * SECOND)
    assert (refund.committed, refund.target, refund.moves) == (20, 20, False)
    assert (new.committed, new.target, new.replayed, new.skipped, new.span_from) == (None, 20, 0, 0, None)
    assert (plan.run_id, plan.group_id, plan.made_at) == ("run", "g", NOW)
    assert (plan.moved, plan.unchanged, plan.records_replayed, plan.records_skipped) == (2, 1, 40, 0)


def test_a_span_that_is_skipped(kafka: FakeKafka) -> None:
    [partition] = make_plan(request(ToLatest(), Selection("orders", frozenset({0}))), kafka, NOW).partitions
    assert (partition.skipped, partition.replayed) == (50, 0)
    assert (partition.span_from, partition.span_to) == (START + 60 * SECOND, START + 109 * SECOND)


def test_a_span_of_what_is_still_there(kafka: FakeKafka) -> None:
    kafka.commit_directly("g", {ORDERS[0]: 3, ORDERS[1]: 500})
    plan = make_plan(request(ToOffset(12), Selection("orders", frozenset({0, 1}))), kafka, NOW)
    assert [(p.span_from, p.span_to) for p in plan.partitions] == [
        (START + 10 * SECOND, START + 11 * SECOND),
        (START + 12 * SECOND, START + 109 * SECOND),
    ]
    assert "The committed offset is outside the log: orders-0 at 3, orders-1 at 500" in plan.notes


def test_a_group_at_either_end_of_the_log_is_inside_it(kafka: FakeKafka) -> None:
    kafka.commit_directly("g", {ORDERS[0]: 10, ORDERS[1]: 110})
    plan = make_plan(request(ToOffset(12), ALL_ORDERS), kafka, NOW)
    assert not any("is outside the log" in n for n in plan.notes)


def test_spans_are_looked_up_where_most_is_moved() -> None:
    kafka = FakeKafka(FakeClock())
    kafka.create_topic("wide", SPAN_LIMIT + 100)
    kafka.fill("wide", 3)
    everywhere = [TopicPartition("wide", n) for n in range(SPAN_LIMIT + 100)]
    kafka.commit_directly("g", {p: 1 if p.partition < 100 else 2 for p in everywhere})
    plan = make_plan(request(ToEarliest()), kafka, NOW)
    looked_up = {p.partition for p in plan.partitions if p.span_from is not None and p.span_to is not None}
    assert looked_up == set(range(100, SPAN_LIMIT + 100))
    assert "Times of records are given only for the 500 of 600 partitions that move furthest" in plan.notes


def test_few_requests_are_made(kafka: FakeKafka) -> None:
    make_plan(request(ToTimestamp(START + SECOND * 50), Selection("*")), kafka, NOW)
    metadata = ["groups", "committed", "topics", "committed_by_streams", "capabilities"]
    assert kafka.calls == [*metadata, "offsets_at", "log_bounds", "record_times", "record_times"]


def test_nothing_beyond_metadata_is_read_for_a_refusal(kafka: FakeKafka) -> None:
    refusal(kafka, request(ToEarliest(), Selection("payments")))
    assert kafka.calls == ["groups", "committed", "topics", "committed_by_streams"]


def test_a_new_group_and_a_topic_it_does_not_read_are_said(kafka: FakeKafka) -> None:
    new = make_plan(request(ToEarliest(), ALL_ORDERS, group_id="new"), kafka, NOW)
    assert "Group new does not exist yet: these will be its first offsets" in new.notes
    assert not any("assign()" in n for n in new.notes)
    unread = make_plan(request(ToEarliest(), Selection("audit")), kafka, NOW)
    assert any("The group does not read audit so far" in n for n in unread.notes)


def test_that_consumers_may_be_there_which_no_group_shows_is_said(kafka: FakeKafka) -> None:
    notes = make_plan(request(ToEarliest(), ALL_ORDERS), kafka, NOW).notes
    assert any(n.startswith("Group g has offsets but has never had members.") for n in notes)
    kafka.set_group("g", GroupType.CLASSIC)
    assert not any("assign()" in n for n in make_plan(request(ToEarliest(), ALL_ORDERS), kafka, NOW).notes)


def test_nothing_to_move_is_said(kafka: FakeKafka) -> None:
    assert (
        "Every partition is at its target already"
        in make_plan(request(ToOffset(60), Selection("orders", frozenset({0}))), kafka, NOW).notes
    )


# --- the way ----------------------------------------------------------------------------------------------------------


def test_the_way_is_foretold(kafka: FakeKafka) -> None:
    def way(asked: RunRequest) -> Way | None:
        return make_plan(asked, kafka, NOW).way

    assert way(request(ToEarliest())) is Way.UNOWNED
    FakeConsumer(kafka, "eager", ["orders"]).start()
    FakeConsumer(kafka, "sticky", ["orders"], assignor="cooperative-sticky").start()
    FakeConsumer(kafka, "modern", ["orders"], protocol=GroupType.CONSUMER, assignor="uniform").start()
    assert way(request(ToEarliest(), group_id="eager")) is Way.BARRIER
    assert way(request(ToEarliest(), Selection("audit"), group_id="eager")) is Way.UNOWNED
    assert way(request(ToEarliest(), group_id="sticky")) is Way.HANDOVER
    assert way(request(ToEarliest(), group_id="modern")) is Way.HANDOVER


def test_what_a_handover_costs_beside_the_run_is_said_before(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "modern", ["orders"], protocol=GroupType.CONSUMER, assignor="uniform").start()
    some = make_plan(request(ToEarliest(), Selection("orders", frozenset({0})), group_id="modern"), kafka, NOW)
    assert any("are read again in 2 partitions outside this run, too (orders-1, orders-2)" in n for n in some.notes)
    whole = make_plan(request(ToEarliest(), group_id="modern"), kafka, NOW)
    assert not any("read again" in n for n in whole.notes)
    FakeConsumer(kafka, "sticky", ["orders"], assignor="cooperative-sticky").start()
    classic = make_plan(request(ToEarliest(), group_id="sticky"), kafka, NOW)
    assert any("maxStandstill (30 s)" in n and "in all partitions of the group" in n for n in classic.notes)


def test_what_it_costs_to_lead_a_group_is_said_before(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "sticky", ["orders"], assignor="cooperative-sticky").start()
    FakeConsumer(kafka, "eager", ["orders"], group_instance_id="static").start()

    def said(group_id: str, *selections: Selection) -> bool:
        notes = make_plan(request(ToEarliest(), *selections, group_id=group_id), kafka, NOW).notes
        return any(
            "Tidegate leads the group" in n and ": all 1 member(s) then leave" in n and "(orders-1, orders-2)" in n
            for n in notes
        )

    assert said("sticky", Selection("orders", frozenset({0})))
    assert not said("sticky")
    assert not said("eager", Selection("orders", frozenset({0})))


def test_what_it_may_cost_a_static_member_to_be_made_to_leave_is_said_before(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "sticky", ["orders"], assignor="cooperative-sticky", group_instance_id="one").start()
    FakeConsumer(kafka, "eager", ["orders"], group_instance_id="one").start()
    FakeConsumer(kafka, "dynamic", ["orders"], assignor="cooperative-sticky").start()

    def said(group_id: str) -> bool:
        notes = make_plan(request(ToEarliest(), group_id=group_id), kafka, NOW).notes
        return any(n.startswith("1 static member(s)") and "FENCED_INSTANCE_ID" in n for n in notes)

    assert [said(group_id) for group_id in ("sticky", "eager", "dynamic")] == [True, False, False]


def test_that_an_application_commits_late_through_franz_go_is_led_from_the_first_round_on(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "eager", ["orders"], client_id="kgo").start()
    asked = request(ToEarliest(), Selection("orders", frozenset({0})), group_id="eager")
    late = replace(asked, settings=replace(asked.settings, in_flight=timedelta(seconds=2)))

    plan = make_plan(late, kafka, NOW)

    assert make_plan(asked, kafka, NOW).way is Way.BARRIER
    assert plan.way is Way.LEADING
    assert any("its owners give up their positions" in n and "(orders-1, orders-2)" in n for n in plan.notes)
    assert any("maxStandstill (30 s)" in n for n in plan.notes)


def test_gates_cost_nothing_beside_the_run(kafka: FakeKafka) -> None:
    consumer = FakeConsumer(
        kafka, "managed", ["orders"], protocol=GroupType.CONSUMER, assignor="uniform", managed=True
    ).start()
    kafka.control.ensure()
    kafka.clock.sleep(consumer.poll_s)
    some = make_plan(request(ToEarliest(), Selection("orders", frozenset({0})), group_id="managed"), kafka, NOW)
    assert some.way is Way.GATED
    assert not any("read again" in n for n in some.notes)


def test_a_barrier_says_what_it_costs_if_a_client_is_old(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, "eager", ["orders"]).start()
    some = make_plan(request(ToEarliest(), Selection("orders", frozenset({0})), group_id="eager"), kafka, NOW)
    assert some.way is Way.BARRIER
    assert any("from before KIP-429" in n and "(orders-1, orders-2)" in n for n in some.notes)


@pytest.mark.parametrize(("protocol", "said"), [(GroupType.CONSUMER, True), (GroupType.CLASSIC, False)])
def test_in_flight_that_nothing_holds_back_is_said(kafka: FakeKafka, protocol: GroupType, said: bool) -> None:
    FakeConsumer(kafka, "slow", ["orders"], protocol=protocol, assignor="cooperative-sticky").start()
    asked = replace(
        request(ToEarliest(), group_id="slow"),
        settings=ApplySettings(in_flight=timedelta(seconds=3)),
    )
    notes = make_plan(asked, kafka, NOW).notes
    assert any(n.startswith("inFlight:") for n in notes) is said


# --- partition by partition -------------------------------------------------------------------------------------------


def test_plan_partitions_is_plain_values_in_and_out() -> None:
    topics = {"orders": Topic("orders", "id", 3)}
    measured = Measured(committed={ORDERS[0]: 60}, bounds=dict.fromkeys(ORDERS, LogBounds(10, 110)))
    job = pickle.loads(pickle.dumps((ShiftBy(-10), tuple(ORDERS), topics, measured)))  # noqa: S301
    aimed = plan_partitions(*job)
    assert [(p.topic_partition, p.target) for p in aimed.partitions] == [(ORDERS[0], 50)]
    assert aimed.without == {NoAim.NOT_COMMITTED: (ORDERS[1], ORDERS[2])}
    assert pickle.loads(pickle.dumps(aimed)) == aimed  # noqa: S301


def test_a_partition_without_a_leader_fails_the_plan_only_where_it_is_in_scope(kafka: FakeKafka) -> None:
    kafka.take_offline(ORDERS[1])
    assert targets(kafka, request(ToEarliest(), Selection("orders", frozenset({0})))) == {"orders-0": 10}
    with pytest.raises(Unavailable):
        make_plan(request(ToEarliest(), ALL_ORDERS), kafka, NOW)


def test_the_same_request_gives_the_same_plan(kafka: FakeKafka) -> None:
    asked = request(ToTimestamp(START + SECOND * 50), Selection("*"))
    assert make_plan(asked, kafka, NOW) == make_plan(replace(asked), kafka, NOW)
