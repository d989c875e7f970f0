"""What tests of retention take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.retention_world import Hidden, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()
    made.executor.shutdown()


@pytest.fixture
def hidden(world: World, monkeypatch: pytest.MonkeyPatch) -> Hidden:
    return Hidden(world, monkeypatch)
