"""The Java agent's own clients on real brokers: its acks, and clusters that ask who comes.

How its link reads the control topic is in ``agent/kafka/test_control_link.py``, which is about both agents.
"""

from __future__ import annotations

import secrets
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devstack import KafkaCluster
from devstack.kafka_security import KafkaSecurity
from devstack.processes import eventually
from support.control_links import JavaLink, JavaLinks
from support.needs import starts
from support.stack_fixtures import Unique
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent.gates import Partition
from tidegate_agent.records import Ack, AckKey, decode

WITHIN_S = 60.0
ORDERS = Partition("orders", 0)
KEY = HoldKey("payments", "orders", 0, "pause/c/p")
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CLIENTS = ["2.8.2", pytest.param("3.9.2", marks=pytest.mark.nightly), "4.3.1"]
Settings = Mapping[str, str]


@pytest.fixture(scope="module", params=CLIENTS)
@starts("kafka")
def links(request: pytest.FixtureRequest) -> Iterator[JavaLinks]:
    with JavaLinks(request.param) as started:
        yield started


def until(reached: Callable[[], bool], what: str, link: JavaLink) -> None:
    assert eventually(reached, WITHIN_S), f"not within {WITHIN_S} s: {what}\n{link.known}\n{link.log}"


def read(link: JavaLink) -> None:
    """Until it has read the control topic to its end."""
    ticket = link.ask()
    until(lambda: link.known.answered >= ticket, "the control topic is read", link)


def acks_in(bootstrap: str, topic: str) -> list[tuple[AckKey, Ack | None]]:
    """All that is in the ack topic, in order."""
    settings = {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    found = []
    with closing(consumer):
        consumer.assign([TopicPartition(f"{topic}_acks", 0, OFFSET_BEGINNING)])
        while (message := consumer.poll(WITHIN_S)) is not None and message.error() is None:
            key, value = decode(message.key(), message.value())
            assert isinstance(key, AckKey)
            assert value is None or isinstance(value, Ack)
            found.append((key, value))
    return found


def test_acks_are_written_in_order_and_those_of_an_earlier_topic_are_not(
    kafka: KafkaCluster, unique: Unique, links: JavaLinks
) -> None:
    topic = unique("control")
    with (
        closing(KafkaClient(Connection(kafka.bootstrap, control_topic=topic))) as client,
        closing(links.open({"bootstrap.servers": kafka.bootstrap}, topic)) as link,
    ):
        client.control.ensure()
        epoch = client.control.hold({KEY: Hold("looked into", 1000)})[KEY]
        read(link)
        for number in range(20):
            link.send_ack("payments", ORDERS, epoch, number, 1, str(number))
        link.send_ack("payments", ORDERS, epoch, 99, 2, "of another topic")
        until(lambda: len(link.acked) == 21, "all are told about", link)

        assert link.acked == {**{str(number): True for number in range(20)}, "of another topic": False}
        assert [ack for _, ack in acks_in(kafka.bootstrap, topic)] == [Ack(epoch, n, "m-1") for n in range(20)]
        assert not link.warnings
    assert link.threads_left == 0


@pytest.mark.nightly
def test_brokers_that_create_what_is_asked_for_are_not_made_to(links: JavaLinks) -> None:
    """A topic of their making would have their default settings, and hide that the agent's topics were lost."""
    topic = f"control-{uuid.uuid4().hex[:8]}"
    with (
        KafkaCluster.start(properties={"auto.create.topics.enable": "true"}) as kafka,
        closing(KafkaClient(Connection(kafka.bootstrap, control_topic=topic))) as client,
        closing(links.open({"bootstrap.servers": kafka.bootstrap}, topic)) as link,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        read(link)
        link.send_ack("payments", ORDERS, 0, 1, 0, "before there is a topic")
        until(lambda: "before there is a topic" in link.acked, "nobody would read it", link)
        client.control.ensure()
        client.control.hold({KEY: Hold("looked into", 1000)})
        until(lambda: link.known.generation == 1, "the topic is found", link)
        link.send_ack("payments", ORDERS, 1, 1, 1, "first")
        until(lambda: "first" in link.acked, "the producer knows the topic", link)
        for future in admin.delete_topics([topic, f"{topic}_acks"], operation_timeout=30).values():
            future.result(30)
        link.send_ack("payments", ORDERS, 1, 2, 1, "lost")
        until(lambda: "lost" in link.acked and link.has_found_it_lost, "it is given up", link)

        assert link.acked == {"before there is a topic": True, "first": True, "lost": False}
        assert not [name for name in admin.list_topics(timeout=30).topics if name.startswith("control-")]


# --- clusters that ask who comes --------------------------------------------------------------------------------------


def _trusting(security: KafkaSecurity) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(security.ca)}


def by_password(security: KafkaSecurity, _: Path) -> dict[str, str]:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "bootstrap.servers": security.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} username="{security.username}" password="{security.password}";',
        **_trusting(security),
    }


def by_token(security: KafkaSecurity, _: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    return {
        "bootstrap.servers": security.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{module} unsecuredLoginStringClaim_sub="{security.username}";',
        **_trusting(security),
    }


def by_certificate(security: KafkaSecurity, folder: Path) -> dict[str, str]:
    store, password = folder / "client.p12", secrets.token_hex(12)
    given = ["-in", security.client.certificate, "-inkey", security.client.key]
    openssl = ["openssl", "pkcs12", "-export", *given, "-out", store, "-passout", f"pass:{password}"]
    subprocess.run(openssl, check=True, capture_output=True)
    return {
        "bootstrap.servers": security.ssl_bootstrap,
        "security.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": password,
        "ssl.key.password": password,
        **_trusting(security),
    }


class Secured:
    """A control topic on a cluster with an authorizer, and the rights on it."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.client = KafkaClient(Connection(cluster.bootstrap, control_topic=topic))
        self.client.control.ensure()

    def allow(self, *rights: tuple[str, AclOperation]) -> None:
        """By the suffix of the topic's name."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                self.topic + suffix,
                ResourcePatternType.LITERAL,
                principal,
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for suffix, operation in rights
            for principal in ("User:tidegate", "User:CN=tidegate")
        ]
        for future in self._admin.create_acls(bindings).values():
            future.result(20)


@pytest.fixture
def secured(kafka_secure: KafkaCluster, unique: Unique) -> Iterator[Secured]:
    made = Secured(kafka_secure, unique("control"))
    with closing(made.client):
        yield made


@pytest.mark.parametrize("way", [by_password, by_token, by_certificate])
def test_its_clients_come_as_the_application_does(
    secured: Secured,
    kafka_secure: KafkaCluster,
    links: JavaLinks,
    tmp_path: Path,
    way: Callable[[KafkaSecurity, Path], dict[str, str]],
) -> None:
    secured.allow(("", READ), ("_acks", WRITE))
    epoch = secured.client.control.hold({KEY: Hold("looked into", 1000)})[KEY]
    with closing(links.open(way(kafka_secure.security, tmp_path), secured.topic)) as link:
        read(link)
        link.send_ack("payments", ORDERS, epoch, 7, 1, "ack")
        until(lambda: link.acked == {"ack": True}, "it is written", link)

        gate = link.known.gate("payments", ORDERS)
        assert gate is not None
        assert gate.epoch == epoch
        assert not link.warnings
    assert link.threads_left == 0


def test_what_it_may_not_do_is_said_once_and_done_once_it_may(
    secured: Secured, kafka_secure: KafkaCluster, links: JavaLinks, tmp_path: Path
) -> None:
    secured.client.control.hold({KEY: Hold("looked into", 1000)})
    secured.allow(("", DESCRIBE), ("_acks", DESCRIBE))
    with closing(links.open(by_password(kafka_secure.security, tmp_path), secured.topic)) as link:
        ticket = link.ask()
        until(lambda: link.warnings != [], "it says so", link)
        assert not eventually(lambda: link.known.answered >= ticket or len(link.warnings) > 1, 1.5)
        assert f"cannot read control topic {secured.topic}: TopicAuthorizationException" in link.warnings[0]

        secured.allow(("", READ))
        until(lambda: link.known.answered >= ticket, "the question is answered", link)
        link.send_ack("payments", ORDERS, 1, 1, 1, "forbidden")
        until(lambda: link.acked == {"forbidden": False}, "it is refused", link)
        assert f"cannot write acks to topic {secured.topic}_acks: TopicAuthorization" in link.warnings[1]

        secured.allow(("_acks", WRITE))
        link.send_ack("payments", ORDERS, 1, 1, 1, "allowed")
        until(lambda: "allowed" in link.acked, "it is written", link)
        assert link.acked["allowed"]
        assert len(link.warnings) == 2


def test_a_wrong_password_is_said_once_and_not_told(
    secured: Secured, kafka_secure: KafkaCluster, links: JavaLinks, tmp_path: Path
) -> None:
    secret = "not-the-password-4711"
    settings = by_password(kafka_secure.security, tmp_path)
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(kafka_secure.security.password, secret)
    with closing(links.open(settings, secured.topic)) as link:
        ticket = link.ask()
        until(lambda: link.warnings != [], "it says so", link)
        assert not eventually(lambda: len(link.warnings) > 1, 1.5)
        assert link.known.answered < ticket
        assert "SaslAuthenticationException" in link.warnings[0]
        assert secret not in str(link.log)
    assert link.threads_left == 0


def test_a_cluster_that_is_not_there_is_said_once(links: JavaLinks) -> None:
    with closing(links.open({"bootstrap.servers": "127.0.0.1:1"}, "__tidegate")) as link:
        ticket = link.ask()
        until(lambda: link.warnings != [], "it says so", link)
        assert link.known.answered < ticket
        assert "cannot look at control topic __tidegate: TimeoutException" in link.warnings[0]
    assert len(link.warnings) == 1
    assert link.threads_left == 0
