"""The ``ConsumerGroupPause`` that keeps a group where its replay has ended (``until.then: Pause``).

The operator creates it once the run has committed the ends, and removes the limits of the run once the pause holds all
of them: nobody reads beyond the end in between. It belongs to the ``OffsetReset``, and goes with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from itertools import groupby
from typing import Any, Final

from tidegate.jobs.errors import RunnerFailure
from tidegate.kube.ports import (
    PAUSES,
    Conflict,
    Kube,
    KubeFailure,
    NotFound,
    Object,
    is_controlled_by,
    name_of,
    namespace_of,
)
from tidegate.reset.model.plan import Plan
from tidegate.reset.runs.seen import PauseSeen
from tidegate.reset.store import Run
from tidegate.resources.base import MAX_SELECTIONS
from tidegate.resources.conditions import PAUSED, READY, Refusal
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.partitions import MAX_ENTRIES, partition_ranges
from tidegate.resources.replay import Then, UntilSpec
from tidegate.resources.reset import ResetPhase
from tidegate.threads import in_thread

PAUSE_EXISTS: Final = "PauseExists"


def is_asked_for(until: UntilSpec | None) -> bool:
    """Whether the group is to stay paused where its replay ends."""
    return until is not None and until.then is Then.PAUSE


def pause_name(body: Object) -> str:
    """Of the pause, by its ``OffsetReset``."""
    return f"{name_of(body)}-end"


def pause_spec(body: Object, plan: Plan) -> Mapping[str, Any]:
    """Of the partitions that are replayed; of all of the topic, or of the group, where those are more than it takes."""
    spec = body["spec"]
    by_topic = groupby(sorted(plan.ends), key=lambda partition: partition.topic)
    ends = [{"topic": topic, **_listed(p.partition for p in each)} for topic, each in by_topic]
    return {
        "connectionRef": spec["connectionRef"],
        "group": plan.group_id,
        **({"partitions": ends} if len(ends) <= MAX_SELECTIONS else {}),
        "reason": f"the replay of OffsetReset {name_of(body)} has ended here (until.then: Pause)",
        "method": "Agent",
        **({"drainTimeout": spec["drainTimeout"]} if "drainTimeout" in spec else {}),
    }


def _listed(numbers: Iterable[int]) -> Mapping[str, Any]:
    ranges = partition_ranges(numbers)
    if len(ranges) > MAX_ENTRIES:
        return {}
    return {"partitions": [r.start if len(r) == 1 else f"{r.start}-{r.stop - 1}" for r in ranges]}


class PausesAtEnd:
    """Looks for the pause, creates and removes it. Raises ``KubeFailure``."""

    def __init__(self, kube: Kube, executor: Executor) -> None:
        self._kube = kube
        self._executor = executor

    async def refusal(self, body: Object, spec: OffsetResetSpec) -> Refusal | None:
        """Why a reset may not begin that could not be ended as it asks."""
        there = await self._there(body) if is_asked_for(spec.until) else None
        if there is None or is_controlled_by(there, body):
            return None
        return Refusal(PAUSE_EXISTS, _is_another(body))

    async def seen(self, body: Object) -> PauseSeen:
        """Of a group that stays at the end of its replay."""
        name, there = pause_name(body), await self._there(body)
        if there is None:
            return PauseSeen(name)
        if there["metadata"].get("deletionTimestamp"):
            return PauseSeen(name, is_there=True, waits_for=f"ConsumerGroupPause {name} is being deleted")
        if not is_controlled_by(there, body):
            return PauseSeen(name, is_there=True, waits_for=_is_another(body))
        said = {each["type"]: each for each in (there.get("status") or {}).get("conditions") or ()}
        paused, generation = said.get(PAUSED, {}), there["metadata"]["generation"]
        if paused.get("status") == "True" and paused.get("observedGeneration") == generation:
            return PauseSeen(name, is_there=True, is_paused=True)
        why = str(said.get(READY, paused).get("message") or "the operator has not looked at it yet")
        return PauseSeen(name, is_there=True, waits_for=f"ConsumerGroupPause {name} is not Paused: {why}")

    async def create(self, body: Object, run: Run | None) -> None:
        """Raises ``RunnerFailure`` where it can't be."""
        if run is None or run.plan is None:
            raise ValueError("a replay that is over has a plan")
        name = pause_name(body)
        try:
            await in_thread(self._executor, self._kube.make, PAUSES, body, name, pause_spec(body, run.plan))
        except Conflict:
            return  # the next pass sees whose it is
        except KubeFailure as failure:
            raise RunnerFailure(f"ConsumerGroupPause {name} can't be created: {failure}") from failure

    async def is_settled(self, body: Object, spec: OffsetResetSpec | None, phase: ResetPhase | None) -> bool:
        """Whether no pause is left of a run that has ended otherwise than it was asked to: it is removed then."""
        succeeded = phase is ResetPhase.SUCCEEDED
        if spec is None or not is_asked_for(spec.until) or succeeded or body["metadata"].get("deletionTimestamp"):
            return True
        there = await self._there(body)
        if there is None or there["metadata"].get("deletionTimestamp") or not is_controlled_by(there, body):
            return True
        return await in_thread(self._executor, self._kube.remove, PAUSES, there)

    async def _there(self, body: Object) -> Object | None:
        try:
            return await in_thread(self._executor, self._kube.get, PAUSES, namespace_of(body), pause_name(body))
        except NotFound:
            return None


def _is_another(body: Object) -> str:
    name = pause_name(body)
    return (
        f"spec.until.then: ConsumerGroupPause {name} exists and does not belong to this OffsetReset: delete it, or "
        "create an OffsetReset with another name"
    )
