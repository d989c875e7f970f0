"""What runs, and in which order. Some tests run only on request: their marker has to be named by ``-m``.

A ``-m`` in ``addopts`` would not do: one on the command line replaces it, and ``-m kafka`` would run them.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from support.needs import TESTS, mark_needs

ON_REQUEST: Final = ("e2e_cluster", "nightly")

LONGEST = (
    "tests/kafka/test_retention.py",
    "tests/e2e/test_reset_policy.py",
    "tests/kafka/test_reset_kinds.py",
    "tests/property/test_random_sequences.py",
    "tests/e2e/test_pause_survives.py",
    "tests/apiserver/test_operator_reset.py",
    "tests/kafka/test_cli_compared.py",
    "tests/agent/kafka/test_python_clients.py",
    "tests/kafka/test_reset_hard_cases.py",
    "tests/e2e/test_demo.py",
    "tests/apiserver/test_operator_snapshots.py",
    "tests/apiserver/test_operator_fleet.py",
    "tests/spark/test_losses.py",
    "tests/spark/test_two_clusters.py",
    "tests/spark/test_find.py",
)
"""Files that take minutes, each of which one worker does as a whole: first, so that none is left for the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need; the longest files first; without those that run on request only."""
    rank = {TESTS.parent / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    for item in items:
        mark_needs(item)
    deselect_on_request_only(config, items)


def deselect_on_request_only(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that have a marker of `ON_REQUEST` which the ``-m`` expression does not name.

    pytest evaluates the expression afterwards, so ``-m "not nightly"`` leaves such tests out all the same, and
    ``-m "e2e_cluster and nightly"`` runs those that have both markers.
    """
    named = set(re.findall(r"\w+", config.option.markexpr))
    closed = [name for name in ON_REQUEST if name not in named]
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if any(item.get_closest_marker(name) for name in closed) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
