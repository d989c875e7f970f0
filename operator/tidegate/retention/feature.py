"""One look at a policy's group and its offsets: what is due is committed again, what has expired is put back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tidegate.connection.allow import GROUP_NOT_ALLOWED, group_not_allowed
from tidegate.connection.freezing import held_back
from tidegate.connection.live import Live
from tidegate.connection.observer import Observer
from tidegate.kafka.errors import KafkaFailure, NotAuthorized
from tidegate.kafka.model import Group, GroupState, GroupType
from tidegate.kafka.names import is_allowed, is_internal
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commits
from tidegate.kube.ports import Kube, name_of, namespace_of, uid_of
from tidegate.policy.feature import FeatureOutcome, PolicyView, WholeView
from tidegate.policy.memory import Document
from tidegate.policy.precedence import RETENTION
from tidegate.resources.features import RetentionSpec
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.retention.acting import Acting
from tidegate.retention.last_offsets import Places, after_look, is_within
from tidegate.retention.metrics import RetentionMetrics, ends_of
from tidegate.retention.plan import Plan, Seen, decide, ends_ms
from tidegate.retention.snapshot import Known, Snapshots, snapshot_of
from tidegate.retention.status import Done, refused, retained, without_retention
from tidegate.retention.timing import has_come_since, next_look_ms
from tidegate.retention.together import reasons, together
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_SOON_S: Final = 1.0
_NEVER_S: Final = 3600.0
_SETTINGS_MS: Final = 600_000
"""How long the brokers' settings are taken for granted, and how long a missing right is."""
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the feature acts through. ``is_frozen``: whether a connection is now, so that nothing is committed.
    ``patient_executor``: for calls that may take seconds. ``now``: aware, UTC."""

    kube: Kube
    observer: Observer
    is_frozen: Callable[[Live], bool]
    executor: Executor
    patient_executor: Executor
    metrics: RetentionMetrics
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class _Settings:
    at_ms: int
    settings: RetentionSettings | None


class RetentionFeature:
    """Implements ``tidegate.policy.feature.GroupFeature`` for ``spec.retention``."""

    part = RETENTION

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._snapshots = Snapshots(parts.kube, parts.executor)
        self._acting = Acting(parts.observer, parts.is_frozen, parts.patient_executor, parts.metrics)
        self._memories: dict[str, Known] = {}
        self._settings: dict[tuple[str, str], _Settings] = {}
        """By connection and cluster."""
        self._wholes: dict[str, tuple[str, str]] = {}
        """Of policies for many groups, by uid, namespace and name."""

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        spec = policy.spec.retention
        if spec is None:
            await self.let_go(policy)
            return FeatureOutcome(without_retention(policy.status), again_after_s=_NEVER_S)
        if held_back(policy.live) is not None:
            spec = spec.model_copy(update={"guard": False})
        message = group_not_allowed(policy.live.label, policy.live.allow, "spec.group", policy.group)
        if message is not None:
            await self.let_go(policy)
            return FeatureOutcome(refused(policy, GROUP_NOT_ALLOWED, message))
        if policy.resetting:
            # The run's offsets are the group's place from now on, and what it deletes is not to be put back.
            memory = await self._memory(policy)
            memory.places, memory.unsure = Places(cluster_id=policy.live.cluster_id), None
            # Not only here: the next process must not put it back, either. What keeps it from being written is said
            # once the run is over.
            await self._snapshots.write(policy, memory, int(self._parts.now().timestamp() * 1000))
            return FeatureOutcome(policy.status)
        asked = policy.group if policy.described is None else None
        snapshot = await self._parts.observer.newest(policy.live.uid, group=asked)
        if snapshot.failure is not None:
            raise snapshot.failure
        group = policy.described or snapshot.groups[policy.group]
        memory = await self._memory(policy)
        emptied = group.is_vacant and not memory.places.vacant
        seen = await self._see(policy, spec, memory, group, anew=emptied)
        plan = decide(seen)
        memory.places = plan.places
        before = memory.done = memory.done.lately(seen.now_ms)
        refusal = await self._acting.act(policy, memory, seen, plan)
        if memory.done is not before or memory.unsure is not None:
            seen = await self._see(policy, spec, memory, group, again=True)
            plan = decide(seen)
            memory.places = plan.places
        trouble = await self._snapshots.write(policy, memory, seen.now_ms)
        done = replace(memory.done, refusal=refusal, trouble=trouble)
        status, happenings = retained(policy, spec, seen, plan, done, snapshot_of(policy, memory))
        names = memory.namespace, memory.name, memory.group
        ends = ends_of(plan, refused=bool(refusal))
        self._parts.metrics.group_is(*names, ends, kept=plan.kept > 0, many=policy.is_one_of_many)
        return FeatureOutcome(status, happenings, _again_s(seen, plan, spec, memory, done))

    async def forget(self, key: str) -> None:
        self._drop(key)
        self._snapshots.forget(key)

    def _drop(self, key: str) -> None:
        memory = self._memories.pop(key, None)
        if memory is not None:
            self._parts.metrics.gone(memory.namespace, memory.name, memory.group)
        self._whole_gone(key)

    async def disconnected(self, key: str) -> None:
        await self.forget(key)

    async def let_go(self, policy: PolicyView) -> bool:
        self._drop(policy.key)
        await self._snapshots.remove(policy)
        return True

    def with_news(self, uid: str) -> Mapping[str, Document]:  # noqa: ARG002 - the protocol's signature
        return {}

    def without(self, status: PolicyStatus) -> PolicyStatus:
        return without_retention(status)

    def together(self, whole: WholeView) -> tuple[PolicyStatus, Sequence[TroubledGroup]]:
        if whole.spec.retention is None:
            self._whole_gone(uid_of(whole.body))
            return self.without(whole.status), ()
        policy = self._wholes[uid_of(whole.body)] = namespace_of(whole.body), name_of(whole.body)
        self._parts.metrics.whole_is(*policy, reasons(whole))
        return together(whole)

    def _whole_gone(self, uid: str) -> None:
        policy = self._wholes.pop(uid, None)
        if policy is not None:
            self._parts.metrics.whole_gone(*policy)

    # --- see ----------------------------------------------------------------------------------------------------------

    async def _see(
        self,
        policy: PolicyView,
        spec: RetentionSpec,
        memory: Known,
        group: Group,
        *,
        anew: bool = False,
        again: bool = False,
    ) -> Seen:
        """``anew``: members have just left: the log is to be read again, whatever it said. ``again``: we have written,
        so all of it is."""
        ahead = None if again else policy.ahead
        if ahead is None:
            read = await in_thread(self._parts.executor, policy.live.kafka.retention.commits, group.group_id)
        else:
            read = ahead.commits
        commits = _covered(read, policy.spec, policy.live)
        # Asked after the look, which may have waited for its turn: what it misses must not seem to be gone too early.
        now_ms = int((self._parts.now() if ahead is None else ahead.at).timestamp() * 1000)
        settings = await self._brokers_settings(policy.live, now_ms)
        # What was stored may be of a time when more was allowed, or by somebody to whom less is.
        rows = {p: row for p, row in memory.places.rows.items() if _covers(p.topic, policy.spec, policy.live)}
        # After the offsets: those of a topic that was made anew are not missing, they are another topic's.
        names = {p.topic for p in (*rows, *commits.offsets, *commits.pending)}
        if ahead is not None and names <= ahead.names:
            topics = ahead.topics
        else:
            topics = await self._parts.observer.topics(policy.live.uid, names, 0)
        places = after_look(replace(memory.places, rows=rows), group, commits, topics, now_ms)
        places = self._acting.looked_back(memory, places, commits)
        seen = Seen(
            now_ms=now_ms,
            group=group,
            commits=commits,
            places=places,
            settings=settings,
            log=None,
            guard=spec.guard,
        )
        if _log_matters(group, commits):
            anew = anew or again or _announces(spec, memory, seen)
            return replace(seen, log=await self._logged(policy.live, memory, seen, anew=anew))
        return seen

    async def _brokers_settings(self, live: Live, now_ms: int) -> RetentionSettings | None:
        known = self._settings.get((live.uid, live.cluster_id))
        if known is None or not is_within(known.at_ms, now_ms, _SETTINGS_MS):
            try:
                settings: RetentionSettings | None = await in_thread(
                    self._parts.executor, live.kafka.retention.settings
                )
            except NotAuthorized as error:
                _log.info("%s/%s: %s. The operator assumes that offsets last a day", live.namespace, live.name, error)
                settings = None
            known = self._settings[live.uid, live.cluster_id] = _Settings(now_ms, settings)
        return known.settings

    async def _logged(self, live: Live, memory: Known, seen: Seen, *, anew: bool) -> GroupLog | None:
        """The coordinator's log of the group, if it may be read and was read to its end.

        Reading it is a help, not a need: what goes wrong with it is no reason not to keep offsets.
        """
        if memory.log_refused_ms is not None and is_within(memory.log_refused_ms, seen.now_ms, _SETTINGS_MS):
            return None
        if anew or _is_out_of_date(memory, seen):
            try:
                memory.log = await in_thread(
                    self._parts.patient_executor, live.kafka.retention.log, seen.group.group_id, memory.log
                )
            except NotAuthorized as error:
                _log.info("%s/%s: %s. The operator goes by its own observations", live.namespace, live.name, error)
                memory.log_refused_ms = seen.now_ms
                return None
            except KafkaFailure as error:
                _log.warning("%s/%s: %s. The operator goes by its own observations", live.namespace, live.name, error)
                return None
            memory.log_ms, memory.log_refused_ms = seen.now_ms, None
        return memory.log if memory.log.complete else None

    async def _memory(self, policy: PolicyView) -> Known:
        known = self._memories.get(policy.key)
        if known is None or known.places.cluster_id != policy.live.cluster_id:
            # Also of a policy that has moved: what is known of the log, too, is of the cluster before.
            known = self._memories[policy.key] = await self._snapshots.recall(policy)
        return known


def _covers(topic: str, spec: OffsetResetPolicySpec, live: Live) -> bool:
    asked = spec.topics is None or is_allowed(topic, spec.topics)
    return asked and not is_internal(topic) and is_allowed(topic, live.allow.topics)


def _covered(commits: Commits, spec: OffsetResetPolicySpec, live: Live) -> Commits:
    """Those of the policy's topics that the connection allows."""

    return Commits(
        {p: c for p, c in commits.offsets.items() if _covers(p.topic, spec, live)},
        frozenset(p for p in commits.pending if _covers(p.topic, spec, live)),
    )


def _log_matters(group: Group, commits: Commits) -> bool:
    """Nothing of a group with members expires but what none of them subscribes to."""
    if group.is_vacant:
        return bool(commits.offsets)
    owned = {p.topic for p in group.assigned}
    return group.state is GroupState.STABLE and any(p.topic not in owned for p in commits.offsets)


def _is_out_of_date(memory: Known, seen: Seen) -> bool:
    """Whether the log is to be read on: to its end, after offsets have moved, and now and then.

    A commit that changes nothing but the retention is seen in the log alone. It leaves the offset the brokers' whole
    retention at least, so looking eight times in that is often enough, and each look costs all groups' commits of one
    partition since the last. Simple consumers move their offsets all the time: that is no reason to look at once.
    """
    if memory.log_ms is None or not memory.log.complete:
        return True
    now_and_then_ms = max(seen.retention.check_interval_ms, seen.retention.retention_ms // 8)
    if seen.group.type is not GroupType.SIMPLE:
        logged = {p: memory.log.commit(p) for p in seen.commits.offsets}
        if any(row is None or row.offset != seen.commits.offsets[p].offset for p, row in logged.items()):
            return True
    elif seen.places.substance != memory.places.substance:
        now_and_then_ms = min(now_and_then_ms, _SETTINGS_MS)
    return not is_within(memory.log_ms, seen.now_ms, now_and_then_ms)


def _announces(spec: RetentionSpec, memory: Known, seen: Seen) -> bool:
    """Whether an end is about to be announced that the log may have moved meanwhile."""
    if memory.log_ms is None or seen.is_kept:
        return False
    ends = ends_ms(replace(seen, log=memory.log if memory.log.complete else None))
    return has_come_since(memory.log_ms, seen.now_ms, ends, spec.warn_before // _MS)


def _again_s(seen: Seen, plan: Plan, spec: RetentionSpec, memory: Known, done: Done) -> float:
    if memory.log_ms is not None and not memory.log.complete and memory.log_refused_ms is None:
        return _SOON_S
    at_ms = next_look_ms(seen, plan, spec.warn_before // _MS, refused=bool(done.refusal))
    return (at_ms - seen.now_ms) / 1000
