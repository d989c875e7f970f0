"""What the reader of the control topics makes of topics that the brokers do not know yet, or no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import control_reader
from tidegate.kafka_client.control_reader import ControlReader

TOPIC = "__tidegate"
UNKNOWN = UnknownPartitions(frozenset({TopicPartition(TOPIC, 0)}))


class Leaders:
    """Stand for ``LogOffsets``: they answer each question by the next of ``answers``."""

    def __init__(self, answers: Iterable[int | KafkaFailure]) -> None:
        self._answers: Iterator[int | KafkaFailure] = iter(answers)

    def at(self, asked: dict[TopicPartition, int], _what: str) -> dict[TopicPartition, int]:
        answer = next(self._answers)
        if isinstance(answer, KafkaFailure):
            raise answer
        return dict.fromkeys(asked, answer)


def _ends(*answers: int | KafkaFailure) -> dict[tuple[str, int], int]:
    nobody: Any = None
    leaders: Any = Leaders(answers)
    reader = ControlReader(Connection(bootstrap_servers="127.0.0.1:1"), (TOPIC, f"{TOPIC}-acks"), nobody, leaders)
    reader._next = {(TOPIC, 0): 0}
    return reader._known_ends()


def test_a_topic_that_was_made_just_now_is_asked_for_again() -> None:
    assert _ends(UNKNOWN, UNKNOWN, 7) == {(TOPIC, 0): 7}


def test_a_topic_that_stays_unknown_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_reader, "_MADE_S", 0.0)
    with pytest.raises(Unavailable, match=f"read topic {TOPIC}: it is being deleted"):
        _ends(UNKNOWN, UNKNOWN, 7)


@pytest.mark.parametrize(
    "failure", [Unavailable("no leader"), Refused("not like this")], ids=lambda f: type(f).__name__
)
def test_what_was_waited_for_already_is_told_at_once(failure: KafkaFailure) -> None:
    with pytest.raises(type(failure), match=str(failure)):
        _ends(failure, 7)
