"""For all tests of resets."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, the machine does not: thousands of syncs to the disk would show nothing."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
