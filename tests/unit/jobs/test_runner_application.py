"""SparkApplications by an API server that somebody else has a say in: a status that names another pod, answers that are
none. The usual course, on a real API server: `tests/spark/test_runner_application.py`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from kubernetes.client import ApiClient, Configuration

from support.fake_kafka import FakeClock
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_application import SparkApplicationRunner
from tidegate.jobs.settings import SparkSettings

LAUNCH: Final = Launch("payments-reset-1", "ns", "configmap://ns/payments-reset")
SECRET: Final = "what the other pod has logged"
ENDED: Final = {
    "phase": "Failed",
    "containerStatuses": [
        {"name": "spark-kubernetes-driver", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    ],
}
LABELLED: Final = {"labels": {"sparkoperator.k8s.io/app-name": "payments-reset-1"}}
OWNED: Final = {"ownerReferences": [{"kind": "SparkApplication", "uid": "uid-payments-reset-1"}]}


class Cluster:
    """Some objects by plural and name. ``answers``: what is answered instead, as it is."""

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.answers: tuple[int, bytes] | None = None

    def put(self, plural: str, name: str, status: dict[str, Any], **metadata: Any) -> None:
        named = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": "2026-11-20T12:00:00Z"}
        self.there[plural, name] = {"metadata": {**named, **metadata}, "status": status}

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        if self.answers is not None:
            return self.answers
        parts = path.split("?")[0].split("/")
        at = parts.index("namespaces") + 2
        plural, name, *of = parts[at:]
        if (plural, name) not in self.there:
            return 404, json.dumps({"message": f"{plural} {name!r} not found"}).encode()
        if of == ["log"]:
            return 200, SECRET.encode()
        if method == "DELETE":
            self.deleted.append(name)
            return 200, json.dumps(self.there.pop((plural, name))).encode()
        return 200, json.dumps(self.there[plural, name]).encode()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runner(cluster: Cluster, clock: FakeClock) -> Iterator[SparkApplicationRunner]:
    class Handler(BaseHTTPRequestHandler):
        def _answered(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = cluster.answer(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_DELETE = do_PATCH = _answered  # noqa: N815 - the standard library's names

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.retries = False
    yield SparkApplicationRunner(SparkSettings(), api_client=ApiClient(configuration), clock=clock)
    server.shutdown()
    server.server_close()


def application(cluster: Cluster, pod: str) -> None:
    status = {"applicationState": {"state": "RUNNING"}, "driverInfo": {"podName": pod}}
    cluster.put("sparkapplications", LAUNCH.name, status)


@pytest.mark.parametrize("metadata", [{}, {"labels": {"sparkoperator.k8s.io/app-name": "another"}}])
def test_a_status_that_names_somebody_elses_pod_has_it_neither_read_nor_deleted(
    cluster: Cluster, runner: SparkApplicationRunner, metadata: dict[str, Any]
) -> None:
    application(cluster, pod="database-0")
    cluster.put("pods", "database-0", ENDED, **metadata)

    status = runner.status(LAUNCH)
    assert (status.state, SECRET in status.message) == (RunnerState.RUNNING, False)

    runner.stop(LAUNCH)
    assert cluster.deleted == [LAUNCH.name]


def test_a_pod_that_is_only_called_like_a_driver_is_none(cluster: Cluster, runner: SparkApplicationRunner) -> None:
    application(cluster, pod="")
    cluster.put("pods", f"{LAUNCH.name}-driver", ENDED)

    assert SECRET not in runner.status(LAUNCH).message
    runner.stop(LAUNCH)
    assert cluster.deleted == [LAUNCH.name]


@pytest.mark.parametrize("metadata", [LABELLED, OWNED])
@pytest.mark.parametrize(("said", "called"), [("d", "d"), ("database-0", f"{LAUNCH.name}-driver")])
def test_the_applications_own_driver_is_read_and_deleted_whatever_the_status_says(
    cluster: Cluster, runner: SparkApplicationRunner, said: str, called: str, metadata: dict[str, Any]
) -> None:
    application(cluster, pod=said)
    cluster.put("pods", "database-0", ENDED)
    cluster.put("pods", called, ENDED, **metadata)

    status = runner.status(LAUNCH)
    assert status.state is RunnerState.EXITED
    assert f"driver pod {called} failed with code 1" in status.message
    assert SECRET in status.message

    runner.stop(LAUNCH)
    assert cluster.deleted == [LAUNCH.name, called]


def test_a_driver_that_is_made_while_it_is_stopped_is_stopped_too(
    cluster: Cluster, runner: SparkApplicationRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    application(cluster, pod="")
    answer: Callable[[str, str], tuple[int, bytes]] = cluster.answer
    driver = f"{LAUNCH.name}-driver"

    def late(method: str, path: str) -> tuple[int, bytes]:
        said = answer(method, path)
        if method == "DELETE" and cluster.deleted == [LAUNCH.name]:
            cluster.put("pods", driver, {"phase": "Running"}, **LABELLED)
        return said

    monkeypatch.setattr(cluster, "answer", late)

    runner.stop(LAUNCH)

    assert cluster.deleted == [LAUNCH.name, driver]


ANSWERS: Final = [
    (200, b"<html>a proxy's page</html>"),
    (200, b"[1, 2]"),
    (200, b'"a text"'),
    (200, b"null"),
    (200, b"{}"),
    (200, b'{"metadata": 7}'),
    (200, b"\xff\xfe"),
    (200, b""),
    (503, b"<html>a proxy's page</html>"),
    (403, b"[1]"),
    (403, b'"no"'),
    (403, b"null"),
    (403, b"7"),
    (500, b""),
]


@pytest.mark.parametrize(("status", "said"), ANSWERS)
def test_an_answer_that_is_none_is_a_failure_of_the_runner(
    cluster: Cluster, runner: SparkApplicationRunner, status: int, said: bytes
) -> None:
    cluster.answers = (status, said)

    with pytest.raises(RunnerFailure):
        runner.status(LAUNCH)
    with pytest.raises(RunnerFailure):
        runner.stop(LAUNCH)


def test_an_object_without_a_status_yet_is_waited_for(cluster: Cluster, runner: SparkApplicationRunner) -> None:
    application(cluster, pod="d")
    cluster.put("pods", "d", {}, **LABELLED)
    del cluster.there["pods", "d"]["status"]

    assert runner.status(LAUNCH).state is RunnerState.RUNNING


LONG_AGO: Final = "2020-01-01T00:00:00Z"


def test_an_application_is_lost_after_its_time_without_a_driver_whatever_the_clock_says(
    cluster: Cluster, runner: SparkApplicationRunner, clock: FakeClock
) -> None:
    """An operator whose clock is ahead would end each of them as it begins."""
    cluster.put("sparkapplications", LAUNCH.name, {}, creationTimestamp=LONG_AGO)

    said = runner.status(LAUNCH)
    assert said.state is RunnerState.RUNNING
    assert said.message == "SparkApplication is not taken up by the Spark operator and has no driver pod"
    clock.sleep(299)
    assert runner.status(LAUNCH).state is RunnerState.RUNNING
    clock.sleep(2)

    said = runner.status(LAUNCH)
    assert said.state is RunnerState.LOST
    assert said.message.endswith("has had no driver pod for 301 s. Is the Spark operator running?")
    assert runner.status(LAUNCH).state is RunnerState.LOST


def test_the_time_without_a_driver_begins_anew_with_another_application_of_the_name(
    cluster: Cluster, runner: SparkApplicationRunner, clock: FakeClock
) -> None:
    cluster.put("sparkapplications", LAUNCH.name, {})
    runner.status(LAUNCH)
    clock.sleep(200)
    cluster.put("sparkapplications", LAUNCH.name, {}, uid="made-anew")
    assert runner.status(LAUNCH).state is RunnerState.RUNNING
    clock.sleep(200)

    assert runner.status(LAUNCH).state is RunnerState.RUNNING


def test_an_application_whose_driver_is_gone_is_lost_whatever_its_state_says(
    cluster: Cluster, runner: SparkApplicationRunner
) -> None:
    application(cluster, pod="d")
    assert runner.status(LAUNCH).state is RunnerState.RUNNING
    cluster.put("pods", "d", {"phase": "Running"}, **LABELLED)
    assert runner.status(LAUNCH).state is RunnerState.RUNNING
    del cluster.there["pods", "d"]

    status = runner.status(LAUNCH)

    assert (status.state, status.message) == (
        RunnerState.LOST,
        "SparkApplication is RUNNING and has no driver pod any more",
    )
