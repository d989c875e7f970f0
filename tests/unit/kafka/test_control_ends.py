"""What the reader of the control topics makes of a partition that has no leader for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.kafka.connection import Connection
from tidegate.kafka.control import KafkaControlTopics
from tidegate.kafka.errors import Refused


class Admin:
    """Answers each question for the log's end by the next of ``answers``: an offset, or an error's code."""

    def __init__(self, *answers: int | tuple[int]) -> None:
        self._answers: Iterator[int | tuple[int]] = iter(answers)

    def list_offsets(self, asked: dict[ClientTopicPartition, Any], **_: Any) -> dict[ClientTopicPartition, Any]:
        answer, future = next(self._answers), Future[Any]()
        if isinstance(answer, int):
            future.set_result(SimpleNamespace(offset=answer))
        else:
            future.set_exception(KafkaException(KafkaError(*answer)))
        return dict.fromkeys(asked, future)


def _ends(admin: Admin) -> dict[tuple[str, int], int]:
    topics = KafkaControlTopics(Connection(bootstrap_servers="127.0.0.1:1"), admin)
    topics._next = {("__tidegate", 0): 0}
    return topics._known_ends()


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
def test_a_topic_that_was_made_just_now_is_asked_for_again(code: int) -> None:
    assert _ends(Admin((code,), (code,), 7)) == {("__tidegate", 0): 7}


def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    with pytest.raises(Refused, match="read the end of topic __tidegate"):
        _ends(Admin((KafkaError.TOPIC_EXCEPTION,), 7))
