"""What a connection that only observes lets through."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.audit.ports import AuditLog
from tidegate.audit.records import AuditTopic
from tidegate.cluster import Kafka
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.control.ports import ControlTopics
from tidegate.control.records import (
    Claim,
    ClaimKey,
    Hold,
    HoldKey,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    RunKey,
)
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Range, TopicPartition
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import OffsetRetention
from tidegate.resources.connection import GroupKind

T0 = TopicPartition("orders", 0)
HOLD = HoldKey("payments", "orders", 0, "pause/c/p")
LIMIT = LimitKey("payments", "orders", 0, "reset/u/r")
LOG = "__tidegate_audit"


CHANGES: dict[str, Callable[[Kafka], Any]] = {
    "writer": lambda kafka: kafka.writer("payments", transaction_timeout_s=5),
    "membership": lambda kafka: kafka.membership,
    "control.ensure": lambda kafka: kafka.control.ensure(),
    "control.hold": lambda kafka: kafka.control.hold({HOLD: Hold()}),
    "control.limit": lambda kafka: kafka.control.limit({LIMIT: Limit(3)}),
    "control.release": lambda kafka: kafka.control.release([HOLD]),
    "control.write_partitions": lambda kafka: kafka.control.write_partitions(
        {PartitionKey("orders", "id", 0): PartitionSeen(initial=True)}
    ),
    "control.write_clock": lambda kafka: kafka.control.write_clock(),
    "control.claim": lambda kafka: kafka.control.claim(ClaimKey("payments", "a"), Claim("r", "", 1000)),
    "control.withdraw": lambda kafka: kafka.control.withdraw([ClaimKey("payments", "a")]),
    "control.note_runs": lambda kafka: kafka.control.note_runs({RunKey("ns", "p", "one"): None}),
    "audit.ensure": lambda kafka: kafka.audit.ensure(AuditTopic(LOG)),
    "retention.commit": lambda kafka: kafka.retention.commit("payments", {}, {}, retention_ms=1),
}

LOOKS: dict[str, Callable[[Kafka], Any]] = {
    "cluster": lambda kafka: kafka.cluster(),
    "topics": lambda kafka: kafka.topics(),
    "groups": lambda kafka: kafka.groups(["payments"]),
    "group_ids": lambda kafka: kafka.group_ids(),
    "lacking": lambda kafka: kafka.lacking([]),
    "committed": lambda kafka: kafka.committed("payments"),
    "committed_of": lambda kafka: kafka.committed_of(["payments"]),
    "committed_by_streams": lambda kafka: kafka.committed_by_streams(["payments"]),
    "managed_members": lambda kafka: kafka.managed_members("payments"),
    "pending": lambda kafka: kafka.pending("payments", [T0]),
    "log_bounds": lambda kafka: kafka.log_bounds([T0]),
    "offsets_at": lambda kafka: kafka.offsets_at({T0: datetime(2026, 1, 1, tzinfo=UTC)}),
    "last_stable_offsets": lambda kafka: kafka.last_stable_offsets([T0]),
    "next_records": lambda kafka: kafka.next_records({T0: 0}),
    "keeping": lambda kafka: kafka.keeping("orders"),
    "records": lambda kafka: kafka.records(T0, Range(0, 9), committed=True, most_bytes=1000),
    "record_times": lambda kafka: kafka.record_times({T0: 0}),
    "control.exist": lambda kafka: kafka.control.exist,
    "control.unreadable": lambda kafka: kafka.control.unreadable,
    "control.read": lambda kafka: kafka.control.read(["payments"]).holds,
    "control.confirm": lambda kafka: kafka.control.confirm(),
    "audit.check_writable": lambda kafka: kafka.audit.check_writable(LOG),
    "retention.settings": lambda kafka: kafka.retention.settings(),
    "retention.commits": lambda kafka: kafka.retention.commits("payments"),
    "retention.commits_of": lambda kafka: kafka.retention.commits_of(["payments"]),
    "retention.log": lambda kafka: kafka.retention.log("payments", GroupLog()),
}

ELSEWHERE = {"capabilities", "topic_watch", "close", "control.close", "control", "retention", "audit"}


@pytest.fixture
def cluster() -> FakeKafka:
    made = FakeKafka(FakeClock())
    made.create_topic("orders", 1)
    made.fill("orders", 10)
    made.commit_directly("payments", {T0: 5})
    made.audit.ensure(AuditTopic(LOG))
    made.control.ensure()
    made.control.hold({HOLD: Hold("kept")})
    return made


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_would_change_something_is_refused_and_says_why(cluster: FakeKafka, change: str) -> None:
    before = (cluster.committed("payments"), cluster.control.read().holds)

    with pytest.raises(Refused, match=r"KafkaConnection prod only observes \(spec.observe"):
        CHANGES[change](ReadOnlyKafka(cluster, "prod"))

    assert (cluster.committed("payments"), cluster.control.read().holds) == before


@pytest.mark.parametrize("look", LOOKS)
def test_looking_is_the_same(cluster: FakeKafka, look: str) -> None:
    assert LOOKS[look](ReadOnlyKafka(cluster, "prod")) == LOOKS[look](cluster)


def test_what_brokers_allow_is_not_tried(cluster: FakeKafka) -> None:
    ReadOnlyKafka(cluster, "prod").capabilities(list(GroupKind))

    assert "capabilities without a probe" in cluster.calls
    assert "capabilities" not in cluster.calls


def test_every_call_is_one_or_the_other() -> None:
    named = {name for name in dir(Kafka) if not name.startswith("_")}
    for prefix, port in (("control", ControlTopics), ("retention", OffsetRetention), ("audit", AuditLog)):
        named |= {f"{prefix}.{name}" for name, _ in inspect.getmembers(port) if not name.startswith("_")}

    assert named == CHANGES.keys() | LOOKS.keys() | ELSEWHERE
