"""What a pod looks like after the webhook, and which pods it leaves alone."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.inject.admission import Answer, BadReview, answer
from tidegate.inject.eligibility import PodRefusal, Surroundings, wish_for
from tidegate.inject.environment import AgentTopics, NamedPolicy
from tidegate.inject.patch import AgentImage, Patch, is_injected, patch_for
from tidegate.resources.base import parse_spec
from tidegate.resources.policy import OffsetResetPolicySpec

AGENT = AgentImage("tidegate-agent:1", "IfNotPresent")
SELECTS = {"selector": {"matchLabels": {"app": "payments"}}}


def policy(name: str = "p", **spec: Any) -> NamedPolicy:
    body: dict[str, Any] = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetResetPolicy",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"connectionRef": {"name": "kafka"}, "group": "payments", "consumers": SELECTS, **spec},
    }
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    return NamedPolicy(name, parse_spec(OffsetResetPolicySpec, body), AgentTopics("__tidegate"), ("ns", "kafka"))


AROUND = Surroundings((policy(latest={"maxAge": "1h"}),), {"kafka": AgentTopics("__tidegate")})


def pod(
    *containers: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"generateName": "payments-", "labels": labels or {"app": "payments"}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    made = {"metadata": metadata, "spec": {"containers": list(containers) or [{"name": "app"}], **spec}}
    return copy.deepcopy(made)


def applied(body: dict[str, Any], operations: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """RFC 6902, as far as it is used: add and replace."""
    body = copy.deepcopy(body)
    for operation in operations:
        *parents, last = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
        at: Any = body
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        value = copy.deepcopy(operation["value"])
        match at:
            case list() if last == "-":
                at.append(value)
            case list() if operation["op"] == "add":
                at.insert(int(last), value)
            case list():
                at[int(last)] = value
            case _:
                at[last] = value
    return body


def injected(body: dict[str, Any], around: Surroundings = AROUND) -> dict[str, Any]:
    wish = wish_for(body, around)
    assert wish is not None
    assert not isinstance(wish, PodRefusal), wish
    patch = patch_for(body, wish, AGENT)
    assert isinstance(patch, Patch), patch
    return applied(body, patch.operations)


def env(container: Mapping[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container.get("env", ())}


def started_with(container: Mapping[str, Any]) -> dict[str, str]:
    """As the kubelet expands values: ``$(NAME)`` of a variable before it, and ``$$`` for a dollar (``expansion.Expand``
    of Kubernetes)."""
    found: dict[str, str] = {}
    for name, value in env(container).items():
        found[name] = re.sub(
            r"[$]([$]|[(]([^)]*)[)])", lambda m: "$" if m[1] == "$" else found.get(m[2], m[0]), value or ""
        )
    return found


def on_nodes_of(*systems: str) -> dict[str, Any]:
    """An affinity to nodes with one of these operating systems."""
    rows = [{"key": "kubernetes.io/os", "operator": "In", "values": list(systems)}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": rows}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def refusal(body: dict[str, Any], around: Surroundings = AROUND) -> PodRefusal:
    found = wish_for(body, around)
    if found is not None and not isinstance(found, PodRefusal):
        found = patch_for(body, found, AGENT)  # type: ignore[assignment]
    assert isinstance(found, PodRefusal), found
    return found


def test_a_selected_pod_gets_the_agent_and_its_settings() -> None:
    after = injected(pod({"name": "app", "env": [{"name": "A", "value": "1"}]}, {"name": "sidecar"}))

    app, sidecar = after["spec"]["containers"]
    assert env(app) == {
        "A": "1",
        "TIDEGATE_AGENT": "1",
        "TIDEGATE_CONTROL_TOPIC": "__tidegate",
        "TIDEGATE_GROUP": "payments",
        "TIDEGATE_LATEST_MAX_AGE": "3600000",
        "PYTHONPATH": "/tidegate/python",
    }
    assert app["volumeMounts"] == [{"name": "tidegate-agent", "mountPath": "/tidegate", "readOnly": True}]
    assert sidecar == {"name": "sidecar"}
    assert after["spec"]["volumes"] == [{"name": "tidegate-agent", "emptyDir": {"sizeLimit": "32Mi"}}]
    (init,) = after["spec"]["initContainers"]
    assert (init["image"], init["command"]) == ("tidegate-agent:1", ["/opt/tidegate/agent/install", "/tidegate"])
    assert init["volumeMounts"] == [{"name": "tidegate-agent", "mountPath": "/tidegate"}]


def test_what_a_container_says_itself_stays_and_its_path_is_prefixed_in_its_place() -> None:
    before = [
        {"name": "PYTHONPATH", "value": "/app/lib"},
        {"name": "USES", "value": "$(PYTHONPATH)"},
        {"name": "TIDEGATE_GROUP", "value": "theirs"},
        {"name": "TIDEGATE_LATEST_MAX_AGE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ]

    (app,) = injected(pod({"name": "app", "env": before}))["spec"]["containers"]

    assert app["env"][0] == {"name": "PYTHONPATH", "value": "/tidegate/python:/app/lib"}
    assert app["env"][1:4] == before[1:]
    assert [v["name"] for v in app["env"][4:]] == ["TIDEGATE_AGENT", "TIDEGATE_CONTROL_TOPIC"]


@pytest.mark.parametrize("group", ["a$(TIDEGATE_AGENT)", "a$$b", "$$(x)", "a$b$"])
def test_a_group_with_what_kubernetes_expands_is_told_as_it_is_called(group: str) -> None:
    """The agent would go by the settings of another group, and those of its own would not be obeyed."""
    around = Surroundings((policy(latest={"maxAge": "1h"}, group=group),), {"kafka": AgentTopics("__tidegate")})

    (app,) = injected(pod({"name": "app"}), around)["spec"]["containers"]

    assert started_with(app)["TIDEGATE_GROUP"] == group


def test_lists_that_are_there_are_added_to_and_our_init_container_comes_first() -> None:
    body = pod(
        {"name": "app", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        annotations={"a": "b"},
        initContainers=[{"name": "consumer", "restartPolicy": "Always"}],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    body["metadata"]["annotations"]["tidegate.io/containers"] = "consumer, app"

    after = injected(body)

    assert [c["name"] for c in after["spec"]["initContainers"]] == ["tidegate-agent", "consumer"]
    assert env(after["spec"]["initContainers"][1])["TIDEGATE_AGENT"] == "1"
    assert [m["name"] for m in after["spec"]["containers"][0]["volumeMounts"]] == ["data", "tidegate-agent"]
    assert [v["name"] for v in after["spec"]["volumes"]] == ["data", "tidegate-agent"]
    assert after["metadata"]["annotations"]["a"] == "b"


def test_an_injected_pod_that_comes_by_again_is_left_as_it_is() -> None:
    after = injected(pod())
    java = Surroundings((policy(latest={"maxAge": "1h"}, consumers={**SELECTS, "format": "Spring"}),))
    java_after = injected(pod(), java)

    for body, around in ((after, AROUND), (java_after, java)):
        wish = wish_for(body, around)
        assert wish is not None
        assert not isinstance(wish, PodRefusal)
        assert body["metadata"]["annotations"]["tidegate.io/injected"] == wish.setting
        assert patch_for(body, wish, AGENT) == Patch(())


@pytest.mark.parametrize("named", [{}, {"tidegate.io/containers": "app,other"}])
def test_what_another_webhook_takes_away_is_brought_again_when_the_pod_comes_by_again(named: dict[str, str]) -> None:
    body = pod({"name": "app"}, {"name": "other"}, annotations=named)
    whole = injected(body)
    for lost in (["app", "other"], ["app"]):
        taken = copy.deepcopy(whole)
        taken["spec"]["containers"] = [
            {"name": each["name"]} if each["name"] in lost else each for each in taken["spec"]["containers"]
        ]

        assert injected(taken) == whole


@pytest.mark.parametrize("wanted", ["Python", "Java", "Spring"])
@pytest.mark.parametrize("named", [{}, {"tidegate.io/containers": "app,other"}])
def test_a_pod_that_lost_variables_is_not_injected_until_it_has_them_again(named: dict[str, str], wanted: str) -> None:
    around = Surroundings(
        (policy(latest={"maxAge": "1h"}, consumers={**SELECTS, "format": wanted}),),
        {"kafka": AgentTopics("__tidegate")},
    )
    whole = injected(pod({"name": "app"}, {"name": "other"}, annotations=named), around)
    wish = wish_for(whole, around)
    assert not isinstance(wish, PodRefusal | None)
    assert is_injected(whole, wish)
    taken = copy.deepcopy(whole)
    [app, *_] = taken["spec"]["containers"]
    app["env"] = [each for each in app["env"] if not each["name"].startswith(("TIDEGATE", "SPRING"))]

    assert not is_injected(taken, wish)
    again = injected(taken, around)

    assert is_injected(again, wish)
    assert env(again["spec"]["containers"][0]) == env(whole["spec"]["containers"][0])


@pytest.mark.parametrize(
    ("annotations", "chosen"),
    [
        ({}, ["first"]),
        ({"kubectl.kubernetes.io/default-container": "second"}, ["second"]),
        ({"kubectl.kubernetes.io/default-container": "none"}, ["first"]),
        ({"tidegate.io/containers": "second,first"}, ["first", "second"]),
    ],
)
def test_the_main_container_or_those_that_are_named(annotations: Mapping[str, str], chosen: list[str]) -> None:
    after = injected(pod({"name": "first"}, {"name": "second"}, annotations=annotations))

    assert [c["name"] for c in after["spec"]["containers"] if "env" in c] == chosen


def test_a_policy_names_containers_and_the_pod_has_the_last_word() -> None:
    around = Surroundings((policy(consumers={**SELECTS, "containers": ["second"]}),))
    both = ({"name": "first"}, {"name": "second"})

    by_policy = injected(pod(*both), around)
    by_pod = injected(pod(*both, annotations={"tidegate.io/containers": "first"}), around)

    assert [c["name"] for c in by_policy["spec"]["containers"] if "env" in c] == ["second"]
    assert [c["name"] for c in by_pod["spec"]["containers"] if "env" in c] == ["first"]


BIG = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    "resources", [{}, {"requests": {"cpu": "1"}}, {"limits": BIG}, {"limits": BIG, "requests": {"memory": "1Gi"}}]
)
def test_the_init_container_asks_for_what_the_pods_own_container_does(resources: Mapping[str, Any]) -> None:
    """So a LimitRange takes it, whatever its minimum or ratio, and the pod stays in its QoS class."""
    devices = {kind: {**named, "example.com/gpu": "1"} for kind, named in resources.items()}
    others = {"name": "sidecar", "resources": {"limits": {"cpu": "7"}}}

    (init,) = injected(pod({"name": "app", "resources": devices}, others))["spec"]["initContainers"]

    assert init.get("resources", {}) == resources


@pytest.mark.parametrize(("user", "ours"), [(None, None), (1000, None), (0, 10001)])
def test_the_init_container_is_restricted_and_never_root(user: int | None, ours: int | None) -> None:
    (init,) = injected(pod(securityContext={"runAsUser": user}))["spec"]["initContainers"]

    security = init["securityContext"]
    assert security["runAsNonRoot"] is security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is security["privileged"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security.get("runAsUser") == ours


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        (pod(os={"name": "windows"}), "WindowsNotSupported", "Windows"),
        (pod(nodeSelector={"kubernetes.io/os": "windows"}), "WindowsNotSupported", "Windows"),
        (pod(securityContext={"windowsOptions": {"hostProcess": True}}), "WindowsNotSupported", "Windows"),
        (
            pod({"name": "app", "securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}}),
            "WindowsNotSupported",
            "Windows",
        ),
        (pod(affinity=on_nodes_of("windows")), "WindowsNotSupported", "Windows"),
        (
            pod({"name": "app", "env": [{"name": "PYTHONPATH", "valueFrom": {"fieldRef": {}}}]}),
            "PythonPathNotKnown",
            "container app",
        ),
        (pod({"name": "app", "volumeMounts": [{"mountPath": "/tidegate/"}]}), "MountTaken", "at /tidegate"),
        (pod({"name": "app", "volumeMounts": [{"mountPath": "/tidegate/x"}]}), "MountTaken", "at /tidegate/x"),
        (pod({"name": "tidegate-agent"}), "NameTaken", "tidegate-agent"),
        (pod(volumes=[{"name": "tidegate-agent"}]), "NameTaken", "tidegate-agent"),
        (pod(annotations={"tidegate.io/containers": "main"}), "UnknownContainer", "it has app"),
        (pod(annotations={"tidegate.io/policy": "other"}), "UnknownPolicy", "'other'"),
        (pod(labels={"tidegate.io/inject": "perl"}), "UnknownFormat", "'perl'"),
        (pod(labels={"tidegate.io/inject": "spring"}), "NoPolicy", "tidegate.io/policy"),
    ],
)
def test_what_cannot_be_done_is_refused(body: dict[str, Any], reason: str, told: str) -> None:
    found = refusal(body)

    assert found.reason == reason
    assert told in found.message


@pytest.mark.parametrize("affinity", [on_nodes_of("linux"), on_nodes_of("linux", "windows"), {"nodeAffinity": {}}])
def test_a_pod_that_may_run_on_linux_is_injected(affinity: dict[str, Any]) -> None:
    assert injected(pod(affinity=affinity))["spec"]["initContainers"]


def test_mounts_beside_ours_are_no_reason_to_refuse() -> None:
    assert injected(pod({"name": "app", "volumeMounts": [{"name": "x", "mountPath": "/tidegate-data"}]}))


@pytest.mark.parametrize(
    "body",
    [
        pod(labels={"app": "other"}),
        pod(labels={"app": "payments", "tidegate.io/inject": "false"}),
        pod(annotations={"tidegate.io/inject": "False"}),
        pod(annotations={"kubernetes.io/config.mirror": "x"}),
    ],
)
def test_pods_that_nobody_selected_or_that_say_no_are_left_alone(body: dict[str, Any]) -> None:
    assert wish_for(body, AROUND) is None


def test_a_label_alone_brings_the_agent_for_the_namespaces_control_topic() -> None:
    body = pod(labels={"tidegate.io/inject": "python"})
    two = Surroundings((), {"a": AgentTopics("__a"), "b": AgentTopics("__b")})

    after = injected(body, Surroundings((), {"a": AgentTopics("__gates"), "b": AgentTopics("__gates")}))

    found = env(after["spec"]["containers"][0])
    assert found == {"TIDEGATE_AGENT": "1", "TIDEGATE_CONTROL_TOPIC": "__gates", "PYTHONPATH": "/tidegate/python"}
    assert refusal(body, two).reason == refusal(body, Surroundings()).reason == "NoConnection"


def test_a_pod_that_names_a_policy_for_many_groups_is_refused_unless_it_needs_no_group() -> None:
    """The agent has to be told of one."""
    fleet = policy("q", group=None, groups=["*"], consumers=None, latest={"maxAge": "2h"})
    around = Surroundings((policy("p"), fleet))
    by_name = {"tidegate.io/policy": "q"}

    found = refusal(pod(annotations=by_name), around)
    spring = injected(pod(annotations={**by_name, "tidegate.io/inject": "spring"}), around)

    assert (found.reason, found.policies) == ("UnknownPolicy", ("q",))
    assert "'q', which is for many groups" in found.message
    assert "SPRING_KAFKA_CONSUMER_PROPERTIES_AUTO_OFFSET_RESET_LATEST_MAX_AGE" in env(spring["spec"]["containers"][0])


def test_a_pod_may_name_the_policy_and_the_format() -> None:
    around = Surroundings((policy("p"), policy("q", latest={"maxAge": "2h"}, consumers=None)))
    by_name = pod(labels={"a": "b"}, annotations={"tidegate.io/policy": "q"})
    as_java = pod(labels={"app": "payments", "tidegate.io/inject": "spring"}, annotations={"tidegate.io/policy": "q"})

    assert env(injected(by_name, around)["spec"]["containers"][0])["TIDEGATE_LATEST_MAX_AGE"] == "7200000"
    after = injected(as_java, around)
    assert env(after["spec"]["containers"][0]) == {
        "SPRING_KAFKA_CONSUMER_PROPERTIES_AUTO_OFFSET_RESET_LATEST_MAX_AGE": "7200000",
        "SPRING_KAFKA_CONSUMER_PROPERTIES_AUTO_OFFSET_RESET_NEW_PARTITIONS": "earliest",
    }
    assert "initContainers" not in after["spec"]


# --- the review -------------------------------------------------------------------------------------------------------


def review(body: Any, **request: Any) -> dict[str, Any]:
    asked = {
        "uid": "u-1",
        "operation": "CREATE",
        "namespace": "ns",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": body,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def answered(body: Any, **request: Any) -> Answer:
    found = answer(review(body, **request), {"ns": AROUND}.get, AGENT)
    response = found.response["response"]
    assert response["allowed"] is True
    assert response["uid"] == "u-1"
    return found


def test_the_answer_carries_the_patch() -> None:
    found = answered(pod())

    response = found.response["response"]
    operations = json.loads(base64.b64decode(response["patch"]))
    assert response["patchType"] == "JSONPatch"
    assert applied(pod(), tuple(operations)) == injected(pod())
    assert (found.outcome, found.notice, found.topics) == ("Injected", None, AgentTopics("__tidegate"))
    assert answered(pod(), dryRun=True).topics is None


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        ({"operation": "UPDATE"}, "Ignored"),
        ({"subResource": "ephemeralcontainers"}, "Ignored"),
        ({"resource": {"group": "apps", "resource": "deployments"}}, "Ignored"),
        ({"namespace": "elsewhere"}, "Ignored"),
        ({"object": None}, "Ignored"),
        ({"object": {"metadata": {"labels": {"app": "payments"}}}}, "Failed"),
        ({"object": {"metadata": {"labels": {"app": "payments"}}, "spec": {"containers": ["x"]}}}, "Failed"),
        ({"object": pod(labels={"app": "other"})}, "NotSelected"),
    ],
)
def test_whatever_comes_is_let_in(request_: Mapping[str, Any], outcome: str) -> None:
    found = answered(pod(), **request_)

    assert found.outcome == outcome
    assert "patch" not in found.response["response"]


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "payments-1", "uid": "u-2", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "about"),
    [
        ({"ownerReferences": [OWNER], "name": "x"}, "ReplicaSet payments-1"),
        # Not yet there, and whoever makes it is warned.
        ({"name": "by-hand"}, None),
        ({"ownerReferences": [{**OWNER, "uid": ""}], "name": "x"}, None),
        ({"ownerReferences": 1, "name": "x"}, None),
    ],
)
def test_a_refusal_is_a_warning_and_an_event_about_what_made_the_pod(
    metadata: Mapping[str, Any], about: str | None
) -> None:
    body = pod(os={"name": "windows"})
    body["metadata"] = {"labels": {"app": "payments"}, **metadata}

    found, rehearsed = answered(body), answered(body, dryRun=True)

    assert "not injected" in found.response["response"]["warnings"][0]
    if about is None:
        assert found.notice is None
    else:
        assert found.notice is not None
        assert found.notice.policies == ("p",)
        assert found.notice.happening.reason == "InjectionRefused"
        assert f"{found.notice.about['kind']} {found.notice.about['name']}" == about
    assert rehearsed.notice is None
    assert rehearsed.response["response"]["warnings"] == found.response["response"]["warnings"]


@pytest.mark.parametrize("body", [None, [], {}, {"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}])
def test_what_is_no_review_is_said_to_be_none(body: Any) -> None:
    with pytest.raises(BadReview):
        answer(body, {"ns": AROUND}.get, AGENT)
