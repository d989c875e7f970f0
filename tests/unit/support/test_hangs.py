"""A test that hangs is named, and what it did is told, long before the whole run's time is over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
HANGS = """
import threading, pytest
{mark}
def test_hangs():
    threading.Event().wait({seconds})
"""


def run(folder: Path, *arguments: str, mark: str = "", seconds: str = "") -> tuple[int, str]:
    """pytest's exit code and what it printed, of a test with a limit of a second."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout = 1\nfaulthandler_exit_on_timeout = true\nmarkers = nightly\n"
    )
    (folder / "conftest.py").write_text("pytest_plugins = ['support.failures', 'support.hangs', 'support.at_once']\n")
    (folder / "test_one.py").write_text(HANGS.format(mark=mark, seconds=seconds))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TIDEGATE_TEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env={**clean, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "dev")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_worker_that_hangs_is_ended(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-n", "1")

    assert code == 1
    assert re.search(r"^failed after \d+ s of the run: test_one.py::test_hangs", printed, re.MULTILINE), printed
    assert "crashed while running 'test_one.py::test_hangs'" in printed
    assert 'test_one.py", line 5 in test_hangs' in printed


def test_what_hangs_in_the_background_is_ended(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-n", "1", mark="pytestmark = pytest.mark.in_background")

    assert code == 1
    assert "crashed while running 'test_one.py::test_hangs'" in printed
    assert 'test_one.py", line 5 in test_hangs' in printed


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_what_runs_on_request_may_take_long(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, printed = run(tmp_path, *options, mark="@pytest.mark.nightly", seconds="1.5")

    assert code == 0, printed


def test_this_project_has_the_limit(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) <= 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True
