"""What an ``OffsetReset`` says, as a pass reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.control.records import Outcome, Run, RunKey
from tidegate.kube.ports import POLICIES, Object, name_of, namespace_of, uid_of
from tidegate.reset.runs.request import run_uid
from tidegate.resources.base import InvalidResource, has_readable_status, read_status
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus, parse_offset_reset
from tidegate.resources.reset import ResetPhase, has_ended

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OVER: Final = frozenset(phase.value for phase in ResetPhase if has_ended(phase))


def read_spec(body: Object) -> tuple[OffsetResetSpec | None, str]:
    """The spec, or what is wrong with it."""
    try:
        return parse_offset_reset(body), ""
    except InvalidResource as invalid:
        return None, str(invalid)


def status_of(body: Object) -> OffsetResetStatus:
    """An empty one where nothing was written yet, or what was written can't be read."""
    return read_status(OffsetResetStatus, body)


def status_is_readable(body: Object) -> bool:
    """Whether what the status says of a run is known."""
    return has_readable_status(OffsetResetStatus, body)


def is_over(body: Object) -> bool:
    """Whether its run has ended, by what its status says, also where a newer version has written that and the rest of
    it can't be read."""
    return (body.get("status") or {}).get("phase") in _OVER


def epoch_ms(at: datetime) -> int:
    """As records of the control topic tell times."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def ended_run(body: Object, status: OffsetResetStatus, finished_at: datetime | None) -> Run:
    """What a record says of its run, which has ended. Raises ``ValueError`` for one that has not."""
    if status.phase is None or status.started_at is None or finished_at is None:
        raise ValueError("a reset that has ended has a phase, and has begun and ended at some time")
    return Run(
        uid=run_uid(uid_of(body), name_of(body)),
        started_ms=epoch_ms(status.started_at),
        outcome=Outcome(status.phase.value),
        finished_ms=epoch_ms(finished_at),
        digest=status.result_digest or "",
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy that has created an ``OffsetReset``: its uid, and by which its id is known to be executed."""

    uid: str
    key: RunKey


def policy_of(body: Object) -> Policy | None:
    """``None`` for an ``OffsetReset`` that somebody else has created."""
    for owner in body["metadata"].get("ownerReferences") or ():
        policy, prefix = str(owner.get("name")), f"{owner.get('name')}-"
        is_policy = owner.get("kind") == POLICIES.kind and owner.get("apiVersion") == POLICIES.api_version
        if owner.get("controller") and is_policy and name_of(body).startswith(prefix):
            reset_id = name_of(body).removeprefix(prefix)
            return Policy(str(owner.get("uid")), RunKey(namespace_of(body), policy, reset_id))
    return None


def is_suspended(body: Object) -> bool:
    """Whether no run is to begin for now."""
    return (body.get("spec") or {}).get("suspend") is True
