"""The election as it is carried out: several candidates for one Lease in memory, by a clock that only they move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from support.fake_kafka import FakeClock
from support.fake_leases import FakeLeases
from support.virtual_time import AtOnce, VirtualLoop
from tidegate.election import elector
from tidegate.election.candidate import Candidate, Identity, Timing
from tidegate.election.elector import Elector, Term, Told
from tidegate.kube.lease import LeaseRecord
from tidegate.kube.ports import KubeFailure, KubeUnavailable
from tidegate.service.health import Freshness

TIMING = Timing(lease_s=15, renew_s=10, retry_s=2)


class NotAnswered(Exception):
    """Raised by a call that hangs."""


class Threads(AtOnce):
    """As a pool of threads: a call that hangs keeps one of them busy, and where all are, later calls wait."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._call(future, lambda: fn(*args, **kwargs))
        return future

    def answer(self) -> None:
        """What hung or waited goes on."""
        waiting, self._waiting = self._waiting, []
        for future, call in waiting:
            # What was given up before a thread took it is not called any more.
            if future.running() or future.set_running_or_notify_cancel():
                self._call(future, call)

    def _call(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if len(self._waiting) >= self._workers:
            self._waiting.append((future, call))
            return
        if not future.running():
            future.set_running_or_notify_cancel()
        result = super().submit(call)
        if isinstance(result.exception(), NotAnswered):
            self._waiting.append((future, call))
        elif (failure := result.exception()) is not None:
            future.set_exception(failure)
        else:
            future.set_result(result.result())


class Hanging(FakeLeases):
    """So many of the next updates hang."""

    hangs = 0

    def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:
        if self.hangs:
            self.hangs -= 1
            raise NotAnswered
        return super().update(record, over)


@dataclass
class Process:
    """One that takes part, and what it was told."""

    clock: FakeClock
    leases: FakeLeases
    name: str
    troubled: Callable[[str], None] | None = None
    elected: asyncio.Event = field(default_factory=asyncio.Event)
    lost: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.term = Term(self.clock.monotonic)
        told = Told(self.elected.set, self.lost.append, self.troubled or self.troubles.append)
        candidate = Candidate(Identity(self.name, "1"), TIMING)
        pools = list[Threads]()

        def pool(workers: int, **_: Any) -> Threads:
            pools.append(Threads(workers))
            return pools[-1]

        with patch.object(elector, "ThreadPoolExecutor", pool):
            self.elector = Elector(candidate, self.leases, self.clock, self.term, told)
        [self.threads] = pools
        self.running = asyncio.create_task(self.elector.run())

    async def stop(self, *, release: bool = True) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running
        if release:
            await self.elector.release()


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not condition():  # noqa: ASYNC110 - what is waited for is the code under test, which tells nobody
            await asyncio.sleep(0.01)


def play(story: Callable[[FakeClock], Awaitable[None]]) -> None:
    """On a loop whose time passes only where everybody waits: however busy the machine is, no call takes long."""
    clock = FakeClock()

    async def whole() -> None:
        await story(clock)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(whole())


def test_one_of_them_leads_and_the_next_one_once_that_has_released_it() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        first = Process(clock, leases, "first")
        await reached(first.elected.is_set)
        assert first.term.holds()
        second = Process(clock, leases, "second")
        await asyncio.sleep(20 * TIMING.lease_s)
        assert not second.elected.is_set()
        assert not second.term.holds()
        assert first.term.holds()

        await first.stop()
        released = clock.monotonic()
        assert not first.term.holds()
        await reached(second.elected.is_set)
        assert clock.monotonic() - released <= TIMING.retry_s + 0.01
        assert second.term.holds()
        await reached(lambda: leases.told == ["first_1 became leader", "second_1 became leader"])
        await second.stop()

    play(story)


def test_one_releases_also_what_a_renewal_on_its_way_has_changed() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        process = Process(clock, leases, "one")
        await reached(process.elected.is_set)
        await process.stop(release=False)
        there = leases.read()
        assert there is not None
        leases.update(replace(there, renewed=clock.now()), there)

        await process.elector.release()
        released = leases.read()
        assert released is not None
        assert released.holder == ""

    play(story)


def test_one_leaves_alone_what_is_anothers_by_now() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        process = Process(clock, leases, "one")
        await reached(process.elected.is_set)
        await process.stop(release=False)
        there = leases.read()
        assert there is not None
        taken = leases.update(replace(there, holder="other"), there)

        await process.elector.release()
        assert leases.read() == taken

    play(story)


def test_one_that_goes_without_a_word_is_followed_once_its_lease_has_ended() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        first, second = Process(clock, leases, "first"), Process(clock, leases, "second")
        await reached(lambda: first.elected.is_set() or second.elected.is_set())
        dead, heir = (first, second) if first.elected.is_set() else (second, first)
        await asyncio.sleep(3 * TIMING.lease_s)
        await dead.stop(release=False)
        gone = clock.monotonic()
        await reached(lambda: not dead.term.holds())
        ended = clock.monotonic()
        assert not heir.elected.is_set()
        await reached(heir.elected.is_set)
        # The last renewal was at most one retry before it went, and was seen at most one later.
        assert gone < ended < clock.monotonic()
        assert TIMING.lease_s - TIMING.retry_s <= clock.monotonic() - gone <= TIMING.lease_s + 2 * TIMING.retry_s
        assert not dead.term.holds()
        assert heir.term.holds()
        await heir.stop()

    play(story)


def test_who_cannot_renew_stops_writing_by_the_clock_alone_and_is_told_why() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        leader = Process(clock, leases, "leader")
        await reached(leader.elected.is_set)
        leases.failure = KubeUnavailable("write Lease: nobody answers")
        await reached(lambda: not leader.term.holds())
        async with asyncio.timeout(1):
            await leader.running
        assert leader.lost == ["the Lease could not be renewed for 10 s"]
        assert "write Lease: nobody answers" in leader.troubles
        # A renewal that is heard of only now does not make it the leader again.
        leader.term.prolong(clock.monotonic() + 60)
        assert not leader.term.holds()

    play(story)


def test_a_call_that_is_never_answered_does_not_keep_it_from_giving_up() -> None:
    async def story(clock: FakeClock) -> None:
        leases = Hanging()
        leader = Process(clock, leases, "leader")
        await reached(leader.elected.is_set)
        leases.hangs = 1000
        elected = clock.monotonic()
        await leader.running
        assert clock.monotonic() - elected <= TIMING.renew_s
        assert len(leader.lost) == 1
        assert "the API server did not answer within 5.0 s" in leader.troubles
        leases.hangs = 0
        leader.threads.answer()
        await leader.elector.release()
        released = leases.read()
        assert released is not None
        assert released.holder == ""

    play(story)


def test_one_renewal_that_hangs_does_not_keep_the_next_ones_from_being_sent() -> None:
    async def story(clock: FakeClock) -> None:
        leases = Hanging()
        leader = Process(clock, leases, "leader")
        await reached(leader.elected.is_set)
        leases.hangs = 1
        await asyncio.sleep(3 * TIMING.lease_s)
        assert leader.troubles.count("the API server did not answer within 5.0 s") == 1
        assert leader.term.holds()
        await leader.stop()

    play(story)


def test_who_may_not_read_the_lease_says_so_and_leads_once_it_may() -> None:
    async def story(clock: FakeClock) -> None:
        leases = FakeLeases()
        leases.failure = KubeFailure("read Lease: 403 forbidden")
        process = Process(clock, leases, "one")
        await reached(lambda: "read Lease: 403 forbidden" in process.troubles)
        assert not process.elected.is_set()
        leases.failure = None
        await reached(process.elected.is_set)
        assert process.troubles[-1] == ""
        await process.stop()

    play(story)


class ReadOnly(FakeLeases):
    """For whoever may read the Lease, and not write it."""

    def create(self, record: LeaseRecord) -> LeaseRecord:  # noqa: ARG002 - the port's signature
        raise KubeFailure("write Lease: 403 forbidden")

    def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:  # noqa: ARG002 - the port's signature
        raise KubeFailure("write Lease: 403 forbidden")


def test_who_may_read_the_lease_and_not_write_it_fails_the_check_in_the_end() -> None:
    async def story(clock: FakeClock) -> None:
        freshness = Freshness(90, clock.monotonic)
        process = Process(clock, ReadOnly(), "one", freshness.troubled)
        await asyncio.sleep(100)
        freshness.listed([])
        assert [problem.split(": ", 1)[1] for problem in freshness.problems()] == ["write Lease: 403 forbidden"]
        await process.stop()

    play(story)


def test_who_stands_by_for_another_one_that_writes_the_lease_is_well() -> None:
    async def story(clock: FakeClock) -> None:
        leases, freshness = FakeLeases(), Freshness(90, clock.monotonic)
        leader = Process(clock, leases, "leader")
        await reached(leader.elected.is_set)
        leases.failure = KubeFailure("read Lease: 403 forbidden")
        other = Process(clock, leases, "other", freshness.troubled)
        await asyncio.sleep(2)
        leases.failure = None
        await asyncio.sleep(100)
        freshness.listed([])
        assert freshness.problems() == []
        await leader.stop()
        await other.stop()

    play(story)
