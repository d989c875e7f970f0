"""The checker, by hand-made sequences: what it must accept, and above all what it must not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.checker import Outcome, ResetRun, Verdict, check
from support.deliveries import Delivery, Partition

P0: Partition = ("orders", 0)
P1: Partition = ("orders", 1)


def reads(
    offsets: Iterable[int], t: float, member: str = "a", partition: Partition = P0, every: float = 0.1
) -> list[Delivery]:
    """`offsets` given to `member` from `t` on, one every `every` seconds."""
    return [Delivery(t + i * every, member, *partition, offset) for i, offset in enumerate(offsets)]


def run(target: int, t_start: float = 10.0, t_end: float | None = 15.0, partition: Partition = P0) -> ResetRun:
    return ResetRun(t_start, t_end, {partition: target})


@dataclass(frozen=True, slots=True)
class Case:
    """Deliveries of partition 0 of a log with the offsets ``range(log)``, and what the (last) reset must look like."""

    name: str
    deliveries: list[Delivery]
    log: int
    resets: list[ResetRun]
    outcome: Outcome
    first: int | None
    ok: bool
    clean: bool
    missing: tuple[int, ...] = ()
    stale: int = 0
    reread: int = 0
    skipped: int = 0
    below: int = 0
    lost: tuple[int, ...] = ()
    target_lost: bool = False
    jumps: tuple[int, ...] = ()
    drained: bool = field(default=True)


# The owner reads 0..99 in the ten seconds before the first reset begins at t = 10.
BEFORE = reads(range(100), 0.0)

ACCEPTED = [
    Case(
        "backward: the new sequence begins at the target",
        BEFORE + reads(range(100, 105), 10.0) + reads(range(50, 120), 11.0, "b"),
        120, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True,
    ),
    Case(
        "forward: what lies between is left out on purpose",
        BEFORE + reads(range(110, 130), 11.0),
        130, [run(110)], Outcome.JUMPED, 110, ok=True, clean=True, skipped=10,
    ),
    Case(
        "who hung while the group went on without it wakes up with a record in hand",
        BEFORE + reads(range(80, 150), 10.1, "b", every=0.01) + reads(range(110, 120), 11.0, "b")
        + reads([100], 12.5) + reads(range(120, 150), 13.0, "b"),
        150, [run(110)], Outcome.JUMPED, 110, ok=True, clean=False, stale=1, reread=20, jumps=(80,),
    ),
    Case(
        "forward: who hung passes the target, and so does who reads in its place",
        reads(range(90), 0.0) + reads(range(90, 101), 10.0, every=0.02)
        + reads(range(60, 130), 10.135, "b", every=0.02),
        130, [run(95)], Outcome.CONTINUED, 95, ok=True, clean=False, reread=35,
        jumps=(60, 97, 61, 98, 62, 99, 63, 100, 64),
    ),
    Case(
        "to the earliest",
        BEFORE + reads(range(101), 11.0),
        101, [run(0)], Outcome.JUMPED, 0, ok=True, clean=True,
    ),
    Case(
        "the target was exactly the next offset",
        BEFORE + reads(range(100, 120), 11.0),
        120, [run(100)], Outcome.CONTINUED, 100, ok=True, clean=True,
    ),
    Case(
        "the owner came to stand at the target while the run went on",
        BEFORE + reads(range(100, 120), 10.0),
        120, [run(103)], Outcome.CONTINUED, 103, ok=True, clean=True,
    ),
    Case(
        "idle at the log's end, then back",
        BEFORE + reads(range(90, 100), 12.0),
        100, [run(90)], Outcome.JUMPED, 90, ok=True, clean=True,
    ),
    Case(
        "target at the log's end, nothing produced later",
        BEFORE,
        100, [run(100)], Outcome.CONTINUED, None, ok=True, clean=True,
    ),
    Case(
        "target at the log's end, and the record produced later is the first",
        BEFORE + reads([100, 101], 20.0, "b"),
        102, [run(100)], Outcome.CONTINUED, 100, ok=True, clean=True,
    ),
    Case(
        "a lagging owner sent to the log's end, where nothing came later",
        BEFORE + reads([100], 10.0),
        130, [run(130)], Outcome.NOTHING_TO_READ, None, ok=True, clean=True, skipped=29,
    ),
    Case(
        "a lagging owner sent to the log's end, where a record came later",
        BEFORE + reads([130], 20.0),
        131, [run(130)], Outcome.JUMPED, 130, ok=True, clean=True, skipped=30,
    ),
    Case(
        "the old owner let go late: stale records, but the target holds",
        BEFORE + reads([50, 51], 11.0, "b") + reads([100, 101], 11.05, "a") + reads(range(52, 102), 11.5, "b"),
        102, [run(50)], Outcome.JUMPED, 50, ok=True, clean=False, stale=2,
    ),
    Case(
        "forward, with stale records in the part left out",
        BEFORE + reads([120], 11.0, "b") + reads([100, 101], 11.1, "a") + reads(range(121, 130), 11.5, "b"),
        130, [run(120)], Outcome.JUMPED, 120, ok=True, clean=False, stale=2, skipped=18,
    ),
    Case(
        "the new owner was made to leave once more: it begins at the target again",
        BEFORE + reads([50, 51, 52], 11.0, "b") + reads(range(50, 100), 12.0, "b"),
        100, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True, reread=3,
    ),
    Case(
        "the new owner crashed: from its commit on, above the target",
        BEFORE + reads(range(50, 60), 11.0, "b") + reads(range(55, 100), 20.0, "c"),
        100, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True, reread=5,
    ),
    Case(
        "the new owner crashed: from its commit on, which is where the old one had stood",
        BEFORE + reads(range(50, 120), 11.0, "b") + reads(range(100, 130), 20.0, "c"),
        130, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True, reread=20,
    ),
    Case(
        "an owner crashed in mid-run, before the effect: told apart",
        BEFORE + reads(range(95, 103), 11.0, "b") + reads(range(50, 103), 13.0, "c"),
        103, [run(50)], Outcome.JUMPED, 50, ok=True, clean=False, reread=5, jumps=(95,),
    ),
    Case(
        "the first delivery of all is the target",
        reads(range(50, 60), 11.0),
        60, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True, skipped=50,
    ),
    Case(
        "a reset and its undo",
        BEFORE + reads(range(50, 70), 11.0, "b") + reads(range(100, 120), 21.0, "b"),
        120, [run(50), run(100, 20.0, 25.0)], Outcome.JUMPED, 100, ok=True, clean=True,
    ),
    Case(
        "the second reset came before a record could show the first",
        BEFORE + reads(range(70, 110), 13.0, "b"),
        110, [run(50, 10.0, 11.0), run(70, 12.0)], Outcome.JUMPED, 70, ok=True, clean=True,
    ),
    Case(
        "the first reset shows only after the second began",
        BEFORE + reads([110, 111], 12.1, "b") + reads(range(130, 140), 13.0, "b"),
        140, [run(110, 10.0, 12.0), run(130, 12.0)], Outcome.JUMPED, 130, ok=True, clean=True, skipped=18,
    ),
    Case(
        "watching ended in the middle: the newest records are not demanded",
        BEFORE + reads(range(50, 60), 11.0, "b"),
        200, [run(50)], Outcome.JUMPED, 50, ok=True, clean=True, drained=False,
    ),
]  # fmt: skip

REFUSED = [
    Case(
        "no effect at all: the owner just went on",
        BEFORE + reads(range(100, 200), 10.0),
        200, [run(50)], Outcome.WRONG, None, ok=False, clean=False, target_lost=True,
    ),
    Case(
        "no effect, and nothing read any more",
        BEFORE,
        100, [run(50)], Outcome.WRONG, None, ok=False, clean=False, target_lost=True,
    ),
    Case(
        "forward, no effect: passed the target only after the run had ended",
        BEFORE + reads(range(100, 200), 10.0),
        200, [run(170)], Outcome.WRONG, None, ok=False, clean=False, target_lost=True,
    ),
    Case(
        "forward to the log's end, no effect: it goes on reading after the run",
        BEFORE + reads(range(100, 103), 16.0),
        150, [run(150)], Outcome.WRONG, None, ok=False, clean=False, target_lost=True, missing=tuple(range(103, 150)),
    ),
    Case(
        "one record too late",
        BEFORE + reads(range(51, 100), 11.0, "b"),
        100, [run(50)], Outcome.WRONG, 51, ok=False, clean=False, target_lost=True, reread=49,
    ),
    Case(
        "one record too early",
        BEFORE + reads(range(49, 100), 11.0, "b"),
        100, [run(50)], Outcome.WRONG, 49, ok=False, clean=False, target_lost=True, reread=51,
    ),
    Case(
        "the first delivery of all is not the target",
        reads(range(45, 60), 11.0),
        60, [run(50)], Outcome.WRONG, 45, ok=False, clean=False, target_lost=True, missing=tuple(range(45)),
    ),
    Case(
        "a record is skipped after the target",
        BEFORE + reads([50, 51, *range(53, 100)], 11.0, "b"),
        100, [run(50)], Outcome.JUMPED, 50, ok=False, clean=False, target_lost=True, lost=(52,),
    ),
    Case(
        "overwritten: back to the old position",
        BEFORE + reads([50, 51], 11.0, "b") + reads(range(100, 110), 12.0, "b"),
        110, [run(50)], Outcome.JUMPED, 50, ok=False, clean=False, target_lost=True, stale=10,
        lost=tuple(range(52, 110)),
    ),
    Case(
        "overwritten by an older commit, above the target",
        BEFORE + reads([50, 51], 11.0, "b") + reads(range(90, 110), 12.0, "b"),
        110, [run(50)], Outcome.JUMPED, 50, ok=False, clean=False, target_lost=True, lost=tuple(range(52, 90)),
    ),
    Case(
        "forward, overwritten: back below the target",
        BEFORE + reads([120, 121], 11.0, "b") + reads(range(95, 130), 12.0, "b"),
        130, [run(120)], Outcome.JUMPED, 120, ok=False, clean=False, target_lost=True, below=25, skipped=0, reread=2,
    ),
    Case(
        "forward, overwritten: the old position is gone on with after the run",
        BEFORE + reads([120], 11.0, "b") + reads([100, 101], 16.0, "b"),
        121, [run(120)], Outcome.JUMPED, 120, ok=False, clean=False, target_lost=True, stale=2, skipped=18,
    ),
    Case(
        "the target was the next offset, yet records before it are read again after the run",
        BEFORE + reads(range(90, 110), 16.0, "b"),
        110, [run(100)], Outcome.WRONG, 90, ok=False, clean=False, target_lost=True, below=10,
    ),
    Case(
        "the newest records never came",
        BEFORE + reads(range(50, 80), 11.0, "b"),
        100, [run(50)], Outcome.JUMPED, 50, ok=False, clean=False, target_lost=True, lost=tuple(range(80, 100)),
    ),
    Case(
        "the undo left a record out",
        BEFORE + reads(range(50, 70), 11.0, "b") + reads(range(101, 120), 21.0, "b"),
        120, [run(50), run(100, 20.0, 25.0)], Outcome.WRONG, 101, ok=False, clean=False, target_lost=True,
        missing=(100,),
    ),
]  # fmt: skip


def judge(case: Case) -> Verdict:
    return check(case.deliveries, {P0: range(case.log)}, case.resets, drained=case.drained)


@pytest.mark.parametrize("case", ACCEPTED + REFUSED, ids=lambda case: case.name)
def test_a_reset_is_judged_by_the_sequence(case: Case) -> None:
    verdict = judge(case)

    reset = verdict.partitions[P0].resets[-1]
    assert (reset.outcome, reset.first_after_reset) == (case.outcome, case.first)
    assert (reset.stale, reset.reread, reset.skipped) == (case.stale, case.reread, case.skipped)
    assert (reset.below_target, reset.lost, reset.target_lost) == (case.below, case.lost, case.target_lost)
    assert reset.earlier_jumps == case.jumps
    assert verdict.partitions[P0].missing == case.missing
    assert (verdict.ok, verdict.clean) == (case.ok, case.clean)
    assert bool(verdict.complaints()) == (not case.clean)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_must_be_refused_is_refused(case: Case) -> None:
    assert not judge(case).ok


def test_a_reset_without_effect_is_not_excused_by_the_next_one() -> None:
    deliveries = BEFORE + reads(range(100, 130), 10.0) + reads(range(70, 130), 15.0)

    verdict = check(deliveries, {P0: range(130)}, [run(50, 10.0, 11.0), run(70, 14.0)])

    first, second = verdict.resets
    assert (first.outcome, first.target_lost) == (Outcome.WRONG, True)
    assert (second.outcome, second.target_lost) == (Outcome.JUMPED, False)
    assert not verdict.ok


def test_a_reset_overwritten_before_the_next_one_is_not_excused_by_it() -> None:
    overwritten = BEFORE + reads([50, 51], 11.0, "b") + reads(range(100, 110), 12.0, "b")

    verdict = check(overwritten + reads(range(20, 110), 21.0, "b"), {P0: range(110)}, [run(50), run(20, 20.0)])

    first, second = verdict.resets
    assert (first.target_lost, first.lost) == (True, tuple(range(52, 110)))
    assert second.ok


def test_without_resets_a_lost_record_is_missing() -> None:
    verdict = check(reads([0, 1, 3], 0.0), {P0: range(5)})

    assert verdict.partitions[P0].missing == (2, 4)
    assert not verdict.ok


def test_a_partition_of_which_nothing_came_is_missing_as_a_whole() -> None:
    verdict = check([], {P1: range(3)})

    assert verdict.missing == 3


def test_records_that_are_still_on_their_way_are_not_demanded_when_not_drained() -> None:
    assert check(reads([0, 1], 0.0), {P0: range(5)}, drained=False).ok
    assert check(reads([0, 1, 3], 0.0), {P0: range(5)}, drained=False).partitions[P0].missing == (2,)


def test_nothing_below_the_start_is_demanded() -> None:
    assert check(reads(range(40, 50), 0.0), {P0: range(50)}, starts={P0: 40}).ok
    assert check(reads(range(41, 50), 0.0), {P0: range(50)}, starts={P0: 40}).partitions[P0].missing == (40,)


def test_a_loss_before_a_forward_reset_is_not_excused_by_it() -> None:
    deliveries = reads([0, 1, 2, 5, 6], 0.0) + reads(range(50, 60), 11.0)

    verdict = check(deliveries, {P0: range(60)}, [run(50)])

    assert verdict.partitions[P0].missing == (3, 4)
    assert verdict.partitions[P0].resets[0].skipped == 43


def test_gaps_in_the_log_are_no_losses_and_the_first_record_after_the_target_counts() -> None:
    log = [*range(50), *range(52, 60), *range(61, 70)]  # 50, 51 and 60 are transaction markers
    deliveries = reads(log, 0.0) + reads([o for o in log if o >= 52], 11.0, "b")

    verdict = check(deliveries, {P0: log}, [run(50)])

    reset = verdict.partitions[P0].resets[0]
    assert (reset.outcome, reset.expected, reset.first_after_reset) == (Outcome.JUMPED, 52, 52)
    assert verdict.clean


def test_standstill_is_from_the_last_record_before_to_the_first_at_the_target() -> None:
    deliveries = BEFORE + reads([100, 101], 10.0) + reads(range(50, 102), 11.4, "b")

    verdict = check(deliveries, {P0: range(102)}, [run(50)])

    (standstill,) = verdict.standstills_s
    assert standstill == pytest.approx(11.4 - 10.1)


def test_standstill_of_an_idle_partition_counts_from_the_start_of_the_run() -> None:
    deliveries = reads(range(10), 0.0) + reads(range(5, 10), 11.4)

    verdict = check(deliveries, {P0: range(10)}, [run(5)])

    (standstill,) = verdict.standstills_s
    assert standstill == pytest.approx(1.4)


def test_stale_records_do_not_shorten_the_standstill() -> None:
    deliveries = BEFORE + reads([50], 12.0, "b") + reads([100], 12.05) + reads(range(51, 101), 12.1, "b")

    verdict = check(deliveries, {P0: range(101)}, [run(50)])

    (standstill,) = verdict.standstills_s
    assert standstill == pytest.approx(12.0 - 9.9)


class TestPartitionsOutsideTheRequest:
    """Partition 1 is not in the request of a reset of partition 0."""

    MOVED = BEFORE + reads(range(50, 100), 11.0)

    def test_one_that_just_goes_on_is_clean(self) -> None:
        verdict = check(self.MOVED + reads(range(200), 0.0, "c", P1), {P0: range(100), P1: range(200)}, [run(50)])

        assert verdict.clean
        assert verdict.max_gap_s == pytest.approx(0.1)

    def test_records_read_again_are_counted_and_not_clean(self) -> None:
        again = reads(range(110), 0.0, "c", P1) + reads(range(105, 200), 12.0, "d", P1)

        verdict = check(self.MOVED + again, {P0: range(100), P1: range(200)}, [run(50)])

        assert dict(verdict.partitions[P1].unintended) == {0: 5}
        assert verdict.unintended_duplicates == 5
        assert (verdict.ok, verdict.clean) == (True, False)
        assert verdict.partitions[P1].gaps_s[0] == pytest.approx(12.0 - 10.9)

    def test_one_that_was_moved_forward_misses_records(self) -> None:
        moved = reads(range(110), 0.0, "c", P1) + reads(range(120, 200), 12.0, "d", P1)

        verdict = check(self.MOVED + moved, {P0: range(100), P1: range(200)}, [run(50)])

        assert verdict.partitions[P1].missing == tuple(range(110, 120))
        assert not verdict.ok

    def test_records_read_again_before_any_run_are_no_runs_fault(self) -> None:
        early = reads(range(50), 0.0, "c", P1) + reads(range(45, 200), 6.0, "d", P1)

        verdict = check(self.MOVED + early, {P0: range(100), P1: range(200)}, [run(50)])

        assert verdict.partitions[P1].before_runs == 5
        assert verdict.clean

    def test_a_requested_partition_that_was_not_moved_may_be_read_again(self) -> None:
        again = reads(range(110), 0.0, "c", P1) + reads(range(105, 200), 12.0, "d", P1)
        requested = ResetRun(10.0, 15.0, {P0: 50}, frozenset({P1}))

        verdict = check(self.MOVED + again, {P0: range(100), P1: range(200)}, [requested])

        assert verdict.clean
        assert not verdict.partitions[P1].gaps_s

    def test_a_replay_of_an_earlier_run_is_no_duplicate_of_the_next_ones(self) -> None:
        replayed = BEFORE + reads(range(50, 200), 11.0)  # goes on until t = 26
        other = reads(range(100), 0.0, "c", P1) + reads(range(90, 100), 21.0, "c", P1)
        runs = [run(50), run(90, 20.0, 25.0, P1)]

        verdict = check(replayed + other, {P0: range(200), P1: range(100)}, runs)

        assert verdict.clean

    def test_each_run_is_charged_with_its_own(self) -> None:
        other = reads(range(110), 0.0, "c", P1) + reads(range(107, 150), 12.0, "d", P1)
        other += reads(range(148, 160), 21.0, "e", P1)
        runs = [run(50), run(70, 20.0, 25.0)]
        deliveries = self.MOVED + reads(range(70, 100), 21.0) + other

        verdict = check(deliveries, {P0: range(100), P1: range(160)}, runs)

        assert dict(verdict.partitions[P1].unintended) == {0: 3, 1: 2}


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 90), st.integers(0, 30), st.data())
def test_any_record_left_out_is_noticed(read: int, target: int, later: int, data: st.DataObject) -> None:
    log = max(read, target) + later
    good = reads(range(read), 0.0) + reads(range(target, log), 11.0, "b")
    assert check(good, {P0: range(log)}, [run(target)]).ok

    # Left out unseen can be: what the group read before, and the last record that a forward jump leaves behind anyway.
    telling = [i for i, delivery in enumerate(good) if i >= read or delivery.offset < min(target, read - 1)]
    assume(telling)
    dropped = data.draw(st.sampled_from(telling))
    assert not check([*good[:dropped], *good[dropped + 1 :]], {P0: range(log)}, [run(target)]).ok


def test_deliveries_need_not_be_sorted() -> None:
    deliveries = BEFORE + reads(range(50, 100), 11.0, "b")

    assert check(reversed(deliveries), {P0: range(100)}, [run(50)]).clean


def test_resets_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        check([], {}, [run(1, 20.0), run(2, 10.0)])
