"""Who has room in a connection's quota, and which plans are too large, as tables."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.reset.model.request import PlanLimits
from tidegate.reset.runs.queue import Claim, InLine
from tidegate.reset.runs.quota import Line, Size, limits_of, too_large
from tidegate.resources.connection import QuotaSpec

T0 = datetime(2026, 11, 26, tzinfo=UTC)


def claim(name: str, *, under_way: bool = False, partitions: int | None = None, undoes: bool = False) -> Claim:
    """The later its name in the alphabet, the younger."""
    created = T0 + timedelta(minutes=ord(name[0]))
    return Claim(name, f"OffsetReset ns/{name}", created, "c", (name,), under_way, partitions=partitions, undoes=undoes)


def line(*claims: Claim) -> Line:
    made = Line()
    for each in claims:
        made.put(each)
    return made


def has_room(made: Line, mine: Claim, quota: QuotaSpec, *held_up: str) -> bool:
    return made.no_room(mine, quota, "kafka", lambda other: other.uid in held_up) is None


def running(name: str, partitions: int | None = None) -> Claim:
    return claim(name, under_way=True, partitions=partitions)


def undoing(name: str, partitions: int | None = None) -> Claim:
    return claim(name, under_way=True, partitions=partitions, undoes=True)


TWO = QuotaSpec(concurrent_resets=2)
TEN = QuotaSpec(partitions_per_reset=6, concurrent_partitions=10)


@pytest.mark.parametrize(
    ("others", "mine", "quota", "held_up", "expected"),
    [
        ([running("a")], claim("m"), TWO, [], True),
        ([running("a"), running("b")], claim("m"), TWO, [], False),
        ([running("a"), running("z")], claim("m"), TWO, [], False),
        ([running("a"), running("b")], claim("m", undoes=True), TWO, [], True),
        ([running("a"), claim("b")], claim("m"), TWO, [], False),
        ([running("a"), claim("z")], claim("m"), TWO, [], True),
        ([running("a"), claim("b")], claim("m"), TWO, ["b"], True),
        ([claim("a"), claim("b"), claim("c")], claim("m"), TWO, ["b"], False),
        ([undoing("a"), undoing("b")], claim("m", undoes=True), TWO, [], False),
        ([undoing("a"), claim("b", undoes=True)], claim("m", undoes=True), TWO, [], False),
        ([undoing("a"), claim("b", undoes=True)], claim("m", undoes=True), TWO, ["b"], True),
        ([undoing("a"), claim("b")], claim("m", undoes=True), TWO, [], True),
        ([undoing("a"), undoing("b")], claim("m"), TWO, [], False),
        ([], claim("m", undoes=True, partitions=11), TEN, [], True),
        ([undoing("a", 1)], claim("m", undoes=True, partitions=11), TEN, [], False),
        ([running("a"), claim("b", undoes=True)], claim("m"), TWO, [], True),
        ([running("m"), running("a")], claim("m"), TWO, [], True),
        ([running("a", 4)], claim("m"), TEN, [], True),
        ([running("a", 5)], claim("m"), TEN, [], False),
        ([running("a", 5)], claim("m", partitions=5), TEN, [], True),
        ([running("a")], claim("m"), TEN, [], False),
        ([running("a"), claim("b", partitions=3)], claim("m", partitions=2), TEN, [], False),
        ([running("a"), claim("b", partitions=2)], claim("m", partitions=2), TEN, [], True),
        ([running(name, 1000) for name in "abcdef"], claim("m"), QuotaSpec(), [], True),
    ],
    ids=[
        "there is room",
        "as many run as may",
        "also younger ones",
        "an undo waits for no other reset",
        "an older one goes first",
        "a younger one does not",
        "nor one that waits for something else",
        "all older ones count",
        "it waits for other undos",
        "also for older ones",
        "but for those that are held up",
        "and for nobody else that is older",
        "an undo that runs counts for all",
        "it may be larger than others",
        "then it runs alone",
        "an older undo takes no turn",
        "it does not wait for itself",
        "as many partitions as it may have are free",
        "not that many are",
        "its plan needs fewer",
        "one without a plan counts as the largest",
        "an older one that needs more goes first",
        "both fit",
        "no limits",
    ],
)
def test_who_has_room(others: list[Claim], mine: Claim, quota: QuotaSpec, held_up: list[str], expected: bool) -> None:
    assert has_room(line(*others, mine), mine, quota, *held_up) is expected


def test_who_waits_hears_for_whom_and_behind_how_many() -> None:
    mine = claim("m")
    full = line(*map(running, "abcd"), claim("e"), claim("f"), mine, claim("z"))

    told = full.no_room(mine, QuotaSpec(concurrent_resets=4), "kafka", lambda _: False)

    assert told is not None
    assert told.reason == "WaitingForQuota"
    assert told.message == (
        "KafkaConnection kafka allows 4 reset(s) at once (spec.allow.quota.concurrentResets): 4 are running "
        "(OffsetReset ns/a, OffsetReset ns/b, OffsetReset ns/c and 1 more); 2 older reset(s) are also waiting. This "
        "reset waits"
    )
    assert isinstance(told, InLine)
    assert told.older == 2


def test_who_waits_for_partitions_hears_how_many_are_missing() -> None:
    mine = claim("m")

    told = line(running("a", 5), mine).no_room(mine, TEN, "kafka", lambda _: False)

    assert told is not None
    assert told.message == (
        "KafkaConnection kafka allows 10 partition(s) in running resets at once "
        "(spec.allow.quota.concurrentPartitions): up to 5 are in use (OffsetReset ns/a), and this reset needs up to 6. "
        "This reset waits"
    )


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.none() | st.integers(0, 6)), max_size=30))
def test_whoever_comes_and_goes_the_quota_holds_and_nobody_waits_for_nothing(
    steps: list[tuple[str, bool, int | None]],
) -> None:
    """Given any coming and going, when all who may begin, the oldest or anybody first, then no limit is passed."""
    quota = QuotaSpec(concurrent_resets=3, partitions_per_reset=6, concurrent_partitions=12)
    made, there = Line(), dict[str, Claim]()
    for name, goes, partitions in steps:
        if goes:
            made.drop(name)
            there.pop(name, None)
        elif name not in there:
            there[name] = claim(name, partitions=partitions)
            made.put(there[name])
        for uid in sorted(there, reverse=goes):
            if not there[uid].under_way and has_room(made, there[uid], quota):
                there[uid] = claim(uid, under_way=True, partitions=there[uid].partitions)
                made.put(there[uid])
        run = [each for each in there.values() if each.under_way]
        taken = sum(6 if each.partitions is None else each.partitions for each in run)
        assert len(run) <= 3
        assert taken <= 12
        oldest = min((each for each in there.values() if not each.under_way), key=lambda c: c.created, default=None)
        if oldest is not None:
            needed = 6 if oldest.partitions is None else oldest.partitions
            assert len(run) == 3 or taken + needed > 12


@pytest.mark.parametrize(
    ("size", "limits", "said"),
    [
        (Size(5, 100), None, None),
        (Size(5, 100), PlanLimits("kafka", 5, 100), None),
        (Size(6, 100), PlanLimits("kafka", 5, 100), "6 partition(s) instead of at most 5 ("),
        (
            Size(6, 10**6),
            PlanLimits("kafka", None, 10**5),
            "1,000,000 record(s) read again instead of at most 100,000 (",
        ),
        (Size(1, 1), PlanLimits("kafka", None, 0), "1 record(s) read again instead of at most 0 ("),
    ],
)
def test_a_plan_that_is_too_large_is_refused_with_the_figures(
    size: Size, limits: PlanLimits | None, said: str | None
) -> None:
    refused = too_large(size, limits)

    assert (refused is None) == (said is None)
    if refused is not None:
        assert refused.reason == "QuotaExceeded"
        assert said in refused.message
        assert "the quota of KafkaConnection kafka: it has " in refused.message


def test_only_what_limits_a_plan_is_in_its_request() -> None:
    assert limits_of(None, "kafka") is None
    assert limits_of(TWO, "kafka") is None
    assert limits_of(TEN, "kafka") == PlanLimits("kafka", 6)
