"""Groups whose offsets are reset and whose partitions are paused: consumers at work on a broker of their own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from apiserver.offsets import commit, produce
from devstack import ApiServer, KafkaCluster
from support.clients import ConsumerFleet, SteadyProducer
from support.deliveries import Partition
from support.operator_process import Resources
from support.takeover.logs import MarkWatch
from support.takeover.plan import Whose
from support.takeover.replicas import Replicas, replicas_of
from support.takeover.watching import ObjectWatch, watch_config_maps, watch_custom
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

PARTITIONS: Final = 4
PAUSABLE: Final = 32
"""One for each pause."""

PAUSED: Final = "paused"
IDLE: Final = "idle"
LIVE: Final = (Whose.PLAIN, Whose.MANAGED, Whose.NEW)

_RATE: Final = 10.0
_PAUSED_RATE: Final = 2.0
_DRAIN_S: Final = 4.0
"""So long the paused group's application keeps a record before it commits it: so long pausing takes."""
_RECORDS: Final = 100
AT: Final = 50
"""Where a group without members stands."""
_CLASSIC: Final[Mapping[str, Any]] = {"session_s": 6.0, "heartbeat_s": 1.0}


@dataclass(slots=True)
class Stage:
    """What there is. `fleets` and `producers`: by topic, which is the group's name as well."""

    kafka: KafkaCluster
    client: kube.ApiClient
    resources: Resources
    replicas: Replicas
    control_topic: str
    control: KafkaClient
    fleets: dict[str, ConsumerFleet]
    producers: dict[str, SteadyProducer]
    resets: ObjectWatch
    pauses: ObjectWatch
    runs: ObjectWatch
    marks: MarkWatch

    def idle_group(self, name: str) -> None:
        """A group that stands at `AT` in all partitions, without members."""
        commit(self.kafka.bootstrap, name, IDLE, dict.fromkeys(range(PARTITIONS), AT))

    @property
    def paused_partitions(self) -> list[Partition]:
        return [(PAUSED, number) for number in range(PAUSABLE)]


def topic_of(whose: Whose) -> str:
    return {Whose.PLAIN: "plain", Whose.MANAGED: "managed", Whose.NEW: "new"}.get(whose, IDLE)


@contextmanager
def stage(apiserver: ApiServer, client: kube.ApiClient, namespace: str, folder: Path) -> Iterator[Stage]:
    """Everything at work: the replicas, a connection that is ready, and consumers that flow."""
    control_topic = f"__c-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaCluster.start())
        _make_topics(kafka)
        fleets = {fleet.options.group: stack.enter_context(fleet) for fleet in _fleets(kafka, control_topic)}
        producers = {
            topic: stack.enter_context(SteadyProducer(kafka.bootstrap, topic, partitions, rate))
            for topic, partitions, rate in (
                *((topic_of(whose), PARTITIONS, _RATE) for whose in LIVE),
                (PAUSED, PAUSABLE, _PAUSED_RATE),
            )
        }
        resources = Resources(client, namespace)
        replicas = stack.enter_context(replicas_of(apiserver, client, namespace, folder))
        watches = [watch_custom(client, namespace, plural) for plural in ("offsetresets", "consumergrouppauses")]
        watches.append(watch_config_maps(client, namespace))
        resets, pauses, runs = (stack.enter_context(watch) for watch in watches)
        resources.connection("kafka", kafka.bootstrap, controlTopic={"name": control_topic})
        resources.wait_connection("kafka")
        control = stack.enter_context(_closing(KafkaClient(Connection(kafka.bootstrap, control_topic=control_topic))))
        for topic, fleet in fleets.items():
            numbers = range(PAUSABLE if topic == PAUSED else PARTITIONS)
            fleet.wait_assigned([(topic, number) for number in numbers], timeout=120, members=2)
            fleet.wait_flowing([(topic, number) for number in numbers], timeout=120)
        made = Stage(
            *(kafka, client, resources, replicas, control_topic, control, fleets, producers),
            *(resets, pauses, runs, stack.enter_context(MarkWatch(kafka.bootstrap))),
        )
        yield made


@contextmanager
def _closing(client: KafkaClient) -> Iterator[KafkaClient]:
    try:
        yield client
    finally:
        client.control.close()
        client.close()


def _make_topics(kafka: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    sizes = {**{topic_of(whose): PARTITIONS for whose in LIVE}, PAUSED: PAUSABLE, IDLE: PARTITIONS}
    for made in admin.create_topics([NewTopic(name, size) for name, size in sizes.items()]).values():
        made.result(30)
    produce(kafka.bootstrap, IDLE, PARTITIONS, _RECORDS)
    # The broker makes its offsets topic for the first group.
    commit(kafka.bootstrap, "first", IDLE, {0: 0})


def _fleets(kafka: KafkaCluster, control_topic: str) -> Iterator[ConsumerFleet]:
    """Two consumers each, in a process; those of the plain and the new group are as a user has them."""
    plain, managed, new = (topic_of(whose) for whose in LIVE)
    bootstrap = kafka.bootstrap
    yield ConsumerFleet("librdkafka", bootstrap, plain, [plain], 2, **_CLASSIC)
    # At their default session timeout: a member that is removed because the machine is busy has others read again.
    agent: dict[str, Any] = {"agent": True, "control_topic": control_topic, "commit": "worker"}
    yield ConsumerFleet("librdkafka", bootstrap, managed, [managed], 2, hold_s=1.5, heartbeat_s=1.0, **agent)
    yield ConsumerFleet("librdkafka", bootstrap, new, [new], 2, protocol="consumer", assignor="uniform")
    yield ConsumerFleet("librdkafka", bootstrap, PAUSED, [PAUSED], 2, hold_s=_DRAIN_S, heartbeat_s=1.0, **agent)
