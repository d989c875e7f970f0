"""A fleet in real Spark on a real broker: planned as one DataFrame, each group reset by a transaction of its own."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from apiserver.offsets import commit, committed, leave_at, produce
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.audit.records import Actor, Attribution, AuditTopic
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.audit_reader import AuditReader
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.codec import encode_plan
from tidegate.reset.confined import Confines
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import Target, ToOffset, ToRecord, Undo
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.fleet_groups import FLEET_THREADS
from tidegate.reset.store import ForgedRun
from tidegate.resources.reset import FailurePolicy, ResetPhase
from tidegate.spark.fleet import Groups, carry_out_fleet

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AT_10, AT_50 = {0: 10, 1: 10}, {0: 50, 1: 50}


class World:
    """Groups `<base>-a` and so on that stand at 50 of 100 in two partitions, and runs that send them to 10."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, base: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.base, self.folder = spark, bootstrap, topic, base, folder
        self.attribution: Attribution | None = None
        produce(bootstrap, topic, 2, 100)

    def stand(self, *names: str, topic: str = "") -> None:
        for name in names:
            leave_at(self.bootstrap, f"{self.base}-{name}", topic or self.topic, AT_50)

    def at(self, name: str) -> dict[int, int]:
        return committed(self.bootstrap, f"{self.base}-{name}", self.topic, 2)

    def ask(self, policy: FailurePolicy, run_id: str = "one", target: Target | None = None, **fleet: Any) -> None:
        asked = replace(FleetRequest((f"{self.base}-*",), policy), **fleet)
        self.store(run_id).create(
            RunRequest(
                run_uid=f"uid/{run_id}",
                run_id=run_id,
                group_id="",
                connection=Connection(self.bootstrap),
                selections=(),
                target=target or ToOffset(10),
                settings=ApplySettings(deadline=datetime.now(UTC) + timedelta(minutes=5)),
                manual_approval=run_id == "one",
                fleet=asked,
            )
        )

    def store(self, run_id: str = "one") -> DirectoryRunStore:
        return DirectoryRunStore(self.folder, f"p-{run_id}")

    def go(self, run_id: str = "one") -> RunResult | None:
        return carry_out_fleet(self.spark, self.store(run_id).location, SystemClock(), attribution=self.attribution)


@pytest.fixture
def world(spark: Any, kafka: Any, make_topic: MakeTopic, unique: Unique, tmp_path: Path) -> World:
    return World(spark, kafka.bootstrap, make_topic(2), unique("payments"), tmp_path)


def test_a_fleet_is_planned_at_once_applied_after_one_approval_and_undone(world: World, unique: Unique) -> None:
    """And what is done to each group is recorded in its asker's name."""
    log = AuditTopic(unique("audit"), required=True)
    world.attribution = Attribution(log, Actor("OffsetReset", "fleet", "ns"), requester="ann")
    with closing(KafkaClient(Connection(world.bootstrap))) as kafka:
        kafka.audit.ensure(log)
    world.stand("a", "b", "secret")
    names = (f"{world.base}-a", f"{world.base}-b")
    world.ask(FailurePolicy.ALL, allowed_groups=(*names, "other"))

    assert world.go() is None
    planned = world.store().load().fleet
    assert planned is not None
    assert (planned.planned, planned.records_replayed) == (names, 160)
    assert world.at("a") == AT_50
    world.store().approve()
    result = world.go()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.counts.reset) == (ResetPhase.SUCCEEDED, 2), result
    assert [world.at(name) for name in ("a", "b", "secret")] == [AT_10, AT_10, AT_50]

    world.ask(
        FailurePolicy.ISOLATE,
        "two",
        Undo("one", ()),
        groups=names,
        undoes="p-one",
        undoes_uid="uid/one",
        ends=result.ends,
    )
    undone = world.go("two")

    assert undone is not None
    assert undone.phase is ResetPhase.SUCCEEDED, undone
    assert [world.at(name) for name in ("a", "b")] == [AT_50, AT_50]
    with closing(AuditReader(Connection(world.bootstrap), log.name)) as reader:
        changes = [read.part.change for read in reader.read()]
    assert sorted((c.group, c.action.value, c.requester) for c in changes) == sorted(
        (name, action, "ann") for name in names for action in ("reset", "undo")
    )
    assert {c.group: c.plan for c in changes if c.action.value == "reset"} == planned.digests


def test_records_are_searched_once_for_all_groups_of_a_topic(world: World, make_topic: MakeTopic) -> None:
    other, names = make_topic(2), ("a", "b", "c")
    produce(world.bootstrap, other, 2, 20)
    world.stand(*names)
    commit(world.bootstrap, f"{world.base}-c", other, {0: 20, 1: 20})
    # The tests' values are numbers that go on from partition to partition.
    world.ask(FailurePolicy.ISOLATE, target=ToRecord("string(value) in ('30', '31')"))

    assert world.go() is None
    run = world.store().load()
    searched = [line.searched for line in run.journal if line.searched is not None]
    world.store().approve()
    result = world.go()

    assert run.fleet is not None
    assert (run.fleet.planned, run.fleet.partitions) == (tuple(f"{world.base}-{name}" for name in names), 8)
    assert [s.total for s in searched] == [200 + 40]
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert [world.at(name) for name in names] == [{0: 15, 1: 15}] * 3
    assert committed(world.bootstrap, f"{world.base}-c", other, 2) == {0: 15, 1: 15}


def test_a_condition_that_cannot_be_read_refuses_the_whole_fleet(world: World) -> None:
    world.stand("a", "b")
    world.ask(FailurePolicy.ISOLATE, target=ToRecord("no_such_column = 1"))

    result = world.go()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "BadExpression"), result


def test_a_group_that_fails_in_an_executor_puts_all_back(world: World, make_topic: MakeTopic) -> None:
    own, names = make_topic(2), [f"e{n}" for n in range(FLEET_THREADS)]
    world.stand(*names)
    world.stand("z", topic=own)
    world.ask(FailurePolicy.ALL)
    world.go()
    # What was planned for the last one is void: the topic is another one of the same name.
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.delete_topics([own])[own].result(30)
    until(lambda: own not in admin.list_topics(timeout=10).topics, f"{own} is gone")
    make_topic(2, name=own)
    world.store().approve()

    result = world.go()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "OtherGroupFailed"), result
    assert [t.group_id for t in result.counts.troubles] == [f"{world.base}-z"]
    assert [world.at(name) for name in names] == [AT_50] * FLEET_THREADS


def test_neither_driver_nor_executor_carries_out_a_groups_forged_document(world: World) -> None:
    world.stand("a", "b")
    world.ask(FailurePolicy.ISOLATE)
    world.go()
    fleet = world.store().load().fleet
    assert fleet is not None
    group = f"{world.base}-a"
    store = DirectoryRunStore(world.folder, group_document("p-one", group_run_uid("uid/one", group)))
    plan = store.load().plan
    assert plan is not None
    swapped = replace(plan, partitions=tuple(replace(p, target=0) for p in plan.partitions))
    document = world.folder / f"{store.location.rpartition('/')[2]}.json"
    document.write_text(document.read_text().replace(encode_plan(plan), encode_plan(swapped)))
    assert store.load().plan == swapped
    world.store().approve()

    confines = Confines("uid/one", "", connection=Connection(world.bootstrap), patterns=(f"{world.base}-*",))
    answer = Groups(world.store().location, confines).apply({group: fleet.digests[group]}, hold=False)
    with pytest.raises(ForgedRun, match=fleet.digests[group]):
        world.go()

    assert isinstance(answer.raised, ForgedRun)
    assert world.at("a") == AT_50
