"""Policies that an earlier version of the operator has left."""

from __future__ import annotations

from pathlib import Path

from support.fake_kube import FakeKube
from support.policy_world import CREATED, World
from tidegate.kube.ports import POLICIES


def test_one_that_made_backups_is_told_what_to_do_and_not_called_backed_up_any_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = {
        "connectionRef": {"name": "kafka"},
        "group": "payments",
        "snapshots": {"schedule": "1h", "to": {"folder": {"path": "offsets"}}},
    }
    body = world.kube.create(POLICIES, "ns", "p", spec, CREATED)
    condition = {"reason": "SnapshotTaken", "message": "", "lastTransitionTime": CREATED, "observedGeneration": 1}
    conditions = [{"type": "Ready", "status": "True", **condition}, {"type": "BackedUp", "status": "True", **condition}]
    FakeKube.replace_status(world.kube, POLICIES, body, {"observedGeneration": 1, "conditions": conditions})

    world.some_passes(1)

    assert world.condition("Stalled")["reason"] == "InvalidSpec"
    assert (
        "spec.snapshots: is no longer part of a policy: make an OffsetBackup" in world.condition("Stalled")["message"]
    )
    said = world.kube.get(POLICIES, "ns", "p")["status"]["conditions"]
    assert {c["type"] for c in said} == {"Ready", "Stalled"}
