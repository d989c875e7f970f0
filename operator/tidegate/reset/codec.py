"""A run's parts as JSON, as they are stored, handed to jobs, and counted in digests: all that spells them is here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from tidegate.reset.evidence import Evidence
from tidegate.reset.model.fleet import FleetPlan, Roster
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromBackup, Target
from tidegate.resources.reset import UNOWNED_BEFORE, Way

_TARGET: TypeAdapter[Target] = TypeAdapter(Annotated[Target, Field(discriminator="kind")])

_REQUEST = TypeAdapter(RunRequest)

PLAN = TypeAdapter(Plan)

_PARTITION = TypeAdapter(PartitionPlan)

PROGRESS = TypeAdapter(Progress)

RESULT = TypeAdapter(RunResult)

_EVIDENCE = TypeAdapter(Evidence)

ROSTER = TypeAdapter(Roster)

FLEET = TypeAdapter(FleetPlan)


def encode_request(request: RunRequest) -> str:
    return _REQUEST.dump_json(request).decode()


def decode_request(text: str | bytes) -> RunRequest:
    """Raises ``ValueError`` for anything that :func:`encode_request` did not write."""
    return request_from(read_json(text))


def read_json(text: str | bytes) -> Any:
    """Any JSON. Raises ``ValueError``, also for what is nested too deeply, or has half a character in it (a lone
    surrogate), which could not be written again."""
    return from_json(text.encode() if isinstance(text, str) else text)


def attempt_from(value: object) -> int:
    """The number of a run's attempt, as JSON or a ConfigMap's data says it. Raises ``ValueError`` for what is none."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if type(value) is not int or not 0 <= value < 10**9:
        raise ValueError("its attempt is not a number from 0 to 999999999")
    return value


def request_from(fields: object) -> RunRequest:
    """Raises ``ValueError`` for what is no request."""
    if not isinstance(fields, dict):
        raise ValueError("its request is not a JSON object")
    # The target is read on its own: by its kind, so that a bad one is named instead of nine mismatches.
    return _REQUEST.validate_python(fields | {"target": _TARGET.validate_python(fields.get("target"))})


def encode_plan(plan: Plan) -> str:
    """JSON with one line a partition, so that a person can read it, and ``diff`` and ``grep`` are of use."""
    head = PLAN.dump_json(replace(plan, partitions=())).decode()
    if not plan.partitions:
        return head
    lines = ",\n".join(_PARTITION.dump_json(p, exclude_defaults=True).decode() for p in plan.partitions)
    return head.replace('"partitions":[]', f'"partitions":[\n{lines}\n]', 1)


def decode_plan(text: str | bytes) -> Plan:
    """Raises ``ValueError`` for anything that :func:`encode_plan` did not write."""
    return PLAN.validate_json(text)


def encode_progress(progress: Progress) -> str:
    """One line of JSON."""
    return PROGRESS.dump_json(progress, exclude_defaults=True).decode()


def encode_result(result: RunResult) -> str:
    return RESULT.dump_json(result).decode()


def decode_result(text: str | bytes) -> RunResult:
    """Raises ``ValueError`` for anything that :func:`encode_result` did not write."""
    return RESULT.validate_json(text)


def encode_roster(roster: Roster) -> str:
    return ROSTER.dump_json(roster).decode()


def encode_fleet_plan(plan: FleetPlan) -> str:
    """JSON; members that say nothing are left out, since there are many groups."""
    return FLEET.dump_json(plan, exclude_defaults=True).decode()


def encode_evidence(evidence: Evidence) -> str:
    """JSON; members that say nothing are left out, since there are many of them."""
    return _EVIDENCE.dump_json(evidence, exclude_defaults=True).decode()


def evidence_from(fields: Any) -> Evidence | None:
    """``None`` for what this version can't read: nothing but its being shown depends on it."""
    try:
        return _EVIDENCE.validate_python(fields)
    except ValidationError:
        return None


# Digests are over what follows. Members that have their default are left out, so that a field which a later version
# adds changes no digest; and what a later version spells otherwise is spelled as it was, for the same reason.


def request_digested(request: RunRequest) -> dict[str, Any]:
    """What a digest counts of a request."""
    members: dict[str, Any] = _REQUEST.dump_python(request, mode="json", exclude_defaults=True)
    # Defaults to pydantic, and yet all that tells one kind of target from another.
    members["target"]["kind"] = request.target.kind
    if isinstance(request.target, FromBackup):
        members["target"]["storage"]["kind"] = request.target.storage.kind
    for selection in members["selections"]:
        if "partitions" in selection:
            selection["partitions"].sort()  # a set has no order
    return members


def plan_digested(plan: Plan) -> dict[str, Any]:
    """What a digest counts of a plan."""
    return _as_before(PLAN.dump_python(plan, mode="json", exclude_defaults=True))


def fleet_plan_digested(plan: FleetPlan) -> dict[str, Any]:
    """What a digest counts of a fleet's plan."""
    members: dict[str, Any] = FLEET.dump_python(plan, mode="json", exclude_defaults=True)
    return members | {"groups": [_as_before(group) for group in members["groups"]]}


def result_digested(result: RunResult) -> dict[str, Any]:
    """What a digest counts of a result."""
    return _as_before(RESULT.dump_python(result, mode="json", exclude_defaults=True))


def _as_before(members: dict[str, Any]) -> dict[str, Any]:
    return members | {"way": UNOWNED_BEFORE} if members.get("way") == Way.UNOWNED else members
