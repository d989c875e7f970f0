"""What Kafka's error codes mean to a caller, once for both client libraries.

Codes from 0 on are the protocol's (``org.apache.kafka.common.protocol.Errors``), negative ones librdkafka's own
(``rd_kafka_resp_err_t``). A code that is in none of the sets below is a refusal: to ask again changes nothing.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError
from kafka import errors as wire_errors

from tidegate.kafka.errors import Fenced, NotAuthorized, Refused, Unavailable
from tidegate.kafka.rights import Resource, Right, to_grant

NO_ERROR: Final = 0
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
GROUP_ID_NOT_FOUND: Final = 69
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82
"""A static member of that instance id has come back under another member id."""
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
UNSTABLE_OFFSET_COMMIT: Final = 88

HAS_MEMBERS: Final = frozenset({22, 25, 27, 68})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP: answers to a commit of nobody's"""

UNREACHABLE: Final = frozenset(
    {
        # The client library had no answer: nobody there, no connection, or none in time.
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._DESTROY_BROKER,
        KafkaError._NODE_UPDATE,
        KafkaError._RETRY,
        # A broker or coordinator is not there, is being elected, moves, or has not caught up yet.
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REBOOTSTRAP_REQUIRED,
        # Too few replicas in sync: a broker is away.
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # Others' transactions are being ended, or a quota is used up: for a while.
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Nobody could answer just now: nothing is known to have been done, and the same request may succeed later."""

FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Another producer has taken over the transactional id; the last one: when the epochs of a producer id were used up."""

NOT_AUTHORIZED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
}
"""The kind of resource that a right is missing on."""

UNKNOWN_PARTITION: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

NOT_TAKEN_FROM_OUTSIDE: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
"""Answers to TxnOffsetCommit of a coordinator that wants a member, or another version; INVALID_TXN_STATE is what 3.7
says of any group when KIP-848 groups are switched on there."""


def check(code: int, what: str, *needs: Right, said: str | None = None) -> None:
    """Raise the failure that an error code means; ``what`` says what was asked, ``needs`` which rights that takes,
    ``said`` what the broker adds."""
    if code == NO_ERROR:
        return
    name = wire_errors.for_code(code).__name__ + (f" ({said})" if said else "")
    if code in UNREACHABLE:
        raise Unavailable(f"{what}: {name}")
    if code in FENCED:
        raise Fenced(f"{what}: {name}")
    if code in NOT_AUTHORIZED:
        raise NotAuthorized(f"{what}: {name}{to_grant(needs, NOT_AUTHORIZED[code])}")
    raise Refused(f"{what}: {name}")
