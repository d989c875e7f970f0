"""The few Kafka requests that confluent_kafka cannot send, by kafka-python's request classes (TLS and SASL included).

JoinGroup and LeaveGroup without being a member (KIP-394, KIP-345), OffsetFetch of many groups at once (KIP-709),
OffsetCommit with a retention (KIP-211), OffsetDelete (KIP-496), the raw subscription of members, what
``kafka-consumer-groups`` shows beyond that, and Metadata that is not decoded. Nothing else belongs here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka import errors as wire_errors
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import (
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest, MetadataResponse

from tidegate.kafka.client_config import BadConnection, kafka_python_config
from tidegate.kafka.codes import NOT_AUTHORIZED, UNREACHABLE
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, NotAuthorized, Refused, Unavailable
from tidegate.kafka.metadata import NEWEST_VERSION, OLDEST_VERSION
from tidegate.kafka.model import Committed, TopicPartition
from tidegate.kafka.rights import Right, on_group, on_topics, to_grant

# At DEBUG kafka-python prints its whole configuration, passwords included.
logging.getLogger("kafka").setLevel(logging.ERROR)

NO_ERROR: Final = 0
UNSTABLE_OFFSET_COMMIT: Final = 88
MEMBER_ID_REQUIRED: Final = 79
UNKNOWN_MEMBER_ID: Final = 25
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
GROUP_ID_NOT_FOUND: Final = 69

RETENTION_VERSIONS: Final = range(2, 5)
"""Those of OffsetCommit that carry ``retention_time_ms``; Kafka 4.0 has taken 0 and 1 away."""

_OFFSET_COMMIT: Final = 8
"""Its API key."""

_NOT_THERE_NOW: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A row of ListGroups. ``type`` is in small letters; ``type`` and ``state`` are empty from old brokers."""

    group_id: str
    protocol_type: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class _Undecoded:
    """Stands for the class of an answer and for the answer: it keeps the bytes behind the header as they are."""

    version: int
    data: bytes = field(default=b"", repr=False)
    throttle_time_ms: int = 0

    def parse_header(self, buffer: Any) -> Any:
        return MetadataResponse[self.version].parse_header(buffer)

    def decode(self, buffer: Any) -> _Undecoded:
        data = buffer.read()
        return _Undecoded(self.version, data, int.from_bytes(data[:4], "big", signed=True))


class _UndecodedHeader(RequestHeader, init=False):  # type: ignore[misc, call-arg]
    def get_response_class(self) -> _Undecoded:
        return _Undecoded(self.request_api_version)


class _UndecodedMetadataRequest(MetadataRequest, init=False):  # type: ignore[misc, call-arg]
    """A Metadata request whose answer is an ``_Undecoded``."""

    header_class = _UndecodedHeader


class _Admin(KafkaAdminClient):  # type: ignore[misc]
    """kafka-python's admin client, opened to requests it has no method for."""

    def call(self, node_id: int | None, *requests: Any) -> list[Any]:
        """Send requests to one broker, back to back on one connection, and wait for all their answers."""

        async def exchange() -> list[Any]:
            sent = [self._manager.send(request, node_id=node_id) for request in requests]
            return [await answer for answer in sent]

        answers: list[Any] = self._manager.run(exchange)
        return answers

    def ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        """Send to one broker, and wait no longer than that also where it cannot be connected to."""

        async def exchange() -> Any:
            sent = self._manager.send(request, node_id=node_id, request_timeout_ms=timeout_s * 1000)
            return await self._manager.wait_for(sent, timeout_s * 1000)

        return self._manager.run(exchange)

    def start(self, node_id: int, request: Any) -> None:
        """Send without waiting for the answer."""

        async def exchange() -> None:
            self._manager.send(request, node_id=node_id)

        self._manager.run(exchange)

    def coordinators(self, group_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Ask for the groups' coordinators: (error code, node id) by group, never from a cache."""

        async def exchange() -> dict[str, tuple[int, int]]:
            cluster = self._manager.cluster
            request = FindCoordinatorRequest(
                key_type=CoordinatorType.GROUP.value, coordinator_keys=list(group_ids), min_version=4
            )
            answer = await self._manager.send(request)
            found: dict[str, tuple[int, int]] = {}
            for row in answer.coordinators:
                if row.error_code == NO_ERROR:
                    cluster.add_coordinator(row, CoordinatorType.GROUP, row.key, synthesize_node_id=False)
                found[row.key] = (row.error_code, row.node_id)
            return found

        answers: dict[str, tuple[int, int]] = self._manager.run(exchange)
        return answers


def check(code: int, what: str, *needs: Right) -> None:
    """Raise the failure that an error code means; ``what`` says what was asked, ``needs`` which rights that takes."""
    if code == NO_ERROR:
        return
    name = wire_errors.for_code(code).__name__
    if code in UNREACHABLE:
        raise Unavailable(f"{what}: {name}")
    if code in NOT_AUTHORIZED:
        raise NotAuthorized(f"{what}: {name}{to_grant(needs, NOT_AUTHORIZED[code])}")
    raise Refused(f"{what}: {name}")


class Wire:
    """Raw group requests to whichever broker coordinates the group. Thread-safe; connects on first use."""

    _RETRY_PAUSE_S = 0.1

    def __init__(self, connection: Connection, *, timeout_s: float = 15.0) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._admin: _Admin | None = None
        self._coordinators: dict[str, int] = {}

    def close(self) -> None:
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _client(self) -> _Admin:
        with self._lock:
            if self._admin is None:
                try:
                    self._admin = _Admin(**kafka_python_config(self._connection))
                except BadConnection as error:
                    raise NotAuthenticated(str(error)) from error
                except (wire_errors.KafkaError, OSError) as error:
                    raise Unavailable(f"connect to {self._connection.bootstrap_servers}: {error!r}") from error
            return self._admin

    def _find(self, group_ids: Collection[str], *, fresh: bool = False) -> dict[str, int]:
        unknown = [g for g in group_ids if fresh or g not in self._coordinators]
        if unknown:
            for group_id, (code, node_id) in self._client().coordinators(unknown).items():
                check(code, f"find the coordinator of group {group_id}", on_group("Describe", group_id))
                self._coordinators[group_id] = node_id
        return {g: self._coordinators[g] for g in group_ids}

    def exchange(
        self,
        group_id: str,
        *requests: Callable[[], Any],
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        what: str,
    ) -> list[Any]:
        """Send requests to the group's coordinator, back to back, following it when it moves; the answers.

        They may be sent again, so they have to be idempotent. Raises ``Unavailable`` when none came within the timeout.
        """
        self._client()  # connecting has its own patience
        deadline = time.monotonic() + self._timeout_s
        fresh = False
        while True:
            try:
                node = self._find([group_id], fresh=fresh)[group_id]
                answers = self._client().call(node, *(build() for build in requests))
                moved = next((c for c in map(code_of, answers) if c in _NOT_THERE_NOW), None)
                if moved is None:
                    return answers
                failure: KafkaFailure = Unavailable(f"{what}: {wire_errors.for_code(moved).__name__}")
            except Unavailable as error:
                failure = error
            except (wire_errors.KafkaError, OSError) as error:
                failure = Unavailable(f"{what}: {error!r}")
            if time.monotonic() > deadline:
                raise failure
            time.sleep(self._RETRY_PAUSE_S)
            fresh = True

    # --- topics -------------------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """The node ids of the brokers, as far as known. Raises ``Unavailable`` when there are none."""
        nodes = [broker.node_id for broker in self._client()._manager.cluster.brokers()]
        if not nodes:
            raise Unavailable(f"look for brokers at {self._connection.bootstrap_servers}: none is known")
        return nodes

    def metadata(self, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes:
        """What one broker answers to Metadata for topics, ``None`` for all: undecoded, see ``tidegate.kafka.metadata``.

        Raises ``Unavailable`` when it does not answer in time, ``Refused`` when it does not tell topic ids.
        """
        what = f"look at the topics at broker {node_id}"
        topic_class = MetadataRequest.MetadataRequestTopic
        request = _UndecodedMetadataRequest(
            topics=None if topics is None else [topic_class(name=name) for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
            min_version=OLDEST_VERSION,
            max_version=NEWEST_VERSION,
        )
        try:
            answer: _Undecoded = self._client().ask(node_id, request, timeout_s)
        except wire_errors.SaslAuthenticationFailedError as error:
            raise NotAuthenticated(f"{what}: {error!r}") from error
        except wire_errors.IncompatibleBrokerVersion as error:
            raise Refused(f"{what}: it does not tell topic ids, as Kafka does from 2.8 on") from error
        except (wire_errors.KafkaError, OSError) as error:
            raise Unavailable(f"{what}: {error!r}") from error
        return answer.data

    # --- offsets ------------------------------------------------------------------------------------------------------

    def fetch_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None, *, stable: bool
    ) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
        """Committed offsets, and the partitions whose commit is not decided yet (only looked for when ``stable``)."""
        if partitions is not None and not partitions:
            return {}, frozenset()
        return _offsets_of(self._fetch_group(group_id, partitions, stable=stable))

    def _fetch_group(self, group_id: str, partitions: Collection[TopicPartition] | None, *, stable: bool) -> Any:
        [answer] = self.exchange(
            group_id,
            lambda: OffsetFetchRequest(
                groups=[_fetch_group(group_id, partitions)], require_stable=stable, min_version=8, max_version=8
            ),
            code_of=lambda answer: int(answer.groups[0].error_code),
            what=f"read the committed offsets of group {group_id}",
        )
        return answer.groups[0]

    def fetch_many(self, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """All committed offsets of many groups; one request a coordinator and up to 200 groups."""
        return {group_id: _offsets_of(group)[0] for group_id, group in self._fetch_groups(group_ids)}

    def commits_of_many(self, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """As :meth:`fetch_many`, with all that the coordinators tell of a commit."""
        return {group_id: _commits(group)[0] for group_id, group in self._fetch_groups(group_ids)}

    def _fetch_groups(self, group_ids: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Each group's part of an OffsetFetch answer."""
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for group_id, node in self._find(list(group_ids)).items():
            by_node[node].append(group_id)
        for node, ids in by_node.items():
            for start in range(0, len(ids), 200):
                batch = ids[start : start + 200]
                request = OffsetFetchRequest(
                    groups=[_fetch_group(g, None) for g in batch], min_version=8, max_version=8
                )
                try:
                    [answer] = self._client().call(node, request)
                    groups = {row.group_id: row for row in answer.groups if row.error_code == NO_ERROR}
                except (wire_errors.KafkaError, OSError):
                    groups = {}
                for group_id in batch:
                    # One by one where the batch did not answer: that follows moved coordinators and names errors.
                    group = groups[group_id] if group_id in groups else self._fetch_group(group_id, None, stable=False)
                    yield group_id, group

    def offset_fetch(self, group_id: str) -> Any:
        """An OffsetFetch request for all that a group has; see :func:`commits_of`."""
        return OffsetFetchRequest(
            groups=[_fetch_group(group_id, None)], require_stable=True, min_version=8, max_version=8
        )

    def offset_commit(self, group_id: str, rows: Mapping[TopicPartition, tuple[int, str]], retention_ms: int) -> Any:
        """An OffsetCommit request of nobody's (generation −1), for (offset, metadata), with an explicit retention."""
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        partition_class = topic_class.OffsetCommitRequestPartition
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=retention_ms,
            topics=[
                topic_class(
                    name=topic,
                    partitions=[
                        partition_class(
                            partition_index=number,
                            committed_offset=rows[TopicPartition(topic, number)][0],
                            committed_metadata=rows[TopicPartition(topic, number)][1],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in _by_topic(rows).items()
            ],
            min_version=RETENTION_VERSIONS[0],
            max_version=RETENTION_VERSIONS[-1],
        )

    def takes_retention(self) -> bool:
        """Whether the brokers take OffsetCommit in a version that carries a retention."""
        oldest, newest = self._versions().get(_OFFSET_COMMIT, (0, 0))
        return bool(oldest <= RETENTION_VERSIONS[-1] and newest >= RETENTION_VERSIONS[0])

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget committed offsets (KIP-496); returns those refused because the group is subscribed to the topic."""
        topics = _by_topic(partitions)
        topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition_class = topic_class.OffsetDeleteRequestPartition

        def build() -> Any:
            return OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    topic_class(name=t, partitions=[partition_class(partition_index=p) for p in ps])
                    for t, ps in topics.items()
                ],
            )

        what = f"delete committed offsets of group {group_id}"
        [answer] = self.exchange(group_id, build, what=what)
        if answer.error_code == GROUP_ID_NOT_FOUND:
            return frozenset()
        needs = on_group("Delete", group_id)
        check(answer.error_code, what, needs)
        refused = set()
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code == GROUP_SUBSCRIBED_TO_TOPIC:
                    refused.add(TopicPartition(topic.name, row.partition_index))
                else:
                    named = f"{what} ({topic.name}-{row.partition_index})"
                    check(row.error_code, named, needs, *on_topics("Read", [topic.name]))
        return frozenset(refused)

    # --- membership ---------------------------------------------------------------------------------------------------

    def join(self, group_id: str, member_id: str, protocols: Iterable[str], session_timeout_ms: int) -> Any:
        """A JoinGroup request of a consumer that subscribes to nothing."""
        protocol_class = JoinGroupRequest.JoinGroupRequestProtocol
        # ConsumerProtocolSubscription v0: version, no topics, no user data.
        subscription = b"\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"
        return JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol_class(name=name, metadata=subscription) for name in protocols],
            min_version=5,
            max_version=5,
        )

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> Any:
        """A LeaveGroup request for (member id, group instance id) pairs."""
        return LeaveGroupRequest(
            group_id=group_id,
            members=[
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ],
            min_version=3,
            max_version=3,
        )

    def leave_members(self, group_id: str, identities: Collection[tuple[str, str | None]]) -> frozenset[str]:
        """Leave in members' names, for (member id, group instance id) pairs; the ids that the coordinator knew."""
        what = f"leave group {group_id} in the name of {len(identities)} member(s)"
        [answer] = self.exchange(group_id, lambda: self.leave(group_id, identities), what=what)
        if answer.error_code == UNKNOWN_MEMBER_ID:
            return frozenset()
        needs = on_group("Read", group_id)
        check(answer.error_code, what, needs)
        left = set()
        for row in answer.members:
            if row.error_code == NO_ERROR:
                left.add(row.member_id)
            elif row.error_code != UNKNOWN_MEMBER_ID:
                check(row.error_code, f"{what} ({row.member_id})", needs)
        return frozenset(left)

    def send_join(self, group_id: str, member_id: str, protocols: Iterable[str], session_timeout_ms: int) -> None:
        """Join for real and do not wait: the coordinator answers only when everybody has rejoined.

        Needs a ``Wire`` of its own: a broker reads no further request from a connection until it has answered.
        """
        node = self._find([group_id])[group_id]
        self._client().start(node, self.join(group_id, member_id, protocols, session_timeout_ms))

    def subscriptions(self, group_id: str) -> Mapping[str, bytes]:
        """Raw subscription by member id of a stable classic group."""
        [answer] = self.exchange(
            group_id,
            lambda: DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False, max_version=5),
            code_of=lambda answer: int(answer.groups[0].error_code),
            what=f"describe group {group_id}",
        )
        return {m.member_id: bytes(m.member_metadata) for m in answer.groups[0].members if m.member_metadata}

    def group_types(self) -> Mapping[str, str]:
        """Type (classic, consumer, streams, share) of every group the principal may see, by group id (KIP-848)."""
        return {row.group_id: row.type for row in self.list_groups()}

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Every group the principal may see, whatever uses it; as the brokers list them (ListGroups)."""
        try:
            admin = self._client()
            found: list[ListedGroup] = []
            # kafka-python asks for fenced brokers as well (KIP-1073): those are down, and coordinate no group.
            for broker in (b for b in admin.describe_cluster()["brokers"] if not b.get("is_fenced", False)):
                [answer] = admin.call(broker["broker_id"], ListGroupsRequest(states_filter=[], types_filter=[]))
                check(answer.error_code, "list the groups")
                found += [
                    ListedGroup(
                        group_id=g.group_id,
                        protocol_type=g.protocol_type or "",
                        type=str(getattr(g, "group_type", "") or "").lower(),
                        state=str(getattr(g, "group_state", "") or ""),
                    )
                    for g in answer.groups
                ]
            return tuple(found)
        except (wire_errors.KafkaError, OSError) as error:
            raise Unavailable(f"list the groups: {error!r}") from error

    def coordinator(self, group_id: str) -> tuple[int, str, int]:
        """Node id, host and port of the group's coordinator."""
        try:
            node_id = self._find([group_id], fresh=True)[group_id]
            brokers = self._client().describe_cluster()["brokers"]
        except (wire_errors.KafkaError, OSError) as error:
            raise Unavailable(f"find the coordinator of group {group_id}: {error!r}") from error
        found = next((b for b in brokers if b["broker_id"] == node_id), None)
        if found is None:
            raise Unavailable(f"find the coordinator of group {group_id}: broker {node_id} is not there")
        return node_id, found["host"], found["port"]

    def leader_epochs(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Leader epochs of a group's committed offsets (KIP-320), where the committer told one."""
        what = f"read the committed offsets of group {group_id}"
        [answer] = self.exchange(
            group_id,
            lambda: OffsetFetchRequest(groups=[_fetch_group(group_id, None)], min_version=8, max_version=8),
            code_of=lambda answer: int(answer.groups[0].error_code),
            what=what,
        )
        rows = ((topic.name, row) for topic in answer.groups[0].topics for row in topic.partitions)
        return {
            TopicPartition(name, row.partition_index): row.committed_leader_epoch
            for name, row in rows
            if row.error_code == NO_ERROR and row.committed_offset >= 0 and row.committed_leader_epoch >= 0
        }

    def supports(self, api_key: int) -> bool:
        """Whether the brokers offer an API (ApiVersions)."""
        return api_key in self._versions()

    def _versions(self) -> Mapping[int, tuple[int, int]]:
        """Oldest and newest version by API key."""
        try:
            versions: Mapping[int, tuple[int, int]] = self._client()._manager.broker_version_data.api_versions
        except (wire_errors.KafkaError, OSError) as error:
            raise Unavailable(f"ask for the API versions: {error!r}") from error
        return versions


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return dict(topics)


def _fetch_group(group_id: str, partitions: Collection[TopicPartition] | None) -> Any:
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    if partitions is None:
        return group_class(group_id=group_id, topics=None)
    return group_class(
        group_id=group_id,
        topics=[
            group_class.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ],
    )


def commits_of(answer: Any) -> tuple[dict[TopicPartition, Committed], frozenset[TopicPartition]]:
    """What an OffsetFetch answer about one group tells by partition, and the partitions that are not decided yet."""
    [group] = answer.groups
    return _commits(group)


def _commits(group: Any) -> tuple[dict[TopicPartition, Committed], frozenset[TopicPartition]]:
    offsets, pending = _offsets_of(group)
    rows = {TopicPartition(topic.name, row.partition_index): row for topic in group.topics for row in topic.partitions}
    commits = {
        p: Committed(
            offset,
            rows[p].committed_leader_epoch if rows[p].committed_leader_epoch >= 0 else None,
            rows[p].metadata or "",
        )
        for p, offset in offsets.items()
    }
    return commits, pending


def _offsets_of(group: Any) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
    what = f"read the committed offsets of group {group.group_id}"
    if group.error_code == GROUP_ID_NOT_FOUND:
        return {}, frozenset()
    needs = on_group("Describe", group.group_id)
    check(group.error_code, what, needs)
    offsets: dict[TopicPartition, int] = {}
    pending: set[TopicPartition] = set()
    for topic in group.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code == UNSTABLE_OFFSET_COMMIT:
                pending.add(partition)
                continue
            if row.error_code:
                check(row.error_code, f"{what} ({partition})", needs, *on_topics("Describe", [topic.name]))
            if row.committed_offset >= 0:
                offsets[partition] = row.committed_offset
    return offsets, frozenset(pending)
