"""A source that grows is looked at often, but not more often than many partitions allow."""

from __future__ import annotations

import pytest

from tidegate.offset_mirror.looking import Looks


def test_a_source_at_rest_is_looked_at_once_a_second() -> None:
    looks = Looks(1.0)
    assert [looks.next_s(4, 0) for _ in range(3)] == [1.0, 1.0, 1.0]


def test_one_that_grows_is_looked_at_soon_and_less_and_less_when_it_stops() -> None:
    looks = Looks(1.0)
    assert [looks.next_s(4, grown) for grown in (0, 1, 4, 0, 0, 0, 0, 0, 0)] == [
        *(1.0, 0.05, 0.05),
        *(0.1, 0.2, 0.4, 0.8, 1.0, 1.0),
    ]


@pytest.mark.parametrize(
    ("asked", "grown", "pause_s"),
    [
        pytest.param(100, 40, 0.2, id="200 copied further a second"),
        pytest.param(1_000, 1_000, 1.0, id="all of them"),
        pytest.param(10_000, 1, 0.5, id="20,000 asked for a second"),
        pytest.param(100_000, 1, 1.0, id="no less than at rest"),
    ],
)
def test_many_partitions_are_looked_at_less_often(asked: int, grown: int, pause_s: float) -> None:
    assert Looks(1.0).next_s(asked, grown) == pytest.approx(pause_s)


def test_it_is_never_looked_at_less_than_at_rest() -> None:
    assert Looks(0.02).next_s(4, 4) == 0.02
