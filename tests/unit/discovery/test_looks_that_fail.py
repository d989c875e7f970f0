"""How often a connection's topics are looked at while the cluster does not answer, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from support.live import live_of
from support.virtual_time import AtOnce, VirtualLoop
from tidegate.discovery import watch
from tidegate.discovery.backfill import Backfills
from tidegate.discovery.backoff import LONGEST_S
from tidegate.discovery.watch import ConnectionWatch, WatchParts
from tidegate.kafka.errors import Unavailable
from tidegate.service.metrics import Metrics

USUAL_S = 1.0
"""Where nobody asks for another interval."""


def test_a_cluster_that_does_not_answer_is_asked_less_and_less_often_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "ThreadPoolExecutor", AtOnce)
    clock, looks_s = FakeClock(), list[float]()
    kafka, loop = FakeKafka(clock), VirtualLoop(clock)
    called = kafka._called

    def noted(name: str) -> None:
        if name == "poll":
            looks_s.append(clock.monotonic())
        called(name)

    kafka._called = noted  # type: ignore[method-assign]
    kafka.fail("poll", *[Unavailable("away")] * 10)
    parts = WatchParts(AtOnce(), clock, lambda _uid: None, Metrics(), Backfills(), lambda _live: False)

    async def looks() -> None:
        looking = ConnectionWatch(live_of(kafka, "c"), parts)
        looking.start()
        await asyncio.sleep(60)
        await looking.close()

    loop.run_until_complete(looks())
    loop.close()

    rests_s = [after - before for before, after in itertools.pairwise(looks_s)]
    assert rests_s[:10] == pytest.approx([USUAL_S, USUAL_S, USUAL_S, 1.6, 3.2, *[LONGEST_S] * 5], abs=0.01)
    assert rests_s[10:] == pytest.approx([USUAL_S] * len(rests_s[10:]), abs=0.01)
    assert len(rests_s) > 20
