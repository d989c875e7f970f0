"""A topic is deleted in the middle of a reset, on a real broker: the reset's other topics are rolled back."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from devstack.processes import eventually
from support.dying_writer import execute_and_die
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import ApplySettings, RunRequest
from tidegate.reset.model.targets import ToLatest
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "made anew"])
def test_a_topic_that_goes_after_the_commit_leaves_the_others_as_they_were(
    made_anew: bool, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    """The run's marker is in the topic that goes, and its writer dies before it has said that it has committed."""
    group, (gone, other) = unique("group"), sorted([make_topic(), make_topic()])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    reader.commit(offsets=[ClientTopicPartition(name, 0, 5) for name in (gone, other)], asynchronous=False)
    reader.close()
    store = DirectoryRunStore(tmp_path, "run")
    store.create(
        RunRequest(
            f"{group}/1",
            "1",
            group,
            Connection(kafka.bootstrap),
            (),
            ToLatest(),
            ApplySettings(deadline=datetime.now(UTC) + timedelta(minutes=2)),
        )
    )
    execute_and_die(tmp_path, "run", "commit", "after")
    admin.delete_topics([gone])[gone].result(30)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        assert eventually(lambda: gone not in client.topics(), 30)
        if made_anew:
            make_topic(name=gone)

        result = job.execute(store, client, SystemClock())

        assert result is not None
        assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "PlanOutdated"), result
        assert client.committed(group) == {TopicPartition(other, 0): 5}
