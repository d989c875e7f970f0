"""Where runs are carried out."""

from __future__ import annotations

from typing import Any

import pytest

from support.reset_world import FleetWorld, World
from tidegate.resources.reset import Engine

WHERE = {"record": {"where": "key = 'x'"}}
BY_HAND = {"approval": "Manual"}


def engine_of(world: World) -> str:
    """What its run is carried out by, once it has begun."""
    while not world.runner.started:
        world.some_passes(1)
    return str(world.reset["engine"])


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        ({}, "Direct"),
        ({"to": {"shiftBy": -5}, "evidence": {"level": "Counts"}}, "Direct"),
        ({**BY_HAND, "evidence": {"level": "Counts"}}, "Direct"),
        ({**BY_HAND, "evidence": {"level": "None"}}, "Direct"),
        (BY_HAND, "Spark"),
        ({"evidence": {"level": "Records"}}, "Spark"),
        ({"to": WHERE}, "Spark"),
        ({"spark": {"executor": {"instances": 1}}}, "Spark"),
        ({"engine": "Spark"}, "Spark"),
        ({**BY_HAND, "engine": "Direct"}, "Direct"),
    ],
    ids=[
        "asks-brokers",
        "counts",
        "counts-approved",
        "no-evidence",
        "evidence-by-approval",
        "evidence",
        "target",
        "spark-described",
        "spark",
        "direct",
    ],
)
def test_spark_is_used_where_it_was_asked_for_or_has_records_to_read(
    world: World, spec: dict[str, Any], engine: str
) -> None:
    world.engines[Engine.SPARK] = world.runner
    world.ask(**spec)

    assert engine_of(world) == engine


@pytest.mark.parametrize("spec", [{}, BY_HAND, {"evidence": {"level": "Records"}}], ids=["plain", "manual", "records"])
def test_without_spark_the_operator_carries_out_all_that_it_can(world: World, spec: dict[str, Any]) -> None:
    world.ask(**spec)

    assert engine_of(world) == "Direct"


@pytest.mark.parametrize(("spec", "engine"), [({}, "Direct"), (BY_HAND, "Direct"), ({"engine": "Spark"}, "Spark")])
def test_a_fleet_has_no_evidence_and_is_given_to_spark_where_it_asks(
    fleet: FleetWorld, spec: dict[str, Any], engine: str
) -> None:
    fleet.engines[Engine.SPARK] = fleet.runner
    fleet.ask(**spec)

    assert engine_of(fleet) == engine
