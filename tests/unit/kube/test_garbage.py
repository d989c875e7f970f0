"""What is no answer of the API server, as a proxy gives it: it is a failure like others, and ends nobody's work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from kubernetes.client import ApiClient, Configuration

from support.fake_kafka import FakeClock
from tidegate.kube.api import PatientCalls
from tidegate.kube.client import KubeClient
from tidegate.kube.core import CoreObjects
from tidegate.kube.lease_client import LeaseClient
from tidegate.kube.ports import PAUSES, KubeFailure, KubeUnavailable
from tidegate.kube.watching import WatchClient


class Proxy:
    """Answers each request alike."""

    def __init__(self) -> None:
        self.says = b""
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(told.says)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def client(self) -> ApiClient:
        return ApiClient(Configuration(host=f"http://127.0.0.1:{self._server.server_address[1]}"))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


CALLS: Final[dict[str, Callable[[ApiClient], object]]] = {
    "list": lambda c: KubeClient(c, FakeClock()).list(PAUSES),
    "get": lambda c: KubeClient(c, FakeClock()).get(PAUSES, "ns", "p"),
    "Lease": lambda c: LeaseClient(c, FakeClock(), "ns", "l", 5.0).read(),
    "listing of the page": lambda c: WatchClient(c, "ns").listed(PAUSES),
    "watch of the page": lambda c: list(WatchClient(c, "ns").changes(PAUSES, "1")),
}


@pytest.mark.parametrize("call", ["list", "get", "Lease", "listing of the page"])
@pytest.mark.parametrize("says", [b'{"items": [', b"", b"<html>", b'{"metadata": "\xff"}'])
def test_what_is_no_json_is_as_if_nobody_had_answered(proxy: Proxy, call: str, says: bytes) -> None:
    proxy.says = says

    with pytest.raises(KubeFailure):
        CALLS[call](proxy.client())


def test_a_job_asks_again_for_what_is_no_json(proxy: Proxy) -> None:
    proxy.says = b"<html>"
    patient = PatientCalls("ConfigMap ns/run", FakeClock(), 3.0, KubeUnavailable)

    with pytest.raises(KubeUnavailable, match="did not take ConfigMap ns/run in time: the answer is cut off"):
        patient(CoreObjects(proxy.client()).read, "configmaps", "ns", "run")


NO_LISTINGS: Final = [
    {},
    {"message": "please log in"},
    {"items": None, "metadata": {}},
    {"items": [], "metadata": "x"},
    {"items": [7], "metadata": {}},
    {"items": [{"spec": {}}], "metadata": {}},
    {"items": [{"metadata": {"name": "a", "namespace": "ns", "uid": None}}], "metadata": {}},
]


@pytest.mark.parametrize("call", ["list", "listing of the page"])
@pytest.mark.parametrize("says", NO_LISTINGS)
def test_what_is_no_listing_is_said_to_be_none(proxy: Proxy, call: str, says: object) -> None:
    proxy.says = json.dumps(says).encode()

    with pytest.raises(KubeFailure, match="no list of consumergrouppauses"):
        CALLS[call](proxy.client())


NO_CHANGES: Final = [
    7,
    {"type": "ADDED"},
    {"type": "ADDED", "object": {"metadata": {"name": "a"}}},
    {"type": "MODIFIED", "object": {"metadata": "x"}},
    {"type": "BOOKMARK", "object": {"metadata": 7}},
]


@pytest.mark.parametrize("says", NO_CHANGES)
def test_what_is_no_change_is_said_to_be_none(proxy: Proxy, says: object) -> None:
    proxy.says = json.dumps(says).encode() + b"\n"

    with pytest.raises(KubeFailure, match="no change"):
        CALLS["watch of the page"](proxy.client())
