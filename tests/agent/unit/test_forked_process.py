"""A forked process makes consumers of its own: what threads of its parent held at that moment does not hinder it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.unit.simulated import P0
from support.forks import WITHIN_S, true_in_child
from tidegate_agent import process
from tidegate_agent.adapters import confluent, consumer_gate
from tidegate_agent.adapters.consumer_gate import ConsumerGate, Unreachable, transaction_begins
from tidegate_agent.core import Core


@contextmanager
def held_elsewhere(lock: Any) -> Iterator[None]:
    """A thread that does not exist in the child has the lock."""
    has_it, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_it.set()
            done.wait(2 * WITHIN_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_it.wait(WITHIN_S)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_child_has_a_link_of_its_own() -> None:
    connection = {"bootstrap.servers": "127.0.0.1:1"}
    of_parent = process.link(connection)
    with held_elsewhere(process._process.lock):
        assert true_in_child(lambda: process.link(connection) is not of_parent)
    assert process.link(connection) is of_parent


def test_a_childs_transactions_have_nothing_to_do_with_its_parents_consumers() -> None:
    gate = ConsumerGate(Core("forking"), Unreachable(), lambda _: {}, lambda: None)
    gate.reassign({}, [P0])
    with held_elsewhere(gate._lock):
        assert true_in_child(lambda: transaction_begins("forking", {P0: 3}).calls == ())
    assert transaction_begins("forking", {P0: 3}).calls


def test_a_parents_consumer_can_be_given_up_in_the_child() -> None:
    gate = ConsumerGate(Core("forking"), Unreachable(), lambda _: {}, lambda: None)

    def is_given_up() -> bool:
        gate.reassign({P0: 3}, [])
        return gate.closed

    with held_elsewhere(gate._lock):
        assert true_in_child(is_given_up)
    assert not gate.closed
    assert consumer_gate._of_group["forking"]


def test_a_childs_exactly_once_application_does_not_wait_for_its_parents_threads() -> None:
    def is_free() -> bool:
        with confluent._metadata_lock:
            return True

    with held_elsewhere(confluent._metadata_lock):
        assert true_in_child(is_free)
