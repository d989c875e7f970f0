"""The operator with the local Spark runner: it launches drivers, believes what is stored, and follows dead ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from apiserver.offsets import committed, leave_at, produce
from devstack import ApiServer, KafkaCluster, spark_jars
from support.operator_process import OperatorProcess, Resources, until
from support.stack_fixtures import MakeTopic, Unique

pytestmark = pytest.mark.spark

AT_50, AT_10 = {0: 50, 1: 50}, {0: 10, 1: 10}


@pytest.fixture
def spark_operator(
    start_operator: Callable[..., OperatorProcess], resources: Resources, kafka: KafkaCluster, tmp_path: Path
) -> OperatorProcess:
    operator = start_operator(
        {
            "TIDEGATE_SPARK_RUNNER": "local",
            "TIDEGATE_SPARK_RUNS_DIRECTORY": str(tmp_path / "runs"),
            "TIDEGATE_SPARK_JARS": ",".join(map(str, spark_jars())),
        }
    )
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    return operator


def test_a_killed_driver_is_followed_by_another(
    spark_operator: OperatorProcess,
    resources: Resources,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic, group = make_topic(2), unique("group")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, AT_50)
    resources.reset("p", group, {"offset": 10}, engine="Spark")

    first = until(lambda: driver_of(tmp_path / "runs"), "the first driver runs", timeout_s=60)
    os.killpg(first, signal.SIGKILL)

    done = resources.wait_phase("p", "Succeeded", "Failed", "RolledBack", timeout_s=180)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert done["status"]["engine"] == "Spark"
    assert done["status"]["application"].endswith("-2")
    assert committed(kafka.bootstrap, group, topic, 2) == AT_10
    assert spark_operator.metric("tidegate_job_deaths_total", engine="Spark") == 1


def test_a_plan_is_shown_with_its_evidence_before_it_is_approved(
    spark_operator: OperatorProcess,
    resources: Resources,
    kafka: KafkaCluster,
    apiserver: ApiServer,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic, group = make_topic(2), unique("group")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, AT_50)

    def plan(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidegate.cli.main", "plan", "p", "--namespace", resources.namespace, *options]
        environment = os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    early = plan()
    assert (early.returncode, early.stdout) == (1, "")
    assert f"there is no OffsetReset or OffsetResetPolicy p in namespace {resources.namespace}" in early.stderr
    resources.reset("p", group, {"offset": 10}, approval="Manual")
    resources.wait_phase("p", "AwaitingApproval", timeout_s=120)
    until(lambda: "evidence.json" in next(iter(resources.run_documents("p").values())), "evidence", timeout_s=120)

    read = json.loads(plan("--output", "json").stdout)
    gathered = read["evidence"]
    assert read["phase"] == "AwaitingApproval"
    amount = gathered["topics"][0]["replayed"]
    assert amount == {
        "offsets": 80,
        "looked_at": 80,
        "records": 80,
        "bytes": 160,
        "keys": 0,
        "without_key": 80,
        "tombstones": 0,
    }
    assert [(s["partition"], s["offset"]) for s in gathered["samples"]] == [
        (partition, offset) for partition in (0, 1) for offset in (8, 9, 10, 11)
    ]
    assert all("text" not in s["value"] for s in gathered["samples"])
    assert gathered.get("notes", []) == []
    shown = plan("--html", str(tmp_path / "plan.html"))
    assert shown.stdout == ""
    assert "<svg" in (tmp_path / "plan.html").read_text()
    shown = plan()
    assert "read again 80 records, 160 B" in shown.stdout, shown
    assert resources.get_reset("p")["status"]["engine"] == "Spark"
    digest = resources.get_reset("p")["status"]["digest"]
    assert f"--plan {digest}" in shown.stdout


def test_a_fleet_is_one_job_and_its_groups_documents_go_with_the_reset(
    spark_operator: OperatorProcess, resources: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, base = make_topic(2), unique("payments")
    produce(kafka.bootstrap, topic, 2, 100)
    for name in ("a", "b", "c"):
        leave_at(kafka.bootstrap, f"{base}-{name}", topic, AT_50)
    resources.reset("p", [f"{base}-*"], {"offset": 10}, engine="Spark", failurePolicy="All")

    done = resources.wait_phase("p", "Succeeded", "Failed", "RolledBack", timeout_s=180)

    reset = done["status"]
    assert (reset["phase"], reset["engine"], reset["fleet"]["reset"]) == ("Succeeded", "Spark", 3), done["status"]
    assert reset["application"].endswith("-1")
    assert [committed(kafka.bootstrap, f"{base}-{name}", topic, 2) for name in ("a", "b", "c")] == [AT_10] * 3
    documents = resources.core.list_namespaced_config_map(
        resources.namespace, label_selector="tidegate.io/offset-reset=p"
    ).items
    assert len(documents) == 1 + 3
    assert {document.metadata.owner_references[0].uid for document in documents} == {done["metadata"]["uid"]}


def driver_of(runs: Path) -> int | None:
    """The process group of the launch that was started last."""
    for record in sorted(runs.rglob("process.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        found = record.read_text().partition('"pid": ')[2].partition(",")[0]
        if found.isdigit():
            return int(found)
    return None
