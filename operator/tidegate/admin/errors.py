"""Why a partition was not paused. What Kafka itself answers comes as ``tidegate.kafka.errors.KafkaFailure``."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.control.standing import Flow, PartitionStanding
from tidegate.kafka.model import Member, TopicPartition


class PauseFailure(Exception):
    """A partition is not paused. The message says which, why, and what to do; no full stop."""


class UnknownPartition(PauseFailure):
    """There is no such partition. Nothing was held."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        super().__init__(f"partition {partition} does not exist")


class UnsupportedGroup(PauseFailure):
    """Streams and share groups have no gates. Nothing was held."""


class ControlTopicUnfit(PauseFailure):
    """The control topic or the ack topic is not as it has to be. Nothing was held."""

    def __init__(self, complaints: tuple[str, ...]) -> None:
        self.complaints = complaints
        super().__init__("; ".join(complaints))


class UnmanagedOwner(PauseFailure):
    """Its owner runs no agent, so nobody can make it stop. The hold was taken back."""

    def __init__(self, partition: TopicPartition, owner: Member) -> None:
        self.partition = partition
        self.owner = owner
        super().__init__(
            f"the owner of {partition} runs no agent: member {owner.member_id}, client {owner.client_id}, "
            f"host {owner.host}"
        )


class NotConfirmed(PauseFailure):
    """Nobody has confirmed it in time. **The hold stays**: the partition closes as soon as its owner gets to it."""

    def __init__(self, partition: TopicPartition, standing: PartitionStanding | None, why: str = "") -> None:
        self.partition = partition
        self.standing = standing
        if not why:
            match standing.flow if standing is not None else None:
                case Flow.UNDECIDED:
                    why = "the group is rebalancing"
                case Flow.UNMANAGED:
                    why = "its owner has not been heard"
                case _:
                    why = "its owner has not finished what it was given"
        super().__init__(f"{partition} is not paused yet: {why}. The hold stays until it is resumed")


class HoldTakenBack(PauseFailure):
    """Somebody else resumed the partition meanwhile."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        super().__init__(f"{partition} was resumed by somebody else meanwhile")


class PartitionsFailed(PauseFailure):
    """What ``all()`` raises: some partitions failed. ``failures`` has each one's own error."""

    def __init__(self, what: str, failures: Mapping[TopicPartition, BaseException]) -> None:
        self.failures = dict(failures)
        names = ", ".join(map(str, sorted(failures)))
        super().__init__(f"Failed {what} the following partitions: [{names}]: {next(iter(failures.values()))}")
