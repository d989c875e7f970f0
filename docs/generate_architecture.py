"""Draws ``docs/explanation/architecture.svg``: ``.venv/bin/python docs/generate_architecture.py [--check]``.

The floors are those of the import contracts (``.importlinter``), a room's sentence is the docstring of its package: so
the picture can't differ from what ``make lint`` holds. ``--check`` writes nothing and ends with 1 where the picture is
out of date.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import sys
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "operator" / "tidegate"
PICTURE: Final = ROOT / "docs" / "explanation" / "architecture.svg"

WIDTH: Final = 1200
MARGIN: Final = 24
GAP: Final = 12
LINE: Final = 17
LETTER: Final = 6.4
"""Of the sentences' font, about, in pixels."""


class Room(NamedTuple):
    """A package or module of one floor."""

    name: str
    sentence: str


def floors(contracts: Path = ROOT / ".importlinter", package: Path = PACKAGE) -> list[list[Room]]:
    """From the top floor down."""
    parser = configparser.ConfigParser()
    parser.read(contracts)
    layers = parser["importlinter:contract:floors"]["layers"].strip().splitlines()
    return [[_room(package, name.strip()) for name in layer.split("|")] for layer in layers]


def _room(package: Path, name: str) -> Room:
    folder, module = package / name, package / f"{name}.py"
    face = (folder / "__init__.py") if folder.is_dir() else module
    told = ast.get_docstring(ast.parse(face.read_text())) or ""
    sentence = " ".join(told.split("\n\n")[0].split()).replace("``", "")
    return Room(name, sentence)


def drawn(all_floors: Sequence[Sequence[Room]]) -> str:
    """The picture, as SVG that follows the reader's light or dark colours."""
    body: list[str] = []
    y = MARGIN
    for floor in all_floors:
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        told = [textwrap.wrap(room.sentence, int((width - 20) / LETTER)) for room in floor]
        height = 34 + LINE * max(len(lines) for lines in told)
        for column, (room, lines) in enumerate(zip(floor, told, strict=True)):
            x = MARGIN + column * (width + GAP)
            body.append(f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" rx="6"/>')
            body.append(f'<text class="name" x="{x + 10:.0f}" y="{y + 21}">{escape(room.name)}</text>')
            body += [
                f'<text x="{x + 10:.0f}" y="{y + 40 + LINE * row}">{escape(line)}</text>'
                for row, line in enumerate(lines)
            ]
        y += height + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - GAP + MARGIN}" role="img" '
        'aria-label="The packages of the operator in floors: each imports only from the floors below it.">'
    )
    style = (
        "<style>svg{background:#fff}rect{fill:#f3f6fa;stroke:#9db2c9}text{font:12px system-ui,sans-serif;fill:#33414f}"
        ".name{font-weight:600;font-size:14px;fill:#0b3d66}"
        "@media(prefers-color-scheme:dark){svg{background:#0d1117}rect{fill:#161d27;stroke:#3b4a5c}text{fill:#c3ced9}"
        ".name{fill:#79b8ff}}</style>"
    )
    return "\n".join([head, style, *body, "</svg>", ""])


def main(arguments: Sequence[str]) -> int:
    """Write the picture, or say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where it is out of date")
    check = parser.parse_args(arguments).check
    text = drawn(floors())
    if PICTURE.exists() and PICTURE.read_text() == text:
        return 0
    if check:
        sys.stderr.write(f"{PICTURE} is out of date: run .venv/bin/python docs/generate_architecture.py\n")
        return 1
    PICTURE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
