"""What a command that waits shows meanwhile: lines, or on a terminal a line per topic that is drawn anew.

Escape sequences go to a terminal that understands them, and nowhere else: not into a pipe or a log, not where ``TERM``
is ``dumb`` or absent, nor where ``NO_COLOR`` is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from tidegate.printable import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Drawn
    from rich.progress import TaskID

    from tidegate.cli.screen import Screen

_PER_SECOND: Final = 4
"""How often the time is drawn anew."""

MOST_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Row:
    """How far one part of it has come: ``done`` of ``total``, counted in what ``label`` names."""

    label: str
    done: int
    total: int


class Shown(Protocol):
    """How it stands; told again and again."""

    def tell(self, line: str, rows: Sequence[Row]) -> None: ...


class Lines:
    """Each line once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told = ""

    def tell(self, line: str, rows: Sequence[Row]) -> None:  # noqa: ARG002 - the protocol's signature
        if line != self._told:
            self._screen.note(visible(line))
            self._told = line


def is_live(err: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether lines may be drawn anew."""
    term = environment.get("TERM", "")
    return err.isatty() and term not in ("", "dumb", "unknown") and not environment.get("NO_COLOR")


@contextmanager
def shown(screen: Screen, environment: Mapping[str, str]) -> Iterator[Shown]:
    """While something is waited for. What was said last of each phase stays on the terminal."""
    if not is_live(screen.err, environment):
        yield Lines(screen)
        return
    # Only here: it takes a moment, and most commands need none of it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=screen.err, force_terminal=True, highlight=False, markup=False, emoji=False)
    said = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        console=console,
        refresh_per_second=_PER_SECOND,
        transient=True,
    )
    live = _Live(said)
    with said:
        try:
            yield live
        finally:
            live.keep()


class _Live:
    """A line for each row; where there are none, one with what is said."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._line = ""
        self._tasks: dict[str, TaskID] = {}

    def tell(self, line: str, rows: Sequence[Row]) -> None:
        if _phase(line) != _phase(self._line):
            self.keep()
            for task in self._tasks.values():
                self._drawn.remove_task(task)
            self._tasks.clear()
        self._line = line
        told = {row.label: (f"{_phase(line)}  {row.label}", row.done, row.total) for row in rows[:MOST_ROWS]}
        for label, (text, done, total) in (told or {"": (line, 0, 0)}).items():
            if label not in self._tasks:
                self._tasks[label] = self._drawn.add_task("", total=None)
            self._drawn.update(self._tasks[label], description=visible(text), completed=done, total=total or None)

    def keep(self) -> None:
        """What was said last stays."""
        if self._line:
            from rich.text import Text

            self._drawn.console.print(Text(visible(self._line)), soft_wrap=True)
            self._line = ""


def _phase(line: str) -> str:
    return line.partition(":")[0].partition(" ")[0]
