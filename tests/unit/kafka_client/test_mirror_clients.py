"""What brokers answer a mirror that is no answer to what it has asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.mirror_clients import MirrorSource
from tidegate.mirror.model import Interrupted


class Throttling:
    """Brokers that answer so while a quota is used up (``FullFetchContext.getThrottledResponse``)."""

    BROKER_TIMEOUT_S = 1.0

    def ask(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(error_code=0, responses=[])


def test_a_source_that_holds_back_by_a_quota_is_asked_again_soon() -> None:
    source = MirrorSource(cast("Any", Throttling()), TopicPartition("t", 0))
    source._leader = 1

    found = source.read(0)

    assert isinstance(found, Interrupted)
    assert "quota" in found.reason
