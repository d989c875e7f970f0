"""The coordinator's keeping of offsets, in memory; `tests/contract/test_offset_retention.py` runs against both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.kafka.errors import GroupNotEmpty, NotAuthorized
from tidegate.kafka.model import GroupState, GroupType, TopicPartition
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog, LoggedCommit
from tidegate.kafka.offset_retention import Commit, Commits

if TYPE_CHECKING:
    from support.fake_kafka import FakeKafka, _Commit, _GroupLogs

DEFAULT: Final = RetentionSettings.of_minutes(7 * 24 * 60, 600_000)
"""Kafka's own settings."""


class FakeOffsetRetention:
    """Implements ``tidegate.kafka.offset_retention.OffsetRetention`` on a `FakeKafka`.

    ``may_read_settings``, ``may_read_log``: what the principal may. ``between``: what others do between the last look
    and the commit, one call each. Nothing expires unless :meth:`expire` is called.
    """

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self.brokers = DEFAULT
        self.may_read_settings = True
        self.may_read_log = True
        self.between: deque[Callable[[], None]] = deque()

    # --- the brokers --------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """One look of the coordinator at everything it has. No group with members has unsubscribed topics here."""
        now_ms = self._now_ms()
        for group in self._kafka._groups.values():
            if group.members:
                continue
            undecided = self._kafka._undecided(group.group_id)
            group.committed = {
                p: c for p, c in group.committed.items() if p in undecided or not self._is_expired(group, c, now_ms)
            }
            if not group.committed:
                group.type, group.emptied_ms = GroupType.SIMPLE, None

    def _is_expired(self, group: _GroupLogs, commit: _Commit, now_ms: int) -> bool:
        if commit.explicit_ms is not None:
            return now_ms >= commit.explicit_ms
        classic = group.type is GroupType.CLASSIC and group.emptied_ms is not None
        base_ms = group.emptied_ms if classic and group.emptied_ms is not None else commit.committed_ms
        return now_ms - base_ms >= self.brokers.retention_ms

    def _now_ms(self) -> int:
        return round(self._kafka.clock.now().timestamp() * 1000)

    # --- the port -----------------------------------------------------------------------------------------------------

    def settings(self) -> RetentionSettings:
        self._kafka._called("settings")
        if not self.may_read_settings:
            raise NotAuthorized("read the brokers' retention of offsets: CLUSTER_AUTHORIZATION_FAILED")
        return self.brokers

    def commits(self, group_id: str) -> Commits:
        self._kafka._called("commits")
        self._kafka._look()
        return self._commits(group_id)

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Commits]:
        self._kafka._called("commits_of")
        self._kafka._look()
        return {group_id: self._commits(group_id) for group_id in group_ids}

    def _commits(self, group_id: str) -> Commits:
        known, pending = self._kafka._offsets_of(group_id), self._kafka._undecided(group_id)
        return Commits({p: Commit(c.offset, c.metadata) for p, c in known.items() if p not in pending}, pending)

    def log(self, group_id: str, since: GroupLog) -> GroupLog:
        self._kafka._called("log")
        if not self.may_read_log:
            raise NotAuthorized("read the coordinator's log: TOPIC_AUTHORIZATION_FAILED")
        group = self._kafka._groups.get(group_id)
        if group is None:
            return GroupLog(since.read_to, True)
        empty = group.type is GroupType.CLASSIC and group.state is GroupState.EMPTY
        return GroupLog(
            read_to=since.read_to + 1,
            complete=True,
            commits={p: LoggedCommit(c.offset, c.committed_ms, c.explicit_ms) for p, c in group.committed.items()},
            emptied_ms=group.emptied_ms if empty else None,
        )

    def commit(
        self,
        group_id: str,
        wanted: Mapping[TopicPartition, Commit],
        found: Mapping[TopicPartition, Commit],
        *,
        retention_ms: int,
    ) -> frozenset[TopicPartition]:
        self._kafka._called("commit_with_retention")
        now = self._commits(group_id)
        still = {p: c for p, c in wanted.items() if p not in now.pending and now.offsets.get(p) == found.get(p)}
        if self.between:
            self.between.popleft()()
        group = self._kafka._group(group_id)
        if group.members:
            raise GroupNotEmpty(f"keep {len(wanted)} offset(s) of group {group_id}: it has members")
        before = self._commits(group_id).offsets
        committed = {p for p in still if self._kafka._exists(p) and before.get(p) == found.get(p)}
        for partition in committed:
            made = self._kafka._commit(still[partition].offset)
            made.metadata, made.explicit_ms = still[partition].metadata, made.committed_ms + retention_ms
            group.committed[partition] = made
        return frozenset(committed)
