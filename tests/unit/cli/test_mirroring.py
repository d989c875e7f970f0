"""`tidegate mirror failover` and `failback`: what is asked for, what is waited for, what is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from support.fake_kube import FakeKube
from tidegate.cli.following import Step
from tidegate.cli.mirroring import (
    _asked_for,
    failback_of,
    failback_parser,
    failover_parser,
    failover_step,
    failover_table,
)
from tidegate.kube.ports import MIRRORS, Kind, Object
from tidegate.resources.mirror_failover import FailedOverTopic, FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import OffsetMirrorSpec

SPEC: dict[str, Any] = {
    "source": {"name": "old"},
    "target": {"name": "new"},
    "topics": {"include": ["orders"]},
    "suspend": True,
}


def mirror(**status: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "False", "reason": "CopiesLagging", "message": "m", "observedGeneration": 2}
    condition = {**ready, "lastTransitionTime": "2026-11-20T12:00:00Z"}
    told = {"observedGeneration": 2, "conditions": [condition], **status}
    return {"metadata": {"namespace": "ns", "name": "m", "generation": 2}, "spec": SPEC, "status": told}


class Changeable(FakeKube):
    def change_spec(self, kind: Kind, body: Object, spec: Mapping[str, Any]) -> Object:
        name = str(body["metadata"]["name"])
        return self.change(kind, "ns", name, spec={**body["spec"], **spec})


def failover(phase: str) -> dict[str, Any]:
    return {"phase": phase, "fenceId": 7}


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (mirror(), Step("CopiesLagging: m")),
        (mirror(observedGeneration=1), Step("not begun")),
        (mirror(failover=failover("Fencing")), Step("CopiesLagging: m")),
        (mirror(failover=failover("Done")), Step("CopiesLagging: m", done=True)),
        (mirror(newer=1), Step("its status was written by another version of Tidegate, and can't be read")),
    ],
)
def test_it_is_waited_until_nothing_can_come_late(body: dict[str, Any], step: Step) -> None:
    assert failover_step(body) == step


def test_a_mirror_that_is_stalled_is_not_waited_for() -> None:
    body = mirror()
    condition = body["status"]["conditions"][0]
    body["status"]["conditions"].append({**condition, "type": "Stalled", "status": "True"})

    assert failover_step(body).refused == "resolve the cause, or fail over with --accept-loss"
    accepted = {**body, "spec": {**SPEC, "failover": {"acceptLoss": True}}}
    assert failover_step(accepted).refused == "resolve the cause"


@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        (None, [], {"acceptLoss": False}),
        ({}, ["--accept-loss"], {"acceptLoss": True}),
        ({"acceptLoss": True}, [], {"acceptLoss": True}),
    ],
)
def test_a_loss_that_was_accepted_stays_accepted(before: Any, options: list[str], after: Any) -> None:
    kube = Changeable()
    spec = SPEC if before is None else {**SPEC, "failover": before}
    kube.create(MIRRORS, "ns", "m", spec, "2026-11-20T12:00:00Z")
    _asked_for(kube, failover_parser().parse_args(["m", "-n", "ns", *options]))  # type: ignore[arg-type]

    assert kube.get(MIRRORS, "ns", "m")["spec"] == {**SPEC, "failover": after}


def test_each_partition_is_told_with_what_it_lacks() -> None:
    topics = (
        FailedOverTopic(name="orders", ends=(8123, 9), lacks=(0, 17)),
        FailedOverTopic(name="t\x1b", ends=(), message="the copy was deleted at the target"),
    )
    found = MirrorFailover(phase=FailoverPhase.DONE, fence_id=7, source_answered=False, topics=topics)

    assert failover_table(found).splitlines() == [
        "TOPIC   PARTITION  COPIED-UNTIL  NOT-COPIED",
        "orders  0          8123          0",
        "orders  1          9             17",
        "t\\x1b: the copy was deleted at the target",
        "The source did not answer, so it is not known what it has beyond these offsets.",
    ]


def test_what_a_status_says_of_partitions_that_it_does_not_name_is_not_known() -> None:
    topics = (
        FailedOverTopic(name="orders", ends=(8123, 9, 4), lacks=(0,)),
        FailedOverTopic(name="t", ends=(1,), unknown="it was deleted"),
    )
    found = MirrorFailover(phase=FailoverPhase.DONE, fence_id=7, source_answered=True, topics=topics)

    assert failover_table(found).splitlines() == [
        "TOPIC   PARTITION  COPIED-UNTIL  NOT-COPIED",
        "orders  0          8123          0",
        "orders  1          9             unknown",
        "orders  2          4             unknown",
        "t       0          1             unknown",
        "t: it is not known what was not copied, because it was deleted",
        "There may be more that was not copied: compare both clusters.",
    ]


def test_a_failback_is_of_the_same_topics_in_the_other_direction() -> None:
    options = failback_parser().parse_args(["m", "--name", "back", "-n", "ns"])

    assert failback_of(options, mirror()) == {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetMirror",
        "metadata": {"namespace": "ns", "name": "back"},
        "spec": {
            "source": {"name": "new"},
            "target": {"name": "old"},
            "topics": {"include": ["orders"]},
            "failbackFrom": {"name": "m"},
        },
    }


def test_a_failback_copies_as_the_mirror_did() -> None:
    """But for what is of that mirror alone: that it is suspended or fails over, and what it or others wrote with."""
    options = failback_parser().parse_args(["m", "--name", "back", "-n", "ns"])
    of_it_alone = {"source", "target", "suspend", "failover", "failbackFrom", "formerProducerIds"}
    members = {field.alias or name for name, field in OffsetMirrorSpec.model_fields.items()}
    body = mirror()
    body["spec"] = {**dict.fromkeys(members, "as it is"), "source": {"name": "old"}, "target": {"name": "new"}}
    spec = failback_of(options, body)["spec"]

    assert spec == dict.fromkeys(members - of_it_alone, "as it is") | {
        "source": {"name": "new"},
        "target": {"name": "old"},
        "failbackFrom": {"name": "m"},
    }
