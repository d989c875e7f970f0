"""What can go wrong at Kafka, in the terms a decision needs: can it be tried again, and is the outcome known."""

from __future__ import annotations

from typing import TypeVar

from tidegate.kafka.model import TopicPartition


class KafkaFailure(Exception):
    """A request to Kafka failed. The message says what was asked, of whom, and what the broker answered."""


class Unavailable(KafkaFailure):
    """Nobody answered, or the coordinator is moving: nothing was done, try again later."""


class OutcomeUnknown(KafkaFailure):
    """A write was sent and its answer never came: look at the offsets before doing it again."""


class Fenced(KafkaFailure):
    """Another writer with the same transactional id has taken over: stop, and touch nothing more."""


class MemberForgotten(Unavailable):
    """The group's coordinator does not know our member any more: it was not heard of, or somebody left in its name."""


class NotAuthenticated(Unavailable):
    """The brokers refuse who we are, or we refuse who they are (TLS): look at the connection's credentials."""


class NotAuthorized(KafkaFailure):
    """The principal lacks a right; the message names operation and resource (Kafka's ``AclOperation``)."""


class GroupNotEmpty(KafkaFailure):
    """The group has members, so a plain offset commit from outside is refused (UNKNOWN_MEMBER_ID)."""


class UnknownPartitions(KafkaFailure):
    """Partitions that do not exist."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions = partitions
        names = ", ".join(str(p) for p in sorted(partitions)[:10])
        super().__init__(f"{len(partitions)} partition(s) do not exist: {names}")


class Refused(KafkaFailure):
    """The broker refused the request for a reason that trying again does not change."""


class GroupNotLive(Refused):
    """The group is no classic group with members, or no longer: there is no join that could be held."""


class CommitRefused(Refused):
    """The group's coordinator takes no offsets of a producer that is no member of the group."""


F = TypeVar("F", bound=KafkaFailure)


def one_more(failure: F) -> F:
    """The same failure for another thread. An exception belongs to the one that raises it: in it is where that was, and
    what was being handled there."""
    again = type(failure).__new__(type(failure), *failure.args)
    again.__dict__.update(failure.__dict__)
    return again
