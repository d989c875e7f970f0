"""Traces of groups, look by look: what is stuck is found, and nothing else ever is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from tidegate.kafka.model import Group, GroupState, GroupType, Member, RecordHead, TopicPartition
from tidegate.stuck.courses import LEAST_MOVES, Courses, Look, Pace, owners_of
from tidegate.stuck.judging import Judged, Readable, Verdict, judge, to_read

P, Q, R = (TopicPartition("orders", n) for n in range(3))
AFTER_S = 20.0
TICK_S = 2.0
AT = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass
class Trace:
    """Looks at partitions that begin at 0, with whatever a test does in between. ``unreadable``: offsets without a
    record."""

    committed: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    withheld: set[TopicPartition] = field(default_factory=set)
    elsewhere: dict[TopicPartition, str] = field(default_factory=dict)
    unreadable: set[tuple[TopicPartition, int]] = field(default_factory=set)
    courses: Courses = field(default_factory=Courses)
    readable: dict[TopicPartition, Readable] = field(default_factory=dict)
    now_s: float = 1000.0
    found: dict[TopicPartition, tuple[float, Judged]] = field(default_factory=dict)
    """When each was found first."""

    @classmethod
    def of(cls, *partitions: TopicPartition, owner: str = "a") -> Trace:
        return cls(dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 0), dict.fromkeys(partitions, owner))

    def look(self) -> Mapping[TopicPartition, Judged]:
        look = Look(
            self.now_s,
            dict(self.owners),
            dict(self.committed),
            dict(self.ends),
            frozenset(self.withheld),
            dict(self.elsewhere),
        )
        self.courses.take(look, 4 * TICK_S)
        for partition, offset in to_read(self.courses, self.readable, AFTER_S).items():
            records = (o for o in range(offset, self.ends[partition]) if (partition, o) not in self.unreadable)
            first = next(records, None)
            head = None if first is None else RecordHead(first, AT, 10, 0)
            self.readable[partition] = Readable(offset, head, self.now_s)
        judged = judge(self.courses, self.readable, AFTER_S)
        for partition, it in judged.items():
            self.found.setdefault(partition, (self.now_s, it))
        self.now_s += TICK_S
        return judged

    def run(self, seconds: float, step: Callable[[], None] = lambda: None) -> None:
        for _ in range(int(seconds / TICK_S)):
            step()
            self.look()

    def produce(self, *partitions: TopicPartition, records: int = 1) -> None:
        for partition in partitions:
            self.ends[partition] += records

    def read(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.committed[partition] = self.ends[partition]

    def steady(self, seconds: float, *partitions: TopicPartition) -> None:
        """Records come, and are read and committed from one look to the next."""

        def step() -> None:
            self.read(*partitions)
            self.produce(*partitions)

        self.run(seconds, step)


def test_a_record_that_its_consumer_does_not_get_past_is_found_in_time() -> None:
    trace = Trace.of(P)
    trace.steady(60, P)
    planted_s = trace.now_s
    trace.run(60, lambda: trace.produce(P))
    at_s, it = trace.found[P]
    assert (it.verdict, it.committed, it.head.offset) == (Verdict.STUCK, trace.committed[P], trace.committed[P])
    assert AFTER_S <= at_s - planted_s <= 30


def test_other_partitions_that_go_on_do_not_hide_it() -> None:
    trace = Trace.of(P, Q, R)
    trace.steady(60, P, Q, R)

    def step() -> None:
        trace.read(Q, R)
        trace.produce(P, Q, R)

    planted_s = trace.now_s
    trace.run(60, step)
    assert trace.found.keys() == {P}
    assert trace.found[P][1].verdict is Verdict.STUCK
    assert trace.found[P][0] - planted_s <= 30


def test_the_record_is_named_and_not_the_gap_before_it() -> None:
    trace = Trace.of(P)
    trace.steady(60, P)
    trace.unreadable |= {(P, trace.committed[P]), (P, trace.committed[P] + 1)}
    trace.run(60, lambda: trace.produce(P))
    assert trace.found[P][1].head.offset == trace.committed[P] + 2


# --- nothing is said --------------------------------------------------------------------------------------------------


def quiet(trace: Trace) -> None:
    assert trace.found == {}


def test_an_idle_partition_and_one_whose_log_does_not_grow() -> None:
    trace = Trace.of(P, Q)
    trace.steady(60, P, Q)
    trace.read(P)  # in Q a record is left, after which none comes
    trace.run(1800)
    quiet(trace)


def test_a_partition_that_was_never_seen_moving() -> None:
    """A consumer that keeps its place elsewhere commits nothing, and lives."""
    trace = Trace.of(P)
    trace.run(1800, lambda: trace.produce(P))
    quiet(trace)


def test_a_slow_consumer_that_commits_large_batches() -> None:
    trace = Trace.of(P)
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        trace.produce(P, records=5)
        if turn % 20 == 0:  # every 40 s
            trace.read(P)

    trace.run(1800, step)
    quiet(trace)


def test_intervals_that_vary_threefold() -> None:
    for seed in range(20):
        chance, trace = random.Random(seed), Trace.of(P)
        left = 0.0

        def step(chance: random.Random = chance, trace: Trace = trace) -> None:
            nonlocal left
            trace.produce(P)
            left -= TICK_S
            if left <= 0:
                trace.read(P)
                left = chance.uniform(15, 45)

        trace.run(1800, step)
        quiet(trace)


def test_one_interval_that_is_more_than_twice_as_long_as_any_before() -> None:
    trace, turn = Trace.of(P), 0

    def step() -> None:
        nonlocal turn
        turn += 1
        trace.produce(P)
        if turn % 5 == 0:  # every 10 s
            trace.read(P)

    trace.run(120, step)
    longest_s = trace.courses.paces[P].longest_s
    trace.run(2 * longest_s + 6, lambda: trace.produce(P))
    quiet(trace)
    trace.run(longest_s + 4, lambda: trace.produce(P))
    assert trace.found.keys() == {P}


def test_a_backlog_that_is_read_in_slow_batches_counts_as_slow() -> None:
    """Nothing came meanwhile; what comes afterwards is read as slowly."""
    trace = Trace.of(P)
    trace.produce(P, records=1000)
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        if turn % 15 == 0:  # every 30 s
            trace.committed[P] += 50

    trace.run(300, step)

    def later() -> None:
        trace.produce(P)
        step()

    trace.run(300, later)
    quiet(trace)


def test_a_transactions_marker_at_the_end_of_an_idle_log() -> None:
    trace = Trace.of(P)

    def step() -> None:
        trace.committed[P] = max(0, trace.ends[P] - 1)
        trace.produce(P, records=2)
        trace.unreadable.add((P, trace.ends[P] - 1))

    trace.run(60, step)
    trace.committed[P] = trace.ends[P] - 1
    trace.run(600)
    step()
    trace.run(4)
    quiet(trace)


def test_aborted_transactions_only_and_then_a_record() -> None:
    """The log grows by what nobody is given; the first record that is has to wait for its own time."""
    trace = Trace.of(P)
    trace.steady(60, P)
    trace.read(P)

    def aborted() -> None:
        trace.unreadable |= {(P, trace.ends[P]), (P, trace.ends[P] + 1)}
        trace.produce(P, records=2)

    trace.run(600, aborted)
    trace.produce(P)
    trace.run(8, aborted)
    quiet(trace)


def test_an_open_transaction_keeps_readers_of_committed_records_waiting() -> None:
    """The end that counts is the last stable offset, which stands as well."""
    trace = Trace.of(P)
    trace.steady(60, P)
    trace.read(P)
    trace.run(1800)
    trace.produce(P, records=500)
    trace.run(4)
    quiet(trace)


def test_a_partition_that_is_held() -> None:
    trace = Trace.of(P)
    trace.steady(60, P)
    trace.withheld.add(P)
    trace.run(600, lambda: trace.produce(P))
    trace.withheld.clear()
    trace.run(18, lambda: trace.produce(P))
    quiet(trace)


def test_owners_that_change_all_the_time() -> None:
    trace = Trace.of(P)
    trace.steady(60, P)
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        trace.produce(P)
        trace.owners = {P: f"member-{turn // 5}"} if turn % 5 else {}

    trace.run(1800, step)
    quiet(trace)


def test_owners_that_follow_one_another_at_once() -> None:
    trace = Trace.of(P)
    trace.steady(60, P)
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        trace.produce(P)
        trace.owners = {P: f"member-{turn // 5}"}

    trace.run(1800, step)
    quiet(trace)


def test_nobody_looked_for_a_while() -> None:
    """As when the brokers were away, and nobody could commit."""
    trace = Trace.of(P)
    trace.steady(60, P)
    trace.produce(P)
    trace.look()
    trace.now_s += 600
    trace.produce(P, records=100)
    trace.run(18, lambda: trace.produce(P))
    quiet(trace)


def test_a_partition_that_waits_while_its_owner_works_off_another_ones_backlog() -> None:
    trace = Trace.of(P, Q)
    trace.steady(60, P, Q)
    trace.produce(Q, records=10_000)

    def step() -> None:
        trace.produce(P)
        trace.committed[Q] += 10

    trace.run(1200, step)
    quiet(trace)


def test_a_partition_that_waits_while_its_owner_works_off_one_that_is_not_watched() -> None:
    trace = Trace.of(P)
    trace.elsewhere[Q] = "a"
    trace.steady(60, P)

    def step() -> None:
        trace.produce(P)
        trace.committed[Q] = trace.committed.get(Q, 0) + 10

    trace.run(600, step)
    quiet(trace)


def test_a_partition_that_waits_while_its_owner_works_off_the_first_records_of_another() -> None:
    """Of which nothing was committed when this one began to wait."""
    trace = Trace.of(P)
    trace.elsewhere[Q] = "a"
    trace.ends[Q] = 10_000
    trace.steady(60, P)
    trace.run(10, lambda: trace.produce(P))
    del trace.elsewhere[Q]
    trace.owners[Q], trace.committed[Q] = "a", 0

    def step() -> None:
        trace.produce(P)
        trace.committed[Q] += 10

    trace.run(600, step)
    quiet(trace)


# --- which of several -------------------------------------------------------------------------------------------------


def test_all_partitions_of_a_member_stand_and_none_is_named_alone() -> None:
    trace = Trace.of(P, Q)
    trace.steady(60, P, Q)
    trace.run(60, lambda: trace.produce(P, Q))
    assert {p: (it.verdict, it.among) for p, (_, it) in trace.found.items()} == {
        P: (Verdict.ONE_OF_SEVERAL, (P, Q)),
        Q: (Verdict.ONE_OF_SEVERAL, (P, Q)),
    }


def test_one_that_was_read_first_and_stands_since_may_be_what_holds_up_the_other() -> None:
    trace = Trace.of(P, Q)
    trace.steady(60, P, Q)
    trace.look()
    trace.produce(P)
    trace.look()
    trace.read(Q)
    trace.run(60, lambda: trace.produce(P, Q))
    assert {it.verdict for _, it in trace.found.values()} == {Verdict.ONE_OF_SEVERAL}


def test_what_comes_to_an_idle_partition_long_afterwards_is_not_what_holds_it_up() -> None:
    trace = Trace.of(P, Q)
    trace.steady(60, P, Q)
    trace.read(Q)
    trace.run(16, lambda: trace.produce(P))
    trace.run(12, lambda: trace.produce(P, Q))
    assert trace.found[P][1].verdict is Verdict.STUCK


def test_one_that_is_not_watched_may_be_what_holds_up_the_other() -> None:
    trace = Trace.of(P)
    trace.elsewhere |= {Q: "a", R: "b"}
    trace.steady(60, P)
    trace.run(60, lambda: trace.produce(P))
    assert {p: (it.verdict, it.among) for p, (_, it) in trace.found.items()} == {P: (Verdict.ONE_OF_SEVERAL, (P, Q))}


def test_partitions_of_other_members_are_no_reason() -> None:
    trace = Trace.of(P, Q)
    trace.owners[Q] = "b"
    trace.steady(60, P, Q)
    trace.run(60, lambda: trace.produce(P, Q))
    assert {it.verdict for _, it in trace.found.values()} == {Verdict.STUCK}


# --- what is learned --------------------------------------------------------------------------------------------------


def test_a_pace_is_known_after_a_few_moves_and_outlives_a_change_of_owner() -> None:
    trace = Trace.of(P)
    trace.steady(TICK_S * (LEAST_MOVES + 2), P)
    assert trace.courses.paces[P].is_known
    trace.owners[P] = "b"
    planted_s = trace.now_s
    trace.run(40, lambda: trace.produce(P))
    assert trace.found[P][0] - planted_s <= 30


def test_the_longest_interval_is_forgotten_slowly() -> None:
    pace = Pace().moved(100)
    assert pace.moved(1).longest_s == pytest.approx(99.8)
    assert pace.moved(200).longest_s == 200
    for _ in range(5000):
        pace = pace.moved(1)
    assert pace.longest_s == 1


def test_going_back_is_no_move() -> None:
    trace = Trace.of(P)
    trace.produce(P, records=100)
    for offset in (90, 80, 70, 60, 50, 40, 30):
        trace.committed[P] = offset
        trace.look()
    assert not trace.courses.paces.get(P, Pace()).is_known


@pytest.mark.parametrize("state", [state for state in GroupState if state is not GroupState.STABLE])
def test_nobody_owns_anything_unless_the_group_is_stable(state: GroupState) -> None:
    member = Member("m", "c", "h", assignment=frozenset({P}))
    assert owners_of(Group("g", state, GroupType.CLASSIC, members=(member,))) == {}
    assert owners_of(Group("g", GroupState.STABLE, GroupType.CLASSIC, members=(member,))) == {P: "m"}
