"""The example repository: each overlay builds, and the API server takes what it makes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from devstack import ApiServer
from tidegate.resources.base import parse_spec
from tidegate.resources.policy import OffsetResetPolicySpec

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("crds_installed")]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "examples"
OVERLAYS: Final = EXAMPLES / "gitops" / "overlays"


def kubectl(apiserver: ApiServer, *arguments: str, given: str = "") -> str:
    environment = os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)}
    done = subprocess.run(
        ["kubectl", *arguments], env=environment, input=given, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("overlay", ["staging", "production"])
def test_an_overlay_is_taken_by_the_api_server(overlay: str, apiserver: ApiServer, namespace: str) -> None:
    built = kubectl(apiserver, "kustomize", str(OVERLAYS / overlay))
    mine = built.replace("namespace: payments", f"namespace: {namespace}")
    taken = json.loads(kubectl(apiserver, "apply", "--dry-run=server", "-o", "json", "-f", "-", given=mine))["items"]

    by_kind = {body["kind"]: body["spec"] for body in taken}
    assert f"kafka.{overlay}.example.com:9093" == by_kind["KafkaConnection"]["bootstrapServers"]
    policy = parse_spec(OffsetResetPolicySpec, {"spec": by_kind["OffsetResetPolicy"]})
    assert policy.keeps_something
    assert (policy.reset is not None) == (overlay == "production")
    assert ("ConsumerGroupPause" in by_kind) == (overlay == "production")


def test_the_tutorials_pods_are_taken_where_only_restricted_ones_are(apiserver: ApiServer, namespace: str) -> None:
    kubectl(apiserver, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    deployments = EXAMPLES / "application" / "deployments.yaml"
    taken = json.loads(
        kubectl(apiserver, "apply", "-n", namespace, "--dry-run=server", "-o", "json", "-f", str(deployments))
    )["items"]

    for deployment in taken:
        pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
        pod["metadata"] |= {"name": deployment["metadata"]["name"], "namespace": namespace}
        kubectl(apiserver, "create", "--dry-run=server", "-f", "-", given=json.dumps(pod))
