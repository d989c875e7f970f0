"""What the chart grants is what the operator uses, by the API server's audit log; what is more says why."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client as kube

from apiserver.offsets import commit, produce
from devstack import ApiServer, KafkaCluster
from support.installed_chart import Installed
from support.operator_process import FAST, OperatorProcess, Resources, until
from support.rights import Right, covers
from support.stack_fixtures import MakeTopic, Unique
from tidegate.jobs.application import GROUP, PLURAL, VERSION
from tidegate.jobs.runner_application import APP_NAME_LABEL
from tidegate.reset.runs.reasons import FINALIZER

Kind = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""

LABELS: Final = {"app": "consumer"}

_AGAIN = "to read it again after a conflict, and when it is no longer listed: neither has to happen"

UNUSED: Mapping[Kind, str] = {
    ("get", "tidegate.io", "kafkaconnections"): _AGAIN,
    ("get", "tidegate.io", "consumergrouppauses"): _AGAIN,
    ("get", "tidegate.io", "offsetresetpolicies"): _AGAIN,
    ("create", "tidegate.io", "consumergrouppauses"): "where a replay has ended (until.then: Pause); "
    "tests/apiserver/test_operator_replay.py",
    ("delete", "tidegate.io", "consumergrouppauses"): "of such a replay that is rolled back; "
    "tests/unit/offset_reset/test_replays.py",
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
    ("get", "tidegate.io", "offsetmirrors"): "which producer ids are claimed; tests/apiserver/test_operator_mirror.py",
    ("list", "keda.sh", "scaledobjects"): "asked for where KEDA is; tests/apiserver/test_operator_scale.py",
    ("patch", "keda.sh", "scaledobjects"): "the same",
}
"""Rights of the operator that the scenario below does not use, and why they are granted."""

_EARLIER = "a policy with the finalizer of an earlier version; tests/apiserver/test_uninstall.py"

UNUSED_BY_UNINSTALL: Mapping[Kind, str] = {
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


@dataclass(frozen=True)
class Mode:
    """How the chart is installed. `values`: by the namespace whose resources are served.

    `in_release`: that is the release's own. `replicas`: how many pods each Deployment has.
    """

    values: Callable[[str], Mapping[str, Any]]
    in_release: bool = False
    replicas: int = 1


MODES: Final[Mapping[str, Mode]] = {
    "namespaces": Mode(lambda served: {"watchNamespaces": [served]}),
    "cluster, Secrets of the release's namespace": Mode(lambda _: {}, in_release=True),
    "cluster, Secrets of some namespaces": Mode(lambda served: {"rbac": {"secrets": {"namespaces": [served]}}}),
    "cluster, all Secrets": Mode(lambda _: {"rbac": {"secrets": {"clusterWide": True}}}),
    "shards of two replicas": Mode(
        lambda served: {"watchNamespaces": [served], "shards": 2, "replicas": 2}, replicas=2
    ),
}
_LONG: Final = [pytest.param(name, marks=pytest.mark.nightly, id=name) for name in list(MODES)[1:]]


@pytest.fixture(params=["namespaces", *_LONG])
def installed(
    request: pytest.FixtureRequest,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    resources: Resources,
    unique: Unique,
) -> Iterator[Installed]:
    if apiserver.attached:
        pytest.skip("the audit log is that of an API server of our own")
    mode, served = MODES[request.param], resources.namespace
    namespace = served if mode.in_release else unique("release")
    core = kube.CoreV1Api(kube_client)
    if not mode.in_release:
        core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=namespace)))
    release, values = namespace[-7:].strip("-"), mode.values(served)
    made = Installed(apiserver, kube_client, release, namespace, served, values, mode.replicas)
    yield made
    made.remove()
    if not mode.in_release:
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
    account = installed.account
    with ExitStack() as stack:
        operators = [stack.enter_context(each) for each in _operators(installed, tmp_path)]
        ca = until(installed.ca, "there is a certificate")
        _ask_for_metrics(operators[0], installed.token(account), ca)
        _use_everything(resources, kube_client, kafka, topic, group)
        until(lambda: not _unused(installed, account, UNUSED), "every right is used")
        if installed.replicas > 1:
            _take_over(operators, resources, topic, group)
        # A job that is at work, for uninstalling to end.
        resources.reset("left", f"{group}-left", {"offset": 6}, engine="Spark", topics=[topic])
        _driver(resources, kube_client, "left")
    log = "\n".join(operator.tail(100) for operator in operators)
    assert not installed.refused(account), log
    _compared(installed, account, UNUSED)

    # Uninstalling, by its own account: it takes the finalizers off.
    hook = f"{installed.name}-uninstall"
    told = installed.told(installed.deployments[0], tmp_path)
    config = installed.kubeconfig(hook, tmp_path / "hook.kubeconfig")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.main", "uninstall"),
            *(f"--deployment={installed.namespace}/{name}" for name in installed.deployments),
        ],
        env={**os.environ, **told, **FAST, "KUBECONFIG": str(config), "TIDEGATE_WEBHOOK_ADDRESS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert not installed.refused(hook), done.stderr
    _compared(installed, hook, UNUSED_BY_UNINSTALL)

    # Drivers' and executors' are compared in tests/spark/test_rights_of_jobs.py; `helm test` asks what anybody may ask.
    jobs = {told["TIDEGATE_SPARK_SERVICE_ACCOUNT"], told["TIDEGATE_SPARK_EXECUTOR_SERVICE_ACCOUNT"]}
    assert installed.accounts == {account, hook, f"{installed.name}-test", *jobs}, "compare another one's, too"
    assert not installed.granted(f"{installed.name}-test")


def _compared(installed: Installed, account: str, reasons: Mapping[Kind, str]) -> None:
    """Both ways."""
    granted = installed.granted(account)
    assert not [use for use in installed.used(account) if not any(covers(right, use) for right in granted)]
    assert not _unused(installed, account, reasons)
    assert reasons.keys() <= {_kind(right) for right in granted}, "not granted any more: no reason is needed"


def _unused(installed: Installed, account: str, reasons: Mapping[Kind, str]) -> set[Right]:
    """Each right counts where it is granted, and on the object that it names."""
    return {right for right in installed.unused(account) if _kind(right) not in reasons}


def _kind(right: Right) -> Kind:
    return right[1:4]


def _operators(installed: Installed, folder: Path) -> Iterator[OperatorProcess]:
    """All of the Deployments' pods, of each the leader first."""
    config = installed.kubeconfig(installed.account, folder / "operator.kubeconfig")
    for name in installed.deployments:
        for number in range(installed.replicas):
            own = folder / f"{name}-{number}"
            own.mkdir()
            yield OperatorProcess(config, installed.served, own, {**installed.told(name, own), **FAST})


def _take_over(operators: list[OperatorProcess], resources: Resources, topic: str, group: str) -> None:
    """Each leader dies, and the other replica does the next work."""
    leaders, standbys = operators[::2], operators[1::2]
    assert [_leads(operator) for operator in operators] == [True, False] * len(leaders)
    for leader in leaders:
        leader.kill()
    for standby in standbys:
        until(lambda: _leads(standby), "the other replica leads")  # noqa: B023 - called here
    resources.reset("later", group, {"offset": 3}, engine="Direct", topics=[topic])
    resources.wait_phase("later", "Succeeded")


def _leads(operator: OperatorProcess) -> bool:
    return bool(json.loads(operator.get("/healthz")[1])["leader"])


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
    resources.mirror("m", {"include": ["*"]})  # the operator says what it waits for
    # A policy with which an earlier version has left its finalizer.
    resources.patch("offsetresetpolicies", "direct", {"metadata": {"finalizers": [FINALIZER]}})
    until(lambda: not resources.get_policy("direct")["metadata"].get("finalizers"), "its finalizer is taken off")

    # A run as SparkApplication, whose driver fails, and which is then deleted.
    resources.reset("spark", group, {"offset": 6}, engine="Spark", topics=[topic])
    application = _driver(resources, client, "spark")
    core.patch_namespaced_pod_status(f"{application}-driver", namespace, {"status": {"phase": "Failed"}})
    _driver(resources, client, "spark", "-2")
    resources.delete_reset("spark")
    until(lambda: resources.get("offsetresets", "spark") is None, "the run is put back")


def _driver(resources: Resources, client: kube.ApiClient, reset: str, end: str = "-1") -> str:
    """The name of its SparkApplication, once there is one, which then has a driver."""
    application: str = until(lambda: _application(resources, client, reset, end), "a SparkApplication")
    driver = {"containers": [{"name": "spark-kubernetes-driver", "image": "spark"}]}
    metadata = {"name": f"{application}-driver", "labels": {APP_NAME_LABEL: application}}
    pod = {"metadata": metadata, "spec": driver}
    resources.core.create_namespaced_pod(resources.namespace, pod)
    return application


def _application(resources: Resources, client: kube.ApiClient, reset: str, end: str) -> str:
    """Its name where it is on the API server: the status names it before the operator applies it."""
    name: str = resources.get_reset(reset).get("status", {}).get("application") or ""
    if not name.endswith(end):
        return ""
    try:
        kube.CustomObjectsApi(client).get_namespaced_custom_object(GROUP, VERSION, resources.namespace, PLURAL, name)
    except kube.ApiException as error:
        if error.status == 404:
            return ""
        raise
    return name


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
