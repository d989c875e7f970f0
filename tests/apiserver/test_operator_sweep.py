"""Holds that nobody lets go of any more, with a real API server and a real broker: swept, and nothing else."""

from __future__ import annotations

import pytest

from apiserver.offsets import committed, produce
from apiserver.own_topics import Own
from support.operator_process import OperatorProcess, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from support.stub_agent import StubAgent
from tidegate.control.records import Hold, HoldKey

PARTITIONS = 2


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's reset."""
    return unique("p")


def holding(own: Own, agent: StubAgent, group: str, p: str) -> str:
    """A reset that waits with its gates closed, for an owner that is busy; its holder."""
    until(lambda: own.managed(group), "its owner is known to run the agent")
    agent.obeys = False
    own.resources.reset(p, group, {"offset": 0}, drainTimeout="4m")
    [of] = until(own.holders, "the reset has closed its gates")
    uid = own.resources.get_reset(p)["metadata"]["uid"]
    assert of == f"reset/{uid}/{p}"
    return str(of)


def goes_on(own: Own, agent: StubAgent, topic: str) -> None:
    before = [agent.count(topic, number) for number in range(PARTITIONS)]
    produce(own.bootstrap, topic, PARTITIONS, 5)
    # A writer that died has left a transaction, which holds its owners for as long as that may last.
    until(
        lambda: all(agent.count(topic, n) > before[n] for n in range(PARTITIONS)), "its partitions flow", timeout_s=120
    )


def test_what_a_killed_operators_reset_holds_is_swept_once_its_resource_is_gone(
    own: Own, operator: OperatorProcess, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    produce(own.bootstrap, topic, PARTITIONS, 10)
    assert own.control.ensure() == ()
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        until(lambda: all(agent.count(topic, n) == 10 for n in range(PARTITIONS)), "all is read")
        left = holding(own, agent, group, p)
        others = {
            HoldKey("others", topic, 0, of): Hold("theirs", connection=through)
            for of, through in [("reset/u/one", "elsewhere"), ("reset/u/two", ""), ("reset/cli/x", ""), ("cli", "")]
        }
        own.control.hold(others)

        operator.kill()
        resources.patch("offsetresets", p, {"metadata": {"finalizers": None}})
        resources.delete_reset(p)
        until(lambda: resources.get("offsetresets", p) is None, "the reset is gone without a word")
        operator.start()

        until(lambda: left not in own.holders(), "what was left behind is released")
        goes_on(own, agent, topic)

    assert own.holders() == {key.holder for key in others}
    told = [message for reason, message in resources.events("kafka") if reason == "HoldsSwept"]
    assert len(told) == 1
    for named in (group, f"{topic} 0-1", left, f"the resource that asked for reset {p} is gone"):
        assert named in told[0]
    until(lambda: operator.metric("tidegate_holds_swept_total", kind="reset") == PARTITIONS, "it is counted")


def test_a_killed_operators_reset_keeps_what_it_holds_until_its_successor_has_ended_it(
    own: Own, operator: OperatorProcess, topic: str, group: str, p: str
) -> None:
    resources = own.resources
    produce(own.bootstrap, topic, PARTITIONS, 10)
    assert own.control.ensure() == ()
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        until(lambda: all(agent.count(topic, n) == 10 for n in range(PARTITIONS)), "all is read")
        of = holding(own, agent, group, p)
        operator.kill()
        operator.start()
        own.resources.wait_connection("kafka")
        passes = operator.metric("tidegate_observations_total")
        until(lambda: operator.metric("tidegate_observations_total") > passes + 8, "it has looked several times")
        until(lambda: own.holders() == {of}, "the successor holds it")

        for name in resources.run_documents(p):
            resources.core.delete_namespaced_config_map(name, resources.namespace)

        body = resources.wait_phase(p, "Failed")
        assert condition_of(body, "Complete")["reason"] == "RunLost"
        assert own.holders() == set(), "its gates were opened before it was called failed"
        goes_on(own, agent, topic)
    assert "HoldsSwept" not in [reason for reason, _ in resources.events("kafka")]
    assert set(committed(own.bootstrap, group, topic, PARTITIONS)) == set(range(PARTITIONS))
