"""`tidegate reset`: the OffsetReset that its options ask for, and what it shows of one."""

import io
import json
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from support.fake_kube import FakeKube
from tidegate.cli import following
from tidegate.cli.acting import created
from tidegate.cli.asking import in_own_name, manifest, reset_parser, run_reset
from tidegate.cli.errors import CommandFailed, UsageError
from tidegate.cli.following import reset_step
from tidegate.cli.main import main
from tidegate.cli.screen import Screen
from tidegate.kube.ports import RESETS, KubeUnavailable, Object

CREATED = "2026-01-01T00:00:00Z"


def spec_of(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest(reset_parser().parse_args([*arguments, "-c", "prod"]))["spec"]
    assert found.pop("connectionRef") == {"name": "prod"}
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["g", "--to-earliest"], {"group": "g", "to": {"earliest": {}}}),
        (["g", "--to-latest"], {"group": "g", "to": {"latest": {}}}),
        (["g", "--to-offset", "42"], {"group": "g", "to": {"offset": 42}}),
        (["g", "--to-datetime", "2026-11-20T14:00:00Z"], {"group": "g", "to": {"timestamp": "2026-11-20T14:00:00Z"}}),
        (["g", "--by-duration", "6h"], {"group": "g", "to": {"duration": "6h"}}),
        (["g", "--shift-by=-10"], {"group": "g", "to": {"shiftBy": -10}}),
        (["g", "--to-group", "h"], {"group": "g", "to": {"group": "h"}}),
        (["g", "--undo", "replay"], {"group": "g", "to": {"undo": "replay"}}),
        (
            ["g", "--to-earliest", "--until", "2026-11-20T15:00:00Z"],
            {"group": "g", "to": {"earliest": {}}, "until": {"timestamp": "2026-11-20T15:00:00Z"}},
        ),
        (
            ["g", "--to-earliest", "--until-records", "100", "--then", "Continue", "--within", "6h"],
            {"group": "g", "to": {"earliest": {}}, "until": {"records": 100, "then": "Continue", "within": "6h"}},
        ),
        (["g", "--to-offset", "1", "--until-offset", "9"], {"group": "g", "to": {"offset": 1}, "until": {"offset": 9}}),
        (["g", "h", "--to-earliest"], {"groups": ["g", "h"], "to": {"earliest": {}}}),
        (["g-*", "--to-earliest"], {"groups": ["g-*"], "to": {"earliest": {}}}),
        (
            ["g", "--to-earliest", "--topic", "a:0,3", "--topic", "b", "--manual"],
            {
                "group": "g",
                "to": {"earliest": {}},
                "partitions": [{"topic": "a", "partitions": [0, 3]}, {"topic": "b"}],
                "approval": "Manual",
            },
        ),
    ],
)
def test_options_become_a_spec(arguments: list[str], expected: dict[str, Any]) -> None:
    assert spec_of(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g"], "one of the arguments"),
        (["g", "--to-earliest", "--to-latest"], "not allowed with"),
        (["g", "--to-offset", "x"], "--to-offset takes a whole number"),
        (["g", "--to-datetime", "yesterday"], "spec.to.timestamp"),
        (["g", "--to-group", "g"], "must name another group"),
        (["g", "--to-earliest", "--name", "A"], "metadata.name"),
        (["g", "--undo", "a", "--name", "a"], "must name another OffsetReset"),
        (["g", "--to-earliest", "--topic", "a:x"], "Invalid partition"),
        (["g", "--to-earliest", "--until-records", "x"], "--until-records takes a whole number as N, not x"),
        (["g", "--to-earliest", "--then", "Return"], "need --until"),
        (["g", "h", "--to-earliest", "--until-records", "5"], "until is for one group"),
        (["g", "--to-earliest", "--until-records", "5", "--until-offset", "5"], "not allowed with"),
    ],
)
def test_what_no_operator_would_take_is_refused_before_it_is_created(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_of(*arguments)


def test_the_manifest_is_printed_and_nothing_created(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", "g", "-c", "prod", "-n", "shop", "--to-earliest", "-o", "json"]) == 0

    assert json.loads(capsys.readouterr().out)["metadata"] == {"namespace": "shop", "generateName": "reset-"}


def test_a_timeout_that_is_none_is_bad_usage() -> None:
    with pytest.raises(UsageError, match="--timeout soon"):
        run_reset(["g", "-c", "prod", "--to-earliest", "--timeout", "soon"], Screen(io.StringIO(), io.StringIO()))


class Story(FakeKube):
    """An OffsetReset whose status goes on at every look."""

    def __init__(self, *statuses: dict[str, Any]) -> None:
        super().__init__()
        self._left = list(statuses)
        self.made = self.create(RESETS, "ns", "r", {}, CREATED)

    def get(self, kind: Any, namespace: str, name: str) -> Object:
        status = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return {**super().get(kind, namespace, name), "status": status}


def saying(phase: str, message: str, **more: str) -> dict[str, Any]:
    def condition(kind: str, value: str, text: str = "") -> dict[str, Any]:
        return {"type": kind, "status": value, "reason": "R", "message": text, "lastTransitionTime": CREATED}

    conditions = [condition("Complete", "Unknown", message), *(condition(k, v) for k, v in more.items())]
    return {"phase": phase, "conditions": conditions, "observedGeneration": 1}


def follow(*statuses: dict[str, Any]) -> tuple[bool, list[str]]:
    kube, shown = Story(*statuses), io.StringIO()
    done = following.follow(kube, RESETS, kube.made, reset_step, FakeClock(), 60, Screen(io.StringIO(), shown))
    return done, shown.getvalue().splitlines()


def test_each_phase_is_shown_once() -> None:
    planning, applied = saying("Planning", "it is planned"), saying("Succeeded", "2 partitions reset")

    assert follow(planning, planning, applied) == (
        True,
        ["Planning: it is planned", "Succeeded: 2 partitions reset"],
    )


@pytest.mark.parametrize("phase", ["Failed", "RolledBack"])
def test_one_that_fails_is_no_success(phase: str) -> None:
    assert follow(saying(phase, "no such topic")) == (False, [f"{phase}: no such topic"])


def test_one_that_is_refused_or_takes_too_long_is_waited_for_no_longer() -> None:
    with pytest.raises(CommandFailed, match="is refused"):
        follow(saying("Pending", "no such group", Stalled="True"))
    with pytest.raises(CommandFailed, match="was not done within --timeout"):
        follow(saying("Planning", "it is planned"))


def test_another_one_of_the_same_name_is_not_taken_for_the_one_that_was_created() -> None:
    kube = Story(saying("Succeeded", "2 partitions reset"))
    FakeKube.delete(kube, RESETS, "ns", "r", CREATED)
    FakeKube.create(kube, RESETS, "ns", "r", {}, CREATED)

    with pytest.raises(CommandFailed, match="was deleted, and another one was created with the same name"):
        following.follow(kube, RESETS, kube.made, reset_step, FakeClock(), 60, Screen(io.StringIO(), io.StringIO()))


def test_whoever_has_a_plan_wait_for_an_approval_is_named_as_the_requester() -> None:
    asked, manual = ({"spec": {"group": "g", **more}} for more in ({}, {"approval": "Manual"}))

    assert in_own_name(asked, lambda: "jane") == asked
    assert in_own_name(manual, lambda: "jane")["spec"] == {"group": "g", "approval": "Manual", "requester": "jane"}


class Silent:
    """An API server whose answer to a creation never comes."""

    def create(self, *_: Any, **__: Any) -> Object:
        raise KubeUnavailable("create OffsetReset in ns: read timed out")


def test_what_may_have_been_created_is_not_called_a_failure_to_create() -> None:
    asked = {"metadata": {"namespace": "ns"}}

    with pytest.raises(CommandFailed, match=r"may have been created anyway.*kubectl get -n ns offsetresets"):
        created(Silent(), RESETS, asked)
    with pytest.raises(KubeUnavailable):
        created(Silent(), RESETS, asked, dry_run=True)


def test_the_connection_may_be_of_another_namespace() -> None:
    asked = manifest(reset_parser().parse_args(["g", "--to-earliest", "-c", "platform/prod"]))

    assert asked["spec"]["connectionRef"] == {"name": "prod", "namespace": "platform"}
