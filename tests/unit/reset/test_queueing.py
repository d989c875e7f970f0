"""Who waits for whom."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidegate.reset.runs.queue import Claim, Queue, blocker

AT = datetime(2026, 1, 1, tzinfo=UTC)


def claim(uid: str, minute: int, *, under_way: bool = False, group: str = "g") -> Claim:
    return Claim(uid, f"ns/{uid}", AT + timedelta(minutes=minute), "cluster", (group,), under_way)


def test_the_older_goes_first() -> None:
    older, younger = claim("b", 0), claim("a", 5)

    assert blocker(younger, [older, younger]) == older
    assert blocker(older, [older, younger]) is None


def test_of_the_same_age_the_smaller_uid_goes_first() -> None:
    assert blocker(claim("b", 0), [claim("a", 0)]) == claim("a", 0)
    assert blocker(claim("a", 0), [claim("b", 0)]) is None


def test_what_is_under_way_is_never_overtaken() -> None:
    running = claim("young", 9, under_way=True)

    assert blocker(claim("old", 0), [running]) == running


def test_other_groups_and_clusters_are_nobodys_business() -> None:
    mine = claim("me", 5)

    assert blocker(mine, [claim("b", 0, group="h"), replace(claim("c", 0), cluster_id="x")]) is None


def test_a_fleet_meets_whoever_wants_one_of_its_groups() -> None:
    fleet = replace(claim("fleet", 0), groups=("payments-*", "audit"))

    assert blocker(claim("me", 5, group="payments-eu"), [fleet]) == fleet
    assert blocker(replace(claim("me", 5), groups=("*-eu",)), [fleet]) == fleet
    assert blocker(claim("me", 5, group="orders"), [fleet]) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("g", "h", "*"))), min_size=1, max_size=8))
def test_somebody_can_always_begin_and_never_two_for_one_group(drawn: list[tuple[int, str]]) -> None:
    claims = [claim(f"u{n}", minute, group=group) for n, (minute, group) in enumerate(drawn)]

    free = [c for c in claims if blocker(c, claims) is None]

    assert free
    assert not any(a.meets(b) for a in free for b in free if a.uid != b.uid)


GROUPS = ("g", "h", "g*", "*", "i")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3),
            st.sampled_from(("cluster", "x")),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sets(st.integers(0, 7)),
)
def test_a_queue_finds_the_same_blocker_as_a_look_at_all(
    drawn: list[tuple[int, list[str], str, bool]], gone: set[int]
) -> None:
    claims = [
        replace(claim(f"u{n}", minute, under_way=begun), cluster_id=cluster, groups=tuple(groups))
        for n, (minute, groups, cluster, begun) in enumerate(drawn)
    ]
    queue = Queue()
    for one in claims:
        queue.put(replace(one, groups=("i", "*")))  # what it wanted before
        queue.put(one)
    for number in gone:
        queue.drop(f"u{number}")
    left = [one for number, one in enumerate(claims) if number not in gone]

    assert [queue.ahead_of(one) for one in claims] == [blocker(one, left) for one in claims]
