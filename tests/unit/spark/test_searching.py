"""A search whose connection Kafka's Java client can't be given is refused at once, and says why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Range, TopicPartition
from tidegate.reset.model.targets import ToRecord
from tidegate.spark.expression import Condition
from tidegate.spark.find import _Scan, _Teller


def test_a_password_that_only_our_own_client_takes_ends_the_search(tmp_path: Path) -> None:
    """Librdkafka has looked around with it, before Spark's connector is to read."""
    password = tmp_path / "password"
    password.write_text('with"quote')
    auth = Authentication(AuthenticationType.SCRAM_SHA_512, username="tidegate", password_file=password)
    connection = Connection("kafka:9093", authentication=auth)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    teller = _Teller(lambda _searched: None, FakeClock(), 10)
    condition = Condition("true", frozenset())
    scan = _Scan(spark, connection, condition, None, ToRecord("true"), FakeClock(), teller)

    with pytest.raises(Refused, match="holds a quote, a backslash or a line break"):
        scan.search({TopicPartition("orders", 0): Range(0, 10)}, beyond=False, pace=None)
