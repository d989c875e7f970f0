"""The operator is told to stop: while it waits for the API server to serve its kinds, and while kopf runs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from kopf import OperatorRegistry
from kopf._core.intents.causes import Activity

from tidegate import main
from tidegate.kube.ports import Kind, KubeFailure
from tidegate.running import Replaced
from tidegate.service.settings import Settings


@pytest.fixture
def unharmed() -> Iterator[None]:
    """What nobody takes must not end the tests."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Unserved:
    """Without our CRDs."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def list(self, kind: Kind) -> Any:
        self.asked.set()
        raise KubeFailure(f"list {kind.plural}: 404 page not found")


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = MagicMock()
    made.kube, made.start, made.stop = Unserved(), AsyncMock(), AsyncMock()
    made.replaced, made.why_replaced = asyncio.Event(), "another process writes"
    monkeypatch.setattr(main, "build", lambda _settings: made)
    monkeypatch.setattr(main, "_collect_seldom", lambda: None)
    monkeypatch.setattr(main, "kopf", SimpleNamespace(**{**vars(main.kopf), "operator": AsyncMock()}))
    return made


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_in_order_when_it_is_told_to(operator: Any, number: signal.Signals) -> None:
    async def story() -> None:
        running = asyncio.create_task(main.run(Settings()))
        assert await asyncio.to_thread(operator.kube.asked.wait, 20)
        os.kill(os.getpid(), number)
        async with asyncio.timeout(20):
            await running

    asyncio.run(story())

    assert operator.stop.await_count
    assert not main.kopf.operator.await_count


@pytest.mark.usefixtures("unharmed")
def test_it_ends_where_another_process_takes_its_place(operator: Any) -> None:
    async def story() -> None:
        running = asyncio.create_task(main.run(Settings()))
        assert await asyncio.to_thread(operator.kube.asked.wait, 20)
        operator.replaced.set()
        with pytest.raises(Replaced):
            async with asyncio.timeout(20):
                await running

    asyncio.run(story())

    assert operator.stop.await_count


@pytest.mark.usefixtures("unharmed")
def test_nothing_is_left_that_kopf_would_wait_for(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the signal itself, runs the cleanup, and then waits seconds for whoever still waits for its flag."""
    operator.kube = MagicMock()
    left: set[asyncio.Task[Any]] = set()

    async def ended_by_a_signal(*, registry: OperatorRegistry, stop_flag: asyncio.Event, **_: Any) -> None:
        waiter = asyncio.create_task(stop_flag.wait())
        await asyncio.sleep(0)
        for handler in registry._activities.get_handlers(activity=Activity.CLEANUP):
            await handler.fn()
        _, pending = await asyncio.wait({waiter}, timeout=5)
        left.update(pending)
        waiter.cancel()

    monkeypatch.setattr(main.kopf, "operator", ended_by_a_signal)
    asyncio.run(main.run(Settings()))

    assert operator.stop.await_count
    assert not left
