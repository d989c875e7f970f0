"""Where a run's request, plan, journal and result live, so that any of its writers may die at any point.

A run is one document, changed by compare-and-swap. Each writer works under an *attempt* number; taking a run over
means beginning the next attempt, and from then on a writer of an older attempt gets ``StaleAttempt`` and has to stop.
Kafka's own fencing (one transactional id per group) holds for the offsets; this holds for the record of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tidegate.audit.records import Attribution
from tidegate.reset.evidence import Evidence
from tidegate.reset.model.fleet import FleetPlan, Roster
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult


class StaleAttempt(Exception):
    """The run was taken over by a later attempt (or removed): stop, and touch nothing more."""


class RunNotFound(Exception):
    """There is no such run; the message names where it was looked for."""


class ForeignRun(Exception):
    """The document says what its own run cannot say: somebody else has written it. Tidegate ignores all of it."""


class ForgedRun(Exception):
    """The document is not the one that was begun, planned or approved (``tidegate.reset.binding``). Nothing of it is
    obeyed."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as stored. ``attempt`` is 0 until somebody begins to work on it.

    A fleet's run has ``roster`` and ``fleet`` instead of ``plan``. ``digest``: of the request and the plan, where it
    was checked against one that is kept elsewhere; then ``approved`` tells whether that digest was approved. As stored,
    ``approved`` is a hint to a job that gathers evidence: it may end, since nobody reads it any more. ``attribution``:
    in whose name its changes are recorded in the audit log; it is not stored.
    """

    request: RunRequest
    attempt: int = 0
    plan: Plan | None = None
    journal: tuple[Progress, ...] = ()
    result: RunResult | None = None
    approved: bool = False
    evidence: Evidence | None = None
    roster: Roster | None = None
    fleet: FleetPlan | None = None
    digest: str = field(default="", compare=False)
    attribution: Attribution | None = field(default=None, compare=False)

    @property
    def is_planned(self) -> bool:
        return self.plan is not None or self.fleet is not None

    @property
    def last(self) -> Progress | None:
        return self.journal[-1] if self.journal else None


class RunStore(Protocol):
    """One run's document. Every write is durable when the call returns.

    Raises ``RunNotFound``; writes raise ``StaleAttempt`` when ``attempt`` is not the newest one.
    """

    @property
    def location(self) -> str:
        """A URL that :func:`tidegate.reset.stores.open_store` understands, e.g. ``file:///…`` or ``configmap://ns/name``."""
        ...

    def create(self, request: RunRequest) -> Run:
        """Store the request of a new run; the run as it is when there is one already (same ``run_uid``)."""
        ...

    def load(self) -> Run: ...

    def begin_attempt(self) -> int:
        """Take the run over; returns the new attempt's number."""
        ...

    def approve(self) -> None: ...

    def write_plan(self, plan: Plan, *, attempt: int) -> None:
        """Store the plan, once: a run never gets a second plan. Raises ``ValueError`` for a different one."""
        ...

    def write_roster(self, roster: Roster, *, attempt: int) -> None:
        """Store which groups a fleet is of, once. Raises ``ValueError`` for others."""
        ...

    def write_fleet_plan(self, plan: FleetPlan, *, attempt: int) -> None:
        """Store a fleet's plan, once. Raises ``ValueError`` for a different one."""
        ...

    def write_evidence(self, evidence: Evidence, *, attempt: int) -> None:
        """Store what was gathered about the plan, as much of it as there is room for; it is never needed later."""
        ...

    def append(self, progress: Progress, *, attempt: int) -> None: ...

    def finish(self, result: RunResult, *, attempt: int) -> None:
        """Store the result, once; a run that has one keeps it."""
        ...
