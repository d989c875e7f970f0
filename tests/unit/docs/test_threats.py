"""The threat model names, for each threat, the test that tries it; and each attack has its place there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
TESTS: Final = ROOT / "tests"
PAGE: Final = ROOT / "docs" / "explanation" / "security.md"
COLUMNS: Final = ["threat", "who", "at most", "what stops them", "test"]


def _threats(page: str) -> list[list[str]]:
    """The rows of the tables whose columns are those of threats."""
    rows, inside = list[list[str]](), False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells == COLUMNS:
            inside = True
        elif not cells:
            inside = False
        elif inside and set(line) - set("|- "):
            rows.append(cells)
    return rows


THREATS: Final = _threats(PAGE.read_text())


def _named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _functions(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row[0][:60])
def test_each_threat_names_tests_that_are_there(row: list[str]) -> None:
    assert len(row) == len(COLUMNS), "a | too many or too few"
    assert all(row), "an empty cell"
    tests = _named(row[-1])
    assert tests
    for test in tests:
        name, _, function = test.partition("::")
        assert (TESTS / name).is_file(), f"there is no tests/{name}"
        assert Path(name).name.startswith("test_")
        assert not function or function in _functions(TESTS / name), f"there is no {test}"


def test_each_attack_has_its_row() -> None:
    named = {test.partition("::")[0] for row in THREATS for test in _named(row[-1])}
    attacks = {str(path.relative_to(TESTS)) for path in (TESTS / "security").glob("test_*.py")}
    assert attacks - named == set(), "add a row to docs/explanation/security.md"
    assert len(attacks) >= 10


def test_rows_are_told_from_other_tables() -> None:
    page = "| actor | has |\n| --- | --- |\n| a | b |\n\n| threat | who | at most | what stops them | test |\n" + (
        "| --- | --- | --- | --- | --- |\n| t | w | – | s | `x.py` |\n"
    )
    assert _threats(page) == [["t", "w", "–", "s", "`x.py`"]]
