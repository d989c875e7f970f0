"""An operator is replaced by the next version, and that by the one before, while groups read: nothing is lost, nothing
is done twice, and what is in progress goes on. With a real API server and a real broker; each version is a process.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from support.checker import ResetRun, check
from support.clients import ConsumerFleet, SteadyProducer
from support.deliveries import Partition
from support.earlier_versions import BEFORE_VERSIONS, environment_of, is_here, unpacked
from support.operator_process import OperatorProcess, Resources, until
from support.stack_fixtures import MakeTopic
from tidegate.control.records import HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.store import Run
from tidegate.reset.stores import open_store

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not is_here(BEFORE_VERSIONS), reason=f"this clone has no commit {BEFORE_VERSIONS}: fetch more"),
]

PARTITIONS: Final = 4
RATE: Final = 15.0
PAUSED: Final = (0, 2)
CLASSIC: Final = {"session_s": 6.0, "heartbeat_s": 1.0}
IN_MID_RUN: Final = {"Pausing", "Applying", "Verifying", "Resuming"}


@dataclass(slots=True)
class Scene:
    """Two live groups on a broker: `managed` runs the agent, and `plain` does not. Either version may be started."""

    kafka: KafkaCluster
    resources: Resources
    apiserver: ApiServer
    client: kube.ApiClient
    folder: Path
    earlier: Path
    control_topic: str
    managed: ConsumerFleet
    plain: ConsumerFleet
    producers: list[SteadyProducer]
    topic: str
    asked: dict[str, float] = field(default_factory=dict)
    """By OffsetReset, when it was let go ahead (epoch seconds)."""
    started: int = 0

    @property
    def plain_partitions(self) -> list[Partition]:
        return [(self.topic, number) for number in range(PARTITIONS)]

    def operator(self, *, earlier: bool) -> OperatorProcess:
        """A process of this version or of the one before, which serves until it is stopped or killed."""
        self.started += 1
        folder = self.folder / f"operator-{self.started}"
        folder.mkdir()
        environment = environment_of(self.earlier) if earlier else {}
        process = OperatorProcess(self.apiserver.kubeconfig, self.resources.namespace, folder, environment)
        return process.start()

    # --- resets of the plain group ------------------------------------------------------------------------------------

    def ask(self, name: str, to: Mapping[str, Any], **spec: Any) -> None:
        """Of the partitions that there are from the start."""
        self.asked[name] = time.time()
        selection = {"topic": self.topic, "partitions": list(range(PARTITIONS))}
        self.resources.reset(name, self.topic, to, partitions=[selection], engine="Direct", deadline="5m", **spec)

    def approve(self, name: str) -> None:
        self.asked[name] = time.time()
        self.resources.approve(name)

    def succeeded(self, name: str) -> None:
        self.resources.wait_phase(name, "Succeeded", "Failed", "RolledBack", timeout_s=120)
        body = self.resources.get_reset(name)
        assert body["status"]["phase"] == "Succeeded", body["status"]

    def run_of(self, name: str) -> Run:
        [document] = self.resources.run_documents(name)
        location = f"configmap://{self.resources.namespace}/{document}"
        return open_store(location, api_client=self.client).load()

    def in_mid_run(self, name: str) -> None:
        def reached() -> bool:
            documents = self.resources.run_documents(name)
            return bool(documents) and any(p.phase.value in IN_MID_RUN for p in self.run_of(name).journal)

        until(reached, f"{name} is in mid-run", timeout_s=60, pause_s=0.02)
        assert self.run_of(name).result is None, "it was over before it could be cut off"

    def resets(self) -> list[ResetRun]:
        """All that were asked for, as they were planned and ended, in the order in which they began."""
        found = []
        for name, asked in self.asked.items():
            run = self.run_of(name)
            assert run.plan is not None
            assert run.result is not None
            targets = {(p.topic, p.partition): offset for p, offset in run.plan.targets.items()}
            found.append(ResetRun(asked, run.result.finished_at.timestamp(), targets))
        return sorted(found, key=lambda run: run.t_start)

    # --- the pause of the managed group -------------------------------------------------------------------------------

    def holds(self) -> dict[HoldKey, int]:
        """By hold, its epoch: a hold that is written again has another one."""
        with closing(KafkaClient(Connection(self.kafka.bootstrap, control_topic=self.control_topic))) as client:
            return {key: held.epoch for key, held in client.control.read().holds.items() if "pause/" in key.holder}

    def still_paused(self, since: float, managed_topic: str) -> None:
        self.resources.wait_pause("incident", "Paused", f"{len(PAUSED)}/{len(PAUSED)}")
        others = [(managed_topic, n) for n in range(PARTITIONS) if n not in PAUSED]
        self.managed.wait_flowing(others, timeout=90)
        leaked = [d for d in self.managed.records(since) if d.partition in PAUSED]
        assert not leaked, f"{len(leaked)} records of paused partitions, e.g. {leaked[:3]}"


@pytest.fixture
def scene(
    kafka: KafkaCluster,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    namespace: str,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> Iterator[Scene]:
    control_topic = f"__c-{secrets.token_hex(3)}"
    managed, plain = make_topic(PARTITIONS), make_topic(PARTITIONS)
    earlier = unpacked(BEFORE_VERSIONS, "operator", tmp_path)
    with ExitStack() as stack:
        producers = [
            stack.enter_context(SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE)) for topic in (managed, plain)
        ]
        fleet = stack.enter_context(
            ConsumerFleet(
                *("librdkafka", kafka.bootstrap, managed, [managed], 2, 2),
                agent=True,
                control_topic=control_topic,
                **CLASSIC,
            )
        )
        others = stack.enter_context(ConsumerFleet("librdkafka", kafka.bootstrap, plain, [plain], 2, 2, **CLASSIC))
        resources = Resources(kube_client, namespace)
        made = Scene(
            *(kafka, resources, apiserver, kube_client, tmp_path, earlier, control_topic),
            *(fleet, others, producers, plain),
        )
        resources.connection("kafka", kafka.bootstrap, controlTopic={"name": control_topic})
        others.wait_flowing(made.plain_partitions)
        try:
            yield made
        finally:
            for more in made.producers[2:]:
                more.stop()
        for log in sorted(tmp_path.glob("operator-*/operator.log")):
            print(f"--- {log}\n" + "\n".join(log.read_text().splitlines()[-60:]))


def test_there_and_back_again_with_runs_in_each_phase(scene: Scene) -> None:
    """One piece: the story of one installation."""
    resources, managed_topic = scene.resources, scene.managed.options.topics[0]

    # The version before: a pause, a run that is over, one whose plan waits, and one in mid-run as it is killed.
    old = scene.operator(earlier=True)
    resources.wait_connection("kafka")
    selection = {"topic": managed_topic, "partitions": list(PAUSED)}
    resources.pause("incident", managed_topic, selection, drainTimeout="5s")
    resources.wait_pause("incident", "Paused", "2/2")
    paused_at, epochs = time.time(), scene.holds()
    assert len(epochs) == len(PAUSED)
    resources.policy("guard", scene.topic, discovery={"interval": "300ms"}, retention={})
    resources.wait_policy("guard")
    memory = until(lambda: memory_of(resources), "the policy has a memory")
    scene.ask("over", {"shiftBy": -30})
    scene.succeeded("over")
    scene.ask("waits", {"shiftBy": -20}, approval="Manual")
    resources.wait_phase("waits", "AwaitingApproval")
    digest = resources.get_reset("waits")["status"]["digest"]
    scene.ask("cut", {"shiftBy": -25})
    scene.in_mid_run("cut")
    old.kill()
    assert "version" not in memory, "it is not the version before that has run"

    # The next one takes all of it up. While nobody led, partitions were added.
    new_partitions = expand(scene)
    new = scene.operator(earlier=False)
    scene.succeeded("cut")
    scene.still_paused(paused_at, managed_topic)
    assert scene.holds() == epochs, "holds that were right were written again"
    assert resources.get_reset("waits")["status"]["digest"] == digest
    scene.approve("waits")
    scene.succeeded("waits")
    scene.ask("back", {"undo": "over"})
    scene.succeeded("back")
    scene.plain.wait_flowing(new_partitions, timeout=60)
    scene.ask("waits-too", {"shiftBy": -15}, approval="Manual")
    resources.wait_phase("waits-too", "AwaitingApproval")
    scene.ask("cut-too", {"shiftBy": -25})
    scene.in_mid_run("cut-too")
    assert new.stop() == 0

    # And back, as after `helm rollback`.
    old = scene.operator(earlier=True)
    scene.succeeded("cut-too")
    scene.still_paused(paused_at, managed_topic)
    assert scene.holds() == epochs
    scene.approve("waits-too")
    scene.succeeded("waits-too")
    scene.ask("back-too", {"undo": "waits"})
    scene.succeeded("back-too")
    resources.wait_policy("guard")
    assert resources.get_policy("guard")["status"]["discovery"].get("backfilled", 0) in (0, len(new_partitions))
    resources.delete_pause("incident")
    until(lambda: resources.get("consumergrouppauses", "incident") is None, "the pause is gone")
    assert scene.holds() == {}
    assert old.stop() == 0

    judged(scene, new_partitions)


def expand(scene: Scene) -> list[Partition]:
    """Two more partitions of the plain group's topic, produced to at once."""
    numbers = range(PARTITIONS, PARTITIONS + 2)
    scene.kafka.tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", scene.kafka.bootstrap, "--alter", "--topic", scene.topic),
        *("--partitions", str(numbers.stop)),
    )
    producer = SteadyProducer(scene.kafka.bootstrap, scene.topic, numbers, RATE)
    producer.start()
    scene.producers.append(producer)
    return [(scene.topic, number) for number in numbers]


def memory_of(resources: Resources) -> str:
    found = resources.core.list_namespaced_config_map(resources.namespace).items
    return next((str(c.data) for c in found if "-memory-" in c.metadata.name and c.data), "")


def judged(scene: Scene, new_partitions: list[Partition]) -> None:
    """Nothing lost, each target read from once, and nothing read twice without a reset that asked for it."""
    acked: dict[Partition, frozenset[int]] = {}
    for producer in scene.producers:
        acked |= producer.stop()
    scene.managed.wait_read_to({p: max(o) + 1 for p, o in acked.items() if p[0] != scene.topic}, 90)
    scene.plain.wait_read_to({p: max(o) + 1 for p, o in acked.items() if p[0] == scene.topic}, 90)
    assert set(new_partitions) <= acked.keys()

    managed = check(scene.managed.records(), {p: o for p, o in acked.items() if p[0] != scene.topic})
    assert managed.ok, managed.complaints()
    delivered = [(d.topic, d.partition, d.offset) for d in scene.managed.records()]
    assert len(delivered) == len(set(delivered)), "records of a paused group were read twice"

    runs = scene.resets()
    plain = check(scene.plain.records(), {p: o for p, o in acked.items() if p[0] == scene.topic}, runs)
    assert plain.ok, plain.complaints()
    assert len(runs) == len(scene.asked) == 7
    for name in scene.asked:
        # What owners have written over in mid-run is committed again (`redone`); what was over is not.
        assert [reason for reason, _ in scene.resources.events(name)].count("Succeeded") == 1


def test_what_a_newer_version_has_is_left_alone_by_this_one_and_goes_on_with_it(scene: Scene) -> None:
    """The newer version is this one, whose documents are given the next number while no operator runs."""
    resources = scene.resources
    first = scene.operator(earlier=False)
    resources.wait_connection("kafka")
    resources.policy("guard", scene.topic, discovery={"interval": "300ms"})
    until(lambda: memory_of(resources), "the policy has a memory")
    scene.ask("waits", {"shiftBy": -20}, approval="Manual")
    resources.wait_phase("waits", "AwaitingApproval")
    assert first.stop() == 0
    digest = resources.get_reset("waits")["status"]["digest"]
    give(resources, "waits", "2", f"v2:{digest}")
    before = documents(resources)

    older = scene.operator(earlier=False)
    try:
        body = resources.wait_refused("waits", "WrittenByNewerVersion")
        resources.wait_policy("guard", ready=False, reason="WrittenByNewerVersion")
        until(lambda: older.metric("tidegate_written_by_newer_version") == 2, "both are counted")
        expand(scene)
        scene.ask("other", {"shiftBy": -5})
        scene.succeeded("other")  # as ever: a plan that only waits is in nobody's way
        assert body["status"]["phase"] == "AwaitingApproval"
        assert {name: kept for name, kept in documents(resources).items() if name in before} == before
        told = [message for reason, message in resources.events("waits") if reason == "WrittenByNewerVersion"]
        assert len(told) == 1
        assert "of version 2" in told[0]
    finally:
        assert older.stop() == 0

    give(resources, "waits", "1", digest)
    newer = scene.operator(earlier=False)
    resources.wait_policy("guard")
    scene.approve("waits")
    scene.succeeded("waits")
    assert newer.metric("tidegate_written_by_newer_version") == 0
    assert newer.stop() == 0


def documents(resources: Resources) -> dict[str, Any]:
    """All ConfigMaps of Tidegate, with their resourceVersions."""
    found = resources.core.list_namespaced_config_map(resources.namespace).items
    return {
        c.metadata.name: (c.metadata.resource_version, c.data) for c in found if c.metadata.name != "kube-root-ca.crt"
    }


def give(resources: Resources, reset: str, version: str, digest: str) -> None:
    """The policy's memory and the reset's run this version, and its status this digest."""
    own = resources.run_documents(reset)
    for name, (_, data) in documents(resources).items():
        if name not in own and "memory.json" not in data:
            continue
        if "memory.json" in data:
            text = data["memory.json"]
            for number in "12":
                text = text.replace(f'{{"version": {number},', f'{{"version": {version},')
            assert f'"version": {version},' in text
            data = {"memory.json": text}
        else:
            assert data["version"] in ("1", "2")
            data = {"version": version}
        resources.core.patch_namespaced_config_map(name, resources.namespace, {"data": data})
    body = resources.get_reset(reset)
    kube.CustomObjectsApi(resources.core.api_client).replace_namespaced_custom_object_status(
        *("tidegate.io", "v1alpha1", resources.namespace, "offsetresets", reset),
        {**body, "status": {**body["status"], "digest": digest}},
    )
