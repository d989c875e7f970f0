"""``tidegate audit log``: the audit topic's records as lines of JSON."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidegate.admin.secret_files import SecretFiles
from tidegate.audit.codec import line
from tidegate.audit.records import DEFAULT_TOPIC, Change
from tidegate.cli.command_config import read_command_config
from tidegate.cli.errors import Parser, UsageError
from tidegate.cli.screen import Screen
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.audit_reader import AuditReader, Left, Read
from tidegate.kafka_client.settings import BadConnection
from tidegate.resources.durations import parse_duration

_USAGE: Final = "tidegate audit log"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which changes are shown. Empty: all."""

    groups: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """Of what changed them, as ``namespace/name`` or ``name``."""

    def shows(self, change: Change) -> bool:
        by = change.by
        of_group = not self.groups or change.group in self.groups
        return of_group and (not self.names or bool(self.names & {by.name, f"{by.namespace}/{by.name}"}))


def audit_parser() -> argparse.ArgumentParser:
    """The parser of ``tidegate audit log``; it raises ``UsageError``."""
    parser = Parser(
        prog=_USAGE,
        description="Print the audit log as lines of JSON: who changed which committed offsets, from which offset to "
        "which.",
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="SERVERS", help="the server(s) to connect to")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients, to connect with"
    )
    parser.add_argument(
        "--audit-topic",
        default=DEFAULT_TOPIC,
        metavar="TOPIC",
        help=f"the audit topic of the KafkaConnection (default: {DEFAULT_TOPIC})",
    )
    parser.add_argument("--group", action="append", default=[], help="only this group; may be given several times")
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="[NAMESPACE/]NAME",
        help="only what this OffsetReset or OffsetResetPolicy changed; may be given several times",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only records since a time, such as 2026-11-20T14:00:00Z, or of the last duration, such as 168h",
    )
    parser.add_argument("--follow", action="store_true", help="continue with new records, until it is interrupted")
    return parser


def run_audit(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where the topic could not be read to its end. Raises ``UsageError``."""
    options = audit_parser().parse_args(list(arguments))
    since = _since(options.since, datetime.now(UTC))
    with closing(SecretFiles()) as secrets:
        config = read_command_config(options.command_config, options.bootstrap_server, secrets)
        try:
            with closing(AuditReader(config.connection, options.audit_topic)) as reader:
                wanted = Filter(frozenset(options.group), frozenset(options.by))
                return show(reader.read(since=since, follow=options.follow), reader.left, wanted, screen)
        except BadConnection as error:
            raise UsageError(str(error)) from error


def show(found: Iterable[Read], left: Left, wanted: Filter, screen: Screen) -> int:
    """Print what is wanted of it, and say what is missing."""
    code = 0
    try:
        # Interrupted is how following it ends.
        with contextlib.suppress(KeyboardInterrupt):
            for read in found:
                if wanted.shows(read.part.change):
                    screen.show(line(read.part, at_ms=read.at_ms, offset=read.offset) + "\n")
                    screen.out.flush()
    except KafkaFailure as failure:
        screen.note(f"The audit log could not be read to its end: {failure}")
        code = 1
    for count, what in (
        (left.unreadable, "record(s) do not belong to the audit log, and were skipped"),
        (
            left.newer,
            "record(s) were written by a newer version of Tidegate, and were skipped: use that version to read them",
        ),
        (left.undecided, "offset(s) at the end can't be read yet, because a transaction is open"),
    ):
        if count:
            screen.note(f"{count} {what}")
    return code


def _since(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageError(
            f"--since {text}: must be a time with a zone, such as 2026-11-20T14:00:00Z, or a duration such as 168h"
        )
    return at
