from collections.abc import Iterator

import pytest

from support.mirror.passes import SparkWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkWorld]:
    """Of a mirror that jobs copy; times are shorter than they are. Other files have worlds of their own."""
    monkeypatch.setattr("tidegate.offset_mirror.jobs.FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr("tidegate.offset_mirror.share._LOOK_S", 0.02)
    monkeypatch.setattr("tidegate.offset_mirror.counting.WITHIN_S", 1.0)
    monkeypatch.setattr("tidegate.offset_mirror.reported.SILENT_S", 1.0)
    monkeypatch.setattr("tidegate.offset_mirror.reported._CLAIM_S", 0.0)
    world = SparkWorld()
    yield world
    world.close()
