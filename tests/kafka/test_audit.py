"""The audit topic of a real broker: what is committed is in it, what is not is not, and reading it survives all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support import audited_writer
from support.stack_fixtures import MakeTopic, Unique
from tidegate.audit.codec import encode_change
from tidegate.audit.records import Action, Actor, AuditTopic, Change, Moved, State
from tidegate.cli.main import main
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.audit_reader import AuditReader
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase

Tidegate = Callable[..., tuple[str, str]]
CHANGE = Change("a", Action.START, State.COMMITTED, "g", Actor("OffsetResetPolicy", "p", "ns"), {})


@pytest.fixture
def client(kafka: KafkaCluster) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as made:
        yield made


@pytest.fixture
def log(client: KafkaClient, unique: Unique) -> str:
    """An audit topic, as the operator makes it."""
    name = unique("audit")
    assert client.audit.ensure(AuditTopic(name)) == ()
    return name


def changes(kafka: KafkaCluster, log: str) -> list[Change]:
    with closing(AuditReader(Connection(kafka.bootstrap), log)) as reader:
        found = [read.part.change for read in reader.read()]
        assert reader.left.unreadable == 0
        return found


@pytest.fixture
def tidegate(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tidegate:
    """A command; what it writes to both outputs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main([*arguments, "--bootstrap-server", kafka.bootstrap]) == code
        written = capsys.readouterr()
        return written.out, written.err

    return run


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_is_killed_as_it_commits_leaves_offsets_and_record_or_neither(
    when: str, kafka: KafkaCluster, client: KafkaClient, log: str, make_topic: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    partition, group, other = TopicPartition(make_topic(1), 0), unique("group"), unique("other")
    client.writer(group, transaction_timeout_s=5).alter(group, {partition: 0})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(9):
        producer.produce(partition.topic, b"x", partition=0)
    assert producer.flush(20) == 0
    connection = Connection(kafka.bootstrap, control_topic=unique("control"))
    store = DirectoryRunStore(tmp_path, "run")
    store.create(RunRequest("uid/run", "run", group, connection, (), ToOffset(7)))

    command = [sys.executable, audited_writer.__file__, str(tmp_path), "run", log, when]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr

    # What others write after an open transaction can't be read before that is over.
    with client.writer(other, transaction_timeout_s=5).transaction() as transaction:
        transaction.append(log, encode_change(CHANGE))
        transaction.commit()
    recorded = ConfinedRunStore(store, None, attribution=audited_writer.attribution(log))
    with closing(KafkaClient(connection)) as successor:
        ended = job.settle(recorded, successor, SystemClock(), reason="Interrupted", message="it died")
        assert client.committed(group) == {partition: 0}
    ours = [change for change in changes(kafka, log) if change != CHANGE]
    if when == "before":
        assert ended.phase is ResetPhase.FAILED
        assert ours == []
        return
    assert ended.phase is ResetPhase.ROLLED_BACK
    assert [(c.action, c.id, dict(c.offsets)) for c in ours] == [
        (Action.RESET, "uid/run#1.1", {partition: Moved(0, 7)}),
        (Action.ROLLBACK, "uid/run#2.1", {partition: Moved(7, 0)}),
    ]
    assert {c.requester for c in ours} == {"ann"}


def test_the_record_of_50000_partitions_can_be_written_and_read(
    kafka: KafkaCluster, client: KafkaClient, log: str, unique: Unique
) -> None:
    offsets = {TopicPartition(f"topic-{n // 500:03}", n % 500): Moved(10**12 + n, n) for n in range(50_000)}
    group = unique("group")
    with client.writer(group, transaction_timeout_s=10).transaction() as transaction:
        transaction.append(log, encode_change(Change("b", Action.RESET, State.COMMITTED, group, CHANGE.by, offsets)))
        transaction.commit()
    together: dict[TopicPartition, Moved] = {}
    with closing(AuditReader(Connection(kafka.bootstrap), log)) as reader:
        for read in reader.read():
            together |= read.part.change.offsets
            assert read.part.of > 1
    assert together == offsets


def test_a_reset_by_hand_is_in_the_log_and_hostile_records_are_passed_over(
    kafka: KafkaCluster, tidegate: Tidegate, log: str, client: KafkaClient, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(1), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"x", partition=0)
    evil = json.loads(next(iter(encode_change(CHANGE).values())))
    hostile: list[Any] = [
        b"\xff",
        b"[" * 100_000,
        json.dumps(evil | {"version": 99}).encode(),
        json.dumps(evil | {"requester": "\x1b]0;owned\x07\x7f\u202e"}).encode(),
    ]
    for value in hostile:
        producer.produce(log, value, partition=0)
    producer.produce(log, None, key=b"x", partition=0)
    assert producer.flush(20) == 0
    reset = ("groups", "--group", group, "--reset-offsets", "--to-earliest", "--topic", topic)
    mine = ("--control-topic", unique("control"), "--audit-topic", log)
    tidegate(*reset, *mine, "--audit-required", "--execute")

    out, err = tidegate("audit", "log", "--audit-topic", log)
    assert out.replace("\n", "").isprintable()
    shown = [json.loads(text) for text in out.splitlines()]
    assert [row["group"] for row in shown] == ["g", group]
    assert (shown[1]["by"]["kind"], shown[1]["action"]) == ("Command", "reset")
    assert shown[1]["offsets"] == [{"topic": topic, "partition": 0, "before": None, "after": 0}]
    assert "3 record(s) do not belong to the audit log" in err
    assert "1 record(s) were written by a newer version" in err
    # A topic that is not there: nothing was recorded, so nothing is changed.
    missing = ("--control-topic", mine[1], "--audit-topic", unique("missing"), "--audit-required")
    out, err = tidegate(*reset, *missing, "--execute", code=1)
    assert "there is no such topic" in out + err
    assert client.committed(group) == {TopicPartition(topic, 0): 0}
    _, err = tidegate("audit", "log", "--audit-topic", unique("missing"), code=1)
    assert "there is no such topic" in err


def test_what_is_behind_an_open_transaction_is_told_of(kafka: KafkaCluster, client: KafkaClient, log: str) -> None:
    with client.writer("g", transaction_timeout_s=30).transaction() as transaction:
        transaction.append(log, encode_change(CHANGE))
        with closing(AuditReader(Connection(kafka.bootstrap), log)) as reader:
            assert list(reader.read()) == []
            assert reader.left.undecided == 1
    with pytest.raises(Refused, match="no such topic"):
        client.audit.check_writable(f"{log}-missing")
