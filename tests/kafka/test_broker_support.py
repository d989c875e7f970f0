"""What brokers take of a producer from outside a group: what probes find, what they leave, what is refused then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.producer import TxnOffsetCommitRequest

from devstack import KafkaCluster
from devstack.toolcache import OLD_KAFKA_VERSION
from support.clients import ClientKind, GroupProtocol
from support.needs import starts
from support.probes import probe_of
from support.reset_trial import Cell, run_trial
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.capabilities import NEWEST_COMMIT_SENT, PROBED
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.connections import Connections
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.probe import PREFIX
from tidegate.kafka_client.wire import Wire
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import UNSUPPORTED_BY_BROKERS, PlanRefused
from tidegate.resources.connection import GroupKind, Support

YES, NO, NOT_OFFERED, _ = Support


def groups_of_probes(bootstrap: str) -> set[str]:
    with closing(Wire(Connection(bootstrap))) as wire:
        return {row.group_id for row in list_groups(wire) if row.group_id.startswith(PREFIX)}


# --- on the newest tested broker --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GroupKind)
def test_a_probe_finds_what_the_versions_say_and_leaves_no_group(
    kind: GroupKind, kafka: KafkaCluster, make_topic: MakeTopic
) -> None:
    make_topic(1)
    connection = Connection(kafka.bootstrap)
    with closing(KafkaClient(connection)) as client, closing(Wire(connection)) as wire:
        found = probe_of(connection, wire, client).of(kind)
        assert (found.support, found.reason) == (YES, PROBED), found
        assert client.capabilities([kind])[kind].support is YES
    assert groups_of_probes(kafka.bootstrap) == set()


def test_offsets_go_out_in_a_version_that_names_topics(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, group = TopicPartition(make_topic(1), 0), unique("group")
    sent: list[Any] = []
    call_all = Connections.call_all

    def noting(these: Connections, requests: Mapping[int, Sequence[Any]], **options: Any) -> Any:
        sent.extend(request for some in requests.values() for request in some)
        return call_all(these, requests, **options)

    monkeypatch.setattr(Connections, "call_all", noting)
    with (
        closing(KafkaClient(Connection(kafka.bootstrap))) as client,
        client.writer(group, transaction_timeout_s=20).transaction() as transaction,
    ):
        transaction.send(group, {partition: 0})
    assert {r.API_VERSION for r in sent if isinstance(r, TxnOffsetCommitRequest)} == {NEWEST_COMMIT_SENT}


# --- on other releases ------------------------------------------------------------------------------------------------

KIP_848: Mapping[str, str] = {"group.coordinator.rebalance.protocols": "classic,consumer"}
UNVERIFIED: Mapping[str, str] = {"transaction.partition.verification.enable": "false"}


@dataclass(frozen=True, slots=True)
class Release:
    """``takes``: for groups without members, and for live classic, KIP-848 and streams groups."""

    version: str
    takes: tuple[Support, Support, Support, Support]
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.version, *self.properties])


OLD = Release(OLD_KAFKA_VERSION, (YES, YES, NO, NOT_OFFERED), KIP_848)
"""In continuous integration, as the one whose versions promise what it does not keep."""

OTHERS = (
    Release("3.6.2", (YES, YES, NOT_OFFERED, NOT_OFFERED)),
    Release("3.7.2", (YES, YES, NOT_OFFERED, NOT_OFFERED)),
    Release("3.7.2", (NO, NO, NO, NOT_OFFERED), KIP_848),
    Release("3.7.2", (YES, YES, NO, NOT_OFFERED), {**KIP_848, **UNVERIFIED}),
    Release("3.8.1", (YES, YES, NO, NOT_OFFERED), KIP_848),
    Release("3.9.2", (YES, YES, NOT_OFFERED, NOT_OFFERED)),
    Release("4.0.1", (YES, YES, YES, NOT_OFFERED)),
    Release("4.1.2", (YES, YES, YES, NOT_OFFERED)),
    Release("4.2.2", (YES, YES, YES, YES)),
    Release("4.4.0", (YES, YES, YES, YES)),
)


@pytest.fixture(scope="module", params=[OLD, *(pytest.param(r, marks=pytest.mark.nightly) for r in OTHERS)], ids=str)
@starts("kafka")
def release(request: pytest.FixtureRequest) -> Iterator[tuple[Release, KafkaCluster]]:
    wanted: Release = request.param
    with KafkaCluster.start(properties=wanted.properties, version=wanted.version) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        yield wanted, cluster


TOPIC = "orders"


def test_a_release_takes_what_is_documented(release: tuple[Release, KafkaCluster]) -> None:
    expected, cluster = release
    with closing(KafkaClient(Connection(cluster.bootstrap))) as client:
        found = client.capabilities(list(GroupKind))
    assert tuple(found[kind].support for kind in GroupKind) == expected.takes, found
    assert groups_of_probes(cluster.bootstrap) == set()


def test_a_live_group_is_reset_there_or_refused(release: tuple[Release, KafkaCluster]) -> None:
    expected, cluster = release
    if expected.takes[1] is YES:
        cell = Cell(kind=ClientKind.LIBRDKAFKA, protocol=GroupProtocol.CLASSIC, members=2, auto_commit_interval_s=1.0)
        [outcome] = run_trial(cluster.bootstrap, cell, 1, rest_s=(0.0, 0.5))
        assert outcome.is_good, str(outcome)
    for kind, takes in zip(GroupKind, expected.takes, strict=True):
        if takes is NO:
            check_refused(cluster, kind)


def check_refused(cluster: KafkaCluster, kind: GroupKind) -> None:
    """Nothing is committed for the group beforehand: 3.7 takes a group with offsets for a classic one ever after."""
    connection = Connection(cluster.bootstrap)
    group = f"refused-{kind.value.lower()}"
    request = RunRequest(
        run_uid="uid",
        run_id="run",
        group_id=group,
        connection=connection,
        selections=(Selection(TOPIC),),
        target=ToEarliest(),
    )
    with closing(KafkaClient(connection)) as client, closing(Wire(connection)) as wire:
        with probe_of(connection, wire, client).member(kind, group, TOPIC) as leave:
            before = client.groups([group])
            with pytest.raises(PlanRefused) as refused:
                make_plan(request, client, datetime.now(UTC))
            assert refused.value.reason == UNSUPPORTED_BY_BROKERS, refused.value
            assert client.groups([group]) == before
            assert leave()
        assert client.committed(group) == {}
