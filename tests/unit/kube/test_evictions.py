"""What the API server's answers to an eviction mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from tidegate.kube.core import CoreObjects
from tidegate.kube.injection import Evicted
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import KubeUnavailable


def evicted(monkeypatch: pytest.MonkeyPatch, body: str) -> Evicted:
    def too_many(*_: Any, **__: Any) -> Any:
        error = ApiException(status=429, reason="Too Many Requests")
        error.body = body
        raise error

    monkeypatch.setattr(CoreObjects, "create_of", too_many)
    return PodsClient(ApiClient()).evict("ns", "a", "u")


def test_a_budget_that_allows_no_eviction_is_known_by_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget nobody needs 1 healthy pods and has 1"}]
    answer = {"kind": "Status", "reason": "TooManyRequests", "details": {"causes": causes}, "code": 429}

    assert evicted(monkeypatch, json.dumps(answer)) is Evicted.BUDGET


@pytest.mark.parametrize(
    "body",
    [
        "Too many requests, please try again later.\n",
        json.dumps({"kind": "Status", "message": "admission webhook denied it: the VM moves first", "code": 429}),
        json.dumps({"kind": "Status", "details": None, "code": 429}),
    ],
)
def test_an_api_server_that_has_too_much_to_do_says_nothing_of_budgets(
    monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    with pytest.raises(KubeUnavailable, match="evict pod ns/a: 429"):
        evicted(monkeypatch, body)
