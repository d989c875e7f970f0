"""Clusters that ask who comes, and let not everybody read everything: the agent's own clients beside the application's.

Applications are other processes, started as a user starts them; of each client library one at the same time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from devstack import KafkaCluster
from devstack.kafka_security import CLIENT_USER, KafkaSecurity
from devstack.processes import eventually
from support.acls import allow
from support.clients import ConsumerFleet
from support.gated_applications import Scene
from support.stack_fixtures import Unique, topics_of
from tidegate_agent import control, topic_description
from tidegate_agent.control import ControlLink

KINDS = ("librdkafka", "kafka-python", "aiokafka")
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
Settings = Mapping[str, str]


def by_password(security: KafkaSecurity) -> Settings:
    return {
        "bootstrap.servers": security.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": str(security.ca),
    }


def by_certificate(security: KafkaSecurity) -> Settings:
    return {
        "bootstrap.servers": security.ssl_bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(security.ca),
        "ssl.certificate.location": str(security.client.certificate),
        "ssl.key.location": str(security.client.key),
    }


def by_token(security: KafkaSecurity) -> Settings:
    return {
        "bootstrap.servers": security.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.ca.location": str(security.ca),
    }


_TOKENS = {
    "librdkafka": {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={CLIENT_USER}",
    },
    "kafka-python": {"sasl_oauth_token_provider": CLIENT_USER},
    "aiokafka": {"sasl_oauth_token_provider": CLIENT_USER},
}
_PYTHON_NAMES = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
}


def spelled(settings: Settings, kind: str) -> dict[str, str]:
    if settings.get("sasl.mechanism") == "OAUTHBEARER":
        settings = {**settings, **_TOKENS[kind]}
    if kind == "librdkafka":
        return dict(settings)
    return {_PYTHON_NAMES.get(name, name.replace(".", "_")): value for name, value in settings.items()}


@dataclass(frozen=True)
class Application:
    """One consumer of a client library, and what it reads."""

    kind: str
    scene: Scene
    fleet: ConsumerFleet

    @property
    def log(self) -> str:
        return self.fleet.log(0)

    def flows(self, *partitions: int, since: float = 0.0) -> bool:
        """Whether each of these delivered something since."""
        return set(partitions) <= {delivery.partition for delivery in self.fleet.records(since)}

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.log.splitlines() if any(f" {level} " in line for level in ("WARNING", "ERROR"))]

    def wait_flowing(self, *partitions: int, since: float = 0.0) -> None:
        self.until(lambda: self.flows(*partitions, since=since), f"{partitions} flow")

    def until(self, reached: Callable[[], bool], what: str) -> None:
        assert eventually(reached, 90), f"{self.kind}: not within 90 s: {what}\n{self.log}"


class Applications:
    """Of each library one, each of a group of its own, on one topic; they may read that, and their groups."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, topic: str, settings: Settings) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._cluster, self._unique, self._topic, self._settings = cluster, unique, topic, settings
        self._ending = ExitStack()
        self.all: list[Application] = []

    def start(self, *rights: tuple[str, AclOperation], of: Collection[str] = KINDS) -> None:
        """Some with these rights on the two topics of the agent (``control``, ``acks``)."""
        scenes = [
            Scene(self._cluster.bootstrap, self._topic, self._unique(kind), writes=kind == KINDS[0]) for kind in KINDS
        ]
        for scene in scenes:
            self._ending.callback(scene.close)
        allow(
            self._admin, (ResourceType.TOPIC, self._topic, READ), *((ResourceType.GROUP, s.group, READ) for s in scenes)
        )
        for kind, scene in zip(KINDS, scenes, strict=True):
            if kind in of:
                self.allow(scene, *rights)
        for kind, scene in zip(KINDS, scenes, strict=True):
            fleet = ConsumerFleet(
                kind,
                scene.bootstrap,
                scene.group,
                [self._topic],
                ["first"],
                auto_commit_interval_s=0.5,
                agent=True,
                control_topic=scene.settings.control_topic,
                config=spelled(self._settings, kind),
            )
            self.all.append(Application(kind, scene, self._ending.enter_context(fleet)))

    def allow(self, scene: Scene, *rights: tuple[str, AclOperation]) -> None:
        names = {"control": scene.settings.control_topic, "acks": scene.settings.acks_topic}
        allow(self._admin, *((ResourceType.TOPIC, names[which], operation) for which, operation in rights))

    def close(self) -> None:
        self._ending.close()


StartAll = Callable[[Callable[[KafkaSecurity], Settings]], Applications]


@pytest.fixture
def applications(kafka_secure: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartAll]:
    monkeypatch.setenv("TIDEGATE_LOG", "DEBUG")
    with ExitStack() as ending:

        def made(way: Callable[[KafkaSecurity], Settings]) -> Applications:
            topic = next(topics_of(kafka_secure, unique))(2)
            found = Applications(kafka_secure, unique, topic, way(kafka_secure.security))
            ending.callback(found.close)
            return found

        yield made


@pytest.mark.parametrize("way", [by_password, by_certificate, by_token])
def test_the_agents_clients_come_as_the_application_does_and_tell_no_password(
    applications: StartAll, kafka_secure: KafkaCluster, way: Callable[[KafkaSecurity], Settings]
) -> None:
    these = applications(way)
    these.start(("control", READ), ("acks", WRITE))
    for one in these.all:
        one.wait_flowing(0, 1)
    acks = [one.scene.close_gate() for one in these.all]
    acked_at = time.time()
    for one in these.all:
        one.wait_flowing(1, since=acked_at + 0.3)
    for one, ack in zip(these.all, acks, strict=True):
        assert not one.flows(0, since=acked_at), one.kind
        assert one.scene.committed() == ack.offset > 0, one.kind
        assert ack.member, one.kind
        one.scene.release()
    for one in these.all:
        one.wait_flowing(0, since=acked_at)
        assert "is paused at offset" in one.log, "it tells what it does"
        assert kafka_secure.security.password not in one.log
        assert not one.warnings, one.log


def test_a_control_topic_that_cannot_be_read_is_waited_for_and_said_once(applications: StartAll) -> None:
    these = applications(by_password)
    these.start(("control", DESCRIBE), of=["librdkafka"])
    for one in these.all:
        one.fleet.wait_assigned([(one.scene.topic, 0), (one.scene.topic, 1)])
        one.until(lambda one=one: one.warnings != [], "it says so")  # type: ignore[misc]
    assert not eventually(lambda: any(one.fleet.records() for one in these.all), 1.5), "asked again every half second"
    for one in these.all:
        [line] = one.warnings
        verb = "read" if one.kind == "librdkafka" else "look at"
        assert f"cannot {verb} control topic {one.scene.settings.control_topic}" in line
        these.allow(one.scene, ("control", READ), ("acks", WRITE))
    for one in these.all:
        one.wait_flowing(0, 1)
        assert one.scene.close_gate().member


def test_where_it_is_to_be_open_an_unreadable_control_topic_holds_nothing_up_for_long(
    applications: StartAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_ON_UNREACHABLE", "open")
    monkeypatch.setenv("TIDEGATE_UNREACHABLE_AFTER_S", "1.5")
    these = applications(by_password)
    these.start()
    for one in these.all:
        one.wait_flowing(0, 1)
        assigned_at = min(event.t for event in one.fleet.events() if event.kind == "assign")
        assert one.fleet.records()[0].t - assigned_at >= 1.4, one.kind
        unread = [line for line in one.warnings if "although its gate could not be read" in line]
        assert (len(unread), len(one.warnings)) == (2, 3), one.log
        these.allow(one.scene, ("control", READ), ("acks", WRITE))
    for one in these.all:
        assert one.scene.close_gate().member, "once it can be read, it is obeyed"


def test_a_wrong_password_is_said_once_and_not_told(
    kafka_secure: KafkaCluster, unique: Unique, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (control, topic_description):
        monkeypatch.setattr(module, "REQUEST_S", 1.0)
    secret = "not-the-password-4711"
    topic = unique("control")
    with caplog.at_level(logging.DEBUG):
        link = ControlLink({**by_password(kafka_secure.security), "sasl.password": secret}, topic, f"{topic}_acks")
        ticket = link.ask()
        try:
            assert eventually(lambda: "cannot look" in caplog.text, 90)
            assert link.known.answered < ticket
        finally:
            link.close()
    assert secret not in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
