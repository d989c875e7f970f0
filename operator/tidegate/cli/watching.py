"""``tidegate watch``: the steps of an ``OffsetReset`` or a ``ConsumerGroupPause``, until it is as it was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.cli.acting import carried_out, found, timeout_of
from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.reaching import add_kubernetes, namespace_of_options
from tidegate.cli.screen import Screen

if TYPE_CHECKING:
    from tidegate.kube.client import KubeClient


def watch_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate watch",
        description="Show each step of an OffsetReset until it has ended, or of a ConsumerGroupPause until its "
        "partitions are paused.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "name", metavar="NAME", help="the name of the OffsetReset or, if there is none, of the ConsumerGroupPause"
    )
    add_kubernetes(parser, of="of the resource")
    parser.add_argument("--timeout", default="24h", metavar="DURATION", help="how long to wait (default: 24h)")
    return parser


def run_watch(arguments: Sequence[str], screen: Screen) -> int:
    """0 where it has succeeded, or is paused; 1 otherwise. Raises ``UsageError``."""
    options = watch_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.following import follow, pause_step, reset_step
        from tidegate.clock import SystemClock
        from tidegate.kube.ports import PAUSES, RESETS, KubeFailure, KubeUnavailable

        refused: KubeFailure | None = None
        for kind, step in ((RESETS, reset_step), (PAUSES, pause_step)):
            try:
                body = found(kube, kind, options, options.name)
            except CommandFailed:
                continue
            except KubeUnavailable:
                raise
            except KubeFailure as failure:  # who may see pauses may not be one who may see resets
                refused = refused or failure
                continue
            if refused is not None:
                screen.note(str(refused))
            return follow(kube, kind, body, step, SystemClock(), timeout_s, screen, context=options.context)
        if refused is not None:
            raise refused
        where = f"{options.name} in namespace {namespace_of_options(options)}"
        raise CommandFailed(
            f"there is no OffsetReset and no ConsumerGroupPause {where}: check the name, or give another --namespace"
        )

    return carried_out("tidegate watch", options, act, screen)
