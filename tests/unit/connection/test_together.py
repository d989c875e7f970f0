"""What many ask for is read for all of them at once."""

import asyncio
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidegate.connection import together as module
from tidegate.connection.together import Together
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable

MANY = 500


class Shelf:
    """Counts how often it is read; ``secret`` may not be."""

    def __init__(self) -> None:
        self.reads: list[frozenset[str]] = []
        self.failure: KafkaFailure | None = None
        self.gate = threading.Event()
        self.gate.set()

    def read(self, keys: Collection[str]) -> Mapping[str, int]:
        self.reads.append(frozenset(keys))
        self.gate.wait(10)
        if self.failure is not None:
            raise self.failure
        if "secret" in keys:
            raise NotAuthorized("read secret")
        return {key: len(self.reads) for key in keys if key != "missing"}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def together(shelf: Shelf) -> Iterator[Together[str, int]]:
    with ThreadPoolExecutor(2) as executor:
        yield Together(executor, shelf.read)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loop's clock, which stands still unless it is moved."""
    now = [1000.0]
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda _loop: now[0])
    return now


def test_who_asks_one_after_the_other_is_read_for_once(shelf: Shelf, together: Together[str, int]) -> None:
    groups = [f"g{number}" for number in range(MANY)]

    async def ask() -> None:
        await together.get(groups, 0.2)
        for _ in range(2):
            await asyncio.sleep(0.3)
            for group in groups:
                await together.get([group], 0.2)

    asyncio.run(ask())

    assert shelf.reads == [frozenset(groups)] * len(shelf.reads)
    assert len(shelf.reads) < 10


def test_who_asks_seldom_but_at_the_same_moment_is_read_for_at_once(
    shelf: Shelf, together: Together[str, int], clock: list[float]
) -> None:
    async def ask() -> None:
        for _ in range(3):
            await asyncio.gather(*(together.get([f"g{number}"], 10) for number in range(MANY)))
            clock[0] += 60

    asyncio.run(ask())

    assert [len(keys) for keys in shelf.reads] == [MANY, MANY, MANY]


def test_who_asks_seldom_is_not_read_for_all_the_time(
    shelf: Shelf, together: Together[str, int], clock: list[float]
) -> None:
    """A pause at rest asks once a minute, for what may be ten seconds old."""

    async def ask() -> None:
        await together.get(["seldom"], 10)
        clock[0] += 60
        await together.get(["seldom"], 10)
        for _ in range(10):
            clock[0] += 12
            await together.get(["often"], 10)

    asyncio.run(ask())

    seldom = [number for number, keys in enumerate(shelf.reads) if "seldom" in keys]
    assert seldom == [0, 1, 6, 7], "when it asks, and when a minute has gone by again, but not for ever"


def test_who_asks_at_once_is_read_for_once(shelf: Shelf, together: Together[str, int]) -> None:
    async def ask() -> list[dict[str, int]]:
        return await asyncio.gather(*(together.get([f"g{number}"], 60) for number in range(MANY)))

    assert asyncio.run(ask()) == [{f"g{number}": 1} for number in range(MANY)]
    assert len(shelf.reads) == 1


def test_what_is_not_there_is_absent_and_not_asked_for_again(shelf: Shelf, together: Together[str, int]) -> None:
    async def ask() -> None:
        assert await together.get(["missing", "g"], 60) == {"g": 1}
        assert await together.get(["missing", "g"], 60) == {"g": 1}

    asyncio.run(ask())
    assert len(shelf.reads) == 1


def test_what_may_not_be_read_fails_for_those_only_who_ask_for_it(shelf: Shelf, together: Together[str, int]) -> None:
    async def ask() -> list[object]:
        return await asyncio.gather(
            *(together.get([key], 60) for key in ("a", "secret", "b")),
            return_exceptions=True,
        )

    first, second, third = asyncio.run(ask())

    assert isinstance(second, NotAuthorized)
    assert [list(found) for found in (first, third) if isinstance(found, dict)] == [["a"], ["b"]]

    async def again() -> None:
        with pytest.raises(NotAuthorized):
            await together.get(["secret"], 60)
        before = len(shelf.reads)
        await together.get(["a", "b"], 0)
        assert shelf.reads[before:] == [frozenset("ab")], "what has failed is left out"

    asyncio.run(again())


def test_a_cluster_that_does_not_answer_is_told_of(shelf: Shelf, together: Together[str, int]) -> None:
    shelf.failure = Unavailable("nobody answers")

    async def ask() -> None:
        with pytest.raises(Unavailable):
            await together.get(["a"], 60)
        shelf.failure = None
        assert await together.get(["a"], 60) == {"a": 3}

    asyncio.run(ask())


def test_one_that_gives_up_does_not_end_the_reading_for_others(shelf: Shelf, together: Together[str, int]) -> None:
    async def ask() -> dict[str, int]:
        shelf.gate.clear()
        first = asyncio.create_task(together.get(["a"], 60))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(together.get(["a"], 60))
        await asyncio.sleep(0.05)
        first.cancel()
        shelf.gate.set()
        return await second

    assert asyncio.run(ask()) == {"a": 1}
    assert len(shelf.reads) == 1


def test_an_answer_is_never_older_than_was_asked_for(shelf: Shelf, together: Together[str, int]) -> None:
    async def ask() -> None:
        await together.get(["a"], 60)
        assert await together.get(["a"], 0) == {"a": 2}
        assert await together.get(["a"], 60) == {"a": 2}

    asyncio.run(ask())


def test_who_waits_for_longer_than_anything_is_remembered_is_answered(
    shelf: Shelf, together: Together[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_S", 0.0)

    async def ask() -> None:
        shelf.gate.clear()
        first = asyncio.create_task(together.get(["a"], 0.01))
        await asyncio.sleep(0.02)
        second = asyncio.create_task(together.get(["b"], 0.01))
        await asyncio.sleep(0.2)
        shelf.gate.set()
        async with asyncio.timeout(5):
            assert (await first, await second) != ({}, {})

    asyncio.run(ask())
    assert len(shelf.reads) <= 3


@pytest.mark.parametrize("twice", [False, True])
def test_who_asks_twice_in_a_pass_has_the_same_rhythm(
    shelf: Shelf, together: Together[str, int], clock: list[float], twice: bool
) -> None:
    """A pause without ``partitions`` asks for its group's offsets for its topics, and for the lag."""

    async def ask() -> None:
        for _ in range(5):
            await together.get(["seldom"], 5)
            if twice:
                clock[0] += 0.05
                await together.get(["seldom"], 10)
            for _ in range(10):
                clock[0] += 6
                await together.get(["often"], 5)

    asyncio.run(ask())
    seldom = [keys for keys in shelf.reads if "seldom" in keys]
    assert len(seldom) <= 15, "of fifty"


def test_one_that_is_read_alone_does_not_have_the_others_read_one_by_one(
    shelf: Shelf, together: Together[str, int], clock: list[float]
) -> None:
    async def secret() -> None:
        with pytest.raises(KafkaFailure):
            await together.get(["secret"], 10)

    async def ask() -> None:
        await secret()
        clock[0] += 60
        shelf.reads.clear()
        # All in one slot; the one that is known to fail alone happens to be the first.
        await asyncio.gather(secret(), *(together.get([f"g{n}"], 10) for n in range(50)))

    asyncio.run(ask())
    assert len(shelf.reads) < 10
