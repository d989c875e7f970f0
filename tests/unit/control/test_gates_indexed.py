"""What gates look up by an index is what is held, in each of their copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.gates import Gates
from tidegate.control.records import Hold, HoldKey

HOLDERS = ["pause/conn/a", "pause/other/a", "pause/conn/b", "run/c"]
KEYS = st.builds(HoldKey, st.sampled_from(["g", "h"]), st.just("orders"), st.integers(0, 2), st.sampled_from(HOLDERS))
STEPS = st.lists(st.one_of(st.none(), st.tuples(KEYS, st.booleans())), max_size=30)
HOLD = Hold("because")


def _looked_up(gates: Gates) -> dict[str, object]:
    return {tail: dict(gates.held_by(tail)) for tail in ("a", "b", "c", "d")}


def _counted(gates: Gates) -> dict[str, object]:
    return {
        tail: {key: held for key, held in gates.holds.items() if key.holder.rpartition("/")[2] == tail}
        for tail in ("a", "b", "c", "d")
    }


@given(STEPS)
def test_holds_are_found_by_whose_they_are_in_each_copy(steps: list[tuple[HoldKey, bool] | None]) -> None:
    gates, copies = Gates(), list[tuple[Gates, dict[str, object]]]()
    for epoch, step in enumerate(steps, 1):
        if step is None:
            copy = gates.copy({}, heard=False)
            copies.append((copy, _counted(copy)))
        else:
            key, is_held = step
            gates.take(key, HOLD if is_held else None, epoch)

        assert _looked_up(gates) == _counted(gates)
    for copy, then in copies:
        assert _looked_up(copy) == then == _counted(copy)


@given(STEPS, STEPS)
def test_the_groups_that_changed_are_those_of_which_something_is_held_otherwise(
    before: list[tuple[HoldKey, bool] | None], after: list[tuple[HoldKey, bool] | None]
) -> None:
    gates, epoch = Gates(), 0
    for key, is_held in filter(None, before):
        epoch += 1
        gates.take(key, HOLD if is_held else None, epoch)
    copy = gates.copy({}, heard=False)
    for key, is_held in filter(None, after):
        epoch += 1
        gates.take(key, HOLD if is_held else None, epoch)

    def of(group: str, these: Gates) -> dict[HoldKey, object]:
        return {key: held for key, held in these.holds.items() if key.group == group}

    assert gates.groups_changed_since(copy) == {g for g in ("g", "h") if of(g, gates) != of(g, copy)}
