"""Every error code that either client library knows has been decided upon; new ones of a newer library ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isclass

import pytest
from confluent_kafka import KafkaError
from kafka import errors as wire_errors

from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka_client import codes
from tidegate.kafka_client.codes import check
from tidegate.kafka_client.librdkafka import failure

LOCAL_REFUSALS = frozenset(
    {
        KafkaError._APPLICATION,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._ASSIGN_PARTITIONS,
        KafkaError._AUTHENTICATION,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._BAD_COMPRESSION,
        KafkaError._BAD_MSG,
        KafkaError._CONFLICT,
        KafkaError._CRIT_SYS_RESOURCE,
        KafkaError._DESTROY,
        KafkaError._EXISTING_SUBSCRIPTION,
        KafkaError._FAIL,
        KafkaError._FATAL,
        KafkaError._FS,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._INCONSISTENT,
        KafkaError._INTR,
        KafkaError._INVALID_ARG,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._INVALID_TYPE,
        KafkaError._IN_PROGRESS,
        KafkaError._ISR_INSUFF,
        KafkaError._KEY_DESERIALIZATION,
        KafkaError._KEY_SERIALIZATION,
        KafkaError._LOG_TRUNCATION,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._NOENT,
        KafkaError._NOOP,
        KafkaError._NOT_CONFIGURED,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._NO_OFFSET,
        KafkaError._OUTDATED,
        KafkaError._PARTIAL,
        KafkaError._PARTITION_EOF,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._READ_ONLY,
        KafkaError._REVOKE_PARTITIONS,
        KafkaError._SSL,
        KafkaError._STATE,
        KafkaError._UNDERFLOW,
        KafkaError._UNKNOWN_GROUP,
        KafkaError._UNKNOWN_PROTOCOL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._VALUE_DESERIALIZATION,
        KafkaError._VALUE_SERIALIZATION,
    }
)
"""librdkafka's own codes that asking again does not change."""

NOT_FOR_US = {
    70: "FETCH_SESSION_ID_NOT_FOUND: consumers deal with it themselves",
    71: "INVALID_FETCH_SESSION_EPOCH: consumers deal with it themselves",
    84: "ELECTION_NOT_NEEDED: Tidegate elects no leaders",
    103: "INCONSISTENT_TOPIC_ID: consumers deal with it themselves",
    106: "FETCH_SESSION_TOPIC_ID_ERROR: consumers deal with it themselves",
    122: "SHARE_SESSION_NOT_FOUND: Tidegate reads by no share group",
    123: "INVALID_SHARE_SESSION_EPOCH: Tidegate reads by no share group",
}
"""Codes that Kafka calls retriable and Tidegate cannot meet, or gains nothing from asking again."""

NOT_CALLED_RETRIABLE = {
    8: "BROKER_NOT_AVAILABLE: kafka-python's table says otherwise; Java's producer asks again",
    129: "REBOOTSTRAP_REQUIRED: unknown to kafka-python",
}


def librdkafka_codes() -> Iterator[tuple[str, int]]:
    for name in dir(KafkaError):
        value = getattr(KafkaError, name)
        if isinstance(value, int) and name.lstrip("_").isupper():
            yield name, value


def wire_codes() -> Iterator[tuple[int, bool]]:
    """The protocol's codes as kafka-python has them, and whether Kafka calls them retriable."""
    for name in dir(wire_errors):
        kind = getattr(wire_errors, name)
        if isclass(kind) and issubclass(kind, wire_errors.BrokerResponseError) and kind.errno is not None:
            yield int(kind.errno), bool(kind.retriable)


@pytest.mark.parametrize(("name", "code"), [c for c in librdkafka_codes() if c[1] < 0 and c[1] != KafkaError.UNKNOWN])
def test_each_code_of_librdkafka_is_decided_upon(name: str, code: int) -> None:
    decided = [code in found for found in (codes.UNREACHABLE, codes.FENCED, codes.UNKNOWN_PARTITION, LOCAL_REFUSALS)]
    assert decided.count(True) == 1, name


def test_what_kafka_calls_retriable_is_asked_again() -> None:
    retriable = {code for code, again in wire_codes() if again}
    decided = {c for c in codes.UNREACHABLE | codes.UNKNOWN_PARTITION if c >= 0}
    assert retriable - decided == set(NOT_FOR_US)
    assert decided - retriable == set(NOT_CALLED_RETRIABLE)


def test_both_libraries_know_the_same_codes() -> None:
    """So that a code is decided upon whichever of them meets it."""
    newer = {code for _, code in librdkafka_codes()} - {code for code, _ in wire_codes()}
    assert {c for c in newer if c >= 0} <= set(range(128, 134)), "decide whether the new codes are to be asked again"


def test_no_code_means_two_things() -> None:
    found = [
        codes.UNREACHABLE,
        codes.FENCED,
        frozenset(codes.NOT_AUTHORIZED),
        codes.UNKNOWN_PARTITION,
        codes.NOT_TAKEN_FROM_OUTSIDE,
    ]
    assert sum(map(len, found)) == len(frozenset().union(*found))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, Unavailable) for code in sorted(codes.UNREACHABLE)),
        *((code, Fenced) for code in sorted(codes.FENCED)),
        *((code, NotAuthorized) for code in sorted(codes.NOT_AUTHORIZED)),
        (KafkaError.INVALID_COMMIT_OFFSET_SIZE, Refused),
        (KafkaError._STATE, Refused),
    ],
)
def test_a_failed_call_says_whether_to_try_again(code: int, kind: type[KafkaFailure]) -> None:
    assert type(failure(KafkaError(code), "look")) is kind
    if code >= 0:
        with pytest.raises(kind):
            check(code, "look")
