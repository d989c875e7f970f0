"""Pods created through a real API server come by the operator's webhook; running ones are replaced by eviction."""

from __future__ import annotations

import base64
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import pytest
from confluent_kafka.admin import AdminClient
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from devstack.apiserver import WEBHOOK_CLIENT
from support.operator_process import Body, OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import Unique

SETTING = "tidegate.io/injected"
OWN_SECRET = "tidegate-webhook"


class Cluster:
    """One namespace, its webhook configuration, and what plays kubelet and controllers in it."""

    def __init__(self, client: kube.ApiClient, resources: Resources, configuration: str) -> None:
        self.resources, self.configuration = resources, configuration
        self.namespace = resources.namespace
        self.core, self.apps, self.policy = kube.CoreV1Api(client), kube.AppsV1Api(client), kube.PolicyV1Api(client)
        self.admission = kube.AdmissionregistrationV1Api(client)

    # --- the webhook --------------------------------------------------------------------------------------------------

    def configure(self, port: int, ca: bytes | None = None) -> None:
        """Have the API server ask at this port. Without `ca` the operator has to say whom to trust."""
        client_config: dict[str, Any] = {"url": f"https://127.0.0.1:{port}/mutate/pods"}
        if ca is not None:
            client_config["caBundle"] = base64.b64encode(ca).decode()
        self.admission.create_mutating_webhook_configuration(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": self.configuration},
                "webhooks": [
                    {
                        "name": "pods.tidegate.io",
                        "clientConfig": client_config,
                        "rules": [
                            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                        ],
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                        "admissionReviewVersions": ["v1"],
                        "sideEffects": "NoneOnDryRun",
                        "failurePolicy": "Ignore",
                        "reinvocationPolicy": "IfNeeded",
                        "timeoutSeconds": 5,
                    }
                ],
            }
        )

    def ca_bundle(self) -> bytes:
        found = self.admission.read_mutating_webhook_configuration(self.configuration)
        return base64.b64decode(found.webhooks[0].client_config.ca_bundle or "")

    def remove(self) -> None:
        try:
            self.admission.delete_mutating_webhook_configuration(self.configuration)
        except kube.exceptions.NotFoundException:
            return

    # --- pods ---------------------------------------------------------------------------------------------------------

    def pod(self, name: str, app: str, *, dry_run: bool = False, owner: Any = None, **given: Any) -> Any:
        """Create a pod with one container, `main`, labelled `app`; returns what the API server made of it."""
        labels, annotations = {"app": app, **given.pop("labels", {})}, given.pop("annotations", {})
        metadata: Body = {"name": name, "labels": labels, "annotations": annotations}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner.metadata.name,
                    "uid": owner.metadata.uid,
                    "controller": True,
                }
            ]
        spec = {"containers": [{"name": "main", "image": "none", **given.pop("container", {})}], **given}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return self.core.create_namespaced_pod(self.namespace, body, **({"dry_run": "All"} if dry_run else {}))

    def injected_pod(self, name: str, app: str, **given: Any) -> Any:
        """Like `pod`, again and again as long as the API server has not heard of the webhook or the policy."""

        def attempt() -> Any:
            made = self.pod(name, app, dry_run=True, **given)
            return made if is_injected(made) else None

        until(attempt, f"a pod with app={app} is injected")
        return self.pod(name, app, **given)

    def replica_set(self, name: str, app: str, replicas: int) -> Any:
        template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
        return self.apps.create_namespaced_replica_set(self.namespace, body)

    def set_ready(self, name: str, ready: bool = True) -> None:
        condition = {"type": "Ready", "status": str(ready)}
        self.core.patch_namespaced_pod_status(
            name, self.namespace, {"status": {"phase": "Running", "conditions": [condition]}}
        )

    def pods_of(self, app: str) -> dict[str, Any]:
        found = self.core.list_namespaced_pod(self.namespace, label_selector=f"app={app}").items
        return {pod.metadata.name: pod for pod in found}


def is_injected(pod: Any) -> bool:
    return SETTING in (pod.metadata.annotations or {})


def env(pod: Any) -> dict[str, str]:
    return {variable.name: variable.value for variable in pod.spec.containers[0].env or ()}


def webhook_port(operator: OperatorProcess) -> int:
    found = re.findall(r"webhook on port (\d+)", operator.log.read_text())
    return int(found[-1])


def own_certificates(namespace: str, configuration: str, port: int = 0) -> dict[str, str]:
    return {
        "TIDEGATE_WEBHOOK_ADDRESS": f"127.0.0.1:{port}",
        "TIDEGATE_WEBHOOK_SECRET": OWN_SECRET,
        "TIDEGATE_WEBHOOK_SERVICE": "tidegate-webhook",
        "TIDEGATE_WEBHOOK_CONFIGURATION": configuration,
        "TIDEGATE_NAMESPACE": namespace,
        "TIDEGATE_AGENT_IMAGE": "registry.example.com/tidegate-agent:1",
    }


def api_server_only(apiserver: ApiServer) -> dict[str, str]:
    """Have nobody but our own API server call; somebody else's may not show a certificate."""
    if apiserver.attached:
        return {}
    ca = apiserver.webhook_client_authority.certificate
    return {"TIDEGATE_WEBHOOK_CLIENT_CA": str(ca), "TIDEGATE_WEBHOOK_CLIENT_NAMES": WEBHOOK_CLIENT}


@dataclass(frozen=True)
class Running:
    cluster: Cluster
    operator: OperatorProcess


@pytest.fixture(scope="module")
def running(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    kafka: KafkaCluster,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    """An operator with certificates of its own, a ready connection `kafka`, and an API server that asks it."""
    name = f"injection-{secrets.token_hex(3)}"
    core = kube.CoreV1Api(kube_client)
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name)))
    resources = Resources(kube_client, name)
    cluster = Cluster(kube_client, resources, name)
    environment = own_certificates(name, name) | api_server_only(apiserver)
    operator = OperatorProcess(apiserver.kubeconfig, name, tmp_path_factory.mktemp("operator"), environment)
    failed_before = request.session.testsfailed
    try:
        with operator:
            cluster.configure(webhook_port(operator))
            resources.connection("kafka", kafka.bootstrap)
            resources.wait_connection("kafka")
            until(cluster.ca_bundle, "the API server is told whom to trust")
            yield Running(cluster, operator)
    finally:
        cluster.remove()
        if request.session.testsfailed > failed_before:
            print(f"--- {operator.log}\n{operator.tail(200)}")
        resources.clear()
        core.delete_namespace(name)


def consumers(app: str, **more: Any) -> Body:
    return {"selector": {"matchLabels": {"app": app}}, **more}


# --- one pod ----------------------------------------------------------------------------------------------------------


def test_a_selected_pod_is_injected_and_others_are_as_they_were(running: Running, unique: Unique) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", latest={"maxAge": "1h"}, consumers=consumers(app))

    pod = cluster.injected_pod(
        app, app, container={"env": [{"name": "PYTHONPATH", "value": "/app"}, {"name": "TIDEGATE_GROUP", "value": "x"}]}
    )

    assert env(pod) == {
        "PYTHONPATH": "/tidegate/python:/app",
        "TIDEGATE_GROUP": "x",
        "TIDEGATE_AGENT": "1",
        "TIDEGATE_CONTROL_TOPIC": "__tidegate",
        "TIDEGATE_LATEST_MAX_AGE": "3600000",
    }
    assert [c.image for c in pod.spec.init_containers] == ["registry.example.com/tidegate-agent:1"]
    assert {"tidegate-agent"} == {v.name for v in pod.spec.volumes if v.empty_dir}
    for other in (
        cluster.pod(unique("out"), app, labels={"tidegate.io/inject": "false"}),
        cluster.pod(unique("else"), "somebody-else"),
    ):
        assert not is_injected(other)
        assert other.spec.init_containers is None
    by_label = cluster.pod(unique("label"), "somebody-else", labels={"tidegate.io/inject": "python"})
    assert env(by_label)["TIDEGATE_CONTROL_TOPIC"] == "__tidegate"
    assert running.operator.metric("tidegate_webhook_admissions_total", outcome="Injected") >= 2


JAVA_AGENT = "-javaagent:/tidegate/java/tidegate-agent.jar"


def test_pods_of_java_consumers_get_the_agent_after_what_their_jvm_loads_already(
    running: Running, unique: Unique
) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", latest={"maxAge": "1h"}, consumers=consumers(app, format="Java"))
    elsewhere = {"configMapKeyRef": {"name": "jvm", "key": "options"}}

    pod = cluster.injected_pod(
        app, app, container={"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-javaagent:/otel/agent.jar"}]}
    )
    from_elsewhere = cluster.pod(
        unique("elsewhere"), app, container={"env": [{"name": "JAVA_TOOL_OPTIONS", "valueFrom": elsewhere}]}
    )
    either = cluster.pod(unique("auto"), "somebody-else", labels={"tidegate.io/inject": "auto"})

    assert env(pod) == {
        "JAVA_TOOL_OPTIONS": f"-javaagent:/otel/agent.jar {JAVA_AGENT}",
        "TIDEGATE_AGENT": "1",
        "TIDEGATE_CONTROL_TOPIC": "__tidegate",
        "TIDEGATE_GROUP": "payments",
        "TIDEGATE_LATEST_MAX_AGE": "3600000",
    }
    assert pod.spec.init_containers[0].command == ["/opt/tidegate/agent/install", "/tidegate", "java"]
    assert from_elsewhere.spec.containers[0].env[0].value_from.config_map_key_ref.key == "options"
    assert env(from_elsewhere)["JAVA_TOOL_OPTIONS"] == f"$(TIDEGATE_JAVA_TOOL_OPTIONS) {JAVA_AGENT}"
    assert env(either)["JAVA_TOOL_OPTIONS"] == JAVA_AGENT
    assert env(either)["PYTHONPATH"] == "/tidegate/python"
    # A changed policy has its pods looked at now, not in a minute.
    cluster.resources.patch_policy(app, consumers={"rollout": "WhenNext"})
    versions = [{"image": "registry.example.com/tidegate-agent:1", "pods": 2}]
    until(
        lambda: (cluster.resources.get_policy(app)["status"].get("injection") or {}).get("versions") == versions,
        "the status has the agent's version in both pods",
    )


def test_the_topics_that_an_injected_pod_obeys_are_made_for_it(
    running: Running, kafka: KafkaCluster, unique: Unique
) -> None:
    cluster, app, control = running.cluster, unique(), unique("control")
    cluster.resources.connection(app, kafka.bootstrap, controlTopic={"name": control})
    try:
        cluster.resources.wait_connection(app)
        cluster.resources.policy(app, "payments", connectionRef={"name": app}, consumers=consumers(app))
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

        def topics() -> set[str]:
            return {name for name in admin.list_topics(timeout=10).topics if name.startswith(control)}

        until(lambda: is_injected(cluster.pod(app, app, dry_run=True)), "the policy counts")
        assert topics() == set()

        cluster.pod(app, app)

        until(lambda: topics() == {control, f"{control}_acks"}, "control and ack topic are there", timeout_s=90)
    finally:
        cluster.resources.delete_policy(app)
        cluster.resources.delete_connection(app)


def test_a_refused_pod_is_created_and_the_refusal_told_where_people_look(running: Running, unique: Unique) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", consumers=consumers(app))
    cluster.injected_pod(unique("first"), app)
    owner = cluster.replica_set(unique("owner"), app, 0)
    refused = {
        "container": {"volumeMounts": [{"name": "t", "mountPath": "/tidegate"}]},
        "volumes": [{"name": "t", "emptyDir": {}}],
    }

    assert not is_injected(cluster.pod(unique("dry"), app, dry_run=True, owner=owner, **refused))
    pod = cluster.pod(unique("refused"), app, owner=owner, **refused)

    assert not is_injected(pod)
    (told,) = until(lambda: cluster.resources.events(owner.metadata.name), "an Event about the ReplicaSet")
    assert told[0] == "InjectionRefused"
    assert "/tidegate" in told[1]
    until(lambda: "InjectionRefused" in dict(cluster.resources.events(app)), "an Event about the policy")


def test_a_limit_range_takes_an_injected_pod(running: Running, unique: Unique) -> None:
    """Else a ReplicaSet could make no pods any more."""
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", consumers=consumers(app))
    limit = {"type": "Container", "min": {"memory": "100Mi"}, "maxLimitRequestRatio": {"cpu": "2"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": app}, "spec": {"limits": [limit]}}
    cluster.core.create_namespaced_limit_range(cluster.namespace, body)

    def is_refused() -> bool:
        small = {"resources": {"requests": {"memory": "1Mi"}}}
        try:
            cluster.pod(unique("small"), "somebody-else", dry_run=True, container=small)
        except kube.exceptions.ForbiddenException:
            return True
        return False

    try:
        until(is_refused, "the LimitRange counts")
        given = {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "256Mi"}}
        assert is_injected(cluster.injected_pod(app, app, container={"resources": given}))
    finally:
        cluster.core.delete_namespaced_limit_range(app, cluster.namespace)


def test_restricted_namespaces_take_an_injected_pod(
    running: Running, kube_client: kube.ApiClient, unique: Unique
) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", consumers=consumers(app))
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.core.patch_namespace(cluster.namespace, enforced)
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    try:
        assert is_injected(cluster.injected_pod(app, app, container={"securityContext": restricted}))
    finally:
        enforced["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": None}  # type: ignore[dict-item]
        cluster.core.patch_namespace(cluster.namespace, enforced)


def test_only_the_api_server_is_answered(running: Running, apiserver: ApiServer, unique: Unique) -> None:
    """It shows its certificate, as its AdmissionConfiguration says; who can read that CA, or has none, does not."""
    if apiserver.attached:
        pytest.skip("whether somebody else's API server shows a certificate is not known")
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", consumers=consumers(app))
    assert is_injected(cluster.injected_pod(app, app))

    assert is_unanswered(webhook_port(running.operator), cluster.ca_bundle())


def is_unanswered(port: int, ca: bytes) -> bool:
    """Whether a caller without a certificate gets nothing, not even what it did wrong."""
    context = ssl.create_default_context(cadata=ca.decode())
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(b"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            # The refusal is an alert of TLS, which only a read shows.
            return secured.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


# --- certificates -----------------------------------------------------------------------------------------------------


def test_certificates_are_made_anew_under_load_and_pods_go_on_being_injected(running: Running, unique: Unique) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, "payments", consumers=consumers(app))
    cluster.injected_pod(unique("first"), app)
    before = cluster.ca_bundle()
    created: list[bool] = []
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            created.append(is_injected(cluster.pod(f"{app[:40]}-{len(created)}", app, dry_run=True)))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        cluster.core.delete_namespaced_secret(OWN_SECRET, cluster.namespace)
        until(lambda: cluster.ca_bundle() not in (b"", before), "another CA is told")
        count = len(created)
        until(lambda: len(created) > count + 10 and all(created[-5:]), "pods are injected after it")
    finally:
        done.set()
        thread.join()
    secret = cluster.core.read_namespaced_secret(OWN_SECRET, cluster.namespace)
    assert base64.b64decode(secret.data["ca.crt"]) == cluster.ca_bundle()


# --- rollout ----------------------------------------------------------------------------------------------------------


class Controller:
    """Plays a ReplicaSet's controller, and the kubelet of its pods: a missing pod is made, and becomes ready."""

    def __init__(self, cluster: Cluster, app: str, replicas: int) -> None:
        self._cluster, self.app = cluster, app
        self.replica_set = cluster.replica_set(app, app, replicas)
        self._replicas, self._numbers = replicas, iter(range(10_000))
        self.fewest, self._begun = replicas, False
        self.ready = True
        self.labels: dict[str, str] = {}
        self._ended, self._thread = threading.Event(), threading.Thread(target=self._run)

    def step(self) -> None:
        pods = self._cluster.pods_of(self.app)
        if self._begun:
            self.fewest = min(self.fewest, len(pods))
        self._begun = True
        for _ in range(self._replicas - len(pods)):
            name = f"{self.app[:50]}-{next(self._numbers)}"
            self._cluster.pod(name, self.app, owner=self.replica_set, labels=self.labels)
            if self.ready:
                self._cluster.set_ready(name)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self.step()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def injected_condition(cluster: Cluster, policy: str) -> tuple[str, str]:
    found = condition_of(cluster.resources.get_policy(policy), "Injected")
    return found.get("status", ""), found.get("reason", "")


def wait_injected(cluster: Cluster, policy: str, status: str, reason: str) -> Body:
    try:
        until(lambda: injected_condition(cluster, policy) == (status, reason), f"Injected is {status} for {reason}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {cluster.resources.get_policy(policy).get('status')}") from None
    found: Body = cluster.resources.get_policy(policy)["status"]["injection"]
    return found


def test_running_pods_are_replaced_one_by_one_once_per_setting(running: Running, unique: Unique) -> None:
    cluster, app = running.cluster, unique()
    controller = Controller(cluster, app, 3)
    controller.step()
    first = set(cluster.pods_of(app))
    template = controller.replica_set.metadata.generation

    with controller:
        cluster.resources.policy(app, app, consumers=consumers(app))
        told = wait_injected(cluster, app, "True", "Injected")
        second = cluster.pods_of(app)
        assert (told["pods"], told["injected"], told["stale"]) == (3, 3, 0)
        assert first.isdisjoint(second)
        assert all(is_injected(pod) for pod in second.values())
        assert controller.fewest == 2
        cluster.resources.patch_policy(app, latest={"maxAge": "1h"})
        until(
            lambda: all(env(p).get("TIDEGATE_LATEST_MAX_AGE") for p in cluster.pods_of(app).values()), "the new setting"
        )
        told = wait_injected(cluster, app, "True", "Injected")
        third = set(cluster.pods_of(app))
        cluster.resources.patch_policy(app, consumers={"rollout": "WhenNext"}, latest={"maxAge": "2h"})
        wait_injected(cluster, app, "False", "WaitingForPods")

    assert third.isdisjoint(second)
    assert set(cluster.pods_of(app)) == third
    assert controller.fewest == 2
    owner = cluster.apps.read_namespaced_replica_set(app, cluster.namespace)
    assert owner.metadata.generation == template
    assert [reason for reason, _ in cluster.resources.events(app)].count("RollingOut") == 2


def test_a_rollout_waits_for_readiness_and_for_the_disruption_budget_and_survives_the_operator(
    running: Running, unique: Unique
) -> None:
    cluster, app = running.cluster, unique()
    controller = Controller(cluster, app, 2)
    controller.step()
    first = set(cluster.pods_of(app))
    selector = {"matchLabels": {"app": app}}
    budget = {"metadata": {"name": app}, "spec": {"maxUnavailable": 1, "selector": selector}}
    made = cluster.policy.create_namespaced_pod_disruption_budget(cluster.namespace, budget)

    def allow(disruptions: int) -> None:
        status = {
            "observedGeneration": made.metadata.generation,
            "disruptionsAllowed": disruptions,
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 2,
        }
        cluster.policy.patch_namespaced_pod_disruption_budget_status(app, cluster.namespace, {"status": status})

    controller.ready = False
    with controller:
        cluster.resources.policy(app, app, consumers=consumers(app))
        until(lambda: running.operator.metric("tidegate_evictions_total", outcome="Budget"), "the budget says no")
        assert set(cluster.pods_of(app)) == first
        allow(1)
        until(lambda: any(map(is_injected, cluster.pods_of(app).values())), "one pod is replaced")
        assert len(first & set(cluster.pods_of(app))) == 1
        allow(1)
        port = webhook_port(running.operator)
        running.operator.kill()
        away = cluster.pod(unique("away"), "somebody-else", labels={"tidegate.io/inject": "python"})
        assert not is_injected(away)
        running.operator._environment["TIDEGATE_WEBHOOK_ADDRESS"] = f"127.0.0.1:{port}"
        running.operator.start()
        cluster.resources.wait_connection("kafka")
        (fresh,) = set(cluster.pods_of(app)) - first
        until(
            lambda: (
                f"pod {fresh} is not ready" in condition_of(cluster.resources.get_policy(app), "Injected")["message"]
            ),
            "it says what it waits for",
        )
        assert len(first & set(cluster.pods_of(app))) == 1
        controller.ready = True
        cluster.set_ready(fresh)
        wait_injected(cluster, app, "True", "Injected")

    assert first.isdisjoint(cluster.pods_of(app))


def test_an_eviction_that_brings_nothing_is_not_repeated_at_once_and_said(running: Running, unique: Unique) -> None:
    cluster, app = running.cluster, unique()
    cluster.resources.policy(app, app, consumers=consumers(app, rollout="WhenNext"))
    cluster.injected_pod(unique("probe"), app)
    cluster.core.delete_namespaced_pod(next(iter(cluster.pods_of(app))), cluster.namespace, grace_period_seconds=0)
    controller = Controller(cluster, app, 2)
    cluster.admission.patch_mutating_webhook_configuration(
        cluster.configuration,
        [{"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"no": "pod"}}}],
    )
    try:
        until(lambda: not is_injected(cluster.pod(unique("dry"), app, dry_run=True)), "the webhook is not asked")
        with controller:
            until(lambda: len(cluster.pods_of(app)) == 2, "two pods run")
            first = set(cluster.pods_of(app))
            cluster.resources.patch_policy(app, consumers={"rollout": "Restart"})
            told = wait_injected(cluster, app, "False", "NotInjected")
            assert told["futile"] == 1
            assert told["retryAt"]
            assert len(first & set(cluster.pods_of(app))) == 1
    finally:
        cluster.admission.patch_mutating_webhook_configuration(
            cluster.configuration, [{"op": "remove", "path": "/webhooks/0/objectSelector"}]
        )
    assert "NotInjected" in dict(cluster.resources.events(app))
