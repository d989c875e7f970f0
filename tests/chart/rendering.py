"""The chart as Helm renders it."""

import functools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devstack import helm_binary

CHART = Path(__file__).resolve().parents[2] / "charts" / "tidegate"
NAMESPACE = "tidegate-system"

Manifest = dict[str, Any]
Values = Mapping[str, Any]

SPARK = "sparkoperator.k8s.io/v1beta2"

EVERYTHING: Values = {
    "watchNamespaces": ["orders", "payments"],
    "replicas": 2,
    "imagePullSecrets": [{"name": "registry"}],
    "commonLabels": {"team": "streams"},
    "podLabels": {"team": "streams"},
    "podAnnotations": {"example.com/a": "b"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"team": "streams"}},
        }
    ],
    "priorityClassName": "system-cluster-critical",
    "operator": {
        "extraEnv": [{"name": "TIDEGATE_IDLE_TICK_S", "value": "20"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "approval": {
        "admissionPolicy": "always",
        "onBehalf": ["system:serviceaccount:argocd:argocd-application-controller"],
        "required": True,
        "separateApprover": True,
    },
    "serviceAccount": {"annotations": {"example.com/role": "r"}},
    "image": {"digest": "sha256:" + "0" * 64},
    "networkPolicy": {"egress": [{}], "metricsFrom": [{"namespaceSelector": {}}], "webhookFrom": [{"podSelector": {}}]},
    "metrics": {
        "readers": [{"name": "prometheus", "namespace": "monitoring"}],
        "audience": "tidegate-metrics",
        "tokenSecret": {"name": "scraper"},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True, "alertLabels": {"team": "streams"}},
        "dashboard": {"enabled": True, "annotations": {"folder": "Kafka"}},
    },
    "webhook": {
        "annotations": {"example.com/a": "b"},
        "certManager": {"enabled": True},
        "clientCA": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
        "clientNames": ["kube-apiserver-webhook-client"],
        "namespaceSelector": {
            "matchLabels": {"tidegate": "yes"},
            "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
        },
        "objectSelector": {"matchLabels": {"app": "payments"}},
    },
    "spark": {
        "runner": "sparkapplication",
        "conf": {"spark.shuffle.compress": "false"},
        "allowedConf": ["spark.io.compression.codec"],
    },
}
"""Each value that adds something to the manifests."""


@dataclass(frozen=True, slots=True)
class Helm:
    """What one call of Helm has answered."""

    code: int
    output: str
    complaint: str


def helm(*arguments: str, values: Values | None = None) -> Helm:
    done = subprocess.run(
        [helm_binary(), *arguments, *(("--values", "-") if values is not None else ())],
        input=json.dumps(dict(values or {})),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Helm(done.returncode, done.stdout, done.stderr)


def template(
    values: Values | None = None, *api_versions: str, release: str = "tidegate", namespace: str = NAMESPACE
) -> str:
    """The manifests as text. Fails the test with what Helm complains of."""
    done = helm(
        "template",
        release,
        str(CHART),
        f"--namespace={namespace}",
        *(f"--api-versions={version}" for version in api_versions),
        values=values or {},
    )
    assert done.code == 0, done.complaint
    return done.output


@functools.cache
def _rendered(values: str, api_versions: tuple[str, ...]) -> str:
    return template(json.loads(values), *api_versions)


def render(values: Values | None = None, *api_versions: str) -> list[Manifest]:
    """The manifests; each set of values is rendered once."""
    text = _rendered(json.dumps(dict(values or {}), sort_keys=True), api_versions)
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def kubectl(verb: str, manifests: list[Manifest], kubeconfig: Path) -> None:
    """``apply`` or ``delete`` them. Fails the test with what kubectl complains of, warnings included."""
    done = subprocess.run(
        ["kubectl", verb, "-f", "-"],
        # As JSON: YAML may take a name such as 12e-3 for a number.
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr


def of_kind(manifests: list[Manifest], *kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests if manifest["kind"] in kinds)


def one(manifests: list[Manifest], kind: str, name: str = "tidegate") -> Manifest:
    found = [manifest for manifest in of_kind(manifests, kind) if manifest["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} {kind} called {name}"
    return found[0]


def environment(manifests: list[Manifest], name: str = "tidegate") -> dict[str, str]:
    """The operator's variables that have a value."""
    container = one(manifests, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
