"""SparkApplications on a real API server. The Spark operator is played by the tests: what it writes into the status
and which pods it makes, traps included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.clock import SystemClock
from tidegate.jobs.application import GROUP, PLURAL, VERSION
from tidegate.jobs.errors import BadSparkSpec, RunnerFailure
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_application import SparkApplicationRunner
from tidegate.jobs.settings import SparkSettings

pytestmark = pytest.mark.apiserver


class LaterClock(SystemClock):
    """The machine's clock, put forward."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead.total_seconds()


@pytest.fixture
def client(kube_client: Any, crds_installed: None) -> Any:
    return kube_client


class SparkOperator:
    """Does what the Kubeflow operator does, as far as a runner can see it."""

    def __init__(self, client: Any, namespace: str) -> None:
        from kubernetes.client import CoreV1Api, CustomObjectsApi

        self.custom, self.core, self.namespace = CustomObjectsApi(client), CoreV1Api(client), namespace

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)
        return found

    def says(
        self, name: str, state: str, error: str = "", pod: str = "", executors: dict[str, str] | None = None
    ) -> None:
        status: dict[str, Any] = {
            "applicationState": {"state": state, "errorMessage": error},
            "driverInfo": {"podName": pod},
            "executorState": executors or {},
        }
        self.custom.patch_namespaced_custom_object_status(
            GROUP, VERSION, self.namespace, PLURAL, name, {"status": status}
        )

    def makes_driver(self, pod: str, phase: str, of: str = "payments-replay-1", **status: Any) -> None:
        self.core.create_namespaced_pod(
            self.namespace,
            {
                # spark-submit's, by the operator's conf spark.kubernetes.driver.label.…
                "metadata": {"name": pod, "labels": {"sparkoperator.k8s.io/app-name": of, "spark-role": "driver"}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "serviceAccountName": "default",
                    "containers": [{"name": "spark-kubernetes-driver", "image": "spark"}],
                },
            },
        )
        self.core.patch_namespaced_pod_status(pod, self.namespace, {"status": {"phase": phase, **status}})

    def deletes(self, name: str) -> None:
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)


@pytest.fixture
def operator(client: Any, namespace: str) -> SparkOperator:
    core = SparkOperator(client, namespace)
    # Nobody makes it here: it is the controller manager's.
    from kubernetes.client.exceptions import ApiException

    try:
        core.core.create_namespaced_service_account(namespace, {"metadata": {"name": "default"}})
    except ApiException as error:
        assert error.status == 409  # noqa: PT017 - there is one already
    return core


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
def runner(client: Any, clock: LaterClock) -> SparkApplicationRunner:
    return SparkApplicationRunner(SparkSettings(start_timeout=timedelta(minutes=5)), api_client=client, clock=clock)


@pytest.fixture
def launch(namespace: str) -> Launch:
    return Launch(
        "payments-replay-1",
        namespace,
        f"configmap://{namespace}/payments-replay",
        owner={"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetResetPolicy", "name": "payments", "uid": "u-1"},
        spark={"executor": {"instances": 2}, "sparkConf": {"spark.network.timeout": "60s"}},
        connection_secrets={"kafka-user": ("password",)},
    )


def test_the_application_is_one_the_cluster_takes(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    stored = operator.get(launch.name)
    assert stored["spec"]["mainApplicationFile"] == "local:///opt/tidegate/spark/jobs/reset.py"
    assert stored["spec"]["executor"]["instances"] == 2
    # Nothing was pruned: the CRD knows every field we send.
    for role in ("driver", "executor"):
        assert stored["spec"][role]["serviceAccount"] == "tidegate-spark"
        pod = stored["spec"][role]["template"]["spec"]
        assert pod["volumes"][0]["secret"]["secretName"] == "kafka-user"
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["containers"][0]["env"] == [{"name": "TIDEGATE_STORE", "value": launch.store}]
    managers = {field["manager"]: field["operation"] for field in stored["metadata"]["managedFields"]}
    assert managers == {"tidegate": "Apply"}
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_starting_twice_starts_once(runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch) -> None:
    runner.start(launch)
    before = operator.get(launch.name)["metadata"]
    operator.says(launch.name, "RUNNING")
    runner.start(launch)
    after = operator.get(launch.name)
    assert (after["metadata"]["uid"], after["metadata"]["generation"]) == (before["uid"], before["generation"])
    assert after["status"]["applicationState"]["state"] == "RUNNING"


def test_an_application_nobody_started_is_lost(runner: SparkApplicationRunner, launch: Launch) -> None:
    assert runner.status(launch).state is RunnerState.LOST


def test_the_usual_way(runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch) -> None:
    runner.start(launch)
    assert runner.status(launch).state is RunnerState.RUNNING
    operator.says(launch.name, "SUBMITTED", pod="the-driver")
    assert runner.status(launch).state is RunnerState.RUNNING
    operator.makes_driver("the-driver", "Running")
    operator.says(launch.name, "RUNNING", pod="the-driver")
    assert runner.status(launch).state is RunnerState.RUNNING
    operator.core.patch_namespaced_pod_status("the-driver", launch.namespace, {"status": {"phase": "Succeeded"}})
    operator.says(launch.name, "COMPLETED", pod="the-driver")
    status = runner.status(launch)
    assert (status.state, status.message) == (RunnerState.EXITED, "")


def test_executors_that_do_not_start_are_told_of_after_a_while(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch, clock: LaterClock
) -> None:
    runner.start(launch)
    operator.makes_driver("the-driver", "Running")
    operator.says(launch.name, "RUNNING", pod="the-driver", executors={"exec-1": "PENDING", "exec-2": "RUNNING"})
    assert runner.status(launch).message == ""
    clock.ahead = timedelta(minutes=2)
    status = runner.status(launch)
    assert status.state is RunnerState.RUNNING
    assert status.message == "1 executor(s) do not start: kubectl describe pod exec-1 says why"


def test_submitted_for_ever_is_lost_after_its_time(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch, clock: LaterClock
) -> None:
    runner.start(launch)
    operator.says(launch.name, "SUBMITTED")
    status = runner.status(launch)
    assert status.state is RunnerState.RUNNING
    assert "SUBMITTED and has no driver pod" in status.message
    clock.ahead = timedelta(minutes=6)
    status = runner.status(launch)
    assert status.state is RunnerState.LOST
    assert "Is the Spark operator running?" in status.message


def test_submitted_although_the_driver_has_ended(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.makes_driver(f"{launch.name}-driver", "Succeeded")
    operator.says(launch.name, "SUBMITTED")
    assert runner.status(launch).state is RunnerState.EXITED


def test_failed_although_the_driver_succeeded(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.makes_driver("d", "Succeeded")
    operator.says(launch.name, "FAILED", "driver pod not found", pod="d")
    status = runner.status(launch)
    assert (status.state, status.message) == (RunnerState.EXITED, "")


def test_failed_although_the_driver_still_runs(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.makes_driver("d", "Running")
    operator.says(launch.name, "FAILED", pod="d")
    assert runner.status(launch).state is RunnerState.RUNNING


def test_a_driver_that_fails_says_why(runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch) -> None:
    runner.start(launch)
    ended = {"name": "spark-kubernetes-driver", "image": "spark", "imageID": "", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    operator.makes_driver("d", "Failed", containerStatuses=[ended])
    operator.says(launch.name, "FAILED", "driver container failed", pod="d")
    status = runner.status(launch)
    assert status.state is RunnerState.EXITED
    assert "driver pod d failed with code 137 (OOMKilled)" in status.message
    assert "driver container failed" in status.message
    assert not status.forged


def test_a_driver_that_found_a_forged_document_is_told_from_others(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    ended = {"name": "spark-kubernetes-driver", "image": "spark", "imageID": "", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 3, "reason": "Error"}}
    operator.makes_driver("d", "Failed", containerStatuses=[ended])
    operator.says(launch.name, "FAILED", "driver container failed", pod="d")
    assert runner.status(launch).forged


def test_a_submission_that_fails_says_why(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.says(launch.name, "SUBMISSION_FAILED", "forbidden: exceeded quota")
    status = runner.status(launch)
    assert status.state is RunnerState.EXITED
    assert "exceeded quota" in status.message


def test_a_driver_that_cannot_start_says_why(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    waits = {"name": "spark-kubernetes-driver", "image": "spark", "imageID": "", "ready": False, "restartCount": 0}
    waits["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    operator.makes_driver(f"{launch.name}-driver", "Pending", containerStatuses=[waits])
    status = runner.status(launch)
    assert status.state is RunnerState.RUNNING
    assert "ImagePullBackOff: no such image" in status.message


def test_stopping_takes_application_and_driver_away(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.makes_driver("d", "Running")
    operator.says(launch.name, "RUNNING", pod="d")
    runner.stop(launch)
    assert runner.status(launch).state is RunnerState.LOST
    assert operator.core.list_namespaced_pod(launch.namespace).items == []
    runner.stop(launch)


def test_a_status_that_names_another_pod_has_it_left_alone(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.makes_driver("of-another", "Running", of="another")
    operator.says(launch.name, "RUNNING", pod="of-another")
    assert "has no driver pod" in runner.status(launch).message
    runner.stop(launch)
    assert [pod.metadata.name for pod in operator.core.list_namespaced_pod(launch.namespace).items] == ["of-another"]


def test_an_application_that_was_deleted_is_lost(
    runner: SparkApplicationRunner, operator: SparkOperator, launch: Launch
) -> None:
    runner.start(launch)
    operator.deletes(launch.name)
    assert runner.status(launch).state is RunnerState.LOST


def test_a_namespace_that_is_not_there_is_named(runner: SparkApplicationRunner) -> None:
    with pytest.raises(RunnerFailure, match="no namespace nowhere"):
        runner.start(Launch("a", "nowhere", "configmap://nowhere/a"))


def test_a_spec_that_makes_no_sense_creates_nothing(
    runner: SparkApplicationRunner, namespace: str, operator: SparkOperator
) -> None:
    launch = Launch("a", namespace, "configmap://x/a", spark={"sparkConf": {"spark.plugins": "x"}})
    with pytest.raises(BadSparkSpec):
        runner.start(launch)
    assert runner.status(launch).state is RunnerState.LOST
