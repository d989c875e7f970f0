"""A process of the operator that was replaced takes no further step."""

import asyncio
import dataclasses
import functools
import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from tidegate.running import Operator, OwnCertificates, _close_all


def test_all_loops_are_halted_and_the_health_check_fails() -> None:
    loops = {f.name: Mock() for f in dataclasses.fields(Operator) if f.type == "LevelLoop"}
    operator: Any = SimpleNamespace(freshness=Mock(), metrics=Mock(), sweeping=None, replaced=asyncio.Event(), **loops)

    Operator.give_way(cast("Operator", operator), "another process writes")

    assert len(loops) == 7
    assert [name for name, loop in loops.items() if not loop.halt.called] == []
    operator.metrics.leads.assert_called_once_with(False)
    operator.freshness.replaced.assert_called_once_with("another process writes")
    assert operator.replaced.is_set()


def test_what_a_defect_has_ended_keeps_nothing_else_from_being_stopped() -> None:
    parts = {f.name: AsyncMock() for f in dataclasses.fields(Operator) if f.type == "LevelLoop"}
    parts |= {name: AsyncMock() for name in ("mirroring", "discovery", "_leave_election")}
    closed = {name: Mock() for name in ("direct", "leaders", "clients", "files", "servers")}
    executors = {name: Mock() for name in ("lister", "executor", "patient_executor", "connect_executor")}

    async def story() -> None:
        certificates, watchdog = OwnCertificates(dying(), 1.0), asyncio.create_task(dies())
        certificates.start()
        await asyncio.wait([watchdog])
        operator: Any = SimpleNamespace(
            **parts,
            **closed,
            **executors,
            live=(),
            webhook=None,
            sweeping=None,
            watchdog=watchdog,
            own_certificates=certificates,
        )
        await Operator._stop(cast("Operator", operator))

    asyncio.run(story())

    assert parts["resets"].stop.await_count == 1
    assert parts["_leave_election"].await_count == 1
    assert closed["servers"].stop.call_count == 1


def test_what_a_defect_has_ended_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        certificates = OwnCertificates(dying(), 1.0)
        certificates.start()
        assert certificates.keeping is not None
        await asyncio.wait([certificates.keeping])
        await asyncio.sleep(0)

    asyncio.run(story())

    assert [record.getMessage() for record in caplog.records] == ["own certificates ended with an unexpected error"]


async def dies() -> None:
    raise ZeroDivisionError


def dying() -> Any:
    """What keeps certificates, with a defect."""
    return Mock(run=Mock(side_effect=lambda _interval_s: dies()))


def test_a_connection_that_can_not_be_closed_holds_up_neither_the_others_nor_the_end() -> None:
    answered, closed = threading.Event(), list[int]()

    def stuck() -> None:
        answered.wait(60)

    _close_all([stuck] * 3 + [functools.partial(closed.append, n) for n in range(50)], limit_s=0.5)

    assert sorted(closed) == list(range(50))
    assert not answered.is_set(), "and nobody has waited for it"
    answered.set()
