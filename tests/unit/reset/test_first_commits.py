"""What an owner's first commit since a reset proves, if it may as well be an old position that came late."""

from __future__ import annotations

import pytest

from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.reset.applying.first_commits import FirstCommits

P = TopicPartition("orders", 0)
BEFORE, TARGET = 120, 80


def group(*owners: str, partition_of: int | None = 0) -> Group:
    """The first owns the partition, unless ``partition_of`` names another one, or nobody does."""
    members = tuple(
        Member(f"{owner}-id", owner, "/127.0.0.1", assignment=frozenset({P} if number == partition_of else ()))
        for number, owner in enumerate(owners)
    )
    return Group("payments", GroupState.STABLE if members else GroupState.EMPTY, GroupType.CLASSIC, members=members)


def after(*seen: tuple[int, Group]) -> FirstCommits:
    commits = FirstCommits({P: TARGET}, {P: BEFORE})
    for offset, now in seen:
        commits.take_up({P: offset}, lambda now=now: now)  # type: ignore[misc]
    return commits


A = group("a", "b")


@pytest.mark.parametrize(
    ("seen", "awaited", "lost"),
    [
        ([(TARGET, A)], False, False),
        ([(100, A)], False, False),
        ([(100, A), (130, A), (130, group("b"))], False, False),
        ([(130, A)], True, False),
        ([(130, A), (130, A)], True, False),
        ([(130, A), (131, A)], False, False),
        ([(130, A), (131, A), (131, group())], False, False),
        ([(130, A), (90, A)], False, False),
        ([(130, A), (90, group("b"))], False, False),
        ([(130, A), (130, group("b"))], False, True),
        ([(130, A), (131, group("b"))], False, True),
        ([(130, A), (130, group("a", "b", partition_of=1))], False, True),
        ([(130, A), (130, group("a", partition_of=None))], False, True),
        ([(130, group())], False, True),
    ],
    ids=[
        "nobody has committed",
        "below where it was: read from the target",
        "read past where it was, and gone",
        "perhaps old",
        "perhaps old, and nothing more",
        "goes on",
        "goes on, and gone",
        "steps back",
        "steps back, and gone",
        "gone",
        "the next owner goes on",
        "another member's by now",
        "nobody's, as in a rebalance",
        "gone at once",
    ],
)
def test_a_first_commit_that_may_be_old_proves_nothing_until_its_owner_commits_anew(
    seen: list[tuple[int, Group]], awaited: bool, lost: bool
) -> None:
    commits = after(*seen)
    assert (bool(commits.awaited), bool(commits.lost)) == (awaited, lost)


def test_a_reset_forwards_is_passed_by_progress_only() -> None:
    commits = FirstCommits({P: BEFORE + 20}, {P: BEFORE})
    commits.take_up({P: BEFORE + 30}, lambda: pytest.fail("nobody needs to look at the group"))
    assert not commits.awaited
    assert not commits.lost
