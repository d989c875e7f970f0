"""The permissions that docs/reference/permissions.md says an OffsetMirror needs, over TLS and SCRAM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from apiserver.offsets import commit
from devstack import KafkaCluster
from support.mirror.random_topic import RandomTopic, consumed
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique, topics_of
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.mirror.copier import Copier
from tidegate.mirror.model import Interrupted, ProducerIds
from tidegate.mirror.states import Mirror
from tidegate.offset_mirror.carrier import Carrier
from tidegate.offset_mirror.course import WHEN_GROWN, Limits, PartitionCopying
from tidegate.offset_mirror.pace import Pace
from tidegate.offset_mirror.preparing import prepare, wanted_topics
from tidegate.resources.connection import AllowSpec
from tidegate.resources.offset_mirror import CopyState, MirroredTopics, MirroredTopicStatus

PASSWORD = "mirror-password-4711"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
Right = tuple[ResourceType, str, AclOperation]
"""``T``: the topic, ``G``: the group, ``tidegate.``: all that begin with it."""

OF_SOURCE: tuple[Right, ...] = (
    (TOPIC, "T", AclOperation.DESCRIBE),
    (TOPIC, "T", AclOperation.DESCRIBE_CONFIGS),
    (TOPIC, "T", AclOperation.READ),
    (GROUP, "G", AclOperation.DESCRIBE),
)
OF_TARGET: tuple[Right, ...] = (
    *((TOPIC, "T", operation) for operation in (AclOperation.CREATE, AclOperation.DESCRIBE)),
    *((TOPIC, "T", operation) for operation in (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
    *((TOPIC, "T", operation) for operation in (AclOperation.ALTER, AclOperation.READ)),
    *((TOPIC, "T", operation) for operation in (AclOperation.WRITE, AclOperation.DELETE)),
    (CLUSTER, "kafka-cluster", AclOperation.ALTER),
    (GROUP, "G", AclOperation.DESCRIBE),
    (GROUP, "G", AclOperation.READ),
    (GROUP, "tidegate.", AclOperation.READ),
)


class Ids:
    """Of one mirror that nobody else runs."""

    def __init__(self, cluster: KafkaMirrorCluster) -> None:
        self._cluster = cluster
        self._ids: tuple[int, ...] = ()

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        if not self._ids or after == self._ids[-1]:
            self._ids += (self._cluster.new_producer_id(),)
        return ProducerIds(self._ids)


class Stage:
    """A topic with gaps and a start above 0, and a group, in one of two clusters of which one lets only users in."""

    def __init__(self, secure: KafkaCluster, open_one: KafkaCluster, unique: Unique, folder: Path) -> None:
        self.secure, self.open_one, self.unique = secure, open_one, unique
        self.topic, self.group = unique("topic"), unique("group")
        self._password = folder / "password"
        self._password.write_text(PASSWORD)
        self.closing = ExitStack()

    def user(self, *rights: Right) -> KafkaMirrorCluster:
        name, admin = self.unique("user"), AdminClient({"bootstrap.servers": self.secure.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, PASSWORD.encode())])
        names = {"T": self.topic, "G": self.group}
        literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
        bindings = [
            AclBinding(
                *(kind, names.get(on, on), prefixed if on == "tidegate." else literal, f"User:{name}", "*"),
                *(operation, AclPermissionType.ALLOW),
            )
            for kind, on, operation in rights
        ]
        for future in (*made.values(), *admin.create_acls(bindings).values()):
            future.result(20)
        security = self.secure.security
        login = Authentication(AuthenticationType.SCRAM_SHA_512, username=name, password_file=self._password)
        return self.opened(Connection(security.sasl_ssl_bootstrap, True, security.ca, login))

    def opened(self, connection: Connection) -> KafkaMirrorCluster:
        cluster = KafkaMirrorCluster(connection)
        self.closing.callback(cluster.close)
        return cluster

    def fill(self, cluster: KafkaCluster, make_topic: MakeTopic) -> None:
        make_topic(name=self.topic, config={"retention.ms": "-1"})
        log = RandomTopic(cluster.bootstrap, self.topic, seed=2)
        log.write(100)
        log.delete_before(20)
        commit(cluster.bootstrap, self.group, self.topic, {0: 50})

    def mirrored(self, source: KafkaMirrorCluster, target: KafkaMirrorCluster) -> None:
        """All that a mirror does once. Raises ``NotAuthorized``, and ``AssertionError`` where it does not get on."""
        clock, spec = SystemClock(), MirroredTopics(include=(self.topic,))

        def prepared() -> bool:
            names = wanted_topics(source, spec, [AllowSpec()])
            assert names, f"allow the principal Describe on topic {self.topic}, which is not seen without it"
            found = prepare(source, target, names, {}, lambda: True)
            for halted in found.halted.values():
                raise NotAuthorized(halted.message)
            return bool(found.copied)

        until(prepared, "the topic is prepared", timeout_s=20)
        partition = TopicPartition(self.topic, 0)
        copier = Copier(
            Mirror(),
            source.source(partition, source.topics()[self.topic].topic_id),
            target.target(partition),
            Ids(target),
        )
        limits = Limits(Pace(None, clock.monotonic), 1000, lambda: True, lambda *_: None, clock.monotonic)
        copying = PartitionCopying(partition, copier, limits)

        def is_copied() -> bool:
            done = copying.go_on() == WHEN_GROWN
            seen = copying.seen()
            if "allow the principal" in (why := seen.trouble or seen.stopped):
                raise NotAuthorized(why)
            assert not seen.stopped, seen
            return done

        until(is_copied, "it is copied", timeout_s=20)
        carrier = Carrier(source, target, lambda group: group == self.group, lambda: True, clock.monotonic, clock.now)
        told = carrier.carry({partition: copying.offset or 0}, {self.topic: source.topics()[self.topic].topic_id})
        assert told.total, f"allow the principal Describe on group {self.group}, which is not seen without it"
        if told.failure:
            raise NotAuthorized(told.failure)
        assert told.carried == 1


@pytest.fixture
def stage(kafka_secure: KafkaCluster, kafka: KafkaCluster, unique: Unique, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka_secure, kafka, unique, tmp_path)
    with made.closing:
        yield made


@pytest.fixture
def from_open(stage: Stage, make_topic: MakeTopic) -> KafkaMirrorCluster:
    """The cluster that lets everybody in, as the source."""
    stage.fill(stage.open_one, make_topic)
    return stage.opened(Connection(stage.open_one.bootstrap))


def test_the_documented_rights_are_enough_for_a_target(stage: Stage, from_open: KafkaMirrorCluster) -> None:
    target = stage.user(*OF_TARGET)
    stage.mirrored(from_open, target)
    assert consumed(stage.secure.bootstrap, stage.topic) == consumed(stage.open_one.bootstrap, stage.topic)

    from_open.add_partitions(stage.topic, 2)
    from_open.configure(stage.topic, {"max.message.bytes": "2000000"})
    until(lambda: from_open.topics()[stage.topic].partitions == 2, "there is another partition")
    spec = MirroredTopics(include=(stage.topic,))

    topic = stage.topic
    ids = {"source_id": from_open.topics()[topic].topic_id, "target_id": target.topics()[topic].topic_id}
    known = MirroredTopicStatus(name=topic, partitions=1, seeded=True, state=CopyState.IN_SYNC, **ids)

    def followed() -> bool:
        found = prepare(from_open, target, wanted_topics(from_open, spec, [AllowSpec()]), {topic: known}, lambda: True)
        assert not found.halted
        return [topic.target.partitions for topic in found.copied] == [2]

    until(followed, "the copy has what was added")
    assert target.settings([stage.topic])[stage.topic]["max.message.bytes"] == "2000000"


def test_the_documented_rights_tell_who_else_may_write(stage: Stage) -> None:
    make_topic = next(topics_of(stage.secure, stage.unique))
    for name in (stage.topic, f"{stage.topic}-other"):
        make_topic(name=name)
    target = stage.user(*OF_TARGET)
    [own] = (target.writers([stage.topic]) or {})[stage.topic]

    stage.user((TOPIC, "T", AclOperation.READ))
    stage.user((TOPIC, f"{stage.topic}-other", AclOperation.WRITE))
    assert target.writers([stage.topic]) == {stage.topic: {own}}
    stage.user((TOPIC, "T", AclOperation.WRITE))
    stage.user((TOPIC, "T", AclOperation.ALL))
    [(_, found)] = (target.writers([stage.topic]) or {}).items()
    assert len(found) == 3
    assert own in found

    with pytest.raises(NotAuthorized, match="Describe on cluster"):
        stage.user((TOPIC, "T", AclOperation.ALL)).writers([stage.topic])


def test_the_documented_rights_are_enough_for_a_source(stage: Stage) -> None:
    stage.fill(stage.secure, next(topics_of(stage.secure, stage.unique)))
    stage.mirrored(stage.user(*OF_SOURCE), stage.opened(Connection(stage.open_one.bootstrap)))

    assert consumed(stage.secure.bootstrap, stage.topic) == consumed(stage.open_one.bootstrap, stage.topic)


def test_a_topic_that_may_not_be_seen_is_not_taken_for_one_that_is_not_there(stage: Stage) -> None:
    stage.fill(stage.secure, next(topics_of(stage.secure, stage.unique)))
    target = stage.user((GROUP, "G", AclOperation.READ))

    assert stage.topic not in target.topics()
    with pytest.raises(NotAuthorized, match=f"allow the principal.* Describe on topic {stage.topic}"):
        target.topic(stage.topic)


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ((TOPIC, "T", AclOperation.CREATE), "Create on topic"),
        ((TOPIC, "T", AclOperation.READ), "Read on topic"),
        ((TOPIC, "T", AclOperation.WRITE), "IdempotentWrite on cluster"),
        ((TOPIC, "T", AclOperation.DELETE), "Delete on topic"),
        ((CLUSTER, "kafka-cluster", AclOperation.ALTER), "Alter on cluster"),
        ((GROUP, "G", AclOperation.READ), "Read on group"),
        ((GROUP, "tidegate.", AclOperation.READ), "on group"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_right_that_a_target_lacks_is_named(
    missing: Right, names: str, stage: Stage, from_open: KafkaMirrorCluster
) -> None:
    target = stage.user(*(right for right in OF_TARGET if right != missing))

    with pytest.raises(NotAuthorized, match=f"allow the principal.* {names}"):
        stage.mirrored(from_open, target)


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ((TOPIC, "T", AclOperation.READ), "Read on topic"),
        ((TOPIC, "T", AclOperation.DESCRIBE_CONFIGS), "DescribeConfigs on topic"),
        ((GROUP, "G", AclOperation.DESCRIBE), "Describe on group"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_right_that_a_source_lacks_is_named(missing: Right, names: str, stage: Stage) -> None:
    stage.fill(stage.secure, next(topics_of(stage.secure, stage.unique)))
    source = stage.user(*(right for right in OF_SOURCE if right != missing))

    with pytest.raises((NotAuthorized, AssertionError), match=f"allow the principal.* ?{names}"):
        stage.mirrored(source, stage.opened(Connection(stage.open_one.bootstrap)))
