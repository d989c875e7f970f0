"""What a run skips is copied to the dead-letter topic exactly once, wherever its writer dies and Kafka is away; and
nothing is skipped that can't be copied. On the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeKafka, FakeProducer
from support.killed import Killed
from support.simulated_groups import (
    AWAY_S,
    GO_OFTEN,
    GROUP,
    KINDS,
    TOPIC,
    Kind,
    Outage,
    Process,
    World,
    places_to_die,
)
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Keeping, Record, TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.dead_letters import MOST_BYTES
from tidegate.reset.model.result import RunResult
from tidegate.resources.reset import ResetPhase, Way

LETTERS = "orders.DLT"
STUCK = TopicPartition(TOPIC, 1)
SOME = [k for k in KINDS if k.name in ("eager", "cooperative", "consumer", "managed-eager")]
MANAGED = next(kind for kind in SOME if kind.way is Way.GATED)
STRATEGIES = [
    pytest.param(kind, marks=() if kind.name in ("eager", "managed-eager") else pytest.mark.nightly) for kind in SOME
]


def at_a_record(kind: Kind, folder: Path, *, skips: int = 1, partitions: int = 4, letters: str = LETTERS) -> World:
    """A group whose owners don't get past what is committed, and a run that skips the record there."""
    world = World(kind, folder)
    world.kafka.create_topic(LETTERS, partitions)
    stop(world)
    world.clock.sleep(1.0)
    world.targets = {STUCK: world.kafka.committed(GROUP)[STUCK] + skips}
    world.create(dead_letter=letters)
    return world


def stop(world: World) -> None:
    """Nobody gets past what is committed."""
    stands = world.kafka.committed(GROUP)[STUCK]
    for consumer in world.consumers:
        consumer.records_per_poll = 0
        if STUCK in consumer.positions:
            consumer._positions[STUCK] = stands


def copies(kafka: FakeKafka) -> list[tuple[int, Record]]:
    return [
        (number, log.whole[at])
        for number, log in enumerate(kafka._topics[LETTERS].logs)
        for at in sorted(log.records)
        if at not in log.aborted
    ]


def told(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def check_copied_once(world: World, died: str = "") -> None:
    [(number, record)] = copies(world.kafka)
    assert number == STUCK.partition, died
    assert told(record) == {
        "__tidegate.errors.topic": TOPIC,
        "__tidegate.errors.partition": "1",
        "__tidegate.errors.offset": str(world.targets[STUCK] - 1),
        "__tidegate.errors.group": GROUP,
        "__tidegate.errors.reset": "1",
        "__tidegate.errors.run": "uid/1",
    }, died
    assert world.kafka.committed(GROUP)[STUCK] == world.targets[STUCK], died


@pytest.mark.parametrize("kind", [*SOME, GO_OFTEN], ids=lambda k: k.name)
def test_every_strategy_copies_in_the_transaction_that_skips(kind: Kind, tmp_path: Path) -> None:
    world = at_a_record(kind, tmp_path)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    check_copied_once(world)
    assert "; 1 record(s) were copied to dead-letter topic orders.DLT" in result.message


def near(calls: list[str], every: bool) -> list[int]:
    """Where to die, or to be away: around transactions; ``every``: anywhere."""
    return [n for n in places_to_die(calls) if every or "transaction" in calls[n - 1] or calls[n - 1].endswith("fence")]


EVERY = [False, pytest.param(True, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("every", EVERY, ids=["near", "every"])
@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda k: k.name)
def test_a_writer_may_die_at_any_step(kind: Kind, every: bool, tmp_path: Path) -> None:
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    assert "kafka.writer.transaction.copy" in whole.calls
    for step in near(whole.calls, every):
        for after in (False, True):
            died = f"died {'after' if after else 'before'} call {step} ({whole.calls[step - 1]})"
            world = at_a_record(kind, tmp_path / f"{step}-{after}")
            with pytest.raises(Killed):
                world.execute(Process(step, after))
            world.clock.sleep(2.0)
            result = world.execute()
            assert result is not None, died
            assert result.phase is ResetPhase.SUCCEEDED, (died, result)
            check_copied_once(world, died)
            assert "copied to dead-letter topic" in result.message, died


@pytest.mark.parametrize("every", EVERY, ids=["near", "every"])
@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda k: k.name)
def test_kafka_may_be_away_at_any_step(kind: Kind, every: bool, tmp_path: Path) -> None:
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    calls = [c for c in whole.calls if c.startswith("kafka") and c != "kafka.writer"]
    calls = [c for c in calls if not c.endswith(("close", "exit"))]
    for step in near(calls, every):
        for after in (False, True):
            where = f"away {'after' if after else 'before'} call {step} ({calls[step - 1]})"
            world = at_a_record(kind, tmp_path / f"{step}-{after}")
            result = world.execute(Outage(world.clock, step, AWAY_S, after=after))
            assert result is not None, where
            assert result.phase is ResetPhase.SUCCEEDED, (where, result)
            check_copied_once(world, where)


@pytest.mark.parametrize("kind", [*SOME, GO_OFTEN], ids=lambda k: k.name)
def test_a_commit_whose_outcome_no_coordinator_tells_is_copied_once(kind: Kind, tmp_path: Path) -> None:
    world = at_a_record(kind, tmp_path)
    world.kafka.tells_no_outcome = True

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert not world.kafka.tells_no_outcome
    check_copied_once(world)


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda k: k.name)
def test_where_the_writer_dies_as_well_a_copy_may_be_there_twice_and_is_never_lost(kind: Kind, tmp_path: Path) -> None:
    """The limit of ADR 62: the whole cluster is restarted just as it commits, and then the writer dies."""
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    world = at_a_record(kind, tmp_path / "run")
    world.kafka.tells_no_outcome = True
    with pytest.raises(Killed):
        world.execute(Process(whole.calls.index("kafka.writer.transaction.commit") + 1, after=True))
    world.clock.sleep(2.0)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert not world.kafka.tells_no_outcome
    found = copies(world.kafka)
    assert 1 <= len(found) <= 2
    assert len({record.headers for _, record in found}) == 1
    assert world.kafka.committed(GROUP)[STUCK] == world.targets[STUCK]
    assert not any(hanging.copies for left in world.kafka._hanging.values() for hanging in left)


def test_what_is_in_the_record_is_copied_unchanged(tmp_path: Path) -> None:
    world = World(MANAGED, tmp_path)
    world.kafka.create_topic(LETTERS, 1)
    stands = world.kafka.committed(GROUP)[STUCK]
    stop(world)
    log = world.kafka._topics[TOPIC].logs[STUCK.partition]
    headers = (("trace", b"\x00\xff"), ("trace", None), ("__tidegate.errors.topic", b"elsewhere"))
    log.whole[stands] = Record(stands, log.records[stands], b"key", None, headers)
    world.targets = {STUCK: stands + 1}
    world.create(dead_letter=LETTERS)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    [(number, record)] = copies(world.kafka)
    assert number == 0
    assert (record.key, record.value, record.at_ms) == (b"key", None, log.records[stands])
    assert record.headers[:3] == headers
    assert len(record.headers) == 9


def test_a_few_records_are_copied_in_their_order(tmp_path: Path) -> None:
    world = at_a_record(MANAGED, tmp_path, skips=3, partitions=1)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    ends = world.targets[STUCK]
    offsets = [told(record)["__tidegate.errors.offset"] for _, record in copies(world.kafka)]
    assert offsets == [str(at) for at in range(ends - 3, ends)]


def _aborted(world: World) -> None:
    world.kafka._topics[TOPIC].logs[STUCK.partition].aborted.add(world.targets[STUCK] - 1)


def _open(world: World) -> None:
    world.kafka._topics[TOPIC].logs[STUCK.partition].open_from = world.targets[STUCK] - 1


def _compacted(world: World) -> None:
    del world.kafka._topics[TOPIC].logs[STUCK.partition].records[world.targets[STUCK] - 1]


def _retained_no_more(world: World) -> None:
    world.kafka._topics[TOPIC].logs[STUCK.partition].start = world.targets[STUCK]


def _too_large(world: World) -> None:
    log, at = world.kafka._topics[TOPIC].logs[STUCK.partition], world.targets[STUCK] - 1
    log.whole[at] = Record(at, 0, None, bytes(MOST_BYTES + 1))


def _without_right(world: World) -> None:
    world.kafka.lacks = frozenset(on_topics("Write", [LETTERS]))


def _without_topic(world: World) -> None:
    world.kafka.delete_topic(LETTERS)


def _older_than_kept(world: World) -> None:
    world.kafka.kept_for[LETTERS] = Keeping(retention_ms=1000)
    world.clock.sleep(2.0)


def _compacted_letters(world: World) -> None:
    world.kafka.kept_for[LETTERS] = Keeping(is_compacted=True)


def _refused(world: World) -> None:
    world.kafka.fail("copy", Refused("MessageSizeTooLargeError"))


CANNOT: dict[str, tuple[Callable[[World], None], str, str]] = {
    "aborted": (_aborted, "NotCopied", "belongs to a transaction that was aborted"),
    "open": (_open, "NotCopied", "belongs to a transaction that is still open"),
    "compacted": (_compacted, "NotCopied", "there is no record from orders-1@"),
    "retention": (_retained_no_more, "NotCopied", "has been deleted up to offset"),
    "large": (_too_large, "NotCopied", "more than 4,194,304 bytes"),
    "right": (_without_right, "NotAuthorized", "Write on topic orders.DLT"),
    "topic": (_without_topic, "NotCopied", "there is no such topic"),
    "old": (_older_than_kept, "NotCopied", "is older than the retention of topic orders.DLT (retention.ms is 1000)"),
    "letters compacted": (_compacted_letters, "NotCopied", "is compacted"),
    "refused": (_refused, "NotCopied", "MessageSizeTooLargeError"),
}


@pytest.mark.parametrize("kind", [*STRATEGIES, GO_OFTEN], ids=lambda k: k.name)
@pytest.mark.parametrize("what", CANNOT)
def test_what_cannot_be_copied_is_not_skipped(what: str, kind: Kind, tmp_path: Path) -> None:
    spoil, reason, said = CANNOT[what]
    world = at_a_record(kind, tmp_path)
    before = world.kafka.committed(GROUP)
    planned = replace(world.store.load().request, manual_approval=True)
    world.store = type(world.store)(tmp_path / "approved", "run", clock=world.clock)
    world.store.create(planned)
    assert world.execute() is None  # the plan is made, and waits
    spoil(world)
    world.store.approve()

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, reason), result
    assert said in result.message
    assert result.message.endswith("Nothing was changed")
    assert world.kafka.committed(GROUP) == before
    if what != "topic":
        assert not copies(world.kafka)


@pytest.mark.parametrize(
    "kept", [Keeping(retention_ms=3_600_000), Keeping(retention_ms=1000, by_append_time=True), Keeping()]
)
def test_a_topic_that_keeps_the_copy_is_copied_to(kept: Keeping, tmp_path: Path) -> None:
    world = at_a_record(MANAGED, tmp_path)
    world.kafka.kept_for[LETTERS] = kept
    world.clock.sleep(2.0)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    check_copied_once(world)


def test_a_broker_that_does_not_tell_settings_is_copied_to(tmp_path: Path) -> None:
    world = at_a_record(MANAGED, tmp_path)
    world.kafka.fail("keeping", Refused("InvalidRequestError"))

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    check_copied_once(world)


@dataclass
class Meanwhile(Process):
    """A writer during whose ``at``-th call, just before it, something else is done."""

    at: int = 0
    do: Callable[[], object] = lambda: None

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if len(self.calls) + 1 == self.at:
            self.do()
        return super().call(name, do)


def _goes_back(world: World) -> None:
    world.kafka.commit_directly(GROUP, {STUCK: world.targets[STUCK] - 2})


def _is_forgotten(world: World) -> None:
    del world.kafka._groups[GROUP].committed[STUCK]


@pytest.mark.parametrize("kind", [*STRATEGIES, GO_OFTEN], ids=lambda k: k.name)
@pytest.mark.parametrize("what", [_goes_back, _is_forgotten])
def test_no_more_is_skipped_than_was_read(what: Callable[[World], None], kind: Kind, tmp_path: Path) -> None:
    """The group goes back between the look at its records and the transaction."""
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    world = at_a_record(kind, tmp_path / "run")

    result = world.execute(Meanwhile(at=whole.calls.index("kafka.writer.transaction") + 1, do=lambda: what(world)))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied"), result
    assert "has gone back" in result.message
    assert world.kafka.committed(GROUP).get(STUCK) != world.targets[STUCK]
    assert not copies(world.kafka)


def test_a_record_that_is_deleted_as_others_are_read_is_not_skipped_without_a_copy(tmp_path: Path) -> None:
    whole = Process()
    at_a_record(MANAGED, tmp_path / "whole", skips=3).execute(whole)
    world = at_a_record(MANAGED, tmp_path / "run", skips=3)
    log = world.kafka._topics[TOPIC].logs[STUCK.partition]

    def delete() -> None:
        log.start = world.targets[STUCK] - 1
        for offset in [at for at in log.records if at < log.start]:
            del log.records[offset]

    result = world.execute(Meanwhile(at=whole.calls.index("kafka.records") + 1, do=delete))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied"), result
    assert "has been deleted up to offset" in result.message
    assert not copies(world.kafka)


@pytest.mark.parametrize("kind", [*STRATEGIES, GO_OFTEN], ids=lambda k: k.name)
@pytest.mark.parametrize("when", ["kafka.", "kafka.writer.transaction"])
def test_a_group_that_has_got_past_the_record_by_itself_does_not_go_back(when: str, kind: Kind, tmp_path: Path) -> None:
    """After its plan was made, at first or as its owners have let go."""
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    world = at_a_record(kind, tmp_path / "run")
    past = world.targets[STUCK] + 2
    at = next(number for number, name in enumerate(whole.calls, 1) if name.startswith(when))

    result = world.execute(Meanwhile(at=at, do=lambda: world.kafka.commit_directly(GROUP, {STUCK: past})))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated"), result
    assert "has passed the target of orders-1" in result.message
    assert world.kafka.committed(GROUP)[STUCK] == past
    assert not copies(world.kafka)


def test_records_of_a_topic_that_was_created_again_are_not_copied_for_the_old_ones(tmp_path: Path) -> None:
    whole = Process()
    at_a_record(MANAGED, tmp_path / "whole").execute(whole)
    world = at_a_record(MANAGED, tmp_path / "run")

    def create_again() -> None:
        log = world.kafka._topics[TOPIC].logs
        world.kafka.delete_topic(TOPIC)
        world.kafka.create_topic(TOPIC, len(log))
        world.kafka._topics[TOPIC].logs[:] = log
        world.kafka.commit_directly(GROUP, {STUCK: world.targets[STUCK] - 1})

    result = world.execute(Meanwhile(at=whole.calls.index("kafka.lacking"), do=create_again))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied"), result
    assert "topic orders was deleted or created again since the plan was made" in result.message
    assert not copies(world.kafka)


def plan_refusal(folder: Path, **asked: object) -> RunResult:
    world = at_a_record(MANAGED, folder, **asked)  # type: ignore[arg-type]
    calls = len(world.kafka.calls)
    result = world.execute()
    assert result is not None
    assert not {"hold", "fence", "send", "copy"} & set(world.kafka.calls[calls:])
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied")
    return result


def test_a_plan_that_skips_too_many_is_refused(tmp_path: Path) -> None:
    assert "11 offsets would be skipped, but at most 10 are copied" in plan_refusal(tmp_path, skips=11).message


def test_a_plan_without_the_topic_is_refused(tmp_path: Path) -> None:
    assert "topic nowhere does not exist" in plan_refusal(tmp_path, letters="nowhere").message


def test_a_plan_for_the_topic_itself_is_refused(tmp_path: Path) -> None:
    assert "topic orders is the one that is reset" in plan_refusal(tmp_path, letters=TOPIC).message


def test_a_plan_that_skips_nothing_is_refused(tmp_path: Path) -> None:
    assert "nothing is skipped in orders-1" in plan_refusal(tmp_path, skips=-1).message


def test_the_plan_says_where_copies_go(tmp_path: Path) -> None:
    world = at_a_record(MANAGED, tmp_path)
    world.execute()
    plan = world.store.load().plan
    assert plan is not None
    assert [note for note in plan.notes if "are copied to dead-letter topic orders.DLT first" in note]


def test_a_run_that_is_put_back_says_that_its_copies_stay(tmp_path: Path) -> None:
    world = at_a_record(MANAGED, tmp_path)

    def overwrite() -> None:
        for consumer in world.consumers:
            world.kafka.commit_directly(GROUP, {STUCK: world.targets[STUCK] - 1})
            del consumer
        world.clock.after(0.2, overwrite)

    world.clock.after(0.5, overwrite)
    result = world.execute()
    assert result is not None
    if result.phase is ResetPhase.SUCCEEDED:
        pytest.skip("it held")
    assert "and the copies stay there" in result.message
    assert len(copies(world.kafka)) == 1


def test_a_successor_beside_a_members_transaction_does_not_skip_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That looks as if the dead writer's were hanging. Its marker tells that it was not committed, so its copies do not
    count; and the record is gone meanwhile."""
    whole = Process()
    at_a_record(MANAGED, tmp_path / "whole").execute(whole)
    world = at_a_record(MANAGED, tmp_path / "run")
    with pytest.raises(Killed):
        world.execute(Process(whole.calls.index("kafka.writer.transaction.commit") + 1))
    member = FakeProducer(world.kafka, timeout_s=600.0)
    assert member.send_offsets(GROUP, {STUCK: world.targets[STUCK] - 1}, None)
    _compacted(world)
    world.clock.after(60.0, lambda: member.end(commit=False))
    looked_the_same: list[bool] = []
    hangs = RunCommits.hangs

    def told(*args: Any) -> bool:
        looked_the_same.append(hangs(*args))
        return looked_the_same[-1]

    monkeypatch.setattr(RunCommits, "hangs", told)

    result = world.execute()

    assert looked_the_same == [True]
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied"), result
    assert "there is no record from orders-1@" in result.message
    assert result.message.endswith("Nothing was changed")
    assert not copies(world.kafka)
    assert world.kafka.committed(GROUP)[STUCK] == world.targets[STUCK] - 1


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda k: k.name)
def test_a_successor_beside_a_members_transaction_does_not_copy_again(kind: Kind, tmp_path: Path) -> None:
    """What the dead writer has left undecided looks the same; but its marker tells that it was committed."""
    whole = Process()
    at_a_record(kind, tmp_path / "whole").execute(whole)
    world = at_a_record(kind, tmp_path / "run")
    with pytest.raises(Killed):
        world.execute(Process(whole.calls.index("kafka.writer.transaction.commit") + 1, after=True))
    world.clock.sleep(1.0)
    member = FakeProducer(world.kafka, timeout_s=600.0)
    assert member.send_offsets(GROUP, {STUCK: world.targets[STUCK] - 1}, None)
    world.clock.after(12.0, lambda: member.end(commit=False))

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    check_copied_once(world)
