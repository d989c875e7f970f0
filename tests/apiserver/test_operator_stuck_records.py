"""Records that consumers do not get past, beside groups that are well: real API server, real broker."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from apiserver.offsets import committed, produce
from devstack import ApiServer, KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique
from support.stuck_groups import Flow, Reader, running
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition as Partition
from tidegate.kafka_client.client import KafkaClient


def stuck_status(resources: Resources, policy: str) -> dict[str, Any]:
    found: dict[str, Any] = resources.get_policy(policy).get("status", {}).get("stuckRecords") or {}
    return found


def test_a_planted_record_is_found_and_skipped_once_somebody_approves(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topics = {kind: make_topic(2) for kind in ("poisoned", "idle", "slow", "waiting")}
    groups = {kind: unique(kind) for kind in topics}
    letters = make_topic(1)
    shared.connection("copying", kafka.bootstrap, allow={"deadLetterTopics": [letters]})
    shared.wait_connection("copying")
    flow = Flow(kafka.bootstrap, {topics["poisoned"]: 2, topics["slow"]: 2, topics["waiting"]: 2})
    readers = {
        "poisoned": Reader(kafka.bootstrap, groups["poisoned"], topics["poisoned"]),
        "idle": Reader(kafka.bootstrap, groups["idle"], topics["idle"]),
        "slow": Reader(kafka.bootstrap, groups["slow"], topics["slow"], batch=20),
        "waiting": Reader(kafka.bootstrap, groups["waiting"], topics["waiting"]),
    }
    for kind, group in groups.items():
        copies = {"deadLetter": {"topic": letters}} if kind == "poisoned" else {}
        by = {"connectionRef": {"name": "copying"}} if kind == "poisoned" else {}
        shared.policy(kind, group, stuckRecords={"after": "5s", "prepareSkip": True, **copies}, **by)
    with running(flow, *readers.values()):
        for kind in ("poisoned", "slow", "waiting"):

            def all_judged(kind: str = kind) -> bool:
                return stuck_status(shared, kind).get("judged") == 2

            until(all_judged, f"group {kind} was seen to read", timeout_s=90)
        # An open transaction: what comes after it is nothing that a reader of committed records is given.
        blocker = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("tx"), "log_level": 0})
        blocker.init_transactions(30)
        blocker.begin_transaction()
        for partition in range(2):
            blocker.produce(topics["waiting"], b"undecided", partition=partition)
        assert blocker.flush(30) == 0

        offset = flow.plant(topics["poisoned"], 1)
        found = until(lambda: stuck_status(shared, "poisoned").get("records"), "the record is found", timeout_s=30)
        assert [(r["topic"], r["partition"], r["offset"], r["committed"]) for r in found] == [
            (topics["poisoned"], 1, offset, offset)
        ]
        assert (found[0]["size"], found[0]["headers"], "oneOf" in found[0]) == (7, 1, False)
        condition = condition_of(shared.get_policy("poisoned"), "RecordStuck")
        assert (condition["status"], condition["reason"]) == ("True", "Stuck")
        assert f"{topics['poisoned']}-1@{offset}" in condition["message"]
        assert "RecordStuck" in [reason for reason, _ in shared.events("poisoned")]

        skip = until(lambda: stuck_status(shared, "poisoned")["records"][0].get("skip"), "a reset is prepared")
        prepared = shared.wait_phase(skip, "AwaitingApproval")
        assert prepared["spec"]["to"] == {"offset": offset + 1}
        assert prepared["spec"]["deadLetter"] == {"topic": letters}
        assert prepared["status"]["plan"]["recordsSkipped"] == 1
        # It stands while nobody approves, and the others are left alone.
        assert committed(kafka.bootstrap, groups["poisoned"], topics["poisoned"], 2)[1] == offset
        for kind in ("idle", "slow", "waiting"):
            assert not stuck_status(shared, kind).get("records"), kind
        waiting = condition_of(shared.get_policy("waiting"), "RecordStuck")
        assert waiting["status"] == "False"
        assert (
            "2 partition(s), consumers of committed records wait for an open transaction to end" in waiting["message"]
        )
        assert (1, offset) not in readers["poisoned"].read

        shared.approve(skip)
        done = shared.wait_phase(skip, "Succeeded", "Failed", "RolledBack")
        assert done["status"]["phase"] == "Succeeded", done["status"]
        assert f"copied to dead-letter topic {letters}" in condition_of(done, "Ready")["message"]
        [copy] = copies_in(kafka, letters)
        assert (copy.key(), copy.value()) == (b"k", b"poison")
        told = {name: value.decode() for name, value in copy.headers()}
        assert told["trace"] == "1"
        assert told["__tidegate.errors.topic"] == topics["poisoned"]
        assert told["__tidegate.errors.offset"] == str(offset)
        assert told["__tidegate.errors.reset"] == skip
        until(lambda: (1, offset + 1) in readers["poisoned"].read, "the consumer goes on behind it")
        until(lambda: not stuck_status(shared, "poisoned").get("records"), "nothing is stuck any more")
        assert "RecordPassed" in [reason for reason, _ in shared.events("poisoned")]
        blocker.abort_transaction(30)
    # Nothing else was skipped.
    for kind in ("poisoned", "slow", "waiting"):
        for partition in range(2):
            read = {at for p, at in readers[kind].read if p == partition}
            missing = set(range(max(read))) - read
            expected = {offset} if (kind, partition) == ("poisoned", 1) else set()
            assert (kind, partition, missing - undecided(kind, missing)) == (kind, partition, expected)


def test_the_commands_ask_for_copies_and_say_what_came_of_them(
    shared: Resources, kafka: KafkaCluster, apiserver: ApiServer, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, letters, group, connection = make_topic(1), make_topic(1), unique("group"), unique("copying")
    nowhere = f"{letters}.nowhere"
    shared.connection(connection, kafka.bootstrap, allow={"deadLetterTopics": [f"{letters}*"]})
    shared.wait_connection(connection)
    produce(kafka.bootstrap, topic, 1, 3)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        client.writer(group, transaction_timeout_s=5).alter(group, {Partition(topic, 0): 0})
    shell, of = Shell({"KUBECONFIG": str(apiserver.kubeconfig)}), ("-n", shared.namespace)
    skip = ("reset", group, "-c", connection, "--topic", f"{topic}:0", "--to-offset", "1", *of)
    lost, kept = unique("lost"), unique("kept")

    refused = shell(*skip, "--name", lost, "--dead-letter", nowhere, code=1)

    assert f"deadLetter: topic {nowhere} does not exist" in refused
    assert condition_of(shared.wait_phase(lost, "Failed"), "Failed")["reason"] == "NotCopied"
    assert committed(kafka.bootstrap, group, topic, 1) == {0: 0}
    assert f"topic {nowhere} does not exist" in shell("why", group, "-c", connection, *of)
    assert f"topic {nowhere} does not exist" in shell("status", *of)

    done = shell(*skip, "--name", kept, "--dead-letter", letters)

    assert f"1 record(s) were copied to dead-letter topic {letters}" in done
    assert committed(kafka.bootstrap, group, topic, 1) == {0: 1}
    assert len(copies_in(kafka, letters)) == 1
    plan = " ".join(shell("plan", kept, *of).split())
    assert f"are copied to dead-letter topic {letters} first, in the same transaction" in plan
    assert f"copied to dead-letter topic {letters}" in shell("why", group, "-c", connection, *of)


def copies_in(kafka: KafkaCluster, topic: str) -> list[Any]:
    """What a reader of committed records finds in the topic's only partition."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = reader.poll(30)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            reader.close()
            return found
        found.append(message)


def undecided(kind: str, missing: set[int]) -> set[int]:
    """Of the aborted transaction one record and its marker are no records to anybody."""
    return missing if kind == "waiting" and len(missing) <= 2 else set()
