"""What a person may do with each ClusterRole of the chart, view, edit and admin, and with none; asked of an API server.

Adding them to Kubernetes' own roles (`rbac.aggregateTo`) is the controller manager's work, of which there is none here:
that the labels ask for it is tests/chart/test_chart_rights.py's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes import client as kube

from chart.rendering import kubectl, of_kind, render
from devstack import ApiServer
from support.rights import VERBS, Right, allowed, every_right, refusal

ROLES: Final = ("view", "edit", "admin")
KINDS: Final = (
    "kafkaconnections",
    "consumergrouppauses",
    "offsetresetpolicies",
    "offsetresets",
    "offsetresetapprovals",
    "offsetbackups",
    "offsetmirrors",
)
READ: Final = {"get", "list", "watch"}
WRITE: Final = set(VERBS) - READ
EDITED: Final = {"consumergrouppauses", "offsetresetpolicies", "offsetresets", "offsetbackups", "offsetmirrors"}
APPROVED: Final = WRITE - {"update", "patch"}

MAY: Final[dict[str, set[tuple[str, str]]]] = {
    "nobody": set(),
    "view": {(verb, kind) for verb in READ for kind in KINDS},
}
MAY["edit"] = MAY["view"] | {(verb, kind) for verb in WRITE for kind in EDITED}
MAY["admin"] = MAY["edit"] | {(verb, "offsetresetapprovals") for verb in APPROVED}

OTHERS: Final = (
    ("", "configmaps"),
    ("", "secrets"),
    ("", "pods"),
    ("", "pods/eviction"),
    ("", "pods/exec"),
    ("", "serviceaccounts/token"),
    ("apps", "deployments"),
    ("apps", "deployments/scale"),
    ("coordination.k8s.io", "leases"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("sparkoperator.k8s.io", "sparkapplications"),
)
"""What the operator and its jobs use, and what lends somebody else's rights: none of it comes with these roles."""


class Place:
    """Two namespaces; in the first, a service account for each role, called as the role is, and one with none."""

    def __init__(self, apiserver: ApiServer, admin: kube.ApiClient) -> None:
        release = f"people-{secrets.token_hex(4)}"
        self.client, self._apiserver = admin, apiserver
        self.own, self.other = f"{release}-own", f"{release}-other"
        rendered = render({"crds": {"enabled": False}, "fullnameOverride": release})
        self._roles = [m for m in of_kind(rendered, "ClusterRole") if m["metadata"]["name"].endswith(ROLES)]
        assert len(self._roles) == len(ROLES)
        self._core = kube.CoreV1Api(admin)
        self._objects = kube.CustomObjectsApi(admin)

    def install(self) -> None:
        kubectl("apply", self._roles, self._apiserver.kubeconfig)
        for namespace in (self.own, self.other):
            self._core.create_namespace({"metadata": {"name": namespace}})
        rbac = kube.RbacAuthorizationV1Api(self.client)
        for account in MAY:
            self._core.create_namespaced_service_account(self.own, {"metadata": {"name": account}})
        for role in self._roles:
            name = role["metadata"]["name"]
            account = name.rpartition("-")[2]
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            subject = {"kind": "ServiceAccount", "name": account, "namespace": self.own}
            binding = {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}
            rbac.create_namespaced_role_binding(self.own, binding)

    def remove(self) -> None:
        kubectl("delete", self._roles, self._apiserver.kubeconfig)
        for namespace in (self.own, self.other):
            self._core.delete_namespace(namespace)

    def create(self, person: str, plural: str, body: dict[str, Any], namespace: str = "") -> str:
        """Why that is forbidden, without doing it; empty where it is not."""
        at = ("tidegate.io", "v1alpha1", namespace or self.own, plural)
        options = {"_headers": {"Impersonate-User": f"system:serviceaccount:{self.own}:{person}"}, "dry_run": "All"}
        return refusal(lambda: self._objects.create_namespaced_custom_object(*at, body, **options))


@pytest.fixture(scope="module")
def place(apiserver: ApiServer, crds_installed: None, kube_client: kube.ApiClient) -> Iterator[Place]:
    made = Place(apiserver, kube_client)
    made.install()
    yield made
    made.remove()


@pytest.mark.parametrize("person", MAY)
def test_a_role_grants_what_is_its_own_in_the_namespace_where_it_is_bound(place: Place, person: str) -> None:
    ours = {right for right in every_right(place.client, [place.own, place.other]) if right.group == "tidegate.io"}
    others = {Right(place.own, verb, group, kind) for group, kind in OTHERS for verb in VERBS}
    assert {right.resource for right in ours} >= {*KINDS, *(f"{kind}/status" for kind in KINDS)}

    granted = allowed(place.client, person, place.own, ours | others)

    assert granted == {Right(place.own, verb, "tidegate.io", kind) for verb, kind in MAY[person]}


def resource(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": "mine"}, "spec": spec}


REQUESTS: Final = {
    "offsetresets": resource("OffsetReset", connectionRef={"name": "kafka"}, group="g", to={"earliest": {}}),
    "offsetresetapprovals": resource("OffsetResetApproval", reset="r", plan="a" * 64, approver="somebody"),
    "kafkaconnections": resource("KafkaConnection", bootstrapServers="kafka:9092"),
}


@pytest.mark.parametrize("person", MAY)
def test_what_a_role_does_not_grant_is_refused_when_it_is_tried(place: Place, person: str) -> None:
    for plural, body in REQUESTS.items():
        assert (place.create(person, plural, body) == "") == (("create", plural) in MAY[person]), plural
        assert place.create(person, plural, body, place.other), plural
