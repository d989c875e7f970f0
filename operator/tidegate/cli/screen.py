"""Where a command writes: results, and what is said to a person beside them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TextIO

from tidegate.printable import visible


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output and standard error of one command.

    A terminal that was closed, or a pipe that nobody reads, ends nothing: what is being changed is changed, or rolled
    back, all the same. Whether a result has arrived is seen when the command has ended (``tidegate.cli.main``).
    """

    out: TextIO
    err: TextIO
    lost: list[OSError] = field(default_factory=list)
    """Why results did not get as far as a buffer; the first reason only."""

    def show(self, text: str) -> None:
        """A result, as it is."""
        try:
            self.out.write(text)
        except OSError as error:
            if not self.lost:
                self.lost.append(error)

    def error(self, message: str) -> None:
        """As the tool says it: on standard output, so that it stands in its place between tables."""
        self.show(f"\nError: {_fit(message)}\n")

    def note(self, message: str) -> None:
        """Beside the result."""
        with contextlib.suppress(OSError):
            self.err.write(f"{_fit(message)}\n")


def _fit(message: str) -> str:
    """Its lines stay lines; what else would drive a terminal is escaped."""
    return "\n".join(map(visible, message.split("\n")))
