"""The command line of ``tidegate groups``: the options of ``kafka-consumer-groups`` 4.3, of the pause KIP, and ours.

What is refused, and in which words, follows ``ConsumerGroupCommandOptions``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidegate.cli.errors import Parser, UsageError
from tidegate.kafka.model import TopicPartition
from tidegate.resources.durations import ACCEPTED, parse_duration

DEFAULT_TIMEOUT_MS: Final = 5000


class Action(StrEnum):
    """Exactly one of these is what a command does."""

    LIST = "list"
    DESCRIBE = "describe"
    RESET_OFFSETS = "reset-offsets"
    PAUSE = "pause"
    RESUME = "resume"
    PAUSED_PARTITIONS = "paused-partitions"
    RELEASE_ALL = "release-all"


class View(StrEnum):
    """What ``--describe`` shows."""

    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"
    RETENTION = "retention"


class Scenario(StrEnum):
    """Where ``--reset-offsets`` goes."""

    TO_OFFSET = "to-offset"
    SHIFT_BY = "shift-by"
    TO_DATETIME = "to-datetime"
    BY_DURATION = "by-duration"
    TO_EARLIEST = "to-earliest"
    TO_LATEST = "to-latest"
    TO_CURRENT = "to-current"
    FROM_FILE = "from-file"


_FLAGS: Final = frozenset({Scenario.TO_EARLIEST, Scenario.TO_LATEST, Scenario.TO_CURRENT})

WITHOUT_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)


@dataclass(frozen=True, slots=True)
class TopicArgument:
    """``--topic name`` or ``--topic name:0,1``; ``partitions`` absent: all."""

    topic: str
    partitions: tuple[int, ...] | None = None

    def named(self) -> tuple[TopicPartition, ...]:
        """The partitions that are named one by one."""
        return tuple(TopicPartition(self.topic, number) for number in self.partitions or ())


@dataclass(frozen=True, slots=True)
class Options:
    """One command. ``listed_state``, ``listed_type``: ``None`` without the option, empty without a value."""

    action: Action
    bootstrap_server: str
    command_config: Path | None
    control_topic: str | None
    ack_topic: str | None
    audit_topic: str | None
    audit_required: bool
    groups: tuple[str, ...]
    all_groups: bool
    topics: tuple[TopicArgument, ...]
    all_topics: bool
    timeout_ms: int | None
    view: View
    verbose: bool
    listed_state: str | None
    listed_type: str | None
    scenario: Scenario | None
    scenario_value: str
    execute: bool
    export: bool
    reason: str
    drain_timeout: timedelta
    in_flight: timedelta
    max_standstill: timedelta
    holders: tuple[str, ...] = ()
    """With ``--release-all``, those whose holds alone are meant; empty: everybody's."""
    warnings: tuple[str, ...] = ()

    @property
    def request_timeout_ms(self) -> int:
        """How long one request to Kafka may take."""
        return DEFAULT_TIMEOUT_MS if self.timeout_ms is None else self.timeout_ms


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    _add_options_of_kafka(parser.add_argument_group("options of kafka-consumer-groups"))
    pause = parser.add_argument_group("options of the pause KIP (KIP-1249)")
    pause.add_argument("--pause", action="store_true", help="pause partitions, and wait until they are paused")
    pause.add_argument("--resume", action="store_true", help="resume partitions that were paused by hand")
    pause.add_argument("--paused-partitions", action="store_true", help="list paused partitions, and who holds them")
    _add_own_options(parser.add_argument_group("options of Tidegate only"))


def _add_options_of_kafka(kafka: argparse._ArgumentGroup) -> None:
    kafka.add_argument("--bootstrap-server", metavar="HOST:PORT", help="the server(s) to connect to; required")
    kafka.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients: security, timeouts"
    )
    kafka.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="the id of a group; may be given several times"
    )
    kafka.add_argument("--all-groups", action="store_true", help="apply to all consumer groups")
    kafka.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1,2]",
        help="a topic, or some of its partitions; may be given several times",
    )
    kafka.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets for")
    kafka.add_argument(
        "--timeout",
        metavar="MS",
        help=f"how long a request may take (default: {DEFAULT_TIMEOUT_MS} ms); with --pause: how long to wait "
        "until the partitions are paused (default: a little longer than --drain-timeout)",
    )
    kafka.add_argument("--list", action="store_true", help="list the groups")
    kafka.add_argument("--describe", action="store_true", help="describe groups")
    kafka.add_argument("--offsets", action="store_true", help="with --describe: offsets and lag (default)")
    kafka.add_argument("--members", action="store_true", help="with --describe: the members")
    kafka.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATES",
        help="with --describe: the state; with --list: a column for it, filtered if STATES are given",
    )
    kafka.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPES",
        help="with --list: a column for the type, filtered if TYPES are given",
    )
    kafka.add_argument("--verbose", action="store_true", help="with --describe: more columns")
    kafka.add_argument("--reset-offsets", action="store_true", help="reset offsets, also of live groups")
    for scenario in Scenario:
        if scenario in _FLAGS:
            kafka.add_argument(f"--{scenario}", action="store_true")
        else:
            kafka.add_argument(f"--{scenario}", metavar="FILE" if scenario is Scenario.FROM_FILE else "VALUE")
    kafka.add_argument("--dry-run", action="store_true", help="only show what would be done (default)")
    kafka.add_argument(
        "--execute", action="store_true", help="with --reset-offsets: reset; with --release-all: release"
    )
    kafka.add_argument("--export", action="store_true", help="with --reset-offsets: print the new offsets as CSV")


def _add_own_options(ours: argparse._ArgumentGroup) -> None:
    ours.add_argument(
        "--release-all",
        action="store_true",
        help="list everything that is held, whoever holds it, and with --execute release it",
    )
    ours.add_argument(
        "--holder",
        action="append",
        default=[],
        metavar="HOLDER",
        help="with --release-all: only what this holder holds; may be given several times",
    )
    ours.add_argument("--retention", action="store_true", help="with --describe: when the committed offsets expire")
    ours.add_argument(
        "--control-topic", metavar="TOPIC", help="the topic where holds are written (default: __tidegate)"
    )
    ours.add_argument(
        "--ack-topic",
        metavar="TOPIC",
        help="the topic where the agents' acks are read (default: the control topic's name followed by _acks)",
    )
    ours.add_argument("--audit-topic", metavar="TOPIC", help="with --reset-offsets: record each change in this topic")
    ours.add_argument(
        "--audit-required", action="store_true", help="with --audit-topic: change nothing that can't be recorded"
    )
    ours.add_argument(
        "--reason", default="", metavar="TEXT", help="with --pause: the reason, for whoever lists the paused partitions"
    )
    ours.add_argument(
        "--drain-timeout",
        default="30s",
        metavar="DURATION",
        help="how long owners may take to finish the records that they were handed (default: 30s)",
    )
    ours.add_argument(
        "--in-flight",
        default="0s",
        metavar="DURATION",
        help="with --execute: how long an application without the agent may keep records before it commits "
        "them (default: 0s)",
    )
    ours.add_argument(
        "--max-standstill",
        default="30s",
        metavar="DURATION",
        help="with --execute: how long members may wait for one that does not rejoin (default: 30s)",
    )


def groups_parser(prog: str = "tidegate groups") -> argparse.ArgumentParser:
    """The parser of ``tidegate groups``; it raises ``UsageError``."""
    parser = Parser(
        prog,
        description="List, describe, pause, resume, release and reset consumer groups, including live ones, with "
        "Kafka alone.",
    )
    add_options(parser)
    return parser


def parse_options(arguments: Sequence[str]) -> Options:
    """Raises ``UsageError``; ``SystemExit`` for ``--help``."""
    given = groups_parser().parse_args(arguments)
    action = _action(given)
    if not given.bootstrap_server:
        raise UsageError('Missing required argument "[bootstrap-server]"')
    _check_scope(given, action)
    if given.audit_required and not given.audit_topic:
        raise UsageError('Option "[audit-required]" needs option "[audit-topic]"')
    view = _view(given, action)
    scenario, value, warnings = _scenario(given, action)
    return Options(
        action=action,
        bootstrap_server=given.bootstrap_server,
        command_config=given.command_config,
        control_topic=given.control_topic,
        ack_topic=given.ack_topic,
        audit_topic=given.audit_topic,
        audit_required=given.audit_required,
        groups=tuple(dict.fromkeys(given.group)),
        all_groups=given.all_groups,
        topics=tuple(parse_topic(text) for text in given.topic),
        all_topics=given.all_topics,
        timeout_ms=None if given.timeout is None else _milliseconds(given.timeout),
        view=view,
        verbose=given.verbose,
        listed_state=given.state if action is Action.LIST else None,
        listed_type=given.type,
        scenario=scenario,
        scenario_value=value,
        execute=given.execute,
        export=given.export,
        reason=given.reason,
        drain_timeout=_duration("--drain-timeout", given.drain_timeout),
        in_flight=_duration("--in-flight", given.in_flight),
        max_standstill=_duration("--max-standstill", given.max_standstill),
        holders=tuple(dict.fromkeys(given.holder)),
        warnings=warnings,
    )


def _has(given: argparse.Namespace, name: str) -> bool:
    value = getattr(given, name.replace("-", "_"))
    return bool(value) or (isinstance(value, str) and name in ("state", "type"))


def _action(given: argparse.Namespace) -> Action:
    chosen = [action for action in Action if _has(given, action)]
    if len(chosen) != 1:
        names = ", ".join(f"--{action}" for action in Action)
        raise UsageError(f"Command must include exactly one action: {names}")
    return chosen[0]


def _check_scope(given: argparse.Namespace, action: Action) -> None:
    if action is not Action.LIST and not given.group and not given.all_groups:
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if given.group and given.all_groups:
        raise UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if given.group and action is Action.LIST:
        raise UsageError('Option "[group]" can\'t be used with option "[list]"')
    if given.topic and action in (Action.LIST, Action.DESCRIBE, Action.PAUSED_PARTITIONS):
        raise UsageError(f'Option "[topic]" can\'t be used with option "[{action}]"')
    if given.holder and action is not Action.RELEASE_ALL:
        raise UsageError(f'Option "[holder]" can\'t be used with option "[{action}]"')
    if action in (Action.PAUSE, Action.RESUME):
        if not given.topic and not given.all_topics:
            raise UsageError("One of the scopes should be defined: --all-topics, --topic.")
        if given.topic and given.all_topics:
            raise UsageError('Option "[topic]" can\'t be used with option "[all-topics]"')
    if action is Action.RESET_OFFSETS and not (given.topic or given.all_topics or given.from_file):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _view(given: argparse.Namespace, action: Action) -> View:
    chosen = [view for view in View if _has(given, view)]
    available = {
        Action.DESCRIBE: ("members", "offsets", "retention", "state", "verbose"),
        Action.LIST: ("state", "type"),
    }.get(action, ())
    for name in ("members", "offsets", "retention", "state", "type", "verbose"):
        if _has(given, name) and name not in available:
            raise UsageError(f"Option(s) [{name}] are unavailable given other options on the command line")
    if action is not Action.DESCRIBE:
        return View.OFFSETS
    if len(chosen) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if given.state:
        raise UsageError("Option [describe] does not take a value for [state]")
    return chosen[0] if chosen else View.OFFSETS


def _scenario(given: argparse.Namespace, action: Action) -> tuple[Scenario | None, str, tuple[str, ...]]:
    chosen = [s for s in Scenario if getattr(given, s.replace("-", "_")) not in (None, False)]
    if given.dry_run and given.execute and action in (Action.RESET_OFFSETS, Action.RELEASE_ALL):
        raise UsageError(f"Option [{action}] only accepts one of [execute] and [dry-run]")
    if action is not Action.RESET_OFFSETS:
        return None, "", ()
    if not chosen:
        names = ", ".join(f"[{s}]" for s in Scenario)
        raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    if len(chosen) > 1:
        raise UsageError(f'Option "[{chosen[0]}]" can\'t be used with option "[{chosen[1]}]"')
    [scenario] = chosen
    value = "" if scenario in _FLAGS else getattr(given, scenario.replace("-", "_"))
    return scenario, value, () if given.dry_run or given.execute else (WITHOUT_EXECUTE,)


def parse_topic(text: str) -> TopicArgument:
    """``OffsetsUtils.parseTopicsWithPartitions``. Raises ``UsageError``."""
    if ":" not in text:
        return TopicArgument(text)
    parts = text.split(":")
    while parts and not parts[-1]:  # Java's split leaves trailing empty parts out
        parts.pop()
    if len(parts) != 2:
        raise UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
    numbers = parts[1].split(",")
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    for number in numbers:
        if not (number.isascii() and number.isdigit() and int(number) < 2**31):
            raise UsageError(f"Invalid partition '{number}' specified in topic arg '{text}''")
    return TopicArgument(parts[0], tuple(dict.fromkeys(map(int, numbers))))


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise UsageError(f"Cannot parse argument '{text}' of option timeout")
    return int(text)


def _duration(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"{name} {text}: {ACCEPTED}") from None
