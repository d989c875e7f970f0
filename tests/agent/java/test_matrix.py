"""By night: pause, reset, death, rebalance on every pair of client, protocol, packaging and JDK, three times each."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from agent.java.matrix import everything, pairs, pairwise
from devstack import KafkaCluster
from support import gate_scenes, java_scenes
from support.gated_applications import Scene
from support.java_applications import Java, JavaProcess, agent_environment
from support.stack_fixtures import MakeTopic, Unique

pytestmark = pytest.mark.at_once(2)

RUNS = 3


@pytest.mark.nightly
@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("java", pairwise(everything()), ids=str)
def test_it_is_paused_reset_killed_and_rebalanced(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, java: Java, run: int
) -> None:
    name = unique(f"run{run}")
    control_topic = f"__c-{name}"

    def launch() -> JavaProcess:
        return JavaProcess(java, agent_environment(control_topic))

    def scene(number: int) -> closing[Scene]:
        return closing(Scene(kafka.bootstrap, make_topic(2), f"{name}-{number}", control_topic=control_topic))

    with launch() as jvm:
        with scene(1) as one:
            start = partial(one.application, jvm.application)
            gate_scenes.it_stands_still_and_goes_on_where_it_was(one, start)
        with scene(2) as one:
            start = partial(one.application, jvm.application, commit="manual")
            gate_scenes.after_a_reset_it_goes_on_at_the_target(one, start)
        with scene(3) as one:
            start = partial(one.application, jvm.application)
            gate_scenes.a_rebalance_commits_nothing_and_the_new_owner_stays_paused(one, start)
    with scene(4) as one:
        java_scenes.one_that_dies_while_it_drains_leaves_the_gate_to_the_next(one, launch)


@pytest.mark.pure
def test_the_matrix_has_every_pair_there_can_be() -> None:
    possible = everything()
    chosen = pairwise(possible)
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, possible))
    assert len(chosen) < len(possible)
    assert {java.client for java in possible if java.protocol == "consumer"} >= {"3.9.2", "4.0.2", "4.3.1"}
