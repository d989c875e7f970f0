"""The client of the API server as everything of an operator shares it."""

import pytest

from tidegate.kube.api import default_api_client
from tidegate.reset.runs.fleet_groups import FLEET_THREADS
from tidegate.reset.runs.in_process import THREADS
from tidegate.service.settings import Settings


def test_every_thread_that_calls_has_a_connection_to_come_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.load_kube_config", lambda **_: None)
    monkeypatch.setenv("KUBECONFIG", "of the test")

    client = default_api_client()

    threads = 2 * Settings().threads + THREADS + FLEET_THREADS
    assert client.rest_client.pool_manager.connection_pool_kw["maxsize"] >= threads
