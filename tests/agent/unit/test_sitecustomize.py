"""The agent's folder, as a pod has it on PYTHONPATH, in a Python that has none of what the agent imports."""

import importlib.util
import os
import shutil
import subprocess
import sys
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


def started(python: Path, agent: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(agent), "TIDEGATE_AGENT": "1", **environment}
    code = "print('runs')"
    return subprocess.run([python, "-c", code], env=environment, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TIDEGATE_ON_UNREACHABLE", "maybe", "must be wait or open, not 'maybe'"),
        ("TIDEGATE_LATEST_MAX_AGE", "1h", "must be a whole number of milliseconds, or -1 for off, not '1h'"),
        ("TIDEGATE_AGENT", "perhaps", "must be 1 or 0, not 'perhaps'"),
    ],
)
def test_a_strict_process_does_not_start_with_a_bad_value(
    python: Path, agent: Path, name: str, value: str, told: str
) -> None:
    strict = started(python, agent, **{name: value, "TIDEGATE_STRICT": "true"})
    lenient = started(python, agent, **{name: value})
    ours = started(python, agent, **{name: value, "TIDEGATE_STRICT": "very"})

    refused = f"Tidegate refuses to start this process, for TIDEGATE_STRICT is on: {name} {told}\n"
    assert (strict.returncode, strict.stdout, strict.stderr) == (1, "", refused)
    assert (lenient.returncode, lenient.stdout) == (ours.returncode, ours.stdout) == (0, "runs\n")


def test_a_strict_process_with_good_values_starts(python: Path, agent: Path) -> None:
    done = started(python, agent, TIDEGATE_STRICT="true", TIDEGATE_LATEST_MAX_AGE="-1", TIDEGATE_ON_UNREACHABLE="open")

    assert (done.returncode, done.stdout, done.stderr) == (0, "runs\n", "")


@pytest.mark.parametrize("strict", ["true", "false"])
def test_an_application_that_changes_its_environment_is_refused_by_its_client_library(
    python: Path, agent: Path, strict: str
) -> None:
    code = (
        "import os\n"
        "os.environ.update(TIDEGATE_ON_UNREACHABLE='maybe', TIDEGATE_STRICT=os.environ['WANTED'])\n"
        "from confluent_kafka import Consumer, KafkaException\n"
        "try:\n"
        "    Consumer({'group.id': 'g', 'bootstrap.servers': 'localhost:1'}).close()\n"
        "except KafkaException as error:\n"
        "    print(error.args[0].name(), error.args[0].str())\n"
    )
    environment = {"PYTHONPATH": str(agent), "TIDEGATE_AGENT": "1", "WANTED": strict}

    done = subprocess.run([python, "-c", code], env=environment, text=True, capture_output=True, check=True)

    told = "TIDEGATE_ON_UNREACHABLE must be wait or open, not 'maybe'"
    assert done.stdout == (f"_INVALID_ARG {told}\n" if strict == "true" else "")
    assert (told in done.stderr) is (strict == "false")


@pytest.mark.parametrize("module", ["kafka", "aiokafka"])
@pytest.mark.parametrize("strict", ["true", "false"])
def test_so_it_is_by_libraries_that_are_managed_when_they_are_imported(module: str, strict: str) -> None:
    code = (
        "import os\n"
        "os.environ.update(TIDEGATE_ON_UNREACHABLE='maybe', TIDEGATE_STRICT=os.environ['WANTED'])\n"
        f"import {module}\n"
        "print('runs')\n"
    )
    environment = {"PYTHONPATH": str(AGENT), "TIDEGATE_AGENT": "1", "WANTED": strict}

    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False)

    told = "TIDEGATE_ON_UNREACHABLE must be wait or open, not 'maybe'"
    assert told in done.stderr
    assert (done.returncode, done.stdout) == ((1, "") if strict == "true" else (0, "runs\n"))


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
