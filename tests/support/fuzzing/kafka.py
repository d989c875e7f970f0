"""Decoders of what comes from Kafka: records that others write, and what brokers and members say."""

from __future__ import annotations

import uuid
from typing import Any, Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

import tidegate.control.codec as of_operator
import tidegate_agent.records as of_agent
from support.fuzzing.target import OFFSET_MAX, PARTITION_MAX, Target, pair, parts
from support.stopped_streams import METADATA_1, METADATA_2, METADATA_2_WITH_A_TIME
from support.stored_documents import KINDS
from tidegate.audit.codec import Unreadable, decode_change, encode_change, line
from tidegate.audit.records import Action, Actor, Change, Moved, Part, State
from tidegate.control.records import Ack, Claim, Hold, Limit
from tidegate.find.checkpoints import Checkpoint, read_checkpoint
from tidegate.kafka.assignors.user_data import cooperative_generation, sticky_claims
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import GroupLog, follow, partition_of, with_tail
from tidegate.kafka.streams import is_commit_metadata
from tidegate.kafka_client.consumer_protocol import assignment, subscription
from tidegate.kafka_client.group_descriptions import assigned
from tidegate.kafka_client.metadata import read_topics, topics_start
from tidegate.kafka_client.settings import BadAnswer, token_in
from tidegate.versions import NewerVersion
from tidegate_agent import start
from tidegate_agent.adapters.client_settings import token_end


def _records(*kinds: str) -> tuple[bytes, ...]:
    written = (KINDS[kind].write() for kind in kinds)
    return tuple(parts(record["key"].encode(), record["value"].encode()) for record in written)


_AGENTS: Final = _records("ack", "control-hold", "control-limit", "control-partition")
_RECORDS: Final = (*_AGENTS, *_records("control-claim", "control-run"))


def _check_record(read: tuple[Any, Any]) -> None:
    key, value = read
    assert len(of_operator.encode_key(key)) <= of_operator.MOST_BYTES
    number = getattr(key, "partition", 0)
    assert 0 <= number <= PARTITION_MAX
    match value:
        case Ack():
            assert 0 <= value.epoch <= OFFSET_MAX
            assert -1 <= value.offset <= OFFSET_MAX
            assert len(value.member) <= 1024
        case Hold() | Limit():
            assert 0 <= value.drain_timeout_ms <= 87_600 * 3_600_000
        case Claim():
            assert 0 <= value.lease_ms <= 300_000
    assert of_operator.decode(of_operator.encode_key(key), of_operator.encode_value(value))[0] == key


def _check_agents_record(read: tuple[Any, Any]) -> None:
    assert 0 <= getattr(read[0], "partition", 0) <= PARTITION_MAX


_CHANGE: Final = Change(
    id="5f0e",
    action=Action.RESET,
    state=State.COMMITTED,
    group="payments",
    by=Actor("OffsetReset", "replay", "ns"),
    offsets={TopicPartition("orders", 0): Moved(50, 10), TopicPartition("orders", 1): Moved(None, 10)},
    requester="jane",
)


def _check_change(read: Part) -> None:
    assert 1 <= read.number <= read.of
    for partition, moved in read.change.offsets.items():
        assert 0 <= partition.partition <= PARTITION_MAX
        assert all(offset is None or 0 <= offset <= OFFSET_MAX for offset in (moved.before, moved.after))
    said = line(read, at_ms=0, offset=0)
    assert said.isascii()
    assert said.isprintable(), "nothing of it reaches a terminal"


# --- the log of a group's offsets -------------------------------------------------------------------------------------


def _group_log(data: bytes) -> GroupLog:
    key, value = pair(data)
    log = follow(GroupLog(), "payments", [(key, value)], read_to=1, complete=True)
    return with_tail(log, "payments", [(key, value)], complete=True)


def _check_group_log(log: GroupLog) -> None:
    assert log.unreadable <= 2
    for partition, commit in log.commits.items():
        assert -PARTITION_MAX - 1 <= partition.partition <= PARTITION_MAX
        assert -OFFSET_MAX - 1 <= commit.offset <= OFFSET_MAX


def _check_checkpoint(read: Checkpoint | None) -> None:
    assert read is None or min(read.upstream, read.downstream, read.partition.partition) >= 0


_TEXT: Final = b"\x00\x08payments\x00\x06orders\x00\x00\x00\x03"
_COMMIT: Final = b"\x00\x03" + bytes(7) + b"\x2a" + bytes(4) + b"\x00\x01m" + bytes(6) + b"\x03\xe8"
_COMMIT_4: Final = (
    b"\x00\x04" + bytes(7) + b"\x2a" + bytes(4) + b"\x02m" + bytes(6) + b"\x03\xe8\x01\x00\x10" + bytes(16)
)
_EMPTY: Final = b"\x00\x03\x00\x08consumer\x00\x00\x00\x03\xff\xff\xff\xff" + bytes(6) + b"\x13\x88" + bytes(4)

# --- what brokers and members say -------------------------------------------------------------------------------------

_TOPIC: Final = MetadataResponse.MetadataResponseTopic
_METADATA: Final = bytes(
    MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponse.MetadataResponseBroker(1, "kafka", 9092, None)],
        cluster_id="c",
        controller_id=1,
        topics=[
            _TOPIC(
                error_code=0,
                name="orders",
                topic_id=uuid.UUID(int=7),
                is_internal=False,
                partitions=[
                    _TOPIC.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=1,
                        leader_epoch=0,
                        replica_nodes=[1],
                        isr_nodes=[1],
                        offline_replicas=[],
                    )
                    for number in range(3)
                ],
                authorized_operations=None,
            )
        ],
        authorized_operations=None,
        version=12,
    ).encode()
)

_SUBSCRIPTION: Final = bytes(
    ConsumerProtocolSubscription(
        topics=["orders"], user_data=b"", owned_partitions=[], generation_id=3, rack_id=None, version=3
    ).encode()
)


_CLAIMS: Final = b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02" + bytes(7) + b"\x01\x00\x00\x00\x07"


def _check_claims(read: tuple[frozenset[TopicPartition], int]) -> None:
    claimed, generation = read
    assert -PARTITION_MAX - 1 <= generation <= PARTITION_MAX
    assert all(-PARTITION_MAX - 1 <= partition.partition <= PARTITION_MAX for partition in claimed)


def _tokens(data: bytes) -> tuple[str, float]:
    return token_in(data)


def _check_token(read: tuple[str, float]) -> None:
    token, lifetime_s = read
    assert token
    assert 0 <= lifetime_s < 2**31


def _check_end(end: float) -> None:
    assert 0 < end < 2**40


TARGETS: Final = (
    Target(
        "control-record",
        ("tidegate.control.codec:decode", "tidegate.control.codec:_object"),
        _RECORDS,
        lambda data: of_operator.decode(*pair(data)),
        (of_operator.Unreadable,),
        _check_record,
    ),
    Target(
        "agents-record",
        ("tidegate_agent.records:decode", "tidegate_agent.records:_object"),
        _AGENTS,
        lambda data: of_agent.decode(*pair(data)),
        (of_agent.Unreadable,),
        _check_agents_record,
    ),
    Target(
        "audit-record",
        ("tidegate.audit.codec:decode_change", "tidegate.audit.codec:_parsed"),
        tuple(encode_change(_CHANGE).values()),
        decode_change,
        (Unreadable, NewerVersion),
        _check_change,
    ),
    Target(
        "group-log",
        tuple(f"tidegate.kafka.offset_records:_Reader.{name}" for name in ("int16", "int32", "int64", "varint")),
        (
            parts(b"\x00\x01" + _TEXT, _COMMIT),
            parts(b"\x00\x01" + _TEXT, _COMMIT_4),
            parts(b"\x00\x02" + _TEXT[:10], _EMPTY),
        ),
        _group_log,
        (),
        _check_group_log,
    ),
    Target(
        "group-partition",
        ("tidegate.kafka.offset_records:partition_of",),
        (b"payments",),
        lambda data: partition_of(data.decode(errors="surrogateescape"), 50),
        (),
        lambda number: _between(number, 0, 49),
    ),
    Target(
        "streams-commit",
        ("tidegate.kafka.streams:is_commit_metadata", "tidegate.kafka.streams:_is_map"),
        (METADATA_1.encode(), METADATA_2.encode(), METADATA_2_WITH_A_TIME.encode()),
        lambda data: is_commit_metadata(data.decode(errors="replace")),
        (),
    ),
    Target(
        "checkpoint",
        ("tidegate.find.checkpoints:read_checkpoint", "tidegate.find.checkpoints:_text"),
        (parts(_TEXT, b"\x00\x00" + bytes(7) + b"\x05" + bytes(7) + b"\x04\x00\x01m"),),
        lambda data: read_checkpoint(pair(data)[0], pair(data)[1] or b""),
        (),
        _check_checkpoint,
    ),
    Target(
        "topics",
        ("tidegate.kafka_client.metadata:read_topics", "tidegate.kafka_client.metadata:topics_start"),
        (_METADATA,),
        lambda data: read_topics(data, topics_start(data)),
        (Unavailable,),
        lambda topics: [_between(topic.partitions, 0, 2**32) for topic in topics.values()] and None,
    ),
    Target(
        "subscription",
        (
            "tidegate.kafka_client.consumer_protocol:subscription",
            "tidegate.kafka_client.consumer_protocol:_subscription",
        ),
        (_SUBSCRIPTION,),
        subscription,
    ),
    Target(
        "assignment",
        ("tidegate.kafka_client.group_descriptions:assigned",),
        (
            assignment([], 0),
            bytes(
                ConsumerProtocolAssignment(
                    assigned_partitions=[ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=[0, 1])],
                    user_data=b"",
                    version=1,
                ).encode()
            ),
        ),
        assigned,
    ),
    Target(
        "sticky-claims",
        tuple(f"tidegate.kafka.assignors.user_data:{name}" for name in ("sticky_claims", "_partitions", "_length")),
        (_CLAIMS, _CLAIMS[:-4], bytes(4)),
        sticky_claims,
        (),
        _check_claims,
    ),
    Target(
        "cooperative-generation",
        ("tidegate.kafka.assignors.user_data:cooperative_generation",),
        (_CLAIMS[-4:],),
        cooperative_generation,
    ),
    Target(
        "token-answer",
        ("tidegate.kafka_client.settings:token_in",),
        (b'{"access_token":"abc","expires_in":300}', b'{"access_token":"abc"}'),
        _tokens,
        (BadAnswer,),
        _check_token,
    ),
    Target(
        "agents-token",
        ("tidegate_agent.adapters.client_settings:token_end",),
        (b"e30.eyJleHAiOjJ9.x", b"e30.eyJleHAiOjk5OTl9.x"),
        lambda data: token_end(data.decode(errors="replace"), 1_000.0),
        (),
        _check_end,
    ),
    Target(
        "agents-max-age",
        ("tidegate_agent.start:parse_max_age",),
        (b"86400000", b"-1"),
        lambda data: start.parse_max_age(data.decode(errors="replace")),
        (start.RuleError,),
        lambda age: _between(age, -1, 2**63 - 1),
    ),
    Target(
        "agents-new-partitions",
        ("tidegate_agent.start:parse_new_partitions",),
        (b"earliest", b" Latest "),
        lambda data: start.parse_new_partitions(data.decode(errors="replace")),
        (start.RuleError,),
    ),
)


def _between(number: int, least: int, most: int) -> None:
    assert least <= number <= most
