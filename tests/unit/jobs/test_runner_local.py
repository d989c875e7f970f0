"""Launches of several operators on one machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidegate.jobs import runner_local
from tidegate.jobs.runner_local import LocalSparkRunner


def test_a_launch_that_another_operator_is_removing_is_no_reason_not_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, written_at = tmp_path / "old", runner_local._written_at
    old.mkdir()
    (old / "started").write_text("[]")

    def removed_meanwhile(folder: Path) -> float:
        shutil.rmtree(folder)
        return written_at(folder)

    monkeypatch.setattr(runner_local, "_written_at", removed_meanwhile)

    LocalSparkRunner(tmp_path)._remove_old(tmp_path / "new")

    assert list(tmp_path.iterdir()) == []
