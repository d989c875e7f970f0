"""A run's transactions: targets and marker in one, ended for certain, and visible before anybody goes on.

Members may commit by transactions, too. Of two offsets the one that was sent last wins, whichever transaction ends
last; who is a member is checked as offsets are sent (KIP-447). So a target stands for good once it was sent after all
who might commit an old offset were let go, whatever they have left open.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.cluster import Kafka
from tidegate.kafka.errors import NotAuthorized, OutcomeUnknown, Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.ports import GroupTransaction, Kept, OffsetWriter
from tidegate.reset import marker
from tidegate.reset.applying.audit import RunAudit
from tidegate.reset.applying.dead_letters import DeadLetters
from tidegate.reset.applying.timing import Pace
from tidegate.reset.model.plan import Plan


class RunCommits:
    """Commits offsets of a run's group.

    ``any``: whether a transaction of the run is known to have been committed. ``unsure``: whether one may have been
    that is not known of, because the answer never came; :meth:`fence` and then :meth:`committed_round` tell.
    """

    def __init__(
        self, kafka: Kafka, pace: Pace, run_uid: str, plan: Plan, audit: RunAudit, dead_letters: DeadLetters
    ) -> None:
        self.group_id = plan.group_id
        self.any = False
        self.unsure = False
        self.pace = pace
        self._kafka = kafka
        self._run_uid = run_uid
        self._audit = audit
        self._dead_letters = dead_letters
        self._partitions = plan.targets.keys()
        self._marker_group = marker.marker_group(plan.group_id)
        self._marker_partition = marker.marker_partition(plan.targets)
        self._writer: OffsetWriter = kafka.writer(plan.group_id, transaction_timeout_s=pace.tuning.transaction_s)

    def close(self) -> None:
        self._writer.close()

    def fence(self, *, insist: bool = True) -> None:
        """End what an earlier writer of this group left open. Raises ``Unavailable``, at once unless it ``insist``s."""
        self.pace.retrying(self._writer.fence) if insist else self._writer.fence()

    def leave_out(self, topics: Collection[str]) -> bool:
        """These topics are gone, and with them the marker where it was in one of them (returned): what it has told
        nobody knows any more, and the next one is committed in another topic."""
        lost = self._marker_partition is not None and self._marker_partition.topic in topics
        if lost:
            self._marker_partition = marker.marker_partition(p for p in self._partitions if p.topic not in topics)
        return lost

    def commit(self, targets: Offsets, round_number: int, *, hold: Kept | None = None, again: bool = False) -> None:
        """One transaction; its offsets can be read when this returns. ``hold``: kept meanwhile. ``again``: it was made
        before, and what became of that is not known.

        Tried once, for owners stand still meanwhile. Raises ``Unavailable``, also where the outcome is not known,
        ``NotRecorded`` and ``NotCopied``.
        """
        recorded = self._audit.is_ready and self._committed(targets, round_number, recorded=True, again=again)
        if not recorded:
            self._committed(targets, round_number, recorded=False, again=again)
        self.wait_shown(targets, round_number, hold=hold)

    def _committed(self, targets: Offsets, round_number: int, *, recorded: bool, again: bool = False) -> bool:
        """Whether it was: not where it was to be recorded and that failed."""
        with self._writer.transaction() as transaction:
            if recorded and not self._audit.append(transaction, targets, round_number, again=again):
                return False
            told = self._was_committed() if again else False
            if not self.any and not told:
                self._dead_letters.append(transaction, hanging=told is None)
            transaction.send(self.group_id, targets)
            transaction.send(*self.mark(round_number))
            if not recorded:
                self._audit.goes_without()
            self.end(transaction, round_number)
        return True

    def _was_committed(self) -> bool | None:
        """Whether the marker tells that a transaction of the run was committed; ``None``: that is not told. It matters
        for copies only."""
        if not self._dead_letters.topic:
            return False
        return None if self._marker_undecided(0.0) else self.committed_round() > 0

    def is_known_aborted(self) -> bool:
        """Whether the marker of a run that copies tells that none of its transactions was committed. Then it copies
        anew, or ends where it can't; whatever of it hangs may only be aborted."""
        return bool(self._dead_letters.topic) and self._was_committed() is False

    def wait_shown(self, targets: Offsets, round_number: int, *, hold: Kept | None = None) -> None:
        """Wait until the round's last transaction has taken effect, which is a moment after it was committed.

        Where others have transactions open on the same partitions, nothing that can be read tells it. But a producer's
        next transaction takes offsets only once the one before is over. Raises ``Unavailable``.
        """
        if self.still_open(targets, self.pace.tuning.shown_s, hold=hold):
            self._settle_copies()
            # Aborted. To both groups, as this may be what decides them (`hangs`).
            with self._writer.transaction() as following:
                self._audit.abort(following)
                following.send(self.group_id, targets)
                following.send(*self.mark(round_number))
            self._marker_undecided(self.pace.tuning.hanging_s, hold)

    def _settle_copies(self) -> None:
        """Commit nothing but the last transaction's copies, should they hang: what is aborted next would abort them,
        and the offsets may be visible already. Raises ``Unavailable``."""
        if not self._dead_letters.topic:
            return
        with self._writer.transaction() as settling:
            self._dead_letters.include(settling)
            try:
                settling.commit()
            except OutcomeUnknown as error:
                raise Unavailable(f"it is not known whether the copies were committed: {error}") from error

    def hangs(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the run's last transaction, of these partitions, may show no outcome although it was ended
        (:meth:`fence`). A member's that stays open looks the same.

        A coordinator that is restarted with its whole cluster may begin before it knows the other partitions' leaders.
        It takes them for deleted then, calls the transaction complete, and never tells the groups' coordinators so
        (TransactionMarkerChannelManager). Their offsets stay pending, and consumers wait for them, until the next
        transaction of the same producer tells its own outcome: that counts for both.
        """
        hanging_s = self.pace.tuning.hanging_s
        return self._marker_undecided(hanging_s) or bool(self.still_open(partitions, hanging_s))

    def drop_hanging(self, targets: Offsets) -> None:
        """Abort what another run's transaction has left hanging, or this one's would commit it as well.

        Open transactions of members look the same, and nothing becomes of them by it. Raises ``Unavailable``.
        """
        topics = self._kafka.topics({p.topic for p in (*targets, *self._kafka.committed(self.group_id))})
        everything = [p for name in sorted(topics) for p in topics[name].all_partitions()]
        if self.still_open(everything, self.pace.tuning.hanging_s):
            with self._writer.transaction() as dropping:
                self._audit.abort(dropping)
                self._dead_letters.decide(dropping)
                dropping.send(self.group_id, targets)
                dropping.send(*self.mark(1))

    def delete(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget offsets; those that the broker keeps, or may keep: the group is subscribed to them, or the principal
        may delete none."""

        def forget() -> frozenset[TopicPartition]:
            try:
                return self._writer.delete(self.group_id, partitions)
            except NotAuthorized:
                return frozenset(partitions)

        return self._audit.around(self._writer.transaction, partitions, forget)

    def mark(self, round_number: int) -> tuple[str, Offsets]:
        """The marker's group and offset for a round."""
        if self._marker_partition is None:
            raise ValueError("an empty plan has nothing to commit")
        return self._marker_group, {self._marker_partition: marker.marker_offset(self._run_uid, round_number)}

    def end(self, transaction: GroupTransaction, round_number: int) -> None:
        """Commit. Raises ``Unavailable`` when the answer never came: then the run is ``unsure``."""
        self.unsure = True
        try:
            transaction.commit()
        except OutcomeUnknown as error:
            raise Unavailable(f"it is not known whether round {round_number} was committed: {error}") from error
        self.any, self.unsure = True, False

    def committed_round(self) -> int:
        """The last round of this run whose transaction was committed; 0 for none.

        Certain once no transaction of the run is open any more (:meth:`fence`).
        """
        if self._marker_partition is None:
            return 0
        limit_s = self.pace.tuning.visible_limit_s
        if self._marker_undecided(limit_s):
            raise Unavailable(f"the marker of group {self.group_id} is still pending after {limit_s:.0f} s")
        offset = self._kafka.committed(self._marker_group, [self._marker_partition]).get(self._marker_partition)
        return marker.committed_round(self._run_uid, offset)

    def still_open(
        self, partitions: Collection[TopicPartition], limit_s: float, *, hold: Kept | None = None
    ) -> frozenset[TopicPartition]:
        """Those for which a transaction of anybody is open all the time, for ``limit_s``. ``hold``: kept meanwhile.

        Each has to be seen once without one, not all at the same moment: members that commit by transactions have some
        open at most times.
        """
        return self._undecided(self.group_id, partitions, limit_s, hold)

    def _marker_undecided(self, limit_s: float, hold: Kept | None = None) -> bool:
        """Nobody else writes it: where no transaction of the run is open, its outcome shows in a moment."""
        marked = [self._marker_partition] if self._marker_partition is not None else []
        return bool(self._undecided(self._marker_group, marked, limit_s, hold))

    def _undecided(
        self, group_id: str, partitions: Collection[TopicPartition], limit_s: float, hold: Kept | None
    ) -> frozenset[TopicPartition]:
        left = frozenset(partitions)

        def decided() -> bool:
            nonlocal left
            if hold is not None:
                hold.keep()
            left = self._kafka.pending(group_id, left)
            return not left

        self.pace.until(decided, limit_s, self.pace.tuning.visible_s)
        return left
