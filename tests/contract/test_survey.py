"""What ``tidegate.kafka.survey`` promises, held against Kafka in memory and against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from contract.kafka_worlds import FakeWorld, RealWorld, World, commit_plainly, new_group
from support.fake_survey import FakeSurvey
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupType, ListedGroup, LogBounds, TopicPartition
from tidegate.kafka.survey import Survey
from tidegate.kafka_client.survey import KafkaSurvey

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Stage:
    def __init__(self, world: World, survey: Survey) -> None:
        self.world, self.survey = world, survey
        self.topic = world.create_topic(2)

    def listed(self, group_id: str) -> ListedGroup | None:
        return next((row for row in self.survey.listed() if row.group_id == group_id), None)

    def commit(self, group_id: str) -> None:
        commit_plainly(self.world, group_id, {TopicPartition(self.topic, 0): 0})


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "fake":
        world = FakeWorld()
        yield Stage(world, FakeSurvey(world.kafka))
        return
    bootstrap = request.getfixturevalue("kafka").bootstrap
    real, survey = RealWorld(bootstrap), KafkaSurvey(Connection(bootstrap))
    yield Stage(real, survey)
    survey.close()
    real.close()


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER], ids=str)
def test_groups_are_listed_with_what_they_are(stage: Stage, protocol: GroupType) -> None:
    live, simple = new_group(), new_group()
    consumer = stage.world.consumer(live, [stage.topic], protocol=protocol)
    stage.commit(simple)

    assert stage.listed(live) == ListedGroup(live, "consumer", protocol.value, "Stable")
    assert stage.listed(simple) == ListedGroup(simple, "", "classic", "Empty")
    assert stage.listed(new_group()) is None
    consumer.close()


def test_bounds_are_told_of_the_partitions_that_there_are(stage: Stage) -> None:
    first, second = TopicPartition(stage.topic, 0), TopicPartition(stage.topic, 1)
    stage.world.append(first, [AT] * 5)
    stage.world.delete_records(first, 2)

    told = stage.survey.bounds([first, TopicPartition(stage.topic, 7), TopicPartition("nobody-has-made-it", 0), second])

    assert told == {first: LogBounds(2, 5), second: LogBounds(0, 0)}
    assert stage.survey.bounds([]) == {}


def test_members_of_classic_groups_tell_their_subscriptions(stage: Stage) -> None:
    classic, modern, simple = new_group(), new_group(), new_group()
    consumers = [
        stage.world.consumer(classic, [stage.topic]),
        stage.world.consumer(modern, [stage.topic], protocol=GroupType.CONSUMER),
    ]
    stage.commit(simple)

    told = stage.survey.subscriptions([classic, modern, simple])

    [said] = told[classic].values()
    assert said.topics == {stage.topic}
    assert said.version >= 1
    assert not told.get(modern)
    assert not told.get(simple)
    for consumer in consumers:
        consumer.close()


def test_brokers_tell_for_how_long_they_keep_offsets(stage: Stage) -> None:
    [settings] = stage.survey.broker_settings()
    assert settings["offsets.retention.minutes"].isdigit()
    assert settings["group.max.size"].isdigit()
