"""The rights in docs/reference/permissions.md, one by one: all of them are enough, and each that is missing is named.

Kafka's StandardAuthorizer, SASL/SCRAM over TLS; each case is a user of its own.
"""

from __future__ import annotations

import io
import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from devstack import KafkaCluster
from support.obeyed import acked
from support.stack_fixtures import Unique
from tidegate.audit.records import AuditTopic
from tidegate.cli.acls import run_acls
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.connection.control_topics import trouble_of
from tidegate.connection.live import Live
from tidegate.connection.permissions import said_of
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Ack, AckKey, Hold, HoldKey
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import NotAuthorized, UnknownPartitions
from tidegate.kafka.model import Range, TopicPartition
from tidegate.kafka.needed_rights import Role, Scope, checkable, needs_of
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit
from tidegate.kafka.rights import Right as KafkaRight
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.fenced_writer import control_transactional_id
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.reset.stores import MemoryRunStore
from tidegate.resources.connection import AllowSpec
from tidegate.resources.reset import ResetPhase

PASSWORD = "of-nobody-4711"
OPTIONS = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
    ResourceType.BROKER: "cluster",
}
OPERATIONS = {
    "Create": AclOperation.CREATE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}


@dataclass(frozen=True)
class Right:
    """``name``: with T, G and O for the control topic, the group and its topic."""

    operation: str
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {OPTIONS[self.kind]} {self.name}"


class Stage:
    """A control topic, a group and a topic of their own, and users with some rights on them."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, folder: Path) -> None:
        self._cluster, self._unique = cluster, unique
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._password = folder / "password"
        self._password.write_text(PASSWORD)
        self.closing, self.folder = ExitStack(), folder
        self.control, self.group, self.topic = unique("control"), unique("group"), unique("topic")
        self.acks = f"{self.control}_acks"
        self.partition = TopicPartition(self.topic, 0)
        self.key = HoldKey(self.group, self.topic, 0, "pause/connection/pause")
        self._admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(20)

    def named(self, text: str) -> str:
        words = {"T": self.control, "T_acks": self.acks, "G": self.group, "O": self.topic}
        words |= {f"tidegate.G{end}": f"tidegate.{self.group}{end}" for end in ("", ".starts")}
        words["tidegate-control/"] = control_transactional_id("uid", self.control)
        return words.get(text, text)

    @property
    def scope(self) -> Scope:
        return Scope(self.control, self.acks, (self.group,), (self.topic,))

    def checkable(self) -> tuple[KafkaRight, ...]:
        return checkable(needs_of(Role.OPERATOR, self.scope))

    def make_control_topics(self) -> KafkaClient:
        """As the administrator, who may do everything."""
        owner = self._opened(Connection(self._cluster.bootstrap, control_topic=self.control))
        assert owner.control.ensure() == ()
        return owner

    def ack(self, epoch: int) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap})
        key = AckKey(self.group, self.topic, 0)
        producer.produce(self.acks, encode_value(Ack(epoch, 0, "m")), encode_key(key))
        assert producer.flush(20) == 0

    def produce(self, records: int) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap})
        for number in range(records):
            producer.produce(self.topic, str(number))
        assert producer.flush(20) == 0

    def committed(self) -> dict[TopicPartition, int]:
        return dict(self._opened(Connection(self._cluster.bootstrap)).committed(self.group))

    def commit(self) -> None:
        with (
            self._opened(Connection(self._cluster.bootstrap))
            .writer(self.group, transaction_timeout_s=5)
            .transaction() as transaction
        ):
            transaction.send(self.group, {self.partition: 0})
            transaction.commit()

    def user(self, *rights: Right, operator: str = "") -> tuple[KafkaClient, Live]:
        return self.granted(
            [
                AclBinding(
                    right.kind,
                    self.named(right.name),
                    ResourcePatternType.LITERAL,
                    "User:NAME",
                    "*",
                    OPERATIONS[right.operation],
                    AclPermissionType.ALLOW,
                )
                for right in rights
            ],
            operator,
        )

    def granted(self, acls: list[AclBinding], operator: str = "") -> tuple[KafkaClient, Live]:
        """A user of its own with what is granted to ``User:NAME``."""
        name = self._unique("user")
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = self._admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, PASSWORD.encode())])
        bindings = [
            AclBinding(
                a.restype, a.name, a.resource_pattern_type, f"User:{name}", "*", a.operation, AclPermissionType.ALLOW
            )
            for a in acls
        ]
        granted = self._admin.create_acls(bindings) if bindings else {}
        for future in (*made.values(), *granted.values()):
            future.result(20)
        security = self._cluster.security
        connection = Connection(
            security.sasl_ssl_bootstrap,
            tls=True,
            ca_file=security.ca,
            authentication=Authentication(
                AuthenticationType.SCRAM_SHA_512, username=name, password_file=self._password
            ),
            control_topic=self.control,
        )
        client = self._opened(connection, operator)
        return client, Live("uid", "ns", "kafka", "", connection, None, {}, AllowSpec(), client)

    def _opened(self, connection: Connection, operator: str = "") -> KafkaClient:
        client = KafkaClient(connection, operator)
        self.closing.callback(client.close)
        return client


@pytest.fixture
def stage(kafka_secure: KafkaCluster, unique: Unique, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka_secure, unique, tmp_path)
    with made.closing:
        yield made


def commit_start(stage: Stage, kafka: KafkaClient) -> None:
    with kafka.writer(stage.group, transaction_timeout_s=5, purpose="starts").transaction() as transaction:
        transaction.send(stage.group, {stage.partition: 0})
        transaction.commit()


def keep(stage: Stage, kafka: KafkaClient) -> None:
    commits = kafka.retention.commits(stage.group).offsets or {stage.partition: Commit(0, "")}
    assert kafka.retention.commit(stage.group, commits, commits, retention_ms=86_400_000)


Act = Callable[[Stage, KafkaClient], object]

ACTS: dict[str, Act] = {
    "make control topics": lambda _stage, kafka: kafka.control.ensure(),
    "check control topics": lambda _stage, kafka: kafka.control.ensure(),
    "read holds and acks": lambda _stage, kafka: kafka.control.read(),
    "close a gate": lambda stage, kafka: kafka.control.hold({stage.key: Hold()}),
    "take back stale acks": lambda _stage, kafka: kafka.control.ensure(),
    "describe the group": lambda stage, kafka: kafka.groups([stage.group]),
    "read its offsets": lambda stage, kafka: kafka.committed(stage.group),
    "give a start": commit_start,
    "read the retention": lambda _stage, kafka: kafka.retention.settings(),
    "read the offsets' log": lambda stage, kafka: kafka.retention.log(stage.group, GroupLog()),
    "keep an offset": keep,
}

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CONTROL = tuple(
    Right(operation, TOPIC, name)
    for name in ("T", "T_acks")
    for operation in ("Create", "DescribeConfigs", "Read", "Write")
)
FENCING = Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate-control/")
KEEPING = (
    Right("Read", GROUP, "G"),
    Right("Read", TOPIC, "O"),
    Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate.G.starts"),
    Right("DescribeConfigs", ResourceType.BROKER, "kafka-cluster"),
    Right("Read", TOPIC, "__consumer_offsets"),
)


def test_the_documented_rights_are_enough(stage: Stage) -> None:
    kafka, _ = stage.user(*CONTROL, FENCING, *KEEPING, operator="uid")

    for act in ACTS.values():
        act(stage, kafka)
    kafka.control.release([stage.key])

    assert kafka.control.read().holds == {}


@pytest.mark.parametrize(
    ("missing", "left", "act"),
    [
        (Right("Create", TOPIC, "T"), "", "make control topics"),
        (Right("Create", TOPIC, "T_acks"), "", "make control topics"),
        (Right("DescribeConfigs", TOPIC, "T"), "", "check control topics"),
        (Right("DescribeConfigs", TOPIC, "T_acks"), "", "check control topics"),
        (Right("Read", TOPIC, "T"), "", "read holds and acks"),
        (Right("Read", TOPIC, "T_acks"), "", "read holds and acks"),
        (Right("Write", TOPIC, "T"), "", "close a gate"),
        (Right("Write", TOPIC, "T_acks"), "", "take back stale acks"),
        (FENCING, "", "check control topics"),
        (FENCING, "", "close a gate"),
        (Right("Read", GROUP, "G"), "", "describe the group"),
        (Right("Read", GROUP, "G"), "", "read its offsets"),
        (Right("Read", GROUP, "G"), "Describe", "give a start"),
        (Right("Read", TOPIC, "O"), "Describe", "give a start"),
        (Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate.G.starts"), "", "give a start"),
        (Right("Read", GROUP, "G"), "Describe", "keep an offset"),
        (Right("Read", TOPIC, "O"), "Describe", "keep an offset"),
        (Right("DescribeConfigs", ResourceType.BROKER, "kafka-cluster"), "", "read the retention"),
        (Right("Read", TOPIC, "__consumer_offsets"), "", "read the offsets' log"),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_a_missing_right_is_named_and_what_grants_it(missing: Right, left: str, act: str, stage: Stage) -> None:
    """``left``: the lesser right that stays, where the greater one is taken."""
    if act != "make control topics":
        # There is something to read, or nothing would be refused.
        stage.make_control_topics().control.hold({stage.key: Hold()})
        stage.ack(epoch=99 if act == "take back stale acks" else 0)
    if act in ("keep an offset", "read the offsets' log"):
        stage.commit()
    rights = [right for right in (*CONTROL, FENCING, *KEEPING) if right != missing]
    if left:
        rights.append(Right(left, missing.kind, missing.name))
    kafka, live = stage.user(*rights, operator="uid")

    for _ in range(2):  # and not only the first time
        with pytest.raises(NotAuthorized) as caught:
            ACTS[act](stage, kafka)

    needed = "Describe" if missing.kind is GROUP and not left else missing.operation
    name = "" if missing.kind is ResourceType.BROKER else f" {stage.named(missing.name)}"
    option = OPTIONS[missing.kind]
    trouble = trouble_of(live, caught.value)
    for text in (str(caught.value), trouble.message if trouble is not None else ""):
        assert f"allow the principal {needed} on {option}{name}" in text
        assert f"--operation {needed} --{option}{name})" in text
        assert PASSWORD not in text


CLAIMING = (Right("Read", TOPIC, "T"), Right("Write", TOPIC, "T"), Right("Read", TOPIC, "T_acks"))
MAKING = tuple(Right(operation, TOPIC, name) for name in ("T", "T_acks") for operation in ("Create", "DescribeConfigs"))
RESETTING = (
    Right("Read", GROUP, "G"),
    Right("Read", GROUP, "tidegate.G"),
    Right("Read", TOPIC, "O"),
    Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate.G"),
)


def reset(stage: Stage, rights: tuple[Right, ...]) -> RunResult:
    """To offset 2, where the group stands at 0, by a user with these rights."""
    stage.produce(3)
    stage.commit()
    kafka, live = stage.user(*rights)
    target = FromFile((PartitionOffset(stage.topic, 0, 2),), "test")
    request = RunRequest("policy/forward", "forward", stage.group, live.connection, (), target)
    result = job.execute(MemoryRunStore(request), kafka, SystemClock())
    assert result is not None
    return result


@pytest.mark.parametrize("rights", [CLAIMING, CLAIMING + MAKING], ids=["topics-there", "topics-missing"])
def test_the_documented_rights_are_enough_for_a_reset(rights: tuple[Right, ...], stage: Stage) -> None:
    if rights == CLAIMING:
        stage.make_control_topics()

    result = reset(stage, (*RESETTING, *rights))

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert stage.committed() == {stage.partition: 2}


@pytest.mark.parametrize("missing", [*CLAIMING, *MAKING], ids=lambda right: str(right).replace(" ", "-"))
def test_a_reset_without_a_right_to_claim_changes_nothing_and_names_it(missing: Right, stage: Stage) -> None:
    rights = CLAIMING + MAKING
    if missing in CLAIMING:
        stage.make_control_topics()
        rights = CLAIMING
    left = (Right("Describe", TOPIC, missing.name),)

    result = reset(stage, (*RESETTING, *left, *(right for right in rights if right != missing)))

    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotAuthorized")
    assert f"allow the principal {missing.operation} on topic {stage.named(missing.name)}" in result.message
    assert result.message.endswith("Nothing was changed")
    assert stage.committed() == {stage.partition: 0}


def test_records_are_looked_at_without_a_right_on_any_group(stage: Stage) -> None:
    """Though the client library has to be given a group id, and looks for its coordinator."""
    stage.produce(3)
    kafka, _ = stage.user(Right("Read", TOPIC, "O"))

    for committed in (True, False):
        found = kafka.records(stage.partition, Range(1, 3), committed=committed, most_bytes=100)
        assert [record.value for record in found] == [b"1", b"2"]
    assert kafka.next_records({stage.partition: 2})[stage.partition].offset == 2


@pytest.mark.parametrize("may", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_a_skip_copies_only_with_the_right_to_write_the_dead_letter_topic(may: bool, stage: Stage) -> None:
    stage.make_control_topics()
    stage.produce(3)
    stage.commit()
    letters = f"{stage.topic}.DLT"
    stage._admin.create_topics([NewTopic(letters, 1, 1)])[letters].result(20)
    kafka, live = stage.user(*RESETTING, *CLAIMING, Right("Write" if may else "Describe", TOPIC, letters))
    target = FromFile((PartitionOffset(stage.topic, 0, 1),), "test")
    request = RunRequest("ns/skip", "skip", stage.group, live.connection, (), target, dead_letter=letters)

    result = job.execute(MemoryRunStore(request), kafka, SystemClock())

    assert result is not None
    if may:
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert stage.committed() == {stage.partition: 1}
        return
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotAuthorized"), result
    assert f"allow the principal Write on topic {letters} " in result.message
    assert result.message.endswith("Nothing was changed")
    assert stage.committed() == {stage.partition: 0}


def test_a_consumer_can_neither_open_nor_close_a_gate(stage: Stage) -> None:
    owner = stage.make_control_topics()
    owner.control.hold({stage.key: Hold("kept")})
    consumer, _ = stage.user(
        Right("Read", TOPIC, "T"), Right("Write", TOPIC, "T_acks"), Right("Read", GROUP, "G"), Right("Read", TOPIC, "O")
    )
    other = HoldKey("another", stage.topic, 0, "pause/connection/pause")

    for attempt in (
        lambda: consumer.control.release([stage.key]),
        lambda: consumer.control.hold({stage.key: Hold()}),
        lambda: consumer.control.hold({other: Hold()}),
        consumer.control.write_clock,
    ):
        with pytest.raises(NotAuthorized, match=f"allow the principal Write on topic {stage.control} "):
            attempt()

    held = owner.control.read().holds
    assert [(key, at.hold.reason) for key, at in held.items()] == [(stage.key, "kept")]


def test_who_may_only_read_the_audit_topic_can_record_nothing_and_is_told_so(stage: Stage) -> None:
    """So a consumer whose credentials leaked forges nothing. Nothing is written to find that out."""
    log = stage.topic
    writing, _ = stage.user(Right("Write", TOPIC, "O"), Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate.G"))
    reading, _ = stage.user(Right("Read", TOPIC, "O"), Right("Write", ResourceType.TRANSACTIONAL_ID, "tidegate.G"))
    record = {b"key": b"value"}

    writing.audit.check_writable(log)
    [untold] = writing.audit.ensure(AuditTopic(log))
    with writing.writer(stage.group, transaction_timeout_s=5).transaction() as transaction:
        transaction.append(log, record)
        transaction.commit()

    for attempt in (lambda: reading.audit.check_writable(log), lambda: reading.audit.ensure(AuditTopic(log))):
        with pytest.raises(NotAuthorized, match=f"allow the principal Write on topic {log} "):
            attempt()
    with (
        reading.writer(stage.group, transaction_timeout_s=5).transaction() as transaction,
        pytest.raises(NotAuthorized, match=f"Write on topic {log}"),
    ):
        transaction.append(log, record)
    assert f"allow the principal DescribeConfigs on topic {log}" in untold


# --- what tidegate acls prints ----------------------------------------------------------------------------------------


def printed(stage: Stage, role: str, *options: str) -> dict[str, AclBinding]:
    """By the command, what it grants, read as ``kafka-acls`` reads it."""
    allow = {"groups": [stage.group], "topics": [stage.topic]}
    spec = {"bootstrapServers": "kafka:9092", "controlTopic": {"name": stage.control}, "allow": allow}
    file = stage.folder / "connection.yaml"
    file.write_text(json.dumps({"kind": "KafkaConnection", "metadata": {"name": "prod"}, "spec": spec}))
    out, err = io.StringIO(), io.StringIO()
    arguments = ["prod", "-f", str(file), "--for", role, "--principal", "User:NAME", *options]
    assert run_acls(arguments, Screen(out, err)) == 0, err.getvalue()
    found = {}
    for line in out.getvalue().splitlines():
        if line.startswith("#"):
            continue
        words = shlex.split(line)
        assert words[:4] == ["kafka-acls", "--add", "--allow-principal", "User:NAME"]
        given = dict(zip(words[4::2], words[5::2], strict=False))
        option = next(name for name in OPTIONS.values() if f"--{name}" in words)
        pattern = given.get("--resource-pattern-type", "literal").upper()
        found[line] = AclBinding(
            next(kind for kind, name in OPTIONS.items() if name == option),
            "kafka-cluster" if option == "cluster" else given[f"--{option}"],
            ResourcePatternType[pattern],
            "User:NAME",
            "*",
            OPERATIONS[given["--operation"]],
            AclPermissionType.ALLOW,
        )
    return found


def test_with_what_is_printed_for_the_operator_all_its_work_is_done(stage: Stage) -> None:
    kafka, live = stage.granted(list(printed(stage, "operator").values()), "uid")

    for act in ACTS.values():
        act(stage, kafka)
    kafka.control.release([stage.key])
    stage.produce(3)
    stage.commit()
    target = FromFile((PartitionOffset(stage.topic, 0, 2),), "test")
    request = RunRequest("policy/forward", "forward", stage.group, live.connection, (), target)
    result = job.execute(MemoryRunStore(request), kafka, SystemClock())

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert stage.committed() == {stage.partition: 2}
    assert kafka.lacking(stage.checkable()) == ()


def test_with_what_is_printed_for_a_job_a_reset_is_done(stage: Stage) -> None:
    stage.make_control_topics()
    stage.produce(3)
    stage.commit()
    kafka, live = stage.granted(list(printed(stage, "job", "--minimal").values()))
    target = FromFile((PartitionOffset(stage.topic, 0, 2),), "test")
    request = RunRequest("policy/forward", "forward", stage.group, live.connection, (), target)

    result = job.execute(MemoryRunStore(request), kafka, SystemClock())

    assert result is not None
    assert (result.phase, stage.committed()) == (ResetPhase.SUCCEEDED, {stage.partition: 2}), result


def test_with_what_is_printed_for_a_consumer_it_reads_holds_and_writes_acks_and_no_more(stage: Stage) -> None:
    owner = stage.make_control_topics()
    epoch = owner.control.hold({stage.key: Hold("kept")})[stage.key]
    _, live = stage.granted(list(printed(stage, "consumer").values()))
    config = librdkafka_config(live.connection)

    consumer = Consumer({**config, "group.id": stage.group, "enable.auto.commit": False})
    consumer.assign([ClientTopicPartition(stage.control, 0, OFFSET_BEGINNING)])
    keys = set()
    deadline = time.monotonic() + 30
    while encode_key(stage.key) not in keys:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            keys.add(message.key())
    consumer.close()
    errors: dict[str, object] = {}
    producer = Producer({**config, "message.timeout.ms": 15_000})
    for topic in (stage.acks, stage.control):
        said = encode_value(Ack(epoch, 0, "m"))
        producer.produce(
            topic,
            said,
            encode_key(AckKey(stage.group, stage.topic, 0)),
            on_delivery=lambda error, _, topic=topic: errors.update({topic: error}),
        )
    assert producer.flush(30) == 0

    assert errors[stage.acks] is None
    assert errors[stage.control] is not None
    gates = owner.control.read([stage.group])
    assert acked(gates, stage.group, stage.partition) == Ack(epoch, 0, "m")


def test_each_printed_permission_that_is_taken_away_is_reported(stage: Stage) -> None:
    stage.make_control_topics()
    commands = printed(stage, "operator", "--minimal")
    assert len(commands) == len(stage.checkable()) == 11

    for command, right in zip(commands, stage.checkable(), strict=True):
        assert command.endswith(right.option)
        kafka, _ = stage.granted([acl for other, acl in commands.items() if other != command], "uid")
        assert kafka.lacking(stage.checkable()) == (right,)
        said = said_of([need for need in needs_of(Role.OPERATOR, stage.scope) if need.right == right], asked=11)
        assert (said.holds, said.reason) == (False, "Missing")
        assert right.option in said.message


def test_a_principal_without_any_permission_lacks_all_of_them(stage: Stage) -> None:
    stage.make_control_topics()
    kafka, _ = stage.granted([])

    assert kafka.lacking(stage.checkable()) == stage.checkable()


def test_that_a_topic_is_gone_only_those_hear_who_may_describe_it(stage: Stage) -> None:
    """What was said of it is taken back by that (``tidegate.discovery.gone``), and never because it is not listed."""
    deleted = f"{stage.topic}-deleted"
    blind, _ = stage.user(Right("Read", GROUP, "G"))
    seeing, _ = stage.user(Right("Describe", TOPIC, deleted))

    for topic in (stage.topic, deleted):
        with pytest.raises(NotAuthorized):
            blind.log_bounds([TopicPartition(topic, 0)])
    with pytest.raises(UnknownPartitions):
        seeing.log_bounds([TopicPartition(deleted, 0)])
