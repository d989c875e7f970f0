"""The copying of one partition, a while at a time, so that a few threads serve many partitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, assert_never

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.mirror.copier import Copier
from tidegate.mirror.model import Append
from tidegate.mirror.states import Claiming, Comparing, Confirming, Doubting, Lost, Mirror, Ready, Stopped
from tidegate.mirror.transitions import forgotten
from tidegate.offset_mirror.pace import Pace
from tidegate.offset_mirror.progress import Progress

_log = logging.getLogger(__name__)

_SLICE_S: Final = 2.0
"""How long one partition has a thread, while others wait for one."""
_FIRST_BACKOFF_S: Final = 0.2
_LAST_BACKOFF_S: Final = 30.0
_HELD_BACK_S: Final = 1.0
_STOPPED_S: Final = 60.0
"""What somebody has to do something about is tried again that often: nobody tells when it is done."""

WHEN_GROWN: Final = -1.0
NEVER: Final = -2.0


class Wrote(Protocol):
    def __call__(self, records: int, size: int) -> None:
        """Told of what was written, from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """``may_write``: whether it is this process's turn; from any thread."""

    pace: Pace
    max_fill: int
    may_write: Callable[[], bool]
    wrote: Wrote
    now_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of one partition's copy. ``offset``: where it ends; ``source_end``: the last stable offset;
    ``copied_at_s``: when the source had what the copy has now, by the monotonic clock."""

    partition: TopicPartition
    offset: int | None
    source_end: int | None
    copied_at_s: float | None
    stopped: str = ""
    drifted: bool = False
    trouble: str = ""
    producer_id: int | None = None
    """With which it is written; ``None``: not known yet."""

    @property
    def lag(self) -> int | None:
        if self.offset is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.offset)


class PartitionCopying:
    """:meth:`go_on` is for one thread at a time; all else belongs to the event loop's thread."""

    def __init__(self, partition: TopicPartition, copier: Copier, limits: Limits) -> None:
        self.partition = partition
        self._copier = copier
        self._limits = limits
        self._ended = threading.Event()
        self._going_on = threading.Lock()
        self._doubted = threading.Event()
        self._trouble = ""
        self._blocked = ""
        """What keeps it from going on until somebody does something, in its own words."""
        self._was_stopped = ""
        """Why it was, until something has shown that it is no more."""
        self._difference = ""
        self._failures = 0
        self._offset: int | None = None
        self._target_start = self._source_start = 0
        self._producer_id: int | None = None
        self._progress = Progress()

    def end(self) -> None:
        """Take no further step."""
        self._ended.set()

    @property
    def is_going_on(self) -> bool:
        """Whether a step may be under way, which ``end`` does not take back."""
        return self._going_on.locked()

    def differs(self, reason: str) -> None:
        """Somewhere it is not what the source has: write nothing more."""
        self._difference = reason

    def doubt(self) -> None:
        """Look at the end of the copy again before it goes on."""
        self._doubted.set()

    @property
    def offset(self) -> int | None:
        """Where the copy ends, as far as it is known to agree with the source; ``None``: not known yet."""
        return self._offset

    # --- what the source has ------------------------------------------------------------------------------------------

    def saw(self, bounds: LogBounds, before: int | None, at_s: float) -> bool:
        """The source's log, asked for at ``at_s`` when the copy ended at ``before``; whether there is something to do.

        A source that ends before the copy has lost records, by an unclean election: what comes then is compared, and
        until it is the copy has something that the source has not.
        """
        end = self._progress.source_end = bounds.latest
        self._source_start = max(self._source_start, bounds.earliest)
        if before is not None and end < before:
            self._doubted.set()
            return True
        self._progress.saw(end, at_s)
        self._settle()
        state = self._copier.mirror.state
        starts_later = isinstance(state, Ready) and state.target_start < bounds.earliest
        if starts_later and isinstance(state, Ready) and state.idle:
            # Records will be deleted, by the topic's name: not before it was seen that they are still ours.
            self._doubted.set()
        return self._doubted.is_set() or starts_later or self._offset is None or end > self._offset

    def _settle(self) -> None:
        """Not while the copy has what the source has deleted, or what fills the offsets before the source's start."""
        if self._target_start >= self._source_start:
            self._progress.settle(self._offset)

    def seen(self) -> Course:
        self._settle()
        stopped = Stopped(self._difference, drifted=True) if self._difference else self._copier.stopped
        return Course(
            self.partition,
            self._offset,
            self._progress.source_end,
            self._progress.copied_at_s,
            stopped.reason if stopped is not None else self._blocked or self._was_stopped,
            stopped is not None and stopped.drifted,
            self._trouble,
            self._producer_id,
        )

    # --- copying ------------------------------------------------------------------------------------------------------

    def go_on(self) -> float:
        """Copy for a while. Seconds until it should go on, ``WHEN_GROWN`` or ``NEVER``."""
        with self._going_on:
            return self._while_it_has_the_thread()

    def _while_it_has_the_thread(self) -> float:
        until_s = self._limits.now_s() + _SLICE_S
        if self._doubted.is_set():
            self._doubted.clear()
            self._copier.mirror = forgotten(self._copier.mirror)
        stopped = self._copier.stopped
        if stopped is not None and not stopped.drifted:
            self._was_stopped = stopped.reason
            self._copier.mirror = replace(self._copier.mirror, state=Lost())
        while not self._ended.is_set() and not self._difference:
            if self._ended.wait(self._limits.pace.wait_s()):
                break
            pause_s = self._before_a_step()
            pause = pause_s if pause_s else self._step()
            if pause is not None:
                self._rest()
                return pause
            if self._limits.now_s() >= until_s and isinstance(self._copier.mirror.state, Ready | Lost):
                self._rest()
                return 0.0
        return NEVER

    def _before_a_step(self) -> float:
        """How long to wait before anything is done."""
        if not self._limits.may_write():
            return 1.0
        state = self._copier.mirror.state
        self._blocked = ""
        if isinstance(state, Ready):
            missing = state.source_start - state.position.offset
            if missing > self._limits.max_fill:
                self._blocked = (
                    f"the source begins at offset {state.source_start}, and the copy ends at {state.position.offset}: "
                    f"raise spec.seed.maxFill to {missing} to have the offsets between them filled"
                )
                return _LAST_BACKOFF_S
        return 0.0

    def _step(self) -> float | None:
        """One action. As :meth:`go_on`; ``None``: at once."""
        mirror = self._copier.mirror
        action = mirror.action()
        try:
            waits_for = self._copier.step()
        except KafkaFailure as failure:
            self._copier.mirror = forgotten(self._copier.mirror)
            return self._failed(str(failure))
        if isinstance(action, Append):
            self._wrote(mirror, action)
        self._note()
        state = self._copier.mirror.state
        if isinstance(state, Stopped):
            if state.reason != self._was_stopped:
                _log.error("the copy of %s is stopped: %s", self.partition, state.reason)
            return NEVER if state.drifted else _STOPPED_S
        if isinstance(state, Ready) and state.idle and state.target_start >= state.source_start:
            self._goes_on()
            return WHEN_GROWN
        if isinstance(state, Ready) and state.idle:
            return None
        if waits_for is not None:
            pause_s = self._failed(waits_for.reason)
            if isinstance(state, Comparing) and waits_for.held_back:
                # The thread is kept: what is compared would have to be read again otherwise.
                self._ended.wait(min(pause_s, _HELD_BACK_S))
                return None
            return pause_s
        if isinstance(state, Ready) and state.proven:
            self._goes_on()
        return None

    def _goes_on(self) -> None:
        self._trouble, self._was_stopped, self._failures = "", "", 0

    def _failed(self, why: str) -> float:
        self._trouble = why
        self._failures += 1
        return float(min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10)))

    def _wrote(self, before: Mirror, action: Append) -> None:
        """Also what was sent without an answer: it may have been written."""
        size = sum(map(len, action.batches))
        self._limits.pace.wrote(size)
        was, now = before.state, self._copier.mirror.state
        if isinstance(was, Ready) and isinstance(now, Ready):
            self._limits.wrote(now.position.offset - was.position.offset, size)

    def _note(self) -> None:
        """Where the copy ends. While that is looked at again, it ends where it did, or further on."""
        match self._copier.mirror.state:
            case (Ready() as ready) | Claiming(ready) | Confirming(ready):
                self._target_start = ready.target_start
                self._source_start = max(self._source_start, ready.source_start)
                self._offset, self._producer_id = ready.position.offset, ready.position.stamp.producer_id
            case Stopped() | Lost() | Doubting() | Comparing():
                pass
            case _ as never:
                assert_never(never)

    def _rest(self) -> None:
        """Keep nothing of what was read while others have the threads: it is read again."""
        state = self._copier.mirror.state
        if isinstance(state, Comparing):
            self._copier.mirror = forgotten(self._copier.mirror)
        if isinstance(state, Ready) and state.work:
            self._copier.mirror = replace(self._copier.mirror, state=replace(state, work=()))
