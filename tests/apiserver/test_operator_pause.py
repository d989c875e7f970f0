"""ConsumerGroupPause, as the operator carries it out: real API server, real broker, consumers that obey gates."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, produce
from apiserver.own_topics import Own
from devstack import ApiServer, KafkaCluster
from support.obeyed import acked
from support.operator_process import Body, OperatorProcess, Resources, condition_of, until, writes_in
from support.stack_fixtures import MakeTopic, Unique
from support.stub_agent import StubAgent
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.fenced_writer import control_transactional_id
from tidegate.pause.holds import holder

pytestmark = pytest.mark.at_once(3)

PARTITIONS = 4


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's pause."""
    return unique("p")


@pytest.fixture
def two(kafka: KafkaCluster, topic: str, group: str) -> Iterator[tuple[StubAgent, StubAgent]]:
    """Two members with the agent, which own two partitions each."""
    with (
        StubAgent(kafka.bootstrap, group, topic, client_id="one") as one,
        StubAgent(kafka.bootstrap, group, topic, client_id="two") as other,
    ):
        until(lambda: len(one.assigned) == len(other.assigned) == 2, "both own two partitions")
        yield one, other


def rows(body: Body) -> list[tuple[int, str]]:
    return [(row["partition"], row["phase"]) for row in body["status"]["partitions"]]


def lags(body: Body) -> list[int | None]:
    return [row.get("lag") for row in body["status"]["partitions"]]


def goes_on(kafka: KafkaCluster, topic: str, agents: tuple[StubAgent, ...], *partitions: int) -> None:
    """New records of these partitions are read."""
    before = {number: sum(agent.count(topic, number) for agent in agents) for number in partitions}
    produce(kafka.bootstrap, topic, PARTITIONS, 5)
    for number in partitions:
        until(
            lambda n=number: sum(agent.count(topic, n) for agent in agents) > before[n],  # type: ignore[misc]
            f"{topic}-{number} goes on",
            timeout_s=20,
        )


# --- from beginning to end --------------------------------------------------------------------------------------------


def test_partitions_of_a_live_group_stand_still_and_the_others_flow(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, two: tuple[StubAgent, StubAgent]
) -> None:
    goes_on(kafka, topic, two, *range(PARTITIONS))
    until(lambda: committed(kafka.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(4), 5), "all are read")

    asked = time.monotonic()
    shared.pause(p, group, {"topic": topic, "partitions": [0, 2]}, reason="INC-4711")
    body = shared.wait_pause(p, "Paused", "2/2")
    print(f"apply → status Paused: {time.monotonic() - asked:.2f} s")

    assert condition_of(body, "Ready")["status"] == condition_of(body, "Paused")["status"] == "True"
    assert condition_of(body, "Reconciling") == condition_of(body, "Stalled") == {}
    assert body["status"]["method"] == "Agent"
    assert body["status"]["unmanagedMembers"] == []
    assert rows(body) == [(0, "Paused"), (2, "Paused")]
    [first, second] = body["status"]["partitions"]
    assert (first["topic"], first["offset"]) == (topic, 5)
    assert first["member"].startswith("one")
    assert second["member"].startswith("two")
    assert first["since"]
    until(lambda: lags(shared.get_pause(p)) == [0, 0], "that nothing waits is told")
    goes_on(kafka, topic, two, 1, 3)
    assert [agent.count(topic, number) for agent in two for number in (0, 2)] == [5, 0, 0, 5]
    until(lambda: lags(shared.get_pause(p)) == [5, 5], "the lag is told")
    assert [reason for reason, _ in shared.events(p)] == ["Pausing", "Paused"]

    shared.delete_pause(p)

    until(lambda: shared.get("consumergrouppauses", p) is None, "it is gone")
    until(lambda: sum(agent.count(topic, number) for agent in two for number in (0, 2)) == 20, "they go on")


def test_a_partition_that_two_pauses_hold_goes_on_when_both_let_go(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, two: tuple[StubAgent, StubAgent]
) -> None:
    shared.pause(p, group, {"topic": topic, "partitions": ["0-1"]})
    shared.pause(f"{p}-2", group, {"topic": topic, "partitions": ["1-2"]})
    shared.wait_pause(p, "Paused", "2/2")
    shared.wait_pause(f"{p}-2", "Paused", "2/2")

    shared.delete_pause(p)
    until(lambda: shared.get("consumergrouppauses", p) is None, "it is gone")
    goes_on(kafka, topic, two, 0, 3)
    assert sum(agent.count(topic, number) for agent in two for number in (1, 2)) == 0
    assert shared.get_pause(f"{p}-2")["status"]["paused"] == "2/2"

    shared.delete_pause(f"{p}-2")
    goes_on(kafka, topic, two, 1, 2)


def test_suspending_lets_go_and_taking_that_back_pauses_again(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, two: tuple[StubAgent, StubAgent]
) -> None:
    shared.pause(p, group, {"topic": topic})
    shared.wait_pause(p, "Paused", "4/4")

    shared.patch_pause(p, suspend=True)
    body = shared.wait_pause(p, "Resumed", reason="Suspended")
    assert condition_of(body, "Ready")["status"] == "True"
    goes_on(kafka, topic, two, *range(PARTITIONS))
    until(lambda: "finalizers" not in shared.get_pause(p)["metadata"], "its finalizer is gone")

    shared.patch_pause(p, suspend=False)
    shared.wait_pause(p, "Paused", "4/4")
    assert [reason for reason, _ in shared.events(p)] == [
        "Pausing",
        "Paused",
        "Resuming",
        "Resumed",
        "Pausing",
        "Paused",
    ]
    shared.delete_pause(p)


def test_a_pause_ends_by_itself_when_its_time_is_over(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, two: tuple[StubAgent, StubAgent]
) -> None:
    shared.pause(p, group, {"topic": topic}, resumeAfter="5s")
    paused = shared.wait_pause(p, "Paused", "4/4", timeout_s=5)
    assert paused["status"]["resumesAt"]

    body = shared.wait_pause(p, "Resumed", reason="TimeOver", timeout_s=15)

    assert condition_of(body, "Ready")["status"] == "True"
    goes_on(kafka, topic, two, *range(PARTITIONS))
    shared.patch_pause(p, resumeAfter="1h")
    shared.wait_pause(p, "Paused", "4/4")
    shared.delete_pause(p)


def test_a_pause_outlives_a_rebalance_and_a_restart_of_all_consumers(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str
) -> None:
    produce(kafka.bootstrap, topic, PARTITIONS, 5)
    with StubAgent(kafka.bootstrap, group, topic, client_id="one") as one:
        until(lambda: [one.count(topic, n) for n in range(PARTITIONS)] == [5] * PARTITIONS, "it has read all")
        shared.pause(p, group, {"topic": topic, "partitions": ["0-2"]})
        shared.wait_pause(p, "Paused", "3/3")
        produce(kafka.bootstrap, topic, PARTITIONS, 5)
        with StubAgent(kafka.bootstrap, group, topic, client_id="two") as other:
            until(lambda: len(other.assigned) == 2, "the other has joined")
            body = until(
                lambda: (
                    (b := shared.get_pause(p))
                    and {row["member"][:3] for row in b["status"]["partitions"]} == {"one", "two"}
                    and b["status"]["phase"] == "Paused"
                    and b
                ),
                "the new owner is told",
            )
            assert body["status"]["paused"] == "3/3"
            assert [one.count(topic, n) + other.count(topic, n) for n in range(3)] == [5, 5, 5]
    until(lambda: not [r for r in shared.get_pause(p)["status"]["partitions"] if r.get("member")], "nobody owns them")
    assert [row["offset"] for row in shared.wait_pause(p, "Paused", "3/3")["status"]["partitions"]] == [5, 5, 5]
    with StubAgent(kafka.bootstrap, group, topic, client_id="new") as new:
        until(lambda: len(new.assigned) == PARTITIONS, "it is back")
        shared.wait_pause(p, "Paused", "3/3")
        assert [new.count(topic, n) for n in range(3)] == [0, 0, 0]
        shared.delete_pause(p)
        until(lambda: [new.count(topic, n) for n in range(3)] == [5, 5, 5], "they go on where they stood")
        assert all(new.read[TopicPartition(topic, n)][0][1] == 5 for n in range(3))


# --- what comes later, what is missing --------------------------------------------------------------------------------


def test_partitions_that_are_added_later_are_paused_as_well(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, two: tuple[StubAgent, StubAgent]
) -> None:
    shared.pause(p, group, {"topic": topic})
    shared.wait_pause(p, "Paused", "4/4")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(20)
    body = shared.wait_pause(p, "Paused", "6/6")
    assert [number for number, _ in rows(body)] == list(range(6))
    shared.delete_pause(p)


def test_a_topic_that_does_not_exist_yet_is_paused_when_it_does(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, group: str, p: str
) -> None:
    name = unique("later")
    shared.pause(p, group, {"topic": name})
    body = shared.wait_pause(p, "Pending", "0/0", reason="WaitingForTopics")
    assert name in condition_of(body, "Reconciling")["message"]
    make_topic(2, name=name)
    shared.wait_pause(p, "Paused", "2/2")
    shared.delete_pause(p)


def test_a_whole_group_is_paused_on_what_it_reads(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str
) -> None:
    shared.pause(p, group)
    shared.wait_pause(p, "Pending", "0/0", reason="WaitingForGroup")
    with StubAgent(kafka.bootstrap, group, topic) as agent:
        shared.wait_pause(p, "Paused", "4/4")
        produce(kafka.bootstrap, topic, PARTITIONS, 5)
        assert len(agent.assigned) == PARTITIONS
    # Nothing was ever committed, and nobody is there: it is the same group all the same.
    until(lambda: not [r for r in shared.get_pause(p)["status"]["partitions"] if r.get("member")], "nobody owns them")
    assert shared.get_pause(p)["status"]["paused"] == "4/4"
    with StubAgent(kafka.bootstrap, group, topic) as again:
        until(lambda: len(again.assigned) == PARTITIONS, "it is back")
        shared.wait_pause(p, "Paused", "4/4")
        assert not again.read
    shared.delete_pause(p)


def test_a_member_without_the_agent_is_named_and_never_called_paused(
    kafka: KafkaCluster, resources: Resources, start_operator: StartOperator, topic: str, group: str, p: str
) -> None:
    start_operator({"TIDEGATE_UNMANAGED_AFTER_S": "1"})
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    with StubAgent(kafka.bootstrap, group, topic, client_id="with") as one:
        with StubAgent(kafka.bootstrap, group, topic, client_id="plain", managed=False) as plain:
            until(lambda: len(one.assigned) == len(plain.assigned) == 2, "both own two partitions")
            resources.pause(p, group, {"topic": topic})
            body = resources.wait_pause(p, "Degraded", "2/4")
            [member] = body["status"]["unmanagedMembers"]
            assert member["clientId"] == "plain"
            assert member["memberId"].startswith("plain-")
            assert "127.0.0.1" in member["host"]
            assert condition_of(body, "Paused")["status"] == "False"
            assert condition_of(body, "Stalled")["reason"] == "UnmanagedMembers"
            assert "plain at 127.0.0.1" in condition_of(body, "Ready")["message"]
            assert [reason for reason, _ in resources.events(p)] == ["Pausing", "Degraded"]
        paused = resources.wait_pause(p, "Paused", "4/4")
        assert paused["status"]["unmanagedMembers"] == []
        resources.delete_pause(p)
        until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")


# --- what may not be --------------------------------------------------------------------------------------------------


def test_a_group_that_the_connection_does_not_allow_is_refused(
    resources: Resources, operator: OperatorProcess, kafka: KafkaCluster, topic: str, group: str, p: str
) -> None:
    resources.connection("kafka", kafka.bootstrap, allow={"groups": ["others-*"]})
    resources.wait_connection("kafka")
    resources.pause(p, group, {"topic": topic})
    body = resources.wait_pause(p, "Pending", reason="GroupNotAllowed")
    assert condition_of(body, "Stalled")["reason"] == "GroupNotAllowed"
    assert [reason for reason, _ in resources.events(p)] == ["GroupNotAllowed"]
    assert "finalizers" not in body["metadata"]


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_killed_operator_goes_on_where_it_was(
    own: Own, operator: OperatorProcess, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        until(lambda: len(agent.assigned) == PARTITIONS, "it owns all")
        resources.pause(p, group, {"topic": topic})
        resources.pause(f"{p}-2", group, {"topic": topic, "partitions": [0]})
        uid = resources.get_pause(f"{p}-2")["metadata"]["uid"]
        resources.wait_pause(p, "Paused", "4/4")
        resources.wait_pause(f"{p}-2", "Paused", "1/1")
        epochs = {key: held.epoch for key, held in own.control.read().holds.items() if not key.holder.endswith(uid)}

        operator.kill()
        produce(own.bootstrap, topic, PARTITIONS, 5)
        # Gone without a word: its hold is left behind.
        resources.patch("consumergrouppauses", f"{p}-2", {"metadata": {"finalizers": None}})
        resources.delete_pause(f"{p}-2")
        operator.start()

        until(lambda: not any(of.endswith(uid) for of in own.holders()), "what was left behind is released")
        assert {key: held.epoch for key, held in own.control.read().holds.items()} == epochs, "holds were written again"
        assert resources.wait_pause(p, "Paused", "4/4")["status"]["partitions"][0]["phase"] == "Paused"
        assert not agent.read
        assert [reason for reason, _ in resources.events(p)] == ["Pausing", "Paused"]
        resources.delete_pause(p)
        until(lambda: [agent.count(topic, n) for n in range(PARTITIONS)] == [5] * PARTITIONS, "all go on")
        assert own.holders() == set()


def test_holds_of_other_operators_and_other_holders_are_never_released(
    own: Own, operator: OperatorProcess, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    uid = resources.get_connection("kafka")["metadata"]["uid"]
    own.control.ensure()
    others = {
        HoldKey(group, topic, 0, name): Hold("theirs")
        for name in ("cli", "reset/1", holder("another-connection", "gone"), "pause/odd")
    }
    left = HoldKey(group, topic, 0, holder(uid, "gone"))
    own.control.hold({**others, left: Hold("ours")})
    operator.kill()
    operator.start()
    until(lambda: left.holder not in own.holders(), "ours is released")
    resources.pause(p, group, {"topic": topic})
    resources.wait_pause(p, "Paused", "4/4")
    resources.delete_pause(p)
    until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")
    assert own.holders() == {key.holder for key in others}


def test_a_control_topic_that_is_deleted_under_way_is_made_and_written_anew(
    own: Own, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        until(lambda: len(agent.assigned) == PARTITIONS, "it owns all")
        resources.pause(p, group, {"topic": topic})
        body = resources.wait_pause(p, "Paused", "4/4")

        own.delete(own.control_topic)

        until(lambda: len(own.control.read().holds) == PARTITIONS and own.control.exist, "all is held again")
        until(lambda: resources.get_pause(p)["status"]["paused"] == "4/4", "and paused")
        gates = own.control.read([group])
        for number in range(PARTITIONS):
            assert acked(gates, group, TopicPartition(topic, number)) is not None
        assert body["metadata"]["generation"] == resources.get_pause(p)["metadata"]["generation"]
        resources.delete_pause(p)
        produce(own.bootstrap, topic, PARTITIONS, 5)
        until(lambda: [agent.count(topic, n) for n in range(PARTITIONS)] == [5] * PARTITIONS, "all go on")


def test_control_topics_with_wrong_settings_are_told_with_what_mends_them(
    own: Own, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    own.create(own.control_topic, {"cleanup.policy": "delete"})
    own.create(acks_topic(own.control_topic), {"cleanup.policy": "compact"})

    resources.pause(p, group, {"topic": topic})

    body = resources.wait_pause(p, "Pending", reason="ControlTopicsUnusable")
    message = condition_of(body, "Stalled")["message"]
    assert f"--entity-name {own.control_topic} --add-config cleanup.policy=compact" in message
    assert "message.timestamp.type=LogAppendTime" in message
    connection = until(
        lambda: condition_of(resources.get_connection("kafka"), "ControlTopics"), "the connection tells it, too"
    )
    assert (connection["status"], connection["reason"]) == ("False", "WrongSettings")
    assert "--add-config" in connection["message"]
    assert own.holders() == set()

    own.set_config(own.control_topic, cleanup_policy="compact", message_timestamp_type="LogAppendTime")

    resources.wait_pause(p, "Paused", "4/4")
    until(
        lambda: condition_of(resources.get_connection("kafka"), "ControlTopics")["status"] == "True",
        "the connection is well",
    )
    assert resources.get_pause(p)["status"]["conditions"][0]["status"] == "True"


def test_a_pause_that_is_deleted_while_kafka_is_away_waits_or_is_abandoned(
    resources: Resources, operator: OperatorProcess, group: str, p: str
) -> None:
    with KafkaCluster.start() as away:
        admin = AdminClient({"bootstrap.servers": away.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
        resources.connection("kafka", away.bootstrap, properties={"socket.timeout.ms": "2000"})
        resources.wait_connection("kafka")
        resources.pause(p, group, {"topic": "orders"})
        resources.wait_pause(p, "Paused", "2/2")
        away.kill(0)
        until(
            lambda: condition_of(resources.get_pause(p), "Paused").get("status") == "Unknown",
            "it can't be seen whether it stands still",
        )
        resources.delete_pause(p)
        waiting = until(
            lambda: (b := resources.get_pause(p))["status"]["phase"] == "Resuming" and b, "it waits for Kafka"
        )
        assert "tidegate.io/abandon" in condition_of(waiting, "Reconciling")["message"]
        resources.patch("consumergrouppauses", p, {"metadata": {"annotations": {"tidegate.io/abandon": "true"}}})
        until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")
        away.restart(0)
        resources.wait_connection("kafka", timeout_s=90)
        client = KafkaClient(Connection(away.bootstrap))
        until(lambda: _holds(client) == set(), "what it held is released once Kafka is back", timeout_s=90)
        client.control.close()
        client.close()


def _holds(client: KafkaClient) -> set[HoldKey] | None:
    try:
        return set(client.control.read().holds)
    except KafkaFailure:
        return None


# --- rights -----------------------------------------------------------------------------------------------------------


def test_missing_rights_on_the_control_topics_are_named_and_looked_for_again(
    resources: Resources, operator: OperatorProcess, kafka_secure: KafkaCluster, unique: Unique, group: str, p: str
) -> None:
    security, topic, control = kafka_secure.security, unique("orders"), f"__{unique('control')}"[:120]
    admin = AdminClient({"bootstrap.servers": kafka_secure.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)

    def allow(kind: ResourceType, name: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{security.username}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in admin.create_acls(bindings).values():
            future.result(20)

    allow(ResourceType.GROUP, group, AclOperation.READ)
    allow(ResourceType.TOPIC, topic, AclOperation.READ)
    resources.secret("ca", **{"ca.crt": security.ca.read_text()})
    resources.secret("login", password=security.password)
    resources.connection(
        "kafka",
        security.sasl_ssl_bootstrap,
        tls={"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]},
        authentication={
            "type": "scram-sha-512",
            "username": security.username,
            "passwordSecret": {"secretName": "login", "password": "password"},
        },
        controlTopic={"name": control},
    )
    resources.wait_connection("kafka")
    resources.pause(p, group, {"topic": topic})

    body = resources.wait_pause(p, "Pending", reason="ControlTopicsUnusable")
    assert control in condition_of(body, "Stalled")["message"]
    assert "Create" in condition_of(body, "Stalled")["message"]
    until(
        lambda: condition_of(resources.get_connection("kafka"), "ControlTopics").get("reason") == "NotAuthorized",
        "the connection tells it, too",
    )

    for name in (control, acks_topic(control)):
        allow(ResourceType.TOPIC, name, AclOperation.CREATE, AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
    identity = control_transactional_id(resources.get_connection("kafka")["metadata"]["uid"], control)
    missing = f"allow the principal Write on transactional-id {identity} "
    until(lambda: missing in condition_of(resources.get_pause(p), "Stalled").get("message", ""), "fencing is missing")

    allow(ResourceType.TRANSACTIONAL_ID, identity, AclOperation.WRITE)
    missing = f"allow the principal Write on topic {control} "
    body = until(
        lambda: missing in condition_of(b := resources.get_pause(p), "Stalled").get("message", "") and b,
        "Write is missing",
    )
    assert body["status"]["phase"] == "Pending"

    allow(ResourceType.TOPIC, control, AclOperation.WRITE)
    resources.wait_pause(p, "Paused", "2/2")
    until(lambda: condition_of(resources.get_connection("kafka"), "ControlTopics")["status"] == "True", "all is well")
    resources.delete_pause(p)
    until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")


# --- idle -------------------------------------------------------------------------------------------------------------


def test_a_pause_that_nothing_happens_to_writes_nothing(
    own: Own, operator: OperatorProcess, apiserver: ApiServer, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        produce(own.bootstrap, topic, PARTITIONS, 5)
        until(lambda: [agent.count(topic, n) for n in range(PARTITIONS)] == [5] * PARTITIONS, "it has read all")
        resources.pause(p, group, {"topic": topic})
        resources.wait_pause(p, "Paused", "4/4")
        until(lambda: "lag" in resources.get_pause(p)["status"]["partitions"][0], "its lag is told")
        time.sleep(1.5)
        since = len(apiserver.audit_log.read_text().splitlines())
        end = own.control.read().holds
        time.sleep(6)
        assert list(writes_in(apiserver.audit_log, resources.namespace, since)) == []
        assert own.control.read().holds == end
    assert operator.metric("tidegate_pauses", phase="Paused") == 1
    assert operator.metric("tidegate_paused_partitions") == PARTITIONS
    assert operator.metric("tidegate_oldest_pause_age_seconds") > 5
    assert operator.metric("tidegate_hold_to_ack_seconds_count") == PARTITIONS
    assert operator.metric("tidegate_unreadable_control_records") == 0
    code, text = operator.get("/healthz")
    assert code == 200, text
