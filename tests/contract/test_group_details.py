"""What ``tidegate.cli.describing.GroupDetails`` says of groups, held against the fake and against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.kafka_worlds import FakeWorld, RealWorld, World, commit_plainly, new_group, until
from support.fake_details import FakeDetails
from tidegate.cli.describing import GroupDetails
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupType, ListedGroup, TopicPartition
from tidegate.kafka_client.group_details import KafkaGroupDetails


class Stage:
    def __init__(self, world: World, details: GroupDetails) -> None:
        self.world, self.details = world, details
        self.topic = world.create_topic(2)
        self.partitions = {TopicPartition(self.topic, number) for number in range(2)}

    def listed(self, group_id: str) -> ListedGroup | None:
        return next((row for row in self.details.listing() if row.group_id == group_id), None)

    def commit_plainly(self, group_id: str) -> None:
        commit_plainly(self.world, group_id, {TopicPartition(self.topic, 0): 0})


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "fake":
        world = FakeWorld()
        yield Stage(world, FakeDetails(world.kafka))
        return
    bootstrap = request.getfixturevalue("kafka").bootstrap
    real, details = RealWorld(bootstrap), KafkaGroupDetails(Connection(bootstrap))
    yield Stage(real, details)
    details.close()
    real.close()


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER], ids=str)
def test_a_live_group_and_what_is_left_of_it(stage: Stage, protocol: GroupType) -> None:
    group_id = new_group()
    assert stage.listed(group_id) is None
    consumer = stage.world.consumer(group_id, [stage.topic], protocol=protocol)

    assert stage.listed(group_id) == ListedGroup(group_id, "consumer", protocol.value, "Stable")
    targets = stage.details.target_assignments(group_id)
    if protocol is GroupType.CONSUMER:
        [member] = stage.world.kafka.groups([group_id])[group_id].members
        assert targets == {member.member_id: frozenset(stage.partitions)}
    else:
        assert targets == {}

    consumer.commit({TopicPartition(stage.topic, 0): 0})
    assert stage.details.leader_epochs(group_id) == {}, "the commit had none"
    consumer.close()
    until(stage.world, lambda: (row := stage.listed(group_id)) is not None and row.state == "Empty", "it is empty")
    assert stage.listed(group_id) == ListedGroup(group_id, "consumer", protocol.value, "Empty")
    assert stage.details.target_assignments(group_id) == {}


def test_what_each_member_is_to_own(stage: Stage) -> None:
    group_id = new_group()
    for _ in range(2):
        stage.world.consumer(group_id, [stage.topic], protocol=GroupType.CONSUMER)

    def targets() -> list[int]:
        return [len(target) for target in stage.details.target_assignments(group_id).values()]

    until(stage.world, lambda: targets() == [1, 1], "each is to own one partition")
    told = stage.details.target_assignments(group_id)
    assert set(told) == {m.member_id for m in stage.world.kafka.groups([group_id])[group_id].members}
    assert frozenset().union(*told.values()) == stage.partitions
    assert stage.details.target_assignments(new_group()) == {}


def test_a_group_that_has_offsets_only(stage: Stage) -> None:
    group_id = new_group()
    stage.commit_plainly(group_id)

    assert stage.listed(group_id) == ListedGroup(group_id, "", "classic", "Empty")
    assert stage.details.leader_epochs(group_id) == {}


def test_the_coordinator_is_one_of_the_brokers(stage: Stage) -> None:
    group_id = new_group()
    stage.commit_plainly(group_id)

    assert stage.details.coordinator(group_id) in stage.world.kafka.cluster().brokers
