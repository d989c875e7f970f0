"""``tidegate`` (and ``kubectl tidegate``): reads the command line, and turns the outcome into an exit code."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from tidegate import __version__
from tidegate.cli.commands import COMMANDS, usage
from tidegate.cli.errors import UsageError
from tidegate.cli.screen import Screen
from tidegate.printable import visible

BAD_USAGE: Final = 1
"""As Kafka's tools have it; not the 2 of most programs."""

INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0; 1 for bad usage, or for a change that was not made; 130 when it was interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    screen = Screen(sys.stdout, sys.stderr)
    match given:
        case ["--version"]:
            screen.show(f"{__version__}\n")
            return 0
        case ["--help" | "-h" | "help"]:
            screen.show(usage())
            return 0
        case ["__complete", *words]:
            from tidegate.cli.completing import complete

            return complete(words, screen)
        case ["groups", *rest]:
            return _groups(rest, screen)
        case _:
            found = next((c for c in COMMANDS if given[: len(c.words)] == list(c.words)), None)
            if found is None:
                return _no_command(given, screen)
            parser, run = found.load()
            return _beside(run, parser, given[len(found.words) :], screen)


def _no_command(given: Sequence[str], screen: Screen) -> int:
    """Of a command that is one of several, such as ``backup``, those; else all."""
    first = [c for c in COMMANDS if len(c.words) > 1 and given and c.words[0] == given[0]]
    asks_for_help = bool(first) and list(given[1:]) in (["--help"], ["-h"])
    if asks_for_help:
        screen.show(usage(first))
        return 0
    if given:
        screen.note(f"there is no command {visible(' '.join(given[: 2 if first else 1]))}")
    screen.err.write(usage(first or None))
    return BAD_USAGE


def _groups(arguments: Sequence[str], screen: Screen) -> int:
    from tidegate.cli.options import groups_parser, parse_options

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options = parse_options(arguments)

        from tidegate.cli.groups import run

        return run(options, screen)
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
