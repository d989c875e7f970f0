"""What an operator changes is in the audit log: who asked, who approved, by which plan, from where and to where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from apiserver.offsets import committed, leave_at, produce
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

ROOT = Path(__file__).resolve().parents[2]


def audit_log(kafka: KafkaCluster, topic: str, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.cli.main", "audit", "log"),
            *("--bootstrap-server", kafka.bootstrap, "--audit-topic", topic),
            *arguments,
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(text) for text in done.stdout.splitlines()]


def test_a_reset_and_its_undo_are_in_the_log(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group, log = make_topic(2), unique("group"), unique("audit")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, {0: 50, 1: 60})
    connection = unique("audited")
    shared.connection(connection, kafka.bootstrap, audit={"topic": log, "required": True})
    until(
        lambda: condition_of(shared.get_connection(connection), "AuditTopic").get("reason") == "Usable",
        "the audit topic is usable",
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [made] = [f.result() for f in admin.describe_configs([ConfigResource(ResourceType.TOPIC, log)]).values()]
    assert made["cleanup.policy"].value == "delete"
    assert made["message.timestamp.type"].value == "LogAppendTime"

    reference, name = {"name": connection}, unique("replay")
    shared.reset(name, group, {"offset": 10}, connectionRef=reference, requester="ann", approval="Manual")
    shared.wait_phase(name, "AwaitingApproval")
    assert audit_log(kafka, log) == []
    shared.approve(name, approver="bob")
    done = shared.wait_phase(name, "Succeeded", "Failed", "RolledBack")
    assert done["status"]["phase"] == "Succeeded"
    undo = unique("undo")
    shared.reset(undo, group, {"undo": name}, connectionRef=reference)
    shared.wait_phase(undo, "Succeeded")
    assert committed(kafka.bootstrap, group, topic, 2) == {0: 50, 1: 60}

    first, second = audit_log(kafka, log, "--group", group, "--since", "1h")
    digest = done["status"]["approvedDigest"]
    assert first["by"] == {"kind": "OffsetReset", "name": name, "namespace": shared.namespace}
    assert (first["requester"], first["approver"]) == ("ann", "bob")
    assert first["plan"] == first["approved"] == digest == done["status"]["digest"]
    assert (first["action"], first["state"], first["way"], first["part"], first["parts"]) == (
        *("reset", "committed", "Unowned", 1, 1),
    )
    assert first["offsets"] == [
        {"topic": topic, "partition": 0, "before": 50, "after": 10},
        {"topic": topic, "partition": 1, "before": 60, "after": 10},
    ]
    assert (second["action"], second["by"]["name"], "requester" in second) == ("undo", undo, False)
    assert [row["after"] for row in second["offsets"]] == [50, 60]
    assert first["at"] < second["at"]
    assert audit_log(kafka, log, "--by", f"{shared.namespace}/{undo}") == [second]
    assert audit_log(kafka, log, "--group", "another") == []


def test_a_topic_that_cannot_be_relied_on_is_told_of(shared: Resources, kafka: KafkaCluster, unique: Unique) -> None:
    log, connection = unique("audit"), unique("audited")
    config = {"cleanup.policy": "compact", "retention.ms": "60000"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(log, 1, 1, config=config)])[log].result()
    shared.connection(connection, kafka.bootstrap, audit={"topic": log})
    found = until(lambda: condition_of(shared.get_connection(connection), "AuditTopic"), "the audit topic was checked")
    assert (found["status"], found["reason"]) == ("False", "WrongSettings")
    assert "cleanup.policy=delete" in found["message"]
    assert "message.timestamp.type=LogAppendTime" in found["message"]
    [made] = [f.result() for f in admin.describe_configs([ConfigResource(ResourceType.TOPIC, log)]).values()]
    assert (made["cleanup.policy"].value, made["retention.ms"].value) == ("compact", "60000")

    shared.patch("kafkaconnections", connection, {"spec": {"audit": None}})
    until(lambda: condition_of(shared.get_connection(connection), "AuditTopic") == {}, "nothing is said of it")
