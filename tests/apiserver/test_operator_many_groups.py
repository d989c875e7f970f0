"""One policy for many groups by pattern, and a more specific one: real API server, real broker."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions

from apiserver.offsets import commit, committed
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique


def test_groups_by_pattern_are_protected_but_for_those_that_a_more_specific_policy_has(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, name = make_topic(2), unique("p")
    groups = [f"{name}-{n}" for n in range(12)]
    for group in (*groups, f"{name}-test"):
        commit(kafka.bootstrap, group, topic, {0: 3, 1: 5})
    own = f"{name}-own"
    shared.policy(own, groups[0], topics=[topic], retention={"guard": False}, discovery={"interval": "-1"})

    shared.policy(name, [f"{name}-*"], exclude=["*-test"], topics=[topic], discovery={}, retention={"warnBefore": "1h"})

    def status() -> dict[str, Any]:
        found: dict[str, Any] = shared.get_policy(name).get("status", {})
        return found

    def finished() -> bool:
        found = status()
        return (
            found.get("groups", {}).get("selected") == 12
            and found.get("discovery", {}).get("initialDiscoveryFinished") is True
            and found.get("retention", {}).get("offsets") == 22
        )

    until(finished, "all groups were looked at")
    assert status()["groups"] == {"selected": 12, "overridden": 1, "troubled": 0, "worst": []}
    rows = [{"policy": own, "part": part, "groups": 1, "example": groups[0]} for part in ("discovery", "retention")]
    assert status()["overriddenBy"] == rows
    assert condition_of(shared.get_policy(name), "Overridden")["reason"] == "MoreSpecificPolicy"
    assert condition_of(shared.get_policy(name), "Retained")["message"] == "of 11 group(s): 11 Guarded"
    until(lambda: shared.get_policy(own)["status"].get("overrides"), "the other one says that it holds")
    assert [row["policy"] for row in shared.get_policy(own)["status"]["overrides"]] == [name, name]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    until(lambda: status()["discovery"].get("startsCommitted") == 11, "starts were committed for all but one")

    assert all(committed(kafka.bootstrap, group, topic, 3) == {0: 3, 1: 5, 2: 0} for group in groups[1:])
    for group in (groups[0], f"{name}-test"):
        assert committed(kafka.bootstrap, group, topic, 3) == {0: 3, 1: 5}
