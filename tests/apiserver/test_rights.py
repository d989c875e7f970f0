"""What the chart grants is what the operator uses, by the API server's audit log; what is more says why."""

import base64
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kube

from apiserver.offsets import commit, produce
from chart.rendering import SPARK, Manifest, environment, kubectl, of_kind, one, template
from devstack import ApiServer, KafkaCluster
from support.operator_process import FAST, OperatorProcess, Resources, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.reset.runs.reasons import FINALIZER

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""

_AGAIN = "to read it again after a conflict, and when it is no longer listed: neither has to happen"

UNUSED: Mapping[Right, str] = {
    ("get", "tidegate.io", "kafkaconnections"): _AGAIN,
    ("get", "tidegate.io", "consumergrouppauses"): _AGAIN,
    ("get", "tidegate.io", "offsetresetpolicies"): _AGAIN,
    ("create", "sparkoperator.k8s.io", "sparkapplications"): "a server-side apply of what is not there is authorized "
    "as this too, and logged as patch only",
    ("delete", "", "configmaps"): "what was kept of a reset; tests/apiserver/test_operator_undo_kept.py",
    ("get", "apps", "statefulsets"): "the same call as for replicasets; tests/apiserver/test_operator_injection.py",
    ("get", "apps", "daemonsets"): "the same call as for replicasets",
    ("get", "", "replicationcontrollers"): "the same call as for replicasets",
    ("get", "apps", "statefulsets/scale"): "the same calls as for Deployments; tests/apiserver/test_operator_scale.py",
    ("patch", "apps", "statefulsets/scale"): "the same",
    ("get", "argoproj.io", "rollouts/scale"): "the same",
    ("patch", "argoproj.io", "rollouts/scale"): "the same",
    ("list", "keda.sh", "scaledobjects"): "asked for where KEDA is; tests/apiserver/test_operator_scale.py",
    ("patch", "keda.sh", "scaledobjects"): "the same",
}
"""Rights of the operator that the scenario below does not use, and why they are granted."""

_EARLIER = "a policy with the finalizer of an earlier version; tests/apiserver/test_uninstall.py"

UNUSED_BY_UNINSTALL: Mapping[Right, str] = {
    ("get", "tidegate.io", "offsetresetpolicies"): _EARLIER,
    ("patch", "tidegate.io", "offsetresetpolicies"): _EARLIER,
    ("get", "tidegate.io", "offsetresetapprovals"): "a plan that is approved in this moment",
    ("list", "tidegate.io", "offsetresetapprovals"): "a plan that may have been approved before",
    ("get", "tidegate.io", "offsetbackups"): "what a job mounts that restores from a backup",
    ("update", "tidegate.io", "kafkaconnections/status"): "a connection that says something new",
    ("create", "", "configmaps"): "what is kept of a run for an undo; tests/apiserver/test_operator_undo_kept.py",
    ("delete", "", "configmaps"): "the same",
    ("get", "", "pods/log"): "why a driver has failed",
    **{right: why for right, why in UNUSED.items() if right[1] in ("argoproj.io", "keda.sh")},
    **{right: why for right, why in UNUSED.items() if right[2] == "statefulsets/scale"},
}
"""The same for the account that uninstalls."""

ADMISSION = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
LABELS = {"app": "consumer"}


class Installed:
    """The chart's objects on the API server, but for CRDs and what only a node would run."""

    def __init__(self, apiserver: ApiServer, client: kube.ApiClient, release: str, namespace: str, served: str) -> None:
        self._apiserver, self._core = apiserver, kube.CoreV1Api(client)
        self.namespace, self.name = namespace, f"{release}-tidegate"
        values = {
            "watchNamespaces": [served],
            "metrics": {"service": False},
            "approval": {"admissionPolicy": "never"},  # the test approves in the name of somebody else
        }
        text = template(values, SPARK, ADMISSION, release=release, namespace=namespace)
        self.manifests: list[Manifest] = [manifest for manifest in yaml.safe_load_all(text) if manifest]
        # The policies on jobs and restarts hold for the operator, too: they refuse nothing that it does.
        wanted = (*RIGHTS, *POLICIES, "Secret", "Deployment", "MutatingWebhookConfiguration")
        kubectl("apply", list(of_kind(self.manifests, *wanted)), self._apiserver.kubeconfig)

    def remove(self) -> None:
        unbounded = (*POLICIES, "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration")
        kubectl("delete", list(of_kind(self.manifests, *unbounded)), self._apiserver.kubeconfig)

    def ca(self) -> str:
        """By which the operator's own certificate is signed; empty before there is one."""
        secret = self._core.read_namespaced_secret(f"{self.name}-webhook-tls", self.namespace)
        return base64.b64decode((secret.data or {}).get("ca.crt", "")).decode()

    def token(self, account: str) -> str:
        """A token of the ServiceAccount."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        granted = self._core.create_namespaced_service_account_token(account, self.namespace, request)
        token: str = granted.status.token
        return token

    def kubeconfig(self, account: str, path: Path) -> Path:
        """A kubeconfig of the ServiceAccount."""
        config = json.loads(self._apiserver.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self.token(account)}
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def granted(self, account: str) -> set[Right]:
        """Everything that the rendered roles of a ServiceAccount allow."""
        bindings = of_kind(self.manifests, "RoleBinding", "ClusterRoleBinding")
        roles = {b["roleRef"]["name"] for b in bindings if any(s["name"] == account for s in b["subjects"])}
        return {
            (verb, group, resource)
            for role in of_kind(self.manifests, "Role", "ClusterRole")
            if role["metadata"]["name"] in roles
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    def used(self, account: str) -> tuple[set[Right], list[str]]:
        """What the account has asked for, and what of it was refused for want of a right."""
        user, used, refused = f"system:serviceaccount:{self.namespace}:{account}", set(), []
        for line in self._apiserver.audit_log.read_text().splitlines():
            event = json.loads(line)
            where = event.get("objectRef") or {}
            if event["user"]["username"] != user or "resource" not in where:
                continue
            resource = "/".join(filter(None, (where["resource"], where.get("subresource"))))
            used.add((event["verb"], where.get("apiGroup", ""), resource))
            if event.get("responseStatus", {}).get("code") == 403:
                refused.append(f"{event['verb']} {resource} in {where.get('namespace', 'the cluster')}")
        return used, refused


@pytest.fixture
def installed(
    apiserver: ApiServer, kube_client: kube.ApiClient, resources: Resources, unique: Unique
) -> Iterator[Installed]:
    if apiserver.attached:
        pytest.skip("the audit log is that of an API server of our own")
    namespace = unique("release")
    core = kube.CoreV1Api(kube_client)
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=namespace)))
    made = Installed(apiserver, kube_client, namespace[-7:].strip("-"), namespace, resources.namespace)
    yield made
    made.remove()
    core.delete_namespace(namespace)


def test_the_operator_uses_what_it_is_granted_and_needs_no_more(
    installed: Installed,
    resources: Resources,
    kube_client: kube.ApiClient,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic, group = make_topic(2), unique("group")
    produce(kafka.bootstrap, topic, 2, 20)
    commit(kafka.bootstrap, group, topic, {0: 10, 1: 10})
    account = one(installed.manifests, "Deployment", installed.name)["spec"]["template"]["spec"]["serviceAccountName"]
    told = environment(installed.manifests, installed.name)
    addresses = {name: "127.0.0.1:0" for name in told if name.endswith("_ADDRESS")}
    own = {"TIDEGATE_NAMESPACE": installed.namespace, "TIDEGATE_RUNTIME_DIRECTORY": str(tmp_path / "files")}
    environ = {**told, **FAST, **addresses, **own}
    operator = OperatorProcess(
        installed.kubeconfig(account, tmp_path / "operator.kubeconfig"), resources.namespace, tmp_path, environ
    )

    with operator:
        ca = until(installed.ca, "there is a certificate")
        _ask_for_metrics(operator, installed.token(account), ca)
        _use_everything(resources, kube_client, kafka, topic, group)
        until(lambda: _all_is_used(installed, account), "every right is used")
        # A job that is at work, for uninstalling to end.
        resources.reset("left", f"{group}-left", {"offset": 6}, engine="Spark", topics=[topic])
        _driver(resources, "left")
    used, refused = installed.used(account)
    assert not refused, operator.tail(200)
    granted = installed.granted(account)
    assert granted - used <= UNUSED.keys()
    assert UNUSED.keys() <= granted, "not granted any more: no reason is needed"

    # Uninstalling, by its own account: it takes the finalizers off.
    hook = f"{installed.name}-uninstall"
    command = [sys.executable, "-m", "tidegate.main", "uninstall"]
    done = subprocess.run(
        [*command, f"--deployment={installed.namespace}/{installed.name}"],
        env={
            **os.environ,
            **environ,
            "KUBECONFIG": str(installed.kubeconfig(hook, tmp_path / "hook.kubeconfig")),
            "TIDEGATE_WEBHOOK_ADDRESS": "",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    used, refused = installed.used(hook)
    assert not refused, done.stderr
    granted = installed.granted(hook)
    assert used <= granted
    assert granted - used <= UNUSED_BY_UNINSTALL.keys()
    assert UNUSED_BY_UNINSTALL.keys() <= granted, "not granted any more: no reason is needed"


def _all_is_used(installed: Installed, account: str) -> bool:
    return not installed.granted(account) - installed.used(account)[0] - UNUSED.keys()


def _use_everything(
    resources: Resources,
    client: kube.ApiClient,
    kafka: KafkaCluster,
    topic: str,
    group: str,
) -> None:
    """One of each that the operator can do."""
    core, apps, namespace = resources.core, kube.AppsV1Api(client), resources.namespace
    resources.secret("password", password="secret")
    resources.connection("kafka", kafka.bootstrap)
    password = {"secretName": "password", "password": "password"}
    login = {"type": "scram-sha-512", "username": "u", "passwordSecret": password}
    resources.connection("other", kafka.bootstrap, authentication=login)

    # Injection into pods that are there: one is evicted.
    pod = {"containers": [{"name": "app", "image": "app"}]}
    body: dict[str, Any] = {
        "metadata": {"name": "consumer", "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }
    owner = apps.create_namespaced_replica_set(namespace, body)
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "consumer", "uid": owner.metadata.uid}
    metadata = {"name": "consumer-0", "labels": LABELS, "ownerReferences": [{**reference, "controller": True}]}
    core.create_namespaced_pod(namespace, {"metadata": metadata, "spec": pod})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    core.patch_namespaced_pod_status("consumer-0", namespace, {"status": {"phase": "Running", "conditions": [ready]}})
    consumers = {"selector": {"matchLabels": LABELS}, "rollout": "Restart"}
    resources.policy("injecting", f"{group}-injected", latest={"maxAge": "1h"}, consumers=consumers)

    # A pause by the agent, one by scaling, a run in the operator.
    apps.create_namespaced_deployment(namespace, body)
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "consumer"}
    resources.pause("by-scaling", f"{group}-scaled", method="Scale", workloadRef=workload)
    resources.pause("by-agent", f"{group}-paused", {"topic": topic, "partitions": [0]})
    resources.policy("direct", group, {"id": "one", "to": {"offset": 5}, "engine": "Direct"}, topics=[topic])
    resources.wait_pause("by-agent", "Paused", "1/1")
    resources.wait_phase("direct-one", "Succeeded")

    # A plan that is approved.
    resources.reset("asked", f"{group}-asked", {"offset": 4}, engine="Direct", topics=[topic], approval="Manual")
    resources.wait_phase("asked", "AwaitingApproval")
    resources.approve("asked")
    resources.wait_phase("asked", "Succeeded")

    # The same by hand, deleted when its time is over.
    resources.reset("once", group, {"offset": 4}, engine="Direct", topics=[topic], ttlAfterFinished="1s")
    until(lambda: resources.get("offsetresets", "once") is None, "the reset is deleted after its time")

    # A backup that is looked up by who wants to restore from it.
    resources.backup("nightly", {"folder": {"path": "offsets"}}, schedule="1h", suspend=True)
    resources.reset("restore", f"{group}-lost", {"backup": {"name": "nightly"}})
    # A policy with which an earlier version has left its finalizer.
    resources.patch("offsetresetpolicies", "direct", {"metadata": {"finalizers": [FINALIZER]}})
    until(lambda: not resources.get_policy("direct")["metadata"].get("finalizers"), "its finalizer is taken off")

    # A run as SparkApplication, whose driver fails, and which is then deleted.
    resources.reset("spark", group, {"offset": 6}, engine="Spark", topics=[topic])
    application = _driver(resources, "spark")
    core.patch_namespaced_pod_status(f"{application}-driver", namespace, {"status": {"phase": "Failed"}})
    until(lambda: _application(resources, "spark", "-2"), "the next SparkApplication")
    resources.delete_reset("spark")
    until(lambda: resources.get("offsetresets", "spark") is None, "the run is put back")


def _driver(resources: Resources, reset: str) -> str:
    """The name of its SparkApplication, once there is one, which then has a driver."""
    application = until(lambda: _application(resources, reset, "-1"), "a SparkApplication")
    driver = {"containers": [{"name": "spark-kubernetes-driver", "image": "spark"}]}
    pod = {"metadata": {"name": f"{application}-driver"}, "spec": driver}
    resources.core.create_namespaced_pod(resources.namespace, pod)
    return application


def _application(resources: Resources, reset: str, end: str) -> str:
    name: str = resources.get_reset(reset).get("status", {}).get("application") or ""
    return name if name.endswith(end) else ""


def _ask_for_metrics(operator: OperatorProcess, token: str, ca: str) -> None:
    """As somebody who may not have them."""
    headers = {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"https://127.0.0.1:{operator.metrics_port}/metrics", headers=headers)

    def refused() -> int:
        try:
            urllib.request.urlopen(asked, timeout=20, context=ssl.create_default_context(cadata=ca))  # noqa: S310
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0  # what is in the Secret comes to the server a moment later
        return 200

    assert until(refused, "somebody answers") == 403
