"""Who waits for whom."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.model import Topic, TopicPartition
from tidegate.reset.model import Selection
from tidegate.reset.queue import Claim, blocker, claimed

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOPICS = {"orders": Topic("orders", "1", 2), "refunds-eu": Topic("refunds-eu", "2", 1), "other": Topic("other", "3", 1)}


def claim(uid: str, minute: int, *partitions: int, under_way: bool = False, group: str = "g") -> Claim:
    chosen = frozenset(TopicPartition("orders", p) for p in partitions) if partitions else None
    return Claim(uid, f"ns/{uid}", AT + timedelta(minutes=minute), "cluster", (group,), chosen, under_way)


def test_the_older_goes_first() -> None:
    older, younger = claim("b", 0, 1), claim("a", 5, 1, 2)

    assert blocker(younger, [older, younger]) == older
    assert blocker(older, [older, younger]) is None


def test_of_the_same_age_the_smaller_uid_goes_first() -> None:
    assert blocker(claim("b", 0), [claim("a", 0)]) == claim("a", 0)
    assert blocker(claim("a", 0), [claim("b", 0)]) is None


def test_what_is_under_way_is_never_overtaken() -> None:
    running = claim("young", 9, 1, under_way=True)

    assert blocker(claim("old", 0, 1), [running]) == running


def test_others_partitions_groups_and_clusters_are_nobodys_business() -> None:
    mine = claim("me", 5, 1)

    assert (
        blocker(mine, [claim("a", 0, 2), claim("b", 0, 1, group="h"), replace(claim("c", 0, 1), cluster_id="x")])
        is None
    )


def test_a_fleet_meets_whoever_wants_one_of_its_groups() -> None:
    fleet = replace(claim("fleet", 0, 1), groups=("payments-*", "audit"))

    assert blocker(claim("me", 5, 1, group="payments-eu"), [fleet]) == fleet
    assert blocker(replace(claim("me", 5, 1), groups=("*-eu",)), [fleet]) == fleet
    assert blocker(replace(claim("me", 5, 2), groups=("*-eu",)), [fleet]) is None
    assert blocker(claim("me", 5, 1, group="orders"), [fleet]) is None


def test_without_selections_anything_of_the_group_is_meant() -> None:
    everything = claim("a", 0)

    assert blocker(claim("me", 5, 1), [everything]) == everything
    assert claimed((), TOPICS) is None


def test_selections_stand_for_partitions_that_exist() -> None:
    found = claimed((Selection("orders", frozenset({1, 7})), Selection("refunds-*")), TOPICS)

    assert found == {TopicPartition("orders", 1), TopicPartition("refunds-eu", 0)}


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.sets(st.integers(0, 3))), min_size=1, max_size=8))
def test_somebody_can_always_begin_and_never_two_for_one_partition(drawn: list[tuple[int, bool, set[int]]]) -> None:
    claims = [claim(f"u{n}", minute, *sorted(p), under_way=False) for n, (minute, _, p) in enumerate(drawn)]

    free = [c for c in claims if blocker(c, claims) is None]

    assert free
    assert not any(a.meets(b) for a in free for b in free if a.uid != b.uid)
