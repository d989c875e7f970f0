"""What a policy has offered for a group is taken back once the group is another policy's, or nobody's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from support.stuck_world import GROUP, World
from tidegate.connection.live import Live, LiveConnections
from tidegate.kube.ports import POLICIES, KubeFailure
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.feature import FeatureOutcome
from tidegate.policy.keeping import Features
from tidegate.policy.parts import Parts
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.resources.base import read_status
from tidegate.resources.policy import PolicyStatus
from tidegate.service.metrics import Metrics

EARLIER = "2026-01-01T00:00:00Z"
ONE: dict[str, Any] = {"group": GROUP}
MANY: dict[str, Any] = {"groups": ["pay*"]}
OFFERS: dict[str, Any] = {"stuckRecords": {"prepareSkip": True}}


class NoResets:
    def is_being_reset(self, _live: Live, _group: str) -> bool:
        return False


class Policies(World):
    """The policy `p`, which finds stuck records and prepares resets to skip them, by whole passes."""

    def __init__(self, **asks: Any) -> None:
        super().__init__()
        self.asks_for(**asks, **OFFERS)

    def restart(self) -> None:
        super().restart()
        lives = LiveConnections()
        lives.put(self.live)
        parts = Parts(self.kube, lives, self.executor, self.executor, self.clock, Metrics())
        features = Features((self.feature,), (self.feature,))
        self.reconciler = PolicyReconciler(parts, cast("ResetPasses", NoResets()), features)

    def asks_for(self, name: str = "p", **asks: Any) -> None:
        self.kube.change(POLICIES, "ns", name, spec={"connectionRef": {"name": "kafka"}, **asks})

    def keep(self) -> FeatureOutcome:
        """A pass over all policies."""
        again_s = []
        for body in self.kube.list(POLICIES):
            done = self.loop.run_until_complete(self.reconciler.reconcile(body))
            again_s.append(done.again_after_s)
        self.status = read_status(PolicyStatus, self.body)
        return FeatureOutcome(self.status, (), min(again_s))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("asks", [ONE, MANY], ids=["one group", "many groups"])
def test_where_another_policy_has_the_group_by_now(asks: dict[str, Any], *, restart: bool) -> None:
    world = Policies(**asks)
    world.get_stuck()
    assert len(world.resets) == 1
    spec = {"connectionRef": {"name": "kafka"}, **ONE, "stuckRecords": {}}
    world.kube.create(POLICIES, "ns", "older", spec, EARLIER)
    if restart:
        world.restart()

    world.run(30, world.produce)

    assert [row.policy for row in world.status.overridden_by or ()] == ["older"]
    assert world.resets == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "asks",
    [
        {**MANY, **OFFERS, "exclude": [GROUP]},
        {**MANY, "latest": {"maxAge": "1h"}},
        MANY,
    ],
    ids=["the group is left out", "it is not asked for", "nothing is asked for"],
)
def test_where_nobody_asks_for_it_any_more(asks: dict[str, Any], *, restart: bool) -> None:
    world = Policies(**MANY)
    world.get_stuck()
    assert len(world.resets) == 1
    world.asks_for(**asks)
    if restart:
        world.restart()

    world.run(30, world.produce)

    assert world.resets == []
    assert not any("skip" in str(data) for data in world.kube.config_maps.values())


@pytest.mark.parametrize("asks", [{**MANY, **OFFERS, "exclude": [GROUP]}, MANY], ids=["left out", "nothing"])
def test_what_the_api_server_does_not_take_back_yet_is_taken_back_later(
    asks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Policies(**MANY)
    world.get_stuck()
    world.asks_for(**asks)

    def remove(*_: Any) -> bool:
        raise KubeFailure("delete OffsetReset ns/p-skip: 403 Forbidden")

    with monkeypatch.context() as refused:
        refused.setattr(world.kube, "remove", remove)
        world.run(30, world.produce)
        assert len(world.resets) == 1
    world.run(30, world.produce)

    assert world.resets == []
