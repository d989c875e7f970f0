"""A broker, an API server and the operator at its default ticks, for benchmarks of the whole."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client as kube
from kubernetes import config

from devstack import ApiServer, KafkaCluster
from devstack.commands import crd_files
from support.operator_process import OperatorProcess
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

LIMIT_S = 60.0
NAMESPACE = "bench"

_DEFAULT_TICKS = {"TIDEGATE_ACTIVE_TICK_S": "", "TIDEGATE_IDLE_TICK_S": "", "TIDEGATE_HEALTH_INTERVAL_S": ""}
"""An empty value leaves the operator's own default."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs: the broker, and an operator that serves one namespace, with connection ``kafka``."""

    bootstrap: str
    client: KafkaClient
    custom: kube.CustomObjectsApi
    core: kube.CoreV1Api
    operator_pid: int

    def create(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.custom.create_namespaced_custom_object("tidegate.io", "v1alpha1", NAMESPACE, plural, body)

    def get(self, plural: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.custom.get_namespaced_custom_object(
            "tidegate.io", "v1alpha1", NAMESPACE, plural, name
        )
        return found

    def delete(self, plural: str, name: str) -> None:
        self.custom.delete_namespaced_custom_object("tidegate.io", "v1alpha1", NAMESPACE, plural, name)


@contextlib.contextmanager
def set_stage() -> Iterator[Stage]:
    """Everything that runs; gone afterwards."""
    with (
        KafkaCluster.start() as kafka,
        ApiServer.start() as server,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
    ):
        for path in crd_files():
            server.apply(path)
        api = config.new_client_from_config(str(server.kubeconfig))
        core = kube.CoreV1Api(api)
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        client = KafkaClient(Connection(kafka.bootstrap))
        with OperatorProcess(server.kubeconfig, NAMESPACE, Path(folder), _DEFAULT_TICKS) as operator:
            stage = Stage(kafka.bootstrap, client, kube.CustomObjectsApi(api), core, operator.pid)
            stage.create("kafkaconnections", "KafkaConnection", "kafka", {"bootstrapServers": kafka.bootstrap})
            wait(lambda: _ready(stage.get("kafkaconnections", "kafka")), "the connection is Ready")
            try:
                yield stage
            finally:
                client.close()


def wait(reached: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> None:
    """Look every 10 ms."""
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {limit_s:.0f} s: {what}")
        time.sleep(0.01)


def _ready(body: dict[str, Any]) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
