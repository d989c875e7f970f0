"""librdkafka's admin client aborts the process when a broker dies at the wrong moment: nothing here may use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

OPERATOR = Path(__file__).resolve().parents[3] / "operator" / "tidegate"
ADMIN = "confluent_kafka.admin"
AWAITED = frozenset({"aio", "experimental"})
"""Other parts of confluent_kafka that would bring it along."""


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def users(folder: Path) -> set[str]:
    forbidden = (ADMIN, *(f"confluent_kafka.{part}" for part in AWAITED))
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        if any(name.startswith(forbidden) for name in imported(ast.parse(file.read_text())))
    }


def test_the_operator_does_not_use_librdkafkas_admin_client() -> None:
    assert users(OPERATOR) == set()


def test_one_that_did_would_be_found(tmp_path: Path) -> None:
    for number, line in enumerate(
        [
            "from confluent_kafka.admin import AdminClient",
            "import confluent_kafka.admin as admin",
            "from confluent_kafka import Consumer, admin",
        ]
    ):
        (tmp_path / f"user{number}.py").write_text(line)
    (tmp_path / "reader.py").write_text("from confluent_kafka import Consumer, Producer")
    assert users(tmp_path) == {"user0.py", "user1.py", "user2.py"}
