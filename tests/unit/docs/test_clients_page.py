"""The page on what fits which client names each client library of the tests, and tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from support.clients import ClientKind

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "choose-for-your-client.md").read_text()
TESTS: Final = ROOT / "tests"


def functions(test_file: Path) -> set[str]:
    return {node.name for node in ast.parse(test_file.read_text()).body if isinstance(node, ast.FunctionDef)}


def table() -> list[list[str]]:
    """The rows of the table of clients, without its heading."""
    [rows] = re.findall(r"^\| client \| agent .*\n\|[- |]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]


def test_the_tests_that_show_its_cells_are_there() -> None:
    [evidence] = re.findall(r"<!--\nWhat shows each cell;(.*?)-->", PAGE, re.DOTALL)
    named = re.findall(r"([\w/]+\.py)(?:::(\w+))?", evidence.replace("tests/unit/docs/", "unit/docs/"))
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).is_file() or (name and name not in functions(TESTS / path))
    ]
    assert len(named) > 25
    assert not missing


def test_every_row_has_all_cells_and_every_client_of_the_tests_has_a_row() -> None:
    rows = table()
    assert {len(row) for row in rows} == {8}
    assert all(all(row) for row in rows)
    first = " ".join(row[0] for row in rows).lower()
    for kind in ClientKind:
        assert {"java": "java `kafkaconsumer`"}.get(kind, kind) in first
