"""Operators of one namespace that take turns at leading, each under an account of its own, so that the API server's
audit log tells who of them has written what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from kubernetes import client as kube

from devstack import ApiServer
from support.operator_process import OperatorProcess, until
from support.takeover.judging import Write

LEASE: Final = "tidegate"
GAVE_UP: Final = 3
"""The exit code of an operator that leads no more."""

_USER: Final = "system:serviceaccount:{namespace}:{name}"
_WRITES: Final = ("create", "update", "patch", "delete")
_TAKEN_OVER_S: Final = 90.0
_DEFAULTS: Final = {"TIDEGATE_ACTIVE_TICK_S": "", "TIDEGATE_IDLE_TICK_S": "", "TIDEGATE_HEALTH_INTERVAL_S": ""}
"""An empty value leaves the operator's own default."""


class Replica:
    """One process. `name` is its account; `is_over`: it was killed, or frozen and has ended as it had to."""

    def __init__(self, name: str, process: OperatorProcess) -> None:
        self.name = name
        self.process = process
        self.is_over = False

    @property
    def leads(self) -> bool:
        return self.process.metric("tidegate_leader") == 1

    @property
    def is_ready(self) -> bool:
        return self.process.get("/readyz")[0] == 200


class Replicas:
    """Two of them at work at any time: `fill` starts another one in place of one that has ended."""

    def __init__(self, apiserver: ApiServer, client: kube.ApiClient, namespace: str, folder: Path) -> None:
        self._apiserver = apiserver
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self._started = 0
        self.all: list[Replica] = []
        kube.RbacAuthorizationV1Api(client).create_cluster_role_binding(
            {
                "metadata": {"name": f"{namespace}-replicas"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [
                    {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Group",
                        "name": f"system:serviceaccounts:{namespace}",
                    }
                ],
            }
        )

    def fill(self) -> Replica:
        """Start one more, as a kubelet does."""
        self._started += 1
        name = f"replica-{self._started}"
        folder = self._folder / name
        folder.mkdir(parents=True)
        environment = {"TIDEGATE_NAMESPACE": self._namespace, "TIDEGATE_LEASE": LEASE, **_DEFAULTS}
        process = OperatorProcess(self._kubeconfig(name, folder), self._namespace, folder, environment)
        replica = Replica(name, process.start())
        self.all.append(replica)
        return replica

    def _kubeconfig(self, name: str, folder: Path) -> Path:
        core = kube.CoreV1Api(self._client)
        core.create_namespaced_service_account(self._namespace, {"metadata": {"name": name}})
        asked = kube.AuthenticationV1TokenRequest(spec=kube.V1TokenRequestSpec(audiences=[], expiration_seconds=86_400))
        token = core.create_namespaced_service_account_token(name, self._namespace, asked).status.token
        found = json.loads(self._apiserver.kubeconfig.read_text())
        found["users"][0]["user"] = {"token": token}
        path = folder / "kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(found))
        return path

    @property
    def at_work(self) -> list[Replica]:
        """Fails where one of them has ended by itself."""
        found = [replica for replica in self.all if not replica.is_over]
        ended = [replica for replica in found if not replica.process.running]
        assert not ended, f"{ended[0].name} ended by itself: {ended[0].process.tail()}"
        return found

    def leader(self, after: Replica | None = None) -> Replica:
        """The one that leads, once one does; after that one, which is killed, or frozen and answers nothing."""
        found: Replica = until(
            lambda: next((r for r in self.at_work if r is not after and r.leads), None),
            f"one leads after {after.name if after is not None else 'nobody'}",
            timeout_s=_TAKEN_OVER_S,
        )
        return found

    def wait_ready(self) -> None:
        """So that whoever is left can take over."""
        until(lambda: all(r.is_ready for r in self.at_work), "both are ready", timeout_s=_TAKEN_OVER_S)

    # --- what they wrote ----------------------------------------------------------------------------------------------

    def writes(self) -> list[Write]:
        """All of theirs, by the audit log, in the order in which they came."""
        found = []
        names = {_USER.format(namespace=self._namespace, name=replica.name): replica.name for replica in self.all}
        with self._apiserver.audit_log.open() as lines:
            for line in lines:
                entry = json.loads(line)
                name = names.get(entry["user"].get("username", ""))
                if name is None or entry["verb"] not in _WRITES:
                    continue
                reference = entry.get("objectRef", {})
                what = "/".join(reference[part] for part in ("resource", "name", "subresource") if reference.get(part))
                at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
                found.append(Write(at, name, entry["verb"], what, entry.get("responseStatus", {}).get("code", 0)))
        return sorted(found, key=lambda write: write.t)

    def logs(self) -> Iterator[Path]:
        return (replica.process.log for replica in self.all)


@contextmanager
def replicas_of(apiserver: ApiServer, client: kube.ApiClient, namespace: str, folder: Path) -> Iterator[Replicas]:
    """Two replicas, the first of which leads."""
    made = Replicas(apiserver, client, namespace, folder)
    try:
        first = made.fill()
        until(lambda: first.leads, f"{first.name} leads")
        made.fill()
        made.wait_ready()
        yield made
    finally:
        for replica in made.all:
            if replica.process.running:
                replica.process.thaw()
                replica.process.stop()
