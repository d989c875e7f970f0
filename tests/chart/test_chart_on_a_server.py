"""What the API server, its PodSecurity admission and kube-score say to the rendered manifests."""

import base64
import copy
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client as kube

from chart.rendering import CHART, EVERYTHING, NAMESPACE, SPARK, Manifest, helm, of_kind, render
from devstack import ApiServer, kube_score_binary
from support.stack_fixtures import Unique

OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""Kinds that the Prometheus operator and cert-manager bring; the API server of the tests does not have them."""

PEM = b"""-----BEGIN CERTIFICATE-----
MIIBLDCB06ADAgECAhQ=
-----END CERTIFICATE-----
"""


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
        # The CRDs are there already, as the tests' own installation of them.
        ["kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"],
        input=text,
        env={**os.environ, "KUBECONFIG": str(apiserver.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == len(rendered) + len(list(_pods(rendered)))


def test_an_upgrade_leaves_what_the_operator_wrote_and_nothing_of_it_stays(
    apiserver: ApiServer, kube_client: kube.ApiClient, restricted_namespace: str
) -> None:
    core, admission = kube.CoreV1Api(kube_client), kube.AdmissionregistrationV1Api(kube_client)
    release, namespace = restricted_namespace[-12:].strip("-"), restricted_namespace
    name, secret = f"{release}-tidegate", f"{release}-tidegate-webhook-tls"
    values: dict[str, Any] = {"crds": {"enabled": False}, "watchNamespaces": [namespace]}

    def run(*arguments: str, values: dict[str, Any] | None = None) -> str:
        done = helm(*arguments, f"--namespace={namespace}", f"--kubeconfig={apiserver.kubeconfig}", values=values)
        assert done.code == 0, done.complaint
        return done.output

    run("install", release, str(CHART), values=values)
    try:
        core.patch_namespaced_secret(secret, namespace, {"data": {"tls.crt": "YQ=="}})
        bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": base64.b64encode(PEM).decode()}]
        admission.patch_mutating_webhook_configuration(name, bundle)

        run("upgrade", release, str(CHART), values={**values, "podLabels": {"new": "label"}})

        assert core.read_namespaced_secret(secret, namespace).data == {"tls.crt": "YQ=="}
        kept = admission.read_mutating_webhook_configuration(name).webhooks[0].client_config.ca_bundle
        assert base64.b64decode(kept) == PEM
        deployment = kube.AppsV1Api(kube_client).read_namespaced_deployment(name, namespace)
        assert deployment.spec.template.metadata.labels["new"] == "label"
        assert not kube.BatchV1Api(kube_client).list_namespaced_job(namespace).items
    finally:
        # Its hook needs a node; what it does is tried in tests/apiserver/test_uninstall.py.
        run("uninstall", release, "--no-hooks")
    assert not core.list_namespaced_secret(namespace).items
    assert not [c for c in admission.list_mutating_webhook_configuration().items if c.metadata.name == name]


def test_helm_refuses_to_leave_a_connection_without_its_secrets(
    apiserver: ApiServer, kube_client: kube.ApiClient, crds_installed: None, restricted_namespace: str
) -> None:
    def attempt(*watched: str, **rbac: Any) -> str:
        target = (f"--namespace={NAMESPACE}", f"--kubeconfig={apiserver.kubeconfig}", "--dry-run=server")
        done = helm(
            "install",
            f"r{restricted_namespace[-8:].strip('-')}",
            str(CHART),
            *target,
            values={"crds": {"enabled": False}, "watchNamespaces": list(watched), "rbac": rbac},
        )
        return "" if done.code == 0 else done.complaint

    login = {"type": "plain", "username": "u", "passwordSecret": {"secretName": "kafka", "password": "password"}}
    spec = {"bootstrapServers": "kafka:9092", "authentication": login}
    connection = {"apiVersion": "tidegate.io/v1alpha1", "kind": "KafkaConnection", "metadata": {"name": "kafka"}}
    kube.CustomObjectsApi(kube_client).create_namespaced_custom_object(
        "tidegate.io", "v1alpha1", restricted_namespace, "kafkaconnections", {**connection, "spec": spec}
    )

    refused = attempt()
    assert "the operator could not read the Secrets that KafkaConnections name in " in refused
    assert restricted_namespace in refused
    assert restricted_namespace not in attempt(secrets={"namespaces": [restricted_namespace]})
    assert attempt(secrets={"clusterWide": True}) == ""
    of_some = {"namespaces": [NAMESPACE]}
    assert restricted_namespace in attempt(NAMESPACE, restricted_namespace, secrets=of_some)
    # What is in namespaces that are not served is nobody's business.
    assert restricted_namespace not in attempt(NAMESPACE, secrets=of_some)


SCORE_EXCEPTIONS = {
    "pod-probes-identical": "both ask whether the operator does its work; a restart mends a dead watch",
    "container-image-pull-policy": "a release's tag never changes; a digest can be given",
    "deployment-replicas": "one is enough where a new pod may take its time: all its state is elsewhere",
    "deployment-has-host-podantiaffinity": "topologySpreadConstraints keep replicas apart, over zones as well",
    "pod-networkpolicy": "brokers may be anywhere, see networkPolicy.egress; pods of hooks take in nothing",
}
"""What kube-score asks for and the chart does not do by default. A CPU limit would only slow the operator down."""


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_kube_score_finds_nothing_but_what_has_a_reason(values: dict[str, Any]) -> None:
    ignored = [f"--ignore-test={','.join(SCORE_EXCEPTIONS)}", "--ignore-container-cpu-limit", "--exit-one-on-warning"]
    done = subprocess.run(
        [kube_score_binary(), "score", *ignored, "-"],
        # The pods of jobs are not of the chart, so nothing shows that the policy has any.
        input=yaml.safe_dump_all(m for m in render(values, SPARK) if m["metadata"]["name"] != "tidegate-jobs"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
