"""What the control topic's records add up to for an operator, beside holds and acks."""

from __future__ import annotations

from tidegate.control.gates import Gates, Limited
from tidegate.control.records import Limit, LimitKey, Outcome, Run, RunKey

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
