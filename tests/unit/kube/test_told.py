"""Which Events were recorded: the same one once, and what is remembered of that does not grow without end."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from support.fake_kube import FakeKube
from tidegate.kube.objects import Told, tell_once
from tidegate.kube.ports import POLICIES, EventType, KubeEvent


def test_an_event_is_recorded_once_and_the_oldest_keys_are_let_go() -> None:
    kube, told = FakeKube(), Told(most=3)
    body = kube.create(POLICIES, "ns", "p", {}, "2026-01-01T00:00:00Z")

    async def tell(*keys: str) -> None:
        with ThreadPoolExecutor(1) as executor:
            for key in keys:
                await tell_once(kube, executor, body, KubeEvent(EventType.NORMAL, "R", key, key), told)

    asyncio.run(tell("a", "b", "a", "c", "d", "e"))

    assert [event.key for event in kube.happenings_of("p")] == ["a", "b", "c", "d", "e"]
    assert [key for key in "abcde" if key in told] == ["c", "d", "e"]
