"""A reset to a backup: which one its target means, what its job is given, and what is refused."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support import reset_world
from support.reset_world import CREATED
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import Launch
from tidegate.jobs.storage import S3, Folder
from tidegate.kube.ports import BACKUPS
from tidegate.reset.model.targets import FromBackup
from tidegate.resources.connection import AllowSpec
from tidegate.resources.reset import Engine

AT = "2026-11-20T14:00:00Z"
ON_CLAIM = {"folder": {"path": "offsets", "claim": "backups"}}
IN_S3 = {"s3": {"bucket": "backups", "path": "kafka", "credentials": {"secretName": "s3", "key": "aws"}}}


class World(reset_world.World):
    """Spark jobs run in pods; they are noted and do nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.launches: list[Launch] = []
        self.runner.work = self.launches.append
        self.engines, self.mounts_secrets = {Engine.SPARK: self.runner}, True
        self.allow(AllowSpec(claims=("backups",), secrets=("s3",)))
        self.reconciler = self.fresh_reconciler()

    def allow(self, allow: AllowSpec) -> None:
        live = self.live.get("ns", "kafka")
        assert live is not None
        self.live.put(replace(live, allow=allow))

    def backs_up(self, name: str, storage: dict[str, Any], namespace: str = "ns") -> None:
        spec = {"connectionRef": {"name": "kafka"}, "schedule": "1h", "storage": storage}
        self.kube.create(BACKUPS, namespace, name, spec, CREATED)

    def look(self, passes: int = 5) -> None:
        for _ in range(passes):
            with contextlib.suppress(RunnerFailure):
                self.some_passes(1)

    @property
    def refusal(self) -> tuple[str, str]:
        stalled = self.condition("Stalled")
        return stalled["reason"], stalled["message"]

    @property
    def target(self) -> object:
        [launch] = self.launches
        return self.open_store("ns", launch.store.rpartition("/")[2], None).load().request.target


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("by", ["name", "storage"])
@pytest.mark.parametrize(
    ("storage", "read_from", "claims", "secrets"),
    [
        (ON_CLAIM, Folder(Path("/var/lib/tidegate/claims/backups/offsets")), {"backups": False}, {}),
        (IN_S3, S3("backups", "kafka", None, None, Path("/etc/tidegate/secrets/s3/aws")), {}, {"s3": ("aws",)}),
    ],
    ids=["claim", "s3"],
)
def test_its_job_reads_the_storage_that_is_meant(
    world: World,
    by: str,
    storage: dict[str, Any],
    read_from: Folder | S3,
    claims: dict[str, bool],
    secrets: dict[str, tuple[str, ...]],
) -> None:
    if by == "name":
        world.backs_up("nightly", storage)
    world.ask(to={"backup": {"at": AT, **({"name": "nightly"} if by == "name" else {"storage": storage})}})
    world.look()

    [launch] = world.launches
    assert world.target == FromBackup(read_from, datetime(2026, 11, 20, 14, tzinfo=UTC))
    assert launch.claims == claims
    assert secrets.items() <= launch.connection_secrets.items()


def test_it_is_begun_once_the_backup_that_it_names_is_there(world: World) -> None:
    world.ask(to={"backup": {"name": "nightly"}})
    world.backs_up("nightly", ON_CLAIM, namespace="another")
    world.look()
    reason, message = world.refusal
    assert reason == "OffsetBackupNotFound"
    assert message.startswith("spec.to.backup.name: there is no OffsetBackup nightly in this namespace")

    world.backs_up("nightly", ON_CLAIM)
    world.look()
    assert len(world.launches) == 1


@pytest.mark.parametrize("by", ["name", "storage"])
def test_what_the_connection_does_not_allow_is_not_read_by_either(world: World, by: str) -> None:
    world.allow(AllowSpec())
    world.backs_up("nightly", ON_CLAIM)
    world.ask(to={"backup": {"name": "nightly"} if by == "name" else {"storage": ON_CLAIM}})
    world.look()

    where = "spec.to.backup.name: OffsetBackup nightly: spec.storage" if by == "name" else "spec.to.backup.storage"
    assert world.refusal == (
        "StorageNotAllowed",
        f"{where}.folder.claim: KafkaConnection kafka does not allow PersistentVolumeClaim backups: "
        "add it to allow.claims there",
    )
    assert world.launches == []


def test_one_that_can_not_be_read_is_refused(world: World) -> None:
    world.backs_up("nightly", {"folder": {"path": "../up"}})
    world.ask(to={"backup": {"name": "nightly"}})
    world.look()
    reason, message = world.refusal
    assert reason == "BadBackupStorage"
    assert message.startswith("spec.to.backup.name: OffsetBackup nightly can't be read: spec.storage.folder.path: must")


@pytest.mark.parametrize("now", [IN_S3, None], ids=["changed", "deleted"])
def test_no_job_is_started_where_the_name_means_something_else_by_then(
    world: World, now: dict[str, Any] | None
) -> None:
    """What the run's request says was decided when it was begun."""
    world.backs_up("nightly", ON_CLAIM)
    world.ask(to={"backup": {"name": "nightly"}})
    while not list((world.folder / "runs").glob("*.json")):
        world.some_passes(1)
    if now is None:
        world.kube.delete(BACKUPS, "ns", "nightly", CREATED)
    else:
        spec = {"connectionRef": {"name": "kafka"}, "schedule": "1h", "storage": now}
        world.kube.change(BACKUPS, "ns", "nightly", spec=spec)
    world.look(3)

    assert world.launches == []
    says = "there is no OffsetBackup nightly" if now is None else "names another backup than spec.to.backup does"
    assert says in world.condition("Ready")["message"]


def test_the_old_name_of_the_target_is_refused_with_the_new_one(world: World) -> None:
    world.ask(to={"snapshot": {"from": ON_CLAIM}})
    world.look()
    assert world.refusal == (
        "InvalidSpec",
        "spec.to.snapshot: has become backup: write to.backup, with the name of an OffsetBackup, or with from as its "
        "storage",
    )
