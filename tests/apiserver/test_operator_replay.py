"""Replays that end, carried out by an operator that is killed, with a real API server, a real broker and the agent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiserver.offsets import committed, produce
from apiserver.own_topics import Own
from support.clients import ClientKind, ConsumerFleet
from support.operator_process import OperatorProcess, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

PARTITIONS = 2
WRITTEN = 200


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def fleet(own: Own, unique: Unique, topic: str) -> Iterator[ConsumerFleet]:
    """Two consumers with the agent, which have read and committed everything."""
    assert own.control.ensure() == ()
    produce(own.bootstrap, topic, PARTITIONS, WRITTEN)
    with ConsumerFleet(
        ClientKind.LIBRDKAFKA,
        own.bootstrap,
        unique("group"),
        [topic],
        members=2,
        agent=True,
        control_topic=own.control_topic,
        auto_commit_interval_s=0.5,
    ) as consumers:
        group = consumers.options.group
        until(lambda: all(len(given(consumers, n)) == WRITTEN for n in range(PARTITIONS)), "all is read", timeout_s=90)
        until(lambda: stands(own, group, topic, WRITTEN), "all is committed")
        until(lambda: own.managed(group), "its owners are known to run the agent")
        yield consumers


def stands(own: Own, group: str, topic: str, offset: int) -> bool:
    return committed(own.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), offset)


def given(fleet: ConsumerFleet, partition: int) -> list[int]:
    return [d.offset for d in fleet.records() if d.partition == partition]


def test_an_operator_that_is_killed_while_a_group_replays_returns_it_when_it_is_back(
    own: Own, operator: OperatorProcess, fleet: ConsumerFleet, topic: str, unique: Unique
) -> None:
    resources, group, p = own.resources, fleet.options.group, unique("p")
    resources.reset(p, group, {"offset": 20}, until={"offset": 70}, drainTimeout="5s")
    until(lambda: resources.get_reset(p).get("status", {}).get("phase") == "Replaying", "it replays", pause_s=0.01)
    operator.kill()
    replayed = [*range(WRITTEN), *range(20, 70)]
    until(lambda: all(given(fleet, n) == replayed for n in range(PARTITIONS)), "everything up to the end was read")
    produce(own.bootstrap, topic, PARTITIONS, 5)
    operator.start()

    done = resources.wait_phase(p, "Succeeded", "Failed", "RolledBack")
    assert (done["status"]["phase"], condition_of(done, "Complete")["reason"]) == ("Succeeded", "Returned"), done
    assert done["status"]["replay"]["progress"] == f"100% ({PARTITIONS}/{PARTITIONS} partitions)"
    assert done["status"]["plan"]["recordsReplayed"] == 50 * PARTITIONS
    new = [*replayed, *range(WRITTEN, WRITTEN + 5)]
    until(lambda: all(given(fleet, n) == new for n in range(PARTITIONS)), "it goes on where it was, and nowhere else")
    gates = own.control.read()
    assert not gates.limits
    assert not own.holders()


def test_a_group_that_is_to_stay_paused_at_the_end_goes_on_there_once_its_pause_is_deleted(
    own: Own, operator: OperatorProcess, fleet: ConsumerFleet, topic: str, unique: Unique
) -> None:
    resources, group, p = own.resources, fleet.options.group, unique("p")
    resources.reset(p, group, {"offset": 20}, until={"offset": 70, "then": "Pause"}, drainTimeout="5s")

    done = resources.wait_phase(p, "Succeeded", "Failed", "RolledBack")
    assert (done["status"]["phase"], condition_of(done, "Complete")["reason"]) == ("Succeeded", "Paused"), done
    pause = resources.get_pause(f"{p}-end")
    assert condition_of(pause, "Paused")["status"] == "True"
    assert not own.control.read().limits
    assert len(own.holders()) == 1
    assert committed(own.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 70)
    # Also an owner that is new to the partitions reads nothing.
    fleet.stop_member(fleet.members()[0])
    fleet.wait_assigned([(topic, n) for n in range(PARTITIONS)], members=1)
    replayed = [*range(WRITTEN), *range(20, 70)]
    assert all(given(fleet, n) == replayed for n in range(PARTITIONS))
    assert committed(own.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 70)

    resources.delete_pause(f"{p}-end")
    until(lambda: all(given(fleet, n)[-1] == WRITTEN - 1 for n in range(PARTITIONS)), "it goes on to the end")
    assert all(given(fleet, n) == [*replayed, *range(70, WRITTEN)] for n in range(PARTITIONS))
    assert not own.holders()
