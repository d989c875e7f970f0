"""Which values that can't be decoded come before what a search has found."""

from __future__ import annotations

import pytest

from tidegate.kafka.model import TopicPartition
from tidegate.spark.looked import Flawed, Looked

P = TopicPartition("orders", 0)


def test_a_value_that_nobody_asked_about_is_told_behind_others_that_are_flawed() -> None:
    flawed = {P: Flawed(9, 5, "it is not as its schema says", 7)}
    assert Looked({}, {}, flawed).not_asked(after=False) == {P: 7}
    assert Looked({P: 8}, {}, flawed).not_asked(after=False) == {P: 7}
    assert Looked({P: 6}, {}, flawed).not_asked(after=False) == {}
    assert Looked({P: 6}, {}, flawed).not_asked(after=True) == {P: 7}
    assert Looked({}, {}, {P: Flawed(1, 5, "it is not as its schema says")}).not_asked(after=False) == {}


@pytest.mark.parametrize(
    ("match", "flawed", "after", "before"),
    [
        pytest.param(None, 5, False, True, id="nothing found"),
        pytest.param(None, 5, True, True, id="nothing found backwards"),
        pytest.param(7, 5, False, True, id="before"),
        pytest.param(3, 5, False, False, id="behind"),
        pytest.param(5, 5, False, True, id="itself"),
        pytest.param(3, 5, True, True, id="searched before, backwards"),
        pytest.param(7, 5, True, False, id="searched behind, backwards"),
        pytest.param(5, 5, True, True, id="itself, backwards"),
    ],
)
def test_a_flaw_counts_up_to_what_was_found(match: int | None, flawed: int, *, after: bool, before: bool) -> None:
    looked = Looked({} if match is None else {P: match}, {}, {P: Flawed(1, flawed, "it is not as its schema says")})
    assert (P in looked.flawed_up_to_matches(after=after)) == before
