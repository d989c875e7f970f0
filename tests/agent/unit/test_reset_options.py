"""What consumers say of new partitions in their own configuration, whichever client library they are made with."""

from __future__ import annotations

import logging
from typing import Any

import aiokafka.consumer.consumer
import kafka.consumer.group
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate_agent import process
from tidegate_agent.adapters import aiokafka as aiokafka_adapter
from tidegate_agent.adapters import confluent_options
from tidegate_agent.adapters import kafka_python as kafka_python_adapter
from tidegate_agent.adapters.confluent import ManagedConsumer
from tidegate_agent.adapters.reset_options import take_out
from tidegate_agent.settings import Settings
from tidegate_agent.start import Options, Rule, RuleError, Start

AGE, NEW = "auto.offset.reset.latest.max.age", "auto.offset.reset.new.partitions"


def unknown(_name: str, _value: object) -> bool:
    return False


def test_what_is_ours_is_taken_out_and_the_rest_stays() -> None:
    config = {"group.id": "g", AGE: "60000", NEW: "earliest"}
    own = take_out(config, str, unknown)
    assert own.rest == {"group.id": "g"}
    assert own.options == Options(60_000, Start.EARLIEST)
    assert config[AGE] == "60000", "the application's own is left as it is"


def test_what_the_client_knows_itself_is_passed_through_and_the_agent_stays_out() -> None:
    own = take_out({AGE: "60000", NEW: "earliest"}, str, lambda name, _: name == NEW)
    assert own.rest == {NEW: "earliest"}
    assert own.rule("g", "latest", Options(60_000)) is None


@pytest.mark.parametrize(
    ("config", "environment", "rule"),
    [
        ({}, Options(), None),
        ({}, Options(60_000), Rule(Start.EARLIEST, 60_000)),
        ({AGE: 5_000}, Options(60_000), Rule(Start.EARLIEST, 5_000)),
        ({AGE: None}, Options(60_000), Rule(Start.EARLIEST, 60_000)),
        ({AGE: -1}, Options(60_000), None),
        ({AGE: 5_000}, Options(None, Start.EARLIEST), Rule(Start.EARLIEST, 5_000)),
        ({NEW: "latest"}, Options(60_000, Start.EARLIEST), None),
    ],
)
def test_a_consumers_own_word_wins_over_the_environments(
    config: dict[str, Any], environment: Options, rule: Rule | None
) -> None:
    assert take_out(config, str, unknown).rule("g", "latest", environment) == rule


@pytest.mark.parametrize(("reset", "said"), [("earliest", True), ("none", True), ("latest", False)])
@pytest.mark.parametrize("age_ms", [0, 60_000])
def test_a_threshold_under_another_policy_is_said_to_do_nothing(
    caplog: pytest.LogCaptureFixture, reset: str, said: bool, age_ms: int
) -> None:
    with caplog.at_level(logging.INFO, "tidegate_agent"):
        rule = take_out({AGE: age_ms}, str, unknown).rule("g", reset, Options())
    assert (rule is None) is said
    assert (f"for auto.offset.reset is {reset}" in caplog.text) is said


def test_a_threshold_that_is_off_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tidegate_agent"):
        take_out({AGE: -1}, str, unknown).rule("g", "earliest", Options())
    assert not caplog.messages


@pytest.mark.parametrize(("name", "value"), [(AGE, -2), (AGE, "soon"), (NEW, "none"), (NEW, "by_duration:PT1H")])
def test_a_value_that_means_nothing_is_refused_with_its_name(name: str, value: object) -> None:
    with pytest.raises(RuleError, match=name):
        take_out({name: value}, str, unknown)


# --- the clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_keywords", [False, True])
def test_librdkafka_never_sees_what_it_does_not_know(as_keywords: bool) -> None:
    config = {"group.id": "g", AGE: 60_000}
    consumer = ManagedConsumer(**config) if as_keywords else ManagedConsumer(config)
    driver = consumer._driven
    consumer.close()
    assert driver.core.rule == Rule(Start.EARLIEST, 60_000)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"auto.offset.reset": "earliest"}, None),
        ({"default.topic.config": {"auto.offset.reset": "smallest"}}, None),
        ({"auto.offset.reset": "end"}, Rule(Start.EARLIEST, 60_000)),
        ({"auto.offset.reset": "earliest", NEW: "latest"}, Rule(Start.LATEST)),
    ],
)
def test_librdkafkas_policies_are_known_by_all_their_names(config: dict[str, Any], rule: Rule | None) -> None:
    consumer = ManagedConsumer({"group.id": "g", AGE: 60_000, **config})
    driver = consumer._driven
    consumer.close()
    assert driver.core.rule == rule


def test_confluent_kafka_is_told_of_a_mistake_as_by_itself() -> None:
    with pytest.raises(KafkaException) as raised:
        ManagedConsumer({"group.id": "g", AGE: -2})
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    assert AGE in raised.value.args[0].str()


def test_the_environment_speaks_for_consumers_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process._process, "settings", Settings(new_partitions=Options(60_000)))
    silent, own = ManagedConsumer({"group.id": "g"}), ManagedConsumer({"group.id": "g", AGE: -1})
    rules = [consumer._driven.core.rule for consumer in (silent, own)]
    for consumer in (silent, own):
        consumer.close()
    assert rules == [Rule(Start.EARLIEST, 60_000), None]


def test_a_mistake_in_the_environment_is_logged_once_and_the_consumer_is_managed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process._process, "settings", None)
    monkeypatch.setenv("TIDEGATE_LATEST_MAX_AGE", "1h")
    with caplog.at_level(logging.ERROR, "tidegate_agent"):
        for _ in range(2):
            consumer = ManagedConsumer({"group.id": "g"})
            assert consumer._driven.core.rule is None
            consumer.close()
    [said] = caplog.messages
    assert said.startswith("TIDEGATE_LATEST_MAX_AGE must be")


def test_librdkafka_itself_is_asked_whether_it_knows_a_property() -> None:
    assert confluent_options._is_known("session.timeout.ms", "7000")
    assert confluent_options._is_known("auto.commit.interval.ms", "-5"), "it knows it, and does not like the value"
    assert not confluent_options._is_known(AGE, "1")
    assert not confluent_options._is_known(NEW, "earliest")


def kafka_python_class(known: dict[str, Any] | None = None) -> type[Any]:
    plain = kafka.consumer.group.KafkaConsumer
    made = type("Knowing", (plain,), {"DEFAULT_CONFIG": {**plain.DEFAULT_CONFIG, **(known or {})}})
    return kafka_python_adapter.consumer_class(made, Settings(), lambda _: pytest.fail("it reached out"))


def test_kafka_python_is_told_of_a_mistake_as_by_itself() -> None:
    with pytest.raises(kafka.errors.KafkaConfigurationError, match="auto_offset_reset_latest_max_age"):
        kafka_python_class()(auto_offset_reset_latest_max_age=-2)
    with pytest.raises(kafka.errors.KafkaConfigurationError, match=r"Unrecognized configs: \{'auto_offset_rest'\}"):
        kafka_python_class()(auto_offset_reset_latest_max_age=1, auto_offset_rest="latest")


def test_kafka_python_is_given_what_it_knows_itself() -> None:
    with pytest.raises(kafka.errors.KafkaConfigurationError, match=r"Unrecognized configs: \{'nonsense'\}"):
        kafka_python_class({"auto_offset_reset_new_partitions": None})(
            auto_offset_reset_new_partitions="by_duration:PT1H", nonsense=1
        )


def test_aiokafka_is_told_of_a_mistake_as_by_itself() -> None:
    plain = aiokafka.consumer.consumer.AIOKafkaConsumer
    kind = aiokafka_adapter.consumer_class(plain, Settings(), lambda _: pytest.fail("it reached out"))
    with pytest.raises(ValueError, match="auto_offset_reset_new_partitions must be earliest or latest"):
        kind(auto_offset_reset_new_partitions="none")
