"""An application in pods and what is done to it: what the end-to-end tests and the benchmarks in pods share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from support.deliveries import Partition
from support.kubectl import SLOW_S, Kubectl
from support.ledger import Ledger
from support.operator_process import Body, until

APPLICATION: Final = Path(__file__).resolve().parents[1] / "e2e" / "cluster" / "application"
"""The build context of the application's image."""
SPRING_BOOT: Final = APPLICATION.with_name("spring_boot") / "Dockerfile"
"""The same with Spring Boot: its build context has ``boot.jar``."""

T = TypeVar("T")


@dataclass(slots=True)
class Application:
    """A Deployment of ordinary consumers of one group; each pod enters into `ledger` what it was given.

    `labels` and `annotations` are its pods'.
    """

    kubectl: Kubectl
    namespace: str
    name: str
    image: str
    bootstrap: str
    topic: str
    ledger: Ledger
    ledger_topic: str
    partitions: tuple[Partition, ...]
    replicas: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.name

    @property
    def selector(self) -> str:
        return f"app={self.name}"

    @property
    def manifest(self) -> Body:
        """As its authors would write it for a namespace that demands ``restricted`` pods."""
        environment = {
            "BOOTSTRAP": self.bootstrap,
            "GROUP": self.group,
            "TOPIC": self.topic,
            "LEDGER": self.ledger_topic,
            **self.environment,
        }
        container = {
            "name": "bookkeeper",
            "image": self.image,
            "imagePullPolicy": "Never",
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {"labels": {"app": self.name, **self.labels}},
                    "spec": {
                        "automountServiceAccountToken": False,
                        "terminationGracePeriodSeconds": 10,
                        "securityContext": {
                            "runAsNonRoot": True,
                            "runAsUser": 20001,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [container],
                    },
                },
            },
        }

    def like(self, name: str, **fields: Any) -> Application:
        """Another one in the same place."""
        return replace(self, name=name, **fields)

    def deploy(self) -> None:
        """Apply it and wait until every partition flows."""
        self.kubectl.apply(self.manifest)
        self.wait_available(self.replicas)
        self.ledger.wait_flowing(self.partitions, 90)

    def delete(self) -> None:
        """Returns when its pods are gone."""
        self.kubectl("delete", "-n", self.namespace, f"deployment/{self.name}", f"--timeout={SLOW_S:.0f}s")
        until(lambda: not self.all_pods(), f"no pod of {self.name} is left", timeout_s=SLOW_S)

    def scale(self, replicas: int) -> None:
        """As a person does; returns when the pods are there, or gone."""
        self.kubectl("scale", "-n", self.namespace, f"deployment/{self.name}", f"--replicas={replicas}")
        if replicas:
            self.wait_available(replicas)
        else:
            until(lambda: not self.all_pods(), f"no pod of {self.name} is left", timeout_s=SLOW_S)

    def wait_available(self, replicas: int) -> None:
        self.kubectl("rollout", "status", "-n", self.namespace, f"deployment/{self.name}", f"--timeout={SLOW_S:.0f}s")
        until(lambda: len(self.pods()) == replicas, f"{replicas} pods of {self.name}", timeout_s=SLOW_S)

    def pods(self) -> list[Body]:
        return self.kubectl.pods(self.namespace, self.selector)

    def all_pods(self) -> list[Body]:
        """With those that are on their way out."""
        found: list[Body] = self.kubectl.get("pods", "-n", self.namespace, "-l", self.selector)["items"]
        return found


def restricted_namespace(name: str) -> Body:
    """A namespace whose pods have to keep to the Pod Security Standard ``restricted``."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def make_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, count) for topic, count in partitions.items()], operation_timeout=30)
    for answer in made.values():
        answer.result(30)


class Stopwatch:
    """Seconds of named steps, printed in the end: where the time of a session went."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, float]] = []

    def step(self, name: str, do: Callable[[], T]) -> T:
        started = time.monotonic()
        result = do()
        self.took(name, time.monotonic() - started)
        return result

    def took(self, name: str, seconds: float) -> None:
        self._steps.append((name, seconds))

    def table(self) -> str:
        width = max((len(name) for name, _ in self._steps), default=0)
        return "\n".join(f"{name:<{width}}  {seconds:7.1f} s" for name, seconds in self._steps)


def longest_silence(ledger: Ledger, partitions: Sequence[Partition], since: float) -> float:
    """Seconds for which a partition delivered nothing, from `since` until now, at most."""
    now, longest = time.time(), 0.0
    for partition in partitions:
        times = [d.t for d in ledger.deliveries(since) if (d.topic, d.partition) == partition]
        longest = max(longest, *(b - a for a, b in zip([since, *times], [*times, now], strict=True)))
    return longest


def wait_ready(kubectl: Kubectl, namespace: str, what: str, *, timeout_s: float = SLOW_S) -> Body:
    """As a person or Flux waits: the newest generation was observed, and it is Ready; returns the object."""
    kind, _, name = what.partition("/")
    observed = partial(_is_observed, kubectl, namespace, kind, name)
    until(observed, f"{what} is taken up", timeout_s=120, pause_s=0.2)
    try:
        kubectl(
            "wait",
            "-n",
            namespace,
            "--for=condition=Ready",
            f"--timeout={timeout_s:.0f}s",
            what,
            timeout_s=timeout_s + 30,
        )
    except AssertionError as error:
        status = json.dumps(kubectl.get(kind, "-n", namespace, name).get("status"), indent=1)
        raise AssertionError(f"{error}\n{status}") from None
    return kubectl.get(kind, "-n", namespace, name)


def _is_observed(kubectl: Kubectl, namespace: str, kind: str, name: str) -> bool:
    body = kubectl.get(kind, "-n", namespace, name)
    observed: bool = body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"]
    return observed
