"""Which resources ask for a reset, and how each of them is read and told of its run.

An ``OffsetReset`` asks for one run, whose id is its name; an ``OffsetResetPolicy`` asks in ``spec.reset`` for one after
another, each with an id of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from tidegate.kube.ports import POLICIES, RESETS, Kind, Kube, Object, name_of
from tidegate.reset.runs.seen import has_ended, history_entry
from tidegate.resources.base import InvalidResource, StatusModel, has_readable_status, parse_spec, read_status
from tidegate.resources.conditions import (
    BACKED_UP,
    COMPLETE,
    FAILED,
    RESET,
    STALLED,
    Condition,
    ConditionStatus,
    find_condition,
    with_condition,
    without_condition,
)
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import ResetStatus, RunStatus


class Requester(Protocol):
    """A kind of resource that asks for resets. What it reads has the shape of a policy's spec and status.

    ``path``: of the reset's members in the spec, for messages. ``status_model``: what its status is read as.
    """

    kind: Kind
    path: str
    status_model: type[StatusModel]

    def spec(self, body: Object) -> OffsetResetPolicySpec:
        """Raises ``InvalidResource``."""
        ...

    def written(self, body: Object) -> Mapping[str, Any]:
        """The spec as it is written, also where it can't be read as a whole."""
        ...

    def status(self, body: Object) -> PolicyStatus: ...

    def status_json(self, status: PolicyStatus) -> dict[str, Any]:
        """The status to write."""
        ...

    def is_suspended(self, body: Object, /) -> bool:
        """Whether no run is to begin for now."""
        ...


class _Policies:
    kind = POLICIES
    path = "spec.reset"
    status_model: type[StatusModel] = PolicyStatus

    def spec(self, body: Object) -> OffsetResetPolicySpec:
        return parse_spec(OffsetResetPolicySpec, body)

    def written(self, body: Object) -> Mapping[str, Any]:
        return body.get("spec") or {}

    def status(self, body: Object) -> PolicyStatus:
        status = read_status(PolicyStatus, body)
        # Of an earlier version, in which policies made backups: nobody keeps it true any more.
        return status.model_copy(update={"conditions": without_condition(status.conditions, BACKED_UP)})

    def status_json(self, status: PolicyStatus) -> dict[str, Any]:
        return status.to_json()

    def is_suspended(self, _body: Object) -> bool:
        return False


class _OffsetResets:
    kind = RESETS
    path = "spec"
    status_model: type[StatusModel] = OffsetResetStatus

    def spec(self, body: Object) -> OffsetResetPolicySpec:
        return parse_spec(OffsetResetSpec, body).as_policy(name_of(body))

    def written(self, body: Object) -> Mapping[str, Any]:
        spec = body.get("spec") or {}
        return {**spec, "reset": {**spec, "id": name_of(body)}}

    def status(self, body: Object) -> PolicyStatus:
        status = read_status(OffsetResetStatus, body)
        conditions = tuple(_renamed(c, COMPLETE, RESET) for c in status.conditions if c.type != FAILED)
        if status.phase is None:
            return PolicyStatus(observed_generation=status.observed_generation, conditions=conditions)
        run = {name: getattr(status, name) for name in RunStatus.model_fields}
        reset = ResetStatus(id=name_of(body), phase=status.phase, **run)
        history = (history_entry(reset, status.result_digest),) if has_ended(status.phase) else ()
        return PolicyStatus(
            observed_generation=status.observed_generation, reset=reset, history=history, conditions=conditions
        )

    def status_json(self, status: PolicyStatus) -> dict[str, Any]:
        reset = status.reset
        conditions = tuple(_renamed(c, RESET, COMPLETE) for c in status.conditions)
        stalled = find_condition(conditions, STALLED)
        if stalled is not None:
            conditions = _with(conditions, COMPLETE, False, like=stalled, at=stalled.last_transition_time)
        if reset is None:
            return OffsetResetStatus(observed_generation=status.observed_generation, conditions=conditions).to_json()
        ended = find_condition(conditions, COMPLETE)
        if has_ended(reset.phase) and ended is not None and ended.status is ConditionStatus.FALSE:
            at = reset.finished_at or ended.last_transition_time
            conditions = _with(conditions, FAILED, True, like=ended, at=at)
        kept = next((entry for entry in status.history if entry.id == reset.id), None)
        run = {name: getattr(reset, name) for name in RunStatus.model_fields}
        return OffsetResetStatus(
            observed_generation=status.observed_generation,
            phase=reset.phase,
            result_digest=kept.digest if kept is not None else None,
            conditions=conditions,
            **run,
        ).to_json()

    def is_suspended(self, body: Object) -> bool:
        return (body.get("spec") or {}).get("suspend") is True


_REQUESTERS: Final[Mapping[str, Requester]] = {POLICIES.kind: _Policies(), RESETS.kind: _OffsetResets()}


def requester_of(body: Object) -> Requester:
    return _REQUESTERS[str(body["kind"])]


def requesters(kube: Kube) -> list[Object]:
    """All resources that ask for resets, as the API server has them."""
    return [body for requester in _REQUESTERS.values() for body in kube.list(requester.kind)]


def read_spec(body: Object) -> tuple[OffsetResetPolicySpec | None, str]:
    """The spec, or what is wrong with it."""
    try:
        return requester_of(body).spec(body), ""
    except InvalidResource as invalid:
        return None, str(invalid)


def status_is_readable(body: Object) -> bool:
    """Whether what the status says of a run is known."""
    return has_readable_status(requester_of(body).status_model, body)


def _renamed(condition: Condition, old: str, new: str) -> Condition:
    return condition.model_copy(update={"type": new}) if condition.type == old else condition


def _with(
    conditions: tuple[Condition, ...], condition_type: str, value: bool, *, like: Condition, at: datetime
) -> tuple[Condition, ...]:
    """``conditions`` with one that says the same as ``like`` does."""
    return with_condition(
        conditions,
        condition_type,
        value,
        reason=like.reason,
        message=like.message,
        generation=like.observed_generation,
        now=at,
    )
