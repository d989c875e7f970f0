"""``tidegate status``: the resources of a namespace on one screen."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.errors import Parser
from tidegate.cli.reaching import add_kubernetes, add_output, dumped, kube_client, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.incident.overview import Overview

VERSION: Final = 1
"""Of the JSON: raised when a member is removed or changes its meaning."""


def status_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate status",
        description="Show what waits for a person, and the resets, pauses, policies, backups and connections of a "
        "namespace.",
        allow_abbrev=False,
    )
    add_kubernetes(parser, of="of the resources", all_namespaces=True)
    add_output(parser)
    return parser


def run_status(arguments: Sequence[str], screen: Screen) -> int:
    """0; 1 where nothing could be listed. Raises ``UsageError``."""
    options = status_parser().parse_args(list(arguments))

    from tidegate.clock import SystemClock
    from tidegate.incident.listings import everything
    from tidegate.kube.api import NoCluster

    everywhere = options.all_namespaces
    where = "all namespaces" if everywhere else f"namespace {namespace_of_options(options)}"
    try:
        kube = kube_client(options, everywhere=everywhere)
    except NoCluster as failure:
        screen.note(f"tidegate status: {visible(str(failure))}")
        return 1
    with ThreadPoolExecutor(1, thread_name_prefix="tidegate-status") as threads:
        listing = threads.submit(everything, kube)
        # While the API server answers: the models take as long to import as its answers take.
        from tidegate.incident.overview import lines, overview_of

        overview = overview_of(listing.result(), where)
    if options.output != "text":
        screen.show(dumped(as_json(overview), options.output))
    else:
        if isinstance(screen.out, io.TextIOWrapper):
            screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
        screen.show("".join(f"{line}\n" for line in lines(overview, SystemClock().now())))
    return 0 if overview.listed else 1


def as_json(overview: Overview) -> dict[str, Any]:
    from tidegate.resources.timestamps import format_timestamp

    return {
        "kind": "NamespaceStatus",
        "version": VERSION,
        "where": overview.where,
        "parts": {
            part.title: [
                {
                    "kind": row.kind,
                    "namespace": row.namespace,
                    "name": row.name,
                    "about": row.about,
                    "state": row.state,
                    "since": None if row.since is None else format_timestamp(row.since),
                    "message": row.message,
                    "troubled": row.troubled,
                }
                for row in part.rows
            ]
            for part in overview.parts
        },
        "notSeen": [{"what": unseen.what, "why": unseen.why} for unseen in overview.unseen],
    }
