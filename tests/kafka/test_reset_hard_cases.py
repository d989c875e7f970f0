"""Resets of live groups where something goes against them: late committers, dead and rival writers, transactions.

Each story runs on a topic and a group of its own, with consumers in processes of their own; some run at once, since
each is mostly waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from support.clients import ClientKind, CommitMode, EventKind, GroupProtocol
from support.deliveries import Partition
from support.history import Commit, CommitRow
from support.reset_trial import Cell, Trial, create_topic, execute_and_die
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupState, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.runs import job
from tidegate.reset.store import StaleAttempt
from tidegate.resources.reset import ResetPhase, Way

AT_ONCE = 4
PATIENCE_S = 15.0
"""Nobody waits longer on a dead writer."""

LIBRDKAFKA = Cell(
    kind=ClientKind.LIBRDKAFKA,
    protocol=GroupProtocol.CLASSIC,
    assignor="range",
    members=2,
    auto_commit_interval_s=1.0,
)
COOPERATIVE = Cell(
    kind=ClientKind.LIBRDKAFKA,
    protocol=GroupProtocol.CLASSIC,
    assignor="cooperative-sticky",
    members=2,
    auto_commit_interval_s=1.0,
)
FRANZ_GO = Cell(
    kind=ClientKind.FRANZ_GO,
    protocol=GroupProtocol.CLASSIC,
    assignor="cooperative-sticky",
    members=2,
    auto_commit_interval_s=0.1,
)
"""Whoever leaves in its name is told of by a commit first: it keeps its positions, and has to be led."""
KIP_848 = Cell(kind=ClientKind.LIBRDKAFKA, protocol=GroupProtocol.CONSUMER, members=2, auto_commit_interval_s=1.0)
STATIC = replace(LIBRDKAFKA, static=True)

Story = Callable[[str, Path], None]
STORIES: dict[str, Story] = {}


def story(tell: Story) -> Story:
    """Register a story under its name."""
    STORIES[tell.__name__] = tell
    return tell


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[None]]]:
    """All stories that were selected, some at once."""
    selected = {item.nodeid for item in request.session.items}
    wanted = [n for n in STORIES if f"{request.node.nodeid}::{test_hard_case.__name__}[{n}]" in selected]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(STORIES[name], kafka.bootstrap, tmp_path_factory.mktemp("story")) for name in wanted}
        pool.shutdown(cancel_futures=True)


# --- groups that nobody reads, partitions that nobody owns ------------------------------------------------------------


@story
def an_empty_group_starts_at_its_targets(bootstrap: str, folder: Path) -> None:
    with Trial(bootstrap, LIBRDKAFKA, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 50, 30)
        trial.stop_fleet()
        _until(lambda: trial.kafka.groups([trial.group])[trial.group].state is GroupState.EMPTY, 20)
        committed = trial.committed()
        first, second, *_ = trial.partitions
        end = trial.kafka.log_bounds([TopicPartition(*second)])[TopicPartition(*second)].latest
        targets = {first: committed[first] - 40, second: end}
        request = trial.request(targets)
        result = trial.execute(request)
        assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.UNOWNED, 1), result
        assert trial.committed() == {**committed, **targets}
        restarted = time.time()
        trial.start_fleet()
        trial.wait_current()
        starts = _first_offsets(trial, restarted)
        assert {p: starts[p] for p in targets} == targets
        assert all(starts[p] == committed[p] for p in trial.partitions if p not in targets)


@story
def partitions_that_no_member_owns(bootstrap: str, folder: Path) -> None:
    with Trial(bootstrap, LIBRDKAFKA, folder) as trial:
        unread = f"{trial.topic}-unread"
        create_topic(bootstrap, unread, 2)
        _produce(bootstrap, unread, 2, 100)
        writer = trial.kafka.writer(trial.group, transaction_timeout_s=5)
        with writer.transaction() as transaction:
            transaction.send(trial.group, {TopicPartition(unread, 0): 70})
            transaction.commit()
        writer.close()
        before = time.time()
        result = trial.execute(trial.request({(unread, 0): 20, (unread, 1): 100}))
        assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.UNOWNED), result
        committed = trial.committed()
        assert (committed[unread, 0], committed[unread, 1]) == (20, 100)
        trial.fleet.wait_flowing(trial.partitions)
        moved = (EventKind.ASSIGN, EventKind.REVOKE, EventKind.LOST)
        assert not [e for e in trial.fleet.events(before) if e.kind in moved], "the group's members noticed"
        complaints = trial.complaints()
        assert not complaints, complaints


@story
def owners_that_commit_all_the_time(bootstrap: str, folder: Path) -> None:
    with Trial(bootstrap, FRANZ_GO, folder) as trial:
        for _ in range(2):
            trial.wait_settled(0.5)
            outcome = trial.reset()
            assert (outcome.phase, outcome.way) == (ResetPhase.SUCCEEDED, Way.LEADING), str(outcome)
            assert outcome.verdict.is_clean, str(outcome)
            # One of several members stays in the first round, and may keep its position in the second.
            assert outcome.rounds <= 3, str(outcome)
        assert not trial.complaints()


@story
def a_consumer_that_assigned_itself_its_partitions(bootstrap: str, folder: Path) -> None:
    """It is no member of its group, and goes on committing where it is, over the target."""
    topic = group = f"assigned-{time.time_ns()}"
    create_topic(bootstrap, topic, 1)
    _produce(bootstrap, topic, 1, 5_000)
    place = TopicPartition(topic, 0)
    kafka = KafkaClient(Connection(bootstrap))
    over = threading.Event()

    def consume() -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.commit.interval.ms": 1000})
        consumer.assign([ClientTopicPartition(topic, 0, 0)])
        while not over.wait(0.01):
            consumer.poll(1)
        consumer.close()

    def reset(run_id: str) -> RunResult:
        store = DirectoryRunStore(folder, run_id)
        store.create(
            RunRequest(
                run_uid=f"{group}/{run_id}",
                run_id=run_id,
                group_id=group,
                connection=Connection(bootstrap),
                selections=(),
                target=ToEarliest(),
            )
        )
        result = job.execute(store, kafka, SystemClock())
        assert result is not None
        return result

    reader = threading.Thread(target=consume)
    reader.start()
    try:
        _until(lambda: kafka.committed(group).get(place, 0) > 50, 30)
        live = reset("live")
        assert (live.phase, live.reason, live.way) == (ResetPhase.ROLLED_BACK, "Overwritten", Way.UNOWNED), live
        assert kafka.committed(group)[place] > 50
    finally:
        over.set()
        reader.join()
    stopped = reset("stopped")
    assert (stopped.phase, stopped.rounds) == (ResetPhase.SUCCEEDED, 1), stopped
    assert kafka.committed(group)[place] == 0
    kafka.close()


@story
def the_ends_of_the_log(bootstrap: str, folder: Path) -> None:
    with Trial(bootstrap, LIBRDKAFKA, folder) as trial:
        first, second, *_ = trial.partitions
        end = trial.kafka.log_bounds([TopicPartition(*second)])[TopicPartition(*second)].latest
        outcome = trial.reset({first: 0, second: end})
        assert outcome.phase == ResetPhase.SUCCEEDED, str(outcome)
        assert outcome.verdict.missing == 0, str(outcome)
        times = sum(d.offset == 0 for d in trial.records() if d[2:4] == first)
        assert 2 <= times <= 2 + outcome.redone, f"{times}, {outcome}"
        complaints = trial.complaints()
        assert not complaints, complaints


# --- members that do not come to a rebalance --------------------------------------------------------------------------


def _nobody_waits_for_a_frozen_member(cell: Cell, way: Way, bootstrap: str, folder: Path) -> None:
    """It is made to leave long before its session of 45 s is over; when it runs again, it goes on with the others."""
    with Trial(bootstrap, cell, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 80, 30)
        trial.wait_settled(0.5)
        (healthy,), (frozen,) = trial.fleet.processes()
        committed = trial.committed()
        targets = {p: committed[p] - 50 for p, owner in trial.fleet.owners().items() if owner == healthy}
        index = trial.fleet.process_of(frozen)
        trial.fleet.pause_process(index)
        try:
            request = trial.request(targets, max_standstill=timedelta(seconds=5))
            result = trial.execute(request)
            assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, way), result
            assert "1 member(s) have not rejoined yet" in result.message
            # Its partitions as well: they were given to the member that is there.
            trial.fleet.wait_flowing(trial.partitions, since=time.time())
        finally:
            trial.fleet.resume_process(index)
        trial.fleet.wait_assigned(trial.partitions, members=2)
        verdict = trial.judge(trial.touched_at(request), targets)
        assert verdict.is_clean, f"{result} {verdict}"
        complaints = trial.complaints()
        assert not complaints, complaints


STORIES |= {
    "barrier_nobody_waits_for_a_frozen_member": partial(_nobody_waits_for_a_frozen_member, LIBRDKAFKA, Way.BARRIER),
    "leading_nobody_waits_for_a_frozen_member": partial(_nobody_waits_for_a_frozen_member, FRANZ_GO, Way.LEADING),
    "static_nobody_waits_for_a_frozen_member": partial(_nobody_waits_for_a_frozen_member, STATIC, Way.BARRIER),
    "handover_nobody_waits_for_a_frozen_member": partial(_nobody_waits_for_a_frozen_member, COOPERATIVE, Way.HANDOVER),
}


# --- applications that commit late ------------------------------------------------------------------------------------


def _in_flight_is_waited_for(kind: ClientKind, bootstrap: str, folder: Path) -> None:
    """Until its first own commits come, ``hold_s`` after it began anew, nothing but the target is ever committed."""
    cell = Cell(
        kind=kind,
        protocol=GroupProtocol.CLASSIC,
        assignor="range",
        members=2,
        commit=CommitMode.WORKER,
        hold_s=2.0,
        in_flight_s=2.2,
    )
    with Trial(bootstrap, cell, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 80, 30)
        committed = trial.committed()
        targets = {p: committed[p] - 50 for p in trial.partitions[::2]}
        with _looks(trial) as seen:
            outcome = trial.reset(targets)
        assert outcome.is_good, str(outcome)
        for partition, target in targets.items():
            anew = next(
                d.t for d in trial.fleet.records() if d[2:4] == partition and d.t > seen[0][0] and d.offset == target
            )
            quiet = [offsets[partition] for at, offsets in seen if anew < at < anew + cell.hold_s - 0.5]
            assert quiet, "nobody looked in time"
            assert set(quiet) == {target}, f"{partition}: committed {set(quiet)} over {target}"


story_names = {
    ClientKind.LIBRDKAFKA: "in_flight_is_waited_for_librdkafka",
    ClientKind.JAVA: "in_flight_is_waited_for_java",
}
STORIES |= {name: partial(_in_flight_is_waited_for, kind) for kind, name in story_names.items()}


@story
def no_partition_is_counted_as_begun_whose_target_a_late_commit_replaced(bootstrap: str, folder: Path) -> None:
    """A KIP-848 consumer sends what its application has in hand as soon as it is back, and only then fetches where to
    begin: nothing holds it meanwhile."""
    cell = Cell(
        kind=ClientKind.JAVA,
        protocol=GroupProtocol.CONSUMER,
        members=1,
        commit=CommitMode.WORKER,
        hold_s=2.0,
        in_flight_s=2.2,
    )
    with Trial(bootstrap, cell, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 80, 30)
        committed = trial.committed()
        # Both ways: ahead, an owner passes its target while it does not yet know that it was made to leave.
        targets = {p: committed[p] + (6 if n % 2 else -50) for n, p in enumerate(trial.partitions[::2])}
        request = trial.request(targets)
        result = trial.execute(request)
        if result.phase is ResetPhase.SUCCEEDED:
            verdict = trial.judge(trial.touched_at(request), targets)
            assert verdict.unfinished <= (result.waiting or 0), f"{result} {verdict}"
        else:
            assert result.reason in ("Overwritten", "PlanOutdated"), result


@story
def a_late_committer_is_noticed(bootstrap: str, folder: Path) -> None:
    """The application commits old offsets explicitly, for 3.5 s after the release, and nobody has said so."""
    cell = Cell(
        kind=ClientKind.LIBRDKAFKA,
        protocol=GroupProtocol.CLASSIC,
        assignor="range",
        members=2,
        commit=CommitMode.WORKER,
        hold_s=3.5,
        # Where a member is removed as it waits in a join, librdkafka sends late commits just after it has asked for a
        # new member id. Their refusal makes it ask for another one, and the coordinator waits in vain for the first
        # until its session is over: up to 45 s by default, and again in each round that makes members leave.
        session_s=6.0,
    )
    # Quick heartbeats: the owners let go at once, with what they were given before the plan still in hand. The watch
    # goes on for 6.5 s.
    with Trial(bootstrap, cell, folder, config={"heartbeat.interval.ms": 300}) as trial:
        bounds = trial.kafka.log_bounds([TopicPartition(*p) for p in trial.partitions])
        committed = trial.committed()
        # Ahead of what is committed, so that a late commit is below the target.
        targets = {p: bounds[TopicPartition(*p)].latest for p in trial.partitions[::2]}
        assert all(targets[p] - committed[p] > 20 for p in targets)
        request = trial.request(targets)
        with _looks(trial) as seen:
            result = trial.execute(request)
        after = trial.committed()
        if result.phase is ResetPhase.SUCCEEDED:
            # Late commits may all have come while the members' join was held: then none of them was over a target.
            late = {p for p in targets if _fell(target=targets[p], committed=[offsets[p] for _, offsets in seen])}
            assert result.redone > 0 or not late, f"nobody noticed late commits of {late}: {result}"
            assert all(after[p] >= targets[p] for p in targets), f"{after} below {targets}"
            verdict = trial.judge(trial.touched_at(request), targets)
            # With a member that is back only after maxStandstill, a late commit can come as its partition's next owner
            # begins (docs/explanation/guarantees.md): then it is read from there, and from before the target as well.
            is_in_time = "within maxStandstill" not in result.message
            # On a busy machine the group may have passed its targets before it was moved. Then a late commit looks like
            # progress, and one that comes before its consumer has asked where to begin stays.
            is_told = all(stood.offset < targets[stood.topic, stood.partition] for stood in result.before)
            if is_in_time and is_told:
                assert verdict.is_clean, verdict
            elif is_told:
                assert verdict.missing == 0, verdict
        else:
            assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten"), result
            assert all(after[p] >= committed[p] for p in targets)
        trial.fleet.wait_flowing(trial.partitions)


# --- writers that die, and rivals -------------------------------------------------------------------------------------


def _finished_by_the_next_writer(cell: Cell, phase: ResetPhase, delay_s: float, bootstrap: str, folder: Path) -> None:
    """SIGKILL; nobody waits for long; the next writer finishes the run, and once is enough."""
    with Trial(bootstrap, cell, folder) as trial:
        trial.wait_settled(0.5)
        targets = trial.draw_targets()
        request = trial.request(targets)
        store = trial.store(request)
        execute_and_die(folder, request.run_uid, phase, delay_s)
        died = time.time()
        assert store.load().result is None
        # Nobody comes for now: whatever the writer held ends by itself.
        trial.fleet.wait_flowing(trial.partitions, since=died, timeout=PATIENCE_S + 10)
        waited = _longest_gap(trial, since=died - 3)
        assert waited < PATIENCE_S, f"a partition stood still for {waited:.1f} s"
        result = trial.execute(request)
        assert result.phase is ResetPhase.SUCCEEDED, result
        verdict = trial.judge(trial.touched_at(request), targets)
        assert verdict.is_clean, f"{result} {verdict}"
        assert trial.execute(request) == result
        assert store.load().result == result
        complaints = trial.complaints()
        assert not complaints, complaints


_DEATHS: Mapping[str, tuple[Cell, ResetPhase, float]] = {
    "barrier_planned": (LIBRDKAFKA, ResetPhase.PLANNING, 0.0),
    "barrier_about_to_begin": (LIBRDKAFKA, ResetPhase.PAUSING, 0.0),
    "barrier_held": (LIBRDKAFKA, ResetPhase.PAUSING, 0.25),
    "barrier_watching": (LIBRDKAFKA, ResetPhase.VERIFYING, 0.0),
    "handover_about_to_begin": (COOPERATIVE, ResetPhase.PAUSING, 0.0),
    "static_held": (STATIC, ResetPhase.PAUSING, 0.25),
    "handover_held": (COOPERATIVE, ResetPhase.PAUSING, 0.25),
    "handover_midway": (KIP_848, ResetPhase.PAUSING, 0.03),
    "handover_watching": (KIP_848, ResetPhase.VERIFYING, 0.0),
    # The Handover before it takes about a second; then a heartbeat passes, and members come back twice.
    "leading_join_held": (FRANZ_GO, ResetPhase.PAUSING, 3.0),
    "leading_nobodys": (FRANZ_GO, ResetPhase.PAUSING, 5.0),
    "leading_given_back": (FRANZ_GO, ResetPhase.PAUSING, 5.7),
}
_LIKE_ANOTHER = ("barrier_about_to_begin", "handover_about_to_begin", "leading_given_back")
"""Deaths in a phase of a way in which another story's writer dies at another moment. These are told nightly."""
STORIES |= {
    f"killed_{name}_is_finished_by_the_next": partial(_finished_by_the_next_writer, *given)
    for name, given in _DEATHS.items()
}
NIGHTLY = {f"killed_{name}_is_finished_by_the_next" for name in _LIKE_ANOTHER}


@story
def a_killed_writer_is_followed_at_once(bootstrap: str, folder: Path) -> None:
    """The next writer takes over the join that the dead one has held, before its owners go on."""
    with Trial(bootstrap, LIBRDKAFKA, folder) as trial:
        trial.wait_settled(0.5)
        targets = trial.draw_targets()
        request = trial.request(targets)
        trial.store(request)
        execute_and_die(folder, request.run_uid, ResetPhase.PAUSING, 0.25)
        began = time.monotonic()
        result = trial.execute(request)
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert time.monotonic() - began < PATIENCE_S
        verdict = trial.judge(trial.touched_at(request), targets)
        assert verdict.is_clean, f"{result} {verdict}"


@story
def two_writers_have_one_result(bootstrap: str, folder: Path) -> None:
    with Trial(bootstrap, LIBRDKAFKA, folder) as trial:
        targets = trial.draw_targets()
        request = trial.request(targets)
        store = trial.store(request)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(trial.execute, request)
            _until(lambda: any(p.phase is ResetPhase.PAUSING for p in store.load().journal), 20)
            second = pool.submit(trial.execute, request)
            result = second.result(120)
            with pytest.raises(StaleAttempt):
                first.result(120)
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert store.load().result == result
        verdict = trial.judge(trial.touched_at(request), targets)
        assert verdict.is_clean, f"{result} {verdict}"
        complaints = trial.complaints()
        assert not complaints, complaints


# --- others' transactions, and failures -------------------------------------------------------------------------------


@story
def an_outsiders_open_transaction(bootstrap: str, folder: Path) -> None:
    """Somebody else has offsets of the group in an open transaction, and commits them in the midst of ours."""
    with Trial(bootstrap, COOPERATIVE, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 80, 30)
        committed = trial.committed()
        targets = {p: committed[p] - 50 for p in trial.partitions[::2]}
        theirs = min(targets)
        outsider = _Outsider(bootstrap, trial.group)
        outsider.begin({theirs: committed[theirs] - 70})
        place = CommitRow(*theirs, committed[theirs] - 70)
        trial.tell(Commit(time.time(), None, (place,)))  # from now on it may come into effect
        request = trial.request(targets)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(trial.execute, request)
            # Longer than anybody watches for overwritten offsets.
            threading.Event().wait(9.0)
            assert not running.done(), "a run is not over while owners wait for another transaction"
            outsider.commit()
            result = running.result(120)
        assert result.phase is ResetPhase.SUCCEEDED, result
        verdict = trial.judge(trial.touched_at(request), targets)
        assert verdict.is_clean, f"{result} {verdict}"
        complaints = trial.complaints()
        assert not complaints, complaints


@story
def a_run_past_its_deadline_puts_everything_back(bootstrap: str, folder: Path) -> None:
    cell = Cell(
        kind=ClientKind.LIBRDKAFKA,
        protocol=GroupProtocol.CLASSIC,
        assignor="range",
        members=2,
        commit=CommitMode.NONE,
    )
    with Trial(bootstrap, cell, folder, commits=False) as trial:
        writer = trial.kafka.writer(trial.group, transaction_timeout_s=5)
        before = dict.fromkeys(trial.partitions[:3], 30)
        trial.fleet.wait_read_to(before)  # an application commits only what it was given, and so it is judged
        trial.tell(Commit(time.time(), None, tuple(CommitRow(*p, o) for p, o in before.items())))
        with writer.transaction() as transaction:
            transaction.send(trial.group, {TopicPartition(*p): o for p, o in before.items()})
            transaction.commit()
        writer.close()
        _until(lambda: trial.committed() == before, 10)
        # One of the four has no commit: it must not have one afterwards, or keep the target if it is still subscribed.
        targets = dict.fromkeys(trial.partitions[:4], 10)
        # Time enough to plan and to begin on a busy machine, and less than what is in flight is waited for.
        deadline = datetime.now(UTC) + timedelta(seconds=15)
        request = trial.request(targets, deadline=deadline, in_flight=timedelta(seconds=30))
        result = trial.execute(request)
        assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "DeadlineExceeded"), result
        after = trial.committed()
        assert {p: after[p] for p in before} == before, result
        trial.fleet.wait_flowing(trial.partitions)
        complaints = trial.complaints()
        assert not complaints, complaints


@story
def a_run_that_never_holds_puts_everything_back(bootstrap: str, folder: Path) -> None:
    """Somebody commits an old place of one partition again and again; the other one is put back to where it was."""
    with Trial(bootstrap, COOPERATIVE, folder) as trial:
        _until(lambda: min(trial.committed().values()) > 80, 30)
        committed = trial.committed()
        attacked, other = trial.partitions[0], trial.partitions[-1]
        end = trial.kafka.log_bounds([TopicPartition(*attacked)])[TopicPartition(*attacked)].latest
        targets = {attacked: end, other: committed[other] - 60}
        over = threading.Event()

        def attack() -> None:
            outsider = _Outsider(bootstrap, trial.group)
            place = CommitRow(*attacked, 7)
            while not over.wait(0.05):
                trial.tell(Commit(time.time(), None, (place,)))
                outsider.begin({attacked: 7})
                outsider.commit()
                trial.tell(Commit(time.time(), None, (place,)))

        attacker = threading.Thread(target=attack)
        attacker.start()
        try:
            result = trial.execute(trial.request(targets))
        finally:
            over.set()
            attacker.join()
        assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten"), result
        before = {b.topic_partition: b.offset for b in result.before}
        assert before[TopicPartition(*other)] >= committed[other]
        after = trial.committed()
        assert after[other] >= before[TopicPartition(*other)], f"{after[other]}, {result}"
        trial.fleet.wait_flowing(trial.partitions)
        trial.fleet.wait_read_to(trial.producer.ends())
        complaints = trial.complaints()
        assert not complaints, complaints


@story
def a_recreated_topic_is_refused(bootstrap: str, folder: Path) -> None:
    topic = group = f"recreated-{time.time_ns()}"
    create_topic(bootstrap, topic, 1)
    _produce(bootstrap, topic, 1, 50)
    kafka = KafkaClient(Connection(bootstrap))
    kafka.writer(group, transaction_timeout_s=5).alter(group, {TopicPartition(topic, 0): 40})
    store = DirectoryRunStore(folder, "run")
    store.create(
        RunRequest(
            run_uid=f"{group}/r",
            run_id="r",
            group_id=group,
            connection=Connection(bootstrap),
            selections=(),
            target=ToEarliest(),
            manual_approval=True,
        )
    )
    assert job.execute(store, kafka, SystemClock()) is None
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    _until(lambda: topic not in admin.list_topics(timeout=10).topics, 20)
    create_topic(bootstrap, topic, 1)
    _produce(bootstrap, topic, 1, 50)
    store.approve()
    result = job.execute(store, kafka, SystemClock())
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated"), result
    assert "recreated" in result.message
    assert "Nothing was changed" in result.message
    kafka.close()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in sorted(STORIES)]
)
def test_hard_case(name: str, told: Mapping[str, Future[None]]) -> None:
    told[name].result(300)


# --- tools ------------------------------------------------------------------------------------------------------------


class _Outsider:
    """Somebody else who commits offsets of the group by transaction."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"outsider.{group}"})
        self._producer.init_transactions(30)
        member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._metadata = member.consumer_group_metadata()
        member.close()

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        self._producer.begin_transaction()
        given = [ClientTopicPartition(*p, o) for p, o in offsets.items()]
        self._producer.send_offsets_to_transaction(given, self._metadata, 30)

    def commit(self) -> None:
        self._producer.commit_transaction(30)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@contextmanager
def _looks(trial: Trial) -> Iterator[list[tuple[float, dict[Partition, int]]]]:
    """What is committed, looked at again and again while the block lasts: epoch seconds and offsets, oldest first."""
    seen: list[tuple[float, dict[Partition, int]]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            at = time.time()
            seen.append((at, trial.committed()))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            over.set()
        looking.result()


def _fell(target: int, committed: Sequence[int]) -> bool:
    """Whether the target, or what leads on from it, was committed, and something before it later."""
    return any(before >= target > after for before, after in pairwise(committed))


def _produce(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(partitions):
        for record in range(records):
            producer.produce(topic, str(record), partition=number)
    assert producer.flush(30) == 0


def _first_offsets(trial: Trial, since: float) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for d in trial.fleet.records(since):
        found.setdefault((d.topic, d.partition), d.offset)
    return found


def _longest_gap(trial: Trial, since: float) -> float:
    """The longest time from one record of a partition to the next, seconds."""
    longest = 0.0
    for partition in trial.partitions:
        times = [d.t for d in trial.fleet.records(since) if (d.topic, d.partition) == partition]
        longest = max([longest, *(b - a for a, b in pairwise(times))])
    return longest
