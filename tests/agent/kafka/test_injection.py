"""The agent in applications that know nothing of it: other processes, started as a user starts them, and killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.kafka.confluent_application import Scene
from devstack import KafkaCluster
from devstack.processes import eventually
from support.clients import ConsumerFleet
from support.stack_fixtures import MakeTopic, Unique

pytestmark = pytest.mark.at_once(6)

AGENT = Path(__file__).resolve().parents[3] / "agents" / "python"
TELL = "; ".join(
    (
        "from confluent_kafka import Consumer, DeserializingConsumer",
        "print(hasattr(Consumer, 'tidegate_plain'), hasattr(DeserializingConsumer, 'tidegate_plain'))",
    )
)


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, *arguments], env={**clean, **environ}, text=True, capture_output=True, check=False, timeout=60
    )


def test_the_distribution_on_the_path_and_one_variable_are_enough() -> None:
    done = run("-c", TELL, TIDEGATE_AGENT="1", PYTHONPATH=str(AGENT))
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_without_the_variable_nothing_happens() -> None:
    done = run("-c", TELL, PYTHONPATH=str(AGENT))
    assert (done.stdout, done.stderr) == ("False False\n", "")


def test_a_wrong_setting_is_said_and_the_application_runs_without_the_agent() -> None:
    done = run("-c", TELL, TIDEGATE_AGENT="1", TIDEGATE_ON_UNREACHABLE="perhaps", PYTHONPATH=str(AGENT))
    assert done.stdout == "False False\n"
    assert "TIDEGATE_ON_UNREACHABLE must be wait or open" in done.stderr


def test_an_application_that_has_a_sitecustomize_of_its_own_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('its own', end=' ')\n")
    done = run("-c", TELL, TIDEGATE_AGENT="1", PYTHONPATH=os.pathsep.join([str(AGENT), str(tmp_path)]))
    assert (done.stdout, done.stderr) == ("its own True True\n", "")


def test_an_application_with_two_copies_of_the_agent_on_its_path_has_one(tmp_path: Path) -> None:
    shutil.copytree(AGENT, tmp_path / "copy")
    done = run("-c", TELL, TIDEGATE_AGENT="1", PYTHONPATH=os.pathsep.join([str(AGENT), str(tmp_path / "copy")]))
    assert (done.stdout, done.stderr) == ("True True\n", "")


@pytest.mark.parametrize("first", ["aiokafka", "kafka", "confluent_kafka"])
def test_an_application_may_use_several_client_libraries_whichever_it_imports_first(first: str) -> None:
    classes = {"aiokafka": "AIOKafkaConsumer", "kafka": "KafkaConsumer", "confluent_kafka": "Consumer"}
    imports = [f"from {module} import {name}" for module, name in sorted(classes.items(), key=lambda m: m[0] != first)]
    tell = "print(*(k.__mro__[1].__name__ == k.__name__ for k in (AIOKafkaConsumer, KafkaConsumer, Consumer)))"
    done = run("-c", "; ".join([*imports, tell]), TIDEGATE_AGENT="1", PYTHONPATH=str(AGENT))
    assert (done.stdout, done.stderr) == ("True True True\n", "")


@pytest.mark.parametrize("way", ["script", "module"])
def test_run_starts_a_script_or_a_module_with_its_arguments(tmp_path: Path, way: str) -> None:
    (tmp_path / "app.py").write_text(f"import sys; {TELL}; print(__name__, *sys.argv[1:])\n")
    what = [str(tmp_path / "app.py")] if way == "script" else ["-m", "app"]
    path = os.pathsep.join([str(AGENT), str(tmp_path)])
    done = run("-m", "tidegate_agent", "run", *what, "one", "-2", PYTHONPATH=path)
    assert (done.stdout, done.stderr) == ("True True\n__main__ one -2\n", "")


def test_run_without_an_application_says_how_it_is_used() -> None:
    done = run("-m", "tidegate_agent", "run", PYTHONPATH=str(AGENT))
    assert done.returncode == 1
    assert "usage:" in done.stderr


@pytest.mark.parametrize("moment", ["closing", "closed", "opening"])
def test_an_owner_that_crashes_while_its_gate_moves_leaves_the_pause_whole(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, moment: str
) -> None:
    scene = Scene(kafka.bootstrap, make_topic(2), unique())
    partitions = [(scene.topic, 0), (scene.topic, 1)]
    try:
        with ConsumerFleet(
            "librdkafka",
            kafka.bootstrap,
            scene.group,
            [scene.topic],
            2,
            2,
            session_s=6,
            commit="async",
            agent=True,
            control_topic=scene.settings.control_topic,
        ) as fleet:
            fleet.wait_flowing(partitions)
            scene.hold(0)
            if moment != "closing":
                scene.wait_acked(0)
            if moment == "opening":
                scene.release(0)
                scene.hold(0, holder="again")
            fleet.kill_process(fleet.process_of(fleet.owners()[scene.topic, 0]))
            killed = time.time()
            fleet.add()
            fleet.wait_assigned(partitions, members=2)
            new = fleet.owners()[scene.topic, 0]
            fleet.wait_flowing([(scene.topic, 1)])
            assert eventually(lambda: scene.acked(0) is not None, 90)
            stood_at = scene.committed(0)
            since = time.time()
            fleet.wait_flowing([(scene.topic, 1)], since=since + 1)
            assert not [d for d in fleet.records(killed + 0.5) if d.partition == 0], f"{new} delivers"
            assert scene.committed(0) == stood_at
            scene.release(0)
            scene.release(0, holder="again")
            fleet.wait_flowing([(scene.topic, 0)])
            assert next(d.offset for d in fleet.records(since) if d.partition == 0) == stood_at
    finally:
        scene.close()
