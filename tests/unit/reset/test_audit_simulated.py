"""What a run changes and what the audit log says of it are the same, wherever a writer dies and Kafka is away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeTransaction
from support.killed import Killed
from support.simulated_groups import GROUP, KINDS, RESET, Kind, Mortal, Outage, Process, World, places_to_die
from tidegate.audit.codec import decode_change, encode_change
from tidegate.audit.records import Action, Actor, Attribution, AuditTopic, Change, Moved, State
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.binding import digest_of
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.model.request import Until
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.resources.replay import Then
from tidegate.resources.reset import ResetPhase, Way

TOPIC = "__tidegate_audit"
BY = Actor("OffsetReset", "replay", "team")
ATTRIBUTION = Attribution(AuditTopic(TOPIC), BY, requester="ann", approver="bob", approved="f00d")
REQUIRED = replace(ATTRIBUTION, topic=AuditTopic(TOPIC, required=True))
SOME = [k for k in KINDS if k.name in ("eager", "cooperative", "consumer", "managed-eager")]


@dataclass
class Recorded:
    """A world whose runs are recorded, and all that Tidegate's transactions have changed in it."""

    world: World
    attribution: Attribution = ATTRIBUTION
    committed: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = field(default_factory=list)
    """Before and after, of each transaction that took effect."""

    def __post_init__(self) -> None:
        self.kafka = self.world.kafka
        self.kafka.audit.topics.add(TOPIC)
        take_effect = self.kafka._materialise

        def noted(transaction: Any) -> None:
            before = self.kafka.committed(GROUP)
            take_effect(transaction)
            if transaction.transactional_id.startswith("tidegate.") and GROUP in transaction.offsets:
                sent = {p: commit.offset for p, commit in transaction.offsets[GROUP].items()}
                self.committed.append(({p: before[p] for p in sent if p in before}, sent))

        self.kafka._materialise = noted  # type: ignore[method-assign]

    def execute(self, process: Process | Outage | None = None) -> RunResult | None:
        process = process or Process()
        self.world.processes.append(process)
        kafka: Any = Mortal(self.kafka, process, "kafka")
        store: Any = ConfinedRunStore(Mortal(self.world.store, process, "store"), None, attribution=self.attribution)  # type: ignore[arg-type]
        return job.execute(store, kafka, self.world.clock)

    def settle(self) -> RunResult:
        store = ConfinedRunStore(self.world.store, None, attribution=self.attribution)
        return job.settle(store, self.kafka, self.world.clock, reason="Deleted", message="it was deleted")

    @property
    def changes(self) -> list[Change]:
        return self.kafka.audit.changes(TOPIC)

    def check(self, died: str = "") -> None:
        """Nothing is missing from the log, and nothing in it did not happen."""
        said = [{p: m.after for p, m in c.offsets.items()} for c in self.changes if c.state is State.COMMITTED]
        assert said == [after for _, after in self.committed], died
        keys = [key for key, _ in self.kafka.audit.values[TOPIC]]
        assert len(set(keys)) == len(keys), died


def recorded(kind: Kind, folder: Path, attribution: Attribution = ATTRIBUTION, **settings: Any) -> Recorded:
    world = World(kind, folder)
    world.create(**settings)
    return Recorded(world, attribution)


@pytest.mark.parametrize("then", list(Then))
def test_a_replay_that_has_ended_was_no_rollback(then: Then, tmp_path: Path) -> None:
    [managed] = [kind for kind in SOME if kind.way is Way.GATED]
    replay = recorded(managed, tmp_path, until=Until(then, timedelta(hours=1), records=20))
    assert replay.execute() is None
    replay.world.clock.sleep(30)
    result = replay.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    replay.check()
    assert [change.action for change in replay.changes] == [Action.RESET, Action.RESET]


@pytest.mark.parametrize("kind", SOME, ids=lambda k: k.name)
def test_a_reset_is_recorded_as_it_was_committed(kind: Kind, tmp_path: Path) -> None:
    reset = recorded(kind, tmp_path)
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert "record" not in result.message
    reset.check()
    first = reset.changes[0]
    run = reset.world.store.load()
    assert replace(first, offsets={}) == Change(
        id="uid/1#1.1",
        action=Action.RESET,
        state=State.COMMITTED,
        group=GROUP,
        by=BY,
        offsets={},
        run="uid/1",
        round=1,
        way=kind.way.value,
        plan=digest_of(run),
        requester="ann",
        approver="bob",
        approved="f00d",
    )
    assert {p: m.after for p, m in first.offsets.items()} == reset.world.targets
    if kind.way in (Way.GATED, Way.BARRIER):
        # Owners stood still, so what was read just before is what was there.
        for change, (before, _) in zip(reset.changes, reset.committed, strict=True):
            assert {p: m.before for p, m in change.offsets.items()} == before


@pytest.mark.parametrize("kind", SOME, ids=lambda k: k.name)
def test_a_writer_may_die_at_any_step_of_a_transaction(kind: Kind, tmp_path: Path) -> None:
    whole = Process()
    recorded(kind, tmp_path / "whole").execute(whole)
    near = {n for n, name in enumerate(whole.calls, 1) if "transaction" in name or name.endswith("fence")}
    for step in (n for n in places_to_die(whole.calls) if n in near):
        for after in (False, True):
            died = f"died {'after' if after else 'before'} call {step} ({whole.calls[step - 1]})"
            reset = recorded(kind, tmp_path / f"{step}-{after}")
            with pytest.raises(Killed):
                reset.execute(Process(step, after))
            reset.world.clock.sleep(2.0)
            result = reset.execute()
            assert result is not None, died
            assert result.phase is ResetPhase.SUCCEEDED, died
            reset.check(died)


@pytest.mark.parametrize("after", [False, True])
def test_kafka_may_be_away_as_a_transaction_is_committed(after: bool, tmp_path: Path) -> None:
    reset = recorded(SOME[0], tmp_path)
    away = Outage(reset.world.clock, 0, 20.0, after, when=lambda name: name.endswith("transaction.commit"))
    result = reset.execute(away)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    reset.check()


def test_a_commit_whose_answer_is_lost_is_in_the_log_if_it_was_made(tmp_path: Path) -> None:
    for made in (False, True):
        reset = recorded(SOME[0], tmp_path / str(made))
        reset.kafka.lose_commit_answer(committed=made)
        result = reset.execute()
        assert result is not None
        assert result.phase is ResetPhase.SUCCEEDED
        reset.check()


def test_what_is_put_back_is_recorded_as_well(tmp_path: Path) -> None:
    whole = Process()
    recorded(SOME[0], tmp_path / "whole").execute(whole)
    committed = max(n for n, name in enumerate(whole.calls, 1) if name.endswith("transaction.commit"))
    reset = recorded(SOME[0], tmp_path / "run")
    with pytest.raises(Killed):
        reset.execute(Process(committed, after=True))
    assert reset.settle().phase is ResetPhase.ROLLED_BACK
    reset.check()
    assert [c.action for c in reset.changes][:1] == [Action.RESET]
    last = reset.changes[-1]
    assert (last.action, last.id.startswith("uid/1#2.")) == (Action.ROLLBACK, True)
    assert {m.after for m in last.offsets.values()} <= {m.before for m in reset.changes[0].offsets.values()}


def test_a_log_that_is_wanted_only_is_waited_for_less_long_than_one_that_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners may stand still meanwhile."""
    append, waits = FakeTransaction.append, dict[bool, set[float | None]]()

    def noted(self: FakeTransaction, topic: str, records: Any, *, timeout_s: float | None = None) -> None:
        waits.setdefault(required, set()).add(timeout_s)
        append(self, topic, records, timeout_s=timeout_s)

    monkeypatch.setattr(FakeTransaction, "append", noted)
    for required, attribution in ((False, ATTRIBUTION), (True, REQUIRED)):
        recorded(SOME[0], tmp_path / str(required), attribution).execute()

    [wanted_s], [required_s] = waits[False], waits[True]
    assert wanted_s is not None
    assert required_s is not None
    assert wanted_s < required_s < Tuning().transaction_s


@pytest.mark.parametrize("failure", [NotAuthorized("not allowed"), Unavailable("away")], ids=lambda f: type(f).__name__)
def test_a_log_that_is_wanted_only_is_gone_without_and_the_result_says_so(
    failure: KafkaFailure, tmp_path: Path
) -> None:
    reset = recorded(SOME[0], tmp_path)
    reset.kafka.audit.refuses[TOPIC] = failure
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert f"{len(reset.committed)} commit(s) of this run were not recorded in audit topic {TOPIC}" in result.message
    assert str(failure) in result.message
    assert not reset.changes


def test_a_log_that_fails_at_the_last_moment_is_gone_without(tmp_path: Path) -> None:
    """When the topic was checked it could be written."""
    reset = recorded(SOME[0], tmp_path)
    check = reset.kafka.audit.check_writable

    def then_fail(name: str) -> None:
        check(name)
        reset.kafka.audit.refuses[TOPIC] = Unavailable("away")

    reset.kafka.audit.check_writable = then_fail  # type: ignore[method-assign]
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert "were not recorded in audit topic" in result.message
    assert reset.committed
    assert not reset.changes


@pytest.mark.parametrize("late", [False, True])
def test_where_a_record_is_required_nothing_is_changed_without(late: bool, tmp_path: Path) -> None:
    reset = recorded(SOME[0], tmp_path, REQUIRED)
    check, before = reset.kafka.audit.check_writable, reset.kafka.committed(GROUP)

    def then_fail(name: str) -> None:
        if late:
            check(name)
        reset.kafka.audit.refuses[TOPIC] = NotAuthorized("not allowed")
        if not late:
            check(name)

    reset.kafka.audit.check_writable = then_fail  # type: ignore[method-assign]
    result = reset.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotRecorded")
    assert "Nothing was changed" in result.message
    assert not reset.committed
    assert all(offset >= before[p] for p, offset in reset.kafka.committed(GROUP).items())


def test_a_required_log_that_is_away_for_a_while_is_waited_for_before_anybody_stands_still(tmp_path: Path) -> None:
    reset = recorded(SOME[0], tmp_path, REQUIRED)
    reset.kafka.audit.refuses[TOPIC] = Unavailable("away")
    reset.world.clock.after(5.0, reset.kafka.audit.refuses.clear)
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    reset.check()
    assert reset.changes


def test_a_required_log_that_does_not_come_back_is_what_the_run_fails_of(tmp_path: Path) -> None:
    """Not of its deadline; and meanwhile its status says what it waits for."""
    reset = recorded(SOME[0], tmp_path, REQUIRED)
    reset.kafka.audit.refuses[TOPIC] = Unavailable("its leader is away")
    result = reset.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotRecorded"), result.message
    assert "its leader is away. Nothing was changed" in result.message
    waits = [entry.waits_for for entry in reset.world.store.load().journal]
    assert any("its leader is away" in told for told in waits)


def test_a_rollback_is_not_given_up_for_want_of_a_record(tmp_path: Path) -> None:
    whole = Process()
    recorded(SOME[0], tmp_path / "whole", REQUIRED).execute(whole)
    committed = max(n for n, name in enumerate(whole.calls, 1) if name.endswith("transaction.commit"))
    reset = recorded(SOME[0], tmp_path / "run", REQUIRED)
    with pytest.raises(Killed):
        reset.execute(Process(committed, after=True))
    reset.kafka.audit.refuses[TOPIC] = NotAuthorized("not allowed")
    result = reset.settle()
    assert result.phase is ResetPhase.ROLLED_BACK
    assert "were not recorded in audit topic" in result.message


def test_a_run_of_which_nothing_is_left_to_do_is_not_put_back_for_want_of_a_record(tmp_path: Path) -> None:
    """Its writer died as it was about to store the result, and the audit topic went away with it."""
    whole = Process()
    recorded(SOME[0], tmp_path / "whole", REQUIRED).execute(whole)
    finished = max(n for n, name in enumerate(whole.calls, 1) if name.endswith("finish"))
    reset = recorded(SOME[0], tmp_path / "run", REQUIRED)
    with pytest.raises(Killed):
        reset.execute(Process(finished, after=False))
    reset.kafka.audit.refuses[TOPIC] = NotAuthorized("not allowed")
    reset.world.clock.sleep(2.0)
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result.message
    assert "not recorded" not in result.message
    reset.check()


def test_what_another_run_has_left_without_an_outcome_is_dropped_with_its_record(tmp_path: Path) -> None:
    """Or the next record would commit it, and tell of a change that was not made."""
    reset = recorded(SOME[0], tmp_path)
    other = TopicPartition("orders", 3)
    left = Change("left", Action.RESET, State.COMMITTED, GROUP, BY, {other: Moved(None, 1)})
    reset.kafka.tells_no_outcome = True
    with reset.kafka.writer(GROUP, transaction_timeout_s=5).transaction() as transaction:
        transaction.append(TOPIC, encode_change(left))
        transaction.send(GROUP, {other: 1})
        transaction.commit()
    result = reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert not reset.kafka.undecided_records
    reset.check()


@pytest.mark.parametrize("rolling_back", [False, True])
def test_what_hangs_is_decided_also_where_no_record_can_be_written(rolling_back: bool, tmp_path: Path) -> None:
    whole = Process()
    recorded(SOME[0], tmp_path / "whole", REQUIRED).execute(whole)
    committed = max(n for n, name in enumerate(whole.calls, 1) if name.endswith("transaction.commit"))
    reset = recorded(SOME[0], tmp_path / "run", REQUIRED)
    reset.kafka.tells_no_outcome = True
    with pytest.raises(Killed):
        reset.execute(Process(committed, after=True))
    reset.kafka.audit.refuses[TOPIC] = NotAuthorized("not allowed")
    before = reset.kafka.committed(GROUP)
    reset.world.clock.sleep(2.0)
    result = reset.settle() if rolling_back else reset.execute()
    assert result is not None
    assert result.phase is ResetPhase.ROLLED_BACK, result.message
    assert "were not recorded in audit topic" in result.message
    assert all(offset >= before[p] for p, offset in reset.kafka.committed(GROUP).items())


def test_offsets_that_are_forgotten_are_told_before_and_after(tmp_path: Path) -> None:
    """A partition without a commit that is put back; no transaction can carry that."""
    gone = RESET[0]

    def empty(folder: Path) -> Recorded:
        made = recorded(SOME[0], folder)
        for consumer in made.world.consumers:
            consumer.close()
        made.world.clock.sleep(60)
        made.kafka._group(GROUP).committed.pop(gone)
        return made

    whole = Process()
    empty(tmp_path / "whole").execute(whole)
    committed = max(n for n, name in enumerate(whole.calls, 1) if name.endswith("transaction.commit"))
    reset = empty(tmp_path / "run")
    with pytest.raises(Killed):
        reset.execute(Process(committed, after=True))
    assert reset.settle().phase is ResetPhase.ROLLED_BACK
    reset.world.clock.sleep(2)
    assert gone not in reset.kafka.committed(GROUP)
    reset.check()
    meant, done = reset.changes[-2:]
    assert (meant.state, done.state, meant.action) == (State.INTENDED, State.DONE, Action.ROLLBACK)
    assert meant.id == done.id
    assert meant.offsets == done.offsets == {gone: Moved(reset.world.targets[gone], None)}
    assert reset.changes[-3].action is Action.ROLLBACK
    assert gone not in reset.changes[-3].offsets


def test_a_run_of_a_connection_without_an_audit_topic_appends_nothing(tmp_path: Path) -> None:
    world = World(SOME[0], tmp_path)
    world.create()
    world.execute()
    assert "append" not in world.kafka.calls
    assert not world.kafka.audit.values


def test_what_is_in_the_log_can_be_decoded(tmp_path: Path) -> None:
    reset = recorded(SOME[0], tmp_path)
    reset.execute()
    for _, value in reset.kafka.audit.values[TOPIC]:
        assert decode_change(value).of == 1
