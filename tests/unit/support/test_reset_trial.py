"""The trial's judge: what the consumers were given around one reset, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.clients import Event, EventKind
from support.deliveries import Delivery, Partition
from support.reset_trial import UNSUPPORTED, Verdict, defaults, judge, kinds

P: Partition = ("t", 0)
Q: Partition = ("t", 1)


def given(*rows: tuple[float, str, Sequence[int]], partition: Partition = P) -> list[Delivery]:
    """A row: when the first came (the others each 0.1 s later), who, which offsets."""
    return [
        Delivery(t + i / 10, member, *partition, offset)
        for t, member, offsets in rows
        for i, offset in enumerate(offsets)
    ]


def verdict(deliveries: list[Delivery], target: int | None = 3, end: int = 20) -> Verdict:
    targets = {} if target is None else {P: target}
    return judge(sorted(deliveries), 1.0, [P], targets, {P: range(end)})


def test_a_clean_reset() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(3, 20))))
    assert (found.exact, found.targeted, found.missing, found.stale, found.again) == (1, 1, 0, 0, 0)
    assert found.standstill == pytest.approx((1.1,))
    assert found.is_clean


def test_an_owner_that_goes_on_from_its_old_position() -> None:
    found = verdict(given((0.0, "a", range(20))))
    assert (found.exact, found.unfinished) == (0, 1)
    assert found.missing > 0
    assert not found.is_clean


def test_another_owner_that_starts_at_the_old_place() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(10, 20))))
    assert (found.exact, found.wrong_starts, found.unfinished) == (0, 1, 1)
    assert not found.is_clean


def test_one_that_starts_at_the_old_place_and_is_made_to_start_again() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(10, 12)), (3.0, "b", range(3, 20))))
    assert (found.exact, found.wrong_starts, found.missing) == (0, 1, 0)
    assert (found.elsewhere, found.handed_on) == (("t-0",), ("t-0",))
    assert found.is_clean


def test_one_that_starts_elsewhere_than_where_the_old_one_stopped() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(9, 12)), (3.0, "b", range(3, 20))))
    assert (found.elsewhere, found.handed_on) == (("t-0",), ())


@pytest.mark.parametrize(("assigned", "handed_on"), [(1.4, ("t-0",)), (1.6, ())], ids=["before", "after"])
def test_one_that_was_given_the_partition_before_anybody_was_made_to_leave(
    assigned: float, handed_on: tuple[str, ...]
) -> None:
    """It starts at the last commit of an owner that had read on."""
    deliveries = sorted(given((0.0, "a", range(10)), (2.0, "b", range(9, 12)), (3.0, "b", range(3, 20))))
    events = [Event(assigned, "b", EventKind.ASSIGN, (P,)), Event(2.8, "b", EventKind.ASSIGN, (P,))]
    found = judge(deliveries, 1.0, [P], {P: 3}, {P: range(20)}, events, released=1.5)
    assert (found.elsewhere, found.handed_on) == (("t-0",), handed_on)


def test_an_old_owner_that_has_not_noticed_yet() -> None:
    found = verdict(given((0.0, "a", range(10)), (1.55, "b", range(3, 20)), (1.6, "a", range(10, 13))))
    assert (found.exact, found.stale, found.missing) == (1, 3, 0)


@pytest.mark.parametrize("told", [True, False], ids=["given anew", "never given again"])
def test_an_old_owner_that_follows_its_successor_where_both_had_come_to(*, told: bool) -> None:
    """It had read on to 13 unaware, its successor came to 13 as well; whether it has the target's lineage then tells
    only that it was given the partition anew."""
    deliveries = given((0.0, "a", range(13)), (1.55, "b", range(3, 13)), (3.0, "a", range(13, 20)))
    events = [Event(2.9, "a", EventKind.ASSIGN, (P,))] if told else []
    found = judge(sorted(deliveries), 1.0, [P], {P: 3}, {P: range(20)}, events)
    assert (found.exact, found.wrong_starts) == (1, 0)
    assert found.missing == (0 if told else 7)


def test_records_left_out_after_the_target() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", [3, 4, 5, 8, 9]), (3.0, "b", range(10, 20))))
    assert found.missing == 17 - 3
    assert not found.is_clean


def test_a_position_of_long_ago_is_none() -> None:
    early = given((-9.0, "b", range(3)), (0.0, "a", range(3, 10)))
    found = verdict(early + given((2.0, "b", range(3, 20))))
    assert (found.exact, found.missing) == (1, 0)


def test_a_partition_outside_the_reset_is_read_again() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(6, 20))), target=None)
    assert (found.again_elsewhere, found.missing, found.targeted) == (4, 0, 0)
    assert found.others == pytest.approx(1.1)


def test_a_partition_outside_the_reset_loses_records() -> None:
    found = verdict(given((0.0, "a", range(10)), (2.0, "b", range(12, 20))), target=None)
    assert (found.missing, found.wrong_starts) == (2, 1)


def test_a_partition_that_an_earlier_reset_had_set_back() -> None:
    rows = given((-2.0, "a", range(10)), (-0.9, "a", range(4, 8)), (2.0, "a", range(8, 20)))
    assert verdict(rows, target=None).again_elsewhere == 0


def test_cells_have_names_of_their_own() -> None:
    cells = [*kinds(), *(c for n in (2, 8, 30) for c in defaults(n))]
    assert len({c.name for c in cells}) == len(cells)
    assert not [c for c in cells if (c.kind, c.assignor or "") in UNSUPPORTED]
