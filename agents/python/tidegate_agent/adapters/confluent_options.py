"""What a consumer is made with: the agent's own options, which the library would not know, and its driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from confluent_kafka import cimpl

from tidegate_agent import green_threads, process
from tidegate_agent.adapters import confluent_client as client
from tidegate_agent.adapters.confluent_client import is_true
from tidegate_agent.adapters.confluent_driver import Driver
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.core import Core
from tidegate_agent.settings import SettingsError, is_strict
from tidegate_agent.start import RuleError

log = logging.getLogger("tidegate_agent")


def own_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], OwnOptions]:
    """What the library is to be made with, and what it would not know. Raises ``KafkaException`` as it would.

    It raises that as well where the process is strict and its settings are wrong.
    """
    given = args[0] if args and isinstance(args[0], dict) else None
    try:
        if is_strict(os.environ):
            process.settings()
        first = take_out(given or {}, str, _is_known)
        named = take_out(kwargs, str, _is_known)
    except (RuleError, SettingsError) as error:
        raise cimpl.KafkaException(cimpl.KafkaError(cimpl.KafkaError._INVALID_ARG, str(error))) from None
    own = OwnOptions(
        {**first.rest, **named.rest}, named.options.over(first.options), first.is_native or named.is_native
    )
    return (args if given is None else (first.rest, *args[1:])), named.rest, own


_known_properties: dict[str, bool] = {}


def _is_known(name: str, value: Any) -> bool:
    """Whether librdkafka has this property; it is asked once, by a consumer that reaches no broker."""
    if name not in _known_properties:
        try:
            client.Consumer({"group.id": "tidegate-agent", name: value, "log_level": 0}).close()
        except cimpl.KafkaException as error:
            # It tells a value that it does not like otherwise.
            _known_properties[name] = "No such configuration property" not in error.args[0].str()
        else:
            _known_properties[name] = True
    return _known_properties[name]


def _auto_offset_reset(config: Mapping[str, Any]) -> object:
    of_topics = config.get("default.topic.config")
    default = of_topics.get("auto.offset.reset") if isinstance(of_topics, Mapping) else None
    return config.get("auto.offset.reset") or default or "largest"


def driver_of(consumer: Any, own: OwnOptions) -> Driver | None:
    config = own.rest
    group = config.get("group.id")
    if not group:
        return None
    try:
        settings = process.settings()
        rule = own.rule(str(group), _auto_offset_reset(config), settings.new_partitions_of(str(group)))
        if green_threads.keep_out(rule):
            return None
        link = process.link(config)
    except SettingsError as error:
        log.error("the agent stays out: %s", error)
        return None
    core = Core(
        str(group),
        client_commits=is_true(config.get("enable.auto.commit"), True),
        client_stores=is_true(config.get("enable.auto.offset.store"), True),
        open_unread_after_s=settings.open_unread_after_s,
        rule=rule,
        may_drop=True,
    )
    return Driver(consumer, config, link, core)
