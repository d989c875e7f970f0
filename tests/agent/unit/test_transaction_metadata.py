"""Offsets in a transaction are of whoever gave the group metadata with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tidegate_agent.adapters.confluent import ManagedConsumer, ManagedProducer

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def consumers() -> Iterator[tuple[ManagedConsumer, ManagedConsumer]]:
    made = ManagedConsumer({**NOWHERE, "group.id": "one"}), ManagedConsumer({**NOWHERE, "group.id": "other"})
    yield made
    for consumer in made:
        consumer.close()


def test_metadata_that_was_asked_for_once_is_known_however_often_another_consumer_asks_for_its_own(
    consumers: tuple[ManagedConsumer, ManagedConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[tuple[Any, list[Any]]] = []

    def pass_commit(consumer: Any, offsets: list[Any], _send: Any) -> tuple[None, list[Any]]:
        passed.append((consumer, offsets))
        return None, []

    for consumer in consumers:
        monkeypatch.setattr(consumer._driven, "pass_commit", pass_commit)
    metadata = consumers[0].consumer_group_metadata()
    for _ in range(200):
        newest = consumers[1].consumer_group_metadata()
    producer = ManagedProducer({**NOWHERE, "transactional.id": "t"})
    offsets = [TopicPartition("orders", 0, 7)]

    producer.send_offsets_to_transaction(offsets, metadata, 0.1)
    producer.send_offsets_to_transaction(offsets, newest, 0.1)

    assert passed == [(consumers[0], offsets), (consumers[1], offsets)]
