"""Groups that take no guest, on a broker of their own."""

from __future__ import annotations

from contextlib import closing

import pytest

from contract.kafka_worlds import RealWorld, new_group
from devstack import KafkaCluster
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka_client.client import KafkaClient


def test_a_full_group_takes_no_guest() -> None:
    with KafkaCluster.start(properties={"group.max.size": "1"}) as cluster:
        world, group_id = RealWorld(cluster.bootstrap), new_group()
        with closing(world), closing(KafkaClient(Connection(cluster.bootstrap))) as client:
            world.consumer(group_id, [world.create_topic(1)])
            with pytest.raises(Refused, match="GroupMaxSize"), client.membership.guest(group_id):
                pytest.fail("a guest")
            [member] = client.groups([group_id])[group_id].members
            assert member.assignment
