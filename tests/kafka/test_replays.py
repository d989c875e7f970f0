"""Replays that end, of live groups with the Python agent on a real broker: exactly where they are to, and then back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.clients import ClientKind, CommitMode
from support.replay_trial import replays
from support.reset_trial import Cell, managed
from tidegate.resources.replay import Then
from tidegate.resources.reset import ResetPhase

CELLS = [replace(cell, auto_commit_interval_s=1.0) for cell in managed(2)]
SOME = [next(cell for cell in CELLS if cell.kind is kind) for kind in (ClientKind.LIBRDKAFKA, ClientKind.AIOKAFKA)]
MANUAL = replace(SOME[0], commit=CommitMode.ASYNC)


@pytest.mark.parametrize("then", list(Then))
def test_nothing_is_delivered_from_the_end_on_and_the_group_goes_on(
    kafka: KafkaCluster, tmp_path: Path, then: Then
) -> None:
    replays(kafka.bootstrap, SOME[0], tmp_path, 1, then=then)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", [*CELLS, MANUAL], ids=lambda cell: cell.name)
def test_replays_of_every_kind_of_group_with_the_agent(kafka: KafkaCluster, tmp_path: Path, cell: Cell) -> None:
    replays(kafka.bootstrap, cell, tmp_path, 8)


@pytest.mark.nightly
@pytest.mark.parametrize("phase", [ResetPhase.PAUSING, ResetPhase.VERIFYING])
def test_writers_that_are_killed_change_nothing_of_it(kafka: KafkaCluster, tmp_path: Path, phase: ResetPhase) -> None:
    replays(kafka.bootstrap, SOME[0], tmp_path, 3, dies_in=(phase,), dies_after_it_in=(phase,))


@pytest.mark.nightly
def test_members_that_come_meanwhile_deliver_nothing_beyond_the_end(kafka: KafkaCluster, tmp_path: Path) -> None:
    """They are given partitions whose owners have come to their ends."""
    replays(kafka.bootstrap, SOME[0], tmp_path, 3, joins=True)
