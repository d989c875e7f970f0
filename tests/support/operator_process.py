"""The operator as it is run, a process of its own, and the resources it serves."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kubernetes import client as kube

Body = dict[str, Any]

FAST = {
    "TIDEGATE_ACTIVE_TICK_S": "0.3",
    "TIDEGATE_IDLE_TICK_S": "1",
    "TIDEGATE_HEALTH_INTERVAL_S": "1",
    "TIDEGATE_LOG_LEVEL": "INFO",
}


def until(look: Callable[[], Any], what: str, *, timeout_s: float = 60.0, pause_s: float = 0.05) -> Any:
    """The first true thing that `look` returns; fails the test with `what` and the last look otherwise."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(pause_s)


class OperatorProcess:
    """`tidegate-operator` for one namespace, with quick ticks. `environment` is added to its own."""

    def __init__(
        self, kubeconfig: Path, namespace: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._folder = folder
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "operator.log"
        self.runtime_directory = folder / "runtime"

    def start(self) -> Self:
        assert self._process is None, "it runs already"
        begins_at = self.log.stat().st_size if self.log.exists() else 0
        environment = {
            **os.environ,
            **FAST,
            "KUBECONFIG": str(self._kubeconfig),
            "TIDEGATE_NAMESPACES": self._namespace,
            "TIDEGATE_HEALTH_ADDRESS": "127.0.0.1:0",
            "TIDEGATE_RUNTIME_DIRECTORY": str(self.runtime_directory),
            "TIDEGATE_SPARK_RUNNER": "none",
            **self._environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.main"],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        # On a busy machine Python alone may take half a minute to start.
        self.port, self.metrics_port = until(lambda: self._ports(begins_at), f"it is up: {self.log}", timeout_s=120)
        return self

    def _ports(self, begins_at: int) -> tuple[int, int] | None:
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended with {self._process.returncode}: {self.tail()}"
        with self.log.open() as log:
            log.seek(begins_at)
            found = re.search(r"health on port (\d+), metrics on port (\d+)", log.read())
        return (int(found[1]), int(found[2])) if found else None

    def kill(self) -> None:
        """As `kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As a pod is stopped; returns the exit code."""
        return self._end(signal.SIGTERM)

    def ask_to_stop(self) -> None:
        """As `stop`, without waiting for it; `ended` does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def _end(self, signum: int) -> int:
        assert self._process is not None
        self._process.send_signal(signum)
        code = self._process.wait(30)
        self._process = None
        return code

    def freeze(self) -> None:
        """As a node that is suspended; `thaw` lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ended(self, timeout_s: float) -> int:
        """The exit code of an operator that ends by itself."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._process = None
        return code

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text().splitlines()[-lines:]) if self.log.exists() else "(none)"

    def get(self, path: str) -> tuple[int, str]:
        """(HTTP status, text)"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all samples of `name` that have these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            found = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name:
                given = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
                if all(given.get(key) == value for key, value in labels.items()):
                    total += float(found[3])
        return total

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()


class Resources:
    """Makes, reads and deletes Tidegate's resources in one namespace."""

    def __init__(self, client: kube.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self.core = kube.CoreV1Api(client)
        self._custom = kube.CustomObjectsApi(client)

    # --- making -------------------------------------------------------------------------------------------------------

    def connection(self, name: str, bootstrap: str, **spec: Any) -> Body:
        return self._create("kafkaconnections", "KafkaConnection", name, {"bootstrapServers": bootstrap, **spec})

    def policy(
        self, name: str, group: str | Sequence[str], reset: Mapping[str, Any] | None = None, **spec: Any
    ) -> Body:
        """A policy of a group, or of several, through connection `kafka`. Annotations by the keyword `annotations`."""
        annotations = spec.pop("annotations", {})
        of = {"group": group} if isinstance(group, str) else {"groups": list(group)}
        spec = {"connectionRef": {"name": "kafka"}, **of, **spec}
        if reset is not None:
            spec["reset"] = dict(reset)
        return self._create("offsetresetpolicies", "OffsetResetPolicy", name, spec, annotations)

    def reset(self, name: str, group: str | Sequence[str], to: Mapping[str, Any], **spec: Any) -> Body:
        """An `OffsetReset` of a group, or of several, through connection `kafka`."""
        of = {"group": group} if isinstance(group, str) else {"groups": list(group)}
        spec = {"connectionRef": {"name": "kafka"}, **of, "to": dict(to), **spec}
        return self._create("offsetresets", "OffsetReset", name, spec)

    def backup(self, name: str, storage: Mapping[str, Any], **spec: Any) -> Body:
        """An `OffsetBackup` through connection `kafka`."""
        spec = {"connectionRef": {"name": "kafka"}, "storage": dict(storage), **spec}
        return self._create("offsetbackups", "OffsetBackup", name, spec)

    def mirror(self, name: str, topics: Mapping[str, Any], **spec: Any) -> Body:
        """An `OffsetMirror` from connection `here` to connection `there`."""
        spec = {"source": {"name": "here"}, "target": {"name": "there"}, "topics": dict(topics), **spec}
        return self._create("offsetmirrors", "OffsetMirror", name, spec)

    def pause(self, name: str, group: str, *partitions: Mapping[str, Any], **spec: Any) -> Body:
        """A pause through connection `kafka`, of partitions such as `{"topic": "orders", "partitions": ["0-3"]}`."""
        spec = {"connectionRef": {"name": "kafka"}, "group": group, **spec}
        if partitions:
            spec["partitions"] = [dict(selection) for selection in partitions]
        return self._create("consumergrouppauses", "ConsumerGroupPause", name, spec)

    def secret(self, name: str, **values: str) -> None:
        self.core.create_namespaced_secret(
            self.namespace, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
        )

    def config_map(self, name: str, **values: str) -> None:
        self.core.create_namespaced_config_map(
            self.namespace, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": values}
        )

    def _create(
        self, plural: str, kind: str, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None
    ) -> Body:
        body = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": dict(spec),
        }
        created: Body = self._custom.create_namespaced_custom_object(
            "tidegate.io", "v1alpha1", self.namespace, plural, body
        )
        return created

    # --- changing -----------------------------------------------------------------------------------------------------

    def patch(self, plural: str, name: str, body: Mapping[str, Any]) -> Body:
        patched: Body = self._custom.patch_namespaced_custom_object(
            "tidegate.io",
            "v1alpha1",
            self.namespace,
            plural,
            name,
            dict(body),
            _content_type="application/merge-patch+json",
        )
        return patched

    def say(self, plural: str, name: str, status: Mapping[str, Any]) -> None:
        """A status, in place of the operator."""
        self._custom.patch_namespaced_custom_object_status(
            "tidegate.io",
            "v1alpha1",
            self.namespace,
            plural,
            name,
            {"status": dict(status)},
            _content_type="application/merge-patch+json",
        )

    def patch_policy(self, name: str, **spec: Any) -> Body:
        return self.patch("offsetresetpolicies", name, {"spec": spec})

    def annotate_policy(self, name: str, **annotations: str) -> Body:
        """Annotations below `tidegate.io/`."""
        return self._annotate("offsetresetpolicies", name, annotations)

    def annotate_reset(self, name: str, **annotations: str) -> Body:
        """Annotations below `tidegate.io/`."""
        return self._annotate("offsetresets", name, annotations)

    def _annotate(self, plural: str, name: str, annotations: Mapping[str, str]) -> Body:
        given = {f"tidegate.io/{key}": value for key, value in annotations.items()}
        return self.patch(plural, name, {"metadata": {"annotations": given}})

    def approve(self, name: str, plan: str = "", approver: str = "system:admin") -> Body:
        """The plan with this digest, or as the OffsetReset's status has it now."""
        plan = plan or self.get_reset(name)["status"]["digest"]
        spec = {"reset": name, "plan": plan, "approver": approver}
        return self._create("offsetresetapprovals", "OffsetResetApproval", f"{name}-{secrets.token_hex(4)}", spec)

    def patch_pause(self, name: str, **spec: Any) -> Body:
        return self.patch("consumergrouppauses", name, {"spec": spec})

    def delete_pause(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(
            "tidegate.io", "v1alpha1", self.namespace, "consumergrouppauses", name
        )

    def lose_status(self, name: str) -> None:
        """What a restored backup looks like: the OffsetReset, and nothing of what it has done."""

        def is_lost() -> bool:
            body = {**self.get_reset(name), "status": {}}
            try:
                self._custom.replace_namespaced_custom_object_status(
                    "tidegate.io", "v1alpha1", self.namespace, "offsetresets", name, body
                )
            except kube.exceptions.ConflictException:  # the operator wrote it in between
                return False
            return True

        until(is_lost, f"the status of {name} is taken away")

    def delete_backup(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, "offsetbackups", name)

    def delete_mirror(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, "offsetmirrors", name)

    def delete_policy(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(
            "tidegate.io", "v1alpha1", self.namespace, "offsetresetpolicies", name
        )

    def delete_reset(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, "offsetresets", name)

    def clear(self) -> None:
        """Take all resources away, finalizers or not; no operator may run any more."""
        for plural in (
            "offsetresetpolicies",
            "offsetresets",
            "offsetresetapprovals",
            "offsetbackups",
            "offsetmirrors",
            "consumergrouppauses",
            "kafkaconnections",
        ):
            found = self._custom.list_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, plural)
            for name in [item["metadata"]["name"] for item in found["items"]]:
                self.patch(plural, name, {"metadata": {"finalizers": None}})
                with contextlib.suppress(kube.exceptions.NotFoundException):
                    self._custom.delete_namespaced_custom_object(
                        "tidegate.io", "v1alpha1", self.namespace, plural, name
                    )

    def delete_connection(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(
            "tidegate.io", "v1alpha1", self.namespace, "kafkaconnections", name
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, plural: str, name: str) -> Body | None:
        with contextlib.suppress(kube.exceptions.NotFoundException):
            found: Body = self._custom.get_namespaced_custom_object(
                "tidegate.io", "v1alpha1", self.namespace, plural, name
            )
            return found
        return None

    def get_policy(self, name: str) -> Body:
        found = self.get("offsetresetpolicies", name)
        assert found is not None, f"there is no policy {name}"
        return found

    def get_reset(self, name: str) -> Body:
        found = self.get("offsetresets", name)
        assert found is not None, f"there is no reset {name}"
        return found

    def get_backup(self, name: str) -> Body:
        found = self.get("offsetbackups", name)
        assert found is not None, f"there is no backup {name}"
        return found

    def get_mirror(self, name: str) -> Body:
        found = self.get("offsetmirrors", name)
        assert found is not None, f"there is no mirror {name}"
        return found

    def get_pause(self, name: str) -> Body:
        found = self.get("consumergrouppauses", name)
        assert found is not None, f"there is no pause {name}"
        return found

    def get_connection(self, name: str) -> Body:
        found = self.get("kafkaconnections", name)
        assert found is not None, f"there is no connection {name}"
        return found

    def events(self, name: str) -> list[tuple[str, str]]:
        """(reason, message) of the Events about the object of this name, oldest first."""
        found = self.core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}").items
        return [(e.reason, e.message) for e in sorted(found, key=lambda e: (e.event_time, e.metadata.name))]

    def run_documents(self, reset: str) -> dict[str, dict[str, str]]:
        """The ConfigMaps of an OffsetReset, by name."""
        found = self.core.list_namespaced_config_map(
            self.namespace, label_selector=f"app.kubernetes.io/managed-by=tidegate,tidegate.io/offset-reset={reset}"
        ).items
        return {c.metadata.name: dict(c.data or {}) for c in found}

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_connection(self, name: str, ready: bool = True, *, reason: str = "", timeout_s: float = 60.0) -> Body:
        """The connection, once its condition Ready is `ready` for its generation, with this reason if one is given."""
        return self._wait(lambda: self.get_connection(name), f"connection {name}", ready, reason, timeout_s)

    def wait_policy(self, name: str, ready: bool = True, *, reason: str = "", timeout_s: float = 60.0) -> Body:
        return self._wait(lambda: self.get_policy(name), f"policy {name}", ready, reason, timeout_s)

    def wait_mirror(self, name: str, ready: bool = True, *, reason: str = "", timeout_s: float = 60.0) -> Body:
        return self._wait(lambda: self.get_mirror(name), f"mirror {name}", ready, reason, timeout_s)

    def wait_refused(self, name: str, reason: str, *, timeout_s: float = 60.0) -> Body:
        """The OffsetReset, once it is not Ready for this reason."""
        return self._wait(lambda: self.get_reset(name), f"reset {name}", False, reason, timeout_s)

    def wait_pause(self, name: str, phase: str, paused: str = "", *, reason: str = "", timeout_s: float = 30.0) -> Body:
        """The pause, once it is in this phase, with so many paused (as `4/4`) and its Paused for this reason."""
        last: Body = {}

        def look() -> Body | None:
            nonlocal last
            last = self.get_pause(name)
            status = last.get("status", {})
            right = status.get("phase") == phase and paused in ("", status.get("paused"))
            right = right and reason in ("", condition_of(last, "Paused").get("reason"))
            return last if right and status.get("observedGeneration") == last["metadata"]["generation"] else None

        try:
            found: Body = until(look, f"pause {name} {phase} {paused} {reason}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(last.get('status'), indent=1)}") from None
        return found

    def wait_phase(self, name: str, *phases: str, timeout_s: float = 60.0) -> Body:
        """The OffsetReset, once it is there and in one of the phases."""
        last: Body = {}

        def look() -> Body | None:
            nonlocal last
            last = self.get("offsetresets", name) or {}
            return last if last.get("status", {}).get("phase") in phases else None

        try:
            found: Body = until(look, f"reset {name} in {phases}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(last.get('status'), indent=1)}") from None
        return found

    def _wait(self, read: Callable[[], Body], what: str, ready: bool, reason: str, timeout_s: float) -> Body:
        last: Body = {}

        def look() -> Body | None:
            nonlocal last
            last = read()
            condition = condition_of(last, "Ready")
            right = condition.get("status") == str(ready) and reason in ("", condition.get("reason"))
            observed = last.get("status", {}).get("observedGeneration") == last["metadata"]["generation"]
            return last if right and observed else None

        try:
            found: Body = until(look, f"{what} Ready={ready} {reason}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(last.get('status'), indent=1)}") from None
        return found


def condition_of(body: Mapping[str, Any], condition_type: str) -> Body:
    """The condition, or an empty one."""
    conditions: list[Body] = body.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == condition_type), {})


def writes_in(audit_log: Path, namespace: str, since_line: int) -> Iterator[str]:
    """Who wrote what to Tidegate's resources, ConfigMaps and Events in a namespace, from a line of the audit log on."""
    with audit_log.open() as lines:
        for number, line in enumerate(lines):
            if number < since_line:
                continue
            entry = json.loads(line)
            reference = entry.get("objectRef", {})
            if entry["verb"] in ("create", "update", "patch", "delete") and reference.get("namespace") == namespace:
                what = "/".join(reference[part] for part in ("resource", "name", "subresource") if reference.get(part))
                yield f"{entry['verb']} {what}"
