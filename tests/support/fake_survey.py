"""Looking at a whole cluster that is Kafka in memory: `tests/contract/test_survey.py` holds it to a real broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from support.fake_kafka import FakeKafka
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import GroupType, ListedGroup, LogBounds, Subscription, TopicPartition

SETTINGS: Final = {
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "group.max.size": "2147483647",
}


class FakeSurvey:
    """Implements ``tidegate.kafka.survey.Survey``."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self.settings: Sequence[Mapping[str, str]] = [SETTINGS]
        self.also_listed: list[ListedGroup] = []
        """Groups of kinds that the fake does not have."""

    def listed(self) -> Collection[ListedGroup]:
        rows = list(self.also_listed)
        # By the fake's own books, so that its ``calls`` are those of whoever is tested.
        for group_id, group in ((group_id, self._kafka._described(group_id)) for group_id in self._kafka._groups):
            is_simple = group.type is GroupType.SIMPLE
            kind = GroupType.CLASSIC if is_simple else group.type
            rows.append(ListedGroup(group_id, "" if is_simple else "consumer", kind.value, group.state.value))
        return rows

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        found: dict[TopicPartition, LogBounds] = {}
        for partition in partitions:
            try:
                found |= self._kafka.log_bounds([partition])
            except KafkaFailure:
                continue
        return found

    def subscriptions(self, group_ids: Collection[str]) -> Mapping[str, Mapping[str, Subscription]]:
        told = {}
        for group_id in group_ids:
            versions = self._kafka.membership.subscription_versions(group_id)
            topics = self._kafka._subscribed(self._kafka._group(group_id))
            told[group_id] = {member: Subscription(topics, version=number) for member, number in versions.items()}
        return told

    def broker_settings(self) -> Sequence[Mapping[str, str]]:
        return self.settings
