"""What is said of a connection's permissions in Kafka, and of an ack topic that several tenants write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.connection import permissions
from tidegate.connection.live import Live
from tidegate.connection.permissions import PermissionsOfConnections
from tidegate.connection.shared_acks import sharing
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.needed_rights import (
    FENCING,
    OWN,
    PROBES,
    Role,
    Scope,
    checkable,
    needs_of,
    to_grant_by_name,
    too_wide,
)
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.fenced_writer import control_transactional_id
from tidegate.kafka_client.probe import PREFIX
from tidegate.reset.marker import marker_group
from tidegate.resources.connection import AllowSpec

READ_ACKS = Right("Read", Resource.TOPIC, "__tidegate_acks")


def live(namespace: str = "ns", name: str = "kafka", kafka: Any = None, **changes: Any) -> Live:
    connection = Connection("kafka:9092", ack_topic=changes.pop("ack_topic", None))
    allow = AllowSpec.model_validate(changes.pop("allow", {}), by_alias=True, by_name=False)
    cluster = changes.pop("cluster_id", "one")
    return Live(f"{namespace}/{name}", namespace, name, "d", connection, None, {}, allow, kafka, cluster_id=cluster)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


# --- permissions ------------------------------------------------------------------------------------------------------


def test_names_are_those_that_are_really_used() -> None:
    assert marker_group("payments") == f"{OWN}payments"
    assert control_transactional_id("uid", "__tidegate").startswith(FENCING)
    assert PREFIX == PROBES


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("payments", Right("Read", Resource.GROUP, "payments")),
        ("payments-*", Right("Read", Resource.GROUP, "payments-", prefixed=True)),
        ("*", Right("Read", Resource.GROUP, "*")),
        ("*-payments", Right("Read", Resource.GROUP, "*")),
        ("a-*-b", Right("Read", Resource.GROUP, "a-", prefixed=True)),
    ],
)
def test_a_pattern_is_granted_by_its_beginning(pattern: str, expected: Right) -> None:
    scope = Scope("T", "A", (pattern,), ("orders",))

    assert expected in {need.right for need in needs_of(Role.OPERATOR, scope)}
    assert bool(too_wide(scope)) == (pattern in ("*-payments", "a-*-b"))


def test_a_job_and_a_consumer_need_nothing_that_is_not_documented_for_them() -> None:
    scope = Scope("T", "A", ("payments",), ("orders",))
    operator, job, consumer = ({need.right for need in needs_of(role, scope)} for role in Role)

    assert job < operator
    assert {str(right) for right in consumer} == {"Read on topic T", "Write on topic A"}
    assert not {right for right in job if right.name == FENCING or right.operation == "Create"}
    # A job that fails rolls its own run back.
    assert Right("Delete", Resource.GROUP, "payments") in job


def test_where_changes_are_recorded_the_audit_topic_is_written_by_operator_and_jobs() -> None:
    scope = Scope("T", "A", ("payments", "a-*"), ("orders",), "audit")
    operator, job, consumer = ({str(need.right) for need in needs_of(role, scope)} for role in Role)

    assert operator >= {"Write on topic audit", "DescribeConfigs on topic audit", "Create on topic audit"}
    assert "Write on transactional-id tidegate.payments.audit" in operator
    assert "Write on topic audit" in job
    assert not {right for right in consumer if "audit" in right}
    without = {str(need.right) for need in needs_of(Role.OPERATOR, Scope("T", "A", ("payments",), ("orders",)))}
    assert not {right for right in without if "audit" in right}


def test_only_the_operator_writes_dead_letter_topics() -> None:
    scope = Scope("T", "A", ("payments",), ("orders",), dead_letters=("orders.DLT", "dead-*"))
    operator, job, consumer = ({str(need.right) for need in needs_of(role, scope)} for role in Role)

    assert operator >= {"Write on topic orders.DLT", "Write on topics that begin with dead-"}
    assert not {right for right in job | consumer if "DLT" in right or "dead-" in right}
    assert "DescribeConfigs on topic orders.DLT" in operator
    asked = set(map(str, checkable(needs_of(Role.OPERATOR, scope))))
    assert "Write on topic orders.DLT" in asked
    assert "DescribeConfigs on topic orders.DLT" not in asked


@pytest.mark.parametrize("pattern", ["*.DLT", "*"])
def test_no_right_to_write_every_topic_is_asked_for_dead_letters(pattern: str) -> None:
    """ACLs have no pattern for what names end with, and whoever may write each topic may write Kafka's own."""
    scope = Scope("T", "A", ("payments",), ("orders",), dead_letters=(pattern, "dead-*"))

    rights = [need.right for need in needs_of(Role.OPERATOR, scope)]

    assert not [r for r in rights if r.name == "*" and r.resource is Resource.TOPIC and r.operation == "Write"]
    assert to_grant_by_name(scope) == (pattern,)
    assert pattern not in too_wide(scope)


def test_only_what_has_a_name_is_asked_about() -> None:
    rights = checkable(needs_of(Role.OPERATOR, Scope("T", "A", ("*", "a-*", "b"), ("*",))))

    assert {right.name for right in rights} == {"T", "A", FENCING, "b", "tidegate.b"}
    assert not {right for right in rights if right.operation in ("Create", "Delete")}


def test_what_is_missing_is_said_with_the_command_and_asked_anew_soon(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, now = FakeKafka(FakeClock()), [1_000.0]
    kafka.lacks = frozenset({READ_ACKS})

    async def story() -> None:
        asked = PermissionsOfConnections(executor)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        said = await asked.of(live(kafka=kafka))
        assert said is not None
        assert (said.type, said.holds, said.reason) == ("Permissions", False, "Missing")
        assert "lacks Read on topic __tidegate_acks (acks): --operation Read --topic __tidegate_acks. " in said.message

        kafka.lacks = frozenset()
        assert await asked.of(live(kafka=kafka)) == said, "brokers are not asked with each pass"
        now[0] += 61
        said = await asked.of(live(kafka=kafka))
        assert said is not None
        assert (said.holds, said.reason) == (True, "Granted")

        kafka.lacks = frozenset({READ_ACKS})
        now[0] += 61
        assert await asked.of(live(kafka=kafka)) == said
        other = await asked.of(live(kafka=kafka, allow={"groups": ["a"]}))
        assert other is not None
        assert other.holds is False, "another scope is asked about at once"

    asyncio.run(story())


def test_where_no_broker_tells_nothing_is_said(executor: ThreadPoolExecutor) -> None:
    kafka = FakeKafka(FakeClock())
    kafka.fail("lacking", Unavailable("nobody answers"))

    assert asyncio.run(PermissionsOfConnections(executor).of(live(kafka=kafka))) is None


def test_who_has_not_answered_is_not_asked_with_each_pass(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, now = FakeKafka(FakeClock()), [1_000.0]
    kafka.fail("lacking", Unavailable("nobody answers"))

    async def story() -> None:
        asked = PermissionsOfConnections(executor)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        assert await asked.of(live(kafka=kafka)) is None
        monkeypatch.setattr(kafka, "lacking", lambda _rights: ())
        assert await asked.of(live(kafka=kafka)) is None
        now[0] += 61
        said = await asked.of(live(kafka=kafka))
        assert said is not None
        assert said.reason == "Granted"

    asyncio.run(story())


def test_a_long_list_is_cut() -> None:
    needs = needs_of(Role.OPERATOR, Scope("T", "A", tuple(f"g{n}" for n in range(30)), ("orders",)))

    said = permissions.said_of(list(needs), asked=len(needs))

    assert f"; and {len(needs) - 10} more. Grant" in said.message
    assert len(said.message) < 3_000


# --- ack topics -------------------------------------------------------------------------------------------------------


def test_connections_of_other_namespaces_with_the_same_cluster_and_ack_topic_are_counted_not_named() -> None:
    mine = live("mine")
    others = [live("theirs"), live("theirs", "second"), live("third"), mine, live("mine", "second")]

    said = sharing(mine, others)

    assert (said.type, said.holds, said.reason) == ("SharedAckTopic", True, "OtherConnections")
    assert "KafkaConnections of 2 other namespace(s)" in said.message
    assert "ack topic __tidegate_acks" in said.message
    assert "theirs" not in said.message
    assert "third" not in said.message


@pytest.mark.parametrize(
    "other",
    [
        live("theirs", cluster_id="two"),
        live("theirs", cluster_id=""),
        live("theirs", ack_topic="__theirs"),
        live("mine", "second"),
    ],
    ids=["cluster", "unknown", "topic", "tenant"],
)
def test_nothing_is_said_where_they_share_none(other: Live) -> None:
    assert sharing(live("mine"), [live("mine"), other]).holds is None


def test_two_clusters_that_nobody_has_reached_are_not_one() -> None:
    assert sharing(live("mine", cluster_id=""), [live("theirs", cluster_id="")]).holds is None


def test_namespaces_that_the_connection_lists_share_it_by_the_platforms_decision() -> None:
    hub = live("hub", allow={"namespaces": [{"name": "payments"}, {"name": "shipping"}, {"name": "hub"}]})

    said = sharing(hub, [hub])

    assert (said.holds, said.reason) == (True, "AllowedNamespaces")
    assert "lets 2 other namespace(s) use this connection" in said.message
