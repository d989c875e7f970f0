"""Discovery as one of a policy's features: who guards what, and what the status says of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

from tidegate.clock import Clock
from tidegate.connection.allow import group_not_allowed
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.freezing import FrozenMeanwhile
from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.discovery.backfill import Backfills
from tidegate.discovery.guard import START_FAILED, Guard, Wish, discovery_of, wish_of
from tidegate.discovery.remembered import PART, Remembered, decode, encode, merged, of_status, untold_of
from tidegate.discovery.state import DiscoveryState, grown
from tidegate.discovery.together import together
from tidegate.discovery.watch import ConnectionWatch, WatchParts
from tidegate.kafka.model import Group, GroupState, GroupType, Topic
from tidegate.kube.loop import rest_s
from tidegate.kube.ports import EventType, KubeEvent, label_of
from tidegate.policy.feature import FeatureOutcome, PolicyView, WholeView
from tidegate.policy.memory import Document, NewerMemory
from tidegate.policy.precedence import DISCOVERY
from tidegate.reset.planning.checks import STREAMS_ASSIGNOR
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import PolicyStatus
from tidegate.service.metrics import Metrics

_log = logging.getLogger(__name__)

_COMMITTED_S: Final = 30.0
"""How old the group's offsets may be of which the status counts those without an owner."""

_AGAIN_S: Final = 60.0
"""New partitions wake the policy, and so does a look that shows something new of its group: this is for figures, and
for what a group without members has offsets of. The longer, the more groups are guarded."""

_NEVER_S: Final = 3600.0

GROUP_NOT_SUPPORTED: Final = "GroupNotSupported"


@dataclass(frozen=True, slots=True)
class Parts:
    """What discovery acts through. ``is_frozen``: whether a connection is now, so that nothing new begins.
    ``executor``: for Kafka calls that may take their time; ``backfill_executor``: for backfills, which take minutes."""

    observer: Observer
    topics: TopicsOfConnections
    is_frozen: Callable[[Live], bool]
    executor: Executor
    clock: Clock
    wake: Callable[[str], None]
    metrics: Metrics
    backfill_executor: Executor


def is_refused(group: Group) -> bool:
    """Kafka Streams decides itself where its tasks begin, and KIP-1327 refuses the option to it; share groups have no
    offsets to commit. A Streams application of the classic protocol is told by its assignor.
    """
    return group.type in (GroupType.STREAMS, GroupType.SHARE) or group.assignor == STREAMS_ASSIGNOR


def _refusal(policy: PolicyView) -> KubeEvent:
    group = policy.group
    return KubeEvent(
        EventType.WARNING,
        GROUP_NOT_SUPPORTED,
        f"group {group} belongs to Kafka Streams or is a share group, so its new partitions get no start: remove "
        "spec.discovery and spec.latest",
        f"{GROUP_NOT_SUPPORTED}/{policy.body['metadata'].get('generation')}",
    )


class DiscoveryFeature:
    """Implements ``tidegate.policy.feature.GroupFeature``. Belongs to the event loop's thread."""

    part = DISCOVERY

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.backfills = Backfills(parts.backfill_executor)
        self._watches: dict[str, ConnectionWatch] = {}
        self._existed: Mapping[str, int] = {}
        """What there was before the newest guard came."""

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        live, discovery = policy.live, discovery_of(policy.spec)
        if discovery is None or group_not_allowed(live.name, live.allow, "spec.group", policy.group) is not None:
            return await self._without(policy)
        if live.observes:
            return await self._only_observed(policy)
        wish = wish_of(policy, discovery)
        asked = wish.group if policy.described is None else None
        if asked is not None:
            self._parts.observer.want(policy.key, live.uid, asked, active=False, gates=wish.tells_agents)
        snapshot = await self._parts.observer.newest(live.uid, group=asked, gates=wish.tells_agents)
        if snapshot.failure is not None:
            raise snapshot.failure
        group = policy.described or snapshot.groups[wish.group]
        if is_refused(group):
            return await self._without(policy, *([] if policy.is_one_of_many else [_refusal(policy)]))
        if policy.is_one_of_many and group.state is GroupState.DEAD:
            return await self._without(policy)  # a start would bring back a group that was deleted
        await self._leave_others(policy)
        # Before the watch is there: one without guards may go while something is waited for.
        remembered = Remembered() if self._has_guard(policy) else await self._remembered(policy)
        topics = None if self._guards(policy, wish) else await self._parts.observer.topics(live.uid, wish.names)
        watch = await self._watch(live)
        watch.note_ages(snapshot.gates)
        guard = watch.guards.get(policy.key)
        if guard is None or guard.wish != wish:
            if topics is None:
                raise NotLookedAt("what existed before the policy is not known: its discovery was just stopped")
            guard = self._guard(watch, wish, policy, topics, remembered)
            watch.guarded()
        guard.resetting, guard.has_news = policy.resetting, False
        guard.forget_gone(watch.topics, self._parts.clock.monotonic())
        await self._read_group(watch, guard, policy, group)
        if wish.tells_agents:
            try:
                usable = (await self._parts.topics.checked(live, snapshot)).usable
            except FrozenMeanwhile:
                # No topic is made for what new partitions are to be told in.
                usable = False
            watch.note_control(snapshot.gates, usable=usable)
        told, guard.happenings = tuple(guard.happenings), []
        await policy.memory.note(PART, _encoded(watch, guard))
        status = policy.status.model_copy(update={"discovery": guard.status(group)})
        guards = sum(len(watch.guards) for watch in self._watches.values())
        return FeatureOutcome(status, told, rest_s(_AGAIN_S, guards), _trouble(guard))

    async def _without(self, policy: PolicyView, *told: KubeEvent) -> FeatureOutcome:
        """Nothing is found for the group; should that change, all that is there by then is old."""
        asks = discovery_of(policy.spec) is not None
        await (self._unguard(policy.key) if asks else self.forget(policy.key))
        try:
            # Also where the status tells of nothing: a process may have died before that was written.
            await policy.memory.note(PART, None)
        except NewerMemory:
            if policy.status.discovery is not None or policy.is_one_of_many:
                raise
        status = policy.status.model_copy(update={"discovery": None})
        return FeatureOutcome(status, told, _AGAIN_S if asks else _NEVER_S)

    async def _only_observed(self, policy: PolicyView) -> FeatureOutcome:
        """No start is given, and when that ends, all that is there by then is old: nobody is sent back to what it may
        have passed long before. What was counted stays."""
        await self.forget(policy.key)
        counts, status = (await self._remembered(policy)).counts, policy.status
        if await policy.memory.recall(PART) is not None or status.discovery is not None:
            await policy.memory.note(PART, encode(Remembered(counts=counts)))
        if status.discovery is not None:
            discovery = status.discovery.model_copy(update={"topics": (), "selection": None})
            status = status.model_copy(update={"discovery": discovery})
        return FeatureOutcome(status, again_after_s=_AGAIN_S)

    def _has_guard(self, policy: PolicyView) -> bool:
        watch = self._watches.get(policy.live.uid)
        return watch is not None and policy.key in watch.guards

    async def _remembered(self, policy: PolicyView) -> Remembered:
        """What an earlier process has written: in the policy's memory, and an earlier version in its status."""
        document, status = await policy.memory.recall(PART), policy.status.discovery
        ours = None
        try:
            ours = decode(document) if document is not None else None
        except ValueError as error:
            _log.warning("%s: %s; the partitions that exist now count as old", label_of(policy.body), error)
        if status is None or (document is not None and not status.topics):
            known = ours or Remembered()
        else:
            earlier = of_status(status)
            known = earlier if ours is None else merged(ours, earlier)
        return known.here(policy.live.cluster_id)

    def with_news(self, uid: str) -> Mapping[str, Document]:
        guards = ((watch, guard) for watch in self._watches.values() for guard in watch.guards.values())
        return {g.wish.group: _encoded(watch, g) for watch, g in guards if g.has_news and g.uid == uid}

    def without(self, status: PolicyStatus) -> PolicyStatus:
        return status.model_copy(update={"discovery": None})

    def together(self, whole: WholeView) -> tuple[PolicyStatus, Sequence[TroubledGroup]]:
        if discovery_of(whole.spec) is None:
            return self.without(whole.status), ()
        return together(whole), ()

    async def let_go(self, policy: PolicyView) -> bool:
        await self.forget(policy.key)
        await policy.memory.note(PART, None)
        return True

    async def forget(self, key: str) -> None:
        self._parts.observer.drop(key)
        await self._unguard(key)

    async def _unguard(self, key: str) -> None:
        for watch in tuple(self._watches.values()):
            if watch.guards.pop(key, None) is None:
                continue
            watch.guarded()
            if not watch.guards:
                del self._watches[watch.live.uid]
                await watch.close()
                # It looked on after its connection was gone, until it was told.
                self._parts.metrics.polls_gone(f"{watch.live.namespace}/{watch.live.name}")

    async def disconnected(self, key: str) -> None:
        await self.forget(key)

    async def stop(self) -> None:
        watches, self._watches = tuple(self._watches.values()), {}
        for watch in watches:
            await watch.close()

    def _guards(self, policy: PolicyView, wish: Wish) -> bool:
        """Whether what the policy wishes is guarded already."""
        watch = self._watches.get(policy.live.uid)
        guard = watch.guards.get(policy.key) if watch is not None else None
        return guard is not None and guard.wish == wish

    async def _leave_others(self, policy: PolicyView) -> None:
        """Let go of what was guarded through another connection, or in another cluster. What was taken care of since
        the last pass is remembered first."""
        live, key = policy.live, policy.key
        for watch in tuple(self._watches.values()):
            guard = watch.guards.get(key)
            if guard is not None and (watch.live.uid != live.uid or guard.cluster_id != live.cluster_id):
                await policy.memory.note(PART, _encoded(watch, guard))
                await self._unguard(key)

    async def _watch(self, live: Live) -> ConnectionWatch:
        """The connection's watch; a new one, with what the old one's policies know, where it was opened anew. Of
        another cluster they know nothing: those are guarded again from their own next pass on."""
        watch = self._watches.get(live.uid)
        if watch is not None and watch.live.kafka is live.kafka:
            watch.live = live
            return watch
        parts = self._parts
        fresh = self._watches[live.uid] = ConnectionWatch(
            live,
            WatchParts(parts.executor, parts.clock, parts.wake, parts.metrics, self.backfills, parts.is_frozen),
        )
        if watch is not None:
            known = {key: guard for key, guard in watch.guards.items() if guard.cluster_id == live.cluster_id}
            fresh.guards.update(known)
            fresh.go_on_from(watch)
            await watch.close()
        fresh.start()
        return fresh

    def _guard(
        self,
        watch: ConnectionWatch,
        wish: Wish,
        policy: PolicyView,
        topics: Mapping[str, Topic],
        remembered: Remembered,
    ) -> Guard:
        """A guard for what the policy wishes now. ``topics``: those of the cluster, which were there before."""
        existed = self._existed_by(watch, topics)
        guard = watch.guards.get(policy.key)
        if guard is not None:
            guard.turn_to(wish, existed)
            return guard
        guard = watch.guards[policy.key] = Guard(
            policy.uid, label_of(policy.body), wish, DiscoveryState(), existed, cluster_id=policy.live.cluster_id
        )
        guard.restore(remembered, policy.status.discovery)
        watch.recall(guard, topics, remembered.untold)
        return guard

    def _existed_by(self, watch: ConnectionWatch, topics: Mapping[str, Topic]) -> Mapping[str, int]:
        """One for all guards that find the same: there may be thousands, and as many topics."""
        existed = grown(watch.sizes, topics)
        if existed != self._existed:
            self._existed = existed
        return self._existed

    async def _read_group(self, watch: ConnectionWatch, guard: Guard, policy: PolicyView, group: Group) -> None:
        """Which topics the group reads, where the policy does not say it, and what it has offsets for."""
        if policy.ahead is not None and not policy.ahead.commits.pending:
            guard.committed = {p: commit.offset for p, commit in policy.ahead.commits.offsets.items()}
        else:
            guard.committed = await self._parts.observer.committed(policy.live.uid, guard.wish.group, _COMMITTED_S)
        read = frozenset(p.topic for p in group.assigned) | {p.topic for p in guard.committed}
        if not read <= guard.read:
            guard.reads(read, watch.sightings.long_ago(read - guard.read, self._parts.clock.monotonic()))


def _trouble(guard: Guard) -> tuple[str, str] | None:
    """Of a topic that is gone by now nothing is said."""
    return (START_FAILED, guard.trouble) if guard.trouble and guard.unsettled else None


def _encoded(watch: ConnectionWatch, guard: Guard) -> Document:
    """What a later process goes on from."""
    return encode(replace(guard.remembered, untold=untold_of(watch.untold(guard))))
