"""`docs/reference/kubectl.md`: what kubectl shows of each kind. Written anew with TIDEGATE_WRITE_PAGES=1."""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from apiserver.offsets import leave_at, produce
from devstack import ApiServer, KafkaCluster
from support.kubectl import Kubectl
from support.operator_process import Body, Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "kubectl.md"
KINDS: Final = (
    *("kafkaconnection", "offsetresetpolicy", "offsetreset", "offsetresetapproval", "offsetbackup"),
    "offsetmirror",
    "consumergrouppause",
)

HEAD: Final = """\
# What kubectl shows

Made by `TIDEGATE_WRITE_PAGES=1 make test ARGS=tests/apiserver/test_kubectl_page.py`; do not edit. The resources are
on an API server, with a broker and an operator. `kubectl explain <kind>.spec.<field>` goes further down. All fields are
in the [reference](README.md).
"""


@pytest.fixture
def kubectl(apiserver: ApiServer, shared: Resources) -> Kubectl:
    return Kubectl(apiserver.kubeconfig, shared.namespace)


@pytest.fixture
def everything(shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> dict[str, str]:
    """One resource of each kind. Returns the names that are others in each run, and what the page has instead."""
    topic, group = make_topic(2), unique("payments")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, dict.fromkeys(range(2), 50))
    asked = {"id": "replay", "to": {"offset": 10}, "engine": "Direct", "requester": "bob", "approval": "Manual"}
    shared.policy("payments", group, asked, topics=[topic])
    shared.wait_phase("payments-replay", "AwaitingApproval")
    approval = shared.approve("payments-replay", approver="ann")["metadata"]["name"]
    until(lambda: _is_true(shared.get_policy("payments"), "Reset"), "the policy's reset has succeeded")
    shared.backup("nightly", {"folder": {"path": "offsets"}}, schedule="1h", suspend=True)
    until(lambda: _is_true(shared.get_backup("nightly"), "Ready"), "the backup is suspended")
    shared.mirror("to-new", {"include": ["orders"]}, groups={"include": ["*"]}, suspend=True)
    until(lambda: _is_true(shared.get_mirror("to-new"), "Ready"), "the mirror is suspended")
    shared.pause("poison", group, {"topic": topic, "partitions": [0]}, reason="INC-4711")
    until(lambda: shared.get_pause("poison").get("status", {}).get("phase"), "the pause is looked at")
    return {
        approval: "payments-replay-yes",
        topic: "orders",
        group: "payments",
        kafka.bootstrap: "kafka-0:9092",
        shared.namespace: "shop",
    }


def _is_true(body: Body, condition: str) -> bool:
    return condition_of(body, condition).get("status") == "True"


def explained(kubectl: Kubectl) -> str:
    paths = [path for kind in KINDS for path in (kind, f"{kind}.spec", f"{kind}.status")]
    return "".join(f"\n```\n$ kubectl explain {path}\n{kubectl('explain', path).strip()}\n```\n" for path in paths)


def shown(kubectl: Kubectl, names: dict[str, str]) -> str:
    def plain(text: str) -> str:
        for name, instead in names.items():
            text = text.replace(name, instead)
        return text.rstrip()

    parts = []
    for kind in KINDS:
        for command in (f"get {kind}", f"get {kind} -o wide", f"describe {kind}"):
            lines = _lines(kubectl, command)
            if command.startswith("get"):
                rows = [[plain(cell) for cell in row] for row in _cells(lines)]
                widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
                lines = ["   ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
            parts.append(f"\n```\n$ kubectl {command}\n" + "\n".join(map(plain, lines)) + "\n```\n")
    return "".join(parts)


def _lines(kubectl: Kubectl, command: str) -> list[str]:
    """An API server under load was seen to list none of what was there, for a moment."""
    found: list[str] = until(
        lambda: kubectl(*command.split()).strip().splitlines(), f"kubectl {command} shows what is there"
    )
    return found


def _cells(lines: list[str]) -> list[list[str]]:
    """Of a table whose columns begin where their headings do."""
    begins = [found.start() for found in re.finditer(r"\S+", lines[0])]
    return [[line[a:b] for a, b in zip(begins, [*begins[1:], None], strict=True)] for line in lines]


def test_the_page_says_what_kubectl_explains(kubectl: Kubectl, everything: dict[str, str]) -> None:
    explains, shows = explained(kubectl), shown(kubectl, everything)
    text = f"{HEAD}\n## kubectl get, kubectl describe\n{shows}\n## kubectl explain\n{explains}"
    if os.environ.get("TIDEGATE_WRITE_PAGES"):
        PAGE.write_text(text)

    page = PAGE.read_text()

    assert explains in page, "write the page anew"
    assert "<no description>" not in explains
    assert "<empty>" not in re.sub(r"FIELDS?:\n", "", explains)
    for kind in KINDS:
        assert f"$ kubectl describe {kind}\n" in page
        [columns] = re.findall(rf"\$ kubectl get {kind}\n(NAME.*)\n", shows)
        assert columns.split() == re.findall(rf"\$ kubectl get {kind}\n(NAME.*)\n", page)[0].split()
