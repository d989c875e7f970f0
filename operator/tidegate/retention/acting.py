"""What is due is committed again, and what has expired is put back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final

from tidegate.audit.records import Action
from tidegate.connection.freezing import FrozenMeanwhile, begin
from tidegate.connection.live import Live
from tidegate.connection.observer import Observer
from tidegate.kafka.errors import GroupNotEmpty, KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_retention import Commit, Commits
from tidegate.kube.ports import label_of
from tidegate.policy.feature import PolicyView
from tidegate.policy.recording import attribution_of
from tidegate.retention.bounds import told_bounds
from tidegate.retention.last_offsets import Place, Places, topic_id_of
from tidegate.retention.metrics import RetentionMetrics
from tidegate.retention.plan import Plan, Seen
from tidegate.retention.recording import commit_recorded
from tidegate.retention.snapshot import Known, Unsure
from tidegate.retention.status import Restored
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_NOW_S: Final = 0.0


class Acting:
    """Belongs to the event loop's thread. ``is_frozen``: whether a connection is now, so that nothing is committed.
    ``executor``: for calls that may take seconds."""

    def __init__(
        self, observer: Observer, is_frozen: Callable[[Live], bool], executor: Executor, metrics: RetentionMetrics
    ) -> None:
        self._observer, self._is_frozen, self._executor, self._metrics = observer, is_frozen, executor, metrics

    async def act(self, policy: PolicyView, memory: Known, seen: Seen, plan: Plan) -> str:
        """Do what the plan says; ``memory`` has what was done. Why the brokers refuse it, and what to do; empty where
        they do not."""
        group_id, refused = seen.group.group_id, ""
        try:
            if plan.due:
                try:
                    await self._renew(policy, memory, seen, plan)
                except NotAuthorized as error:
                    refused = str(error)  # perhaps of one topic, and another one has offsets to be put back
            if plan.lost and seen.guard:
                await self._restore(policy, memory, seen, plan)
        except GroupNotEmpty as error:
            # Somebody has joined since the look; they keep their place themselves.
            _log.info("%s", error)
        except FrozenMeanwhile as frozen:
            _log.info("group %s: %s, so the operator commits nothing more for it", group_id, frozen)
        except (NotAuthorized, Refused) as error:
            refused = refused or str(error)
        if not refused:
            return ""
        return (
            f"{refused}. Keeping offsets requires Read on group {group_id} and its topics, and brokers that accept "
            "OffsetCommit v2 to v4"
        )

    def looked_back(self, memory: Known, places: Places, commits: Commits) -> Places:
        """``places`` with what is found there of offsets that were put back by a commit without an answer, or by one
        that was refused for some of them."""
        unsure, memory.unsure = memory.unsure, None
        if unsure is None:
            return places
        there = frozenset(p for p, commit in unsure.wanted.items() if commits.offsets.get(p) == commit)
        if not there:
            return places
        self._has_restored(memory, unsure, there)
        rows = {p: _restored(places.rows[p], commits.offsets[p], unsure.at_ms) for p in there}
        return places.with_rows(rows)

    async def _renew(self, policy: PolicyView, memory: Known, seen: Seen, plan: Plan) -> None:
        group_id = seen.group.group_id
        commit = functools.partial(
            policy.live.kafka.retention.commit, group_id, plan.due, seen.commits.offsets, retention_ms=seen.kept_for_ms
        )
        renewed = await in_thread(self._executor, begin, self._is_frozen, policy.live, commit)
        if not renewed:
            return
        rows = {p: replace(memory.places.rows[p], kept_ms=seen.now_ms) for p in renewed}
        memory.places = memory.places.with_rows(rows)
        memory.done = replace(memory.done, renewed_ms=seen.now_ms)
        self._metrics.renewed(len(renewed))
        _log.info("group %s: committed %d offset(s) again, unchanged, to keep them", group_id, len(renewed))

    async def _restore(self, policy: PolicyView, memory: Known, seen: Seen, plan: Plan) -> None:
        wanted = await self._to_restore(policy, plan)
        if not wanted:
            return
        kafka, group_id = policy.live.kafka, seen.group.group_id

        def commit() -> frozenset[TopicPartition]:
            return kafka.retention.commit(group_id, wanted, {}, retention_ms=seen.kept_for_ms)

        attribution = attribution_of(label_of(policy.body), policy.live.audit, Action.RESTORE)
        restore = functools.partial(commit_recorded, kafka, group_id, wanted, commit, attribution)
        unsure = Unsure(seen.now_ms, wanted, plan.lost)
        try:
            restored = await in_thread(self._executor, begin, self._is_frozen, policy.live, restore)
        except (FrozenMeanwhile, GroupNotEmpty):
            raise
        except KafkaFailure:
            memory.unsure = unsure
            raise
        if restored:
            rows = {p: _restored(plan.lost[p], wanted[p], seen.now_ms) for p in restored}
            memory.places = memory.places.with_rows(rows)
            self._has_restored(memory, unsure, restored)

    def _has_restored(self, memory: Known, what: Unsure, restored: frozenset[TopicPartition]) -> None:
        was = {p: what.lost[p].commit.offset for p in restored}
        clamped = {p: (at, what.wanted[p].offset) for p, at in was.items() if what.wanted[p].offset != at}
        looks = {what.lost[p].last_seen_ms for p in restored}
        seen_ms = frozenset(at for at in looks if at is not None and None not in looks)
        told = Restored(what.at_ms, restored, seen_ms, clamped)
        memory.done = replace(memory.done, restored=(*memory.done.restored, told))
        self._metrics.restored(len(restored))

    async def _to_restore(self, policy: PolicyView, plan: Plan) -> Mapping[TopicPartition, Commit]:
        """What is lost, within today's logs. Asking their leaders takes its time, in which a topic may be deleted and
        created anew: so its id is looked at afterwards."""
        kafka = policy.live.kafka
        bounds = await in_thread(self._executor, told_bounds, kafka, sorted(plan.lost))
        if not bounds:
            return {}
        topics = await self._observer.topics(policy.live.uid, {p.topic for p in bounds}, _NOW_S)
        return {
            p: replace(row.commit, offset=bounds[p].clamp(row.commit.offset))
            for p, row in plan.lost.items()
            if p in bounds and topic_id_of(p, topics) == row.topic_id
        }


def _restored(row: Place, commit: Commit, at_ms: int) -> Place:
    return Place(commit, row.topic_id, at_ms, at_ms, at_ms)
