"""The election as it is carried out: several candidates for one Lease in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from support.fake_leases import FakeLeases
from tidegate.clock import SystemClock
from tidegate.election.candidate import Candidate, Identity, Timing
from tidegate.election.elector import Elector, Term, Told
from tidegate.kube.lease import LeaseRecord
from tidegate.kube.ports import KubeFailure, KubeUnavailable

QUICK = Timing(lease_s=1, renew_s=0.3, retry_s=0.02)
CLOCK = SystemClock()


@dataclass
class Process:
    """One that takes part, and what it was told."""

    leases: FakeLeases
    name: str
    elected: asyncio.Event = field(default_factory=asyncio.Event)
    lost: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.term = Term(CLOCK.monotonic)
        told = Told(self.elected.set, self.lost.append, self.troubles.append)
        self.elector = Elector(Candidate(Identity(self.name, "1"), QUICK), self.leases, CLOCK, self.term, told)
        self.running = asyncio.create_task(self.elector.run())

    async def stop(self, *, release: bool = True) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running
        if release:
            await self.elector.release()


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for is the code under test, which tells nobody
            await asyncio.sleep(0.01)


def test_one_of_them_leads_and_the_next_one_once_that_has_released_it() -> None:
    async def story() -> None:
        leases = FakeLeases()
        first = Process(leases, "first")
        await reached(first.elected.is_set)
        assert first.term.holds()
        second = Process(leases, "second")
        begun = CLOCK.monotonic()
        await reached(lambda: CLOCK.monotonic() - begun > 2 * QUICK.lease_s)
        assert not second.elected.is_set()
        assert not second.term.holds()
        assert first.term.holds()

        await first.stop()
        assert not first.term.holds()
        await reached(second.elected.is_set)
        assert second.term.holds()
        await reached(lambda: leases.told == ["first_1 became leader", "second_1 became leader"])
        await second.stop()

    asyncio.run(story())


def test_one_releases_also_what_a_renewal_on_its_way_has_changed() -> None:
    async def story() -> None:
        leases = FakeLeases()
        process = Process(leases, "one")
        await reached(process.elected.is_set)
        process.running.cancel()
        await asyncio.wait([process.running])
        there = leases.read()
        assert there is not None
        leases.update(replace(there, renewed=CLOCK.now()), there)

        await process.elector.release()
        released = leases.read()
        assert released is not None
        assert released.holder == ""

    asyncio.run(story())


def test_one_leaves_alone_what_is_anothers_by_now() -> None:
    async def story() -> None:
        leases = FakeLeases()
        process = Process(leases, "one")
        await reached(process.elected.is_set)
        process.running.cancel()
        await asyncio.wait([process.running])
        there = leases.read()
        assert there is not None
        taken = leases.update(replace(there, holder="other"), there)

        await process.elector.release()
        assert leases.read() == taken

    asyncio.run(story())


def test_one_that_goes_without_a_word_is_followed_once_its_lease_has_ended() -> None:
    async def story() -> None:
        leases = FakeLeases()
        first, second = Process(leases, "first"), Process(leases, "second")
        await reached(lambda: first.elected.is_set() or second.elected.is_set())
        dead, heir = (first, second) if first.elected.is_set() else (second, first)
        await dead.stop(release=False)
        await reached(heir.elected.is_set)
        assert not dead.term.holds()
        assert heir.term.holds()
        await heir.stop()

    asyncio.run(story())


def test_who_cannot_renew_stops_writing_by_the_clock_alone_and_is_told_why() -> None:
    async def story() -> None:
        leases = FakeLeases()
        leader = Process(leases, "leader")
        await reached(leader.elected.is_set)
        leases.failure = KubeUnavailable("write Lease: nobody answers")
        await reached(lambda: not leader.term.holds())
        async with asyncio.timeout(10):
            await leader.running
        assert leader.lost == ["the Lease could not be renewed for 0.3 s"]
        assert "write Lease: nobody answers" in leader.troubles
        # A renewal that is heard of only now does not make it the leader again.
        leader.term.prolong(CLOCK.monotonic() + 60)
        assert not leader.term.holds()

    asyncio.run(story())


def test_a_call_that_is_never_answered_does_not_keep_it_from_giving_up() -> None:
    async def story() -> None:
        answering = threading.Event()

        class Stuck(FakeLeases):
            stuck = False

            def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:
                if self.stuck:
                    answering.wait(30)
                return super().update(record, over)

        leases = Stuck()
        leader = Process(leases, "leader")
        await reached(leader.elected.is_set)
        leases.stuck = True
        async with asyncio.timeout(10):
            await leader.running
        assert len(leader.lost) == 1
        answering.set()
        await leader.elector.release()

    asyncio.run(story())


def test_who_may_not_read_the_lease_says_so_and_leads_once_it_may() -> None:
    async def story() -> None:
        leases = FakeLeases()
        leases.failure = KubeFailure("read Lease: 403 forbidden")
        process = Process(leases, "one")
        await reached(lambda: "read Lease: 403 forbidden" in process.troubles)
        assert not process.elected.is_set()
        leases.failure = None
        await reached(process.elected.is_set)
        assert process.troubles[-1] == ""
        await process.stop()

    asyncio.run(story())
