"""What runs, and in which order. Some tests run only on request: their marker has to be named by ``-m``.

A ``-m`` in ``addopts`` would not do: one on the command line replaces it, and ``-m kafka`` would run them.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from support.needs import mark_needs
from support.schedule import longest_first, recorded_durations

ON_REQUEST: Final = ("e2e_cluster", "nightly")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need; the longest files first; without those that run on request only."""
    longest_first(items, recorded_durations())
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
