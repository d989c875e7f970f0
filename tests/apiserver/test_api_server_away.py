"""The API server is killed in the middle of a reset, and comes back.

In a file of its own: it is the session's, which tests that run several at once share (`support.at_once`).
"""

from __future__ import annotations

import time

import pytest

from apiserver.offsets import live_group
from apiserver.test_operator_reset import AT_10, FINAL, PARTITIONS, Group, first_offsets, has_reached
from devstack import ApiServer, KafkaCluster
from support.operator_process import Resources, until
from support.stack_fixtures import MakeTopic, Unique


def test_a_run_goes_on_when_the_api_server_was_away(
    connected: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, apiserver: ApiServer
) -> None:
    if apiserver.attached:
        pytest.skip("somebody else's API server is not ours to kill")
    group = Group(kafka, make_topic(PARTITIONS), unique("group"))
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        ends = {(group.topic, number): 99 for number in range(PARTITIONS)}
        fleet.wait_read_to(ends)
        asked = time.time()
        connected.reset("r", group.name, {"offset": 10}, inFlight="2s")
        until(lambda: has_reached(connected, "r", "Pausing"), "its consumers are paused", pause_s=0.01)
        apiserver.kill()
        apiserver.restart()

        done = connected.wait_phase("r", *FINAL, timeout_s=120)
        firsts = first_offsets(fleet, asked)

    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert firsts == AT_10
