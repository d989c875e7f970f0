"""The rules, by short histories: for each a failing one, and a twin that passes and differs only in what matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

import pytest

from support.deliveries import Partition
from support.history import (
    Begin,
    Commit,
    CommitRow,
    Committed,
    End,
    History,
    Hold,
    Operation,
    Outcome,
    Ownership,
    Phase,
    Place,
    Poll,
    Process,
    Record,
    ResetBegin,
    ResetEnd,
    Send,
    Transaction,
    Untold,
    in_order,
)
from support.history_checker import Judgement, Rule, judge

P: Partition = ("orders", 0)
Q: Partition = ("orders", 1)
UNAWARE_S = 3.0

Told = list[Callable[[float], Operation]]
"""Operations, each of which gets the second that it is the turn of."""


def log(end: int, partition: Partition = P) -> Told:
    """The offsets up to `end` are acknowledged, all in one second."""
    return [lambda t, o=o: Send(t, *partition, Outcome.ACKED, o, f"v{o}") for o in range(end)]  # type: ignore[misc]


def polls(member: str, offsets: Iterable[int], partition: Partition = P, value: str = "v") -> Told:
    return [lambda t: Poll(t, member, tuple(Record(*partition, o, f"{value}{o}") for o in offsets))]


def owns(member: str, *partitions: Partition) -> Told:
    return [lambda t: Ownership(t, member, partitions or (P,), "assign")]


def gives_up(member: str, *partitions: Partition) -> Told:
    return [lambda t: Ownership(t, member, partitions or (P,), "revoke")]


def commits(member: str | None, offset: int, partition: Partition = P, error: str | None = None) -> Told:
    return [lambda t: Commit(t, member, (CommitRow(*partition, offset, error),), error)]


def is_seen(offset: int, partition: Partition = P) -> Told:
    return [lambda t: Committed(t, 0.0, (Place(*partition, offset),))]


def sends_offset(member: str, offset: int) -> Told:
    return [lambda t: Transaction(t, member, (Place(*P, offset),), "offsets-sent")]


def transaction_is_over(member: str, offset: int) -> Told:
    return [lambda t: Transaction(t, member, (Place(*P, offset),), "offsets-over")]


def crashes(member: str) -> Told:
    return [lambda t: Process(t, "p", (member,), "kill")]


def sleeps(member: str) -> Told:
    return [lambda t: Process(t, "p", (member,), "freeze")]


def wakes(member: str) -> Told:
    return [lambda t: Process(t, "p", (member,), "thaw")]


def asks(target: int, run: str = "r1", partition: Partition = P) -> Told:
    return [lambda t: ResetBegin(t, run, (Place(*partition, target),))]


def is_done(phase: Phase = Phase.SUCCEEDED, run: str = "r1") -> Told:
    return [lambda t: ResetEnd(t, run, phase)]


def pauses(*partitions: Partition) -> Told:
    return [lambda t: Hold(t, partitions, "pause")]


def resumes(*partitions: Partition) -> Told:
    return [lambda t: Hold(t, partitions, "resume")]


def time_passes(seconds: int) -> Told:
    return [lambda t: Process(t, None, (), "start")] * seconds


def history(*told: Told, drained: bool = True, untold: tuple[Untold, ...] = ()) -> History:
    """An operation a second, from a group that began at 0. Sends take no time."""
    operations: list[Operation] = [Begin(0.0, "g", 0.001, UNAWARE_S, (Place(*P, 0), Place(*Q, 0)), untold)]
    t = 1.0
    ends = dict.fromkeys((P, Q), 0)
    for make in chain(*told):
        operations.append(make(t))
        last = operations[-1]
        if isinstance(last, Send):
            ends[last.of] = max(ends.get(last.of, 0), (last.offset or 0) + 1)
        else:
            t += 1.0
    return in_order([*operations, End(t, tuple(Place(*p, o) for p, o in ends.items()), drained)])


@dataclass(frozen=True, slots=True)
class Example:
    """`fails` shows just one breach of the rule; `passes` none, and differs only in what matters. `offsets`, `member`
    and `shows` (the kinds of the operations): what the finding names."""

    rule: Rule
    name: str
    fails: Told
    passes: Told
    offsets: tuple[int, ...]
    member: str | None
    shows: tuple[str, ...]
    drained: bool = field(default=True)


A_READS = log(20) + owns("a") + polls("a", range(20))
A_READS_10 = log(20) + owns("a") + polls("a", range(10))
MOVED_BACK = A_READS_10 + commits("a", 8) + asks(3) + gives_up("a") + owns("b")

EXAMPLES = [
    Example(
        Rule.LOST_WRITE, "nobody was ever given an acknowledged record",
        log(10) + owns("a") + polls("a", [0, 1, 2, 3, 5, 6, 7, 8, 9]),
        log(10) + owns("a") + polls("a", range(10)),
        (4,), None, ("send", "poll"),
    ),
    Example(
        Rule.LOST_WRITE, "a reset forwards leaves out no more than what lies before its target",
        log(20) + owns("a") + polls("a", range(5)) + asks(10) + gives_up("a") + owns("b")
        + polls("b", [10, 11, *range(13, 20)]) + is_done(),
        log(20) + owns("a") + polls("a", range(5)) + asks(10) + gives_up("a") + owns("b")
        + polls("b", range(10, 20)) + is_done(),
        (12,), None, ("send", "poll"),
    ),
    Example(
        Rule.LOST_WRITE, "a forward reset is done once more, backwards: what it left out is wanted again",
        log(20) + owns("a") + polls("a", range(5)) + asks(15) + is_done() + asks(10, "r2") + is_done(run="r2")
        + gives_up("a") + owns("b") + polls("b", [10, 12, *range(13, 20)]),
        log(20) + owns("a") + polls("a", range(5)) + asks(15) + is_done() + asks(10, "r2") + is_done(run="r2")
        + gives_up("a") + owns("b") + polls("b", range(10, 20)),
        (11,), None, ("send", "poll"),
    ),
    Example(
        Rule.UNSEEN, "the group never read the end",
        log(10) + owns("a") + polls("a", range(8)),
        log(10) + owns("a") + polls("a", range(10)),
        (8, 9), "a", ("send", "poll", "end"),
    ),
    Example(
        Rule.UNSEEN, "after a reset the group did not read on to the end, though it had before",
        A_READS + asks(5) + gives_up("a") + owns("b") + polls("b", range(5, 12)) + is_done(),
        A_READS + asks(5) + gives_up("a") + owns("b") + polls("b", range(5, 20)) + is_done(),
        tuple(range(12, 20)), "b", ("send", "poll", "end"),
    ),
    Example(
        Rule.POLL_SKIP, "an owner leaves out records that another was given",
        A_READS_10 + commits("a", 5) + crashes("a") + owns("b") + polls("b", [5, 6, *range(8, 20)]),
        A_READS_10 + commits("a", 5) + crashes("a") + owns("b") + polls("b", range(5, 20)),
        (7,), "b", ("poll",),
    ),
    Example(
        Rule.POLL_SKIP, "forwards, in a partition that was reset, but not to its target",
        A_READS_10 + commits("a", 10) + asks(12) + gives_up("a") + owns("b") + polls("b", range(14, 20)) + is_done()
        + gives_up("b") + owns("c") + polls("c", range(12, 20)),
        A_READS_10 + commits("a", 10) + asks(12) + gives_up("a") + owns("b") + polls("b", range(12, 20)) + is_done()
        + gives_up("b") + owns("c") + polls("c", range(12, 20)),
        # What 10 and 11 are: left out by the reset.
        (12, 13), "b", ("poll",),
    ),
    Example(
        Rule.NONMONOTONIC_POLL, "one and the same owner goes back to what it was never given",
        log(10) + owns("a") + polls("a", range(5)) + commits("a", 5) + gives_up("a") + owns("b") + polls("b", [5, 6])
        + polls("b", range(4, 10)),
        log(10) + owns("a") + polls("a", range(5)) + commits("a", 5) + gives_up("a") + owns("b") + polls("b", [5, 6])
        + polls("b", range(7, 10)),
        (4,), "b", ("poll",),
    ),
    Example(
        Rule.NONMONOTONIC_POLL, "a new owner begins before the last commit",
        A_READS_10 + commits("a", 8) + crashes("a") + owns("b") + polls("b", range(7, 20)),
        A_READS_10 + commits("a", 8) + crashes("a") + owns("b") + polls("b", range(8, 20)),
        (7,), "b", ("poll",),
    ),
    Example(
        Rule.UNTRUE_FAILURE, "a run that failed puts back no further than to what was committed when it began",
        MOVED_BACK + polls("b", range(3, 10)) + commits("b", 10) + is_done(Phase.ROLLED_BACK) + gives_up("b")
        + owns("c") + polls("c", range(7, 20)),
        MOVED_BACK + polls("b", range(3, 10)) + commits("b", 10) + is_done(Phase.ROLLED_BACK) + gives_up("b")
        + owns("c") + polls("c", range(8, 20)),
        (7,), "c", ("reset-begin", "reset-end", "poll"),
    ),
    Example(
        Rule.NONMONOTONIC_POLL, "the commit was refused",
        A_READS_10 + commits("a", 8) + crashes("a") + owns("b") + polls("b", range(20)),
        A_READS_10 + commits("a", 8, error="REBALANCE_IN_PROGRESS") + crashes("a") + owns("b") + polls("b", range(20)),
        (0,), "b", ("poll",),
    ),
    Example(
        Rule.NONMONOTONIC_POLL, "backwards in a partition that was reset, but not to its target",
        MOVED_BACK + polls("b", range(2, 20)) + gives_up("b") + owns("c") + polls("c", range(3, 20)) + is_done(),
        MOVED_BACK + polls("b", range(3, 20)) + gives_up("b") + owns("c") + polls("c", range(3, 20)) + is_done(),
        (2,), "b", ("poll",),
    ),
    Example(
        Rule.NONMONOTONIC_POLL, "backwards in a partition that was not reset; another was",
        A_READS_10 + commits("a", 8) + asks(3, partition=Q) + gives_up("a") + owns("b") + polls("b", range(3, 20))
        + is_done(),
        A_READS_10 + commits("a", 8) + asks(3, partition=P) + gives_up("a") + owns("b") + polls("b", range(3, 20))
        + is_done(),
        (3,), "b", ("poll",),
    ),
    Example(
        Rule.DUPLICATE, "the same owner is given a record twice",
        log(6) + owns("a") + polls("a", range(4)) + polls("a", range(3, 6)),
        log(6) + owns("a") + polls("a", range(4)) + gives_up("a") + owns("a") + polls("a", range(3, 6)),
        (3,), "a", ("poll",),
    ),
    Example(
        Rule.DUPLICATE, "an owner is sent to the target a second time, when the reset is long over",
        A_READS + asks(5) + polls("a", range(5, 19)) + is_done() + polls("a", [19]) + polls("a", range(5, 20)),
        A_READS + asks(5) + polls("a", range(5, 19)) + polls("a", [19]) + polls("a", range(5, 20)) + is_done(),
        (5,), "a", ("poll",),
    ),
    Example(
        Rule.DUPLICATE, "a record that was sent once is in the log twice",
        log(4) + owns("a") + polls("a", range(4)) + [lambda t: Poll(t, "a", (Record(*P, 4, "v3"),))],
        log(4) + owns("a") + polls("a", range(4)) + [lambda t: Poll(t, "a", (Record(*P, 4, "v4"),))],
        (3, 4), None, ("send", "poll"),
    ),
    Example(
        Rule.INCONSISTENT_OFFSETS, "two members were given different records at one offset",
        log(6) + owns("a") + polls("a", range(3)) + crashes("a") + owns("b") + polls("b", [0])
        + [lambda t: Poll(t, "b", (Record(*P, 1, "w"),))] + polls("b", range(2, 6)),
        log(6) + owns("a") + polls("a", range(3)) + crashes("a") + owns("b") + polls("b", [0])
        + [lambda t: Poll(t, "b", (Record(*P, 1, "v1"),))] + polls("b", range(2, 6)),
        (1,), None, ("poll", "send"),
    ),
    Example(
        Rule.UNTRUE_SUCCESS, "nobody began at the target",
        A_READS + asks(5) + is_done(),
        A_READS + asks(5) + is_done() + gives_up("a") + owns("b") + polls("b", range(5, 20)),
        (5,), None, ("reset-begin", "reset-end", "end"),
    ),
    Example(
        Rule.UNTRUE_SUCCESS, "the old owner goes on, long after it must have noticed",
        A_READS_10 + asks(5) + is_done() + time_passes(3) + polls("a", range(10, 12)) + owns("b")
        + polls("b", range(5, 20)),
        A_READS_10 + asks(5) + is_done() + time_passes(2) + polls("a", range(10, 12)) + owns("b")
        + polls("b", range(5, 20)),
        (10, 11), "a", ("reset-begin", "reset-end", "poll"),
    ),
    Example(
        Rule.UNTRUE_SUCCESS, "the next owner begins at the old place again",
        MOVED_BACK + polls("b", range(3, 7)) + is_done() + gives_up("b") + owns("c") + polls("c", range(8, 20)),
        MOVED_BACK + polls("b", range(3, 7)) + is_done() + gives_up("b") + owns("c") + polls("c", range(7, 20)),
        (8,), "c", ("reset-begin", "reset-end", "poll"),
    ),
    Example(
        Rule.UNTRUE_SUCCESS, "the committed offset is where it was",
        A_READS_10 + commits("a", 8) + gives_up("a") + asks(3) + is_done() + is_seen(8),
        A_READS_10 + commits("a", 8) + gives_up("a") + asks(3) + is_done() + is_seen(3),
        (8,), None, ("reset-begin", "reset-end", "committed"), drained=False,
    ),
    Example(
        Rule.UNTRUE_FAILURE, "an owner began at the target of a run that was rolled back, and goes on",
        MOVED_BACK + polls("b", range(3, 6)) + is_done(Phase.ROLLED_BACK) + time_passes(3) + polls("b", range(6, 20)),
        MOVED_BACK + polls("b", range(3, 6)) + is_done(Phase.ROLLED_BACK) + time_passes(3)
        + gives_up("b") + owns("b") + polls("b", range(8, 20)),
        (6, 7), "b", ("reset-begin", "reset-end", "poll"),
    ),
    Example(
        Rule.UNTRUE_FAILURE, "the target of a run that failed is begun afterwards",
        A_READS_10 + commits("a", 8) + asks(3) + is_done(Phase.FAILED) + gives_up("a") + owns("b")
        + polls("b", range(3, 20)),
        A_READS_10 + commits("a", 8) + asks(3) + is_done(Phase.FAILED) + gives_up("a") + owns("b")
        + polls("b", range(8, 20)),
        (3,), "b", ("reset-begin", "reset-end", "poll"),
    ),
    Example(
        Rule.UNTRUE_FAILURE, "the target of a run that failed is still committed",
        A_READS_10 + commits("a", 8) + gives_up("a") + asks(3) + is_done(Phase.FAILED) + is_seen(3),
        A_READS_10 + commits("a", 8) + gives_up("a") + asks(3) + is_done(Phase.FAILED) + is_seen(8),
        (3,), None, ("reset-begin", "reset-end", "committed"), drained=False,
    ),
    Example(
        Rule.MOVED_COMMIT, "the committed offset is where nobody put it",
        A_READS + commits("a", 18) + is_seen(2),
        A_READS + commits("a", 18) + is_seen(18),
        (2,), None, ("committed",),
    ),
    Example(
        Rule.MOVED_COMMIT, "the committed offset is beyond the log",
        A_READS + commits("a", 18) + is_seen(21),
        A_READS + commits("a", 18) + is_seen(20),
        (21,), None, ("committed",),
    ),
    Example(
        Rule.COMMIT_WITHOUT_OWNERSHIP, "the broker takes a commit of a member that has owned nothing for long",
        A_READS + gives_up("a") + owns("b") + time_passes(3) + commits("a", 20),
        A_READS + gives_up("a") + owns("b") + time_passes(1) + commits("a", 20),
        (20,), "a", ("commit",),
    ),
    Example(
        Rule.COMMIT_WITHOUT_OWNERSHIP, "it would have had to be refused",
        A_READS + owns("b", Q) + commits("c", 20),
        A_READS + owns("b", Q) + commits("c", 20, error="UNKNOWN_MEMBER_ID"),
        (20,), "c", ("commit",),
    ),
    Example(
        Rule.DELIVERED_WHILE_PAUSED, "a record of a paused partition",
        A_READS_10 + pauses(P) + polls("a", [10, 11]) + resumes(P) + polls("a", range(12, 20)),
        A_READS_10 + pauses(Q) + polls("a", [10, 11]) + resumes(Q) + polls("a", range(12, 20)),
        (10, 11), "a", ("pause", "poll"),
    ),
]  # fmt: skip

IDS = [f"{example.rule}: {example.name}" for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_a_breach_is_found(example: Example) -> None:
    told = history(example.fails, drained=example.drained)

    [finding] = judge(told).findings

    assert (finding.rule, finding.offsets, finding.member) == (example.rule, example.offsets, example.member)
    assert {told.operations[line - 1].op for line in finding.lines} == {*example.shows}
    assert finding.lines == tuple(sorted({*finding.lines}))


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_its_twin_passes(example: Example) -> None:
    assert judge(history(example.passes, drained=example.drained)).findings == ()


# --- what is no breach ------------------------------------------------------------------------------------------------


def judged(*told: Told, drained: bool = True) -> Judgement:
    return judge(history(*told, drained=drained))


def test_what_was_not_committed_is_read_again_after_a_crash() -> None:
    found = judged(A_READS_10 + commits("a", 8) + crashes("a") + owns("b") + polls("b", range(8, 20)))

    assert (found.findings, found.reread) == ((), {P: 2})


def test_an_owner_that_was_asleep_goes_on_when_it_wakes_and_long_after_the_reset() -> None:
    moved = A_READS_10 + sleeps("a") + asks(5) + owns("b") + polls("b", range(5, 9)) + is_done() + time_passes(60)
    after = polls("a", [10, 11]) + polls("b", range(9, 20))

    assert judged(moved + wakes("a") + after).stale == {P: 2}
    assert judged(moved + wakes("a") + after).ok
    assert judged(moved + after).rules == {Rule.UNTRUE_SUCCESS}


def test_an_owner_seeks_without_giving_up_the_partition() -> None:
    found = judged(A_READS_10 + asks(3) + polls("a", range(3, 8)) + is_done() + polls("a", range(8, 20)))

    assert (found.findings, found.begun) == ((), {"r1": frozenset({P})})


def test_an_owner_that_stands_at_the_target_goes_on() -> None:
    assert judged(A_READS_10 + asks(10) + is_done() + polls("a", range(10, 20))).begun == {"r1": frozenset({P})}
    assert judged(A_READS_10 + asks(10) + is_done() + polls("a", range(10, 20))).ok


def test_an_owner_that_was_put_back_behind_the_target_did_not_begin_there() -> None:
    began_before = A_READS_10 + asks(3) + gives_up("a") + owns("b") + polls("b", range(20)) + is_done()

    assert judged(began_before).rules == {Rule.UNTRUE_SUCCESS}


def test_to_the_end_where_there_is_nothing_to_read() -> None:
    assert judged(A_READS_10 + asks(20) + is_done()).ok


def test_a_reset_that_the_next_one_overtakes() -> None:
    overtaken = A_READS_10 + asks(3) + is_done() + asks(6, "r2") + gives_up("a") + owns("b") + polls("b", range(6, 20))

    assert judged(overtaken + is_done(run="r2")).begun == {"r1": frozenset(), "r2": frozenset({P})}
    assert judged(overtaken + is_done(run="r2")).ok


def test_a_transaction_that_names_no_member_may_replace_its_successors_commit_until_it_is_over() -> None:
    """aiokafka's members send offsets as nobody, also once somebody else owns the partition."""
    taken_over = A_READS_10 + sends_offset("a", 4) + gives_up("a") + owns("b") + polls("b", range(20)) + is_seen(15)
    over = transaction_is_over("a", 4)

    assert judged(taken_over + is_seen(4)).ok
    assert judged(taken_over + over + is_seen(4) + owns("c") + polls("c", range(4, 20))).ok
    assert judged(taken_over + owns("c") + polls("c", range(4, 20))).ok
    assert judged(taken_over + is_seen(3)).rules == {Rule.MOVED_COMMIT}
    assert judged(taken_over + over + time_passes(4) + is_seen(15) + is_seen(4)).rules == {Rule.MOVED_COMMIT}
    assert judged(A_READS_10 + sends_offset("a", 4) + asks(6) + owns("b") + polls("b", range(6, 20)) + is_done()).ok
    assert judged(
        A_READS_10 + sends_offset("a", 4) + asks(6) + owns("b") + polls("b", range(6, 20)) + is_done() + is_seen(4)
    ).rules == {Rule.UNTRUE_SUCCESS}


def test_a_run_that_nobody_finished_may_have_moved_the_group_or_not() -> None:
    assert judged(MOVED_BACK + polls("b", range(3, 20))).ok
    assert judged(MOVED_BACK + polls("b", range(8, 20))).ok
    assert judged(MOVED_BACK + polls("b", range(7, 20))).rules == {Rule.NONMONOTONIC_POLL}


def test_places_that_hold_no_record_are_not_skipped() -> None:
    told = [*log(5), lambda t: Send(t, *P, Outcome.ACKED, 7, "v7")]

    assert judged(told + owns("a") + polls("a", [*range(5), 7])).ok


def test_a_group_whose_start_is_not_known() -> None:
    of = ("other", 0)
    told = [lambda t, o=o: Send(t, *of, Outcome.ACKED, o) for o in range(8)]

    assert judged(told + owns("a", of) + polls("a", range(5, 8), of)).ok
    assert judged(told + owns("a", of) + polls("a", [5, 7], of)).rules == {Rule.LOST_WRITE}


def test_the_newest_records_are_not_demanded_while_the_group_is_still_to_read_them() -> None:
    assert judged(A_READS_10, drained=False).ok
    assert judged(A_READS_10 + asks(5) + is_done(), drained=False).ok


def test_clients_that_do_not_tell_their_assignments() -> None:
    told = A_READS_10 + time_passes(5) + polls("b", range(8, 20))

    assert judge(history(told, untold=(Untold.ASSIGNMENTS, Untold.COMMITS))).ok
    lost = A_READS_10 + time_passes(5) + polls("b", range(11, 20))
    assert judge(history(lost, untold=(Untold.ASSIGNMENTS, Untold.COMMITS))).rules == {Rule.LOST_WRITE}


def test_a_finding_says_where_and_what_shows_it() -> None:
    [finding] = judged(log(4) + owns("a") + polls("a", [0, 1]) + polls("a", [1, 2, 3])).findings

    assert str(finding) == (
        "duplicate: orders-0 a at 1: it had it already; it was to go on at 2; it was not reset (lines 7, 8)"
    )


def test_every_rule_has_an_example() -> None:
    assert {example.rule for example in EXAMPLES} == {*Rule}


def test_who_tells_no_assignments_may_have_been_given_the_partition_anew() -> None:
    read = [*log(9), *polls("a", range(4)), *commits("a", 4), *polls("a", range(4, 6))]
    again = [*read, *polls("a", range(4, 9))]
    too_far_back = [*read, *polls("a", range(3, 9))]
    too_far_on = [*read, *polls("a", range(7, 9)), *polls("b", [6])]
    untold = (Untold.ASSIGNMENTS, Untold.REVOCATIONS)

    assert judge(history(again, untold=untold)).ok
    assert judge(history(owns("a"), again)).rules == {Rule.DUPLICATE}
    assert judge(history(too_far_back, untold=untold)).rules == {Rule.NONMONOTONIC_POLL}
    assert Rule.POLL_SKIP in judge(history(too_far_on, untold=untold)).rules
