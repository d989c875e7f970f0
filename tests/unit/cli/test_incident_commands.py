"""`tidegate undo | cancel | pause | resume | watch | status`: what they ask for, how they end, what they refuse."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from support.fake_kafka import START, FakeClock
from support.fake_kube import FakeKube
from tidegate.cli.acting import delete
from tidegate.cli.errors import CommandFailed, UsageError
from tidegate.cli.following import follow, follow_deletion, pause_step, reset_step
from tidegate.cli.freezing import frozen_step, thawed_step
from tidegate.cli.main import main
from tidegate.cli.overview import as_json
from tidegate.cli.pause_resources import pause_of, pause_parser, run_pause
from tidegate.cli.screen import Screen
from tidegate.cli.undoing import cancellable, run_undo, undo_of, undo_parser
from tidegate.incident.listings import everything
from tidegate.incident.overview import lines, overview_of
from tidegate.kube.ports import (
    CONNECTIONS,
    PAUSES,
    POLICIES,
    RESETS,
    Conflict,
    EventType,
    Kind,
    KubeEvent,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
)

CREATED = "2026-11-20T11:00:00Z"
RESET = {"connectionRef": {"name": "prod"}, "group": "g", "to": {"earliest": {}}, "approval": "Manual"}
PAUSE = {"connectionRef": {"name": "prod"}, "group": "g"}


def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO())


def condition(kind: str, value: str, message: str = "", reason: str = "R") -> dict[str, Any]:
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": CREATED}


def status(phase: str, *conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"phase": phase, "conditions": list(conditions), **more}


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_an_undo_is_of_the_same_group_and_connection_and_nothing_else() -> None:
    kube = FakeKube()
    undone = kube.create(RESETS, "shop", "replay", {**RESET, "topics": ["a"]}, CREATED)

    asked = undo_of(undo_parser().parse_args(["replay", "-n", "shop"]), undone)

    assert asked["metadata"] == {"namespace": "shop", "generateName": "undo-"}
    assert asked["spec"] == {"connectionRef": {"name": "prod"}, "group": "g", "to": {"undo": "replay"}}


def test_one_that_was_deleted_is_undone_by_its_group_and_connection() -> None:
    given = ["replay", "-n", "shop", "--group", "g", "-c", "bank/prod", "--name", "back", "--manual"]

    asked = undo_of(undo_parser().parse_args(given), None)

    assert asked["metadata"] == {"namespace": "shop", "name": "back"}
    assert asked["spec"] == {
        "connectionRef": {"name": "prod", "namespace": "bank"},
        "group": "g",
        "to": {"undo": "replay"},
        "approval": "Manual",
    }


def test_a_pause_is_what_git_would_hold() -> None:
    given = ["g", "-c", "prod", "-n", "shop", "--topic", "a:0,2", "--topic", "b", "--reason", "INC-1"]
    given += ["--resume-after", "2h", "--drain-timeout", "5s", "--name", "p"]

    asked = pause_of(pause_parser().parse_args(given), "g")

    assert asked["metadata"] == {"namespace": "shop", "name": "p"}
    assert asked["spec"] == {
        **PAUSE,
        "partitions": [{"topic": "a", "partitions": [0, 2]}, {"topic": "b"}],
        "reason": "INC-1",
        "resumeAfter": "2h",
        "drainTimeout": "5s",
    }


def test_several_pauses_are_printed_as_a_list() -> None:
    shown = screen()

    assert run_pause(["g", "h", "-c", "prod", "-n", "shop", "--workload", "Deployment/w", "-o", "json"], shown) == 0

    assert isinstance(shown.out, io.StringIO)
    found = json.loads(shown.out.getvalue())
    assert [each["spec"]["group"] for each in found["items"]] == ["g", "h"]
    assert found["items"][0]["spec"]["workloadRefs"] == [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g", "h", "-c", "prod", "--name", "p"], "--name can be given for one group only"),
        (["g", "-c", "prod", "--workload", "w"], "must be KIND/NAME"),
        (["g", "-c", "prod", "--resume-after", "soon", "-o", "yaml"], "spec.resumeAfter"),
        (["g", "-c", "prod", "--timeout", "soon"], "--timeout soon"),
    ],
)
def test_a_pause_that_no_operator_would_take_is_bad_usage(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_pause(arguments, screen())


def test_a_group_without_a_connection_is_no_undo() -> None:
    with pytest.raises(UsageError, match="need each other"):
        run_undo(["replay", "--group", "g"], screen())


# --- waiting ----------------------------------------------------------------------------------------------------------


class Story(FakeKube):
    """One object whose status goes on at every look; `None`: the API server does not answer, `{}`: it is gone."""

    def __init__(self, kind: Kind, spec: Mapping[str, Any], *statuses: dict[str, Any] | None) -> None:
        super().__init__()
        self._left = list(statuses)
        self.kind, self.made = kind, self.create(kind, "ns", "r", spec, CREATED)

    def get(self, kind: Any, namespace: str, name: str) -> Object:
        now = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if now is None:
            raise KubeUnavailable("nobody answers")
        if not now:
            FakeKube.delete(self, kind, namespace, name, CREATED)
        return {**super().get(kind, namespace, name), "status": now}


def followed(kube: Story, step: Any) -> tuple[bool, list[str]]:
    shown = screen()
    done = follow(kube, kube.kind, kube.made, step, FakeClock(), 60, shown)
    assert isinstance(shown.err, io.StringIO)
    return done, shown.err.getvalue().splitlines()


def test_each_step_is_shown_once_also_where_nobody_answers_for_a_while() -> None:
    planning = status("Planning", condition("Complete", "Unknown", "it is planned\x1b[2J"))
    done = status("Succeeded", condition("Complete", "True", "2 reset"))

    assert followed(Story(RESETS, RESET, planning, None, planning, done), reset_step) == (
        True,
        ["Planning: it is planned\\x1b[2J", "Succeeded: 2 reset"],
    )


@pytest.mark.parametrize("phase", ["Failed", "RolledBack"])
def test_a_reset_that_fails_is_no_success(phase: str) -> None:
    assert followed(Story(RESETS, RESET, status(phase)), reset_step)[0] is False


def test_a_reset_that_was_just_corrected_is_not_refused_for_what_it_was() -> None:
    refused = condition("Stalled", "True", "spec.to: name a target", "InvalidSpec")
    before = status("Pending", refused, observedGeneration=0)

    assert followed(Story(RESETS, RESET, before, status("Succeeded", observedGeneration=1)), reset_step)[0] is True
    with pytest.raises(CommandFailed, match="is refused for the reason above: resolve the cause and it begins"):
        followed(Story(RESETS, RESET, before, {**before, "observedGeneration": 1}), reset_step)


def test_a_pause_is_done_when_its_newest_generation_is_paused() -> None:
    said = condition("Paused", "True", "all are")
    older = status("Paused", said, observedGeneration=0, paused="1/1")
    newer = status("Paused", said, observedGeneration=1, paused="2/2")

    assert followed(Story(PAUSES, PAUSE, older, newer), pause_step) == (
        True,
        ["Paused 1/1: all are", "Paused 2/2: all are"],
    )


def test_what_is_refused_deleted_or_too_late_is_said() -> None:
    refused = status("Pending", condition("Stalled", "True"), observedGeneration=1)
    with pytest.raises(CommandFailed, match="is refused for the reason above: resolve the cause and it continues"):
        followed(Story(PAUSES, PAUSE, refused), pause_step)
    with pytest.raises(CommandFailed, match="OffsetReset r was deleted"):
        followed(Story(RESETS, RESET, status("Planning"), {}), reset_step)
    with pytest.raises(CommandFailed, match=r"--timeout; it continues\. To watch it: tidegate watch r -n ns"):
        followed(Story(RESETS, RESET, status("Planning")), reset_step)


def test_a_deletion_is_waited_for_until_it_is_gone_and_no_longer() -> None:
    kube = Story(RESETS, RESET, status("Applying"), None, {})
    last = follow_deletion(kube, RESETS, kube.made, reset_step, FakeClock(), 60, screen())

    assert last is not None
    assert last.line == "Applying: not begun"
    stays = Story(RESETS, RESET, status("Applying"))
    with pytest.raises(CommandFailed, match="its deletion was requested, and continues"):
        follow_deletion(stays, RESETS, stays.made, reset_step, FakeClock(), 60, screen())


class Restarted(Story):
    """An API server that is away for a moment, and then refuses everybody until it has read the roles."""

    def __init__(self, refusals: int) -> None:
        super().__init__(RESETS, RESET, status("Applying"), None, status("Succeeded"))
        self.refusals = refusals

    def get(self, kind: Any, namespace: str, name: str) -> Object:
        if len(self._left) == 1 and self.refusals:
            self.refusals -= 1
            raise KubeFailure("read OffsetReset ns/r: 403 forbidden")
        return super().get(kind, namespace, name)


def test_an_api_server_that_is_just_back_and_refuses_everybody_ends_no_waiting() -> None:
    done, told = followed(Restarted(5), reset_step)

    assert (done, told) == (True, ["Applying: not begun", "Succeeded: not begun"])
    with pytest.raises(KubeFailure, match="403 forbidden"):
        followed(Restarted(99), reset_step)


def test_what_is_refused_without_an_outage_is_refused() -> None:
    kube = Restarted(1)
    kube._left = [status("Succeeded")]

    with pytest.raises(KubeFailure, match="403 forbidden"):
        followed(kube, reset_step)


class Interrupting(FakeClock):
    """Ctrl-C while it is waited."""

    def sleep(self, _seconds: float) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "step", "how"),
    [
        (RESETS, reset_step, "tidegate watch r -n ns"),
        (PAUSES, pause_step, "tidegate watch r -n ns"),
        (CONNECTIONS, frozen_step, "kubectl get kafkaconnection r -n ns"),
    ],
)
def test_who_stops_waiting_is_told_that_it_goes_on(kind: Kind, step: Any, how: str) -> None:
    kube, shown = Story(kind, {}, {"observedGeneration": 0}), screen()

    with pytest.raises(KeyboardInterrupt):
        follow(kube, kind, kube.made, step, Interrupting(), 60, shown)

    assert isinstance(shown.err, io.StringIO)
    assert f"No longer waiting for {kind.kind} r, which continues. To watch it: {how}" in shown.err.getvalue()


def test_who_stops_waiting_for_a_deletion_is_told_that_it_goes_on() -> None:
    kube, shown = Story(RESETS, RESET, status("Applying")), screen()

    with pytest.raises(KeyboardInterrupt):
        follow_deletion(kube, RESETS, kube.made, reset_step, Interrupting(), 60, shown)

    assert isinstance(shown.err, io.StringIO)
    assert "No longer waiting for the deletion of OffsetReset r, which was requested" in shown.err.getvalue()


def test_who_interrupts_a_creation_is_told_that_it_may_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(FakeKube):
        def create(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: Slow())

    assert main(["pause", "g", "-c", "prod", "-n", "ns"]) == 130
    assert "may have been created anyway. To check: kubectl get -n ns consumergrouppauses" in capsys.readouterr().err
    assert main(["pause", "g", "-c", "prod", "-n", "ns", "--dry-run"]) == 130
    assert "may have been created" not in capsys.readouterr().err


def test_a_command_to_copy_is_for_the_cluster_that_was_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its neighbour may have a reset of the same name, as Git fills both."""
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)
    there = ["-n", "shop", "--context", "dr site"]
    where = "-n shop --context 'dr site'"

    def told(kube: FakeKube, *arguments: str) -> str:
        monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
        assert main([*arguments, *there]) == 1
        return capsys.readouterr().err

    waiting = FakeKube()
    waiting.create(RESETS, "shop", "r", RESET, CREATED)
    assert f"To watch it: tidegate watch r {where}" in told(waiting, "watch", "r", "--timeout", "1ms")
    ended = FakeKube()
    ended.replace_status(RESETS, ended.create(RESETS, "shop", "r", RESET, CREATED), status("Succeeded"))
    assert f"To undo it: tidegate undo r {where}" in told(ended, "cancel", "r")

    class Silent(FakeKube):
        def create(self, *_: Any, **__: Any) -> Any:
            raise KubeUnavailable("nobody answers")

    said = told(Silent(), "pause", "g", "-c", "prod")
    assert f"To check first: kubectl get {where} consumergrouppauses" in said


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_one_that_has_ended_is_not_deleted_also_where_it_ends_just_then() -> None:
    kube = FakeKube()
    body = kube.create(RESETS, "ns", "r", RESET, CREATED)
    kube.replace_status(RESETS, body, status("Succeeded"))

    said = r"has ended as Succeeded, so there is nothing to cancel\. To undo it: tidegate undo r -n ns"
    with pytest.raises(CommandFailed, match=said):
        delete(kube, RESETS, body, cancellable)  # type: ignore[arg-type]

    assert kube.get(RESETS, "ns", "r")


def test_one_whose_status_this_version_cannot_read_is_not_deleted_as_it_may_have_ended() -> None:
    kube = FakeKube()
    body = kube.create(RESETS, "ns", "r", RESET, CREATED)
    kube.replace_status(RESETS, body, {"phase": "Teleported", "finishedAt": CREATED})

    with pytest.raises(CommandFailed, match=r"written by another version of Tidegate.*may have ended"):
        delete(kube, RESETS, body, cancellable)  # type: ignore[arg-type]

    assert kube.get(RESETS, "ns", "r")


def test_one_whose_status_was_written_meanwhile_is_deleted() -> None:
    kube = FakeKube()
    body = kube.create(RESETS, "ns", "r", RESET, CREATED)
    kube.replace_status(RESETS, body, status("Applying"))

    delete(kube, RESETS, body, cancellable)  # type: ignore[arg-type]

    assert not kube.list(RESETS)


def test_another_one_of_its_name_is_not_deleted() -> None:
    kube = FakeKube()
    body = kube.create(RESETS, "ns", "r", RESET, CREATED)
    kube.delete(RESETS, "ns", "r", CREATED)
    kube.create(RESETS, "ns", "r", RESET, CREATED)

    with pytest.raises(CommandFailed, match="another one was created with the same name"):
        delete(kube, RESETS, body, cancellable)  # type: ignore[arg-type]


def test_the_policy_that_asked_for_it_is_named() -> None:
    owner = {"kind": "OffsetResetPolicy", "name": "keep", "uid": "u"}

    assert cancellable({"metadata": {"name": "r", "ownerReferences": [owner]}}) == "keep"
    assert cancellable({"metadata": {"name": "r"}}) == ""


def test_one_that_had_succeeded_before_it_was_rolled_back_was_not_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = Story(RESETS, {**RESET, "group": "the group"}, status("Applying"), status("Succeeded"), {})
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    monkeypatch.setattr("tidegate.cli.undoing.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)

    assert main(["cancel", "r", "-n", "ns"]) == 1

    told = capsys.readouterr()
    assert told.out == "offsetreset.tidegate.io/r deleted\n"
    assert "the reset succeeded before it could be rolled back, so its targets stay committed" in told.err
    assert "To undo it: tidegate undo r -n ns --group 'the group' -c ns/prod" in told.err


def gave_up(kube: FakeKube, body: Object, reason: str, message: str) -> None:
    kube.record(body, KubeEvent(EventType.WARNING, reason, message, f"r/{reason}"))


def test_one_that_went_without_having_been_rolled_back_was_not_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its deletion waits for Kafka for two minutes, and the command for five."""
    monkeypatch.setattr("tidegate.cli.undoing.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)
    kube = Story(RESETS, RESET, status("Applying"), {})
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    gave_up(kube, kube.made, "Abandoned", "reset r could not be ended within 0:02:00: no answer")

    assert main(["cancel", "r", "-n", "ns"]) == 1

    told = capsys.readouterr()
    assert told.out == "offsetreset.tidegate.io/r deleted\n"
    assert "tidegate cancel: it was not rolled back: reset r could not be ended within 0:02:00: no answer" in told.err

    kube = Story(RESETS, RESET, status("Applying"), {})
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    assert main(["cancel", "r", "-n", "ns"]) == 0
    assert not capsys.readouterr().err.count("rolled back")


def test_who_may_see_no_events_is_told_that_a_rollback_was_not_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.cli.undoing.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)
    kube = Story(RESETS, RESET, status("Applying"), {})
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)

    def refused(*_: Any) -> Any:
        raise KubeFailure("list Events of ns/r: 403 forbidden")

    monkeypatch.setattr(kube, "told_of", refused)

    assert main(["cancel", "r", "-n", "ns"]) == 0
    assert "whether it was rolled back was not seen: list Events of ns/r: 403 forbidden" in capsys.readouterr().err


# --- status -----------------------------------------------------------------------------------------------------------


def test_a_namespace_on_one_screen() -> None:
    kube = FakeKube()
    kube.replace_status(
        CONNECTIONS,
        kube.create(CONNECTIONS, "ns", "prod", {"bootstrapServers": "k:1", "observe": True}, CREATED),
        {"clusterId": "c-1", "conditions": [condition("Ready", "True", "3 brokers", "Reached")]},
    )
    for name, phase, value in (("waits", "AwaitingApproval", "Unknown"), ("old", "Failed", "False")):
        body = kube.create(RESETS, "ns", name, RESET, CREATED)
        kube.replace_status(RESETS, body, status(phase, condition("Complete", value, "because\x1b", "Why")))
    body = kube.create(PAUSES, "ns", "poison", PAUSE, CREATED)
    kube.replace_status(PAUSES, body, status("Degraded", condition("Paused", "False", "no agent"), paused="1/2"))
    kube.create(POLICIES, "ns", "keep", {**PAUSE, "retention": {}}, CREATED)

    overview = overview_of(everything(kube), "namespace ns")
    text = "\n".join(lines(overview, START))

    assert (
        "Waits for a person\n  OffsetReset ns/waits (g): AwaitingApproval, 1 hour ago\n      Why: because\\x1b" in text
    )
    assert "Resets in progress\n  none" in text
    assert "! OffsetReset ns/old (g): Failed" in text
    assert "! ConsumerGroupPause ns/poison (g): Degraded 1/2" in text
    assert "OffsetResetPolicy ns/keep (g): Unknown" in text
    assert "KafkaConnection ns/prod (c-1): Ready, 1 hour ago\n      only observes; Reached: 3 brokers" in text
    assert json.loads(json.dumps(as_json(overview)))["parts"]["Pauses"][0]["troubled"] is True


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (POLICIES, {**PAUSE, "retention": {}}, condition("Retained", "False", "3 are gone", "OffsetsExpired")),
        (POLICIES, {**PAUSE, "stuckRecords": {}}, condition("RecordStuck", "True", "orders-0@7", "Stuck")),
        (POLICIES, {**PAUSE, "consumers": {}}, condition("Injected", "False", "2 pods", "NotInjected")),
        (CONNECTIONS, {"bootstrapServers": "k:1"}, condition("AuditTopic", "False", "no leader", "Unavailable")),
        (CONNECTIONS, {"bootstrapServers": "k:1"}, condition("ControlTopics", "False", "compact", "WrongSettings")),
        (CONNECTIONS, {"bootstrapServers": "k:1"}, condition("ConnectClusters", "False", "no Secret", "SecretGone")),
    ],
)
def test_what_is_wrong_with_a_resource_that_is_ready_is_marked(
    kind: Kind, spec: dict[str, Any], said: dict[str, Any]
) -> None:
    kube, ready = FakeKube(), condition("Ready", "True", "all is kept", "Fine")
    for name, conditions in (("bad", [ready, said]), ("good", [ready, {**said, "status": "Unknown"}])):
        kube.replace_status(kind, kube.create(kind, "ns", name, spec, CREATED), {"conditions": conditions})

    text = "\n".join(lines(overview_of(everything(kube), "namespace ns"), START))

    assert f"! {kind.kind} ns/bad" in text
    assert f"Fine: all is kept; {said['type']} is {said['status']}, {said['reason']}: {said['message']}" in text
    assert f"  {kind.kind} ns/good" in text


def test_what_could_not_be_listed_is_not_said_to_be_none() -> None:
    class Away(FakeKube):
        def list(self, kind: Kind) -> Any:
            raise KubeUnavailable(f"list {kind.plural}: connection refused")

    overview = overview_of(everything(Away()), "namespace ns")
    text = "\n".join(lines(overview, START + timedelta(hours=1)))

    assert overview.listed == 0
    assert "  none that could be seen" in text
    assert "Not seen: all resources in Kubernetes: list kafkaconnections: connection refused" in text


@pytest.mark.parametrize("command", ["undo", "cancel", "pause", "resume", "watch", "status"])
def test_without_a_cluster_a_command_ends_with_1(
    command: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    more = {"status": [], "pause": ["g", "-c", "prod"]}.get(command, ["r"])

    assert main([command, *more]) == 1

    assert f"tidegate {command}: no cluster is configured" in capsys.readouterr().err


# --- freeze and thaw --------------------------------------------------------------------------------------------------


class Asked(FakeKube):
    """A cluster as `tidegate freeze` reaches it."""

    own: str | KubeFailure = "alice@example.com"

    def __init__(self) -> None:
        super().__init__()
        self.refusals: dict[str, list[KubeFailure]] = {}
        """By name, how changes fail that come next."""
        self.before_change: Callable[[], object] = lambda: None
        """What somebody else does between the look at a connection and its change."""

    def own_name(self) -> str:
        if isinstance(self.own, KubeFailure):
            raise self.own
        return self.own

    def change_spec(self, kind: Kind, body: Object, spec: Mapping[str, Any]) -> Object:
        self.before_change()
        if self.refusals.get(body["metadata"]["name"]):
            raise self.refusals[body["metadata"]["name"]].pop(0)
        self._current(kind, body)
        merged = {k: v for k, v in {**body["spec"], **spec}.items() if v is not None}
        return self.change(kind, body["metadata"]["namespace"], body["metadata"]["name"], spec=merged)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    kube = Asked()
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    kube.create(CONNECTIONS, "ns", "prod", {"bootstrapServers": "k:1"}, CREATED)
    return kube


def test_who_freezes_when_and_why_is_in_the_spec_until_it_is_thawed(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["freeze", "prod", "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == 0
    freeze = asked.get(CONNECTIONS, "ns", "prod")["spec"]["freeze"]
    assert (freeze["by"], freeze["reason"]) == ("alice@example.com", "INC-4711")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", freeze["since"])

    assert main(["freeze", "prod", "-n", "ns", "--reason", "mine", "--no-wait"]) == 1
    assert "it is already frozen, by alice@example.com: INC-4711. tidegate thaw ends" in capsys.readouterr().err
    assert main(["thaw", "prod", "-n", "ns", "--no-wait"]) == 0
    assert asked.get(CONNECTIONS, "ns", "prod")["spec"] == {"bootstrapServers": "k:1"}
    assert main(["thaw", "prod", "-n", "ns", "--no-wait"]) == 1
    assert "it is not frozen" in capsys.readouterr().err


def test_who_freezes_with_the_operator_down_is_told_that_it_holds_all_the_same(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["freeze", "prod", "-n", "ns", "--reason", "INC-4711", "--timeout", "1ms"]) == 1

    told = capsys.readouterr().err
    assert "one that starts later reads it before it begins anything" in told
    assert "it continues. To watch it: kubectl get kafkaconnection prod -n ns" in told
    assert "freeze" in asked.get(CONNECTIONS, "ns", "prod")["spec"]


def test_a_freeze_waits_for_no_name(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.own = NotFound("ask who I am: 404 page not found")

    assert main(["freeze", "prod", "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == 0

    assert asked.get(CONNECTIONS, "ns", "prod")["spec"]["freeze"]["by"] == "unknown"
    assert (
        "recorded as unknown, because the API server did not say who you are: ask who I am: 404"
        in capsys.readouterr().err
    )


def test_a_connection_that_is_changed_at_the_same_time_is_frozen_all_the_same(asked: Asked) -> None:
    asked.refusals["prod"] = [Conflict("the object has been modified")] * 2

    assert main(["freeze", "prod", "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == 0

    assert "freeze" in asked.get(CONNECTIONS, "ns", "prod")["spec"]


def meanwhile(asked: Asked, spec: Mapping[str, Any] | None) -> None:
    """Once, somebody else sets this spec of the connection, or creates it anew without a freeze."""

    def change() -> None:
        asked.before_change = lambda: None
        if spec is None:
            asked.delete(CONNECTIONS, "ns", "prod", CREATED)
            asked.create(CONNECTIONS, "ns", "prod", {"bootstrapServers": "k:9"}, CREATED)
        else:
            asked.change(CONNECTIONS, "ns", "prod", spec=spec)

    asked.before_change = change


OTHERS = {"bootstrapServers": "k:1", "freeze": {"by": "bob", "reason": "INC-2"}}


@pytest.mark.parametrize(
    ("which", "status", "told"),
    [
        (["prod"], 1, "tidegate freeze: it is already frozen, by bob: INC-2. tidegate thaw ends the freeze"),
        (["--all"], 0, "KafkaConnection prod: it is already frozen, by bob: INC-2. tidegate thaw ends the freeze"),
    ],
)
def test_a_freeze_does_not_take_the_place_of_one_that_came_meanwhile(
    which: list[str], status: int, told: str, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    meanwhile(asked, OTHERS)

    assert main(["freeze", *which, "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == status

    assert asked.get(CONNECTIONS, "ns", "prod")["spec"] == OTHERS
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("which", ["prod", "--all"])
def test_a_freeze_that_came_meanwhile_is_not_thawed_with_the_one_that_was_seen(
    which: str, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.change(CONNECTIONS, "ns", "prod", spec={**OTHERS, "freeze": {"by": "alice", "reason": "INC-1"}})
    meanwhile(asked, OTHERS)

    assert main(["thaw", which, "-n", "ns", "--no-wait"]) == 1

    assert asked.get(CONNECTIONS, "ns", "prod")["spec"] == OTHERS
    told = capsys.readouterr()
    assert "frozen it again, by bob: INC-2. To end that freeze too, thaw it once more" in told.err
    assert "it was frozen" not in told.err
    assert told.out == ""


@pytest.mark.parametrize("command", [["freeze", "--reason", "INC-4711"], ["thaw"]])
def test_a_connection_of_the_same_name_that_came_meanwhile_is_left_alone(
    command: list[str], asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == ["thaw"]:
        asked.change(CONNECTIONS, "ns", "prod", spec=OTHERS)
    meanwhile(asked, None)

    assert main([*command, "prod", "-n", "ns", "--no-wait"]) == 1

    assert asked.get(CONNECTIONS, "ns", "prod")["spec"] == {"bootstrapServers": "k:9"}
    assert "it was deleted, and another one was created with the same name" in capsys.readouterr().err


def test_what_was_done_as_asked_meanwhile_is_no_failure(asked: Asked) -> None:
    """As when the answer to the change was lost, and it is asked for again."""
    asked.change(CONNECTIONS, "ns", "prod", spec=OTHERS)
    meanwhile(asked, {"bootstrapServers": "k:2"})

    assert main(["thaw", "prod", "-n", "ns", "--no-wait"]) == 0

    assert asked.get(CONNECTIONS, "ns", "prod")["spec"] == {"bootstrapServers": "k:2"}


@pytest.mark.parametrize("which", [[], ["prod", "--all"]])
def test_either_one_is_named_or_all_are_meant(
    which: list[str], asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["freeze", *which, "-n", "ns", "--reason", "INC-4711"]) == 1

    assert "give the NAME of a KafkaConnection, or --all" in capsys.readouterr().err
    assert "freeze" not in asked.get(CONNECTIONS, "ns", "prod")["spec"]


def test_all_of_a_namespace_are_frozen_and_thawed_by_one_command(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.create(CONNECTIONS, "ns", "cold", {"bootstrapServers": "k:2"}, CREATED)
    assert main(["freeze", "cold", "-n", "ns", "--reason", "INC-1", "--no-wait"]) == 0
    capsys.readouterr()

    assert main(["freeze", "--all", "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [f"kafkaconnection.tidegate.io/{name} frozen" for name in ("cold", "prod")]
    assert "KafkaConnection cold: it is already frozen, by alice@example.com: INC-1" in told.err
    reasons = {b["metadata"]["name"]: b["spec"]["freeze"]["reason"] for b in asked.list(CONNECTIONS)}
    assert reasons == {"cold": "INC-1", "prod": "INC-4711"}

    assert main(["thaw", "--all", "-n", "ns", "--no-wait"]) == 0
    told = capsys.readouterr()
    assert "KafkaConnection cold: it was frozen, by alice@example.com: INC-1" in told.err
    assert len(told.out.splitlines()) == 2
    assert [b["spec"].get("freeze") for b in asked.list(CONNECTIONS)] == [None, None]
    assert main(["thaw", "--all", "-n", "ns", "--no-wait"]) == 0
    assert "KafkaConnection prod: it is not frozen" in capsys.readouterr().err


def test_with_one_that_fails_the_others_are_frozen_and_the_command_fails(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.create(CONNECTIONS, "ns", "cold", {"bootstrapServers": "k:2"}, CREATED)
    asked.refusals["cold"] = [KubeFailure("change KafkaConnection ns/cold: 403 forbidden")]

    assert main(["freeze", "--all", "-n", "ns", "--reason", "INC-4711", "--no-wait"]) == 1

    told = capsys.readouterr()
    assert told.out == "kafkaconnection.tidegate.io/prod frozen\n"
    assert "KafkaConnection cold: change KafkaConnection ns/cold: 403 forbidden" in told.err
    assert "tidegate freeze: 1 of 2 KafkaConnection(s) could not be frozen, or were not frozen in time" in told.err


def test_each_that_the_operator_does_not_go_by_in_time_is_told_of(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.create(CONNECTIONS, "ns", "cold", {"bootstrapServers": "k:2"}, CREATED)

    assert main(["freeze", "--all", "-n", "ns", "--reason", "INC-4711", "--timeout", "1ms"]) == 1

    told = capsys.readouterr().err
    for name in ("cold", "prod"):
        assert f"KafkaConnection {name}: the operator has not confirmed the freeze yet" in told
        assert f"kubectl get kafkaconnection {name} -n ns" in told
    assert "2 of 2 KafkaConnection(s)" in told


def test_where_there_is_no_connection_nothing_is_frozen(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.delete(CONNECTIONS, "ns", "prod", CREATED)

    assert main(["freeze", "--all", "-n", "ns", "--reason", "INC-4711"]) == 1

    assert "there is no KafkaConnection in namespace ns" in capsys.readouterr().err


def test_the_screen_says_who_has_frozen_a_connection(asked: Asked) -> None:
    body = asked.get(CONNECTIONS, "ns", "prod")
    asked.change_spec(CONNECTIONS, body, {"freeze": {"reason": "INC\x1b", "by": "alice"}})

    text = "\n".join(lines(overview_of(everything(asked), "namespace ns"), START))

    assert "! KafkaConnection ns/prod: Unknown" in text
    assert "frozen by alice: INC\\x1b" in text


# --- watching ---------------------------------------------------------------------------------------------------------


class Confined(Asked):
    """Of whoever may see no OffsetReset."""

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if kind == RESETS:
            raise KubeFailure(f"read OffsetReset {namespace}/{name}: 403 forbidden")
        return super().get(kind, namespace, name)


def test_a_pause_is_watched_also_by_who_may_see_no_reset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = Confined()
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    body = kube.create(PAUSES, "ns", "poison", PAUSE, CREATED)
    kube.replace_status(PAUSES, body, status("Paused", condition("Paused", "True", "all are"), observedGeneration=1))

    assert main(["watch", "poison", "-n", "ns"]) == 0
    told = capsys.readouterr().err
    assert "read OffsetReset ns/poison: 403 forbidden" in told
    assert "Paused: all are" in told

    assert main(["watch", "other", "-n", "ns"]) == 1
    told = capsys.readouterr().err
    assert "tidegate watch: read OffsetReset ns/other: 403 forbidden" in told
    assert "there is no OffsetReset" not in told


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(asked: Asked) -> Asked:
    for name in ("one", "two", "three"):
        asked.create(PAUSES, "ns", name, PAUSE, CREATED)
    return asked


def suspended(kube: Asked) -> list[str]:
    return [body["metadata"]["name"] for body in kube.list(PAUSES) if body["spec"].get("suspend")]


def test_a_pause_that_does_not_resume_keeps_no_other_from_it(three: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for the second one's partitions while the first one's do not resume."""
    assert main(["resume", "one", "two", "three", "-n", "ns", "--keep", "--timeout", "1ms"]) == 1

    assert suspended(three) == ["one", "two", "three"]
    told = capsys.readouterr()
    assert told.err.count("was not done within --timeout") == 3
    assert "tidegate resume: 3 of 3 ConsumerGroupPause(s) could not be resumed, or were not resumed in time" in told.err
    assert told.out == ""


def test_a_pause_that_may_not_be_changed_keeps_no_other_from_it(
    three: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    three.refusals["one"] = [KubeFailure("change ConsumerGroupPause ns/one: 403 forbidden")]

    assert main(["resume", "one", "two", "three", "-n", "ns", "--keep", "--no-wait"]) == 1

    assert suspended(three) == ["two", "three"]
    told = capsys.readouterr()
    assert "ConsumerGroupPause one: change ConsumerGroupPause ns/one: 403 forbidden" in told.err
    assert "1 of 3 ConsumerGroupPause(s)" in told.err
    assert [line.split("/")[1] for line in told.out.splitlines()] == ["two suspended", "three suspended"]


def test_a_pause_whose_status_was_written_meanwhile_is_suspended(three: Asked) -> None:
    three.refusals["one"] = [Conflict("the object has been modified")] * 2

    assert main(["resume", "one", "-n", "ns", "--keep", "--no-wait"]) == 0

    assert suspended(three) == ["one"]


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([condition("Paused", "Unknown", "its holds can't be released now: no answer")], "its holds can't be released"),
        (
            [condition("Paused", "False", "connector c goes back"), condition("Stalled", "True")],
            "connector c goes back",
        ),
    ],
)
def test_a_pause_that_went_without_having_resumed_all_is_not_called_resumed(
    conditions: list[dict[str, Any]],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the time that a deletion has it goes all the same. By its status, for whoever may see no Events."""
    kube = Story(PAUSES, PAUSE, status("Paused"), status("Resuming", *conditions, observedGeneration=1), {})

    def refused(*_: Any) -> Any:
        raise KubeFailure("list Events of ns/r: 403 forbidden")

    monkeypatch.setattr(kube, "told_of", refused)
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    monkeypatch.setattr("tidegate.cli.pause_resources.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)

    assert main(["resume", "r", "-n", "ns"]) == 1

    told = capsys.readouterr()
    assert told.out == "consumergrouppause.tidegate.io/r deleted\n"
    assert re.search(f"ConsumerGroupPause r: it is gone.*{said}", told.err)


@pytest.mark.parametrize("reason", ["HoldsLeft", "ReplicasLeft", "ConnectorLeft", "LeaderLeft", "Abandoned"])
def test_what_the_events_of_a_pause_say_that_it_has_left_is_told(
    reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = Story(PAUSES, PAUSE, status("Paused"), {})
    monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options: kube)
    monkeypatch.setattr("tidegate.cli.pause_resources.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)
    gave_up(kube, kube.made, reason, "it stays as it is")

    assert main(["resume", "r", "-n", "ns"]) == 1
    assert "ConsumerGroupPause r: it is gone, and has left something: it stays as it is" in capsys.readouterr().err


def test_a_pause_that_was_refused_or_has_released_all_is_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.cli.pause_resources.delete", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.following.LOOK_S", 0.0)
    released = status("Resuming", condition("Paused", "False", "2 hold(s) are being released"), observedGeneration=1)
    refused = status("Pending", condition("Stalled", "True"), observedGeneration=1)
    for seen in (released, refused):
        kube = Story(PAUSES, PAUSE, status("Paused"), seen, {})
        monkeypatch.setattr("tidegate.cli.acting.kube_client", lambda _options, kube=kube: kube)

        assert main(["resume", "r", "-n", "ns"]) == 0
        assert "it is gone" not in capsys.readouterr().err


@pytest.mark.parametrize("step", [frozen_step, thawed_step])
def test_a_connection_whose_status_cannot_be_read_is_not_said_to_wait_for_the_operator(step: Any) -> None:
    said = step({"metadata": {"generation": 2}, "spec": {}, "status": {"conditions": "in another form"}})

    assert said.done is None
    assert said.line == "its status was written by another version of Tidegate, and can't be read"
