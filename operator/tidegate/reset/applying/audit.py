"""What a run changes is recorded in the audit topic, in the transaction that changes it (ADR 43)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from tidegate.audit.aborting import abort_records
from tidegate.audit.codec import encode_change
from tidegate.audit.records import Action, Attribution, Change, Moved, State
from tidegate.cluster import Kafka
from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.ports import GroupTransaction
from tidegate.reset.applying.failures import NotRecorded
from tidegate.reset.applying.replay import ENDINGS
from tidegate.reset.applying.state import RunState
from tidegate.reset.applying.timing import DeadlinePassed, Pace
from tidegate.reset.binding import digest_of
from tidegate.reset.model.targets import Undo
from tidegate.reset.store import Run

_log = logging.getLogger(__name__)

_REQUIRED_S: Final = 4.0
"""How long a record may take: less than its transaction lasts."""
_WANTED_S: Final = 1.5
"""Where the run goes on without: owners may stand still meanwhile."""
_AGAIN_S: Final = 10.0
"""After a record that could not be written, none is tried for so long."""

Begin = Callable[[], AbstractContextManager[GroupTransaction]]


class RunAudit:
    """Of one run on one group, for one writer of it. Records nothing where the run has no attribution."""

    def __init__(self, kafka: Kafka, pace: Pace, run: Run, attempt: int, state: RunState) -> None:
        self._kafka = kafka
        self._pace = pace
        self._run = run
        self._attempt = attempt
        self._state = state
        self._attribution: Attribution | None = run.attribution
        self._changes = 0
        self._not_before_s = float("-inf")
        self._unrecorded = 0
        self._why = ""

    def prepare(self, tell_waiting: Callable[[str], None]) -> None:
        """Before anybody is made to stand still. Raises ``NotRecorded`` where records are required and can't be
        written by the run's deadline; ``tell_waiting`` is told what is waited for, once."""
        attribution = self._attribution
        away: Unavailable | None = None
        if attribution is None:
            return

        def check() -> None:
            nonlocal away
            try:
                self._kafka.audit.check_writable(attribution.topic.name)
            except Unavailable as failure:
                if away is None and attribution.topic.required:
                    tell_waiting(f"each change must be recorded, but that is not possible yet: {failure}")
                away = failure
                raise

        try:
            self._pace.retrying(check) if attribution.topic.required else check()
        except DeadlinePassed as passed:
            if away is None:
                raise
            raise NotRecorded(attribution.topic.name, away) from passed
        except KafkaFailure as failure:
            self._failed(attribution, failure)

    @property
    def is_ready(self) -> bool:
        """Whether the next change is to be recorded, and not known to be impossible just now."""
        return self._attribution is not None and self._pace.clock.monotonic() >= self._not_before_s

    def append(
        self, transaction: GroupTransaction, targets: Offsets, round_number: int, *, again: bool = False
    ) -> bool:
        """Add to a transaction, before the offsets, the record of what they change; whether it was.

        If not, the transaction is of no use any more. Raises ``NotRecorded`` where records are required, but for one
        that is made ``again``, to find out about an earlier one: that had its record, and this changes nothing else.
        """
        attribution = self._attribution
        if attribution is None:
            return True
        try:
            self._append(transaction, attribution, self._change(attribution, targets, round_number, State.COMMITTED))
        except Fenced:
            raise
        except KafkaFailure as failure:
            self._failed(attribution, failure, insist=not again)
            return False
        return True

    def abort(self, transaction: GroupTransaction) -> None:
        """Before the offsets of a transaction that will be aborted: see ``abort_records``."""
        if self._attribution is not None and self.is_ready:
            abort_records(transaction, self._attribution.topic.name)

    def goes_without(self) -> None:
        """A transaction is committed, or may have been, that has no record."""
        if self._attribution is not None:
            self._note_unrecorded()

    def _note_unrecorded(self) -> None:
        self._unrecorded += 1
        # Not everybody shows the message of a run that went well.
        _log.warning(
            "group %s: a change of offsets was not recorded in the audit log: %s",
            self._run.request.group_id,
            self._why,
        )

    def around(
        self, begin: Begin, partitions: Collection[TopicPartition], forget: Callable[[], frozenset[TopicPartition]]
    ) -> frozenset[TopicPartition]:
        """Forget committed offsets, which no transaction can carry: recorded before, and once its outcome is known.

        Only a rollback does it, which is not given up for want of a record. Returns what ``forget`` does: the
        partitions that keep theirs.
        """
        attribution = self._attribution
        if attribution is None or not partitions:
            return forget()
        meant = self._change(attribution, dict.fromkeys(partitions), self._state.round, State.INTENDED)
        self._record(begin, attribution, meant)
        kept = forget()
        gone = {p: moved for p, moved in meant.offsets.items() if p not in kept}
        self._record(begin, attribution, replace(meant, state=State.DONE, offsets=gone))
        return kept

    @property
    def note(self) -> str:
        """The end of the result's message; empty where this writer has recorded all that it did."""
        if self._attribution is None or not self._unrecorded:
            return ""
        topic = self._attribution.topic.name
        return f". {self._unrecorded} commit(s) of this run were not recorded in audit topic {topic}: {self._why}"

    def _record(self, begin: Begin, attribution: Attribution, change: Change) -> None:
        try:
            with begin() as transaction:
                self._append(transaction, attribution, change)
                transaction.commit()
        except Fenced:
            raise
        except KafkaFailure as failure:
            self._why = str(failure)
            if change.state is State.DONE:
                self._note_unrecorded()

    def _append(self, transaction: GroupTransaction, attribution: Attribution, change: Change) -> None:
        topic = attribution.topic
        transaction.append(topic.name, encode_change(change), timeout_s=_REQUIRED_S if topic.required else _WANTED_S)

    def _failed(self, attribution: Attribution, failure: KafkaFailure, *, insist: bool = True) -> None:
        if attribution.topic.required and insist and self._state.putting_back is None:
            raise NotRecorded(attribution.topic.name, failure) from failure
        self._why = str(failure)
        for_good = isinstance(failure, NotAuthorized | Refused)
        self._not_before_s = float("inf") if for_good else self._pace.clock.monotonic() + _AGAIN_S

    def _change(
        self, attribution: Attribution, targets: Mapping[TopicPartition, int | None], round_number: int, state: State
    ) -> Change:
        """With where Kafka says now that the group stands. Raises ``KafkaFailure``."""
        run, request = self._run, self._run.request
        self._changes += 1
        before = self._kafka.committed(request.group_id, list(targets))
        return Change(
            id=f"{request.run_uid}#{self._attempt}.{self._changes}",
            action=self._action(attribution),
            state=state,
            group=request.group_id,
            by=attribution.by,
            offsets={p: Moved(before.get(p), target) for p, target in targets.items()},
            run=request.run_uid,
            round=round_number,
            way=self._state.way.value if self._state.way is not None else "",
            plan=run.digest or digest_of(run),
            requester=attribution.requester,
            approver=attribution.approver,
            approved=attribution.approved,
        )

    def _action(self, attribution: Attribution) -> Action:
        if self._state.putting_back is not None and self._state.putting_back[0] not in ENDINGS:
            return Action.ROLLBACK
        return Action.UNDO if isinstance(self._run.request.target, Undo) else attribution.action
