"""The agent as it is distributed: a built wheel, installed into an environment where nothing else leads to it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from devstack import KafkaCluster
from devstack.prerequisites import uv
from support.clients import ConsumerFleet
from support.gated_applications import Scene
from support.stack_fixtures import MakeTopic, Unique

AGENT = Path(__file__).resolve().parents[3] / "agents" / "python"
TELL = "import sys, confluent_kafka as c; print(hasattr(c.Consumer, 'tidegate_plain'), 'tidegate_agent' in sys.modules)"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; what that depends on is this environment's."""
    folder = tmp_path_factory.mktemp("installed")
    build = [str(uv()), "build", "-q", "--wheel", "--python", sys.executable, "-o", str(folder), str(AGENT)]
    # The build backend has been fetched for this environment; somebody may have emptied the cache since.
    if subprocess.run([*build, "--offline"], capture_output=True, check=False).returncode != 0:
        subprocess.run(build, check=True)
    [wheel] = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([str(uv()), "venv", "-q", "--python", sys.executable, str(folder / "venv")], check=True)
    install = [str(uv()), "pip", "install", "-q", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True)
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # Named so that Python reads it before the agent's own.
    (Path(purelib) / "_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_one_variable_is_enough(
    installed: Path, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kafka.bootstrap, make_topic(2), unique("installed"))
    monkeypatch.setattr(sys, "executable", str(installed))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("TIDEGATE_AGENT", "1")
    monkeypatch.setenv("TIDEGATE_CONTROL_TOPIC", scene.settings.control_topic)
    partitions = [(scene.topic, 0), (scene.topic, 1)]
    try:
        with ConsumerFleet("librdkafka", scene.bootstrap, scene.group, [scene.topic], 1) as fleet:
            fleet.wait_flowing(partitions)
            ack = scene.close_gate()
            acked_at = time.time()
            fleet.wait_flowing(partitions[1:], since=acked_at + 0.3)
            assert ack.member
            assert not [d for d in fleet.records(acked_at) if d.partition == 0]
    finally:
        scene.close()


def test_without_it_nothing_of_the_agent_is_imported(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_AGENT", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([str(installed), "-c", TELL], text=True, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == ("False False\n", "")
