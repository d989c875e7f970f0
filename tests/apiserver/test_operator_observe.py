"""A KafkaConnection that only observes, on a real API server and broker."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from apiserver.offsets import committed, leave_at, produce
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique


@pytest.fixture
def control_topic(shared: Resources, kafka: KafkaCluster, unique: Unique) -> str:
    """Of connection ``looks``, which only observes; there is no such topic yet."""
    name = f"__{unique('control')}"
    shared.connection("looks", kafka.bootstrap, controlTopic={"name": name}, observe=True)
    return name


def test_nothing_is_changed_until_it_may_be_and_a_plan_made_before_is_approved(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, control_topic: str
) -> None:
    topic, group = make_topic(2), unique("group")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, dict.fromkeys(range(2), 50))

    def phase(name: str) -> str:
        return str((shared.get_reset(name).get("status") or {}).get("phase"))

    through = {"connectionRef": {"name": "looks"}}
    shared.reset("back", group, {"offset": 10}, **through)
    shared.pause("still", group, {"topic": topic}, **through)

    until(lambda: phase("back") == "AwaitingApproval", "the plan is made")
    until(lambda: reason(shared.get_pause("still"), "Paused") == "Observing", "the pause says why")
    shared.approve("back")
    until(lambda: reason(shared.get_reset("back"), "Complete") == "Observing", "the approval waits")

    assert committed(kafka.bootstrap, group, topic, 2) == {0: 50, 1: 50}
    there = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20).topics
    assert control_topic not in there
    assert not any(group_id.endswith(group) and group_id != group for group_id in groups(kafka))

    shared.patch("kafkaconnections", "looks", {"spec": {"observe": False}})

    until(lambda: phase("back") == "Succeeded", "the approved plan is applied")
    until(lambda: shared.get_pause("still")["status"].get("phase") == "Paused", "the partitions are paused")
    assert committed(kafka.bootstrap, group, topic, 2) == {0: 10, 1: 10}


def reason(body: dict[str, object], condition: str) -> str:
    return str(condition_of(body, condition).get("reason"))


def groups(kafka: KafkaCluster) -> set[str]:
    listed = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_consumer_groups(request_timeout=20).result(30)
    return {row.group_id for row in listed.valid}
