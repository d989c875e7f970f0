"""Two clusters compared by real Spark: against the same said record by record, and on two real brokers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.mirrored import Log, Shape, SideReader, World, compare
from tidegate.find.survey import survey
from tidegate.find.translation import TopicPair
from tidegate.kafka.connection import Connection
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster
from tidegate.spark.comparison import compare_records

MATCH = ("key", "timestamp", "value")
RECORDS = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"

SHAPES = (
    Shape(),
    Shape(behind=True, transactions=True, restarts=3),
    Shape(there=2, here=2, disorder_s=100, restarts=2, trim_here=True),
    Shape(there=3, here=2, restarts=3, keys=0),
    Shape(there=2, here=3, compact_there=True, trim_there=True, transactions=True),
    Shape(there=2, here=2, compact_there=True, compact_here=True, restarts=3, repeats=True),
    Shape(there=2, here=2, repeats=True, caught_up=True, local=3),
    Shape(there=2, here=2, compact_there=True, restarts=2, behind=True),
)


@pytest.mark.parametrize("match", [MATCH, ("value",)], ids=["all", "value"])
def test_spark_finds_what_is_found_record_by_record(spark: Any, match: tuple[str, ...]) -> None:
    worlds = {f"{number}-{seed}": World.make(shape, seed) for number, shape in enumerate(SHAPES) for seed in range(12)}
    pairs, expected, crossed = [], [], set()
    for name, world in worlds.items():
        pair = surveyed(name, world, match)
        places, is_crossed = compare(world, pair, match)
        pairs.append(pair)
        expected += places
        crossed |= {name} if is_crossed else set()
    compared = compare_records(spark, *(rows(spark, worlds, pairs, side) for side in ("here", "there")), pairs, match)
    assert list(compared.places) == expected
    assert compared.crossed == crossed
    assert {p.basis for p in compared.places} >= {"Records", "SameOffsets", "Nothing"}


def surveyed(topic: str, world: World, match: tuple[str, ...]) -> TopicPair:
    target = FromCluster(Connection("there:9092"), "g", match, timedelta(minutes=3))
    request = RunRequest("u", "r", "g", Connection("here:9092"), (Selection(topic),), target)
    here = SideReader(topic, world.here, {}, compacted=world.compacted_here)
    there = SideReader(topic, world.there, world.committed, compacted=world.compacted_there)
    [pair] = survey(request, target, here, there).pairs
    return pair


def rows(spark: Any, worlds: dict[str, World], pairs: list[TopicPair], side: str) -> Any:
    """The windows' records, as ``read_records`` would give them."""
    found = []
    for pair in pairs:
        logs: list[Log] = getattr(worlds[pair.here], side)
        for part in pair.destinations if side == "here" else pair.origins:
            found += [
                (pair.here, part.partition, e.offset, e.at, _bytes(e.key), _bytes(e.value))
                for e in logs[part.partition].entries
                if part.window.start <= e.offset < part.window.stop
            ]
    return spark.createDataFrame(found, RECORDS)


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(text.encode())
