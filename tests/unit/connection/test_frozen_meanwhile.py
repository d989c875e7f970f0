"""A freeze that comes between the look by which something was to begin, and its start: it does not begin.

The operator says ``Frozen`` of a connection once every start that comes later asks for it. So whatever the moment, what
has not begun by then must not begin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from support.frozen_meanwhile import FreezingExecutor
from support.mirror.passes import World as MirrorWorld
from support.observed import freeze
from support.pause_world import World as PauseWorld
from support.reset_world import World as ResetWorld
from support.retention_world import DAY, PLACE
from support.retention_world import World as RetentionWorld
from tidegate.kafka.model import GroupType
from tidegate.kube.ports import CONNECTIONS, MIRRORS, Conflict
from unit.connection.test_connection_passes import World as ConnectionWorld
from unit.inject.test_injection_feature import feature, kept, one_ready_pod


def moments(run: Callable[[int], bool]) -> tuple[int, int]:
    """Play it with a freeze before each call, until it ends before that; how often it had begun by then, and not."""
    begun, number = [], 1
    with contextlib.suppress(StopIteration):
        while True:
            begun.append(run(number))
            number += 1
    return sum(begun), len(begun) - sum(begun)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in range(1000))


def reset_frozen_at(number: int, folder: Path, *, manual: bool) -> bool:
    world = ResetWorld(folder)
    has_begun: list[bool] = []

    def begun() -> bool:
        return ("approvedDigest" if manual else "startedAt") in (world.body.get("status") or {})

    def freeze_now() -> None:
        has_begun.append(begun())
        freeze(world.live)

    world.ask(**({"approval": "Manual"} if manual else {}))
    if manual:
        world.passes()
        world.approve()
    beneath, world.executor = world.executor, cast("Any", FreezingExecutor(world.executor, number, freeze_now))
    world.reconciler = world.fresh_reconciler()
    try:
        world.some_passes(12)
        if not has_begun:
            raise StopIteration
        assert begun() is has_begun[0]
        assert (world.offset == 10) is has_begun[0]
        told = [h.reason for h in world.kube.happenings_of("p")]
        if not has_begun[0]:
            assert world.condition("Complete")["reason"] == "Frozen"
            assert manual or "Pending" not in told, "it is not told that it begins"
            freeze(world.live, thaw=True)
            world.passes()
            assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    finally:
        beneath.shutdown()
    return has_begun[0]


@pytest.mark.parametrize("manual", [False, True], ids=["it begins", "its plan is approved"])
def test_a_reset_does_not_begin_after_the_freeze(folders: Iterator[Path], *, manual: bool) -> None:
    begun, not_begun = moments(lambda number: reset_frozen_at(number, next(folders), manual=manual))
    assert begun > 2
    assert not_begun > 2


def pause_frozen_at(number: int) -> bool:
    world = PauseWorld()
    has_begun: list[bool] = []

    def begun() -> bool:
        return world.body is not None and bool(world.body["metadata"].get("finalizers"))

    def freeze_now() -> None:
        has_begun.append(begun())
        freeze(world.live)

    beneath, world.executor = world.executor, cast("Any", FreezingExecutor(world.executor, number, freeze_now))
    world.reconciler = world.fresh_reconciler()
    world.ask()
    try:
        world.passes()
        if not has_begun:
            raise StopIteration
        assert begun() is has_begun[0]
        assert (len(world.held) == 2) is has_begun[0]
        assert world.phase == ("Paused" if has_begun[0] else "Pending")
    finally:
        beneath.shutdown()
        world.kafka.close()
    return has_begun[0]


def test_a_pause_does_not_begin_after_the_freeze() -> None:
    begun, not_begun = moments(pause_frozen_at)
    assert begun > 2
    assert not_begun > 2


def test_control_topics_are_not_made_for_a_pause_that_has_not_begun() -> None:
    def frozen_at(number: int) -> bool:
        world = PauseWorld()
        there: list[bool] = []

        def freeze_now() -> None:
            there.append(world.control.topics.control_exists)
            freeze(world.live)

        beneath, world.executor = world.executor, cast("Any", FreezingExecutor(world.executor, number, freeze_now))
        world.reconciler = world.fresh_reconciler()
        world.ask()
        world.passes()
        beneath.shutdown()
        world.kafka.close()
        if not there:
            raise StopIteration
        assert world.control.topics.control_exists is there[0]
        return there[0]

    begun, not_begun = moments(frozen_at)
    assert begun > 2
    assert not_begun > 1


def retention_frozen_at(number: int, *, restores: bool) -> bool:
    world = RetentionWorld()
    world.join_and_leave(PLACE, GroupType.CLASSIC)
    world.keep()
    world.sleep(8 * DAY if restores else 6 * DAY, passes=False)
    before: list[int] = []

    def freeze_now() -> None:
        before.append(world.commits_made())
        world.frozen = True

    late = FreezingExecutor(world.executor, number, freeze_now)
    world.feature._parts = cast("Any", _with_executor(world.feature._parts, late))
    try:
        world.keep()
        if not before:
            raise StopIteration
        assert world.commits_made() == before[0]
        return before[0] > 0
    finally:
        world.loop.close()
        world.executor.shutdown()


def _with_executor(parts: Any, late: FreezingExecutor) -> Any:
    from dataclasses import replace

    return replace(parts, executor=late, patient_executor=late)


@pytest.mark.parametrize("restores", [False, True], ids=["kept", "restored"])
def test_offsets_are_neither_kept_nor_restored_after_the_freeze(*, restores: bool) -> None:
    begun, not_begun = moments(lambda number: retention_frozen_at(number, restores=restores))
    assert begun > 0
    assert not_begun > 1


def test_nobody_is_evicted_after_the_freeze() -> None:
    def frozen_at(number: int) -> bool:
        pods, evicted = one_ready_pod(), []
        is_frozen: list[bool] = []

        def freeze_now() -> None:
            evicted.append(any("evict" in asked for asked in pods.asked))
            is_frozen.append(True)

        one = feature(pods, is_frozen=lambda _: bool(is_frozen))
        one._parts = cast("Any", _frozen_late(one._parts, number, freeze_now))
        found = kept(one)
        if not evicted:
            raise StopIteration
        assert any("evict" in asked for asked in pods.asked) is evicted[0]
        assert found.again_after_s == 2.0
        return evicted[0]

    begun, not_begun = moments(frozen_at)
    assert (begun, not_begun) == (0, 3), "listing, asking and evicting"


def _frozen_late(parts: Any, number: int, freeze_now: Callable[[], None]) -> Any:
    from dataclasses import replace

    return replace(parts, executor=FreezingExecutor(parts.executor, number, freeze_now))


@pytest.mark.parametrize("name", ["here", "there"])
@pytest.mark.parametrize("was_suspended", [False, True], ids=["it is new", "it was suspended"])
def test_a_mirror_does_not_begin_after_the_freeze(name: str, *, was_suspended: bool) -> None:
    def frozen_at(number: int) -> bool:
        world = MirrorWorld()
        begun: list[bool] = []

        if was_suspended:
            world.copied()
            world.spec["suspend"] = True
            world.one_pass()
            world.here.write("t", 3)
            world.spec["suspend"] = False
        ends = world.there.log("t").end if was_suspended else 0

        def freeze_now() -> None:
            copies = bool(world.copying and world.copying[0].courses())
            begun.append(copies if was_suspended else "t" in world.there.kept)
            world.connect(name, frozen="frozen by alice: INC-4711")

        world.run(world.reconciler.stop())
        beneath, world.executor = world.executor, cast("Any", FreezingExecutor(world.executor, number, freeze_now))
        world.restart()
        try:
            world.kube.change(MIRRORS, "ns", "m", spec=world.spec)
            for _ in range(3):
                with contextlib.suppress(Conflict):
                    world.run(world.reconciler.reconcile(world.body))
            world.run(asyncio.sleep(0.02))
            if not begun:
                raise StopIteration
            if not begun[0]:
                assert world.condition("Ready").reason == "Frozen"
                assert ("t" in world.there.kept) is was_suspended
                assert not was_suspended or world.there.log("t").end == ends
        finally:
            world.executor = beneath
            world.close()
        return begun[0]

    _, not_begun = moments(lambda number: frozen_at(number) if number < 12 else _end())
    assert not_begun > 2


def _end() -> bool:
    raise StopIteration


def test_an_audit_topic_is_not_made_after_the_freeze(tmp_path: Path) -> None:
    def frozen_at(number: int) -> bool:
        world = ConnectionWorld(tmp_path / str(number))
        there: list[bool] = []

        def freeze_now() -> None:
            there.append(bool(world.kafka.audit.topics))
            freeze(world.live)

        spec = {"bootstrapServers": "127.0.0.1:9092"}
        world.look()
        world.kube.change(CONNECTIONS, "ns", "kafka", spec={**spec, "audit": {}})
        audit = world.reconciler._audit_topics
        audit._executor = cast("Any", FreezingExecutor(audit._executor, number, freeze_now))
        world.look()
        world.executor.shutdown()
        if not there:
            raise StopIteration
        assert bool(world.kafka.audit.topics) is there[0]
        return there[0]

    _, not_begun = moments(frozen_at)
    assert not_begun > 0
