"""The namespace that a command is about where it is not told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.kube.kubeconfig import own_namespace

FIRST = """\
current-context: one
contexts: [{name: one, context: {cluster: c, namespace: shop}}, {name: two, context: {cluster: c}}]
"""
SECOND = """\
current-context: other
contexts: [{name: one, context: {namespace: elsewhere}}, {name: three, context: {namespace: bank}}]
"""


@pytest.fixture
def both(tmp_path: Path) -> dict[str, str]:
    for name, text in (("a", FIRST), ("b", SECOND), ("broken", "{"), ("list", "[1]")):
        (tmp_path / name).write_text(text)
    names = ("missing", "broken", "list", "a", "b")
    return {"KUBECONFIG": os.pathsep.join(str(tmp_path / name) for name in names)}


@pytest.mark.parametrize(
    ("context", "namespace"), [(None, "shop"), ("two", "default"), ("three", "bank"), ("nowhere", "default")]
)
def test_the_contexts_namespace_counts_and_the_first_file_that_says_one(
    both: dict[str, str], context: str | None, namespace: str
) -> None:
    assert own_namespace(both, context) == namespace


def test_in_a_pod_it_is_the_pods(tmp_path: Path, both: dict[str, str]) -> None:
    of_a_pod = tmp_path / "namespace"
    of_a_pod.write_text("team\n")
    in_a_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    assert own_namespace(in_a_pod, of_a_pod=of_a_pod) == "team"
    assert own_namespace(in_a_pod, of_a_pod=tmp_path / "none") == "default"
    assert own_namespace(in_a_pod | both, of_a_pod=of_a_pod) == "shop"


@pytest.mark.parametrize("contexts", ["contexts: 7", "contexts: [7]", "contexts: [{name: x, context: y}]", "x: y"])
def test_a_kubeconfig_that_says_nothing_is_no_error(tmp_path: Path, contexts: str) -> None:
    (tmp_path / "c").write_text(f"current-context: x\n{contexts}\n")

    assert own_namespace({"KUBECONFIG": str(tmp_path / "c")}) == "default"


def test_another_context_than_the_pods_has_a_namespace_of_its_own(
    tmp_path: Path, both: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --context the cluster is that of the kubeconfig, also in a pod."""
    of_a_pod, home = tmp_path / "namespace", tmp_path / "home"
    of_a_pod.write_text("team\n")
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text(FIRST)
    monkeypatch.setenv("HOME", str(home))

    assert own_namespace({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "one", of_a_pod=of_a_pod) == "shop"


def test_a_home_folder_is_meant_where_the_official_client_takes_it_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").write_text(FIRST)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert own_namespace({"KUBECONFIG": "~/c"}) == "shop"
