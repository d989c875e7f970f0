"""Where what is known of a group's offsets outlives this process: a ConfigMap of the policy, or its memory of many."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit
from tidegate.kube.ports import (
    Conflict,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    NotOwned,
    Object,
    label_of,
    name_of,
    namespace_of,
)
from tidegate.policy.feature import PolicyView
from tidegate.policy.memory import NewerMemory, document_name
from tidegate.policy.precedence import RETENTION
from tidegate.retention.last_offsets import Place, Places, TooLarge, decode, encode, is_within, of_document, to_document
from tidegate.retention.status import Done
from tidegate.threads import in_thread
from tidegate.versions import NewerVersion

_log = logging.getLogger(__name__)

_PROGRESS_MS: Final = 300_000
"""The least time between two writes of a snapshot in which offsets have moved, as those of a live group do."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """Of ``lost`` offsets some, ``wanted``, were put back at ``at_ms``, or none."""

    at_ms: int
    wanted: Mapping[TopicPartition, Commit]
    lost: Mapping[TopicPartition, Place]


@dataclass(slots=True)
class Known:
    """What this process knows of a policy's group; losing it costs a look at the snapshot, and one at the log.

    ``stored``: the places as the snapshot has them, ``stored_ms``: since when. ``done``: what was done, which is told
    by the passes that follow as well: the one that has done it may have told nobody. ``unsure``: what the next look
    tells whether it was done.
    """

    places: Places
    stored: Places
    stored_ms: int | None
    namespace: str
    name: str
    group: str
    log: GroupLog = field(default_factory=GroupLog)
    log_ms: int | None = None
    log_refused_ms: int | None = None
    done: Done = field(default_factory=Done)
    unsure: Unsure | None = None


class Snapshots:
    """Reads and writes them. Belongs to the event loop's thread."""

    def __init__(self, kube: Kube, executor: Executor) -> None:
        self._kube, self._executor = kube, executor
        self._none: set[str] = set()
        """By policy, of which there is none, as this process knows."""

    def forget(self, key: str) -> None:
        """The policy is gone, or its connection is."""
        self._none.discard(key)

    async def recall(self, policy: PolicyView) -> Known:
        """What an earlier process has written, or nothing. Raises ``KubeFailure``, such as ``NewerMemory``."""
        places = Places()
        self._none.discard(policy.key)
        try:
            places = await self._read(policy)
        except NotFound:
            _log.debug("%s: there is no snapshot of offsets yet", label_of(policy.body))
        except NewerVersion as newer:
            raise NewerMemory(str(newer)) from newer
        except ValueError as error:
            _log.warning(
                "%s: the operator can't read the snapshot of group %s, and writes it again: %s",
                label_of(policy.body),
                policy.group,
                error,
            )
        here, names = places.here(policy.live.cluster_id), (namespace_of(policy.body), name_of(policy.body))
        return Known(here, places, places.looked_ms, *names, policy.group)

    async def write(self, policy: PolicyView, known: Known, now_ms: int) -> str:
        """Write it where that is due; what keeps it from being written, as a sentence."""
        places, due = known.places, _worth_writing(known, now_ms)
        if due is Due.NOT:
            return ""
        if policy.is_one_of_many:
            await policy.memory.note(RETENTION, to_document(places), urgent=due is Due.NOW)
            known.stored, known.stored_ms = places, now_ms
            return ""
        try:
            data = encode(places, policy.group)
            await in_thread(self._executor, self._kube.put_config_map, policy.body, snapshot_name(policy), data)
        except TooLarge as error:
            return f"The offsets do not fit into a ConfigMap, so none of them could be restored: {error}"
        except Conflict as error:
            return f"The snapshot can't be written: {error}"
        except KubeUnavailable:
            raise
        except KubeFailure as error:  # such as a quota: nothing else of the look is lost for that
            return f"The snapshot can't be written, so a later operator process could restore no offsets: {error}"
        known.stored, known.stored_ms = places, now_ms
        return ""

    async def remove(self, policy: PolicyView) -> None:
        """Nothing of it is to be put back any more. The status need not tell of it: a process may have died before that
        was written. Raises ``KubeFailure``."""
        if policy.is_one_of_many:
            await policy.memory.note(RETENTION, None)
        elif policy.key not in self._none:
            await in_thread(self._executor, self._remove, policy.body, snapshot_name(policy))
            self._none.add(policy.key)

    def _remove(self, body: Object, name: str) -> None:
        try:
            self._kube.own_config_map(body, name)
        except (NotFound, NotOwned):
            return
        self._kube.remove_config_map(namespace_of(body), name)

    async def _read(self, policy: PolicyView) -> Places:
        """Raises ``ValueError``, and ``NotFound`` where there is none."""
        if policy.is_one_of_many:
            document = await policy.memory.recall(RETENTION)
            return Places() if document is None else of_document(document)
        namespace, name = namespace_of(policy.body), snapshot_name(policy)
        data = await in_thread(self._executor, self._kube.config_map, namespace, name)
        return decode(data, policy.group, f"ConfigMap {namespace}/{name}")


def snapshot_name(policy: PolicyView) -> str:
    """The ConfigMap with the last known offsets."""
    return document_name(policy.body, "place")


def snapshot_of(policy: PolicyView, known: Known) -> str | None:
    """Where a person finds it, once it was written; that of one of many groups is in the policy's memory."""
    return None if known.stored_ms is None or policy.is_one_of_many else snapshot_name(policy)


class Due(Enum):
    """Whether what is known is to be written: at once, as progress that can wait, or not."""

    NOW = auto()
    SOON = auto()
    NOT = auto()


def _worth_writing(known: Known, now_ms: int) -> Due:
    """At once: the first, of which cluster it is, what we did, what was missed, what is not to be put back, and that
    the members came or went. Progress: now and then."""
    places, stored = known.places, known.stored
    if known.stored_ms is None:
        return Due.NOW if places.rows else Due.NOT
    if places.cluster_id != stored.cluster_id:
        return Due.NOW
    if (
        places.substance == stored.substance
        and places.vacant == stored.vacant
        and not _is_ageing(places, stored, now_ms)
    ):
        return Due.NOT
    acted = {p: (row.kept_ms, row.lost_ms) for p, row in places.rows.items() if row.kept_ms or row.lost_ms}
    acted_before = {p: (row.kept_ms, row.lost_ms) for p, row in stored.rows.items() if row.kept_ms or row.lost_ms}
    if acted != acted_before or places.vacant != stored.vacant or not stored.rows.keys() <= places.rows.keys():
        return Due.NOW
    return Due.NOT if is_within(known.stored_ms, now_ms, _PROGRESS_MS) else Due.SOON


def _is_ageing(places: Places, stored: Places, now_ms: int) -> bool:
    """Whether the snapshot says of an offset that it may have expired after half of the time that it has, or less.

    One that does not move lasts for as long as its group has members. A process that begins would take it for expired
    where it was deleted on purpose just before.
    """
    for partition, row in places.rows.items():
        before = stored.rows.get(partition)
        if row.lasts_until_ms is None or row.lasts_until_ms <= now_ms or before is None:
            continue
        if before.lasts_until_ms is None or 2 * (before.lasts_until_ms - now_ms) < row.lasts_until_ms - now_ms:
            return True
    return False
