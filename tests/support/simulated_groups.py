"""Groups of the in-memory Kafka with owners of every temper, resets of them, and writers that die or find no broker.

The simulation's clock makes each run the same, so a failure names the step at which the writer died.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeKafka
from support.killed import Killed
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import OutcomeUnknown, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection, Until
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.planning.counts import gather_counts
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way

TOPIC = "orders"


GROUP = "payments"


PARTITIONS = tuple(TopicPartition(TOPIC, n) for n in range(4))


RESET = PARTITIONS[:3]


BACK = 40


@dataclass
class Process:
    """A writer that dies just before or just after its ``dies_at``-th call to the outside world."""

    dies_at: int | None = None
    after: bool = False
    calls: list[str] = field(default_factory=list)
    dead: bool = False
    kept: list[Any] = field(default_factory=list)
    """What a dead process had open. Collecting it as garbage would close it."""

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if self.dead:
            raise Killed
        self.calls.append(name)
        dying = self.dies_at is not None and len(self.calls) == self.dies_at
        if dying and not self.after:
            self.dead = True
            raise Killed
        answer = do()
        if dying:
            self.dead = True
            raise Killed
        return answer


class DiesAt(Process):
    """A writer that dies just before its first call of a name that is ``at``."""

    def __init__(self, at: Callable[[str], bool]) -> None:
        super().__init__()
        self._at = at

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if not self.dead and self._at(name):
            self.dies_at = len(self.calls) + 1
        return super().call(name, do)


@dataclass
class Outage:
    """From its ``begins_at``-th call on, or from ``when`` on, a writer gets no answer from Kafka, for ``lasts_s``;
    everybody else does.

    ``after``: the first of these calls is carried out all the same.
    """

    clock: FakeClock
    begins_at: int
    lasts_s: float
    after: bool = False
    began: Callable[[], None] = lambda: None
    when: Callable[[str], bool] = lambda _name: False
    calls: list[str] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    dead: bool = False
    until_s: float | None = None

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if not name.startswith("kafka") or name == "kafka.writer" or name.endswith(("close", "exit")):
            return do()
        self.calls.append(name)
        begins = self.until_s is None and (len(self.calls) == self.begins_at or self.when(name))
        if begins:
            self.began()
            self.until_s = self.clock.monotonic() + self.lasts_s
        if self.until_s is None or self.clock.monotonic() >= self.until_s:
            return do()
        if begins and self.after:
            do()
        self.clock.sleep(0.3)
        if name.endswith("commit"):
            raise OutcomeUnknown(f"{name}: no answer")
        raise Unavailable(f"{name}: no answer")


class Mortal:
    """Stands for ``target`` and passes every call through a process that may die in it, or meet an outage."""

    def __init__(self, target: Any, process: Process | Outage, path: str) -> None:
        self._target, self._process, self._path = target, process, path

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        path = f"{self._path}.{name}"
        if name in ("membership", "control"):
            return Mortal(value, self._process, path)
        if name == "transaction" or path in ("kafka.membership.hold", "kafka.membership.guest"):
            return lambda *a, **k: self._context(value, path, a, k)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = self._process.call(path, lambda: value(*args, **kwargs))
            return Mortal(answer, self._process, path) if name == "writer" else answer

        return call

    @contextlib.contextmanager
    def _context(
        self, enter: Callable[..., Any], path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        manager = enter(*args, **kwargs)
        self._process.kept.append(manager)
        inner = self._process.call(path, manager.__enter__)
        try:
            yield Mortal(inner, self._process, path)
        except BaseException as error:
            if not self._process.dead:
                manager.__exit__(type(error), error, error.__traceback__)
            raise
        else:
            self._process.call(f"{path}.exit", lambda: manager.__exit__(None, None, None))


@dataclass(frozen=True)
class Kind:
    """A kind of group."""

    name: str
    way: Way
    protocol: GroupType = GroupType.CLASSIC
    assignor: str = "range"
    consumer: tuple[tuple[str, Any], ...] = ()


KINDS = (
    Kind("eager", Way.BARRIER),
    Kind("eager-java", Way.BARRIER, consumer=(("commits_all", True),)),
    Kind("eager-not-waiting", Way.BARRIER, consumer=(("waits", False),)),
    Kind("cooperative", Way.HANDOVER, assignor="cooperative-sticky"),
    Kind("consumer", Way.HANDOVER, protocol=GroupType.CONSUMER, assignor="uniform"),
    Kind("consumer-not-waiting", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=(("waits", False),)),
    Kind("before-kip-429", Way.HANDOVER, consumer=(("subscription_version", 0), ("keeps_position", True))),
    Kind("static", Way.BARRIER, consumer=(("static", True),)),
    Kind("managed-eager", Way.GATED, consumer=(("managed", True),)),
    Kind("managed-cooperative", Way.GATED, assignor="cooperative-sticky", consumer=(("managed", True),)),
    Kind("managed-consumer", Way.GATED, GroupType.CONSUMER, "uniform", consumer=(("managed", True), ("drain_s", 0.7))),
)


GO = Kind(
    "cooperative-go",
    Way.HANDOVER,
    assignor="cooperative-sticky",
    consumer=(("keeps_when_refused", True), ("subscription_version", 3)),
)
"""franz-go at its defaults."""


KAFKAJS = Kind("kafkajs", Way.HANDOVER, assignor="RoundRobinAssigner", consumer=(("subscription_version", 0),))


GO_OFTEN = replace(GO, name="cooperative-go-often", way=Way.LEADING, consumer=(*GO.consumer, ("auto_commit_s", 0.1)))
"""Its next commit is always before its next heartbeat."""


def _settings(kind: Kind, number: int) -> dict[str, Any]:
    """Of one consumer: ``static`` members have each an instance id of their own."""
    settings = dict(kind.consumer)
    if settings.pop("static", False):
        settings["group_instance_id"] = f"c{number}"
    return settings


def start_members(kafka: FakeKafka, kind: Kind) -> list[FakeConsumer]:
    """The three of a group of this kind."""
    return [
        FakeConsumer(
            kafka,
            GROUP,
            [TOPIC],
            client_id=f"c{n}",
            protocol=kind.protocol,
            assignor=kind.assignor,
            phase_s=0.7 * n,
            **_settings(kind, n),
        ).start()
        for n in range(3)
    ]


class World:
    """A topic that is written to all the time, and a group of three that reads it."""

    def __init__(self, kind: Kind, folder: Path, *, targets: dict[TopicPartition, int] | None = None) -> None:
        self.kind = kind
        self.clock = FakeClock()
        self.clock.deaths = (Killed,)
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic(TOPIC, len(PARTITIONS))
        self.producing = True
        self._produce()
        self.consumers = start_members(self.kafka, kind)
        self.clock.sleep(12)
        committed = self.kafka.committed(GROUP)
        self.targets = targets or {p: committed[p] - BACK for p in RESET}
        self.store = DirectoryRunStore(folder, "run", clock=self.clock)
        self.started_s = 0.0
        self.processes: list[Process | Outage] = []

    def _produce(self) -> None:
        if self.producing:
            for partition in PARTITIONS:
                self.kafka.append(partition, [self.clock.now()])
            self.clock.after(0.1, self._produce)

    def create(
        self,
        *,
        deadline: timedelta | None = timedelta(minutes=5),
        until: Until | None = None,
        dead_letter: str = "",
        **settings: Any,
    ) -> None:
        rows = tuple(PartitionOffset(p.topic, p.partition, o) for p, o in self.targets.items())
        request = RunRequest(
            run_uid="uid/1",
            run_id="1",
            group_id=GROUP,
            connection=Connection("nowhere:9092"),
            selections=tuple(
                Selection(topic, frozenset(p.partition for p in self.targets if p.topic == topic))
                for topic in sorted({p.topic for p in self.targets})
            ),
            target=FromFile(rows, "test"),
            settings=ApplySettings(deadline=self.clock.now() + deadline if deadline else None, **settings),
            until=until,
            dead_letter=dead_letter,
        )
        self.store.create(request)
        self.started_s = self.clock.monotonic()

    def execute(self, process: Process | Outage | None = None) -> RunResult | None:
        process = process or Process()
        self.processes.append(process)
        kafka: Any = Mortal(self.kafka, process, "kafka")
        store: Any = Mortal(self.store, process, "store")

        return job.carry_out(
            store,
            self.clock,
            plan=lambda request, now, _: make_plan(request, self.kafka, now),
            apply=lambda attempt: job.apply_or_replay(store, attempt, kafka, self.clock),
            gather=lambda request, plan: gather_counts(request, plan, kafka, self.clock),
        )

    def aim_ahead(self) -> None:
        """Targets far ahead of the owners, who read no faster than is written: old positions stay below them."""
        before = self.kafka.committed(GROUP)
        for consumer in self.consumers:
            consumer.records_per_poll = 1
        for partition in RESET:
            self.kafka.append(partition, [self.clock.now()] * 500)
        self.targets = {p: before[p] + 400 for p in RESET}

    def settle(self, seconds: float = 16) -> None:
        """Let everything come to rest, with all that was written read."""
        for consumer in self.consumers:
            consumer.records_per_poll = 10
        self.clock.sleep(seconds)
        self.producing = False
        self.clock.sleep(5)

    def starts_at_target(self, partition: TopicPartition) -> int:
        return sum(
            b.partition == partition and b.offset == self.targets[partition] and b.at_s >= self.started_s
            for c in self.consumers
            for b in c.began
        )

    def begun_again_s(self, partition: TopicPartition) -> float:
        """When somebody first began to read it since the run was created; then, where its owner has kept it."""
        began = (b for c in self.consumers for b in c.began if b.partition == partition and b.at_s > self.started_s)
        kept = any(partition in c.positions for c in self.consumers)
        return min((b.at_s for b in began), default=self.started_s if kept else math.inf)

    def check_reset(self, *, at_most: int = 1) -> None:
        """Each target partition was begun at its target, and from there on nothing is missing."""
        for partition in self.targets:
            starts = self.starts_at_target(partition)
            assert 1 <= starts <= at_most, f"{partition} was begun at its target {starts} times"
        self.check_nothing_missing()

    def check_nothing_missing(self) -> None:
        for partition in PARTITIONS:
            end = self.kafka.log_bounds([partition])[partition].latest
            read = {o for c in self.consumers for p, o in c.read if p == partition}
            first = self.targets.get(partition, 0)
            assert read >= set(range(first, end)), f"{partition}: {sorted(set(range(first, end)) - read)[:5]} missing"


def calls_of_a_whole_run(kind: Kind, folder: Path, **settings: Any) -> list[str]:
    world = World(kind, folder)
    world.create(**settings)
    process = Process()
    world.execute(process)
    return process.calls


def places_to_die(calls: list[str]) -> list[int]:
    """Where to die: at the first and the last few calls of each name; those between repeat a loop."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(calls, 1):
        places.setdefault(name, []).append(number)
    return sorted({n for numbers in places.values() for n in (*numbers[:3], *numbers[-2:])})


LIKE_ANOTHER = (
    "eager-java",
    "eager-not-waiting",
    "consumer-not-waiting",
    "before-kip-429",
    "static",
    "managed-cooperative",
    "cooperative-go-often",
)
"""Kinds that take nearly all steps of another one. Tests that try every step of a run try these nightly."""


def each_kind(kinds: Iterable[Kind]) -> list[Any]:
    """As parameters."""
    return [pytest.param(k, id=k.name, marks=[pytest.mark.nightly] * (k.name in LIKE_ANOTHER)) for k in kinds]


CLASSIC_KINDS = [k for k in [*KINDS, GO, GO_OFTEN] if k.protocol is GroupType.CLASSIC and k.way is not Way.GATED]


AWAY_S = 20.0


def verifies(world: World) -> bool:
    journal = world.store.load().journal
    return bool(journal) and journal[-1].phase is ResetPhase.VERIFYING


def is_verifying(world: World) -> Callable[[str], bool]:
    """Whether a call is a look at the committed offsets of a run that verifies."""
    return lambda name: name == "kafka.committed" and verifies(world)


def die_verifying(world: World) -> None:
    """Execute it by a writer that dies as it verifies."""
    process = Outage(world.clock, 0, 0.0, when=is_verifying(world))

    def die() -> None:
        process.dead = True
        raise Killed

    process.began = die
    with pytest.raises(Killed):
        world.execute(process)


class Delayed:
    """Stands for ``target``: something happens before the first call of a given name, and each call of a ``slow`` one
    takes ``describe_s``."""

    def __init__(
        self,
        target: Any,
        clock: FakeClock,
        before: dict[str, Callable[[], None]],
        describe_s: float,
        slow: tuple[str, ...] = ("groups",),
    ) -> None:
        self._target, self._clock, self._before, self._describe_s = target, clock, before, describe_s
        self._slow = slow

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name in ("membership", "control", "clock"):
            return Delayed(value, self._clock, self._before, self._describe_s, self._slow)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before.pop(name, lambda: None)()
            if name in self._slow:
                self._clock.sleep(self._describe_s)
            return value(*args, **kwargs)

        return call


MANAGED_NOT_WAITING = Kind("managed-not-waiting", Way.GATED, consumer=(("managed", True), ("waits", False)))
"""librdkafka with ``isolation.level=read_uncommitted``: its agent is told what is committed, decided or not."""


def assigned_to_itself(world: World, every_s: float = 5.0) -> dict[TopicPartition, int]:
    """The members are gone; one consumer has assigned itself all partitions, and commits its position now and then.

    Returns its positions.
    """
    for consumer in world.consumers:
        consumer.close()
    world.kafka.set_group(GROUP, GroupType.SIMPLE)
    positions = dict(world.kafka.committed(GROUP))

    def commit() -> None:
        for partition in positions:
            positions[partition] += 10
        world.kafka.commit_directly(GROUP, positions)
        world.clock.after(every_s, commit)

    world.clock.after(every_s, commit)
    return positions
