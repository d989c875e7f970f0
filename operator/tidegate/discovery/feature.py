"""Discovery as one of a policy's features: who guards what, and what the status says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from tidegate.clock import Clock
from tidegate.connection.allow import group_not_allowed
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.connection.watched import Snapshot
from tidegate.discovery.backfill import Backfills
from tidegate.discovery.guard import Guard, Wish, discovery_of, wish_of
from tidegate.discovery.state import DiscoveryState, grown
from tidegate.discovery.watch import ConnectionWatch, WatchParts
from tidegate.kafka.model import Group, GroupType, Topic
from tidegate.kube.ports import EventType, KubeEvent, label_of, uid_of
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.reset.planning.checks import STREAMS_ASSIGNOR
from tidegate.service.metrics import Metrics

_COMMITTED_S: Final = 30.0
"""How old the group's offsets may be of which the status counts those without an owner."""

_AGAIN_S: Final = 10.0

GROUP_NOT_SUPPORTED: Final = "GroupNotSupported"


@dataclass(frozen=True, slots=True)
class Parts:
    """What discovery acts through. ``executor``: for Kafka calls that may take their time."""

    observer: Observer
    topics: TopicsOfConnections
    executor: Executor
    clock: Clock
    wake: Callable[[str], None]
    metrics: Metrics


def is_refused(group: Group) -> bool:
    """Kafka Streams decides itself where its tasks begin, and KIP-1327 refuses the option to it; share groups have no
    offsets to commit. A Streams application of the classic protocol is told by its assignor.
    """
    return group.type in (GroupType.STREAMS, GroupType.SHARE) or group.assignor == STREAMS_ASSIGNOR


def _refusal(policy: PolicyView) -> KubeEvent:
    group = policy.spec.only_group
    return KubeEvent(
        EventType.WARNING,
        GROUP_NOT_SUPPORTED,
        f"group {group} is of Kafka Streams or a share group: its new partitions are given no start; remove "
        "spec.discovery and spec.latest",
        f"{GROUP_NOT_SUPPORTED}/{policy.body['metadata'].get('generation')}",
    )


class DiscoveryFeature:
    """Implements ``tidegate.policy.feature.Feature``. Belongs to the event loop's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.backfills = Backfills()
        self._watches: dict[str, ConnectionWatch] = {}

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        uid, live = uid_of(policy.body), policy.live
        discovery = discovery_of(policy.spec)
        group = policy.spec.only_group
        if discovery is None or group_not_allowed(live.name, live.allow, "spec.group", group) is not None:
            await self.forget(uid)
            return FeatureOutcome(policy.status.model_copy(update={"discovery": None}))
        if live.observes:
            # What the status knows stays, so that partitions that come meanwhile are new when that ends.
            await self.forget(uid)
            return FeatureOutcome(policy.status)
        wish = wish_of(policy.spec, discovery, live.allow.topics)
        snapshot = await self._parts.observer.newest(live.uid, group=wish.group, gates=wish.tells_agents)
        if snapshot.failure is not None:
            raise snapshot.failure
        if is_refused(snapshot.groups[wish.group]):
            await self.forget(uid)
            return FeatureOutcome(policy.status.model_copy(update={"discovery": None}), (_refusal(policy),), _AGAIN_S)
        topics = None if self._guards(live, uid, wish) else await self._parts.observer.topics(live.uid, wish.names)
        watch = await self._watch(live, uid)
        guard = watch.guards.get(uid)
        if guard is None or guard.wish != wish:
            if topics is None:
                raise NotLookedAt("what there was before the policy is not known: somebody else has just let go of it")
            guard = self._guard(watch, uid, wish, policy, topics)
        guard.resetting = policy.resetting
        guard.forget_gone(watch.topics, self._parts.clock.monotonic())
        await self._read_group(guard, live, snapshot)
        if wish.tells_agents:
            checked = await self._parts.topics.checked(live, snapshot)
            watch.note_control(snapshot.gates, usable=checked.usable)
        told, guard.happenings = tuple(guard.happenings), []
        status = policy.status.model_copy(update={"discovery": guard.status(snapshot.groups[wish.group])})
        return FeatureOutcome(status, told, _AGAIN_S)

    async def forget(self, uid: str) -> None:
        for watch in tuple(self._watches.values()):
            if watch.guards.pop(uid, None) is not None and not watch.guards:
                del self._watches[watch.live.uid]
                await watch.close()

    async def disconnected(self, uid: str) -> None:
        await self.forget(uid)

    async def stop(self) -> None:
        watches, self._watches = tuple(self._watches.values()), {}
        for watch in watches:
            await watch.close()

    def _guards(self, live: Live, uid: str, wish: Wish) -> bool:
        """Whether what the policy wishes is guarded already."""
        watch = self._watches.get(live.uid)
        guard = watch.guards.get(uid) if watch is not None else None
        return guard is not None and guard.wish == wish

    async def _watch(self, live: Live, uid: str) -> ConnectionWatch:
        """The connection's watch; a new one, with what the old one's policies know, where it was opened anew."""
        watch = self._watches.get(live.uid)
        if watch is not None and watch.live.kafka is live.kafka:
            watch.live = live
            return watch
        for other in tuple(self._watches.values()):
            if uid in other.guards and other.live.uid != live.uid:
                await self.forget(uid)
        parts = self._parts
        fresh = self._watches[live.uid] = ConnectionWatch(
            live, WatchParts(parts.executor, parts.clock, parts.wake, parts.metrics, self.backfills)
        )
        if watch is not None:
            fresh.guards.update(watch.guards)
            await watch.close()
        fresh.start()
        return fresh

    def _guard(
        self, watch: ConnectionWatch, uid: str, wish: Wish, policy: PolicyView, topics: Mapping[str, Topic]
    ) -> Guard:
        """A guard for what the policy wishes now. ``topics``: those of the cluster, which were there before."""
        existed = grown(watch.sizes, topics)
        guard = watch.guards.get(uid)
        if guard is not None:
            guard.turn_to(wish, existed)
            return guard
        guard = watch.guards[uid] = Guard(uid, label_of(policy.body), wish, DiscoveryState(), existed)
        guard.restore(policy.status.discovery)
        return guard

    async def _read_group(self, guard: Guard, live: Live, snapshot: Snapshot) -> None:
        """Which topics the group reads, where the policy does not say it, and what it has offsets for."""
        guard.committed = await self._parts.observer.committed(live.uid, guard.wish.group, _COMMITTED_S)
        members = snapshot.groups[guard.wish.group].members
        read = frozenset(p.topic for m in members for p in m.assignment) | {p.topic for p in guard.committed}
        if read != guard.read:
            guard.read, guard.looked_at = guard.read | read, None
