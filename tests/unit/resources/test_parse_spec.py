from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from tidegate.resources.base import InvalidResource, parse_spec, parse_update, read_status
from tidegate.resources.connection import KafkaConnectionSpec
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import ResetSpec
from tidegate.resources.targets import Empty, ResetTo, TargetKind


def policy(**spec: Any) -> dict[str, Any]:
    return {"spec": {"connectionRef": {"name": "prod"}, "group": "payments", **spec}}


def problems(obj: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidResource) as caught:
        parse_spec(OffsetResetPolicySpec, obj)
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_durations_and_timestamps_are_values_inside() -> None:
    obj = policy(latest={"maxAge": "1h"}, reset={"id": "a", "to": {"timestamp": "2026-11-20T15:00:00+01:00"}})

    spec = parse_spec(OffsetResetPolicySpec, obj)

    assert spec.latest is not None
    assert spec.reset is not None
    assert spec.latest.max_age == timedelta(hours=1)
    assert spec.reset.to.timestamp == datetime(2026, 11, 20, 14, tzinfo=UTC)
    assert spec.reset.to.kind is TargetKind.TIMESTAMP
    assert spec.reset.deadline == timedelta(minutes=15)
    assert spec.reset.partitions is None


@pytest.mark.parametrize("off", [-1, "-1"])
def test_minus_one_turns_the_age_rule_off(off: object) -> None:
    spec = parse_spec(OffsetResetPolicySpec, policy(latest={"maxAge": off}))

    assert spec.latest is not None
    assert spec.latest.max_age is None


def test_all_problems_are_told_at_once_with_their_paths() -> None:
    found = problems(
        {
            "spec": {
                "connectionRef": {"name": "prod", "nam": "x"},
                "reset": {"id": "A", "to": {}, "engine": "direct", "partitions": [{"topic": "a"}, {"topic": "b c"}]},
                "grupo": "x",
            }
        }
    )

    assert set(found) == {
        "spec.connectionRef.nam",
        "spec.grupo",
        "spec.reset.id",
        "spec.reset.to",
        "spec.reset.engine",
        "spec.reset.partitions[1].topic",
    }
    assert "did you mean group?" in found["spec.grupo"]
    assert "'Auto', 'Spark', 'Direct'" in found["spec.reset.engine"]


def test_snake_case_is_not_a_resource() -> None:
    found = problems(policy(reset={"id": "a", "to": {"latest": {}}, "drain_timeout": "1s"}))

    assert "did you mean drainTimeout?" in found["spec.reset.drain_timeout"]


def test_null_is_absent() -> None:
    obj = policy(topics=None, reset={"id": "a", "to": {"latest": {}, "undo": None}, "engine": None})

    spec = parse_spec(OffsetResetPolicySpec, obj)

    assert spec.topics is None
    assert spec.reset is not None
    assert spec.reset.engine == "Auto"


@pytest.mark.parametrize("obj", [{}, {"spec": None}])
def test_a_resource_without_spec(obj: dict[str, Any]) -> None:
    assert problems(obj) == {"spec": "is required: add it"}


def test_read_only_views_are_read() -> None:
    obj = MappingProxyType({"spec": MappingProxyType(policy()["spec"])})

    assert parse_spec(OffsetResetPolicySpec, obj).group == "payments"


def test_python_builds_them_by_field_name() -> None:
    spec = ResetSpec(id="a", to=ResetTo(shift_by=-3), in_flight=timedelta(seconds=2))

    assert spec.to_json()["to"] == {"shiftBy": -3}
    assert spec.to_json()["inFlight"] == "2s"
    assert ResetSpec.model_validate(spec.to_json()) == spec
    assert ResetTo(earliest=Empty()).kind is TargetKind.EARLIEST


def test_an_update_may_not_change_the_group_or_a_run() -> None:
    old = policy(reset={"id": "a", "to": {"latest": {}}})

    with pytest.raises(InvalidResource) as caught:
        parse_update(
            OffsetResetPolicySpec,
            old,
            {"spec": old["spec"] | {"group": "x", "reset": {"id": "a", "to": {"offset": 1}}}},
        )

    assert [problem.path for problem in caught.value.problems] == ["spec.group", "spec.reset"]


@pytest.mark.parametrize(
    "reset",
    [
        {"id": "b", "to": {"offset": 1}},
        {"id": "a", "to": {"latest": {}}, "engine": "Auto"},
        None,
    ],
)
def test_an_update_may_name_a_new_run_or_spell_out_a_default(reset: object) -> None:
    old = policy(reset={"id": "a", "to": {"latest": {}}})

    parse_update(OffsetResetPolicySpec, old, policy(reset=reset))


def test_a_run_is_compared_as_it_is_written() -> None:
    old = policy(reset={"id": "a", "to": {"latest": {}}, "deadline": "60s"})

    with pytest.raises(InvalidResource, match="immutable while its id stays the same"):
        parse_update(OffsetResetPolicySpec, old, policy(reset={"id": "a", "to": {"latest": {}}, "deadline": "1m"}))


def test_defaults_of_a_connection() -> None:
    spec = parse_spec(KafkaConnectionSpec, {"spec": {"bootstrapServers": "kafka:9092"}})

    assert spec.control_topic.name == "__tidegate"
    assert spec.control_topic.replication_factor is None
    assert (spec.tls, spec.authentication, spec.allow, spec.properties) == (None, None, None, {})


def test_status_is_read_back_as_it_was_written() -> None:
    assert read_status(PolicyStatus, {}) == PolicyStatus()
    written = {
        "observedGeneration": 3,
        "reset": {"id": "a", "name": "p-a", "phase": "Succeeded", "recordsReplayed": 3},
        "history": [{"id": "a", "phase": "Succeeded", "finishedAt": "2026-11-20T14:00:00Z"}],
    }

    status = read_status(PolicyStatus, {"status": written})

    assert status.to_json() == written | {"conditions": []}
