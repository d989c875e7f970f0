"""What was seen of a group, by Kafka and by Kubernetes, and what was not. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.control.gates import Gates
    from tidegate.kafka.model import Group, LogBounds, Offsets, TopicPartition
    from tidegate.resources.connection import ConnectionStatus, KafkaConnectionSpec
    from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
    from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseStatus
    from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be looked at, and why: both for a person."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class KafkaSeen:
    """A group as the brokers and the control topic tell it. ``None``: that could not be read, as ``unseen`` says.

    ``bounds``: of the partitions that exist, as far as they could be read; ``gone``: those that do not exist any more.
    ``pending``: where an open transaction is about to commit an offset.
    """

    control_topic: str
    cluster_id: str | None = None
    group: Group | None = None
    committed: Offsets | None = None
    bounds: Mapping[TopicPartition, LogBounds] = field(default_factory=dict)
    gone: frozenset[TopicPartition] = frozenset()
    pending: frozenset[TopicPartition] | None = None
    gates: Gates | None = None
    has_control_topics: bool = False
    unreadable: int = 0
    """Records of the control topics that are not of the contract."""
    unseen: tuple[Unseen, ...] = ()

    @property
    def is_reached(self) -> bool:
        """Whether anything was seen."""
        return self.cluster_id is not None


Named = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Common:
    """What every resource has. ``problem``: why its spec can't be read by this version; empty where it can."""

    namespace: str
    name: str
    uid: str
    connection: Named
    created_at: datetime | None
    is_deleting: bool
    problem: str

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PauseSeen:
    common: Common
    spec: ConsumerGroupPauseSpec | None
    status: PauseStatus | None
    """``None``: of another version, so that it can't be read."""


@dataclass(frozen=True, slots=True)
class ResetSeen:
    """``approvals``: what became of each OffsetResetApproval of it, for a person."""

    common: Common
    spec: OffsetResetSpec | None
    status: OffsetResetStatus | None
    approvals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySeen:
    common: Common
    spec: OffsetResetPolicySpec | None
    status: PolicyStatus | None


@dataclass(frozen=True, slots=True)
class ConnectionSeen:
    common: Common
    spec: KafkaConnectionSpec | None
    status: ConnectionStatus | None


@dataclass(frozen=True, slots=True)
class KubeSeen:
    """The resources that are about a group. ``where``: what was looked at, for a person, such as ``namespace shop``.

    ``of_others``: how many name the group and are left out, because their KafkaConnection is to another cluster.
    ``listed``: how many kinds could be listed. ``complete``: all of them, so that what is not here is not there.
    ``context``: of the kubeconfig, where one was given.
    """

    where: str
    pauses: tuple[PauseSeen, ...] = ()
    resets: tuple[ResetSeen, ...] = ()
    policies: tuple[PolicySeen, ...] = ()
    connections: Mapping[Named, ConnectionSeen] = field(default_factory=dict)
    of_others: int = 0
    listed: int = 0
    unseen: tuple[Unseen, ...] = ()
    context: str | None = None

    @property
    def complete(self) -> bool:
        return not self.unseen


@dataclass(frozen=True, slots=True)
class Seen:
    """Both. ``None``: it was not asked, as ``unseen`` says."""

    group_id: str
    at: datetime
    kafka: KafkaSeen | None
    kube: KubeSeen | None
    unseen: tuple[Unseen, ...] = ()

    @property
    def all_unseen(self) -> tuple[Unseen, ...]:
        of_kafka = self.kafka.unseen if self.kafka is not None else ()
        of_kube = self.kube.unseen if self.kube is not None else ()
        return (*self.unseen, *of_kafka, *of_kube)


UNREADABLE: Final = "its status was written by another version of Tidegate, and can't be read"

MOST_RESOURCES: Final = 100
"""Of a kind that are told of one by one."""
