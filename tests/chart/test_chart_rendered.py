"""What the chart makes of its values."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from chart.rendering import CHART, EVERYTHING, NAMESPACE, SPARK, environment, helm, of_kind, one, render, template
from support.scripts import loaded
from tidegate.inject.metrics import InjectionMetrics
from tidegate.jobs.settings import SparkSettings
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_mirror.metrics import MirrorMetrics
from tidegate.resources.reset import ResetPhase
from tidegate.retention.metrics import RetentionMetrics
from tidegate.service.metrics import Metrics
from tidegate.service.settings import Settings
from tidegate.stuck.metrics import StuckMetrics

PROJECT = CHART.parents[1]
HOOK = "helm.sh/hook"


def _generate() -> Any:
    return loaded(CHART.parent / "generate.py")


@pytest.mark.pure
def test_what_is_made_from_other_files_is_current() -> None:
    assert _generate().outdated(write=False) == [], "run `make chart`"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.code == 0, done.output + done.complaint
    assert "WARNING" not in done.output


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"watchNamespace": ["a"]}, r"additional properties 'watchNamespace'"),
        ({"watchNamespaces": ["Not_One"]}, r"/watchNamespaces/0.*pattern"),
        ({"image": {"tag": 1.2}}, r"/image/tag.*want string"),
        ({"image": {"digest": "sha256:1"}}, r"/image/digest.*pattern"),
        ({"replicas": 0}, r"/replicas.*minimum"),
        ({"leaderElection": {"leaseDurationSeconds": "10s"}}, r"/leaderElection/leaseDurationSeconds.*want integer"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, r"/podDisruptionBudget/maxUnavailable"),
        ({"webhook": {"failurePolicy": "ignore"}}, r"/webhook/failurePolicy.*'Ignore', 'Fail'"),
        ({"webhook": {"timeoutSeconds": 31}}, r"/webhook/timeoutSeconds.*maximum"),
        ({"webhook": {"port": 443}}, r"/webhook/port.*minimum"),
        ({"spark": {"conf": {"spark.a": 1}}}, r"/spark/conf/spark.a.*want string"),
        ({"spark": {"allowedConf": ["spark.a', 'spark.b"]}}, r"/spark/allowedConf/0.*pattern"),
        ({"spark": {"executor": {"memory": "1Gi"}}}, r"/spark/executor/memory.*pattern"),
        ({"operator": {"extraEnv": [{"name": "A", "value": 1}]}}, r"/operator/extraEnv/0/value.*want string"),
        ({"approval": {"admissionPolicy": "yes"}}, r"/approval/admissionPolicy.*'auto', 'always', 'never'"),
        ({"approval": {"onBehalf": ['a", "b']}}, r"/approval/onBehalf/0.*pattern"),
        ({"metrics": {"authentication": "basic"}}, r"/metrics/authentication"),
        (
            {"metrics": {"audience": "a", "serviceMonitor": {"enabled": True}}},
            r"Prometheus' own token is for the API server",
        ),
        ({"webhook": {"clientCA": "ca.crt"}}, r"/webhook/clientCA"),
        ({"webhook": {"clientNames": ["apiserver"]}}, r"webhook\.clientNames needs webhook\.clientCA"),
        ({"metrics": {"tls": False}}, r"metrics\.authentication kubernetes needs metrics\.tls"),
        ({"metrics": {"podMonitor": {"enabled": True}}}, r"name a Secret with a reader's in metrics\.tokenSecret"),
        (
            {"metrics": {"service": False, "serviceMonitor": {"enabled": True}}},
            r"metrics\.serviceMonitor finds the metrics by their Service",
        ),
        ({"metrics": {"port": 8080}}, r"metrics\.port is 8080, which is the port for health checks"),
        ({"webhook": {"port": 8080}}, r"webhook\.port is 8080, which is the port for health checks"),
        ({"webhook": {"port": 8081}}, r"webhook\.port and metrics\.port are both 8081"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_with_where(values: dict[str, Any], complaint: str) -> None:
    done = helm("template", "tidegate", str(CHART), values=values)
    assert done.code != 0
    assert re.search(complaint, done.complaint), done.complaint


def test_every_label_and_name_is_of_the_release() -> None:
    for manifest in render(EVERYTHING):
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "tidegate"
        assert {f"app.kubernetes.io/{key}" for key in ("name", "version", "managed-by", "part-of")} <= labels.keys()
        assert labels["team"] == "streams"
        if manifest["kind"] != "CustomResourceDefinition":
            assert manifest["metadata"]["name"].startswith("tidegate")


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_names_that_yaml_takes_for_numbers_are_quoted(values: dict[str, Any]) -> None:
    """A release may be called 1e7, and its namespace 123."""
    numbers = {"release": "1e7", "namespace": "123", "name": "2e7", "served": "456", "reader": "3e7", "jobs": "789"}
    named = {
        **values,
        "fullnameOverride": numbers["name"],
        "nameOverride": numbers["name"],
        "watchNamespaces": [numbers["served"]],
        "priorityClassName": numbers["reader"],
        "serviceAccount": {"name": numbers["reader"]},
        "metrics": {
            **values.get("metrics", {}),
            "readers": [{"name": numbers["reader"], "namespace": numbers["served"]}],
            "tokenSecret": {"name": numbers["reader"]},
        },
    }
    named["spark"] = {**values.get("spark", {}), "serviceAccount": {"name": numbers["jobs"]}}
    text = template(named, SPARK, release=numbers["release"], namespace=numbers["namespace"])

    lines = text.splitlines()
    unquoted = [
        lines[event.start_mark.line]
        for event in yaml.parse(text)
        if isinstance(event, yaml.ScalarEvent) and event.style is None and event.value in numbers.values()
    ]
    assert not unquoted


def test_the_pods_hold_to_what_no_value_may_change_on_upgrade() -> None:
    spec = one(render(), "Deployment")["spec"]
    assert spec["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "tidegate",
        "app.kubernetes.io/instance": "tidegate",
        "app.kubernetes.io/component": "operator",
    }
    other = one(render(EVERYTHING), "Deployment")["spec"]
    assert other["selector"] == spec["selector"]
    for service in of_kind(render(), "Service"):
        assert service["spec"]["selector"] == spec["selector"]["matchLabels"]


def test_helm_test_asks_for_every_kind() -> None:
    [script] = one(render(), "Pod", "tidegate-test")["spec"]["containers"][0]["args"]
    [kinds] = [
        ast.literal_eval(statement.value)
        for statement in ast.parse(script).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "KINDS"
    ]

    assert kinds == {path.name.partition(".")[0] for path in (CHART / "files" / "crds").glob("*.yaml")}


def test_helm_test_asks_for_health_only_where_there_is_an_address_for_that() -> None:
    for service in (True, False):
        pod = one(render({"metrics": {"service": service}}), "Pod", "tidegate-test")
        (container,) = pod["spec"]["containers"]
        asked = [entry for entry in container.get("env") or () if entry["name"] == "HEALTH"]
        assert len(asked) == int(service)
        assert 'if "HEALTH" in os.environ' in container["args"][0]


def test_ports_may_be_equal_where_one_of_them_is_not_used() -> None:
    manifests = render({"webhook": {"enabled": False, "port": 8081}})
    assert {port["name"]: port["port"] for port in one(manifests, "Service", "tidegate-metrics")["spec"]["ports"]} == {
        "metrics": 8081,
        "health": 8080,
    }


def test_each_shard_is_a_deployment_with_a_lease_of_its_own() -> None:
    rules = {"metrics": {"rules": {"enabled": True}}}
    manifests, alone = render({"shards": 3, "replicas": 2, **rules}), render(rules)
    names = [f"tidegate-shard-{number}" for number in range(3)]

    deployments = list(of_kind(manifests, "Deployment"))
    assert [d["metadata"]["name"] for d in deployments] == names
    selectors = [d["spec"]["selector"]["matchLabels"] for d in deployments]
    assert [s["tidegate.io/shard"] for s in selectors] == ["0", "1", "2"]
    for number, (deployment, selector) in enumerate(zip(deployments, selectors, strict=True)):
        pod = deployment["spec"]["template"]
        told = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert (told["TIDEGATE_SHARDS"], told["TIDEGATE_SHARD"]) == ("3", f"{number}")
        assert told["TIDEGATE_LEASE"] == names[number]
        assert selector.items() <= pod["metadata"]["labels"].items()
        assert deployment["spec"]["replicas"] == 2
    role = one(manifests, "Role", "tidegate-leader-election")
    assert role["rules"][0]["resourceNames"] == names
    # The webhook and the metrics are those of all shards.
    for service in of_kind(manifests, "Service"):
        assert "tidegate.io/shard" not in service["spec"]["selector"]

    [only] = of_kind(alone, "Deployment")
    assert only["metadata"]["name"] == "tidegate"
    assert "tidegate.io/shard" not in only["spec"]["selector"]["matchLabels"]
    assert not {"TIDEGATE_SHARD", "TIDEGATE_SHARDS"} & {
        e["name"] for e in only["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    sharded, single = (
        {rule["alert"]: rule["expr"] for rule in one(each, "PrometheusRule")["spec"]["groups"][0]["rules"]}
        for each in (manifests, alone)
    )
    assert sharded["TidegateNoLeader"] == "sum(max by (pod) (tidegate_leader)) < 3"
    assert single["TidegateNoLeader"] == "max(tidegate_leader) == 0"
    # A group that one shard leads is led by none of the others' leaders.
    led = "max(max_over_time(tidegate_led_pauses[10m])) > 0 unless on() max(tidegate_leader) == 1"
    assert single["TidegateLedPausesUnattended"] == led
    expression = sharded["TidegateLedPausesUnattended"]
    assert "unless on(shard)" in expression
    (pattern,) = set(re.findall(r'"pod", "([^"]+)"', expression))
    assert expression.count("max by (shard) (label_replace(") == 2
    for number, name in enumerate(names):
        found = re.fullmatch(pattern, f"{name}-6d4cf56db6-x2zvq")
        assert found is not None
        assert found[1] == f"{number}"


def test_all_shards_are_ended_before_the_release_goes() -> None:
    hooks = render({"shards": 2})
    names = ["tidegate-shard-0", "tidegate-shard-1"]

    container = one(hooks, "Job", "tidegate-uninstall")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:3] == ["uninstall", *(f"--deployment={NAMESPACE}/{name}" for name in names)]
    rules = one(hooks, "Role", "tidegate-uninstall-operator")["rules"]
    assert [rule.get("resourceNames") for rule in rules] == [names, names, None]


def test_replicas_elect_a_leader_and_are_replaced_one_by_one() -> None:
    spec = one(render(), "Deployment")["spec"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert (spec["replicas"], spec["strategy"]) == (1, rolling)
    assert "topologySpreadConstraints" not in spec["template"]["spec"]

    two = one(render({"replicas": 2}), "Deployment")["spec"]
    assert (two["replicas"], two["strategy"]) == (2, rolling)
    spread = two["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"]["matchLabels"] == two["selector"]["matchLabels"]


def test_only_its_own_lease_is_read_and_changed() -> None:
    manifests = render({"watchNamespaces": ["a"]})
    told = environment(manifests)
    role = one(manifests, "Role", "tidegate-leader-election")
    assert role["metadata"]["namespace"] == NAMESPACE
    leases = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in leases] == [
        (["get", "update"], [told["TIDEGATE_LEASE"]]),
        (["create"], None),
    ]
    elsewhere = [rule for m in of_kind(manifests, "Role", "ClusterRole") for rule in m["rules"] if m is not role]
    assert not [rule for rule in elsewhere if "leases" in rule.get("resources", ())]


def test_without_an_election_there_is_one_pod_at_a_time() -> None:
    without = {"leaderElection": {"enabled": False}}
    manifests = render(without)
    spec = one(manifests, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert not [name for name in environment(manifests) if "LEASE" in name]
    assert not [m for m in of_kind(manifests, "Role") if m["metadata"]["name"] == "tidegate-leader-election"]
    done = helm("template", "tidegate", str(CHART), values={**without, "replicas": 2})
    assert done.code != 0
    assert "replicas above 1 need leaderElection.enabled" in done.complaint


def test_uninstalling_takes_no_part_in_the_election() -> None:
    hooks = [m for m in render() if m["kind"] == "Job"]
    told = {
        entry["name"]
        for entry in one(hooks, "Job", "tidegate-uninstall")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert "TIDEGATE_HEALTH_ADDRESS" in told
    assert not [name for name in told if "LEASE" in name]


def test_uninstalling_keeps_to_what_the_operator_may_do_and_has_to_keep() -> None:
    manifests = render({"operator": {"observe": True, "undoKeptSeconds": 2_592_000}})
    container = one(manifests, "Job", "tidegate-uninstall")["spec"]["template"]["spec"]["containers"][0]
    told = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}

    settings = Settings.from_environment({name: told[name] for name in told if name != "TIDEGATE_RUNTIME_DIRECTORY"})
    assert settings.observe
    assert settings.undo_kept_s == 2_592_000


def test_large_numbers_are_told_as_whole_numbers() -> None:
    """Helm takes a number of a file for a floating-point one, and would write 1.2096e+06."""
    values = {"spark": {"runner": "sparkapplication", "timeToLiveSeconds": 1_209_600}}

    told = environment(render(values))
    assert SparkSettings.from_environment(told).time_to_live == timedelta(days=14)


def _variables_of_settings() -> set[str]:
    own = {f"TIDEGATE_{name.upper()}" for name in Settings.model_fields if name != "spark"}
    source = (PROJECT / "operator" / "tidegate" / "jobs" / "settings.py").read_text()
    read = {
        f"TIDEGATE_SPARK_{call.args[0].value}"
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
        and call.func.attr in ("text", "one_of", "number", "names", "conf")
    }
    return own | read


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_operator_understands_all_that_the_chart_tells_it(values: dict[str, Any]) -> None:
    told = environment(render(values))
    unread = told.keys() - _variables_of_settings()
    assert not unread, "variables that the operator does not read"
    Settings.from_environment({"TIDEGATE_NAMESPACE": NAMESPACE, **told})  # that one by the downward API


def test_the_spark_runner_is_chosen_by_what_the_cluster_serves() -> None:
    assert environment(render())["TIDEGATE_SPARK_RUNNER"] == "none"
    with_spark = render({}, SPARK)
    assert environment(with_spark)["TIDEGATE_SPARK_RUNNER"] == "sparkapplication"
    assert one(with_spark, "ServiceAccount", "tidegate-spark")["metadata"]["namespace"] == NAMESPACE
    forced = environment(render({"spark": {"runner": "sparkapplication"}}))
    assert forced["TIDEGATE_SPARK_RUNNER"] == "sparkapplication"
    off = render({"spark": {"runner": "none"}}, SPARK)
    assert environment(off)["TIDEGATE_SPARK_RUNNER"] == "none"
    assert not [m for m in of_kind(off, "ServiceAccount") if m["metadata"]["name"] == "tidegate-spark"]


def test_jobs_have_an_account_wherever_they_may_run() -> None:
    def places(values: dict[str, Any]) -> set[str]:
        return {
            m["metadata"]["namespace"]
            for m in of_kind(render(values, SPARK), "RoleBinding")
            if m["metadata"]["name"] == "tidegate-spark"
        }

    assert places({}) == {NAMESPACE}
    assert places({"watchNamespaces": ["a", "b"]}) == {"a", "b"}
    assert places({"spark": {"namespaces": ["c"]}}) == {"c"}
    assert places({"spark": {"serviceAccount": {"create": False}}}) == set()


def test_served_namespaces_bound_every_right_but_those_that_have_none() -> None:
    manifests = render({"watchNamespaces": ["a", "b"]}, SPARK)
    of_operator = [m for m in of_kind(manifests, "Role") if m["metadata"]["name"] == "tidegate"]
    assert {m["metadata"]["namespace"] for m in of_operator} == {"a", "b"}
    bound = {m["roleRef"]["name"] for m in of_kind(manifests, "ClusterRoleBinding")}
    roles = [m for m in of_kind(manifests, "ClusterRole") if m["metadata"]["name"] in bound]
    unbounded = {group for m in roles for rule in m["rules"] for group in rule["apiGroups"]}
    assert unbounded <= {"authentication.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io"}
    assert environment(manifests)["TIDEGATE_NAMESPACES"] == "a,b"
    expressions = one(manifests, "MutatingWebhookConfiguration")["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]} in expressions


VAP = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"


def _admission(values: dict[str, Any], *served: str) -> dict[str, dict[str, Any]]:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    approval_only = {**values, "rbac": {"admissionPolicy": "never"}}
    return {f"{m['kind']} {m['metadata']['name']}": m["spec"] for m in of_kind(render(approval_only, *served), *kinds)}


def test_admission_policies_are_rendered_where_they_are_served_or_wanted() -> None:
    assert _admission({}) == {}
    assert _admission({"approval": {"admissionPolicy": "never"}}, VAP) == {}
    assert _admission({"approval": {"admissionPolicy": "always"}}) == _admission({}, VAP)
    both = _admission({"watchNamespaces": ["a", "b"]}, VAP)
    assert len(both) == 4
    for name, spec in both.items():
        if name.startswith("ValidatingAdmissionPolicyBinding"):
            (served,) = spec["matchResources"]["namespaceSelector"]["matchExpressions"]
            assert (served["values"], spec["validationActions"]) == (["a", "b"], ["Deny"])
        else:
            assert spec["failurePolicy"] == "Fail"
            assert not [r for rule in spec["matchConstraints"]["resourceRules"] for r in rule["resources"] if "/" in r]


def test_the_operator_is_told_whether_approver_and_requester_have_to_differ() -> None:
    told = {
        separate: environment(render({"approval": {"separateApprover": separate}}))["TIDEGATE_SEPARATE_APPROVER"]
        for separate in (True, False)
    }
    for separate, text in told.items():
        assert Settings.from_environment({"TIDEGATE_SEPARATE_APPROVER": text}).separate_approver is separate


@pytest.mark.parametrize("observe", [True, False])
def test_the_operator_is_told_whether_it_only_observes(*, observe: bool) -> None:
    told = environment(render({"operator": {"observe": observe}}))["TIDEGATE_OBSERVE"]

    assert Settings.from_environment({"TIDEGATE_OBSERVE": told}).observe is observe


def test_the_operator_is_told_the_quota_of_connections_that_give_none() -> None:
    given = {"partitionsPerReset": 500, "concurrentPartitions": 1000, "recordsReplayedPerReset": 10**10}
    told = environment(render({"operator": {"quota": given}}))["TIDEGATE_QUOTA"]

    quota = Settings.from_environment({"TIDEGATE_QUOTA": told}).quota
    assert quota is not None
    assert quota.to_json() == given
    assert "TIDEGATE_QUOTA" not in environment(render({}))
    wrong = helm("template", "tidegate", str(CHART), values={"operator": {"quota": {"concurrentPartitions": 1000}}})
    assert wrong.code != 0
    assert "partitionsPerReset" in wrong.complaint


def test_what_nothing_would_enforce_is_refused_and_what_is_a_claim_is_told() -> None:
    required = helm("template", "tidegate", str(CHART), values={"approval": {"required": True}})
    assert required.code != 0
    assert "approval.required is enforced by a ValidatingAdmissionPolicy, which is not rendered" in required.complaint
    separate = {"approval": {"separateApprover": True}}
    told = helm("install", "tidegate", str(CHART), "--dry-run=client", "--namespace=x", values=separate)
    assert "WARNING: no ValidatingAdmissionPolicy was rendered" in told.output
    assert "does not prevent people from approving their own resets" in told.output


def test_nobody_makes_rights_where_they_are_not_wanted() -> None:
    manifests = render({"rbac": {"create": False}, "uninstall": {"enabled": False}})
    assert not list(of_kind(manifests, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"))


def test_the_webhooks_address_is_known_before_the_only_operator_is_ready() -> None:
    assert one(render(), "Service", "tidegate-webhook")["spec"]["publishNotReadyAddresses"] is True


def test_of_the_pods_of_several_shards_only_those_are_called_that_answer() -> None:
    """Each answers for all of them. One that has only just started would keep a caller waiting until it gives up."""
    manifests = render({"shards": 2})
    assert "publishNotReadyAddresses" not in one(manifests, "Service", "tidegate-webhook")["spec"]
    (container,) = one(manifests, "Deployment", "tidegate-shard-0")["spec"]["template"]["spec"]["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]


def test_of_several_replicas_only_those_are_called_that_answer_and_they_do_so_for_a_moment_longer() -> None:
    manifests = render({"replicas": 2})
    assert "publishNotReadyAddresses" not in one(manifests, "Service", "tidegate-webhook")["spec"]
    (container,) = one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]


def test_the_webhook_never_looks_at_its_own_pods_nor_at_the_systems() -> None:
    hook = one(render(), "MutatingWebhookConfiguration")["webhooks"][0]
    (own,) = hook["namespaceSelector"]["matchExpressions"]
    assert own["operator"] == "NotIn"
    assert {NAMESPACE, "kube-system"} <= set(own["values"])
    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 5)
    assert "caBundle" not in hook["clientConfig"]


def test_certificates_are_made_by_one_party_only() -> None:
    self_made, by_cert_manager = render(), render({"webhook": {"certManager": {"enabled": True}}})
    assert "data" not in one(self_made, "Secret", "tidegate-webhook-tls")
    assert environment(self_made)["TIDEGATE_WEBHOOK_SECRET"] == "tidegate-webhook-tls"
    assert not list(of_kind(by_cert_manager, "Secret"))
    assert "TIDEGATE_WEBHOOK_SECRET" not in environment(by_cert_manager)
    assert one(by_cert_manager, "Certificate", "tidegate-webhook")["spec"]["issuerRef"]["name"] == "tidegate-webhook"
    ours = render({"webhook": {"certManager": {"enabled": True, "issuerRef": {"kind": "ClusterIssuer", "name": "ca"}}}})
    assert not list(of_kind(ours, "Issuer"))
    off = render({"webhook": {"enabled": False}, "metrics": {"tls": False, "authentication": "none"}})
    assert not list(of_kind(off, "Secret", "MutatingWebhookConfiguration"))
    assert not [name for name in environment(off) if "WEBHOOK" in name]


def test_who_may_call_the_webhook_is_mounted_where_it_was_said() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    manifests = render({"webhook": {"clientCA": pem, "clientNames": ["apiserver", "other"]}})

    assert one(manifests, "ConfigMap", "tidegate-webhook-callers")["data"] == {"ca.crt": pem}
    told = environment(manifests)
    assert (told["TIDEGATE_WEBHOOK_CLIENT_CA"], told["TIDEGATE_WEBHOOK_CLIENT_NAMES"]) == (
        "/etc/tidegate/callers/ca.crt",
        "apiserver,other",
    )
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "callers", "configMap": {"name": "tidegate-webhook-callers"}} in pod["volumes"]
    assert "TIDEGATE_WEBHOOK_CLIENT_CA" not in environment(render())


def test_metrics_have_a_certificate_without_a_webhook_as_well() -> None:
    own, by_cert_manager = (
        render({"webhook": {"enabled": False, "certManager": {"enabled": enabled}}}) for enabled in (False, True)
    )

    assert environment(own)["TIDEGATE_METRICS_SERVICE"] == "tidegate-metrics"
    assert environment(own)["TIDEGATE_WEBHOOK_SECRET"] == one(own, "Secret", "tidegate-webhook-tls")["metadata"]["name"]
    assert "TIDEGATE_WEBHOOK_ADDRESS" not in environment(own)
    (granted,) = one(own, "Role", "tidegate-webhook")["rules"]
    assert granted["resourceNames"] == ["tidegate-webhook-tls"]
    groups = {group for rule in one(own, "ClusterRole", "tidegate-cluster")["rules"] for group in rule["apiGroups"]}
    assert "admissionregistration.k8s.io" not in groups
    assert environment(by_cert_manager)["TIDEGATE_METRICS_CERTIFICATES"] == "/etc/tidegate/certificates"
    assert "TIDEGATE_METRICS_SERVICE" not in environment(by_cert_manager)
    assert one(by_cert_manager, "Certificate", "tidegate-webhook")


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["a", "b"]}], ids=["cluster", "namespaces"])
def test_uninstalling_has_an_account_of_its_own_which_is_there_before_its_job(values: dict[str, Any]) -> None:
    hooks = [m for m in render(values) if (m["metadata"].get("annotations") or {}).get(HOOK) == "pre-delete"]
    weights = {m["kind"]: int(m["metadata"]["annotations"]["helm.sh/hook-weight"]) for m in hooks}
    assert weights["ServiceAccount"] < weights["Role"] < weights["RoleBinding"] < weights["Job"]
    policy = {m["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for m in hooks}
    assert policy == {"before-hook-creation,hook-succeeded"}
    job = one(hooks, "Job", "tidegate-uninstall")["spec"]
    container = job["template"]["spec"]["containers"][0]
    assert job["template"]["spec"]["serviceAccountName"] == "tidegate-uninstall"
    assert container["args"][:2] == ["uninstall", f"--deployment={NAMESPACE}/tidegate"]
    told = {entry["name"]: entry.get("value") for entry in container["env"]}
    # What a deletion may take, the operator's end before it, and some more fit into the Job's time.
    grace = one(render(values), "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert int(told["TIDEGATE_DELETION_LIMIT_S"]) + grace + 30 <= job["activeDeadlineSeconds"]
    granted = {m["metadata"].get("namespace") for m in hooks if m["kind"].endswith("RoleBinding")}
    assert granted == {NAMESPACE, *(values.get("watchNamespaces") or [None])}
    assert not [m for m in render({"uninstall": {"enabled": False}}) if m["kind"] == "Job"]


@pytest.mark.parametrize(("version", "selectable"), [("1.29.0", False), ("1.30.9", False), ("1.31.0", True)])
def test_fields_to_select_by_are_for_servers_that_know_them(version: str, selectable: bool) -> None:
    found = helm("template", "tidegate", str(CHART), "--kube-version", version, "--show-only", "templates/crds.yaml")

    assert ("selectableFields" in found.output) is selectable


def test_crds_are_kept_or_left_to_others() -> None:
    kept = list(of_kind(render(), "CustomResourceDefinition"))
    assert len(kept) == 7
    assert {m["metadata"]["annotations"]["helm.sh/resource-policy"] for m in kept} == {"keep"}
    for manifest in of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in manifest["metadata"]["annotations"]
    assert not list(of_kind(render({"crds": {"enabled": False}}), "CustomResourceDefinition"))
    source = yaml.safe_load((PROJECT / "crds" / "kafkaconnections.tidegate.io.yaml").read_text())
    assert one(render(), "CustomResourceDefinition", "kafkaconnections.tidegate.io")["spec"] == source["spec"]


def _spec_of(crd: dict[str, Any]) -> dict[str, Any]:
    """The members of ``spec``."""
    found: dict[str, Any] = crd["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def _kinds_with_spark() -> list[str]:
    """Names of the CRDs whose resources have jobs of Spark."""
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((PROJECT / "crds").glob("*.tidegate.io.yaml"))]
    return [crd["metadata"]["name"] for crd in definitions if "spark" in _spec_of(crd["spec"])]


def test_the_image_of_every_kind_that_has_jobs_is_judged_by_the_api_server() -> None:
    manifests = render({"spark": {"runner": "sparkapplication"}, "rbac": {"admissionPolicy": "always"}})
    policy = one(manifests, "ValidatingAdmissionPolicy", "tidegate-image")["spec"]

    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert sorted(rule["resources"]) == [name.partition(".")[0] for name in _kinds_with_spark()]


@pytest.mark.parametrize("name", _kinds_with_spark())
def test_settings_of_spark_that_are_allowed_besides_are_told_to_the_operator_and_to_the_api_server(name: str) -> None:
    manifests = render({"spark": {"allowedConf": ["spark.shuffle.compress", "spark.io.compression.codec"]}})
    source = yaml.safe_load((PROJECT / "crds" / f"{name}.yaml").read_text())["spec"]
    assert one(render(), "CustomResourceDefinition", name)["spec"] == source

    told = environment(manifests)["TIDEGATE_SPARK_ALLOWED_CONF"]
    assert SparkSettings.from_environment({"TIDEGATE_SPARK_ALLOWED_CONF": told}).allowed_conf == {
        "spark.shuffle.compress",
        "spark.io.compression.codec",
    }
    widened = one(manifests, "CustomResourceDefinition", name)["spec"]
    names = spark_conf_of(source)["x-kubernetes-validations"][0]
    assert names["rule"].count("name in [") == 1
    names["rule"] = names["rule"].replace(
        "name in [", "name in ['spark.shuffle.compress', 'spark.io.compression.codec', "
    )
    assert widened == source


def spark_conf_of(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _spec_of(crd)["spark"]["properties"]["sparkConf"]
    return found


def test_prometheus_comes_with_a_token_where_the_metrics_ask_for_one() -> None:
    monitor = {"serviceMonitor": {"enabled": True}}
    (own,) = one(render({"metrics": monitor}), "ServiceMonitor")["spec"]["endpoints"]
    assert own["bearerTokenFile"].startswith("/var/run/secrets/")
    assert own["tlsConfig"]["ca"] == {"secret": {"name": "tidegate-webhook-tls", "key": "ca.crt"}}
    projected = {**monitor, "audience": "tidegate-metrics", "tokenFile": "/var/run/secrets/tidegate/token"}
    (by_file,) = one(render({"metrics": projected}), "ServiceMonitor")["spec"]["endpoints"]
    assert by_file["bearerTokenFile"] == "/var/run/secrets/tidegate/token"
    assert environment(render({"metrics": projected}))["TIDEGATE_METRICS_AUDIENCE"] == "tidegate-metrics"
    (without,) = one(render({"metrics": {**monitor, "authentication": "none"}}), "ServiceMonitor")["spec"]["endpoints"]
    assert not {"bearerTokenFile", "authorization"} & without.keys()
    (named,) = one(render(EVERYTHING), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert named["authorization"]["credentials"] == {"name": "scraper", "key": "token"}
    assert named["tlsConfig"]["serverName"] == f"tidegate-metrics.{NAMESPACE}.svc"


def _all_metrics() -> Metrics:
    metrics = Metrics()
    RetentionMetrics(metrics.registry)
    StuckMetrics(metrics.registry)
    BackupMetrics(metrics.registry)
    MirrorMetrics(metrics.registry)
    InjectionMetrics(metrics.registry)
    return metrics


def _known_metrics() -> set[str]:
    metrics = _all_metrics()
    found = re.findall(r"^# TYPE (\S+)", generate_latest(metrics.registry).decode(), re.MULTILINE)
    return {*found, *(f"{name}_bucket" for name in found)}


def _expressions() -> Iterator[tuple[str, str]]:
    manifests = render(EVERYTHING)
    for rule in one(manifests, "PrometheusRule")["spec"]["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    dashboard = json.loads(one(manifests, "ConfigMap", "tidegate-dashboard")["data"]["tidegate.json"])
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    known = _known_metrics()
    for where, expression in _expressions():
        asked = set(re.findall(r"\b(?:tidegate|process)_[a-z_]+", expression))
        assert asked, where
        assert asked <= known, f"{where}: {sorted(asked - known)}"


LABELS_OF_TARGETS = frozenset({"namespace", "job", "instance", "pod", "container", "service", "endpoint", "node"})
"""What Prometheus, as the Prometheus operator configures it, says of the process that it asks."""


def test_no_label_of_a_metric_is_one_that_prometheus_gives_to_its_target() -> None:
    """Such a label is stored as ``exported_...``: alerts would name the operator's namespace for that of a resource."""
    for family in _all_metrics().registry.collect():
        told = {label for sample in family.samples for label in sample.labels}
        assert not told & LABELS_OF_TARGETS, family.name
    for path in (CHART.parents[1] / "operator" / "tidegate").rglob("*.py"):
        for labels in re.findall(r"\[((?:\"[a-z_]+\"(?:, )?)+)\],\s*registry=", path.read_text()):
            assert not set(re.findall(r"[a-z_]+", labels)) & LABELS_OF_TARGETS, path


@pytest.mark.parametrize(
    ("metrics", "selector"),
    [
        ({"serviceMonitor": {"enabled": True}}, 'namespace="tidegate-system",job="tidegate-metrics"'),
        (
            {"podMonitor": {"enabled": True}, "authentication": "none"},
            'namespace="tidegate-system",job="tidegate-system/tidegate"',
        ),
        (
            {"serviceMonitor": {"enabled": True}, "rules": {"selector": 'cluster="a",job=~"t.*"'}},
            'cluster="a",job=~"t.*"',
        ),
        ({}, ""),
    ],
)
def test_alerts_ask_for_the_series_of_this_release(metrics: dict[str, Any], selector: str) -> None:
    """Otherwise the leader of one release makes up for that of another one, which has none."""
    rules = {"enabled": True, **metrics.get("rules", {})}
    for rule in one(render({"metrics": {**metrics, "rules": rules}}), "PrometheusRule")["spec"]["groups"][0]["rules"]:
        for name, labels in re.findall(r"(tidegate_[a-z_]+)(?:\{([^}]*)\})?", rule["expr"]):
            assert labels.endswith(selector), name
            assert selector or "job" not in labels


def test_an_impossible_selector_is_refused() -> None:
    done = helm(
        "template", "t", str(CHART), values={"metrics": {"rules": {"enabled": True, "selector": "job=tidegate"}}}
    )
    assert done.code != 0
    assert "selector" in done.complaint


def test_what_is_counted_is_counted_once_and_the_worst_of_several_processes_counts() -> None:
    told: dict[str, set[str]] = {}
    for where, expression in _expressions():
        told.setdefault(where, set()).add(expression)

    (in_progress,) = told["Resets in progress"]
    phases = re.findall(r"[A-Z]\w+", in_progress.partition('phase=~"')[2].partition('"')[0])
    waiting = (ResetPhase.PENDING, ResetPhase.AWAITING_APPROVAL)
    assert sorted(phases) == sorted(phase.value for phase in ResetPhase if not phase.is_final and phase not in waiting)
    # Two shards may know of one connection: one of them only reads its cluster, for resets in another one.
    assert told["Unreachable Kafka clusters"] == {
        'count(min by (connection) (tidegate_connection_up{namespace=~"$namespace"}) == 0) or vector(0)'
    }
    # Each process answers for itself: one that has not got the new certificate is not made up for by one that has.
    for where in ("TidegateWebhookCertificateExpires", "Webhook certificate expires in"):
        (expression,) = told[where]
        asked = re.sub(r"\{[^}]*\}", "", expression)
        assert asked.startswith("min(tidegate_webhook_certificate_expiry_timestamp_seconds > 0) - time()")


ALERTS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "alerts.md"


def test_each_alert_is_explained_with_its_severity_where_it_links_to() -> None:
    values = EVERYTHING | {
        "metrics": {**EVERYTHING["metrics"], "rules": {"enabled": True, "runbooks": "https://x/alerts.md"}}
    }
    rules = one(render(values), "PrometheusRule")["spec"]["groups"][0]["rules"]
    explained = re.findall(r"^## (\w+)\n\n\*(\w+)\.\*", ALERTS_PAGE.read_text(), re.MULTILINE)

    assert [(name, severity.lower()) for name, severity in explained] == [
        (rule["alert"], rule["labels"]["severity"]) for rule in rules
    ]
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"https://x/alerts.md#{rule['alert'].lower()}"


def test_artifact_hub_is_told_of_each_kind() -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    listed = [(one["kind"], one["name"], one["version"]) for one in yaml.safe_load(annotations["artifacthub.io/crds"])]
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "files" / "crds").glob("*.yaml"))]

    assert listed == [
        (crd["spec"]["names"]["kind"], crd["metadata"]["name"], crd["spec"]["versions"][-1]["name"])
        for crd in definitions
    ]


def test_alerts_link_nowhere_by_themselves() -> None:
    for rule in one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"][0]["rules"]:
        assert "runbook_url" not in rule["annotations"]


def test_the_text_after_installing_tells_of_what_is_missing(tmp_path: Path) -> None:
    done = helm(
        "install", "tidegate", str(CHART), "--dry-run=client", "--namespace=x", values={"watchNamespaces": ["a"]}
    )
    assert done.code == 0, done.complaint
    assert "serves the namespaces a." in done.output
    assert "the cluster does not serve SparkApplications" in done.output


class Once(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, as YAML does; most readers take the last one without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice in one mapping: {sorted(k for k in keys if keys.count(k) > 1)}"
        return super().construct_mapping(node, deep=deep)


OWN_AGAIN = {
    "commonLabels": {
        "team": "streams",
        "app.kubernetes.io/name": "x",
        "app.kubernetes.io/instance": "x",
        "app.kubernetes.io/version": "x",
        "app.kubernetes.io/managed-by": "x",
        "app.kubernetes.io/part-of": "x",
        "app.kubernetes.io/component": "x",
        "helm.sh/chart": "x",
    },
    "podLabels": {"app.kubernetes.io/name": "x"},
    "podAnnotations": {"kubectl.kubernetes.io/default-container": "x", "example.com/a": "b"},
    "webhook": {
        **EVERYTHING["webhook"],
        "annotations": {"cert-manager.io/inject-ca-from": "x/y", "example.com/a": "b"},
    },
}


@pytest.mark.parametrize("values", [{}, EVERYTHING, {**EVERYTHING, **OWN_AGAIN}], ids=["defaults", "everything", "own"])
def test_what_objects_select_by_and_each_key_is_there_once(values: dict[str, Any]) -> None:
    manifests = [each for each in yaml.load_all(template(values, SPARK), Once) if each]

    for manifest in manifests:
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "tidegate", manifest["kind"]
        assert labels["app.kubernetes.io/part-of"] == "tidegate"
    if "commonLabels" in values:
        assert {manifest["metadata"]["labels"]["team"] for manifest in manifests} == {"streams"}
    deployment = one(manifests, "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == "operator"
