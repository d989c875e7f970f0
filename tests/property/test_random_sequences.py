"""Random sequences of pauses, resets, undos, crashes, joins, operator kills and repeated applies, on all real parts.

Each seed is a life of its own: a topic, a group, a policy; several share a broker, an API server and the operator.
What is done in it depends on nothing but the seed (``support.life_story``): ``make property-seed SEED=7`` does the same
again. A life that kills the operator (``kill -9``) kills it under the others, too; that alone is not done again.
Every reset must succeed, whatever goes on: nothing of it prevents that.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, assert_never

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from support.checker import ResetRun, check
from support.clients import ConsumerFleet, Event, EventKind, Partition, SteadyProducer
from support.deliveries import Delivery, stretches
from support.life_story import MEMBERS, PARTITIONS, Disturbance, Mishap, Pause, Reset, Story, TargetKind, draw
from support.operator_process import OperatorProcess, Resources, until
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.model.result import RunResult

CI_SEEDS = (0, 6, 7, 8)
"""Both protocols, each assignor, with and without the agent; kills of the operator, and an undo. Others nightly."""
AT_ONCE = 4
RATE = 25
DEADLINE = "9m"
PATIENCE_S = 600.0
"""The operator is shared, and several lives kill it: on a busy machine it spends most of its time starting."""
FINAL = ("Succeeded", "Failed", "RolledBack")
BEGUN = ("Planning", "Pausing", "Applying", "Verifying", *FINAL)


def _seeds() -> list[int]:
    one = os.environ.get("TIDEGATE_PROPERTY_SEED")
    if one:
        return [int(seed) for seed in one.split(",")]
    return list(CI_SEEDS)


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
    """What came of a story."""

    story: Story
    complaints: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """How each reset ended, in their order."""
    told: list[str] = field(default_factory=list)
    """Where there are complaints: the resets, and what the members read, owned and committed, and when."""

    def __str__(self) -> str:
        return "\n".join([str(self.story), f"resets ended: {', '.join(self.ended)}", *self.complaints])


class World:
    """A seed's topic, group, consumers and policy."""

    def __init__(
        self, story: Story, kafka: KafkaCluster, api: kube.ApiClient, resources: Resources, operator: SharedOperator
    ) -> None:
        self.story = story
        self.life = Life(story)
        self.topic = self.group = f"random-{story.seed}-{secrets.token_hex(3)}"
        self.partitions: list[Partition] = [(self.topic, n) for n in range(PARTITIONS)]
        self.kafka, self.api, self.resources, self.operator = kafka, api, resources, operator
        self.policy = f"{self.topic}-p"
        self.runs: list[ResetRun] = []
        self.documents: dict[str, tuple[str, RunResult]] = {}

    # --- a life -------------------------------------------------------------------------------------------------------

    def live(self) -> Life:
        try:
            self._live()
        except AssertionError as error:
            error.add_note(str(self.life))
            raise
        return self.life

    def _live(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        story = self.story
        options: dict[str, Any] = {"protocol": story.protocol, "assignor": story.assignor}
        if story.protocol == "classic":
            options |= {"session_s": 6.0, "heartbeat_s": 1.0}
        options["agent"] = story.managed
        bootstrap, topics = self.kafka.bootstrap, [self.topic]
        with (
            SteadyProducer(bootstrap, self.topic, PARTITIONS, RATE) as producer,
            ConsumerFleet("librdkafka", bootstrap, self.group, topics, MEMBERS, MEMBERS, **options) as fleet,
        ):
            fleet.wait_assigned(self.partitions, 60)
            self._flow(fleet)
            for number, step in enumerate(story.steps):
                self._pause(step, f"{self.policy}-{number}", fleet) if isinstance(step, Pause) else self._step(
                    step, fleet
                )
            self._flow(fleet)
            acked = producer.stop()
            fleet.wait_read_to(producer.ends(), 90)
            deliveries, events = fleet.records(), fleet.events()
        verdict = check(deliveries, acked, self.runs)
        if not verdict.ok:
            self.life.complaints += verdict.complaints()
        if verdict.unintended_duplicates and not story.may_read_again:
            self.life.complaints.append(f"{verdict.unintended_duplicates} records outside the requests were read again")
        self._check_once()
        if self.life.complaints:
            self.life.told = self._told(deliveries, events)

    def _told(self, deliveries: Sequence[Delivery], events: Sequence[Event]) -> list[str]:
        """What the members say happened: what each owned, read and committed, without which nobody finds the cause."""
        told = [str(run) for run in self.runs]
        told += [str(stretch) for stretch in stretches(deliveries)]
        for event in events:
            owned = " ".join(f"{topic}-{number}" for topic, number in event.partitions)
            commits = " ".join(
                f"{topic}-{number}@{commit.offset}{f' ({commit.error})' if commit.error else ''}"
                for commit in event.commits
                for topic, number in [commit.partition]
                if commit.offset >= 0
            )
            if owned or commits or event.kind is not EventKind.COMMIT:
                told.append(f"{event.t:.3f} {event.member} {event.kind} {owned}{commits} {event.error or ''}".rstrip())
        return told

    def _flow(self, fleet: ConsumerFleet) -> None:
        fleet.wait_flowing(self.partitions, time.time(), 90)
        # Something to shift back to, committed.
        first = min(d.t for d in fleet.records())
        until(lambda: time.time() > first + 7.0, "seven seconds of records were read")

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: Reset, fleet: ConsumerFleet) -> None:
        self._reset(step, fleet)
        if step.applied_again_h is not None:
            # As a GitOps tool does; and a change that is none of the reset's.
            self.resources.patch_policy(self.policy, latest={"maxAge": f"{step.applied_again_h}h"})
            self.resources.wait_policy(self.policy, timeout_s=PATIENCE_S)
        fleet.wait_assigned(self.partitions, 90)
        self._flow(fleet)

    def _reset(self, step: Reset, fleet: ConsumerFleet) -> None:
        started = time.time()
        self._apply(step)
        if step.meanwhile is not None:
            self.resources.wait_phase(self._name(step.run_id), *BEGUN, timeout_s=PATIENCE_S)
            self._disturb(step.meanwhile, fleet)
        body = self.resources.wait_phase(self._name(step.run_id), *FINAL, timeout_s=PATIENCE_S)
        self._note(step, body["status"], started)

    def _name(self, run_id: str) -> str:
        """The OffsetReset that the policy creates for it."""
        return f"{self.policy}-{run_id}"

    def _apply(self, step: Reset) -> None:
        reset = {
            "id": step.run_id,
            "to": dict(step.to.words(datetime.now(UTC))),
            "partitions": [{"topic": self.topic, "partitions": [*step.partitions]}],
            "deadline": DEADLINE,
        }
        if self.resources.get("offsetresetpolicies", self.policy) is None:
            self.resources.policy(self.policy, self.group, reset, topics=[self.topic])
        else:
            cleared = dict.fromkeys(kind.value for kind in TargetKind)
            self.resources.patch_policy(self.policy, reset={**reset, "to": {**cleared, **reset["to"]}})

    def _note(self, step: Reset, status: Mapping[str, Any], started: float) -> None:
        document = status.get("plan", {}).get("configMap", "")
        run = self._store(document).load() if document else None
        self.life.ended.append(f"{step.run_id} {status['phase']} by {status.get('way')}")
        if run is None or run.plan is None or run.result is None or status["phase"] != "Succeeded":
            condition = status.get("conditions")
            self.life.complaints.append(f"{step.run_id} ended as {status['phase']}: {run and run.result}; {condition}")
            return
        self.documents[step.run_id] = (document, run.result)
        targets = {(p.topic, p.partition): p.target for p in run.plan.partitions}
        asked = frozenset((self.topic, n) for n in step.partitions)
        if targets.keys() != {(self.topic, n) for n in step.planned}:
            self.life.complaints.append(f"{step.run_id} was to plan {step.planned}, and planned {sorted(targets)}")
        self.runs.append(ResetRun(started, time.time(), targets, asked))

    def _pause(self, step: Pause, name: str, fleet: ConsumerFleet) -> None:
        """Some partitions are paused and resumed, with something going on meanwhile: none of their records comes."""
        chosen = {"topic": self.topic, "partitions": [*step.partitions]}
        self.resources.pause(name, self.group, chosen, drainTimeout="5s")
        count = len(step.partitions)
        self.resources.wait_pause(name, "Paused", f"{count}/{count}", timeout_s=PATIENCE_S)
        paused_at, runs = time.time(), len(self.runs)
        if isinstance(step.meanwhile, Reset):
            self._reset(step.meanwhile, fleet)
        else:
            if step.meanwhile is not None:
                self._disturb(step.meanwhile, fleet)
            # Long enough that who came or went meanwhile has its partitions.
            fleet.wait_assigned(self.partitions, 90)
            time.sleep(step.rest_s)
        released_at = time.time()
        self.resources.delete_pause(name)
        until(lambda: self.resources.get("consumergrouppauses", name) is None, f"{name} is gone", timeout_s=PATIENCE_S)
        self._flow(fleet)
        # What was reset while paused shows now at the earliest.
        self.runs[runs:] = [replace(run, t_end=time.time()) for run in self.runs[runs:]]
        leaked = [d for d in fleet.records(paused_at) if d.partition in step.partitions and d.t < released_at]
        if leaked:
            self.life.complaints.append(f"{len(leaked)} records came of partitions that were paused, e.g. {leaked[0]}")

    def _disturb(self, mishap: Mishap, fleet: ConsumerFleet) -> None:
        match mishap.kind:
            case Disturbance.OPERATOR_KILLED:
                self.operator.kill_and_start()
            case Disturbance.CONSUMER_CRASHES:
                fleet.kill_process(fleet.process_of(fleet.members()[mishap.victim]))
                fleet.add()
            case Disturbance.CONSUMER_JOINS:
                fleet.add()
            case _:
                assert_never(mishap.kind)

    # --- looking ------------------------------------------------------------------------------------------------------

    def _store(self, document: str) -> ConfigMapRunStore:
        return ConfigMapRunStore(self.resources.namespace, document, api_client=self.api)

    def _check_once(self) -> None:
        """Once per id: whatever was killed or applied again, each run has one document, and the result it had."""
        found = [name for run_id in self.documents for name in self.resources.run_documents(self._name(run_id))]
        if sorted(found) != sorted(document for document, _ in self.documents.values()):
            self.life.complaints.append(f"runs {self.documents.keys()}, and documents {sorted(found)}")
        for run_id, (document, result) in self.documents.items():
            now = self._store(document).load().result
            if now != result:
                self.life.complaints.append(f"the result of {run_id} changed from {result} to {now}")


@pytest.fixture(scope="module")
def lives(
    request: pytest.FixtureRequest,
    kafka: KafkaCluster,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[int, Future[Life]]]:
    """All seeds that were selected, some at once: most of a life is waiting."""
    selected = {item.nodeid for item in request.session.items}
    wanted = [n for n in _seeds() if f"{request.node.nodeid}::{test_random_sequence.__name__}[{n}]" in selected]
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
                seed: pool.submit(World(draw(seed), kafka, kube_client, resources, operator).live) for seed in wanted
            }
            pool.shutdown(cancel_futures=True)
        print(f"--- {process.log}\n{process.tail(200)}")
    resources.clear()
    core.delete_namespace(namespace)


@pytest.mark.parametrize("seed", _seeds())
def test_random_sequence(seed: int, lives: Mapping[int, Future[Life]]) -> None:
    life = lives[seed].result(1200)
    print(life, *life.told, sep="\n")
    assert not life.complaints, str(life)
