"""Requests about the cluster, its topics and its brokers: Metadata, ApiVersions, DescribeConfigs, CreateTopics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest, MetadataResponse

from tidegate.kafka.capabilities import BrokerApis
from tidegate.kafka.errors import KafkaFailure, Unavailable
from tidegate.kafka.model import Keeping
from tidegate.kafka.rights import Right
from tidegate.kafka_client.codes import NO_ERROR, check
from tidegate.kafka_client.metadata import NEWEST_VERSION, OLDEST_VERSION
from tidegate.kafka_client.wire import Wire

_FEATURES_TOLD: Final = 3
"""The version of ApiVersions from which on brokers tell features (KIP-584)."""

_TOPIC: Final = 2
_BROKER: Final = 4
"""``ConfigResource.Type``"""

_NOT_CONTROLLER: Final = 41


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


def metadata(wire: Wire, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes:
    """What one broker answers to Metadata for topics, ``None`` for all: undecoded, see
    ``tidegate.kafka_client.metadata``.

    Raises ``Unavailable`` when it does not answer in time, ``Refused`` when it does not tell topic ids.
    """
    what = f"look at the topics at broker {node_id}"
    return _data(wire.ask(node_id, _metadata(_UndecodedMetadataRequest, topics), what=what, timeout_s=timeout_s))


class MetadataBrokers:
    """Implements ``tidegate.kafka_client.topic_watch.Brokers`` over connections of its own."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def brokers(self) -> list[int]:
        return self._wire.brokers()

    def metadata(self, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes:
        return metadata(self._wire, node_id, topics, timeout_s=timeout_s)

    def close(self) -> None:
        self._wire.close()


def topics_metadata(wire: Wire, topics: Collection[str] | None) -> bytes:
    """As :func:`metadata`, from any broker."""
    return _data(wire.ask_any(lambda: _metadata(_UndecodedMetadataRequest, topics), what="list the topics"))


def describe_topics(
    wire: Wire, topics: Collection[str], *, what: str, deadline: float | None = None, authorized: bool = False
) -> Any:
    """A Metadata answer: ``cluster_id``, ``controller_id``, ``brokers``, and ``topics`` that were asked for.

    ``authorized``: with what the principal may do with each (KIP-430).
    """
    until = wire.deadline() if deadline is None else deadline

    def attempt(_: bool) -> Any:
        request = partial(_metadata, MetadataRequest, topics, authorized=authorized)
        answer = wire.ask_any(request, what=what, deadline=until)
        if not answer.brokers:
            raise Unavailable(f"{what}: no broker is taken for alive")  # not even the one that says so
        return answer

    return wire.patiently(attempt, until)


def broker_apis(wire: Wire) -> list[BrokerApis]:
    """What each broker says now that it knows (ApiVersions); one that does not answer is left out.

    Raises ``Unavailable`` when none answers.
    """
    what = "ask the brokers for their versions"
    brokers = [broker.node_id for broker in describe_topics(wire, [], what=what).brokers]
    answers = wire.ask_each(
        # In version 3, the oldest that tells features.
        {
            node: ApiVersionsRequest(
                client_software_name="tidegate", client_software_version="1", max_version=_FEATURES_TOLD
            )
            for node in brokers
        },
        what=what,
        deadline=wire.deadline(wire.BROKER_TIMEOUT_S),
    )
    failures = [answer for answer in answers.values() if isinstance(answer, KafkaFailure)]
    if len(failures) == len(answers):
        raise failures[0]
    return [_apis(answer) for answer in answers.values() if not isinstance(answer, KafkaFailure)]


def topic_settings(
    wire: Wire, topics: Collection[str], *, what: str, deadline: float | None = None
) -> dict[str, tuple[int, dict[str, str]]]:
    """Error code and settings by topic (DescribeConfigs); settings without a value are empty."""
    answer = wire.ask_any(lambda: _describe_configs(_TOPIC, topics), what=what, deadline=deadline)
    return {row.resource_name: (row.error_code, _values(row)) for row in answer.results}


def keeping_of(settings: Mapping[str, str]) -> Keeping:
    """By a topic's settings (``org.apache.kafka.common.config.TopicConfig``)."""
    policy = settings.get("cleanup.policy", "")
    return Keeping(
        is_compacted="compact" in policy,
        retention_ms=int(settings.get("retention.ms") or -1) if "delete" in policy else -1,
        by_append_time=settings.get("message.timestamp.type") == "LogAppendTime",
    )


def broker_settings(wire: Wire, *, what: str, needs: Right) -> list[dict[str, str]]:
    """The settings of each broker (DescribeConfigs)."""

    def request(node_id: int) -> Any:
        return _describe_configs(_BROKER, [str(node_id)])

    answers = each_broker(wire, request, lambda answer: answer.results[0].error_code, what, needs)
    return [_values(answer.results[0]) for answer in answers]


def create_topics(
    wire: Wire, settings: Mapping[str, Mapping[str, str]], *, partitions: int, replication_factor: int, what: str
) -> dict[str, tuple[int, str | None]]:
    """Error code and message by topic (CreateTopics); ``settings`` are those of the topics to make, by name."""
    topic_class = CreateTopicsRequest.CreatableTopic
    setting_class = topic_class.CreatableTopicConfig
    deadline = wire.deadline()

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
            timeout_ms=int(wire.timeout_s * 1000),
        )

    def attempt(_: bool) -> dict[str, tuple[int, str | None]]:
        # With KRaft any broker passes it on to the controller, and each calls another one that.
        controller = describe_topics(wire, [], what=what, deadline=deadline).controller_id
        answer = wire.ask(controller, request(), what=what, timeout_s=wire.part_of(deadline))
        for row in answer.topics:
            check(row.error_code if row.error_code == _NOT_CONTROLLER else NO_ERROR, what)
        return {row.name: (row.error_code, row.error_message) for row in answer.topics}

    return wire.patiently(attempt, deadline)


def each_broker(
    wire: Wire, request: Callable[[int], Any], code_of: Callable[[Any], int], what: str, *needs: Right
) -> list[Any]:
    """What every broker answers."""
    deadline = wire.deadline()

    def attempt(_: bool) -> list[Any]:
        brokers = [broker.node_id for broker in describe_topics(wire, [], what=what, deadline=deadline).brokers]
        answers = wire.ask_each({node: request(node) for node in brokers}, what=what, deadline=deadline).values()
        for answer in answers:
            if isinstance(answer, KafkaFailure):
                raise answer
            check(code_of(answer), what, *needs)
        return list(answers)

    return wire.patiently(attempt, deadline)


def _metadata(kind: type[Any], topics: Collection[str] | None, *, authorized: bool = False) -> Any:
    topic_class = MetadataRequest.MetadataRequestTopic
    return kind(
        topics=None if topics is None else [topic_class(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=authorized,
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
