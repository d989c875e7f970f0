"""``tidegate groups`` against a real broker: what Kafka's tool cannot do."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devstack import KafkaCluster
from support.obedient_consumer import ObedientConsumer
from support.operator_process import until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique, topics_of
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.writer import transactional_id
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.marker import marker_group
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4


class Cli(Shell):
    """Runs commands against one cluster, with runs and control topic of their own."""

    def __init__(self, bootstrap: str, state: Path, control_topic: str) -> None:
        of = ("--bootstrap-server", bootstrap, "--control-topic", control_topic)
        super().__init__({"XDG_STATE_HOME": str(state)}, "groups", *of)
        self.bootstrap = bootstrap
        self.runs = state / "tidegate" / "runs"


@pytest.fixture
def control_topic(unique: Unique) -> str:
    return f"__{unique('control')}"


@pytest.fixture
def cli(kafka: KafkaCluster, tmp_path: Path, control_topic: str) -> Cli:
    return Cli(kafka.bootstrap, tmp_path / "state", control_topic)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def topic(kafka: KafkaCluster, make_topic: MakeTopic) -> str:
    """With ten records in each partition."""
    name = make_topic(PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(10 * PARTITIONS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return name


@contextmanager
def unmanaged(bootstrap: str, group: str, topic: str, committed: Mapping[int, int]) -> Iterator[None]:
    """A member that polls, runs no agent, and has committed these offsets and commits nothing more."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "old-app",
        "enable.auto.commit": False,
    }
    stop = threading.Event()
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "an assignment")
        if committed:
            offsets = [ClientTopicPartition(topic, number, offset) for number, offset in committed.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        polls = threading.Thread(target=lambda: [consumer.poll(0.1) for _ in iter(stop.is_set, True)])
        polls.start()
        try:
            yield
        finally:
            stop.set()
            polls.join()


@pytest.fixture
def committed(kafka: KafkaCluster, group: str) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        yield client


def test_a_partition_that_was_reset_while_it_was_paused_goes_on_from_the_target(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str, control_topic: str, committed: KafkaClient
) -> None:
    first, *others = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    with closing(ObedientConsumer(kafka.bootstrap, group, topic, control_topic)) as consumer:
        consumer.wait_for(PARTITIONS)
        until(lambda: all(consumer.count(p) == 10 for p in (first, *others)), "the first records")

        paused = cli("--group", group, "--topic", f"{topic}:0", "--pause", "--reason", "poison record")
        assert [group, topic, "0", "Paused"] in [line.split() for line in paused.splitlines()]
        assert "poison record" in cli("--group", group, "--paused-partitions")

        reset = cli("--group", group, "--topic", f"{topic}:0", "--reset-offsets", "--to-offset", "4", "--execute")
        assert [group, topic, "0", "4"] in [line.split() for line in reset.splitlines()]
        assert "strategy: Gated" in reset
        assert committed.committed(group)[first] == 4
        assert consumer.count(first) == 10
        listed = next(line for line in cli("--group", group, "--paused-partitions").splitlines() if topic in line)
        assert listed.split()[:7] == [group, topic, "0", "Paused", "4", "10", "6"]

        resumed = cli("--group", group, "--topic", topic, "--resume")
        assert "Resumed" in resumed
        until(lambda: consumer.count(first) == 16, "the records from the target on")
        assert consumer.delivered[first] == [*range(10), *range(4, 10)]
        assert all(consumer.count(p) == 10 for p in others)


def test_a_partition_whose_owner_runs_no_agent_ends_the_command_with_1(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str
) -> None:
    with unmanaged(kafka.bootstrap, group, topic, {}):
        said = cli("--group", group, "--topic", f"{topic}:1", "--pause", code=1)

        assert f"Error: the owner of {topic}-1 runs no agent" in said
        assert "client old-app" in said
        assert "No partition of consumer group" in cli("--group", group, "--paused-partitions")


def test_a_reset_that_was_killed_is_put_back_by_the_next_command(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str, committed: KafkaClient
) -> None:
    """The first is killed while it watches whether the targets hold, so they are committed already."""
    with unmanaged(kafka.bootstrap, group, topic, dict.fromkeys(range(PARTITIONS), 9)):
        with cli.start(*_to_offset(group, f"{topic}:0", 2)) as process:
            until(lambda: committed.committed(group)[TopicPartition(topic, 0)] == 2, "the target")
            process.send_signal(signal.SIGKILL)
        [document] = cli.runs.glob("*.json")
        assert json.loads(document.read_text())["result"] is None

        said = cli(*_to_offset(group, f"{topic}:1", 3))

        assert "An earlier reset did not finish" in said
        expected = {0: 9, 1: 3, 2: 9, 3: 9}
        assert committed.committed(group) == {TopicPartition(topic, n): o for n, o in expected.items()}


def test_a_reset_that_is_ended_politely_puts_its_offsets_back(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str, committed: KafkaClient
) -> None:
    first = TopicPartition(topic, 0)
    with unmanaged(kafka.bootstrap, group, topic, {0: 9}):
        with cli.start(*_to_offset(group, f"{topic}:0", 2)) as process:
            until(lambda: committed.committed(group)[first] == 2, "the target")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=90)

        assert process.returncode == 130, out + err
        assert "It was interrupted" in out
        assert committed.committed(group)[first] == 9


def test_what_a_reset_that_was_killed_holds_is_released_though_its_folder_is_lost(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str, control_topic: str
) -> None:
    first = TopicPartition(topic, 0)
    with (
        closing(ObedientConsumer(kafka.bootstrap, group, topic, control_topic)) as consumer,
        closing(KafkaClient(Connection(kafka.bootstrap, control_topic=control_topic))) as client,
    ):
        consumer.wait_for(PARTITIONS)
        until(lambda: consumer.count(first) == 10, "the first records")
        consumer.obeys.clear()  # or the hold may be gone again before anybody has seen it
        with cli.start(*_to_offset(group, f"{topic}:0", 4)) as process:
            [held] = until(lambda: client.control.read().holds, "it holds the partition")
            process.send_signal(signal.SIGKILL)
        consumer.obeys.set()
        shutil.rmtree(cli.runs)
        assert held.holder.startswith("reset/cli/cli-")

        listed = cli("--group", group, "--release-all")
        assert held.holder in listed
        assert str(cli.runs) in listed, "where the run was kept"
        assert set(client.control.read().holds) == {held}
        cli("--group", group, "--release-all", "--execute")

        assert not client.control.read().holds
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(topic, "new", partition=0)
        assert producer.flush(20) == 0
        until(lambda: 10 in consumer.delivered[first], "it goes on", timeout_s=120)


def test_a_command_and_an_operators_run_of_one_group_go_one_after_the_other(
    cli: Cli, kafka: KafkaCluster, topic: str, group: str, control_topic: str, committed: KafkaClient, tmp_path: Path
) -> None:
    """Both begin at the same moment, and want the same partitions elsewhere: one of them back, the other one ahead, so
    that neither passes the other's target.
    """
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    connection = Connection(kafka.bootstrap, control_topic=control_topic)
    request = RunRequest(
        run_uid="5f-policy/replay",
        run_id="replay",
        group_id=group,
        connection=connection,
        selections=(),
        target=FromFile(tuple(PartitionOffset(topic, p.partition, 2) for p in partitions), "test"),
        asked_by="OffsetResetPolicy shop/payments",
    )
    store = DirectoryRunStore(tmp_path, "operators")
    store.create(request)

    def operators_run() -> RunResult | None:
        with closing(KafkaClient(connection)) as client:
            return job.execute(store, client, SystemClock())

    with (
        unmanaged(kafka.bootstrap, group, topic, dict.fromkeys(range(PARTITIONS), 5)),
        ThreadPoolExecutor(1) as pool,
        cli.start(*_to_offset(group, topic, 8)) as process,
    ):
        # A command takes a while to start: its run has begun when it has a document.
        [document] = until(lambda: list(cli.runs.glob("*.json")), "the command's run")
        operators = pool.submit(operators_run)
        stores = {8: DirectoryRunStore(cli.runs, document.stem), 2: store}
        until(
            lambda: any(
                "is taken by another run" in line.waits_for for s in stores.values() for line in s.load().journal
            ),
            "one says that it waits behind the other",
        )
        out, err = process.communicate(timeout=120)
        result = operators.result(120)
        assert result is not None
        last = committed.committed(group)

    runs = {offset: s.load() for offset, s in stores.items()}
    assert process.returncode == 0, out + err
    assert [run.result.phase for run in runs.values() if run.result is not None] == [ResetPhase.SUCCEEDED] * 2
    began = {offset: next(line.at for line in run.journal if line.round) for offset, run in runs.items()}
    ended = {offset: run.result.finished_at for offset, run in runs.items() if run.result is not None}
    first, second = sorted(began, key=began.__getitem__)
    assert ended[first] <= began[second]
    assert last == dict.fromkeys(partitions, second)


def _to_offset(group: str, topic: str, offset: int) -> tuple[str, ...]:
    return ("--group", group, "--topic", topic, "--reset-offsets", "--to-offset", str(offset), "--execute")


def _allow(cluster: KafkaCluster, user: str, group: str, topic: str, control_topic: str) -> None:
    """What docs/reference/permissions.md says that a reset needs."""
    rights = (
        (ResourceType.GROUP, group, AclOperation.READ),
        (ResourceType.GROUP, marker_group(group), AclOperation.READ),
        (ResourceType.TOPIC, topic, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, transactional_id(group), AclOperation.WRITE),
        (ResourceType.TOPIC, control_topic, AclOperation.WRITE),
        *(
            (ResourceType.TOPIC, name, operation)
            for name in (control_topic, acks_topic(control_topic))
            for operation in (AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ)
        ),
    )
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rights
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_acls(bindings).values():
        made.result(20)


def test_a_java_clients_properties_reach_a_secured_cluster(
    kafka_secure: KafkaCluster, tmp_path: Path, unique: Unique
) -> None:
    security = kafka_secure.security
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{security.username}" password="{security.password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={security.ca}\n"
    )
    group = unique("group")
    settings = {"bootstrap.servers": kafka_secure.bootstrap, "group.id": group}
    topic = next(topics_of(kafka_secure, unique))()
    control_topic = f"__{unique('control')}"
    _allow(kafka_secure, security.username, group, topic, control_topic)
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[ClientTopicPartition(topic, 0, 7)], asynchronous=False)
    cli = Cli(security.sasl_ssl_bootstrap, tmp_path / "state", control_topic)
    login = ("--command-config", str(properties))

    assert group in cli(*login, "--list")
    done = cli(*login, "--group", group, "--all-topics", "--reset-offsets", "--to-earliest", "--execute")

    assert [group, topic, "0", "0"] in [line.split() for line in done.splitlines()]
    assert security.password not in done
    assert all(security.password not in file.read_text() for file in cli.runs.iterdir())

    properties.write_text(properties.read_text().replace(security.password, "not-the-password"))
    refused = cli(*login, "--group", group, "--all-topics", "--reset-offsets", "--to-earliest", "--execute", code=1)
    assert "Error: " in refused
    assert "not-the-password" not in refused
