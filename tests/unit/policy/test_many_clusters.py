"""One operator over many clusters, in virtual time: its requests grow with the clusters, not with the groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.many_clusters import Counted, ManyClusters, Size
from tidegate.discovery.watch import CLOCK_S

SETTLED_S = 30.0
REST_S = 60.0
BATCH = 200
"""Groups that are described, and whose commits are read, in one call."""

AtRest = Callable[[Size], Counted]


@pytest.fixture
def at_rest(tmp_path: Path) -> Iterator[AtRest]:
    """What is asked once all is settled; every policy has then looked at all of its groups, and found them well."""
    worlds: list[ManyClusters] = []

    def counted(size: Size) -> Counted:
        world = ManyClusters(size, tmp_path / f"{len(worlds)}")
        worlds.append(world)
        world.run(SETTLED_S)
        found = world.run(REST_S)
        for status in world.statuses():
            assert (status["groups"]["selected"], status["groups"]["troubled"]) == (size.groups, 0)
            assert status["retention"]["offsets"] == size.groups
            assert {c["type"]: c["status"] for c in status["conditions"]} == {"Ready": "True", "Retained": "True"}
        return found

    yield counted
    for world in worlds:
        world.close()


def test_four_times_as_many_groups_cost_no_more_requests(at_rest: AtRest) -> None:
    few, many = at_rest(Size(1, BATCH // 4)), at_rest(Size(1, BATCH))

    assert many.named["groups"] > 3 * few.named["groups"], "each of them is looked at"
    for call in ("groups", "commits_of", "topics", "group_ids", "control_read", "cluster"):
        assert many.kafka[call] <= few.kafka[call] + 5, call
    for one_by_one in ("commits", "committed", "committed_of", "log"):
        assert many.kafka[one_by_one] == 0, one_by_one


def test_each_cluster_costs_as_much_as_one_alone(at_rest: AtRest) -> None:
    alone, five = at_rest(Size(1, BATCH)), at_rest(Size(5, BATCH))

    assert five.per_s("poll") == pytest.approx(5 * 5, rel=0.02)
    assert five.per_s("write_clock") == pytest.approx(5 / CLOCK_S, rel=0.02)
    assert five.calls_per_s == pytest.approx(5 * alone.calls_per_s, rel=0.1)
    assert five.status_writes == five.documents == 0, "nothing has changed, so nothing is written"


@pytest.mark.nightly
def test_fifty_clusters_of_two_thousand_groups(at_rest: AtRest) -> None:
    found = at_rest(Size(50, 2_000))

    assert found.named["groups"] / found.seconds == pytest.approx(100_000 / 60, rel=0.2)
    assert (found.calls_per_s - found.per_s("poll")) / 50 < 2
