"""Everything that is asked of one Kafka cluster, in one port.

It stands above the ports that it is made of, those of Kafka's groups and topics and those of the control topic.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tidegate.audit.ports import AuditLog
from tidegate.control.ports import ControlTopics
from tidegate.kafka.model import Keeping
from tidegate.kafka.offset_retention import OffsetRetention
from tidegate.kafka.ports import CommittedReader, Membership, OffsetWriter, TopicWatch
from tidegate.kafka.rights import Right


class Kafka(CommittedReader, Protocol):
    """A connection to a cluster with all it offers."""

    @property
    def membership(self) -> Membership: ...

    @property
    def control(self) -> ControlTopics: ...

    @property
    def retention(self) -> OffsetRetention: ...

    @property
    def audit(self) -> AuditLog: ...

    def group_ids(self) -> frozenset[str]:
        """Groups of consumers that the principal may see, live or with offsets only; share groups are none of them."""
        ...

    def lacking(self, rights: Collection[Right]) -> Collection[Right]:
        """Those of the rights that brokers say the principal does not have, in their order; of topics that are not
        there nothing is said. Raises ``KafkaFailure`` where a broker does not tell."""
        ...

    def keeping(self, topic: str) -> Keeping | None:
        """For how long a topic keeps its records; ``None`` where the principal may not read its settings
        (DescribeConfigs)."""
        ...

    def topic_watch(self) -> TopicWatch:
        """A new one, which whoever asked for it closes."""
        ...

    def writer(self, group_id: str, *, transaction_timeout_s: float, purpose: str = "") -> OffsetWriter:
        """Writers of one group and purpose fence one another; those of different purposes do not."""
        ...

    def close(self) -> None: ...
