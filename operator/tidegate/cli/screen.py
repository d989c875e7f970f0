"""Where a command writes: results, and what is said to a person beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output and standard error of one command."""

    out: TextIO
    err: TextIO

    def show(self, text: str) -> None:
        """A result, as it is."""
        self.out.write(text)

    def error(self, message: str) -> None:
        """As the tool says it: on standard output, so that it stands in its place between tables."""
        self.out.write(f"\nError: {message}\n")

    def note(self, message: str) -> None:
        """Beside the result."""
        self.err.write(f"{message}\n")
