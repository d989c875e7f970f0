"""Carries groups' committed offsets over: reads both clusters, and commits what was decided."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidegate.kafka.errors import GroupNotEmpty, KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import OFFSETS_TOPIC
from tidegate.mirror.ports import UNDECIDED, GroupOffsets, MirrorCluster
from tidegate.offset_mirror.carrying import NOTES, Carry, Notes, Standing, decide, refused
from tidegate.printable import visible
from tidegate.resources.offset_mirror import CarriedGroups

_log = logging.getLogger(__name__)

_RENEWED_S: Final = 6 * 3600.0
"""Brokers forget the offsets of a group without members after a week (``offsets.retention.minutes``)."""


@dataclass(slots=True)
class _Tally:
    carried: int = 0
    in_use: list[str] = field(default_factory=list)
    failed: int = 0
    failure: str = ""


class Carrier:
    """For one thread at a time. ``selects``: whether a group's offsets are carried over; ``may_write``: whether it is
    this process's turn."""

    def __init__(
        self,
        source: MirrorCluster,
        target: MirrorCluster,
        selects: Callable[[str], bool],
        may_write: Callable[[], bool],
        now_s: Callable[[], float],
        now: Callable[[], datetime],
        notes: Notes = NOTES,
    ) -> None:
        self._notes = notes
        self._source = source
        self._target = target
        self._selects = selects
        self._may_write = may_write
        self._now_s = now_s
        self._now = now
        self._renewed_s: dict[str, float] = {}
        self._concerned: AbstractSet[str] = frozenset()
        """Topics whose copies a group uses if somebody else commits for one of them at the target."""

    def carry(
        self,
        ends: Mapping[TopicPartition, int],
        source_ids: Mapping[str, str],
        adopts: frozenset[str] = frozenset(),
        mirrored: frozenset[str] = frozenset(),
        *,
        whole: bool = False,
    ) -> CarriedGroups:
        """``ends``: of the copies; ``source_ids``: by topic, the id of what was copied; ``adopts``: topics that were
        taken over from a failover; ``mirrored``: all that have a copy, also those that must not be copied on;
        ``whole``: what can't be told for now is not left for the next time. Raises ``KafkaFailure`` where nothing could
        be read."""
        listed = self._source.group_ids()
        if whole:
            self._check_all_listed()
            listed |= self._noted(ends)
        wanted = [group_id for group_id in listed if self._selects(group_id)]
        source: dict[str, GroupOffsets] = {}
        of_source = self._source.committed(wanted)
        # Afterwards: what was committed for a topic that was created again meanwhile is left out, or it would look as
        # if the group had been reset.
        now = self._source.topics()
        same = {name for name, topic_id in source_ids.items() if name in now and now[name].topic_id == topic_id}
        ends = {p: end for p, end in ends.items() if p.topic in same}
        for group_id, offsets in of_source.items():
            copied = {p: o for p, o in offsets.items() if p in ends and o.offset != UNDECIDED}
            if copied or (whole and _undecided(offsets, ends)):
                source[group_id] = copied
        ids = [each for g in source for each in self._beside(g)]
        target, tally = self._target.committed(ids), _Tally()
        copies = mirrored | source_ids.keys()
        self._concerned = copies | adopts
        for group_id, offsets in sorted(source.items()):
            there, carrying, carried = (target.get(each, {}) for each in self._beside(group_id))
            standing = Standing(offsets, there, carrying, carried, adopts)
            undecided = _undecided(of_source[group_id], ends) if whole else []
            self._carry(group_id, standing, decide(standing, ends, copies), undecided, tally)
        self._renewed_s = {g: at for g, at in self._renewed_s.items() if g in source}
        return CarriedGroups(
            total=len(source),
            carried=tally.carried,
            in_use=len(tally.in_use),
            failed=tally.failed,
            in_use_such_as=visible(next(iter(tally.in_use), "")),
            failure=visible(tally.failure[:500]),
            at=self._now(),
        )

    def _carry(
        self, group_id: str, standing: Standing, carry: Carry, undecided: Collection[TopicPartition], tally: _Tally
    ) -> None:
        try:
            if not self._may_write():
                tally.failed, tally.failure = tally.failed + 1, "this operator process must not write at the moment"
                return
            self._commit(group_id, standing, carry)
        except (GroupNotEmpty, _UsedMeanwhile):
            tally.in_use.append(group_id)
        except KafkaFailure as failure:
            tally.failed += 1
            tally.failure = tally.failure or str(failure)
        else:
            if carry.in_use:
                tally.in_use.append(group_id)
            elif undecided:
                says = f"an open transaction has yet to decide what group {group_id} commits for {min(undecided)}"
                tally.failed, tally.failure = tally.failed + 1, tally.failure or says
            else:
                tally.carried += 1

    def _noted(self, ends: Mapping[TopicPartition, int]) -> set[str]:
        """Groups that were carried over for these copies: one whose coordinator is away is listed by nobody."""
        carried_id = self._notes.carried_id
        noted = [group_id for each in self._target.group_ids() if (group_id := self._notes.noted_by(each))]
        offsets = self._target.committed([*map(carried_id, noted)])
        return {group_id for group_id in noted if offsets.get(carried_id(group_id), {}).keys() & ends.keys()}

    def _check_all_listed(self) -> None:
        """No broker lists the groups of a partition of ``__consumer_offsets`` that has no leader, and none says so.
        Raises ``KafkaFailure``."""
        try:
            topic = self._source.topic(OFFSETS_TOPIC)
        except NotAuthorized:
            return  # that can't be told then
        partitions = () if topic is None else topic.all_partitions()
        silent = frozenset(partitions) - self._source.told_bounds(partitions).keys()
        if silent:
            raise Unavailable(f"could not list all groups of the source: {min(silent)} has no leader")

    def _beside(self, group_id: str) -> tuple[str, str, str]:
        """The group itself, and the mirror's own two."""
        return group_id, self._notes.carrying_id(group_id), self._notes.carried_id(group_id)

    def _commit(self, group_id: str, standing: Standing, carry: Carry) -> None:
        if carry.unnoted:
            self._target.commit(self._notes.carried_id(group_id), carry.unnoted)
        due = self._now_s() - self._renewed_s.get(group_id, -_RENEWED_S) >= _RENEWED_S
        offsets = {**carry.settled, **carry.offsets} if due else carry.offsets
        if due and carry.kept:
            self._target.commit(self._notes.carried_id(group_id), carry.kept)
            self._renewed_s[group_id] = self._now_s()
        if not offsets:
            return
        of_group, carrying, carried = self._beside(group_id)
        for each in (carrying, of_group, carried):
            if not self._may_write():  # it may have become another process's turn since: by then consumers may be there
                raise Unavailable("this operator process must not write at the moment")
            try:
                if each == of_group:
                    self._check_as_seen(group_id, standing)
                self._target.commit(each, offsets)
            except (GroupNotEmpty, _UsedMeanwhile):
                if each == of_group:
                    self._target.commit(carrying, refused(standing, offsets))
                raise
        if due:
            self._renewed_s[group_id] = self._now_s()

    def _check_as_seen(self, group_id: str, standing: Standing) -> None:
        """All groups were read before the first of them was committed for, which many of them make a minute ago. A
        consumer without a group's membership may have begun since. Raises ``_UsedMeanwhile``."""
        now, seen = self._target.committed([group_id]).get(group_id, {}), standing.target
        for partition, one in now.items():
            before = seen.get(partition)
            if partition.topic in self._concerned and (before is None or before.offset != one.offset):
                raise _UsedMeanwhile


class _UsedMeanwhile(Exception):
    """Somebody else has committed for the group since it was read."""


def _undecided(offsets: GroupOffsets, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [p for p, one in offsets.items() if p in ends and one.offset == UNDECIDED]
