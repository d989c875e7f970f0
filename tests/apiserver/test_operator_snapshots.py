"""The operator with the local Spark runner: all groups' offsets are written down, and a group put back from there."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka.admin import AdminClient

from apiserver.offsets import commit, committed, produce
from devstack import KafkaCluster, spark_jars
from support.operator_process import OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.snapshots.manifest import Manifest, encode, manifest_name, schedule_folder

pytestmark = pytest.mark.spark

RARELY = "87600h"
"""Ten years: one due time, which has passed, so that the first snapshot is made at once and no second one."""


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def operator(
    start_operator: Callable[..., OperatorProcess],
    resources: Resources,
    kafka: KafkaCluster,
    tmp_path: Path,
    snapshots: Path,
) -> OperatorProcess:
    operator = start_operator(
        {
            "TIDEGATE_SPARK_RUNNER": "local",
            "TIDEGATE_SPARK_RUNS_DIRECTORY": str(tmp_path / "runs"),
            "TIDEGATE_SPARK_JARS": ",".join(map(str, spark_jars())),
            "TIDEGATE_SPARK_SNAPSHOTS": str(snapshots),
        }
    )
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    return operator


def test_a_group_that_lost_its_offsets_is_put_back_from_a_snapshot(
    operator: OperatorProcess,
    resources: Resources,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
    snapshots: Path,
) -> None:
    topic, lost, kept = make_topic(2), unique("lost"), unique("kept")
    produce(kafka.bootstrap, topic, 2, 100)
    commit(kafka.bootstrap, lost, topic, {0: 50, 1: 60})
    commit(kafka.bootstrap, kept, topic, {0: 10})
    policy = resources.policy("backup", "any")
    cluster_id = resources.get_connection("kafka")["status"]["clusterId"]
    old = _old_snapshot(snapshots / "offsets" / schedule_folder(cluster_id, policy["metadata"]["uid"]), cluster_id)

    resources.patch_policy(
        "backup",
        snapshots={
            "schedule": RARELY,
            "to": {"folder": {"path": "offsets"}},
            "groups": [lost, kept],
            "keep": {"each": "1h", "daily": "24h"},
        },
    )
    until(lambda: _drivers(tmp_path / "runs"), "its job runs", timeout_s=60)
    operator.kill()  # the job goes on, and whoever comes finds its result
    operator.start()
    last = until(lambda: _snapshots(resources, "backup").get("last"), "a snapshot", timeout_s=180)

    assert (last["groups"], last["partitions"], last["unread"]) == (2, 3, 0)
    assert condition_of(resources.get_policy("backup"), "BackedUp")["reason"] == "SnapshotTaken"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    rows = pyarrow.parquet.read_table(last["path"].removeprefix("file://")).to_pylist()
    assert [(r["group_id"], r["topic"], r["partition"], r["committed"], r["log_end"]) for r in rows] == sorted(
        [(lost, topic, 0, 50, 100), (lost, topic, 1, 60, 100), (kept, topic, 0, 10, 100)]
    )
    assert last["bytes"] > 0
    until(lambda: not old.exists(), "what is over is removed", timeout_s=90)
    assert ("SnapshotTaken", condition_of(resources.get_policy("backup"), "BackedUp")["message"]) in resources.events(
        "backup"
    )
    assert operator.metric("tidegate_snapshot_offsets", policy="backup") == 3

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_consumer_groups([lost])[lost].result(30)
    assert committed(kafka.bootstrap, lost, topic, 2) == {}
    to = {"snapshot": {"from": {"folder": {"path": "offsets"}}, "at": last["takenAt"]}}
    resources.policy("back", lost, {"id": "one", "to": to, "approval": "Manual"})
    resources.wait_phase("back", "AwaitingApproval", timeout_s=180)
    assert committed(kafka.bootstrap, lost, topic, 2) == {}
    resources.approve("back")
    done = resources.wait_phase("back", "Succeeded", "Failed", "RolledBack", timeout_s=180)
    assert done["status"]["reset"]["phase"] == "Succeeded", done["status"]
    assert committed(kafka.bootstrap, lost, topic, 2) == {0: 50, 1: 60}


def test_the_job_of_a_policy_that_is_deleted_is_ended(
    operator: OperatorProcess, resources: Resources, tmp_path: Path, snapshots: Path
) -> None:
    resources.policy("p", "any", snapshots={"schedule": RARELY, "to": {"folder": {"path": "offsets"}}})
    [driver] = until(lambda: _drivers(tmp_path / "runs"), "its job runs", timeout_s=60)

    resources.delete_policy("p")

    until(lambda: not Path(f"/proc/{driver}").exists(), "the driver is gone", timeout_s=60)
    assert not list(snapshots.rglob("*.json"))


def _snapshots(resources: Resources, policy: str) -> dict[str, Any]:
    found: dict[str, Any] = resources.get_policy(policy).get("status", {}).get("snapshots", {})
    return found


def _drivers(runs: Path) -> list[int]:
    """The drivers that run."""
    pids = [int(json.loads(record.read_text())["pid"]) for record in runs.rglob("process.json")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _old_snapshot(folder: Path, cluster_id: str) -> Path:
    """The manifest of one that an earlier job of this schedule has made."""
    due = datetime(2001, 1, 1, tzinfo=UTC)
    made = Manifest(cluster_id, folder.name.removeprefix("schedule="), due, due, due, "data/x", 0, 0, 0)
    file = folder / manifest_name(due)
    file.parent.mkdir(parents=True)
    file.write_bytes(encode(made))
    return file
