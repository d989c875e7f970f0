"""What consumers report, as a history's operations."""

from __future__ import annotations

from typing import Any

import pytest

from support import recorded
from support.clients import ClientKind, Commit, CommitMode, ConsumerOptions, Event, EventKind
from support.deliveries import Delivery, Partition, digest
from support.history import Commit as CommitOperation
from support.history import CommitRow, Operation, Ownership, Place, Poll, Process, Record, Transaction, Untold

P: Partition = ("t", 0)


def options(kind: ClientKind, **more: Any) -> ConsumerOptions:
    return ConsumerOptions(kind=kind, bootstrap="b", group="g", topics=("t",), **more)


def test_records_that_a_member_was_given_at_one_time_are_one_poll() -> None:
    given = [
        Delivery(1.0, "a", *P, 0, 7),
        Delivery(1.0, "b", "t", 1, 5, None),
        Delivery(1.0, "a", *P, 1, 0xABC),
        Delivery(2.0, "a", *P, 2, None),
    ]

    told = list(recorded.of_fleet(given, []))

    assert sorted(told, key=lambda poll: (poll.t, str(poll))) == [
        Poll(1.0, "a", (Record(*P, 0, "00000007"), Record(*P, 1, "00000abc"))),
        Poll(1.0, "b", (Record("t", 1, 5, None),)),
        Poll(2.0, "a", (Record(*P, 2, None),)),
    ]


@pytest.mark.parametrize(
    ("event", "operation"),
    [
        (Event(1.0, "a", EventKind.READY), Process(1.0, None, ("a",), "start")),
        (Event(1.0, "a", EventKind.ASSIGN, (P,)), Ownership(1.0, "a", (P,), "assign")),
        (Event(1.0, "a", EventKind.REVOKE, (P,)), Ownership(1.0, "a", (P,), "revoke")),
        (Event(1.0, "a", EventKind.LOST, (P,)), Ownership(1.0, "a", (P,), "lost")),
        (
            Event(1.0, "a", EventKind.COMMIT, commits=(Commit(P, 5, None), Commit(("t", 1), -1001, "X")), error="Y"),
            CommitOperation(1.0, "a", (CommitRow(*P, 5), CommitRow("t", 1, -1001, "X")), "Y"),
        ),
        (
            Event(1.0, "a", EventKind.SENT, commits=(Commit(P, 5, None),)),
            Transaction(1.0, "a", (Place(*P, 5),), "offsets-sent"),
        ),
        (
            Event(1.0, "a", EventKind.OVER, commits=(Commit(P, 5, None),)),
            Transaction(1.0, "a", (Place(*P, 5),), "offsets-over"),
        ),
        (Event(1.0, "a", EventKind.CLOSED), Process(1.0, None, ("a",), "stop")),
        (Event(1.0, "a", EventKind.DIED, error="x"), Process(1.0, None, ("a",), "kill")),
        (Event(1.0, "a", EventKind.KILLED), Process(1.0, None, ("a",), "kill")),
        (Event(1.0, "a", EventKind.FROZEN), Process(1.0, None, ("a",), "freeze")),
        (Event(1.0, "a", EventKind.THAWED), Process(1.0, None, ("a",), "thaw")),
        (Event(1.0, "a", EventKind.ERROR, error="x"), None),
    ],
    ids=lambda value: value.kind if isinstance(value, Event) else "",
)
def test_each_event_is_an_operation(event: Event, operation: Operation | None) -> None:
    assert list(recorded.of_fleet([], [event])) == ([operation] if operation is not None else [])


@pytest.mark.parametrize(
    ("kind", "commit", "found"),
    [
        (ClientKind.LIBRDKAFKA, CommitMode.AUTO, ()),
        (ClientKind.KAFKA_PYTHON, CommitMode.AUTO, ()),
        (ClientKind.JAVA, CommitMode.AUTO, (Untold.COMMITS,)),
        (ClientKind.JAVA, CommitMode.SYNC, ()),
        (ClientKind.JAVA, CommitMode.TRANSACTIONS, (Untold.COMMITS,)),
        (ClientKind.LIBRDKAFKA, CommitMode.ABORTS, (Untold.COMMITS,)),
        (ClientKind.AIOKAFKA, CommitMode.AUTO, (Untold.COMMITS,)),
        (ClientKind.FRANZ_GO, CommitMode.AUTO, (Untold.REVOCATIONS, Untold.COMMITS)),
        (ClientKind.FRANZ_GO, CommitMode.SYNC, (Untold.REVOCATIONS,)),
        (ClientKind.SARAMA, CommitMode.SYNC, (Untold.COMMITS,)),
        (ClientKind.KAFKA_GO, CommitMode.SYNC, (Untold.ASSIGNMENTS, Untold.REVOCATIONS)),
        (ClientKind.KAFKA_GO, CommitMode.AUTO, (Untold.ASSIGNMENTS, Untold.REVOCATIONS)),
    ],
)
def test_what_the_clients_do_not_tell(kind: ClientKind, commit: CommitMode, found: tuple[Untold, ...]) -> None:
    assert recorded.untold(options(kind, commit=commit)) == found


def test_a_member_is_unaware_for_a_heartbeat_at_most() -> None:
    assert recorded.unaware_s(options(ClientKind.JAVA)) == 3.0 + recorded.SLOW_S
    assert recorded.unaware_s(options(ClientKind.JAVA, protocol="consumer")) == 5.0 + recorded.SLOW_S
    assert recorded.unaware_s(options(ClientKind.JAVA, heartbeat_s=0.5)) == 0.5 + recorded.SLOW_S


def test_a_digest_is_of_key_and_value() -> None:
    assert digest(None, b"ab") == digest(b"a", b"b") == digest(b"ab", None)
    assert len({digest(None, b"a"), digest(None, b"b"), digest(None, None)}) == 3
