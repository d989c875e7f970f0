"""What a policy keeps for many groups: each of them is looked at when it is due, and all of them are summed up.

A pass takes as many as fit into a moment, so that other policies have their turn as well. What is said of one group
stays in this process, and what has to outlive it is in the policy's memory; the status has counts and the worst ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.clock import Clock
from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Group
from tidegate.kafka.names import is_allowed
from tidegate.kube.ports import EventType, KubeEvent, KubeFailure, Object, label_of, uid_of
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.draft import Draft
from tidegate.policy.feature import GroupFeature, PolicyView, ReadAhead, WholeView, key_of
from tidegate.policy.memory import Document, GroupMemory, NewerMemory, PolicyMemory
from tidegate.policy.overlaps import Found, say
from tidegate.policy.parts import Parts
from tidegate.policy.precedence import RETENTION, Contenders, contender
from tidegate.reset.marker import is_marker_group
from tidegate.resources.many_groups import MAX_WORST, ManyGroupsStatus, TroubledGroup
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

LOOK_FAILED: Final = "LookFailed"
MORE_EVENTS: Final = "MoreEvents"

LIST_S: Final = 10.0
"""How often groups are looked for that have come or gone."""
_BATCH: Final = 200
_TURN_S: Final = 2.0
"""How many groups a pass looks at, and how long that may take."""
_LEAST_S: Final = 1.0
_FAILED_S: Final = 10.0
_SAY_S: Final = 10.0
"""The least time between two sums that differ in figures only."""
_FORGET_S: Final = 7 * 86_400.0
"""How long something is remembered of a group that is not listed any more, such as that its offsets have expired."""
_GONE: Final = "gone"
"""The part of the memory that says since when a group is not listed (``sinceS``, seconds since the epoch)."""
_LATEST_S: Final = 1e12
_EVENTS: Final = 10
_COUNTED: Final = 16
_MESSAGE: Final = 300


@dataclass(slots=True)
class _One:
    """One group. ``parts``: of what this policy is the most specific one; ``looked``: whether this process has looked
    at all of them; ``due_s``: when to look again, by the monotonic clock; ``counted``: the keys of its Events that
    ``MoreEvents`` has counted, the last ones."""

    parts: frozenset[str] = frozenset()
    status: PolicyStatus = field(default_factory=PolicyStatus)
    looked: bool = False
    due_s: float = 0.0
    trouble: str = ""
    counted: tuple[str, ...] = ()


@dataclass(slots=True)
class _Many:
    """One policy's groups. ``said``: what was summed up last, and when."""

    ones: dict[str, _One] = field(default_factory=dict)
    generation: int = 0
    listed_s: float | None = None
    found: Found = field(default_factory=Found)
    said: tuple[Mapping[str, int], str, float] | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a pass has read of a group together with others."""

    described: Group | KafkaFailure
    ahead: ReadAhead | None


@dataclass(frozen=True, slots=True)
class _Turn:
    """One pass over one policy."""

    body: Object
    spec: OffsetResetPolicySpec
    draft: Draft
    live: Live
    memory: PolicyMemory
    many: _Many

    @property
    def uid(self) -> str:
        return uid_of(self.body)


class ManyGroups:
    """Belongs to the event loop's thread."""

    def __init__(
        self, parts: Parts, resets: ResetPasses, features: Sequence[GroupFeature], contenders: Contenders
    ) -> None:
        self._parts, self._resets, self._features, self._contenders = parts, resets, features, contenders
        self._known: dict[str, _Many] = {}

    async def keep(
        self, body: Object, spec: OffsetResetPolicySpec, draft: Draft, live: Live, memory: PolicyMemory
    ) -> None:
        """Look at the groups that are due, and sum up. Raises ``KafkaFailure`` and ``KubeFailure``."""
        many = self._known.setdefault(uid_of(body), _Many())
        turn = _Turn(body, spec, draft, live, memory, many)
        now_s = self._parts.clock.monotonic()
        if many.listed_s is None or many.generation != draft.generation or now_s - many.listed_s >= LIST_S:
            await self._list(turn)
            many.listed_s, many.generation = now_s, draft.generation
        await self._look(turn)
        self._sum_up(turn)
        next_s = min((one.due_s for one in many.ones.values()), default=now_s + LIST_S)
        draft.look_in(min(LIST_S, max(_LEAST_S, next_s - self._parts.clock.monotonic())))

    def knows(self, uid: str) -> bool:
        """Whether something is kept for the policy in this process."""
        return uid in self._known

    async def forget(self, uid: str) -> None:
        """Let go of what is kept in this process."""
        many = self._known.pop(uid, _Many())
        for group in many.ones:
            for feature in self._features:
                await feature.forget(key_of(uid, group))

    async def nothing_asked(
        self, body: Object, spec: OffsetResetPolicySpec, draft: Draft, live: Live, memory: PolicyMemory
    ) -> None:
        """The policy keeps nothing any more: what was kept for its groups is over. Raises ``KubeFailure``."""
        uid = uid_of(body)
        many = self._known.setdefault(uid, _Many())
        turn = _Turn(body, spec, draft, live, memory, many)
        done = [await self._let_go_of(turn, group) for group in sorted(await memory.groups() | many.ones.keys())]
        if not all(done):
            draft.look_in(_FAILED_S)
            return
        await self.forget(uid)
        for feature in self._features:
            await feature.forget(uid)
            draft.status = feature.without(draft.status)
        say(Found(), draft)
        draft.status = draft.status.model_copy(update={"groups": None})

    async def disconnected(self, uid: str) -> None:
        """The connection was removed."""
        many = self._known.pop(uid, _Many())
        for group in many.ones:
            for feature in self._features:
                await feature.disconnected(key_of(uid, group))

    # --- which groups -------------------------------------------------------------------------------------------------

    async def _list(self, turn: _Turn) -> None:
        """Find out which groups there are, and which of them are for this policy to look after."""
        me = contender(turn.body, turn.spec)
        listed = await in_thread(self._parts.patient_executor, turn.live.kafka.group_ids)
        remembered = await turn.memory.groups()
        selected = {
            group
            for group in listed | remembered
            if me.selects(group) and is_allowed(group, turn.live.allow.groups) and not is_marker_group(group)
        }
        selected -= await self._long_gone(turn, remembered - listed, remembered & listed)
        for group in (remembered | turn.many.ones.keys()) - selected:
            await self._let_go_of(turn, group)
        turn.many.found = found = Found()
        for number, group in enumerate(selected, 1):
            if number % _BATCH == 0:
                await asyncio.sleep(0)  # others have their turn, such as whoever renews the Lease
            one = turn.many.ones.setdefault(group, _One())
            parts = set()
            for part in me.parts:
                first, *others = self._contenders.ranked(me, group, part)
                if first.uid == me.uid:
                    parts.add(part)
                    found.holds((other.name for other in others), part, group)
                else:
                    found.yields(first.name, part, group)
            if one.parts != parts:
                one.looked &= parts <= one.parts
                one.parts, one.due_s = frozenset(parts), 0.0
            await self._let_go(turn, group, [f.part for f in self._features if f.part not in parts])

    async def _long_gone(self, turn: _Turn, missing: Collection[str], there: Collection[str]) -> set[str]:
        """Of the groups that are ``missing``, those that have been for so long that nobody expects them back."""
        now_s, gone = turn.draft.now.timestamp(), set()
        for group in there:
            await turn.memory.note(_GONE, group, None, urgent=False)
        for group in missing:
            since_s = _since_s(await turn.memory.recall(_GONE, group))
            if since_s is None:
                await turn.memory.note(_GONE, group, {"sinceS": now_s}, urgent=False)
            elif now_s - since_s > _FORGET_S:
                gone.add(group)
        return gone

    async def _let_go_of(self, turn: _Turn, group: str) -> bool:
        """All of it. What can't be let go of yet stays in the memory, and is found there by the next listing."""
        done = await self._let_go(turn, group, [feature.part for feature in self._features])
        await turn.memory.note(_GONE, group, None)
        turn.many.ones.pop(group, None)
        return done

    async def _let_go(self, turn: _Turn, group: str, parts: Collection[str]) -> bool:
        """These parts are somebody else's, or nobody's; whether all of that is done. One that can't be let go of does
        not hold up the others."""
        one, done = turn.many.ones.get(group), True
        for feature in self._features:
            if feature.part not in parts:
                continue
            try:
                done &= await feature.let_go(_view_of_what_was(turn, group))
            except NewerMemory:
                raise
            except KubeFailure as failure:
                _log.warning("%s: group %s: %s; this is retried soon", label_of(turn.body), group, failure)
                done = False
            if one is not None:
                one.status = feature.without(one.status)
        return done

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look(self, turn: _Turn) -> None:
        clock, ones = self._parts.clock, turn.many.ones
        for feature in self._features:
            for group, document in feature.with_news(turn.uid).items():
                if group in ones:
                    ones[group].due_s = 0.0
                    await turn.memory.note(feature.part, group, document)
        began_s = clock.monotonic()
        due = sorted((one.due_s, group) for group, one in ones.items() if one.parts and one.due_s <= began_s + 0.5)
        batch = [group for _, group in due[:_BATCH]]
        described = await in_thread(self._parts.patient_executor, _described, turn.live, batch)
        kept = [group for group in batch if RETENTION in ones[group].parts]
        ahead = await in_thread(self._parts.patient_executor, _read_ahead, turn.live, kept, self._parts.clock)
        # From here on: where reading takes longer, none of them would ever be looked at.
        read_s = clock.monotonic()
        told: list[tuple[_One, KubeEvent]] = []
        for group in batch:
            if clock.monotonic() - read_s > _TURN_S:
                break
            seen = _Seen(described[group], ahead.get(group))
            told += [(ones[group], event) for event in await self._look_at(turn, group, seen)]
        turn.draft.happenings.extend(_at_most(told, turn.draft.told))

    async def _look_at(self, turn: _Turn, group: str, seen: _Seen) -> list[KubeEvent]:
        """Each feature's turn, of which one that fails does not hold up the others."""
        one, told, again_s = turn.many.ones[group], list[KubeEvent](), 60.0
        troubles: list[str] = []
        for feature in self._features:
            if feature.part not in one.parts:
                continue
            try:
                if isinstance(seen.described, KafkaFailure):
                    raise seen.described
                outcome = await feature.reconcile(self._view(turn, group, seen.described, seen.ahead))
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                troubles.append(str(failure))
                again_s = min(again_s, _FAILED_S)
            else:
                one.status = outcome.status
                told += [replace(event, key=f"{group}/{event.key}") for event in outcome.happenings]
                again_s = min(again_s, outcome.again_after_s)
        trouble = "; ".join(dict.fromkeys(troubles))
        if trouble and one.trouble != trouble:
            _log.warning("%s: group %s: %s; this is retried soon", label_of(turn.body), group, trouble)
        one.trouble, one.looked, one.due_s = trouble, True, self._parts.clock.monotonic() + again_s
        return told

    def _view(self, turn: _Turn, group: str, described: Group, ahead: ReadAhead | None) -> PolicyView:
        return PolicyView(
            turn.body,
            turn.spec,
            turn.many.ones[group].status,
            turn.live,
            self._parts.clock.now(),
            resetting=self._resets.is_being_reset(turn.live, group),
            memory=GroupMemory(turn.memory, group),
            described=described,
            ahead=ahead,
        )

    # --- summing up ---------------------------------------------------------------------------------------------------

    def _sum_up(self, turn: _Turn) -> None:
        many, draft, now_s = turn.many, turn.draft, self._parts.clock.monotonic()
        say(many.found, draft)
        if any(one.parts and not one.looked for one in many.ones.values()):
            return  # What an earlier process has said of all of them is nearer to the truth than a part.
        troubled = [
            TroubledGroup(group=group, reason=LOOK_FAILED, message=one.trouble[:_MESSAGE])
            for group, one in sorted(many.ones.items())
            if one.trouble
        ]
        tally = Counter(condition.reason for one in many.ones.values() for condition in one.status.conditions)
        tally.update({LOOK_FAILED: len(troubled), "": len(many.ones), "overridden": len(many.found.overridden)})
        trouble = turn.memory.trouble
        if many.said is not None and many.said[:2] == (tally, trouble) and now_s - many.said[2] < _SAY_S:
            return
        many.said = (tally, trouble, now_s)
        for feature in self._features:
            each = {group: one.status for group, one in many.ones.items() if feature.part in one.parts}
            whole = WholeView(turn.body, turn.spec, draft.status, draft.now, each, trouble)
            draft.status, worst = feature.together(whole)
            troubled = [*troubled, *worst]
        groups = ManyGroupsStatus(
            selected=len(many.ones),
            overridden=len(many.found.overridden),
            troubled=len({row.group for row in troubled}),
            worst=tuple(troubled[:MAX_WORST]),
        )
        draft.status = draft.status.model_copy(update={"groups": groups})


def _view_of_what_was(turn: _Turn, group: str) -> PolicyView:
    """Of a group, or of a part of one, that nothing is kept of any more."""
    one = turn.many.ones.get(group)
    status, memory = one.status if one is not None else PolicyStatus(), GroupMemory(turn.memory, group)
    return PolicyView(turn.body, turn.spec, status, turn.live, turn.draft.now, resetting=False, memory=memory)


def _since_s(document: Document | None) -> float | None:
    """``None`` also for what is no time: somebody may have edited it."""
    since_s = None if document is None else document.get("sinceS")
    if isinstance(since_s, bool) or not isinstance(since_s, int | float):
        return None
    return since_s if 0 <= since_s < _LATEST_S else None


def _described(live: Live, groups: Collection[str]) -> Mapping[str, Group | KafkaFailure]:
    """One by one where that fails for all together: one that may not be described must not blind for the others."""
    if not groups:
        return {}
    try:
        return dict(live.kafka.groups(groups))
    except KafkaFailure:
        described: dict[str, Group | KafkaFailure] = {}
        for group in groups:
            try:
                described.update(live.kafka.groups([group]))
            except KafkaFailure as failure:
                described[group] = failure
        return described


def _read_ahead(live: Live, groups: Collection[str], clock: Clock) -> Mapping[str, ReadAhead]:
    """Of those that can't be read together nothing: each of them is read when it is looked at."""
    try:
        commits = live.kafka.retention.commits_of(groups) if groups else {}
        at = clock.now()
        # After the offsets: those of a topic that was made anew are not missing, they are another topic's.
        names = frozenset(p.topic for each in commits.values() for p in (*each.offsets, *each.pending))
        topics = live.kafka.topics(names) if names else {}
    except KafkaFailure:
        return {}
    return {group: ReadAhead(at, each, names, topics) for group, each in commits.items()}


def _at_most(told: Sequence[tuple[_One, KubeEvent]], recorded: Container[str]) -> list[KubeEvent]:
    """Of what is new, so many Events of each reason that a person still reads them, and how many more there would be.

    A look repeats what is still so. What is counted here is told by that, once.
    """
    kept: dict[str, list[KubeEvent]] = {}
    more: dict[str, list[str]] = {}
    for one, event in told:
        if event.key in recorded or event.key in one.counted:
            continue
        of_reason = kept.setdefault(event.reason, [])
        if len(of_reason) < _EVENTS:
            of_reason.append(event)
        else:
            one.counted = (*one.counted, event.key)[-_COUNTED:]
            more.setdefault(event.reason, []).append(event.key)
    events = [event for of_reason in kept.values() for event in of_reason]
    for reason, keys in more.items():
        digest = hashlib.sha256(json.dumps(sorted(keys)).encode()).hexdigest()[:16]
        message = f"{len(keys)} more Events {reason} are not recorded: status.groups and the metrics count their groups"
        events.append(KubeEvent(EventType.NORMAL, MORE_EVENTS, message, f"more/{reason}/{digest}"))
    return events
