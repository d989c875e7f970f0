"""``tidegate audit``: looks at a Kafka cluster, and says what is about to go wrong with its groups' offsets."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidegate.admin.secret_files import SecretFiles
from tidegate.cli.audit_json import as_json
from tidegate.cli.audit_page import page
from tidegate.cli.audit_screen import show
from tidegate.cli.command_config import read_command_config
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.inspection.findings import Severity
from tidegate.inspection.gather import Asked, Audit
from tidegate.inspection.report import Report
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.kafka_client.survey import KafkaSurvey
from tidegate.printable import visible
from tidegate.resources.durations import format_duration, parse_duration

FOUND: Final = 2
"""The exit code with ``--fail-on``: it ran, and found something of that severity. 1 is for what did not run."""

_NOTHING: Final = ("0", "0s")


def cluster_audit_parser() -> argparse.ArgumentParser:
    """The parser of ``tidegate audit``; it raises ``UsageError``."""
    parser = Parser(
        prog="tidegate audit",
        description="Look at the consumer groups of a Kafka cluster twice, some seconds apart, and report what is "
        "about to go wrong with their offsets. Needs only permissions to read, and changes nothing.",
        epilog="For the log of who changed which offsets, see tidegate audit log --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="SERVERS", help="the server(s) to connect to")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients, to connect with"
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only groups with this name, or that match a pattern with '*'; may be given several times",
    )
    parser.add_argument(
        "--watch",
        default="20s",
        metavar="DURATION",
        help="time between the two looks (default: 20s); 0: look only once",
    )
    parser.add_argument(
        "--expires-within",
        default="24h",
        metavar="DURATION",
        help="offsets that expire within this time are critical (default: 24h)",
    )
    parser.add_argument(
        "--exact",
        type=int,
        default=20,
        metavar="N",
        help="for how many groups without members to read exact expiry times in __consumer_offsets (default: 20)",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="if the brokers' versions don't tell what they allow, try it with groups named tidegate.probe/…, "
        "which are deleted again; without this option nothing is created",
    )
    parser.add_output()
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write one self-contained HTML page")
    parser.add_argument(
        "--fail-on",
        choices=[severity.value for severity in Severity],
        metavar="SEVERITY",
        help=f"exit with {FOUND} if a finding is this bad or worse: critical, warning or info",
    )
    return parser


def run_cluster_audit(arguments: Sequence[str], screen: Screen) -> int:
    """0; 1 where the cluster could not be looked at; ``FOUND``. Raises ``UsageError``."""
    options = cluster_audit_parser().parse_args(list(arguments))
    asked = _asked(options)
    with closing(SecretFiles()) as secrets:
        config = read_command_config(options.command_config, options.bootstrap_server, secrets)
        if config.ignored:
            screen.note(f"Ignored in --command-config: {', '.join(config.ignored)}")
        if asked.watch:
            only = "" if asked.probe else "; nothing is changed"
            screen.note(f"Looking twice, {format_duration(asked.watch)} apart{only}.")
        try:
            report = _report(config.connection, asked)
            _write(options, report, screen)
        except (KafkaFailure, CommandFailed) as failure:
            screen.note(f"tidegate audit: {visible(str(failure))}")
            return 1
    return FOUND if options.fail_on is not None and report.reaches(Severity(options.fail_on)) else 0


def _report(connection: Connection, asked: Asked) -> Report:
    try:
        with closing(KafkaClient(connection)) as kafka, closing(KafkaSurvey(connection)) as survey:
            return Audit(kafka, survey, SystemClock(), asked).report()
    except BadConnection as error:
        raise UsageError(str(error)) from error


def _asked(options: argparse.Namespace) -> Asked:
    if options.exact < 0:
        raise UsageError("--exact takes a number of groups, 0 or more")
    return Asked(
        groups=tuple(options.group),
        watch=_duration("--watch", options.watch),
        soon=_duration("--expires-within", options.expires_within),
        exact=options.exact,
        probe=options.probe,
    )


def _duration(option: str, text: str) -> timedelta:
    if text in _NOTHING:
        return timedelta()
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def _write(options: argparse.Namespace, report: Report, screen: Screen) -> None:
    if options.output == "json":
        screen.show(json.dumps(as_json(report)) + "\n")  # indented, it takes several times as long
    else:
        if isinstance(screen.out, io.TextIOWrapper):
            screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
        show(report, screen.out)
    if options.html is not None:
        try:
            options.html.write_text(page(report), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise CommandFailed(f"can't write {options.html}: {error.strerror}") from error
        screen.note(f"written: {options.html}")
