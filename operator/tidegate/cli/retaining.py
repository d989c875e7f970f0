"""``--describe --retention``: when the committed offsets of each group expire, as Kafka alone tells it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tidegate.cli.screen import Screen
from tidegate.cli.tables import MISSING, retention_table
from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import KafkaFailure, NotAuthorized
from tidegate.kafka.model import Group, Topic
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog
from tidegate.resources.timestamps import format_timestamp
from tidegate.retention.last_offsets import Places, after_look
from tidegate.retention.plan import Seen, decide
from tidegate.retention.status import instant

_READS: Final = 20
"""How often the log is read on at most; one reading is bounded (``OffsetRetention.log``)."""


def describe_retention(groups: Collection[str], kafka: Kafka, clock: Clock, screen: Screen) -> int:
    """A line for each group. Without the rights for exact times the earliest that are possible, or none.

    Raises ``KafkaFailure``.
    """
    described, topics = kafka.groups(groups), kafka.topics()
    settings = _settings(kafka, screen)
    rows = [_row(described[group], topics, settings, kafka, clock) for group in sorted(groups)]
    screen.show(retention_table(rows))
    return 0


def _row(
    group: Group, topics: Mapping[str, Topic], settings: RetentionSettings | None, kafka: Kafka, clock: Clock
) -> Sequence[str]:
    commits = kafka.retention.commits(group.group_id)
    now_ms = int(clock.now().timestamp() * 1000)
    seen = Seen(
        now_ms=now_ms,
        group=group,
        commits=commits,
        places=after_look(Places(), group, commits, topics, now_ms),
        settings=settings,
        log=_log(group.group_id, kafka) if commits.offsets else None,
        guard=False,
    )
    plan = decide(seen)
    expires = MISSING if plan.expires_ms is None else format_timestamp(instant(plan.expires_ms).replace(microsecond=0))
    exact = "yes" if plan.exact else "no"
    return (group.group_id, group.type, group.state, str(len(commits.offsets)), str(plan.kept), exact, expires)


def _settings(kafka: Kafka, screen: Screen) -> RetentionSettings | None:
    try:
        return kafka.retention.settings()
    except NotAuthorized as error:
        screen.note(f"{error}. Tidegate assumes that offsets are kept for one day")
        return None


def _log(group_id: str, kafka: Kafka) -> GroupLog | None:
    """Read to its end; ``None`` where it may not be read, or cannot be."""
    log = GroupLog()
    try:
        for _ in range(_READS):
            log = kafka.retention.log(group_id, log)
            if log.complete:
                return log
    except KafkaFailure:
        return None
    return None
