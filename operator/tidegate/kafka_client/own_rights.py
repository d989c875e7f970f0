"""Which of some rights the connection's own principal lacks, by what brokers tell it of itself (KIP-430).

Of topics and groups they list what may be done; of transactional ids they only refuse to find the coordinator where not
even Describe is allowed, which Write implies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.metadata import CoordinatorType, MetadataRequest

from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.codes import NO_ERROR, check
from tidegate.kafka_client.wire import Wire

_BITS: Final = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Describe": 8, "DescribeConfigs": 10}
"""``org.apache.kafka.common.acl.AclOperation``, by code."""

_TOPIC_REFUSED: Final = 29
_GROUP_REFUSED: Final = 30
_ANY: Final = "any"
"""Behind a prefix: the name of a transactional id that nobody has."""


def lacking(wire: Wire, rights: Collection[Right]) -> tuple[Right, ...]:
    """Those that are known to be missing, in their order. Raises ``KafkaFailure`` where a broker does not tell.

    Nothing is said of topics that are not there: brokers do not tell who may create them.
    """
    by_resource: defaultdict[Resource, list[Right]] = defaultdict(list)
    for right in rights:
        by_resource[right.resource].append(right)
    missing = {
        *_of_topics(wire, by_resource[Resource.TOPIC]),
        *_of_groups(wire, by_resource[Resource.GROUP]),
        *_of_transactional_ids(wire, by_resource[Resource.TRANSACTIONAL_ID]),
    }
    return tuple(right for right in rights if right in missing)


def _of_topics(wire: Wire, rights: Collection[Right]) -> Iterator[Right]:
    names = sorted({right.name for right in rights})
    if not names:
        return
    topic_class = MetadataRequest.MetadataRequestTopic
    answer = wire.ask_any(
        lambda: MetadataRequest(
            topics=[topic_class(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
            min_version=10,
            max_version=12,
        ),
        what="ask which rights there are on topics",
    )
    found = {row.name: row for row in answer.topics}
    for right in rights:
        row = found.get(right.name)
        if row is None:
            continue
        if row.error_code == _TOPIC_REFUSED or (row.error_code == NO_ERROR and _lacks(row, right)):
            yield right


def _of_groups(wire: Wire, rights: Collection[Right]) -> Iterator[Right]:
    names = {right.name for right in rights}
    refused = wire.refused(names)
    rows = wire.of_coordinators(
        sorted(names - refused),
        lambda batch: DescribeGroupsRequest(groups=batch, include_authorized_operations=True, max_version=5),
        what="ask which rights there are on groups",
    )
    for right in rights:
        row = rows.get(right.name)
        if row is None or row.error_code == _GROUP_REFUSED:
            yield right
            continue
        check(row.error_code, f"ask which rights there are on group {right.name}")
        if _lacks(row, right):
            yield right


def _of_transactional_ids(wire: Wire, rights: Collection[Right]) -> Iterator[Right]:
    names = {right: f"{right.name}{_ANY}" if right.prefixed else right.name for right in rights}
    refused = wire.refused(names.values(), CoordinatorType.TRANSACTION)
    yield from (right for right in rights if names[right] in refused)


def _lacks(row: Any, right: Right) -> bool:
    """Not where the broker does not tell."""
    return row.authorized_operations is not None and _BITS[right.operation] not in row.authorized_operations
