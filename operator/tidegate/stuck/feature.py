"""One look at a policy's group: which partitions stand, at which record, and what is offered about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.connection.allow import GROUP_NOT_ALLOWED, group_not_allowed
from tidegate.connection.live import Live
from tidegate.connection.observer import Observer
from tidegate.control.gates import Gates
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import Group, GroupState, Offsets, RecordHead, TopicPartition
from tidegate.kafka.names import is_allowed, is_internal
from tidegate.kube.ports import Kube, KubeFailure, label_of, name_of, namespace_of
from tidegate.policy.feature import FeatureOutcome, PolicyView, WholeView
from tidegate.policy.memory import Document
from tidegate.policy.precedence import STUCK_RECORDS
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import PolicyStatus
from tidegate.resources.stuck_records import StuckRecordsSpec
from tidegate.stuck.courses import Look, Pace, owners_of
from tidegate.stuck.judging import Readable, judge, to_read
from tidegate.stuck.metrics import StuckMetrics
from tidegate.stuck.skip import Skips
from tidegate.stuck.status import (
    HOLDS_UNKNOWN,
    NOT_READ,
    UNREADABLE,
    Counts,
    happenings,
    together,
    told,
    unknown,
    without_stuck,
)
from tidegate.stuck.told import Known, decode, encode
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_NEVER_S: Final = 3600.0
_SLOWEST_S: Final = 2.0
_FASTEST_S: Final = 1.0
_LOOKS: Final = 15
"""In the time that a partition has to stand at least."""
_GAP: Final = 4
"""Times the time between two looks that they may be apart: after that nothing is made of the earlier one."""
_TOPICS_S: Final = 30.0
_READS: Final = 20
"""Records of a group that are looked at in one pass."""
_REFUSED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the feature acts through. ``patient_executor``: for calls that may take seconds. ``monotonic``: seconds."""

    kube: Kube
    observer: Observer
    executor: Executor
    patient_executor: Executor
    metrics: StuckMetrics
    now: Callable[[], datetime]
    monotonic: Callable[[], float]


class StuckRecordsFeature:
    """Implements ``tidegate.policy.feature.GroupFeature`` for ``spec.stuckRecords``."""

    part = STUCK_RECORDS

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._skips = Skips(parts.kube, parts.executor)
        self._known: dict[str, Known] = {}
        self._names: dict[str, tuple[str, str, str]] = {}
        """Namespace, policy and group, by key."""

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        spec = policy.spec.stuck_records
        if spec is None:
            if not await self.let_go(policy):
                return FeatureOutcome(policy.status, again_after_s=_SLOWEST_S)
            return FeatureOutcome(without_stuck(policy.status), again_after_s=_NEVER_S)
        message = group_not_allowed(policy.live.label, policy.live.allow, "spec.group", policy.group)
        if message is not None:
            await self.forget(policy.key)
            return FeatureOutcome(unknown(policy, GROUP_NOT_ALLOWED, message))
        known = await self._recalled(policy)
        if policy.resetting:
            # What moves now is no progress of the consumers.
            known.begin_anew()
            return FeatureOutcome(policy.status, again_after_s=_tick_s(spec))
        return await self._looked(policy, spec, known)

    async def forget(self, key: str) -> None:
        self._known.pop(key, None)
        self._parts.observer.drop(_holder(key))
        names = self._names.pop(key, None)
        if names is not None:
            self._parts.metrics.gone(*names)

    async def disconnected(self, key: str) -> None:
        await self.forget(key)

    def with_news(self, uid: str) -> Mapping[str, Document]:  # noqa: ARG002 - the protocol's signature
        return {}

    def without(self, status: PolicyStatus) -> PolicyStatus:
        return without_stuck(status)

    def together(self, whole: WholeView) -> tuple[PolicyStatus, Sequence[TroubledGroup]]:
        if whole.spec.stuck_records is None:
            return self.without(whole.status), ()
        return together(whole)

    async def let_go(self, policy: PolicyView) -> bool:
        if policy.key not in self._known and not await self._is_remembered(policy):
            return True
        known = await self._recalled(policy)
        for partition in tuple(known.stuck):
            known.end(partition)
        await self._skips.withdraw(policy, known)
        if known.withdrawn:
            return False
        await policy.memory.note(self.part, None)
        await self.forget(policy.key)
        return True

    async def _is_remembered(self, policy: PolicyView) -> bool:
        """Where the status of a policy for one group says nothing of it there is nothing, and the memory needs not be
        read. Of one of many groups a process that has just begun has no status; their memory is read anyway."""
        if policy.is_one_of_many:
            return await policy.memory.recall(self.part) is not None
        return policy.status.stuck_records is not None

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _looked(self, policy: PolicyView, spec: StuckRecordsSpec, known: Known) -> FeatureOutcome:
        observer, uid, tick_s = self._parts.observer, policy.live.uid, _tick_s(spec)
        observer.want(_holder(policy.key), uid, policy.group, active=True, gates=True, tick_s=tick_s / 2)
        snapshot = await observer.newest(uid, group=policy.group, gates=True)
        if snapshot.failure is not None:
            known.begin_anew()
            raise snapshot.failure
        if snapshot.gates is None:
            known.begin_anew()
            message = f"could not read whether Tidegate holds partitions, so none is judged: {snapshot.gates_failure}"
            return FeatureOutcome(unknown(policy, HOLDS_UNKNOWN, message), again_after_s=_REFUSED_S)
        group, gates = snapshot.groups[policy.group], snapshot.gates
        if known.is_claimed(gates.claims.queue(policy.group), self._parts.monotonic()):
            known.begin_anew()  # another operator's or a command's run has the group, or is about to
            return FeatureOutcome(policy.status, again_after_s=tick_s)
        everything = await observer.committed(uid, policy.group, tick_s / 2)
        known.keep(everything)
        committed = {p: at for p, at in everything.items() if _covers(p.topic, policy)}
        owned = owners_of(group)
        owners = {p: owner for p, owner in owned.items() if p in committed}
        new = [p for p in owned if p not in everything and _covers(p.topic, policy)]
        ids = await self._topic_ids(policy.live, {p.topic for p in (*owners, *new, *known.stuck)})
        known.topics_are(ids)
        ends = await observer.stable_ends(uid, [*owners, *new], tick_s / 2) if owners else {}
        # A member is busy with any of its partitions, also with those that the policy leaves out, or of which nothing
        # is told just now; not with one that is empty or gone.
        idle = {p for p in new if ends.get(p) == 0 or p.topic not in ids}
        elsewhere = {p: its for p, its in owned.items() if not (p in owners and p in ends) and p not in idle}
        waiting = await self._waiting(policy.live, committed, ends, tick_s)
        withheld = _withheld(gates, policy.group, owners)
        look = Look(self._parts.monotonic(), owners, everything, ends, withheld, elsewhere)
        known.courses.take(look, _GAP * tick_s)
        refused = await self._read(policy.live, known, spec.after.total_seconds())
        return await self._told(policy, spec, known, group, look, waiting, refused)

    async def _told(
        self,
        policy: PolicyView,
        spec: StuckRecordsSpec,
        known: Known,
        group: Group,
        look: Look,
        waiting: int,
        refused: str,
    ) -> FeatureOutcome:
        judged = judge(known.courses, known.readable, spec.after.total_seconds())
        now_ms = int(self._parts.now().timestamp() * 1000)
        # Of a group that nobody reads it is not known whether it would get past the record.
        committed: Offsets = {p: at for p, at in look.committed.items() if _covers(p.topic, policy)}
        standing: Offsets = {} if group.is_vacant else committed
        changes = known.settle(standing, judged, look.at_s, now_ms)
        note = await self._offer(policy, spec, known)
        counts = _counts(known, look, waiting)
        names = self._names[policy.key] = namespace_of(policy.body), name_of(policy.body), policy.group
        self._parts.metrics.group_is(*names, stuck=len(known.stuck), judged=counts.judged)
        self._parts.metrics.found(changes.new)
        for partition, stuck in changes.found.items():
            _log.info(
                "%s: group %s makes no progress at record %s@%d",
                label_of(policy.body),
                policy.group,
                partition,
                stuck.head.offset,
            )
        if group.state is GroupState.UNKNOWN:
            message = f"can't tell who owns the partitions of a group of type {group.type}, so none is judged"
            return FeatureOutcome(unknown(policy, NOT_READ, message))
        await self._remember(policy, known)
        if refused and not known.stuck:
            status = unknown(policy, UNREADABLE, refused)
        else:
            status = told(policy, known, counts, ". ".join(filter(None, (note, refused))))
        events = [event for _, lately in known.changes for event in happenings(policy.group, lately)]
        return FeatureOutcome(status, tuple(events), _tick_s(spec))

    async def _offer(self, policy: PolicyView, spec: StuckRecordsSpec, known: Known) -> str:
        """Resets to skip what is stuck, and to take back; why none is prepared, where one is asked for."""
        note = ""
        try:
            if spec.prepare_skip:
                await self._skips.look(policy, known, self._parts.monotonic())
                note = await self._skips.prepare(policy, known)
            else:
                known.withdraw_all()
            await self._skips.withdraw(policy, known)
        except KubeFailure as failure:
            # What was found is told all the same.
            return f"No reset is prepared or deleted yet: {failure}"
        return note

    async def _topic_ids(self, live: Live, names: Collection[str]) -> Mapping[str, str]:
        topics = await self._parts.observer.topics(live.uid, names, _TOPICS_S) if names else {}
        return {name: topic.topic_id for name, topic in topics.items()}

    async def _waiting(self, live: Live, committed: Offsets, ends: Offsets, tick_s: float) -> int:
        """Of how many partitions what comes next belongs to a transaction that is open."""
        at_end = [p for p, end in ends.items() if committed.get(p, -1) >= end]
        logs = await self._parts.observer.log_ends(live.uid, at_end, tick_s) if at_end else {}
        return sum(logs.get(p, 0) > ends[p] for p in at_end)

    async def _read(self, live: Live, known: Known, after_s: float) -> str:
        """Look at the records that partitions stand at; why some of them may not be read. Raises ``KafkaFailure``.

        A topic that may not be read is asked for again after a while, and keeps no other one from being judged.
        """
        at_s = self._parts.monotonic()
        known.unreadable = {
            topic: (why, since_s) for topic, (why, since_s) in known.unreadable.items() if at_s - since_s < _REFUSED_S
        }
        standing = to_read(known.courses, known.readable, after_s)
        wanted = dict(sorted((p, at) for p, at in standing.items() if p.topic not in known.unreadable)[:_READS])
        if wanted:
            heads, refused = await in_thread(self._parts.patient_executor, _readable_heads, live, wanted)
            at_s = self._parts.monotonic()
            for partition, offset in wanted.items():
                if partition.topic not in refused:
                    known.readable[partition] = Readable(offset, heads.get(partition), at_s)
            known.unreadable |= {topic: (why, at_s) for topic, why in refused.items()}
        return next((known.unreadable[p.topic][0] for p in sorted(standing) if p.topic in known.unreadable), "")

    # --- remembering --------------------------------------------------------------------------------------------------

    async def _recalled(self, policy: PolicyView) -> Known:
        if policy.key not in self._known:
            document = await policy.memory.recall(self.part)
            try:
                known = decode(document) if document is not None else Known()
            except ValueError as error:
                _log.warning(
                    "%s: the operator can't read what it has stored of stuck records of group %s, and starts again: %s",
                    label_of(policy.body),
                    policy.group,
                    error,
                )
                known = Known()
            self._known[policy.key] = known
        return self._known[policy.key]

    async def _remember(self, policy: PolicyView, known: Known) -> None:
        """What is stuck at once, and which partitions can be judged; how fast they are read now and then."""
        document = encode(known)
        before = await policy.memory.recall(self.part) or {}
        urgent = any(before.get(name, []) != document[name] for name in ("stuck", "withdrawn", "judged"))
        await policy.memory.note(self.part, document, urgent=urgent)


def _holder(key: str) -> str:
    return f"stuck/{key}"


def _tick_s(spec: StuckRecordsSpec) -> float:
    return max(_FASTEST_S, min(_SLOWEST_S, spec.after.total_seconds() / _LOOKS))


def _covers(topic: str, policy: PolicyView) -> bool:
    asked = policy.spec.topics is None or is_allowed(topic, policy.spec.topics)
    return asked and not is_internal(topic) and is_allowed(topic, policy.live.allow.topics)


def _withheld(gates: Gates, group: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    limited = {key.topic_partition for key in gates.limits if key.group == group}
    return frozenset(p for p in partitions if p in limited or gates.holders(group, p))


def _counts(known: Known, look: Look, waiting: int) -> Counts:
    paces = known.courses.paces
    judged = sum(paces.get(p, Pace()).is_known for p in look.owners if p in look.ends)
    return Counts(len(look.owners), judged, waiting)


def _readable_heads(live: Live, wanted: Offsets) -> tuple[Mapping[TopicPartition, RecordHead], Mapping[str, str]]:
    """The records, and of which topics they may not be read, and why."""
    try:
        return _heads(live, wanted), {}
    except NotAuthorized:
        found: dict[TopicPartition, RecordHead] = {}
        refused: dict[str, str] = {}
        for topic in sorted({p.topic for p in wanted}):
            try:
                found |= _heads(live, {p: at for p, at in wanted.items() if p.topic == topic})
            except NotAuthorized as failure:
                refused[topic] = str(failure)
        return found, refused


def _heads(live: Live, wanted: Offsets) -> Mapping[TopicPartition, RecordHead]:
    """Of those whose committed offset the log still reaches: what comes before it is gone and holds up nobody."""
    bounds = live.kafka.log_bounds(list(wanted))
    return live.kafka.next_records({p: at for p, at in wanted.items() if bounds[p].earliest <= at})
