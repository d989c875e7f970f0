"""Which account may do what, in each mode of installation; and whom the pods may connect to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from chart.rendering import CHART, NAMESPACE, SPARK, Manifest, environment, helm, of_kind, one
from chart.rendering import render as render_all
from tidegate.jobs.settings import SparkSettings

NAMESPACED: Final[Mapping[str, Any]] = {"watchNamespaces": ["a", "b"]}
UNINSTALL: Final = "tidegate-uninstall"
POLICIES: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
PAIR: Final = {"update", "get"}


class Right(NamedTuple):
    """``namespace``: ``*`` for the whole cluster. ``name``: only on the object that is called so."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""


def render(values: Mapping[str, Any], *served: str) -> list[Manifest]:
    """Without CRDs, which take long to parse."""
    return render_all({"crds": {"enabled": False}, **values}, *served)


def _rights(manifests: list[Manifest], account: str) -> set[Right]:
    """Everything that is bound to a ServiceAccount."""
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]): role["rules"]
        for role in of_kind(manifests, "Role", "ClusterRole")
    }
    found: set[Right] = set()
    for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding"):
        if not any(subject["name"] == account for subject in binding["subjects"]):
            continue
        reference, namespace = binding["roleRef"], binding["metadata"].get("namespace")
        for rule in roles[reference["kind"], namespace, reference["name"]]:
            found |= {
                Right(verb, group, resource, namespace or "*", name)
                for verb in rule["verbs"]
                for group in rule.get("apiGroups", ("",))
                for resource in rule.get("resources", ())
                for name in rule.get("resourceNames", ("",))
            }
    return found


def _kinds(rights: set[Right], but: str = NAMESPACE) -> set[tuple[str, str, str]]:
    """Without where, and without those in the operator's own namespace."""
    return {right[:3] for right in rights if right.namespace != but}


def _secrets(rights: set[Right]) -> dict[str, set[str]]:
    """Where Secrets may be read that have not one certain name."""
    found: dict[str, set[str]] = {}
    for right in rights:
        if right.resource == "secrets" and not right.name:
            found.setdefault(right.namespace, set()).add(right.verb)
    return found


# --- the operator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "readable"),
    [
        ({}, {NAMESPACE}),
        ({"rbac": {"secrets": {"namespaces": ["a", "b"]}}}, {"a", "b"}),
        ({"rbac": {"secrets": {"clusterWide": True}}}, {"*"}),
        (NAMESPACED, {"a", "b"}),
        ({**NAMESPACED, "rbac": {"secrets": {"namespaces": ["b"]}}}, {"b"}),
    ],
)
@pytest.mark.parametrize("account", ["tidegate", UNINSTALL])
def test_secrets_are_read_where_that_is_said_and_nowhere_else(
    values: dict[str, Any], readable: set[str], account: str
) -> None:
    assert _secrets(_rights(render(values), account)) == {namespace: {"get"} for namespace in readable}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({**NAMESPACED, "rbac": {"secrets": {"clusterWide": True}}}, "leave watchNamespaces and rbac.secrets.names"),
        ({"rbac": {"secrets": {"clusterWide": True, "namespaces": ["a"]}}}, "leave watchNamespaces and rbac.secrets"),
        ({**NAMESPACED, "rbac": {"secrets": {"namespaces": ["c"]}}}, "has c, which watchNamespaces does not have"),
    ],
)
def test_contradictions_about_secrets_are_refused(values: dict[str, Any], complaint: str) -> None:
    done = helm("template", "tidegate", str(CHART), values=values)
    assert done.code != 0
    assert complaint in done.complaint


def test_the_notes_say_where_secrets_are_read() -> None:
    def notes(values: dict[str, Any]) -> str:
        return helm("install", "tidegate", str(CHART), "--dry-run=client", "--namespace=x", values=values).output

    assert "The operator reads Secrets only in x." in notes({})
    assert "add its namespace to\nrbac.secrets.namespaces" in notes({})
    assert "The operator reads Secrets only in a, b." in notes(dict(NAMESPACED))
    assert "WARNING: the operator may read every Secret of the cluster" in notes(
        {"rbac": {"secrets": {"clusterWide": True}}}
    )


SPARK_ONLY: Final = {
    *((verb, "sparkoperator.k8s.io", "sparkapplications") for verb in ("get", "create", "patch", "delete")),
    ("get", "", "pods"),
    ("delete", "", "pods"),
    ("get", "", "pods/log"),
}
INJECTION_ONLY: Final = {
    ("list", "", "pods"),
    ("create", "", "pods/eviction"),
    ("get", "apps", "replicasets"),
    ("get", "apps", "statefulsets"),
    ("get", "apps", "daemonsets"),
    ("get", "", "replicationcontrollers"),
    ("get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
}
SCALE_ONLY: Final = {
    *((verb, "apps", f"{kind}/scale") for kind in ("deployments", "statefulsets") for verb in ("get", "patch")),
    *((verb, "argoproj.io", "rollouts/scale") for verb in ("get", "patch")),
    *((verb, "keda.sh", "scaledobjects") for verb in ("list", "patch")),
}


@pytest.mark.parametrize(
    ("values", "less"),
    [
        ({}, set()),
        ({"rbac": {"secrets": {"namespaces": ["a"]}}}, set()),
        ({"rbac": {"secrets": {"clusterWide": True}}}, set()),
        ({**NAMESPACED, "shards": 3, "replicas": 2}, set()),
        ({**NAMESPACED, "spark": {"runner": "none"}}, SPARK_ONLY),
        ({**NAMESPACED, "webhook": {"enabled": False}}, INJECTION_ONLY),
        ({**NAMESPACED, "scale": {"enabled": False}}, SCALE_ONLY),
    ],
)
def test_each_mode_has_what_a_namespaced_installation_has_and_uses_or_less(
    values: dict[str, Any], less: set[tuple[str, str, str]]
) -> None:
    """By rendering alone; by the audit log in tests/apiserver/test_rights.py, of which most is nightly."""
    compared = _kinds(_rights(render(NAMESPACED, SPARK), "tidegate"))
    # Where the whole cluster is served, Secrets are read in the release's namespace.
    here = _kinds(_rights(render(values, SPARK), "tidegate"), but=NAMESPACE if values.get("watchNamespaces") else "")
    own = {("get", "", "secrets"), ("update", "", "secrets")} | {
        (verb, "coordination.k8s.io", "leases") for verb in ("get", "update", "create")
    }

    assert here - own == compared - less - own
    assert less <= compared


def test_rights_on_objects_of_a_name_are_on_no_others() -> None:
    named = {"mutatingwebhookconfigurations": "tidegate"}
    for values in ({}, NAMESPACED):
        rights = _rights(render(values, SPARK), "tidegate")
        for resource, name in named.items():
            assert {right.name for right in rights if right.resource == resource} == {name}
        assert {r.name for r in rights if r.resource == "secrets" and r.verb == "update"} == {"tidegate-webhook-tls"}
        assert {r.namespace for r in rights if r.resource == "leases"} == {NAMESPACE}


def test_with_certificates_of_others_nothing_of_the_cluster_is_written() -> None:
    by_others = {**NAMESPACED, "webhook": {"certManager": {"enabled": True}}}

    of_the_cluster = {right[:3] for right in _rights(render(by_others, SPARK), "tidegate") if right.namespace == "*"}

    assert of_the_cluster == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }


# --- uninstalling, jobs, people ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, NAMESPACED])
def test_uninstalling_may_do_nothing_that_the_operator_may_not_but_end_it(values: dict[str, Any]) -> None:
    manifests = render(values, SPARK)
    hook, operator = _rights(manifests, UNINSTALL), _rights(manifests, "tidegate")
    ending = {right for right in hook if right.namespace == NAMESPACE and right.resource != "secrets"}

    assert hook - ending <= operator
    assert {right[1:3] for right in ending} == {("apps", "deployments"), ("apps", "deployments/scale"), ("", "pods")}
    begins = {"watch"} | {right.verb for right in hook if right.resource in ("sparkapplications", "offsetresets")}
    assert begins & {"create", "watch"} == {"watch"}
    assert not {right for right in hook if right.verb == "watch" or right.resource == "pods/eviction"}


def test_a_driver_makes_pods_and_an_executor_changes_documents_and_looks_at_mirrors_only() -> None:
    manifests = render(NAMESPACED, SPARK)
    told = environment(manifests)
    driver, executor = told["TIDEGATE_SPARK_SERVICE_ACCOUNT"], told["TIDEGATE_SPARK_EXECUTOR_SERVICE_ACCOUNT"]

    assert ("create", "", "pods") in _kinds(_rights(manifests, driver))
    of_documents = {Right(verb, "", "configmaps", n) for verb in PAIR for n in ("a", "b")}
    of_mirrors = {Right("get", "tidegate.io", "offsetmirrors", n) for n in ("a", "b")}
    assert _rights(manifests, executor) == of_documents | of_mirrors
    assert _rights(manifests, driver) >= of_mirrors
    for name in (driver, executor):
        for account in (m for m in of_kind(manifests, "ServiceAccount") if m["metadata"]["name"] == name):
            assert account["automountServiceAccountToken"] is False
    without = render({**NAMESPACED, "spark": {"runner": "none"}}, SPARK)
    assert not _rights(without, driver)
    assert not _rights(without, executor)


def test_accounts_of_ones_own_are_used_as_they_are() -> None:
    own = {"spark": {"serviceAccount": {"create": False, "name": "mine"}}}
    settings = SparkSettings.from_environment(environment(render(own, SPARK)))
    assert (settings.service_account, settings.executor_service_account) == ("mine", "mine")
    both = {"spark": {"serviceAccount": {"create": False, "name": "mine", "executorName": "other"}}}
    settings = SparkSettings.from_environment(environment(render(both, SPARK)))
    assert settings.executor_service_account == "other"
    same = {"spark": {"serviceAccount": {"executorName": "tidegate-spark"}}}
    names = [m["metadata"]["name"] for m in of_kind(render(same, SPARK), "ServiceAccount")]
    assert names.count("tidegate-spark") == 1


def test_pods_of_an_account_of_ones_own_are_looked_at_only_where_tidegate_has_started_them() -> None:
    def looked_at(values: dict[str, Any]) -> list[str]:
        policies = of_kind(render({**NAMESPACED, **values}, SPARK, POLICIES), "ValidatingAdmissionPolicy")
        [found] = [policy for policy in policies if policy["metadata"]["name"].endswith("-job-pod")]
        return [condition["name"] for condition in found["spec"]["matchConditions"]]

    assert looked_at({}) == ["of-a-job"]
    # Drivers of other applications, whose executors have no label of Tidegate's, may share it.
    shared = {"spark": {"serviceAccount": {"create": False, "name": "spark"}}}
    assert looked_at(shared) == ["started-by-tidegate", "of-a-job"]


def test_people_see_change_and_approve_by_roles_of_which_only_seeing_is_given_away() -> None:
    def roles(values: dict[str, Any]) -> dict[str, Manifest]:
        manifests = render(values)
        return {end: one(manifests, "ClusterRole", f"tidegate-{end}") for end in ("view", "edit", "admin")}

    def aggregated(values: dict[str, Any]) -> set[str]:
        return {
            label.rpartition("-")[2]
            for role in roles(values).values()
            for label in role["metadata"]["labels"]
            if label.startswith("rbac.authorization.k8s.io/aggregate-to-")
        }

    assert aggregated({}) == {"view"}
    assert aggregated({"rbac": {"aggregateTo": []}}) == set()
    assert aggregated({"rbac": {"aggregateTo": ["view", "edit", "admin"]}}) == {"view", "edit", "admin"}
    writes = {
        end: {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if verb not in ("get", "list", "watch")
        }
        for end, role in roles({}).items()
    }
    assert writes["view"] == set()
    assert {resource for resource, _ in writes["edit"]} == {
        "consumergrouppauses",
        "offsetresetpolicies",
        "offsetresets",
        "offsetbackups",
        "offsetmirrors",
    }
    assert {resource for resource, _ in writes["admin"] - writes["edit"]} == {"offsetresetapprovals"}
    assert writes["edit"] < writes["admin"]
    assert not [each for each in writes["admin"] if "/" in each[0] or each[0] == "kafkaconnections"]
    assert not [m for m in of_kind(render({"rbac": {"create": False}}), "ClusterRole") if "edit" in str(m["metadata"])]


# --- whom pods may connect to -----------------------------------------------------------------------------------------

METADATA: Final = {
    "AWS, GCP, Azure, OpenStack, Oracle, DigitalOcean": "169.254.169.254",
    "AWS, tasks of ECS": "169.254.170.2",
    "AWS, identities of pods": "169.254.170.23",
    "AWS over IPv6": "fd00:ec2::254",
    "GCP over IPv6": "fd20:ce::254",
    "Alibaba": "100.100.100.200",
    "Azure's agent": "168.63.129.16",
    "the node, link-local": "fe80::1",
}


def _allows(rules: list[dict[str, Any]], address: str, port: int, *, of_a_pod: bool = False) -> bool:
    """As NetworkPolicyEgressRule has it: one rule is enough, and of it one peer and one port; none stand for all."""
    return any(_to(rule, address, of_a_pod=of_a_pod) and _by(rule, port) for rule in rules)


def _by(rule: dict[str, Any], port: int) -> bool:
    return not rule.get("ports") or any(each["port"] == port for each in rule["ports"])


def _to(rule: dict[str, Any], address: str, *, of_a_pod: bool) -> bool:
    def is_in(network: str) -> bool:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network)

    def matches(peer: dict[str, Any]) -> bool:
        if block := peer.get("ipBlock"):
            return is_in(block["cidr"]) and not any(map(is_in, block.get("except", ())))
        if peer.keys() == {"podSelector"}:
            return False  # some pods of its own namespace
        assert peer == {"namespaceSelector": {}}, "all pods"
        return of_a_pod

    return not rule.get("to") or any(map(matches, rule["to"]))


def _policies(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    manifests = render(values, SPARK)
    yield one(manifests, "NetworkPolicy", "tidegate")["spec"]
    yield one(manifests, "NetworkPolicy", "tidegate-hooks")["spec"]
    jobs = [m for m in of_kind(manifests, "NetworkPolicy") if m["metadata"]["name"] == "tidegate-jobs"]
    assert {policy["metadata"]["namespace"] for policy in jobs} == set(values.get("watchNamespaces", [NAMESPACE]))
    yield from (policy["spec"] for policy in jobs)


@pytest.mark.parametrize("address", METADATA.values(), ids=METADATA.keys())
@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaces"])
def test_nobody_connects_to_where_clouds_hand_out_credentials(values: dict[str, Any], address: str) -> None:
    for policy in _policies(values):
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
        assert not _allows(policy["egress"], address, 80)
        assert not _allows(policy["egress"], address, 9092)


def test_what_is_needed_can_be_reached() -> None:
    for policy in _policies({}):
        rules = policy["egress"]
        assert _allows(rules, "203.0.113.7", 9092), "a broker elsewhere"
        assert _allows(rules, "2001:db8::7", 9092)
        assert _allows(rules, "10.1.2.3", 9092, of_a_pod=True), "a broker in a pod, or an executor"
        assert _allows(rules, "169.254.20.10", 53), "a node's own DNS cache"
        assert _allows(rules, "10.0.0.1", 443), "the API server"
        assert _allows(rules, "192.168.1.1", 6443)


def test_egress_of_ones_own_takes_the_charts_place() -> None:
    own = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
    operator, hooks, jobs = _policies({"networkPolicy": {"egress": own}, "spark": {"networkPolicy": {"egress": own}}})
    assert operator["egress"] == hooks["egress"][1:] == jobs["egress"] == own
    off = render({"spark": {"networkPolicy": {"enabled": False}}}, SPARK)
    assert [m["metadata"]["name"] for m in of_kind(off, "NetworkPolicy")] == ["tidegate", "tidegate-hooks"]
    assert not list(of_kind(render({"networkPolicy": {"enabled": False}}), "NetworkPolicy"))


def test_what_uninstalls_and_tests_is_bounded_as_the_operator_is_and_nobody_connects_to_it() -> None:
    """It connects to whatever servers a KafkaConnection names, and where a namespace denies all by default to none."""
    manifests = render({})
    _, hooks, _ = _policies({})

    (component,) = hooks["podSelector"]["matchExpressions"]
    of_release = hooks["podSelector"]["matchLabels"]
    for pod in (
        one(manifests, "Job", "tidegate-uninstall")["spec"]["template"],
        one(manifests, "Pod", "tidegate-test"),
    ):
        labels = pod["metadata"]["labels"]
        assert of_release.items() <= labels.items()
        assert (component["key"], component["operator"]) == ("app.kubernetes.io/component", "In")
        assert labels[component["key"]] in component["values"]
    assert "ingress" not in hooks
    health = hooks["egress"][0]
    assert health["ports"] == [{"port": "health", "protocol": "TCP"}]
    operator = one(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
    assert health["to"] == [{"podSelector": {"matchLabels": operator}}]


def test_the_pods_of_jobs_are_spoken_to_by_one_another_only() -> None:
    _, _, jobs = _policies({})
    # By the label that the operator gives driver and executors (tests/unit/jobs/golden).
    of_jobs = {"matchExpressions": [{"key": "tidegate.io/launch", "operator": "Exists"}]}
    assert jobs["podSelector"] == of_jobs
    assert jobs["ingress"] == [{"from": [{"podSelector": of_jobs}]}]
