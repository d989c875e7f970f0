"""The producer ids that all copies of a mirror are written with, in the status of its OffsetMirror.

A status is replaced only as it was read, and only by the replica that leads: of several that claim at once one wins,
and the others read what it has claimed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from tidegate.kafka.errors import Unavailable
from tidegate.kube.ports import MIRRORS, Kube, KubeFailure, Object, label_of, name_of, namespace_of, uid_of
from tidegate.mirror.model import Interrupted, ProducerIds
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.offset_mirror import MirroredTopicStatus, OffsetMirrorStatus

PRUNED_FROM: Final = 100
_AHEAD: Final = 2
"""Ids after the one that a partition is written with: it may have come to them since that was seen."""


def pruned(
    ids: tuple[int, ...], topics: Collection[MirroredTopicStatus], former: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The ids without those that no copy needs any more. At a copy's end, as far as it is looked at, are batches of the
    id that it is written with, and of the one before: one id is good for 8,000 offsets at least.

    All of them stay while of a copy that may still be written it is not known with which it is.
    """
    if len(ids) <= PRUNED_FROM:
        return ids
    needed = {*former, ids[-1]}
    for topic in topics:
        if not topic.target_id:
            continue
        if topic.writers is None or not set(topic.writers) <= set(ids):
            return ids
        for at in map(ids.index, topic.writers):
            needed.update(ids[max(0, at - 1) : at + 1 + _AHEAD])
    return tuple(each for each in ids if each in needed)


def known_ids(mirror: Object, uid: str, former: tuple[int, ...] = ()) -> ProducerIds | Interrupted:
    """The ids that the status has, after those of ``former`` that it has not; none at all before the first is
    claimed."""
    label = label_of(mirror)
    if uid_of(mirror) != uid:
        return Interrupted(f"OffsetMirror {label} was deleted and created again")
    if not has_readable_status(OffsetMirrorStatus, mirror):
        return Interrupted(f"the status of OffsetMirror {label} can't be read")
    status = read_status(OffsetMirrorStatus, mirror)
    if status.failover is not None:
        # Whoever finds the fence asks here whether it is a writer's: what nobody has claimed is somebody else's.
        return Interrupted(f"OffsetMirror {label} has failed over")
    ids = status.producer_ids
    return ProducerIds((*(each for each in former if each not in ids), *ids))


class ProducerIdsInStatus:
    """Implements ``tidegate.mirror.ports.ProducerIdStore``, for all partitions of a mirror. Thread-safe."""

    def __init__(self, kube: Kube, mirror: Object, new_id: Callable[[], int], former: tuple[int, ...] = ()) -> None:
        """``mirror``: for its name and uid; ``former``: ids with which the copies were written before it was there."""
        self._former = former
        self._kube = kube
        self._namespace, self._name, self._uid = namespace_of(mirror), name_of(mirror), uid_of(mirror)
        self._new_id = new_id
        self._lock = threading.Lock()

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        with self._lock:
            try:
                return self._claim(after)
            except (KubeFailure, Unavailable) as failure:
                return Interrupted(str(failure))

    def _claim(self, after: int | None) -> ProducerIds | Interrupted:
        body = self._kube.get(MIRRORS, self._namespace, self._name)
        found = known_ids(body, self._uid, self._former)
        if isinstance(found, Interrupted):
            return found
        known, ids = found.ids, read_status(OffsetMirrorStatus, body).producer_ids
        is_new = not ids or after == ids[-1]
        if not is_new and known == ids:
            return ProducerIds(ids)
        claimed = (*known, self._new_id()) if is_new else known
        self._kube.replace_status(MIRRORS, body, {**(body.get("status") or {}), "producerIds": list(claimed)})
        return ProducerIds(claimed)
