"""A run's document: what may be changed in it and when, whatever it is stored in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidegate.reset.codec import encode_evidence
from tidegate.reset.evidence import Evidence, fitted
from tidegate.reset.model.fleet import FleetPlan, Roster
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress, noted
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import Run, RunNotFound, StaleAttempt
from tidegate.versions import NewerVersion


class StoreFailure(Exception):
    """The store could not be read or written; the message says where and why."""


class StoreUnavailable(StoreFailure):
    """Nobody answered within the patience: whether the last write happened is unknown, reading it again tells."""


class NewerRun(StoreFailure):
    """A newer version of Tidegate has written it (``tidegate.versions``): it is left as it is."""

    def __init__(self, newer: NewerVersion) -> None:
        super().__init__(str(newer))
        self.version: Final = newer.found


class DocumentTooLarge(StoreFailure):
    """The run does not fit; the message says what takes the room."""


Change = Callable[[Run], Run]
"""A pure change of a run. Returns the very same object when there is nothing to do."""


def _checked(run: Run, attempt: int) -> None:
    if attempt != run.attempt:
        raise StaleAttempt(f"attempt {attempt} of run {run.request.run_uid} was followed by attempt {run.attempt}")


def _begun(run: Run) -> Run:
    return replace(run, attempt=run.attempt + 1)


def _approved(run: Run) -> Run:
    return run if run.approved else replace(run, approved=True)


def _planned(plan: Plan, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.plan is None:
            return replace(run, plan=plan)
        if run.plan != plan:
            raise ValueError(f"run {run.request.run_uid} has a plan already, made at {run.plan.made_at.isoformat()}")
        return run

    return change


def _listed(roster: Roster, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.roster is not None and run.roster != roster:
            raise ValueError(f"run {run.request.run_uid} has a roster already, of {run.roster.at.isoformat()}")
        return run if run.roster is not None else replace(run, roster=roster)

    return change


def _fleet_planned(plan: FleetPlan, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.fleet is not None and run.fleet != plan:
            raise ValueError(f"run {run.request.run_uid} has a plan already, made at {run.fleet.made_at.isoformat()}")
        return run if run.fleet is not None else replace(run, fleet=plan)

    return change


def _shown(evidence: Evidence, attempt: int) -> Change:
    kept = fitted(evidence, lambda e: len(encode_evidence(e).encode()))

    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.evidence == kept else replace(run, evidence=kept)

    return change


def _noted(progress: Progress, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.last == progress else replace(run, journal=noted(run.journal, progress))

    return change


def _finished(result: RunResult, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.result is not None else replace(run, result=result)

    return change


class DocumentStore(ABC):
    """What both stores share: every write is a change of the document."""

    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def create(self, request: RunRequest) -> Run: ...

    @abstractmethod
    def load(self) -> Run: ...

    @abstractmethod
    def _change(self, change: Change) -> Run:
        """Apply atomically and durably. Raises ``RunNotFound``, and what ``change`` raises (then nothing changes)."""

    def begin_attempt(self) -> int:
        return self._change(_begun).attempt

    def approve(self) -> None:
        self._change(_approved)

    def write_plan(self, plan: Plan, *, attempt: int) -> None:
        self._write(_planned(plan, attempt))

    def write_roster(self, roster: Roster, *, attempt: int) -> None:
        self._write(_listed(roster, attempt))

    def write_fleet_plan(self, plan: FleetPlan, *, attempt: int) -> None:
        self._write(_fleet_planned(plan, attempt))

    def write_evidence(self, evidence: Evidence, *, attempt: int) -> None:
        self._write(_shown(evidence, attempt))

    def append(self, progress: Progress, *, attempt: int) -> None:
        self._write(_noted(progress, attempt))

    def finish(self, result: RunResult, *, attempt: int) -> None:
        self._write(_finished(result, attempt))

    def _write(self, change: Change) -> None:
        try:
            self._change(change)
        except RunNotFound as gone:
            # Whoever has an attempt has seen the run: it was removed since, and its writer has to stop.
            raise StaleAttempt(f"the run was removed: {gone}") from gone

    def _same(self, run: Run, request: RunRequest) -> Run:
        if run.request.run_uid != request.run_uid:
            raise ValueError(f"{self.location} holds run {run.request.run_uid}, not {request.run_uid}")
        return run
