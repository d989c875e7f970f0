"""Brokers that do not answer are asked again, with Python 3.10 too, where a future's time-out is a class of its own."""

from __future__ import annotations

import concurrent.futures
import re
from pathlib import Path

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

import tidegate_agent
from tidegate_agent import topic_description
from tidegate_agent.topic_description import topic_ids, topic_now, unless_absent


class SilentAdmin:
    """No answer of it ever comes."""

    def describe_topics(self, *_: object, **__: object) -> dict[str, concurrent.futures.Future[object]]:
        return {"t": concurrent.futures.Future()}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_description, "REQUEST_S", -1.0)


def test_no_answer_is_an_error_of_the_brokers() -> None:
    with pytest.raises(KafkaException) as told:
        unless_absent(lambda: topic_now(SilentAdmin(), "t"))
    assert told.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_topic_of_which_nothing_is_heard_has_no_id() -> None:
    assert topic_ids(SilentAdmin(), ["t"]) == {}


def test_no_time_out_is_caught_that_is_another_class_in_python_3_10() -> None:
    """Which continuous integration does not have: it is what ``TIME_OUTS`` is for."""
    package = Path(tidegate_agent.__file__).parent
    caught = re.compile(r"except\b[^\n]*\bTimeoutError")
    assert [path.name for path in sorted(package.rglob("*.py")) if caught.search(path.read_text())] == []
