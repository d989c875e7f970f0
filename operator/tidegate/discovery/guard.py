"""What is known of one policy's new partitions while the operator runs, and what of it its status says."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

from tidegate.audit.records import Action
from tidegate.connection.live import Live
from tidegate.control.records import PartitionKey
from tidegate.discovery.backfill import Asker
from tidegate.discovery.remembered import Counts, Remembered
from tidegate.discovery.starts import Outcome, Start
from tidegate.discovery.state import DiscoveryState, settle, without
from tidegate.kafka.errors import NotAuthorized, Refused, UnknownPartitions
from tidegate.kafka.model import Group, Offsets, Topic, TopicPartition
from tidegate.kafka.names import is_allowed, is_internal, is_pattern
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.policy.feature import PolicyView
from tidegate.policy.recording import attribution_of
from tidegate.resources.discovery import MAX_NEWEST, DiscoverySpec, DiscoveryStatus, NewPartition, NewPartitions, Repair
from tidegate.resources.partitions import format_partitions
from tidegate.resources.policy import OffsetResetPolicySpec

_log = logging.getLogger(__name__)

FOUND: Final = "PartitionsFound"
BEGAN_AT_END: Final = "BeganAtEnd"
BACKFILLED: Final = "Backfilled"
BACKFILL_FAILED: Final = "BackfillFailed"
START_FAILED: Final = "StartFailed"

_OFTEN: Final = 6
"""Failures in a row, after some ten seconds, by which a start is said not to be committed."""

_GONE_S: Final = 3600.0


def discovery_of(spec: OffsetResetPolicySpec) -> DiscoverySpec | None:
    """How new partitions are looked for; ``None``: not at all. ``latest.maxAge`` needs it, so it brings it along."""
    discovery = spec.discovery
    if discovery is None and spec.latest is not None and spec.latest.max_age is not None:
        discovery = DiscoverySpec()
    return discovery if discovery is not None and discovery.interval else None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a policy asks for. ``patterns``: its topics; ``None``: ``read``, those that the group reads.

    ``only_read``: of those that ``patterns`` name, too, since not all of many groups read all of them.
    ``tells_agents``: consumers that run the agent decide by the partitions' ages, so these have to be told.
    ``max_age``: partitions that are older begin as the consumers are configured; ``None``: none is too old.
    """

    group: str
    discovery: DiscoverySpec
    patterns: tuple[str, ...] | None
    allowed: tuple[str, ...]
    tells_agents: bool
    only_read: bool = False
    max_age: timedelta | None = None

    @property
    def sends_back(self) -> bool:
        """Whether an owner that has begun at the end of a new partition is to begin at its start after all."""
        return self.discovery.new_partitions is NewPartitions.EARLIEST and self.discovery.repair is Repair.BACKFILL

    def topics(self, seen: Mapping[str, Topic], read: Collection[str]) -> dict[str, Topic]:
        """Those of the cluster's topics that are guarded."""

        names = frozenset(read) if self.only_read or self.patterns is None else self.names or seen.keys()
        return {name: seen[name] for name in sorted(names) if name in seen and self.is_meant(name)}

    @property
    def names(self) -> frozenset[str] | None:
        """The topics, where each is named; ``None``: which they are is to be seen."""
        if self.patterns is None or any(map(is_pattern, self.patterns)):
            return None
        return frozenset(self.patterns)

    def is_meant(self, name: str) -> bool:
        """Whether the topic is asked for, and may be."""
        asked = self.patterns is None or is_allowed(name, self.patterns)
        return asked and not is_internal(name) and is_allowed(name, self.allowed)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What all policies of a connection ask for. ``interval_s``: between two looks. ``names``: the topics to ask for;
    ``None``: all, where patterns, or what a group may read, are guarded. ``each``: by the policy's key."""

    interval_s: float
    names: frozenset[str] | None
    each: Mapping[str, Wish]

    @classmethod
    def of(cls, each: Mapping[str, Wish]) -> Self:
        interval_s = min((wish.discovery.interval.total_seconds() for wish in each.values()), default=1.0)
        named = [wish.names for wish in each.values()]
        names = frozenset().union(*(n for n in named if n)) if named and None not in named else None
        return cls(interval_s, names, each)


def wish_of(policy: PolicyView, discovery: DiscoverySpec) -> Wish:
    spec = policy.spec
    max_age = spec.latest.max_age if spec.latest is not None else None
    return Wish(
        policy.group,
        discovery,
        spec.topics,
        policy.live.allow.topics,
        tells_agents=max_age is not None or spec.consumers is not None,
        only_read=policy.is_one_of_many,
        max_age=max_age,
    )


@dataclass(slots=True)
class Guard:
    """One policy's discovery in one cluster. Belongs to the event loop's thread. ``policy``: its namespace and name.

    ``existed``: by topic id, how many partitions were there before the policy asked for the topic. ``announced``: new
    ones that were told of, ``busy``: those being taken care of, with the topic's id, ``overtaken``: those that are to
    be sent back to their start, ``counted``: those of them that were counted, ``untold``: those of which agents have
    still to be told when they were made, ``too_old``: those that are older than ``latest.maxAge``. ``unsettled``:
    whether the last look at its topics has found new ones. ``resetting``: a run of the policy owns the group's offsets.
    ``has_news``: since its last pass. ``trouble``: why starts of new partitions could not be committed; empty: they
    could. ``turn``: to send owners back, as one reset of a group would fence another.
    """

    uid: str
    policy: str
    wish: Wish
    state: DiscoveryState
    existed: Mapping[str, int]
    read: frozenset[str] = frozenset()
    resetting: bool = False
    has_news: bool = False
    gone_since_s: dict[str, float] = field(default_factory=dict)
    looked_at: Mapping[str, Topic] | None = None
    announced: set[TopicPartition] = field(default_factory=set)
    busy: dict[TopicPartition, str] = field(default_factory=dict)
    overtaken: dict[TopicPartition, Start] = field(default_factory=dict)
    untold: set[TopicPartition] = field(default_factory=set)
    too_old: set[TopicPartition] = field(default_factory=set)
    counted: set[TopicPartition] = field(default_factory=set)
    unsettled: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    trouble: str = ""
    again_at_s: float = 0.0
    starts_committed: int = 0
    began_at_end: int = 0
    backfilled: int = 0
    newest: deque[NewPartition] = field(default_factory=lambda: deque(maxlen=MAX_NEWEST))
    happenings: list[KubeEvent] = field(default_factory=list)
    committed: Offsets = field(default_factory=dict)
    cluster_id: str = ""

    def asker(self, live: Live) -> Asker:
        """For whom owners are sent back, and how long their application may hold records."""
        told = attribution_of(self.policy, live.audit, Action.BACKFILL)
        return Asker(self.uid, self.policy, live.uid, told, self.wish.discovery.in_flight or timedelta(0))

    def turn_to(self, wish: Wish, existed: Mapping[str, int]) -> None:
        """The policy asks for something else now. ``existed``: what is there, which is old for it."""
        if (wish.patterns, wish.allowed) != (self.wish.patterns, self.wish.allowed):
            self.existed = existed
        self.wish, self.looked_at = wish, None
        self._forget_others()
        if not wish.sends_back:
            self.settle(self.overtaken)
            self.overtaken = {}

    def reads(self, names: frozenset[str], heard_of: Mapping[str, int]) -> None:
        """The group reads these topics. ``heard_of``: what its clients must have known before: that is old for it."""
        more = {i: n for i, n in heard_of.items() if n > self.existed.get(i, 0)}
        if more and (self.wish.only_read or self.wish.patterns is None):
            self.existed = {**self.existed, **more}
        self.read, self.looked_at = self.read | names, None

    def forget_gone(self, there: Collection[str], now_s: float) -> None:
        """Forget topics that have been gone for so long that no broker just lags behind."""
        self.gone_since_s = {
            name: self.gone_since_s.get(name, now_s) for name in self.state.topics if name not in there
        }
        gone = {name for name, since_s in self.gone_since_s.items() if now_s - since_s > _GONE_S}
        if gone:
            self.see(without(self.state, gone))

    def _forget_others(self) -> None:
        """Topics that are not asked for: what comes there meanwhile is old, should they be asked for again."""
        others = {name for name in self.state.topics if not self.wish.is_meant(name)}
        if others:
            self.see(without(self.state, others))

    def see(self, state: DiscoveryState) -> None:
        """What a look has told. A topic that is gone, or was made anew, shares nothing with the one that comes next."""
        ids = {name: known.topic_id for name, known in state.topics.items()}
        anew = {name for name, known in self.state.topics.items() if ids.get(name) != known.topic_id}
        self.state = state
        if anew:
            self.announced = {p for p in self.announced if p.topic not in anew}
            self.too_old = {p for p in self.too_old if p.topic not in anew}
            self.untold = {p for p in self.untold if p.topic not in anew}
            self.overtaken = {p: start for p, start in self.overtaken.items() if p.topic not in anew}
            self.counted &= self.overtaken.keys()

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        """These are taken care of."""
        self.state = settle(self.state, [p for p in partitions if self._is_still(p)])

    def _is_still(self, partition: TopicPartition) -> bool:
        """Whether its topic was not made anew while it was taken care of."""
        known = self.state.topics.get(partition.topic)
        return known is not None and self.busy.get(partition, known.topic_id) == known.topic_id

    def key_of(self, partition: TopicPartition) -> PartitionKey | None:
        """As the control topic has it; ``None``: nothing is known of its topic any more."""
        known = self.state.topics.get(partition.topic)
        return None if known is None else PartitionKey(partition.topic, known.topic_id, partition.partition)

    # --- what happened ------------------------------------------------------------------------------------------------

    def found(
        self,
        new: Collection[TopicPartition],
        seen: Mapping[TopicPartition, NewPartition],
        too_old: Collection[TopicPartition] = (),
    ) -> None:
        """New partitions were seen for the first time, some of which are ``too_old`` to be given a start."""
        self.announced.update(new)
        self.too_old.update(too_old)
        self.newest.extendleft(seen[p] for p in sorted(new))
        where = {
            NewPartitions.EARLIEST: "begins them at their start",
            NewPartitions.LATEST: "begins them where its consumers' configuration says (newPartitions: latest)",
            NewPartitions.NONE: "gets no start for them (newPartitions: none)",
        }[self.wish.discovery.new_partitions]
        young = [p for p in new if p not in self.too_old]
        if young:
            message = f"new partitions: {named(young)}; group {self.wish.group} {where}"
            self._tell(EventType.NORMAL, FOUND, message, young)
        if too_old:
            where = "begins them where its consumers' configuration says, because they are older than latest.maxAge"
            message = f"new partitions: {named(too_old)}; group {self.wish.group} {where}"
            self._tell(EventType.NORMAL, FOUND, message, too_old)

    def stood(self, starts: Mapping[TopicPartition, Start]) -> frozenset[TopicPartition]:
        """How the new partitions stand; those that are taken care of by that."""
        self.trouble = ""
        self.starts_committed += sum(start.outcome is Outcome.GIVEN for start in starts.values())
        late = {p: start for p, start in starts.items() if start.outcome is Outcome.OVERTAKEN and self._is_still(p)}
        if late:
            self.began_at_end += len(late)
            records = sum(start.records for start in late.values())
            reports = not self.wish.sends_back
            then = (
                "Nothing is done, because repair is Report: reset these partitions to earliest to have the records read"
                if reports
                else "The group is sent back to their start, and reads again what it has read of them since"
            )
            self._tell(
                EventType.WARNING,
                BEGAN_AT_END,
                f"group {self.wish.group} began {named(late)} before their start was committed, and may have skipped "
                f"up to {records} record(s). {then}",
                late,
            )
            if not reports:
                self.overtaken |= late
        return frozenset(starts) - frozenset(self.overtaken)

    def failed(self, where: str, partitions: Collection[TopicPartition], failure: Exception) -> bool:
        """Starts, or what sends owners back, could not be committed; whether that is news for the policy."""
        is_early = isinstance(failure, UnknownPartitions)
        level = logging.DEBUG if is_early else logging.WARNING
        what = "%s: could not give group %s its starts of new partitions: %s; retrying soon"
        _log.log(level, what, where, self.wish.group, failure)
        if not isinstance(failure, NotAuthorized | Refused) and self.failures < _OFTEN:
            return False  # it mostly passes by itself
        late = self.to_be_sent_back(partitions)
        if late:
            self.not_sent_back(late, str(failure))
        left = [p for p in partitions if p not in late and p not in self.too_old and self._is_still(p)]
        if not left:
            return bool(late)
        trouble = (
            f"the start of {named(left)} could not be committed for group {self.wish.group}: {failure}. Until it is, a "
            "consumer with auto.offset.reset=latest that is assigned one of them begins at its end. This is retried"
        )
        if trouble == self.trouble:
            return bool(late)
        self.trouble = trouble
        self._tell(EventType.WARNING, START_FAILED, trouble, left)
        return True

    def to_be_sent_back(self, new: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Of these, sorted. Of others somebody else takes care."""
        return tuple(sorted(self.overtaken.keys() & set(new)))

    def newly_late(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Of these, which are overtaken, those that were not counted so far."""
        late = frozenset(partitions) - self.counted
        self.counted |= late
        return late

    def sent_back(self, partitions: Collection[TopicPartition]) -> None:
        """Overtaken partitions were reset to their start."""
        self.backfilled += len(partitions)
        for partition in partitions:
            self.overtaken.pop(partition, None)
        self.counted.difference_update(partitions)
        message = f"group {self.wish.group} was sent back to the start of {named(partitions)}"
        self._tell(EventType.NORMAL, BACKFILLED, message, partitions)

    def not_sent_back(self, partitions: Collection[TopicPartition], why: str) -> None:
        what = f"group {self.wish.group} could not be sent back to the start of {named(partitions)}"
        self._tell(EventType.WARNING, BACKFILL_FAILED, f"{what}: {why}. This is retried later", partitions)

    def _tell(self, kind: EventType, reason: str, message: str, partitions: Collection[TopicPartition]) -> None:
        first = min(partitions)
        known = self.state.topics.get(first.topic)
        key = f"{reason}/{known.topic_id if known is not None else ''}/{first.partition}/{len(partitions)}"
        self.happenings.append(KubeEvent(kind, reason, message, key))

    # --- the status ---------------------------------------------------------------------------------------------------

    @property
    def remembered(self) -> Remembered:
        """What a later process goes on from. It finds those that still have to be sent back once more, and counts them
        then."""
        counts = Counts(self.starts_committed, self.began_at_end - len(self.overtaken), self.backfilled)
        return Remembered(self.state, self.wish.patterns, counts, self.wish.allowed, self.cluster_id)

    def restore(self, before: Remembered, status: DiscoveryStatus | None) -> None:
        """Go on from where an earlier process was, and what it has said."""
        asked = (before.selection, before.allowed) == (self.wish.patterns, self.wish.allowed)
        if asked and self.wish.patterns is not None and not self.wish.only_read:
            self.existed = {}  # what came while nobody looked is new; a topic that is read only now is not
        self.state, counts = before.state, before.counts
        self.starts_committed, self.began_at_end = counts.starts_committed, counts.began_at_end
        self.backfilled = counts.backfilled
        self._forget_others()
        self.newest.extend(status.newest if status is not None else ())

    def status(self, group: Group) -> DiscoveryStatus:
        """``group``: as it is now; ``committed`` is of a while ago."""
        owned = group.assigned
        known = self.state.topics
        taken = sum(self.state.is_initial(p) for p in owned | self.committed.keys())
        return DiscoveryStatus(
            initial_discovery_finished=self.state.initial_discovery_finished,
            assigned=sum(p.topic in known for p in owned),
            unassigned_initial=sum(topic.initial for topic in known.values()) - taken,
            starts_committed=self.starts_committed,
            began_at_end=self.began_at_end,
            backfilled=self.backfilled,
            newest=tuple(self.newest),
        )


def named(partitions: Collection[TopicPartition]) -> str:
    """``orders 4-5, refunds 0``, at most ten topics."""
    numbers: dict[str, set[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, set()).add(partition.partition)
    texts = [f"{topic} {format_partitions(found)}" for topic, found in sorted(numbers.items())]
    more = f" and {len(texts) - 10} more topics" if len(texts) > 10 else ""
    return ", ".join(texts[:10]) + more
