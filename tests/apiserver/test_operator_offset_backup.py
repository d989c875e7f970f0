"""The operator with the local Spark runner: all groups' offsets are written down, and a group put back from there."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from confluent_kafka.admin import AdminClient

from apiserver.offsets import commit, committed, produce
from devstack import ApiServer, KafkaCluster, spark_jars
from support.operator_process import OperatorProcess, Resources, condition_of, until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique
from tidegate.offset_backup.manifest import Manifest, encode, manifest_name, schedule_folder

pytestmark = pytest.mark.spark

RARELY = "87600h"
"""Ten years: one due time, which has passed, so that the first backup is made at once and no second one."""


STORAGE = {"folder": {"path": "offsets"}}


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def operator(
    start_operator: Callable[..., OperatorProcess],
    resources: Resources,
    kafka: KafkaCluster,
    tmp_path: Path,
    backups: Path,
) -> OperatorProcess:
    operator = start_operator(
        {
            "TIDEGATE_SPARK_RUNNER": "local",
            "TIDEGATE_SPARK_RUNS_DIRECTORY": str(tmp_path / "runs"),
            "TIDEGATE_SPARK_JARS": ",".join(map(str, spark_jars())),
            "TIDEGATE_SPARK_BACKUPS": str(backups),
        }
    )
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    return operator


@pytest.fixture
def kubectl(apiserver: ApiServer, resources: Resources) -> Callable[..., str]:
    """In the operator's namespace."""

    def run(*arguments: str, given: Any = None) -> str:
        command = ("kubectl", f"--kubeconfig={apiserver.kubeconfig}", f"--namespace={resources.namespace}")
        text = None if given is None else yaml.safe_dump(given)
        done = subprocess.run([*command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_group_that_lost_its_offsets_is_put_back_from_a_backup(
    operator: OperatorProcess,
    resources: Resources,
    kubectl: Callable[..., str],
    apiserver: ApiServer,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
    backups: Path,
) -> None:
    topic, lost, kept = make_topic(2), unique("lost"), unique("kept")
    produce(kafka.bootstrap, topic, 2, 100)
    commit(kafka.bootstrap, lost, topic, {0: 50, 1: 60})
    commit(kafka.bootstrap, kept, topic, {0: 10})
    spec = {
        "connectionRef": {"name": "kafka"},
        "schedule": RARELY,
        "storage": STORAGE,
        "groups": [lost, kept],
        "keep": {"each": "1h", "daily": "24h"},
        "suspend": True,
    }
    manifest = {"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetBackup", "metadata": {"name": "nightly"}}
    kubectl("create", "-f-", given=manifest | {"spec": spec})
    kubectl("wait", "--for=condition=Ready", "obk/nightly", "--timeout=60s")
    assert condition_of(resources.get_backup("nightly"), "BackedUp")["reason"] == "Suspended"
    assert not _drivers(tmp_path / "runs")
    cluster_id = resources.get_connection("kafka")["status"]["clusterId"]
    uid = resources.get_backup("nightly")["metadata"]["uid"]
    old = _old_backup(backups / "offsets" / schedule_folder(cluster_id, uid), cluster_id)

    resources.patch("offsetbackups", "nightly", {"spec": {"suspend": False}})
    until(lambda: _drivers(tmp_path / "runs"), "its job runs", timeout_s=60)
    operator.kill()  # the job goes on, and whoever comes finds its result
    operator.start()
    until(lambda: resources.get_backup("nightly")["status"].get("last"), "a backup", timeout_s=180)
    kubectl("wait", "--for=condition=Ready", "offsetbackup/nightly", "--timeout=60s")

    backup = resources.get_backup("nightly")
    last = backup["status"]["last"]
    assert (last["groups"], last["partitions"], last["unread"]) == (2, 3, 0)
    assert condition_of(backup, "BackedUp")["reason"] == "BackupTaken"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    rows = pyarrow.parquet.read_table(last["path"].removeprefix("file://")).to_pylist()
    assert [(r["group_id"], r["topic"], r["partition"], r["committed"], r["log_end"]) for r in rows] == sorted(
        [(lost, topic, 0, 50, 100), (lost, topic, 1, 60, 100), (kept, topic, 0, 10, 100)]
    )
    assert last["bytes"] > 0
    until(lambda: not old.exists(), "what is over is removed", timeout_s=90)
    assert ("BackupTaken", condition_of(backup, "BackedUp")["message"]) in resources.events("nightly")
    assert operator.metric("tidegate_backup_offsets", backup="nightly") == 3
    header, row = kubectl("get", "obk").splitlines()
    assert header.split() == ["NAME", "SCHEDULE", "SUSPEND", "LAST", "GROUPS", "READY", "AGE"]
    assert [row.split()[n] for n in (0, 1, 2, 4, 5)] == ["nightly", RARELY, "false", "2", "True"]

    _lose(kafka, lost)
    assert committed(kafka.bootstrap, lost, topic, 2) == {}
    by = ("--at", last["takenAt"], "--name", "back", "--manual", "--no-wait", "-n", resources.namespace)
    Shell({"KUBECONFIG": str(apiserver.kubeconfig)})("backup", "restore", "nightly", lost, *by)
    planned = until(
        lambda: _in_phase(resources, "back", "AwaitingApproval"), "the plan waits to be approved", timeout_s=180
    )
    assert committed(kafka.bootstrap, lost, topic, 2) == {}
    resources.approve("back", planned["status"]["digest"])
    kubectl("wait", "--for=condition=Complete", "ors/back", "--timeout=180s")
    assert committed(kafka.bootstrap, lost, topic, 2) == {0: 50, 1: 60}

    # The OffsetBackup may be lost as well, with its namespace or its Kubernetes cluster: what it wrote is enough.
    resources.delete_backup("nightly")
    _lose(kafka, lost)
    resources.reset("again", lost, {"backup": {"storage": STORAGE}})
    kubectl("wait", "--for=condition=Complete", "ors/again", "--timeout=180s")
    assert committed(kafka.bootstrap, lost, topic, 2) == {0: 50, 1: 60}


@pytest.mark.nightly
@pytest.mark.usefixtures("operator")
def test_one_is_taken_now_and_shows_where_a_group_stands(
    resources: Resources, apiserver: ApiServer, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group, shell = make_topic(2), unique("group"), Shell({"KUBECONFIG": str(apiserver.kubeconfig)})
    of = ("-n", resources.namespace)
    produce(kafka.bootstrap, topic, 2, 100)
    commit(kafka.bootstrap, group, topic, {0: 50, 1: 60})
    resources.backup("nightly", STORAGE, schedule=RARELY, groups=[group])
    until(lambda: resources.get_backup("nightly").get("status", {}).get("last"), "the first", timeout_s=180)
    commit(kafka.bootstrap, group, topic, {0: 70, 1: 80})

    took = shell("backup", "take", "nightly", *of)
    commit(kafka.bootstrap, group, topic, {0: 99, 1: 99})
    listed = json.loads(shell("backup", "list", "-o", "json", *of))["backups"]
    with shell.start("backup", "show", "nightly", "--group", group, "-o", "json", *of) as process:
        shown = json.loads(process.communicate(timeout=180)[0])
    earlier = shell("backup", "show", "nightly", "--group", group, "--at", listed[1]["takenAt"], *of)

    assert "BackupTaken: " in took
    assert [one["partitions"] for one in listed] == [2, 2]
    assert [p["target"] for p in shown["plan"]["partitions"]] == [70, 80]
    assert "50" in earlier
    assert resources.get_backup("nightly")["status"]["next"]
    assert committed(kafka.bootstrap, group, topic, 2) == {0: 99, 1: 99}
    until(lambda: "show-backup-" not in shell("status", *of), "no reset stays")


@pytest.mark.usefixtures("operator")
def test_the_job_of_one_that_is_deleted_is_ended(resources: Resources, tmp_path: Path, backups: Path) -> None:
    resources.backup("p", STORAGE, schedule=RARELY)
    [driver] = until(lambda: _drivers(tmp_path / "runs"), "its job runs", timeout_s=60)

    resources.delete_backup("p")

    until(lambda: not Path(f"/proc/{driver}").exists(), "the driver is gone", timeout_s=60)
    assert not list(backups.rglob("*.json"))


@pytest.mark.usefixtures("operator")
def test_a_reset_to_the_backup_of_an_unknown_name_waits_for_it_to_be_made(resources: Resources, unique: Unique) -> None:
    resources.reset("back", unique("group"), {"backup": {"name": "nightly"}})

    until(
        lambda: condition_of(resources.get_reset("back"), "Stalled").get("reason") == "OffsetBackupNotFound",
        "it is refused",
    )
    assert (
        "spec.to.backup.name: there is no OffsetBackup nightly in this namespace"
        in condition_of(resources.get_reset("back"), "Stalled")["message"]
    )


def _lose(kafka: KafkaCluster, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_consumer_groups([group])[group].result(30)


def _in_phase(resources: Resources, name: str, phase: str) -> dict[str, Any] | None:
    body = resources.get_reset(name)
    return body if body.get("status", {}).get("phase") == phase else None


def _drivers(runs: Path) -> list[int]:
    """The drivers that run."""
    pids = [int(json.loads(record.read_text())["pid"]) for record in runs.rglob("process.json")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _old_backup(folder: Path, cluster_id: str) -> Path:
    """The manifest of one that an earlier job of this schedule has made."""
    due = datetime(2001, 1, 1, tzinfo=UTC)
    made = Manifest(cluster_id, folder.name.removeprefix("schedule="), due, due, due, "data/x", 0, 0, 0)
    file = folder / manifest_name(due)
    file.parent.mkdir(parents=True)
    file.write_bytes(encode(made))
    return file
