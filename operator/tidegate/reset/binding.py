"""Which document of a run is obeyed: the one whose digest is in the status of the resource that asked for it. Pure.

A run's document is a ConfigMap, and many who may not change an OffsetReset's status may write ConfigMaps. So the
status, and what the operator passes to the jobs that it starts, names the document by a digest of what was asked
(group, target, connection, way of approval, all of the request) and of the plan. An approval names the same digest, so
that it holds for the plan that was read and for no other.

What a job writes while it works, the journal, the result and the evidence, is not part of this digest. The result is
bound once the run has ended (:func:`digest_of_end`), because an undo goes by it: by ``status.resultDigest``, or, once
the OffsetReset is deleted, by the operator's record in the control topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, Protocol

from tidegate.reset.codec import fleet_plan_digested, plan_digested, request_digested, result_digested
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import ForgedRun, Run

DIGEST_VARIABLE: Final = "TIDEGATE_RUN_DIGEST"
APPROVED_VARIABLE: Final = "TIDEGATE_RUN_APPROVED"


def digest_of(run: Run) -> str:
    """SHA-256, in hex, over the request and the plan, as far as there is one yet."""
    parts = {"request": request_digested(run.request)}
    if run.plan is not None:
        parts["plan"] = plan_digested(run.plan)
    if run.fleet is not None:
        parts["fleet"] = fleet_plan_digested(run.fleet)
    return _digest(parts)


def digest_of_end(digest: str, result: RunResult) -> str:
    """SHA-256, in hex, over a run's digest and how it ended: all that an undo of the run goes by."""
    return _digest({"run": digest, "result": result_digested(result)})


def _digest(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Check(Protocol):
    """What a stored run has to be."""

    def checked(self, run: Run, location: str) -> Run:
        """The run with its digest, and approved only if that very digest was. Raises ``ForgedRun``."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """To one digest, and to that which was approved; ``approved`` is empty where none was. A group of a fleet is bound
    by the fleet's plan, and never approved by itself."""

    digest: str
    approved: str = ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Binding | None:
        """``None`` for a job that was not started by the operator."""
        digest = environment.get(DIGEST_VARIABLE, "")
        return cls(digest, environment.get(APPROVED_VARIABLE, "")) if digest else None

    def environment(self) -> dict[str, str]:
        """For a job, which must not take either from the document itself."""
        return {DIGEST_VARIABLE: self.digest, **({APPROVED_VARIABLE: self.approved} if self.approved else {})}

    def checked(self, run: Run, location: str) -> Run:
        return self._bound(run, digest_of(run), location)

    def _bound(self, run: Run, found: str, location: str) -> Run:
        if found != self.digest:
            raise ForgedRun(
                f"{location} is not as the operator recorded it: its request and plan have the digest {found}, but the "
                f"operator recorded {self.digest}. Tidegate ignores all of it: find out who wrote it"
            )
        return replace(run, digest=found, approved=found == self.approved)


@dataclass(frozen=True, slots=True)
class OperatorBinding(Binding):
    """As the operator reads: the document of a run that was just planned has a plan that the status does not know yet,
    and an approval is in the status before it is in the document. An empty ``digest`` is that of no document at all.
    """

    def checked(self, run: Run, location: str) -> Run:
        if not self.digest:
            raise ForgedRun(
                f"{location} existed before this run began: it belongs to an earlier run that the status no longer "
                "knows, or somebody else wrote it. Tidegate ignores all of it: ask for another reset"
            )
        found = digest_of(run)
        if run.approved and found != self.approved:
            raise ForgedRun(
                f"{location} says that its plan was approved, but nobody approved it. Tidegate ignores all of it: find "
                "out who wrote it"
            )
        if found != self.digest and digest_of(Run(run.request)) == self.digest:
            return replace(run, digest=found, approved=False)
        return self._bound(run, found, location)


class NoBinding:
    """To whatever is there: for a document of which nothing is known elsewhere yet."""

    def checked(self, run: Run, location: str) -> Run:  # noqa: ARG002 - any will do
        return replace(run, digest=digest_of(run), approved=False)


@dataclass(frozen=True, slots=True)
class EndBinding:
    """To a run as it ended: its request, plan and result."""

    digest: str

    def checked(self, run: Run, location: str) -> Run:
        found = digest_of(run)
        if run.result is None or digest_of_end(found, run.result) != self.digest:
            raise ForgedRun(
                f"{location} is not as its run left it: the digest of its request, plan and result is not the one that "
                "the operator recorded. Tidegate ignores all of it: find out who wrote it"
            )
        return replace(run, digest=found)
