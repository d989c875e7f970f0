"""A process of the operator that was replaced takes no further step."""

import asyncio
import dataclasses
import functools
import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from tidegate.running import Operator, _close_all


def test_all_loops_are_halted_and_the_health_check_fails() -> None:
    loops = {f.name: Mock() for f in dataclasses.fields(Operator) if f.type == "LevelLoop"}
    operator: Any = SimpleNamespace(freshness=Mock(), metrics=Mock(), sweeping=None, replaced=asyncio.Event(), **loops)

    Operator.give_way(cast("Operator", operator), "another process writes")

    assert len(loops) == 7
    assert [name for name, loop in loops.items() if not loop.halt.called] == []
    operator.metrics.leads.assert_called_once_with(False)
    operator.freshness.replaced.assert_called_once_with("another process writes")
    assert operator.replaced.is_set()


def test_a_connection_that_can_not_be_closed_holds_up_neither_the_others_nor_the_end() -> None:
    answered, closed = threading.Event(), list[int]()

    def stuck() -> None:
        answered.wait(60)

    _close_all([stuck] * 3 + [functools.partial(closed.append, n) for n in range(50)], limit_s=0.5)

    assert sorted(closed) == list(range(50))
    assert not answered.is_set(), "and nobody has waited for it"
    answered.set()
