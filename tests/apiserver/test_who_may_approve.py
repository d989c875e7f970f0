"""Who may declare, request, approve, back up and pause, each by a right of its own; and in whose name one approves."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client as kube
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config_dict

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, leave_at, produce
from chart.rendering import environment, kubectl, of_kind, template
from devstack import ApiServer, KafkaCluster
from support.operator_process import Body, Resources, condition_of, until
from support.rights import refusal
from support.stack_fixtures import MakeTopic, Unique

SERVED: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
DIGEST: Final = "a" * 64
SPECS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "offsetresetpolicies": ("OffsetResetPolicy", {"connectionRef": {"name": "kafka"}, "group": "g"}),
    "offsetresets": ("OffsetReset", {"connectionRef": {"name": "kafka"}, "group": "g", "to": {"earliest": {}}}),
    "offsetresetapprovals": ("OffsetResetApproval", {"reset": "r", "plan": DIGEST, "approver": "somebody"}),
    "offsetbackups": (
        "OffsetBackup",
        {"connectionRef": {"name": "kafka"}, "schedule": "1h", "storage": {"folder": {"path": "offsets"}}},
    ),
    "offsetmirrors": (
        "OffsetMirror",
        {"source": {"name": "kafka"}, "target": {"name": "other"}, "topics": {"include": ["t"]}},
    ),
    "consumergrouppauses": ("ConsumerGroupPause", {"connectionRef": {"name": "kafka"}, "group": "g", "reason": "r"}),
}
"""What the smallest resource of each kind says, by the plural."""


def body_of(plural: str, name: str = "mine", **spec: Any) -> Body:
    kind, smallest = SPECS[plural]
    merged = {**copy.deepcopy(smallest), **spec}
    return {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": merged}


class Person:
    """A service account with a Role that grants these verbs on these kinds, and nothing else."""

    def __init__(
        self, resources: Resources, admin: kube.ApiClient, apiserver: ApiServer, name: str, *rules: tuple[str, ...]
    ) -> None:
        self.namespace = resources.namespace
        self.user = f"system:serviceaccount:{self.namespace}:{name}"
        core, rbac = resources.core, kube.RbacAuthorizationV1Api(admin)
        meta = kube.V1ObjectMeta(name=name)
        core.create_namespaced_service_account(self.namespace, kube.V1ServiceAccount(metadata=meta))
        granted = [
            kube.V1PolicyRule(api_groups=["tidegate.io"], resources=[plural], verbs=list(verbs))
            for plural, *verbs in rules
        ]
        rbac.create_namespaced_role(self.namespace, kube.V1Role(metadata=meta, rules=granted))
        to = kube.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=name)
        subject = kube.RbacV1Subject(kind="ServiceAccount", name=name, namespace=self.namespace)
        rbac.create_namespaced_role_binding(
            self.namespace, kube.V1RoleBinding(metadata=meta, role_ref=to, subjects=[subject])
        )
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        token = core.create_namespaced_service_account_token(name, self.namespace, request).status.token
        self.kubeconfig: dict[str, Any] = yaml.safe_load(apiserver.kubeconfig.read_text())
        self.kubeconfig["users"][0]["user"] = {"token": token}
        self._objects = kube.CustomObjectsApi(new_client_from_config_dict(self.kubeconfig))

    def create(self, plural: str, name: str = "mine", *, dry_run: bool = False, **spec: Any) -> Body:
        options = {"dry_run": "All"} if dry_run else {}
        made: Body = self._objects.create_namespaced_custom_object(
            "tidegate.io", "v1alpha1", self.namespace, plural, body_of(plural, name, **spec), **options
        )
        return made

    def patch(self, plural: str, name: str, change: Mapping[str, Any]) -> None:
        self._objects.patch_namespaced_custom_object(
            "tidegate.io",
            "v1alpha1",
            self.namespace,
            plural,
            name,
            dict(change),
            _content_type="application/merge-patch+json",
        )


Employ = Callable[..., Person]


@pytest.fixture
def employ(resources: Resources, kube_client: kube.ApiClient, apiserver: ApiServer) -> Employ:
    """Makes somebody who may do what is named, in the test's namespace."""
    return lambda name, *rules: Person(resources, kube_client, apiserver, name, *rules)


# --- each alone -------------------------------------------------------------------------------------------------------


def test_who_may_declare_request_approve_back_up_and_pause_may_do_that_alone(employ: Employ) -> None:
    for mine in SPECS:
        person = employ(f"only-{mine}", (mine, "create"))
        allowed = {
            plural
            for plural in SPECS
            if not refusal(lambda p=plural, who=person: who.create(p, dry_run=True))  # type: ignore[misc]
        }
        assert allowed == {mine}


def test_nobody_but_the_operator_writes_the_status_of_an_approval(employ: Employ, resources: Resources) -> None:
    person = employ("approver", ("offsetresetapprovals", "create", "get", "patch", "update"))
    person.create("offsetresetapprovals")
    objects = kube.CustomObjectsApi(new_client_from_config_dict(person.kubeconfig))

    with pytest.raises(ApiException) as refused:
        objects.patch_namespaced_custom_object_status(
            "tidegate.io", "v1alpha1", resources.namespace, "offsetresetapprovals", "mine", {}
        )
    assert refused.value.status == 403


# --- in whose name ----------------------------------------------------------------------------------------------------


class Installed:
    """The chart's admission policies, for one namespace."""

    def __init__(self, apiserver: ApiServer, release: str, namespace: str, approval: Mapping[str, Any]) -> None:
        self._apiserver = apiserver
        values = {
            "watchNamespaces": [namespace],
            "approval": dict(approval),
            "rbac": {"admissionPolicy": "never"},  # tests/security/test_admitted_jobs.py
        }
        rendered = [m for m in yaml.safe_load_all(template(values, SERVED, release=release, namespace=namespace)) if m]
        self.environment = environment(rendered, f"{release}-tidegate")
        self.operator = f"{release}-tidegate"
        self._manifests = list(of_kind(rendered, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"))
        assert len(self._manifests) == 4

    def apply(self) -> None:
        kubectl("apply", self._manifests, self._apiserver.kubeconfig)

    def remove(self) -> None:
        kubectl("delete", self._manifests, self._apiserver.kubeconfig)


Install = Callable[..., Installed]


@pytest.fixture
def install(apiserver: ApiServer, resources: Resources, employ: Employ, unique: Unique) -> Iterator[Install]:
    """Installs the admission policies with these values of ``approval``, and waits until they are enforced."""
    made: list[Installed] = []

    def now(**approval: Any) -> Installed:
        installed = Installed(apiserver, unique("r")[-12:].strip("-"), resources.namespace, approval)
        made.append(installed)
        installed.apply()
        stranger = employ("stranger", ("offsetresetapprovals", "create"), ("offsetresets", "create"))
        forged: tuple[tuple[str, dict[str, Any]], ...] = (
            ("offsetresetapprovals", {"approver": "nobody"}),
            ("offsetresets", {"requester": "nobody", "approval": "Manual"}),
        )
        for plural, spec in forged:
            until(
                lambda p=plural, s=spec: refusal(lambda: stranger.create(p, dry_run=True, **s)),  # type: ignore[misc]
                f"forged {plural} are refused",
            )
        return installed

    yield now
    for installed in made:
        installed.remove()


def test_one_approves_in_ones_own_name_and_only_listed_accounts_in_that_of_others(
    employ: Employ, install: Install, resources: Resources
) -> None:
    ann = employ("ann", ("offsetresetapprovals", "create"))
    argo = employ("argo", ("offsetresetapprovals", "create"))
    install(onBehalf=[argo.user])

    forged = refusal(lambda: ann.create("offsetresetapprovals", approver="bob"))
    assert f"spec.approver must be your own user name, {ann.user}" in forged
    assert resources.get("offsetresetapprovals", "mine") is None
    assert ann.create("offsetresetapprovals", "of-ann", approver=ann.user)["spec"]["approver"] == ann.user
    assert argo.create("offsetresetapprovals", "of-bob", approver="bob")["spec"]["approver"] == "bob"


def test_an_approval_can_not_be_changed_into_that_of_somebody_else(employ: Employ, install: Install) -> None:
    ann = employ("ann", ("offsetresetapprovals", "create", "get", "patch"))
    install()
    ann.create("offsetresetapprovals", approver=ann.user)

    with pytest.raises(ApiException, match="is immutable: create another OffsetResetApproval"):
        ann.patch("offsetresetapprovals", "mine", {"spec": {"approver": "bob"}})


def test_other_namespaces_are_left_alone(
    employ: Employ, install: Install, kube_client: kube.ApiClient, unique: Unique
) -> None:
    install()
    core, elsewhere = kube.CoreV1Api(kube_client), unique("elsewhere")
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=elsewhere)))

    made = Resources(kube_client, elsewhere).approve("r", DIGEST, "anybody")

    core.delete_namespace(elsewhere)
    assert made["spec"]["approver"] == "anybody"


VERBS = ("create", "get", "patch")


def test_one_asks_for_a_reset_in_ones_own_name_where_anybody_is_named(employ: Employ, install: Install) -> None:
    ann = employ("ann", ("offsetresets", *VERBS), ("offsetresetpolicies", *VERBS))
    bob = employ("bob", ("offsetresets", *VERBS), ("offsetresetpolicies", *VERBS))
    argo = employ("argo", ("offsetresets", *VERBS), ("offsetresetpolicies", *VERBS))
    install(onBehalf=[argo.user])

    forged = refusal(lambda: ann.create("offsetresets", requester=bob.user))
    assert f"spec.requester must be your own user name, {ann.user}" in forged
    of_policy = {"id": "one", "to": {"earliest": {}}, "requester": bob.user}
    forged = refusal(lambda: ann.create("offsetresetpolicies", reset=of_policy))
    assert f"spec.reset.requester must be your own user name, {ann.user}" in forged

    ann.create("offsetresets", "without")
    ann.create("offsetresets", "own", requester=ann.user)
    ann.create("offsetresetpolicies", "own", reset={**of_policy, "requester": ann.user})
    argo.create("offsetresets", "from-git", requester="carol")

    # Whoever changes what is reset asks for it himself, and whoever suspends it does not.
    changed = refusal(lambda: bob.patch("offsetresets", "own", {"spec": {"to": {"earliest": None, "latest": {}}}}))
    assert f"spec.requester must be your own user name, {bob.user}" in changed
    added = refusal(lambda: bob.patch("offsetresets", "own", {"spec": {"topics": ["t"]}}))
    assert "spec.requester must be your own user name" in added
    bob.patch("offsetresets", "own", {"spec": {"suspend": True}, "metadata": {"labels": {"seen": "yes"}}})
    bob.patch("offsetresets", "own", {"spec": {"ttlAfterFinished": "1h"}})
    bob.patch("offsetresets", "own", {"spec": {"topics": ["t"], "requester": bob.user}})
    ann.patch("offsetresets", "own", {"spec": {"topics": None, "requester": None}})
    changed = refusal(lambda: bob.patch("offsetresetpolicies", "own", {"spec": {"topics": ["t"]}}))
    assert f"spec.reset.requester must be your own user name, {bob.user}" in changed
    bob.patch("offsetresetpolicies", "own", {"spec": {"retention": {}}})
    bob.patch("offsetresetpolicies", "own", {"spec": {"reset": None, "topics": ["t"]}})


def test_a_policy_whose_reset_has_begun_can_be_changed_by_others(
    employ: Employ, install: Install, resources: Resources, kube_client: kube.ApiClient
) -> None:
    ann = employ("ann", ("offsetresetpolicies", *VERBS))
    bob = employ("bob", ("offsetresetpolicies", *VERBS))
    install()
    body = ann.create("offsetresetpolicies", reset={"id": "one", "to": {"earliest": {}}, "requester": ann.user})
    status = {"reset": {"id": "one", "phase": "Applying", "startedAt": "2026-11-20T12:00:00Z"}}
    kube.CustomObjectsApi(kube_client).replace_namespaced_custom_object_status(
        "tidegate.io", "v1alpha1", resources.namespace, "offsetresetpolicies", "mine", {**body, "status": status}
    )

    bob.patch("offsetresetpolicies", "mine", {"spec": {"topics": ["t"]}})
    another = {"reset": {"id": "two"}}
    assert "must be your own user name" in refusal(lambda: bob.patch("offsetresetpolicies", "mine", {"spec": another}))


def test_every_reset_has_to_be_approved_and_to_name_its_requester_where_that_is_set(
    employ: Employ, install: Install, resources: Resources
) -> None:
    ann = employ("ann", ("offsetresets", *VERBS), ("offsetresetpolicies", *VERBS))
    resources.reset("before", "g", {"earliest": {}})
    install(required=True, separateApprover=True)
    to = {"earliest": {}}

    assert "spec.approval must be Manual" in refusal(lambda: ann.create("offsetresets", requester=ann.user))
    asked = {"id": "one", "to": to, "requester": ann.user}
    assert "spec.reset.approval must be Manual" in refusal(lambda: ann.create("offsetresetpolicies", reset=asked))
    nameless = refusal(lambda: ann.create("offsetresets", approval="Manual"))
    assert "spec.requester is required with approval Manual" in nameless
    nameless = refusal(lambda: ann.create("offsetresetpolicies", reset={"id": "one", "to": to, "approval": "Manual"}))
    assert "spec.reset.requester is required with approval Manual, since somebody else has to approve" in nameless
    ann.create("offsetresets", approval="Manual", requester=ann.user)
    ann.create("offsetresetpolicies", "keeps-only")
    ann.patch("offsetresets", "before", {"metadata": {"labels": {"old": "yes"}}})


def test_the_operators_account_passes_a_policys_requester_on(employ: Employ, install: Install) -> None:
    """Its name is the chart's, of this release: nobody has to list it."""
    namespaced = employ("placeholder", ("offsetresets", "create"))
    installed = install()
    operator = employ(installed.operator, ("offsetresets", *VERBS), ("offsetresetapprovals", "create"))

    operator.create("offsetresets", requester="ann")

    assert "must be your own" in refusal(lambda: operator.create("offsetresetapprovals", approver="ann"))
    assert "must be your own" in refusal(lambda: namespaced.create("offsetresets", "forged", requester="ann"))


# --- end to end -------------------------------------------------------------------------------------------------------


def test_a_reset_is_requested_by_one_and_approved_by_another(
    employ: Employ,
    install: Install,
    resources: Resources,
    start_operator: StartOperator,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic, group = make_topic(1), unique("group")
    produce(kafka.bootstrap, topic, 1, 100)
    leave_at(kafka.bootstrap, group, topic, {0: 50})
    requester = employ("requester", ("offsetresets", "create", "patch", "get"), ("offsetresetapprovals", "create"))
    approver = employ("approver", ("offsetresetapprovals", "create", "get"), ("offsetresets", "get"))
    installed = install(required=True, separateApprover=True)
    # It looks at a run every minute, so that what happens sooner is because a watch has told of it.
    separate = {"TIDEGATE_SEPARATE_APPROVER": installed.environment["TIDEGATE_SEPARATE_APPROVER"]}
    start_operator({**separate, "TIDEGATE_ACTIVE_TICK_S": "60"})
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    requester.create("offsetresets", group=group, to={"offset": 10}, approval="Manual", requester=requester.user)
    digest = resources.wait_phase("mine", "AwaitingApproval")["status"]["digest"]

    # Who may do anything with resets, and even create approvals, approves nothing here.
    requester.patch("offsetresets", "mine", {"metadata": {"annotations": {"tidegate.io/approve": digest}}})
    requester.create("offsetresetapprovals", "own", reset="mine", plan=digest, approver=requester.user)
    own = until(lambda: said(resources, "own", "False"), "its own approval has no effect")
    assert own["reason"] == "ApproverIsRequester"
    told = "create an OffsetResetApproval instead"
    # Its own pass says that, which is not the approval's.
    until(lambda: told in condition_of(resources.get_reset("mine"), "Complete")["message"], told, timeout_s=30)
    assert committed(kafka.bootstrap, group, topic, 1) == {0: 50}

    wrong = approve(approver, tmp_path, "mine", "--plan", "b" * 64)
    assert (wrong.returncode, "OtherPlan" in wrong.stderr) == (1, True), wrong
    began = time.monotonic()
    right = approve(approver, tmp_path, "mine", "--plan", digest)
    assert (right.returncode, "Approved" in right.stderr) == (0, True), right
    done = resources.wait_phase("mine", "Succeeded", "Failed", "RolledBack")

    assert time.monotonic() - began < 45, "it was not told of the approval"
    assert (done["status"]["phase"], committed(kafka.bootstrap, group, topic, 1)) == ("Succeeded", {0: 10})
    approval = done["status"]["approval"]
    assert (done["status"]["requester"], approval["approver"]) == (requester.user, approver.user)
    assert done["status"]["approvedDigest"] == digest
    assert datetime.fromisoformat(approval["approvedAt"]) >= datetime.fromisoformat(done["status"]["startedAt"])
    made = resources.get("offsetresetapprovals", approval["name"])
    assert made is not None
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [done["metadata"]["uid"]]


def said(resources: Resources, name: str, status: str) -> dict[str, Any] | None:
    """The approval's condition, once it has this status."""
    body = resources.get("offsetresetapprovals", name)
    found = condition_of(body, "Effective") if body is not None else {}
    return found if found.get("status") == status else None


def approve(person: Person, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tidegate approve`, by somebody with a kubeconfig of his own."""
    kubeconfig = folder / "approver.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(person.kubeconfig))
    command = [sys.executable, "-m", "tidegate.cli.main", "approve", *arguments, "-n", person.namespace, "--wait=60"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"KUBECONFIG": str(kubeconfig)}
    )
