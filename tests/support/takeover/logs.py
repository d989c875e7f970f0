"""What Kafka's own topics tell: the marks of runs as they are committed, and the holds of the control topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

from confluent_kafka import Consumer, Message, TopicPartition

from support.takeover.judging import HoldRecord, Mark
from tidegate.control.codec import Unreadable, decode
from tidegate.control.records import HoldKey
from tidegate.kafka.offset_records import OFFSETS_TOPIC, GroupLog, follow, key_prefixes
from tidegate.reset.marker import committed_round, marker_group

_POLL_S: Final = 0.05
_QUIET_S: Final = 15.0


class MarkWatch:
    """Sees each transaction of a run begin: its mark shows here before it is committed.

    Follows all partitions of ``__consumer_offsets`` in a thread, with what is not committed yet.
    """

    def __init__(self, bootstrap: str) -> None:
        self._consumer = _reader(bootstrap, "read_uncommitted")
        self._places = _places(self._consumer, OFFSETS_TOPIC)
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._seen: list[tuple[bytes, bytes]] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(OFFSETS_TOPIC, p, end) for p, (_, end) in self._places.items()])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)
        self._consumer.close()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                message = self._consumer.poll(_POLL_S)
                if message is None or message.error() is not None or message.value() is None:
                    continue
                with self._changed:
                    self._seen.append((message.key() or b"", message.value()))
                    self._changed.notify_all()
        except BaseException as failure:  # told by whoever waits for it
            self._failure = failure
            raise

    def began(self, group: str, run_uid: str) -> bool:
        """Whether a transaction of the run has begun by now, whatever has come of it."""
        with self._changed:
            return any(_marked(group, run_uid, record) for record in self._seen)

    def wait(self, group: str, run_uid: str, timeout_s: float) -> None:
        """Until it has."""
        deadline = time.monotonic() + timeout_s
        at = 0
        with self._changed:
            while True:
                while at < len(self._seen):
                    at += 1
                    if _marked(group, run_uid, self._seen[at - 1]):
                        return
                assert self._failure is None, self._failure
                left = deadline - time.monotonic()
                assert left > 0, f"not within {timeout_s:g} s: run {run_uid} commits offsets of {group}"
                self._changed.wait(left)


def _marked(group: str, run_uid: str, record: tuple[bytes, bytes | None]) -> int:
    """The round of the run, whose mark this record is; 0: of no round of it."""
    marker = marker_group(group)
    if not record[0].startswith(key_prefixes(marker)):
        return 0
    commits = follow(GroupLog(), marker, [record], read_to=0, complete=True).commits
    return max((committed_round(run_uid, commit.offset) for commit in commits.values()), default=0)


def marks_of(bootstrap: str, runs: Mapping[str, Sequence[str]]) -> dict[str, list[Mark]]:
    """By uid of a run, all marks that it has committed to its groups, from the offsets topic's start.

    A test's broker compacts nothing in the time that a test takes, so none is missing.
    """
    found: dict[str, list[Mark]] = {uid: [] for uid in runs}
    for message in _everything(bootstrap, OFFSETS_TOPIC):
        record = (message.key() or b"", message.value())
        for uid, groups in runs.items():
            number = max((_marked(group, uid, record) for group in groups), default=0)
            if number:
                found[uid].append(Mark(message.timestamp()[1] / 1000, number))
    return found


def holds_of(bootstrap: str, control_topic: str) -> list[HoldRecord]:
    """All records of holds in a control topic, in their order.

    But the topic's very first record, which is written again wherever it is a hold's: no hold has epoch 0.
    """
    found = []
    for message in _everything(bootstrap, control_topic):
        if message.offset() == 0:
            continue
        try:
            key, _ = decode(message.key(), message.value())
        except Unreadable:
            continue
        if isinstance(key, HoldKey):
            found.append(HoldRecord(message.timestamp()[1] / 1000, hold_key(key), message.value() is not None))
    return found


def hold_key(key: HoldKey) -> str:
    return f"{key.holder} on {key.group}/{key.topic}-{key.partition}"


def _everything(bootstrap: str, topic: str) -> Iterator[Message]:
    """What is committed, partition by partition. Fails the test where an end is not reached."""
    consumer = _reader(bootstrap, "read_committed")
    try:
        for partition, (start, end) in _places(consumer, topic).items():
            consumer.assign([TopicPartition(topic, partition, start)])
            deadline = time.monotonic() + _QUIET_S
            while start < end:
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    deadline = time.monotonic() + _QUIET_S
                    if message.offset() < end:
                        yield message
                # The last records may be a transaction's markers, which nobody is given.
                [position] = consumer.position([TopicPartition(topic, partition)])
                start = max(start, position.offset)
                assert time.monotonic() < deadline, f"{topic}-{partition} was read to {start} of {end} only"
    finally:
        consumer.close()


def _reader(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "takeover-reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )


def _places(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """By partition, its first offset and the one after its last."""
    partitions = consumer.list_topics(topic, timeout=15).topics[topic].partitions
    return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=15) for p in partitions}
