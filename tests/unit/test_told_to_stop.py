"""The operator is told to stop while it waits for the API server to serve its kinds: kopf does not run yet."""

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
