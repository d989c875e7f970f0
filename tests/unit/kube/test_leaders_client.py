"""What a process that does not lead sends to the API server: nothing that changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kube.client import KubeClient
from tidegate.kube.leaders_client import LeadersApiClient
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import PAUSES, POLICIES, RESETS, EventType, KubeEvent, KubeUnavailable
from tidegate.kube.workloads import ScaledObject
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.document import StoreUnavailable
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import ToOffset

CLOCK = SystemClock()
BODY: dict[str, Any] = {
    "apiVersion": PAUSES.api_version,
    "kind": PAUSES.kind,
    "metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "1"},
}
HAPPENING = KubeEvent(EventType.NORMAL, "Paused", "it is", "k")


class Wire:
    """Takes what is sent, and says that the API server is not there."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def request(self, method: str, _url: str, **_: Any) -> Any:
        self.sent.append(method)
        raise ApiException(status=503, reason="nobody is there")


class Sending:
    def __init__(self) -> None:
        self.leads = False
        self.client: ApiClient = LeadersApiClient(ApiClient(Configuration()), lambda: self.leads)
        self.wire = self.client.rest_client = Wire()
        self.kube = KubeClient(self.client, CLOCK)


WRITES: dict[str, Callable[[Sending], object]] = {
    "status": lambda s: s.kube.replace_status(PAUSES, BODY, {}),
    "finalizers": lambda s: s.kube.set_finalizers(PAUSES, BODY, []),
    "object": lambda s: s.kube.make(RESETS, {**BODY, "kind": POLICIES.kind}, "n", {}),
    "deletion": lambda s: s.kube.remove(PAUSES, BODY),
    "Event": lambda s: s.kube.record(BODY, HAPPENING),
    "ConfigMap": lambda s: s.kube.put_config_map(BODY, "n", {}),
    "ConfigMap's deletion": lambda s: s.kube.remove_config_map("ns", "n"),
    "eviction": lambda s: PodsClient(s.client).evict("ns", "n", "u"),
    "KEDA": lambda s: KubeWorkloads(s.client, CLOCK).set_paused_replicas("ns", ScaledObject("n", "1", None), "0"),
}


@pytest.mark.parametrize("what", WRITES)
def test_nothing_is_written_but_by_the_leader(what: str) -> None:
    sending = Sending()
    with pytest.raises(KubeUnavailable, match=r"does not hold the Lease: (POST|PUT|PATCH|DELETE) was not sent"):
        WRITES[what](sending)
    assert sending.wire.sent == []

    sending.leads = True
    with pytest.raises(KubeUnavailable, match="nobody is there"):
        WRITES[what](sending)
    assert sending.wire.sent[0] in ("POST", "PUT", "PATCH", "DELETE")


def test_everybody_reads() -> None:
    sending = Sending()
    for read in (lambda: sending.kube.list(PAUSES), lambda: sending.kube.get(PAUSES, "ns", "p")):
        with pytest.raises(KubeUnavailable, match="nobody is there"):
            read()
    assert sending.wire.sent == ["GET", "GET"]


class NoTime(SystemClock):
    """For what has to end at once."""

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"it waits for {seconds:g} s")


def test_a_runs_document_is_not_waited_for_by_who_may_not_write_it() -> None:
    """Patience is for an API server that is away. A process that leads no more has to end, and its jobs with it."""
    sending = Sending()
    store = ConfigMapRunStore("ns", "run", api_client=sending.client, clock=NoTime())

    with pytest.raises(StoreUnavailable, match="does not hold the Lease"):
        store.create(RunRequest("u/one", "one", "g", Connection("127.0.0.1:9092"), (), ToOffset(1)))

    assert sending.wire.sent == []
