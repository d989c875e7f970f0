"""A module has at most 400 lines and a function at most 60, unless the docstring says why it is one piece."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
MODULES: Final = sorted(
    path for folder in ("operator/tidegate", "agents/python/tidegate_agent") for path in (ROOT / folder).rglob("*.py")
)
LONGEST_MODULE: Final = 400
LONGEST_FUNCTION: Final = 60
REASON: Final = "one piece"


def too_long(source: str) -> Iterator[str]:
    """What of a module is too long without a reason, as a person would name it."""
    module = ast.parse(source)
    lines = source.count("\n")
    if lines > LONGEST_MODULE and not _says_why(module):
        yield f"the module has {lines} lines"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION and not _says_why(node):
                yield f"{node.name} has {lines} lines"


def _says_why(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return REASON in " ".join((ast.get_docstring(node) or "").lower().split())


def function(lines: int, docstring: str = "Does it.") -> str:
    return "\n".join(["def carry_out():", f'    """{docstring}"""', *["    pass"] * (lines - 2)]) + "\n"


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 200


def test_what_is_long_says_why() -> None:
    found = {str(path.relative_to(ROOT)): long for path in MODULES if (long := list(too_long(path.read_text())))}

    assert found == {}, "split it by meaning, or say in its docstring why it is one piece"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (function(60), []),
        (function(61), ["carry_out has 61 lines"]),
        (function(61, "Does it. In one piece, because each step relies on the one before."), []),
        ("x = 1\n" * 400, []),
        ("x = 1\n" * 401, ["the module has 401 lines"]),
        ('"""A list.\n\nIt is one\npiece."""\n' + "x = 1\n" * 400, []),
    ],
)
def test_length_is_counted_and_a_reason_heard(source: str, found: list[str]) -> None:
    assert list(too_long(source)) == found
