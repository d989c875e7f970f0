"""Which holds are left behind, and when they are released."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.gates import Gates, Held
from tidegate.control.records import Hold, HoldKey, Limit, LimitKey
from tidegate.sweep.left_behind import Kind, There, judge, may_be_left, why_left

OURS, THEIRS = "our-connection", "their-connection"

CASES: dict[str, tuple[str, str, There, bool]] = {
    # holder, the connection that its record names, what there is, whether it is left behind
    "a pause that is there": (f"pause/{OURS}/p", "", There(pauses=frozenset({"p"})), False),
    "a pause that is gone": (f"pause/{OURS}/p", "", There(pauses=frozenset({"q"})), True),
    "a pause of another installation": (f"pause/{THEIRS}/p", "", There(), False),
    "a pause of an installation whose name ours begins with": (f"pause/{OURS}x/p", "", There(), False),
    "no pause's uid": (f"pause/{OURS}/", "", There(), False),
    "by hand": ("cli", "", There(), False),
    "a program's": ("nightly-batch", "", There(), False),
    "a program's that calls itself like ours": ("resets/x", OURS, There(), False),
    "a run of the command line": ("reset/cli/cli-20260101T000000Z-0a", "", There(), False),
    "a run of the command line that names a connection": ("reset/cli/x", OURS, There(), False),
    "a run under way": ("reset/u/one", OURS, There(requesters=frozenset({"u"}), runs=frozenset({"u/one"})), False),
    "a run under way through another connection by now": (
        "reset/u/one",
        OURS,
        There(runs=frozenset({"u/one"})),
        False,
    ),
    "a group's of a fleet under way": (
        "reset/u/one/payments",
        OURS,
        There(requesters=frozenset({"u"}), runs=frozenset({"u/one"})),
        False,
    ),
    "a run that is over": ("reset/u/one", OURS, There(requesters=frozenset({"u"})), True),
    "a run that is over, and the next one under way": (
        "reset/u/one",
        OURS,
        There(requesters=frozenset({"u"}), runs=frozenset({"u/one-more"})),
        True,
    ),
    "a group's of a fleet that is over": ("reset/u/one/pay/ments", OURS, There(requesters=frozenset({"u"})), True),
    "a run whose policy is gone": ("reset/u/one", OURS, There(), True),
    "a run of another installation": ("reset/u/one", THEIRS, There(), False),
    "a run of another installation whose policy has a uid of ours": (
        "reset/u/one",
        THEIRS,
        There(requesters=frozenset({"u"})),
        False,
    ),
    "a run whose policy's status can't be read": (
        "reset/u/one",
        OURS,
        There(requesters=frozenset({"u"}), unsure=frozenset({"u"})),
        False,
    ),
    "an earlier version's run that is over": ("reset/u/one", "", There(requesters=frozenset({"u"})), True),
    "an earlier version's run under way": (
        "reset/u/one",
        "",
        There(requesters=frozenset({"u"}), runs=frozenset({"u/one"})),
        False,
    ),
    "an earlier version's run whose policy is gone: it may be anybody's": ("reset/u/one", "", There(), False),
    "a run by its policy's uid alone": ("reset/u", "", There(requesters=frozenset({"u"})), True),
    "discovery is at it": ("reset/starts/u/1", OURS, There(backfills=frozenset({"starts/u/1"})), False),
    "discovery was at it, in a process before": (
        "reset/starts/u/1",
        OURS,
        There(requesters=frozenset({"u"}), backfills=frozenset({"starts/u/2"})),
        True,
    ),
    "discovery was at it, for a policy that is gone": ("reset/starts/u/1", OURS, There(), True),
    "discovery of another installation": ("reset/starts/u/1", THEIRS, There(), False),
    "discovery of an earlier version: it may be anybody's": ("reset/starts/5f0c", "", There(), False),
}


def held(connection: str = "", epoch: int = 1) -> Held:
    return Held(epoch, Hold(connection=connection))


def gates_of(*holders: tuple[str, str]) -> Gates:
    gates = Gates()
    for offset, (holder, connection) in enumerate(holders, 1):
        gates.take(HoldKey("payments", "orders", 0, holder), Hold(connection=connection), offset)
    return gates


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_ours_and_has_nobody_left_is_left_behind(name: str) -> None:
    holder, connection, there, left = CASES[name]

    assert bool(why_left(holder, held(connection), OURS, there)) == left
    assert may_be_left(gates_of((holder, connection)), OURS) or not left


@pytest.mark.parametrize("name", CASES)
def test_one_look_releases_nothing_and_a_second_one_only_what_is_still_so(name: str) -> None:
    holder, connection, there, left = CASES[name]
    gates = gates_of((holder, connection))

    first, suspects = judge(gates, OURS, there, {}, 100.0, 10.0)
    soon, suspects = judge(gates, OURS, there, suspects, 109.9, 10.0)
    later, _ = judge(gates, OURS, there, suspects, 110.0, 10.0)

    assert (first, soon) == ((), ())
    assert [one.holder for one in later] == ([holder] if left else [])
    assert all(one.why for one in later)


@pytest.mark.parametrize("name", CASES)
def test_what_a_newer_version_has_written_is_for_that_to_sweep(name: str) -> None:
    holder, connection, there, _ = CASES[name]
    held_by_newer = Held(7, Hold(connection=connection, version=2))

    assert why_left(holder, held_by_newer, OURS, there) == ""


def test_a_hold_that_was_written_again_or_had_somebody_in_between_is_suspected_anew() -> None:
    key = HoldKey("payments", "orders", 0, "reset/u/one")
    gates = gates_of(("reset/u/one", OURS))
    _, suspects = judge(gates, OURS, There(), {}, 0.0, 10.0)
    gates.take(key, Hold(connection=OURS), 7)
    written_again, suspects = judge(gates, OURS, There(), suspects, 20.0, 10.0)
    _, cleared = judge(gates, OURS, There(runs=frozenset({"u/one"})), suspects, 40.0, 10.0)
    had_somebody, _ = judge(gates, OURS, There(), cleared, 60.0, 10.0)

    assert (written_again, had_somebody) == ((), ())
    assert cleared == {}


def test_what_one_holder_has_left_of_one_group_is_told_at_once() -> None:
    gates = Gates()
    for offset, (group, partition) in enumerate([("a", 1), ("a", 0), ("b", 0)], 1):
        gates.take(HoldKey(group, "orders", partition, "reset/u/one"), Hold(connection=OURS), offset)
    gates.take(HoldKey("a", "orders", 0, "cli"), Hold(), 9)

    left, _ = judge(gates, OURS, There(requesters=frozenset({"u"})), {}, 0.0, 0.0)

    assert [(one.group, [str(p) for p in one.partitions], one.epoch, one.kind) for one in left] == [
        ("a", ["orders-0", "orders-1"], 2, "reset"),
        ("b", ["orders-0"], 3, "reset"),
    ]
    assert {one.why for one in left} == {"reset one is over"}


def test_without_holds_of_operators_nobody_has_to_look_at_what_there_is() -> None:
    assert not may_be_left(gates_of(("cli", ""), ("reset/cli/x", ""), (f"pause/{THEIRS}/p", "")), OURS)


UIDS = st.sampled_from(["a", "b"])
HOLDERS = st.one_of(
    st.builds("pause/{}/{}".format, st.sampled_from([OURS, THEIRS]), UIDS),
    st.builds("reset/{}/{}".format, UIDS, st.sampled_from(["one", "two", "one/group"])),
    st.builds("reset/starts/{}/{}".format, UIDS, UIDS),
    st.sampled_from(["cli", "reset/cli/x", "reset/", "pause//", "pause", ""]),
)
SETS = st.frozensets(UIDS)


@given(
    st.lists(st.tuples(HOLDERS, st.sampled_from(["", OURS, THEIRS])), max_size=6),
    st.builds(There, SETS, SETS, st.frozensets(st.sampled_from(["a/one", "b/two"])), SETS, st.frozensets(UIDS)),
)
def test_whatever_is_there_nothing_of_others_or_under_way_is_released(
    holders: Collection[tuple[str, str]], there: There
) -> None:
    gates = gates_of(*holders)
    left, _ = judge(gates, OURS, there, {}, 0.0, 0.0)

    for one in left:
        for key in one.keys:
            connection = gates.holds[key].hold.connection
            assert OURS in (connection, key.holder.split("/")[1]) or (
                not connection and key.holder.split("/")[1] in there.requesters
            )
            assert connection != THEIRS or key.holder.startswith("pause/")
            assert not any(key.holder == f"reset/{run}" or key.holder.startswith(f"reset/{run}/") for run in there.runs)
        assert not one.holder.startswith("reset/cli")


def test_limits_of_a_run_that_is_over_are_left_behind_and_released_before_its_holds() -> None:
    gates = Gates()
    limit = LimitKey("payments", "orders", 1, "reset/u/one")
    hold = HoldKey("payments", "orders", 0, "reset/u/one")
    gates.take(hold, Hold(connection=OURS), 1)
    gates.take(limit, Limit(30, connection=OURS), 2)
    assert may_be_left(gates, OURS)
    none, suspects = judge(gates, OURS, There(), {}, 0.0, 10.0)
    assert none == ()
    [left], _ = judge(gates, OURS, There(), suspects, 10.0, 10.0)
    assert left.keys == (limit, hold)
    assert (left.epoch, left.kind) == (2, Kind.RESET)


@pytest.mark.parametrize(
    ("limit", "there"),
    [
        (Limit(30, connection=OURS), There(runs=frozenset({"u/one"}))),
        (Limit(30, connection="another"), There()),
        (Limit(30, connection=OURS, version=99), There()),
    ],
    ids=["under-way", "of-another-operator", "of-a-newer-version"],
)
def test_limits_that_somebody_lifts_are_left(limit: Limit, there: There) -> None:
    gates = Gates()
    gates.take(LimitKey("payments", "orders", 1, "reset/u/one"), limit, 2)
    assert judge(gates, OURS, there, {}, 0.0, 0.0)[0] == ()
