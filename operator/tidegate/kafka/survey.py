"""What looking at a whole cluster needs of it, beyond what everybody else does: many groups in few requests, and as
much of an answer as there is.

All calls only look, block, are bounded in time and thread-safe. They raise subclasses of
``tidegate.kafka.errors.KafkaFailure`` only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from tidegate.kafka.model import ListedGroup, LogBounds, Subscription, TopicPartition


class Survey(Protocol):
    def listed(self) -> Collection[ListedGroup]:
        """Every group that the principal may see, whatever uses it: Connect's workers, share and streams groups too."""
        ...

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        """Of those partitions whose leaders tell; absent are those that are gone, have no leader, or may not be
        described."""
        ...

    def subscriptions(self, group_ids: Collection[str]) -> Mapping[str, Mapping[str, Subscription]]:
        """What the members of classic groups have said as they joined, by group and member id. A group that is
        rebalancing, has no members or is of another kind tells nothing."""
        ...

    def broker_settings(self) -> Sequence[Mapping[str, str]]:
        """The settings of each broker. Raises ``NotAuthorized`` without DescribeConfigs on the cluster."""
        ...
