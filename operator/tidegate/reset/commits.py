"""A run's transactions: targets and marker in one, ended for certain, and visible before anybody goes on."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.kafka.errors import OutcomeUnknown, Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.ports import GroupTransaction, Kafka, Kept, OffsetWriter
from tidegate.reset import marker
from tidegate.reset.model import Plan
from tidegate.reset.pacing import Pace


class RunCommits:
    """Commits offsets of a run's group.

    ``any``: whether a transaction of the run is known to have been committed. ``unsure``: whether one may have been
    that is not known of, because the answer never came; :meth:`fence` and then :meth:`committed_round` tell.
    """

    def __init__(self, kafka: Kafka, pace: Pace, run_uid: str, plan: Plan) -> None:
        self.group_id = plan.group_id
        self.any = False
        self.unsure = False
        self.pace = pace
        self._kafka = kafka
        self._run_uid = run_uid
        self._marker_group = marker.marker_group(plan.group_id)
        self._marker_partition = marker.marker_partition(plan) if plan.partitions else None
        self._writer: OffsetWriter = kafka.writer(plan.group_id, transaction_timeout_s=pace.tuning.transaction_s)

    def close(self) -> None:
        self._writer.close()

    def fence(self, *, insist: bool = True) -> None:
        """End what an earlier writer of this group left open. Raises ``Unavailable``, at once unless it ``insist``s."""
        self.pace.retrying(self._writer.fence) if insist else self._writer.fence()

    def commit(self, targets: Offsets, round_number: int, *, hold: Kept | None = None) -> None:
        """One transaction; its offsets can be read when this returns. ``hold``: kept meanwhile.

        Tried once, for owners stand still meanwhile. Raises ``Unavailable``, also where the outcome is not known.
        """
        with self._writer.transaction() as transaction:
            transaction.send(self.group_id, targets)
            transaction.send(*self.mark(round_number))
            self.end(transaction, round_number)
        self.wait_visible(targets, hold=hold)

    def delete(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget offsets; those that the broker keeps, because the group is subscribed to them."""
        return self._writer.delete(self.group_id, partitions)

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
            raise Unavailable(f"whether round {round_number} was committed is not known: {error}") from error
        self.any, self.unsure = True, False

    def committed_round(self) -> int:
        """The last round of this run whose transaction was committed; 0 for none.

        Certain once no transaction of the run is open any more (:meth:`fence`).
        """
        if self._marker_partition is None:
            return 0
        self.wait_visible([self._marker_partition], self._marker_group)
        offset = self._kafka.committed(self._marker_group, [self._marker_partition]).get(self._marker_partition)
        return marker.committed_round(self._run_uid, offset)

    def wait_visible(
        self, partitions: Collection[TopicPartition], group_id: str | None = None, *, hold: Kept | None = None
    ) -> None:
        """``commit_transaction`` returns before its offsets can be read (median 10 to 50 ms, up to 250 ms).

        Each partition has to be seen once without an open transaction, not all at the same moment: members that commit
        by transactions have some open at most times. ``hold``: kept meanwhile. Raises ``Unavailable``.
        """
        group = group_id or self.group_id
        tuning = self.pace.tuning
        left = frozenset(partitions)

        def decided() -> bool:
            nonlocal left
            if hold is not None:
                hold.keep()
            left = self._kafka.pending(group, left)
            return not left

        if not self.pace.until(decided, tuning.visible_limit_s, tuning.visible_s):
            raise Unavailable(
                f"offsets of group {group} are still pending after {tuning.visible_limit_s:.0f} s: another "
                "transaction holds them"
            )
