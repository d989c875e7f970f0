"""Skipped records on a real broker: their copies are what was written, are there once, and without one nothing is
skipped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from devstack import KafkaCluster
from support.dying_writer import CALLS, execute_and_die
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Range, Record, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.transaction import KafkaTransaction
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.at_once(6)

AT_MS = 1_700_000_000_123
HEADERS = [("trace", b"\x00\xff"), ("trace", None), ("empty", b"")]


@dataclass
class Scene:
    """A group without members, which stands at offset 0 of partition 2; and a dead-letter topic of two partitions."""

    bootstrap: str
    kafka: KafkaClient
    group: str
    source: TopicPartition
    letters: str
    store: DirectoryRunStore
    folder: Path

    @property
    def copied_to(self) -> TopicPartition:
        return TopicPartition(self.letters, 0)

    def write(self, *values: bytes | None, key: bytes | None = b"key", **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **settings})
        for value in values:
            producer.produce(
                self.source.topic, value, key, partition=self.source.partition, timestamp=AT_MS, headers=HEADERS
            )
        assert producer.flush(20) == 0

    def transaction(self, name: str, *, ends: bool | None) -> Producer:
        """``ends``: whether it is committed; ``None``: it stays open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "transactional.id": name})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(self.source.topic, b"in a transaction", b"key", partition=self.source.partition)
        assert producer.flush(20) == 0
        if ends is not None:
            (producer.commit_transaction if ends else producer.abort_transaction)(20)
        return producer

    def create(self, offset: int, *, letters: str | None = None, manual: bool = False) -> None:
        self.kafka.writer(self.group, transaction_timeout_s=5).alter(self.group, {self.source: 0})
        self.store.create(
            RunRequest(
                run_uid=f"{self.group}/skip",
                run_id="skip",
                group_id=self.group,
                connection=Connection(self.bootstrap),
                selections=(Selection(self.source.topic, frozenset({self.source.partition})),),
                target=ToOffset(offset),
                settings=ApplySettings(deadline=datetime.now(UTC) + timedelta(minutes=2)),
                manual_approval=manual,
                dead_letter=self.letters if letters is None else letters,
            )
        )

    def execute(self) -> RunResult:
        result = job.execute(self.store, self.kafka, SystemClock())
        assert result is not None
        return result

    def committed(self) -> int:
        return self.kafka.committed(self.group)[self.source]

    def copies(self) -> tuple[Record, ...]:
        """As who reads committed records is given them; none is undecided."""
        found: list[Record] = []
        for number in range(2):
            partition = TopicPartition(self.letters, number)
            end = self.kafka.log_bounds([partition])[partition].latest
            assert self.kafka.last_stable_offsets([partition])[partition] == end
            found += self.kafka.records(partition, Range(0, end), committed=True, most_bytes=10**9)
        return tuple(found)


@pytest.fixture
def scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, tmp_path: Path) -> Iterator[Scene]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        source, letters = TopicPartition(make_topic(3), 2), make_topic(2)
        store = DirectoryRunStore(tmp_path, "run")
        yield Scene(kafka.bootstrap, client, unique("group"), source, letters, store, tmp_path)


def origin(scene: Scene, offset: int) -> list[tuple[str, bytes]]:
    told = {
        "topic": scene.source.topic,
        "partition": "2",
        "offset": str(offset),
        "group": scene.group,
        "reset": "skip",
        "run": f"{scene.group}/skip",
    }
    return [(f"__tidegate.errors.{name}", text.encode()) for name, text in told.items()]


def test_copies_are_what_was_written_however_it_was_written(scene: Scene, unique: Unique) -> None:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    large = bytes(range(256)) * 3600  # less than max.message.bytes at its default, and hardly smaller in a batch
    for codec in codecs:
        scene.write(codec.encode() * 50, **{"compression.type": codec})
    scene.write(None, key=b"a tombstone")
    scene.write(b"", large, key=None)
    scene.transaction(unique("tx"), ends=True)
    scene.create(9)

    result = scene.execute()

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert "9 record(s) were copied to dead-letter topic" in result.message
    assert scene.committed() == 9
    # By another client than the one that has copied them.
    reader = Consumer(
        {"bootstrap.servers": scene.bootstrap, "group.id": unique("reader"), "isolation.level": "read_committed"}
    )
    reader.assign([ClientTopicPartition(scene.letters, 0, 0)])
    messages = reader.consume(9, 30)
    reader.close()
    values = [codec.encode() * 50 for codec in codecs]
    assert [m.value() for m in messages] == [*values, None, b"", large, b"in a transaction"]
    assert [m.key() for m in messages] == [b"key"] * 5 + [b"a tombstone", None, None, b"key"]
    assert [m.timestamp()[1] for m in messages[:8]] == [AT_MS] * 8
    assert [m.headers() for m in messages[:8]] == [[*HEADERS, *origin(scene, at)] for at in range(8)]
    assert messages[8].headers() == origin(scene, 8)


def test_records_go_where_each_fits_also_where_all_of_them_together_do_not(scene: Scene) -> None:
    values = [os.urandom(3000) for _ in range(4)]
    scene.write(*values, **{"batch.size": 1})
    set_letters(scene, "max.message.bytes", "4000")
    scene.create(4)

    result = scene.execute()

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert [record.value for record in scene.copies()] == values


@pytest.mark.parametrize(
    ("call", "when"),
    [
        (call, when) if (call, when) in (("commit", "before"), ("commit", "after"))
        else pytest.param(call, when, marks=pytest.mark.nightly)
        for call in CALLS
        for when in ("before", "after")
    ],
)  # fmt: skip
def test_a_record_is_copied_once_wherever_the_writer_is_killed(call: str, when: str, scene: Scene) -> None:
    scene.write(b"poison", b"fine")
    scene.create(1)
    execute_and_die(scene.folder, "run", call, when)

    result = scene.execute()

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert "copied to dead-letter topic" in result.message
    assert scene.committed() == 1
    [copied] = scene.copies()
    assert (copied.key, copied.value, copied.at_ms) == (b"key", b"poison", AT_MS)
    assert list(copied.headers) == [*HEADERS, *origin(scene, 0)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.nightly
def test_a_record_is_copied_once_also_beside_a_transaction_of_somebody_elses(when: str, scene: Scene) -> None:
    """That looks as if the dead writer's were not decided yet."""
    scene.write(b"poison", b"fine")
    scene.create(1)
    execute_and_die(scene.folder, "run", "commit", when)
    others = scene.kafka.writer(scene.group, transaction_timeout_s=60, purpose="others")
    with closing(others), others.transaction() as transaction:
        transaction.send(scene.group, {scene.source: 0})
        over = threading.Timer(8, lambda: transaction.abort(20))
        over.start()

        result = scene.execute()

        over.join()
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert scene.committed() == 1
    [copied] = scene.copies()
    assert copied.value == b"poison"


class NotText(str):
    """As the name of a header: bytes that no client of Kafka's writes."""

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


def _with_a_header_that_is_no_text(scene: Scene, _name: str) -> None:
    with scene.kafka.writer(scene.group, transaction_timeout_s=5).transaction() as transaction:
        transaction.copy(scene.source, [Record(0, AT_MS, b"key", b"poison", ((NotText("-"), b"value"),))])
        transaction.commit()


def _gone(scene: Scene) -> None:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    [deleted] = admin.delete_records([ClientTopicPartition(scene.source.topic, scene.source.partition, 1)]).values()
    deleted.result(20)


def _small(scene: Scene) -> None:
    set_letters(scene, "max.message.bytes", "1000")


def set_letters(scene: Scene, name: str, value: str) -> None:
    changed = ConfigResource(ResourceType.TOPIC, scene.letters, {name: value})
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    [altered] = admin.alter_configs([changed]).values()
    altered.result(20)


def _no_topic(scene: Scene) -> None:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    [deleted] = admin.delete_topics([scene.letters]).values()
    deleted.result(20)


def _as_it_is(_scene: Scene) -> None:
    """The record itself is what can't be copied."""


Write = Callable[[Scene, str], object]
CANNOT: dict[str, tuple[Write, Callable[[Scene], None], str]] = {
    "aborted": (
        lambda scene, name: scene.transaction(name, ends=False),
        _as_it_is,
        "belongs to a transaction that was aborted",
    ),
    "open": (lambda scene, name: scene.transaction(name, ends=None), _as_it_is, "to a transaction that is still open"),
    "gone": (lambda scene, _: scene.write(b"poison", b"fine"), _gone, "has been deleted up to offset 1"),
    "too large": (lambda scene, _: scene.write(os.urandom(5000)), _small, "MessageSizeTooLargeError"),
    "old": (
        lambda scene, _: scene.write(b"poison"),
        lambda scene: set_letters(scene, "retention.ms", "604800000"),
        "is older than the retention of topic",
    ),
    "compacted": (
        lambda scene, _: scene.write(b"poison"),
        lambda scene: set_letters(scene, "cleanup.policy", "compact"),
        "is compacted",
    ),
    "header": (_with_a_header_that_is_no_text, _as_it_is, "a header's name is not UTF-8"),
    "no topic": (lambda scene, _: scene.write(b"poison"), _no_topic, "there is no such topic"),
}


@pytest.mark.parametrize("what", CANNOT)
def test_what_cannot_be_copied_is_not_skipped(what: str, scene: Scene, unique: Unique) -> None:
    write, spoil, said = CANNOT[what]
    kept = write(scene, unique("tx"))
    scene.create(1, manual=True)
    assert job.execute(scene.store, scene.kafka, SystemClock()) is None  # the plan waits
    spoil(scene)
    scene.store.approve()

    result = scene.execute()

    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotCopied"), result
    assert said in result.message
    assert result.message.endswith("Nothing was changed")
    assert scene.committed() == 0
    if what != "no topic":
        assert scene.copies() == ()
    del kept


def test_a_record_with_a_header_that_is_no_text_is_told_of(scene: Scene) -> None:
    """Also where many others were read before: Python calls what it has called often in another way."""
    scene.write(*[b"fine"] * 30)
    _with_a_header_that_is_no_text(scene, "")

    with pytest.raises(Refused, match="a header's name is not UTF-8"):
        scene.kafka.records(scene.source, Range(0, 31), committed=True, most_bytes=10**6)
    head = scene.kafka.next_records({scene.source: 30})[scene.source]

    assert (head.offset, head.size, head.headers) == (30, len(b"keypoison"), None)


@pytest.mark.nightly
def test_the_leader_of_the_dead_letter_topic_dies_as_it_is_written(
    kafka3: KafkaCluster, make_topic3: MakeTopic, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TopicPartition(make_topic3(3, replication_factor=3), 2)
    letters = make_topic3(2, replication_factor=3)
    killed: list[int] = []
    copy = KafkaTransaction.copy

    def dying(transaction: KafkaTransaction, partition: TopicPartition, *args: Any, **named: Any) -> None:
        if not killed:
            metadata = AdminClient({"bootstrap.servers": kafka3.bootstrap}).list_topics(letters, 20)
            killed.append(metadata.topics[letters].partitions[partition.partition].leader)
            kafka3.kill(killed[0])
        copy(transaction, partition, *args, **named)

    monkeypatch.setattr(KafkaTransaction, "copy", dying)
    with closing(KafkaClient(Connection(kafka3.bootstrap))) as client:
        store = DirectoryRunStore(tmp_path, "run")
        scene = Scene(kafka3.bootstrap, client, unique("group"), source, letters, store, tmp_path)
        scene.write(b"poison", b"fine")
        scene.create(1)

        result = scene.execute()

        kafka3.restart(killed[0])
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert scene.committed() == 1
        [copied] = scene.copies()
        assert copied.value == b"poison"
