"""What is done about a pause at rest does not wait for what is only told, and that is told soon all the same."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from support.fake_consumer import FakeConsumer
from support.fake_kube import FakeKube
from support.pause_world import World
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import PAUSES


def test_a_new_partition_is_held_before_the_lag_is_read(world: World) -> None:
    """Nothing is under way; then the topic grows. What is to be done must not wait for what is only told."""
    world.ask()
    world.passes()
    world.passes()
    assert world.phase == "Paused"
    memory = next(iter(world.reconciler._memories.values()))
    memory.lag_s = -1000.0  # as a minute later
    memory.tick_s = None
    order: list[str] = []
    bounds, hold = world.kafka.log_bounds, world.control.hold

    def slow(partitions: Any) -> Any:
        order.append("lag")
        time.sleep(0.2)  # a broker that is away: seconds, twice
        return bounds(partitions)

    def held(holds: Any) -> Any:
        order.append("hold")
        return hold(holds)

    world.kafka.log_bounds = slow  # type: ignore[method-assign]
    world.control.hold = held  # type: ignore[method-assign]
    world.kafka.add_partitions("orders", 3)

    async def one_pass() -> None:
        assert world.body is not None
        await asyncio.sleep(0.02)
        await world.reconciler.reconcile(world.body)

    asyncio.run(one_pass())
    assert order[0] == "hold", order


def test_a_lag_that_can_not_be_read_is_not_tried_twice_in_a_pass(world: World) -> None:
    world.kafka.commit_directly("payments", {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    tries: list[float] = []

    def away(partitions: Any) -> Any:
        tries.append(time.monotonic())
        time.sleep(0.05)  # longer than the active tick, which is 1 s in earnest
        raise Unavailable("the leader is away")

    world.kafka.log_bounds = away  # type: ignore[method-assign]
    world.ask()
    world.passes()
    world.passes()
    assert world.phase == "Paused"
    tries.clear()
    memory = next(iter(world.reconciler._memories.values()))
    memory.lag_s = -1000.0
    memory.tick_s = None

    async def one_pass() -> None:
        assert world.body is not None
        await world.reconciler.reconcile(world.body)

    asyncio.run(one_pass())
    assert len(tries) <= 2, "together, and alone; not both once more"


def test_what_stops_while_the_pause_is_at_rest_has_its_lag_told_as_well(world: World) -> None:
    """Degraded is at rest: the owner of partition 1 obeys at last, a minute after the lag was told."""
    world.kafka.commit_directly("payments", {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    world.reconciler = world.fresh_reconciler(tick_s=0.1)  # the active tick is 1 s

    async def passes(limit: int) -> float:
        again_s = 0.0
        for _ in range(limit):
            assert world.body is not None
            again_s = (await world.reconciler.reconcile(world.body)).again_after_s
        return again_s

    world.ask()
    asyncio.run(passes(8))
    body = world.body
    assert body is not None
    rows = body["status"]["partitions"]
    assert [row["lag"] for row in rows] == [0, 0]
    late = {"topic": "orders", "partition": 1, "phase": "Degraded"}
    FakeKube.replace_status(
        world.kube, PAUSES, body, {**body["status"], "phase": "Degraded", "partitions": [rows[0], late]}
    )
    memory = next(iter(world.reconciler._memories.values()))
    memory.lag_s, memory.tick_s, memory.rows = -1000.0, None, ()

    again_s = asyncio.run(passes(3))

    assert world.body is not None
    assert [row.get("lag") for row in world.body["status"]["partitions"]] == [0, 0], f"told in {again_s} s at best"


def test_a_partition_that_stands_at_its_very_beginning_has_its_lag_told_as_well(world: World) -> None:
    """By the operator's next process, at once: the one before has not come to it."""
    world.kafka.fill("orders", 7)
    world.kafka.commit_directly("payments", {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    world.ask()
    world.passes()
    body = world.body
    assert body is not None
    rows = [{**row, "offset": 0, "lag": None} for row in body["status"]["partitions"]]
    FakeKube.replace_status(world.kube, PAUSES, body, {**body["status"], "partitions": rows})
    world.reconciler = world.fresh_reconciler()

    world.passes()

    assert world.body is not None
    assert [row.get("lag") for row in world.body["status"]["partitions"]] == [7, 7]


def test_where_nothing_is_paused_no_lag_is_read(world: World) -> None:
    world.ask(partitions=[{"topic": "refunds"}])
    world.passes()
    assert world.phase == "Pending"
    next(iter(world.reconciler._memories.values())).lag_s = -1000.0
    world.kafka.calls.clear()

    world.passes()

    assert "committed_of" not in world.kafka.calls


def test_the_group_of_a_pause_that_is_under_way_is_looked_at_as_often_as_it_asks(world: World) -> None:
    """And not only along with those at rest, which are told of what is new instead."""
    consumer = FakeConsumer(world.kafka, "payments", ["orders"]).start()
    world.clock.sleep(20)
    world.reconciler = world.fresh_reconciler()
    world.ask()
    world.passes(limit=4)
    watched = world.reconciler._parts.observer._watched[world.connection_uid]
    assert (world.phase, [want.group for want in watched.under_way.values()]) == ("Pausing", ["payments"])

    consumer.close()
    world.clock.sleep(1)
    world.passes()

    assert (world.phase, watched.under_way) == ("Paused", {})
