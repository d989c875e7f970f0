"""Replays that end, of live groups of Java's consumers, also where half of the group runs the Python agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.replay_trial import replays
from support.reset_trial import Cell, managed_java

pytestmark = [pytest.mark.at_once(3), pytest.mark.nightly]

CELLS = [replace(cell, auto_commit_interval_s=1.0) for cell in managed_java(2)]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_nothing_is_delivered_from_the_end_on_and_the_group_returns(
    kafka: KafkaCluster, tmp_path: Path, cell: Cell
) -> None:
    replays(kafka.bootstrap, cell, tmp_path, 2)
