"""What a person wants to know of a fleet's stored plan before approving it. Pure.

Foreign texts go through ``visible`` here, as in ``tidegate.cli.review``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidegate.cli.review import approval_command, described
from tidegate.printable import visible
from tidegate.reset.model.fleet import GroupPlan
from tidegate.reset.runs.progress import phase_of
from tidegate.reset.runs.waves import waves_of
from tidegate.reset.store import Run
from tidegate.resources.durations import format_duration
from tidegate.resources.reset import FailurePolicy, ResetPhase


@dataclass(frozen=True, slots=True)
class FleetReview:
    """The plan of a fleet as it is to be shown: every group, by waves, and those that move most records first.

    ``waves``: of each of ``planned``, the wave that it is reset in, from 1; empty: all are reset as soon as possible.
    """

    reset: str
    run_id: str
    groups: str
    phase: ResetPhase
    target: str
    made_at: datetime
    age: timedelta
    planned: tuple[GroupPlan, ...]
    refused: tuple[GroupPlan, ...]
    all_or_none: bool
    notes: tuple[str, ...]
    approval: str | None
    outcome: str | None
    waves: tuple[int, ...] = ()
    pause: timedelta = timedelta(0)

    @property
    def partitions(self) -> int:
        return sum(g.partitions for g in self.planned)

    @property
    def moved(self) -> int:
        return sum(g.moved for g in self.planned)

    @property
    def clamped(self) -> int:
        return sum(g.clamped for g in self.planned)

    @property
    def replayed(self) -> int:
        return sum(g.records_replayed for g in self.planned)

    @property
    def skipped(self) -> int:
        return sum(g.records_skipped for g in self.planned)

    @property
    def on_failure(self) -> str:
        """What becomes of the others when one group fails, as a sentence."""
        if self.all_or_none:
            return "Each group is reset in its own transaction; if one fails, all are rolled back"
        return "Each group is reset in its own transaction; if one fails, the others are still reset as planned"

    @property
    def rollout(self) -> str | None:
        """In how many waves it is reset, as a sentence; ``None``: in none."""
        if not self.waves:
            return None
        pause = f", {format_duration(self.pause)} apart" if self.pause else ""
        return f"It is rolled out in {max(self.waves):,} waves{pause}; once a group has failed, no further group begins"


def fleet_review(namespace: str, name: str, run: Run, now: datetime, context: str | None = None) -> FleetReview:
    """``context``: of the kubeconfig, where one was given. Raises ``ValueError`` for a run without a fleet's plan."""
    plan, asked = run.fleet, run.request.fleet
    if plan is None or asked is None:
        raise ValueError(f"run {run.request.run_id} has no plan of a fleet")
    phase = run.result.phase if run.result is not None else phase_of(run)
    order = waves_of(asked.waves, plan.planned) if asked.waves is not None else ()
    wave = {group: number for number, groups in enumerate(order, 1) for group in groups}
    planned = [(wave.get(g.group_id, 0), _shown(g)) for g in plan.groups if not g.refused]
    planned.sort(key=lambda each: (each[0], -each[1].records_replayed - each[1].records_skipped, each[1].group_id))
    return FleetReview(
        reset=visible(f"{namespace}/{name}"),
        run_id=visible(plan.run_id),
        groups=visible(", ".join(asked.patterns)),
        phase=phase,
        target=visible(described(run.request.target, plan.made_at)),
        made_at=plan.made_at,
        age=now - plan.made_at,
        planned=tuple(group for _, group in planned),
        refused=tuple(_shown(g) for g in plan.refused),
        all_or_none=asked.failure_policy is FailurePolicy.ALL,
        notes=tuple(map(visible, plan.notes)),
        approval=approval_command(namespace, name, run.digest, context)
        if phase is ResetPhase.AWAITING_APPROVAL
        else None,
        outcome=None if run.result is None else visible(f"{run.result.phase}: {run.result.message}"),
        waves=tuple(number for number, _ in planned) if asked.waves is not None else (),
        pause=asked.waves.pause if asked.waves is not None else timedelta(0),
    )


def _shown(group: GroupPlan) -> GroupPlan:
    return replace(group, group_id=visible(group.group_id), message=visible(group.message))
