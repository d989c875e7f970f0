"""The chart's objects on an API server: what they grant, and what whoever has an account of theirs has asked for."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client as kube

from chart.rendering import SPARK, Manifest, environment, kubectl, of_kind, one, template
from devstack import ApiServer
from support.rights import Right, covers, refused_requests, rules_of, used_by_name

ADMISSION = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


class Installed:
    """The chart's objects, but for CRDs and what only a node would run. `served`: a namespace that it serves.

    `replicas`: how many processes play the pods of each Deployment.
    """

    def __init__(
        self,
        apiserver: ApiServer,
        client: kube.ApiClient,
        release: str,
        namespace: str,
        served: str,
        values: Mapping[str, Any],
        replicas: int = 1,
    ) -> None:
        self._apiserver, self._client, self._core = apiserver, client, kube.CoreV1Api(client)
        self.replicas = replicas
        self.namespace, self.served, self.name = namespace, served, f"{release}-tidegate"
        values = {
            **values,
            "metrics": {"service": False},
            "approval": {"admissionPolicy": "never"},  # the tests approve in the name of somebody else
        }
        text = template(values, SPARK, ADMISSION, release=release, namespace=namespace)
        self.manifests: list[Manifest] = [manifest for manifest in yaml.safe_load_all(text) if manifest]
        # The policies on jobs and restarts hold for the operator, too: they refuse nothing that it does.
        wanted = (*RIGHTS, *POLICIES, "Secret", "Deployment", "MutatingWebhookConfiguration")
        kubectl("apply", list(of_kind(self.manifests, *wanted)), self._apiserver.kubeconfig)

    def remove(self) -> None:
        unbounded = (*POLICIES, "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration")
        kubectl("delete", list(of_kind(self.manifests, *unbounded)), self._apiserver.kubeconfig)

    @property
    def deployments(self) -> list[str]:
        """One for each shard."""
        return sorted(manifest["metadata"]["name"] for manifest in of_kind(self.manifests, "Deployment"))

    @property
    def accounts(self) -> set[str]:
        """All ServiceAccounts that the chart makes."""
        return {manifest["metadata"]["name"] for manifest in of_kind(self.manifests, "ServiceAccount")}

    @property
    def account(self) -> str:
        """The operator's."""
        pod = one(self.manifests, "Deployment", self.deployments[0])["spec"]["template"]["spec"]
        name: str = pod["serviceAccountName"]
        return name

    def told(self, deployment: str, folder: Path) -> dict[str, str]:
        """The environment of its pods, on addresses that are free here."""
        values = environment(self.manifests, deployment)
        addresses = {name: "127.0.0.1:0" for name in values if name.endswith("_ADDRESS")}
        own = {"TIDEGATE_NAMESPACE": self.namespace, "TIDEGATE_RUNTIME_DIRECTORY": str(folder / "files")}
        return {**values, **addresses, **own}

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
        """What the roles on the API server allow a ServiceAccount."""
        return rules_of(self._client, account, self.namespace)

    def used(self, account: str) -> set[Right]:
        """What it has asked for and was not refused, with the objects' names."""
        return used_by_name(self._apiserver.audit_log, account, self.namespace)

    def refused(self, account: str) -> list[Right]:
        """What it has asked for and was forbidden, but for namespaces in which other tests have left something."""
        places = ("*", self.namespace, self.served)
        refused = refused_requests(self._apiserver.audit_log, account, self.namespace)
        return [right for right in refused if right.namespace in places]

    def unused(self, account: str) -> set[Right]:
        """Of what is granted."""
        uses = self.used(account)
        return {right for right in self.granted(account) if not any(covers(right, use) for use in uses)}
