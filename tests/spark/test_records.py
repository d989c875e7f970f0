"""Records as a DataFrame, of a broker as it is and of one behind SCRAM over TLS and client certificates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from devstack import KafkaCluster
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.model import Range, TopicPartition
from tidegate.spark.records import COLUMNS, read_records

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def test_a_spark_without_its_connector_says_what_it_lacks() -> None:
    without = """
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Range, TopicPartition
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.records import read_records
from tidegate.spark.session import local_session

ranges = {TopicPartition("orders", 0): Range(0, 1)}
try:
    read_records(local_session("local[1]"), Connection("127.0.0.1:1"), ranges, ["key"], splits=1)
except PlanRefused as refused:
    print(refused)
"""
    said = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=True).stdout
    assert said.startswith("SparkUnavailable: Spark has no connector to Kafka: name its jars in TIDEGATE_SPARK_JARS")


def test_ranges_are_read_with_the_columns_asked_for_and_a_hot_partition_is_cut(
    spark: Any, kafka: Any, make_topic: Any
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(1000):
        headers = [("n", str(n).encode())] if n == 500 else None
        producer.produce(topic, f"v{n}", f"k{n}", 0, timestamp=int(AT.timestamp() * 1000) + n, headers=headers)
    producer.produce(topic, None, None, 1)
    assert producer.flush(30) == 0
    connection = Connection(kafka.bootstrap)
    ranges = {TopicPartition(topic, 0): Range(500, 900), TopicPartition(topic, 1): Range(0, 0)}

    records = read_records(spark, connection, ranges, COLUMNS, splits=4)

    assert records.columns == list(COLUMNS)
    assert records.rdd.getNumPartitions() == 4
    rows = sorted(records.collect(), key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(500, 900))
    first = rows[0]
    assert (first.topic, first.partition, bytes(first.key), bytes(first.value)) == (topic, 0, b"k500", b"v500")
    assert first.timestamp.astimezone(UTC) == AT.replace(microsecond=500_000)
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("n", b"500")]
    assert rows[1].headers is None
    assert read_records(spark, connection, ranges, ["offset"], splits=1).columns == ["offset"]
    nothing = read_records(spark, connection, {TopicPartition(topic, 1): Range(0, 0)}, COLUMNS, splits=1)
    assert (nothing.columns, nothing.count()) == (list(COLUMNS), 0)
    with pytest.raises(ValueError, match="no column colour"):
        read_records(spark, connection, ranges, ["colour"], splits=1)


# --- TLS and authentication -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaCluster]:
    """Its users may read the topic, and nothing else."""
    with KafkaCluster.start(1, security="sasl_ssl", authorizer=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("secured", 1, 1)])["secured"].result(20)
        topic, literal = (ResourceType.TOPIC, "secured"), ResourcePatternType.LITERAL
        rights = [
            AclBinding(*topic, literal, principal, "*", AclOperation.READ, AclPermissionType.ALLOW)
            for principal in ("User:tidegate", "User:CN=tidegate")
        ]
        for made in admin.create_acls(rights).values():
            made.result(20)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("secured", "found")
        assert producer.flush(30) == 0
        yield cluster


def secret(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.touch(mode=0o600)
    file.write_text(text)
    return file


@pytest.mark.parametrize("kind", ["scram", "scram, a line", "plain", "certificate"])
def test_a_secured_cluster_is_read_with_secrets_in_files_alone(
    spark: Any, secured: KafkaCluster, tmp_path: Path, kind: str
) -> None:
    security = secured.security
    if kind == "certificate":
        auth = Authentication(
            AuthenticationType.TLS, certificate_file=security.client.certificate, key_file=security.client.key
        )
        servers = security.ssl_bootstrap
    else:
        password = secret(tmp_path, "password", security.password + ("\n" if kind == "scram, a line" else ""))
        mechanism = AuthenticationType.PLAIN if kind == "plain" else AuthenticationType.SCRAM_SHA_512
        auth = Authentication(mechanism, username=security.username, password_file=password)
        servers = security.sasl_ssl_bootstrap
    connection = Connection(servers, tls=True, ca_file=security.ca, authentication=auth)

    one = {TopicPartition("secured", 0): Range(0, 1)}

    records = read_records(spark, connection, one, ["value"], splits=1, reader=f"tidegate-{kind}")

    assert [bytes(row.value) for row in records.collect()] == [b"found"]
    assert security.password not in str(records._jdf.queryExecution())
