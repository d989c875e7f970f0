"""Waits until a resource is as it was asked for, and shows each step once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.cli.errors import CommandFailed
from tidegate.cli.progress import Row, shown
from tidegate.cli.screen import Screen
from tidegate.clock import Clock
from tidegate.incident.commands import command
from tidegate.incident.seen import UNREADABLE
from tidegate.kube.ports import (
    PAUSES,
    RESETS,
    Kind,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.conditions import COMPLETE, PAUSED, STALLED, ConditionStatus, find_condition, is_true
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.pause import PausePhase, PauseStatus
from tidegate.resources.reset import ResetPhase, has_ended

if TYPE_CHECKING:
    from tidegate.resources.offset_backup import OffsetBackupStatus

LOOK_S: Final = 1.0

ROLES_S: Final = 30.0
"""For so long after it was away an API server may refuse what it allows: until it has read the roles."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a resource stands. ``done``: whether it is as it was asked for; ``None``: not yet. ``refused``: why it will
    not be, unless somebody corrects something. ``rows``: how far its parts have come, where that is known.
    ``is_hindered``: of what is to be undone something could not be; it may be left as it is once this is gone."""

    line: str
    done: bool | None = None
    refused: str = ""
    rows: tuple[Row, ...] = ()
    is_hindered: bool = False


def is_refused(body: Object, status: OffsetResetStatus | OffsetBackupStatus) -> bool:
    """As it is now: one that was refused may just have been corrected."""
    is_of_this = status.observed_generation == (body.get("metadata") or {}).get("generation")
    return is_of_this and is_true(status.conditions, STALLED)


def reset_step(body: Object) -> Step:
    if not has_readable_status(OffsetResetStatus, body):
        return Step(UNREADABLE)
    status = read_status(OffsetResetStatus, body)
    said = find_condition(status.conditions, COMPLETE)
    line = f"{status.phase or ResetPhase.PENDING}: {said.message if said is not None else 'not begun'}"
    if has_ended(status.phase):
        return Step(line, done=status.phase is ResetPhase.SUCCEEDED)
    if is_refused(body, status):
        return Step(line, refused="resolve the cause and it begins, or delete it")
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
        return Step(UNREADABLE)
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
    is_stalled = is_true(status.conditions, STALLED)
    is_known = said is not None and said.status is not ConditionStatus.UNKNOWN
    is_hindered = phase is PausePhase.RESUMING and (is_stalled or not is_known)
    if is_stalled:
        return Step(line, refused="resolve the cause and it continues, or delete it", is_hindered=is_hindered)
    return Step(line, rows=tuple(_pause_rows(status)), is_hindered=is_hindered)


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
    *,
    context: str | None = None,
    goes_on: bool = True,
) -> bool:
    """Whether it has become as it was asked for. While the API server does not answer it is asked again.

    ``context``: of the kubeconfig, where one was given. ``goes_on``: whether it does once nobody waits for it, which is
    said then. Raises ``CommandFailed`` where it is refused, deleted, or not there in time.
    """
    label = f"{kind.kind} {name_of(made)}"
    end = clock.monotonic() + timeout_s
    watched_by = _watched_by(kind, made, context)
    interrupted = _going_on(f"No longer waiting for {label}, which continues. To watch it: {watched_by}", screen)
    looks = _Looks(kube, kind, made, clock)
    with interrupted if goes_on else nullcontext(), shown(screen, os.environ) as progress:
        while True:
            body = _newest(looks)
            if body is not None:
                step = step_of(body)
                progress.tell(step.line, step.rows)
                if step.done is not None:
                    return step.done
                if step.refused:
                    raise CommandFailed(f"{label} is refused for the reason above: {step.refused}")
            if clock.monotonic() >= end:
                more = f"; it continues. To watch it: {watched_by}" if goes_on else ""
                raise CommandFailed(f"{label} was not done within --timeout{more}")
            clock.sleep(LOOK_S)


@contextmanager
def _going_on(what: str, screen: Screen) -> Iterator[None]:
    """Says so where waiting is interrupted: that ends the command, and nothing of what the operator does."""
    try:
        yield
    except KeyboardInterrupt:
        screen.note(what)
        raise


def _watched_by(kind: Kind, made: Object, context: str | None) -> str:
    words = "tidegate watch" if kind in (RESETS, PAUSES) else f"kubectl get {kind.kind.lower()}"
    return command(words, name_of(made), namespace_of(made), context)


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
    told = f"No longer waiting for the deletion of {kind.kind} {name_of(made)}, which was requested and continues"
    looks = _Looks(kube, kind, made, clock)
    with _going_on(told, screen), shown(screen, os.environ) as progress:
        while True:
            try:
                body = looks.look()
            except NotFound:
                return last
            if body is not None:
                if uid_of(body) != uid_of(made):
                    return last
                last = step_of(body)
                progress.tell(last.line, last.rows)
            if clock.monotonic() >= end:
                raise CommandFailed(
                    f"{kind.kind} {name_of(made)} was not deleted within --timeout; its deletion was "
                    "requested, and continues"
                )
            clock.sleep(LOOK_S)


class _Looks:
    """Looks at one object again and again."""

    def __init__(self, kube: Kube, kind: Kind, made: Object, clock: Clock) -> None:
        self._kube, self.kind, self.made, self._clock = kube, kind, made, clock
        self._forgiven_until_s = clock.monotonic()

    def look(self) -> Object | None:
        """``None``: the API server does not answer for now, or is just back and refuses everybody. Raises
        ``NotFound``, and ``KubeFailure`` for what it refuses."""
        try:
            return self._kube.get(self.kind, namespace_of(self.made), name_of(self.made))
        except KubeUnavailable:
            self._forgiven_until_s = self._clock.monotonic() + ROLES_S
        except NotFound:
            raise
        except KubeFailure:
            if self._clock.monotonic() >= self._forgiven_until_s:
                raise
        return None


def _newest(looks: _Looks) -> Object | None:
    """``None``: the API server does not answer for now."""
    label = f"{looks.kind.kind} {name_of(looks.made)}"
    try:
        body = looks.look()
    except NotFound:
        raise CommandFailed(f"{label} was deleted") from None
    if body is not None and uid_of(body) != uid_of(looks.made):
        raise CommandFailed(f"{label} was deleted, and another one was created with the same name")
    return body
