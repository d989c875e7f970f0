"""Waits until a resource is as it was asked for, and shows each step once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.cli.errors import CommandFailed
from tidegate.cli.progress import Row, shown
from tidegate.cli.screen import Screen
from tidegate.clock import Clock
from tidegate.kube.ports import (
    PAUSES,
    RESETS,
    Kind,
    Kube,
    KubeUnavailable,
    NotFound,
    Object,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.conditions import COMPLETE, PAUSED, STALLED, find_condition, is_true
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.pause import PausePhase, PauseStatus
from tidegate.resources.reset import ResetPhase, has_ended

LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """How a resource stands. ``done``: whether it is as it was asked for; ``None``: not yet. ``refused``: why it will
    not be, unless somebody corrects something. ``rows``: how far its parts have come, where that is known."""

    line: str
    done: bool | None = None
    refused: str = ""
    rows: tuple[Row, ...] = ()


def reset_step(body: Object) -> Step:
    if not has_readable_status(OffsetResetStatus, body):
        return Step("its status was written by another version and can't be read")
    status = read_status(OffsetResetStatus, body)
    said = find_condition(status.conditions, COMPLETE)
    line = f"{status.phase or ResetPhase.PENDING}: {said.message if said is not None else 'not begun'}"
    if has_ended(status.phase):
        return Step(line, done=status.phase is ResetPhase.SUCCEEDED)
    if is_true(status.conditions, STALLED):
        return Step(line, refused="it begins once that is corrected, or delete it")
    return Step(line, rows=tuple(_reset_rows(status)))


def _reset_rows(status: OffsetResetStatus) -> Iterator[Row]:
    """Records of a search, or groups of a fleet. Of one group's partitions it is told only at the end which have begun
    at their target."""
    fleet, search = status.fleet, status.search
    if status.replay is not None and status.phase is ResetPhase.REPLAYING:
        yield Row("replayed", status.replay.read, status.replay.records)
    elif search is not None and status.phase in (ResetPhase.PENDING, ResetPhase.PLANNING):
        yield Row("records", search.records_read, search.records_total)
    elif fleet is not None:
        yield Row("groups", fleet.reset + fleet.failed + fleet.refused + fleet.put_back, fleet.groups)


def pause_step(body: Object, *, resumed: bool = False) -> Step:
    """``resumed``: it is to be resumed and not to be paused."""
    if not has_readable_status(PauseStatus, body):
        return Step("its status was written by another version and can't be read")
    status = read_status(PauseStatus, body)
    phase = status.phase or PausePhase.PENDING
    said = find_condition(status.conditions, PAUSED)
    count = f" {status.paused}" if status.paused else ""
    line = f"{phase}{count}: {said.message if said is not None else 'not begun'}"
    if status.observed_generation != body["metadata"].get("generation"):
        return Step(line)
    if phase is (PausePhase.RESUMED if resumed else PausePhase.PAUSED):
        return Step(line, done=True)
    if not resumed and phase is PausePhase.RESUMED:
        return Step(line, done=False)
    if is_true(status.conditions, STALLED):
        return Step(line, refused="it goes on once that is corrected, or delete it")
    return Step(line, rows=tuple(_pause_rows(status)))


def _pause_rows(status: PauseStatus) -> Iterator[Row]:
    """Its topics; where the status does not list all partitions, all together."""
    if status.partitions_omitted and status.partitions_total is not None:
        yield Row("partitions", status.partitions_paused or 0, status.partitions_total)
        return
    topics = defaultdict[str, list[bool]](list)
    for row in status.partitions:
        topics[row.topic].append(row.phase is PausePhase.PAUSED)
    for topic, paused in sorted(topics.items()):
        yield Row(topic, sum(paused), len(paused))


def follow(
    kube: Kube,
    kind: Kind,
    made: Object,
    step_of: Callable[[Object], Step],
    clock: Clock,
    timeout_s: float,
    screen: Screen,
) -> bool:
    """Whether it has become as it was asked for. While the API server does not answer it is asked again.

    Raises ``CommandFailed`` where it is refused, deleted, or not there in time.
    """
    label = f"{kind.kind} {name_of(made)}"
    end = clock.monotonic() + timeout_s
    with shown(screen, os.environ) as progress:
        while True:
            body = newest(kube, kind, made)
            if body is not None:
                step = step_of(body)
                progress.tell(step.line, step.rows)
                if step.done is not None:
                    return step.done
                if step.refused:
                    raise CommandFailed(f"{label} is refused; {step.refused}")
            if clock.monotonic() >= end:
                names = f"{name_of(made)} -n {namespace_of(made)}"
                is_watched = kind in (RESETS, PAUSES)
                where = f"tidegate watch {names}" if is_watched else f"kubectl get {kind.kind.lower()} {names}"
                raise CommandFailed(f"{label} is not there in time; it goes on: {where}")
            clock.sleep(LOOK_S)


def follow_deletion(
    kube: Kube,
    kind: Kind,
    made: Object,
    step_of: Callable[[Object], Step],
    clock: Clock,
    timeout_s: float,
    screen: Screen,
) -> Step | None:
    """Waits until it is gone; what it said last, if anything. Raises ``CommandFailed`` where it is not gone in time."""
    last: Step | None = None
    end = clock.monotonic() + timeout_s
    with shown(screen, os.environ) as progress:
        while True:
            try:
                body = kube.get(kind, namespace_of(made), name_of(made))
            except NotFound:
                return last
            except KubeUnavailable:
                body = None
            if body is not None:
                if uid_of(body) != uid_of(made):
                    return last
                last = step_of(body)
                progress.tell(last.line, last.rows)
            if clock.monotonic() >= end:
                raise CommandFailed(
                    f"{kind.kind} {name_of(made)} is not gone in time; its deletion goes on, and stays asked for"
                )
            clock.sleep(LOOK_S)


def newest(kube: Kube, kind: Kind, made: Object) -> Object | None:
    """``None``: the API server does not answer for now."""
    label = f"{kind.kind} {name_of(made)}"
    try:
        body = kube.get(kind, namespace_of(made), name_of(made))
    except NotFound:
        raise CommandFailed(f"{label} was deleted") from None
    except KubeUnavailable:
        return None
    if uid_of(body) != uid_of(made):
        raise CommandFailed(f"{label} was deleted, and another one has its name")
    return body
