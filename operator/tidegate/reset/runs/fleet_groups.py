"""A fleet's groups, each reset or settled by its own stored plan: one of them, or several side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.errors import Fenced, KafkaFailure
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.reset.runs.fleet import held_result
from tidegate.reset.runs.request import NOT_PUT_BACK
from tidegate.reset.store import Run, RunStore, StaleAttempt
from tidegate.resources.reset import ResetPhase

FLEET_THREADS: Final = 8
"""Groups that one process resets side by side, each through a connection of its own: mostly each is waited for."""

_T = TypeVar("_T")


class Coordinator(Protocol):
    """Whoever a fleet's groups are reset for."""

    def check(self) -> None:
        """Before each group. Raises ``StaleAttempt`` when the fleet was taken over, whose groups are another's then."""
        ...

    def ended(self, succeeded: bool) -> None:
        """After each group; ``succeeded``: it was reset, or put back where that was asked. Raises ``StaleAttempt``."""
        ...


class Resets(Protocol):
    """Resets groups, several side by side or one after another."""

    def apply(
        self, groups: Mapping[str, RunStore], coordinator: Coordinator, *, hold: bool, stop: bool = False
    ) -> bool:
        """``apply_group`` for each, by its id. With ``hold`` or ``stop``, none is begun after one has failed.

        Returns whether all stand at their targets. Raises what one raised, after the others that were begun have ended.
        """
        ...

    def settle(self, groups: Mapping[str, RunStore], coordinator: Coordinator, reason: str, message: str) -> None:
        """``settle_group`` for each."""
        ...


def apply_group(store: RunStore, kafka: Kafka, clock: Clock, *, hold: bool, tuning: Tuning | None = None) -> bool:
    """Reset one group by its stored plan, unless that is done; whether it stands at its targets.

    ``hold``: a success is not its result yet, and it keeps its claim, which lapses: where it is put back later, that
    tells whether another run has had the group meanwhile. Raises as ``tidegate.reset.runs.job.apply_run``.
    """
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result.phase is ResetPhase.SUCCEEDED
    if hold and held_result(run) is not None:
        return True
    reset = job.group_reset(store, attempt, kafka, clock, tuning)
    try:
        result = reset.apply()
    except Fenced as fenced:
        raise StaleAttempt(str(fenced)) from fenced
    if result is None:
        raise ValueError("a replay that ends is of one group")
    succeeded = result.phase is ResetPhase.SUCCEEDED
    if hold and succeeded:
        message = "the group waits for the other groups of its fleet"
        line = Progress(ResetPhase.RESUMING, clock.now(), attempt, way=result.way, message=message, held=result)
        store.append(line, attempt=attempt)
    else:
        store.finish(result, attempt=attempt)
        reset.release()
    return succeeded


def settle_group(
    store: RunStore, kafka: Kafka, clock: Clock, reason: str, message: str, *, tuning: Tuning | None = None
) -> RunResult:
    """``tidegate.reset.runs.job.settle``, without asking Kafka where the run has not got to its first transaction."""
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is None and not was_touched(run):
        result = RunResult(ResetPhase.FAILED, reason, f"{message}. Nothing was changed", clock.now())
        store.finish(result, attempt=attempt)
        return result
    return job.settle(store, kafka, clock, reason=reason, message=message, tuning=tuning)


def was_touched(run: Run) -> bool:
    """Whether a transaction of this run may have been begun."""
    return any(line.round > 0 for line in run.journal)


def undone_groups(earlier: Run, groups: Callable[[str], Run | None]) -> tuple[str, ...]:
    """The groups whose offsets an earlier run of a fleet has left changed, sorted. ``groups``: its runs, by group.

    Those that have ended and whose runs are lost are among them: their plan says so, and nobody takes them for undone.
    """
    if earlier.fleet is None:
        return ()
    ended = {g for g, _ in earlier.result.ends} if earlier.result is not None else set()

    def is_changed(group_id: str) -> bool:
        run = groups(group_id)
        if run is None:
            return group_id in ended
        result = run.result
        return result is not None and (result.phase is ResetPhase.SUCCEEDED or result.reason == NOT_PUT_BACK)

    return tuple(sorted(g for g in earlier.fleet.planned if is_changed(g)))


def side_by_side(items: Sequence[_T], do: Callable[[_T], bool], *, threads: int) -> bool:
    """``do`` each, which says whether others may be begun; none is after one that raised. Raises what the first did.

    Returns whether all were done, and said so.
    """
    over = threading.Event()

    def one(item: _T) -> None:
        if over.is_set():
            return
        go_on = False
        try:
            go_on = do(item)
        finally:
            if not go_on:
                over.set()

    with ThreadPoolExecutor(threads, thread_name_prefix="fleet") as pool:
        done = [pool.submit(one, item) for item in items]
    for future in done:
        future.result()
    return not over.is_set()


class SideBySide:
    """Implements ``Resets`` in threads. ``lend``: a connection for one thread at a time."""

    def __init__(
        self,
        lend: Callable[[], AbstractContextManager[Kafka]],
        clock: Clock,
        *,
        threads: int,
        tuning: Tuning | None = None,
    ) -> None:
        self._lend = lend
        self._clock = clock
        self._threads = threads
        self._tuning = tuning

    def apply(
        self, groups: Mapping[str, RunStore], coordinator: Coordinator, *, hold: bool, stop: bool = False
    ) -> bool:
        unended: list[KafkaFailure] = []
        failed: list[str] = []

        def reset(group: RunStore) -> bool:
            coordinator.check()
            succeeded = False
            try:
                with self._lend() as kafka:
                    succeeded = apply_group(group, kafka, self._clock, hold=hold, tuning=self._tuning)
            except KafkaFailure as failure:
                # Its gates could not be opened, so it is not over; the next job goes on with it.
                unended.append(failure)
            else:
                coordinator.ended(succeeded)
            if not succeeded:
                failed.append(group.location)
            return succeeded or not (hold or stop)

        side_by_side(list(groups.values()), reset, threads=self._threads)
        if unended:
            raise unended[0]
        return not failed

    def settle(self, groups: Mapping[str, RunStore], coordinator: Coordinator, reason: str, message: str) -> None:
        def end(group: RunStore) -> bool:
            coordinator.check()
            with self._lend() as kafka:
                result = settle_group(group, kafka, self._clock, reason, message, tuning=self._tuning)
            coordinator.ended(result.reason != NOT_PUT_BACK)
            return True

        side_by_side(list(groups.values()), end, threads=self._threads)
