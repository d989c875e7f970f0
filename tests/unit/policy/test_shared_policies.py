"""Policies through a KafkaConnection of another namespace, pass by pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.policy_world import SPEC, PolicyWorld
from support.reset_world import CREATED
from tidegate.kube.ports import CONNECTIONS, POLICIES
from tidegate.resources.connection import AllowedNamespace, AllowSpec

SHARED = {"connectionRef": {"name": "kafka", "namespace": "platform"}}
KEEPS = {"discovery": {"interval": "1s"}}


class Tenant(PolicyWorld):
    """Policies in namespace ``ns``, and a connection in namespace ``platform``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        live = self.live.get("ns", "kafka")
        assert live is not None
        self.base = live
        self.live.drop("ns", "kafka", uid=live.uid)
        FakeKube.create(self.kube, CONNECTIONS, "platform", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)
        self.uid = self.kube.get(CONNECTIONS, "platform", "kafka")["metadata"]["uid"]

    def share(self, *namespaces: AllowedNamespace) -> None:
        self.live.put(
            replace(self.base, namespace="platform", uid=self.uid, allow=AllowSpec(namespaces=namespaces)),
        )
        self.reconciler = self.fresh_reconciler()

    def ask_policy(self, **spec: Any) -> None:
        self.kube.create(POLICIES, "ns", "p", {**SPEC, **SHARED, **spec}, CREATED)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Tenant]:
    made = Tenant(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()


RESET = {"reset": {"id": "one", "to": {"offset": 10}}}


def test_a_policy_of_a_namespace_that_is_listed_has_its_reset_run_once(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns", groups=("payments",)))
    world.ask_policy(**RESET)

    world.rounds()

    assert world.resets == {"p-one": "Succeeded"}
    assert world.offset == 10


@pytest.mark.parametrize("asks", [RESET, KEEPS, {**RESET, **KEEPS}], ids=["reset", "keeps", "both"])
def test_one_that_is_not_listed_is_told_so_once_and_nothing_is_begun(world: Tenant, asks: dict[str, Any]) -> None:
    world.share()
    world.ask_policy(**asks)
    world.rounds(3)
    said = world.policy["conditions"]
    world.kube.log.clear()

    world.rounds(5)

    condition = "Stalled" if "discovery" in asks else "Reset"
    assert "that namespace ns may use" in world.message(condition)
    assert (world.resets, world.kube.log, world.policy["conditions"]) == ({}, [], said)


def test_the_permission_may_be_withdrawn_and_given_again(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns"))
    world.ask_policy(**KEEPS)
    world.rounds(2)
    assert world.said("Ready") == ("True", "NoReset")

    world.share()
    world.rounds(2)
    assert world.said("Stalled") == ("True", "NoUsableConnection")

    world.share(AllowedNamespace(name="ns"))
    world.rounds(2)
    assert (world.said("Stalled"), world.said("Ready")) == (None, ("True", "NoReset"))


def test_one_that_keeps_something_for_a_group_that_its_namespace_may_not_use_says_so(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns", groups=("refunds",)))
    world.ask_policy(**KEEPS)
    world.rounds(3)
    world.kube.log.clear()

    world.rounds(3)

    assert world.said("Stalled") == ("True", "GroupNotAllowed")
    assert "it allows refunds" in world.message("Stalled")
    assert world.kube.log == []
