"""What only listings show, of Kafka in memory: `tests/contract/test_group_details.py` holds it to a real broker."""

from __future__ import annotations

from collections.abc import Mapping

from support.fake_kafka import FakeKafka
from tidegate.kafka.model import Broker, GroupType, ListedGroup, TopicPartition


class FakeDetails:
    """Implements ``tidegate.cli.describing.GroupDetails``."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def listing(self) -> tuple[ListedGroup, ...]:
        rows = []
        for group_id, group in self._kafka.groups(self._kafka.group_ids()).items():
            if group.type not in (GroupType.STREAMS, GroupType.SHARE):
                is_simple = group.type is GroupType.SIMPLE
                kind = GroupType.CLASSIC if is_simple else group.type
                rows.append(ListedGroup(group_id, "" if is_simple else "consumer", kind.value, group.state.value))
        return tuple(rows)

    def coordinator(self, group_id: str) -> Broker:  # noqa: ARG002
        return self._kafka.cluster().brokers[0]

    def leader_epochs(self, group_id: str) -> Mapping[TopicPartition, int]:  # noqa: ARG002
        """None: nobody here commits one."""
        return {}

    def target_assignments(self, group_id: str) -> Mapping[str, frozenset[TopicPartition]]:
        return dict(self._kafka._group(group_id).targets)
