"""A run's transactions: targets and marker in one, ended for certain, and visible before anybody goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from tidegate.kafka.errors import OutcomeUnknown, Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.ports import GroupTransaction, Kafka, OffsetWriter
from tidegate.reset import marker
from tidegate.reset.model import Plan
from tidegate.reset.pacing import Pace


class OpenTransaction:
    """A transaction of a round that is under way."""

    def __init__(self, commits: RunCommits, transaction: GroupTransaction, round_number: int) -> None:
        self._commits = commits
        self._transaction = transaction
        self._round = round_number

    def send(self, targets: Offsets) -> None:
        """Hold back whoever waits for open transactions and is newly assigned one of these partitions."""
        self._transaction.send(self._commits.group_id, targets)

    def commit(self, targets: Offsets) -> None:
        """Commit the targets, which wins over whatever was committed meanwhile. Looks up an unknown outcome."""
        self._transaction.send(self._commits.group_id, targets)
        self._transaction.send(*self._commits.mark(self._round))
        self._commits.end(self._transaction, self._round)


class RunCommits:
    """Commits offsets of a run's group. ``any``: whether a transaction of the run is known to have been committed."""

    def __init__(self, kafka: Kafka, pace: Pace, run_uid: str, plan: Plan, *, transaction_timeout_s: float) -> None:
        self.group_id = plan.group_id
        self.any = False
        self._kafka = kafka
        self._pace = pace
        self._run_uid = run_uid
        self._marker_group = marker.marker_group(plan.group_id)
        self._marker_partition = marker.marker_partition(plan) if plan.partitions else None
        self._writer: OffsetWriter = kafka.writer(plan.group_id, transaction_timeout_s=transaction_timeout_s)

    def close(self) -> None:
        self._writer.close()

    def fence(self) -> None:
        """End what an earlier writer of this group left open."""
        self._pace.retrying(self._writer.fence)

    @contextlib.contextmanager
    def transaction(self, round_number: int) -> Iterator[OpenTransaction]:
        with self._writer.transaction() as transaction:
            yield OpenTransaction(self, transaction, round_number)

    def commit(self, targets: Offsets, round_number: int) -> None:
        """One transaction; its offsets can be read when this returns."""

        def once() -> None:
            with self.transaction(round_number) as transaction:
                transaction.commit(targets)

        self._pace.retrying(once)
        self.wait_visible(targets)

    def delete(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget offsets; those that the broker keeps, because the group is subscribed to them."""
        return self._writer.delete(self.group_id, partitions)

    def mark(self, round_number: int) -> tuple[str, Offsets]:
        """The marker's group and offset for a round."""
        if self._marker_partition is None:
            raise ValueError("an empty plan has nothing to commit")
        return self._marker_group, {self._marker_partition: marker.marker_offset(self._run_uid, round_number)}

    def end(self, transaction: GroupTransaction, round_number: int) -> None:
        """Commit. Raises ``Unavailable`` when it turns out to have been aborted."""
        try:
            transaction.commit()
        except OutcomeUnknown:
            # A new epoch ends the transaction one way or the other; the marker says which.
            self.fence()
            if self.committed_round() != round_number:
                raise Unavailable(f"the transaction for group {self.group_id} was aborted") from None
        self.any = True

    def committed_round(self) -> int:
        """The last round of this run whose transaction was committed; 0 for none."""
        if self._marker_partition is None:
            return 0
        self.wait_visible([self._marker_partition], self._marker_group)
        offset = self._kafka.committed(self._marker_group, [self._marker_partition]).get(self._marker_partition)
        return marker.committed_round(self._run_uid, offset)

    def wait_visible(self, partitions: Collection[TopicPartition], group_id: str | None = None) -> None:
        """``commit_transaction`` returns before its offsets can be read (median 10 to 50 ms, up to 250 ms)."""
        group = group_id or self.group_id
        tuning = self._pace.tuning
        if not self._pace.until(
            lambda: not self._kafka.pending(group, partitions), tuning.visible_limit_s, tuning.visible_s
        ):
            raise Unavailable(
                f"offsets of group {group} are still pending after {tuning.visible_limit_s:.0f} s: another "
                "transaction holds them"
            )
