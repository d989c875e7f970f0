"""A broker that keeps offsets for a minute, groups of each kind without members for longer: what becomes of their
offsets, with Tidegate and without, and whether it was foretold. All wait together, once, in `story`: for one and a half
retentions, or for as many as ``TIDEGATE_RETENTIONS`` says (``make nightly PARTS=retention``: three).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import OFFSET_STORED, Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from prometheus_client import CollectorRegistry

from contract.kafka_worlds import RealWorld, until
from devstack import KafkaCluster
from support.fake_kube import FakeKube
from tidegate.clock import SystemClock
from tidegate.connection.live import Live
from tidegate.connection.observer import Observer
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthorized
from tidegate.kafka.model import GroupType, Offsets, TopicPartition
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit
from tidegate.kafka_client.client import KafkaClient
from tidegate.kube.ports import POLICIES
from tidegate.policy.feature import PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.connection import AllowSpec
from tidegate.resources.features import RetentionStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.retention.feature import Parts, RetentionFeature
from tidegate.retention.metrics import RetentionMetrics

RETENTION_S: Final = 60.0
BROKER: Final = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
KEPT_S: Final = float(os.environ.get("TIDEGATE_RETENTIONS", "1.5")) * RETENTION_S
"""How long nobody is there; an offset that went as late as `LATE_S` allows is restored before its end."""
WHOLE_S: Final = KEPT_S + 5
WARN_S: Final = 20.0
LATE_S: Final = 20.0
"""How late, at most, the broker's look at its offsets and ours at it may come on a busy machine."""

# The story takes minutes and uses nothing that others use.
pytestmark = pytest.mark.in_background

KINDS: Final = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SIMPLE)
RECORDS: Final = 50


@dataclass
class Group:
    """One group and its policy. ``blind``: the connection's principal may not read the coordinator's log, and nothing
    of the group ``refused``. ``foretold``: when its offsets end, as the status said at first.
    """

    name: str
    place: Offsets
    blind: bool = False
    status: PolicyStatus = field(default_factory=PolicyStatus)
    foretold: RetentionStatus | None = None
    looks: list[tuple[float, float, Offsets]] = field(default_factory=list)
    """(before, after, committed): seconds since the epoch around each look at the committed offsets."""
    announced_s: dict[str, float] = field(default_factory=dict)
    """By reason, when its first Event came: seconds since the epoch."""

    def gone_between(self, partition: TopicPartition) -> tuple[float, float]:
        """Before the last look that found the offset, and after the first that did not; an error if all did."""
        for number, (_, after, committed) in enumerate(self.looks):
            if partition not in committed:
                return (self.looks[number - 1][0] if number else 0.0), after
        raise AssertionError(f"{partition} of group {self.name} never went")

    @property
    def expires_s(self) -> float:
        assert self.foretold is not None
        assert self.foretold.expires_at is not None
        return self.foretold.expires_at.timestamp()


class Story:
    """Sets the groups up, lets them sleep, and writes down what was seen of them."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.world = RealWorld(cluster.bootstrap)
        self.kafka = self.world.kafka
        security = cluster.security
        password = folder / "password"
        password.write_text(security.password)
        user = Authentication(AuthenticationType.SCRAM_SHA_256, username=security.username, password_file=password)
        self.limited = Connection(security.sasl_ssl_bootstrap, tls=True, ca_file=security.ca, authentication=user)
        self.principal = f"User:{security.username}"
        self.topic, self.left, self.doomed = (self.world.create_topic(n) for n in (2, 1, 1))
        self.partitions = [TopicPartition(self.topic, n) for n in range(2)]
        self.place = dict(zip(self.partitions, (11, 22), strict=True))
        for partition in self.partitions:
            self.world.append(partition, [datetime.now(UTC)] * RECORDS)
        self.kube = FakeKube()
        self.limited_kafka = KafkaClient(self.limited)
        self.groups: dict[str, Group] = {}
        self.changed: dict[str, asyncio.Event] = {}
        self.just_changed: list[str] = []
        self.executor = ThreadPoolExecutor(4)
        self.live_consumer: Any = None
        self.emptied_s = 0.0
        self._done: set[str] = set()

    # --- the groups ---------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.kafka.committed("the-first-request-makes-the-offsets-topic")
        old, doomed = TopicPartition(self.left, 0), TopicPartition(self.doomed, 0)
        consumer = self.world.consumer("live", [self.left])
        consumer.commit({old: 5})
        consumer.close()
        self.live_consumer = self.world.consumer("live", [self.topic])
        self.live_consumer.commit(self.place)
        self._note("live", {**self.place, old: 5}, guard=True)
        for kind in KINDS:
            for what, guard in (("guarded", True), ("unguarded", False), ("restored", False)):
                self._leave_place(f"{what}-{kind}", kind)
                self._note(f"{what}-{kind}", self.place, guard=guard)
        for kind in (GroupType.CLASSIC, GroupType.CONSUMER):
            self._leave_place(f"blind-{kind}", kind)
            self._note(f"blind-{kind}", self.place, guard=True, blind=True)
        self._leave_place("refused", GroupType.SIMPLE)
        self._note("refused", self.place, guard=True, blind=True)
        self._allow(
            (ResourceType.GROUP, "blind-", ResourcePatternType.PREFIXED, AclOperation.READ),
            (ResourceType.GROUP, "refused", ResourcePatternType.LITERAL, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, self.topic, ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, AclOperation.DESCRIBE_CONFIGS),
        )
        self._leave_place("recommitted", GroupType.CLASSIC)
        self._note("recommitted", self.place, guard=True)
        self._leave_place("pending", GroupType.SIMPLE)
        self._note("pending", self.place, guard=False)
        self._leave_place("deleted", GroupType.SIMPLE, {doomed: 0})
        self._note("deleted", {doomed: 0}, guard=False)
        for name, retention_ms in (("explicit", 30_000), ("overflow", 2**63 - 1)):
            wanted = {p: Commit(o) for p, o in self.place.items()}
            assert self.kafka.retention.commit(name, wanted, {}, retention_ms=retention_ms) == set(self.place)
            self._note(name, self.place, guard=False)

    def _leave_place(self, name: str, kind: GroupType, place: Offsets | None = None) -> None:
        if kind is not GroupType.SIMPLE:
            consumer = self.world.consumer(name, [self.topic], protocol=kind)
            consumer.commit(place or self.place)
            consumer.close()
            return
        self.kafka.committed(name)  # finds the coordinator, which a client that was just made need not know
        self.kafka.writer(name, transaction_timeout_s=20).alter(name, place or self.place)

    def _allow(self, *rights: tuple[ResourceType, str, ResourcePatternType, AclOperation]) -> None:
        """What the operator's principal may at the connection that is not the administrator's."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        bindings = [
            AclBinding(kind, name, pattern, self.principal, "*", operation, AclPermissionType.ALLOW)
            for kind, name, pattern, operation in rights
        ]
        for future in admin.create_acls(bindings).values():
            future.result(20)

    def _note(self, name: str, place: Offsets, *, guard: bool, blind: bool = False) -> None:
        self.groups[name] = Group(name, place, blind)
        retention = {"guard": guard, "warnBefore": f"{WARN_S:.0f}s"}
        spec = {"connectionRef": {"name": "kafka"}, "group": name, "retention": retention}
        self.kube.create(POLICIES, "ns", name, spec, "2026-11-20T11:59:00Z")

    # --- what happens -------------------------------------------------------------------------------------------------

    def happen(self) -> None:
        for name in self.groups:
            if name != "live":
                until(self.world, lambda name=name: self.kafka.groups([name])[name].is_vacant, f"{name} is vacant")  # type: ignore[misc]
        self.emptied_s = time.time()
        with self.kafka.writer("pending", transaction_timeout_s=300).transaction() as transaction:
            transaction.send("pending", self.place)
            asyncio.run(self._sleep_and_look())

    async def _sleep_and_look(self) -> None:
        observer = Observer(self.executor, active_tick_s=1.0, idle_tick_s=1.0)
        observer.connect("all", "ns/all", self.kafka)
        observer.connect("limited", "ns/limited", self.limited_kafka)
        feature = RetentionFeature(
            Parts(
                self.kube,
                observer,
                lambda _live: False,
                self.executor,
                self.executor,
                RetentionMetrics(CollectorRegistry()),
                SystemClock().now,
            )
        )
        for group in self.groups.values():
            observer.want(group.name, "limited" if group.blind else "all", group.name, active=False)
        passes = [asyncio.create_task(self._keep(feature, group)) for group in self.groups.values()]
        try:
            while time.time() < self.emptied_s + WHOLE_S:
                for task in passes:
                    if task.done():
                        task.result()
                await self._do(self._look)
                await self._do(self._act)
                while self.just_changed:
                    self.changed[self.just_changed.pop()].set()
                await asyncio.sleep(0.25)
        finally:
            for task in passes:
                task.cancel()
            await asyncio.gather(*passes, return_exceptions=True)

    def _look(self) -> None:
        before = time.time()
        committed = self.kafka.committed_of(list(self.groups))
        after = time.time()
        for group in self.groups.values():
            group.looks.append((before, after, committed[group.name]))

    def _act(self) -> None:
        """What people do meanwhile."""
        since_s = time.time() - self.emptied_s
        if since_s > 2 and not self._once("delete"):
            self.world.delete_topic(self.doomed)
        kept = self.groups["recommitted"].status.retention
        if kept is not None and kept.kept == 2 and not self._once("recommit"):
            place = dict(zip(self.partitions, (11, 30), strict=True))
            self.kafka.writer("recommitted", transaction_timeout_s=20).alter("recommitted", place)
        for kind in KINDS:
            group = self.groups[f"restored-{kind}"]
            if not group.looks[-1][2] and not self._once(group.name):
                spec = self.kube.get(POLICIES, "ns", group.name)["spec"]
                self.kube.change(POLICIES, "ns", group.name, spec={**spec, "retention": {"guard": True}})
                self.just_changed.append(group.name)

    def _once(self, what: str) -> bool:
        """Whether it was done before; from now on it was."""
        before = what in self._done
        self._done.add(what)
        return before

    async def _keep(self, feature: RetentionFeature, group: Group) -> None:
        """The operator's passes over one policy."""
        name = "limited" if group.blind else "all"
        live = Live(
            uid=name,
            namespace="ns",
            name=name,
            digest="d",
            connection=self.limited if group.blind else Connection(self.bootstrap),
            mounted=None,
            secrets={},
            allow=AllowSpec(),
            kafka=self.limited_kafka if group.blind else self.kafka,
            cluster_id="c",
            trouble=None,
        )
        body = self.kube.get(POLICIES, "ns", group.name)
        memory = GroupMemory(PolicyMemory(self.kube, self.executor, body, many=False), group.name)
        while True:
            body = self.kube.get(POLICIES, "ns", group.name)
            spec = parse_spec(OffsetResetPolicySpec, body)
            try:
                kept = await feature.reconcile(
                    PolicyView(body, spec, group.status, live, datetime.now(UTC), resetting=False, memory=memory)
                )
            except KafkaFailure:
                await asyncio.sleep(1.0)
                continue
            group.status = kept.status
            if group.foretold is None and kept.status.retention is not None and kept.status.retention.expires_at:
                group.foretold = kept.status.retention
            for happening in kept.happenings:
                self.kube.record(body, happening)
                group.announced_s.setdefault(happening.reason, time.time())
            # As late as a pass may be; and at once where somebody has changed the policy.
            changed = self.changed.setdefault(group.name, asyncio.Event())
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(kept.again_after_s):
                    await changed.wait()

    async def _do(self, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self.executor, call)

    def told(self, name: str) -> list[str]:
        return [happening.reason for happening in self.kube.happenings_of(name)]

    def close(self) -> None:
        self.world.close()
        self.limited_kafka.close()
        self.executor.shutdown()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with KafkaCluster.start(properties=BROKER, security="sasl_ssl", authorizer=True) as cluster:
        made = Story(cluster, tmp_path_factory.mktemp("retention"))
        try:
            made.set_up()
            made.happen()
            yield made
        finally:
            made.close()


def first_records(story: Story, group: str, kind: GroupType) -> Offsets:
    """Where a consumer of the group goes on: the first record that it is given of each partition."""
    config: dict[str, Any] = {
        "bootstrap.servers": story.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if kind is GroupType.CONSUMER:
        config["group.protocol"] = "consumer"
    consumer = Consumer(config)
    if kind is GroupType.SIMPLE:
        consumer.assign([ClientTopicPartition(p.topic, p.partition, OFFSET_STORED) for p in story.partitions])
    else:
        consumer.subscribe([story.topic])
    found: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + 40
    try:
        while len(found) < len(story.partitions):
            assert time.monotonic() < deadline, (
                f"group {group} was given nothing of {set(story.partitions) - set(found)}"
            )
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                partition = TopicPartition(message.topic() or "", message.partition() or 0)
                found.setdefault(partition, message.offset() or 0)
    finally:
        consumer.close()
    return found


GUARDED = [*((f"guarded-{kind}", kind) for kind in KINDS)]
BLIND = [(f"blind-{kind}", kind) for kind in (GroupType.CLASSIC, GroupType.CONSUMER)]


@pytest.mark.parametrize(("name", "kind"), [*GUARDED, *BLIND])
def test_a_guarded_group_keeps_its_place_beyond_its_retention_and_goes_on_there(
    story: Story, name: str, kind: GroupType
) -> None:
    group = story.groups[name]
    assert group.looks[-1][0] - story.emptied_s >= KEPT_S > RETENTION_S + LATE_S
    assert {tuple(sorted(committed.items())) for _, _, committed in group.looks} == {tuple(sorted(story.place.items()))}
    assert group.status.retention is not None
    assert (group.status.retention.guarded, group.status.retention.kept) == (True, 2)
    assert group.status.retention.exact is not group.blind
    assert story.told(name) == []

    assert first_records(story, name, kind) == story.place


@pytest.mark.parametrize("kind", KINDS)
def test_an_unguarded_group_loses_its_place_when_that_was_foretold(story: Story, kind: GroupType) -> None:
    group = story.groups[f"unguarded-{kind}"]
    assert group.foretold is not None
    assert group.foretold.exact

    for partition in story.partitions:
        last_there, first_gone = group.gone_between(partition)
        assert first_gone >= group.expires_s
        assert last_there <= group.expires_s + LATE_S
    assert story.told(group.name) == ["ExpiresSoon", "OffsetsExpired"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_announced_before_it_comes_and_not_before_it_is_due(story: Story, kind: GroupType) -> None:
    group = story.groups[f"unguarded-{kind}"]
    gone = [group.gone_between(partition) for partition in story.partitions]

    assert group.expires_s - WARN_S <= group.announced_s["ExpiresSoon"] < group.expires_s
    assert group.announced_s["OffsetsExpired"] >= min(before for before, _ in gone)
    assert group.announced_s["OffsetsExpired"] <= group.expires_s + LATE_S


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_was_lost_is_restored_and_kept_from_then_on(story: Story, kind: GroupType) -> None:
    group = story.groups[f"restored-{kind}"]
    _, gone = group.gone_between(story.partitions[0])
    assert gone - story.emptied_s < 2 * RETENTION_S - LATE_S
    assert group.looks[-1][2] == story.place
    assert "OffsetsRestored" in story.told(group.name)

    assert first_records(story, group.name, kind) == story.place


def test_offsets_of_an_unsubscribed_topic_go_when_that_was_foretold_and_those_of_subscribed_ones_stay(
    story: Story,
) -> None:
    group, left = story.groups["live"], TopicPartition(story.left, 0)

    last_there, first_gone = group.gone_between(left)

    assert first_gone >= group.expires_s
    assert last_there <= group.expires_s + LATE_S
    assert all({p: committed.get(p) for p in story.place} == story.place for _, _, committed in group.looks)
    assert "ExpiresSoon" in story.told("live")


def test_an_explicit_retention_ends_when_that_was_foretold(story: Story) -> None:
    group = story.groups["explicit"]

    last_there, first_gone = group.gone_between(story.partitions[0])

    assert first_gone >= group.expires_s
    assert last_there <= group.expires_s + LATE_S
    assert group.expires_s < story.emptied_s + RETENTION_S / 2


def test_a_retention_that_overflows_ends_at_once(story: Story) -> None:
    _, gone = story.groups["overflow"].gone_between(story.partitions[0])

    assert gone - story.emptied_s < LATE_S


def test_a_place_that_was_moved_while_it_was_kept_is_kept_where_it_is(story: Story) -> None:
    first, second = story.partitions
    looks = story.groups["recommitted"].looks

    assert looks[-1][2] == {first: 11, second: 30}
    assert {committed.get(first) for _, _, committed in looks} == {11}
    assert {committed.get(second) for _, _, committed in looks} == {22, 30}
    assert "OffsetsExpired" not in story.told("recommitted")


def test_deleted_partitions_drop_their_offsets_and_nobody_misses_them(story: Story) -> None:
    _, gone = story.groups["deleted"].gone_between(TopicPartition(story.doomed, 0))

    assert gone - story.emptied_s < RETENTION_S / 2
    assert story.told("deleted") == []


def test_a_pending_transaction_keeps_an_offset_from_expiring_until_it_ends(story: Story) -> None:
    looks = story.groups["pending"].looks

    assert all(committed == story.place for _, _, committed in looks)
    assert looks[-1][0] - story.emptied_s >= KEPT_S
    until(story.world, lambda: not story.kafka.committed("pending"), "the offset expires", timeout_s=LATE_S)


def test_what_may_not_be_read_or_written_is_named(story: Story) -> None:
    group = story.groups["refused"]
    retention = story.limited_kafka.retention

    assert retention.settings().retention_ms == RETENTION_S * 1000
    with pytest.raises(NotAuthorized, match="__consumer_offsets"):
        retention.log("blind-classic", GroupLog())
    group.gone_between(story.partitions[0])
    assert "GuardRefused" in story.told("refused")
    [condition] = group.status.conditions
    assert condition.reason == "GuardRefused"
    assert "Read on group refused" in condition.message


def test_what_may_not_be_committed_keeps_no_other_topics_offsets_from_being_committed(story: Story) -> None:
    """By which restored offsets are there although the request was refused."""
    left = TopicPartition(story.left, 0)
    story._allow(
        (ResourceType.GROUP, "partly", ResourcePatternType.LITERAL, AclOperation.READ),
        (ResourceType.TOPIC, story.left, ResourcePatternType.LITERAL, AclOperation.DESCRIBE),
    )
    retention, wanted = story.limited_kafka.retention, {p: Commit(o) for p, o in {**story.place, left: 5}.items()}
    story.kafka.committed("partly")

    def refusal() -> str:
        try:
            retention.commit("partly", wanted, {}, retention_ms=600_000)
        except NotAuthorized as error:
            return str(error)
        return ""

    # Rights reach brokers after a moment.
    until(story.world, lambda: f"Read on topic {story.left}" in refusal(), "the one topic alone is refused")

    assert story.kafka.retention.commits("partly").offsets == {p: Commit(o) for p, o in story.place.items()}


def test_a_commit_that_comes_in_the_same_moment_stands(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and our commit somebody moves one offset and deletes nothing else."""
    first, second = story.partitions
    retention, wire = story.kafka.retention, story.kafka._wire
    found = {p: Commit(o, "theirs") for p, o in story.place.items()}
    assert retention.commit("overtaken", found, {}, retention_ms=600_000) == set(found)
    exchange, exchanges = wire.exchange, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal exchanges
        exchanges += 1
        if exchanges == 2:
            story.kafka.writer("overtaken", transaction_timeout_s=20).alter("overtaken", {first: 33})
        return exchange(*arguments, **options)

    monkeypatch.setattr(wire, "exchange", interrupted)

    kept = retention.commit("overtaken", found, found, retention_ms=600_000)

    assert kept == {second}
    monkeypatch.undo()
    assert retention.commits("overtaken").offsets == {first: Commit(33), second: Commit(story.place[second], "theirs")}
