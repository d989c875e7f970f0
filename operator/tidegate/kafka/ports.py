"""What Tidegate needs of a Kafka cluster. Adapters implement these; one contract suite runs against each of them.

All calls block, are bounded in time and thread-safe unless said otherwise. They raise subclasses of
``tidegate.kafka.errors.KafkaFailure`` only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.model import (
    Cluster,
    Generation,
    Group,
    LogBounds,
    Member,
    Offsets,
    Range,
    Record,
    RecordHead,
    Seat,
    Topic,
    TopicPartition,
)
from tidegate.resources.connection import GroupKind


class ClusterReader(Protocol):
    """Everything that only looks."""

    def cluster(self) -> Cluster: ...

    def capabilities(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:
        """Whether a producer from outside may commit offsets of such groups, for each of ``kinds``.

        By what the brokers say of themselves, which is asked anew every few minutes; where that decides nothing, by
        trying it with a group that is made for it, which needs rights on ``tidegate.probe/``, commits nothing and is
        gone afterwards. What is found out is remembered. It is ``UNKNOWN`` without those rights, and where it must not
        be tried (``probe``).
        """
        ...

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        """The topics that the principal may see, internal ones left out: all, or those of these names."""
        ...

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        """Describe groups. A group nobody knows is in the answer as ``DEAD``."""
        ...

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        """Committed offsets; partitions without a commit are absent. ``partitions=None``: all the group has.

        ``stable``: partitions with a pending transactional commit are absent too (OffsetFetch ``require_stable``,
        KIP-447); use :meth:`pending` to tell them from partitions without a commit.
        """
        ...

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        """All committed offsets of many groups, in few requests (OffsetFetch v8 batches groups); none if unknown."""
        ...

    def committed_by_streams(self, group_ids: Collection[str]) -> frozenset[str]:
        """Those of the groups in which a commit has the metadata that Kafka Streams writes; in few requests."""
        ...

    def managed_members(self, group_id: str) -> frozenset[str]:
        """Ids of members of the group, present or past, that run the agent; empty without rights on the ack topic."""
        ...

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions for which a transaction that commits an offset is still open or just ending."""
        ...

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        """Raises ``UnknownPartitions``."""
        ...

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        """The first offset whose record's timestamp is at or after the time; ``None``: no such record (Kafka's −1).

        Raises ``UnknownPartitions``.
        """
        ...

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        """Timestamps of the first records at or after the positions; partitions with no such record, or with one of a
        time after the year 9999, are absent.

        Reads one record a partition: meant for hundreds of partitions, not for tens of thousands.
        """
        ...


class CommittedReader(ClusterReader, Protocol):
    """What readers of committed records (isolation level read_committed) see, besides."""

    def last_stable_offsets(self, partitions: Collection[TopicPartition], *, as_told: bool = False) -> Offsets:
        """Where each log ends for readers of committed records: before the first that an open transaction has written,
        or at its end (ListOffsets, isolation level read_committed). Raises ``UnknownPartitions``; ``as_told``: those
        that are gone, or whose leader does not tell, are absent instead."""
        ...

    def next_records(self, positions: Offsets) -> Mapping[TopicPartition, RecordHead]:
        """The first record at or after each position that a reader of committed records would be given; partitions
        without one are absent. Needs Read on the topics.

        Reads one record a partition, and takes a second or two where brokers do not answer: meant for few partitions.
        """
        ...

    def records(
        self, partition: TopicPartition, span: Range, *, committed: bool, most_bytes: int
    ) -> tuple[Record, ...]:
        """The whole records at these offsets that are there, in order; offsets without one are left out. Needs Read.

        ``committed``: only those that a reader of committed records is given. Meant for a few records. Raises
        ``Refused`` where they have more than ``most_bytes`` together, or can't be read as they are.
        """
        ...


class TopicWatch(Protocol):
    """Looks at topics again and again, several times a second, on a connection of its own. For one thread at a time."""

    def poll(self, topics: Collection[str] | None = None) -> Mapping[str, Topic] | None:
        """The topics as one broker knows them now; ``None``: they are as the last call has told.

        ``topics``: their names; absent: all that the principal may see. Internal ones, and those that do not exist or
        may not be described, are left out. The first call, one after a failure, and one that asks for other topics
        than the last always tell. Creates no topic.

        A partition counts as soon as the broker lists it, with or without a leader; of one topic id their number never
        falls. The same broker is asked for as long as it answers. After a change of brokers what is told may be a
        moment older than before: a topic may be gone, or an earlier one of its name be back, until that broker has
        caught up.

        Raises ``Unavailable`` when no broker has answered in time, ``Refused`` when they do not tell topic ids (Kafka
        before 2.8).
        """
        ...

    def close(self) -> None: ...


class GroupTransaction(Protocol):
    """One open Kafka transaction that commits offsets. Not thread-safe.

    ``send`` may be called again: within a transaction the last offsets sent win. Leaving the context without
    ``commit`` aborts, and so does leaving it after a ``send`` that failed: what is committed is all that was sent.

    Both raise ``Unavailable`` where it has outlived its time-out, at which the coordinator ends it: that looks as if
    another writer had taken over, and one may have.
    """

    def send(self, group_id: str, offsets: Offsets) -> None:
        """Raises ``CommitRefused`` where the group's coordinator takes no offsets of a producer that is no member."""
        ...

    def append(self, topic: str, records: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> None:
        """Append records (values by key) to partition 0 of a topic, within the transaction: they can be read, by who
        reads committed records, if the offsets are committed, and else never.

        ``timeout_s``: how long it may take, where that is shorter than usual. Raises ``Unavailable`` also where there
        is no such topic, which a coordinator may hear of yet.
        """
        ...

    def copy(self, partition: TopicPartition, records: Sequence[Record], *, timeout_s: float | None = None) -> None:
        """Append records, with keys, values, headers and timestamps as given, within the transaction; as ``append``.

        Raises ``Refused`` where the broker does not take them, such as one that is too large.
        """
        ...

    def include(self, partition: TopicPartition, *, timeout_s: float | None = None) -> None:
        """Have the transaction's end decide as well what an earlier one of its producer has left open in a partition;
        nothing is appended."""
        ...

    def commit(self) -> None:
        """Raises ``OutcomeUnknown`` only when the coordinator could not be asked again within the timeout, and
        ``Refused`` after a ``send`` that failed.

        Returns before the offsets are visible: poll ``ClusterReader.pending``.
        """
        ...


class OffsetWriter(Protocol):
    """Writes offsets of one group, fencing every earlier writer of that group."""

    def fence(self) -> None:
        """Abort what an earlier writer with this group's transactional id left open (``initTransactions``).

        Returns when that writer's transaction has ended, one way or the other.
        """
        ...

    def transaction(self) -> AbstractContextManager[GroupTransaction]:
        """Begin a transaction. Needs no membership in the group. Calls ``fence`` first if that was not done yet."""
        ...

    def alter(self, group_id: str, offsets: Offsets) -> None:
        """Commit to a group without members. Raises ``GroupNotEmpty``, ``UnknownPartitions``."""
        ...

    def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Forget the committed offsets; returns the partitions for which the broker refused (still subscribed)."""
        ...

    def close(self) -> None: ...


class Kept(Protocol):
    """Something that a coordinator forgets unless it hears of it again and again."""

    def keep(self) -> None:
        """Renew it if it is time to; call several times a second."""
        ...


class JoinHold(Protocol):
    """A rebalance of a classic group, held at its join by a pending member id (KIP-394). See ``Membership.hold``."""

    @property
    def lapsed(self) -> bool:
        """Whether the coordinator had forgotten the hold before it was let go, or may have.

        Then the join may have ended at any time since the hold was last known to stand. What the coordinator says when
        a pending member id leaves decides: it also forgets them all when it moves to another broker.
        """
        ...

    def blink(self) -> bool:
        """Let the join go if everybody has rejoined, and hold it again at once if not.

        Returns whether it went: the rebalance is over and nothing is held any more.
        """
        ...

    def keep(self) -> None:
        """Renew the hold before the coordinator forgets it; call at least every ``renew_every_s``."""
        ...

    def release(self) -> None:
        """Let go for good; the rebalance ends once every member has rejoined. Idempotent."""
        ...


class Guest(Kept, Protocol):
    """A member of ours in a classic group, which subscribes to nothing and may be its leader. For one thread.

    Who leads says in each generation who owns what (``ConsumerPartitionAssignor``), and until he has said it nobody
    owns anything that he did not have before, and no member's commit is taken. Should this process die, the group goes
    on without its guest after the guest's session timeout.

    All calls raise ``Unavailable`` once the coordinator has forgotten the guest: it was not heard of for too long, or
    somebody left in its name.
    """

    @property
    def member_id(self) -> str: ...

    def join(self) -> None:
        """Ask to join, or to join again, which starts a rebalance. Does not wait."""
        ...

    def joined(self) -> Generation | None:
        """The generation that was joined, once all others have joined it too; ``None`` until then.

        Raises ``Refused`` where the group takes no such member: it is full (``group.max.size``), or has no assignor in
        common with it.
        """
        ...

    def rebalances(self) -> bool:
        """Whether the members are to join anew (Heartbeat)."""
        ...

    def assign(self, generation: Generation, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        """Say as leader who owns what (SyncGroup); whether it counts: not if a new rebalance was faster."""
        ...

    def leave(self) -> None:
        """Idempotent, and tried once: a coordinator that does not answer forgets the guest by itself."""
        ...


class SeatedGuest(Guest, Protocol):
    """A guest whose coordinator may move while it stays. ``rebalances`` and ``assign`` tell of a rebalance also where
    the generation is over. Calls raise ``MemberForgotten`` once the coordinator has forgotten it."""

    @property
    def seat(self) -> Seat:
        """By which another process can go on; the generation is −1 until one was joined."""
        ...

    def present(self) -> Generation | None:
        """The generation of a stable group, with what its members said as they joined it; ``None`` where the group is
        not stable. Who leads it is not found out."""
        ...


class Membership(Protocol):
    """The few group requests that no client library offers: joining without staying, leaving in a member's name."""

    def leave(self, group_id: str, members: Iterable[Member]) -> frozenset[str]:
        """LeaveGroup v3+ in the members' names; returns the ids of those the coordinator still knew."""
        ...

    def hold(self, group_id: str, *, rebalance: bool = True, assignor: str = "") -> AbstractContextManager[JoinHold]:
        """Start a rebalance of a classic group and hold it at its join. Leaving the context releases.

        ``rebalance=False``: start none, hold the one that members' leaving starts. ``assignor``: the group's, for when
        a rebalance is under way, which hides it; raises ``Refused`` where it is needed and not told.

        Should this process die, the coordinator lets go by itself after the pending id's session timeout. Raises
        ``GroupNotLive``.
        """
        ...

    def guest(self, group_id: str) -> AbstractContextManager[Guest]:
        """A member id for a guest in a live classic group; it has not joined yet. Leaving the context leaves.

        Raises ``GroupNotLive``, ``Refused`` where the group takes no more members, ``NotAuthorized`` without Read on
        it.
        """
        ...

    def seat(self, group_id: str, session_s: float, known: Seat | None = None) -> AbstractContextManager[SeatedGuest]:
        """A guest that stays in the group when the context is left, for ``session_s`` after it was last heard of.

        ``known``: go on as this member, without a request; whether the group knows it shows with the first one. Raises
        as :meth:`guest` does.
        """
        ...

    def guests(self, group_id: str) -> frozenset[str]:
        """Ids of members of a stable classic group that subscribe to nothing, as guests do."""
        ...

    def owned_when_joining(self, group_id: str, *, dated: bool = False) -> Mapping[str, frozenset[TopicPartition]]:
        """What each member of a stable classic group had as it joined the present generation, by member id.

        Members of cooperative groups tell it (``ConsumerProtocolSubscription``, KIP-429), others nothing. What they
        have to give up they give up after that join: until they have, they go on reading it, and may commit it.

        ``dated``: only what is told with the generation that it was given in (KIP-792). Clients without that
        (kafka-python) repeat what they had before they lost it.
        """
        ...

    def subscription_versions(self, group_id: str) -> Mapping[str, int]:
        """Version of ``ConsumerProtocolSubscription`` by member id of a stable classic group.

        0 is from before incremental rebalancing (KIP-429): such a client may keep its position over a rebalance.
        """
        ...
