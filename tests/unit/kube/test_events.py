"""Events that can't be recorded, or have long names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from tidegate.clock import SystemClock
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import PAUSES, Conflict, EventType, KubeEvent, KubeFailure

HAPPENING = KubeEvent(EventType.NORMAL, "Resumed", "this pause is deleted and holds nothing", "k")


class Core:
    """Takes what is made; or answers 403, for this reason."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.made: dict[str, Any] = {}

    def create(self, _plural: str, _namespace: str, body: dict[str, Any], **_: Any) -> None:
        self.made = body
        if self.refuses:
            error = ApiException(status=403, reason="Forbidden")
            error.body = json.dumps({"message": "no", "details": {"causes": [{"reason": self.refuses}]}})
            raise error


def recorded(core: Core, name: str = "p") -> None:
    kube = KubeClient(ApiClient(Configuration()), SystemClock())
    kube._core = core  # type: ignore[assignment]
    metadata = {"namespace": "ns", "name": name, "uid": "u", "resourceVersion": "1"}
    kube.record({"apiVersion": PAUSES.api_version, "kind": PAUSES.kind, "metadata": metadata}, HAPPENING)


def test_an_event_that_a_namespace_being_deleted_does_not_take_keeps_nothing_from_being_let_go_of() -> None:
    """A pass that fails by it would never take its finalizer off, and the namespace would be there for ever."""
    core = Core(refuses="NamespaceTerminating")

    recorded(core)

    assert core.made["reason"] == "Resumed"


class Conflicts(Core):
    """Answers 409, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def create(self, _plural: str, _namespace: str, body: dict[str, Any], **_: Any) -> None:
        self.made = body
        error = ApiException(status=409, reason="Conflict")
        error.body = json.dumps({"message": "no", "reason": self.reason})
        raise error


def test_an_event_that_is_there_already_is_recorded() -> None:
    recorded(Conflicts("AlreadyExists"))


def test_an_event_that_was_not_made_for_a_conflict_of_another_kind_is_not_taken_for_recorded() -> None:
    """A ResourceQuota's count, for one, that somebody else has changed at the same moment."""
    with pytest.raises(Conflict, match="409 no"):
        recorded(Conflicts("Conflict"))


def test_an_event_that_is_refused_for_another_reason_is_a_failure() -> None:
    with pytest.raises(KubeFailure, match="record an Event of ns/p: 403 no"):
        recorded(Core(refuses="SomethingElse"))


@pytest.mark.parametrize("name", ["p", "a" * 199 + "-" + "b" * 50, "a" * 198 + ".-" + "b" * 50])
def test_an_event_of_a_long_name_has_one_that_the_api_server_takes(name: str) -> None:
    core = Core()

    recorded(core, name)

    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    made = core.made["metadata"]["name"]
    assert re.fullmatch(rf"{label}([.]{label})*", made)
    assert len(made) <= 253


def test_what_was_told_is_of_this_very_object_and_of_these_reasons() -> None:
    """One of its name may have come after it."""
    asked: list[dict[str, Any]] = []

    def listed(plural: str, namespace: str, **options: Any) -> dict[str, Any]:
        asked.append({"plural": plural, "namespace": namespace, **options})
        return {"items": [{"reason": "HoldsLeft", "message": "left"}, {"reason": "Resumed", "message": "all is well"}]}

    core, kube = Core(), KubeClient(ApiClient(Configuration()), SystemClock())
    core.list = listed  # type: ignore[attr-defined]
    kube._core = core  # type: ignore[assignment]

    told = kube.told_of({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}}, ("HoldsLeft", "Abandoned"))

    assert told == ["left"]
    (one,) = asked
    assert (one["plural"], one["namespace"], one["field_selector"]) == ("events", "ns", "involvedObject.uid=u")
