"""``tidegate audit`` on a real cluster, by a principal that may only look: what it finds, which right shows what, and
that it changes nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from contract.kafka_worlds import RealWorld, commit_plainly, until
from devstack import KafkaCluster
from tidegate.cli import cluster_audit
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.gather import Asked, Audit
from tidegate.inspection.report import Report
from tidegate.inspection.resetting import Possible
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.kafka.needed_rights import needs_of_audit
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.group_requests import delete_group
from tidegate.kafka_client.survey import KafkaSurvey
from tidegate.kafka_client.wire import Wire
from tidegate.resources.reset import Way

AT: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
PRINCIPAL: Final = "User:CN=tidegate"
SHOWN: Final = "shown."
STUCK, GONE, LOST, PAST = (f"{SHOWN}{name}" for name in ("stuck", "gone", "lost", "past"))
HIDDEN: Final = "hidden"
ASKED: Final = Asked()


class Meanwhile(SystemClock):
    """Instead of the pause between the looks something happens."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens

    def sleep(self, seconds: float) -> None:  # noqa: ARG002
        self._happens()


class Acls:
    """What the principal may do."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def allow(self, right: Right) -> None:
        for future in self._admin.create_acls([_binding(right)]).values():
            future.result(20)

    def forbid(self, right: Right) -> None:
        for future in self._admin.delete_acls([_filter(right)]).values():
            assert future.result(20), f"{right} had been allowed"

    @contextmanager
    def without(self, right: Right) -> Iterator[None]:
        self.forbid(right)
        yield
        self.allow(right)


_RESOURCES: Final = {
    Resource.GROUP: ResourceType.GROUP,
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.CLUSTER: ResourceType.BROKER,
}


def _parts(right: Right) -> tuple[Any, ...]:
    operation = {"Describe": AclOperation.DESCRIBE, "Read": AclOperation.READ}.get(
        right.operation, AclOperation.DESCRIBE_CONFIGS
    )
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    kind = _RESOURCES[right.resource]
    return kind, right.name or "kafka-cluster", pattern, PRINCIPAL, "*", operation, AclPermissionType.ALLOW


def _binding(right: Right) -> AclBinding:
    return AclBinding(*_parts(right))


def _filter(right: Right) -> AclBindingFilter:
    return AclBindingFilter(*_parts(right))


@dataclass(frozen=True)
class Scene:
    """A topic of two partitions to which a third was added, and groups of which each has one thing wrong."""

    connection: Connection
    world: RealWorld
    acls: Acls
    topic: str
    meanwhile: Callable[[], None]

    @property
    def rights(self) -> tuple[Right, ...]:
        """Those that are documented, for the groups that are to be shown."""
        return tuple(need.right for need in needs_of_audit((f"{SHOWN}*",), (self.topic,)))

    def audit(self, asked: Asked = ASKED) -> Report:
        with closing(KafkaClient(self.connection)) as kafka, closing(KafkaSurvey(self.connection)) as survey:
            return Audit(kafka, survey, Meanwhile(self.meanwhile), asked).report()

    def once(self, reached: Callable[[Report], bool], what: str) -> Report:
        """The first report of which that holds: brokers hear of changed ACLs a moment later."""
        report = self.audit()

        def looked() -> bool:
            nonlocal report
            report = self.audit()
            return reached(report)

        until(self.world, looked, what)
        return report


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with KafkaCluster.start(1, security="sasl_ssl", authorizer=True) as cluster:
        security = cluster.security
        authentication = Authentication(
            AuthenticationType.TLS, certificate_file=security.client.certificate, key_file=security.client.key
        )
        connection = Connection(security.ssl_bootstrap, tls=True, ca_file=security.ca, authentication=authentication)
        world = RealWorld(cluster.bootstrap)
        made = _set(connection, world, Acls(cluster.bootstrap))
        for right in made.rights:
            made.acls.allow(right)
        made.once(lambda report: not needed(report), "the principal may see everything that is documented")
        yield made
        world.close()


def _set(connection: Connection, world: RealWorld, acls: Acls) -> Scene:
    topic = world.create_topic(2)
    first, second, added = (TopicPartition(topic, number) for number in range(3))
    for partition in (first, second):
        world.append(partition, [AT] * 10)
    for group_id, offset in ((GONE, 5), (LOST, 1), (PAST, 1000), (HIDDEN, 5)):
        commit_plainly(world, group_id, {first: offset})
    world.delete_records(first, 3)
    consumer = world.consumer(STUCK, [topic])
    consumer.commit({first: 4, second: 4})
    world.add_partitions(topic, 3)
    until(world, lambda: world.kafka.topics([topic])[topic].partitions == 3, "the partition is there")
    world.append(added, [AT] * 7)

    def meanwhile() -> None:
        for partition in (first, second):
            world.append(partition, [AT] * 2)
        consumer.commit({second: world.kafka.committed(STUCK)[second] + 1})

    return Scene(connection, world, acls, topic, meanwhile)


def found(report: Report, kind: FindingKind, group: str) -> Finding:
    [finding] = [f for f in report.findings if f.kind is kind and f.group == group]
    return finding


def needed(report: Report) -> set[str]:
    return {left.right for left in report.unseen if left.right}


def test_what_is_wrong_with_each_group_is_found(scene: Scene) -> None:
    report = scene.audit()

    stuck = found(report, FindingKind.NO_PROGRESS, STUCK)
    assert stuck.severity is Severity.CRITICAL, "the same member has committed elsewhere"
    [partition] = stuck.partitions
    assert (partition.topic, partition.partition, partition.committed, partition.grown) == (scene.topic, 0, 4, 2)
    assert partition.owner is not None
    assert "rdkafka at 127.0.0.1" in partition.owner
    assert [p.partition for p in found(report, FindingKind.WITHOUT_COMMIT, STUCK).partitions] == [2]
    assert found(report, FindingKind.LOST_TO_RETENTION, LOST).what.startswith("1 partition: 2 offsets")
    assert found(report, FindingKind.PAST_LOG_END, PAST).partitions[0].committed == 1000
    assert found(report, FindingKind.NOT_CONSUMED, GONE).partitions[0].grown == 2
    assert {f.group for f in report.findings if f.group} == {STUCK, GONE, LOST, PAST}
    assert {v.group: v.way for v in report.verdicts} == dict.fromkeys((GONE, LOST, PAST), Way.UNOWNED) | {
        STUCK: Way.BARRIER
    }
    assert {v.possible for v in report.verdicts} == {Possible.YES}


def test_when_offsets_expire_is_exact_with_the_coordinators_log(scene: Scene) -> None:
    before = scene.world.clock.now()
    finding = found(scene.audit(), FindingKind.OFFSETS_EXPIRE, GONE)

    assert finding.known.startswith("Exact")
    [partition] = finding.partitions
    assert partition.expires_ms is not None
    ends = datetime.fromtimestamp(partition.expires_ms / 1000, UTC)
    assert before + timedelta(days=6, hours=23) < ends < before + timedelta(days=7)
    assert found(scene.audit(replace(ASKED, exact=0)), FindingKind.OFFSETS_EXPIRE, GONE).known.startswith("Estimated")


@pytest.mark.parametrize("number", range(4), ids=["group", "topic", "settings", "log"])
def test_what_a_missing_right_hides_is_said_and_nothing_else_is_lost(number: int, scene: Scene) -> None:
    right = scene.rights[number]
    names = {0: "Describe on group *", 1: "Describe on the topics", 2: str(right), 3: str(right)}
    with scene.acls.without(right):
        report = scene.once(lambda report: names[number] in needed(report), f"without {right}")
        kinds = {f.kind for f in report.findings}
        lost = {
            0: set(FindingKind),
            1: set(FindingKind),
            2: {FindingKind.SHORT_RETENTION},
            3: set(),
        }[number]
        assert kinds.isdisjoint(lost)
        if number >= 2:
            assert found(report, FindingKind.NO_PROGRESS, STUCK)
            assert not found(report, FindingKind.OFFSETS_EXPIRE, GONE).known.startswith("Exact")
    scene.once(lambda report: not needed(report), "the right is there again")


def test_groups_that_are_listed_and_may_not_be_described_are_named(scene: Scene) -> None:
    everything = Right("Describe", Resource.CLUSTER)
    scene.acls.allow(everything)
    report = scene.once(lambda report: bool(needed(report)), "all groups are listed")
    scene.acls.forbid(everything)

    [left] = [left for left in report.unseen if left.right]
    assert left.what == f"1 of 5 groups, such as {HIDDEN}"
    assert f"Describe on group {HIDDEN}" in left.why
    assert found(report, FindingKind.NO_PROGRESS, STUCK), "the others of its batch are seen"
    scene.once(lambda report: not needed(report), "the right is gone again")


def test_a_kip_848_group_of_a_topic_that_may_not_be_described_is_named_with_what_it_takes(scene: Scene) -> None:
    """Its coordinator describes all of it, or nothing."""
    hidden, modern = scene.world.create_topic(1), f"{SHOWN}modern"
    consumer = scene.world.consumer(modern, [scene.topic, hidden], protocol=GroupType.CONSUMER)
    report = scene.audit()
    consumer.close()

    [left] = [left for left in report.unseen if left.right]
    assert left.what == f"1 of 5 groups, such as {modern}"
    assert left.right == "Describe on all topics of the groups"
    assert found(report, FindingKind.NO_PROGRESS, STUCK), "the others of its batch are seen"
    # The other tests know how many groups there are.
    with closing(Wire(Connection(scene.world._bootstrap))) as wire:
        delete_group(wire, modern)


def test_it_changes_nothing_and_creates_nothing(scene: Scene) -> None:
    def everything() -> tuple[object, ...]:
        groups = sorted(scene.world.kafka.group_ids())
        topics = AdminClient({"bootstrap.servers": scene.world._bootstrap}).list_topics(timeout=20).topics
        return groups, scene.world.kafka.committed_of(groups), {name: len(t.partitions) for name, t in topics.items()}

    before = everything()
    with closing(KafkaClient(scene.connection)) as kafka, closing(KafkaSurvey(scene.connection)) as survey:
        Audit(kafka, survey, SystemClock(), replace(ASKED, watch=timedelta(0))).report()

    assert everything() == before


def test_the_command_prints_a_table_json_and_a_page(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is called, but for the pause between the looks."""
    security = scene.connection
    auth = security.authentication
    assert auth.certificate_file is not None
    assert auth.key_file is not None
    config = tmp_path / "client.properties"
    key_store = tmp_path / "store.pem"
    key_store.write_text(auth.key_file.read_text() + auth.certificate_file.read_text())
    config.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={security.ca_file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={key_store}\n"
    )
    monkeypatch.setattr(cluster_audit, "SystemClock", lambda: Meanwhile(scene.meanwhile))
    html = tmp_path / "audit.html"

    def run(*more: str) -> tuple[int, str]:
        screen = Screen(io.StringIO(), io.StringIO())
        given = ["--bootstrap-server", security.bootstrap_servers, "--command-config", str(config), *more]
        code = cluster_audit.run_cluster_audit(given, screen)
        assert isinstance(screen.out, io.StringIO)
        return code, screen.out.getvalue()

    code, text = run("--html", str(html), "--fail-on", "critical")
    assert code == cluster_audit.FOUND
    assert "CRITICAL  Assigned partitions without progress (1)" in text
    assert STUCK in html.read_text()
    code, text = run("--group", "shown.g*", "--output", "json", "--fail-on", "critical")
    assert code == 0, "of this group nothing is critical"
    told = json.loads(text)
    assert [one["group"] for one in told["resets"]] == [GONE]
    assert told["notSeen"] == []
