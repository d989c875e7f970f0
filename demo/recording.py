"""The demo as an animated SVG: the moments at which something changes."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from demo.picture import Picture
from demo.screen import PlainScreen, acted, judged, view

_COLUMNS: Final = 112
_ROWS: Final = 30
_LOOK_S: Final = 2.0
_READ_S: Final = 4.0
_END_S: Final = 10.0

# What rich's own template has around it (fonts of another host, a window) is left out.
_FRAME: Final = "<style>{styles}</style>{backgrounds}{matrix}"
_CHARACTER: Final = (20 * 0.61, 20 * 1.22)
"""Width and height of one, in rich's units."""
_MARGIN: Final = 16
_DARK: Final = "#292929"
"""rich's background of a terminal."""


@dataclass(frozen=True, slots=True)
class Frame:
    """``lasts_s``: how long it is shown. ``drawn``: SVG."""

    drawn: str
    lasts_s: float


class RecordingScreen(PlainScreen):
    """Plain lines; what a terminal would have shown goes to ``file`` once the verdict is there."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._begun = time.monotonic()
        self._frames: list[Frame] = []
        self._seen: tuple[object, ...] = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if kind is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(animated(self._frames), encoding="utf-8")

    def act(self, command: str, document: str, answer: str) -> None:
        super().act(command, document, answer)
        self._add(acted(command, document, answer), _READ_S)

    def show(self, picture: Picture) -> None:
        super().show(picture)
        run = picture.run
        now = (picture.headline, run and (run.run_id, run.phase), sum(row.is_paused for row in picture.rows))
        if picture.rows and now != self._seen:
            self._seen = now
            self._add(view(picture, time.monotonic() - self._begun, _COLUMNS), _LOOK_S)

    def verdict(self, lines: Sequence[tuple[bool | None, str]], *, well: bool) -> None:
        super().verdict(lines, well=well)
        self._add(judged(lines, well=well), _END_S)

    def _add(self, shown: RenderableType, lasts_s: float) -> None:
        self._frames.append(Frame(drawn(shown, f"f{len(self._frames)}"), lasts_s))


def drawn(shown: RenderableType, name: str) -> str:
    """As SVG, cut to the picture's size. ``name`` keeps its styles apart from those of others."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, highlight=False)
    lines = console.render_lines(shown, pad=False)[:_ROWS]
    for line in lines:
        console.print(Text.assemble(*((part.text, part.style or "") for part in line)), soft_wrap=True)
    text = console.export_svg(title="", code_format=_FRAME, unique_id=name)
    return re.sub(r' clip-path="[^"]*"', "", text)


def animated(frames: Sequence[Frame]) -> str:
    """All of them, one after the other, again and again; the last one only where motion is not wanted."""
    width, height = (round(count * size) for count, size in zip((_COLUMNS, _ROWS), _CHARACTER, strict=True))
    whole_s = sum(frame.lasts_s for frame in frames)
    styles, groups, at_s = [], [], 0.0
    for number, frame in enumerate(frames):
        begins, ends = (100 * at / whole_s for at in (at_s, at_s + frame.lasts_s))
        at_s += frame.lasts_s
        hidden = "" if begins == 0 else "0% { visibility: hidden } "
        seen = f"{begins:.3f}% {{ visibility: visible }} {ends:.3f}% {{ visibility: hidden }}"
        styles.append(f"@keyframes k{number} {{ {hidden}{seen} }}")
        styles.append(f"#g{number} {{ animation: k{number} {whole_s:g}s step-end infinite }}")
        groups.append(f'<g id="g{number}" class="frame">{frame.drawn}</g>')
    box = f"0 0 {width + 2 * _MARGIN} {height + 2 * _MARGIN}"
    last = f"#g{len(frames) - 1} {{ visibility: visible }}"
    still = f"@media (prefers-reduced-motion) {{ .frame {{ animation: none !important }} {last} }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" aria-label="A recording of make demo">'
        "<style>text { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 20px; "
        "white-space: pre } .frame { visibility: hidden } "
        f"{' '.join(styles)} {still}</style>"
        f'<rect width="100%" height="100%" rx="10" fill="{_DARK}"/>'
        f'<g transform="translate({_MARGIN} {_MARGIN})">{"".join(groups)}</g></svg>\n'
    )
