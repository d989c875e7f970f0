"""What an owner's first commit since a reset proves, if it may as well be an old position that came late."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from support.fake_kafka import FakeClock
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.first_commits import FirstCommits
from tidegate.reset.applying.state import RunState
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.model.plan import Plan
from tidegate.resources.reset import Way

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


def test_what_was_committed_while_nobody_looked_may_be_what_its_owner_began_at() -> None:
    commits = FirstCommits({P: TARGET, Q: TARGET}, {P: BEFORE, Q: BEFORE}, unseen=frozenset({P, Q}))
    commits.take_up({P: 130, Q: TARGET}, lambda: BOTH)
    commits.take_up({P: 140, Q: 130}, lambda: BOTH)

    assert (commits.lost, commits.awaited) == ({P}, {Q})


Q = TopicPartition("orders", 1)
BOTH = Group("payments", GroupState.STABLE, GroupType.CLASSIC, members=(Member("a", "a", "", None, frozenset({P, Q})),))
PLAN = Plan("run", "payments", datetime(2026, 11, 20, tzinfo=UTC), ())


class Looks:
    """A group as each look of a watch finds it, with whatever else a watch asks; ``None``: Kafka is away."""

    group_id, hold_s = "payments", 0.0

    def __init__(self, *seen: Mapping[TopicPartition, int] | None) -> None:
        self._seen = list(seen)
        self.pace = SimpleNamespace(clock=FakeClock(), tuning=Tuning(), is_over=False)
        self.state = RunState(PLAN, {P: TARGET, Q: TARGET}, gated=False, before={P: BEFORE, Q: BEFORE})
        self.claim = SimpleNamespace(confirm=lambda **_: None)
        self.times = SimpleNamespace(resumed={P: 0.0, Q: 0.0})
        self.kafka = SimpleNamespace(pending=lambda _, __: frozenset())
        self.view = self

    def committed(self, _: object) -> Mapping[TopicPartition, int]:
        seen = self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]
        if seen is None:
            raise Unavailable("nobody answers")
        return seen

    def group(self) -> Group:
        return BOTH


@pytest.mark.parametrize(
    ("then", "doubtful"), [({P: 50, Q: 130}, {Q}), (None, {Q}), ({P: TARGET, Q: 130}, set()), ({P: 90, Q: 140}, set())]
)
def test_what_is_in_doubt_when_a_watch_is_cut_short_stays_so(
    then: Mapping[TopicPartition, int] | None, doubtful: set[TopicPartition]
) -> None:
    """Who has the partition after the next round may have begun at the old commit."""
    looks = Looks({P: TARGET, Q: 130}, then)
    with contextlib.suppress(Unavailable):
        TargetWatch(cast("RunContext", looks)).watch(frozenset({P, Q}), Way.HANDOVER)

    assert looks.state.doubtful == doubtful


def test_a_reset_forwards_is_passed_by_progress_only() -> None:
    commits = FirstCommits({P: BEFORE + 20}, {P: BEFORE})
    commits.take_up({P: BEFORE + 30}, lambda: pytest.fail("nobody needs to look at the group"))
    assert not commits.awaited
    assert not commits.lost
