"""What every client must do with a gate, whatever library it is: scenes on a real broker, the same for each.

Each takes a `Scene` of two partitions and a way to start an application of the client; both are the caller's to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from support.gated_applications import Application, Scene

Start = Callable[..., Application]
"""Starts an application of the client, as `Scene.application`; keywords are `Job`'s."""

Play = Callable[[Scene, Start], None]


def is_whole(offsets: list[int]) -> bool:
    """Each record once, in order, none left out."""
    return all(after == before + 1 for before, after in pairwise(offsets))


def partition_0(consumer: Any) -> list[Any]:
    return [tp for tp in consumer.assignment() if tp.partition == 0]


def it_stands_still_and_goes_on_where_it_was(scene: Scene, start: Start) -> None:
    """As `it_goes_on_where_it_was`, and the ack has the id by which its group knows it."""
    _it_goes_on(scene, start, tells_member=True)


def it_goes_on_where_it_was(scene: Scene, start: Start) -> None:
    """Of an application that does not tell its member's id."""
    _it_goes_on(scene, start, tells_member=False)


def _it_goes_on(scene: Scene, start: Start, *, tells_member: bool) -> None:
    application = start()
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    scene.delivered_up_to(ack)
    assert ack.member != ""
    assert not tells_member or ack.member == application.member_id()
    for _ in range(3):
        scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


def a_limit_is_where_it_closes(scene: Scene, start: Start) -> None:
    """Of a consumer that commits by itself; it goes on once the limit is removed."""
    application = start(commit="auto")
    scene.flowing()
    limit = scene.close_gate().offset + 40
    epoch = scene.limit(limit)
    scene.release()  # which is read after the limit
    scene.until(lambda: scene.acked(epoch).offset >= limit, "the limit is reached")
    ack = scene.acked(epoch)
    closed_at = time.monotonic()
    for _ in range(3):
        scene.flowing(1)
    assert ack.offset == limit
    scene.delivered_up_to(ack)
    assert scene.offsets(0, closed_at) == []
    assert scene.committed() == limit
    scene.limit(None)
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


def a_limit_within_a_batch_is_where_it_closes(scene: Scene, start: Start) -> None:
    """What lies below the limit is delivered, also where one fetch brings records from both sides of it."""
    scene.write(200)
    epoch = scene.limit(150)
    application = start(commit="auto")
    scene.until(lambda: scene.acked(epoch).offset >= 150, "the limit is reached")
    ack = scene.acked(epoch)
    assert ack.offset == 150
    scene.delivered_up_to(ack)
    assert scene.committed() == 150
    scene.limit(None)
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0)[0] == 0
    assert is_whole(scene.offsets(0))


def after_a_reset_it_goes_on_at_the_target(scene: Scene, start: Start) -> None:
    application = start()
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    ack = scene.close_gate()
    target = ack.offset - 20
    scene.reset(target)
    scene.flowing(1)
    assert scene.committed() == target
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0, since=released_at)
    application.stop()
    again = scene.offsets(0, released_at)
    assert again[0] == target
    assert is_whole(again)
    assert is_whole(scene.offsets(1))
    assert scene.committed() == again[-1] + 1


def closing_the_consumer_commits_nothing(scene: Scene, start: Start) -> None:
    """Of the partition that is paused."""
    application = start()
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    scene.reset(7)
    application.stop()
    assert scene.committed() == 7


def a_rebalance_commits_nothing_and_the_new_owner_stays_paused(scene: Scene, start: Start) -> None:
    first = start()
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    scene.reset(7)
    since = time.monotonic()
    second = start()
    scene.until(
        lambda: {g.partition for g in scene.given([second]) if g.at > since} != set() or _owns_0(second), "joined"
    )
    scene.flowing(1)
    assert scene.offsets(0, since) == []
    assert scene.committed() == 7
    epoch = scene.hold(holder="another")
    scene.acked(epoch)
    for holder in ("test", "another"):
        scene.release(holder=holder)
    scene.flowing(0)
    first.stop()
    assert scene.offsets(0, since)[0] == 7


def _owns_0(application: Application) -> bool:
    return any(tp.partition == 0 for tp in application.ask(lambda c: c.assignment()))


def one_that_starts_reads_its_gates_first(scene: Scene, start: Start) -> None:
    epoch = scene.hold()
    start()
    scene.flowing(1)
    ack = scene.acked(epoch)
    assert ack.offset in (-1, 0), "auto-commit may have committed where it would begin"
    assert scene.offsets() == []
    scene.release()
    scene.flowing(0)
    assert scene.offsets()[0] == 0


def each_assigned_partition_is_acked_as_open(scene: Scene, start: Start) -> None:
    start()
    scene.flowing()
    for partition in (0, 1):
        assert scene.acked(0, partition).member != ""


def what_is_in_hand_is_finished(scene: Scene, start: Start) -> None:
    """By an application that works for a second on each batch."""
    application = start(commit="manual", work_s=1.0)
    scene.flowing()
    epoch = scene.hold()
    ack = scene.acked(epoch)
    scene.delivered_up_to(ack)
    assert ack.offset == scene.committed()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


def after_the_drain_time_out_only_what_was_in_hand_comes_twice(
    scene: Scene, start: Start, *, always_twice: bool
) -> None:
    """``always_twice``: the client acks while its application works. Where it acks when it polls, all was committed."""
    application = start(commit="manual", work_s=2.0)
    scene.until(lambda: (scene.committed() or 0) > 0, "it commits")
    scene.flowing(0)
    ack = scene.close_gate(drain_s=0.2)
    acked_at = time.monotonic()
    before = scene.offsets()
    scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.release()
    scene.flowing(0)
    application.stop()
    offsets = scene.offsets()
    assert set(range(offsets[-1] + 1)) == set(offsets)
    twice = [offset for offset in set(offsets) if offsets.count(offset) > 1]
    assert all(ack.offset <= offset <= before[-1] for offset in twice), (ack, twice)
    assert twice or not always_twice


def the_applications_own_pause_is_kept(scene: Scene, start: Start) -> None:
    """It goes on when both let go."""
    application = start()
    scene.flowing()
    application.ask(lambda c: c.pause(*partition_0(c)))
    paused_at = time.monotonic()
    ack = scene.close_gate()
    scene.release()
    scene.acked(ack.epoch + 1)
    scene.flowing(1)
    assert application.ask(lambda c: [tp.partition for tp in c.paused()]) == [0]
    assert scene.offsets(0, paused_at) == []
    second = scene.close_gate()
    application.ask(lambda c: c.resume(*partition_0(c)))
    scene.flowing(1)
    scene.is_still(second, paused_at)
    assert application.ask(lambda c: c.paused()) == set()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


def where_the_application_sought_is_kept(scene: Scene, start: Start) -> None:
    """Unless the group is reset."""
    application = start()
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    scene.close_gate()
    application.ask(lambda c: c.seek(partition_0(c)[0], 3))
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    assert scene.offsets(0, released_at)[0] == 3


def what_is_assigned_by_hand_is_paused_too(scene: Scene, start: Start) -> None:
    application = start(assigned_by_hand=[(scene.topic, 0), (scene.topic, 1)])
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    assert ack.member == ""
    scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.reset(5)
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0, released_at)[0] == 5


def a_release_while_it_still_works_lets_it_go_on(scene: Scene, start: Start) -> None:
    application = start(commit="manual", work_s=1.5)
    scene.flowing()
    scene.hold()
    scene.release()
    scene.flowing(0)
    scene.hold()
    scene.flowing(1)
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


def gates_in_quick_succession_lose_and_repeat_nothing(scene: Scene, start: Start) -> None:
    application = start()
    scene.flowing()
    for _ in range(8):
        scene.hold()
        scene.release()
        scene.hold(holder="another")
        scene.flowing(1)
        scene.release(holder="another")
    scene.close_gate()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets())


def it_drains_by_its_transactions(scene: Scene, start: Start) -> None:
    """An application that commits the offsets of what it was given in transactions."""
    application = start()
    scene.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    scene.delivered_up_to(ack)
    scene.reset(2)
    for _ in range(3):
        scene.flowing(1)
    assert scene.committed() == 2
    assert scene.offsets(0, acked_at) == []
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0, released_at)[0] == 2
    assert is_whole(scene.offsets(0, released_at))
    assert is_whole(scene.offsets(1))


AT_ANY: Final[tuple[Play, ...]] = (
    closing_the_consumer_commits_nothing,
    a_rebalance_commits_nothing_and_the_new_owner_stays_paused,
    one_that_starts_reads_its_gates_first,
    what_is_in_hand_is_finished,
    the_applications_own_pause_is_kept,
    where_the_application_sought_is_kept,
    each_assigned_partition_is_acked_as_open,
    what_is_assigned_by_hand_is_paused_too,
    a_release_while_it_still_works_lets_it_go_on,
    gates_in_quick_succession_lose_and_repeat_nothing,
)
"""Scenes that are the same however the application polls and commits."""
