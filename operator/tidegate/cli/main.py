"""``tidegate`` (and ``kubectl tidegate``): reads the command line, and turns the outcome into an exit code."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from tidegate import __version__
from tidegate.cli.auditing import audit_parser, run_audit
from tidegate.cli.errors import UsageError
from tidegate.cli.groups import run
from tidegate.cli.options import groups_parser, parse_options
from tidegate.cli.parity import parity_parser, run_parity
from tidegate.cli.screen import Screen
from tidegate.cli.topics import run_topics, topics_parser

BAD_USAGE: Final = 1
"""As Kafka's tools have it; not the 2 of most programs."""

INTERRUPTED: Final = 130

_USAGE: Final = """\
usage: tidegate groups OPTIONS      list, describe, pause, resume and reset consumer groups
       tidegate reset GROUP OPTIONS reset consumer groups by an OffsetReset of a Kubernetes cluster
       tidegate plan NAME           what an OffsetReset would read again and skip
       tidegate approve NAME        let that plan be applied
       tidegate parity OPTIONS      whether offsets of another cluster mean the same records here
       tidegate topics OPTIONS      between which times the partitions of topics were created
       tidegate audit OPTIONS       what is about to go wrong with the groups of a cluster; it only looks
       tidegate audit log OPTIONS   who had which committed offsets changed, as lines of JSON
       tidegate env POLICY          what an OffsetResetPolicy's consumers have to find in their environment
       tidegate acls CONNECTION     the permissions that a KafkaConnection's principals need in Kafka
       tidegate COMMAND --help      its options
       tidegate --version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0; 1 for bad usage, or for a change that was not made; 130 when it was interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    screen = Screen(sys.stdout, sys.stderr)
    match given:
        case ["--version"]:
            screen.show(f"{__version__}\n")
            return 0
        case ["--help" | "-h" | "help"]:
            screen.show(_USAGE)
            return 0
        case ["groups", *rest]:
            return _groups(rest, screen)
        # Kubernetes' client takes longer to import than most commands to run: for those who use it only.
        case ["env", *rest]:
            from tidegate.cli.env import env_parser, run_env

            return _beside(run_env, env_parser, rest, screen)
        case ["acls", *rest]:
            from tidegate.cli.acls import acls_parser, run_acls

            return _beside(run_acls, acls_parser, rest, screen)
        case ["reset", *rest]:
            from tidegate.cli.asking import reset_parser, run_reset

            return _beside(run_reset, reset_parser, rest, screen)
        case ["plan", *rest]:
            from tidegate.cli.planning import plan_parser, run_plan

            return _beside(run_plan, plan_parser, rest, screen)
        case ["approve", *rest]:
            from tidegate.cli.approving import approve_parser, run_approve

            return _beside(run_approve, approve_parser, rest, screen)
        case ["parity", *rest]:
            return _beside(run_parity, parity_parser, rest, screen)
        case ["audit", "log", *rest]:
            return _beside(run_audit, audit_parser, rest, screen)
        case ["audit", *rest]:
            from tidegate.cli.cluster_audit import cluster_audit_parser, run_cluster_audit

            return _beside(run_cluster_audit, cluster_audit_parser, rest, screen)
        case ["topics", *rest]:
            return _beside(run_topics, topics_parser, rest, screen)
        case _:
            screen.err.write(_USAGE)
            return BAD_USAGE


def _groups(arguments: Sequence[str], screen: Screen) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(parse_options(arguments), screen)
    except UsageError as error:
        screen.note(str(error))
        screen.err.write(groups_parser().format_usage())
        return BAD_USAGE
    except KeyboardInterrupt:
        screen.note("Interrupted; see --paused-partitions for what is held.")
        return INTERRUPTED


def _beside(
    command: Callable[[Sequence[str], Screen], int],
    parser: Callable[[], ArgumentParser],
    arguments: Sequence[str],
    screen: Screen,
) -> int:
    """A command that leaves nothing half done where it is interrupted."""
    try:
        return command(arguments, screen)
    except UsageError as error:
        screen.note(str(error))
        screen.err.write(parser().format_usage())
        return BAD_USAGE
    except KeyboardInterrupt:
        screen.note("Interrupted.")
        return INTERRUPTED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ended politely, a reset puts back what it has begun."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
