"""A fleet on the in-memory Kafka: each group by itself, or all or none, with coordinators that die at every step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from support.killed import Killed
from tidegate.compressed import pack
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.applying.claim import GroupClaim
from tidegate.reset.applying.timing import Pace, Tuning
from tidegate.reset.codec import encode_fleet_plan, encode_roster
from tidegate.reset.config_map_store import CONFIG_MAP_LIMIT_BYTES, INLINE_LIMIT_BYTES
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.fleet import FleetPlan, GroupPlan, Roster
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromGroup, Target, ToOffset, Undo
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import fleet_job
from tidegate.reset.runs.fleet import MAX_GROUPS, group_document, group_request, group_run_uid, roster_of
from tidegate.reset.runs.fleet_groups import SideBySide, undone_groups
from tidegate.reset.runs.fleet_parts import Parts
from tidegate.reset.runs.fleet_planning import patiently, plan_together
from tidegate.reset.runs.request import NOT_PUT_BACK
from tidegate.reset.store import ForeignRun, Run, RunNotFound, StaleAttempt
from tidegate.resources.reset import FailurePolicy, ResetPhase

TOPIC = TopicPartition("orders", 0)
GROUPS = ("payments-a", "payments-b", "payments-c")
BEFORE, TARGET = 50, 10
AT = datetime(2026, 11, 22, tzinfo=UTC)


class Mortal:
    """Dies just before its ``dies_at``-th write of a document, of the fleet's or of a group's, or just after it."""

    def __init__(self, dies_at: int | None = None, *, after: bool = False) -> None:
        self.dies_at, self.after, self.writes = dies_at, after, 0

    def opened(self, store: DirectoryRunStore) -> Any:
        return _Watched(store, self)


class _Watched:
    def __init__(self, store: DirectoryRunStore, life: Mortal) -> None:
        self._store, self._life = store, life

    def __getattr__(self, name: str) -> Any:
        value, life = getattr(self._store, name), self._life
        if name in ("load", "location"):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            life.writes += 1
            dying = life.writes == life.dies_at
            if dying and not life.after:
                raise Killed
            answer = value(*args, **kwargs)
            if dying:
                raise Killed
            return answer

        return call


class World:
    """Three Empty groups at 50 of 100, which a fleet sends to 10; ``sick``: those that can be planned, not reset."""

    def __init__(self, folder: Path, policy: FailurePolicy, *sick: str) -> None:
        self.folder, self.sick = folder, sick
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic(TOPIC.topic, 1)
        self.kafka.fill(TOPIC.topic, 100)
        for group in (*GROUPS, "orders"):
            self.kafka.commit_directly(group, {TOPIC: BEFORE})
            self.kafka.set_group(group, GroupType.CLASSIC)
        self.policy = policy

    def create(self, run_id: str = "one", target: Target | None = None, **changes: Any) -> DirectoryRunStore:
        request = RunRequest(
            run_uid=f"uid/{run_id}",
            run_id=run_id,
            group_id="",
            connection=Connection("nowhere:9092"),
            selections=(),
            target=target or ToOffset(TARGET),
            settings=ApplySettings(deadline=self.clock.now() + timedelta(hours=1)),
            fleet=FleetRequest(("payments-*",), self.policy),
        )
        store = self.store(run_id)
        store.create(replace(request, **changes))
        return store

    def store(self, run_id: str = "one") -> DirectoryRunStore:
        return DirectoryRunStore(self.folder, f"p-{run_id}", clock=self.clock)

    def group(self, name: str, run_id: str = "one") -> DirectoryRunStore:
        return self._beneath(run_id)(group_run_uid(f"uid/{run_id}", name))

    def _beneath(self, run_id: str) -> Callable[[str], DirectoryRunStore]:
        return lambda uid: DirectoryRunStore(self.folder, group_document(f"p-{run_id}", uid), clock=self.clock)

    def parts(self, life: Mortal, run_id: str = "one", undone: str = "") -> Parts:
        kafka: Any = _Sick(self.kafka, self.sick)
        beneath = self._beneath(run_id)
        return Parts(
            open_group=lambda uid, check: ConfinedRunStore(life.opened(beneath(uid)), None, check),
            open_undone=lambda uid, check: ConfinedRunStore(self._beneath(undone)(uid), None, check),
            group_ids=self.kafka.group_ids,
            plan=patiently(plan_together(self.kafka), self.clock),
            # One thread: the fake's clock knows no others.
            resets=SideBySide(lambda: nullcontext(kafka), self.clock, threads=1),
            clock=self.clock,
            readers=1,
        )

    def execute(self, life: Mortal | None = None, run_id: str = "one", undone: str = "") -> RunResult | None:
        life = life or Mortal()
        return fleet_job.carry_out(life.opened(self.store(run_id)), self.parts(life, run_id, undone))

    def settle(self, reason: str = "Deleted", message: str = "the policy was deleted") -> RunResult:
        return fleet_job.settle(self.store(), self.parts(Mortal()), reason=reason, message=message)

    @property
    def offsets(self) -> dict[str, int]:
        return {group: self.kafka.committed(group)[TOPIC] for group in GROUPS}


class _Sick:
    """A Kafka that lets nobody write offsets of some groups."""

    def __init__(self, kafka: FakeKafka, groups: tuple[str, ...]) -> None:
        self._kafka, self._groups = kafka, groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    def writer(self, group_id: str, **settings: Any) -> Any:
        writer = self._kafka.writer(group_id, **settings)
        return _NoWriter(writer, group_id) if group_id in self._groups else writer


class _NoWriter:
    def __init__(self, writer: Any, group_id: str) -> None:
        self._writer, self._group_id = writer, group_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def fence(self) -> None:
        raise NotAuthorized(f"may not write offsets of group {self._group_id}")


def all_at(offset: int) -> dict[str, int]:
    return dict.fromkeys(GROUPS, offset)


@pytest.mark.parametrize("policy", FailurePolicy)
def test_every_group_of_the_patterns_is_reset_and_no_other(tmp_path: Path, policy: FailurePolicy) -> None:
    world = World(tmp_path, policy)
    world.create()

    result = world.execute()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.counts.reset) == (ResetPhase.SUCCEEDED, 3)
    assert world.offsets == all_at(TARGET)
    assert world.kafka.committed("orders") == {TOPIC: BEFORE}
    ended = [world.group(g).load().result for g in GROUPS]
    assert [r.phase for r in ended if r is not None] == [ResetPhase.SUCCEEDED] * 3


def test_isolated_a_failure_leaves_the_others_as_planned(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE, "payments-b")
    world.create()

    result = world.execute()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "GroupsFailed")
    assert (result.counts.reset, result.counts.failed) == (2, 1)
    assert [t.group_id for t in result.counts.troubles] == ["payments-b"]
    assert world.offsets == all_at(TARGET) | {"payments-b": BEFORE}


def test_all_or_none_a_failure_puts_every_group_back_and_begins_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ALL, "payments-b")
    world.create()

    result = world.execute()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "OtherGroupFailed")
    assert (result.counts.reset, result.counts.failed, result.counts.put_back) == (0, 1, 2)
    assert world.offsets == all_at(BEFORE)
    assert not any(line.round for line in world.group("payments-c").load().journal)


def test_groups_that_a_node_whose_clock_is_behind_puts_back_are_counted_as_put_back(tmp_path: Path) -> None:
    """In Spark the driver decides, and executors on other nodes put the groups back."""
    world = World(tmp_path, FailurePolicy.ALL, "payments-b")
    world.create()
    parts = world.parts(Mortal())
    behind = FakeClock(world.clock.now() - timedelta(seconds=5))
    kafka: Any = _Sick(world.kafka, world.sick)
    resets = SideBySide(lambda: nullcontext(kafka), behind, threads=1)

    result = fleet_job.carry_out(world.store(), replace(parts, resets=resets))

    assert result is not None
    assert result.counts is not None
    assert (result.counts.reset, result.counts.failed, result.counts.put_back) == (0, 1, 2)
    assert [t.group_id for t in result.counts.troubles] == ["payments-b"]


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_group_without_a_plan_is_no_reason_for_others_unless_all_are_asked_for(
    tmp_path: Path, policy: FailurePolicy
) -> None:
    world = World(tmp_path, policy)
    world.create(fleet=FleetRequest(("payments-*", "absent"), policy))

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "GroupsRefused")
    assert "absent" in result.message
    assert world.offsets == all_at(TARGET if policy is FailurePolicy.ISOLATE else BEFORE)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("policy", "sick", "expected"),
    [
        (FailurePolicy.ISOLATE, (), all_at(TARGET)),
        (FailurePolicy.ALL, (), all_at(TARGET)),
        (FailurePolicy.ISOLATE, ("payments-b",), all_at(TARGET) | {"payments-b": BEFORE}),
        (FailurePolicy.ALL, ("payments-c",), all_at(BEFORE)),
    ],
    ids=["isolated", "all", "isolated-one-fails", "all-one-fails"],
)
def test_a_coordinator_may_die_at_every_write(
    tmp_path: Path, policy: FailurePolicy, sick: tuple[str, ...], expected: dict[str, int], after: bool
) -> None:
    whole = Mortal()
    alive = World(tmp_path / "alive", policy, *sick)
    alive.create()
    wanted = alive.execute(whole)
    assert wanted is not None

    for step in range(1, whole.writes + 1):
        world = World(tmp_path / str(step), policy, *sick)
        world.create()
        with pytest.raises(Killed):
            world.execute(Mortal(step, after=after))
        # Committed by a transaction that nobody has ended: its successor does.
        result = world.execute()

        assert result is not None
        assert (step, result.phase, world.offsets) == (step, wanted.phase, expected)
        assert (step, result.counts) == (step, wanted.counts)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_taken_over_anywhere_all_stand_where_they_stood_or_where_they_were_sent(tmp_path: Path, after: bool) -> None:
    whole = Mortal()
    alive = World(tmp_path / "alive", FailurePolicy.ALL)
    alive.create()
    alive.execute(whole)
    ends = set()

    for step in range(1, whole.writes):
        world = World(tmp_path / str(step), FailurePolicy.ALL)
        world.create()
        with pytest.raises(Killed):
            world.execute(Mortal(step, after=after))
        result = world.settle()

        assert world.offsets == all_at(TARGET if result.phase is ResetPhase.SUCCEEDED else BEFORE), step
        ends.add(result.phase)
    # Before anything was done, between, and after the decision.
    assert ends == {ResetPhase.FAILED, ResetPhase.ROLLED_BACK, ResetPhase.SUCCEEDED}


def test_a_group_that_another_run_has_had_meanwhile_is_not_put_back_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_job, "_TELL_EVERY_S", 0.0)
    world, step = World(tmp_path / "0", FailurePolicy.ALL), 0
    while not (step and is_held(world)):
        step += 1
        world = World(tmp_path / str(step), FailurePolicy.ALL)
        world.create()
        with pytest.raises(Killed):
            world.execute(Mortal(step, after=True))
    other = GroupClaim(world.kafka, Pace(world.clock, Tuning(), None), GROUPS[0], "other/1", "", lambda _: None)
    other.take()
    world.kafka.commit_directly(GROUPS[0], {TOPIC: 77})
    other.release()

    result = world.settle()

    assert (result.phase, result.reason) == (ResetPhase.FAILED, NOT_PUT_BACK)
    assert "Group payments-a: the policy was deleted. The run was interrupted" in result.message
    assert "another run has had the group since" in result.message
    assert world.offsets == all_at(BEFORE) | {GROUPS[0]: 77}
    # Nor does the status say so meanwhile.
    counted = next(line.counts for line in reversed(world.store().load().journal) if line.counts is not None)
    assert result.counts is not None
    assert (counted.put_back, counted.failed) == (result.counts.put_back, result.counts.failed) == (2, 1)


def is_held(world: World) -> bool:
    try:
        last = world.group(GROUPS[0]).load().last
    except RunNotFound:
        return False
    return last is not None and last.held is not None


@pytest.mark.parametrize(("stands", "why"), [(90, "has passed the target"), (30, "has gone back")])
def test_a_group_that_goes_another_way_than_was_approved_by_then_is_left_where_it_is(
    stands: int, why: str, tmp_path: Path
) -> None:
    """As a reset of that group alone: who approved it was told what is skipped, and that nothing is read again."""
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create(target=ToOffset(80), manual_approval=True)
    assert world.execute() is None
    world.kafka.commit_directly("payments-b", {TOPIC: stands})
    store.approve()

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "GroupsFailed")
    assert world.offsets == all_at(80) | {"payments-b": stands}
    ended = world.group("payments-b").load().result
    assert ended is not None
    assert (ended.reason, why in ended.message) == ("PlanOutdated", True), ended.message
    assert ended.message.endswith("Nothing was changed")


def test_a_plan_that_an_earlier_version_has_begun_is_gone_on_with(tmp_path: Path) -> None:
    """It did not tell the run of a group that the plan of its fleet is to be approved."""
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create(manual_approval=True)
    request = store.load().request
    store.begin_attempt()
    begun = group_request(request, "payments-a", request.target)
    world.group("payments-a").create(replace(begun, manual_approval=False))

    assert world.execute() is None
    store.approve()
    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED


def test_nothing_is_applied_before_the_fleets_plan_is_approved(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create(manual_approval=True)

    assert world.execute() is None
    assert world.offsets == all_at(BEFORE)
    plan = store.load().fleet
    assert plan is not None
    assert (plan.planned, plan.records_replayed) == (GROUPS, 120)
    world.kafka.commit_directly("payments-late", {TOPIC: BEFORE})
    store.approve()
    result = world.execute()

    assert result is not None
    assert world.offsets == all_at(TARGET)
    assert world.kafka.committed("payments-late") == {TOPIC: BEFORE}


def test_one_that_is_not_approved_is_ended_without_asking_kafka(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    world.create(manual_approval=True)
    world.execute()
    world.kafka.calls.clear()

    result = world.settle()

    assert (result.phase, result.reason) == (ResetPhase.FAILED, "Deleted")
    assert world.kafka.calls == []


def test_a_fleet_is_undone_as_a_fleet(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE, "payments-b")
    world.create()
    world.execute()
    earlier = world.store().load()
    names = undone_groups(earlier, lambda g: world.group(g).load())
    assert names == ("payments-a", "payments-c")

    assert earlier.result is not None
    undoes_uid, ends = earlier.request.run_uid, earlier.result.ends
    fleet = FleetRequest(("payments-*",), FailurePolicy.ALL, groups=names, undoes_uid=undoes_uid, ends=ends)
    world.create("two", Undo("one", ()), fleet=fleet)
    result = world.execute(run_id="two", undone="one")

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert world.offsets == all_at(BEFORE)


def test_all_groups_are_planned_from_one_look(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    for n in range(20):
        world.kafka.commit_directly(f"payments-{n}", {TOPIC: BEFORE, TopicPartition("gone", 0): 1})
    world.create(manual_approval=True)
    world.kafka.calls.clear()

    world.execute()

    plan = world.store().load().fleet
    assert plan is not None
    assert (len(plan.planned), plan.moved) == (23, 23)
    looks = {name: world.kafka.calls.count(name) for name in ("committed", "committed_of", "log_bounds", "topics")}
    assert looks == {"committed": 0, "committed_of": 1, "log_bounds": 2, "topics": 1}


@pytest.mark.parametrize("call", ["group_ids", "committed_of", "topics"])
def test_a_cluster_that_is_away_is_waited_for_until_the_deadline(tmp_path: Path, call: str) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    world.create()
    world.kafka.fail(call, *[Unavailable("the broker is away")] * 60)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED


def test_what_is_wrong_with_one_group_is_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create(manual_approval=True)

    class Closed:
        """Lets nobody see one of the groups, so that they can't be read together."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.kafka, name)

        def committed_of(self, group_ids: Any) -> Any:
            if "payments-b" in group_ids:
                raise NotAuthorized("may not describe group payments-b")
            return world.kafka.committed_of(group_ids)

    closed: Any = Closed()
    fleet_job.carry_out(store, replace(world.parts(Mortal()), plan=patiently(plan_together(closed), world.clock)))

    plan = store.load().fleet
    assert plan is not None
    assert plan.planned == ("payments-a", "payments-c")
    assert [(g.group_id, g.refused) for g in plan.refused] == [("payments-b", "NotAuthorized")]


def test_groups_are_counted_while_they_are_reset_at_most_once_a_second(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE, "payments-b")
    store, told = world.create(), []

    class Slow(SideBySide):
        def apply(self, groups: Any, coordinator: Any, *, hold: bool, stop: bool = False) -> bool:
            for name in groups:
                super().apply({name: groups[name]}, coordinator, hold=hold, stop=stop)
                told.append(store.load().journal[-1].counts)
                world.clock.sleep(0.6)
            return False

    slow = Slow(lambda: nullcontext(_Sick(world.kafka, world.sick)), world.clock, threads=1)  # type: ignore[arg-type]
    fleet_job.carry_out(store, replace(world.parts(Mortal()), resets=slow))

    assert [(c.reset, c.failed) for c in told if c is not None] == [(0, 0), (0, 0), (2, 1)]
    assert len(store.load().journal) == 3


def test_a_group_that_failed_before_the_fleet_was_put_back_for_the_same_reason_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create()
    with pytest.raises(Killed):
        world.execute(Mortal(17))
    late = world.group("payments-a")
    its_words = "the run's deadline 2026-11-22T01:00:00Z has passed. Nothing was changed"
    late.finish(RunResult(ResetPhase.FAILED, "DeadlineExceeded", its_words, AT), attempt=late.begin_attempt())

    result = world.settle("DeadlineExceeded", "reset one passed its deadline: it had not ended in time")

    assert store.load().fleet is not None
    assert result.counts is not None
    assert (result.counts.failed, result.counts.put_back) == (1, 2)


def test_who_was_taken_over_begins_no_other_group(tmp_path: Path) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create()
    begun = []

    class Overtaken(SideBySide):
        def apply(self, groups: Any, coordinator: Any, *, hold: bool, stop: bool = False) -> bool:
            class Overtaking:
                ended = coordinator.ended

                def check(self) -> None:
                    coordinator.check()
                    begun.append(True)
                    store.begin_attempt()

            return super().apply(groups, Overtaking(), hold=hold, stop=stop)

    parts = replace(world.parts(Mortal()), resets=Overtaken(lambda: nullcontext(world.kafka), world.clock, threads=1))
    with pytest.raises(StaleAttempt):
        fleet_job.carry_out(store, parts)

    assert len(begun) == 1


# --- who is in a fleet ------------------------------------------------------------------------------------------------


def request(*patterns: str, target: Target | None = None, allowed: tuple[str, ...] = ("*",)) -> RunRequest:
    fleet = FleetRequest(patterns, allowed_groups=allowed)
    return RunRequest("uid/one", "one", "", Connection("k:9092"), (), target or ToOffset(1), fleet=fleet)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("pay-*"), ("pay-a", "pay-b")),
        (request("pay-*", "new"), ("new", "pay-a", "pay-b")),
        (request("*", allowed=("pay-a", "ord*")), ("orders", "pay-a")),
        (request("pay-*", target=FromGroup("pay-a")), ("pay-b",)),
        (request("*"), ("orders", "pay-a", "pay-b")),
    ],
    ids=["pattern", "named", "allowed", "not-its-own-target", "not-tidegates-own"],
)
def test_who_is_in_a_fleet(asked: RunRequest, expected: tuple[str, ...]) -> None:
    assert roster_of(asked, {"pay-a", "pay-b", "orders", "tidegate.pay-a"}, AT).groups == expected


def test_what_is_left_out_is_said() -> None:
    assert roster_of(request("*", allowed=("a",)), {"a", "b"}, AT).notes == (
        "Left out 1 group that the connection does not allow: b",
    )


@pytest.mark.parametrize(
    ("there", "reason"), [(["orders"], "NoGroupMatches"), ([f"p-{n}" for n in range(MAX_GROUPS + 1)], "TooManyGroups")]
)
def test_too_few_and_too_many_are_refused(there: list[str], reason: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        roster_of(request("p-*"), there, AT)

    assert refused.value.reason == reason


# --- documents --------------------------------------------------------------------------------------------------------


def test_the_largest_fleet_fits_into_its_document() -> None:
    names = tuple(f"{n:04d}" + "x" * 251 for n in range(MAX_GROUPS))
    group = GroupPlan("", 10**4, 10**4, 10**4, 10**12, 10**12, AT, AT, refused="NotAuthorized", message="m" * 300)
    plan = FleetPlan("one", AT, tuple(replace(group, group_id=name) for name in names))

    texts = [encode_fleet_plan(plan).encode(), encode_roster(Roster(AT, names)).encode()]

    assert min(map(len, texts)) > INLINE_LIMIT_BYTES
    assert sum(len(pack(text)) for text in texts) * 4 < CONFIG_MAP_LIMIT_BYTES


def test_groups_have_documents_of_their_own() -> None:
    names = {group_document("p" * 52, group_run_uid("uid/one", f"g{n}")) for n in range(MAX_GROUPS)}

    assert len(names) == MAX_GROUPS
    assert max(map(len, names)) <= 52


@pytest.mark.parametrize(
    ("roster", "flaw"),
    [
        (("payments-a", "orders"), "group orders: the resource's groups do not match it"),
        (("payments-a", "payments-secret"), "group payments-secret: the connection does not allow it"),
    ],
)
def test_a_roster_that_somebody_else_wrote_is_not_obeyed(tmp_path: Path, roster: tuple[str, ...], flaw: str) -> None:
    world = World(tmp_path, FailurePolicy.ISOLATE)
    store = world.create()
    confines = Confines("uid/one", "", groups=("payments-a", "orders"), patterns=("payments-*",))
    assert isinstance(ConfinedRunStore(store, confines).load(), Run)
    store.write_roster(Roster(AT, roster), attempt=store.begin_attempt())

    with pytest.raises(ForeignRun, match=flaw):
        ConfinedRunStore(store, confines).load()


def test_a_group_outside_the_fleet_gets_no_confines() -> None:
    confines = Confines("uid/one", "", groups=("*",), patterns=("payments-*",))

    assert confines.of_group("uid/one/payments-a", "payments-a").group_id == "payments-a"
    with pytest.raises(ForeignRun, match="orders"):
        confines.of_group("uid/one/orders", "orders")
