"""What tests of discovery take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.discovery_world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.executor.shutdown()
    made.backfilling.shutdown()
