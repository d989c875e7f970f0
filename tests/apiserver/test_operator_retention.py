"""How long a dormant group's place is kept, as its policy's status tells it: real API server, real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apiserver.offsets import commit, committed
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

RETENTION = timedelta(days=7)
"""``offsets.retention.minutes``, as Kafka ships it."""


def test_a_dormant_groups_place_is_told_and_remembered(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, name = make_topic(2), unique("p")
    before = datetime.now(UTC)
    commit(kafka.bootstrap, name, topic, {0: 3, 1: 5})
    after = datetime.now(UTC)

    shared.policy(name, name, topics=[topic], retention={"guard": True, "warnBefore": "1h"})

    def retention() -> dict[str, Any] | None:
        found: dict[str, Any] | None = shared.get_policy(name).get("status", {}).get("retention")
        return found if found is not None and found.get("snapshot") else None

    told = until(retention, "the status tells of the group's place")
    expires = datetime.fromisoformat(told["expiresAt"])
    assert told["offsets"] == 2
    assert told["exact"] is True
    # The brokers' clock is this machine's.
    assert before + RETENTION - timedelta(seconds=1) <= expires <= after + RETENTION + timedelta(seconds=1)
    assert condition_of(shared.get_policy(name), "Retained")["status"] == "True"
    snapshot = shared.core.read_namespaced_config_map(told["snapshot"], shared.namespace)
    assert snapshot.metadata.owner_references[0].name == name
    assert committed(kafka.bootstrap, name, topic, 2) == {0: 3, 1: 5}
