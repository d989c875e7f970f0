"""Who waits for whom."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidegate.reset.runs.queue import Claim, InLine, Queue

AT = datetime(2026, 1, 1, tzinfo=UTC)


def claim(uid: str, minute: int, *, under_way: bool = False, group: str = "g") -> Claim:
    return Claim(uid, f"ns/{uid}", AT + timedelta(minutes=minute), "cluster", (group,), under_way)


def blocker(mine: Claim, others: Iterable[Claim]) -> Claim | None:
    """The claim to wait for, as a queue says it that is asked once."""
    queue = Queue()
    for other in others:
        queue.put(other)
    return queue.ahead_of(mine)


def first_of_all(mine: Claim, others: Iterable[Claim]) -> Claim | None:
    """The same by definition: the first of those that meet mine and go before it."""
    ahead = [o for o in others if o.uid != mine.uid and o.meets(mine) and o.precedence < mine.precedence]
    return min(ahead, key=lambda one: one.precedence, default=None)


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
    queue, there = Queue(), dict[str, Claim]()

    def is_right() -> bool:
        return [queue.ahead_of(one) for one in claims] == [first_of_all(one, there.values()) for one in claims]

    # What it wanted before comes first. Each answer is remembered, and has to be right for what came since.
    for one in (each for now in claims for each in (replace(now, groups=("i", "*")), now)):
        queue.put(one)
        there[one.uid] = one
        assert is_right()
    for number in gone:
        queue.drop(f"u{number}")
        there.pop(f"u{number}", None)
        assert is_right()


def test_many_that_ask_again_and_again_are_hardly_looked_at() -> None:
    """Each of these fleets meets the one before it, and no other."""
    queue, number = Queue(), 100
    fleets = [
        replace(claim(f"u{n:03}", n), groups=(*(f"x{k}-{n}-*" for k in range(18)), f"pair-{n}", f"pair-{n + 1}"))
        for n in range(number)
    ]
    for fleet in fleets:
        queue.put(fleet)
    assert [queue.ahead_of(fleet) for fleet in fleets] == [None, *fleets[:-1]]

    first = queue.compared
    for _ in range(100):
        assert [queue.ahead_of(fleet) for fleet in fleets] == [None, *fleets[:-1]]
    assert queue.compared == first
    # One ends and another comes: only those that met it, or may have to wait for it, are looked at.
    queue.drop("u050")
    queue.put(claim("new", 200))
    assert queue.ahead_of(fleets[51]) is None
    assert queue.ahead_of(fleets[60]) == fleets[59]
    assert queue.compared == first + 50 * 20 * 20


def test_whoever_is_far_back_in_a_line_looks_more_rarely() -> None:
    again = [InLine("WaitingForQuota", "", older).again_after_s for older in (0, 1, 20, 40, 600, 5000)]

    assert again == [2, 2, 2, 4, 60, 60]
