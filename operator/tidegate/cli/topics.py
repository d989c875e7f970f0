"""``tidegate topics --describe``: between which times partitions were created, as far as the control topic knows."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tidegate.admin.secret_files import SecretFiles
from tidegate.cli.command_config import read_command_config
from tidegate.cli.errors import Parser, UsageError, in_the_tools_words
from tidegate.cli.screen import Screen
from tidegate.cli.tables import MISSING
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Topic
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.printable import visible


def topics_parser() -> argparse.ArgumentParser:
    """The parser of ``tidegate topics``; it raises ``UsageError``."""
    parser = Parser(
        prog="tidegate topics",
        description="Describe topics: show between which times each partition was created, by the brokers' clock.",
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="SERVERS", help="the server(s) to connect to")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients, to connect with"
    )
    parser.add_argument(
        "--control-topic", metavar="TOPIC", help="the topic where creation times are recorded (default: __tidegate)"
    )
    parser.add_argument("--describe", action="store_true", required=True, help="describe topics")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic; may be given several times (default: all topics)",
    )
    return parser


def run_topics(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where a topic that was named does not exist, or nothing could be read. Raises ``UsageError``."""
    options = topics_parser().parse_args(list(arguments))
    with closing(SecretFiles()) as secrets:
        config = read_command_config(options.command_config, options.bootstrap_server, secrets)
        connection = config.connection
        if options.control_topic is not None:
            connection = replace(connection, control_topic=options.control_topic)
        try:
            with closing(KafkaClient(connection)) as kafka:
                topics, known = kafka.topics(), kafka.control.read().partitions
        except BadConnection as error:
            raise UsageError(str(error)) from error
        except KafkaFailure as error:
            screen.error(in_the_tools_words(error))
            return 1
    return describe_topics(options.topic, topics, known, screen)


def describe_topics(
    names: Collection[str],
    topics: Mapping[str, Topic],
    known: Mapping[PartitionKey, PartitionSeen],
    screen: Screen,
) -> int:
    """Those that are named, or all. 1: one of them does not exist."""
    missing = sorted(set(names) - topics.keys())
    for name in sorted(set(names) & topics.keys() if names else topics):
        screen.show(described(topics[name], known))
    for name in missing:
        screen.error(f"Topic '{visible(name)}' does not exist as expected")
    return 1 if missing else 0


def described(topic: Topic, known: Mapping[PartitionKey, PartitionSeen]) -> str:
    """A line for the topic and one for each partition, in the layout of ``kafka-topics --describe``.

    KIP-1327 has one creation time; what was seen from outside are two bounds of it.
    """
    lines = [f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {topic.partitions}"]
    recorded = [known.get(PartitionKey(topic.name, topic.topic_id, number)) for number in range(topic.partitions)]
    # The highest that was there at first stands for those below it.
    initial = max((number for number, seen in enumerate(recorded) if seen is not None and seen.initial), default=-1)
    for number, seen in enumerate(recorded):
        told = PartitionSeen(initial=True) if seen is None and number < initial else seen
        lines.append(f"\tTopic: {topic.name}\tPartition: {number}\t{_bounds(told)}")
    return "\n".join(lines) + "\n"


def _bounds(seen: PartitionSeen | None) -> str:
    """``Initial``: it was there at the first discovery, so nobody knows how old it is."""
    if seen is None:
        return f"CreatedAfter: {MISSING}\tCreatedBefore: {MISSING}\tInitial: {MISSING}"
    initial = "yes" if seen.initial else "no"
    return f"CreatedAfter: {_time(seen.seen_absent_ms)}\tCreatedBefore: {_time(seen.seen_ms)}\tInitial: {initial}"


def _time(ms: int | None) -> str:
    """As ``kafka-topics`` prints KIP-1327's ``CreationTimeMs``; of a time that no calendar has, the milliseconds."""
    if ms is None:
        return MISSING
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError):
        return str(ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
