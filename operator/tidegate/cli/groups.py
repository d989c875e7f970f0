"""``tidegate groups``: one command from its options to its exit code."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import Final, assert_never

from tidegate.admin.secret_files import SecretFiles
from tidegate.admin.service import Pauses
from tidegate.cli.command_config import read_command_config
from tidegate.cli.describing import GroupDetails, describe_groups, list_groups
from tidegate.cli.errors import UsageError, in_the_tools_words
from tidegate.cli.options import Action, Options, View
from tidegate.cli.pausing import list_paused, pause, resume
from tidegate.cli.releasing import groups_held, release_all
from tidegate.cli.resetting import Resetting, runs_folder
from tidegate.cli.retaining import describe_retention
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.cluster import Kafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.group_details import KafkaGroupDetails
from tidegate.kafka_client.settings import BadConnection
from tidegate.printable import visible

_SOCKET_TIMEOUT: Final = "socket.timeout.ms"
_LEAST_SOCKET_TIMEOUT_MS: Final = 10
_MOST_SOCKET_TIMEOUT_MS: Final = 300_000


def run(options: Options, screen: Screen) -> int:
    """0, or 1 where something was to be changed and was not.

    As with Kafka's tool a command that only looks ends with 0, also when looking failed. Raises ``UsageError``.
    """
    with closing(SecretFiles()) as secrets:
        config = read_command_config(options.command_config, options.bootstrap_server, secrets)
        if config.ignored:
            screen.note(f"Ignored in --command-config: {', '.join(config.ignored)}")
        connection = connection_of(options, config.connection)
        try:
            kafka = KafkaClient(connection)
        except BadConnection as error:
            raise UsageError(str(error)) from error
        details = KafkaGroupDetails(connection)
        try:
            return carry_out(options, connection, kafka, details, screen)
        except KafkaFailure as error:
            screen.error(in_the_tools_words(error))
            return 1 if changes(options) else 0
        finally:
            details.close()
            kafka.close()


def connection_of(options: Options, connection: Connection) -> Connection:
    """With what the command line says about it."""
    if options.control_topic is not None:
        connection = replace(connection, control_topic=options.control_topic)
    if options.ack_topic is not None:
        connection = replace(connection, ack_topic=options.ack_topic)
    if changes(options) or _SOCKET_TIMEOUT in connection.properties:
        return connection
    limit = min(max(options.request_timeout_ms, _LEAST_SOCKET_TIMEOUT_MS), _MOST_SOCKET_TIMEOUT_MS)
    return replace(connection, properties={**connection.properties, _SOCKET_TIMEOUT: str(limit)})


def changes(options: Options) -> bool:
    """Whether it does more than to look."""
    return options.execute or options.action in (Action.PAUSE, Action.RESUME)


def carry_out(options: Options, connection: Connection, kafka: Kafka, details: GroupDetails, screen: Screen) -> int:
    """Raises ``UsageError`` and ``KafkaFailure``."""
    if options.action is Action.LIST:
        return list_groups(options, details, screen)
    clock = SystemClock()
    pauses = Pauses(kafka, clock)
    groups = _groups(options, kafka, details, pauses)
    match options.action:
        case Action.DESCRIBE if options.view is View.RETENTION:
            return describe_retention(groups, kafka, clock, screen)
        case Action.DESCRIBE:
            return describe_groups(options, groups, kafka, details, screen)
        case Action.RESET_OFFSETS:
            return Resetting(options, connection, kafka, clock, screen, runs_folder(os.environ)).run(groups)
        case Action.PAUSE:
            return pause(options, groups, kafka, pauses, clock, screen)
        case Action.RESUME:
            code = resume(options, groups, kafka, pauses, screen)
        case Action.PAUSED_PARTITIONS:
            code = list_paused(groups, pauses, screen)
        case Action.RELEASE_ALL:
            code = release_all(options, groups, kafka.control, screen)
        case other:
            assert_never(other)
    if not kafka.control.exist:
        screen.note(
            f"There is no control topic {visible(connection.control_topic)} on this cluster, or Tidegate is not "
            "allowed to read it, so no hold was seen. If the KafkaConnection names another topic, give it with "
            "--control-topic."
        )
    return code


def _groups(options: Options, kafka: Kafka, details: GroupDetails, pauses: Pauses) -> tuple[str, ...]:
    if not options.all_groups:
        return options.groups
    if options.action is Action.RELEASE_ALL:
        return groups_held(kafka.control)
    if options.action in (Action.RESUME, Action.PAUSED_PARTITIONS):
        return pauses.groups()  # also groups that are gone, or have yet to come
    # Each once: while a coordinator moves, two brokers may list its groups.
    return tuple(sorted({listed.group_id for listed in details.listing()}))
