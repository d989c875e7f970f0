"""Random sequences of pauses, resets, undos, crashes, joins, operator kills and repeated applies, on all real parts.

Each seed is a life of its own: a topic, a group, a policy; several share a broker, an API server and the operator,
which is killed (``kill -9``) under all of them. A seed's steps depend on nothing but the seed:
``make property-seed SEED=7`` lives one again.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from support.checker import ResetRun, check
from support.clients import ConsumerFleet, Partition, SteadyProducer
from support.operator_process import OperatorProcess, Resources, until
from tidegate.reset.stores import ConfigMapRunStore

CI_SEEDS = 20
AT_ONCE = 4
PARTITIONS = 4
RATE = 25
FINAL = ("Succeeded", "Failed", "RolledBack")


def _seeds() -> list[int]:
    one = os.environ.get("TIDEGATE_PROPERTY_SEED")
    return [int(seed) for seed in one.split(",")] if one else list(range(CI_SEEDS))


class SharedOperator:
    """The one operator of all lives. Killing it under somebody's feet is the point; only one kills at a time."""

    def __init__(self, process: OperatorProcess) -> None:
        self._process = process
        self._lock = threading.Lock()

    def kill_and_start(self) -> None:
        with self._lock:
            self._process.kill()
            self._process.start()


@dataclass
class Life:
    """What one seed did, and what came of it."""

    seed: int
    steps: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"seed {self.seed}: {' → '.join(self.steps)}\n" + "\n".join(self.complaints)


class World:
    """A seed's topic, group, consumers and policy."""

    def __init__(
        self, seed: int, topic: str, kafka: KafkaCluster, api: kube.ApiClient, resources: Resources, op: SharedOperator
    ) -> None:
        self.random = random.Random(seed)
        self.life = Life(seed)
        self.topic = topic
        self.partitions: list[Partition] = [(topic, n) for n in range(PARTITIONS)]
        self.policy = f"seed-{seed}-{secrets.token_hex(2)}"
        self.kafka, self.api, self.resources, self.operator = kafka, api, resources, op
        self.protocol = self.random.choice(["classic", "classic", "consumer"])
        self.assignor = self.random.choice(["range", "cooperative-sticky"]) if self.protocol == "classic" else None
        # Consumers that run the agent can be paused, and are reset behind closed gates.
        self.managed = self.random.random() < 0.5
        self.pauses = 0
        self.resets: list[ResetRun] = []
        self.succeeded: list[str] = []
        self.documents: dict[str, Any] = {}
        self.crashed = False

    # --- steps --------------------------------------------------------------------------------------------------------

    def target(self) -> dict[str, Any]:
        """A target, in the words of the resource."""
        kinds: list[Callable[[], dict[str, Any]]] = [
            lambda: {"shiftBy": -self.random.randint(20, 80)},
            lambda: {"shiftBy": self.random.randint(5, 30)},
            lambda: {"earliest": {}},
            lambda: {"latest": {}},
            lambda: {"duration": f"{self.random.randint(2, 6)}s"},
            lambda: {"timestamp": (datetime.now(UTC) - timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%SZ")},
        ]
        return self.random.choice(kinds)()

    def reset(self, to: dict[str, Any], meanwhile: Callable[[], None] | None) -> None:
        run_id = f"r{len(self.documents)}"
        wanted = sorted(self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS)))
        reset = {
            "id": run_id,
            "to": to,
            "partitions": [{"topic": self.topic, "partitions": ",".join(map(str, wanted))}],
            "deadline": "3m",
        }
        self.life.steps.append(f"{run_id}: {to} on {wanted}")
        started = time.time()
        self._apply(reset)
        if meanwhile is not None:
            self.resources.wait_phase(
                self.policy, "Planning", "Pausing", "Applying", "Verifying", *FINAL, run=run_id, timeout_s=90
            )
            meanwhile()
        body = self.resources.wait_phase(self.policy, *FINAL, run=run_id, timeout_s=200)
        self._note(run_id, body["status"]["reset"], started, {(self.topic, n) for n in wanted})

    def _apply(self, reset: dict[str, Any]) -> None:
        if self.resources.get("offsetresetpolicies", self.policy) is None:
            self.resources.policy(self.policy, self.topic, reset, topics=[self.topic])
        else:
            cleared = dict.fromkeys(
                ("shiftBy", "earliest", "latest", "duration", "timestamp", "undo"),
            )
            self.resources.patch_policy(self.policy, reset={**reset, "to": {**cleared, **reset["to"]}})

    def _note(self, run_id: str, status: dict[str, Any], started: float, wanted: set[Partition]) -> None:
        config_map = status.get("plan", {}).get("configMap")
        phase = status["phase"]
        self.life.steps[-1] += f" = {phase}/{status.get('way')}"
        run = self._document(config_map).load() if config_map else None
        self.documents[run_id] = (config_map, run.result if run else None)
        if phase == "Succeeded" and run is not None and run.plan is not None:
            self.succeeded.append(run_id)
            targets = {(p.topic, p.partition): p.target for p in run.plan.partitions}
            self.resets.append(ResetRun(started, time.time(), targets, frozenset(wanted)))
        elif phase == "RolledBack":
            self.resets.append(ResetRun(started, time.time(), {}, frozenset(wanted)))
        elif "Nothing was changed" not in (run.result.message if run and run.result else "Nothing was changed"):
            self.life.complaints.append(f"{run_id} ended as {phase}: {run and run.result}")

    def _document(self, config_map: str) -> ConfigMapRunStore:
        return ConfigMapRunStore(self.resources.namespace, config_map, api_client=self.api)

    def pause(self, fleet: ConsumerFleet) -> None:
        """Some partitions are paused and resumed, with something going on meanwhile: none of their records comes."""
        wanted = sorted(self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS)))
        name = f"{self.policy}-p{self.pauses}"
        self.pauses += 1
        self.life.steps.append(f"pause {wanted}")
        chosen = {"topic": self.topic, "partitions": ",".join(map(str, wanted))}
        self.resources.pause(name, self.topic, chosen, drainTimeout="5s")
        self.resources.wait_pause(name, "Paused", f"{len(wanted)}/{len(wanted)}", timeout_s=60)
        paused_at, resets = time.time(), len(self.resets)
        crash = self.protocol == "classic"
        meanwhile: list[Callable[[], None]] = [
            lambda: None,
            self.kill_operator,
            lambda: self.crash(fleet) if crash else self.join(fleet),
            lambda: self.join(fleet),
            lambda: self.reset(self.target(), None),
        ]
        self.random.choice(meanwhile)()
        if len(self.resets) == resets:
            # Long enough that who came or went meanwhile has its partitions.
            fleet.wait_assigned(self.partitions, 90)
            time.sleep(self.random.uniform(0.5, 2.0))
        released_at = time.time()
        self.resources.delete_pause(name)
        until(lambda: self.resources.get("consumergrouppauses", name) is None, f"{name} is gone")
        self._flow(fleet)
        # What was reset while paused shows now at the earliest.
        self.resets[resets:] = [replace(r, t_end=time.time()) for r in self.resets[resets:]]
        leaked = [
            d
            for d in fleet.records()
            if d.topic == self.topic and d.partition in wanted and paused_at < d.t < released_at
        ]
        if leaked:
            self.life.complaints.append(f"{len(leaked)} records came of partitions that were paused, e.g. {leaked[0]}")
        self.life.steps.append("resume")

    def crash(self, fleet: ConsumerFleet) -> None:
        index = fleet.process_of(self.random.choice(fleet.members()))
        self.life.steps.append("a consumer crashes, another joins")
        self.crashed = True
        fleet.kill_process(index)
        fleet.add()

    def join(self, fleet: ConsumerFleet) -> None:
        self.life.steps.append("a consumer joins")
        fleet.add()

    def kill_operator(self) -> None:
        self.life.steps.append("kill -9 of the operator")
        self.operator.kill_and_start()

    def apply_again(self) -> None:
        """The same resource once more, as a GitOps tool does; and a change that is none of the reset's."""
        self.life.steps.append("applied again")
        self.resources.patch_policy(self.policy, latest={"maxAge": f"{self.random.randint(1, 9)}h"})
        self.resources.wait_policy(self.policy, timeout_s=90)

    # --- a life -------------------------------------------------------------------------------------------------------

    def live(self) -> Life:
        options: dict[str, Any] = {"protocol": self.protocol, "assignor": self.assignor}
        if self.protocol == "classic":
            options |= {"session_s": 6.0, "heartbeat_s": 1.0}
        options["agent"] = self.managed
        self.life.steps.append(f"{self.protocol} {self.assignor or 'uniform'}{' with the agent' * self.managed}")
        with (
            SteadyProducer(self.kafka.bootstrap, self.topic, PARTITIONS, RATE) as producer,
            ConsumerFleet("librdkafka", self.kafka.bootstrap, self.topic, [self.topic], 3, 3, **options) as fleet,
        ):
            fleet.wait_assigned(self.partitions, 60)
            self._flow(fleet)
            for _ in range(self.random.randint(2, 4)):
                self.pause(fleet) if self.managed and self.random.random() < 0.5 else self._step(fleet)
            self._flow(fleet)
            acked = producer.stop()
            fleet.wait_read_to(producer.ends(), 90)
            deliveries = fleet.records()
        verdict = check(deliveries, acked, self.resets)
        if not verdict.ok:
            self.life.complaints += verdict.complaints()
        if verdict.unintended_duplicates and not self._may_read_again():
            self.life.complaints.append(f"{verdict.unintended_duplicates} records outside the requests were read again")
        self._check_once()
        return self.life

    def _may_read_again(self) -> bool:
        """A crash, or leaving in an owner's name, costs what was not committed; holding a join does not."""
        return self.crashed or self.protocol == "consumer" or self.assignor == "cooperative-sticky"

    def _flow(self, fleet: ConsumerFleet) -> None:
        fleet.wait_flowing(self.partitions, time.time(), 90)
        # Something to shift back to, committed.
        until(lambda: time.time() > self._ready_at(fleet), "five seconds of records were committed", timeout_s=20)

    def _ready_at(self, fleet: ConsumerFleet) -> float:
        first = min((d.t for d in fleet.records()), default=time.time())
        return first + 7.0

    def _step(self, fleet: ConsumerFleet) -> None:
        crash = self.protocol == "classic"  # a KIP-848 member that crashed is missed after 45 s only
        disturbances: list[Callable[[], None]] = [
            self.kill_operator,
            lambda: self.crash(fleet) if crash else self.join(fleet),
            lambda: self.join(fleet),
        ]
        meanwhile = self.random.choice([None, None, *disturbances])
        if self.succeeded and self.random.random() < 0.35:
            self.reset({"undo": self.random.choice(self.succeeded)}, meanwhile)
        else:
            self.reset(self.target(), meanwhile)
        if self.random.random() < 0.3:
            self.apply_again()
        fleet.wait_assigned(self.partitions, 90)
        self._flow(fleet)

    def _check_once(self) -> None:
        """Once per id: whatever was killed or applied again, each run has one document, and the result it had."""
        found = self.resources.run_documents(self.policy)
        if len(found) != len(self.documents):
            self.life.complaints.append(f"{len(self.documents)} ids, and {len(found)} runs: {sorted(found)}")
        for run_id, (config_map, result) in self.documents.items():
            if config_map is None:
                continue
            now = self._document(config_map).load().result
            if now != result:
                self.life.complaints.append(f"the result of {run_id} changed from {result} to {now}")


def new_topic(kafka: KafkaCluster, seed: int) -> str:
    name = f"random-{seed}-{secrets.token_hex(3)}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    return name


@pytest.fixture(scope="module")
def lives(
    kafka: KafkaCluster,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[int, Future[Life]]]:
    """All seeds, some at once: most of a life is waiting."""
    namespace = f"random-{secrets.token_hex(2)}"
    core = kube.CoreV1Api(kube_client)
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=namespace)))
    resources = Resources(kube_client, namespace)
    process = OperatorProcess(apiserver.kubeconfig, namespace, tmp_path_factory.mktemp("operator"))
    with process:
        resources.connection("kafka", kafka.bootstrap)
        resources.wait_connection("kafka")
        operator = SharedOperator(process)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield {
                seed: pool.submit(World(seed, new_topic(kafka, seed), kafka, kube_client, resources, operator).live)
                for seed in _seeds()
            }
        print(f"--- {process.log}\n{process.tail(200)}")
    resources.clear()
    core.delete_namespace(namespace)


@pytest.mark.parametrize("seed", _seeds())
def test_random_sequence(seed: int, lives: dict[int, Future[Life]]) -> None:
    life = lives[seed].result()
    print(life)
    assert not life.complaints, str(life)
