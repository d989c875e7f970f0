"""What the records of the control and ack topics say: their keys and values, as ``agents/contract`` means them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidegate import versions
from tidegate.kafka.model import TopicPartition

LONGEST_LEASE_MS: Final = 300_000
"""Of a claim: nobody blocks a group for longer by one record."""

CLI_HOLDER: Final = "cli"
"""Whose holds are set by hand (``agents/contract``)."""

MOST_PARTITIONS: Final = 1_000_000
"""Of a topic, beyond which a ``partition`` record is taken for a mistake: agents keep a place for each number below."""


@dataclass(frozen=True, slots=True, order=True)
class _HolderKey:
    """What one holder has of one partition of one group."""

    group: str
    topic: str
    partition: int
    holder: str

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class HoldKey(_HolderKey):
    """One holder's hold on one partition of one group."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why it is held, for a person, and how long what was handed out may take to finish (milliseconds).

    ``connection``: the uid of the KafkaConnection by way of which an operator has it held, which tells whose it is;
    empty for everybody else's. ``version``: of the record (``tidegate.versions``); it holds, whatever that is.
    """

    reason: str = ""
    drain_timeout_ms: int = 30_000
    connection: str = ""
    version: int = field(default=1, compare=False)

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of Tidegate has written it, so that it is neither rewritten nor swept."""
        return self.version > versions.HOLD.version


class LimitKey(_HolderKey):
    """One holder's limit on one partition of one group."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """Deliver the records before this offset, then close the gate. ``reason``: for a person; ``drain_timeout_ms``: how
    long what was handed out may take to finish. ``connection`` and ``version``: as of a ``Hold``."""

    offset: int
    reason: str = ""
    drain_timeout_ms: int = 30_000
    connection: str = ""
    version: int = field(default=1, compare=False)

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of Tidegate has written it, so that it is neither rewritten nor swept."""
        return self.version > versions.LIMIT.version


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """A partition that was discovered; ``topic_id`` (KIP-516) tells a recreated topic from the one before."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """Bounds of the partition's creation by the broker's clock (epoch milliseconds), or: it was there at the start."""

    seen_ms: int | None = None
    seen_absent_ms: int | None = None
    initial: bool = False


@dataclass(frozen=True, slots=True)
class ClockKey:
    """The record's LogAppendTime is the broker's time."""


@dataclass(frozen=True, slots=True, order=True)
class ClaimKey:
    """One claim on a group. ``claim``: any id that no other claim has, or has had."""

    group: str
    claim: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A run wants a group for itself, and is alive. ``tidegate.control.claims`` says who has it.

    ``run``: whose it is, the same for every writer of a run. ``reason``: for a person. ``lease_ms``: how long it is
    good for after its newest record. ``epoch``, ``renews_ms``: of a record that renews another, the offset of the
    claim's first record, and the LogAppendTime of the one that it renews (epoch milliseconds).
    """

    run: str
    reason: str
    lease_ms: int
    epoch: int | None = None
    renews_ms: int | None = None


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """A reset that a policy asks for by an id: ``metadata.namespace`` and ``metadata.name`` of the policy, and the id.

    Names, never Kubernetes uids: a policy that is deleted and restored, or applied in another Kubernetes cluster, has
    other uids, and must not execute an id again. So one id of policies that have one name in two Kubernetes clusters,
    and use one control topic, is one reset, and the first to begin executes it.

    With an empty ``policy``: the ``OffsetReset`` of the name ``id``, whoever asked for it, once it has ended.
    """

    namespace: str
    policy: str
    id: str


@dataclass(frozen=True, slots=True)
class Run:
    """That this reset was executed. Times are epoch milliseconds by the writer's clock.

    ``uid``: the run's, chosen before it begins and the same for every process of the run, which knows its own record by
    it. ``outcome``, ``finished_ms``, ``digest``: once it is over, of how it ended; ``digest`` names
    what it ended with, as the writer of the run makes it.

    Of an ``OffsetReset``, ``connection`` is the uid of the KafkaConnection that it went through, which tells whose
    record it is, and ``deleted_ms`` when its operator has found that it is not there any more. ``version``: of the
    record (``tidegate.versions``); it was executed, whatever that is.
    """

    uid: str
    started_ms: int
    outcome: Outcome | None = None
    finished_ms: int | None = None
    digest: str = ""
    connection: str = ""
    deleted_ms: int | None = None
    version: int = 1

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of Tidegate has written it, or the run's document that it vouches for, so that
        it is neither rewritten nor removed."""
        of_document = versions.digest_version(self.digest)
        return self.version > versions.RUN_RECORD.version or of_document > versions.RUN.version


@dataclass(frozen=True, slots=True, order=True)
class AckKey:
    """One partition of one group."""

    group: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Ack:
    """The owner's word. ``offset``: the next record it would deliver; −1 when it has none yet.

    ``member``: its member id; empty for a consumer that assigned the partition itself.
    """

    epoch: int
    offset: int
    member: str


Key = HoldKey | LimitKey | PartitionKey | ClockKey | ClaimKey | RunKey | AckKey

Value = Hold | Limit | PartitionSeen | Claim | Run | Ack | None
