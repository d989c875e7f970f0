"""What the API server, its PodSecurity admission and kube-score say to the rendered manifests."""

import copy
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client as kube

from chart.rendering import EVERYTHING, NAMESPACE, SPARK, Manifest, of_kind, render
from devstack import ApiServer, kube_score_binary
from support.stack_fixtures import Unique

OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""Kinds that the Prometheus operator and cert-manager bring; the API server of the tests does not have them."""


@pytest.fixture
def restricted_namespace(kube_client: kube.ApiClient, unique: Unique) -> Iterator[str]:
    name = unique()
    core = kube.CoreV1Api(kube_client)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name, labels=labels)))
    yield name
    core.delete_namespace(name)


def _pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The pods that workloads would make: PodSecurity refuses pods, and only warns of what makes them."""
    for manifest in of_kind(manifests, "Deployment", "Job"):
        template = copy.deepcopy(manifest["spec"]["template"])
        name = f"{manifest['metadata']['name']}-{manifest['kind'].lower()}"
        metadata = {**template["metadata"], "name": name, "namespace": manifest["metadata"]["namespace"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_api_server_takes_every_manifest_strictly_and_every_pod_as_restricted(
    values: dict[str, Any], apiserver: ApiServer, restricted_namespace: str
) -> None:
    rendered = [m for m in render(values, SPARK) if m["apiVersion"] not in OTHERS]
    text = yaml.safe_dump_all([*rendered, *_pods(rendered)])
    # All in one namespace that is there: which one it is does not matter to the server.
    for namespace in (NAMESPACE, *values.get("watchNamespaces", ())):
        text = text.replace(f"namespace: {namespace}\n", f"namespace: {restricted_namespace}\n")
    done = subprocess.run(
        ["kubectl", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"],
        input=text,
        env={"KUBECONFIG": str(apiserver.kubeconfig), "PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == len(rendered) + len(list(_pods(rendered)))


SCORE_EXCEPTIONS = {
    "pod-probes-identical": "both ask whether the operator does its work; a restart mends a dead watch",
    "container-image-pull-policy": "a release's tag never changes; a digest can be given",
    "deployment-replicas": "there is one operator: all its state is in the API server and in Kafka",
    "deployment-strategy": "Recreate, so that there are never two",
    "pod-networkpolicy": "brokers may be anywhere, see networkPolicy.egress; pods of hooks take in nothing",
}
"""What kube-score asks for and the chart does not do by default. A CPU limit would only slow the operator down."""


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_kube_score_finds_nothing_but_what_has_a_reason(values: dict[str, Any]) -> None:
    ignored = [f"--ignore-test={','.join(SCORE_EXCEPTIONS)}", "--ignore-container-cpu-limit", "--exit-one-on-warning"]
    done = subprocess.run(
        [kube_score_binary(), "score", *ignored, "-"],
        input=yaml.safe_dump_all(render(values, SPARK)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
