"""How a consumer's options become each library's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from support.clients.options import ClientKind, CommitMode, ConsumerOptions, GroupProtocol, member_names
from support.clients.worker import Job, Turns, Uncommitted


def options(kind: ClientKind, **given: Any) -> ConsumerOptions:
    return ConsumerOptions(kind=kind, bootstrap="b:1", group="g", topics=("t",), **given)


@pytest.mark.parametrize("kind", [ClientKind.LIBRDKAFKA, ClientKind.JAVA, ClientKind.FRANZ_GO])
def test_what_is_not_asked_for_is_not_set(kind: ClientKind) -> None:
    config = options(kind).member_config("c0", 0, 2)

    assert config == {"bootstrap.servers": "b:1", "group.id": "g", "auto.offset.reset": "earliest"}


@pytest.mark.parametrize("kind", [ClientKind.AIOKAFKA, ClientKind.KAFKA_PYTHON])
def test_python_libraries_take_keywords(kind: ClientKind) -> None:
    given = options(kind, commit=CommitMode.SYNC, static=True, isolation="read_committed", assignor="sticky")

    assert given.member_config("c1", 0, 1) == {
        "bootstrap_servers": "b:1",
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "group_instance_id": "c1",
        "isolation_level": "read_committed",
        "partition_assignment_strategy": ["sticky"],
    }


def test_java_assignors_are_named_by_class() -> None:
    config = options(ClientKind.JAVA, assignor="cooperative-sticky").member_config("c0", 0, 1)

    assert config["partition.assignment.strategy"] == "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


def test_a_kip_848_assignor_is_the_brokers() -> None:
    config = options(ClientKind.JAVA, protocol=GroupProtocol.CONSUMER, assignor="range").member_config("c0", 0, 1)

    assert (config["group.protocol"], config["group.remote.assignor"]) == ("consumer", "range")
    assert "partition.assignment.strategy" not in config


def test_heartbeats_are_spread_over_the_members() -> None:
    given = options(ClientKind.LIBRDKAFKA, heartbeat_s=2.0, heartbeat_spread=0.5)

    assert [given.member_config("c", i, 3)["heartbeat.interval.ms"] for i in range(3)] == [2000, 1500, 1000]


def test_the_librarys_own_settings_win() -> None:
    given = options(ClientKind.AIOKAFKA, client_ids=True, config={"client_id": "mine", "fetch_max_wait_ms": 50})

    config = given.member_config("c0", 0, 1)

    assert (config["client_id"], config["fetch_max_wait_ms"]) == ("mine", 50)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ClientKind.AIOKAFKA, {"protocol": GroupProtocol.CONSUMER}),
        (ClientKind.KAFKA_PYTHON, {"protocol": GroupProtocol.CONSUMER}),
        (ClientKind.FRANZ_GO, {"protocol": GroupProtocol.CONSUMER}),
        (ClientKind.LIBRDKAFKA, {"assignor": "sticky"}),
        (ClientKind.AIOKAFKA, {"assignor": "cooperative-sticky"}),
        (ClientKind.SARAMA, {"assignor": "cooperative-sticky"}),
        (ClientKind.SARAMA, {"commit": CommitMode.WORKER}),
        (ClientKind.KAFKA_GO, {"static": True}),
        (ClientKind.KAFKAJS, {"assignor": "range"}),
        (ClientKind.JAVA, {"assignor": "uniform"}),
        (ClientKind.JAVA, {"protocol": GroupProtocol.CONSUMER, "assignor": "sticky"}),
        (ClientKind.JAVA, {"protocol": GroupProtocol.CONSUMER, "heartbeat_s": 1.0}),
        (ClientKind.LIBRDKAFKA, {"heartbeat_spread": 0.9}),
    ],
)
def test_what_a_library_cannot_do_is_refused(kind: ClientKind, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        options(kind, **given)


def test_members_have_different_names() -> None:
    assert member_names(2) == ("c0", "c1")
    with pytest.raises(ValueError, match="one name"):
        member_names(["a", "a"])


@pytest.mark.parametrize("commit", [CommitMode.TRANSACTIONS, CommitMode.ABORTS])
def test_transactions_are_for_libraries_whose_consumers_here_commit_by_them(commit: CommitMode) -> None:
    assert options(ClientKind.JAVA, commit=commit).member_config("c0", 0, 1)["enable.auto.commit"] is False
    with pytest.raises(ValueError, match="kafka-python"):
        options(ClientKind.KAFKA_PYTHON, commit=commit)


@pytest.mark.parametrize(("commit", "committed"), [("transactions", [True] * 3), ("aborts", [True, False, True])])
def test_a_members_transactions_come_one_after_the_other(commit: str, committed: list[bool]) -> None:
    turns = Turns(Job("librdkafka", ("t",), commit, commit_every_s=0.2, hold_s=3.0))
    ends = []
    for begins in (10.0, 20.0, 30.0):
        assert not turns.is_due(begins)
        turns.begun(begins)
        assert turns.is_open
        assert [turns.is_due(begins + s) for s in (0.0, 2.9, 3.0)] == [False, False, True]
        ends.append(turns.ended())
        assert not turns.is_open
    assert ends == committed


def test_what_was_received_of_a_lost_partition_is_not_committed() -> None:
    @dataclass
    class Given:
        topic: str
        partition: int

    uncommitted = Uncommitted(Job("librdkafka", ("t",), "transactions", commit_every_s=0.2, hold_s=3.0))
    for number in range(3):
        uncommitted.received(10.0 + number, "t", number % 2, 40 + number)
    uncommitted.lost([Given("t", 1)])
    assert uncommitted.due(20.0) == {("t", 0): 43}
