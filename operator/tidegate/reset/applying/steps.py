"""Steps that the ways' sequences share: hold a join, commit what was overwritten, end a join, see who is there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from tidegate.cluster import Kafka
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Group, TopicPartition
from tidegate.kafka.ports import JoinHold
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.joins import Joins
from tidegate.reset.applying.owners import look
from tidegate.reset.applying.rounds import Emptied, Partitions, Round
from tidegate.reset.applying.timing import Pace


class JoinNotHeld(Unavailable):
    """A join was not held until the targets were committed, so owners may have gone on from their old positions:
    nothing that was read back since tells, and the round does not count."""


class Steps:
    """Of one run on one group. ``hold_s``: how long owners are held after they let go (``inFlight``)."""

    def __init__(self, kafka: Kafka, commits: RunCommits, pace: Pace, joins: Joins, hold_s: float) -> None:
        self._kafka = kafka
        self._commits = commits
        self._pace = pace
        self._joins = joins
        self._group_id = commits.group_id
        self.hold_s = hold_s
        self.emptied: Emptied | None = None
        """Of the round that is being carried out."""

    # --- joins --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def hold(self, *, rebalance: bool = True) -> Iterator[JoinHold]:
        """A join that was held all the time until it was let go. Raises ``JoinNotHeld`` at its end where it was not."""
        failure: Unavailable | None = None
        with self._kafka.membership.hold(self._group_id, rebalance=rebalance) as hold:
            try:
                yield hold
            except Unavailable as error:
                failure = error
        if hold.lapsed:
            raise JoinNotHeld(
                f"Tidegate could not hold the join of group {self._group_id} to the end, because its coordinator has "
                "moved or did not answer for too long"
            ) from failure
        if failure is not None:
            raise failure

    def held_for(self) -> float:
        """How long to hold a join: an owner may notice a heartbeat later, and only then ``inFlight`` begins."""
        return self._pace.tuning.heartbeat_s + self.hold_s if self.hold_s > 0 else 0.0

    def held_until(self, hold: JoinHold, reached: Callable[[], bool], limit_s: float, every_s: float) -> bool:
        """Like ``Pace.until``, and owners are held at their join meanwhile."""

        def look() -> bool:
            hold.keep()
            return reached()

        return self._pace.until(look, limit_s, every_s)

    @property
    def back_limit_s(self) -> float:
        """How long owners that were made to leave are waited for while others stand still."""
        return min(self._pace.tuning.back_limit_s, self._joins.standstill_s)

    def end_join(self, group: Group, began: float) -> None:
        if self._joins.end(group, began, held_s=self.held_for()):
            self.note_if_empty()

    def free_join(self, keep: Callable[[], None] = lambda: None) -> None:
        if self._joins.free(keep):
            self.note_if_empty()

    def note_if_empty(self) -> None:
        if self.emptied is None and not self.group().has_members:
            self.emptied = Emptied()

    def note_return(self) -> None:
        if self.emptied is not None and self.emptied.at_return is None and self.group().has_members:
            self.emptied = Emptied(at_return=self._kafka.committed(self._group_id))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_where_needed(self, round_: Round, hold: JoinHold) -> None:
        seen = self.learn_before(round_)
        needed = {p: target for p, target in round_.targets.items() if seen.get(p) != target}
        if needed:
            self._commits.commit(needed, round_.number, hold=hold)

    def commit_over_transactions(
        self, round_: Round, hold: JoinHold | None = None, *, but: Partitions = frozenset()
    ) -> Partitions:
        """Commit again where an owner has committed after the targets and before it was made to leave, or has sent to a
        transaction that is still open: it can send nothing more, and what was sent last wins.

        Returns the partitions that somebody may have taken at another offset by then. ``but``: partitions that are done
        again anyway.
        """
        opened = self._kafka.pending(self._group_id, round_.pending)
        late = (opened | round_.overwritten_at_release(self.committed(round_))) - but
        if not late:
            return late
        self._commits.commit({p: round_.targets[p] for p in late}, round_.number, hold=hold)
        taken = self.group(round_.pending)
        seen = self.committed(round_)
        return frozenset(p for p in late if taken.owner(p) is not None or seen.get(p) != round_.targets[p])

    def learn_before(self, round_: Round) -> Mapping[TopicPartition, int]:
        """Read what is committed now. Owners that let go commit once more: the newest such offset is what undo goes to.

        A join may have been over for a moment since the targets were committed. So what lies beyond a target ahead of
        where the group was may be progress from there, and to go back to that would leave out what lies between.
        """
        seen = self.committed(round_)
        if round_.learns:
            for partition, offset in seen.items():
                target, last = round_.targets[partition], round_.learned.get(partition, -1)
                if offset != target and offset > round_.before.get(partition, -1):
                    round_.before[partition] = offset
                if offset != target and offset > last and not (self._commits.any and last < target < offset):
                    round_.learned[partition] = offset
        return seen

    def committed(self, round_: Round) -> Mapping[TopicPartition, int]:
        return self._kafka.committed(self._group_id, list(round_.targets))

    def group(self, partitions: Partitions = frozenset()) -> Group:
        return look(self._kafka, self._group_id, partitions)
