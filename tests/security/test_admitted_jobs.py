"""What the chart's admission policies on rights refuse: evictions by proxy, images, accounts and volumes of jobs.

On a real API server. Whoever acts is impersonated, with the rights that such an account has.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml
from kubernetes import client as kube

from chart.rendering import SPARK, environment, kubectl, of_kind, template
from devstack import ApiServer
from support.operator_process import until
from support.rights import refusal
from tidegate.jobs.application import render
from tidegate.jobs.runner import Launch
from tidegate.jobs.settings import SparkSettings

SERVED: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
ALLOWED: Final = "registry.example/team/spark:1"
PLURALS: Final = {
    "OffsetResetPolicy": "offsetresetpolicies",
    "OffsetReset": "offsetresets",
    "OffsetBackup": "offsetbackups",
    "SparkApplication": "sparkapplications",
}
Body = dict[str, Any]


class Stage:
    """A namespace with the chart's policies on rights, and people and accounts who may do what is named."""

    def __init__(self, apiserver: ApiServer, admin: kube.ApiClient, name: str, spark: Body | None = None) -> None:
        self.namespace, self._apiserver = name, apiserver
        self._objects = kube.CustomObjectsApi(admin)
        self._core, self._rbac = kube.CoreV1Api(admin), kube.RbacAuthorizationV1Api(admin)
        values: Body = {
            "watchNamespaces": [name],
            "fullnameOverride": name[-30:].strip("-"),
            "spark": {"allowedImages": ["registry.example/team/*"], **(spark or {})},
        }
        rendered = [m for m in yaml.safe_load_all(template(values, SPARK, SERVED, namespace=name)) if m]
        self.settings = SparkSettings.from_environment(environment(rendered, values["fullnameOverride"]))
        self._policies = [
            m
            for m in of_kind(rendered, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
            if not m["metadata"]["name"].endswith(("-approver", "-requester"))
        ]
        assert len(self._policies) == 8
        self.operator = self._account(values["fullnameOverride"])
        self.driver = self._account(self.settings.service_account)

    def install(self) -> None:
        self._core.create_namespace({"metadata": {"name": self.namespace}})
        kubectl("apply", self._policies, self._apiserver.kubeconfig)
        writes = ["offsetresetpolicies", "offsetresets", "offsetbackups"]
        self.grant("author", "tidegate.io", writes, ["create", "update", "patch", "get"])
        self.grant("evictor", "tidegate.io", writes, ["create", "update", "patch", "get"])
        self.grant("evictor", "", ["pods/eviction"], ["create"])
        self.grant(self.operator, "tidegate.io", writes, ["create", "update", "patch", "get"])
        self.grant(self.operator, "sparkoperator.k8s.io", ["sparkapplications"], ["create", "patch"])
        self.grant("author", "sparkoperator.k8s.io", ["sparkapplications"], ["create", "patch"])
        self.grant(self.driver, "", ["pods"], ["create"])
        self.grant("author", "", ["pods"], ["create"])

    def remove(self) -> None:
        kubectl("delete", self._policies, self._apiserver.kubeconfig)
        self._core.delete_namespace(self.namespace)

    def grant(self, user: str, group: str, resources: list[str], verbs: list[str]) -> None:
        name = f"{user.rpartition(':')[2]}-{resources[0].replace('/', '-')}"
        rule = {"apiGroups": [group], "resources": resources, "verbs": verbs}
        self._rbac.create_namespaced_role(self.namespace, {"metadata": {"name": name}, "rules": [rule]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        self._rbac.create_namespaced_role_binding(self.namespace, binding)

    def create(self, user: str, body: Body, *, dry_run: bool = True) -> str:
        """Why it is forbidden; empty where it is not."""
        options: Body = {"_headers": {"Impersonate-User": user}, **({"dry_run": "All"} if dry_run else {})}
        if body["kind"] == "Pod":
            return refusal(lambda: self._core.create_namespaced_pod(self.namespace, body, **options))
        group, _, version = body["apiVersion"].partition("/")
        at = (group, version, self.namespace, PLURALS[body["kind"]])
        return refusal(lambda: self._objects.create_namespaced_custom_object(*at, body, **options))

    def change(self, user: str, name: str, change: Body) -> str:
        """The same, of a policy."""
        options = {"_headers": {"Impersonate-User": user}, "_content_type": "application/merge-patch+json"}
        at = ("tidegate.io", "v1alpha1", self.namespace, "offsetresetpolicies", name)
        return refusal(lambda: self._objects.patch_namespaced_custom_object(*at, change, dry_run="All", **options))

    def _account(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{name}"


@pytest.fixture(scope="module")
def stage(apiserver: ApiServer, crds_installed: None, kube_client: kube.ApiClient) -> Iterator[Stage]:
    made = Stage(apiserver, kube_client, f"admitted-{secrets.token_hex(4)}")
    made.install()
    try:
        # The last of them to be applied: those before are enforced no later than soon after.
        until(lambda: made.create(made.driver, pod(serviceAccountName="default")), "the policy on pods is enforced")
        until(lambda: made.create(made.operator, application(made, image="evil")), "that on applications is")
        until(lambda: made.create("author", policy(spark={"image": "evil"})), "that on images is")
        until(lambda: made.create("author", policy(consumers=RESTART)), "that on restarts is")
        yield made
    finally:
        made.remove()


RESTART: Final[Body] = {"selector": {"matchLabels": {"app": "a"}}, "rollout": "Restart"}
WHEN_NEXT: Final[Body] = {**RESTART, "rollout": "WhenNext"}
BY_DEFAULT: Final[Body] = {"selector": {"matchLabels": {"app": "a"}}}


def policy(name: str = "mine", **spec: Any) -> Body:
    smallest = {"connectionRef": {"name": "kafka"}, "group": "g", "latest": {"maxAge": "1h"}}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetResetPolicy",
        "metadata": {"name": name},
        "spec": {**smallest, **spec},
    }


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [RESTART, BY_DEFAULT], ids=["said", "by default"])
def test_only_who_may_evict_pods_has_the_operator_evict_them(stage: Stage, consumers: Body) -> None:
    refused = stage.create("author", policy(consumers=consumers))

    assert "spec.consumers.rollout Restart evicts pods, which author may not (create on pods/eviction)" in refused
    assert not stage.create("evictor", policy(consumers=consumers))
    assert not stage.create("author", policy(consumers=WHEN_NEXT))
    assert not stage.create("author", policy())


def test_a_policy_that_restarts_pods_is_changed_by_who_may_evict_them(stage: Stage) -> None:
    assert not stage.create("evictor", policy("restarting", consumers=RESTART), dry_run=False)

    # Another setting, too, is rolled out by evictions.
    for change in ({"latest": {"maxAge": "2h"}}, {"consumers": {"selector": {"matchLabels": {"app": "other"}}}}):
        assert "evicts pods" in stage.change("author", "restarting", {"spec": change})
        assert not stage.change("evictor", "restarting", {"spec": change})
    # What evicts nothing is left to anybody.
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert not stage.change("author", "restarting", labelled)
    calmed = {"spec": {"consumers": {"rollout": "WhenNext"}}}
    assert not stage.change("author", "restarting", calmed)


# --- images -----------------------------------------------------------------------------------------------------------


def _with_image(kind: str, image: str) -> Body:
    specs: dict[str, Body] = {
        "OffsetResetPolicy": {"group": "g"},
        "OffsetReset": {"group": "g", "to": {"earliest": {}}},
        "OffsetBackup": {"schedule": "1h", "storage": {"folder": {"path": "offsets"}}},
    }
    spec = {"connectionRef": {"name": "kafka"}, "spark": {"image": image}, **specs[kind]}
    return {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": "mine"}, "spec": spec}


@pytest.mark.parametrize("kind", ["OffsetResetPolicy", "OffsetReset", "OffsetBackup"])
def test_an_image_is_named_only_where_the_chart_allows_it(stage: Stage, kind: str) -> None:
    for evil in ("evil", "registry.example/teams/spark:1", "registry.example.evil/team/spark:1"):
        assert f"spec.spark.image: {evil} is not allowed" in stage.create("author", _with_image(kind, evil))
    for good in (ALLOWED, stage.settings.image):
        assert not stage.create("author", _with_image(kind, good))


# --- SparkApplications ------------------------------------------------------------------------------------------------


def application(stage: Stage, **change: Any) -> Body:
    """As the operator makes it, with this difference in its spec."""
    template_text = (stage.settings.templates / "sparkapplication.yaml").read_text()
    launch = Launch(
        "run-1",
        stage.namespace,
        f"configmap://{stage.namespace}/run",
        spark={"sparkConf": {"spark.sql.shuffle.partitions": "4", "spark.kubernetes.node.selector.pool": "batch"}},
        connection_secrets={"kafka": ("password",)},
        claims={"backups": True},
        reads_records=True,
    )
    made = render(template_text, launch, stage.settings)
    made["spec"] = {**made["spec"], **change}
    return made


def _changed(path: str, value: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        *folders, last = path.split("/")
        for folder in folders:
            body = body[int(folder)] if isinstance(body, list) else body[folder]
        body[last] = value

    return change


HOST: Final = {"name": "host", "hostPath": {"path": "/"}}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("image", "evil", "the image is neither"),
        ("driver/image", "evil", "have the application's image"),
        ("executor/template/spec/containers/0/image", "evil", "have the application's image"),
        ("driver/template/spec/initContainers", [{"name": "x", "image": "evil"}], "one container each"),
        ("driver/serviceAccount", "cluster-admin", "the accounts are those of"),
        ("executor/serviceAccount", "cluster-admin", "the accounts are those of"),
        ("executor/template/spec/serviceAccountName", "cluster-admin", "the accounts are those of"),
        ("driver/template/spec/volumes", [HOST], "volumes are Secrets, claims and emptyDir only"),
        ("executor/template/spec/volumes", [HOST], "volumes are Secrets, claims and emptyDir only"),
        ("volumes", [HOST], "volumes are Secrets, claims and emptyDir only"),
        ("driver/hostNetwork", True, "no part of the node is used"),
        ("driver/securityContext", {"privileged": True}, "no part of the node is used"),
        ("executor/securityContext", {"privileged": True}, "no part of the node is used"),
        ("driver/template/spec/hostPID", True, "no part of the node is used"),
        ("executor/template/spec/hostIPC", True, "no part of the node is used"),
        ("driver/template/spec/containers/0/securityContext", {"privileged": True}, "no part of the node is used"),
        ("mainApplicationFile", "https://evil.example/job.py", "only the image's own jobs are run"),
        ("deps", {"jars": ["https://evil.example/job.jar"]}, "only the image's own jobs are run"),
        ("deps", {"packages": ["evil:evil:1"]}, "only the image's own jobs are run"),
        ("driver/template/spec/containers/0/command", ["python3", "-c", "evil"], "only the image's own jobs are run"),
        ("executor/template/spec/containers/0/args", ["evil"], "only the image's own jobs are run"),
        (
            "driver/template/spec/containers/0/lifecycle",
            {"postStart": {"exec": {"command": ["python3", "-c", "evil"]}}},
            "only the image's own jobs are run",
        ),
        ("sparkConf", {"spark.jars": "https://evil.example/job.jar"}, "no setting of Spark names"),
        ("sparkConf", {"spark.jars.packages": "evil:evil:1"}, "no setting of Spark names"),
        ("sparkConf", {"spark.submit.pyFiles": "https://evil.example/job.py"}, "no setting of Spark names"),
        ("sparkConf", {"spark.kubernetes.executor.volumes.hostPath.a.mount.path": "/"}, "no setting of Spark names"),
        ("sparkConf", {"spark.kubernetes.authenticate.driver.serviceAccountName": "x"}, "no setting of Spark names"),
        ("sparkConf", {"spark.kubernetes.executor.container.image": "evil"}, "no setting of Spark names"),
    ],
)
def test_the_operators_right_to_start_jobs_starts_nothing_else(stage: Stage, path: str, value: Any, said: str) -> None:
    body = copy.deepcopy(application(stage))
    _changed(f"spec/{path}", value)(body)

    assert said in stage.create(stage.operator, body)


def test_jobs_as_the_operator_makes_them_are_let_through_and_others_applications_are_theirs(stage: Stage) -> None:
    assert not stage.create(stage.operator, application(stage))
    assert not stage.create(stage.operator, application(stage, image=ALLOWED))
    # As the Spark operator's own webhook completes it.
    assert not stage.create(stage.operator, application(stage, deps={}))
    assert not stage.create("author", application(stage, image="mine"))


# --- pods -------------------------------------------------------------------------------------------------------------


def test_pods_that_others_start_by_an_account_of_ones_own_are_theirs(
    apiserver: ApiServer, crds_installed: None, kube_client: kube.ApiClient
) -> None:
    name = f"shared-{secrets.token_hex(4)}"
    made = Stage(apiserver, kube_client, name, {"serviceAccount": {"create": False, "name": "spark"}})
    made.install()
    try:
        until(lambda: made.create(made.driver, pod(serviceAccountName="default")), "the policy on pods is enforced")
        others = pod(serviceAccountName="spark", volumes=[HOST])
        others["metadata"]["labels"] = {"spark-role": "executor"}
        assert not made.create(made.driver, others)
        assert "the volumes of a job's pods are" in made.create(
            made.driver, pod(serviceAccountName="spark", volumes=[HOST])
        )
    finally:
        made.remove()


def pod(**change: Any) -> Body:
    """An executor's, as Spark makes it."""
    container = {"name": "spark-kubernetes-executor", "image": "mirror.example/spark"}
    spec = {
        "containers": [container],
        "volumes": [
            {"name": "conf", "configMap": {"name": "spark-conf"}},
            {"name": "connection-0", "secret": {"secretName": "kafka"}},
            {"name": "local", "emptyDir": {}},
        ],
        "serviceAccountName": "tidegate-spark-executor",
    }
    metadata = {"name": "executor-1", "labels": {"tidegate.io/launch": "run-1"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **change}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"serviceAccountName": "cluster-admin"}, "a driver makes executors only"),
        ({"serviceAccountName": None}, "a driver makes executors only"),
        ({"volumes": [HOST]}, "the volumes of a job's pods are"),
        ({"volumes": [{"name": "x", "nfs": {"server": "evil", "path": "/"}}]}, "the volumes of a job's pods are"),
        ({"hostNetwork": True}, "a job's pods use no part of the node"),
        ({"hostPID": True}, "a job's pods use no part of the node"),
        ({"hostIPC": True}, "a job's pods use no part of the node"),
    ],
)
def test_a_drivers_right_to_create_pods_creates_executors_only(stage: Stage, change: Body, said: str) -> None:
    assert said in stage.create(stage.driver, pod(**change))


def test_a_driver_can_not_put_a_pod_where_no_network_policy_looks(stage: Stage) -> None:
    unlabelled = pod()
    unlabelled["metadata"]["labels"] = {"app": "x"}
    assert "have the label tidegate.io/launch" in stage.create(stage.driver, unlabelled)
    del unlabelled["metadata"]["labels"]
    assert "have the label tidegate.io/launch" in stage.create(stage.driver, unlabelled)


def test_executors_are_let_through_and_others_pods_are_theirs(stage: Stage) -> None:
    assert not stage.create(stage.driver, pod())
    # Of a job that an earlier version of Tidegate has started.
    assert not stage.create(stage.driver, pod(serviceAccountName="tidegate-spark"))
    assert not stage.create("author", pod(serviceAccountName="other", volumes=[HOST]))
    # Whoever makes it, a pod with a job's account has nothing of the node.
    assert "the volumes of a job's pods are" in stage.create("author", pod(volumes=[HOST]))
