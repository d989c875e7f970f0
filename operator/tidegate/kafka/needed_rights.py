"""Which rights a connection's principals need in Kafka: what docs/reference/permissions.md says, as values. Pure.

The operator and its jobs connect with the same credentials, those of the KafkaConnection; consumers with their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.kafka.names import is_pattern
from tidegate.kafka.offset_records import OFFSETS_TOPIC
from tidegate.kafka.rights import Resource, Right

OWN: Final = "tidegate."
"""Before a group's name: the marker group, and the transactional ids that write offsets of the group."""

FENCING: Final = "tidegate-control/"
PROBES: Final = "tidegate.probe/"


class Role(StrEnum):
    """Who connects to Kafka."""

    OPERATOR = "operator"
    JOB = "job"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Need:
    """A right and what it is for. ``unless``: where it can be left out, and what is lost then; empty: never."""

    right: Right
    why: str
    unless: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a connection is for: the control and ack topics, and the names or patterns of groups and topics.

    ``audit_topic``: where changes are recorded; empty: nowhere. ``dead_letters``: names or patterns of the topics to
    which records may be copied that a group skips.
    """

    control_topic: str
    acks_topic: str
    groups: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
    audit_topic: str = ""
    dead_letters: tuple[str, ...] = ()


def needs_of(role: Role, scope: Scope) -> tuple[Need, ...]:
    """In the order in which they are shown; no right is there twice."""
    match role:
        case Role.OPERATOR:
            found = [*_control(scope), *_resets(scope), *_dead_letters(scope), *_audit(scope), *_rollbacks(scope)]
            found += _optional()
        case Role.JOB:
            found = [
                Need(_topic("Read", scope.control_topic), "claims on groups, and holds"),
                Need(_topic("Write", scope.control_topic), "claims on groups, and holds"),
                Need(_topic("Read", scope.acks_topic), "acks"),
                *_resets(scope),
                *_recording(scope),
                *_rollbacks(scope),
            ]
        case Role.CONSUMER:
            found = [
                Need(_topic("Read", scope.control_topic), "holds"),
                Need(_topic("Write", scope.acks_topic), "acks"),
            ]
    return tuple({need.right: need for need in reversed(found)}.values())[::-1]


def needs_of_audit(groups: Collection[str] = ("*",), topics: Collection[str] = ("*",)) -> tuple[Need, ...]:
    """What ``tidegate audit`` reads, of groups and topics of these names or patterns; a probe needs more."""
    found = [
        Need(_named("Describe", Resource.GROUP, group), "listing and describing groups, their committed offsets")
        for group in groups
    ]
    found += [
        Need(_named("Describe", Resource.TOPIC, topic), "partitions, where logs begin and end, offsets of the topic")
        for topic in topics
    ]
    settings = "retention and limits of the brokers may stay unknown"
    found.append(Need(Right("DescribeConfigs", Resource.CLUSTER), "the brokers' settings", unless=settings))
    exact = "an estimate of when offsets expire is enough"
    found.append(Need(_topic("Read", OFFSETS_TOPIC), "when exactly offsets expire", unless=exact))
    return tuple(found)


def too_wide(scope: Scope) -> tuple[str, ...]:
    """Patterns of which Kafka's ACLs have only the beginning, so that more is granted than the connection allows."""
    letters = [topic for topic in scope.dead_letters if topic not in to_grant_by_name(scope)]
    patterns = (*scope.groups, *scope.topics, *letters)
    return tuple(p for p in patterns if is_pattern(p) and p.index("*") != len(p) - 1)


def to_grant_by_name(scope: Scope) -> tuple[str, ...]:
    """Patterns of dead-letter topics for which no right is listed: they have no beginning, so that it would be one to
    write every topic, Kafka's own among them."""
    return tuple(topic for topic in scope.dead_letters if topic.startswith("*"))


def _control(scope: Scope) -> Iterator[Need]:
    there = "the topic is there already"
    for topic, why in ((scope.control_topic, "holds, claims, records of runs"), (scope.acks_topic, "acks")):
        yield Need(_topic("Read", topic), why)
        yield Need(_topic("Write", topic), why if topic == scope.control_topic else "deleting acks of lost holds")
        yield Need(_topic("DescribeConfigs", topic), "checking its settings")
        yield Need(_topic("Create", topic), "creating it", unless=there)
    right = Right("Write", Resource.TRANSACTIONAL_ID, FENCING, prefixed=True)
    yield Need(right, "a new process of the operator fences an earlier one")


def _resets(scope: Scope) -> Iterator[Need]:
    for group in scope.groups:
        yield Need(_named("Read", Resource.GROUP, group), "describing it, its offsets, LeaveGroup for a member")
        yield Need(_named("Read", Resource.GROUP, f"{OWN}{group}"), "the marker of a run")
        yield Need(_named("Write", Resource.TRANSACTIONAL_ID, f"{OWN}{group}"), "committing offsets in one transaction")
        starts = Right("Write", Resource.TRANSACTIONAL_ID, f"{OWN}{group}.starts")
        if not is_pattern(group):
            yield Need(starts, "starts of new partitions, retention", unless="no policy has discovery or retention")
    for topic in scope.topics:
        yield Need(_named("Read", Resource.TOPIC, topic), "ends of its logs, offsets in a transaction, evidence")


def _dead_letters(scope: Scope) -> Iterator[Need]:
    for topic in scope.dead_letters:
        if topic in to_grant_by_name(scope):
            continue
        yield Need(_named("Write", Resource.TOPIC, topic), "copies of records that a group skips (deadLetter)")
        unseen = "you see to it yourself that the topic keeps the copies"
        yield Need(
            _named("DescribeConfigs", Resource.TOPIC, topic),
            "refusing copies that the topic's retention or compaction would remove",
            unless=unseen,
        )


def _recording(scope: Scope) -> Iterator[Need]:
    if scope.audit_topic:
        yield Need(_topic("Write", scope.audit_topic), "the record of each change")


def _audit(scope: Scope) -> Iterator[Need]:
    yield from _recording(scope)
    if scope.audit_topic:
        yield Need(_topic("DescribeConfigs", scope.audit_topic), "checking its settings")
        yield Need(_topic("Create", scope.audit_topic), "creating it", unless="the topic is there already")
        for group in scope.groups:
            if not is_pattern(group):
                right = Right("Write", Resource.TRANSACTIONAL_ID, f"{OWN}{group}.audit")
                yield Need(right, "recording what retention commits", unless="no policy has retention")


def _rollbacks(scope: Scope) -> Iterator[Need]:
    for group in scope.groups:
        yield Need(
            _named("Delete", Resource.GROUP, group),
            "rolling back partitions that had no committed offset",
            unless="such partitions may keep the target after a rollback",
        )


def _optional() -> Iterator[Need]:
    guess = "no policy has retention, or an estimate of when offsets expire is enough"
    yield Need(_topic("Read", OFFSETS_TOPIC), "when exactly offsets expire", unless=guess)
    yield Need(Right("DescribeConfigs", Resource.CLUSTER), "for how long brokers keep offsets", unless=guess)
    probed = "the brokers are Kafka 4.0 or later, or it may stay unknown what they allow"
    for operation, resource in (
        ("Read", Resource.GROUP),
        ("Delete", Resource.GROUP),
        ("Write", Resource.TRANSACTIONAL_ID),
    ):
        yield Need(Right(operation, resource, PROBES, prefixed=True), "finding out what brokers allow", unless=probed)


def checkable(needs: Collection[Need]) -> tuple[Right, ...]:
    """Those that can't be left out and whose names are known, so that a broker can be asked about them."""
    return tuple(need.right for need in needs if not need.unless and need.right.name != "*" and _is_concrete(need))


def _is_concrete(need: Need) -> bool:
    return not need.right.prefixed or need.right.name == FENCING


def _topic(operation: str, name: str) -> Right:
    return Right(operation, Resource.TOPIC, name)


def _named(operation: str, resource: Resource, pattern: str) -> Right:
    """On a name, or on what a pattern begins with: Kafka's ACLs know no other patterns."""
    if not is_pattern(pattern):
        return Right(operation, resource, pattern)
    begin = pattern[: pattern.index("*")]
    return Right(operation, resource, begin, prefixed=True) if begin else Right(operation, resource, "*")
