"""A group's place in a backup, for the plan of a reset. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidegate.kafka.model import Topic, TopicPartition
from tidegate.offset_backup.manifest import Manifest
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import Selection
from tidegate.reset.model.targets import Findings
from tidegate.reset.planning.checks import recreated
from tidegate.reset.planning.refusals import BACKUP_NOT_FOUND, TOPIC_RECREATED, PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.resources.timestamps import format_timestamp


@dataclass(frozen=True, slots=True)
class Row:
    """One partition of the group, of ``tidegate.offset_backup.manifest.COLUMNS``."""

    partition: TopicPartition
    committed: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Restored:
    """``selections``: what the backup knows of the group and is still there. ``without_id``: topics that were gone when
    the backup was read, or were not there yet when that began."""

    findings: Findings
    selections: tuple[Selection, ...]
    topic_ids: Mapping[str, str]
    without_id: frozenset[str] = frozenset()

    def check(self, plan: Plan) -> None:
        """Raises ``PlanRefused`` where a topic was made anew since: then the offsets mean other records."""
        if topics := recreated(plan, self.topic_ids):
            raise PlanRefused(
                TOPIC_RECREATED,
                f"topic(s) deleted and created again since the backup: {listed(topics)}. The offsets in the backup "
                "mean other records: reset the other topics, or use another target for these",
            )
        if topics := sorted(self.without_id & {p.topic for p in plan.partitions}):
            raise PlanRefused(
                TOPIC_RECREATED,
                f"topic(s) created since the backup, as they did not exist when it was read: {listed(topics)}. The "
                "offsets in the backup mean other records, if any: reset the other topics, or use another target for "
                "these",
            )


def restored(manifest: Manifest, group_id: str, rows: Iterable[Row], topics: Mapping[str, Topic]) -> Restored:
    """Where the group stood. What is gone since is left out, and said. Raises ``PlanRefused`` where nothing is left."""
    said = (
        f"The backup is the one due at {format_timestamp(manifest.due)}, read from "
        f"{format_timestamp(manifest.began_at)} to {format_timestamp(manifest.ended_at)}"
    )
    rows = tuple(rows)
    known = {p for topic in topics.values() for p in topic.all_partitions()}
    there = [r for r in rows if r.partition in known]
    gone = sorted({r.partition for r in rows} - known)
    notes = [said, *([f"Left out, because they no longer exist: {listed(gone)}"] if gone else ())]
    if not there:
        lacks = f"It has no offset of group {group_id}"
        if rows:
            lacks = f"All of its offsets of group {group_id} are of partitions that no longer exist"
        raise PlanRefused(BACKUP_NOT_FOUND, f"{said}. {lacks}: name another time in at")
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for row in there:
        numbers[row.partition.topic].add(row.partition.partition)
    return Restored(
        Findings({r.partition: r.committed for r in there}, tuple(notes)),
        tuple(Selection(topic, frozenset(those)) for topic, those in sorted(numbers.items())),
        {r.partition.topic: r.topic_id for r in there if r.topic_id is not None},
        frozenset(r.partition.topic for r in there if r.topic_id is None),
    )


def none_found(
    cluster_id: str, group_id: str, at: datetime | None, manifests: Iterable[Manifest], clusters: Iterable[str]
) -> PlanRefused:
    """Why there is no backup to use. ``manifests``: those of the cluster; ``clusters``: all that have any."""
    reasons = []
    unread = sorted((m.due, m.unread[group_id]) for m in manifests if group_id in m.unread)
    if unread:
        due, why = unread[-1]
        last = f"the last of them due at {format_timestamp(due)}: {why}"
        reasons.append(f"The group could not be read for {len(unread)} backup(s), {last}")
    known = sorted(set(clusters) - {cluster_id})
    if known:
        reasons.append(
            f"Backups of clusters {listed(known)} are not used: target cluster translates offsets between clusters"
        )
    return PlanRefused(
        BACKUP_NOT_FOUND,
        ". ".join(
            [
                f"there is no backup of cluster {cluster_id} with group {group_id}"
                + (f" that was made by {format_timestamp(at)}" if at is not None else "")
                + ": check the storage and at",
                *reasons,
            ]
        ),
    )
