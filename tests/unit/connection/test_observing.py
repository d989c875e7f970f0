"""One look a tick, for all."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fake_control import FakeControlTopics
from tidegate.connection.observer import NotLookedAt, Observer, Snapshot
from tidegate.control.gates import Gates
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import Cluster, Group, GroupState, GroupType, Topic
from tidegate.kafka.ports import ClusterReader


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


# --- gates ------------------------------------------------------------------------------------------------------------


class CountingTopics(FakeControlTopics):
    """Counts how often it is read; `kafka` tells how many describes came before."""

    def __init__(self, kafka: Counting) -> None:
        super().__init__()
        self._kafka = kafka
        self.read_after: list[int] = []

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        self.read_after.append(len(self._kafka.described))
        return super().read(groups, wait_s=wait_s)


def test_the_gates_are_read_once_for_all_after_the_groups_and_only_for_those_who_want_them() -> None:
    async def ask() -> None:
        kafka = Counting()
        control = CountingTopics(kafka)
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=60, idle_tick_s=60)
            observer.connect("uid", "ns/kafka", _reader(kafka), control)
            observer.want("policy", "uid", "g", active=True)
            assert (await observer.newest("uid", group="g")).gates is None
            assert control.read_after == []
            for n in range(20):
                observer.want(f"pause-{n}", "uid", f"g{n}", active=True, gates=True)
            found = await asyncio.gather(*(observer.newest("uid", group=f"g{n}", gates=True) for n in range(20)))
            assert len({id(snapshot) for snapshot in found}) == 1
            assert found[0].gates is not None
        assert control.read_after == [2]

    asyncio.run(ask())


def test_topics_that_cannot_be_read_do_not_hide_the_groups() -> None:
    async def ask() -> None:
        kafka = Counting()
        control = FakeControlTopics()
        control.failure = Unavailable("nobody leads the topic")
        with ThreadPoolExecutor(1) as executor:
            observer = Observer(executor, active_tick_s=60, idle_tick_s=60)
            observer.connect("uid", "ns/kafka", _reader(kafka), control)
            snapshot = await observer.newest("uid", group="g", gates=True)
            assert snapshot.failure is None
            assert snapshot.gates_failure is control.failure
            assert "g" in snapshot.groups

    asyncio.run(ask())


def test_whoever_has_written_sees_what_was_read_afterwards() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(1) as executor:
            observer = observer_of(kafka, executor)
            kafka.gate.clear()
            early = asyncio.create_task(observer.newest("uid"))
            await asyncio.sleep(0.05)
            wrote_s = asyncio.get_running_loop().time()  # while a look is on its way
            late = asyncio.create_task(observer.newest("uid", since_s=wrote_s))
            await asyncio.sleep(0.05)
            kafka.gate.set()
            assert (await early).began_s < wrote_s
            assert (await late).began_s >= wrote_s

    asyncio.run(ask())


def test_who_waits_for_consumers_has_a_tick_of_its_own() -> None:
    with ThreadPoolExecutor(1) as executor:
        observer = Observer(executor, active_tick_s=1, idle_tick_s=10)
        observer.connect("uid", "ns/kafka", _reader(Counting()))
        observer.want("policy", "uid", "g", active=True)
        observer.want("pause", "uid", "g", active=True, tick_s=0.2)
        assert observer.tick_s("uid") == 0.2
        observer.want("pause", "uid", "g", active=False)
        assert observer.tick_s("uid") == 1


def test_a_group_that_may_not_be_described_blinds_only_those_who_ask_for_it() -> None:
    class Guarded(Counting):
        def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
            if "secret" in group_ids:
                raise NotAuthorized("describe group secret")
            return super().groups(group_ids)

    async def ask() -> tuple[Snapshot, Snapshot, Snapshot]:
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(Guarded(), executor)
            for name in ("mine", "secret"):
                observer.want(name, "uid", name, active=True)
            return (
                await observer.newest("uid", group="mine"),
                await observer.newest("uid", group="secret"),
                await observer.newest("uid"),
            )

    mine, secret, nobodys = asyncio.run(ask())
    assert mine.failure is None
    assert list(mine.groups) == ["mine"]
    assert isinstance(secret.failure, NotAuthorized)
    assert nobodys.failure is None
