"""Two processes of one operator, with a real API server and a real broker: the newer one works, the other one ends."""

from __future__ import annotations

import pytest

from apiserver.conftest import StartOperator
from apiserver.own_topics import Own
from support.operator_process import OperatorProcess, until
from support.stack_fixtures import MakeTopic, Unique


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(1)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


def pauses(own: Own, group: str, topic: str, name: str) -> str:
    """A pause of this name; its holder, once the partition is held for it."""
    uid = own.resources.pause(name, group, {"topic": topic, "partitions": [0]}, reason=name)["metadata"]["uid"]
    return str(until(lambda: next((h for h in own.holders() if h.endswith(uid)), ""), f"{name} is held"))


def says_that_it_was_replaced(operator: OperatorProcess, own: Own) -> bool:
    log = operator.log.read_text()
    return (
        f"another process of this operator writes topic {own.control_topic} now; this process stops its work" in log
        and "tidegate: ended: " in log
        and "Traceback" not in log
    )


def test_a_process_that_was_frozen_while_another_one_took_over_ends_and_changes_nothing(
    own: Own, operator: OperatorProcess, start_operator: StartOperator, topic: str, group: str
) -> None:
    """Neither is asked to end: what comes back finds out by itself, also where it has nothing to write."""
    first = pauses(own, group, topic, "first")
    operator.freeze()
    try:
        successor = start_operator()
        # It takes over before it writes anything; what is in the topic already needs no write.
        second = pauses(own, group, topic, "second")
        own.resources.delete_pause("first")
        until(lambda: own.holders() == {second}, f"{first} is released")
    finally:
        operator.thaw()

    assert operator.ended(120) == 3
    assert says_that_it_was_replaced(operator, own), operator.tail()
    assert own.holders() == {second}
    assert successor.get("/healthz")[0] == 200
    third = pauses(own, group, topic, "third")
    assert own.holders() == {second, third}
    assert own.resources.wait_connection("kafka")


@pytest.mark.parametrize("turns", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_process_that_is_started_again_takes_over_and_the_other_one_ends(
    own: Own, operator: OperatorProcess, start_operator: StartOperator, topic: str, group: str, turns: int
) -> None:
    """As the kubelet starts it again: two that live replace each other in turn, and one of them works at any time."""
    held = {pauses(own, group, topic, "first")}
    successor = start_operator()
    for name, replaced, newest in [("second", operator, successor), ("third", successor, operator)][:turns]:
        if not newest.running:
            newest.start()
        held.add(pauses(own, group, topic, name))
        assert replaced.ended(120) == 3
        assert says_that_it_was_replaced(replaced, own), replaced.tail()
        assert newest.get("/healthz")[0] == 200
        assert own.holders() == held
