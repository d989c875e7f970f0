"""Decoders of what the API server hands on: specs, statuses, pods to be injected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from corpus.reading import read_cases
from support.fuzzing.target import NoInput, Target, as_json, document
from support.written_resources import written
from tidegate.inject.admission import Answer, BadReview
from tidegate.inject.admission import answer as answer_review
from tidegate.inject.bodies import read_review
from tidegate.inject.index import PolicyIndex
from tidegate.inject.patch import AgentImage
from tidegate.resources.base import InvalidResource, parse_spec, parse_update, read_status
from tidegate.resources.durations import MAX, format_duration, parse_duration
from tidegate.resources.kinds import KINDS
from tidegate.resources.kinds import Kind as ResourceKind
from tidegate.resources.offset_reset import parse_offset_reset
from tidegate.resources.timestamps import format_timestamp, parse_timestamp

_CASES: Final = read_cases("valid")


def _body(data: bytes) -> dict[str, Any]:
    """The API server takes an object, with objects in these places, and no text that isn't Unicode."""
    body = document(data)
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise NoInput from None
    if not all(isinstance(body.get(name) or {}, Mapping) for name in ("metadata", "spec", "status")):
        raise NoInput
    return body


def _spec_of(kind: ResourceKind) -> Target:
    def decode(data: bytes) -> Any:
        return parse_spec(kind.spec, _body(data))

    def check(spec: Any) -> None:
        assert parse_spec(kind.spec, {"spec": json.loads(json.dumps(spec.to_json()))}) == spec

    seeds = [as_json({"spec": case.resource.get("spec")}) for case in _CASES if case.kind == kind.name]
    return Target(
        f"spec-{kind.name}",
        ("tidegate.resources.base:parse_spec", "tidegate.resources.base:_parse"),
        tuple(seeds),
        decode,
        (InvalidResource,),
        check,
    )


def _status_of(kind: ResourceKind) -> Target:
    def decode(data: bytes) -> Any:
        return read_status(kind.status, _body(data))

    def check(status: Any) -> None:
        assert read_status(kind.status, {"status": json.loads(json.dumps(status.to_json()))}) == status

    found = [each.body["status"] for each in written() if each.kind == kind.name]
    seeds = [as_json({"status": status}) for status in found if status]
    return Target(f"status-{kind.name}", ("tidegate.resources.base:_parse",), tuple(seeds), decode, (), check)


def _update(data: bytes) -> Any:
    body = _body(data)
    old, new = body.get("metadata") or {}, body.get("spec") or {}
    if not isinstance(old.get("old"), Mapping):
        raise NoInput
    kind = next(kind for kind in KINDS if kind.name == "OffsetResetPolicy")
    try:
        parse_spec(kind.spec, {"spec": old["old"]})
    except InvalidResource:
        raise NoInput from None  # it was never stored
    return parse_update(kind.spec, {"spec": old["old"]}, {"spec": new})


_UPDATES: Final = tuple(
    as_json({"metadata": {"old": case.replaces["spec"]}, "spec": case.resource["spec"]})
    for case in _CASES
    if case.replaces is not None and case.kind == "OffsetResetPolicy"
)

# --- the webhook ------------------------------------------------------------------------------------------------------

_CONNECTION: Final = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "KafkaConnection",
    "metadata": {"name": "kafka", "namespace": "ns", "uid": "c", "generation": 1},
    "spec": {"bootstrapServers": "kafka:9092"},
}
_POLICY: Final = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "OffsetResetPolicy",
    "metadata": {"name": "p", "namespace": "ns", "uid": "p", "generation": 1},
    "spec": {
        "connectionRef": {"name": "kafka"},
        "group": "payments",
        "consumers": {"selector": {"matchLabels": {"app": "payments"}}},
    },
}
_REVIEW: Final = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "ns",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {
            "metadata": {
                "name": "x",
                "labels": {"app": "payments"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}],
            },
            "spec": {
                "containers": [{"name": "app", "env": [{"name": "A", "value": "b"}], "volumeMounts": []}],
                "initContainers": [],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        },
    },
}
_INDEX: Final = PolicyIndex(lambda: [_POLICY], lambda: [_CONNECTION], ["ns"])
_INDEX.listed([], [])
_INDEX.listed([], [])


def _review(data: bytes) -> Answer:
    return answer_review(read_review(data), _INDEX.around, AgentImage("agent:1", "Never"))


def _check_answer(found: Answer) -> None:
    response = json.loads(json.dumps(found.response))["response"]
    assert response["allowed"] is True, "no pod is ever kept out"
    assert len(response.get("warnings", [])) <= 8
    assert all(len(warning) <= 240 for warning in response.get("warnings", []))


def _text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode(errors="replace"))


def _check_duration(read: Any) -> None:
    assert read <= MAX
    assert parse_duration(format_duration(read)) == read


def _check_timestamp(read: Any) -> None:
    assert parse_timestamp(format_timestamp(read)) == read


TARGETS: Final = (
    *map(_spec_of, KINDS),
    *map(_status_of, KINDS),
    Target("spec-update", ("tidegate.resources.base:parse_update",), _UPDATES, _update, (InvalidResource,)),
    Target(
        "offset-reset",
        ("tidegate.resources.offset_reset:parse_offset_reset",),
        tuple(as_json({"spec": case.resource["spec"]}) for case in _CASES if case.kind == "OffsetReset"),
        lambda data: parse_offset_reset({"metadata": {"name": "r", "namespace": "ns"}, **_body(data)}),
        (InvalidResource,),
    ),
    Target(
        "review",
        ("tidegate.inject.bodies:read_review",),
        (as_json(_REVIEW),),
        _review,
        (BadReview,),
        _check_answer,
    ),
    Target(
        "duration",
        ("tidegate.resources.durations:parse_duration",),
        (b"1h30m", b"1.5h", b"200ms"),
        _text(parse_duration),
        (ValueError,),
        _check_duration,
    ),
    Target(
        "timestamp",
        ("tidegate.resources.timestamps:parse_timestamp",),
        (b"2026-11-26T12:00:00Z", b"2026-11-26T12:00:00.5+01:00"),
        _text(parse_timestamp),
        (ValueError,),
        _check_timestamp,
    ),
)
