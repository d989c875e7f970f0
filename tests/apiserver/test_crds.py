"""The CRDs on a real API server: the corpus, defaults, status, ``kubectl explain`` and ``kubectl get``."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from corpus.reading import PLURALS, Case, read_cases
from devstack import ApiServer
from devstack.errors import StackError
from support.kstatus import KStatus, kstatus_of
from support.operator_process import until
from tidegate.resources import conditions
from tidegate.resources.base import NOT_LOOKED_AT, parse_spec, read_status
from tidegate.resources.kinds import KINDS
from tidegate.resources.offset_reset import OffsetResetSpec

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("crds_installed")]

GROUP, VERSION = "tidegate.io", "v1alpha1"
CRDS = Path(__file__).resolve().parents[2] / "crds"
STATUS = {kind.name: kind.status for kind in KINDS}


class Resources:
    """Resources of all kinds in one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = client.CustomObjectsApi(api)
        self._namespace = namespace

    def _where(self, resource: dict[str, Any]) -> tuple[str, str, str, str]:
        return GROUP, VERSION, self._namespace, PLURALS[resource["kind"]]

    def create(self, resource: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        options = {"dry_run": "All"} if dry_run else {}
        created: dict[str, Any] = self._api.create_namespaced_custom_object(
            *self._where(resource), resource, field_validation="Strict", **options
        )
        return created

    @contextmanager
    def created(self, resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
        stored = self.create(resource)
        try:
            yield stored
        finally:
            self._api.delete_namespaced_custom_object(*self._where(resource), resource["metadata"]["name"])

    def replace(self, stored: dict[str, Any], resource: dict[str, Any]) -> dict[str, Any]:
        metadata = resource["metadata"] | {"resourceVersion": stored["metadata"]["resourceVersion"]}
        replaced: dict[str, Any] = self._api.replace_namespaced_custom_object(
            *self._where(resource),
            resource["metadata"]["name"],
            resource | {"metadata": metadata},
            dry_run="All",
            field_validation="Strict",
        )
        return replaced

    def admit(self, case: Case) -> dict[str, Any]:
        """What the server would store for ``case``; nothing is left behind."""
        if case.replaces is None:
            return self.create(case.resource, dry_run=True)
        with self.created(case.replaces) as stored:
            return self.replace(stored, case.resource)

    def write_status(self, stored: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = self._api.replace_namespaced_custom_object_status(
            *self._where(stored), stored["metadata"]["name"], stored | {"status": status}, field_validation="Strict"
        )
        return written


@pytest.fixture(scope="module")
def namespace(kube_client: Any) -> Iterator[str]:
    """One for all tests here: each takes away what it made, and most make nothing (dry run)."""
    name = f"crds-{secrets.token_hex(4)}"
    core = client.CoreV1Api(kube_client)
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    yield name
    core.delete_namespace(name)


@pytest.fixture(scope="module")
def resources(kube_client: Any, namespace: str) -> Resources:
    return Resources(kube_client, namespace)


def kubectl(apiserver: ApiServer, *arguments: str) -> str:
    done = subprocess.run(
        ["kubectl", *arguments],
        env=os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", read_cases("valid"), ids=str)
def test_valid_resources_are_taken_and_mean_the_same(case: Case, resources: Resources) -> None:
    stored = resources.admit(case)

    written = parse_spec(case.spec, case.resource)
    assert parse_spec(case.spec, stored) == written
    # What the server fills in is what the models fill in.
    added = flat(stored["spec"]).keys() - flat(case.resource["spec"]).keys()
    filled_in = flat(written.to_json())
    assert {path: flat(stored["spec"])[path] for path in added} == {path: filled_in[path] for path in added}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {where: leaf for name, member in value.items() for where, leaf in flat(member, f"{path}.{name}").items()}
    return {} if value is None else {path: value}


INVALID = read_cases("invalid")


@pytest.fixture(scope="module")
def refusals(resources: Resources) -> dict[str, dict[str, Any]]:
    """The API server's answers to the invalid resources, by case; those it took are absent."""
    answers = {}
    for case in INVALID:
        try:
            resources.admit(case)
        except client.ApiException as error:
            answers[case.name] = json.loads(error.body)
    return answers


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_invalid_resources_are_refused_with_what_to_do(case: Case, refusals: dict[str, dict[str, Any]]) -> None:
    assert case.expect is not None
    if case.expect[1] == "-":
        assert case.name not in refusals
        return

    refusal = refusals[case.name]

    assert refusal["code"] in (400, 422)
    assert case.expect[1] in refusal["message"]


_NESTED = '{"a": ' * 600 + "{}" + "}" * 600
_DEEP = {
    "ConsumerGroupPause": f'"partitions": [{{"topic": "orders", "partitions": {_NESTED}}}]',
    "OffsetReset": f'"to": {{"earliest": {{}}}}, "partitions": [{{"topic": "orders", "partitions": {_NESTED}}}]',
    "OffsetResetPolicy": f'"snapshots": {_NESTED}',
}


@pytest.mark.parametrize("kind", _DEEP)
def test_what_is_nested_too_deeply_to_be_read_is_not_stored(
    kind: str, apiserver: ApiServer, namespace: str, tmp_path: Path
) -> None:
    """kopf copies every object that it is told of, which fails from a depth of about 500 on, and from 1,000 on Python
    can't read its JSON: one such object, in any namespace, would end the operator again and again."""
    file = tmp_path / "deep.yaml"
    file.write_text(
        f"apiVersion: {GROUP}/{VERSION}\nkind: {kind}\nmetadata:\n  name: deep\n  namespace: {namespace}\n"
        f'spec: {{"connectionRef": {{"name": "prod"}}, "group": "payments", {_DEEP[kind]}}}\n'
    )

    with pytest.raises(StackError, match="422"):
        apiserver.apply(file)


def test_no_field_takes_an_object_of_any_depth() -> None:
    """But for those of earlier versions, which no resource may be given any more."""
    found = {
        (path.name.partition(".")[0], where)
        for path in CRDS.glob("*.tidegate.io.yaml")
        for where, node in _nodes(yaml.safe_load(path.read_text()), "")
        if node.get("x-kubernetes-preserve-unknown-fields") and node.get("maxProperties") != 0
    }

    assert {where.rpartition(".")[2] for _, where in found} == {"snapshot", "snapshots"}


def _nodes(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield where, value
        for name, part in value.items():
            yield from _nodes(part, f"{where}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part, where)


@pytest.mark.parametrize("kind", PLURALS)
def test_every_rule_is_broken_by_a_case(kind: str, kube_client: Any, refusals: dict[str, dict[str, Any]]) -> None:
    """A rule that nothing breaks could be missing, and nobody would notice."""
    definitions = client.CustomObjectsApi(kube_client)
    definition = definitions.get_cluster_custom_object(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", f"{PLURALS[kind]}.{GROUP}"
    )
    causes = [
        (re.sub(r"\[[^]]*\]", "[]", cause["field"]), cause["message"])
        for case in INVALID
        if case.kind == kind
        for cause in refusals.get(case.name, {}).get("details", {}).get("causes") or []
    ]

    unbroken = [
        (path, message)
        for path, message in rules(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")
        # Rules on the whole object are about its name and its status: the corpus and
        # tests/apiserver/test_operator_offset_reset.py break them.
        if path and not any(path == field and message in said for field, said in causes)
    ]

    assert unbroken == []


def rules(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """The CEL rules at and below ``node``: the path as the API server's causes name it, and the message."""
    for rule in node.get("x-kubernetes-validations", []):
        yield path, rule["message"]
    for name, child in node.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}" if path else name)
    for children in ("items", "additionalProperties"):
        if children in node:
            yield from rules(node[children], f"{path}[]")


NOW = datetime(2026, 11, 20, 14, 0, 5, 250_000, tzinfo=UTC)


def settled(*domain: str) -> list[dict[str, Any]]:
    found = conditions.ready((), reason="Succeeded", message="All is well.", generation=1, now=NOW)
    for name in domain:
        found = conditions.with_condition(found, name, True, reason="Done", message="", generation=1, now=NOW)
    return [condition.to_json() for condition in found]


STATUSES: dict[str, dict[str, Any]] = {
    "KafkaConnection": {
        "observedGeneration": 1,
        "clusterId": "Q0tV0gT6Sxe9Gq8dRk1zJw",
        "brokers": 3,
        "features": {"consumerProtocol": True, "streamsProtocol": True, "nativePause": False},
        "capabilities": {
            "resettable": "empty, classic?",
            "resets": [
                {"groups": "Empty", "support": "Supported", "reason": "KnownVersions", "message": "Tested."},
                {
                    "groups": "Classic",
                    "support": "Unknown",
                    "reason": "NotAuthorized",
                    "message": "No right.",
                },
                {"groups": "Streams", "support": "NotOffered", "reason": "NoSuchGroups", "message": ""},
            ],
        },
        "conditions": settled(),
    },
    "ConsumerGroupPause": {
        "observedGeneration": 1,
        "phase": "Paused",
        "method": "Agent",
        "paused": "4/4",
        "partitionsPaused": 4,
        "partitionsTotal": 4,
        "resumesAt": "2026-11-20T16:00:00Z",
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "phase": "Paused",
                "offset": 42,
                "lag": 7,
                "member": "consumer-1-0d6e",
                "since": "2026-11-20T14:00:05.250000Z",
            }
        ],
        "partitionsOmitted": 3,
        "unmanagedMembers": [{"memberId": "rdkafka-1", "clientId": "rdkafka", "host": "/10.0.0.7"}],
        "workloads": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "payments",
                "uid": "5f2c",
                "phase": "Paused",
                "replicas": 3,
                "scaledDown": 1,
                "scaledDownAt": "2026-11-20T14:00:05Z",
                "scaledObject": {"name": "payments", "pausedReplicas": "2"},
            }
        ],
        "conditions": settled(conditions.PAUSED),
    },
    "OffsetResetPolicy": {
        "observedGeneration": 1,
        "reset": {
            "id": "replay-2026-11-20",
            "name": "payments-replay-2026-11-20",
            "phase": "Succeeded",
            "startedAt": "2026-11-20T14:00:00Z",
            "finishedAt": "2026-11-20T14:00:05.250000Z",
            "recordsReplayed": 1200,
            "recordsSkipped": 0,
        },
        "history": [{"id": "replay-2026-11-19", "phase": "Succeeded", "finishedAt": "2026-11-19T14:00:05.250000Z"}],
        "discovery": {
            "initialDiscoveryFinished": True,
            "assigned": 4,
            "unassignedInitial": 0,
            "selection": ["orders", "refunds-*"],
            "startsCommitted": 2,
            "beganAtEnd": 1,
            "backfilled": 1,
            "newest": [{"topic": "orders", "partition": 3, "seenAt": "2026-11-20T13:00:00Z"}],
            "topics": [{"name": "orders", "topicId": "Q0tV0gT6", "initial": 3, "settled": 4, "before": "xBkwq_vs"}],
        },
        "retention": {
            "state": "Stable",
            "expiresAt": "2026-11-27T14:00:00Z",
            "exact": True,
            "guarded": True,
            "offsets": 4,
            "kept": 4,
            "renewedAt": "2026-11-20T14:00:00Z",
            "snapshot": "payments-place-5f2c",
        },
        "groups": {
            "selected": 12,
            "overridden": 1,
            "troubled": 1,
            "worst": [
                {
                    "group": "payments",
                    "reason": "ExpiresSoon",
                    "expiresAt": "2026-11-27T14:00:00Z",
                    "message": "the first of 4 offset(s) expires at 2026-11-27T14:00:00Z",
                }
            ],
        },
        "overrides": [{"policy": "every", "part": "retention", "groups": 11, "example": "payments"}],
        "overriddenBy": [{"policy": "orders", "part": "discovery", "groups": 1, "example": "orders"}],
        "conditions": settled(conditions.RESET, conditions.RETAINED, conditions.INJECTED),
    },
    "OffsetReset": {
        "observedGeneration": 1,
        "runUid": "5f2c/replay",
        "phase": "Succeeded",
        "startedAt": "2026-11-20T14:00:00Z",
        "finishedAt": "2026-11-20T14:00:05.250000Z",
        "engine": "Direct",
        "way": "Barrier",
        "application": "replay-5f2c-1",
        "replay": {
            "records": 1200,
            "read": 1200,
            "percent": 100,
            "progress": "100%",
            "partitions": 3,
            "reached": 3,
            "startedAt": "2026-11-20T14:00:02Z",
            "endsBy": "2026-11-21T14:00:02Z",
            "estimatedEnd": "2026-11-20T14:00:05Z",
            "waitsFor": "nothing",
        },
        "plan": {
            "configMap": "replay-5f2c",
            "partitions": 4,
            "moved": 3,
            "unchanged": 1,
            "clamped": 1,
            "recordsReplayed": 1200,
            "recordsSkipped": 0,
            "from": "2026-11-20T08:00:00Z",
            "to": "2026-11-20T14:00:00Z",
        },
        "digest": "aa11",
        "requester": "ann",
        "approvedDigest": "aa11",
        "approval": {"name": "replay-5f2c", "uid": "u", "approver": "bob", "approvedAt": "2026-11-20T14:00:00Z"},
        "resultDigest": "bb22",
        "standstill": {"p50": "450ms", "max": "1s200ms"},
        "redone": 1,
        "begun": 3,
        "waiting": 1,
        "conditions": settled(conditions.COMPLETE),
    },
    "OffsetResetApproval": {
        "observedGeneration": 1,
        "effectiveAt": "2026-11-20T14:00:00Z",
        "conditions": settled(conditions.EFFECTIVE),
    },
    "OffsetBackup": {
        "observedGeneration": 1,
        "since": "2026-11-20T13:30:00Z",
        "last": {
            "due": "2026-11-20T14:00:00Z",
            "takenAt": "2026-11-20T14:00:40.250000Z",
            "path": "file:///var/lib/tidegate/claims/backups/offsets/cluster=c/schedule=u/data/20261120T140000Z-p-1",
            "groups": 12,
            "partitions": 96,
            "bytes": 4096,
            "unread": 0,
        },
        "next": "2026-11-20T15:00:00Z",
        "backups": [
            {
                "due": "2026-11-20T14:00:00Z",
                "takenAt": "2026-11-20T14:00:40.250000Z",
                "path": "file:///var/lib/tidegate/claims/backups/offsets/cluster=c/schedule=u/data/20261120T140000Z-p-1",
                "groups": 12,
                "partitions": 96,
                "bytes": 4096,
                "unread": 0,
            }
        ],
        "missed": 0,
        "failures": 0,
        "launch": "nightly-backup-0a1b2c3d-1",
        "conditions": settled(conditions.BACKED_UP),
    },
    "OffsetMirror": {
        "observedGeneration": 1,
        "at": "2026-11-20T14:00:00Z",
        "sourceCluster": "Q0tV0gT6Sxe9Gq8dRk1zJw",
        "targetCluster": "A0tV0gT6Sxe9Gq8dRk1zJw",
        "producerIds": [4000, 4711],
        "topics": [
            {
                "name": "orders",
                "sourceId": "B0tV0gT6Sxe9Gq8dRk1zJw",
                "targetId": "C0tV0gT6Sxe9Gq8dRk1zJw",
                "partitions": 12,
                "seeded": True,
                "state": "Drifted",
                "lag": 7,
                "writers": [4000, 4711],
                "adopted": [100, 0],
            }
        ],
        "inSync": "11/12",
        "partitions": {"total": 12, "inSync": 11, "seeding": 0, "lagging": 0, "stopped": 1, "drifted": 1},
        "worst": [
            {"topic": "orders", "partition": 3, "state": "Drifted", "offset": 7, "lag": 7, "message": "they differ"}
        ],
        "lag": {"records": 7, "seconds": 90},
        "groups": {
            "total": 3,
            "carried": 1,
            "inUse": 1,
            "failed": 1,
            "inUseSuchAs": "payments",
            "failure": "it is not allowed",
            "at": "2026-11-20T14:00:00Z",
        },
        "failover": {
            "phase": "Done",
            "fenceId": 4712,
            "at": "2026-11-20T15:00:00Z",
            "sourceAnswered": True,
            "notCopied": 7,
            "topics": [{"name": "orders", "ends": [100, 7], "lacks": [0, 7], "message": "they differ", "unknown": ""}],
        },
        "conditions": settled(conditions.IN_SYNC),
    },
}

SMALLEST: dict[str, dict[str, Any]] = {
    "KafkaConnection": {"bootstrapServers": "kafka:9092"},
    "ConsumerGroupPause": {"connectionRef": {"name": "prod"}, "group": "payments", "reason": "INC-4711"},
    "OffsetResetPolicy": {"connectionRef": {"name": "prod"}, "group": "payments"},
    "OffsetReset": {"connectionRef": {"name": "prod"}, "group": "payments", "to": {"earliest": {}}},
    "OffsetResetApproval": {"reset": "replay", "plan": "a" * 64, "approver": "ann"},
    "OffsetBackup": {
        "connectionRef": {"name": "prod"},
        "schedule": "1h",
        "storage": {"folder": {"path": "offsets", "claim": "backups"}},
    },
    "OffsetMirror": {"source": {"name": "old"}, "target": {"name": "new"}, "topics": {"include": ["orders"]}},
}


def smallest(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": SMALLEST[kind]}


@pytest.mark.parametrize("kind", PLURALS)
def test_a_whole_status_is_stored_and_shown(
    kind: str, resources: Resources, apiserver: ApiServer, namespace: str
) -> None:
    with resources.created(smallest(kind, "whole-status")) as stored:
        written = resources.write_status(stored, STATUSES[kind])
        shown = kubectl(apiserver, "get", "-n", namespace, PLURALS[kind])
        kubectl(apiserver, "wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s", PLURALS[kind], "--all")

    # Before the first look nothing is said, which kstatus would take for current.
    assert stored["status"] == NOT_LOOKED_AT
    assert read_status(STATUS[kind], stored) == STATUS[kind]()
    assert (kstatus_of(stored), kstatus_of(written)) == (KStatus.IN_PROGRESS, KStatus.CURRENT)
    assert written["status"] == STATUSES[kind]
    assert read_status(STATUS[kind], written).to_json() == STATUSES[kind]
    header, row = shown.splitlines()
    expected = {
        "KafkaConnection": ("NAME READY BROKERS CLUSTER AGE", "whole-status True 3 Q0tV0gT6Sxe9Gq8dRk1zJw"),
        "ConsumerGroupPause": (
            "NAME GROUP PHASE PAUSED RESUMES REASON AGE",
            "whole-status payments Paused 4/4 2026-11-20T16:00:00Z INC-4711",
        ),
        "OffsetResetPolicy": (
            "NAME GROUP RESET PHASE REPLAYED SKIPPED READY AGE",
            "whole-status payments replay-2026-11-20 Succeeded 1200 0 True",
        ),
        "OffsetReset": (
            "NAME GROUP PHASE PARTITIONS REPLAYED SKIPPED REPLAY AGE",
            "whole-status payments Succeeded 4 1200 0 100%",
        ),
        "OffsetResetApproval": ("NAME RESET APPROVER EFFECTIVE REASON AGE", "whole-status replay ann True"),
        "OffsetBackup": ("NAME SCHEDULE SUSPEND LAST GROUPS READY AGE", "whole-status 1h false * 12 True"),
        "OffsetMirror": (
            "NAME SOURCE TARGET INSYNC LAG READY COUNTED AGE",
            "whole-status old new 11/12 7 True",
        ),
    }[kind]
    assert header.split() == expected[0].split()
    # How long ago something was depends on today.
    shown_row = [one if other != "*" else "*" for one, other in zip(row.split(), expected[1].split(), strict=False)]
    assert shown_row == expected[1].split()


def test_a_fleet_is_shown_by_its_patterns(resources: Resources, apiserver: ApiServer, namespace: str) -> None:
    fleet = smallest("OffsetResetPolicy", "fleet")
    fleet["spec"] = {"connectionRef": {"name": "prod"}, "groups": ["payments-*", "refunds"]}

    with resources.created(fleet):
        shown = kubectl(apiserver, "get", "-n", namespace, "orp", "fleet")

    assert shown.splitlines()[1].split()[:2] == ["fleet", '["payments-*","refunds"]']


@pytest.mark.parametrize("kind", [kind for kind in PLURALS if kind != "KafkaConnection"])
def test_resources_are_selected_by_their_fields(
    kind: str, resources: Resources, apiserver: ApiServer, namespace: str
) -> None:
    others = smallest(kind, "others")
    chosen = {f"spec.{field}": "refunds" for field in ("group", "reset", "approver") if field in others["spec"]}
    spec = others["spec"] | {field.removeprefix("spec."): value for field, value in chosen.items()}
    if "connectionRef" in spec:
        spec["connectionRef"] = {"name": "other"}
        chosen["spec.connectionRef.name"] = "other"
    for end in spec.keys() & {"source", "target"}:
        spec[end] = {"name": f"other-{end}"}
        chosen[f"spec.{end}.name"] = f"other-{end}"
    mine = smallest(kind, "mine") | {"spec": spec}

    def named(selector: str) -> list[str]:
        found = kubectl(apiserver, "get", "-n", namespace, PLURALS[kind], "-o", "name", "--field-selector", selector)
        return [line.partition("/")[2] for line in found.splitlines()]

    with resources.created(others), resources.created(mine) as stored:
        found = {field: named(f"{field}={value}") for field, value in chosen.items()}
        if "phase" in STATUSES[kind]:
            phase = STATUSES[kind]["phase"]
            resources.write_status(stored, {"phase": phase})
            found["status.phase"] = named(f"status.phase={phase}")

    assert set(map(tuple, found.values())) == {("mine",)}


def test_a_status_of_the_longest_message_is_taken(resources: Resources) -> None:
    found = conditions.stalled((), reason="Refused", message="ü" * 40_000, generation=1, now=NOW + timedelta(days=1))

    with resources.created(smallest("OffsetResetPolicy", "long-message")) as stored:
        written = resources.write_status(stored, {"conditions": [condition.to_json() for condition in found]})

    assert len(written["status"]["conditions"][0]["message"]) == conditions.MAX_MESSAGE


def test_all_kinds_are_listed_by_category(resources: Resources, apiserver: ApiServer, namespace: str) -> None:
    with (
        resources.created(smallest("KafkaConnection", "listed")),
        resources.created(smallest("ConsumerGroupPause", "listed")),
        resources.created(smallest("OffsetResetPolicy", "listed")),
        resources.created(smallest("OffsetReset", "listed")),
        resources.created(smallest("OffsetResetApproval", "listed")),
        resources.created(smallest("OffsetBackup", "listed")),
        resources.created(smallest("OffsetMirror", "listed")),
    ):
        names = kubectl(apiserver, "get", "-n", namespace, "tidegate", "-o", "name").split()

    assert sorted(names) == sorted(f"{plural.removesuffix('s')}.tidegate.io/listed" for plural in SINGULARS)


SINGULARS = (
    *("kafkaconnections", "consumergrouppauses", "offsetresetpolicys", "offsetresets", "offsetresetapprovals"),
    "offsetbackups",
    "offsetmirrors",
)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("kconn.spec.properties", "Settings of the Kafka client. Only settings that cannot redirect"),
        ("kconn.spec.authentication.type", "The mechanism. The SCRAM types and plain take username"),
        ("cgp.spec.partitions.partitions", 'as a list of at most 64 numbers and ranges, such as [0, 1, "3-5"].'),
        ("cgp.spec.resumeAfter", "How long the pause lasts, such as 2h"),
        ("orp.spec.reset", "The reset to run, once for each id: the operator creates an OffsetReset for it"),
        ("orp.spec.reset.to.timestamp", "To the first record at or after this time"),
        ("obk.spec.storage.folder.claim", "The name of the PersistentVolumeClaim in this namespace."),
        ("omr.spec.onDrift", "nothing more is written to the copy until its topic is deleted at the target"),
        ("ors.spec.to.backup.name", "The name of an OffsetBackup of this namespace. Backups are looked"),
        ("ora.spec.plan", "It stands for that plan and no other"),
        ("ors.status.way", "Handover sends LeaveGroup in the owners' names, so that they release"),
    ],
)
def test_kubectl_explains(path: str, sentence: str, apiserver: ApiServer) -> None:
    explained = " ".join(kubectl(apiserver, "explain", path).split())

    assert sentence in explained


@pytest.mark.parametrize("short_name", ["kconn", "cgp", "orp", "ors", "obk", "omr"])
def test_kubectl_explains_everything(short_name: str, apiserver: ApiServer) -> None:
    explained = kubectl(apiserver, "explain", f"{short_name}.spec")

    assert "<no description>" not in explained
    assert "<empty>" not in explained


@pytest.fixture
def own_group(kube_client: Any) -> Iterator[str]:
    """A group for copies of CRDs, which are deleted with the test."""
    group, definitions = f"e{secrets.token_hex(4)}.tidegate.test", client.ApiextensionsV1Api(kube_client)
    yield group
    for plural in PLURALS.values():
        with suppress(client.exceptions.NotFoundException):
            definitions.delete_custom_resource_definition(f"{plural}.{group}")


def _in_group(kind: str, group: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A copy of the kind's CRD, and in it the schema."""
    definition: dict[str, Any] = yaml.safe_load((CRDS / f"{PLURALS[kind]}.{GROUP}.yaml").read_text())
    definition["metadata"]["name"] = f"{PLURALS[kind]}.{group}"
    definition["spec"]["group"] = group
    return definition, definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _replace(definitions: Any, definition: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    definition["metadata"]["resourceVersion"] = definitions.read_custom_resource_definition(
        name
    ).metadata.resource_version
    definitions.replace_custom_resource_definition(name, definition)


def _refusal(call: Any, *arguments: Any) -> str:
    """What the API server says of an invalid resource; empty where it takes it, or refuses it for another reason."""
    try:
        call(*arguments)
    except client.ApiException as error:
        return str(json.loads(error.body)["message"]) if error.status == 422 else ""
    return ""


def _until_created(custom: Any, where: tuple[str, ...], body: dict[str, Any]) -> None:
    """The kind is served some time after its definition is there."""

    def is_created() -> bool:
        try:
            custom.create_namespaced_custom_object(*where, body)
        except client.exceptions.NotFoundException:
            return False
        return True

    until(is_created, "the earlier version is served")


def test_what_an_earlier_version_took_is_refused_only_where_it_is_new(
    own_group: str, kube_client: Any, namespace: str
) -> None:
    """Status and other changes of resources that are there must get through, or nobody is told."""
    custom, definitions = client.CustomObjectsApi(kube_client), client.ApiextensionsV1Api(kube_client)
    where = (own_group, VERSION, namespace, PLURALS["OffsetResetPolicy"])
    asking = {"snapshots": {"schedule": "1h", "to": {"folder": {"path": "offsets"}}}}

    def policy(name: str, **spec: Any) -> dict[str, Any]:
        small = smallest("OffsetResetPolicy", name)
        return {**small, "apiVersion": f"{own_group}/{VERSION}", "spec": {**small["spec"], **spec}}

    earlier, schema = _in_group("OffsetResetPolicy", own_group)
    del schema["x-kubernetes-validations"]
    definitions.create_custom_resource_definition(earlier)
    _until_created(custom, where, policy("old", **asking))
    custom.create_namespaced_custom_object(*where, policy("other"))
    looked_at = {"status": {"observedGeneration": 1}}
    for name in ("old", "other"):
        custom.patch_namespaced_custom_object_status(*where, name, looked_at)
    _replace(definitions, _in_group("OffsetResetPolicy", own_group)[0])

    create, patch = custom.create_namespaced_custom_object, custom.patch_namespaced_custom_object
    says = "spec.snapshots is no longer part of a policy: make an OffsetBackup"
    number = iter(range(1000))
    until(
        lambda: says in _refusal(create, *where, policy(f"new-{next(number)}", **asking)), "it is refused in new ones"
    )
    assert says in _refusal(patch, *where, "other", {"spec": asking})
    custom.patch_namespaced_custom_object_status(*where, "old", {"status": {"observedGeneration": 2}})
    patch(*where, "old", {"metadata": {"finalizers": ["tidegate.test/x"]}})
    patch(*where, "old", {"metadata": {"finalizers": None}})
    patch(*where, "old", {"spec": {"snapshots": None}})


def test_resources_that_were_stored_with_partitions_as_text_can_end(
    own_group: str, kube_client: Any, namespace: str
) -> None:
    """Their status can be written and their finalizer removed, also of one that has begun, whose spec is fixed."""
    custom, definitions = client.CustomObjectsApi(kube_client), client.ApiextensionsV1Api(kube_client)
    where = (own_group, VERSION, namespace, PLURALS["OffsetReset"])

    def reset(name: str, written: Any) -> dict[str, Any]:
        small = smallest("OffsetReset", name)
        spec = small["spec"] | {"partitions": [{"topic": "orders", "partitions": written}]}
        metadata = {"name": name, "finalizers": ["tidegate.test/x"]}
        return {**small, "apiVersion": f"{own_group}/{VERSION}", "metadata": metadata, "spec": spec}

    earlier, schema = _in_group("OffsetReset", own_group)
    selection = schema["properties"]["spec"]["properties"]["partitions"]["items"]["properties"]
    selection["partitions"] = {"type": "string", "maxLength": 767}
    definitions.create_custom_resource_definition(earlier)
    _until_created(custom, where, reset("begun", "0,3-5"))
    begun = {"observedGeneration": 1, "startedAt": "2026-11-20T14:00:00Z", "phase": "Applying"}
    custom.patch_namespaced_custom_object_status(*where, "begun", {"status": begun})
    _replace(definitions, _in_group("OffsetReset", own_group)[0])
    number = iter(range(1000))
    create, patch = custom.create_namespaced_custom_object, custom.patch_namespaced_custom_object
    until(lambda: not _refusal(create, *where, reset(f"new-{next(number)}", [0, "3-5"])), "the list is taken")

    changed = {"spec": {"partitions": [{"topic": "orders", "partitions": [0]}]}}
    assert "spec is immutable once the reset has begun" in _refusal(patch, *where, "begun", changed)
    ended = {"status": {"phase": "Succeeded", "finishedAt": "2026-11-20T14:00:05Z"}}
    written = custom.patch_namespaced_custom_object_status(*where, "begun", ended)
    patch(*where, "begun", {"metadata": {"finalizers": None}})
    assert parse_spec(OffsetResetSpec, written) == parse_spec(OffsetResetSpec, reset("new", [0, "3-5"]))
    # A server of Kubernetes 1.30 or later does not judge again what stays as it is. Earlier ones do, so the text must
    # be taken in a new resource as well.
    create(*where, reset("text", "0,3-5"))
