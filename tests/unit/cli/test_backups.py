"""`tidegate backup`: what is listed, what is asked for and waited for, and the OffsetReset that restores a group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

import tidegate.cli.asking  # noqa: F401 - it takes `follow` from where a test replaces it
from support.fake_kube import FakeKube
from tidegate.cli import following
from tidegate.cli.backups import covers, take_step, taken, when_to_take
from tidegate.cli.following import Step
from tidegate.cli.main import main
from tidegate.cli.restoring import planned_step
from tidegate.kube.ports import BACKUPS, RESETS, Kind, KubeUnavailable, Object
from tidegate.resources.base import read_status
from tidegate.resources.offset_backup import OffsetBackupStatus

CREATED = "2026-11-20T11:59:00Z"
SPEC: dict[str, Any] = {
    "connectionRef": {"name": "prod"},
    "schedule": "1h",
    "groups": ["pay*"],
    "storage": {"folder": {"claim": "backups", "path": "offsets"}},
}


def backup(hour: int, **changed: Any) -> dict[str, Any]:
    due, read = f"2026-11-20T{hour:02}:00:00Z", f"2026-11-20T{hour:02}:01:30Z"
    path = f"file:///claims/backups/offsets/cluster=c/schedule=u/data/20261120T{hour:02}0000Z-n-{hour}"
    told = {"due": due, "takenAt": read, "path": path, "groups": 2, "partitions": 7, "bytes": 4096, "unread": 0}
    return {**told, **changed}


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    at = "2026-11-20T12:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


class Cluster(FakeKube):
    """As a user reaches it, with an operator that does at once what ``operates`` says when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Mapping[str, str], bool]] = []
        self.operates: Any = lambda _body: None

    def own_name(self) -> str:
        return "alice@example.com"

    def annotate(self, kind: Kind, body: Object, annotations: Mapping[str, str], *, dry_run: bool = False) -> Object:
        self.asked.append((annotations, dry_run))
        return self.get(kind, "ns", str(body["metadata"]["name"]))

    def create(self, kind: Kind, *arguments: Any, dry_run: bool = False) -> Object:  # type: ignore[override]
        if len(arguments) > 1:
            return FakeKube.create(self, kind, *arguments)
        asked, name = arguments[0], arguments[0]["metadata"].get("name", "made")
        self.asked.append((asked["spec"], dry_run))
        return asked | {"metadata": {"name": name, "namespace": "ns"}} if dry_run else self._made(kind, asked, name)

    def _made(self, kind: Kind, asked: Mapping[str, Any], name: str) -> Object:
        FakeKube.create(self, kind, "ns", name, asked["spec"], CREATED)
        return self.get(kind, "ns", name)

    def tell(self, kind: Kind, name: str, status: Mapping[str, Any]) -> None:
        self.replace_status(kind, self.get(kind, "ns", name), status)


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: made)
    for name, groups in (("nightly", ["pay*"]), ("other", ["orders"])):
        FakeKube.create(made, BACKUPS, "ns", name, {**SPEC, "groups": groups}, CREATED)
    made.tell(BACKUPS, "nightly", {"last": backup(13), "backups": [backup(13), backup(12, unread=1)]})
    return made


def test_what_is_there_is_listed(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "list", "-n", "ns"]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [
        ["NAME", "DUE", "TAKEN-AT", "GROUPS", "PARTITIONS", "UNREAD", "BYTES"],
        ["nightly", "2026-11-20T13:00:00Z", "2026-11-20T13:01:30Z", "2", "7", "0", "4096"],
        ["nightly", "2026-11-20T12:00:00Z", "2026-11-20T12:01:30Z", "2", "7", "1", "4096"],
    ]
    assert told.err == "OffsetBackup other has not taken a backup yet\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_a_groups_backups(kube: Cluster, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "list", "-n", "ns", "--group", "payments", "-o", output]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out) if output == "json" else yaml.safe_load(told.out)
    assert (found["kind"], found["version"], told.err) == ("BackupList", 1, "")
    assert [(b["name"], b["connection"], b["due"]) for b in found["backups"]] == [
        ("nightly", "prod", "2026-11-20T13:00:00Z"),
        ("nightly", "prod", "2026-11-20T12:00:00Z"),
    ]


def test_backups_in_a_status_that_this_version_cannot_read_are_not_said_to_be_none(
    kube: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.tell(BACKUPS, "nightly", {"backups": "in another form"})

    assert main(["backup", "list", "-n", "ns"]) == 1
    told = capsys.readouterr()
    assert "OffsetBackup nightly: its status was written by another version of Tidegate, and can't be read" in told.err
    assert "OffsetBackup nightly has not taken a backup" not in told.err
    assert "OffsetBackup other has not taken a backup yet" in told.err
    assert main(["backup", "show", "nightly", "-n", "ns"]) == 1
    assert "can't be read" in capsys.readouterr().err


def test_a_group_that_nobody_backs_up_is_told(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "list", "-n", "ns", "--group", "billing"]) == 0
    assert capsys.readouterr() == ("", "there is no OffsetBackup that covers group billing in namespace ns\n")


def test_of_an_earlier_operator_the_newest_is_known(kube: Cluster) -> None:
    kube.tell(BACKUPS, "nightly", {"last": backup(13)})
    body = kube.get(BACKUPS, "ns", "nightly")
    assert [one.groups for one in taken(body)] == [2]
    assert covers(body, "payments")
    assert covers({"spec": {}}, "any")


# --- take -------------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 20, 12, 0, 0, 900_000, tzinfo=UTC)


def test_one_is_due_after_the_newest_also_by_a_clock_that_is_behind(kube: Cluster) -> None:
    body = kube.get(BACKUPS, "ns", "nightly")
    assert when_to_take(body, NOON) == datetime(2026, 11, 20, 13, 0, 1, tzinfo=UTC)
    assert when_to_take(body, NOON + timedelta(hours=2)) == datetime(2026, 11, 20, 14, tzinfo=UTC)


def test_one_is_due_now_where_the_newest_was_made_by_a_clock_that_was_ahead(kube: Cluster) -> None:
    """The operator makes it then, and not in a year."""
    body = kube.get(BACKUPS, "ns", "nightly")
    ahead = {**body, "status": {"last": backup(13, due="2027-11-20T13:00:00Z")}}
    assert when_to_take(ahead, NOON) == NOON.replace(microsecond=0)
    before = read_status(OffsetBackupStatus, ahead)
    assert take_step(ahead, NOON, before) == Step("the backup was requested")
    assert take_step({**ahead, "status": {"last": backup(12)}}, NOON.replace(microsecond=0), before).done


@pytest.mark.parametrize(
    ("status", "step"),
    [
        ({"next": "2026-11-20T14:00:00Z"}, Step("the backup was requested")),
        ({"launch": "n-7"}, Step("the backup is being taken")),
        ({"last": backup(13)}, Step("the backup was requested")),
        ({"last": backup(14)}, Step("BackupTaken: m", done=True)),
        ({"failures": 2, "launch": "n-7"}, Step("the backup is being taken")),
        ({"failures": 3}, Step("BackupTaken: m", done=False)),
    ],
)
def test_it_is_waited_until_it_is_there(status: dict[str, Any], step: Step) -> None:
    body = {"metadata": {}, "status": {**status, "conditions": [condition("BackedUp", "True", "BackupTaken", "m")]}}
    assert take_step(body, datetime(2026, 11, 20, 13, 0, 1, tzinfo=UTC), OffsetBackupStatus(failures=2)) == step


LATER = "2026-11-20T14:00:00Z"


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ({"launch": "n-7"}, None),
        ({"launch": "n-7", "failures": 1, "next": LATER}, None),
        ({"launch": "n-7", "failures": 0, "last": backup(13), "next": LATER}, None),
        ({"launch": "n-8", "failures": 1}, None),
        ({"launch": "n-8", "failures": 2, "next": LATER}, False),
        ({"launch": "n-8", "failures": 1, "last": backup(13), "next": LATER}, False),
        ({"launch": "n-8", "failures": 0, "last": backup(14), "next": LATER}, True),
    ],
)
def test_how_the_one_before_it_ends_that_was_under_way_is_not_its_own_end(
    status: dict[str, Any], done: bool | None
) -> None:
    before = OffsetBackupStatus(launch="n-7", failures=3 if "last" in status else 0)
    body = {"metadata": {}, "status": {**status, "conditions": [condition("BackedUp", "True", "BackupTaken", "m")]}}
    assert take_step(body, datetime(2026, 11, 20, 13, 0, 1, tzinfo=UTC), before).done is done


def test_what_is_refused_is_not_waited_for() -> None:
    conditions = [condition("BackedUp", "False", "StorageNotAllowed", "m"), condition("Stalled", "True", "S", "m")]
    body = {"metadata": {"generation": 1}, "status": {"conditions": conditions, "observedGeneration": 1}}
    assert take_step(body, NOON, OffsetBackupStatus()).refused == "resolve the cause"
    corrected = {**body, "metadata": {"generation": 2}}
    assert not take_step(corrected, NOON, OffsetBackupStatus()).refused


def test_a_backup_is_asked_for_by_an_annotation(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "take", "nightly", "-n", "ns", "--no-wait"]) == 0
    assert main(["backup", "take", "nightly", "-n", "ns", "--dry-run"]) == 0
    assert [dry_run for _, dry_run in kube.asked] == [False, True]
    [text] = kube.asked[0][0].values()
    assert datetime.fromisoformat(text) > datetime(2026, 11, 20, 13, tzinfo=UTC)
    assert capsys.readouterr().out.splitlines() == [
        "offsetbackup.tidegate.io/nightly was asked for a backup",
        "offsetbackup.tidegate.io/nightly was asked for a backup (server dry run)",
    ]


def test_a_suspended_one_takes_none(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    kube.change(BACKUPS, "ns", "nightly", spec={**SPEC, "suspend": True})
    assert main(["backup", "take", "nightly", "-n", "ns"]) == 1
    assert main(["backup", "take", "missing", "-n", "ns"]) == 1
    assert kube.asked == []
    assert capsys.readouterr().err.splitlines() == [
        "tidegate backup take: OffsetBackup nightly is suspended: set its spec.suspend to false first",
        "tidegate backup take: there is no OffsetBackup missing in namespace ns: "
        "check the name, or give another --namespace",
    ]


# --- show -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "due"),
    [
        ([], "2026-11-20T13:00:00Z"),
        (["--at", "2026-11-20T13:01:30Z"], "2026-11-20T13:00:00Z"),
        (["--at", "2026-11-20T14:01:29+01:00"], "2026-11-20T12:00:00Z"),
    ],
)
def test_one_is_shown_as_a_restore_would_choose_it(
    kube: Cluster, arguments: list[str], due: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "show", "nightly", "-n", "ns", *arguments, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["due"], found["partitions"]) == ("Backup", due, 7)
    assert main(["backup", "show", "nightly", "-n", "ns", *arguments]) == 0
    assert ["due", due] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_there_is_none_of_before_the_first(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "show", "nightly", "-n", "ns", "--at", "2026-11-20T12:01:29Z"]) == 1
    assert "lists no backup that was taken by 2026-11-20T12:01:29Z" in capsys.readouterr().err
    for wrong in ("yesterday", "2026-11-20T12:01:29"):
        assert main(["backup", "show", "nightly", "-n", "ns", "--at", wrong]) == 1
        assert "must be a time with a zone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "step"),
    [
        ({"phase": "Planning"}, Step("Planning: not begun")),
        ({"phase": "AwaitingApproval"}, Step("its plan is ready", done=True)),
        ({"phase": "Failed"}, Step("Failed: not begun", done=False)),
    ],
)
def test_a_groups_place_is_there_with_the_plan(status: dict[str, Any], step: Step) -> None:
    assert planned_step({"metadata": {}, "status": status}) == step


def test_the_reset_that_shows_a_groups_place_is_deleted_whatever_comes(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "follow", interrupted)
    assert main(["backup", "show", "nightly", "--group", "payments", "-n", "ns"]) == 130
    [(spec, dry_run)] = kube.asked
    assert (spec["approval"], spec["requester"], dry_run) == ("Manual", "alice@example.com", False)
    assert kube.list(RESETS) == []
    assert "OffsetReset ns/made" in capsys.readouterr().err


def test_a_plan_that_takes_too_long_does_not_go_on(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "show", "nightly", "--group", "payments", "-n", "ns", "--timeout", "1ms"]) == 1

    told = capsys.readouterr().err
    assert "OffsetReset made was not done within --timeout\n" in told
    assert "goes on" not in told
    assert kube.list(RESETS) == []


@pytest.mark.parametrize("failure", [KubeUnavailable("nobody answers"), KeyboardInterrupt()])
def test_a_reset_that_stays_is_told_not_to_be_approved(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: BaseException
) -> None:
    def fails(*_: Any) -> bool:
        raise failure

    monkeypatch.setattr(kube, "remove", fails)

    code = main(["backup", "show", "nightly", "--group", "payments", "-n", "ns", "--timeout", "1ms"])

    assert code == (130 if isinstance(failure, KeyboardInterrupt) else 1)
    said = (
        "OffsetReset ns/made may still exist. Delete it, and do not approve its plan: an approval would apply the plan"
    )
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("failure", [KubeUnavailable("nobody answers"), KeyboardInterrupt()])
def test_a_reset_whose_creation_nobody_heard_of_may_be_there(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: BaseException
) -> None:
    def fails(*_: Any, **__: Any) -> Object:
        raise failure

    monkeypatch.setattr(kube, "create", fails)

    assert main(["backup", "show", "nightly", "--group", "payments", "-n", "ns"]) in (1, 130)
    assert "may have been created anyway" in capsys.readouterr().err


# --- restore ----------------------------------------------------------------------------------------------------------


def test_a_restore_is_the_reset_that_git_would_hold(kube: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--at", "2026-11-20T13:01:30Z", "--topic", "orders:0,1", "--manual", "--name", "back"]
    assert main(["backup", "restore", "nightly", "payments", "-n", "ns", *more, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetReset",
        "metadata": {"namespace": "ns", "name": "back"},
        "spec": {
            "connectionRef": {"name": "prod"},
            "group": "payments",
            "to": {"backup": {"name": "nightly", "at": "2026-11-20T13:01:30Z"}},
            "partitions": [{"topic": "orders", "partitions": [0, 1]}],
            "approval": "Manual",
            "requester": "alice@example.com",
        },
    }
    assert kube.asked == []


def test_it_is_created_and_waited_for(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "restore", "nightly", "payments", "-n", "ns", "--dry-run"]) == 0
    assert main(["backup", "restore", "nightly", "payments", "-n", "ns", "--no-wait"]) == 0
    assert [(spec["to"], dry_run) for spec, dry_run in kube.asked] == [
        ({"backup": {"name": "nightly"}}, True),
        ({"backup": {"name": "nightly"}}, False),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "offsetreset.tidegate.io/made created (server dry run)",
        "offsetreset.tidegate.io/made created",
    ]
    for phase, code in (("Succeeded", 0), ("RolledBack", 1)):
        kube.tell(RESETS, "made", {"phase": phase, "conditions": [condition("Complete", "True", phase, "it is over")]})
        monkeypatch.setattr(kube, "_made", lambda kind, _asked, name: kube.get(kind, "ns", name))
        assert main(["backup", "restore", "nightly", "payments", "-n", "ns"]) == code
        assert capsys.readouterr().err == f"{phase}: it is over\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing", "payments"], "there is no OffsetBackup missing in namespace ns"),
        (["nightly", "payments", "--at", "noon"], "--at noon: must be a time with a zone"),
        (["nightly", "payments", "--name", "Not A Name"], "metadata.name"),
        (["nightly", ""], "spec.group"),
    ],
)
def test_what_can_not_be_asked_for_is_not(
    kube: Cluster, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "restore", *arguments, "-n", "ns"]) == 1
    assert said in capsys.readouterr().err
    assert kube.asked == []
