"""Which tests run when: what takes long or needs a node runs only where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]

CONFTEST = """
import pytest
from support.needs import pytest_runtest_call, pytest_runtest_setup, starts
from support.selection import pytest_collection_modifyitems

@pytest.fixture(scope="session")
@starts("kafka")
def kafka(): pass
"""

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
    """Run pytest with the project's settings and hooks, which `tests/conftest.py` names as well, over a file."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-c", str(PROJECT / "pyproject.toml"), "-p", "no:cacheprovider"]
    command += ["-p", "no:hypothesispytest", "-p", "no:xdist"]  # they take half of its start
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


NEEDS = """
import pytest
from support.needs import starts

@pytest.fixture
@starts("apiserver")
def server(): pass

@pytest.fixture
def resources(server): pass

@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def port(request): pass

class TestOverridden:
    @pytest.fixture
    def kafka(self): pass
    def test_fake_of_that_name(self, kafka): pass

class TestExtended:
    @pytest.fixture
    def kafka(self, kafka): pass
    def test_more_than_it(self, kafka): pass

def test_nothing(): pass
def test_broker(kafka): pass
def test_by_another_fixture(resources): pass
def test_port(port): pass
@pytest.mark.spark
def test_by_its_own_marker(): pass
"""


def test_a_test_is_pure_unless_a_fixture_or_marker_of_its_own_needs_a_part(tmp_path: Path) -> None:
    done = run(tmp_path, NEEDS, "--collect-only", "-q", "-m", "pure")

    names = {line.rpartition("::test_")[2] for line in done.stdout.splitlines() if "::test_" in line}
    assert names == {"nothing", "fake_of_that_name", "port[fake]"}, done.stdout + done.stderr


def test_a_test_that_says_it_is_pure_and_uses_a_part_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\n@pytest.mark.pure\ndef test_it(kafka): pass\n", "--collect-only")

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it is marked pure, and its fixtures start kafka" in done.stdout + done.stderr


STARTING = """
import subprocess
import pytest

def start():
    with pytest.raises(OSError):
        subprocess.run([{program!r}, *{words}], check=False)

@pytest.fixture
def started(): start()

def test_itself(): start()
def test_in_a_fixture(started): pass
@pytest.mark.{part}
def test_that_says_so(): start()
"""


@pytest.mark.parametrize(
    ("program", "part"), [("/nowhere/java", "kafka"), ("/nowhere/etcd", "apiserver"), ("/nowhere/helm", "helm")]
)
def test_a_pure_test_that_starts_a_part_fails(tmp_path: Path, program: str, part: str) -> None:
    done = run(tmp_path, STARTING.format(program=program, words=["-x"], part=part), "-q")

    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert f"a test without the marker `{part}` starts {program}: mark it" in done.stdout


def test_a_pure_test_may_ask_for_a_version_and_start_what_is_no_part(tmp_path: Path) -> None:
    pure = "\n".join(
        [
            *("import subprocess", "import sys", "import pytest", "def test_it():"),
            "    with pytest.raises(FileNotFoundError):",
            "        subprocess.run(['/nowhere/java', '-version'], check=False)",
            "    subprocess.run([sys.executable, '-c', ''], check=True)",
        ]
    )

    done = run(tmp_path, pure, "-q")

    assert "1 passed" in done.stdout, done.stdout + done.stderr
