"""Worlds in which OffsetResets are reconciled, each test with one of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.reset_world import FleetWorld, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[FleetWorld]:
    """With three groups, and resets of ``payments*``."""
    made = FleetWorld(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()
