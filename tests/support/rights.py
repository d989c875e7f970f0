"""Who may do what in a cluster: as its rules say, and as its API server answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from kubernetes import client as kube
from kubernetes.client.exceptions import ApiException

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_SUBRESOURCE_VERBS: Final = ("get", "create", "update", "patch")


class Right(NamedTuple):
    """One verb on one kind of resource (``pods``, ``pods/log``); `name`: only on the object of this name."""

    namespace: str
    verb: str
    group: str
    resource: str
    name: str = ""


def served_resources(client: kube.ApiClient) -> list[tuple[str, str]]:
    """(API group, resource) of everything that the cluster serves, subresources and all, whatever the version."""
    found = {("", resource.name) for resource in kube.CoreV1Api(client).get_api_resources().resources}
    groups = kube.CustomObjectsApi(client)
    for group in kube.ApisApi(client).get_api_versions().groups:
        listed = groups.get_api_resources(group.name, group.preferred_version.version).resources
        found |= {(group.name, resource.name) for resource in listed}
    return sorted(found)


def every_right(client: kube.ApiClient, namespaces: Iterable[str]) -> Iterator[Right]:
    """All that could be asked for, in each of these namespaces."""
    resources = served_resources(client)
    for namespace in namespaces:
        for group, resource in resources:
            for verb in _SUBRESOURCE_VERBS if "/" in resource else VERBS:
                yield Right(namespace, verb, group, resource)


def rules_of(client: kube.ApiClient, account: str, account_namespace: str) -> set[Right]:
    """What the roles that are bound to a service account say; ``*`` as a namespace for a cluster-wide binding."""
    rbac = kube.RbacAuthorizationV1Api(client)

    def binds(binding: kube.V1RoleBinding | kube.V1ClusterRoleBinding) -> bool:
        return any(
            subject.kind == "ServiceAccount" and subject.name == account and subject.namespace == account_namespace
            for subject in binding.subjects or ()
        )

    found: set[Right] = set()
    for binding in rbac.list_cluster_role_binding().items:
        if binds(binding):
            found |= _rights("*", rbac.read_cluster_role(binding.role_ref.name).rules)
    for binding in rbac.list_role_binding_for_all_namespaces().items:
        if binds(binding):
            namespace, role = binding.metadata.namespace, binding.role_ref
            cluster = role.kind == "ClusterRole"
            read = rbac.read_cluster_role(role.name) if cluster else rbac.read_namespaced_role(role.name, namespace)
            found |= _rights(namespace, read.rules)
    return found


def _rights(namespace: str, rules: Iterable[kube.V1PolicyRule] | None) -> set[Right]:
    return {
        Right(namespace, verb, group, resource, name)
        for rule in rules or ()
        for verb in rule.verbs
        for group in rule.api_groups or ()
        for resource in rule.resources or ()
        for name in rule.resource_names or ("",)
    }


def allowed(client: kube.ApiClient, account: str, account_namespace: str, asked: Iterable[Right]) -> set[Right]:
    """Those of `asked` that the API server's authorizer grants (SubjectAccessReview)."""
    user = f"system:serviceaccount:{account_namespace}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account_namespace}", "system:authenticated"]
    reviews = kube.AuthorizationV1Api(client)

    def review(right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        spec = kube.V1SubjectAccessReviewSpec(
            user=user,
            groups=groups,
            resource_attributes=kube.V1ResourceAttributes(
                namespace=None if right.namespace == "*" else right.namespace,
                verb=right.verb,
                group=right.group,
                resource=resource,
                subresource=subresource or None,
                name=right.name or None,
            ),
        )
        answer = reviews.create_subject_access_review(kube.V1SubjectAccessReview(spec=spec))
        return bool(answer.status.allowed)

    rights = list(asked)
    with ThreadPoolExecutor(8) as pool:
        return {right for right, granted in zip(rights, pool.map(review, rights), strict=True) if granted}


def used(audit_log: Path, account: str, account_namespace: str) -> set[Right]:
    """What a service account asked for and was not refused, without objects' names; ``*`` for what has no namespace."""
    return {use._replace(name="") for use in used_by_name(audit_log, account, account_namespace)}


def used_by_name(audit_log: Path, account: str, account_namespace: str) -> set[Right]:
    """The same with the name of each object, where the request has one."""
    requests = _requests(audit_log, account, account_namespace)
    return {right for right, code in requests if code != HTTPStatus.FORBIDDEN}


def refused_requests(audit_log: Path, account: str, account_namespace: str) -> list[Right]:
    """What a service account asked for and was forbidden, with the names of the objects."""
    requests = _requests(audit_log, account, account_namespace)
    return [right for right, code in requests if code == HTTPStatus.FORBIDDEN]


def covers(right: Right, use: Right) -> bool:
    """Whether a request is one that this right is for; `use`: with the object's name."""
    return right[1:4] == use[1:4] and right.namespace in ("*", use.namespace) and right.name in ("", use.name)


def _requests(audit_log: Path, account: str, account_namespace: str) -> Iterator[tuple[Right, int | None]]:
    """Each request that is answered, with the HTTP status."""
    user = f"system:serviceaccount:{account_namespace}:{account}"
    with audit_log.open() as lines:
        for line in lines:
            # The last line may be on its way yet.
            if user not in line or not line.endswith("\n"):
                continue
            entry = json.loads(line)
            reference = entry.get("objectRef") or {}
            resource = "/".join(reference[part] for part in ("resource", "subresource") if reference.get(part))
            if entry["user"]["username"] == user and resource:
                right = Right(
                    reference.get("namespace", "*"),
                    entry["verb"],
                    reference.get("apiGroup", ""),
                    resource,
                    reference.get("name", ""),
                )
                yield right, entry.get("responseStatus", {}).get("code")


def refusal(act: Callable[[], object]) -> str:
    """Why the API server forbids it; empty where it does not."""
    try:
        act()
    except ApiException as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return str(json.loads(error.body)["message"])
    return ""
