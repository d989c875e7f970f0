"""A policy's ``spec.reset``: the OffsetReset that it asks for is created once, and followed.

That an id was executed is told by three things, each of which outlives what comes before it: the OffsetReset that is
there, the policy's status, and the control topic of the Kafka cluster, for a policy that was deleted and restored or
moved to another Kubernetes cluster. The last of them is written before the reset changes anything
(:mod:`tidegate.offset_reset.once`, by :mod:`tidegate.control.run_records`).
"""

from __future__ import annotations

from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.sharing import is_foreign, not_usable
from tidegate.control.records import Run
from tidegate.control.run_records import executed
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.objects import version_of
from tidegate.kube.ports import (
    RESETS,
    Conflict,
    EventType,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    connection_named,
    is_controlled_by,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_reset.reading import status_is_readable, status_of
from tidegate.policy.draft import Draft
from tidegate.policy.parts import Parts
from tidegate.policy.template import (
    is_outdated,
    ran_before,
    requested,
    reset_name,
    reset_spec,
    run_key,
)
from tidegate.reset.runs.reasons import ALREADY_RAN, UNREADABLE_STATUS, WAITING_FOR_CONNECTION
from tidegate.resources.conditions import COMPLETE, RESET, STALLED, ConditionStatus, find_condition, is_true
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.policy import OffsetResetPolicySpec
from tidegate.resources.reset import RequestedReset, ResetPhase, ResetSpec, has_ended
from tidegate.threads import in_thread

NO_RESET: Final = "NoReset"
SUPERSEDED: Final = "Superseded"
RESET_EXISTS: Final = "OffsetResetExists"
POLICY_CHANGED: Final = "PolicyChanged"
NOT_CREATED: Final = "NotCreated"
NOT_DELETED: Final = "NotDeleted"
BEGUN_BY_EARLIER_VERSION: Final = "BegunByEarlierVersion"

_LOOK_S: Final = 2.0
"""For what nobody tells of: a connection that becomes ready, an OffsetReset that is gone."""

_FOLLOW_S: Final = 300.0
"""A watch tells of what becomes of an OffsetReset; this is for what it has missed."""

_MISSED_S: Final = 500.0
"""Two passes, after which an OffsetReset is read although the watch has told of it: whether the watch is well
``/healthz`` tells, for all resources together."""

_TRY_AGAIN_S: Final = 10.0

_UNTOUCHED: Final = (ResetPhase.PENDING, ResetPhase.AWAITING_APPROVAL)
"""Phases in which no job is at work."""


class Requesting:
    """Looks after what a policy says of its reset."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._created: dict[str, tuple[int, Object]] = {}
        """By policy, its generation when this process last created an OffsetReset, and the spec of that as stored."""
        self._read: dict[str, tuple[str, float, Object | None]] = {}
        """By policy, the name of the OffsetReset that was read or created last, when (monotonic seconds), and what was
        there."""

    def forget(self, uid: str) -> None:
        """The policy is gone."""
        self._created.pop(uid, None)
        self._read.pop(uid, None)

    async def ask(self, body: Object, spec: OffsetResetPolicySpec, draft: Draft) -> None:
        """Create, follow or take back the policy's OffsetReset. Raises ``KubeFailure`` and ``InvalidResource``."""
        known, wanted = draft.status.reset, spec.reset
        if known is not None and (wanted is None or wanted.id != known.id):
            if not await self._taken_back(body, known, wanted, draft):
                return
            known = None
        if wanted is None:
            draft.well(NO_RESET, "no reset is asked for")
            return
        name = reset_name(name_of(body), wanted.id)
        if wanted.to.undo is not None:
            reset_name(name_of(body), wanted.to.undo, "spec.reset.to.undo")
        if known is not None and known.name is None and known.phase in _UNTOUCHED:
            known = None  # an earlier version had begun it, and changed nothing
        if known is not None and (known.name is None or has_ended(known.phase)):
            if known.phase is not None or not await self._has_ended_since(body, known, draft):
                _rest(draft, known)
            return
        there = await self._there(body, name)
        if there is not None and is_controlled_by(there, body):
            await self._look_after(body, there, wanted, draft)
        elif await self._may_create(body, wanted, known, draft):
            if there is not None:
                _is_taken(there, wanted, draft)
            elif known is None or known.name != name:
                _is_about_to_create(wanted, name, draft)
            else:
                await self._create(body, wanted, name, draft)

    async def _look_after(self, body: Object, there: Object, wanted: ResetSpec, draft: Draft) -> None:
        """The policy's own OffsetReset, which is there."""
        if not status_is_readable(there):
            _is_unreadable(there, draft)
            return
        status = status_of(there)
        # Where the API server has dropped a field that it does not know, another one would be no different.
        is_newest = self._created.get(uid_of(body)) == (draft.generation, there["spec"])
        if not is_newest and is_outdated(there, status, body):
            await self._made_anew(there, wanted, draft)
            return
        _follow(there, status, wanted, draft)

    async def _taken_back(self, body: Object, known: RequestedReset, wanted: ResetSpec | None, draft: Draft) -> bool:
        """Whether the reset that was asked for before is over; one that is not is deleted, which rolls it back."""
        if known.name is None or has_ended(known.phase):
            return True
        there = await self._there(body, known.name, absent_s=0)
        if there is None or not is_controlled_by(there, body):
            draft.show(None)
            return True
        if not status_is_readable(there):
            _is_unreadable(there, draft)
            return False
        seen = requested(there, status_of(there), known.id)
        draft.show(seen)
        if has_ended(seen.phase):
            return True
        instead = f"now asks for reset {wanted.id}" if wanted is not None else "no longer asks for a reset"
        message = (
            f"the policy {instead}, but OffsetReset {known.name} has not ended: it is deleted, which rolls it back"
        )
        draft.moving(SUPERSEDED, message)
        draft.reset_is(None, SUPERSEDED, message)
        if there["metadata"].get("deletionTimestamp"):
            draft.look_in(_LOOK_S)
        elif await self._deleted(there, known.id, draft):
            draft.tell(EventType.WARNING, SUPERSEDED, message, f"{known.id}/{SUPERSEDED}")
        return False

    async def _may_create(
        self,
        body: Object,
        wanted: ResetSpec,
        known: RequestedReset | None,
        draft: Draft,
    ) -> bool:
        """Whether the id was never executed; what is so instead is said. ``known``: what the status says of it."""
        name = reset_name(name_of(body), wanted.id)
        earlier = next((entry for entry in draft.status.history if entry.id == wanted.id), None)
        if earlier is not None:
            seen = RequestedReset(id=earlier.id, phase=earlier.phase, finished_at=earlier.finished_at)
            _is_over(draft, seen, f"reset {wanted.id} was run by an earlier version of Tidegate")
            return False
        began = known is not None and known.started_at is not None
        live = self._parts.live.used_by(body)
        if began and (live is None or live.trouble is not None):
            _has_run(draft, ran_before(wanted.id, known, None))  # what Kafka says of its end is asked later
            return False
        if live is None or live.trouble is not None:
            _wait(draft, wanted, name, _not_ready(body, live))
            return False
        try:
            ran = await self._executed(body, wanted.id, live)
        except KafkaFailure as failure:
            _wait(draft, wanted, name, f"could not find out whether reset {wanted.id} ran before ({failure})")
            return False
        if ran is not None or began:
            _has_run(draft, ran_before(wanted.id, known, ran))
            return False
        return True

    async def _has_ended_since(self, body: Object, known: RequestedReset, draft: Draft) -> bool:
        """Whether it is known by now how it ended: it may have been under way when the policy heard of it."""
        live = self._parts.live.used_by(body)
        if live is None or live.trouble is not None:
            return False
        try:
            ran = await self._executed(body, known.id, live)
        except KafkaFailure:
            return False
        if ran is None or ran.outcome is None:
            return False
        _has_run(draft, ran_before(known.id, known, ran))
        return True

    async def _made_anew(self, there: Object, wanted: ResetSpec, draft: Draft) -> None:
        """Delete it, for the next pass to create it; nothing happens where it has begun meanwhile."""
        message = (
            f"OffsetReset {name_of(there)} has not begun and no longer matches the policy, so it is deleted "
            "and created again"
        )
        draft.moving(POLICY_CHANGED, message)
        draft.reset_is(None, POLICY_CHANGED, message)
        if await self._deleted(there, wanted.id, draft):
            draft.tell(EventType.NORMAL, POLICY_CHANGED, message, f"{wanted.id}/{draft.generation}/{POLICY_CHANGED}")

    async def _deleted(self, there: Object, reset_id: str, draft: Draft) -> bool:
        """Whether the OffsetReset is deleted by this; one that has changed just then is looked at again."""
        try:
            deleted = await in_thread(self._parts.executor, self._parts.kube.remove, RESETS, there)
        except KubeUnavailable:
            raise
        except KubeFailure as failure:  # such as a policy of admission, which is no reason to keep nothing else
            message = f"OffsetReset {name_of(there)} can't be deleted: {failure}. This is retried"
            draft.moving(NOT_DELETED, message)
            draft.reset_is(None, NOT_DELETED, message)
            draft.tell(EventType.WARNING, NOT_DELETED, message, f"{reset_id}/{draft.generation}/{NOT_DELETED}")
            draft.look_in(_TRY_AGAIN_S)
            return False
        draft.look_in(0)
        return deleted

    async def _create(self, body: Object, wanted: ResetSpec, name: str, draft: Draft) -> None:
        kube = self._parts.kube
        self._read.pop(uid_of(body), None)  # it may be made, and the answer be lost
        try:
            made = await in_thread(self._parts.executor, kube.make, RESETS, body, name, reset_spec(body))
        except Conflict:
            draft.look_in(0)  # somebody was quicker: a pass before a crash, or a user
            return
        except KubeFailure as failure:
            message = f"OffsetReset {name} can't be created: {failure}. This is retried"
            draft.moving(NOT_CREATED, message)
            draft.reset_is(None, NOT_CREATED, message)
            draft.tell(EventType.WARNING, NOT_CREATED, message, f"{wanted.id}/{draft.generation}/{NOT_CREATED}")
            draft.look_in(_TRY_AGAIN_S)
            return
        self._created[uid_of(body)] = (draft.generation, made["spec"])
        self._read[uid_of(body)] = name, self._parts.clock.monotonic(), made
        draft.tell(EventType.NORMAL, "Created", f"created OffsetReset {name}", f"{wanted.id}/Created")
        _follow(made, status_of(made), wanted, draft)

    async def _there(self, body: Object, name: str, *, absent_s: float = _LOOK_S) -> Object | None:
        """The OffsetReset of this name as a watch has told of it; read where none has, or not for a while.

        An older state than the API server's does no harm: it is deleted only if it is still as it is here, and created
        only if there is none. ``absent_s``: for how long it counts as absent once it was; 0 for whoever forgets it.
        """
        uid, now_s = uid_of(body), self._parts.clock.monotonic()
        told = self._parts.told_of_reset(namespace_of(body), name)
        read_name, read_s, read = self._read.get(uid, ("", 0.0, None))
        if read_name != name:
            read_s, read = -_MISSED_S, None
        if told is not None and read is not None and uid_of(told) == uid_of(read) and now_s - read_s < _MISSED_S:
            return max(told, read, key=version_of)
        if told is None and read is None and now_s - read_s < absent_s:
            return None
        try:
            read = await in_thread(self._parts.executor, self._parts.kube.get, RESETS, namespace_of(body), name)
        except NotFound:
            read = None
        self._read[uid] = name, now_s, read
        return read

    async def _executed(self, body: Object, reset_id: str, live: Live) -> Run | None:
        return await in_thread(self._parts.patient_executor, executed, live.kafka.control, run_key(body, reset_id))


def _not_ready(body: Object, live: Live | None) -> str:
    if live is None and is_foreign(body):
        return not_usable(body)
    why = live.trouble[0] if live is not None and live.trouble is not None else "it is not there"
    return f"KafkaConnection {live.label if live is not None else connection_named(body)[1]} is not ready ({why})"


def _is_about_to_create(wanted: ResetSpec, name: str, draft: Draft) -> None:
    """Written down first, so that it is taken back also where the policy asks for something else just then."""
    message = f"OffsetReset {name} is about to be created"
    draft.show(RequestedReset(id=wanted.id, name=name, phase=ResetPhase.PENDING))
    draft.moving(ResetPhase.PENDING.value, message)
    draft.reset_is(None, ResetPhase.PENDING.value, message)
    draft.look_in(0)


def _is_taken(there: Object, wanted: ResetSpec, draft: Draft) -> None:
    name = name_of(there)
    message = (
        f"OffsetReset {name} already exists, but was not created by this policy: give spec.reset.id another value, or "
        "delete that OffsetReset"
    )
    draft.show(RequestedReset(id=wanted.id, name=name, phase=ResetPhase.PENDING))
    draft.reset_is(False, RESET_EXISTS, message)
    draft.stuck(RESET_EXISTS, message)
    draft.tell(EventType.WARNING, RESET_EXISTS, message, f"{wanted.id}/{draft.generation}/{RESET_EXISTS}")
    draft.look_in(_TRY_AGAIN_S)


def _is_unreadable(there: Object, draft: Draft) -> None:
    """What is known of it stays; it is neither followed nor deleted, since nobody could roll it back."""
    message = (
        f"this version of Tidegate can't read the status of OffsetReset {name_of(there)}, so nothing is done: run the "
        "version that wrote it, or delete that OffsetReset and look at the group's offsets"
    )
    draft.reset_is(None, UNREADABLE_STATUS, message)
    draft.stuck(UNREADABLE_STATUS, message)
    draft.look_in(_TRY_AGAIN_S)


def _follow(there: Object, status: OffsetResetStatus, wanted: ResetSpec, draft: Draft) -> None:
    name = name_of(there)
    seen, said = requested(there, status, wanted.id), find_condition(status.conditions, COMPLETE)
    draft.show(seen)
    phase = (seen.phase or ResetPhase.PENDING).value
    reason = said.reason if said is not None else phase
    message = f"OffsetReset {name}: {said.message if said is not None else 'it was created'}"
    draft.reset_is(said.status if said is not None else None, reason, message)
    if has_ended(seen.phase):
        draft.well(phase, message)
    elif is_true(status.conditions, STALLED):  # somebody has to act
        draft.stuck(reason, message)
        draft.look_in(_FOLLOW_S)
    else:
        draft.moving(reason, message)
        draft.look_in(_FOLLOW_S)


def _rest(draft: Draft, known: RequestedReset) -> None:
    """It has ended: only the generation may be news."""
    said = find_condition(draft.status.conditions, RESET)
    phase = known.phase.value if known.phase is not None else ALREADY_RAN
    if known.name is None and known.phase is not None and not has_ended(known.phase):
        message = (
            f"reset {known.id} was begun by an earlier version of Tidegate, and this one can't end it: look at the "
            "group's offsets, and give spec.reset.id a new value to reset them"
        )
        draft.reset_is(None, BEGUN_BY_EARLIER_VERSION, message)
        draft.stuck(BEGUN_BY_EARLIER_VERSION, message)
        return
    if said is None:
        draft.well(phase, f"reset {known.id} ended as {phase}")
        return
    draft.reset_is(said.status, said.reason, said.message)
    draft.well(said.reason if said.reason == ALREADY_RAN else phase, said.message)


def _has_run(draft: Draft, seen: RequestedReset) -> None:
    """Without an OffsetReset that would say more of it."""
    _is_over(draft, seen, f"reset {seen.id} {_when(seen)}, and this policy has no OffsetReset for it")


def _is_over(draft: Draft, seen: RequestedReset, why: str) -> None:
    """The id does not run again."""
    message = f"{why}. It does not run again: give spec.reset.id a new value to reset the group again"
    succeeded = None if seen.phase is None else ConditionStatus(str(seen.phase is ResetPhase.SUCCEEDED))
    draft.show(seen)
    draft.reset_is(succeeded, ALREADY_RAN, message)
    draft.well(ALREADY_RAN, message)
    draft.tell(EventType.WARNING, ALREADY_RAN, message, f"{seen.id}/{draft.generation}/{ALREADY_RAN}")


def _wait(draft: Draft, wanted: ResetSpec, name: str, why: str) -> None:
    known = draft.status.reset
    if known is None or known.id != wanted.id or known.name != name:
        draft.show(RequestedReset(id=wanted.id, name=name, phase=ResetPhase.PENDING))
    message = f"{why}. OffsetReset {name} is not created until this is resolved"
    draft.moving(WAITING_FOR_CONNECTION, message)
    draft.reset_is(None, WAITING_FOR_CONNECTION, message)
    draft.look_in(_LOOK_S)


def _when(seen: RequestedReset) -> str:
    ended = f"and ended as {seen.phase.value}" if seen.phase is not None else "and is not known to have ended"
    return f"began at {seen.started_at.isoformat() if seen.started_at is not None else 'an unknown time'} {ended}"
