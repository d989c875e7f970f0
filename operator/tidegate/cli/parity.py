"""``tidegate parity``: whether offsets of another cluster mean the same records here, found out by Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tidegate.admin.secret_files import SecretFiles
from tidegate.cli.command_config import read_command_config
from tidegate.cli.errors import Parser, UsageError
from tidegate.cli.options import parse_topic
from tidegate.cli.screen import Screen
from tidegate.find.parity import Parity, as_json
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.options import spark_home
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.settings import BadConnection
from tidegate.printable import visible
from tidegate.reset.model.request import Selection


def parity_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate parity",
        description="Compare topics of two clusters offset by offset, and say whether offsets can be carried over.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bootstrap-server",
        required=True,
        metavar="SERVERS",
        help="the server(s) of the cluster to which offsets are to be carried over",
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients, to connect with"
    )
    parser.add_argument(
        "--other-bootstrap-server",
        required=True,
        metavar="SERVERS",
        help="the server(s) of the cluster that the offsets come from",
    )
    parser.add_argument(
        "--other-command-config",
        type=Path,
        metavar="FILE",
        help="a properties file for Java clients, to connect to that cluster with",
    )
    parser.add_argument(
        "--topic", action="append", required=True, metavar="TOPIC[:0,1]", help="a topic; may be given several times"
    )
    parser.add_argument(
        "--alias", help="MirrorMaker 2's alias of the other cluster, if topics are called ALIAS.TOPIC here"
    )
    parser.add_output()
    return parser


def run_parity(arguments: Sequence[str], screen: Screen) -> int:
    """0 where offsets of every partition may be carried over, 1 otherwise. Raises ``UsageError``."""
    options = parity_parser().parse_args(list(arguments))
    selections = []
    for text in options.topic:
        topic = parse_topic(text)
        numbers = None if topic.partitions is None else frozenset(topic.partitions)
        selections.append(Selection(topic.topic, numbers))
    with closing(SecretFiles()) as here_secrets, closing(SecretFiles()) as there_secrets:
        here = read_command_config(options.command_config, options.bootstrap_server, here_secrets)
        there = read_command_config(options.other_command_config, options.other_bootstrap_server, there_secrets)
        try:
            found = _compared(here.connection, there.connection, selections, options.alias)
        except BadConnection as error:
            raise UsageError(str(error)) from error
        except (KafkaFailure, RunnerFailure, ValueError) as error:
            screen.note(f"tidegate parity: {visible(str(error))}")
            return 1
    screen.show(as_json(found) if options.output == "json" else _table(found))
    return 0 if all(p.carries_over for p in found) else 1


def _compared(here: Connection, there: Connection, selections: Sequence[Selection], alias: str | None) -> list[Parity]:
    spark_home()  # raises where pyspark is not installed, before any of it is imported
    from tidegate.spark.local_parity import compared

    return compared(here, there, selections, alias)


def _table(found: Sequence[Parity]) -> str:
    header = ("TOPIC", "PARTITION", "OFFSETS", "OTHER-OFFSETS", "COMPARED", "CARRIES-OVER", "VERDICT")
    rows = [
        (
            p.pair.here.topic,
            str(p.pair.here.partition),
            f"{p.pair.bounds_here.earliest}-{p.pair.bounds_here.latest}",
            f"{p.pair.bounds_there.earliest}-{p.pair.bounds_there.latest}",
            str(p.compared),
            "yes" if p.carries_over else "no",
            p.verdict,
        )
        for p in found
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header) - 1)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) + "\n"
        for row in (header, *rows)
    )
