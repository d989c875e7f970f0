"""Requests of probes go out and come back as Kafka's schemas have them."""

from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

import pytest
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.parser import KafkaProtocol

from support.fake_kafka import FakeKafka
from support.scripted_wire import Answer, ByScript, coordinators, each, wire_to
from tidegate.kafka.capabilities import BrokerApis
from tidegate.kafka_client.cluster_requests import broker_apis
from tidegate.kafka_client.group_heartbeats import ConsumerGroupHeartbeatResponse, StreamsGroupHeartbeatResponse
from tidegate.kafka_client.probe import KafkaProbe
from tidegate.resources.connection import GroupKind, Support

API_VERSIONS = 18


def answered(request: Any, answer: Any, newest: int) -> Any:
    """The answer as it comes off the connection, in the version that both know."""
    brokers = BrokerVersionData(api_versions={request.API_KEY: (0, newest)})
    request.API_VERSION = brokers.api_version(request)
    connection = KafkaProtocol(client_id="tidegate")
    correlation_id = connection.send_request(request)
    assert connection.send_bytes()
    # The answer to ApiVersions has the oldest header in every version (KIP-511).
    tags = b"" if request.API_KEY == API_VERSIONS else b"\x00"
    written = correlation_id.to_bytes(4, "big") + tags + bytes(answer.encode(version=request.API_VERSION))
    [(_, read)] = connection.receive_bytes(len(written).to_bytes(4, "big") + written)
    return read


HEARTBEATS = {
    GroupKind.CONSUMER: ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        assignment=None,
    ),
    GroupKind.STREAMS: StreamsGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[StreamsGroupHeartbeatResponse.Status(status_code=1, status_detail="a source topic is missing")],
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    ),
}


@pytest.mark.parametrize(
    ("kind", "newest"), [(GroupKind.CONSUMER, 0), (GroupKind.CONSUMER, 1), (GroupKind.STREAMS, 0)], ids=str
)
def test_a_member_joins_and_leaves_by_heartbeats(kind: GroupKind, newest: int) -> None:
    def heartbeat(_: int, request: Any) -> Any:
        return answered(request, HEARTBEATS[kind], newest)

    kafka = FakeKafka()
    kafka.create_topic("__tidegate", 1)
    script: dict[str, Answer] = {
        "FindCoordinator": coordinators(0),
        "Metadata": each(Row(brokers=[Row(node_id=0)], topics=[Row(error_code=0)])),
        "DeleteGroups": each(Row(results=[Row(error_code=0)])),
        f"{kind.value}GroupHeartbeat": heartbeat,
    }
    wire = wire_to(ByScript(**script))
    probe = KafkaProbe(
        "__tidegate", wire, lambda: wire, lambda name: kafka.writer(name, transaction_timeout_s=10), kafka.topics
    )

    assert probe.of(kind).support is Support.SUPPORTED


def test_versions_and_features_are_read_off_the_connection() -> None:
    told = ApiVersionsResponse(
        error_code=0,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=28, min_version=0, max_version=5)],
        throttle_time_ms=0,
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=1)
            for name in ("group.version", "streams.version")
        ],
        finalized_features_epoch=5,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)
        ],
    )
    brokers = ByScript(
        Metadata=each(Row(brokers=[Row(node_id=0)])),
        ApiVersions=lambda _, request: answered(request, told, newest=4),
    )
    features = {"group.version": 1, "streams.version": 0}
    assert broker_apis(wire_to(brokers)) == [BrokerApis({28: (0, 5)}, features)]
