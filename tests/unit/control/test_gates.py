"""What the control topic's records add up to for an operator, beside holds and acks."""

from __future__ import annotations

from typing import Any

from tidegate.control.gates import Gates, Held, Limited
from tidegate.control.records import Hold, HoldKey, Limit, LimitKey, Outcome, Run, RunKey
from tidegate.pause.holds import own_holds

HOLD = Hold("maintenance", 30_000)
KEY = LimitKey("payments", "orders", 3, "replay/5f/rehearsal")


def test_a_limit_is_in_force_from_its_newest_record_until_its_tombstone() -> None:
    gates = Gates()
    gates.take(KEY, Limit(100), 5)
    gates.take(KEY, Limit(200, "further"), 7)
    copied = gates.copy({}, heard=False)
    gates.take(KEY, None, 8)

    assert copied.limits == {KEY: Limited(7, Limit(200, "further"))}
    assert not gates.limits
    assert not copied.holds, "a limit holds nothing by itself"


def test_of_a_run_the_newest_record_counts_and_a_tombstone_forgets_it() -> None:
    gates, key = Gates(), RunKey("shop", "payments", "replay-1")
    gates.take(key, Run("5f/replay-1", 1_000), 5)
    gates.take(key, Run("5f/replay-1", 1_000, Outcome.SUCCEEDED, 2_000, "sha256:5f0c"), 6)
    copied = gates.copy({}, heard=False)
    gates.take(key, None, 7)

    assert copied.runs == {key: Run("5f/replay-1", 1_000, Outcome.SUCCEEDED, 2_000, "sha256:5f0c")}
    assert not gates.runs


def test_of_runs_that_begin_under_one_key_the_first_has_it_and_an_outcome_always_counts() -> None:
    gates, key = Gates(), RunKey("shop", "payments", "replay-1")
    mine, other = Run("mine", 1_000), Run("other", 1_001)
    gates.take(key, mine, 5)
    gates.take(key, other, 6)
    assert gates.runs == {key: mine}

    # As it looks to who reads the topic after compaction has removed the first.
    compacted, ended = Gates(), Run("mine", 1_000, Outcome.FAILED, 2_000)
    compacted.take(key, other, 6)
    for each in (gates, compacted):
        each.take(key, ended, 7)
        each.take(key, other, 8)
        assert each.runs == {key: ended}


class Watched(dict[HoldKey, Held]):
    """Counts how often all of it was looked through."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_a_thousand_pauses_find_their_holds_without_a_look_through_all() -> None:
    gates = Gates()
    for number in range(1000):
        gates.take(HoldKey("g", "orders", number, f"pause/c/p{number}"), HOLD, number)
    copied = gates.copy({}, heard=False)
    copied.holds = Watched(copied.holds)

    found = [own_holds(copied, f"p{number}") for number in range(1000)]

    assert [[key.partition for key in held] for held in found] == [[number] for number in range(1000)]
    assert copied.holds.looks == 0


def test_at_rest_a_copy_costs_no_look_at_what_is_held() -> None:
    gates = Gates()
    gates.take(HoldKey("g", "orders", 0, "pause/c/p"), HOLD, 7)
    first = gates.copy({}, heard=False)

    assert gates.copy({}, heard=False).holds is first.holds


def test_a_copy_stays_as_it_was() -> None:
    gates, key = Gates(), HoldKey("g", "orders", 0, "pause/c/p")
    gates.take(key, HOLD, 7)
    copied = gates.copy({}, heard=False)
    assert list(copied.held_by("p")) == [key]

    gates.take(key, None, 8)
    gates.take(HoldKey("g", "orders", 1, "pause/c/q"), HOLD, 9)

    assert (list(copied.holds), copied.epoch("g", key.topic_partition), list(copied.held_by("p"))) == ([key], 7, [key])
    assert not copied.held_by("q")
    assert (gates.epoch("g", key.topic_partition), list(gates.held_by("p"))) == (None, [])
    assert [k.partition for k in gates.held_by("q")] == [1]


def test_what_a_copy_takes_its_original_does_not_know() -> None:
    gates, key = Gates(), HoldKey("g", "orders", 0, "pause/c/p")
    copied = gates.copy({}, heard=False)

    copied.take(key, HOLD, 7)

    assert (list(gates.holds), list(gates.held_by("p"))) == ([], [])
    assert list(copied.held_by("p")) == [key]
