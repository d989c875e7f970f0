"""A run's transactions: targets and marker in one, ended for certain, and visible before anybody goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from tidegate.kafka.errors import OutcomeUnknown, Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.ports import GroupTransaction, Kafka, Kept, OffsetWriter
from tidegate.reset import marker
from tidegate.reset.model import Plan
from tidegate.reset.pacing import Pace

HOLD: Final = "hold"
"""Purpose of the writer that holds owners while the transaction of the run's own writer is replaced."""


class OwnersHold:
    """Holds back whoever waits for open transactions and is newly assigned one of the targets' partitions.

    Should this process die, owners wait until its transaction has timed out, and Kafka cannot prolong one. So the
    transaction is a short one that is replaced again and again, while one of another writer holds the same partitions.
    """

    def __init__(
        self, commits: RunCommits, writer: OffsetWriter, bridge: OffsetWriter, targets: Offsets, round_number: int
    ) -> None:
        self._commits = commits
        self._writer = writer
        self._bridge = bridge
        self._targets = targets
        self._round = round_number
        self._open = contextlib.ExitStack()

    def begin(self) -> None:
        self._began = self._commits.pace.clock.monotonic()
        self._transaction = self._open.enter_context(self._writer.transaction())
        self._transaction.send(self._commits.group_id, self._targets)

    def keep(self) -> None:
        """Replace the transaction well before it times out; call several times a second."""
        pace = self._commits.pace
        if pace.clock.monotonic() - self._began < pace.tuning.held_transaction_s / 3:
            return
        with self._bridge.transaction() as bridge:
            bridge.send(self._commits.group_id, self._targets)
            self.end()
            self.begin()

    def commit(self) -> None:
        """Commit the targets, which wins over whatever was committed meanwhile. Looks up an unknown outcome."""
        self._commits.complete(self._transaction, self._targets, self._round)

    def end(self) -> None:
        """Abort what was not committed."""
        self._open.close()


class RunCommits:
    """Commits offsets of a run's group.

    ``any``: whether a transaction of the run is known to have been committed. ``unsure``: whether one may have been
    that is not known of, because the answer never came; :meth:`fence` and then :meth:`committed_round` tell.
    ``holds_owners``: whether :meth:`hold` is used.
    """

    def __init__(self, kafka: Kafka, pace: Pace, run_uid: str, plan: Plan, *, holds_owners: bool) -> None:
        self.group_id = plan.group_id
        self.any = False
        self.unsure = False
        self.pace = pace
        self._kafka = kafka
        self._run_uid = run_uid
        self._marker_group = marker.marker_group(plan.group_id)
        self._marker_partition = marker.marker_partition(plan) if plan.partitions else None
        open_for = pace.tuning.held_transaction_s if holds_owners else pace.tuning.transaction_s
        self._writer: OffsetWriter = kafka.writer(plan.group_id, transaction_timeout_s=open_for)
        self._bridge: OffsetWriter | None = (
            kafka.writer(plan.group_id, transaction_timeout_s=open_for, purpose=HOLD) if holds_owners else None
        )

    def close(self) -> None:
        self._writer.close()
        if self._bridge is not None:
            self._bridge.close()

    def fence(self, *, insist: bool = True) -> None:
        """End what an earlier writer of this group left open. Raises ``Unavailable``, at once unless it ``insist``s."""
        for writer in (self._writer, self._bridge):
            if writer is not None:
                self.pace.retrying(writer.fence) if insist else writer.fence()

    @contextlib.contextmanager
    def hold(self, targets: Offsets, round_number: int) -> Iterator[OwnersHold]:
        """Hold owners until the targets are committed. Leaving the context without a commit changes nothing."""
        if self._bridge is None:
            raise ValueError("these commits were not made to hold owners")
        hold = OwnersHold(self, self._writer, self._bridge, targets, round_number)
        try:
            hold.begin()
            yield hold
        finally:
            hold.end()

    def commit(self, targets: Offsets, round_number: int, *, hold: Kept | None = None) -> None:
        """One transaction; its offsets can be read when this returns. ``hold``: kept meanwhile.

        Tried once, for owners stand still meanwhile. Raises ``Unavailable``, also where the outcome is not known.
        """
        with self._writer.transaction() as transaction:
            self.complete(transaction, targets, round_number)
        self.wait_visible(targets, hold=hold)

    def complete(self, transaction: GroupTransaction, targets: Offsets, round_number: int) -> None:
        """Commit the targets, and the round's marker with them, by this transaction."""
        transaction.send(self.group_id, targets)
        transaction.send(*self.mark(round_number))
        self.end(transaction, round_number)

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
