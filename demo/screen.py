"""How the demo is shown: a live view on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from demo.cluster import KubeEvent
from demo.picture import Picture, Row, RunPicture

_FRAMES_A_SECOND: Final = 6
_EVENTS_SHOWN: Final = 5
_WELL: Final = "Succeeded"
_ENDED: Final = (_WELL, "Failed", "RolledBack")
_PLAIN_MARKS: Final = {True: "ok   ", False: "WRONG", None: "     "}


class Screen(Protocol):
    """Where the story is told. ``say``: a line; ``act``: what a user does, and what is answered; ``show``: the newest
    picture, as often as there is one; ``table``: the partitions, now; ``verdict``: the end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None: ...

    def act(self, command: str, document: str, answer: str) -> None: ...

    def show(self, picture: Picture) -> None: ...

    def table(self, rows: Sequence[Row]) -> None: ...

    def verdict(self, lines: Sequence[tuple[bool | None, str]], *, well: bool) -> None: ...


class LiveScreen:
    """The newest picture at the foot of the terminal, what was said and done above it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._picture = Picture()
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=_FRAMES_A_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(Text.assemble((f"{self._elapsed():6.1f} s ", "dim"), line))

    def act(self, command: str, document: str, answer: str) -> None:
        self._console.print(acted(command, document, answer))

    def show(self, picture: Picture) -> None:
        with self._lock:
            self._picture = picture

    def table(self, rows: Sequence[Row]) -> None:
        """The live view has it."""

    def verdict(self, lines: Sequence[tuple[bool | None, str]], *, well: bool) -> None:
        self._live.stop()
        with self._lock:
            rows = self._picture.rows
        self._console.print(_partitions(Picture(rows=rows)))
        self._console.print(judged(lines, well=well))

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _render(self) -> RenderableType:
        with self._lock:
            picture = self._picture
        if not picture.rows:
            return Text.assemble((f"{self._elapsed():6.1f} s ", "dim"), picture.headline or "setting the stage ...")
        return view(picture, self._elapsed(), self._console.width)


def acted(command: str, document: str, answer: str) -> RenderableType:
    """What a user does, and what is answered."""
    return Group(
        Text(f"\n$ {command}", style="bold"),
        Syntax(document.rstrip(), "yaml", theme="ansi_dark", background_color="default", padding=(0, 2)),
        Text(f"{answer}\n", style="green"),
    )


def view(picture: Picture, elapsed_s: float, width: int) -> RenderableType:
    """The picture as it is ``elapsed_s`` after the start, ``width`` columns wide."""
    parts: list[RenderableType] = [
        Rule(Text.assemble((picture.headline, "bold"), (f"  {elapsed_s:.0f} s", "dim")), align="left"),
        _partitions(picture),
    ]
    if picture.run is not None:
        parts.append(_run(picture.run, width))
    parts += [_event(happening) for happening in picture.happenings[-_EVENTS_SHOWN:]]
    return Group(*parts)


def judged(lines: Sequence[tuple[bool | None, str]], *, well: bool) -> Panel:
    text = Text()
    for passed, line in lines:
        mark, style = {True: ("✔ ", "green"), False: ("✘ ", "bold red"), None: ("  ", "")}[passed]
        text.append(mark, style)
        text.append(f"{line}\n", "bold red" if passed is False else "")
    text.rstrip()
    title = "[bold green]the checker's verdict: all is well" if well else "[bold red]the checker's verdict: FAILED"
    return Panel(text, title=title, border_style="green" if well else "red", padding=(1, 2))


def _partitions(picture: Picture) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold cyan")
    table.add_column("partition")
    table.add_column("owner")
    for name in ("committed", "position", "end", "lag", "target"):
        table.add_column(name, justify="right")
    for row in picture.rows:
        moved, number = row.target is not None, f"{row.partition[1]}{' paused' if row.is_paused else ''}"
        owner = row.owner or "-"
        if owner in picture.consumers:
            owner = f"{owner} (process {picture.consumers[owner]})"
        table.add_row(
            Text(f"{'▶ ' if moved else '  '}{number}", style="bold yellow" if moved or row.is_paused else ""),
            owner,
            _number(row.committed),
            _number(row.position),
            _number(row.end),
            Text(_number(row.lag), style="yellow" if row.lag else "green"),
            Text(_number(row.target) if moved else "", style="bold yellow"),
        )
    return table


def _run(run: RunPicture, width: int) -> Text:
    text = Text.assemble("\nreset ", (run.run_id, "bold"), "  ")
    for step in run.phases:
        text.append(f"{step.phase} ", "green" if step.phase == _WELL else "")
        text.append(f"{step.after_s:.1f} s  ", "dim")
    if not run.phases or run.phases[-1].phase != run.phase:
        text.append(run.phase or "applied", "bold")
    elif run.phase not in _ENDED:
        text.append(f"… {(datetime.now(UTC) - run.applied_at).total_seconds():.0f} s", "dim")
    job = run.application and f"job {run.application}"
    told = "  ".join(
        part for part in (run.engine and f"engine {run.engine}", job, run.way and f"strategy {run.way}") if part
    )
    text.append(f"\n{told}\n")
    text.append(run.message[: width - 1], "dim")
    return text


def _event(happening: KubeEvent) -> Text:
    return Text.assemble(
        (f"{happening.reason:<12.12} ", "bold red" if happening.warning else "magenta"),
        happening.message,
        no_wrap=True,
        overflow="ellipsis",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


class PlainScreen:
    """One line after the other, each with its time: for logs."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._told: set[tuple[str, str]] = set()
        self._headline = ""
        self._events = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.stdout.flush()

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:6.1f} s] {line}", flush=True)

    def act(self, command: str, document: str, answer: str) -> None:
        self.say(f"$ {command}")
        for line in document.rstrip().splitlines():
            print(f"    {line}")
        self.say(answer)

    def show(self, picture: Picture) -> None:
        if picture.headline != self._headline:
            self._headline = picture.headline
            self.say(f"--- {picture.headline}")
        run = picture.run
        for step in run.phases if run is not None else ():
            if run is not None and (run.run_id, step.phase) not in self._told:
                self._told.add((run.run_id, step.phase))
                who = f", by {run.engine} job {run.application}" if run.application else ""
                way = f", strategy {run.way}" if run.way else ""
                self.say(f"reset {run.run_id}: {step.phase} {step.after_s:.1f} s after it was applied{who}{way}")
        for happening in picture.happenings[self._events :]:
            self.say(f"event {happening.reason}: {happening.message}")
        self._events = max(self._events, len(picture.happenings))

    def table(self, rows: Sequence[Row]) -> None:
        print(f"    {'partition':<14}{'owner':<7}{'committed':>10}{'position':>10}{'end':>8}{'lag':>7}{'target':>9}")
        for row in rows:
            name = f"{row.partition[0]}-{row.partition[1]}"
            numbers = (
                f"{_number(row.committed):>10}{_number(row.position):>10}{_number(row.end):>8}{_number(row.lag):>7}"
            )
            target = f"{row.target:>9,}" if row.target is not None else "   paused" if row.is_paused else ""
            print(f"    {name:<14}{row.owner or '-':<7}{numbers}{target}", flush=True)

    def verdict(self, lines: Sequence[tuple[bool | None, str]], *, well: bool) -> None:
        self.say("the checker's verdict: " + ("all is well" if well else "FAILED"))
        for passed, line in lines:
            print(f"    {_PLAIN_MARKS[passed]} {line}", flush=True)
