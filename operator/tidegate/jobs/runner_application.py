"""SparkApplications of the Kubeflow Spark operator.

Its ``applicationState`` is followed and not believed: short jobs end up FAILED (kubeflow/spark-operator #2755), others
stay SUBMITTED for ever (#2872). Whether anything still runs is told by the driver's pod. Which one that is, the status
says as well, and it may say the name of any pod: it is believed of a pod that carries the application's name or uid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from json import JSONDecodeError
from typing import Any, Final

import urllib3

from tidegate.clock import Clock, SystemClock
from tidegate.jobs.application import GROUP, PLURAL, VERSION, render
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import FORGED_EXIT, Launch, RunnerState, RunnerStatus
from tidegate.jobs.settings import SparkSettings
from tidegate.kube.answers import NO_JSON, message_of
from tidegate.kube.api import default_api_client
from tidegate.kube.custom import is_object

FIELD_MANAGER: Final = "tidegate"
APP_NAME_LABEL: Final = "sparkoperator.k8s.io/app-name"
"""What the Spark operator has ``spark-submit`` put on the driver's pod, and on the executors'."""
DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
LOG_TAIL_LINES: Final = 20
LOG_TAIL_BYTES: Final = 4096
STOP_PATIENCE_S: Final = 60.0
GRACE_S: Final = 10
EXECUTORS_LATE_S: Final = 60.0
"""After the application was made: on a node that has the image, executors run some 20 s after it."""
_TIMEOUT_S: Final = (5.0, 15.0)
_MOST_DRIVERLESS: Final = 10_000
"""Of so many it is remembered since when they have had no driver, or that they had one."""

_ENDED: Final = frozenset({"COMPLETED", "FAILED", "SUBMISSION_FAILED"})


class SparkApplicationRunner:
    """Implements ``tidegate.jobs.runner.Runner``. Thread-safe.

    ``api_client``: a ``kubernetes.client.ApiClient``; without it, that of the environment. Calls raise
    ``RunnerFailure`` when the API server refuses or does not answer.
    """

    def __init__(self, settings: SparkSettings, *, api_client: Any = None, clock: Clock | None = None) -> None:
        from kubernetes.client import CustomObjectsApi

        from tidegate.kube.core import CoreObjects

        client = api_client if api_client is not None else default_api_client()
        self._applications = CustomObjectsApi(client)
        self._core = CoreObjects(client)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._driverless: dict[str, float | None] = {}
        """By uid, when applications were first seen without a driver's pod; ``None`` once they were seen with one."""
        self._mutex = threading.Lock()
        self._template = (settings.templates / "sparkapplication.yaml").read_text(encoding="utf-8")

    @property
    def engine(self) -> str:
        return "Spark"

    def start(self, launch: Launch) -> None:
        """Server-side apply: doing it twice changes nothing, and another field manager's fields stay its own."""
        application = render(self._template, launch, self._settings)
        status, answer = _call(
            self._applications.patch_namespaced_custom_object,
            *(GROUP, VERSION, launch.namespace, PLURAL, launch.name, application),
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type="application/apply-patch+yaml",
        )
        if status == 404:
            raise RunnerFailure(
                f"the cluster knows no SparkApplication {GROUP}/{VERSION} (or no namespace {launch.namespace}): "
                f"install the Kubeflow Spark operator, or use another runner. {answer}"
            )
        if status is not None:
            raise RunnerFailure(f"SparkApplication {launch.namespace}/{launch.name} is refused: {answer}")

    def status(self, launch: Launch) -> RunnerStatus:
        application = self._application(launch)
        if application is None:
            return RunnerStatus(RunnerState.LOST, f"there is no SparkApplication {launch.namespace}/{launch.name}")
        status = application.get("status") or {}
        state = (status.get("applicationState") or {}).get("state") or ""
        said = (status.get("applicationState") or {}).get("errorMessage") or ""
        pod = self._driver_pod(launch, application)
        phase = pod["status"].get("phase") if pod is not None else None
        age_s = (self._clock.now() - _created(application)).total_seconds()
        if pod is not None:
            self._note(application, None)
        if pod is not None and phase not in ("Succeeded", "Failed"):  # without any, it was just made
            why = _waiting(pod) or (_executors_waiting(status) if age_s > EXECUTORS_LATE_S else "")
            return RunnerStatus(RunnerState.RUNNING, why)
        if pod is not None:
            if phase == "Succeeded":
                return RunnerStatus(RunnerState.EXITED)
            ended = _ended(pod)
            forged = ended is not None and ended["exitCode"] == FORGED_EXIT
            return RunnerStatus(RunnerState.EXITED, self._why(launch, pod, said), forged=forged)
        if state in _ENDED:
            message = f"SparkApplication is {state}" + (f": {said}" if said else "")
            return RunnerStatus(RunnerState.EXITED, "" if state == "COMPLETED" else message)
        said = f"SparkApplication is {state or 'not taken up by the Spark operator'} and has"
        waited_s = self._without_driver_s(application)
        if waited_s is None:
            return RunnerStatus(RunnerState.LOST, f"{said} no driver pod any more")
        if waited_s > self._settings.start_timeout.total_seconds():
            # It may still be taken up one day: whoever starts another one has to stop this one first.
            why = f"{said} had no driver pod for {waited_s:.0f} s. Is the Spark operator running?"
            return RunnerStatus(RunnerState.LOST, why)
        return RunnerStatus(RunnerState.RUNNING, f"{said} no driver pod")

    def _without_driver_s(self, application: Mapping[str, Any]) -> float | None:
        """For how long this process has seen it without a driver's pod; ``None``: it has seen one before. When it was
        made says nothing where this machine's clock is ahead of the API server's: each would be lost at once."""
        now_s = self._clock.monotonic()
        since_s = self._note(application, now_s)
        return None if since_s is None else now_s - since_s

    def _note(self, application: Mapping[str, Any], driverless_s: float | None) -> float | None:
        """What is known of it from now on: that it has had a driver's pod (``None``), or since when it has had none."""
        uid = str(application["metadata"]["uid"])
        with self._mutex:
            if driverless_s is None:
                self._driverless[uid] = None
            known = self._driverless.setdefault(uid, driverless_s)
            if len(self._driverless) > _MOST_DRIVERLESS:
                del self._driverless[next(iter(self._driverless))]
        return known

    def stop(self, launch: Launch) -> None:
        deadline = self._clock.monotonic() + STOP_PATIENCE_S
        application = self._application(launch)
        if application is not None:
            # Not in the foreground: that would wait for a garbage collector, and we look for ourselves.
            self._deleted(
                self._applications.delete_namespaced_custom_object,
                *(GROUP, VERSION, launch.namespace, PLURAL, launch.name),
                propagation_policy="Background",
            )
        stopped: set[str] = set()
        while True:
            # In this order, each time: the Spark operator may be about to make it.
            is_there = self._application(launch) is not None
            pod = self._driver_pod(launch, application)
            if pod is not None and pod["metadata"]["uid"] not in stopped:
                self._deleted(self._core.delete, "pods", launch.namespace, pod["metadata"]["name"], grace_s=GRACE_S)
                stopped.add(pod["metadata"]["uid"])
            elif pod is None and not is_there:
                return
            if self._clock.monotonic() > deadline:
                what = f" or its pod {pod['metadata']['name']}" if pod is not None else ""
                raise TimeoutError(
                    f"SparkApplication {launch.namespace}/{launch.name}{what} is still there after "
                    f"{STOP_PATIENCE_S:.0f} s"
                )
            self._clock.sleep(0.2)

    def _application(self, launch: Launch) -> dict[str, Any] | None:
        status, answer = _call(
            self._applications.get_namespaced_custom_object, GROUP, VERSION, launch.namespace, PLURAL, launch.name
        )
        if status == 404:
            return None
        return _object_in(f"SparkApplication {launch.namespace}/{launch.name}", status, answer)

    def _driver_pod(self, launch: Launch, application: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The one that the status names, or that is called as the Spark operator calls it; and belongs to it."""
        pods = (self._pod(name, launch.namespace) for name in _driver_names(launch, application))
        return next((pod for pod in pods if pod is not None and _belongs(pod, launch, application)), None)

    def _pod(self, name: str, namespace: str) -> dict[str, Any] | None:
        status, answer = _call(self._core.read, "pods", namespace, name)
        if status == 404:
            return None
        return _object_in(f"pod {namespace}/{name}", status, answer)

    def _why(self, launch: Launch, pod: Any, said: str) -> str:
        parts = [f"driver pod {pod['metadata']['name']} failed"]
        ended = _ended(pod)
        if ended is not None:
            parts[0] += f" with code {ended['exitCode']}" + (f" ({ended['reason']})" if ended.get("reason") else "")
        if said:
            parts.append(said)
        status, log = _call(
            self._core.log,
            *(launch.namespace, pod["metadata"]["name"]),
            container=DRIVER_CONTAINER,
            tail_lines=LOG_TAIL_LINES,
            limit_bytes=64 * 1024,
        )
        # The node may be gone with its logs; then the rest has to do.
        if status is None and log and log.strip():
            parts.append(f"its log ends:\n{log.strip()[-LOG_TAIL_BYTES:]}")
        return "; ".join(parts)

    def _deleted(self, delete: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        status, answer = _call(delete, *arguments, **options)
        if status not in (None, 404):
            raise RunnerFailure(f"can't delete {arguments[-1]}: {answer}")


def _object_in(what: str, status: int | None, answer: Any) -> dict[str, Any]:
    """An answer that is an object. Raises ``RunnerFailure``."""
    if status is not None:
        raise RunnerFailure(f"can't read {what}: {answer}")
    if not isinstance(answer, dict) or not is_object(answer):
        raise RunnerFailure(f"can't read {what}: {NO_JSON}")
    found: dict[str, Any] = {**answer, "status": answer.get("status") or {}}
    return found


def _call(method: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[int | None, Any]:
    """``(None, object)``, or the HTTP status and the server's message. Raises ``RunnerFailure`` for no answer."""
    from kubernetes.client.exceptions import ApiException

    try:
        return None, method(*arguments, **options, _request_timeout=_TIMEOUT_S)
    except ApiException as error:
        return error.status, message_of(error)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        # Of a proxy, or cut off.
        raise RunnerFailure(f"the API server does not answer: {NO_JSON}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise RunnerFailure(f"the API server does not answer: {error}") from error


def _driver_names(launch: Launch, application: Mapping[str, Any] | None) -> tuple[str, ...]:
    """As the Spark operator says, and as it will name it."""
    info = ((application or {}).get("status") or {}).get("driverInfo") or {}
    return tuple(dict.fromkeys(name for name in (info.get("podName"), f"{launch.name}-driver") if name))


def _belongs(pod: Mapping[str, Any], launch: Launch, application: Mapping[str, Any] | None) -> bool:
    """Whether the Spark operator has made the pod for the application: by its label, or by the owner that its webhook
    adds. Who may write the application's status could name any other, to be read and deleted."""
    metadata = pod["metadata"]
    owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
    is_owned = application is not None and application["metadata"]["uid"] in owners
    return is_owned or (metadata.get("labels") or {}).get(APP_NAME_LABEL) == launch.name


def _ended(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the driver's container ended (``ContainerStateTerminated``)."""
    for container in pod["status"].get("containerStatuses") or ():
        terminated: Mapping[str, Any] | None = (container.get("state") or {}).get("terminated")
        if container["name"] == DRIVER_CONTAINER and terminated:
            return terminated
    return None


def _created(application: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(application["metadata"]["creationTimestamp"])


def _waiting(pod: Mapping[str, Any]) -> str:
    """Why a driver does not start: the image can't be pulled, no node takes the pod."""
    name, status = pod["metadata"]["name"], pod["status"]
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False" and condition.get("message"):
            return f"driver pod {name} is not scheduled: {condition['message']}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"driver pod {name} waits: {waiting['reason']}: {waiting.get('message') or ''}".rstrip(": ")
    return ""


def _executors_waiting(status: Mapping[str, Any]) -> str:
    """A job without executors waits for ever and says so only in its driver's log."""
    waiting = sorted(name for name, state in (status.get("executorState") or {}).items() if state == "PENDING")
    if not waiting:
        return ""
    return f"{len(waiting)} executor(s) do not start: kubectl describe pod {waiting[0]} says why"
