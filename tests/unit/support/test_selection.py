"""Which tests run when: what takes long or needs a node runs only where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]

TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.kafka
def test_kafka(): pass

@pytest.mark.nightly
def test_nightly(): pass

@pytest.mark.nightly
@pytest.mark.kafka
def test_kafka_nightly(): pass

@pytest.mark.e2e_cluster
def test_pods(): pass

@pytest.mark.e2e_cluster
@pytest.mark.nightly
def test_pods_nightly(): pass
"""


def run(folder: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the project's settings and hooks over a file of its own."""
    (folder / "conftest.py").write_text("from conftest_of_the_project import *\n")
    (folder / "conftest_of_the_project.py").write_text((PROJECT / "tests" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-c", str(PROJECT / "pyproject.toml"), "-p", "no:cacheprovider"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, *arguments, str(folder)],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("", {"plain", "kafka"}),
        ("not kafka", {"plain"}),
        ("nightly", {"nightly", "kafka_nightly"}),
        ("e2e_cluster and nightly", {"pods_nightly"}),
    ],
)
def test_what_takes_long_or_needs_a_node_runs_only_where_its_marker_is_named(
    tmp_path: Path, expression: str, chosen: set[str]
) -> None:
    done = run(tmp_path, TESTS, "--collect-only", "-q", "-m", expression)

    names = {line.rpartition("::test_")[2] for line in done.stdout.splitlines() if "::test_" in line}
    assert names == chosen, done.stdout + done.stderr
