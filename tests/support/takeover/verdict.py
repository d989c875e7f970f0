"""Gathers what there is to know of a story that was played, and has it judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from apiserver.offsets import committed
from support.checker import ResetRun, check
from support.deliveries import Partition
from support.takeover.judging import (
    Standing,
    applied_twice,
    flapping_pause,
    flapping_reset,
    late_writes,
    left_held,
    lost_holds,
    read_twice,
    read_while_paused,
    told_twice,
)
from support.takeover.logs import hold_key, holds_of, marks_of
from support.takeover.plan import Moment, Whose
from support.takeover.stage import AT, IDLE, LIVE, PARTITIONS, PAUSED, Stage, topic_of
from support.takeover.story import AskedReset, Story
from tidegate.reset.store import Run
from tidegate.reset.stores import open_store
from tidegate.resources.reset import ResetPhase, Way

_AS_ASKED: Final = 10
_ENDS: Final = {Moment.ROLLING_BACK: (ResetPhase.ROLLED_BACK, ResetPhase.FAILED, ResetPhase.SUCCEEDED)}


def complaints(story: Story) -> list[str]:
    """All that is not as it should be; production and consumption come to their end for it."""
    stage = story.stage
    acked = {topic: producer.stop() for topic, producer in stage.producers.items()}
    for topic, offsets in acked.items():
        stage.fleets[topic].wait_read_to({p: max(o) + 1 for p, o in offsets.items() if o}, 120)
    runs = {reset.name: _runs(stage, reset) for reset in story.resets}
    found = list(story.complaints)
    for reset in story.resets:
        found += _of_reset(stage, reset, runs[reset.name])
    found += _of_marks(stage, story.resets, runs)
    for whose in LIVE:
        mine = [reset for reset in story.resets if reset.whose is whose]
        found += _of_live_group(stage, whose, acked[topic_of(whose)], [_as_seen(r, runs[r.name]) for r in mine])
    found += _of_pauses(story)
    writes = stage.replicas.writes()
    for struck in story.struck:
        if struck.woken is not None:
            found += late_writes(struck.leader, struck.woken, writes)
    return found


def _runs(stage: Stage, reset: AskedReset) -> list[Run]:
    """The reset's own run first; of a fleet those of its groups follow."""
    names = sorted(stage.resources.run_documents(reset.name), key=lambda name: (name != reset.document, name))
    where = f"configmap://{stage.resources.namespace}"
    return [open_store(f"{where}/{name}", api_client=stage.client).load() for name in names]


def _of_reset(stage: Stage, reset: AskedReset, runs: Sequence[Run]) -> Iterator[str]:
    run = runs[0]
    statuses = [version.status for version in stage.resets.versions(reset.name)]
    yield from flapping_reset(reset.name, statuses, [line.phase for line in run.journal])
    yield from told_twice(reset.name, [reason for reason, _ in stage.resources.events(reset.name)])
    result = run.result
    if result is None:
        yield f"reset {reset.name}: its run has no end"
        return
    if statuses[-1].get("phase") != result.phase:
        yield f"reset {reset.name}: its status says {statuses[-1].get('phase')}, its run {result.phase}"
    wanted = _ENDS.get(reset.moment, (ResetPhase.SUCCEEDED,))
    if result.phase not in wanted or result.reason == "NotPutBack":
        yield f"reset {reset.name}: it ended as {result.phase}, {result.reason}: {result.message}"
    if reset.whose in (Whose.IDLE, Whose.FLEET):
        where = _AS_ASKED if result.phase is ResetPhase.SUCCEEDED else AT
        for group in reset.groups:
            there = committed(stage.kafka.bootstrap, group, IDLE, PARTITIONS)
            if there != dict.fromkeys(range(PARTITIONS), where):
                yield f"reset {reset.name}, {result.phase}: group {group} stands at {there}"


def _of_marks(stage: Stage, resets: Sequence[AskedReset], runs: dict[str, list[Run]]) -> Iterator[str]:
    of_groups = [run for reset in resets for run in runs[reset.name] if run.plan is not None]
    marks = marks_of(stage.kafka.bootstrap, {run.request.run_uid: [run.request.group_id] for run in of_groups})
    for reset in resets:
        for run in runs[reset.name]:
            if run.plan is None or run.result is None:
                continue
            mine = marks[run.request.run_uid]
            rounds = {line.round for line in run.journal if line.round}
            alone = all(line.way in (None, Way.UNOWNED, Way.GATED) for line in run.journal)
            over = run.result.finished_at.timestamp()
            yield from applied_twice(reset.name, mine, rounds, over, once=alone)
            if run.result.phase is ResetPhase.SUCCEEDED and run.plan.moved and not mine:
                yield f"reset {reset.name}: it has committed nothing, and calls itself {run.result.phase}"


def _as_seen(reset: AskedReset, runs: Sequence[Run]) -> ResetRun:
    """For whoever judges what consumers were given."""
    [run] = runs
    assert run.plan is not None, f"reset {reset.name} has no plan"
    assert run.result is not None, f"reset {reset.name} has no end"
    targets = {(p.topic, p.partition): offset for p, offset in run.plan.targets.items()}
    over = run.result.finished_at.timestamp()
    if run.result.phase is ResetPhase.SUCCEEDED:
        return ResetRun(reset.t, over, targets)
    return ResetRun(reset.t, over, {}, frozenset(targets))


def _of_live_group(
    stage: Stage, whose: Whose, acked: dict[Partition, frozenset[int]], runs: Sequence[ResetRun]
) -> Iterator[str]:
    topic = topic_of(whose)
    verdict = check(stage.fleets[topic].records(), acked, runs)
    # Owners that are made to leave read again what they had not committed; those with the agent never do.
    if not (verdict.clean if whose is Whose.MANAGED else verdict.ok):
        yield from (f"group {topic}: {text}" for text in verdict.complaints())


def _of_pauses(story: Story) -> Iterator[str]:
    stage, standing = story.stage, []
    for pause in story.pauses:
        versions = stage.pauses.versions(pause.name)
        yield from flapping_pause(pause.name, [version.status for version in versions])
        yield from told_twice(pause.name, [reason for reason, _ in stage.resources.events(pause.name)])
        paused = next((version.t for version in versions if version.phase == "Paused"), None)
        if paused is None or pause.let_go is None:
            yield f"pause {pause.name}: it never was paused, or never ended"
            continue
        place = (pause.hold.topic, pause.hold.partition)
        standing.append(Standing(pause.name, hold_key(pause.hold), place, paused, pause.let_go))
    records = holds_of(stage.kafka.bootstrap, stage.control_topic)
    yield from lost_holds(standing, records)
    yield from left_held(records)
    # Before, its second member has joined: that rebalance is nobody's fault.
    deliveries = stage.fleets[PAUSED].records(since=story.began)
    yield from read_while_paused(standing, deliveries)
    yield from read_twice(f"group {PAUSED}", deliveries)
