"""What a fleet's run is carried out through, and the documents of its groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from tidegate.clock import Clock
from tidegate.kafka.errors import KafkaFailure
from tidegate.reset.binding import Binding, Check
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.model.fleet import FleetPlan
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import job
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.fleet_groups import Resets, side_by_side
from tidegate.reset.store import Run, RunStore

_T = TypeVar("_T")

OpenGroup = Callable[[str, Check], RunStore]
"""The document of the run with this uid, beneath the fleet's, and what it has to be."""

PlanGroups = Callable[[Sequence[RunRequest], datetime, job.Tell], Iterator[Plan | PlanRefused | KafkaFailure]]
"""A plan for each request, in their order. Raises ``PlanRefused`` for what concerns the whole fleet, and nothing that
concerns one group only."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a fleet is carried out through. ``open_undone``: documents beneath that of the run which is undone.

    ``readers``: how many groups' documents are read or written at a time.
    """

    open_group: OpenGroup
    open_undone: OpenGroup
    group_ids: Callable[[], Collection[str]]
    plan: PlanGroups
    resets: Resets
    clock: Clock
    readers: int = 16


def opened_groups(fleet: Run, plan: FleetPlan, parts: Parts) -> dict[str, RunStore]:
    """The documents of the groups that have a plan."""
    uid = fleet.request.run_uid
    return {g: parts.open_group(group_run_uid(uid, g), Binding(digest)) for g, digest in plan.digests.items()}


def loaded_groups(opened: Mapping[str, RunStore], parts: Parts) -> dict[str, Run]:
    """Their runs, by group, several read at a time."""
    found: dict[str, Run] = {}

    def load(group_id: str) -> None:
        found[group_id] = opened[group_id].load()

    for_all(sorted(opened), load, parts)
    return found


def for_all(items: Sequence[_T], do: Callable[[_T], None], parts: Parts) -> None:
    """Several at a time. Raises what the first raised; then not all are done."""

    def done(item: _T) -> bool:
        do(item)
        return True

    side_by_side(items, done, threads=parts.readers)


def beneath(document: str, confines: Confines, open_document: Callable[[str], RunStore]) -> OpenGroup:
    """The groups' documents beneath the one of a fleet's run, each within its confines."""

    def opened(uid: str, check: Check) -> RunStore:
        group_id = uid.split("/", 2)[2]
        return ConfinedRunStore(open_document(group_document(document, uid)), confines.of_group(uid, group_id), check)

    return opened
