"""Requests to whichever broker answers them, by kafka-python's request classes (TLS and SASL included).

To the coordinators of groups: JoinGroup and LeaveGroup without being a member (KIP-394, KIP-345), OffsetFetch of many
groups at once (KIP-709), OffsetCommit, OffsetDelete (KIP-496), descriptions. To those of transactions: what a producer
asks of them. To any broker, or each: Metadata, settings, new topics, the list of groups. Whom to ask, and for how long,
is decided here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kafka import errors as wire_errors
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    CoordinatorType,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)

from tidegate.kafka.capabilities import BrokerApis
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthenticated, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Committed, TopicPartition
from tidegate.kafka.rights import Right, on_group, on_topics, to_grant
from tidegate.kafka_client.codes import FENCED, NOT_AUTHORIZED, UNREACHABLE
from tidegate.kafka_client.connections import Answer, Connections
from tidegate.kafka_client.metadata import NEWEST_VERSION, OLDEST_VERSION
from tidegate.kafka_client.settings import socket_timeout_ms

NO_ERROR: Final = 0
UNSTABLE_OFFSET_COMMIT: Final = 88
MEMBER_ID_REQUIRED: Final = 79
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
FENCED_INSTANCE_ID: Final = 82
"""A static member of that instance id has come back under another member id."""
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
GROUP_ID_NOT_FOUND: Final = 69

HAS_MEMBERS: Final = frozenset({22, 25, 27, 68})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP: answers to a commit of nobody's"""

RETENTION_VERSIONS: Final = range(2, 5)
"""Those of OffsetCommit that carry ``retention_time_ms``; Kafka 4.0 has taken 0 and 1 away."""

_COMMIT_VERSIONS: Final = range(2, 10)
"""Those of OffsetCommit that name topics, not topic ids."""

_FEATURES_TOLD: Final = 3
"""The version of ApiVersions from which on brokers tell features (KIP-584)."""

_OFFSET_COMMIT: Final = 8
"""Its API key."""

_TOPIC: Final = 2
_BROKER: Final = 4
"""``ConfigResource.Type``"""

_NOT_THERE_NOW: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""

_NOT_CONTROLLER: Final = 41

T = TypeVar("T")


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


def check(code: int, what: str, *needs: Right, said: str | None = None) -> None:
    """Raise the failure that an error code means; ``what`` says what was asked, ``needs`` which rights that takes,
    ``said`` what the broker adds."""
    if code == NO_ERROR:
        return
    name = wire_errors.for_code(code).__name__ + (f" ({said})" if said else "")
    if code in UNREACHABLE:
        raise Unavailable(f"{what}: {name}")
    if code in FENCED:
        raise Fenced(f"{what}: {name}")
    if code in NOT_AUTHORIZED:
        raise NotAuthorized(f"{what}: {name}{to_grant(needs, NOT_AUTHORIZED[code])}")
    raise Refused(f"{what}: {name}")


class Wire:
    """Raw requests. Thread-safe; connects on first use. Calls are bounded in time, and raise ``KafkaFailure``s only.

    A request is sent again where its broker has gone, the coordinator has moved or nobody has answered: it has to be
    one that changes nothing when it is repeated, unless said otherwise.
    """

    OVERTIME_S: Final = 2.0
    """How much longer than its time limit a call may take: whoever is asked last gets a moment to answer."""

    _TIMEOUT_S = 15.0
    _BROKER_TIMEOUT_S = 5.0
    """For one broker, where any other can be asked."""
    _PATIENT_PART = 2 / 3
    """Of the time, for the only broker that can answer: when that has died its successor is to be heard as well."""
    _LEAST_TIMEOUT_S = 0.5
    _RETRY_PAUSE_S = 0.1
    _BATCH = 200
    """Groups in one request."""
    _AT_ONCE = 1000
    _LONGEST_JOIN_S = 900.0
    """How long a coordinator may take to answer a JoinGroup; whoever waits for it decides when to give up."""

    def __init__(self, connection: Connection) -> None:
        self._timeout_s = min(self._TIMEOUT_S, socket_timeout_ms(connection) / 1000)
        self._connections = Connections(connection)
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._last_node: int | None = None
        """The broker that answered last what any can answer: it is asked again, as it knows most of what it told."""

    def close(self) -> None:
        self._connections.close()

    # --- to whom, and how long ----------------------------------------------------------------------------------------

    def ask_any(self, build: Callable[[], Any], *, what: str, deadline: float | None = None) -> Any:
        """What any broker answers; one after the other is asked."""

        def attempt(_: bool) -> Any:
            nodes = sorted(self._connections.nodes(left()), key=lambda node: node != self._last_node)
            failure: KafkaFailure = Unavailable(f"{what}: there is no broker")
            for tried, node in enumerate(nodes):
                if tried and time.monotonic() > until:
                    break
                try:
                    answer = self.ask(node, build(), what=what, timeout_s=min(self._BROKER_TIMEOUT_S, left()))
                except NotAuthenticated:
                    raise
                except Unavailable as error:
                    failure = error
                else:
                    self._last_node = node
                    return answer
            raise failure

        def left() -> float:
            return max(self._LEAST_TIMEOUT_S, until - time.monotonic())

        until, began = self.deadline() if deadline is None else deadline, time.monotonic()
        try:
            return self.patiently(attempt, until)
        except Unavailable:
            if time.monotonic() - began >= min(self._BROKER_TIMEOUT_S, self._timeout_s / 2):
                # All may have moved: the next call finds them through the bootstrap servers again. Not where there was
                # hardly time for an answer, as that ends what other threads wait for.
                self.close()
            raise

    def ask(self, node_id: int, request: Any, *, what: str, timeout_s: float) -> Any:
        """What one broker answers, asked once."""
        [answer] = self._connections.call(node_id, [request], what=what, timeout_s=timeout_s)
        return answer

    def ask_each(self, requests: Mapping[int, Any], *, what: str, deadline: float) -> dict[int, Any | KafkaFailure]:
        """What each of several brokers answers to its request, all asked once and at the same time."""
        asked = {node_id: [request] for node_id, request in requests.items()}
        told = self._connections.call_all(asked, what=what, timeout_s=self._part_of(deadline))
        return {node: found if isinstance(found, KafkaFailure) else found[0] for node, found in told.items()}

    def exchange(
        self,
        key: str,
        *requests: Callable[[], Any],
        of: CoordinatorType = CoordinatorType.GROUP,
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        what: str,
        needs: Right | None = None,
        timeout_s: float | None = None,
        once: bool = False,
    ) -> list[Any]:
        """Send requests to the coordinator of a group or a transactional id, back to back, following it when it moves.

        Returns the answers. ``needs``: the right to name where the principal may not even look for the coordinator.
        ``once``: a request that was sent is not sent again when no answer comes; raises ``OutcomeUnknown``.
        """
        deadline = self.deadline(timeout_s)

        def attempt(again: bool) -> list[Any]:
            node = self._find([key], deadline, of=of, fresh=again, needs=needs)[key]
            sent, limit = [build() for build in requests], self._part_of(deadline)
            answers = self._connections.call(node, sent, what=what, timeout_s=limit, writes=once)
            moved = next((c for c in map(code_of, answers) if c in _NOT_THERE_NOW), NO_ERROR)
            check(moved, what)
            return answers

        try:
            return self.patiently(attempt, deadline)
        except KafkaFailure:
            self._coordinators.pop((of, key), None)
            raise

    def of_coordinators(
        self,
        group_ids: Collection[str],
        build: Callable[[list[str]], Any],
        *,
        what: str,
    ) -> dict[str, Any]:
        """Each group's part of answers whose ``groups`` have ``group_id`` and ``error_code``, as OffsetFetch's.

        One request a coordinator and up to 200 groups; coordinators are followed when they move. The time limit is for
        each thousand.
        """
        ids, found = list(group_ids), dict[str, Any]()
        for start in range(0, len(ids), self._AT_ONCE):
            found |= self._of_coordinators(ids[start : start + self._AT_ONCE], build, what)
        return found

    def _of_coordinators(
        self, group_ids: Collection[str], build: Callable[[list[str]], Any], what: str
    ) -> dict[str, Any]:
        deadline = self.deadline()
        found: dict[str, Any] = {}

        def attempt(again: bool) -> None:
            left = [group_id for group_id in group_ids if group_id not in found]
            by_node: defaultdict[int, list[str]] = defaultdict(list)
            for group_id, node in self._find(left, deadline, fresh=again).items():
                by_node[node].append(group_id)
            failures: list[KafkaFailure] = []
            while by_node:
                batches = {
                    node: [ids.pop() for _ in range(min(len(ids), self._BATCH))] for node, ids in by_node.items()
                }
                requests = {node: build(ids) for node, ids in batches.items()}
                for answer in self.ask_each(requests, what=what, deadline=deadline).values():
                    if isinstance(answer, KafkaFailure):
                        failures.append(answer)
                    else:
                        found.update({g.group_id: g for g in answer.groups if g.error_code not in _NOT_THERE_NOW})
                by_node = defaultdict(list, {node: ids for node, ids in by_node.items() if ids})
            for failure in failures:
                raise failure
            missing = next((group_id for group_id in group_ids if group_id not in found), None)
            if missing is not None:
                raise Unavailable(f"{what}: the coordinator of group {missing} is not there")

        try:
            self.patiently(attempt, deadline)
        except KafkaFailure:
            for group_id in group_ids:
                self._coordinators.pop((CoordinatorType.GROUP, group_id), None)
            raise
        return found

    def deadline(self, timeout_s: float | None = None) -> float:
        return time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def patiently(self, attempt: Callable[[bool], T], deadline: float) -> T:
        """Try again until the deadline where nobody is there; ``attempt`` is told whether it was tried before."""
        again = False
        while True:
            try:
                return attempt(again)
            except Unavailable as error:
                if isinstance(error, NotAuthenticated) or time.monotonic() > deadline:
                    raise
            time.sleep(self._RETRY_PAUSE_S)
            again = True

    def _part_of(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        return max(self._LEAST_TIMEOUT_S, min(left, self._timeout_s * self._PATIENT_PART))

    def _find(
        self,
        keys: Collection[str],
        deadline: float,
        *,
        of: CoordinatorType = CoordinatorType.GROUP,
        fresh: bool = False,
        needs: Right | None = None,
    ) -> dict[str, int]:
        """Node ids by group, or by transactional id."""
        known = {} if fresh else {key: self._coordinators.get((of, key)) for key in keys}
        found = {key: node for key, node in known.items() if node is not None}
        unknown = [key for key in keys if key not in found]
        if unknown:
            looked_up = {row.key: row.node_id for row in self._look_for(unknown, deadline, of=of, needs=needs)}
            self._coordinators |= {(of, key): node for key, node in looked_up.items()}
            found |= looked_up
        return found

    def _look_for(
        self,
        keys: Collection[str],
        deadline: float,
        *,
        of: CoordinatorType = CoordinatorType.GROUP,
        needs: Right | None = None,
    ) -> list[Any]:
        """FindCoordinator (KIP-699): key, node id, host and port of each."""
        answer = self.ask_any(
            lambda: FindCoordinatorRequest(key_type=of.value, coordinator_keys=list(keys), min_version=4),
            what=f"find the coordinator of {_named(keys, of)}",
            deadline=deadline,
        )
        for row in answer.coordinators:
            what = f"find the coordinator of {_named([row.key], of)}"
            check(row.error_code, what, on_group("Describe", row.key) if needs is None else needs)
        return list(answer.coordinators)

    # --- the cluster --------------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """The node ids of the brokers, as far as known. Raises ``Unavailable`` when there are none."""
        return self._connections.nodes()

    def metadata(self, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes:
        """What one broker answers to Metadata for topics, ``None`` for all: undecoded, see
        ``tidegate.kafka_client.metadata``.

        Raises ``Unavailable`` when it does not answer in time, ``Refused`` when it does not tell topic ids.
        """
        what = f"look at the topics at broker {node_id}"
        return _data(self.ask(node_id, _metadata(_UndecodedMetadataRequest, topics), what=what, timeout_s=timeout_s))

    def all_topics(self) -> bytes:
        """As :meth:`metadata`, of all topics, from any broker."""
        return _data(self.ask_any(lambda: _metadata(_UndecodedMetadataRequest, None), what="list the topics"))

    def described(self, topics: Collection[str], *, what: str, deadline: float | None = None) -> Any:
        """A Metadata answer: ``cluster_id``, ``controller_id``, ``brokers``, and ``topics`` that were asked for."""
        until = self.deadline() if deadline is None else deadline

        def attempt(_: bool) -> Any:
            answer = self.ask_any(lambda: _metadata(MetadataRequest, topics), what=what, deadline=until)
            if not answer.brokers:
                raise Unavailable(f"{what}: no broker is taken for alive")  # not even the one that says so
            return answer

        return self.patiently(attempt, until)

    def apis(self) -> list[BrokerApis]:
        """What each broker says now that it knows (ApiVersions); one that does not answer is left out.

        Raises ``Unavailable`` when none answers.
        """
        what = "ask the brokers for their versions"
        brokers = [broker.node_id for broker in self.described([], what=what).brokers]
        answers = self.ask_each(
            # In version 3, the oldest that tells features.
            {
                node: ApiVersionsRequest(
                    client_software_name="tidegate", client_software_version="1", max_version=_FEATURES_TOLD
                )
                for node in brokers
            },
            what=what,
            deadline=self.deadline(self._BROKER_TIMEOUT_S),
        )
        failures = [answer for answer in answers.values() if isinstance(answer, KafkaFailure)]
        if len(failures) == len(answers):
            raise failures[0]
        return [_apis(answer) for answer in answers.values() if not isinstance(answer, KafkaFailure)]

    def topic_settings(self, topics: Collection[str], *, what: str) -> dict[str, tuple[int, dict[str, str]]]:
        """Error code and settings by topic (DescribeConfigs); settings without a value are empty."""
        answer = self.ask_any(lambda: _describe_configs(_TOPIC, topics), what=what)
        return {row.resource_name: (row.error_code, _values(row)) for row in answer.results}

    def broker_settings(self, *, what: str, needs: Right) -> list[dict[str, str]]:
        """The settings of each broker (DescribeConfigs)."""

        def request(node_id: int) -> Any:
            return _describe_configs(_BROKER, [str(node_id)])

        answers = self._each_broker(request, lambda answer: answer.results[0].error_code, what, needs)
        return [_values(answer.results[0]) for answer in answers]

    def create_topics(
        self, settings: Mapping[str, Mapping[str, str]], *, partitions: int, replication_factor: int, what: str
    ) -> dict[str, tuple[int, str | None]]:
        """Error code and message by topic (CreateTopics); ``settings`` are those of the topics to make, by name."""
        topic_class = CreateTopicsRequest.CreatableTopic
        setting_class = topic_class.CreatableTopicConfig
        deadline = self.deadline()

        def request() -> Any:
            return CreateTopicsRequest(
                topics=[
                    topic_class(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replication_factor,
                        assignments=[],
                        configs=[setting_class(name=key, value=value) for key, value in given.items()],
                    )
                    for name, given in settings.items()
                ],
                timeout_ms=int(self._timeout_s * 1000),
            )

        def attempt(_: bool) -> dict[str, tuple[int, str | None]]:
            # With KRaft any broker passes it on to the controller, and each calls another one that.
            controller = self.described([], what=what, deadline=deadline).controller_id
            answer = self.ask(controller, request(), what=what, timeout_s=self._part_of(deadline))
            for row in answer.topics:
                check(row.error_code if row.error_code == _NOT_CONTROLLER else NO_ERROR, what)
            return {row.name: (row.error_code, row.error_message) for row in answer.topics}

        return self.patiently(attempt, deadline)

    def _each_broker(
        self, request: Callable[[int], Any], code_of: Callable[[Any], int], what: str, *needs: Right
    ) -> list[Any]:
        """What every broker answers."""
        deadline = self.deadline()

        def attempt(_: bool) -> list[Any]:
            brokers = [broker.node_id for broker in self.described([], what=what, deadline=deadline).brokers]
            answers = self.ask_each({node: request(node) for node in brokers}, what=what, deadline=deadline).values()
            for answer in answers:
                if isinstance(answer, KafkaFailure):
                    raise answer
                check(code_of(answer), what, *needs)
            return list(answers)

        return self.patiently(attempt, deadline)

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
        return {group_id: _offsets_of(group)[0] for group_id, group in self._fetch_groups(group_ids).items()}

    def commits_of_many(self, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """As :meth:`fetch_many`, with all that the coordinators tell of a commit."""
        return {group_id: _commits(group)[0] for group_id, group in self._fetch_groups(group_ids).items()}

    def _fetch_groups(self, group_ids: Collection[str]) -> dict[str, Any]:
        """Each group's part of an OffsetFetch answer."""

        def request(batch: list[str]) -> Any:
            return OffsetFetchRequest(groups=[_fetch_group(g, None) for g in batch], min_version=8, max_version=8)

        return self.of_coordinators(group_ids, request, what=f"read the committed offsets of {_named(group_ids)}")

    def offset_fetch(self, group_id: str) -> Any:
        """An OffsetFetch request for all that a group has; see :func:`commits_of`."""
        return OffsetFetchRequest(
            groups=[_fetch_group(group_id, None)], require_stable=True, min_version=8, max_version=8
        )

    def offset_commit(
        self, group_id: str, rows: Mapping[TopicPartition, tuple[int, str]], retention_ms: int | None = None
    ) -> Any:
        """An OffsetCommit request of nobody's (generation −1), for (offset, metadata); ``retention_ms``: explicit."""
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        partition_class = topic_class.OffsetCommitRequestPartition
        versions = _COMMIT_VERSIONS if retention_ms is None else RETENTION_VERSIONS
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=-1 if retention_ms is None else retention_ms,
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
                for topic, numbers in by_topic(rows).items()
            ],
            min_version=versions[0],
            max_version=versions[-1],
        )

    def takes_retention(self) -> bool:
        """Whether the brokers take OffsetCommit in a version that carries a retention."""
        oldest, newest = self._connections.versions().get(_OFFSET_COMMIT, (0, 0))
        return bool(oldest <= RETENTION_VERSIONS[-1] and newest >= RETENTION_VERSIONS[0])

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget committed offsets (KIP-496); returns those refused because the group is subscribed to the topic."""
        topics = by_topic(partitions)
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

    def delete_group(self, group_id: str) -> None:
        """Forget a group without members (DeleteGroups); one that is not there is none the less gone."""
        what = f"delete group {group_id}"

        def code_of(answer: Any) -> int:
            return int(answer.results[0].error_code)

        [answer] = self.exchange(
            group_id, lambda: DeleteGroupsRequest(groups_names=[group_id]), code_of=code_of, what=what
        )
        if code_of(answer) != GROUP_ID_NOT_FOUND:
            check(code_of(answer), what, on_group("Delete", group_id))

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
            elif row.error_code not in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
                check(row.error_code, f"{what} ({row.member_id})", needs)
        return frozenset(left)

    def send_join(
        self, node_id: int, group_id: str, member_id: str, protocols: Iterable[str], session_timeout_ms: int
    ) -> Answer:
        """Join for real, at the coordinator, and do not wait: it answers only when everybody has rejoined.

        Needs a ``Wire`` of its own: a broker reads no further request from a connection until it has answered.
        """
        request = self.join(group_id, member_id, protocols, session_timeout_ms)
        what = f"join group {group_id}"
        timeout_s = self._part_of(self.deadline())
        return self._connections.start(node_id, request, what=what, timeout_s=timeout_s, answer_s=self._LONGEST_JOIN_S)

    def heartbeat(self, group_id: str, generation: int, member_id: str) -> int:
        """The error code that the coordinator answers."""
        [answer] = self.exchange(
            group_id,
            lambda: HeartbeatRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=None,
                min_version=3,
                max_version=3,
            ),
            what=f"send a heartbeat to group {group_id}",
        )
        return int(answer.error_code)

    def sync_as_leader(self, group_id: str, generation: int, member_id: str, shares: Mapping[str, bytes]) -> int:
        """SyncGroup with raw assignments by member id; the error code that the coordinator answers."""
        row_class = SyncGroupRequest.SyncGroupRequestAssignment
        [answer] = self.exchange(
            group_id,
            lambda: SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=None,
                assignments=[row_class(member_id=member, assignment=raw) for member, raw in shares.items()],
                min_version=3,
                max_version=3,
            ),
            what=f"assign the partitions of group {group_id}",
        )
        return int(answer.error_code)

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

        def request(_: int) -> Any:
            return ListGroupsRequest(states_filter=[], types_filter=[])

        answers = self._each_broker(request, lambda answer: int(answer.error_code), "list the groups")
        return tuple(
            ListedGroup(
                group_id=g.group_id,
                protocol_type=g.protocol_type or "",
                type=str(getattr(g, "group_type", "") or "").lower(),
                state=str(getattr(g, "group_state", "") or ""),
            )
            for answer in answers
            for g in answer.groups
        )

    def coordinator(self, group_id: str) -> tuple[int, str, int]:
        """Node id, host and port of the group's coordinator."""
        deadline = self.deadline()
        [row] = self.patiently(lambda _: self._look_for([group_id], deadline), deadline)
        return int(row.node_id), str(row.host), int(row.port)

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
        return api_key in self._connections.versions()


def _metadata(kind: type[Any], topics: Collection[str] | None) -> Any:
    topic_class = MetadataRequest.MetadataRequestTopic
    return kind(
        topics=None if topics is None else [topic_class(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
        min_version=OLDEST_VERSION,
        max_version=NEWEST_VERSION,
    )


def _data(answer: _Undecoded) -> bytes:
    return answer.data


def _apis(answer: Any) -> BrokerApis:
    versions = {int(row.api_key): (int(row.min_version), int(row.max_version)) for row in answer.api_keys}
    if answer.API_VERSION < _FEATURES_TOLD or answer.finalized_features_epoch < 0:
        return BrokerApis(versions)
    levels = {row.name: int(row.max_version_level) for row in answer.finalized_features}
    # Of a feature that is off no level is told.
    return BrokerApis(versions, {row.name: levels.get(row.name, 0) for row in answer.supported_features})


def _describe_configs(resource_type: int, names: Iterable[str]) -> Any:
    resource_class = DescribeConfigsRequest.DescribeConfigsResource
    resources = [resource_class(resource_type=resource_type, resource_name=n, configuration_keys=None) for n in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


def _values(row: Any) -> dict[str, str]:
    return {setting.name: setting.value or "" for setting in row.configs}


def _named(keys: Collection[str], of: CoordinatorType = CoordinatorType.GROUP) -> str:
    one = "group" if of is CoordinatorType.GROUP else "transactional id"
    return f"{one} {next(iter(keys))}" if len(keys) == 1 else f"{len(keys)} {one}s"


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
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
            for topic, indexes in by_topic(partitions).items()
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
