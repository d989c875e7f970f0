"""What a policy keeps for its group, feature by feature, or for many groups; and what it remembers of that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.connection.allow import GROUP_NOT_ALLOWED, group_not_allowed
from tidegate.connection.freezing import frozen
from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.connection.read_only import observes
from tidegate.connection.sharing import NO_USABLE_CONNECTION, is_foreign, not_usable
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.names import is_allowed
from tidegate.kube.ports import Conflict, EventType, KubeFailure, KubeUnavailable, NotOwned, Object, label_of, uid_of
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.draft import Draft
from tidegate.policy.feature import Feature, GroupFeature, PolicyView
from tidegate.policy.many import LOOK_FAILED, ManyGroups
from tidegate.policy.memory import GroupMemory, NewerMemory, PolicyMemory, TooLarge
from tidegate.policy.overlaps import Found, say
from tidegate.policy.parts import Parts
from tidegate.policy.precedence import Contenders, contender
from tidegate.reset.runs.reasons import WAITING_FOR_CONNECTION
from tidegate.resources.discovery import DiscoveryStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import ResetPhase, has_ended
from tidegate.versions import WRITTEN_BY_NEWER_VERSION

_log = logging.getLogger(__name__)

MEMORY_NOT_WRITTEN: Final = "MemoryNotWritten"

_AGAIN_S: Final = 2.0
_NEWER_AGAIN_S: Final = 30.0
_OUTAGE_S: Final = 30.0
"""A connection that is not ready, or a look that fails, for so long makes policies not ready. Until then what they keep
is as it was said: offsets expire in hours, and a broker that is replaced answers again within seconds."""


@dataclass(frozen=True, slots=True)
class Features:
    """``all``: asked for one group, one after the other. ``of_groups``: those of them that many groups can have."""

    all: Sequence[Feature] = ()
    of_groups: Sequence[GroupFeature] = ()


class Keeping:
    """Belongs to the event loop's thread."""

    def __init__(self, parts: Parts, resets: ResetPasses, features: Features) -> None:
        self._parts = parts
        self._resets = resets
        self._features = features
        self._contenders = Contenders(self._cluster_of, self._allows)
        self._many = ManyGroups(parts, resets, features.of_groups, self._contenders)
        self._memories: dict[str, PolicyMemory] = {}
        self._troubles: dict[str, str] = {}
        """By policy, why a feature failed last."""
        self._failing_s: dict[str, float] = {}
        """By policy, since when no pass has looked at all (monotonic seconds)."""
        self._unwritten: dict[str, str] = {}
        """By policy, why its memory was not written last."""
        self._not_ready_s: dict[str, float] = {}
        """By policy, since when its connection is not ready (monotonic seconds)."""

    def expect(self, body: Object, spec: OffsetResetPolicySpec) -> None:
        """It takes part in who has a group, also before its own first pass."""
        self._contenders.put(contender(body, spec))

    async def keep(self, body: Object, spec: OffsetResetPolicySpec, draft: Draft) -> None:
        """Ask each feature. One that fails does not hold up the others."""
        uid, live = uid_of(body), self._parts.live.used_by(body)
        self._contenders.put(contender(body, spec))
        draft.observing_is(observes(live.label) if live is not None and live.observes else None)
        draft.frozen_is(frozen(live) if live is not None else None)
        if live is None:
            await self._many.disconnected(uid)
            for feature in self._features.all:
                await feature.disconnected(uid)
            if is_foreign(body):
                self._not_for_it(body, spec, draft)
            elif spec.keeps_something:
                why = (
                    f"{not_usable(body)}: the policy's features do nothing until there is one, and the rest of the "
                    "status shows what was known before"
                )
                draft.not_ready_after_all(WAITING_FOR_CONNECTION, why)
        if live is None or live.trouble is not None:
            if spec.keeps_something:
                self._without_kafka(body, live, draft)
                draft.look_in(_AGAIN_S)
            return
        self._not_ready_s.pop(uid, None)
        if live.is_foreign and spec.group is not None and spec.keeps_something:
            message = group_not_allowed(live.label, live.allow, "spec.group", spec.group)
            if message is not None:
                draft.stuck_after_all(GROUP_NOT_ALLOWED, message)
        before = draft.status.discovery
        many = spec.groups is not None
        memory = self._memories.setdefault(uid, PolicyMemory(self._parts.kube, self._parts.executor, body, many=many))
        if many:
            await self._keep_many(body, spec, draft, live, memory)
        else:
            await self._keep_one(body, spec, draft, live, memory)
        try:
            await memory.write(int(draft.now.timestamp() * 1000))
        except KubeFailure as failure:
            if not many and before is not None and before.topics:
                draft.status = _with_what_it_remembers(draft.status, before)
            await self._not_written(body, draft, failure, many=many)
        else:
            self._unwritten.pop(uid, None)

    def _without_kafka(self, body: Object, live: Live | None, draft: Draft) -> None:
        """The connection is there, and not ready: said once that has lasted, or was said by an earlier process."""
        now_s = self._parts.clock.monotonic()
        since_s = self._not_ready_s.setdefault(uid_of(body), now_s)
        if live is None or live.trouble is None:
            return
        if now_s - since_s >= _OUTAGE_S or draft.was_moving(WAITING_FOR_CONNECTION):
            why = f"KafkaConnection {live.label} is not ready ({live.trouble[0]})"
            draft.not_ready_after_all(
                WAITING_FOR_CONNECTION,
                f"{why}: the policy's features do nothing until it is, and the rest of the status shows what "
                "was known before",
            )

    def _not_for_it(self, body: Object, spec: OffsetResetPolicySpec, draft: Draft) -> None:
        """Nothing is kept through a connection that this policy may not use, and nothing else is said."""
        if not spec.keeps_something:
            return
        for feature in self._features.of_groups:
            draft.status = feature.without(draft.status)
        draft.status = draft.status.model_copy(update={"groups": None})
        say(Found(), draft)
        draft.stuck_after_all(NO_USABLE_CONNECTION, not_usable(body))

    async def forget(self, uid: str) -> None:
        """The policy is gone."""
        await self._let_go(uid)
        self._contenders.drop(uid)
        self._is_well(uid)
        self._unwritten.pop(uid, None)
        self._not_ready_s.pop(uid, None)

    async def _let_go(self, uid: str) -> None:
        """Of what is kept in this process; the next pass begins with what is written."""
        await self._many.forget(uid)
        for feature in self._features.all:
            await feature.forget(uid)
        self._memories.pop(uid, None)

    async def _keep_many(
        self, body: Object, spec: OffsetResetPolicySpec, draft: Draft, live: Live, memory: PolicyMemory
    ) -> None:
        if not spec.keeps_something:
            if draft.status.groups is None and not self._many.knows(uid_of(body)):
                return
            keep = self._many.nothing_asked
        else:
            keep = self._many.keep
        try:
            await keep(body, spec, draft, live, memory)
        except NewerMemory as newer:
            _left_alone(draft, newer)
        except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
            self._trouble(body, draft, failure)
        else:
            self._is_well(uid_of(body))

    async def _keep_one(
        self, body: Object, spec: OffsetResetPolicySpec, draft: Draft, live: Live, memory: PolicyMemory
    ) -> None:
        found, all_well = Found(), True
        for feature in self._features.all:
            try:
                view = PolicyView(
                    body,
                    spec,
                    draft.status,
                    live,
                    draft.now,
                    resetting=self._is_resetting(draft, live, spec.only_group),
                    memory=GroupMemory(memory, spec.only_group),
                )
                if await self._is_overridden(view, draft, feature, found):
                    continue
                kept = await feature.reconcile(view)
            except NewerMemory as newer:
                _left_alone(draft, newer)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                self._trouble(body, draft, failure)
                all_well = False
            else:
                draft.status = kept.status
                draft.happenings.extend(kept.happenings)
                draft.look_in(kept.again_after_s)
                if kept.trouble is not None:
                    draft.not_ready_after_all(*kept.trouble)
        if all_well:
            self._is_well(uid_of(body))
        say(found, draft)

    async def _is_overridden(self, view: PolicyView, draft: Draft, feature: Feature, found: Found) -> bool:
        """Whether another policy has this feature for the group; ``found`` notes who has it."""
        me, group = contender(view.body, view.spec), view.group
        if not is_allowed(group, view.live.allow.groups):
            return False  # it holds for nobody, and says why itself
        mine = next((each for each in self._features.of_groups if each is feature and each.part in me.parts), None)
        if mine is None:
            return False
        first, *others = self._contenders.ranked(me, group, mine.part)
        if first.uid == me.uid:
            found.holds((other.name for other in others), mine.part, group)
            return False
        found.yields(first.name, mine.part, group)
        if await mine.let_go(view):
            draft.status = mine.without(draft.status)
        else:
            draft.look_in(_AGAIN_S)
        return True

    def _cluster_of(self, namespace: str, connection: str) -> str:
        live = self._parts.live.get(namespace, connection)
        return live.cluster_id if live is not None and live.cluster_id else f"{namespace}/{connection}"

    def _allows(self, namespace: str, connection: tuple[str, str], group: str) -> bool:
        live = self._parts.live.used_from(namespace, connection)
        return live is not None and is_allowed(group, live.allow.groups)

    def _trouble(self, body: Object, draft: Draft, failure: Exception) -> None:
        if str(failure) != self._troubles.get(uid_of(body)):
            self._troubles[uid_of(body)] = str(failure)
            _log.warning("%s: %s; this is retried soon", label_of(body), failure)
        now_s = self._parts.clock.monotonic()
        since_s = self._failing_s.setdefault(uid_of(body), now_s)
        must_act = isinstance(failure, NotAuthorized | Refused)  # others mostly pass by themselves
        if must_act or now_s - since_s >= _OUTAGE_S or draft.was_moving(LOOK_FAILED):
            why = "until this is resolved, not all is kept, and the status shows what was known before"
            draft.not_ready_after_all(LOOK_FAILED, f"{failure}: {why}")
        draft.look_in(_AGAIN_S)

    def _is_well(self, uid: str) -> None:
        """All was looked at, or there is nothing to look at any more."""
        self._troubles.pop(uid, None)
        self._failing_s.pop(uid, None)

    async def _not_written(self, body: Object, draft: Draft, failure: KubeFailure, *, many: bool) -> None:
        is_new = str(failure) != self._unwritten.get(uid_of(body))
        self._unwritten[uid_of(body)] = str(failure)
        if is_new:
            _log.warning("%s: %s", label_of(body), failure)
        if not isinstance(failure, Conflict | KubeUnavailable):
            message = (
                f"what the policy remembers is not stored: {failure}. After the operator is started again, partitions "
                f"that are there by then count as old{', and expired offsets are not restored' if many else ''}"
            )
            draft.tell(EventType.WARNING, MEMORY_NOT_WRITTEN, message, f"{MEMORY_NOT_WRITTEN}/{failure}")
        if is_new or not isinstance(failure, TooLarge | NotOwned):
            draft.look_in(_AGAIN_S)
        if isinstance(failure, Conflict):
            await self._let_go(uid_of(body))

    def _is_resetting(self, draft: Draft, live: Live, group: str) -> bool:
        """By its own OffsetReset, or by another one of its group. A plan that waits to be approved resets nothing."""
        own = draft.status.reset
        if own is not None and own.started_at is not None and _is_under_way(own.phase):
            return True
        return self._resets.is_being_reset(live, group)


def _with_what_it_remembers(status: PolicyStatus, before: DiscoveryStatus) -> PolicyStatus:
    """What an earlier version has remembered in the status has to stay there until it is elsewhere."""
    kept = {"topics": before.topics, "selection": before.selection}
    discovery = before if status.discovery is None else status.discovery.model_copy(update=kept)
    return status.model_copy(update={"discovery": discovery})


def _is_under_way(phase: ResetPhase | None) -> bool:
    return phase is not None and phase is not ResetPhase.AWAITING_APPROVAL and not has_ended(phase)


def _left_alone(draft: Draft, newer: NewerMemory) -> None:
    """What needs the memory rests; a reset that the policy asks for needs none."""
    message = (
        f"{newer}. Until then, the policy's features that need it do nothing, and the status shows what was known of "
        "them before"
    )
    draft.stuck(WRITTEN_BY_NEWER_VERSION, message)
    draft.tell(EventType.WARNING, WRITTEN_BY_NEWER_VERSION, message, f"{WRITTEN_BY_NEWER_VERSION}/{message}")
    draft.look_in(_NEWER_AGAIN_S)
    draft.is_left_alone = True
