"""``tidegate`` (and ``kubectl tidegate``): reads the command line, and turns the outcome into an exit code."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Final

from tidegate import __version__
from tidegate.cli.commands import COMMANDS, usage
from tidegate.cli.ending import INTERRUPTED, arrived, interruptible
from tidegate.cli.errors import UsageError
from tidegate.cli.screen import Screen
from tidegate.printable import visible

BAD_USAGE: Final = 1
"""As Kafka's tools have it; not the 2 of most programs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0; 1 for bad usage, or for a change that was not made; 130 when it was interrupted; 141 where
    whoever read the output was gone before its end."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    screen = _screen()
    with interruptible():
        try:
            code = _called(given, screen)
        except BrokenPipeError:
            code = arrived(screen, 0)
            if not code:
                raise  # it was no pipe of ours
        except SystemExit as ended:  # of --help
            raise SystemExit(arrived(screen, ended.code if isinstance(ended.code, int) else 0)) from None
        except KeyboardInterrupt:
            screen.note("Interrupted.")
            code = INTERRUPTED
        except UnicodeEncodeError as error:
            # Escapes would be other names to whoever reads them in a script.
            screen.note(
                f"tidegate: {error.object[error.start]!a} can't be written to standard output, because its encoding is "
                f"{error.encoding}: use UTF-8"
            )
            code = BAD_USAGE
        return arrived(screen, code)


def _screen() -> Screen:
    """Python has no stream where the descriptor is closed."""
    streams = (sys.stdout, sys.stderr)
    out, err = (stream or open(os.devnull, "w", encoding="utf-8") for stream in streams)  # noqa: SIM115, PTH123
    return Screen(out, err)


def _called(given: Sequence[str], screen: Screen) -> int:
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
    screen.note(usage(first or None).rstrip("\n"))
    return BAD_USAGE


def _groups(arguments: Sequence[str], screen: Screen) -> int:
    from tidegate.cli.options import groups_parser, parse_options

    if isinstance(screen.out, io.TextIOWrapper):
        screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    try:
        options = parse_options(arguments)

        from tidegate.cli.groups import run

        return run(options, screen)
    except UsageError as error:
        screen.note(str(error))
        screen.note(groups_parser().format_usage().rstrip("\n"))
        return BAD_USAGE
    except KeyboardInterrupt:
        screen.note("Interrupted; --paused-partitions shows what is held.")
        return INTERRUPTED


def _beside(
    command: Callable[[Sequence[str], Screen], int],
    parser: Callable[[], ArgumentParser],
    arguments: Sequence[str],
    screen: Screen,
) -> int:
    """A command that says itself what goes on where it is interrupted."""
    try:
        return command(arguments, screen)
    except UsageError as error:
        screen.note(str(error))
        screen.note(parser().format_usage().rstrip("\n"))
        return BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
