"""Sets groups back that were carried further than their copies reach, before others write the copies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.kafka.errors import GroupNotEmpty, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.mirror.ports import UNDECIDED, GroupOffset, MirrorCluster
from tidegate.offset_mirror.carrying import Notes
from tidegate.resources.offset_mirror import OffsetMirrorStatus

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 500
"""Groups that are read at once."""


def ends_of(target: MirrorCluster, status: OffsetMirrorStatus) -> dict[TopicPartition, int]:
    """Where the copies end now, of those whose leaders tell. Raises ``KafkaFailure``."""
    there, ids = target.topics(), {row.name: row.target_id for row in status.topics if row.target_id}
    copies = [topic for name, topic in there.items() if ids.get(name) == topic.topic_id]
    bounds = target.told_bounds([p for topic in copies for p in topic.all_partitions()], stable=False)
    return {p: one.latest for p, one in bounds.items()}


def set_back(
    target: MirrorCluster, notes: Notes, ends: Mapping[TopicPartition, int], may_write: Callable[[], bool]
) -> None:
    """A copy may have lost what it had when groups were carried over, as by an unclean election. What others then write
    up to there their consumers would skip. A group that is used at the target is left alone. Raises ``KafkaFailure``.
    """
    noted = sorted(group_id for each in target.group_ids() if (group_id := notes.noted_by(each)))
    for start in range(0, len(noted), _AT_ONCE):
        some = noted[start : start + _AT_ONCE]
        offsets = target.committed([each for g in some for each in (g, notes.carrying_id(g), notes.carried_id(g))])
        for group_id in some:
            carrying, carried = (offsets.get(each(group_id), {}) for each in (notes.carrying_id, notes.carried_id))
            beyond: dict[TopicPartition, GroupOffset] = {}
            for partition, one in offsets.get(group_id, {}).items():
                end = ends.get(partition)
                ours = {note[partition].offset for note in (carrying, carried) if partition in note} - {UNDECIDED}
                if end is not None and one.offset > end and one.offset in ours:
                    beyond[partition] = GroupOffset(end)
            if beyond:
                _commit(target, notes, group_id, beyond, may_write)


def _commit(
    target: MirrorCluster,
    notes: Notes,
    group_id: str,
    offsets: Mapping[TopicPartition, GroupOffset],
    may_write: Callable[[], bool],
) -> None:
    for each in (notes.carrying_id(group_id), group_id, notes.carried_id(group_id)):
        if not may_write():
            raise Unavailable("this operator process must not write at the moment")
        try:
            target.commit(each, offsets)
        except GroupNotEmpty:
            return  # its members have read on from there
    _log.warning("group %s was carried beyond the end of %d copies, and is set back", group_id, len(offsets))
