"""A connection through which nothing is changed: what only looks goes through, and all else is refused.

Whoever acts through a KafkaConnection asks ``Live.observes`` first, and says in a status what it would do. This is the
second line: what forgets to ask changes nothing either. Jobs open connections of their own, and need no second line: of
a reset that is asked for while its connection observes they make the plan, which then waits to be approved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NoReturn

from tidegate.audit.ports import AuditLog
from tidegate.audit.records import AuditTopic
from tidegate.cluster import Kafka
from tidegate.control.gates import Gates
from tidegate.control.ports import ControlTopics
from tidegate.control.records import (
    Claim,
    ClaimKey,
    Hold,
    HoldKey,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
)
from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import (
    Cluster,
    Group,
    Keeping,
    LogBounds,
    Offsets,
    Range,
    Record,
    RecordHead,
    Topic,
    TopicPartition,
)
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit, Commits, OffsetRetention
from tidegate.kafka.ports import Membership, OffsetWriter, TopicWatch
from tidegate.kafka.rights import Right
from tidegate.resources.connection import GroupKind


def observes(connection: str) -> str:
    """Why nothing is done, for a message. ``connection``: its name."""
    return (
        f"KafkaConnection {connection} only observes (spec.observe, or TIDEGATE_OBSERVE of the operator), so nothing "
        "is changed through it"
    )


class ReadOnlyKafka:
    """Implements ``tidegate.cluster.Kafka``. Raises ``Refused`` for whatever would change something."""

    def __init__(self, kafka: Kafka, connection: str, why: str = "") -> None:
        """``connection``: its name. ``why``: nothing is changed, where it is not that it only observes."""
        self._kafka = kafka
        self._why = why or observes(connection)
        self._control = _ReadOnlyControl(kafka.control, self._why)
        self._retention = _ReadOnlyRetention(kafka.retention, self._why)
        self._audit = _ReadOnlyAudit(kafka.audit, self._why)

    @property
    def beneath(self) -> Kafka:
        """The connection itself, to end what was begun before it was only observed."""
        return self._kafka

    @property
    def control(self) -> ControlTopics:
        return self._control

    @property
    def retention(self) -> OffsetRetention:
        return self._retention

    @property
    def audit(self) -> AuditLog:
        return self._audit

    @property
    def membership(self) -> Membership:
        raise Refused(f"take part in a group: {self._why}")

    def writer(self, group_id: str, *, transaction_timeout_s: float, purpose: str = "") -> OffsetWriter:  # noqa: ARG002
        raise Refused(f"commit offsets of group {group_id}: {self._why}")

    def capabilities(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:  # noqa: ARG002
        return self._kafka.capabilities(kinds, probe=False)

    def lacking(self, rights: Collection[Right]) -> Collection[Right]:
        return self._kafka.lacking(rights)

    def close(self) -> None:
        self._kafka.close()

    # --- looking ------------------------------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        return self._kafka.cluster()

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        return self._kafka.topics(names)

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        return self._kafka.groups(group_ids)

    def group_ids(self) -> frozenset[str]:
        return self._kafka.group_ids()

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        return self._kafka.committed(group_id, partitions, stable=stable)

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        return self._kafka.committed_of(group_ids)

    def committed_by_streams(self, group_ids: Collection[str]) -> frozenset[str]:
        return self._kafka.committed_by_streams(group_ids)

    def managed_members(self, group_id: str) -> frozenset[str]:
        return self._kafka.managed_members(group_id)

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return self._kafka.pending(group_id, partitions)

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        return self._kafka.log_bounds(partitions)

    def last_stable_offsets(self, partitions: Collection[TopicPartition], *, as_told: bool = False) -> Offsets:
        return self._kafka.last_stable_offsets(partitions, as_told=as_told)

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        return self._kafka.offsets_at(times)

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        return self._kafka.record_times(positions)

    def next_records(self, positions: Offsets) -> Mapping[TopicPartition, RecordHead]:
        return self._kafka.next_records(positions)

    def records(
        self, partition: TopicPartition, span: Range, *, committed: bool, most_bytes: int
    ) -> tuple[Record, ...]:
        return self._kafka.records(partition, span, committed=committed, most_bytes=most_bytes)

    def keeping(self, topic: str) -> Keeping | None:
        return self._kafka.keeping(topic)

    def topic_watch(self) -> TopicWatch:
        return self._kafka.topic_watch()


class _ReadOnlyControl:
    """Implements ``tidegate.control.ports.ControlTopics``."""

    def __init__(self, control: ControlTopics, why: str) -> None:
        self._control = control
        self._why = why

    @property
    def exist(self) -> bool:
        return self._control.exist

    @property
    def unreadable(self) -> int:
        return self._control.unreadable

    def read(self, groups: Collection[str] = (), *, wait_s: float = 0.0) -> Gates:
        return self._control.read(groups, wait_s=wait_s)

    def confirm(self) -> None:
        """Nothing was taken over, so no other process can have followed."""

    def close(self) -> None:
        self._control.close()

    def ensure(self) -> tuple[str, ...]:
        self._refuse("create or take over the control topic")

    def hold(self, holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:  # noqa: ARG002
        self._refuse("write holds")

    def limit(self, limits: Mapping[LimitKey, Limit]) -> Mapping[LimitKey, int]:  # noqa: ARG002
        self._refuse("write limits")

    def release(self, keys: Iterable[HoldKey | LimitKey]) -> None:  # noqa: ARG002
        self._refuse("release holds")

    def write_partitions(self, records: Mapping[PartitionKey, PartitionSeen | None]) -> None:  # noqa: ARG002
        self._refuse("write when partitions were created")

    def write_clock(self) -> int:
        self._refuse("write the time")

    def claim(self, key: ClaimKey, claim: Claim) -> None:  # noqa: ARG002
        self._refuse(f"claim group {key.group}")

    def withdraw(self, keys: Iterable[ClaimKey]) -> None:  # noqa: ARG002
        self._refuse("withdraw claims")

    def note_runs(self, records: Mapping[RunKey, Run | None]) -> None:  # noqa: ARG002
        self._refuse("write which resets were executed")

    def _refuse(self, what: str) -> NoReturn:
        raise Refused(f"{what}: {self._why}")


class _ReadOnlyRetention:
    """Implements ``tidegate.kafka.offset_retention.OffsetRetention``."""

    def __init__(self, retention: OffsetRetention, why: str) -> None:
        self._retention = retention
        self._why = why

    def settings(self) -> RetentionSettings:
        return self._retention.settings()

    def commits(self, group_id: str) -> Commits:
        return self._retention.commits(group_id)

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Commits]:
        return self._retention.commits_of(group_ids)

    def log(self, group_id: str, since: GroupLog) -> GroupLog:
        return self._retention.log(group_id, since)

    def commit(
        self,
        group_id: str,
        wanted: Mapping[TopicPartition, Commit],  # noqa: ARG002
        found: Mapping[TopicPartition, Commit],  # noqa: ARG002
        *,
        retention_ms: int,  # noqa: ARG002
    ) -> frozenset[TopicPartition]:
        raise Refused(f"commit offsets of group {group_id}: {self._why}")


class _ReadOnlyAudit:
    """Implements ``tidegate.audit.ports.AuditLog``."""

    def __init__(self, audit: AuditLog, why: str) -> None:
        self._audit = audit
        self._why = why

    def ensure(self, topic: AuditTopic) -> tuple[str, ...]:
        raise Refused(f"create topic {topic.name}: {self._why}")

    def check_writable(self, name: str) -> None:
        self._audit.check_writable(name)
