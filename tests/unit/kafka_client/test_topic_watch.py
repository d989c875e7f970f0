"""Which broker a watch asks, and what it makes of their answers."""

from __future__ import annotations

import pytest

from support.scripted_brokers import HEAD, ID, ScriptedBrokers, ScriptedTopic
from tidegate.kafka.errors import NotAuthenticated, Refused, Unavailable
from tidegate.kafka.model import Topic
from tidegate.kafka_client.topic_ids import topic_id_of_bytes
from tidegate.kafka_client.topic_watch import KafkaTopicWatch


def answer(partitions: int, *, leader: int = 0, topic_id: bytes = ID) -> list[ScriptedTopic]:
    return [ScriptedTopic("orders", partitions, leader, topic_id)]


def orders(partitions: int, topic_id: bytes = ID) -> dict[str, Topic]:
    return {"orders": Topic("orders", topic_id_of_bytes(topic_id), partitions)}


def test_the_broker_that_answers_is_asked_again_and_again() -> None:
    brokers = ScriptedBrokers(Unavailable("gone"), answer(1), answer(1))
    watch = KafkaTopicWatch(brokers)
    assert watch.poll() == orders(1)
    brokers.answers[0] = answer(1)
    assert [watch.poll() for _ in range(3)] == [None, None, None]
    assert brokers.asked == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("silence", [Unavailable("gone"), b"", HEAD + b"\x05"], ids=["silent", "empty", "cut off"])
def test_another_broker_is_asked_where_one_does_not_answer(silence: bytes | Exception) -> None:
    brokers = ScriptedBrokers(answer(1), answer(2))
    watch = KafkaTopicWatch(brokers)
    watch.poll()
    brokers.answers[0] = silence
    assert watch.poll() == orders(2)
    assert watch.poll() is None
    assert brokers.asked == [0, 0, 1, 1]
    assert not brokers.closed


def test_a_leader_that_moves_is_no_news() -> None:
    brokers = ScriptedBrokers(answer(3))
    watch = KafkaTopicWatch(brokers)
    assert watch.poll() == orders(3)
    brokers.answers[0] = answer(3, leader=1)
    assert watch.poll() is None
    brokers.answers[0] = answer(4, leader=1)
    assert watch.poll() == orders(4)


def test_a_broker_that_lags_behind_takes_no_partition_back() -> None:
    brokers = ScriptedBrokers(answer(5), answer(3))
    watch = KafkaTopicWatch(brokers)
    assert watch.poll() == orders(5)
    brokers.answers[0] = Unavailable("gone")
    assert watch.poll() is None
    brokers.answers[1] = answer(6)
    assert watch.poll() == orders(6)
    brokers.answers[1] = answer(2, topic_id=bytes(16))
    assert watch.poll() == orders(2, bytes(16))


def test_when_no_broker_answers_they_are_looked_for_anew_and_everything_is_told_again() -> None:
    brokers = ScriptedBrokers(answer(1))
    watch = KafkaTopicWatch(brokers, timeout_s=0)
    watch.poll()
    brokers.answers[0] = Unavailable("gone")
    with pytest.raises(Unavailable, match="gone"):
        watch.poll()
    assert brokers.closed == 1
    brokers.answers[0] = answer(1)
    assert watch.poll() == orders(1)
    brokers.answers[0] = b"\x00"
    with pytest.raises(Unavailable, match="look at the topics"):
        watch.poll()


@pytest.mark.parametrize("failure", [NotAuthenticated("who are you"), Refused("too old")])
def test_what_another_broker_would_not_change_is_raised_at_once(failure: Exception) -> None:
    brokers = ScriptedBrokers(failure, answer(1))
    with pytest.raises(type(failure)):
        KafkaTopicWatch(brokers).poll()
    assert brokers.asked == [0]
