"""The client of the API server as everything of an operator shares it."""

import os
from pathlib import Path

import pytest

from tidegate.kube.api import NoCluster, default_api_client
from tidegate.reset.runs.fleet_groups import FLEET_THREADS
from tidegate.reset.runs.in_process import THREADS
from tidegate.service.settings import Settings


def test_every_thread_that_calls_has_a_connection_to_come_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.load_kube_config", lambda **_: None)
    monkeypatch.setenv("KUBECONFIG", "of the test")

    client = default_api_client()

    threads = 2 * Settings().threads + THREADS + FLEET_THREADS
    assert client.rest_client.pool_manager.connection_pool_kw["maxsize"] >= threads


def kubeconfig(path: Path, name: str, current: str) -> str:
    path.write_text(
        f"current-context: {current}\n"
        f"contexts: [{{name: {name}, context: {{cluster: {name}, namespace: {name}}}}}]\n"
        f'clusters: [{{name: {name}, cluster: {{server: "https://{name}.test"}}}}]\n'
    )
    return str(path)


@pytest.mark.parametrize(("second", "third"), [("two", "three"), ("two", '""')])
def test_of_several_kubeconfigs_the_first_current_context_counts_as_for_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, third: str
) -> None:
    """What kubectl shows and what a command changes would be two clusters."""
    found = [kubeconfig(tmp_path / n, n, c) for n, c in (("one", '""'), ("two", second), ("three", third))]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), *found]))

    assert default_api_client().configuration.host == "https://two.test"
    assert default_api_client("three").configuration.host == "https://three.test"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("users: [{name: me, user: {token: s3cret", "is no YAML (line 1)"),
        ("", "is no kubeconfig: it is empty, or no mapping"),
        ("[1]", "is no kubeconfig: it is empty, or no mapping"),
        ("current-context: x\ncontexts: 7", "contexts has to be a list, each with a name and a context"),
        ("current-context: x\ncontexts: [7]", "contexts has to be a list, each with a name and a context"),
        ("current-context: x\ncontexts: [{name: x, context: y}]", "contexts has to be a list"),
        ("current-context: x\nusers: [{user: {token: s3cret}}]", "users has to be a list, each with a name and a user"),
    ],
)
def test_a_kubeconfig_that_is_none_is_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "c").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "c"))

    with pytest.raises(NoCluster) as failure:
        default_api_client()

    assert f"no cluster is configured: {tmp_path / 'c'} " in str(failure.value)
    assert said in str(failure.value)
    assert "s3cret" not in str(failure.value)


def test_a_folder_is_no_kubeconfig_nor_is_one_with_a_broken_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(NoCluster, match="can't be read: Is a directory"):
        default_api_client()

    broken = Path(kubeconfig(tmp_path / "c", "one", "one"))
    broken.write_text(broken.read_text().replace("{server:", "{certificate-authority-data: x, server:"))
    monkeypatch.setenv("KUBECONFIG", str(broken))
    with pytest.raises(NoCluster, match="no base64"):
        default_api_client()
