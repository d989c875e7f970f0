"""The loop under both reconcilers: one pass at a time, woken by events and by time, never ended by a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidegate.kube.loop import LevelLoop, Pass, delay_s, rest_s
from tidegate.kube.ports import Conflict, KubeUnavailable, Object


def body_of(version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "namespace": "ns", "name": uid, "resourceVersion": str(version)}}


class Scripted:
    """Does what the script says, pass by pass; the last line goes on for ever."""

    loop: LevelLoop

    def __init__(self, *script: Callable[[Object], Awaitable[Pass]]) -> None:
        self._script = script
        self.seen: list[str] = []
        self.forgotten: list[str] = []
        self.fresh: Object | None = None
        self.at_once = 0
        self.most_at_once = 0

    async def reconcile(self, body: Object) -> Pass:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.seen.append(body["metadata"]["resourceVersion"])
        try:
            return await self._script[min(len(self.seen), len(self._script)) - 1](body)
        finally:
            self.at_once -= 1

    async def forget(self, body: Object) -> None:
        self.forgotten.append(body["metadata"]["uid"])

    async def refresh(self, body: Object) -> Object | None:  # noqa: ARG002 - the port's signature
        return self.fresh


async def rest(body: Object) -> Pass:
    return Pass(body, 60)


async def conflict(body: Object) -> Pass:
    raise Conflict("changed")


async def unavailable(body: Object) -> Pass:
    raise KubeUnavailable("away")


async def defect(body: Object) -> Pass:
    raise ZeroDivisionError


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for is the code under test, which tells nobody
            await asyncio.sleep(0.01)


def loop_of(reconciler: Scripted) -> LevelLoop:
    return LevelLoop(reconciler, expected=(KubeUnavailable,))


def test_events_wake_it_and_older_ones_are_not_believed() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        loop.notice(None, body_of(5))
        await reached(lambda: reconciler.seen == ["5"])
        loop.notice("MODIFIED", body_of(7))
        await reached(lambda: reconciler.seen == ["5", "7"])
        loop.notice("MODIFIED", body_of(6))
        await reached(lambda: reconciler.seen == ["5", "7", "7"])
        await loop.stop()

    asyncio.run(story())


def test_events_during_a_pass_cause_one_more_and_never_two_at_once() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def slow(body: Object) -> Pass:
            await gate.wait()
            return Pass(body, 60)

        reconciler = Scripted(slow)
        loop = loop_of(reconciler)
        for version in range(1, 6):
            loop.notice("MODIFIED", body_of(version))
            await asyncio.sleep(0.01)
        gate.set()
        await reached(lambda: reconciler.seen == ["1", "5"])
        await asyncio.sleep(0.05)
        assert reconciler.seen == ["1", "5"]
        assert reconciler.most_at_once == 1
        await loop.stop()

    asyncio.run(story())


def test_time_wakes_it_and_what_it_wrote_is_what_it_sees_next() -> None:
    async def story() -> None:
        async def wrote(body: Object) -> Pass:
            return Pass(body_of(9), 0.02)

        reconciler = Scripted(wrote, rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: reconciler.seen == ["1", "9"])
        await loop.stop()

    asyncio.run(story())


def test_after_a_conflict_it_reads_again_at_once() -> None:
    async def story() -> None:
        reconciler = Scripted(conflict, rest)
        reconciler.fresh = body_of(3)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: reconciler.seen == ["1", "3"])
        await loop.stop()

    asyncio.run(story())


def test_once_it_is_halted_no_pass_makes_a_further_step_and_none_begins() -> None:
    """Also the pass that waits for the very call which finds out that there is nothing more to do here."""

    async def story() -> None:
        steps: list[str] = []

        async def writes(body: Object) -> Pass:
            found_out = asyncio.get_running_loop().run_in_executor(None, fenced)
            steps.append("asked")
            try:
                await found_out
            finally:
                steps.append("ended")
            steps.append("wrote")
            return Pass(body, 60)

        reconciler = Scripted(writes)
        loop = loop_of(reconciler)
        events = asyncio.get_running_loop()

        def fenced() -> None:
            events.call_soon_threadsafe(loop.halt)

        loop.notice("ADDED", body_of(1))
        await reached(lambda: steps[1:] == ["ended"])
        loop.notice("MODIFIED", body_of(2))
        loop.notice("ADDED", body_of(1, "other"))
        await loop.stop()
        assert steps == ["asked", "ended"]
        assert reconciler.seen == ["1"]

    asyncio.run(story())


def test_failures_and_defects_are_tried_again() -> None:
    async def story() -> None:
        reconciler = Scripted(unavailable, defect, rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 3)
        await loop.stop()

    asyncio.run(story())


def test_a_deleted_object_is_forgotten_also_when_nobody_said_so() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        for uid in ("told", "listed", "kept"):
            loop.notice("ADDED", body_of(1, uid))
        await reached(lambda: len(reconciler.seen) == 3)
        loop.notice("DELETED", body_of(2, "told"))
        await reached(lambda: reconciler.forgotten == ["told"])
        await loop.retain({"kept"}, loop.uids)
        await reached(lambda: reconciler.forgotten == ["told", "listed"])
        assert loop.size == 1
        await loop.stop()

    asyncio.run(story())


def test_what_came_while_it_was_listed_is_not_missed() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1, "old"))
        known = loop.uids
        loop.notice("ADDED", body_of(1, "new"))
        await reached(lambda: len(reconciler.seen) == 2)
        await loop.retain({"old"}, known)
        await asyncio.sleep(0.05)
        assert reconciler.forgotten == []
        assert loop.size == 2
        await loop.stop()

    asyncio.run(story())


def test_whoever_lists_does_not_wait_for_what_is_missed() -> None:
    class Busy(Scripted):
        async def refresh(self, body: Object) -> Object | None:
            await answered.wait()
            return await super().refresh(body)

    async def story() -> None:
        reconciler = Busy(rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1, "gone"))
        await reached(lambda: len(reconciler.seen) == 1)
        async with asyncio.timeout(5):
            await loop.retain([], loop.uids)
        assert loop.size == 1
        answered.set()
        await reached(lambda: reconciler.forgotten == ["gone"])
        assert loop.size == 0
        await loop.stop()

    answered = asyncio.Event()
    asyncio.run(story())


def test_what_is_missed_but_there_goes_on() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        reconciler.fresh = body_of(1, "there")
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1, "there"))
        await reached(lambda: len(reconciler.seen) == 1)
        await loop.retain([], loop.uids)
        await reached(lambda: len(reconciler.seen) == 2)
        assert reconciler.forgotten == []
        await loop.stop()

    asyncio.run(story())


def test_a_loop_that_stands_by_knows_what_is_there_and_makes_its_first_pass_when_it_begins() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        loop.stand_by()
        for uid in ("stays", "told", "listed"):
            loop.notice(None, body_of(1, uid))
        loop.notice("MODIFIED", body_of(2, "stays"))
        loop.notice("DELETED", body_of(2, "told"))
        await loop.retain({"stays"}, loop.uids)
        loop.wake_all()
        await asyncio.sleep(0)
        assert reconciler.seen == reconciler.forgotten == []
        assert [body["metadata"]["uid"] for body in loop.bodies] == ["stays"]
        assert loop.size == 1

        loop.begin()
        loop.begin()
        await reached(lambda: reconciler.seen == ["2"])
        loop.notice("ADDED", body_of(7, "new"))
        await reached(lambda: reconciler.seen == ["2", "7"])
        await loop.stop()

    asyncio.run(story())


def test_a_loop_that_was_halted_before_its_turn_never_begins() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        loop.stand_by()
        loop.notice(None, body_of(1))
        loop.halt()
        loop.begin()
        await asyncio.sleep(0)
        await loop.stop()
        assert reconciler.seen == []

    asyncio.run(story())


def test_the_first_pass_waits_for_what_it_is_told_to_and_later_ones_do_not() -> None:
    async def story() -> None:
        waited: list[str] = []
        settled = asyncio.Event()

        async def before_first(body: Object) -> None:
            waited.append(body["metadata"]["resourceVersion"])
            await settled.wait()

        reconciler = Scripted(rest)
        loop = LevelLoop(reconciler, expected=(), before_first=before_first)
        loop.notice(None, body_of(1))
        await reached(lambda: waited == ["1"])
        loop.notice("MODIFIED", body_of(2))
        assert reconciler.seen == []

        settled.set()
        await reached(lambda: reconciler.seen == ["2"])
        loop.notice("MODIFIED", body_of(3))
        await reached(lambda: reconciler.seen == ["2", "3"])
        assert waited == ["1"]


def generation(number: int, uid: str = "u") -> dict[str, Any]:
    body = body_of(number, uid)
    body["metadata"]["generation"] = number
    return body


def test_it_is_busy_with_what_it_knows_while_passes_end_and_stuck_with_what_it_was_not_told_of() -> None:
    async def story() -> None:
        waits = asyncio.Event()

        async def slow(body: Object) -> Pass:
            if body["metadata"]["uid"] == "slow":
                await waits.wait()
            return Pass(body, 60)

        loop = loop_of(Scripted(slow))
        loop.notice(None, generation(1, "slow"))
        await asyncio.sleep(0)
        assert not loop.is_busy(generation(1, "slow"), 60), "no pass has ended yet"

        reconciled = Scripted(slow)
        loop = loop_of(reconciled)
        loop.notice(None, generation(1, "slow"))
        loop.notice(None, generation(1, "quick"))
        await reached(lambda: len(reconciled.seen) == 2)
        await asyncio.sleep(0.01)
        assert loop.is_busy(generation(1, "slow"), 60)
        assert not loop.is_busy(generation(1, "slow"), 0), "passes have ended, but not lately"
        assert not loop.is_busy(generation(2, "slow"), 60), "nobody has told it of the change"
        assert not loop.is_busy(generation(1, "unknown"), 60)
        waits.set()
        await loop.stop()

    asyncio.run(story())


def test_one_whose_own_passes_fail_does_not_count_as_busy() -> None:
    async def story() -> None:
        reconciler = Scripted(unavailable)
        loop = loop_of(reconciler)
        loop.notice(None, generation(1))
        await reached(lambda: len(reconciler.seen) == 1)
        await asyncio.sleep(0.01)
        assert not loop.is_busy(generation(1), 60)
        await loop.stop()

    asyncio.run(story())


def test_an_object_is_woken_by_its_name_without_a_look_at_the_others() -> None:
    class Unread(dict[str, Any]):
        """An object whose name is not to be asked for."""

        looks = 0

        def __getitem__(self, key: str) -> Any:
            if key == "name":
                Unread.looks += 1
            return super().__getitem__(key)

    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        for number in range(200):
            body = body_of(number, f"u{number}")
            loop.notice(None, {"metadata": Unread(body["metadata"])})
        await reached(lambda: len(reconciler.seen) == 200)
        Unread.looks = 0

        loop.wake_named("ns", "u7")

        assert Unread.looks == 0
        await reached(lambda: len(reconciler.seen) == 201)
        assert reconciler.seen[-1] == "7"
        await loop.stop()

    asyncio.run(story())


def test_what_is_anothers_is_left_alone_and_let_go_of_until_it_is_ours() -> None:
    async def story() -> None:
        ours = False
        scripted = Scripted(rest)
        waited: list[str] = []

        async def before(body: Object) -> None:
            waited.append(body["metadata"]["uid"])

        loop = LevelLoop(scripted, expected=(), before_first=before, is_ours=lambda _body: ours)
        loop.notice(None, body_of(1))
        loop.notice("MODIFIED", body_of(2))
        await asyncio.sleep(0.05)
        assert (scripted.seen, scripted.forgotten, waited) == ([], [], [])
        assert loop.named("ns", "u") == body_of(2)

        ours = True
        loop.wake_all()
        await reached(lambda: scripted.seen == ["2"])
        assert waited == ["u"]

        ours = False
        loop.wake("u")
        await reached(lambda: scripted.forgotten == ["u"])
        loop.notice("MODIFIED", body_of(3))
        await asyncio.sleep(0.05)
        assert scripted.seen == ["2"]

        loop.notice("DELETED", body_of(4))
        await reached(lambda: loop.size == 0)
        assert loop.named("ns", "u") is None
        await loop.stop()

    asyncio.run(story())


@pytest.mark.parametrize("now_s", [1000.0, 1003.7])
def test_passes_that_are_made_seldom_are_made_at_the_same_moments_and_never_late(now_s: float) -> None:
    delays = [delay_s(60, now_s) for _ in range(200)]

    assert all(46 - 5 <= delay <= 60 for delay in delays)
    moments = {round(now_s + delay, 6) for delay in delays}
    assert moments <= {1045.0, 1050.0, 1055.0, 1060.0}
    assert len(moments) > 1, "and not all of them at one"


def test_a_pass_that_is_soon_has_a_moment_of_its_own() -> None:
    delays = [delay_s(10, 1000.0) for _ in range(200)]

    assert all(8.5 <= delay <= 10 for delay in delays)
    assert len(set(delays)) > 100


@pytest.mark.parametrize(("resources", "expected_s"), [(1, 60), (600, 60), (2_500, 250), (100_000, 300)])
def test_the_more_there_are_at_rest_the_longer_each_is_left_alone(resources: int, expected_s: float) -> None:
    assert rest_s(60, resources) == expected_s


def test_what_is_at_rest_has_no_task_and_is_woken_all_the_same() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        for number in range(100):
            loop.notice("ADDED", body_of(1, f"u{number}"))
        await reached(lambda: len(reconciler.seen) == 100)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1, "only this one"

        loop.wake("u7")
        await reached(lambda: len(reconciler.seen) == 101)
        loop.notice("DELETED", body_of(2, "u8"))
        await reached(lambda: reconciler.forgotten == ["u8"])
        assert loop.size == 99
        await loop.stop()

    asyncio.run(story())


def test_nothing_wakes_what_was_halted() -> None:
    async def story() -> None:
        reconciler = Scripted(rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 1)
        loop.halt()
        loop.wake("u")
        loop.wake_all()
        await asyncio.sleep(0.05)
        assert len(reconciler.seen) == 1
        assert len(asyncio.all_tasks()) == 1
        await loop.stop()

    asyncio.run(story())


def test_an_event_does_not_have_a_defect_tried_again_before_its_time() -> None:
    async def story() -> None:
        reconciler = Scripted(defect, rest)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 1)
        began = asyncio.get_running_loop().time()
        loop.notice("MODIFIED", body_of(2))
        await reached(lambda: len(reconciler.seen) == 2)
        assert reconciler.seen == ["1", "2"]
        assert asyncio.get_running_loop().time() - began > 0.4
        await loop.stop()

    asyncio.run(story())


def observing(reconciler: Scripted) -> tuple[LevelLoop, list[bool]]:
    """With whether each pass that it is told of has failed."""
    failed: list[bool] = []
    return LevelLoop(reconciler, expected=(KubeUnavailable,), observe_pass=lambda _s, bad: failed.append(bad)), failed


def test_a_pass_that_is_ended_with_the_operator_has_not_failed() -> None:
    async def story() -> None:
        async def slow(_body: Object) -> Pass:
            await asyncio.Event().wait()
            raise AssertionError

        reconciler = Scripted(slow)
        loop, failed = observing(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 1)
        await loop.stop()
        assert failed == []

    asyncio.run(story())


@pytest.mark.parametrize("fails", [defect, unavailable, conflict])
def test_a_pass_that_fails_is_counted_once(fails: Callable[[Object], Awaitable[Pass]]) -> None:
    async def story() -> None:
        reconciler = Scripted(fails, rest)
        reconciler.fresh = body_of(1)
        loop, failed = observing(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(failed) > 1 and not failed[-1])
        await loop.stop()
        assert failed == [True, False]

    asyncio.run(story())


def test_what_a_watch_tells_while_an_object_is_read_again_is_not_lost() -> None:
    """A watch tells of each change once, and the answer of the reading may be older."""

    class Overtaken(Scripted):
        async def refresh(self, body: Object) -> Object | None:
            self.loop.notice("MODIFIED", body_of(7))
            return await super().refresh(body)

    async def story() -> None:
        reconciler = Overtaken(conflict, rest)
        reconciler.fresh = body_of(3)
        reconciler.loop = loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 2)
        assert reconciler.seen == ["1", "7"]
        await loop.stop()

    asyncio.run(story())


def test_what_is_read_again_counts_also_where_versions_began_anew() -> None:
    """As after the API server's storage was restored from a backup."""

    async def story() -> None:
        reconciler = Scripted(conflict, rest)
        reconciler.fresh = body_of(3)
        loop = loop_of(reconciler)
        loop.notice("ADDED", body_of(100))
        await reached(lambda: reconciler.seen == ["100", "3"])
        await loop.stop()

    asyncio.run(story())


def test_what_is_anothers_is_let_go_of_also_where_that_fails_at_first() -> None:
    class Clumsy(Scripted):
        async def forget(self, body: Object) -> None:
            await super().forget(body)
            if len(self.forgotten) == 1:
                raise ZeroDivisionError

    async def story() -> None:
        ours = True
        reconciler = Clumsy(rest)
        loop = LevelLoop(reconciler, expected=(), is_ours=lambda _body: ours)
        loop.notice("ADDED", body_of(1))
        await reached(lambda: len(reconciler.seen) == 1)
        ours = False
        loop.wake("u")
        await reached(lambda: reconciler.forgotten == ["u", "u"])
        await loop.stop()

    asyncio.run(story())
