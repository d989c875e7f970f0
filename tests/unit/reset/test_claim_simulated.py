"""Runs of one group by several processes at a time, on the in-memory Kafka: they go one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeKafka, FakeTransaction
from support.killed import Killed
from support.simulated_groups import (
    BACK,
    GROUP,
    KINDS,
    TOPIC,
    Kind,
    Mortal,
    Process,
    start_members,
)
from support.simulated_groups import PARTITIONS as P
from support.taking_turns import Slow, TakingTurns
from tidegate.control.records import Claim, ClaimKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying import apply
from tidegate.reset.applying.claim import LEASE_S, ClaimLost, GroupClaim, claimant
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.gates import holder
from tidegate.reset.applying.look_back import LookBack, look_back
from tidegate.reset.applying.timing import Pace, Tuning
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.marker import is_marker_group
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.reset.store import StaleAttempt
from tidegate.resources.reset import ResetPhase


@dataclass
class Run:
    """One run, and what its process, or its processes one after the other, came to."""

    name: str
    store: DirectoryRunStore
    targets: dict[TopicPartition, int]
    results: list[RunResult] = field(default_factory=list)
    stale: list[StaleAttempt] = field(default_factory=list)
    ended_s: float = 0.0

    @property
    def result(self) -> RunResult:
        return self.results[-1]


class World:
    """A group of three that reads a topic, and runs that reset it."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.folder = folder
        self.kind = kind
        self.clock = TakingTurns()
        self.clock.deaths = (Killed,)
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic(TOPIC, len(P))
        self._produce()
        self.consumers = start_members(self.kafka, kind)
        self.clock.sleep(12)
        self.before = dict(self.kafka.committed(GROUP))
        self.began_s = self.clock.monotonic()
        self.processes: list[Process] = []

    def _produce(self) -> None:
        for partition in P:
            self.kafka.append(partition, [self.clock.now()])
        self.clock.after(0.1, self._produce)

    def run(self, name: str, partitions: Collection[TopicPartition], back: int = BACK, **settings: Any) -> Run:
        targets = {p: self.before[p] - back for p in partitions}
        store = DirectoryRunStore(self.folder, name, clock=self.clock)
        settings.setdefault("deadline", self.clock.now() + timedelta(minutes=15))
        store.create(
            RunRequest(
                f"{name}/1",
                "1",
                GROUP,
                Connection("nowhere:9092"),
                (Selection(TOPIC, frozenset(p.partition for p in partitions)),),
                FromFile(tuple(PartitionOffset(p.topic, p.partition, o) for p, o in sorted(targets.items())), "test"),
                settings=ApplySettings(**settings),
                asked_by=f"policy {name}",
            )
        )
        return Run(name, store, targets)

    def begin(self, run: Run, *, after_s: float = 0.001, process: Process | None = None) -> None:
        """Let a process of its own carry the run out."""
        process = process or Process()
        self.processes.append(process)
        kafka: Any = Mortal(Slow(self.kafka, self.clock), process, "kafka")
        store: Any = Mortal(run.store, process, "store")

        def work() -> None:
            try:
                result = job.execute(store, kafka, self.clock)
            except StaleAttempt as stale:
                run.stale.append(stale)
            except Killed:
                pass
            else:
                assert result is not None
                run.results.append(result)
            run.ended_s = self.clock.monotonic() - self.began_s

        self.clock.start(work, after_s=after_s)

    def begin_and_die(self, run: Run) -> None:
        """The process that carries it out dies in the midst of it."""
        process = Process()
        self.begin(run, process=process)
        self.clock.sleep(3)
        process.dead = True

    def starts_at(self, partition: TopicPartition, offset: int) -> int:
        return sum(
            b.partition == partition and b.offset == offset and b.at_s >= self.began_s
            for c in self.consumers
            for b in c.began
        )

    def waits_of(self, run: Run) -> list[str]:
        """What its journal says that it waits for now."""
        return [line.waits_for for line in run.store.load().journal if line.waits_for]

    def claims(self) -> list[str]:
        return [c.claim.run for c in self.kafka.control.read().claims.queue(GROUP)]


RACING = [k for k in KINDS if k.name in ("eager", "cooperative", "consumer", "managed-eager")]
EAGER = next(k for k in KINDS if k.name == "eager")
MANAGED = next(k for k in KINDS if k.name == "managed-eager")


@pytest.mark.parametrize("apart_s", [0.0, 0.15])
@pytest.mark.parametrize("kind", RACING, ids=lambda k: k.name)
def test_of_two_runs_at_the_same_moment_each_is_done_once(kind: Kind, apart_s: float, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    a, b = world.run("a", P[:2]), world.run("b", P[2:])

    world.begin(a)
    world.begin(b, after_s=0.001 + apart_s)
    world.clock.sleep(120)

    assert (a.stale, b.stale) == ([], [])
    assert (a.result.phase, b.result.phase) == (ResetPhase.SUCCEEDED, ResetPhase.SUCCEEDED)
    assert (a.result.redone, b.result.redone) == (0, 0)
    for partition, target in (a.targets | b.targets).items():
        assert world.starts_at(partition, target) == 1, partition
    assert world.claims() == []


def test_two_that_want_the_same_partitions_end_with_those_of_the_second(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a, b = world.run("a", P, BACK), world.run("b", P, BACK // 2)

    world.begin(a)
    world.begin(b, after_s=0.1)
    world.clock.sleep(120)

    assert (a.result.phase, b.result.phase) == (ResetPhase.SUCCEEDED, ResetPhase.SUCCEEDED)
    assert a.ended_s < b.ended_s
    for partition in P:
        assert (world.starts_at(partition, a.targets[partition]), world.starts_at(partition, b.targets[partition])) == (
            1,
            1,
        )


def test_who_waits_says_behind_whom_and_who_waits_too_long_has_changed_nothing(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2], in_flight=timedelta(seconds=60))
    b = world.run("b", P[2:], deadline=world.clock.now() + timedelta(seconds=20))

    world.begin(a)
    world.begin(b, after_s=0.5)
    world.clock.sleep(10)
    [said] = world.waits_of(b)
    assert said == (
        "group payments is taken by another run (offset reset 1 by policy a); only one run at a time may change its "
        "offsets"
    )
    world.clock.sleep(120)

    assert a.result.phase is ResetPhase.SUCCEEDED
    assert (b.result.phase, b.result.reason) == (ResetPhase.FAILED, "DeadlineExceeded")
    assert "policy a" in b.result.message
    assert b.result.message.endswith("Nothing was changed")
    assert world.claims() == []


def test_who_is_not_to_wait_long_gives_up_its_place(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    other = _claim(world, "b/1")
    assert other.take_now()
    a = world.run("a", P[:1])

    result = job.execute(a.store, world.kafka, world.clock, tuning=Tuning(turn_limit_s=5))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "GroupNotReady")
    assert result.message.startswith("the run did not get its turn within 5 s: group payments is taken by another run")
    assert world.claims() == [holder("b/1")]


def test_a_plan_that_waits_for_approval_is_in_nobodys_way(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a, b = world.run("a", P[:2]), world.run("b", P[2:])
    waiting = DirectoryRunStore(world.folder, "manual", clock=world.clock)
    waiting.create(
        RunRequest(
            "manual/1",
            "1",
            GROUP,
            Connection("nowhere:9092"),
            (Selection(TOPIC, frozenset({0})),),
            FromFile((PartitionOffset(TOPIC, 0, 1),), "test"),
            manual_approval=True,
        )
    )
    assert job.execute(waiting, world.kafka, world.clock) is None
    assert world.claims() == []
    for run in (a, b):
        world.begin(run)
    world.clock.sleep(120)
    assert (a.result.phase, b.result.phase) == (ResetPhase.SUCCEEDED, ResetPhase.SUCCEEDED)


def test_a_plan_that_has_waited_is_looked_at_again_before_it_is_applied(tmp_path: Path) -> None:
    """The group was to skip records, and by now it would read again what it has read since."""
    world = World(EAGER, tmp_path)
    a = world.run("a", P[2:], in_flight=timedelta(seconds=60))
    b = world.run("b", P[:1], back=-100)

    world.begin(a)
    world.begin(b, after_s=0.5)
    world.clock.sleep(200)

    assert a.result.phase is ResetPhase.SUCCEEDED
    assert (b.result.phase, b.result.reason) == (ResetPhase.FAILED, "PlanOutdated")


def test_a_successor_of_the_same_run_goes_on_at_once_before_those_who_wait(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a, b = world.run("a", P[:2]), world.run("b", P[2:])
    dying = Process()
    world.begin(a, process=dying)
    world.begin(b, after_s=0.2)
    world.clock.sleep(1)
    dying.dead = True
    world.clock.sleep(1)
    died_s = world.clock.monotonic() - world.began_s

    world.begin(a)
    world.clock.sleep(120)

    assert a.result.phase is ResetPhase.SUCCEEDED
    assert a.ended_s - died_s < LEASE_S / 2
    assert a.ended_s < b.ended_s
    assert b.result.phase is ResetPhase.SUCCEEDED
    for partition, target in b.targets.items():
        assert world.starts_at(partition, target) == 1


def _calls(kind: Kind, folder: Path) -> list[str]:
    world = World(kind, folder)
    process = Process()
    run = world.run("a", P[:2])
    world.begin(run, process=process)
    world.clock.sleep(60)
    assert run.result.phase is ResetPhase.SUCCEEDED
    return process.calls


def _where_to_die(calls: list[str]) -> list[int]:
    """At the first and the last call of each name, and all of those that are about claims."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(calls, 1):
        places.setdefault(name, []).append(number)
    claiming = [n for n, name in enumerate(calls, 1) if name in ("kafka.control.claim", "kafka.control.withdraw")]
    return sorted({*claiming, *(n for numbers in places.values() for n in (numbers[0], numbers[-1]))})


@pytest.mark.parametrize("kind", [EAGER, MANAGED], ids=lambda k: k.name)
def test_whose_process_dies_for_good_keeps_the_group_for_its_lease_and_no_longer(kind: Kind, tmp_path: Path) -> None:
    """At each step: the next run is done, once; the one that was cut off never undoes that, whatever it comes to."""
    for step in _where_to_die(_calls(kind, tmp_path / "whole")):
        world = World(kind, tmp_path / str(step))
        a, b = world.run("a", P[:2]), world.run("b", P[2:])
        world.begin(a, process=Process(step, after=True))
        world.begin(b, after_s=0.3)
        world.clock.sleep(LEASE_S + 60)
        if a.results:
            continue  # it died after it was done
        assert b.results, f"step {step}: {b.stale or world.waits_of(b)}"
        assert b.result.phase is ResetPhase.SUCCEEDED, f"step {step}: {b.result}"
        begun = bool([line for line in a.store.load().journal if line.round])
        result = a.store.load().result

        world.begin(a)
        world.clock.sleep(60)

        if result is None:
            expected = (ResetPhase.FAILED, "NotPutBack") if begun else (ResetPhase.SUCCEEDED, "Applied")
            assert (a.result.phase, a.result.reason) == expected, f"step {step}: {a.result}"
        assert a.stale == b.stale == []
        for partition, target in b.targets.items():
            assert world.starts_at(partition, target) == 1, f"step {step}: {partition}"
        assert world.claims() == [], f"step {step}"
        gates = world.kafka.control.read()
        assert not [k for k in gates.holds if k.holder == holder("b/1")], f"step {step}"
        if a.results:
            assert not gates.holds, f"step {step}"


def test_a_run_that_nobody_overtook_goes_on_however_long_it_was_away(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2])
    dying = Process()
    world.begin(a, process=dying)
    world.clock.sleep(3)
    assert [line for line in a.store.load().journal if line.round]
    dying.dead = True
    world.clock.sleep(10 * LEASE_S)
    for _ in range(2):
        # A second one that dies as it takes over leaves no less.
        world.begin(a, process=Process(8, after=True))
        world.clock.sleep(2 * LEASE_S)

    world.begin(a)
    world.clock.sleep(60)

    assert a.result.phase is ResetPhase.SUCCEEDED
    assert world.claims() == []


def test_a_run_of_a_version_without_claims_is_gone_on_with(tmp_path: Path) -> None:
    """Its journal names no claim, and there is none in the topic."""
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2])
    world.begin_and_die(a)
    world.clock.sleep(1)
    [file] = tmp_path.glob("*.json")
    document = json.loads(file.read_text())
    claimed = [entry for entry in document["journal"] if entry.pop("claim", None) is not None]
    assert claimed
    file.write_text(json.dumps(document))
    world.kafka.control.withdraw([c.key for c in world.kafka.control.read().claims.queue(GROUP)])

    world.begin(a)
    world.clock.sleep(60)

    assert a.result.phase is ResetPhase.SUCCEEDED, a.result


def test_who_lost_its_claim_stops_with_its_gates_open(tmp_path: Path) -> None:
    """It could not renew it for longer than its lease, and another run came."""
    world = World(MANAGED, tmp_path)
    a = world.run("a", P[:2], in_flight=timedelta(minutes=2))
    b = world.run("b", P[2:], in_flight=timedelta(minutes=1))
    world.begin(a)
    world.clock.sleep(1)
    [mine] = world.kafka.control.read().claims.queue(GROUP)
    world.kafka.control.withdraw([mine.key])
    world.begin(b)
    world.clock.sleep(15)

    [stale] = a.stale
    assert "another run has had the group since" in str(stale)
    assert "policy b" in str(stale)
    assert not [k for k in world.kafka.control.read().holds if k.holder == holder("a/1")]
    world.clock.sleep(120)
    assert b.result.phase is ResetPhase.SUCCEEDED


def test_one_whose_claim_lapsed_while_nobody_waited_goes_on(tmp_path: Path) -> None:
    """As after an outage of the control topic's broker."""
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2], in_flight=timedelta(minutes=2))
    world.begin(a)
    world.clock.sleep(1)
    world.kafka.control.failure = Unavailable("no answer")
    world.clock.sleep(LEASE_S + 10)
    world.kafka.control.failure = None
    world.kafka.control.write_clock()
    assert world.claims() == []
    world.clock.sleep(15)
    assert world.claims() == [holder("a/1")]
    world.clock.sleep(300)
    assert (a.stale, a.result.phase) == ([], ResetPhase.SUCCEEDED)


def test_whose_place_lapsed_while_it_waited_has_the_group_by_a_new_claim_only(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    other = _claim(world, "b/1")
    assert other.take_now()
    a = world.run("a", P[:2], in_flight=timedelta(seconds=30))
    world.begin(a)
    world.clock.sleep(3)
    world.kafka.control.failure = Unavailable("no answer")
    world.clock.sleep(LEASE_S + 10)
    world.kafka.control.failure = None
    world.clock.sleep(5)
    assert world.claims() == [holder("a/1")]
    world.clock.sleep(120)
    assert a.result.phase is ResetPhase.SUCCEEDED


def test_a_run_without_the_rights_to_claim_changes_nothing_and_says_which(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2])
    world.kafka.control.failure = NotAuthorized("allow the principal Write on topic __tidegate")
    world.begin(a)
    world.clock.sleep(20)
    assert (a.result.phase, a.result.reason) == (ResetPhase.FAILED, "NotAuthorized")
    assert "Write on topic __tidegate" in a.result.message
    assert world.kafka.calls.count("fence") == 0


# --- claims by hand ---------------------------------------------------------------------------------------------------


def _claim(world: World, run_uid: str) -> GroupClaim:
    pace = Pace(world.clock, Tuning(), None)
    return GroupClaim(world.kafka, pace, GROUP, run_uid, "", lambda _: None)


def test_what_a_backfill_of_the_policy_left_behind_the_next_one_has(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    assert claimant("starts/policy/one") == claimant("starts/policy/two") != claimant("starts/other/one")
    assert _claim(world, "starts/policy/one").take_now()
    assert _claim(world, "starts/policy/two").take_now()
    assert not _claim(world, "starts/other/one").take_now()


def test_whose_run_was_ended_by_another_writer_of_it_begins_nothing_more(tmp_path: Path) -> None:
    """As a frozen operator that awakes once the one that has taken over has sent the owners back, and another run may
    have the group: what they share is the policy's claim."""
    world = World(EAGER, tmp_path)
    frozen, successor = _claim(world, "starts/policy/one"), _claim(world, "starts/policy/two")
    assert frozen.take_now()
    frozen.confirm_now()
    assert successor.take_now()
    frozen.confirm_now()
    successor.release()
    with pytest.raises(ClaimLost):
        frozen.confirm_now()
    assert world.claims() == []


def test_a_fence_and_a_halt_leave_the_transaction_of_who_has_the_group(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2])
    world.begin_and_die(a)
    world.clock.sleep(2 * LEASE_S)
    other = _claim(world, "b/1")
    assert other.take_now()
    writer = world.kafka.writer(GROUP, transaction_timeout_s=60)
    with writer.transaction() as transaction:
        job.fence(a.store, world.kafka, world.clock)
        job.halt(world.kafka, world.clock, "a/1", {GROUP: "a/1"})
        transaction.send(GROUP, {P[3]: 1})
        transaction.commit()  # which would raise Fenced
    other.release()
    assert world.claims() == []


def test_a_job_that_was_frozen_while_it_was_halted_applies_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction looks as if it had outlived its time-out, and its claim is not old enough to be doubted."""
    world = World(EAGER, tmp_path)
    a = world.run("a", P[:2])
    commit, frozen = FakeTransaction.commit, []

    def commit_late(transaction: FakeTransaction) -> None:
        if not frozen:
            frozen.append(True)
            world.clock.sleep(Tuning().transaction_s + 1)
            job.halt(world.kafka, world.clock, "a/1", {GROUP: "a/1"})
        commit(transaction)

    monkeypatch.setattr(FakeTransaction, "commit", commit_late)
    world.begin(a)
    world.clock.sleep(60)

    assert frozen
    assert a.stale, a.results
    assert not any(world.starts_at(p, target) for p, target in a.targets.items())


class Unfinished(Process):
    """A process that dies just before it stores its result."""

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if name == "store.finish":
            self.dead = True
        return super().call(name, do)


def test_who_was_frozen_as_it_put_offsets_back_deletes_none_of_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group had no offset before the first run. To delete one is no transaction, so Kafka fences nobody."""
    world = World(EAGER, tmp_path)
    for consumer in world.consumers:
        consumer.close()
    del world.kafka._groups[GROUP].committed[P[0]]
    a, b = world.run("a", P[:1]), world.run("b", P[:1], BACK // 2)
    world.begin(a, process=Unfinished())
    world.clock.sleep(10)
    assert world.kafka.committed(GROUP)[P[0]] == a.targets[P[0]]
    committed, stale, frozen = FakeKafka.committed, list[StaleAttempt](), list[bool]()

    def committed_late(kafka: FakeKafka, group_id: str, *args: Any, **kwargs: Any) -> Any:
        seen = committed(kafka, group_id, *args, **kwargs)
        if is_marker_group(group_id) and not frozen:
            frozen.append(True)
            [mine] = world.kafka.control.read().claims.queue(GROUP)
            world.kafka.control.withdraw([mine.key])  # as if it had lapsed
            world.begin(b)
            world.clock.sleep(30)
        return seen

    def settle() -> None:
        try:
            job.settle(a.store, world.kafka, world.clock, reason="Deleted", message="its resource was deleted")
        except StaleAttempt as late:
            stale.append(late)

    monkeypatch.setattr(FakeKafka, "committed", committed_late)
    world.clock.start(settle)
    world.clock.sleep(120)

    assert frozen
    assert b.result.phase is ResetPhase.SUCCEEDED
    assert world.kafka.committed(GROUP)[P[0]] == b.targets[P[0]]
    assert stale


def test_who_was_frozen_as_it_watched_takes_nothing_of_the_next_run_for_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(EAGER, tmp_path)
    a, b = world.run("a", P[:2]), world.run("b", P[:2], BACK // 2)
    committed, frozen = FakeKafka.committed, list[bool]()

    def committed_late(kafka: FakeKafka, group_id: str, *args: Any, **kwargs: Any) -> Any:
        journal = a.store.load().journal
        if journal and journal[-1].phase is ResetPhase.VERIFYING and not frozen:
            frozen.append(True)
            renew = GroupClaim._renew
            monkeypatch.setattr(GroupClaim, "_renew", lambda _: None)
            [mine] = world.kafka.control.read().claims.queue(GROUP)
            world.kafka.control.withdraw([mine.key])  # as if it had lapsed
            world.begin(b)
            world.clock.sleep(LEASE_S + 15)
            monkeypatch.setattr(GroupClaim, "_renew", renew)
        return committed(kafka, group_id, *args, **kwargs)

    monkeypatch.setattr(FakeKafka, "committed", committed_late)
    world.begin(a)
    world.clock.sleep(120)

    assert frozen
    assert b.result.phase is ResetPhase.SUCCEEDED
    assert not a.results, a.results
    [stale] = a.stale
    assert "another run has had the group since" in str(stale)


def test_who_was_frozen_before_its_last_look_counts_nothing_of_the_next_run_as_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a laptop that sleeps. Nobody owns the partitions, so nobody has begun at the first run's targets."""
    world = World(EAGER, tmp_path)
    for consumer in world.consumers:
        consumer.close()
    a, b = world.run("a", P[:2]), world.run("b", P[:2], BACK // 2)
    frozen = list[bool]()

    def look_late(context: RunContext) -> LookBack:
        if not frozen:
            frozen.append(True)
            with monkeypatch.context() as asleep:
                asleep.setattr(GroupClaim, "_renew", lambda _: None)
                [mine] = world.kafka.control.read().claims.queue(GROUP)
                world.kafka.control.withdraw([mine.key])  # as if it had lapsed
                world.begin(b)
                world.clock.sleep(LEASE_S + 15)
        return look_back(context)

    monkeypatch.setattr(apply, "look_back", look_late)
    world.begin(a)
    world.clock.sleep(120)

    assert frozen
    assert b.result.phase is ResetPhase.SUCCEEDED
    assert a.result.phase is ResetPhase.SUCCEEDED
    assert (a.result.begun, a.result.waiting) == (None, None)


@pytest.mark.parametrize("reason", ["\x1b[31mred\nline", "x" * 1024])
def test_what_a_stranger_writes_is_shown_as_text_and_lapses(reason: str, tmp_path: Path) -> None:
    """Whoever may write the control topic can keep others waiting, as it can close their gates; not for long."""
    world = World(EAGER, tmp_path)
    world.kafka.control.ensure()
    world.kafka.control.claim(ClaimKey(GROUP, "x"), Claim("stranger", reason, 60_000, epoch=0, renews_ms=0))
    a = world.run("a", P[:2])
    world.begin(a)
    world.clock.sleep(5)
    if world.waits_of(a):
        [said] = world.waits_of(a)
        assert "\x1b" not in said
        assert "\n" not in said
    world.clock.sleep(150)
    assert a.result.phase is ResetPhase.SUCCEEDED
