"""The ``OffsetReset`` that would skip a stuck record: prepared, and taken back once the group gets past the record.

It waits for an ``OffsetResetApproval``. Its target is an offset, not a number of records, so that it means the same
record whenever it is applied; and a plan that was approved is refused once the group has passed its target, or has gone
back, so that more would be skipped (``tidegate.reset.applying.plan_check``).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from tidegate.connection.allow import dead_letter_not_allowed
from tidegate.connection.freezing import held_back
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import (
    RESETS,
    Conflict,
    Kube,
    NotFound,
    Object,
    is_controlled_by,
    label_of,
    name_of,
    namespace_of,
)
from tidegate.offset_reset.reading import status_is_readable, status_of
from tidegate.policy.feature import PolicyView
from tidegate.resources.policy import reset_name_problem
from tidegate.resources.reset import ResetPhase
from tidegate.resources.stuck_records import MAX_STUCK, SKIP_PREFIX
from tidegate.stuck.judging import Verdict
from tidegate.stuck.told import Known, Stuck, reset_id
from tidegate.threads import in_thread

_KEPT: Final = "168h"
"""For how long it waits for an approval, and is kept after its end."""
_LOOK_S: Final = 30.0
_SHARED: Final = (
    "No reset is prepared: every member is stuck at a different record, so something that they share may have failed"
)
_UNTOUCHED: Final = (None, ResetPhase.PENDING, ResetPhase.PLANNING, ResetPhase.AWAITING_APPROVAL)


class _Made(Enum):
    """What came of making one. ``NOT_YET``: an earlier one of its name is just being deleted."""

    IS_THERE = auto()
    IS_ANOTHER = auto()
    NOT_YET = auto()


class Skips:
    """Belongs to the event loop's thread. All calls raise ``KubeFailure``."""

    def __init__(self, kube: Kube, executor: Executor) -> None:
        self._kube, self._executor = kube, executor

    async def look(self, policy: PolicyView, known: Known, now_s: float) -> None:
        """Notice now and then which of those that the status names somebody has deleted. ``now_s``: monotonic."""
        if known.offers_s is not None and now_s - known.offers_s < _LOOK_S:
            return
        known.offers_s = now_s
        for partition, stuck in known.longest_first()[:MAX_STUCK]:
            if stuck.made and not stuck.declined and await self._there(policy, stuck.reset) is None:
                known.stuck[partition] = replace(stuck, declined=True)

    async def prepare(self, policy: PolicyView, known: Known) -> str:
        """Create what is missing, each once: one that somebody has deleted was declined. Which ones are to be created
        is written down a pass before. Returns why none is created, where that is so."""
        if known.everybody_stands:
            known.withdraw_all()
            return _SHARED
        note, itself = _cannot(policy), ""
        for partition, stuck in sorted(known.stuck.items()):
            name = f"{name_of(policy.body)}-{reset_id(policy.group, partition, stuck)}"
            is_decided = stuck.reset == name  # somebody may have edited what is remembered
            if stuck.verdict is not Verdict.STUCK or (stuck.made and is_decided) or note:
                continue
            if partition.topic == _dead_letters(policy):
                # The API server would refuse it, and nothing else would be prepared or taken back.
                itself = f"No reset is prepared for {partition}: it is in the dead-letter topic itself"
                continue
            if not is_decided:
                # One that is yet to be taken back is not there to stay.
                if name not in known.withdrawn:
                    known.stuck[partition] = replace(stuck.without_reset(), reset=name)
                continue
            made = await self._make(policy, partition, stuck)
            if made is _Made.IS_ANOTHER:
                return (
                    f"No reset is prepared: OffsetReset {stuck.reset} exists and does not belong to this policy. "
                    "Delete it"
                )
            known.stuck[partition] = replace(stuck, made=made is _Made.IS_THERE)
        return note or itself

    async def _make(self, policy: PolicyView, partition: TopicPartition, stuck: Stuck) -> _Made:
        try:
            await in_thread(
                self._executor, self._kube.make, RESETS, policy.body, stuck.reset, skip_spec(policy, partition, stuck)
            )
        except Conflict:
            there = await self._there(policy, stuck.reset)  # a pass before a crash has made it
            if there is None or there["metadata"].get("deletionTimestamp"):
                return _Made.NOT_YET
            return _Made.IS_THERE if is_controlled_by(there, policy.body) else _Made.IS_ANOTHER
        return _Made.IS_THERE

    async def withdraw(self, policy: PolicyView, known: Known) -> None:
        """Delete those that were not approved; what has begun is ended by whoever looks after it."""
        offered = f"{name_of(policy.body)}-{SKIP_PREFIX}"
        known.withdrawn = frozenset(name for name in known.withdrawn if name.startswith(offered))
        for name in sorted(known.withdrawn):
            there = await self._there(policy, name)
            if there is not None and not _is_untouched(there, policy.body):
                there = None
            # Nothing is deleted where it has changed since: the next pass looks again.
            if there is None or await in_thread(self._executor, self._kube.remove, RESETS, there):
                known.withdrawn -= {name}

    async def _there(self, policy: PolicyView, name: str) -> Object | None:
        try:
            return await in_thread(self._executor, self._kube.get, RESETS, namespace_of(policy.body), name)
        except NotFound:
            return None


def skip_spec(policy: PolicyView, partition: TopicPartition, stuck: Stuck) -> Mapping[str, Any]:
    """Of the OffsetReset that has the group go on behind the record."""
    letters = _dead_letters(policy)
    return {
        "connectionRef": policy.body["spec"]["connectionRef"],
        "group": policy.group,
        "partitions": [{"topic": partition.topic, "partitions": [partition.partition]}],
        "to": {"offset": stuck.head.offset + 1},
        "approval": "Manual",
        # Nobody has asked for it: whoever approves it is somebody else.
        "requester": f"OffsetResetPolicy {label_of(policy.body)}",
        "deadline": _KEPT,
        "ttlAfterFinished": _KEPT,
        "evidence": {"level": "Counts"},
        **({"deadLetter": {"topic": letters}} if letters else {}),
    }


def _dead_letters(policy: PolicyView) -> str:
    """The topic to which prepared resets copy what they skip; empty: to none."""
    spec = policy.spec.stuck_records
    return spec.dead_letter.topic if spec is not None and spec.dead_letter is not None else ""


def _cannot(policy: PolicyView) -> str:
    """Why no reset is prepared."""
    why = held_back(policy.live)
    if why is not None:
        return f"No reset is prepared: {why.message}"
    path, live = "spec.stuckRecords.deadLetter.topic", policy.live
    message = dead_letter_not_allowed(live.label, live.allow, live.own_topics, path, _dead_letters(policy))
    if message is not None:
        return f"No reset is prepared: {message}"
    problem = reset_name_problem(name_of(policy.body), "skip-000000000000")
    return f"No reset is prepared: {problem}" if problem is not None else ""


def _is_untouched(there: Object, policy: Object) -> bool:
    """Whether it is the policy's own, and nobody has approved it."""
    if not is_controlled_by(there, policy) or not status_is_readable(there):
        return False
    status = status_of(there)
    return status.phase in _UNTOUCHED and status.approval is None and status.approved_digest is None
