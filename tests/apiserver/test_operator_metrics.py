"""Metrics in a pod: over TLS, for whoever the API server says may read them."""

import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from devstack.certificates import CertificateAuthority
from support.operator_process import Resources

AUDIENCE = "tidegate-metrics"


class Mounted:
    """A folder as a `kubernetes.io/tls` Secret is mounted; each certificate by an authority of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mounted"
        self.folder.mkdir()
        self._authorities = folder / "authorities"
        self.issue("first")

    def issue(self, authority: str) -> None:
        issuer = CertificateAuthority.create(self._authorities / authority)
        issued = issuer.issue("metrics", alternative_names="IP:127.0.0.1")
        (self.folder / "tls.key").write_bytes(issued.key.read_bytes())
        (self.folder / "tls.crt").write_bytes(issued.certificate.read_bytes())

    def trust(self, authority: str) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._authorities / authority / "ca.crt"))


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def test_metrics_are_read_over_tls_by_whoever_may_get_them(
    request: pytest.FixtureRequest,
    resources: Resources,
    start_operator: StartOperator,
    kube_client: kube.ApiClient,
    mounted: Mounted,
) -> None:
    token = _service_account(resources, "prometheus", AUDIENCE)
    stranger = _service_account(resources, "stranger", AUDIENCE)
    # What a pod has by itself, and what somebody else was shown.
    of_pod, of_others = _token(resources, "prometheus"), _token(resources, "prometheus", "vault")
    _let_read_metrics(kube_client, resources.namespace, "prometheus")
    request.addfinalizer(lambda: _forget_role(kube_client, resources.namespace))
    operator = start_operator(
        {
            "TIDEGATE_METRICS_ADDRESS": "127.0.0.1:0",
            "TIDEGATE_METRICS_AUTHENTICATION": "kubernetes",
            "TIDEGATE_METRICS_CERTIFICATES": str(mounted.folder),
            "TIDEGATE_METRICS_AUDIENCE": AUDIENCE,
        }
    )

    def read(bearer: str, path: str = "/metrics", authority: str = "first") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        asked = urllib.request.Request(f"https://127.0.0.1:{operator.metrics_port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=20, context=mounted.trust(authority)) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert read("")[0] == 401
    assert read("not-a-token")[0] == 401
    assert read(of_pod)[0] == 401
    assert read(of_others)[0] == 401
    assert read(stranger)[0] == 403
    status, text = read(token)
    assert status == 200
    assert "tidegate_unobserved_resources 0.0" in text
    assert read(token, "/healthz")[0] == 404
    assert operator.get("/healthz")[0] == 200
    assert operator.get("/metrics")[0] == 404

    # While somebody connects and says nothing.
    with socket.create_connection(("127.0.0.1", operator.metrics_port)):
        mounted.issue("second")
        assert read(token, authority="second")[0] == 200
    log = operator.log.read_text()
    assert token not in log
    assert stranger not in log


def _service_account(resources: Resources, name: str, audience: str) -> str:
    """Makes it; a token of it."""
    resources.core.create_namespaced_service_account(
        resources.namespace, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    )
    return _token(resources, name, audience)


def _token(resources: Resources, name: str, *audiences: str) -> str:
    """Without an audience: for the API server."""
    spec = {"expirationSeconds": 600, "audiences": audiences}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    granted = resources.core.create_namespaced_service_account_token(name, resources.namespace, request)
    token: str = granted.status.token
    return token


def _let_read_metrics(client: kube.ApiClient, namespace: str, service_account: str) -> None:
    """What a Prometheus is given; see docs/how-to/secure.md."""
    rbac = kube.RbacAuthorizationV1Api(client)
    metadata = {"name": f"{namespace}-metrics"}
    rbac.create_cluster_role(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }
    )
    rbac.create_cluster_role_binding(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
        }
    )


def _forget_role(client: kube.ApiClient, namespace: str) -> None:
    rbac = kube.RbacAuthorizationV1Api(client)
    rbac.delete_cluster_role_binding(f"{namespace}-metrics")
    rbac.delete_cluster_role(f"{namespace}-metrics")
