"""Clusters that ask who comes: the Java agent's own clients come as the application does, and tell no password."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from devstack import KafkaCluster
from devstack.kafka_security import KafkaSecurity
from devstack.processes import eventually
from support.acls import allow
from support.gated_applications import Scene
from support.java_applications import Java, JavaProcess, agent_environment
from support.java_scenes import start_in
from support.stack_fixtures import Unique, topics_of

pytestmark = pytest.mark.nightly

READ, WRITE = AclOperation.READ, AclOperation.WRITE
OLDEST, NEWEST = Java("2.8.2"), Java("4.3.1", "consumer")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def by_password(security: KafkaSecurity) -> dict[str, str]:
    return {
        "bootstrap.servers": security.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{_SCRAM} required username="{security.username}" password="{security.password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.ca),
    }


def by_certificate(security: KafkaSecurity) -> dict[str, str]:
    return {
        "bootstrap.servers": security.ssl_bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": security.client.certificate.read_text(),
        "ssl.keystore.key": security.client.key.read_text(),
    }


@pytest.fixture
def scene(kafka_secure: KafkaCluster, unique: Unique) -> Iterator[Scene]:
    """Two partitions that are written to; the application may read them, and its group."""
    topic = next(topics_of(kafka_secure, unique))(2)
    with closing(Scene(kafka_secure.bootstrap, topic, unique("secured"))) as made:
        admin = AdminClient({"bootstrap.servers": kafka_secure.bootstrap})
        allow(admin, (ResourceType.TOPIC, topic, READ), (ResourceType.GROUP, made.group, READ))
        yield made


def let_agent_in(scene: Scene) -> None:
    """To what it needs, and no more."""
    rights = [
        (ResourceType.TOPIC, scene.settings.control_topic, READ),
        (ResourceType.TOPIC, scene.settings.acks_topic, WRITE),
    ]
    allow(AdminClient({"bootstrap.servers": scene.bootstrap}), *rights)


@pytest.mark.parametrize(("java", "way"), [(NEWEST, by_password), (OLDEST, by_certificate)])
def test_the_agents_clients_come_as_the_application_does_and_tell_no_password(
    scene: Scene,
    kafka_secure: KafkaCluster,
    java: Java,
    way: Callable[[KafkaSecurity], dict[str, str]],
) -> None:
    let_agent_in(scene)
    config = way(kafka_secure.security)
    environment = {**agent_environment(scene.settings.control_topic), "TIDEGATE_LOG": "DEBUG"}
    with JavaProcess(java, environment) as jvm:
        application = start_in(scene, jvm, config=config)
        scene.flowing()
        ack = scene.close_gate()
        acked_at = time.monotonic()
        scene.flowing(1)
        scene.is_still(ack, acked_at)
        scene.reset(3)
        released_at = time.monotonic()
        scene.release()
        scene.flowing(0)
        application.stop()
        log = jvm.log
    assert scene.offsets(0, released_at)[0] == 3
    secrets = [kafka_secure.security.password, *kafka_secure.security.client.key.read_text().splitlines()[1:-1]]
    assert not [secret for secret in secrets if secret in log]
    assert "paused" in log, "it tells what it does"


def test_a_control_topic_that_cannot_be_read_is_waited_for(scene: Scene, kafka_secure: KafkaCluster) -> None:
    config = by_password(kafka_secure.security)
    control_topic = scene.settings.control_topic
    with JavaProcess(OLDEST, agent_environment(control_topic)) as jvm:
        application = start_in(scene, jvm, config=config)
        scene.until(lambda: control_topic in jvm.log, "it says so")
        assert not eventually(lambda: bool(scene.given()), 2.0), "nothing is delivered before its gate was read"
        lines = [line for line in jvm.log.splitlines() if control_topic in line]
        let_agent_in(scene)
        scene.flowing()
        assert scene.close_gate().member
        scene.release()
        application.stop()
    assert len(lines) == 1, "\n".join(lines)


def test_where_it_is_to_be_open_an_unreadable_control_topic_holds_nothing_up_for_long(
    scene: Scene, kafka_secure: KafkaCluster
) -> None:
    config = by_password(kafka_secure.security)
    on_unreachable = {"TIDEGATE_ON_UNREACHABLE": "open", "TIDEGATE_UNREACHABLE_AFTER_S": "1.5"}
    environment = {**agent_environment(scene.settings.control_topic), **on_unreachable}
    with JavaProcess(OLDEST, environment) as jvm:
        began_at = time.monotonic()
        application = start_in(scene, jvm, config=config)
        scene.flowing()
        assert scene.given()[0].at - began_at >= 1.5
        let_agent_in(scene)
        assert scene.close_gate().member, "once it can be read, it is obeyed"
        scene.release()
        application.stop()
