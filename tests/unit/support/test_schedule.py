"""The longest files begin, and what each takes is told and recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from support.schedule import CoreTime, longest_first

SUPPORT = Path(__file__).resolve().parents[2]

CONFTEST = """
from pathlib import Path
from support.schedule import FileTimes

RECORDED = Path(__file__).parent / "durations.json"

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FileTimes(record_in=RECORDED))
"""


class Item:
    """As much of a test as is looked at to order it."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid = nodeid
        self._markers = markers

    def get_closest_marker(self, name: str) -> bool:
        return name in self._markers


def test_files_without_a_duration_come_first_then_the_longest_and_each_stays_together() -> None:
    items = [Item(f"tests/{name}") for name in ("a.py::1", "a.py::2", "b.py::T::1", "c.py::1", "d.py::1", "d.py::2")]

    longest_first(cast("list[pytest.Item]", items), {"tests/a.py": 2.0, "tests/b.py": 30.5, "tests/d.py": 2.0})

    order = [item.nodeid.removeprefix("tests/") for item in items]
    assert order == ["c.py::1", "b.py::T::1", "a.py::1", "a.py::2", "d.py::1", "d.py::2"]


def test_files_that_run_in_the_background_come_last_however_long_they_take() -> None:
    items = [Item("tests/a.py::1", "in_background"), Item("tests/b.py::1"), Item("tests/c.py::1")]

    longest_first(cast("list[pytest.Item]", items), {"tests/a.py": 200.0, "tests/b.py": 0.1})

    assert [item.nodeid for item in items] == ["tests/c.py::1", "tests/b.py::1", "tests/a.py::1"]


def test_a_core_is_busy_while_it_neither_idles_nor_waits_for_a_disk(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    # user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu  100 0 50 1000 10 0 0 0 40 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    before = CoreTime.now(stat)
    stat.write_text("cpu  130 5 60 1020 20 2 3 10 60 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")

    assert CoreTime.now(stat).busy_since(before) == pytest.approx(100 * 60 / 90)
    assert before.busy_since(before) == 0.0


def test_what_each_file_takes_is_told_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    slow = "import time, pytest\n@pytest.fixture(scope='module')\ndef slept(): time.sleep(0.3)\n"
    (tmp_path / "test_slow.py").write_text(f"{slow}def test_one(slept): pass\ndef test_two(slept): pass\n")
    (tmp_path / "test_quick.py").write_text("def test_one(): pass\n")
    known = {"test_quick.py": 99.0, "test_gone.py": 5.0, "conftest.py": 7.0}
    (tmp_path / "durations.json").write_text(json.dumps(known))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ *([\d.]+) s  (\S+)$", done.stdout, re.MULTILINE)
    assert [name for _, name in rows] == ["test_slow.py", "test_quick.py"]
    assert re.search(r"slowest files \(\d+ cores \d+ % busy for \d+ s\)", done.stdout)
    recorded = json.loads((tmp_path / "durations.json").read_text())
    assert recorded.pop("conftest.py") == 7.0, "what did not run this time is kept"
    assert recorded.keys() == {"test_slow.py", "test_quick.py"}
    assert recorded["test_slow.py"] >= 0.3
    assert recorded["test_quick.py"] < 99.0
