"""One look a tick, for all."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Cluster, Group, GroupState, GroupType, Topic
from tidegate.kafka.ports import ClusterReader
from tidegate.observe import NotLookedAt, Observer, Snapshot


class Counting:
    """A cluster that counts how often it is asked; ``gate`` holds its answers back."""

    def __init__(self) -> None:
        self.described: list[frozenset[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.away = False

    def cluster(self) -> Cluster:
        self.gate.wait(10)
        if self.away:
            raise Unavailable("nobody answers")
        return Cluster("c", ())

    def topics(self) -> Mapping[str, Topic]:
        return {}

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        self.described.append(frozenset(group_ids))
        return {g: Group(g, GroupState.EMPTY, GroupType.CLASSIC) for g in group_ids}


def observer_of(kafka: Counting, executor: ThreadPoolExecutor, tick_s: float = 60.0) -> Observer:
    observer = Observer(executor, active_tick_s=tick_s, idle_tick_s=tick_s)
    observer.connect("uid", "ns/kafka", _reader(kafka))
    return observer


def _reader(kafka: Counting) -> ClusterReader:
    return kafka  # type: ignore[return-value]


def test_twenty_policies_at_once_cause_one_describe_with_all_groups() -> None:
    async def ask() -> list[Snapshot]:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(kafka, executor)
            for n in range(20):
                observer.want(f"policy-{n}", "uid", f"group-{n}", active=True)
            found = await asyncio.gather(*(observer.newest("uid", group=f"group-{n}") for n in range(20)))
            again = await observer.newest("uid")
        assert kafka.described == [frozenset(f"group-{n}" for n in range(20))]
        return [*found, again]

    assert len({id(snapshot) for snapshot in asyncio.run(ask())}) == 1


def test_who_comes_during_a_look_waits_for_it_and_a_new_group_costs_one_more() -> None:
    async def ask() -> None:
        kafka = Counting()
        kafka.gate.clear()
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(kafka, executor)
            observer.want("a", "uid", "ga", active=True)
            first = asyncio.create_task(observer.newest("uid", group="ga"))
            await asyncio.sleep(0.05)
            late = []
            for n in range(10):
                observer.want(f"late-{n}", "uid", f"g{n}", active=True)
                late.append(asyncio.create_task(observer.newest("uid", group=f"g{n}")))
            await asyncio.sleep(0.05)
            kafka.gate.set()
            await asyncio.gather(first, *late)
        assert len(kafka.described) == 2

    asyncio.run(ask())


def test_who_asks_without_having_registered_is_answered_too() -> None:
    async def ask() -> Snapshot:
        kafka = Counting()
        with ThreadPoolExecutor(1) as executor:
            observer = observer_of(kafka, executor)
            await observer.newest("uid")
            async with asyncio.timeout(5):
                return await observer.newest("uid", group="g")

    assert "g" in asyncio.run(ask()).groups


def test_the_tick_is_short_only_while_something_is_under_way() -> None:
    with ThreadPoolExecutor(1) as executor:
        observer = Observer(executor, active_tick_s=1, idle_tick_s=10)
        observer.connect("uid", "ns/kafka", _reader(Counting()))
        observer.want("a", "uid", "g", active=True)
        assert observer.tick_s("uid") == 1
        assert observer.tick_s("another") == 10
        observer.want("a", "uid", "g", active=False)
        assert observer.tick_s("uid") == 10
        observer.want("a", "uid", "g", active=True)
        observer.drop("a")
        assert observer.tick_s("uid") == 10


def test_a_failed_look_is_an_answer_too() -> None:
    async def ask() -> Snapshot:
        kafka = Counting()
        kafka.away = True
        with ThreadPoolExecutor(1) as executor:
            observer = observer_of(kafka, executor)
            observer.want("a", "uid", "g", active=True)
            return await observer.newest("uid", group="g")

    assert isinstance(asyncio.run(ask()).failure, Unavailable)


def test_a_look_that_takes_longer_than_the_tick_still_answers() -> None:
    async def ask() -> None:
        kafka = Counting()
        kafka.gate.clear()
        with ThreadPoolExecutor(1) as executor:
            observer = observer_of(kafka, executor, tick_s=0.05)
            asked = asyncio.create_task(observer.newest("uid"))
            await asyncio.sleep(0.3)
            kafka.gate.set()
            async with asyncio.timeout(2):
                await asked

    asyncio.run(ask())


def test_a_closed_connection_is_not_looked_at() -> None:
    async def ask() -> None:
        kafka = Counting()
        kafka.gate.clear()
        with ThreadPoolExecutor(1) as executor:
            observer = observer_of(kafka, executor)
            asked = asyncio.create_task(observer.newest("uid"))
            await asyncio.sleep(0.05)
            observer.disconnect("uid")
            kafka.gate.set()
            await asked

    with pytest.raises(NotLookedAt):
        asyncio.run(ask())
