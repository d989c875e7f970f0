"""The agent's folder, as a pod has it on PYTHONPATH, in a Python that has none of what the agent imports."""

import importlib.util
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[3] / "agents" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of an application, with nothing installed."""
    folder = tmp_path_factory.mktemp("application")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the agent's image copies into the pod."""
    folder = tmp_path_factory.mktemp("tidegate") / "python"
    shutil.copytree(AGENT, folder)
    (folder / "fallback").mkdir()
    for package in ("wrapt", "confluent_kafka"):
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        site = Path(found.origin).parents[1]
        for part in site.glob(f"{package}*"):
            (folder / "fallback" / part.name).symlink_to(part)
    return folder


def run(python: Path, code: str, *path: Path) -> str:
    environment = {"PYTHONPATH": os.pathsep.join(str(folder) for folder in path), "TIDEGATE_AGENT": "1"}
    done = subprocess.run([python, "-c", code], env=environment, text=True, capture_output=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_what_the_application_lacks_comes_with_the_agent(python: Path, agent: Path) -> None:
    tell = "from confluent_kafka import Consumer; print(hasattr(Consumer, 'tidegate_plain'))"
    assert run(python, tell, agent) == "True"


def test_what_the_application_has_goes_before_it(python: Path, agent: Path, tmp_path: Path) -> None:
    (tmp_path / "wrapt").symlink_to((agent / "fallback" / "wrapt").resolve())
    assert run(python, "import wrapt; print(wrapt.__file__)", agent, tmp_path).startswith(str(tmp_path))


def test_without_the_fallback_the_agent_says_what_is_missing(python: Path) -> None:
    done = subprocess.run(
        [python, "-c", "print('runs')"],
        env={"PYTHONPATH": str(AGENT), "TIDEGATE_AGENT": "1"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.stdout == "runs\n"
    assert "the agent stays out: No module named 'wrapt'" in done.stderr
