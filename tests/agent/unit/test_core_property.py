"""Whatever happens in whatever order: an acked partition delivers and commits nothing, and no record is left out."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.unit.simulated import P0, Client, Consumer
from tidegate_agent.partition_state import Stage
from tidegate_agent.start import Rule, Start

NOW_MS = 1_763_700_000_000


class PausesResetsAndRebalances(RuleBasedStateMachine):
    """One partition, two holders, an application that commits by hand or not, and resets inside acked gates only."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer = self.member()
        self.ticket = 1
        self.consumer.assign(P0)
        self.held: set[str] = set()
        self.in_hand: list[int] = []
        self.expected = 0
        """The next record an uninterrupted application would be given, at most."""

    def member(self) -> Consumer:
        return Consumer()

    @property
    def client_is_stopped(self) -> bool:
        return P0 in self.consumer.client.paused

    @rule(count=st.integers(1, 3))
    def poll(self, count: int) -> None:
        before = len(self.consumer.client.delivered)
        self.consumer.client.deliver(P0, count)
        for _, offset in self.consumer.client.delivered[before:]:
            assert offset <= self.expected, f"{offset} was delivered although {self.expected} is next: records left out"
            self.expected = max(self.expected, offset + 1)
            self.in_hand.append(offset)

    @rule()
    def commit(self) -> None:
        position = self.consumer.client.position[P0]
        if position is not None:
            self.consumer.commit(P0, position)

    @rule(behind=st.integers(0, 5))
    def commit_late(self, behind: int) -> None:
        """A worker that is slow: an offset it was given at some time, also before a rebalance."""
        if self.in_hand:
            self.consumer.commit(P0, self.in_hand[-1 - min(behind, len(self.in_hand) - 1)] + 1)

    @rule(holder=st.sampled_from("ab"), drain_s=st.sampled_from([0.0, 1.0, 30.0]))
    def hold(self, holder: str, drain_s: float) -> None:
        self.held.add(holder)
        self.consumer.hold(P0, holder, drain_s)

    @rule(holder=st.sampled_from("ab"))
    def release(self, holder: str) -> None:
        self.held.discard(holder)
        self.consumer.release(P0, holder)

    @rule(seconds=st.sampled_from([0.0, 0.03, 0.5, 2.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.consumer.run(seconds)

    @rule()
    def do_one_thing(self) -> None:
        """The driver is slow: things happen between two of its steps."""
        effect = self.consumer.core.work(self.consumer.now)
        if effect is not None:
            self.consumer.perform(effect)

    @precondition(lambda self: self.held and self.consumer.core.stage(P0) is Stage.CLOSED and self.is_acked())
    @rule(offset=st.integers(0, 20))
    def reset(self, offset: int) -> None:
        self.consumer.client.committed[P0] = offset
        self.expected = offset

    @rule()
    def rebalance(self) -> None:
        self.ticket += 1
        self.consumer.core.revoked([P0], {P0: self.consumer.client.position[P0]})
        self.consumer.assign(P0, ticket=self.ticket)

    def is_acked(self) -> bool:
        gate = self.consumer.core.known.gate("g", P0)
        ack = self.consumer.last_ack()
        return gate is not None and ack is not None and ack[0] >= gate.epoch

    @invariant()
    def an_acked_gate_stands_still(self) -> None:
        if self.is_acked():
            assert self.client_is_stopped
            assert self.consumer.core.sealed() == {P0}

    def teardown(self) -> None:
        for holder in tuple(self.held):
            self.release(holder)
        self.consumer.run(200)
        assert self.consumer.core.stage(P0) is Stage.OPEN
        assert not self.client_is_stopped
        self.poll(1)


TestPausesResetsAndRebalances = PausesResetsAndRebalances.TestCase
TestPausesResetsAndRebalances.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


class PausesResetsAndRebalancesOfANewPartition(PausesResetsAndRebalances):
    """The same at ``latest``, of a partition with records that was made a moment ago: none of them is left out.

    Discovery comes to it sometime or never; that the topic was made anew is known from the start.
    """

    def member(self) -> Consumer:
        consumer = Consumer(client=Client(log_end={P0: 50}), rule=Rule(Start.EARLIEST, 3_600_000))
        consumer.tick(NOW_MS)
        consumer.discover(P0, topic_id="before")
        consumer.identify()
        return consumer

    @rule()
    def tell_the_broker_s_time(self) -> None:
        self.consumer.tick(NOW_MS + round(self.consumer.now * 1000))

    @rule()
    def discover(self) -> None:
        self.consumer.discover(P0, NOW_MS)


TestPausesResetsAndRebalancesOfANewPartition = PausesResetsAndRebalancesOfANewPartition.TestCase
TestPausesResetsAndRebalancesOfANewPartition.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None
)
