"""The ``OffsetReset`` that a policy's ``spec.reset`` is the template of, and what the policy says of it. Pure.

It is named after the policy and the id, so that the API server itself keeps a second one from being created. Whoever
looks after it is :mod:`tidegate.offset_reset`; the policy repeats the essence of its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.control.records import Run, RunKey
from tidegate.kube.ports import Object, name_of, namespace_of
from tidegate.resources.base import InvalidResource, Problem, parse_spec
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.policy import reset_name_problem
from tidegate.resources.reset import RequestedReset, ResetPhase, has_ended

_SHARED: Final = ("connectionRef", "group", "groups", "topics", "spark")
"""What a policy and its resets have in common."""


def reset_name(policy: str, reset_id: str, path: str = "spec.reset.id") -> str:
    """The name of the OffsetReset. Raises ``InvalidResource`` where that could not have it; ``path``: of the id."""
    problem = reset_name_problem(policy, reset_id)
    if problem is not None:
        raise InvalidResource((Problem(path, problem),))
    return f"{policy}-{reset_id}"


def run_key(policy: Object, reset_id: str) -> RunKey:
    """By which it is known, for good, that the id was executed."""
    return RunKey(namespace_of(policy), name_of(policy), reset_id)


def reset_spec(policy: Object) -> Mapping[str, Any]:
    """The spec of the OffsetReset, of the policy's as it is written. An undo names another id of the same policy."""
    spec = policy["spec"]
    options = {name: value for name, value in spec["reset"].items() if name != "id"}
    undone = (options.get("to") or {}).get("undo")
    if undone is not None:
        options["to"] = {"undo": f"{name_of(policy)}-{undone}"}
    return {**{name: spec[name] for name in _SHARED if spec.get(name) is not None}, **options}


def is_outdated(body: Object, status: OffsetResetStatus, policy: Object) -> bool:
    """Whether the policy says something else than the OffsetReset ``body``, which has not begun, and may begin: the
    policy was changed, or somebody has edited the OffsetReset.
    """
    if status.started_at is not None or has_ended(status.phase) or body["metadata"].get("deletionTimestamp"):
        return False
    try:
        made = parse_spec(OffsetResetSpec, body)
        wanted = parse_spec(OffsetResetSpec, {"spec": reset_spec(policy)})
    except InvalidResource:
        return False
    # Who has suspended it would not find the next one suspended.
    return not made.suspend and made != wanted.model_copy(update={"ttl_after_finished": made.ttl_after_finished})


def requested(body: Object, status: OffsetResetStatus, reset_id: str) -> RequestedReset:
    """What the policy says of its OffsetReset ``body``."""
    plan = status.plan
    return RequestedReset(
        id=reset_id,
        name=name_of(body),
        phase=status.phase or ResetPhase.PENDING,
        started_at=status.started_at,
        finished_at=status.finished_at,
        records_replayed=plan.records_replayed if plan is not None else None,
        records_skipped=plan.records_skipped if plan is not None else None,
    )


def ran_before(reset_id: str, known: RequestedReset | None, ran: Run | None) -> RequestedReset:
    """What is still known of a reset that is not there any more. ``ran``: what the control topic says."""
    outcome = ran.outcome if ran is not None else None
    started = _time(ran.started_ms) if ran is not None else None
    finished = _time(ran.finished_ms) if ran is not None and ran.finished_ms is not None else None
    known = known if known is not None and known.id == reset_id else None
    return RequestedReset(
        id=reset_id,
        phase=ResetPhase(outcome.value) if outcome is not None else None,
        started_at=known.started_at if known is not None and known.started_at is not None else started,
        finished_at=finished,
        records_replayed=known.records_replayed if known is not None else None,
        records_skipped=known.records_skipped if known is not None else None,
    )


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).replace(microsecond=0)
