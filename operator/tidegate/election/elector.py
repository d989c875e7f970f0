"""Keeps one process in the election: carries out what :class:`tidegate.election.candidate.Candidate` decides."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, assert_never

from tidegate.clock import Clock
from tidegate.election.candidate import Candidate, Create, GiveUp, Look, Update, Wait
from tidegate.kube.lease import LeaseRecord, Leases
from tidegate.kube.ports import Conflict, KubeFailure
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_THREADS: Final = 2
"""Of its own, so that no other call keeps it waiting; two, because one may be stuck in a call that was given up."""


class Term:
    """Until when this process may act as the leader. Thread-safe: asked before each write, by whoever writes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until_s: float | None = None
        self._is_over = False

    def prolong(self, until_s: float) -> None:
        with self._lock:
            self._until_s = until_s

    def end(self) -> None:
        """For good, whatever was known of a renewal."""
        with self._lock:
            self._is_over = True

    def holds(self) -> bool:
        with self._lock:
            return not self._is_over and self._until_s is not None and self._monotonic() < self._until_s


@dataclass(frozen=True, slots=True)
class Told:
    """Who learns of what, on the event loop: ``elected`` once; ``lost`` why, once at most; ``troubled`` of each failure
    that keeps the Lease from being read or written, and of "" once it is over."""

    elected: Callable[[], None]
    lost: Callable[[str], None]
    troubled: Callable[[str], None]


class Elector:
    """Belongs to the event loop's thread. ``term`` is what others ask whether this process leads."""

    def __init__(self, candidate: Candidate, leases: Leases, clock: Clock, term: Term, told: Told) -> None:
        self._candidate = candidate
        self._leases = leases
        self._clock = clock
        self._term = term
        self._told = told
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="election")
        self._leads = False
        self._holder: str | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Take part until the Lease is lost. Ends early only by being cancelled."""
        candidate = self._candidate
        while True:
            step = candidate.step(self._clock.monotonic(), self._clock.now())
            match step:
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                case GiveUp(why):
                    self._term.end()
                    self._told.lost(why)
                    return
                case Look() | Create() | Update():
                    await self._try(step)
                case _:
                    assert_never(step)

    async def release(self) -> None:
        """Let go of the Lease where it is held, so that another one need not wait. Not while :meth:`run` runs.

        Nothing may be done as the leader any more. Failing is harmless: the Lease ends by itself.
        """
        self._term.end()
        try:
            async with asyncio.timeout(self._candidate.timing.call_s):
                await self._release()
        except (KubeFailure, TimeoutError) as failure:
            _log.warning("the %s could not be released, but expires on its own: %s", self._leases, failure)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _release(self) -> None:
        candidate, leases = self._candidate, self._leases
        while (step := candidate.release(self._clock.now())) is not None:
            try:
                await in_thread(self._executor, leases.update, step.record, step.over)
            except Conflict:
                # A renewal was on its way, or another one has it.
                candidate.looked(await in_thread(self._executor, leases.read), self._clock.monotonic())
            else:
                _log.info("released the %s", leases)
                return

    async def _try(self, step: Look | Create | Update) -> None:
        candidate, sent_s = self._candidate, self._clock.monotonic()
        limit_s = candidate.timing.call_s
        if candidate.until_s is not None:
            limit_s = min(limit_s, candidate.until_s - sent_s)
        try:
            async with asyncio.timeout(limit_s):
                match step:
                    case Look():
                        candidate.looked(await in_thread(self._executor, self._leases.read), self._clock.monotonic())
                    case Create(record):
                        self._holds(await in_thread(self._executor, self._leases.create, record), sent_s)
                    case Update(record, over):
                        self._holds(await in_thread(self._executor, self._leases.update, record, over), sent_s)
        except Conflict:
            candidate.failed(self._clock.monotonic(), at_once=True)
        except (KubeFailure, TimeoutError) as failure:
            candidate.failed(self._clock.monotonic(), at_once=False)
            self._trouble_is(str(failure) or f"the API server did not answer within {limit_s:.1f} s")
            return
        if not (isinstance(step, Look) and self._has_to_write()):
            self._trouble_is("")
        self._follow()

    def _has_to_write(self) -> bool:
        """Whether what was just read is to be written over. Whoever may read the Lease and not write it would be well
        again with each look, and nobody would ever lead."""
        return isinstance(self._candidate.step(self._clock.monotonic(), self._clock.now()), Create | Update)

    def _holds(self, record: LeaseRecord, sent_s: float) -> None:
        self._candidate.wrote(record, sent_s)
        until_s = self._candidate.until_s
        if until_s is not None:
            self._term.prolong(until_s)
        if not self._leads:
            self._leads = True
            _log.info(
                "%s leads from now on, as the holder of the %s (term %d)",
                record.holder,
                self._leases,
                record.transitions,
            )
            self._told.elected()
            self._executor.submit(self._tell, record)

    def _tell(self, record: LeaseRecord) -> None:
        try:
            self._leases.tell(record, f"{record.holder} became leader")
        except KubeFailure as failure:
            _log.warning("%s", failure)

    def _follow(self) -> None:
        """Say who leads, where that is another one than before."""
        holder = self._candidate.holder
        if holder and holder not in (self._holder, self._candidate.identity):
            _log.info("standing by: %s leads, as the holder of the %s", holder, self._leases)
        self._holder = holder or self._holder

    def _trouble_is(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.warning("%s", trouble)
        self._trouble = trouble
        self._told.troubled(trouble)
