"""What an undo needs outlives its `OffsetReset` on a real API server and broker, and nobody else can make it up."""

import pytest

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, leave_at, produce
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

AT_50, AT_10 = dict.fromkeys(range(2), 50), dict.fromkeys(range(2), 10)
FINAL = ("Succeeded", "Failed", "RolledBack")


class Group:
    """An Empty group at offset 50 of 100 in each of two partitions, and the reset to 10 that is deleted."""

    def __init__(self, kafka: KafkaCluster, topic: str, name: str) -> None:
        self._bootstrap, self.topic, self.name = kafka.bootstrap, topic, name
        self._replay = f"replay-{name[-40:].strip('-')}"
        produce(kafka.bootstrap, topic, 2, 100)
        leave_at(kafka.bootstrap, name, topic, AT_50)

    @property
    def offsets(self) -> dict[int, int]:
        return committed(self._bootstrap, self.name, self.topic, 2)

    def is_reset_and_forgotten(self, resources: Resources) -> str:
        """The name of the run's ConfigMap, once the OffsetReset is deleted."""
        name = self._replay
        resources.reset(name, self.name, {"offset": 10})
        assert resources.wait_phase(name, *FINAL)["status"]["phase"] == "Succeeded"
        until(lambda: not resources.get_reset(name)["metadata"].get("finalizers"), "the reset is over")
        document = str(resources.get_reset(name)["status"]["plan"]["configMap"])
        assert self.offsets == AT_10
        resources.delete_reset(name)
        return document

    def undo(self, resources: Resources) -> str:
        """The name of the OffsetReset."""
        name = f"undo-{self._replay}"
        resources.reset(name, self.name, {"undo": self._replay})
        return name


@pytest.fixture
def group(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Group:
    return Group(kafka, make_topic(2), unique("g"))


def test_a_reset_is_undone_after_its_resource_was_deleted(shared: Resources, group: Group) -> None:
    document = group.is_reset_and_forgotten(shared)
    # No garbage collector runs here: it leaves an object alone while one of its owners is there.
    owners = shared.core.read_namespaced_config_map(document, shared.namespace).metadata.owner_references
    assert [(owner.kind, owner.controller) for owner in owners] == [("OffsetReset", True), ("KafkaConnection", False)]

    undo = group.undo(shared)

    assert shared.wait_phase(undo, *FINAL)["status"]["phase"] == "Succeeded"
    assert group.offsets == AT_50


def test_what_somebody_has_written_into_the_config_map_is_not_undone(shared: Resources, group: Group) -> None:
    document = group.is_reset_and_forgotten(shared)
    stored = shared.core.read_namespaced_config_map(document, shared.namespace).data
    result = stored["result.json"].replace('"offset":50', '"offset":3')
    assert result != stored["result.json"]
    shared.core.patch_namespaced_config_map(document, shared.namespace, {"data": {"result.json": result}})

    undo = group.undo(shared)

    until(lambda: condition_of(shared.get_reset(undo), "Complete").get("reason") == "Forged", "it is refused")
    assert group.offsets == AT_10


def test_what_was_kept_is_removed_after_its_time(
    resources: Resources, start_operator: StartOperator, kafka: KafkaCluster, group: Group
) -> None:
    start_operator({"TIDEGATE_UNDO_KEPT_S": "1", "TIDEGATE_IDLE_TICK_S": "0.5"})
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    document = group.is_reset_and_forgotten(resources)

    def is_gone() -> bool:
        names = [c.metadata.name for c in resources.core.list_namespaced_config_map(resources.namespace).items]
        return document not in names

    until(is_gone, "the ConfigMap is removed")
    undo = group.undo(resources)

    assert resources.wait_phase(undo, *FINAL)["status"]["phase"] == "Failed"
    assert condition_of(resources.get_reset(undo), "Failed")["reason"] == "UndoRunNotFound"
    assert group.offsets == AT_10
