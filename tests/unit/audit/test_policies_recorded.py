"""What discovery and retention change is recorded: in the same transaction, or before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_kafka import FakeKafka
from tidegate.audit.records import Action, Actor, Attribution, AuditTopic, Moved, State
from tidegate.discovery.backfill import Asker, Backfills
from tidegate.discovery.starts import Outcome, give_starts
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import GroupNotEmpty, KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_retention import Commit
from tidegate.policy.recording import attribution_of
from tidegate.resources.reset import ResetPhase
from tidegate.retention.recording import commit_recorded

LOG, GROUP = "__tidegate_audit", "payments"
BY = Actor("OffsetResetPolicy", "p", "ns")
NEW, OTHER = TopicPartition("orders", 1), TopicPartition("orders", 0)
NOT_ALLOWED = NotAuthorized("not allowed")


def attribution(action: Action, *, required: bool = False) -> Attribution:
    made = attribution_of("ns/p", AuditTopic(LOG, required=required), action)
    assert made is not None
    return made


@pytest.fixture
def kafka() -> FakeKafka:
    made = FakeKafka()
    made.create_topic("orders", 2)
    made.fill("orders", 50)
    made.audit.topics.add(LOG)
    return made


def test_a_policy_without_an_audit_topic_is_attributed_nothing() -> None:
    assert attribution_of("ns/p", None, Action.START) is None


def test_a_start_is_recorded_with_its_commit(kafka: FakeKafka) -> None:
    starts = give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START))
    assert starts[NEW].outcome is Outcome.GIVEN
    [change] = kafka.audit.changes(LOG)
    assert (change.action, change.state, change.group, change.by) == (Action.START, State.COMMITTED, GROUP, BY)
    assert change.offsets == {NEW: Moved(None, 0)}
    give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START))
    assert len(kafka.audit.changes(LOG)) == 1  # nothing was changed


def test_a_start_is_given_without_a_record_unless_one_is_required(kafka: FakeKafka) -> None:
    kafka.audit.refuses[LOG] = NOT_ALLOWED
    with pytest.raises(NotAuthorized):
        give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START, required=True))
    assert kafka.committed(GROUP) == {}
    give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START))
    assert kafka.committed(GROUP) == {NEW: 0}


def test_a_start_whose_outcome_no_coordinator_tells_leaves_no_record_behind(kafka: FakeKafka) -> None:
    kafka.tells_no_outcome = True
    with pytest.raises(Unavailable, match="still pending"):
        give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START))
    give_starts(kafka, kafka.clock, GROUP, [NEW], attribution=attribution(Action.START))
    assert kafka.committed(GROUP) == {NEW: 0}
    assert not kafka.undecided_records
    assert len(kafka.audit.changes(LOG)) == 1


def test_an_owner_that_is_sent_back_is_recorded(kafka: FakeKafka) -> None:
    kafka.commit_directly(GROUP, {NEW: 30, OTHER: 5})
    asker = Asker("uid", "ns/p", "connection", attribution(Action.BACKFILL))
    result = Backfills().carry_out(kafka, kafka.clock, Connection("nowhere:9092"), asker, GROUP, [NEW])
    assert result.phase is ResetPhase.SUCCEEDED
    [change] = kafka.audit.changes(LOG)
    assert (change.action, change.by, change.offsets) == (Action.BACKFILL, BY, {NEW: Moved(30, 0)})
    assert change.way == "Unowned"


def test_an_owner_that_is_sent_back_without_a_record_is_in_the_log_of_the_process(
    kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody shows the message of a backfill that went well."""
    kafka.commit_directly(GROUP, {NEW: 30, OTHER: 5})
    kafka.audit.refuses[LOG] = NOT_ALLOWED
    asker = Asker("uid", "ns/p", "connection", attribution(Action.BACKFILL))
    result = Backfills().carry_out(kafka, kafka.clock, Connection("nowhere:9092"), asker, GROUP, [NEW])
    assert result.phase is ResetPhase.SUCCEEDED
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"group {GROUP}" in warning
    assert "was not recorded in the audit log" in warning
    assert "not allowed" in warning


RESTORED = {NEW: Commit(7, "m"), OTHER: Commit(3)}


def test_what_is_restored_is_told_before_and_after(kafka: FakeKafka) -> None:
    seen: list[State] = []

    def commit() -> frozenset[TopicPartition]:
        kafka.clock.sleep(1)
        seen.extend(change.state for change in kafka.audit.changes(LOG))
        return frozenset({NEW})  # the other one was committed by somebody else in that moment

    assert commit_recorded(kafka, GROUP, RESTORED, commit, attribution(Action.RESTORE)) == {NEW}
    kafka.clock.sleep(1)
    intended, done = kafka.audit.changes(LOG)
    assert seen == [State.INTENDED]
    assert intended.offsets == {NEW: Moved(None, 7), OTHER: Moved(None, 3)}
    assert done == replace(intended, state=State.DONE, offsets={NEW: Moved(None, 7)})


def test_what_failed_is_left_as_intended(kafka: FakeKafka) -> None:
    def commit() -> frozenset[TopicPartition]:
        raise GroupNotEmpty("somebody has joined")

    with pytest.raises(GroupNotEmpty):
        commit_recorded(kafka, GROUP, RESTORED, commit, attribution(Action.RESTORE))
    kafka.clock.sleep(1)
    assert [change.state for change in kafka.audit.changes(LOG)] == [State.INTENDED]


@pytest.mark.parametrize("required", [False, True])
def test_what_cannot_be_recorded_is_restored_unless_that_is_required(required: bool, kafka: FakeKafka) -> None:
    kafka.audit.refuses[LOG] = NOT_ALLOWED
    done: list[str] = []

    def commit() -> frozenset[TopicPartition]:
        done.append("committed")
        return frozenset(RESTORED)

    failure: KafkaFailure | None = None
    try:
        commit_recorded(kafka, GROUP, RESTORED, commit, attribution(Action.RESTORE, required=required))
    except KafkaFailure as error:
        failure = error
    assert (failure, done) == ((NOT_ALLOWED, []) if required else (None, ["committed"]))


def test_without_an_attribution_nothing_is_written(kafka: FakeKafka) -> None:
    commit_recorded(kafka, GROUP, RESTORED, lambda: frozenset(RESTORED), None)
    assert "append" not in kafka.calls
