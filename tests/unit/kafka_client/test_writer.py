"""A writer's requests: their order, what their answers mean, and that none is waited for beyond its time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace as Row
from typing import Any

import pytest

from support.scripted_wire import PATIENCE_MS, Answer, ByScript, coordinators, each, wire_to
from support.silent_broker import SilentBroker, silent_broker
from tidegate.kafka.capabilities import NEWEST_COMMIT_SENT
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import (
    CommitRefused,
    Fenced,
    KafkaFailure,
    NotAuthorized,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import transaction as transaction_module
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.codes import NOT_TAKEN_FROM_OUTSIDE
from tidegate.kafka_client.wire import Wire
from tidegate.kafka_client.writer import KafkaOffsetWriter

GROUP = "payments"
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = {HERE: 3, THERE: 4}
LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
UNKNOWN_TOPIC, NO_TOPIC_RIGHT, NO_GROUP_RIGHT, NO_ID_RIGHT = 3, 29, 30, 53
INVALID_EPOCH, INVALID_STATE, OTHER_PRODUCER, PRODUCER_FENCED = 47, 48, 49, 90


def initialized(code: int = 0, epoch: int = 3) -> Any:
    return Row(error_code=code, producer_id=7, producer_epoch=epoch)


def said(code: int = 0) -> Any:
    return Row(error_code=code)


def taken(code: int = 0, *rest: int) -> Any:
    rows = [Row(partition_index=number, error_code=code) for number, code in enumerate((code, *rest))]
    return Row(topics=[Row(name="orders", partitions=rows)])


def brokers_that(**answers: Answer) -> ByScript:
    """Coordinators that take everything, but for what is told."""
    usual: dict[str, Answer] = {
        "FindCoordinator": coordinators(1),
        "InitProducerId": each(initialized()),
        "AddOffsetsToTxn": each(said()),
        "TxnOffsetCommit": each(taken()),
        "EndTxn": each(said()),
    }
    return ByScript(**usual | answers)


def writer_to(brokers: ByScript, timeout_s: float = PATIENCE_MS / 1000) -> KafkaOffsetWriter:
    writer = KafkaOffsetWriter(wire_to(brokers), GROUP, transaction_timeout_s=5)
    writer._STEP_TIMEOUT_S = writer._ABORT_TIMEOUT_S = timeout_s  # type: ignore[misc]
    return writer


def committing(writer: KafkaOffsetWriter) -> None:
    with writer.transaction() as transaction:
        transaction.send(GROUP, OFFSETS)
        transaction.commit()


def names(brokers: ByScript) -> list[str]:
    return [name for name, _, _ in brokers.asked if name != "FindCoordinator"]


def requests(brokers: ByScript, name: str) -> list[Any]:
    return [request for asked, _, request in brokers.asked if asked == name]


# --- the requests -----------------------------------------------------------------------------------------------------


def test_a_transaction_is_four_requests() -> None:
    brokers = brokers_that()
    committing(writer_to(brokers))
    assert names(brokers) == ["InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
    [init], [add], [sent], [end] = (requests(brokers, name) for name in names(brokers))
    assert (init.transactional_id, init.transaction_timeout_ms, init.producer_id) == ("tidegate.payments", 5000, -1)
    for request in (add, sent, end):
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("tidegate.payments", 7, 3)
    assert add.group_id == sent.group_id == GROUP
    assert end.committed is True


def test_offsets_are_nobodys() -> None:
    brokers = brokers_that()
    committing(writer_to(brokers))
    [sent] = requests(brokers, "TxnOffsetCommit")
    assert (sent.generation_id, sent.member_id, sent.group_instance_id) == (-1, "", None)
    [topic] = sent.topics
    assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [(0, 3), (1, 4)]


def test_each_request_goes_to_the_coordinator_of_its_own() -> None:
    def found(_: int, request: Any) -> Any:
        node = {0: 2, 1: 0}[request.key_type]
        return Row(coordinators=[Row(key=k, node_id=node, error_code=0) for k in request.coordinator_keys])

    brokers = brokers_that(FindCoordinator=found)
    committing(writer_to(brokers))
    for name, node in [("InitProducerId", 0), ("AddOffsetsToTxn", 0), ("TxnOffsetCommit", 2), ("EndTxn", 0)]:
        assert brokers.nodes_asked(name) == [node], name


def test_a_writer_is_initialised_once_for_all_its_transactions() -> None:
    brokers = brokers_that()
    writer = writer_to(brokers)
    committing(writer)
    committing(writer)
    assert names(brokers).count("InitProducerId") == 1


def test_nothing_is_said_of_a_transaction_without_offsets() -> None:
    brokers = brokers_that()
    with writer_to(brokers).transaction() as transaction:
        transaction.send(GROUP, {})
        transaction.commit()
    assert names(brokers) == ["InitProducerId"]


def test_leaving_without_commit_aborts() -> None:
    brokers = brokers_that()
    with writer_to(brokers).transaction() as transaction:
        transaction.send(GROUP, OFFSETS)
    [end] = requests(brokers, "EndTxn")
    assert end.committed is False


def test_a_group_id_outside_ascii_is_a_group_id() -> None:
    brokers, group_id = brokers_that(), "größe-✓"
    writer = KafkaOffsetWriter(wire_to(brokers), group_id, transaction_timeout_s=5)
    with writer.transaction() as transaction:
        transaction.send(group_id, OFFSETS)
        transaction.commit()
    [sent] = requests(brokers, "TxnOffsetCommit")
    assert (sent.group_id, sent.transactional_id) == (group_id, f"tidegate.{group_id}")


# --- answers that pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT])
@pytest.mark.parametrize(
    ("name", "answer"),
    [("InitProducerId", initialized), ("AddOffsetsToTxn", said), ("TxnOffsetCommit", taken), ("EndTxn", said)],
)
def test_what_passes_is_asked_again(name: str, answer: Callable[[int], Any], code: int) -> None:
    brokers = brokers_that(**{name: each(answer(code), answer(code), answer(0))})
    committing(writer_to(brokers, 5.0))
    assert names(brokers).count(name) == 3


@pytest.mark.parametrize(
    ("name", "answer"),
    [("InitProducerId", initialized), ("AddOffsetsToTxn", said), ("TxnOffsetCommit", taken), ("EndTxn", said)],
)
def test_a_coordinator_that_moves_is_followed(name: str, answer: Callable[[int], Any]) -> None:
    node = {"now": 1}

    def found(_: int, request: Any) -> Any:
        return Row(coordinators=[Row(key=k, node_id=node["now"], error_code=0) for k in request.coordinator_keys])

    def moving(asked: int, _: Any) -> Any:
        if asked == 1:
            node["now"] = 2
            return answer(NOT_COORDINATOR)
        return answer(0)

    brokers = brokers_that(FindCoordinator=found, **{name: moving})
    committing(writer_to(brokers, 5.0))
    assert brokers.nodes_asked(name) == [1, 2]


def test_a_partition_that_the_coordinator_does_not_know_yet_is_asked_for_again() -> None:
    brokers = brokers_that(TxnOffsetCommit=each(taken(0, UNKNOWN_TOPIC), taken(0, 0)))
    committing(writer_to(brokers, 5.0))
    assert names(brokers).count("TxnOffsetCommit") == 2


def test_a_partition_that_stays_unknown_is_not_waited_for_as_long_as_a_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_module, "_NEW_PARTITION_S", 0.05)
    brokers = brokers_that(TxnOffsetCommit=each(taken(0, UNKNOWN_TOPIC)))
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="UnknownTopicOrPartition"):
        committing(writer_to(brokers, 30.0))
    assert time.monotonic() - begun < 10
    assert names(brokers)[-1] == "EndTxn"


@pytest.mark.parametrize("code", [LOADING, CONCURRENT])
@pytest.mark.parametrize(
    ("name", "answer"),
    [("InitProducerId", initialized), ("AddOffsetsToTxn", said), ("TxnOffsetCommit", taken)],
)
def test_what_does_not_pass_in_time_is_unavailable(name: str, answer: Callable[[int], Any], code: int) -> None:
    brokers = brokers_that(**{name: each(answer(code))})
    with pytest.raises(Unavailable):
        committing(writer_to(brokers))


# --- answers that decide ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [INVALID_EPOCH, OTHER_PRODUCER, PRODUCER_FENCED])
@pytest.mark.parametrize(
    ("name", "answer"),
    [("InitProducerId", initialized), ("AddOffsetsToTxn", said), ("TxnOffsetCommit", taken), ("EndTxn", said)],
)
def test_a_newer_writer_fences(name: str, answer: Callable[[int], Any], code: int) -> None:
    brokers = brokers_that(**{name: each(answer(code))})
    with pytest.raises(Fenced):
        committing(writer_to(brokers))
    assert names(brokers)[-1] == name


def test_a_fenced_writer_does_not_fence_back() -> None:
    brokers = brokers_that(AddOffsetsToTxn=each(said(PRODUCER_FENCED)))
    writer = writer_to(brokers)
    for _ in range(2):
        with pytest.raises(Fenced):
            committing(writer)
    assert names(brokers) == ["InitProducerId", "AddOffsetsToTxn", "AddOffsetsToTxn"]


@pytest.mark.parametrize(
    "fencing",
    [{"AddOffsetsToTxn": each(said(PRODUCER_FENCED))}, {"EndTxn": each(said(PRODUCER_FENCED))}],
    ids=["send", "commit"],
)
def test_a_transaction_that_outlived_its_time_out_may_be_nobodys_doing(fencing: dict[str, Answer]) -> None:
    """Its end raises the epoch: who goes on makes sure that it is its turn, and takes over from nobody then."""
    brokers = brokers_that(**fencing)
    writer = writer_to(brokers)
    writer._timeout_s = 0.0
    with pytest.raises(Unavailable, match="after which the brokers end it"):
        committing(writer)
    brokers.answers |= {"AddOffsetsToTxn": each(said()), "EndTxn": each(said())}
    committing(writer)
    assert names(brokers).count("InitProducerId") == 2


def test_a_writer_may_be_fenced_by_the_request_of_an_earlier_fence() -> None:
    """Which got no answer at all; a broker that thaws comes to it after the next one's."""
    silent = True

    def init(number: int, request: Any) -> Any:
        if silent:
            raise OutcomeUnknown("silence")
        return initialized()

    brokers = brokers_that(InitProducerId=init, AddOffsetsToTxn=each(said(PRODUCER_FENCED)))
    writer = writer_to(brokers)
    with pytest.raises(Unavailable):
        writer.fence()
    silent = False
    writer.fence()
    with pytest.raises(Unavailable, match="unanswered"):
        committing(writer)


def test_a_writer_may_be_fenced_by_its_own_late_request() -> None:
    init = each(OutcomeUnknown("silence"), initialized(epoch=4))
    brokers = brokers_that(InitProducerId=init, AddOffsetsToTxn=each(said(PRODUCER_FENCED)))
    writer = writer_to(brokers, 5.0)
    with pytest.raises(Unavailable, match="went unanswered"):
        committing(writer)
    assert names(brokers) == ["InitProducerId", "InitProducerId", "AddOffsetsToTxn"]


@pytest.mark.parametrize("code", sorted(code for code in NOT_TAKEN_FROM_OUTSIDE if code >= 0))
def test_a_coordinator_that_wants_a_member_refuses_the_commit(code: int) -> None:
    brokers = brokers_that(TxnOffsetCommit=each(taken(0, code)))
    with pytest.raises(CommitRefused):
        committing(writer_to(brokers))
    assert [end.committed for end in requests(brokers, "EndTxn")] == [False]


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        ({"FindCoordinator": coordinators(1, code=NO_ID_RIGHT)}, "Write on transactional-id tidegate.payments"),
        ({"InitProducerId": each(initialized(NO_ID_RIGHT))}, "Write on transactional-id tidegate.payments"),
        ({"AddOffsetsToTxn": each(said(NO_GROUP_RIGHT))}, "Read on group payments"),
        ({"TxnOffsetCommit": each(taken(NO_GROUP_RIGHT))}, "Read on group payments"),
        ({"TxnOffsetCommit": each(taken(0, NO_TOPIC_RIGHT))}, "Read on topic orders"),
        ({"EndTxn": each(said(NO_ID_RIGHT))}, "Write on transactional-id tidegate.payments"),
    ],
)
def test_a_right_that_is_missing_is_named(answers: dict[str, Answer], right: str) -> None:
    with pytest.raises(NotAuthorized, match=f"allow the principal {right} "):
        committing(writer_to(brokers_that(**answers)))


def test_a_time_out_that_brokers_do_not_allow_is_refused() -> None:
    with pytest.raises(Refused, match="InvalidTransactionTimeout"):
        committing(writer_to(brokers_that(InitProducerId=each(initialized(50)))))


def test_offsets_that_did_not_all_go_out_are_not_committed() -> None:
    brokers = brokers_that(TxnOffsetCommit=each(taken(0, 12)))
    with writer_to(brokers).transaction() as transaction:
        with pytest.raises(Refused):
            transaction.send(GROUP, OFFSETS)
        with pytest.raises(Refused, match="not after a failure"):
            transaction.commit()
    assert [end.committed for end in requests(brokers, "EndTxn")] == [False]


# --- answers that do not come -----------------------------------------------------------------------------------------


def test_a_commit_whose_answer_is_missing_is_asked_for_again() -> None:
    brokers = brokers_that(EndTxn=each(OutcomeUnknown("silence"), said(CONCURRENT), said()))
    committing(writer_to(brokers, 5.0))
    assert names(brokers).count("EndTxn") == 3


@pytest.mark.parametrize(
    "answers",
    [
        each(OutcomeUnknown("silence")),
        each(OutcomeUnknown("silence"), Unavailable("nobody is there")),
        each(OutcomeUnknown("silence"), said(LOADING)),
        each(said(CONCURRENT)),
        each(said(NOT_AVAILABLE), said(LOADING)),
    ],
    ids=["silent", "then gone", "then loading", "being ended", "lost its place"],
)
def test_a_commit_that_may_have_been_made_is_of_unknown_outcome(answers: Answer) -> None:
    brokers = brokers_that(EndTxn=answers)
    with pytest.raises(OutcomeUnknown):
        committing(writer_to(brokers))
    assert {end.committed for end in requests(brokers, "EndTxn")} == {True}, "aborted"


@pytest.mark.parametrize("refusal", [INVALID_STATE, NO_ID_RIGHT])
def test_a_commit_that_may_have_been_made_is_not_called_refused(refusal: int) -> None:
    brokers = brokers_that(EndTxn=each(OutcomeUnknown("silence"), said(refusal)))
    with pytest.raises(OutcomeUnknown):
        committing(writer_to(brokers, 5.0))
    assert {end.committed for end in requests(brokers, "EndTxn")} == {True}, "aborted"


def test_a_commit_that_may_have_been_made_before_the_time_out_is_of_unknown_outcome() -> None:
    writer = writer_to(brokers_that(EndTxn=each(OutcomeUnknown("silence"), said(PRODUCER_FENCED))), 5.0)
    writer._timeout_s = 0.0
    with pytest.raises(OutcomeUnknown):
        committing(writer)


@pytest.mark.parametrize(("name", "answer"), [("AddOffsetsToTxn", said), ("TxnOffsetCommit", taken), ("EndTxn", said)])
def test_a_request_that_may_come_late_does_not_come_into_the_next_transaction(
    name: str, answer: Callable[[int], Any]
) -> None:
    """Its broker may carry it out when the same request was long answered by another try."""
    brokers = brokers_that(**{name: each(OutcomeUnknown("silence"), answer(0))})
    writer = writer_to(brokers, 5.0)
    committing(writer)
    assert names(brokers).count(name) == 2
    committing(writer)
    assert names(brokers).count("InitProducerId") == 2


@pytest.mark.parametrize("answer", [Unavailable("nobody is there"), said(LOADING)], ids=["gone", "loading"])
def test_a_commit_that_nobody_has_taken_was_not_made(answer: Any) -> None:
    with pytest.raises(Unavailable):
        committing(writer_to(brokers_that(EndTxn=each(answer))))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("TxnOffsetCommit", Unavailable("silence")),
        ("TxnOffsetCommit", taken(0, 12)),
        ("EndTxn", OutcomeUnknown("silence")),
        ("EndTxn", Unavailable("nobody is there")),
    ],
)
def test_after_an_end_that_is_not_known_the_next_transaction_begins_with_a_fence(name: str, answer: Any) -> None:
    """What may be left open would be committed with it."""
    aborting = {"EndTxn": each(OutcomeUnknown("silence"))}
    brokers = brokers_that(**aborting | {name: each(answer)})
    writer = writer_to(brokers)
    with pytest.raises(KafkaFailure):
        committing(writer)
    assert names(brokers).count("InitProducerId") == 1
    brokers.answers |= {"TxnOffsetCommit": each(taken()), "EndTxn": each(said())}
    committing(writer)
    assert names(brokers).count("InitProducerId") == 2


# --- by the clock -----------------------------------------------------------------------------------------------------

LIMIT_S = 1.0
SCHEDULING_S = 2.0
"""What a busy machine may add."""


@pytest.fixture
def broker() -> Iterator[SilentBroker]:
    with silent_broker() as made:
        yield made


@pytest.fixture
def limited(broker: SilentBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaOffsetWriter]:
    monkeypatch.setattr(KafkaOffsetWriter, "_STEP_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(KafkaOffsetWriter, "_ABORT_TIMEOUT_S", LIMIT_S)
    with closing(KafkaClient(Connection(broker.bootstrap))) as client:
        yield client.writer(GROUP, transaction_timeout_s=5)


def in_time(call: Callable[[], object], kind: type[KafkaFailure]) -> None:
    begun = time.monotonic()
    with pytest.raises(kind):
        call()
    assert time.monotonic() - begun < LIMIT_S + Wire.OVERTIME_S + SCHEDULING_S


def test_no_request_is_newer_than_transaction_version_1(broker: SilentBroker, limited: KafkaOffsetWriter) -> None:
    """One of version 2 (KIP-890) would bring others with it, and TxnOffsetCommit from 6 on names topics by ids."""
    committing(limited)
    sent = {name: broker.versions[name] for name in ("InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")}
    assert sent == {"InitProducerId": 4, "AddOffsetsToTxn": 3, "TxnOffsetCommit": NEWEST_COMMIT_SENT, "EndTxn": 3}


@pytest.mark.parametrize("silent", ["ApiVersions", "Metadata", "FindCoordinator", "InitProducerId"])
def test_a_fence_that_nobody_answers_ends_in_time(
    broker: SilentBroker, limited: KafkaOffsetWriter, silent: str
) -> None:
    broker.silent = {silent}
    in_time(limited.fence, Unavailable)
    assert silent in broker.heard


@pytest.mark.parametrize("silent", ["AddOffsetsToTxn", "TxnOffsetCommit"])
def test_a_send_that_nobody_answers_ends_in_time(broker: SilentBroker, limited: KafkaOffsetWriter, silent: str) -> None:
    with limited.transaction() as transaction:
        broker.silent = {silent}
        in_time(lambda: transaction.send(GROUP, OFFSETS), Unavailable)
    assert silent in broker.heard


def test_a_commit_that_nobody_answers_ends_in_time(broker: SilentBroker, limited: KafkaOffsetWriter) -> None:
    with limited.transaction() as transaction:
        transaction.send(GROUP, OFFSETS)
        broker.silent = {"EndTxn"}
        in_time(transaction.commit, OutcomeUnknown)
    assert "EndTxn" in broker.heard


def test_a_commit_ends_in_time_where_no_name_is_resolved(
    broker: SilentBroker, limited: KafkaOffsetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has gone, and its name's server as well: that is asked by the thread of all connections."""
    given_up, resolve = threading.Event(), socket.getaddrinfo

    def hanging(*args: Any, **options: Any) -> Any:
        given_up.wait(60)
        return resolve(*args, **options)

    with limited.transaction() as transaction:
        transaction.send(GROUP, OFFSETS)
        monkeypatch.setattr(socket, "getaddrinfo", hanging)
        broker.hang_up()
        try:
            in_time(transaction.commit, KafkaFailure)
        finally:
            given_up.set()


def test_an_abort_that_nobody_answers_ends_in_time(broker: SilentBroker, limited: KafkaOffsetWriter) -> None:
    begun = 0.0

    def leaves() -> None:
        nonlocal begun
        with limited.transaction() as transaction:
            transaction.send(GROUP, OFFSETS)
            broker.silent = {"EndTxn"}
            begun = time.monotonic()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        leaves()
    assert time.monotonic() - begun < LIMIT_S + Wire.OVERTIME_S + SCHEDULING_S
    assert "EndTxn" in broker.heard


@pytest.mark.parametrize("failure", [Unavailable("not the leader"), Fenced("replaced")], ids=lambda f: type(f).__name__)
def test_a_process_whose_turn_is_over_asks_the_brokers_for_nothing(failure: KafkaFailure) -> None:
    brokers = brokers_that()
    asked: list[str] = []

    def refuse(what: str) -> None:
        asked.append(what)
        raise failure

    with closing(wire_to(brokers)) as wire:
        writer = KafkaOffsetWriter(wire, GROUP, transaction_timeout_s=5, refuse=refuse)
        with pytest.raises(type(failure)):
            writer.fence()
        with pytest.raises(type(failure)), writer.transaction():
            pass
        with pytest.raises(type(failure)):
            writer.alter(GROUP, OFFSETS)
        with pytest.raises(type(failure)):
            writer.delete(GROUP, [HERE])
    assert len(asked) == 4
    assert not brokers.asked


# --- records ----------------------------------------------------------------------------------------------------------

LOG = "log"


def described(leader: int, in_sync: int = 3, replicas: int = 3) -> Any:
    partition = Row(
        partition_index=0, leader_id=leader, isr_nodes=[0, 1, 2][:in_sync], replica_nodes=[0, 1, 2][:replicas]
    )
    return Row(brokers=[Row(node_id=n) for n in range(3)], topics=[Row(name=LOG, error_code=0, partitions=[partition])])


def brokers_with_a_log(**answers: Answer) -> ByScript:
    row = Row(results_by_partition=[Row(partition_error_code=0)])
    produced = Row(responses=[Row(partition_responses=[Row(error_code=0, error_message=None)])])
    settings_row = Row(resource_name=LOG, error_code=0, configs=[Row(name="min.insync.replicas", value="2")])
    usual: dict[str, Answer] = {
        "Metadata": each(described(2)),
        "_UndecodedMetadata": each(Row(data=b"")),
        "AddPartitionsToTxn": each(Row(results_by_topic_v3_and_below=[row])),
        "Produce": each(produced),
        "DescribeConfigs": each(Row(results=[settings_row])),
    }
    return brokers_that(**usual | answers)


def appending(writer: KafkaOffsetWriter) -> None:
    with writer.transaction() as transaction:
        transaction.append(LOG, {b"k": b"v"})
        transaction.send(GROUP, OFFSETS)
        transaction.commit()


def test_a_record_is_appended_by_the_leader_that_has_answered_before() -> None:
    brokers = brokers_with_a_log()
    appending(writer_to(brokers))
    assert names(brokers) == [
        "InitProducerId",
        "Metadata",
        "_UndecodedMetadata",
        "AddPartitionsToTxn",
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    assert brokers.nodes_asked("_UndecodedMetadata") == brokers.nodes_asked("Produce") == [2]


@pytest.mark.parametrize(
    "answers",
    [
        {"Metadata": each(described(-1))},
        {"_UndecodedMetadata": each(Unavailable("it is frozen"))},
        {"Metadata": each(described(2, in_sync=1))},
    ],
    ids=["no leader", "a frozen leader", "too few in sync"],
)
def test_a_log_that_cannot_be_written_becomes_no_part_of_a_transaction(answers: dict[str, Answer]) -> None:
    """Its marker might not be written either, and until then the group's next transaction would have to wait."""
    brokers = brokers_with_a_log(**answers)
    writer = writer_to(brokers)
    with pytest.raises(Unavailable):
        appending(writer)
    committing(writer)
    assert "AddPartitionsToTxn" not in names(brokers)
    assert names(brokers)[-3:] == ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]


@pytest.mark.parametrize(("in_sync", "replicas"), [(2, 3), (1, 1)])
def test_enough_replicas_in_sync_are_enough(in_sync: int, replicas: int) -> None:
    """All that there are always are, whatever ``min.insync.replicas`` says."""
    appending(writer_to(brokers_with_a_log(Metadata=each(described(2, in_sync, replicas)))))


def test_a_leader_that_is_being_elected_is_waited_for() -> None:
    brokers = brokers_with_a_log(Metadata=each(described(-1), described(2)))
    appending(writer_to(brokers))
    assert brokers.nodes_asked("Produce") == [2]
