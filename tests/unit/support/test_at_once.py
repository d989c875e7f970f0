"""Tests that are run elsewhere are reported as if they had been run here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.guard import start_ticks
from support.at_once import Run

TESTS = Path(__file__).resolve().parents[2]
CONFTEST = "pytest_plugins = ['support.at_once']\n"
MEETING = """
import pytest, threading, time
from pathlib import Path

pytestmark = pytest.mark.at_once(2)

@pytest.fixture
def room(request):
    if request.node.name == "test_cannot_begin":
        raise OSError("the room is locked")
    yield
    if request.node.name == "test_cannot_end":
        raise OSError("the door is stuck")

@pytest.mark.parametrize("number", range(4))  # a process is given two at first, one after the other
def test_meets(number, room):
    print("number", number, "waits")
    here = Path(__file__).parent
    (here / f"is-here-{number}").touch()
    deadline = time.monotonic() + 30
    while len(list(here.glob("is-here-*"))) < 2:
        assert time.monotonic() < deadline, "alone"
        time.sleep(0.02)
    assert number != 1, "one is too many"

def test_cannot_begin(room): ...
def test_cannot_end(room): ...
def test_is_left_out(): pytest.skip("not today")
@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail(): assert False
def test_dies():
    import os
    os._exit(3)
"""


def run(folder: Path, *arguments: str) -> tuple[dict[str, str], str]:
    """(outcome by name of the test, what pytest printed)"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TIDEGATE_TEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rA", *arguments],
        cwd=folder,
        env={**clean, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "dev")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not done.stderr, done.stderr
    outcomes = re.findall(r"^\S+::(\S+) ([A-Z]+)\b", done.stdout, re.MULTILINE)
    return dict(outcomes), done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def test_each_is_reported_by_itself(project: Path) -> None:
    (project / "test_meeting.py").write_text(MEETING)

    outcomes, printed = run(project)

    assert outcomes == {
        **{f"test_meets[{number}]": "FAILED" if number == 1 else "PASSED" for number in range(4)},
        "test_cannot_begin": "FAILED",
        "test_cannot_end": "FAILED",
        "test_is_left_out": "SKIPPED",
        "test_is_expected_to_fail": "XFAIL",
        "test_dies": "FAILED",
    }
    parts = re.split(r"^_+ (test_\S+) _+$", printed, flags=re.MULTILINE)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert 'assert number != 1, "one is too many"' in said["test_meets[1]"]
    assert "number 1 waits" in said["test_meets[1]"]
    assert "number 0 waits" not in said["test_meets[1]"]
    assert "the room is locked" in said["test_cannot_begin"]
    assert "the door is stuck" in said["test_cannot_end"]
    assert "crashed while running 'test_meeting.py::test_dies'" in said["test_dies"]


def test_one_alone_is_run_here(project: Path) -> None:
    (project / "test_one.py").write_text(
        "import os, pytest\npytestmark = pytest.mark.at_once(3)\n"
        "def test_says_where(): print('process', os.getppid())\n"
    )

    _, printed = run(project)

    assert f"process {os.getpid()}\n" in printed


def test_what_runs_in_the_background_has_begun_before_its_turn(project: Path) -> None:
    """Whichever of two workers it is whose turn it is."""
    (project / "test_a.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef test_waits():\n"
        "    deadline = time.monotonic() + 60\n"
        "    while not Path('begun').exists():\n"
        "        assert time.monotonic() < deadline\n"
        "        time.sleep(0.02)\n"
    )
    (project / "test_b.py").write_text(
        "from pathlib import Path\nimport pytest\n\npytestmark = pytest.mark.in_background\n\n"
        "def test_begins(): Path('begun').touch()\ndef test_fails(): assert not Path('begun').exists()\n"
    )

    _, printed = run(project, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")

    assert sorted(re.findall(r"^(PASSED|FAILED|ERROR) test_\w\.py::(\w+)", printed, re.MULTILINE)) == [
        ("FAILED", "test_fails"),
        ("PASSED", "test_begins"),
        ("PASSED", "test_waits"),
    ]


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_run_whose_worker_crashed_is_not_waited_for_once_it_has_ended(
    pytestconfig: pytest.Config, tmp_path: Path, is_reaped: bool
) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "pid").write_text(f"{other.pid} {start_ticks(other.pid)}")
    (tmp_path / "output").write_text("Killed")
    run = Run(pytestconfig, tmp_path)
    assert not run._has_ended()
    assert other.stdin is not None
    other.stdin.close()
    os.waitid(os.P_PID, other.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))

    with pytest.raises(AssertionError, match=r"ended without a report of test_x.py::test_one:\s+Killed"):
        run.reports("test_x.py::test_one")
    other.wait()
