"""One of a mirror's two clusters, through raw requests on connections of the mirror's own
(``tidegate.mirror.ports.MirrorCluster``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, IncrementalAlterConfigsRequest

from tidegate.kafka.acls import writers_of
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import GroupNotEmpty, Unavailable
from tidegate.kafka.model import GroupType, LogBounds, Topic, TopicPartition
from tidegate.kafka.rights import on_group, on_topics
from tidegate.kafka_client.cluster_requests import describe_topics, topic_settings, topics_metadata
from tidegate.kafka_client.codes import HAS_MEMBERS, NO_ERROR, UNKNOWN_PARTITION, check
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST, LogOffsets
from tidegate.kafka_client.metadata import read_topics, topics_start
from tidegate.kafka_client.mirror_clients import MirrorSource, MirrorTarget, new_producer_id
from tidegate.kafka_client.offset_requests import offset_commit_request, stable_commits_of
from tidegate.kafka_client.topic_acls import write_acls
from tidegate.kafka_client.topic_ids import topic_id_of_bytes, uuid_of
from tidegate.kafka_client.transaction import first_code
from tidegate.kafka_client.wire import Wire
from tidegate.mirror.ports import UNDECIDED, GroupOffset, GroupOffsets

_TOPIC: Final = 2
"""``ConfigResource.Type``"""
_SET: Final = 0
"""``AlterConfigOp.OpType``"""
_BROKERS_CHOICE: Final = -1
"""The replication factor that brokers give topics (KIP-464)."""
_TOPIC_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_NOT_CONTROLLER: Final = 41
_READ_BYTES: Final = 1 << 20
"""At once, of one partition; each of a mirror's threads holds it several times over."""
_AT_ONCE: Final = 500
"""Topics whose settings are asked for in one request."""


class KafkaMirrorCluster:
    """Connects on first use."""

    def __init__(self, connection: Connection, cluster_id: str = "") -> None:
        """``cluster_id``: nothing is read of or done to another cluster that the addresses lead to by now; empty: any
        is taken."""
        self._cluster_id = cluster_id
        self._wire = Wire(connection)
        self._log_offsets = LogOffsets(self._wire)

    def close(self) -> None:
        self._wire.close()

    # --- looking ------------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        return str(describe_topics(self._wire, [], what="ask for the cluster's id").cluster_id or "")

    def topics(self) -> Mapping[str, Topic]:
        self._check_cluster()
        answer = topics_metadata(self._wire, None)
        return read_topics(answer, topics_start(answer))

    def topic(self, name: str) -> Topic | None:
        self._check_cluster()
        what = f"look for topic {name}"
        [found] = describe_topics(self._wire, [name], what=what).topics
        if found.error_code in UNKNOWN_PARTITION:
            return None
        # Brokers don't say UNKNOWN_TOPIC_OR_PARTITION of a topic that is asked for by name and may not be seen.
        check(found.error_code, what, *on_topics("Describe", [name]))
        return Topic(name, topic_id_of_bytes(found.topic_id.bytes), len(found.partitions))

    def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        names, found = sorted(topics), dict[str, Mapping[str, str]]()
        for start in range(0, len(names), _AT_ONCE):
            asked = topic_settings(self._wire, names[start : start + _AT_ONCE], what="read the settings of topics")
            for name, (code, settings) in asked.items():
                if code not in UNKNOWN_PARTITION:
                    check(code, f"read the settings of topic {name}", *on_topics("DescribeConfigs", [name]))
                    found[name] = settings
        return found

    def bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        earliest = self._log_offsets.at(dict.fromkeys(partitions, EARLIEST), "read the start of the logs")
        asked, what = dict.fromkeys(partitions, LATEST), "read the end of the logs"
        latest = self._log_offsets.at(asked, what, read_committed=stable)
        return {p: LogBounds(min(earliest[p], latest[p]), latest[p]) for p in partitions}

    def told_bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        earliest = self._log_offsets.told(dict.fromkeys(partitions, EARLIEST), "read the start of the logs")
        asked, what = dict.fromkeys(earliest, LATEST), "read the end of the logs"
        latest = self._log_offsets.told(asked, what, read_committed=stable)
        return {p: LogBounds(min(earliest[p], end), end) for p, end in latest.items()}

    def source(self, partition: TopicPartition, topic_id: str) -> MirrorSource:
        return MirrorSource(self._wire, partition, most_bytes=_READ_BYTES, wait_ms=0, topic_id=uuid_of(topic_id))

    def writers(self, topics: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        self._check_cluster()
        acls = write_acls(self._wire)
        return None if acls is None else {topic: writers_of(topic, acls) for topic in topics}

    def group_ids(self) -> frozenset[str]:
        return frozenset(
            row.group_id
            for row in list_groups(self._wire)
            if row.type != GroupType.SHARE and row.protocol_type in ("", "consumer")
        )

    def committed(self, group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        if not group_ids:
            return {}
        found: dict[str, GroupOffsets] = {}
        for group_id, (commits, pending) in stable_commits_of(self._wire, group_ids).items():
            undecided = dict.fromkeys(pending, GroupOffset(UNDECIDED))
            found[group_id] = {p: GroupOffset(one.offset, one.metadata) for p, one in commits.items()} | undecided
        return found

    def _check_cluster(self) -> None:
        if self._cluster_id and (found := self.cluster_id()) != self._cluster_id:
            self._wire.close()  # the next call finds out where the addresses lead then
            raise Unavailable(f"the addresses lead to cluster {found} and not to {self._cluster_id}")

    # --- the target ---------------------------------------------------------------------------------------------------

    def target(self, partition: TopicPartition) -> MirrorTarget:
        return MirrorTarget(self._wire, partition, cluster_id=self._cluster_id)

    def new_producer_id(self) -> int:
        return new_producer_id(self._wire)

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        topic_class = CreateTopicsRequest.CreatableTopic
        given = [topic_class.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = topic_class(
            name=name,
            num_partitions=partitions,
            replication_factor=_BROKERS_CHOICE,
            assignments=[],
            configs=given,
        )
        what = f"create topic {name}"
        [row] = self._of_controller(
            lambda: CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms), lambda told: told.topics, what
        )
        if row.error_code != _TOPIC_EXISTS:
            check(row.error_code, what, *on_topics("Create", [name]), said=row.error_message)

    def add_partitions(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        what = f"give topic {name} {partitions} partitions"
        [row] = self._of_controller(
            lambda: CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=False),
            lambda told: told.results,
            what,
        )
        if row.error_code != _INVALID_PARTITIONS:  # it has as many by now
            check(row.error_code, what, *on_topics("Alter", [name]), said=row.error_message)

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
        rows = [
            resource_class.AlterableConfig(name=key, config_operation=_SET, value=value)
            for key, value in settings.items()
        ]
        resource = resource_class(resource_type=_TOPIC, resource_name=name, configs=rows)
        what = f"set {', '.join(settings)} of topic {name}"
        [row] = self._of_controller(
            lambda: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            lambda told: told.responses,
            what,
        )
        check(row.error_code, what, *on_topics("AlterConfigs", [name]), said=row.error_message)

    def commit(self, group_id: str, offsets: GroupOffsets) -> None:
        what, needs = f"commit {len(offsets)} offset(s) of group {group_id}", on_group("Read", group_id)
        self._check_cluster()
        rows = {p: (one.offset, one.metadata) for p, one in offsets.items()}
        [answer] = self._wire.exchange(
            group_id,
            lambda: offset_commit_request(group_id, rows),
            code_of=first_code,
            what=what,
            needs=needs,
            once=True,
        )
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code in HAS_MEMBERS:
                    raise GroupNotEmpty(f"{what}: it has members")
                if row.error_code in UNKNOWN_PARTITION:
                    raise Unavailable(f"{what}: {topic.name}-{row.partition_index} is not there")
                check(row.error_code, what, needs, *on_topics("Read", [topic.name]))

    @property
    def _timeout_ms(self) -> int:
        return int(self._wire.timeout_s * 1000)

    def _of_controller(self, build: Callable[[], Any], rows: Callable[[Any], Any], what: str) -> list[Any]:
        """The rows of an answer. With KRaft any broker passes it on, and each calls another one the controller."""
        self._check_cluster()
        deadline = self._wire.deadline()

        def attempt(_: bool) -> list[Any]:
            controller = describe_topics(self._wire, [], what=what, deadline=deadline).controller_id
            found = list(rows(self._wire.ask(controller, build(), what=what, timeout_s=self._wire.part_of(deadline))))
            for row in found:
                check(row.error_code if row.error_code == _NOT_CONTROLLER else NO_ERROR, what)
            return found

        return self._wire.patiently(attempt, deadline)
