"""Live groups of Java's consumers are reset by gates, also where half of the group runs the Python agent."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest

from devstack import KafkaCluster
from support.clients import CommitMode
from support.reset_trial import Cell, managed_java, run_trial
from tidegate.resources.reset import Way

pytestmark = pytest.mark.at_once(3)

CELLS = [replace(cell, auto_commit_interval_s=1.0) for cell in managed_java()]
MIXED = [cell for cell in CELLS if cell.beside is not None]
BY_TRANSACTIONS = [replace(cell, commit=CommitMode.TRANSACTIONS, hold_s=0.3) for cell in CELLS if cell.beside is None]


def is_reset(bootstrap: str, cell: Cell, resets: int) -> None:
    """That many times, by gates, and nothing is missing: by the checker, which knows of no agent."""
    outcomes = list(run_trial(bootstrap, cell, resets, seed=crc32(cell.name.encode()), rest_s=(0.0, 1.5)))
    assert len(outcomes) == resets
    for outcome in outcomes:
        verdict = outcome.verdict
        assert outcome.is_good, str(outcome)
        assert outcome.way == Way.GATED, str(outcome)
        assert verdict.exact == verdict.targeted >= 4, str(outcome)
        read_twice = (verdict.again, verdict.again_elsewhere, verdict.stale)
        assert (read_twice, verdict.wrong_starts, verdict.missing) == ((0, 0, 0), 0, 0), str(outcome)


@pytest.mark.parametrize("cell", MIXED[:1], ids=lambda cell: cell.name)
def test_a_group_of_both_agents_goes_on_from_the_targets(kafka: KafkaCluster, cell: Cell) -> None:
    is_reset(kafka.bootstrap, cell, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", MIXED, ids=lambda cell: cell.name)
def test_a_group_of_both_agents_goes_on_from_the_targets_twenty_times(kafka: KafkaCluster, cell: Cell) -> None:
    is_reset(kafka.bootstrap, cell, 20)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", [*(c for c in CELLS if c not in MIXED), *BY_TRANSACTIONS], ids=lambda cell: cell.name)
def test_a_group_of_java_goes_on_from_the_targets(kafka: KafkaCluster, cell: Cell) -> None:
    is_reset(kafka.bootstrap, cell, 5)
