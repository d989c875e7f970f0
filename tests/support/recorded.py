"""What a fleet of real consumers did, as a history's operations. Pure: values in, operations out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from support.clients import ClientKind, CommitMode, Event, EventKind, GroupProtocol
from support.clients.options import ConsumerOptions
from support.deliveries import Delivery
from support.history import Commit, CommitRow, Operation, Ownership, Place, Poll, Process, Record, Transaction, Untold

SLOW_S = 2.0
"""What a busy machine may add to everything that happens once a heartbeat."""
_HEARTBEAT_S = {GroupProtocol.CLASSIC: 3.0, GroupProtocol.CONSUMER: 5.0}


def of_fleet(deliveries: Iterable[Delivery], events: Iterable[Event]) -> Iterator[Operation]:
    """In no order of time. Records that came in one poll are one operation, where the client tells which those are."""
    yield from _polls(deliveries)
    for event in events:
        operation = _operation(event)
        if operation is not None:
            yield operation


def untold(options: ConsumerOptions) -> tuple[Untold, ...]:
    """What these consumers do not tell (`support.clients.fleet.Event`)."""
    found = []
    if options.kind is ClientKind.KAFKA_GO:
        found.append(Untold.ASSIGNMENTS)
    if options.kind in (ClientKind.FRANZ_GO, ClientKind.KAFKA_GO):
        found.append(Untold.REVOCATIONS)
    # By default kafka-go commits after each record, and its consumers tell that.
    silent = [ClientKind.JAVA, ClientKind.AIOKAFKA, ClientKind.FRANZ_GO]
    silent += [ClientKind.KAFKA_GO] if options.auto_commit_interval_s is not None else []
    # What was sent to a transaction counts from then on, and shows some time after its end.
    by_transactions = options.commit in (CommitMode.TRANSACTIONS, CommitMode.ABORTS)
    by_itself = options.commit is CommitMode.AUTO and options.kind in silent
    if by_transactions or by_itself or options.kind is ClientKind.SARAMA:
        found.append(Untold.COMMITS)
    return tuple(found)


def unaware_s(options: ConsumerOptions) -> float:
    """How long one of these consumers may go on without knowing that it is out of its group, seconds."""
    return (options.heartbeat_s or _HEARTBEAT_S[options.protocol]) + SLOW_S


def _polls(deliveries: Iterable[Delivery]) -> Iterator[Poll]:
    polled: dict[str, tuple[float, list[Record]]] = {}
    for d in deliveries:
        t, records = polled.get(d.member, (d.t, []))
        if t != d.t:
            yield Poll(t, d.member, tuple(records))
            t, records = d.t, []
        value = None if d.value is None else f"{d.value:08x}"
        records.append(Record(d.topic, d.partition, d.offset, value))
        polled[d.member] = (t, records)
    for member, (t, records) in polled.items():
        yield Poll(t, member, tuple(records))


def _operation(event: Event) -> Operation | None:
    match event.kind:
        case EventKind.ASSIGN:
            return Ownership(event.t, event.member, event.partitions, "assign")
        case EventKind.REVOKE:
            return Ownership(event.t, event.member, event.partitions, "revoke")
        case EventKind.LOST:
            return Ownership(event.t, event.member, event.partitions, "lost")
        case EventKind.COMMIT:
            rows = tuple(CommitRow(*commit.partition, commit.offset, commit.error) for commit in event.commits)
            return Commit(event.t, event.member, rows, event.error)
        case EventKind.SENT | EventKind.OVER:
            places = tuple(Place(*commit.partition, commit.offset) for commit in event.commits)
            return Transaction(
                event.t, event.member, places, "offsets-sent" if event.kind is EventKind.SENT else "offsets-over"
            )
        case EventKind.READY:
            return Process(event.t, None, (event.member,), "start")
        case EventKind.CLOSED:
            return Process(event.t, None, (event.member,), "stop")
        case EventKind.KILLED | EventKind.DIED:
            return Process(event.t, None, (event.member,), "kill")
        case EventKind.FROZEN:
            return Process(event.t, None, (event.member,), "freeze")
        case EventKind.THAWED:
            return Process(event.t, None, (event.member,), "thaw")
        case EventKind.ERROR:
            return None
        case _:
            assert_never(event.kind)
