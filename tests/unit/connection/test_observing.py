"""One look a tick, for all."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fake_control import FakeControlTopics
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.connection.watched import Snapshot
from tidegate.control.gates import Gates
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Cluster, Group, GroupState, GroupType, Offsets, Topic, TopicPartition
from tidegate.kafka.ports import ClusterReader


class Counting:
    """A cluster that counts how often it is asked; ``gate`` holds its answers back."""

    def __init__(self) -> None:
        self.described: list[frozenset[str]] = []
        self.listed: list[frozenset[str] | None] = []
        self.read: list[frozenset[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.away = False
        self.live: set[str] = set()
        """Groups that have members; the others are Empty."""

    def cluster(self) -> Cluster:
        self.gate.wait(10)
        if self.away:
            raise Unavailable("nobody answers")
        return Cluster("c", ())

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        self.listed.append(None if names is None else frozenset(names))
        return {name: Topic(name, f"id-{name}", 1) for name in (names if names is not None else ("all",))}

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        self.read.append(frozenset(group_ids))
        return {group: {TopicPartition("orders", 0): 7} for group in group_ids}

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        self.described.append(frozenset(group_ids))
        state = {True: GroupState.STABLE, False: GroupState.EMPTY}
        return {g: Group(g, state[g in self.live], GroupType.CLASSIC) for g in group_ids}


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
            control.ensure()
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


@pytest.mark.parametrize(
    "failure",
    [NotAuthorized("describe group secret"), Refused("describe group secret: its members are no consumers (connect)")],
)
def test_a_group_that_cannot_be_described_blinds_only_those_who_ask_for_it(failure: KafkaFailure) -> None:
    class Guarded(Counting):
        def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
            if "secret" in group_ids:
                raise failure
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
    assert secret.failure is failure
    assert nobodys.failure is None


# --- no more than is needed -------------------------------------------------------------------------------------------

MANY = 500


def crowd(observer: Observer) -> list[str]:
    """Very many groups at rest."""
    names = [f"g{number}" for number in range(MANY)]
    for name in names:
        observer.want(f"pause-{name}", "uid", name, active=False, gates=True)
    return names


def test_whoever_waits_for_one_group_has_that_one_described_and_no_other() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=0.01, idle_tick_s=60)
            observer.connect("uid", "ns/kafka", _reader(kafka), CountingTopics(kafka))
            await asyncio.gather(*(observer.newest("uid", group=name, gates=True) for name in crowd(observer)))
            assert [len(groups) for groups in kafka.described] == [MANY]
            observer.want("new", "uid", "new", active=True, gates=True)
            for _ in range(3):
                snapshot = await observer.newest("uid", group="new", gates=True)
                assert {"new", "g0"} <= snapshot.groups.keys()
                await asyncio.sleep(0.02)
            assert kafka.described[1:] == [frozenset({"new"})] * 3
            assert kafka.listed == []

    asyncio.run(ask())


def test_what_many_registered_at_rest_is_described_at_once_when_one_of_them_asks() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=0.01, idle_tick_s=0.2)
            observer.connect("uid", "ns/kafka", _reader(kafka))
            names = crowd(observer)
            for _ in range(2):
                for name in names:
                    await observer.newest("uid", group=name)
                await asyncio.sleep(0.2)
            assert kafka.described[0] == frozenset(names)
            assert len(kafka.described) < 10

    asyncio.run(ask())


def test_gates_are_never_older_than_what_a_group_was_described_as() -> None:
    async def ask() -> None:
        kafka = Counting()
        control = CountingTopics(kafka)
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=60, idle_tick_s=120)
            control.ensure()
            observer.connect("uid", "ns/kafka", _reader(kafka), control)
            observer.want("pause", "uid", "g", active=True, gates=True)
            await observer.newest("uid", group="g", gates=True)
            wrote_s = asyncio.get_running_loop().time()
            await observer.newest("uid", group="g", since_s=wrote_s)  # whoever asks for no gates
            assert control.read_after == [1]

            await observer.newest("uid", group="g", gates=True)

            assert control.read_after == [1, 2]
            assert len(kafka.described) == 2

    asyncio.run(ask())


def test_who_waits_longer_than_a_tick_is_answered_by_the_look_that_it_waited_for() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=0.0001, idle_tick_s=0.0001)
            observer.connect("uid", "ns/kafka", _reader(kafka))
            async with asyncio.timeout(10):
                await asyncio.gather(*(observer.newest("uid", group=name) for name in crowd(observer)))
        assert len(kafka.described) == 1

    asyncio.run(ask())


def test_topics_are_asked_for_by_name_and_all_of_them_only_where_that_is_needed() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(kafka, executor)
            found = await asyncio.gather(*(observer.topics("uid", [f"t{number}"]) for number in range(MANY)))
            assert [list(topics) for topics in found] == [[f"t{number}"] for number in range(MANY)]
            assert kafka.listed == [frozenset(f"t{number}" for number in range(MANY))]
            for _ in range(3):
                assert list(await observer.topics("uid", None)) == ["all"]
            assert kafka.listed[1:] == [None]
            await observer.topics("uid", ["t0"], 0)
            assert kafka.listed[2:] == [frozenset({"t0"})]

    asyncio.run(ask())


def test_offsets_of_many_groups_are_read_at_once() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(kafka, executor)
            names = crowd(observer)
            found = await asyncio.gather(*(observer.committed("uid", name, 60) for name in names))
            assert found == [{TopicPartition("orders", 0): 7}] * MANY
            assert kafka.read == [frozenset(names)]

    asyncio.run(ask())


def test_what_was_wanted_before_a_connection_was_opened_counts_once_it_is() -> None:
    async def ask() -> None:
        kafka = Counting()
        with ThreadPoolExecutor(1) as executor:
            observer = Observer(executor, active_tick_s=1, idle_tick_s=10)
            observer.want("a", "uid", "ga", active=True)
            observer.want("b", "uid", "gb", active=False)
            observer.drop("b")
            observer.connect("uid", "ns/kafka", _reader(kafka))
            assert observer.tick_s("uid") == 1
            observer.connect("uid", "ns/kafka", _reader(kafka))  # it has changed
            assert observer.tick_s("uid") == 1
            await observer.newest("uid", group="ga")
            observer.disconnect("uid")
            observer.connect("uid", "ns/kafka", _reader(kafka))
            await observer.newest("uid", group="ga")
        assert kafka.described == [frozenset({"ga"})] * 2

    asyncio.run(ask())


def test_groups_that_may_not_be_described_are_asked_for_apart_from_the_others() -> None:
    class Guarded(Counting):
        def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
            if "secret" in group_ids:
                self.described.append(frozenset(group_ids))
                raise NotAuthorized("describe group secret")
            return super().groups(group_ids)

    async def ask() -> None:
        kafka = Guarded()
        with ThreadPoolExecutor(4) as executor:
            observer = Observer(executor, active_tick_s=60, idle_tick_s=60)
            observer.connect("uid", "ns/kafka", _reader(kafka))
            observer.want("secret", "uid", "secret", active=False)
            names = crowd(observer)
            await observer.newest("uid", group="g0")
            before = len(kafka.described)
            now_s = asyncio.get_running_loop().time()
            await asyncio.gather(*(observer.newest("uid", group=name, since_s=now_s) for name in [*names, "secret"]))
            assert sorted(map(len, kafka.described[before:])) == [1, MANY]

    asyncio.run(ask())


def test_those_who_ask_for_groups_again_and_again_are_answered_together_without_having_registered() -> None:
    """Whoever had not said that it wants a group had it described by itself, each time."""

    async def ask() -> None:
        kafka = Counting()
        groups = [f"g{n}" for n in range(20)]
        with ThreadPoolExecutor(4) as executor:
            observer = observer_of(kafka, executor, tick_s=0.05)
            for _ in range(3):
                for group in groups:
                    await observer.newest("uid", group=group)
                await asyncio.sleep(0.06)
        rounds = [described for described in kafka.described if len(described) > 1]
        assert frozenset(groups) in rounds
        assert len(kafka.described) < 2 * len(groups)

    asyncio.run(ask())


def _stirred_by(change: str) -> list[str]:
    """Who is told, of pauses a and b at rest and c under way, when a look shows the change."""

    async def ask() -> list[str]:
        kafka, control, stirred = Counting(), FakeControlTopics(), list[str]()
        with ThreadPoolExecutor(1) as executor:
            observer = Observer(executor, active_tick_s=0.01, idle_tick_s=0.01, stirred=stirred.append)
            control.ensure()
            observer.connect("uid", "ns/kafka", _reader(kafka), control)
            for holder in ("a", "b", "c"):
                observer.want(holder, "uid", f"g{holder}", active=holder == "c", gates=True)
            for _ in range(2):
                await observer.newest("uid", group="ga", gates=True)
                await asyncio.sleep(0.02)
            stirred.clear()
            match change:
                case "members":
                    kafka.live = {"ga", "gc"}
                case "hold":
                    control.hold({HoldKey("gb", "orders", 0, "pause/x"): Hold("test")})
                case "away":
                    kafka.away = True
            for _ in range(2):
                await observer.newest("uid", group="ga", gates=True)
                await asyncio.sleep(0.02)
        return stirred

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("change", "told"), [("nothing", []), ("members", ["a"]), ("hold", ["b"]), ("away", ["a", "b"])]
)
def test_who_rests_is_told_when_a_look_shows_something_new_of_its_group(change: str, told: list[str]) -> None:
    assert sorted(_stirred_by(change)) == told


def test_who_rests_is_looked_at_beside_one_in_progress() -> None:
    """All looks may be for that one."""

    async def ask() -> list[str]:
        kafka, stirred = Counting(), list[str]()
        with ThreadPoolExecutor(1) as executor:
            observer = Observer(executor, active_tick_s=0.01, idle_tick_s=0.1, stirred=stirred.append)
            observer.connect("uid", "ns/kafka", _reader(kafka))
            observer.want("rest", "uid", "ga", active=False)
            observer.want("busy", "uid", "gb", active=True)
            await observer.newest("uid", group="ga")
            stirred.clear()
            kafka.live = {"ga"}
            async with asyncio.timeout(10):
                while not stirred:
                    await observer.newest("uid", group="gb")
                    await asyncio.sleep(0.02)
        return stirred

    assert asyncio.run(ask()) == ["rest"]
