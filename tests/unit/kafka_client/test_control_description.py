"""What is said of the control topics while one of them is being deleted or created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tidegate.kafka.errors import Refused
from tidegate.kafka_client import control_description
from tidegate.kafka_client.control_description import topic_facts

UNKNOWN_TOPIC, POLICY_VIOLATION = 3, 44


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By topic the error code with which its settings are answered; all of them are described."""
    codes: dict[str, int] = {}

    def described(_wire: Any, names: list[str]) -> dict[str, Any]:
        topic = SimpleNamespace(topic_id=UUID(int=7), partitions=())
        return dict.fromkeys(names, topic)

    monkeypatch.setattr(control_description, "describe_existing", described)
    monkeypatch.setattr(control_description, "topic_settings", lambda *_, **__: {n: (c, {}) for n, c in codes.items()})
    return codes


def test_a_topic_that_is_gone_by_then_is_not_there(answers: dict[str, int]) -> None:
    answers |= {"control": UNKNOWN_TOPIC, "acks": 0}

    assert list(topic_facts(SimpleNamespace(), ["control", "acks"])) == ["acks"]


def test_any_other_error_is_told(answers: dict[str, int]) -> None:
    answers |= {"control": POLICY_VIOLATION}

    with pytest.raises(Refused, match="read the settings of topic control"):
        topic_facts(SimpleNamespace(), ["control"])
