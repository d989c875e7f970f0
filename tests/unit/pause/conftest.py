from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.pause_world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A group, its topic, and whoever pauses it."""
    made = World()
    yield made
    made.close()
