"""How large the plan of a reset may be, by the quota of its connection."""

from __future__ import annotations

from dataclasses import replace

from tidegate.connection.live import Live
from tidegate.kube.ports import Object
from tidegate.offset_reset.reading import status_of
from tidegate.reset.model.request import PlanLimits
from tidegate.reset.runs.quota import Size, limits_of, too_large
from tidegate.reset.store import Run
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec


def limits_of_undo(every: PlanLimits, undone: Run, *, again: bool) -> PlanLimits | None:
    """What the plan of an undo may do: with all partitions that the run had, read again what that had skipped, and as
    much as ``every`` reset may. ``again``: this was read again once before."""
    if every.records_replayed is None:
        return None
    skipped = 0 if again else _skipped(undone)
    beside = f" (plus the {skipped:,} record(s) that reset {undone.request.run_id} had skipped)" if skipped else ""
    records = every.records_replayed + skipped
    return replace(every, set_by=f"{every.set_by}{beside}", partitions=None, records_replayed=records)


def _skipped(undone: Run) -> int:
    if undone.plan is not None:
        return undone.plan.records_skipped
    if undone.fleet is None or undone.result is None:
        return 0
    ended = dict(undone.result.ends)
    return sum(group.records_skipped for group in undone.fleet.groups if group.group_id in ended)


def too_large_by_now(body: Object, spec: OffsetResetSpec, live: Live, *, again: bool) -> Refusal | None:
    """Why a plan that waits for approval may not be applied: the quota may have become smaller since it was made.

    That of an undo keeps the limits that it was made within, unless another one has undone the same ``again``.
    """
    plan, limits = status_of(body).plan, limits_of(live.allow.quota, live.label)
    if plan is None or limits is None or (spec.to.undo is not None and not again):
        return None
    size = Size(plan.partitions or 0, plan.records_replayed or 0)
    refused = too_large(size, limits if spec.to.undo is None else replace(limits, partitions=None))
    return None if refused is None else Refusal(refused.reason, refused.message)
