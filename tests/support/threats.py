"""The threat model's tables of threats, and the tests that they name: all of them run with the folder `tests/security`.

A test may be elsewhere because of what it needs. Who asks for `tests/security` asks for all that is tried against
Tidegate, so pytest is then asked for those as well.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
SECURITY: Final = TESTS / "security"
PAGE: Final = TESTS.parent / "docs" / "explanation" / "security.md"
COLUMNS: Final = ["threat", "who", "at most", "what stops them", "test"]

_elsewhere = pytest.StashKey[int]()


def threats(page: str) -> list[list[str]]:
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


def named(row: list[str]) -> list[str]:
    """The tests of a row, below `tests`: files, or functions as ``file::function``."""
    return re.findall(r"`([^`]+)`", row[-1])


def beside(page: str) -> list[str]:
    """The tests of all rows that are in other folders than `tests/security`, each once."""
    tests = dict.fromkeys(test for row in threats(page) for test in named(row))
    whole = {test for test in tests if "::" not in test}
    return [
        test
        for test in tests
        if not test.startswith("security/") and (test in whole or test.partition("::")[0] not in whole)
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Ask for the tests elsewhere, too, where the whole folder is asked for."""
    start = config.invocation_params.dir
    if not any((start / argument).resolve() == SECURITY for argument in config.args):
        return
    tests = [f"{TESTS / test}" for test in beside(PAGE.read_text())]
    # A process of pytest-xdist is given the arguments of the first one.
    config.args.extend(test for test in tests if test not in config.args)
    config.stash[_elsewhere] = len(tests)


def pytest_report_header(config: pytest.Config) -> str | None:
    number = config.stash.get(_elsewhere, 0)
    name = PAGE.relative_to(TESTS.parent)
    return f"with tests/security: {number} files and tests elsewhere that {name} names" if number else None
