"""Which commits pass a consumer's gate, whichever client sends them."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from tidegate_agent.adapters.consumer_gate import ConsumerGate, transaction_begins
from tidegate_agent.ages import Clock
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Committed, Position, Seek, SendAcks
from tidegate_agent.gates import Gate, Known, LimitGate, Partition
from tidegate_agent.start import Rule, Start

P0, P1 = Partition("orders", 0), Partition("orders", 1)


class FakeLink:
    """A control topic that was read, and that has the acks at once."""

    def __init__(self) -> None:
        self.known = Known(taken=1, answered=1, generation=1)
        self.acks: dict[Partition, tuple[int, int]] = {}
        self.named: set[str] = set()

    def ask(self, topics: Collection[str] = ()) -> int:
        self.named |= set(topics)
        return 1

    def listen(self, changed: Callable[[], None]) -> None: ...

    def unlisten(self, changed: Callable[[], None]) -> None: ...

    def send_acks(
        self,
        _group: str,
        _member: str,
        acks: Mapping[Partition, tuple[int, int]],
        _generation: int,
        done: Callable[[bool], None],
    ) -> None:
        self.acks.update(acks)
        done(True)

    def close_gate(self, group: str, partition: Partition, epoch: int = 5) -> None:
        self.known = replace(self.known, gates={(group, partition): Gate(epoch, 30.0, ())}, taken=epoch)

    def open_gates(self) -> None:
        self.known = replace(self.known, gates={}, taken=self.known.taken + 1)


class Client:
    """A consumer that was given what ``delivered`` says; the core's work is done at once."""

    def __init__(self, group: str | None = None, rule: Rule | None = None) -> None:
        self.group = group or f"g-{uuid.uuid4().hex}"
        self.link = FakeLink()
        self.delivered: dict[Partition, int | None] = {}
        self.committed: dict[Partition, int] = {}
        self.woken = 0
        self.begun: set[Partition] = set()
        self.gate = ConsumerGate(Core(self.group, rule=rule), self.link, self._delivered, self._wake)

    def _delivered(self, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        return {p: self.delivered.get(p) for p in partitions}

    def _wake(self) -> None:
        self.woken += 1

    def assign(self, *partitions: Partition) -> None:
        assert set(self.gate.reassign({}, partitions)) == set(partitions)
        self.work()

    def commit(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """What reached the broker."""
        passed = self.gate.commit_begins(offsets)
        sent = {p: offset for p, offset in offsets.items() if p not in passed.dropped}
        self.committed.update(sent)
        passed.ends()
        return set(sent)

    def work(self) -> None:
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            while (effect := self.gate.work()) is not None:
                match effect:
                    case Position():
                        self.gate.done(effect, self._delivered(effect.partitions))
                    case Committed():
                        self.gate.committed(effect, {p: self.committed.get(p) for p in effect.partitions})
                    case Seek():
                        self.gate.done(effect, list(effect.offsets))
                    case Begin():
                        self.begun |= set(effect.partitions)
                        self.gate.done(effect, effect.partitions)
                    case SendAcks():
                        self.link.send_acks(self.group, "m", effect.acks, effect.generation, lambda _: None)
                        self.gate.done(effect)
                    case _:
                        self.gate.done(effect)
            wait = self.gate.wakes_in()
            if wait is None:
                return
            time.sleep(min(wait, 0.05))


@pytest.fixture
def client() -> Client:
    return Client()


def test_open_partitions_commits_pass(client: Client) -> None:
    client.assign(P0, P1)
    assert client.commit({P0: 1, P1: 2}) == {P0, P1}


def test_a_closed_partitions_commits_are_dropped_and_the_others_pass(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.assign(P0, P1)
    client.delivered[P0], client.committed[P0] = 4, 4
    client.link.close_gate(client.group, P0)
    client.work()
    assert client.link.acks[P0] == (5, 4)
    with caplog.at_level(logging.WARNING, "tidegate_agent"):
        assert client.commit({P0: 3, P1: 2}) == {P1}
    assert "dropping commits" in caplog.text


def test_an_auto_commit_that_says_nothing_new_is_dropped_without_a_word(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.assign(P0, P1)
    client.delivered[P0], client.committed[P0] = 4, 4
    client.link.close_gate(client.group, P0)
    client.work()
    with caplog.at_level(logging.WARNING, "tidegate_agent"):
        assert client.commit({P0: 4, P1: 2}) == {P1}
    assert caplog.text == ""


def test_what_was_closed_when_it_was_taken_away_is_not_committed_afterwards(client: Client) -> None:
    client.assign(P0)
    client.link.close_gate(client.group, P0)
    client.work()
    client.gate.reassign({P0: None}, ())
    client.link.open_gates()
    assert client.commit({P0: 4}) == set()
    client.assign(P0)
    assert client.commit({P0: 4}) == {P0}


def test_nothing_is_committed_for_a_closed_partition_of_another_owner(client: Client) -> None:
    client.assign(P1)
    client.link.close_gate(client.group, P0)
    assert client.commit({P0: 4, P1: 1}) == {P1}


def test_the_end_of_a_commit_wakes_whoever_waits_for_it(client: Client) -> None:
    client.assign(P0)
    client.delivered[P0], client.committed[P0] = 4, 4
    passed = client.gate.commit_begins({P0: 4})
    client.link.close_gate(client.group, P0)
    client.work()
    assert client.link.acks[P0] == (1, -1)
    passed.ends()
    assert client.woken == 1
    client.work()
    assert client.link.acks[P0] == (5, 4)


def test_a_transactions_offsets_pass_the_gate_of_their_owner() -> None:
    first = Client()
    second = Client(first.group)
    first.assign(P0)
    second.assign(P1)
    for client in (first, second):
        client.link.close_gate(first.group, P0)
        client.work()
    assert transaction_begins(first.group, {P0: 1, P1: 1}).dropped == {P0}


def test_a_transaction_of_a_group_without_consumers_here_passes() -> None:
    assert transaction_begins("nobody's", {P0: 1}).dropped == set()


def test_what_the_application_paused_is_told_apart(client: Client) -> None:
    client.assign(P0, P1)
    client.gate.pause([P0])
    client.link.close_gate(client.group, P1)
    client.work()
    assert client.gate.app_paused == {P0}
    assert client.gate.resume([P0, P1]) == (P0,)
    assert client.gate.app_paused == set()


def test_the_clients_own_position_is_not_committed_before_it_is_decided_where_the_partition_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(rule=Rule(Start.EARLIEST))
    client.link.known = replace(client.link.known, answered=0, clock=Clock(0, time.monotonic(), is_live=True))
    assert set(client.gate.reassign((), (P0, P1))) == {P0, P1}
    client.committed[P1] = 4
    with caplog.at_level(logging.WARNING, "tidegate_agent"):
        assert client.commit({P0: 100, P1: 100}) == set()
    assert caplog.text == "", "it is the client that commits by itself"
    client.link.known = replace(client.link.known, answered=1, clock=None)
    client.work()
    assert client.commit({P0: 100, P1: 5}) == {P0, P1}


@pytest.mark.parametrize(("rule", "named"), [(Rule(Start.EARLIEST), {"orders"}), (None, set())])
def test_topics_are_named_only_where_new_partitions_are_told_apart(rule: Rule | None, named: set[str]) -> None:
    client = Client(rule=rule)
    client.assign(P0, P1)
    assert client.link.named == named


class Record(NamedTuple):
    offset: int


def test_of_a_batch_in_which_the_limit_lies_only_what_is_before_it_passes(client: Client) -> None:
    batch = [Record(7), Record(8), Record(9)]
    client.assign(P0, P1)
    assert client.gate.below_limit(P0, batch) == 3
    client.link.known = replace(client.link.known, limits={(client.group, P0): LimitGate(6, 8, 30.0, ())}, taken=6)
    assert client.gate.below_limit(P1, batch) == 3
    assert client.gate.below_limit(P0, batch) == 1
    assert client.woken == 1
    client.delivered[P0] = client.committed[P0] = 8
    client.work()
    assert client.link.acks[P0] == (6, 8)
