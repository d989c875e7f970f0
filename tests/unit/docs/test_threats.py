"""The threat model names, for each threat, the test that tries it; and each attack has its place there."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Final

import pytest

from support.threats import COLUMNS, PAGE, SECURITY, TESTS, beside, named, pytest_configure, threats

THREATS: Final = threats(PAGE.read_text())


def _functions(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row[0][:60])
def test_each_threat_names_tests_that_are_there(row: list[str]) -> None:
    assert len(row) == len(COLUMNS), "a | too many or too few"
    assert all(row), "an empty cell"
    tests = named(row)
    assert tests
    for test in tests:
        name, _, function = test.partition("::")
        assert (TESTS / name).is_file(), f"there is no tests/{name}"
        assert Path(name).name.startswith("test_")
        assert not function or function in _functions(TESTS / name), f"there is no {test}"


def test_each_attack_has_its_row() -> None:
    files = {test.partition("::")[0] for row in THREATS for test in named(row)}
    attacks = {str(path.relative_to(TESTS)) for path in SECURITY.glob("test_*.py")}
    assert attacks - files == set(), "add a row to docs/explanation/security.md"
    assert len(attacks) >= 10


def test_rows_are_told_from_other_tables() -> None:
    page = "| actor | has |\n| --- | --- |\n| a | b |\n\n| threat | who | at most | what stops them | test |\n" + (
        "| --- | --- | --- | --- | --- |\n| t | w | – | s | `x.py` |\n"
    )
    assert threats(page) == [["t", "w", "–", "s", "`x.py`"]]


def test_whoever_asks_for_the_folder_asks_for_each_test_once() -> None:
    page = "| threat | who | at most | what stops them | test |\n| --- | --- | --- | --- | --- |\n" + (
        "| t | w | – | s | `security/test_a.py::test_1`, `unit/test_b.py::test_2` |\n"
        "| t | w | – | s | `unit/test_b.py`, `kafka/test_c.py::test_3` |\n"
        "| t | w | – | s | `kafka/test_c.py::test_3` |\n"
    )
    assert sorted(beside(page)) == ["kafka/test_c.py::test_3", "unit/test_b.py"]


def test_the_folder_brings_the_tests_elsewhere_and_a_file_of_it_none(pytestconfig: pytest.Config) -> None:
    def asked(*arguments: str) -> list[str]:
        config = copy.copy(pytestconfig)
        config.args = [f"{TESTS.parent / argument}" for argument in arguments]
        config.stash = pytest.Stash()
        pytest_configure(config)
        return config.args[len(arguments) :]

    elsewhere = [f"{TESTS / test}" for test in beside(PAGE.read_text())]
    assert asked("tests/security/") == elsewhere
    assert asked("tests/security", elsewhere[0]) == elsewhere[1:]
    assert asked("tests/security/test_patterns.py", "tests/unit") == []
