"""What a KafkaConnection says of its audit topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.audit.records import AuditTopic
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kube.ports import CONNECTIONS
from tidegate.resources.base import read_status
from tidegate.resources.conditions import AUDIT_TOPIC, READY, find_condition, is_true
from tidegate.resources.connection import ConnectionStatus
from unit.connection.test_connection_passes import World

LOG = "__tidegate_audit"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


def recording(world: World, **audit: object) -> None:
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092", "audit": audit})


def told(world: World) -> tuple[str, str, str] | None:
    status = read_status(ConnectionStatus, world.body)
    assert is_true(status.conditions, READY)
    found = find_condition(status.conditions, AUDIT_TOPIC)
    return None if found is None else (found.status.value, found.reason, found.message)


def test_nothing_is_made_or_said_unless_it_is_asked_for(world: World) -> None:
    world.look()
    assert told(world) is None
    assert not world.kafka.audit.topics


def test_the_topic_is_made_and_who_acts_through_the_connection_knows_it(world: World) -> None:
    recording(world, required=True)
    world.look()
    assert told(world) == ("True", "Usable", f"changes of offsets are recorded in topic {LOG}")
    assert world.kafka.audit.topics == {LOG}
    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.audit == AuditTopic(LOG, required=True)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(NotAuthorized("allow the principal Write"), "NotAuthorized"), (Refused("bad replication"), "RefusedByKafka")],
)
@pytest.mark.parametrize(
    ("required", "without"),
    [(True, "until this is resolved, resets are refused"), (False, "changes of offsets are not recorded")],
)
def test_what_prevents_it_is_said_with_what_follows_and_looked_at_again(
    failure: KafkaFailure, reason: str, required: bool, without: str, world: World
) -> None:
    world.kafka.audit.refuses[LOG] = failure
    recording(world, required=required)
    world.look()
    said = told(world)
    assert said is not None
    assert said[:2] == ("False", reason)
    assert str(failure) in said[2]
    assert without in said[2]
    world.kafka.audit.refuses.clear()
    world.look()
    assert (told(world) or ())[:2] == ("True", "Usable")


def test_where_kafka_does_not_answer_what_was_said_stays(world: World) -> None:
    recording(world)
    world.look()
    said = told(world)
    world.kafka.audit.refuses[LOG] = Unavailable("nobody answers")
    recording(world, topic=LOG, required=True)
    world.look()
    assert told(world) == said


@pytest.mark.parametrize("more", [{}, {"freeze": {"reason": "INC-4711"}}], ids=["live", "frozen"])
def test_a_topic_without_a_leader_is_not_said_to_be_usable(more: dict[str, object], world: World) -> None:
    spec = {"bootstrapServers": "127.0.0.1:9092", "audit": {"required": True}}
    world.kafka.audit.topics.add(LOG)
    world.kafka.audit.leaderless.add(LOG)
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={**spec, **more})
    world.look()
    said = told(world)
    assert said is not None
    assert said[:2] == ("False", "Unavailable")
    assert "there is no leader; until this is resolved, resets are refused" in said[2]
    world.kafka.audit.leaderless.clear()
    world.look()
    assert (told(world) or ())[:2] == ("True", "Usable")


def test_it_is_said_no_more_once_nothing_is_recorded(world: World) -> None:
    recording(world)
    world.look()
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092"})
    world.look()
    assert told(world) is None


def test_a_connection_that_only_observes_makes_no_topic(tmp_path: Path) -> None:
    world = World(tmp_path, observe=True)
    recording(world)
    world.look()
    said = told(world)
    assert said is not None
    assert said[:2] == ("False", "RefusedByKafka")
    assert "there is no such topic" in said[2]
    assert not world.kafka.audit.topics
    world.executor.shutdown()


def test_through_a_frozen_connection_none_is_made_and_one_that_is_there_is_checked(world: World) -> None:
    def ask(**more: object) -> None:
        spec = {"bootstrapServers": "127.0.0.1:9092", "audit": {}, **more}
        world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
        world.look()

    ask(freeze={"reason": "INC-4711"})
    said = told(world)
    assert not world.kafka.audit.topics
    assert said is not None
    assert said[:2] == ("False", "Frozen")
    assert "the operator creates it once the connection is no longer frozen" in said[2]

    ask()
    assert (told(world) or ())[:2] == ("True", "Usable")
    assert world.kafka.audit.topics == {LOG}
    ask(freeze={"reason": "INC-4711"})
    assert (told(world) or ())[:2] == ("True", "Usable")
