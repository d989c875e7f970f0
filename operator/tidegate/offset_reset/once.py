"""That a reset which a policy asks for by an id runs once, whoever asks: by the records in the control topic.

They outlive the policy, its OffsetResets and the Kubernetes cluster (``tidegate.control.run_records``). An
``OffsetReset`` that somebody creates without a policy has no id, and runs once because there is one of its name.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from tidegate.connection.live import Live
from tidegate.control.records import Run
from tidegate.control.run_records import begin, executed
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import POLICIES, NotFound, Object, label_of, name_of, uid_of
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import ended_run, epoch_ms, policy_of
from tidegate.reset.runs import reasons
from tidegate.reset.runs.request import run_uid
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import ApprovalMode, has_ended
from tidegate.resources.stuck_records import SKIP_PREFIX
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)


class Once:
    """What the control topics know of the ids of policies."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def not_asked_for(self, body: Object) -> Refusal | None:
        """Why a reset that seems to be a policy's must not begin: there is no such policy, or it asks for another id.

        An operator's process that was cut off may create one late, and whoever may create resets can name any owner. A
        skip of a stuck record waits for an approval of its plan, which says what it would do by then.
        """
        policy = policy_of(body)
        if policy is None:
            return None
        key = policy.key
        try:
            found = await in_thread(self._parts.executor, self._parts.kube.get, POLICIES, key.namespace, key.policy)
        except NotFound:
            found = None
        asked = ((found.get("spec") or {}).get("reset") or {}).get("id") if found is not None else None
        if found is not None and uid_of(found) == policy.uid and (asked == key.id or _is_offered(body, found, key.id)):
            return None
        return Refusal(
            reasons.NOT_ASKED_FOR,
            f"OffsetResetPolicy {key.policy} owns this OffsetReset but does not ask for reset {key.id}, so this "
            "OffsetReset does not begin: delete it",
        )

    async def ran_before(self, body: Object, live: Live) -> Refusal | None:
        """Why it does not run: its id was executed, here or by another operator. Raises ``KafkaFailure``."""
        policy = policy_of(body)
        if policy is None:
            return None
        ran = await in_thread(self._parts.patient_executor, executed, live.kafka.control, policy.key)
        if ran is None or _is_its_own(ran, body):
            return None
        ended = f"and ended as {ran.outcome.value}" if ran.outcome is not None else "and may still be in progress"
        return Refusal(
            reasons.ALREADY_RAN,
            f"OffsetResetPolicy {policy.key.policy} has asked for reset {policy.key.id} before: it began at "
            f"{datetime.fromtimestamp(ran.started_ms // 1000, UTC).isoformat()} {ended}. An id runs only once: "
            "give spec.reset.id of the policy a new value",
        )

    async def begins(self, body: Object, status: OffsetResetStatus) -> bool:
        """Whether the run is its own to execute, which is written down for good. Raises ``KafkaFailure``."""
        policy, live = policy_of(body), self._parts.live.used_by(body)
        if policy is None:
            return True
        if live is None or status.started_at is None:
            return False
        control = live.kafka.control
        run = Run(run_uid(uid_of(body), name_of(body)), epoch_ms(status.started_at))
        known = await in_thread(self._parts.patient_executor, begin, control, policy.key, run)
        return _is_its_own(known, body)

    async def note_end(self, body: Object, status: OffsetResetStatus, now: datetime) -> None:
        """Say how it ended. That it began is enough to keep it from running again, so this may fail, and is not done
        through a connection that only observes."""
        policy, live = policy_of(body), self._parts.live.to_finish(body)
        if policy is None or live is None or status.started_at is None or status.phase is None:
            return
        if not has_ended(status.phase):
            return
        control = (live.finishing if live.withdrawn else live.kafka).control
        run = ended_run(body, status, status.finished_at or now)

        def note() -> None:
            known = executed(control, policy.key)
            if known is not None and not known.is_newer and _is_its_own(known, body):
                control.note_runs({policy.key: run})

        try:
            await in_thread(self._parts.patient_executor, note)
        except KafkaFailure as failure:
            _log.warning("%s: could not write to the control topic how the reset ended: %s", label_of(body), failure)


def _is_offered(body: Object, policy: Object, reset_id: str) -> bool:
    """Whether it is a skip of a stuck record, as the policy offers them: it changes nothing unless it is approved."""
    offers = ((policy.get("spec") or {}).get("stuckRecords") or {}).get("prepareSkip") is True
    is_manual = (body.get("spec") or {}).get("approval") == ApprovalMode.MANUAL.value
    return offers and is_manual and reset_id.startswith(SKIP_PREFIX)


def _is_its_own(ran: Run, body: Object) -> bool:
    """Whether this resource's own run has begun, and not ended."""
    return ran.uid == run_uid(uid_of(body), name_of(body)) and ran.outcome is None
