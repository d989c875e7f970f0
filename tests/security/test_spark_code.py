"""What a policy's Spark settings could do to its job if they were not on a list: real Spark runs it here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tidegate.jobs import application
from tidegate.jobs.errors import BadSparkSpec
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import SparkSettings

pytestmark = pytest.mark.spark

JOB = """
from tidegate.spark.session import start_session
spark = start_session("job")
spark.sparkContext.parallelize([1, 2], 1).map(lambda n: n + 1).collect()
"""


def hostile(written: Path) -> dict[str, str]:
    """Spark starts ``python -m <daemon> <worker>``, and ``timeit`` runs the code that it is given."""
    return {
        "spark.python.daemon.module": "timeit",
        "spark.python.worker.module": f"open({str(written)!r},'w').close()",
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "written"


@pytest.fixture
def runner(tmp_path: Path) -> LocalSparkRunner:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "reset.py").write_text(JOB)
    settings = SparkSettings(templates=tmp_path, driver_memory="512m")
    return LocalSparkRunner(tmp_path / "runs", "local[1]", settings=settings)


def test_a_policys_settings_run_no_code(runner: LocalSparkRunner, written: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSparkSpec, match=r"spark[.]python[.]daemon[.]module can't be set"):
        runner.start(Launch("hostile", "prod", "file:///nowhere/run", spark={"sparkConf": hostile(written)}))

    assert not written.exists()
    assert not (tmp_path / "runs" / "hostile" / "started").exists()


def test_without_the_list_they_would(runner: LocalSparkRunner, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing: a setting that does no harm is refused as well."""
    monkeypatch.setattr(application, "refusals", lambda *_: [])
    launch = Launch("hostile", "prod", "file:///nowhere/run", spark={"sparkConf": hostile(written)})
    runner.start(launch)
    try:
        deadline = time.monotonic() + 120
        while not written.exists() and runner.status(launch).state is RunnerState.RUNNING:
            assert time.monotonic() < deadline, "waited 120 s for the code to run"
            time.sleep(0.05)
        assert written.exists(), runner.status(launch).message
    finally:
        runner.stop(launch)
